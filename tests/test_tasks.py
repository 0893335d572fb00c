"""The tasks of tokens: answers recomputed one sequence at a time, distributions on large samples, bad input."""

import doctest

import numpy as np
import pytest

from lineage_lib import tasks
from lineage_lib.tasks import TASKS, Questions, common, group_elements, group_table, recall, tracking


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- Each answer again, by a slow loop that reads one sequence ---


def remembered(tokens, writes, keys):
    """Each of the first ``writes`` keys is followed by its value; of the keys after them the newest value is asked."""
    told = {}
    for key, value in zip(tokens[0 : 2 * writes : 2], tokens[1 : 2 * writes : 2]):
        assert key in keys
        told[key] = value
    return 2 * writes * [-1] + [told.get(x, -1) for x in tokens[2 * writes :]]


def copied(tokens, symbols):
    z = tokens[1 : tokens.index(symbols + 1)]
    expected = [symbols, *z, symbols + 1, *z]
    assert tokens == expected + (len(tokens) - len(expected)) * [symbols + 3]
    return (len(z) + 1) * [-1] + z + [symbols + 2] + (len(tokens) - len(expected)) * [-1]


def counted(tokens, modulus):
    return [sum(tokens[: t + 1]) % modulus for t in range(len(tokens))]


def evaluated(tokens, modulus):
    text = [str(x) if x < modulus else "+-*"[x - modulus] for x in tokens]
    return [eval("".join(text[: t + 1])) % modulus if t % 2 == 0 else -1 for t in range(len(text))]


def multiplied(tokens, group):
    elements = group_elements(group).tolist()
    points, answers = list(range(len(elements[0]))), []
    for x in tokens:
        points = [elements[x][p] for p in points]
        answers.append(elements.index(points))
    return answers


def flipped(tokens, T):
    stored, answers = None, []
    for instruction, bit in zip(tokens[::2], tokens[1::2]):
        answers += [stored if instruction == 4 else -1, -1]
        stored = bit if instruction == 2 else stored
        assert instruction != 4 or bit == stored
    assert (tokens[0], tokens[T - 2]) == (2, 4)
    return answers


CASES = {
    "multi_query_recall": (
        dict(T=36, pairs=7, updates=3, vocabulary=64, fill=False), lambda x: remembered(x, 10, range(1, 32))),
    "pairs_then_questions": (
        dict(pairs=4, updates=8, questions=9, keys=10, values=6), lambda x: remembered(x, 12, range(10))),
    "copying": (dict(shortest=1, longest=9, symbols=4), lambda x: copied(x, 4)),
    "parity": (dict(T=23), lambda x: counted(x, 2)),
    "modular_counting": (dict(T=23, modulus=5), lambda x: counted(x, 5)),
    "modular_arithmetic": (dict(T=23, modulus=7), lambda x: evaluated(x, 7)),
    "word_problem": (dict(T=23, group="A5"), lambda x: multiplied(x, "A5")),
    "flip_flop": (dict(T=24, write=0.2, read=0.3), lambda x: flipped(x, 24)),
}  # fmt: skip


def drawn(name: str, seed: int = 0, batch: int = 50, **changed) -> Questions:
    return TASKS[name](rng(seed), batch, **{**CASES[name][0], **changed})


def test_every_task_has_a_case():
    assert list(CASES) == list(TASKS)
    assert set(tasks.__all__) >= set(TASKS)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_a_slow_loop(name):
    for seed in range(4):
        questions = drawn(name, seed)
        assert questions.answers.tolist() == [CASES[name][1](tokens) for tokens in questions.tokens.tolist()]


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_vocabularies(name):
    tokens, answers, vocabulary, classes = drawn(name, batch=400)
    assert tokens.shape == answers.shape
    assert len(tokens) == 400
    assert tokens.dtype == answers.dtype == np.int64
    assert 0 <= tokens.min() <= tokens.max() < vocabulary
    assert answers.min() >= -1
    assert len({*answers[answers >= 0]}) <= classes
    assert answers.max() < classes


@pytest.mark.parametrize("name", CASES)
def test_a_seed_makes_the_data(name):
    one, same, other = drawn(name), drawn(name), drawn(name, seed=1)
    assert np.array_equal(one.tokens, same.tokens)
    assert np.array_equal(one.answers, same.answers)
    assert one.tokens.shape != other.tokens.shape or not np.array_equal(one.tokens, other.tokens)


@pytest.mark.parametrize("module", [recall, tracking, common])
def test_the_examples_of_the_docstrings(module):
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


# --- Distributions ---


def near(counts, probabilities, sigmas: float = 5.0) -> None:
    """Each count lies within ``sigmas`` standard deviations of what the probabilities expect."""
    counts, p = np.asarray(counts), np.asarray(probabilities)
    n = counts.sum()
    assert p.sum() == pytest.approx(1)
    assert np.all(np.abs(counts - n * p) <= sigmas * np.sqrt(n * p * (1 - p)) + 1e-9), (counts, n * p)


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_a_question_follows_after_a_gap_of_the_power_law(power):
    pairs, places = 2, 12
    q = tasks.multi_query_recall(rng(), 20_000, T=2 * pairs + 2 * places, pairs=pairs, vocabulary=64, power=power)
    at = [(np.where(q.answers == q.tokens[:, [2 * i + 1]])[1] - 2 * pairs) // 2 for i in range(pairs)]
    p = np.arange(1, places + 1) ** (power - 1)
    p /= p.sum()
    near(np.bincount(at[0], minlength=places), p)
    # The second key draws from what the first has left.
    near(np.bincount(at[1], minlength=places), [sum(p[a] * p[b] / (1 - p[a]) for a in range(12) if a != b)
                                                for b in range(12)])  # fmt: skip
    assert np.all((np.where(q.answers >= 0)[1] - 2 * pairs) % 2 == 0)


def test_recall_draws_keys_and_values_uniformly_and_each_once():
    q = tasks.multi_query_recall(rng(), 5_000, T=16, pairs=4, vocabulary=32)
    keys, values = q.tokens[:, 0:8:2], q.tokens[:, 1:8:2]
    near(np.bincount(keys.ravel(), minlength=16)[1:], np.full(15, 1 / 15))
    near(np.bincount(values.ravel() - 16), np.full(16, 1 / 16))
    assert all(len({*row}) == 4 for row in np.concatenate([keys, values + 100]).tolist())
    assert ((q.answers >= 0).sum(1) == 4).all()
    filled = q.tokens[:, 8:][q.answers[:, 8:] < 0]
    near(np.bincount(filled, minlength=32), np.full(32, 1 / 32))


def test_several_numbers_of_pairs_are_drawn_alike():
    counts = [(drawn("multi_query_recall", seed, batch=1, pairs=(3, 6)).answers >= 0).sum() for seed in range(400)]
    near([counts.count(3), counts.count(6)], [0.5, 0.5])


def test_an_update_changes_the_value_of_distinct_keys():
    q = drawn("multi_query_recall", batch=4_000, pairs=5, updates=3, vocabulary=12)
    keys, newer = q.tokens[:, 10:16:2], q.tokens[:, 11:16:2]
    which = (keys[:, :, None] == q.tokens[:, None, 0:10:2]).argmax(2)
    older = np.take_along_axis(q.tokens[:, 1:10:2], which, 1)
    assert all(len({*row}) == 3 for row in keys.tolist())
    near(np.bincount(which.ravel()), np.full(5, 1 / 5))
    near(np.bincount(((newer - older) % 6).ravel(), minlength=6)[1:], np.full(5, 1 / 5))


def test_the_simple_recall_asks_uniformly():
    q = drawn("pairs_then_questions", batch=4_000, pairs=3, updates=0)
    which = (q.tokens[:, None, 6:] == q.tokens[:, 0:6:2, None]).argmax(1)
    near(np.bincount(which.ravel()), np.full(3, 1 / 3))
    near(np.bincount(q.tokens[:, 1:6:2].ravel() - 10), np.full(6, 1 / 6))


def test_strings_to_copy_are_uniform_in_length_and_symbols():
    tokens = drawn("copying", batch=9_000).tokens
    length = (tokens == 5).argmax(1) - 1
    near(np.bincount(length)[1:], np.full(9, 1 / 9))
    near(np.bincount(tokens[tokens < 4]), np.full(4, 1 / 4), sigmas=8)  # each symbol stands there twice


def test_parity_of_a_string_is_asked_after_a_number_of_tokens():
    q = tasks.parity(rng(), 8_000, T=40, shortest=3)
    assert ((q.answers >= 0).sum(1) == 1).all()
    near(np.bincount(np.where(q.answers >= 0)[1] + 1)[3:], np.full(38, 1 / 38))
    near(np.bincount(q.tokens.ravel()), [0.5, 0.5])
    arithmetic = tasks.modular_arithmetic(rng(), 4_000, T=9, shortest=5)
    near(np.bincount(np.where(arithmetic.answers >= 0)[1] + 1)[5::2], np.full(3, 1 / 3))


def test_instructions_of_flip_flop_have_their_probabilities():
    q = tasks.flip_flop(rng(), 3_000, T=32, write=0.3, read=0.1)
    near(np.bincount(q.tokens[:, 2:-2:2].ravel())[2:], [0.3, 0.6, 0.1])
    free = q.tokens[:, ::2] != 4
    near(np.bincount(q.tokens[:, 1::2][free]), [0.5, 0.5])


# --- Groups ---


@pytest.mark.parametrize(("group", "order"), {"S3": 6, "S5": 120, "A4": 12, "A5": 60, "Z7": 7}.items())
def test_a_group_is_one(group, order):
    table, all_of_them = group_table(group), np.arange(order)
    assert len(group_elements(group)) == order
    assert np.array_equal(table[0], all_of_them)
    assert np.array_equal(table[:, 0], all_of_them)
    assert np.array_equal(np.sort(table, 1), np.broadcast_to(all_of_them, table.shape))
    a, b, c = rng().integers(0, order, (3, 500))
    assert np.array_equal(table[table[a, b], c], table[a, table[b, c]])
    assert np.array_equal(table, table.T) == group.startswith("Z")


def test_words_in_a_group_end_uniformly():
    q = tasks.word_problem(rng(), 12_000, T=5, group="S3")
    near(np.bincount(q.answers[:, -1]), np.full(6, 1 / 6))


# --- Bad input ---


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("multi_query_recall", dict(pairs=8, T=36), "pairs: expected a whole number from 1 to 7, as T"),
        ("multi_query_recall", dict(pairs=2), "updates: expected a whole number from 0 to 2 = pairs, got 3"),
        ("multi_query_recall", dict(pairs=(3, 0)), "pairs: .* got 0"),
        ("multi_query_recall", dict(power=0), "power: expected a number above 0, got 0"),
        ("pairs_then_questions", dict(pairs=11), "pairs: expected a whole number from 1 to 10 = keys, got 11"),
        ("pairs_then_questions", dict(questions=-1), "questions: .* got -1"),
        ("copying", dict(shortest=10), "shortest: expected a whole number from 1 to 9 = longest, got 10"),
        ("copying", dict(symbols=0), "symbols: "),
        ("parity", dict(T=0), "T: expected a whole number of at least 1, got 0"),
        ("parity", dict(shortest=24), "shortest: expected a whole number from 1 to 23 = T, got 24"),
        ("modular_counting", dict(modulus=1), "modulus: "),
        ("modular_arithmetic", dict(T=24), "T: expected an odd number of tokens"),
        ("modular_arithmetic", dict(shortest=4), "shortest: expected an odd number"),
        ("word_problem", dict(group="D4"), "group: expected S2 to S6, A2 to A6 or Z2 to Z64, got 'D4'"),
        ("word_problem", dict(group="S9"), "group: "),
        ("flip_flop", dict(T=23), "T: expected an even number"),
        ("flip_flop", dict(write=1.2), "write: expected a probability from 0 to 1, got 1.2"),
        ("flip_flop", dict(write=0.7, read=0.6), "1 − write − read: "),
    ],
)
def test_bad_sizes_are_named(name, changed, message):
    with pytest.raises(ValueError, match=message):
        drawn(name, **changed)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_a_whole_number(name):
    with pytest.raises(ValueError, match="batch: expected a whole number of at least 1, got 0"):
        drawn(name, batch=0)
    with pytest.raises(TypeError, match=r"batch: expected a whole number, got 2\.5"):
        drawn(name, batch=2.5)
