"""What a failing check says, for every kind of failure."""

import json

import numpy as np
import pytest
import torch

from lineage_lib import checks, matrices
from lineage_lib.checks import CheckFailed, Malformed, check, judge
from lineage_lib.exercises import Case, Exercise, Mistake, UnknownExercise, find


def outer(k, v):
    return np.outer(k, v)


def exercise(**changes):
    """A small exercise of its own: the outer product k vᵀ."""
    record = {
        "id": "9.1",
        "name": "outer",
        "title": "write the outer product",
        "points": 1,
        "minutes": 1,
        "difficulty": "warm-up",
        "returns": ("S[k, v]",),
        "cases": lambda rng: [
            Case((np.array([1.0, 2.0]), np.array([3.0, 5.0, 7.0])), "by hand"),
            Case((rng.standard_normal(4), rng.standard_normal(2))),
        ],
        "oracle": outer,
        "mistakes": (
            Mistake("transposed", "this is v kᵀ: rows must be keys", lambda k, v: np.outer(v, k)),
            Mistake("doubled", "this is written twice", lambda k, v: 2 * np.outer(k, v)),
        ),
        "hints": ("a", "b", "c", "d"),
    }
    return Exercise(**{**record, **changes})


def message(function, **changes):
    verdict = judge(exercise(**changes), function)
    assert not verdict.passed
    return verdict.message


def test_pass_is_one_line(capsys):
    check("0.1", lambda s, a: s * a)
    assert capsys.readouterr().out == "ok 0.1 decay: 4 cases\n"


def test_single_case(capsys):
    check("0.1", lambda s, a: s * a, case=2)
    assert capsys.readouterr().out == "ok 0.1 decay: case 2\n"
    with pytest.raises(ValueError, match="case: expected a number from 0 to 3, got 9"):
        check("0.1", lambda s, a: s * a, case=9)


def test_wrong_values_say_case_place_size_values_and_how_to_repeat():
    text = message(lambda k, v: np.outer(k, v) + np.eye(len(k), len(v)))
    assert text.splitlines() == [
        "9.1 outer: S has wrong values",
        "  case     k (2,), v (3,); by hand",
        "  where    first at S[0, 0] (k=0, v=0); 2 of 6 entries",
        "  size     largest |difference| 1, allowed 1e-08",
        "  values   got 4, expected 3",
        '  again    check("9.1", outer, case=0)',
    ]


@pytest.mark.parametrize("nothing", [-1e-17, -0.0])
def test_what_rounding_leaves_for_a_zero_is_shown_as_zero(nothing):
    def told(small):
        return message(lambda k, v: np.array([[1.0, 3.0]]), oracle=lambda k, v: np.array([[small, 3.0]]))

    assert "got 1, expected 0\n" in told(nothing)
    assert "got 1, expected 1e-05\n" in told(1e-5)


def test_known_mistake_is_named_also_by_its_shape():
    verdict = judge(exercise(), lambda k, v: np.outer(v, k))
    assert verdict.mistake == "transposed"
    assert "S has the wrong shape" in verdict.message
    assert "got (3, 2), expected (2, 3) = (k, v)" in verdict.message
    assert "likely   this is v kᵀ: rows must be keys" in verdict.message


def test_a_mistake_must_agree_on_every_case():
    """Equal on the first failing case only is a coincidence, not that mistake."""
    verdict = judge(exercise(), lambda k, v: 2 * np.outer(k, v) if len(k) == 2 else 3 * np.outer(k, v))
    assert verdict.mistake is None


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda k, v: None, "returned None: is a return statement missing?"),
        (lambda k, v: np.full((len(k), len(v)), np.nan), "S contains NaN where a number is expected"),
        (lambda k, v: np.outer(k, v) / 0.0, "S contains an infinity where a number is expected"),
        (lambda k, v: np.outer(k, v / 3).astype(int), "S has the wrong dtype"),
        (lambda k, v: np.outer(k, v).astype(complex) * 1j, "got complex128, expected float64"),
        (lambda k, v: [[1.0], [2.0, 3.0]], "its rows have different lengths"),
        (lambda k, v: (np.outer(k, v), v), "expected S alone, got a tuple of 2 values"),
        (lambda k, v: "S", "S is not numeric, got a str"),
        (lambda k, v: k[7], "your function raised IndexError"),
        (lambda k: k, "your function raised TypeError"),
        (lambda k, v: exit(), "your function raised SystemExit"),
        (lambda k, v: helper(k, v), "keep every helper inside the answer cell"),  # noqa: F821
        (lambda k, v: np.outer(k, v)[0, 0], "got a single number, expected (2, 3) = (k, v)"),
    ],
    ids=[
        "none",
        "nan",
        "inf",
        "int",
        "complex",
        "ragged",
        "tuple",
        "text",
        "index",
        "signature",
        "exit",
        "name-error",
        "scalar",
    ],
)
def test_each_kind_of_failure_has_its_own_message(function, part):
    assert part in message(function)


def test_float32_is_a_dtype_message_only_when_it_is_the_reason():
    case = Case((np.array([0.1, 0.2]), np.array([0.3])))
    text = message(lambda k, v: np.outer(k, v).astype(np.float32), cases=lambda rng: [case])
    assert "S has the wrong dtype" in text
    assert "got float32, expected float64: it keeps about 7 digits" in text
    assert "wrong values" in message(lambda k, v: np.outer(k, v).astype(np.float32) + 1)


def test_changed_input_is_named():
    def in_place(k, v):
        S = np.outer(k, v)
        v *= 0
        return S

    assert "changed its input v in place; work on a copy: v.copy()" in message(in_place)


def test_each_changed_input_is_named_with_a_call_that_copies_it():
    def both(k, v):
        S = np.outer(k, v)
        k *= 0
        v *= 0
        return S

    def tensor_changed(k, v):
        S = k[:, None] * v
        v.zero_()
        return S

    assert "changed its inputs k and v in place; work on copies: k.copy() and v.copy()" in message(both)
    tensors = Case((torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])))
    text = message(tensor_changed, cases=lambda rng: [tensors], oracle=lambda k, v: k[:, None] * v, mistakes=())
    assert "changed its input v in place; work on a copy: v.clone()" in text


def test_a_mistake_that_changes_an_argument_is_named_for_that_argument_only():
    def changes(argument):
        def change(k, v):
            S = np.outer(k, v)
            (k if argument == "k" else v)[:] = 0
            return S

        return change

    known = {"mistakes": (Mistake("key-changed", "the key was made 0", changes("k")),)}
    assert judge(exercise(**known), changes("k")).mistake == "key-changed"
    assert judge(exercise(**known), changes("v")).mistake is None


@pytest.mark.parametrize(
    "slip",
    [
        lambda k, v: (2 * np.outer(k, v)).astype(np.float32),
        lambda k, v: np.float64(2 * np.outer(k, v).astype(np.float32)),
        lambda k, v: torch.outer(torch.tensor(k).float(), torch.tensor(v).float()) * 2,
        lambda k, v: 2 * np.outer(k, v) * (1 + 1e-7),
    ],
)
def test_a_known_mistake_made_in_float32_is_still_named(slip):
    rng = np.random.default_rng(0)
    cases = [Case((rng.standard_normal(4), rng.standard_normal(3)))]
    verdict = judge(exercise(cases=lambda rng: cases), slip)
    assert verdict.mistake == "doubled"
    assert "this is written twice" in verdict.message
    assert ("got float32, expected float64" in verdict.message) == (
        slip(*cases[0].args).dtype not in (float, np.float64)
    )


def test_rounding_alone_is_never_a_known_mistake():
    """A mistake that hardly differs from the right answer does not explain a right answer in float32."""
    slight = Mistake("epsilon", "an epsilon was added", lambda k, v: np.outer(k, v) + 1e-6)
    case = Case((np.array([1.0, 0.1]), np.array([0.3, 5.0])))
    changes = {"cases": lambda rng: [case], "mistakes": (slight,)}
    rounded = judge(exercise(**changes), lambda k, v: np.outer(k, v).astype(np.float32))
    assert (rounded.passed, rounded.mistake) == (False, None)
    assert judge(exercise(**changes), lambda k, v: np.outer(k, v) + 1e-6).mistake == "epsilon"


def test_a_single_whole_number_is_no_matter_of_dtype():
    """A minimum of 2 and something larger is the number 2, and wrong as a number."""
    largest = {"oracle": lambda k, v: 2.5 * np.sum(k), "returns": ("x",), "mistakes": ()}
    assert "x has wrong values" in message(lambda k, v: 2, **largest)


def test_result_that_a_later_call_overwrites_is_named():
    """Right in every call, but all calls return one array."""
    kept = np.empty((2, 2))

    def reuses(k, v):
        kept[:] = np.outer(k, v)
        return kept

    def fresh(k, v):
        return reuses(k, v).copy()

    pairs = [Case((np.array([1.0, size]), np.array([3.0, 5.0])), "by hand") for size in (2.0, 4.0, 6.0)]
    drawn = {"cases": lambda rng: pairs}
    text = message(reuses, **drawn)
    assert "the S that your function returned has changed when it was called again" in text
    assert 'again    check("9.1", outer, case=0)' in text
    assert not judge(exercise(**drawn), reuses, only=0).passed
    assert judge(exercise(**drawn), reuses, only=2).passed, "no later call has changed the last result"
    assert judge(exercise(**drawn), reuses).mistake is None
    assert judge(exercise(**drawn), fresh).passed


def test_a_view_of_an_argument_is_a_right_answer():
    assert judge(exercise(oracle=lambda k, v: k.copy(), returns=("k[i]",), mistakes=()), lambda k, v: k[:]).passed


def test_arguments_share_no_memory():
    """A case may name one array twice; what is done to one argument must not show in the other."""
    same = np.array([1.0, 2.0])

    def in_place(k, v):
        S = np.outer(k, v)
        k *= 2
        return S

    text = message(in_place, cases=lambda rng: [Case((same, same))])
    assert "changed its input k in place" in text


def test_error_shows_the_learners_own_line():
    def faulty(k, v):
        return np.linalg.solve(k, v)  # a line of the learner's

    text = message(faulty)
    assert "error    LinAlgError" in text
    assert "in faulty: return np.linalg.solve(k, v)  # a line of the learner's" in text


def test_prints_are_shown_on_failure_and_silent_on_success(capsys):
    def talkative(k, v):
        print("shape", k.shape)
        return 2 * np.outer(k, v)

    assert "printed  shape (2,)" in message(talkative)

    def talkative_right(s, a):
        print("here")
        return a * s

    check("0.1", talkative_right)
    assert capsys.readouterr().out == "ok 0.1 decay: 4 cases\n"


def test_an_error_inside_the_library_is_shown_at_the_learners_line():
    def faulty(k, v):
        return matrices.segment_products(np.log(-k))

    text = message(faulty)
    assert "error    ValueError: a: expected finite values" in text
    assert "in faulty: return matrices.segment_products(np.log(-k))" in text


def test_whole_numbers_have_no_tolerance():
    text = message(lambda k, v: len(k), oracle=lambda k, v: len(k) + 1, returns=("n",), mistakes=())
    assert "size     largest |difference| 1\n" in text


def test_a_forgotten_start_value_is_not_called_a_missing_helper():
    def forgot_start(k, v):
        for i in range(len(k)):
            S = S + k[i]  # noqa: F821
        return S

    text = message(forgot_start)
    assert "used before it gets a value" in text
    assert "helper" not in text


def test_several_values():
    pair = {"oracle": lambda k, v: (k, v), "returns": ("a[i]", "b[j]"), "mistakes": ()}
    assert "expected 2 values (a, b), got a ndarray of shape (2,)" in message(lambda k, v: k, **pair)
    assert "expected 2 values (a, b), got 3 values" in message(lambda k, v: (k, v, v), **pair)
    assert "first at b[1] (j=1)" in message(lambda k, v: (k, v * (np.arange(len(v)) != 1)), **pair)
    assert judge(exercise(**pair), lambda k, v: [k, v]).passed


def test_memory_limit_is_a_failure_of_its_own():
    big = Case((np.ones(1000), np.ones(10)), max_bytes=1_000_000)
    wasteful = Mistake(
        "square", "the square was built", lambda k, v: np.outer(k, np.outer(k, v).sum(1) * 0 + 1).sum(), "memory"
    )
    record = {
        "cases": lambda rng: [big],
        "oracle": lambda k, v: float(len(k) ** 2),
        "returns": ("n",),
        "mistakes": (wasteful,),
    }
    verdict = judge(exercise(**record), wasteful.function)
    assert (verdict.cause, verdict.mistake) == ("memory", "square")
    assert "peak 8" in verdict.message
    assert "allowed 1.0 MB" in verdict.message


def test_view_compares_what_many_answers_share():
    def view(output, k, v):
        if not isinstance(output, dict):
            raise Malformed("expected a dict")
        return output["S"]

    in_a_dict = {"view": view, "oracle": lambda k, v: {"S": np.outer(k, v)}, "mistakes": ()}
    assert judge(exercise(**in_a_dict), lambda k, v: {"S": np.outer(k, v)}).passed
    assert "expected a dict" in message(outer, **in_a_dict)
    assert "cannot be used (KeyError" in message(lambda k, v: {}, **in_a_dict)


def test_one_case_names_what_all_cases_name():
    """The line the message suggests must not find another culprit: every case narrows the suspects."""
    once = Mistake("once", "wrong on short keys only", lambda k, v: np.outer(k, v) * (1 if len(k) > 2 else 2))
    always = Mistake("always", "wrong everywhere", lambda k, v: 2 * np.outer(k, v))
    verdicts = [judge(exercise(mistakes=(once, always)), always.function, only=only) for only in (None, 0, 1)]
    assert [v.mistake for v in verdicts] == ["always"] * 3


def test_an_exception_alone_names_no_mistake():
    def raises(k, v):
        return k[9]

    past_the_end = Mistake("past-the-end", "k was read past its end", raises)
    assert judge(exercise(mistakes=(past_the_end,)), raises).mistake is None
    told = Mistake("past-the-end", "k was read past its end", raises, sign="error")
    assert judge(exercise(mistakes=(told,)), raises).mistake == "past-the-end"


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda k, v: ([[1.0], [2.0, 3.0]], 1), "expected S alone, got a tuple of 2 values"),
        (lambda k, v: np.ndarray, "S is not numeric, got the class ndarray"),
        (lambda k, v: [np.ndarray] * 2, "S is not numeric"),
        (lambda k, v: raise_(Unprintable()), "your function raised Unprintable"),
        (lambda k, v: raise_(ValueError("x" * 10_000)), "more characters)"),
        (lambda k, v: np.outer(k, v).astype(np.float16), "it keeps about 4 digits"),
    ],
    ids=["ragged-tuple", "class", "classes", "unprintable", "long", "half"],
)
def test_nothing_a_learner_returns_breaks_the_check(function, part):
    text = message(function)
    assert part in text
    assert len(text) < 2_000


def raise_(error):
    raise error


def test_torch_forms_are_read():
    torch = pytest.importorskip("torch")

    def rows(k, v):
        return [torch.tensor(row, requires_grad=True) for row in np.outer(k, v)]

    def sparse(k, v):
        return torch.tensor(np.outer(k, v)).to_sparse()

    for function in (rows, sparse, lambda k, v: tuple(rows(k, v))):
        assert judge(exercise(), function).passed, judge(exercise(), function).message
    brain = judge(exercise(), lambda k, v: torch.tensor(np.outer(k, v)).bfloat16())
    assert "cannot be read as an array" in brain.message


def test_not_a_function():
    assert "check needs the function itself, got a float" in message(3.0)


def test_missing_return_reaches_the_stubs_line():
    def forgot(s, a):
        s * a
        raise NotImplementedError("Exercise 0.1: multiply the state by the decay")

    with pytest.raises(NotImplementedError, match="return the result"):
        check("0.1", forgot)


def test_unknown_exercise():
    with pytest.raises(UnknownExercise, match=r'there is no exercise "0\.77"; there are 0\.1'):
        find("0.77")
    with pytest.raises(TypeError, match="expected a string"):
        find(3.2)


def test_right_answers_may_warn(recwarn):
    def warns(s, a):
        np.log(np.zeros(2))
        return a * s

    check("0.1", warns)
    assert not recwarn.list


def test_failure_and_stub_are_shown_without_frames():
    with pytest.raises(CheckFailed) as failed:
        check("0.1", lambda s, a: s / a)
    assert failed.value._render_traceback_() == str(failed.value).splitlines()
    assert "divided" not in str(failed.value)
    assert "a decay of 0.5 leaves half of the state" in str(failed.value)


def test_report_file(tmp_path, monkeypatch):
    monkeypatch.setenv("LINEAGE_REPORT", str(tmp_path / "report.jsonl"))
    check("0.1", lambda s, a: s * a)
    with pytest.raises(CheckFailed):
        check("0.1", lambda s, a: s + a)
    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [(line["id"], line["cause"], line["mistake"]) for line in lines] == [
        ("0.1", "ok", None),
        ("0.1", "wrong", "added"),
    ]


def test_seed_changes_the_cases(monkeypatch):
    first = find("0.1").seeded_cases(0)[1].args[0]
    assert np.array_equal(first, find("0.1").seeded_cases(0)[1].args[0])
    assert not np.array_equal(first, find("0.1").seeded_cases(1)[1].args[0])
    monkeypatch.setenv("LINEAGE_SEED", "5")
    seen = []
    checks.check("0.1", lambda s, a: seen.append(s) or a * s)
    assert np.array_equal(seen[1], find("0.1").seeded_cases(5)[1].args[0])


def test_torch_answers_pass():
    torch = pytest.importorskip("torch")
    check("0.1", lambda s, a: torch.tensor(s) * a)


def test_a_later_nan_does_not_hide_the_difference():
    def half_nan(k, v):
        S = np.outer(k, v) + 0.5
        S[-1, -1] = np.nan
        return S

    message = judge(exercise(), half_nan).message
    assert "largest |difference| 0.5" in message


def test_no_known_mistake_runs_beside_a_right_answer():
    """They may be slow: a known mistake of a kernel is a kernel."""
    ran = []
    counted = Mistake("counted", "this is written twice", lambda k, v: ran.append(k) or 2 * np.outer(k, v))
    assert judge(exercise(mistakes=(counted,)), outer).passed
    assert not ran
    assert judge(exercise(mistakes=(counted,)), lambda k, v: 2 * np.outer(k, v)).mistake == "counted"
    assert len(ran) == 2
