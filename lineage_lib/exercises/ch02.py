"""Chapter 02, the semiseparable view: nine exercises, from segment products to the converse."""

import numpy as np

from lineage_lib import matrices
from lineage_lib.checks import Malformed
from lineage_lib.exercises import _ch02_blocks, _ch02_systems
from lineage_lib.exercises.record import Case, Exercise

FOUR_A = np.array([0.9, 0.5, 0.5, 0.25])  # the four-token example; the first decay never matters
FOUR_B = np.array([1.0, 2.0, 1.0, 4.0])
FOUR_C = np.array([1.0, 1.0, 2.0, 1.0])


def _decays(rng, *shape):
    return rng.uniform(0.5, 1.0, shape)


def _with_reset(a, *index):
    a[index] = 0.0
    return a


def _diagonal(rng, T, N):
    return _decays(rng, T, N), rng.standard_normal((T, N)), rng.standard_normal((T, N))


def _dense(rng, T, N):
    """Transitions of norm 0.9 that do not commute and are not symmetric."""
    turns = np.linalg.qr(rng.standard_normal((T, N, N)))[0]
    return 0.9 * turns, rng.standard_normal((T, N)), rng.standard_normal((T, N))


# --- 2.1, 2.2, 2.3: matrices ---------------------------------------------------------------------


def _segment_cases(rng):
    return [
        Case((np.array([0.9]),), "T = 1"),
        Case((FOUR_A.copy(),), "the four-token example"),
        Case((_decays(rng, 7),), ""),
        Case((_with_reset(_decays(rng, 5), 0),), "a[0] = 0, which must not matter"),
        Case((_with_reset(_decays(rng, 6), 3),), "a[3] = 0: a reset"),
        Case((_with_reset(_decays(rng, 9), [4, 5]),), "two resets in a row"),
        Case((np.ones(6),), "a = 1: nothing is forgotten"),
        Case((rng.uniform(0.01, 0.1, 301),), "small decays over a long sequence: their total product underflows to 0"),
    ]


def _scalar_cases(rng):
    def draw(T):
        return _decays(rng, T), rng.standard_normal(T), rng.standard_normal(T)

    a, b, c = draw(8)
    return [
        Case((np.array([0.9]), np.array([3.0]), np.array([2.0])), "T = 1"),
        Case((FOUR_A.copy(), FOUR_B.copy(), FOUR_C.copy()), "the four-token example"),
        Case(draw(3)),
        Case(draw(7)),
        Case((_with_reset(a, 4), b, c), "a[4] = 0: a reset"),
    ]


def scalar_matrix(a, b, c):
    return matrices.ssm_matrix(a, b[:, None], c[:, None])


def _diagonal_cases(rng):
    A, B, C = _diagonal(rng, 6, 3)
    same = np.repeat(_decays(rng, 5)[:, None], 2, axis=1)
    return [
        Case(_diagonal(rng, 1, 2), "T = 1"),
        Case(_diagonal(rng, 4, 1), "N = 1: a scalar recurrence"),
        Case(_diagonal(rng, 3, 2)),
        Case((same, *_diagonal(rng, 5, 2)[1:]), "both numbers of the state share one decay"),
        Case((_with_reset(A, 3, 1), B, C), "A[3, 1] = 0: one of the three numbers is reset"),
        Case(_diagonal(rng, 7, 5)),
    ]


def diagonal_matrix(A, B, C):
    return matrices.ssm_matrix(A, B, C)


# --- 2.4, 2.5: cut blocks ------------------------------------------------------------------------


def _factor_cases(rng):
    A, B, C = _dense(rng, 6, 2)
    A[4] = 0.0
    return [
        Case((*_dense(rng, 1, 2), 0), "T = 1"),
        Case((*_dense(rng, 4, 1), 2), "N = 1: a scalar recurrence"),
        Case((*_dense(rng, 5, 2), 2)),
        Case((*_dense(rng, 7, 3), 0), "k = 0: the past is one input"),
        Case((*_dense(rng, 7, 3), 6), "k = T - 1: the future is one output"),
        Case((A, B, C, 3), "A[4] = 0: a reset right after the cut"),
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


def _factors_multiplied(output, A, B, C, k):
    if not isinstance(output, list | tuple) or len(output) != 2:
        raise Malformed("expected two values: the reading factor and the writing factor")
    shapes = {"the reading factor": (len(B) - k, B.shape[1]), "the writing factor": (B.shape[1], k + 1)}
    return np.matmul(*(_array(name, value, shape) for (name, shape), value in zip(shapes.items(), output)))


def _array(name, value, shape):
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.shape != shape:
        raise Malformed(f"{name} has the wrong shape: got {array.shape}, expected {shape}")
    return array


def _clear_ranks(draw, rtol):
    """A drawn matrix whose singular values all stay a factor 30 away from the tolerance."""
    while True:
        M = draw()
        ratios = [s / s[0] for k in range(len(M)) if (s := np.linalg.svd(M[k:, : k + 1], compute_uv=False))[0] > 0]
        if all(np.all((r > 30 * rtol) | (r < rtol / 30)) for r in ratios):
            return M


def _rank_cases(rng):
    def system(T, N):
        return _clear_ranks(lambda: matrices.ssm_matrix(*_diagonal(rng, T, N)), 1e-9)

    A, B, C = _diagonal(rng, 7, 2)
    A[2], B[2] = 0.0, 0.0
    fading = np.where(np.arange(9) < 5, 1.0, 1e-10)[:, None]  # the last rows of a matrix, nearly silent
    small = 1e-12 * _clear_ranks(lambda: matrices.ssm_matrix(*_diagonal(rng, 8, 2)), 1e-7)
    noise = np.tril(rng.standard_normal((11, 11)))
    noisy = _clear_ranks(lambda: 1e9 * matrices.ssm_matrix(*_diagonal(rng, 11, 3)) + noise, 1e-6)
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
    ]


def cut_ranks(M, rtol):
    return matrices.cut_ranks(M, rtol)


# --- 2.6: the product with a vector --------------------------------------------------------------


def _matvec_cases(rng):
    def draw(T, N):
        return (*_diagonal(rng, T, N), rng.standard_normal(T))

    A, B, C, x = draw(6, 3)
    long = (rng.uniform(0.3, 0.9, (1501, 3)), *draw(1501, 3)[1:])
    return [
        Case(draw(1, 2), "T = 1"),
        Case((FOUR_A[:, None], FOUR_B[:, None], FOUR_C[:, None], np.array([31.0, 12.0, 47.0, 0.0])), "Ada's room"),
        Case(draw(5, 2)),
        Case((_with_reset(A, 3, 1), B, C, x), "A[3, 1] = 0: one of the three numbers is reset"),
        Case(draw(17, 4)),
        Case(long, "a long sequence, in less memory than one array of T x T numbers", max_bytes=2_000_000),
    ]


def semiseparable_matvec(A, B, C, x):
    return matrices.semiseparable_matvec(A, B, C, x)


# --- 2.7, 2.8, 2.9: systems ----------------------------------------------------------------------


def _pair_cases(rng):
    A, B, C = _dense(rng, 6, 2)
    A[3] = 0.0
    return [
        Case((*_dense(rng, 1, 1), *_dense(rng, 1, 2)), "T = 1"),
        Case((*_dense(rng, 4, 1), *_dense(rng, 4, 1)), "two scalar recurrences"),
        Case((*_dense(rng, 5, 1), *_dense(rng, 5, 2))),
        Case((*_dense(rng, 5, 3), *_dense(rng, 5, 2))),
        Case((A, B, C, *_dense(rng, 6, 3)), "A1[3] = 0: the first system is reset"),
    ]


def parallel(A1, B1, C1, A2, B2, C2):
    A = _ch02_systems.blocks(A1, None, None, A2)
    return A, np.concatenate([B1, B2], axis=1), np.concatenate([C1, C2], axis=1)


def series(A1, B1, C1, A2, B2, C2):
    return _ch02_systems.chain(A1, B1, C1, A2, B2, C2)


def _pair_matrix(output, A1, B1, C1, A2, B2, C2):
    return _system_matrix(output, len(B1), B1.shape[1] + B2.shape[1])


def _system_matrix(output, T, N):
    if not isinstance(output, list | tuple) or len(output) != 3:
        raise Malformed("expected three values: A, B and C")
    shapes = {"A": (T, N, N), "B": (T, N), "C": (T, N)}
    return matrices.ssm_matrix(*(_array(name, value, shapes[name]) for name, value in zip(shapes, output)))


def _realize_cases(rng):
    def matrix(system):
        return matrices.ssm_matrix(*system)

    A, B, C = _diagonal(rng, 9, 2)
    A[4] = 0.0
    return [
        Case((np.array([[3.0]]), 1), "T = 1"),
        Case((scalar_matrix(FOUR_A, FOUR_B, FOUR_C), 1), "the four-token example"),
        Case((matrix(_diagonal(rng, 6, 2)), 2), "from a diagonal system"),
        Case((matrix(_dense(rng, 11, 3)), 3), "from a system with dense transitions"),
        Case((matrix((A, B, C)), 2), "a reset at k = 4: the cut block there has rank 1"),
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


EXERCISES = (
    Exercise(
        id="2.1",
        name="segment_products",
        title="the products of the decays between two tokens, as a matrix",
        points=1,
        minutes=8,
        difficulty="warm-up",
        returns=("L[t, s]",),
        cases=_segment_cases,
        oracle=matrices.segment_products,
        mistakes=_ch02_blocks.SEGMENT_PRODUCTS,
        hints=(
            "Three things hold for every right answer: the diagonal is 1, everything above it is 0, and changing the "
            "first decay changes nothing.",
            "Entry (t, s) says what is left at step t of something that entered at step s: it has met the decays of "
            "the steps after s, up to and including t.",
            "Two loops are fine. Or go row by row: row t is row t - 1 with one more decay on every entry, and a new "
            "entry for the input that has just arrived.",
            "NumPy's prod of an empty slice is 1. The slice of decays for entry (t, s) begins one place after s and "
            "includes place t.",
        ),
    ),
    Exercise(
        id="2.2",
        name="scalar_matrix",
        title="the mixing matrix of a scalar recurrence",
        points=1,
        minutes=6,
        difficulty="warm-up",
        returns=("M[t, s]",),
        cases=_scalar_cases,
        oracle=scalar_matrix,
        mistakes=_ch02_blocks.SCALAR_MATRIX,
        hints=(
            "Feed the recurrence a single 1 at step s and zeros elsewhere: what comes out, step by step, is column s.",
            "The matrix is the one of segment products with its rows and its columns scaled.",
            "A weight that belongs to the output scales a row; a weight that belongs to the input scales a column.",
            "The library's segment_products gives the middle factor. An array with a new last axis scales rows, one "
            "with a new first axis scales columns.",
        ),
    ),
    Exercise(
        id="2.3",
        name="diagonal_matrix",
        title="the mixing matrix of a diagonal state-space model",
        points=2,
        minutes=12,
        difficulty="core",
        returns=("M[t, s]",),
        cases=_diagonal_cases,
        oracle=diagonal_matrix,
        mistakes=_ch02_blocks.DIAGONAL_MATRIX,
        hints=(
            "With N = 1 this must agree with the scalar recurrence, and with zeros in all but one column of B it must "
            "agree with the scalar recurrence of that column.",
            "A diagonal transition lets each of the N numbers run its own scalar recurrence; the output adds them up.",
            "So M is a sum of N matrices, each with the decays, the write weights and the read weights of one number.",
            "Loop over n. The n-th summand takes column n of each of the three arguments; start from zeros.",
        ),
    ),
    Exercise(
        id="2.4",
        name="cut_factors",
        title="the cut block as reading factor times writing factor",
        points=2,
        minutes=18,
        difficulty="core",
        returns=("(reading @ writing)[i, s]",),
        cases=_factor_cases,
        oracle=cut_factors,
        view=_factors_multiplied,
        mistakes=_ch02_blocks.CUT_FACTORS,
        hints=(
            "The product of the two factors must be rows k and later, columns k and earlier, of the mixing matrix. The "
            "shapes are (T - k, N) and (N, k + 1).",
            "Column s of the writing factor is what input s has left in the state once step k is done. Row i of the "
            "reading factor is how output k + i weighs that state.",
            "Grow the writing factor from an empty state: each step moves all its columns on by that step's "
            "transition and puts one more column in. For the reading factor keep the product of the transitions after "
            "step k, which starts as the identity.",
            "Transition k belongs to the writing factor alone. The newest transition always goes on the left of the "
            "product so far.",
        ),
    ),
    Exercise(
        id="2.5",
        name="cut_ranks",
        title="the numerical rank of every cut block",
        points=2,
        minutes=10,
        difficulty="core",
        returns=("ranks[k]",),
        cases=_rank_cases,
        oracle=cut_ranks,
        mistakes=_ch02_blocks.CUT_RANKS,
        hints=(
            "The first block is a whole column and the last one a whole row of M, so the first and the last rank are "
            "0 or 1. Multiplying M by a number other than 0 changes no rank.",
            "The block at k starts at row k and ends with column k: in code the column bound of the slice is one more.",
            "A numerical rank counts singular values. What counts as zero is measured against the largest singular "
            "value of the same block.",
            "np.linalg.svd has an argument that skips the two orthogonal factors. Compare strictly, so that a block of "
            "zeros has rank 0.",
        ),
    ),
    Exercise(
        id="2.6",
        name="semiseparable_matvec",
        title="multiply by the mixing matrix without building it",
        points=2,
        minutes=10,
        difficulty="core",
        returns=("y[t]",),
        cases=_matvec_cases,
        oracle=semiseparable_matvec,
        mistakes=_ch02_systems.MATVEC,
        hints=(
            "The result must equal the matrix times x. At t = 0 it is the dot product of C[0] and B[0], times x[0].",
            "Walk through the tokens once and keep N numbers. Nothing else has to be remembered.",
            "Within a step the order is: the old state decays, the new input is written, the output is read.",
            "The state's update has two terms, one from the state before and one from this token's input; the read "
            "comes after it.",
        ),
    ),
    Exercise(
        id="2.7",
        name="parallel",
        title="two systems side by side as one",
        points=2,
        minutes=10,
        difficulty="core",
        returns=("M[t, s]",),
        cases=_pair_cases,
        oracle=parallel,
        view=_pair_matrix,
        mistakes=_ch02_systems.PARALLEL,
        hints=(
            "The mixing matrix of the answer must be the sum of the two mixing matrices, for every t and s.",
            "The state of the two together is one state above the other: N1 + N2 numbers.",
            "The two halves never talk to each other, both see the same x, and the output adds what is read from each.",
            "A is block diagonal, with zeros in the two off-diagonal blocks at every step; B and C list the first "
            "system's entries, then the second's.",
        ),
    ),
    Exercise(
        id="2.8",
        name="series",
        title="two systems one after the other as one",
        points=3,
        minutes=18,
        difficulty="hard",
        returns=("M[t, s]",),
        cases=_pair_cases,
        oracle=series,
        view=_pair_matrix,
        mistakes=_ch02_systems.SERIES,
        hints=(
            "The mixing matrix of the answer must be the product of the two, the second system's on the left. For "
            "T = 1 it is one number: C2 · B2 times C1 · B1.",
            "Write down both recurrences, the second with input u_t, and the state as h1 above h2. Then remove u_t and "
            "h1_t from the second one: only the old states and x_t may remain on the right.",
            "Replacing u_t by its read of h1_t, and h1_t by its own recurrence, leaves two terms in the second update: "
            "one with the old h1 and one with x_t.",
            "The term with the old h1 is the lower left block of A: an N2 x N1 outer product at every step, with the "
            "first transition inside. The term with x_t is the lower half of B. The upper half of C is zero.",
        ),
    ),
    Exercise(
        id="2.9",
        name="realize",
        title="recover A, B, C from a semiseparable matrix",
        points=3,
        minutes=30,
        difficulty="hard",
        returns=("M[t, s]",),
        cases=_realize_cases,
        oracle=realize,
        view=lambda output, M, N: _system_matrix(output, len(M), N),
        mistakes=_ch02_systems.REALIZE,
        hints=(
            "Any system with the right matrix passes. To see where yours fails, compare column s of your writing "
            "factor at step k with column s of the basis you chose there: the construction makes them equal.",
            "At every k take a basis of the row space of the cut block as rows, at most N of them. The first N right "
            "singular vectors do, and their rows are orthonormal.",
            "For orthonormal rows, the coordinates of a vector of the row space are its dot products with the rows. "
            "That gives C from row k of M, and A from the new basis without its newest column.",
            "Three assignments in a loop over k: B takes the basis' last column, C the coordinates of the block's "
            "first row, A the coordinates of the shortened new basis in the old one. Near both ends there are fewer "
            "than N rows: write into the corner of arrays of zeros.",
        ),
    ),
)
