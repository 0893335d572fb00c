"""Chapter 12, fifth part: what a rule of writing loses, and what its state could hold (12.9 and 12.10)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 12.9 crosstalk under a decay ----------------------------------------------------------------


def _decay_cases(rng):
    drawn = [(int(rng.integers(5, 40)), int(rng.integers(3, 30)), float(rng.uniform(0.8, 0.99))) for _ in range(2)]
    return [
        Case((2, 4, 0.5), "by hand: two pairs"),
        Case((1, 8, 0.9), "one pair: no crosstalk, and nothing has faded"),
        Case((3, 2, 0.5), "three pairs"),
        Case((5, 16, 1.0), "no decay: chapter 1's (n − 1)/K for every pair"),
        Case((4, 3, 0.0), "the decay is 0: the newest pair alone is left"),
        Case((6, 1, 0.9), "K = 1"),
        Case((40, 32, 0.95), ""),
        Case((300, 64, 0.99), "300 pairs"),
        *(Case(case) for case in drawn),
    ]


def decay_oracle(n, K, alpha):
    return _errors(n, K, alpha)


def _errors(
    n,
    K,
    alpha,
    *,
    age=lambda n: np.arange(n)[::-1],
    own=lambda left: (1 - left) ** 2,
    noise=lambda left: np.sum(left**2) - left**2,
    share=lambda K: 1 / K,
):
    left = alpha ** age(n).astype(float)
    return own(left) + share(K) * noise(left)


def _errors_with(**slip):
    return lambda n, K, alpha: _errors(n, K, alpha, **slip)


DECAYED = Exercise(
    id="12.9",
    name="decayed_errors",
    title="crosstalk and fading, pair by pair",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("error[pair]",),
    cases=_decay_cases,
    oracle=decay_oracle,
    mistakes=(
        Mistake(
            "own-noise-counted",
            "the pair's own term was counted as noise too; crosstalk comes from the others",
            _errors_with(noise=lambda left: np.sum(left**2) + 0 * left),
        ),
        Mistake(
            "fading-left-out",
            "the pair's own value was taken to come back whole; it comes back faded",
            _errors_with(own=lambda left: 0 * left),
        ),
        Mistake(
            "noise-not-faded",
            "the other pairs were counted at full strength; each has faded by its own age",
            _errors_with(noise=lambda left: len(left) - 1 + 0 * left),
        ),
        Mistake(
            "noise-not-squared",
            "the strengths of the other pairs were added; squared errors add their squares",
            _errors_with(noise=lambda left: np.sum(left) - left),
        ),
        Mistake(
            "faded-once-too-often",
            "every pair was faded once too often; a pair is not faded by the token that writes it",
            _errors_with(age=lambda n: np.arange(n)[::-1] + 1),
        ),
        Mistake(
            "oldest-last",
            "the pairs are in the wrong order; the first one is the oldest",
            _errors_with(age=np.arange),
        ),
        Mistake(
            "later-pairs-only",
            "only pairs written later were counted as noise; earlier ones are in the state as well",
            _errors_with(noise=lambda left: np.cumsum((left**2)[::-1])[::-1] - left**2),
        ),
        Mistake(
            "own-not-squared",
            "the loss of the own value enters squared",
            _errors_with(own=lambda left: 1 - left),
        ),
        Mistake(
            "left-for-lost",
            "what is left of the own value was squared, in place of what it has lost",
            _errors_with(own=lambda left: left**2),
        ),
        Mistake(
            "root-of-the-width",
            "the noise was divided by the root of K; the mean squared dot product of random keys is 1/K",
            _errors_with(share=lambda K: K**-0.5),
        ),
    ),
    hints=(
        "With alpha = 1 every entry is (n − 1)/K. The newest pair has lost nothing of its own, the oldest the most.",
        "First the age of each pair: how many tokens have come after it. What is left of a value after so many?",
        "Two parts: the square of what the own value has lost; 1/K times the squares of what is left of all others.",
        "Make the array of what is left, oldest first. The squares of all others are the sum of all squares minus the "
        "own one.",
    ),
)


# --- 12.10 targets for the delta rule ------------------------------------------------------------


def _target_cases(rng):
    def unit(n, K, spread=1.0):
        """Independent keys of length 1, near an orthonormal set."""
        k = np.linalg.qr(rng.standard_normal((K, K)))[0][:n] + spread * rng.standard_normal((n, K)) / np.sqrt(K)
        return k / np.linalg.norm(k, axis=1, keepdims=True)

    def values(n, V):
        return rng.standard_normal((n, V))

    ada_and_cy = np.array([[1.0, 0.0], [0.6, 0.8]])
    return [
        Case((ada_and_cy, np.array([[31.0], [12.0]])), "by hand: Ada and Cy, whose keys have the dot product 0.6"),
        Case((np.array([[0.6, 0.8]]), np.array([[3.0, 4.0, 5.0]])), "one pair: nothing comes after it"),
        Case((np.eye(4)[[2, 0, 1]], values(3, 2)), "orthonormal keys: the values themselves"),
        Case((unit(2, 5), values(2, 3)), "two pairs"),
        Case((unit(3, 3, 0.5), values(3, 3)), "n = K = V"),
        Case((unit(4, 9), values(4, 1)), "V = 1"),
        Case((unit(6, 8, 0.6), values(6, 2)), ""),
        Case((unit(12, 16, 0.6), values(12, 5)), "12 pairs at K = 16"),
    ]


def target_oracle(k, v):
    return _targets(k, v)


def _targets(k, v, *, fit=np.linalg.solve, read=lambda G, D: np.tril(G) @ D):
    G = k @ k.T
    return read(G, fit(G, v))


def _targets_with(**slip):
    return lambda k, v: _targets(k, v, **slip)


TARGETS = Exercise(
    id="12.10",
    name="delta_targets",
    title="writes that make reads exact",
    points=3,
    minutes=12,
    difficulty="hard",
    returns=("targets[pair, v]",),
    cases=_target_cases,
    oracle=target_oracle,
    mistakes=(
        Mistake(
            "values-themselves",
            "these are the values; written as they are, each later write changes what earlier keys answer",
            lambda k, v: np.array(v),
        ),
        Mistake(
            "what-is-added",
            "these are the corrected values, what each token adds to the state; the delta rule is told what its key "
            "shall answer, and subtracts what it answers already",
            _targets_with(read=lambda G, D: D),
        ),
        Mistake(
            "own-term-left-out",
            "the token's own term is missing: this is what its key answers before the write",
            _targets_with(read=lambda G, D: np.tril(G, -1) @ D),
        ),
        Mistake(
            "later-writes-for-earlier",
            "the sum runs over the later tokens; at a write the earlier ones are in the state",
            _targets_with(read=lambda G, D: np.triu(G) @ D),
        ),
        Mistake(
            "not-solved",
            "nothing was solved: the dot products were multiplied with the values",
            _targets_with(fit=lambda G, v: v),
            also=(_targets_with(fit=lambda G, v: G @ v), lambda k, v: k @ k.T @ v),
        ),
        Mistake(
            "inverse-of-the-map",
            "this goes from targets to what the finished state answers; the ask is the way back",
            lambda k, v: k @ k.T @ np.linalg.solve(np.tril(k @ k.T), v),
        ),
        Mistake(
            "factors-swapped",
            "the two matrices stand in the wrong order: first solve, then sum up over the earlier tokens",
            lambda k, v: np.linalg.solve(k @ k.T, np.tril(k @ k.T) @ v),
        ),
        Mistake(
            "solved-triangular",
            "the lower triangle was solved in place of all dot products; the finished state is asked at every key, and "
            "each hears all writes",
            _targets_with(fit=lambda G, v: np.linalg.solve(np.tril(G), v)[::1], read=lambda G, D: D),
        ),
    ),
    hints=(
        "The last target is the last value. With orthonormal keys all targets are the values.",
        "Forget the order first: which multiples D of the keys make a state KᵀD that answers every key with its value?",
        "That is one linear system, with the dot products of all keys. Then go through the writes: just after write j "
        "the state holds the first j terms, and its key must answer the target.",
        "Target j is the sum over l up to j of the dot product of keys j and l times row l of the solution: the lower "
        "triangle of the dot products, with its diagonal.",
    ),
)

EXERCISES = (DECAYED, TARGETS)
