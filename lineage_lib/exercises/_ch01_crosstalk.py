"""Chapter 01, fourth part: what one state holds, and what replacing takes (1.8 and 1.9)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 1.8 crosstalk ------------------------------------------------------------------------------


def unit_rows(rng, n, K):
    k = rng.standard_normal((n, K))
    return k / np.linalg.norm(k, axis=1, keepdims=True)


def _pair_cases(rng):
    def values(n, V):
        return rng.standard_normal((n, V))

    rooms = np.array([[31.0], [12.0]])
    return [
        Case((np.array([[1.0, 0.0], [0.6, 0.8]]), rooms), "Ada and Cy, whose keys have the dot product 0.6"),
        Case((np.eye(3)[:2], values(2, 4)), "orthonormal keys: every read is exact"),
        Case((np.array([[0.6, 0.8]] * 2), np.array([[31.0], [47.0]])), "one key twice"),
        Case((np.array([[2.0, 0.0]]), np.array([[3.0, 4.0, 0.0]])), "one pair, whose key has the length 2"),
        Case((unit_rows(rng, 5, 1), values(5, 2)), "K = 1"),
        Case((unit_rows(rng, 4, 4), values(4, 4)), "n = K = V"),
        Case((unit_rows(rng, 12, 3), values(12, 2)), "more pairs than K"),
        Case((rng.uniform(0.5, 1.5, (6, 1)) * unit_rows(rng, 6, 4), values(6, 3)), "keys of different lengths"),
        Case((np.array([[10.0]]), np.array([[1.0]])), "one pair, whose key has the length 10: an error of 9,801"),
        Case((unit_rows(rng, 3, 2), 1e-12 * values(3, 4)), "tiny values, whose squares add up to about 1e-23"),
        Case((unit_rows(rng, 60, 16), rng.uniform(0.1, 9.0, (60, 1)) * values(60, 5)), "values of different sizes"),
    ]


def crosstalk_oracle(k, v):
    return _ratio(_reads(k, v) - v, v)


def _reads(k, v):
    return k @ (k.T @ v)


def _ratio(error, v):
    return np.sum(error**2) / np.sum(v**2)


def _without_own(k, v):
    gram = k @ k.T
    return (gram - np.diag(np.diag(gram))) @ v


def _unit(k):
    return k / np.linalg.norm(k, axis=1, keepdims=True)


CROSSTALK = Exercise(
    id="1.8",
    name="crosstalk",
    title="the error of reading all back",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("error",),
    cases=_pair_cases,
    oracle=crosstalk_oracle,
    mistakes=(
        Mistake(
            "not-squared",
            "this is the square root: the ask is a sum of squares divided by a sum of squares",
            lambda k, v: np.sqrt(crosstalk_oracle(k, v)),
        ),
        Mistake(
            "value-not-subtracted",
            "the squares of the reads were summed; the error is the read minus the value that was stored",
            lambda k, v: _ratio(_reads(k, v), v),
        ),
        Mistake(
            "mean-of-ratios",
            "every pair's error was divided by its own value before averaging; the ask sums all errors and divides "
            "once, by the sum of all values",
            lambda k, v: np.mean(np.sum((_reads(k, v) - v) ** 2, axis=1) / np.sum(v**2, axis=1)),
        ),
        Mistake(
            "mean-of-squares",
            "the squared errors were averaged and not compared with the values; divide by the sum of the squared "
            "values",
            lambda k, v: np.mean((_reads(k, v) - v) ** 2),
        ),
        Mistake(
            "not-relative",
            "the squared errors were summed and not compared with the values; divide by the sum of the squared values",
            lambda k, v: np.sum((_reads(k, v) - v) ** 2),
        ),
        Mistake(
            "other-pairs-only",
            "a pair's own term was left out and its value taken to come back whole; with a key that has not length 1 "
            "it comes back multiplied by the squared length",
            lambda k, v: _ratio(_without_own(k, v), v),
        ),
        Mistake(
            "keys-normalised",
            "the keys were given length 1 first; store and read with the keys as they are",
            lambda k, v: crosstalk_oracle(_unit(k), v),
        ),
        Mistake(
            "causal-reads",
            "pair i was read from a state that held the pairs up to i only; write all pairs first, then read",
            lambda k, v: _ratio(np.tril(k @ k.T) @ v - v, v),
        ),
    ),
    hints=(
        "Orthonormal keys give 0, and so does a single pair with a key of length 1. Multiplying all values by 3 "
        "changes nothing.",
        "Three steps: make the state, read it at every key, compare all reads with all values.",
        "The state is the sum of all outer products; exercise 1.6 made it in one product. The keys are the queries.",
        "Subtract the values from the reads, square, sum up everything; divide by the sum of the squared values.",
    ),
)


# --- 1.9 replacing, when the old value is known -------------------------------------------------


def _replace_cases(rng):
    def full(K, V, *, unit=False):
        """A state of several pairs; the last of them is to be replaced."""
        k = unit_rows(rng, 4, K) if unit else rng.standard_normal((4, K))
        v = rng.standard_normal((4, V))
        return k.T @ v, k[-1], v[-1], rng.standard_normal(V)

    ada, cy = np.array([1.0, 0.0]), np.array([0.6, 0.8])
    S, k_t, v_old, v_new = full(3, 2)
    near = np.outer(ada, [31.0]) + np.outer(cy, [12.0])
    return [
        Case((np.array([[31.0], [12.0]]), ada, np.array([31.0]), np.array([47.0])), "Ada moves from 31 to 47"),
        Case((near, ada, np.array([31.0]), np.array([47.0])), "Ada moves, and Cy's key has the dot product 0.6"),
        Case((near, cy, np.array([12.0]), np.array([5.0])), "Cy moves from 12 to 5"),
        Case((S, k_t, v_old, v_new), "the key has not length 1"),
        Case((S, k_t, v_old, v_old), "old and new are equal: the state stays"),
        Case(full(1, 3), "K = 1"),
        Case(full(4, 1, unit=True), "V = 1"),
        Case(full(3, 3, unit=True), "K = V"),
        Case(full(6, 9), ""),
    ]


def replace_oracle(S, k_t, v_old, v_new):
    return S + np.outer(k_t, v_new - v_old)


def _row_set(S, k_t, v_old, v_new):
    S = S.copy()
    S[np.argmax(k_t)] = v_new
    return S


REPLACE = Exercise(
    id="1.9",
    name="replace",
    title="undo the old write, add the new",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("S[k, v]",),
    cases=_replace_cases,
    oracle=replace_oracle,
    mistakes=(
        Mistake(
            "added-only",
            "the new value was added and the old one left in; the old write has to be subtracted",
            lambda S, k_t, v_old, v_new: S + np.outer(k_t, v_new),
        ),
        Mistake(
            "erased-only",
            "the old write was undone, but the new one is missing",
            lambda S, k_t, v_old, v_new: S - np.outer(k_t, v_old),
        ),
        Mistake(
            "what-was-read",
            "what the state reads at the key was subtracted, in place of the old value; the two differ when other keys "
            "are not orthogonal or the key has not length 1, and here the old value is given",
            lambda S, k_t, v_old, v_new: S + np.outer(k_t, v_new - S.T @ k_t),
        ),
        Mistake(
            "row-set",
            "one row of the state was set to the new value; a key may spread over all rows, and other pairs over this",
            _row_set,
        ),
        Mistake(
            "wrong-sign",
            "the old value was written in place of the new one; subtract the old, add the new",
            lambda S, k_t, v_old, v_new: S + np.outer(k_t, v_old - v_new),
        ),
        Mistake(
            "everything-replaced",
            "the new write is all there is; the other pairs have to stay",
            lambda S, k_t, v_old, v_new: np.outer(k_t, v_new),
        ),
        Mistake(
            "old-added-again",
            "the old value was added once more instead of subtracted",
            lambda S, k_t, v_old, v_new: S + np.outer(k_t, v_new + v_old),
        ),
        Mistake(
            "key-normalised",
            "the key was given length 1 first; the old pair was written under the key as it is",
            lambda S, k_t, v_old, v_new: replace_oracle(S, k_t / np.linalg.norm(k_t), v_old, v_new),
        ),
    ),
    hints=(
        "Afterwards the state must be what it would be if the new value had been written in place of the old one. "
        "Old and new equal: nothing changes.",
        "Adding is undone by subtracting. Which matrix was added when the old pair was written?",
        "The old write was the outer product of the key with the old value, the new one will be that of the same key "
        "with the new value.",
        "Add to the state the outer product of the key with the change of the value. Do not change the caller's array.",
    ),
)

EXERCISES = (CROSSTALK, REPLACE)
