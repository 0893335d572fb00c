"""Chapter 02: cases, right answers and views of the exercises; the smallest cases can be followed by hand."""

import numpy as np

from lineage_lib import matrices
from lineage_lib.checks import Malformed
from lineage_lib.exercises import _ch02_systems
from lineage_lib.exercises.record import Case

BY_HAND = "small enough to follow by hand"
SLOW = "decays of at least 0.9: inputs from long ago still count"
EMPTIED = "the whole state is reset at token 2 and at the last one"

FOUR_A = np.array([0.9, 0.5, 0.5, 0.25])  # the four-token example; the first decay never matters
FOUR_B = np.array([1.0, 2.0, 1.0, 4.0])
FOUR_C = np.array([1.0, 1.0, 2.0, 1.0])


def _arrays(*values):
    return tuple(np.array(v, float) for v in values)


def _decays(rng, *shape):
    return rng.uniform(0.5, 1.0, shape)


def _with_reset(a, *index):
    a[index] = 0.0
    return a


def _slow(rng, *shape):
    """Decays so near 1 that an input still counts after many tokens."""
    return rng.uniform(0.9, 1.0, shape)


def _diagonal(rng, T, N):
    return _decays(rng, T, N), rng.standard_normal((T, N)), rng.standard_normal((T, N))


def _emptied(rng, T, N, *more):
    """A diagonal system whose whole state is emptied at token 2 and at the last one."""
    A, B, C = _diagonal(rng, T, N)
    return _with_reset(A, [2, T - 1]), B, C, *more


def _dense(rng, T, N):
    """Transitions of norm 0.9 that do not commute and are not symmetric."""
    turns = np.linalg.qr(rng.standard_normal((T, N, N)))[0]
    return 0.9 * turns, rng.standard_normal((T, N)), rng.standard_normal((T, N))


# --- 2.1, 2.2, 2.3: matrices ---------------------------------------------------------------------


def segment_cases(rng):
    return [
        Case((np.array([0.9]),), "T = 1"),
        Case((FOUR_A.copy(),), "the four-token example"),
        Case((_decays(rng, 7),), ""),
        Case((_with_reset(_decays(rng, 5), 0),), "a[0] = 0, which must not matter"),
        Case((_with_reset(_decays(rng, 6), 3),), "a[3] = 0: a reset"),
        Case((np.ones(6),), "a = 1: nothing is forgotten"),
        Case((_with_reset(_decays(rng, 9), [4, 5, 8]),), "two resets in a row, and one at the last token"),
        Case((_slow(rng, 41),), SLOW),
        Case((rng.uniform(0.01, 0.1, 301),), "small decays over a long sequence: their total product underflows to 0"),
    ]


def scalar_cases(rng):
    def draw(T):
        return _decays(rng, T), rng.standard_normal(T), rng.standard_normal(T)

    a, b, c = draw(8)
    return [
        Case((np.array([0.9]), np.array([3.0]), np.array([2.0])), "T = 1"),
        Case((FOUR_A.copy(), FOUR_B.copy(), FOUR_C.copy()), "the four-token example"),
        Case(draw(3)),
        Case(draw(7)),
        Case((_with_reset(a, [4, 7]), b, c), "a[4] = 0 and a[7] = 0: two resets, the second at the last token"),
        Case((_slow(rng, 41), *draw(41)[1:]), SLOW),
    ]


def scalar_matrix(a, b, c):
    return matrices.ssm_matrix(a, b[:, None], c[:, None])


def diagonal_cases(rng):
    A, B, C = _diagonal(rng, 6, 3)
    same = np.repeat(_decays(rng, 5)[:, None], 2, axis=1)
    return [
        Case(_arrays([[0.5, 0.5]], [[2, 1]], [[1, 3]]), "T = 1"),
        Case(_arrays([[0.5, 0.5], [0.5, 1]], [[2, 1], [1, 4]], [[1, 1], [2, 3]]), BY_HAND),
        Case(_diagonal(rng, 4, 1), "N = 1: a scalar recurrence"),
        Case(_diagonal(rng, 3, 2)),
        Case(_diagonal(rng, 3, 3), "T = N: the arguments are square"),
        Case(_diagonal(rng, 4, 6), "more numbers in the state than tokens"),
        Case((same, *_diagonal(rng, 5, 2)[1:]), "both numbers of the state share one decay"),
        Case((_with_reset(A, 3, 1), B, C), "A[3, 1] = 0: one of the three numbers is reset"),
        Case(_emptied(rng, 6, 2), EMPTIED),
        Case(_diagonal(rng, 7, 5)),
        Case((_slow(rng, 41, 3), *_diagonal(rng, 41, 3)[1:]), SLOW),
    ]


def diagonal_matrix(A, B, C):
    return matrices.ssm_matrix(A, B, C)


# --- 2.4, 2.5: cut blocks ------------------------------------------------------------------------


def factor_cases(rng):
    def reset_at(token, T, N):
        A, B, C = _dense(rng, T, N)
        A[token] = 0.0
        return A, B, C

    shears = [[1, 1], [0, 1]], [[1, 0], [2, 1]], [[1, 1], [1, 0]], [[0, 1], [2, 1]]
    small = _arrays(shears, [[1, 0], [0, 1], [2, 1], [1, 1]], [[1, 1], [2, 1], [1, 0], [0, 1]])
    return [
        Case((*_arrays([[[0.5, 0], [0, 0.5]]], [[2, 1]], [[1, 3]]), 0), "T = 1"),
        Case((*small, 1), BY_HAND),
        Case((*_dense(rng, 4, 1), 2), "N = 1: a scalar recurrence"),
        Case((*_dense(rng, 5, 2), 2)),
        Case((*_dense(rng, 7, 3), 0), "k = 0: the past is one input"),
        Case((*_dense(rng, 7, 3), 6), "k = T - 1: the future is one output"),
        Case((*reset_at(4, 6, 2), 3), "A[4] = 0: a reset right after the cut"),
        Case((*reset_at(3, 6, 2), 3), "A[3] = 0: a reset at the cut"),
        Case((*reset_at(2, 7, 3), 4), "A[2] = 0: a reset before the cut"),
        Case((*_dense(rng, 9, 4), 5)),
    ]


def cut_factors(A, B, C, k):
    read = np.zeros((len(B) - k, B.shape[1]))
    through = np.eye(B.shape[1])  # A_t ... A_{k+1}
    for t in range(k, len(B)):
        through = A[t] @ through if t > k else through
        read[t - k] = C[t] @ through
    write = np.zeros((B.shape[1], k + 1))
    for s in range(k + 1):
        write = A[s] @ write
        write[:, s] = B[s]
    return read, write


def _clear_ranks(draw, rtol, margin=30):
    """A drawn matrix whose singular values all stay a factor ``margin`` away from the tolerance."""
    while True:
        M = draw()
        ratios = [s / s[0] for k in range(len(M)) if (s := np.linalg.svd(M[k:, : k + 1], compute_uv=False))[0] > 0]
        if all(np.all((r > margin * rtol) | (r < rtol / margin)) for r in ratios):
            return M


def _graded(rng, sizes):
    """A matrix with one block, and these as the block's singular values."""
    n = len(sizes)
    left, right = np.linalg.qr(rng.standard_normal((2, n, n)))[0]
    return np.pad(left * sizes @ right, ((n, 0), (0, n)))


def rank_cases(rng):
    def system(T, N):
        return _clear_ranks(lambda: matrices.ssm_matrix(*_diagonal(rng, T, N)), 1e-9)

    A, B, C = _diagonal(rng, 7, 2)
    A[2], B[2] = 0.0, 0.0
    fading = np.where(np.arange(9) < 5, 1.0, 1e-10)[:, None]  # the last rows of a matrix, nearly silent
    small = 1e-12 * _clear_ranks(lambda: matrices.ssm_matrix(*_diagonal(rng, 8, 2)), 1e-7)
    noise = np.tril(rng.standard_normal((11, 11)))
    noisy = _clear_ranks(lambda: 1e9 * matrices.ssm_matrix(*_diagonal(rng, 11, 3)) + noise, 1e-6)
    sizes = np.array([1, 0.8, 0.7, 0.6, 0.013, 0.009, 1e-6])  # the fifth and sixth close to a tolerance of 1e-2
    graded = _clear_ranks(lambda: _graded(rng, sizes), 1e-2, margin=1.05)
    return [
        Case((np.array([[2.0]]), 1e-9), "T = 1"),
        Case((scalar_matrix(FOUR_A, FOUR_B, FOUR_C), 1e-9), "the four-token example"),
        Case((matrices.ssm_matrix(A, B, C), 1e-9), "nothing crosses the cut at k = 2: that block is zero"),
        Case((_clear_ranks(lambda: np.tril(rng.standard_normal((6, 6))), 1e-9), 1e-9), "no recurrence behind it"),
        Case(
            (_clear_ranks(lambda: rng.standard_normal((7, 7)), 1e-9), 1e-9), "not causal: no zeros above the diagonal"
        ),
        Case((system(10, 2), 1e-9), "a state of 2 numbers"),
        Case(
            (_clear_ranks(lambda: fading * system(9, 2), 1e-6), 1e-6),
            "outputs from k = 5 on are tiny beside the others",
        ),
        Case((small, 1e-7), "a state of 2 numbers, all entries tiny"),
        Case((noisy, 1e-6), "a state of 3 numbers, large entries, and noise of relative size 1e-9"),
        Case((graded, 1e-2), "at k = 6 the singular values are 1, 0.8, 0.7, 0.6, 0.013, 0.009 and 1e-6"),
        Case((graded.copy(), 1e-9), "the matrix of the case before, and a smaller rtol"),
    ]


def cut_ranks(M, rtol):
    return matrices.cut_ranks(M, rtol)


# --- 2.6: the product with a vector --------------------------------------------------------------


def matvec_cases(rng):
    """The long case sees what NumPy and Python allocate, not torch's own memory."""

    def draw(T, N):
        return (*_diagonal(rng, T, N), rng.standard_normal(T))

    A, B, C, x = draw(6, 3)
    long = (rng.uniform([0.3, 0.99, 0.999], [0.9, 1.0, 1.0], (1501, 3)), *draw(1501, 3)[1:])
    return [
        Case(_arrays([[0.5, 0.5]], [[2, 1]], [[1, 3]], [4]), "T = 1"),
        Case(_arrays([[0.5], [0.5], [0.5]], [[1], [2], [1]], [[1], [1], [3]], [4, 0, 1]), BY_HAND),
        Case((FOUR_A[:, None], FOUR_B[:, None], FOUR_C[:, None], np.array([31.0, 12.0, 47.0, 0.0])), "Ada's room"),
        Case(draw(5, 2)),
        Case((_with_reset(A, 3, 1), B, C, x), "A[3, 1] = 0: one of the three numbers is reset"),
        Case(_emptied(rng, 6, 2, rng.standard_normal(6)), EMPTIED),
        Case(draw(17, 4)),
        Case(long, "a long sequence and slow decays, in less memory than T x T booleans", max_bytes=2_000_000),
    ]


def semiseparable_matvec(A, B, C, x):
    return matrices.semiseparable_matvec(A, B, C, x)


# --- 2.7, 2.8, 2.9: systems ----------------------------------------------------------------------


def pair_cases(rng):
    A, B, C = _dense(rng, 6, 2)
    A[3] = 0.0
    A2, B2, C2 = _dense(rng, 6, 2)
    A2[[2, 5]] = 0.0
    one = _arrays([[[0.5]]], [[2]], [[3]])
    halves = _arrays([[[0.5]]] * 2, [[1], [2]], [[3], [1]])
    quarters = _arrays([[[0.25]]] * 2, [[1], [4]], [[1], [2]])
    return [
        Case((*one, *_arrays([[[0.5, 0], [0, 0.5]]], [[1, 4]], [[2, 1]])), "T = 1"),
        Case((*halves, *quarters), BY_HAND),
        Case((*_dense(rng, 4, 1), *_dense(rng, 4, 1)), "two scalar recurrences"),
        Case((*_dense(rng, 5, 1), *_dense(rng, 5, 2))),
        Case((*_dense(rng, 5, 3), *_dense(rng, 5, 2))),
        Case((A, B, C, *_dense(rng, 6, 3)), "A1[3] = 0: the first system is reset"),
        Case((*_dense(rng, 6, 2), A2, B2, C2), "A2[2] = 0 and A2[5] = 0: the second system is reset"),
    ]


def parallel(A1, B1, C1, A2, B2, C2):
    A = _ch02_systems.blocks(A1, None, None, A2)
    return A, np.concatenate([B1, B2], axis=1), np.concatenate([C1, C2], axis=1)


def series(A1, B1, C1, A2, B2, C2):
    return _ch02_systems.chain(A1, B1, C1, A2, B2, C2)


def pair_matrix(output, A1, B1, C1, A2, B2, C2):
    return _system_matrix(output, len(B1), B1.shape[1] + B2.shape[1])


def _array(name, value, shape):
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.shape != shape:
        raise Malformed(f"{name} has the wrong shape: got {array.shape}, expected {shape}")
    return array


def _system_matrix(output, T, N):
    if not isinstance(output, list | tuple) or len(output) != 3:
        raise Malformed("expected three values: A, B and C")
    shapes = {"A": (T, N, N), "B": (T, N), "C": (T, N)}
    A, B, C = (_array(name, value, shapes[name]) for name, value in zip(shapes, output))
    A = A.copy()
    A[:1] = 0.0  # A[0] multiplies a state of zeros: whatever stands there, NaN too, is right
    return matrices.ssm_matrix(A, B, C)


def realize_cases(rng):
    def matrix(system):
        return matrices.ssm_matrix(*system)

    def silent(*tokens):
        A, B, C = _dense(rng, 10, 2)
        C[list(tokens)] = 0.0
        return A, B, C

    A, B, C = _diagonal(rng, 9, 2)
    A[4] = 0.0
    echo = np.eye(6)
    echo[5, 0] = 1.0
    return [
        Case((np.array([[3.0]]), 1), "T = 1"),
        Case((scalar_matrix(FOUR_A, FOUR_B, FOUR_C), 1), "the four-token example"),
        Case((matrix(_diagonal(rng, 6, 3)), 3), "from a diagonal system; the cut blocks have rank 1, 2, 3, 3, 2, 1"),
        Case(
            (echo, 2),
            "the identity, and output 5 also reads input 0: the first 2 rows of many cut blocks are dependent",
        ),
        Case((matrix(_dense(rng, 11, 3)), 3), "from a system with dense transitions"),
        Case((matrix((A, B, C)), 2), "a reset at k = 4: the cut block there has rank 1"),
        Case((matrix(silent(3, 4, 6)), 2), "rows 3, 4 and 6 of M are zero: those outputs read nothing"),
        Case((matrix(_dense(rng, 8, 2)), 4), "two numbers are enough, N = 4 are allowed"),
        Case(
            (np.tril(rng.standard_normal((5, 5))), 3), "no recurrence behind it; order 3, the most that T = 5 can need"
        ),
        Case((matrix(_dense(rng, 25, 3)), 3)),
    ]


def realize(M, N):
    A, B, C = np.zeros((len(M), N, N)), np.zeros((len(M), N)), np.zeros((len(M), N))
    small = matrices.realize(M)
    r = small[1].shape[1]
    A[:, :r, :r], B[:, :r], C[:, :r] = small
    return A, B, C


def realized_matrix(output, M, N):
    return _system_matrix(output, len(M), N)


# --- 2.10: a polynomial in place of the exponential ----------------------------------------------


def taylor_cases(rng):
    def draw(T, D):
        return rng.uniform(-1.5, 1.5, (T, D)), rng.uniform(-1.5, 1.5, (T, D))

    Q, K = draw(6, 2)
    K[3:] = K[[0, 1, 0]]
    return [
        Case(_arrays([[2]], [[3]]), "T = 1, D = 1"),
        Case(_arrays([[1, 0], [1, 2]], [[2, 1], [0, 1]]), BY_HAND),
        Case(draw(5, 1), "D = 1: one number a key"),
        Case(draw(5, 3)),
        Case((Q, K), "keys 3 to 5 repeat keys 0, 1, 0"),
        Case((np.zeros((4, 2)), draw(4, 2)[1]), "queries of zeros: every weight is 1"),
        Case(draw(9, 4)),
    ]


def taylor_attention(Q, K):
    return _ch02_systems.feature_system(_ch02_systems.features(Q, (1, 1, 0.5)), _ch02_systems.features(K, (1, 1, 1)))


def taylor_matrix(output, Q, K):
    T, D = Q.shape
    most = 1 + D + D * D
    if not isinstance(output, list | tuple) or len(output) != 3 or np.ndim(output[1]) != 2:
        raise Malformed("expected three values, A (T, N, N), B (T, N) and C (T, N)")
    size = np.shape(output[1])[1]
    if size > most:
        raise Malformed(f"the state has {size} numbers; for D = {D} the ask allows 1 + D + D * D = {most}")
    return _system_matrix(output, T, size)
