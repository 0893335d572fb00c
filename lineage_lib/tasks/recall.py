"""Tokens to remember: associative recall and copying."""

import numpy as np

from lineage_lib.tasks.common import Questions, whole


def multi_query_recall(
    rng: np.random.Generator,
    batch: int,
    *,
    T: int = 64,
    pairs: int | tuple[int, ...] = 8,
    updates: int = 0,
    vocabulary: int = 8192,
    power: float = 0.01,
    fill: bool = True,
) -> Questions:
    """Multi-query associative recall, MQAR, as Zoology draws it: pairs first, then each key once more.

    A sequence begins with ``pairs`` keys, each followed by its value; then ``updates`` of these keys, drawn
    without replacement, get another value, which is the one to remember. Behind them every other place may
    hold a question: a key again, whose value is the answer there. The first such place is gap 1, the next
    gap 2, …; key after key draws one of those that are still free with a probability proportional to
    gap ** (power − 1), so that most questions follow soon: small gaps are likely because in text a pair of
    words comes back soon. ``power`` 1 makes all places equally likely. What is left is filled with tokens
    drawn from the whole vocabulary, which may be keys of nobody's interest, or is 0 without ``fill``.

    Keys are 1 to vocabulary / 2 − 1 and values vocabulary / 2 to vocabulary − 1, in a sequence each at
    most once. ``pairs`` may be several numbers, of which each call draws one.
    Source: Arora et al. (2023), the generators ``multiquery_ar`` and, with updates, ``forgetting_mqar`` of the
    public benchmark Zoology.

    >>> q = multi_query_recall(np.random.default_rng(0), 3, T=16, pairs=2, vocabulary=32)
    >>> q.tokens.shape, (q.answers >= 0).sum(1)
    ((3, 16), array([2, 2, 2]))
    """
    batch, T, vocabulary = (whole(n, v, 1) for n, v in (("batch", batch), ("T", T), ("vocabulary", vocabulary)))
    choices = pairs if isinstance(pairs, tuple) else (pairs,)
    half = vocabulary // 2
    updates = whole("updates", updates, 0)
    for choice in choices:
        most = min(half - 1, (T - 2 * updates) // 4)
        whole("pairs", choice, 1, most, ", as T ≥ 4 pairs + 2 updates and half the vocabulary allow")
        whole("updates", updates, 0, choice, " = pairs")
    if not power > 0:
        raise ValueError(f"power: expected a number above 0, got {power}")
    n = choices[rng.integers(len(choices))]
    keys, values = 1 + _distinct(rng, batch, half - 1, n), half + _distinct(rng, batch, vocabulary - half, n)
    start = 2 * (n + updates)  # of the questions
    places = (T - start) // 2
    # The largest of log p + Gumbel noise, the second largest, …: draws from p without replacement, in order.
    scores = (power - 1) * np.log(np.arange(1, places + 1)) + rng.gumbel(size=(batch, places))
    at = start + 2 * np.argsort(-scores, axis=1)[:, :n]
    tokens = rng.integers(0, vocabulary, (batch, T)) if fill else np.zeros((batch, T), np.int64)
    answers = np.full((batch, T), -1)
    tokens[:, 0 : 2 * n : 2], tokens[:, 1 : 2 * n : 2] = keys, values
    if updates:
        which = _distinct(rng, batch, n, updates)
        # Any value but the old one: one of the others' places behind it, around the end.
        shift = rng.integers(1, vocabulary - half, (batch, updates))
        newer = half + (np.take_along_axis(values, which, 1) - half + shift) % (vocabulary - half)
        np.put_along_axis(values, which, newer, 1)
        tokens[:, 2 * n : start : 2], tokens[:, 2 * n + 1 : start : 2] = np.take_along_axis(keys, which, 1), newer
    np.put_along_axis(tokens, at, keys, 1)
    np.put_along_axis(answers, at, values, 1)
    return Questions(tokens, answers, vocabulary, vocabulary)


def pairs_then_questions(
    rng: np.random.Generator,
    batch: int,
    *,
    pairs: int = 8,
    updates: int = 0,
    questions: int = 16,
    keys: int = 64,
    values: int = 64,
) -> Questions:
    """The simple recall: all pairs, then nothing but questions.

    ``pairs`` keys, each once and followed by a value; then ``updates`` times one of these keys, drawn with
    replacement, and a value that replaces what it had; then ``questions`` of these keys, drawn with
    replacement. Keys are the tokens below ``keys``, values the ``values`` tokens after them, drawn with
    replacement. T = 2 · (pairs + updates) + questions. The layout of the classical associative recall (Graves et
    al. 2014, Ba et al. 2016), with many questions; no public benchmark draws just so.

    >>> q = pairs_then_questions(np.random.default_rng(0), 3, pairs=2, questions=4, keys=8, values=8)
    >>> q.tokens.shape, (q.answers >= 0).sum(1)
    ((3, 8), array([4, 4, 4]))
    """
    batch, questions, updates = whole("batch", batch, 1), whole("questions", questions, 0), whole("updates", updates, 0)
    keys, values = whole("keys", keys, 1), whole("values", values, 1)
    pairs = whole("pairs", pairs, 1, keys, " = keys")
    names = _distinct(rng, batch, keys, pairs)
    writes = np.concatenate([np.broadcast_to(np.arange(pairs), (batch, pairs)),
                             rng.integers(0, pairs, (batch, updates))], axis=1)  # fmt: skip
    value = keys + rng.integers(0, values, writes.shape)
    newest = np.empty((batch, pairs), np.int64)
    for which, what in zip(writes.T, value.T):
        newest[np.arange(batch), which] = what
    asks = rng.integers(0, pairs, (batch, questions))
    told = np.stack([np.take_along_axis(names, writes, 1), value], 2).reshape(batch, -1)
    tokens = np.concatenate([told, np.take_along_axis(names, asks, 1)], axis=1)
    answers = np.full(tokens.shape, -1)
    answers[:, told.shape[1] :] = np.take_along_axis(newest, asks, 1)
    return Questions(tokens, answers, keys + values, keys + values)


def copying(
    rng: np.random.Generator, batch: int, *, shortest: int = 8, longest: int = 30, symbols: int = 26
) -> Questions:
    """Copying of uniform random strings: ``$ z | z``, and at ``|`` and after it the next token of the second z.

    A string has a length drawn uniformly from ``shortest`` to ``longest`` and symbols drawn uniformly. The
    answers are its symbols and then ``.``; T = 2 · longest + 2, and a shorter sequence is followed by ``*``.
    Tokens: the symbols, then ``$``, ``|``, ``.`` and ``*``. Every right answer is fed back, so that an
    accuracy is that of the next symbol; the whole string is right when all its answers are.
    Source: Jelassi et al. (2024), the strings of its tests, one a row; its training packs several of them
    into a row.

    >>> copying(np.random.default_rng(0), 1, shortest=2, longest=2, symbols=2)[:2]
    (array([[2, 1, 1, 3, 1, 1]]), array([[-1, -1, -1,  1,  1,  4]]))
    """
    batch, symbols, longest = whole("batch", batch, 1), whole("symbols", symbols, 1), whole("longest", longest, 1)
    shortest = whole("shortest", shortest, 1, longest, " = longest")
    start, bar, stop, blank = range(symbols, symbols + 4)
    length = rng.integers(shortest, longest + 1, (batch, 1))
    z = rng.integers(0, symbols, (batch, longest))
    place = np.arange(2 * longest + 2)[None]
    again = place - length - 2  # the place in the second z
    symbol = np.take_along_axis(z, np.where(again >= 0, again, place - 1).clip(0, longest - 1), 1)
    tokens = np.where(again < length, symbol, blank)
    tokens[:, 0] = start
    np.put_along_axis(tokens, length + 1, bar, 1)
    following = np.take_along_axis(z, (again + 1).clip(0, longest - 1), 1)
    answers = np.where((again >= -1) & (again + 1 < length), following, -1)
    np.put_along_axis(answers, 2 * length + 1, stop, 1)
    return Questions(tokens, answers, symbols + 4, symbols + 4)


def _distinct(rng: np.random.Generator, batch: int, among: int, count: int) -> np.ndarray:
    """(batch, count): of the numbers below ``among``, each row distinct ones in a random order."""
    drawn = rng.random((batch, among), dtype=np.float32)
    least = np.argpartition(drawn, count - 1, axis=1)[:, :count]
    return np.take_along_axis(least, np.argsort(np.take_along_axis(drawn, least, 1), axis=1), 1)
