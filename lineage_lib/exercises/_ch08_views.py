"""Chapter 08, fourth part: the same regression, solved exactly (8.9 and 8.10)."""

import numpy as np

from lineage_lib.exercises._ch08_steps import delta_oracle, normalised, unit
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 8.9 the implicit step ----------------------------------------------------------------------


def _implicit_cases(rng):
    def step(K, V, beta, *, length=None):
        key = rng.standard_normal(K) if length is None else length * unit(rng.standard_normal(K))
        return rng.standard_normal((K, V)), key, rng.standard_normal(V), beta

    one = np.array([1.0, 0.0])
    silent, known = step(3, 2, 0.5), step(4, 2, 0.7)
    silent[1][:] = 0.0
    return [
        Case((np.array([[3.0], [7.0]]), one, np.array([5.0]), 1.0), "by hand: halfway from 3 to 5"),
        Case((np.array([[3.0], [7.0]]), 2 * one, np.array([5.0]), 1.0), "by hand: a key of length 2, epsilon = 1/5"),
        Case((np.array([[2.0]]), np.array([0.5]), np.array([3.0]), 4.0), "K = V = 1"),
        Case(step(3, 2, 0.6), "a key of any length"),
        Case(step(2, 5, 0.9), "more value channels than key channels"),
        Case(step(3, 3, 2.5), "K = V"),
        Case(step(3, 2, 0.0), "beta = 0: nothing changes"),
        Case(step(4, 2, 0.8, length=1.0), "a key of length 1"),
        Case(step(4, 3, 1.0, length=3.0), "a key of length 3: no harm"),
        Case(step(3, 2, 1e4, length=2.0), "beta = 1e4: almost exact replacement, and no more than that"),
        Case(silent, "k = 0: nothing happens"),
        Case((*known[:2], known[0].T @ known[1], 0.7), "the value is what the state answers already"),
        Case((np.zeros((3, 2)), *step(3, 2, 1.5)[1:]), "an empty state"),
    ]


def _with_epsilon(epsilon):
    return lambda S, k, v, beta: delta_oracle(S, k, v, epsilon(beta, k @ k))


def implicit_oracle(S, k, v, beta):
    return delta_oracle(S, k, v, beta / (1 + beta * (k @ k)))


IMPLICIT = Exercise(
    id="8.9",
    name="implicit_step",
    title="land on the minimum",
    points=2,
    minutes=5,
    difficulty="core",
    returns=("S[k, v]",),
    cases=_implicit_cases,
    oracle=implicit_oracle,
    mistakes=(
        Mistake(
            "explicit-step",
            "this is the delta rule with step size beta; the implicit step divides it by 1 + β‖k‖²",
            delta_oracle,
        ),
        Mistake(
            "beta-on-the-write",
            "epsilon multiplied the erase and beta the write; epsilon stands on both",
            lambda S, k, v, beta: S + np.outer(k, beta * v - beta / (1 + beta * (k @ k)) * (S.T @ k)),
        ),
        Mistake(
            "unit-key-assumed",
            "beta was divided by 1 + beta, right for keys of length 1; the squared length is missing",
            _with_epsilon(lambda beta, square: beta / (1 + beta)),
        ),
        normalised(
            implicit_oracle,
            1,
            "the key was divided by its length; the step uses the key as it comes, and the denominator takes care of "
            "it",
        ),
        Mistake(
            "length-not-squared",
            "the denominator has the length of the key; it needs the square of the length",
            _with_epsilon(lambda beta, square: beta / (1 + beta * np.sqrt(square))),
        ),
        Mistake(
            "numerator-one",
            "the step size became 1/(1 + β‖k‖²), which is the eigenvalue along the key; epsilon has beta on top",
            _with_epsilon(lambda beta, square: 1 / (1 + beta * square)),
        ),
        Mistake(
            "beta-missing-below",
            "the denominator was 1 + ‖k‖²; there the squared length is multiplied by beta",
            _with_epsilon(lambda beta, square: beta / (1 + square)),
        ),
        Mistake(
            "whole-state-shrunk",
            "everything was divided by 1 + β‖k‖²; only what lies along the key is, the rest of the state stays",
            lambda S, k, v, beta: (S + beta * np.outer(k, v)) / (1 + beta * (k @ k)),
        ),
        Mistake(
            "still-additive",
            "beta times the value was added and nothing was erased",
            lambda S, k, v, beta: S + beta * np.outer(k, v),
        ),
    ),
    hints=(
        "By hand, with a key of length 1 and `beta = 1`: from 3 and 5 the step lands at 4.",
        "It is a delta step with a step size of its own: the body of the first exercise with another number.",
        "That number is beta over one plus beta times the squared length; the squared length is a dot product.",
        "Compute the new strength first, then write it times the error. Huge values of `beta` need no special case.",
    ),
)


# --- 8.10 all pairs at once ---------------------------------------------------------------------


def _ridge_cases(rng):
    def pairs(n, K, V, lam):
        return rng.standard_normal((n, K)), rng.standard_normal((n, V)), rng.standard_normal(K), lam

    again, leaning, asleep = pairs(4, 3, 2, 0.3), pairs(6, 3, 2, 0.2), pairs(4, 3, 2, 0.4)
    again[0][2] = again[0][0]
    leaning[0][:] += 2.0
    asleep[2][:] = 0.0
    short = pairs(5, 3, 2, 0.01)
    short[0][:] *= 0.1
    # Too few pairs: with such keys KᵀK is singular without any rounding, however a system is solved, and KᵀK + lam
    # in every entry is not.
    one, few = pairs(1, 2, 2, 0.5), pairs(3, 4, 2, 0.1)
    one[0][:] = 2.0 ** rng.integers([-1, 1], [1, 3]) * rng.choice([-1.0, 1.0], 2)
    few[0][:] = np.column_stack([np.eye(3), rng.choice([-0.75, -0.25, 0.25, 0.75], 3)])
    return [
        Case(
            (np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[31.0], [12.0]]), np.array([1.0, 0.0]), 0.5),
            "by hand: Ada and Cy, who overlap",
        ),
        Case((np.array([[2.0]]), np.array([[3.0]]), np.array([1.0]), 1.0), "by hand: 6 over 5"),
        Case(one, "one pair"),
        Case(few, "fewer pairs than key channels"),
        Case(pairs(7, 3, 2, 0.5), "more pairs than key channels"),
        Case(pairs(4, 4, 4, 0.3), "n = K = V"),
        Case(pairs(5, 1, 3, 0.7), "K = 1"),
        Case(pairs(5, 3, 1, 2.0), "V = 1"),
        Case(again, "one key with two values"),
        Case(leaning, "keys that lean the same way"),
        Case(short, "short keys and a small lam"),
        Case(asleep, "a query of zeros"),
        Case(pairs(6, 3, 2, 100.0), "a large lam"),
        Case(pairs(120, 6, 3, 0.5), "120 pairs"),
    ]


def ridge_oracle(K, V, q, lam):
    return (K.T @ V).T @ np.linalg.solve(K.T @ K + lam * np.eye(K.shape[1]), q)


def _without_ridge(K, V, q, lam):
    """Raises where there are fewer pairs than key channels."""
    return (K.T @ V).T @ np.linalg.solve(K.T @ K, q)


def _ridge_with(matrix):
    return lambda K, V, q, lam: (K.T @ V).T @ np.linalg.pinv(matrix(K, lam)) @ q


def _one_pass(K, V, q, lam):
    S = np.zeros((K.shape[1], V.shape[1]))
    for k, v in zip(K, V):
        S = delta_oracle(S, k, v, 1.0)
    return S.T @ q


RIDGE = Exercise(
    id="8.10",
    name="ridge_read",
    title="read the least-squares memory",
    points=2,
    minutes=5,
    difficulty="core",
    returns=("o[v]",),
    cases=_ridge_cases,
    oracle=ridge_oracle,
    mistakes=(
        Mistake(
            "nothing-solved",
            "this is the read of linear attention; the query has to pass through the inverse of KᵀK + λI first",
            lambda K, V, q, lam: (K.T @ V).T @ q,
        ),
        Mistake(
            "ridge-forgotten",
            "lam was left out; without it KᵀK has no inverse as long as there are fewer pairs than key channels",
            _without_ridge,
        ),
        Mistake(
            "shortest-solution",
            "lam was left out: this is least squares without a ridge, and its shortest solution where there are many",
            _ridge_with(lambda K, lam: K.T @ K),
        ),
        Mistake(
            "ridge-squared",
            "the square of lam was added to the diagonal; lam itself stands there",
            _ridge_with(lambda K, lam: K.T @ K + lam**2 * np.eye(K.shape[1])),
        ),
        Mistake(
            "ridge-times-n",
            "lam was multiplied by the number of pairs, as for a mean of squares; the loss is their sum",
            _ridge_with(lambda K, lam: K.T @ K + lam * len(K) * np.eye(K.shape[1])),
        ),
        Mistake(
            "ridge-everywhere",
            "lam was added to every entry of KᵀK; it belongs on the diagonal, lam times the identity",
            _ridge_with(lambda K, lam: K.T @ K + lam),
        ),
        Mistake(
            "diagonal-only",
            "only the diagonal of KᵀK was used; the entries beside it say which keys overlap",
            _ridge_with(lambda K, lam: np.diag(np.square(K).sum(axis=0) + lam)),
        ),
        Mistake(
            "one-pass",
            "this is one pass of the delta rule with beta = 1; later pairs disturb earlier ones, the exact solution "
            "weighs all at once",
            _one_pass,
        ),
        Mistake(
            "half-the-ridge",
            "half of lam was added to the diagonal; both terms of the loss carry the factor ½, so it cancels",
            _ridge_with(lambda K, lam: K.T @ K + lam / 2 * np.eye(K.shape[1])),
        ),
        normalised(ridge_oracle, 0, "the keys were divided by their lengths; they are used as they come"),
    ),
    hints=(
        "By hand with K = 1: one pair (2, 3), `lam = 1`, a query of 1. The state is 6 over 4 + 1.",
        "Two accumulated matrices are enough: one of keys against keys, one of keys against values.",
        "Solve a linear system of the first, with `lam` on its diagonal, for the query; then read the second with it.",
        "`np.linalg.solve(A, b)` returns the x with `A @ x = b`. Read the value matrix, transposed, at that x.",
    ),
)

EXERCISES = (IMPLICIT, RIDGE)
