"""Chapter 09, fourth part: the inverse by block merge, backward through the solve (9.9 and 9.10)."""

import numpy as np

from lineage_lib.exercises._ch09_wy import again, draw_head, lower, near, solve, unit_head
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 9.9 the inverse, merged ---------------------------------------------------------------------


def _inverse_cases(rng):
    def of(head):
        _, K, _, beta = head
        return lower(K, beta)

    two = np.array([[0.0, 0.0], [3.0, 0.0]])
    four = np.tril(np.array([[0.0] * 4, [1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0]]))
    corner = np.zeros((4, 4))
    corner[2:, :2] = rng.standard_normal((2, 2))
    return [
        Case((two,), "by hand: 2 by 2"),
        Case((np.zeros((1, 1)),), "1 by 1: the inverse of 1"),
        Case((four,), "4 by 4, whole numbers"),
        Case((np.zeros((4, 4)),), "A = 0"),
        Case((corner,), "only the lower left quarter"),
        Case((of(draw_head(rng, 8, 5, 1)),), "8 random keys"),
        Case((of(again(unit_head(rng, 8, 5, 1), 0, 1, 0)),), "two keys, used again and again"),
        Case((np.tril(rng.standard_normal((8, 8)), -1),), "not from keys"),
        Case((of(unit_head(rng, 16, 8, 1, beta=(1.0, 2.0))),), "beta above 1"),
        Case((of(near(rng, draw_head(rng, 32, 8, 1), 0.9)),), "32 keys near one another"),
        Case(
            (of(again(unit_head(rng, 64, 4, 1, beta=(1.0, 1.0)), 0)),),
            "64 times the same key, beta = 1: powers of A would lose all digits",
        ),
        Case((of(again(unit_head(rng, 128, 4, 1, beta=(0.7, 1.0)), 0)),), "128 times the same key"),
    ]


def inverse_oracle(A):
    return _merge(A)


def _merge(A, corner=lambda right, A21, left: -right @ A21 @ left):
    """(I + A)^-1 from the inverses of the two halves; ``corner`` makes the lower left quarter of the inverse."""
    n = len(A)
    X = np.eye(n)
    if n > 1:
        h = n // 2
        X[:h, :h], X[h:, h:] = _merge(A[:h, :h], corner), _merge(A[h:, h:], corner)
        X[h:, :h] = corner(X[h:, h:], A[h:, :h], X[:h, :h])
    return X


def _merge_with(corner):
    return lambda A: _merge(A, corner)


def _corner_above(A):
    n = len(A)
    X = np.eye(n)
    if n > 1:
        h = n // 2
        X[:h, :h], X[h:, h:] = _corner_above(A[:h, :h]), _corner_above(A[h:, h:])
        X[:h, h:] = -X[h:, h:] @ A[h:, :h] @ X[:h, :h]
    return X


def _squaring(A):
    X, power = np.eye(len(A)) - A, A @ A
    for _ in range(len(A).bit_length()):
        X, power = X @ (np.eye(len(A)) + power), power @ power
    return X


INVERSE = Exercise(
    id="9.9",
    name="inverse_by_merge",
    title="two inverses make one",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("X[i, j]",),
    cases=_inverse_cases,
    oracle=inverse_oracle,
    mistakes=(
        Mistake(
            "corner-sign",
            "the lower left quarter has the wrong sign: this is the inverse of I − A, and the matrix is I + A",
            _merge_with(lambda right, A21, left: right @ A21 @ left),
        ),
        Mistake(
            "factors-swapped",
            "the two inverses stand on the wrong sides of A21; the lower rows' inverse is on the left",
            _merge_with(lambda right, A21, left: -left @ A21 @ right),
        ),
        Mistake(
            "right-factor-missing",
            "the upper block's inverse is missing on the right of A21",
            _merge_with(lambda right, A21, left: -right @ A21),
        ),
        Mistake(
            "left-factor-missing",
            "the lower block's inverse is missing on the left of A21",
            _merge_with(lambda right, A21, left: -A21 @ left),
        ),
        Mistake(
            "corner-forgotten",
            "the lower left quarter is 0: left out, or made of a quarter of A above the diagonal; A21 is `A[h:, :h]`",
            _merge_with(lambda right, A21, left: 0 * A21),
        ),
        Mistake(
            "corner-upper-right",
            "the product stands in the upper right quarter; the inverse is lower triangular too, so it belongs to the "
            "lower left one",
            _corner_above,
        ),
        Mistake(
            "transposed",
            "this is the transpose of the inverse; the inverse is lower triangular, as A is",
            lambda A: inverse_oracle(A).T,
        ),
        Mistake(
            "first-order",
            "I − A is only the beginning of the inverse; it is exact when A² = 0, as for 2 by 2",
            lambda A: np.eye(len(A)) - A,
        ),
        Mistake(
            "repeated-squaring",
            "powers of A were multiplied; where keys repeat they grow far beyond the inverse, and the digits are lost",
            _squaring,
        ),
    ),
    hints=(
        "A 1 by 1 matrix I + A is 1. What is the inverse of a 2 by 2 one?",
        "Cut A into quarters. The upper right one is 0; the two on the diagonal are problems of half the size.",
        "The function may call itself for the two quarters on the diagonal; the answer's diagonal quarters are what it "
        "returns.",
        "The lower left quarter is minus a product of three: the lower inverse, the quarter A21, the upper inverse.",
    ),
)


# --- 9.10 backward -------------------------------------------------------------------------------


def _backward_cases(rng):
    def case(head, note, V=3):
        _, K, _, beta = head
        A = lower(K, beta)
        return Case((A, solve(A, rng.standard_normal((len(K), V))), rng.standard_normal((len(K), V))), note)

    A = np.array([[0.0, 0.0], [3.0, 0.0]])
    X = np.array([[2.0], [-5.0]])  # of B = (2, 1)
    return [
        Case((A, X, np.array([[0.0], [1.0]])), "by hand: two rows, only the second counts"),
        case(draw_head(rng, 1, 2, 1), "one token"),
        case(draw_head(rng, 2, 2, 1), "two tokens", V=1),
        case(draw_head(rng, 4, 3, 1), "V = C", V=4),
        case(draw_head(rng, 3, 3, 1), "V = 1", V=1),
        case(draw_head(rng, 7, 3, 1), "seven tokens", V=2),
        Case((np.zeros((4, 4)), rng.standard_normal((4, 2)), rng.standard_normal((4, 2))), "A = 0"),
        case(again(unit_head(rng, 9, 4, 1), 0, 1), "two keys, used again and again"),
        case(again(unit_head(rng, 32, 4, 1, beta=(1.0, 1.0)), 0), "32 times the same key, beta = 1"),
        case(near(rng, draw_head(rng, 32, 6, 1), 0.9), "32 keys near one another", V=5),
        case(near(rng, draw_head(rng, 64, 6, 1, beta=(0.9, 1.0)), 0.98), "64 nearly equal keys, of cosine 0.98"),
        case(unit_head(rng, 8, 4, 1, beta=(1.0, 2.0)), "beta above 1"),
    ]


def backward_oracle(A, X, dX):
    return _backward(A, X, dX)


def _backward(
    A,
    X,
    dX,
    *,
    through=lambda A, dX: solve(A.T, dX),
    cut=lambda G: np.tril(G, -1),
    sign=-1.0,
    outer=lambda dB, X, dX: dB @ X.T,
):
    dB = through(A, dX)
    return dB, sign * cut(outer(dB, X, dX))


def _backward_with(**slip):
    return lambda A, X, dX: _backward(A, X, dX, **slip)


BACKWARD = Exercise(
    id="9.10",
    name="solve_backward",
    title="gradients of a solve",
    points=3,
    minutes=8,
    difficulty="core",
    returns=("dB[t, v]", "dA[t, s]"),
    cases=_backward_cases,
    oracle=backward_oracle,
    mistakes=(
        Mistake(
            "not-transposed",
            "I + A was solved as in the forward pass; gradients flow back through the transpose, from later tokens to "
            "earlier ones",
            _backward_with(through=solve),
        ),
        Mistake(
            "dx-not-solved",
            "dB is dX itself: nothing was solved, or the transpose of A was cut away by a mask; B acts on X through "
            "the inverse",
            lambda A, X, dX: (dX, -np.tril(dX @ X.T, -1)),
        ),
        Mistake(
            "dx-in-da",
            "dA was made of dX; a change of A acts like a change of B, so it is made of dB",
            _backward_with(outer=lambda dB, X, dX: dX @ X.T),
        ),
        Mistake(
            "sign",
            "dA has the wrong sign; more of A means more to subtract, and dX = −(I + A)^-1 dA X",
            _backward_with(sign=1.0),
        ),
        Mistake(
            "outer-transposed",
            "dA is X dBᵀ; entry (t, s) is the gradient of row t times the solution of row s, dB Xᵀ",
            _backward_with(outer=lambda dB, X, dX: X @ dB.T),
        ),
        Mistake(
            "not-cut",
            "dA has entries on and above the diagonal; A has none there that could change",
            _backward_with(cut=lambda G: G),
        ),
        Mistake(
            "upper",
            "dA is upper triangular; A has its entries below the diagonal, and so has its gradient",
            _backward_with(cut=lambda G: np.triu(G, 1)),
        ),
        Mistake(
            "diagonal-kept",
            "dA has a diagonal; the diagonal of I + A is 1 and not an input",
            _backward_with(cut=np.tril),
        ),
        Mistake(
            "multiplied",
            "dX was multiplied by the transpose of I + A; X is the inverse times B, so its gradient goes back through "
            "a solve",
            _backward_with(through=lambda A, dX: dX + A.T @ dX),
        ),
        Mistake(
            "sign-of-a",
            "the transpose of I − A was solved; the matrix is I + A",
            _backward_with(through=lambda A, dX: solve(-A.T, dX)),
        ),
    ),
    hints=(
        "With A = 0, X is B: what are dB and dA then? Row t of X changes by minus the change of A[t, s] times row s.",
        "B enters X linearly, through the inverse; its gradient goes back through the transposed inverse.",
        "Differentiate (I + A) X = B. A change of A acts as a change of B by minus that change times X.",
        "Solve with the transposed matrix for the first; the second is minus the product of the first with the "
        "transposed solution, cut strictly below the diagonal.",
    ),
)

EXERCISES = (INVERSE, BACKWARD)
