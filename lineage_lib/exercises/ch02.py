"""Chapter 02, the semiseparable view: ten exercises, from segment products to attention with a polynomial."""

from lineage_lib import matrices
from lineage_lib.exercises import _ch02_blocks, _ch02_cases, _ch02_systems
from lineage_lib.exercises.record import Exercise

EXERCISES = (
    Exercise(
        id="2.1",
        name="segment_products",
        title="the products of the decays",
        points=1,
        minutes=7,
        difficulty="warm-up",
        returns=("L[t, s]",),
        cases=_ch02_cases.segment_cases,
        oracle=matrices.segment_products,
        mistakes=_ch02_blocks.SEGMENT_PRODUCTS,
        hints=(
            "Three things hold for every right answer: the diagonal is 1, everything above it is 0, and changing the "
            "first decay changes nothing.",
            "Entry `[t, s]` says what is left at step t of something that entered at step s: it has met the decays of "
            "the steps after s, up to and including t.",
            "Two loops are fine. Or go row by row: row t is row `t - 1` with one more decay on every entry, and a new "
            "entry for the input that has just arrived.",
            "NumPy's `prod` of an empty slice is 1. The slice of decays for entry `[t, s]` begins one place after s "
            "and includes place t.",
        ),
    ),
    Exercise(
        id="2.2",
        name="scalar_matrix",
        title="matrix of a scalar recurrence",
        points=1,
        minutes=4,
        difficulty="warm-up",
        returns=("M[t, s]",),
        cases=_ch02_cases.scalar_cases,
        oracle=_ch02_cases.scalar_matrix,
        mistakes=_ch02_blocks.SCALAR_MATRIX,
        hints=(
            "Feed the recurrence a single 1 at step s and zeros elsewhere: what comes out, step by step, is column s.",
            "The matrix is the one of segment products with its rows and its columns scaled.",
            "A weight that belongs to the output scales a row; a weight that belongs to the input scales a column.",
            "The library's `segment_products` gives the middle factor. An array with a new last axis scales rows, one "
            "with a new first axis scales columns.",
        ),
    ),
    Exercise(
        id="2.3",
        name="diagonal_matrix",
        title="matrix of a diagonal SSM",
        points=2,
        minutes=10,
        difficulty="core",
        returns=("M[t, s]",),
        cases=_ch02_cases.diagonal_cases,
        oracle=_ch02_cases.diagonal_matrix,
        mistakes=_ch02_blocks.DIAGONAL_MATRIX,
        hints=(
            "With `N = 1` this must agree with the scalar recurrence, and with zeros in all but one column of `B` it "
            "must agree with the scalar recurrence of that column.",
            "A diagonal transition lets each of the N numbers run its own scalar recurrence; the output adds them up.",
            "So `M` is a sum of N matrices, each with the decays, the write weights and the read weights of one "
            "number.",
            "Loop over n. The n-th summand takes column n of each of the three arguments; start from zeros.",
        ),
    ),
    Exercise(
        id="2.4",
        name="cut_factors",
        title="reading and writing factor",
        points=2,
        minutes=18,
        difficulty="core",
        returns=("reading[i, n]", "writing[n, s]"),
        cases=_ch02_cases.factor_cases,
        oracle=_ch02_cases.cut_factors,
        mistakes=_ch02_blocks.CUT_FACTORS,
        hints=(
            "The product of the two factors must be rows k and later, columns k and earlier, of the mixing matrix. The "
            "shapes are `(T - k, N)` and `(N, k + 1)`.",
            "Column s of the writing factor is what input s has left in the state once step k is done. Row i of the "
            "reading factor is how output `k + i` weighs that state.",
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
        title="the rank of every cut block",
        points=2,
        minutes=7,
        difficulty="core",
        returns=("ranks[k]",),
        cases=_ch02_cases.rank_cases,
        oracle=_ch02_cases.cut_ranks,
        mistakes=_ch02_blocks.CUT_RANKS,
        hints=(
            "The first block is a whole column and the last one a whole row of `M`, so the first and the last rank are "
            "0 or 1. Multiplying `M` by a number other than 0 changes no rank.",
            "The block at k starts at row k and ends with column k: in code the column bound of the slice is one more.",
            "A numerical rank counts singular values. What counts as zero is measured against the largest singular "
            "value of the same block.",
            "`np.linalg.svd` has an argument that skips the two orthogonal factors. Compare strictly, so that a block "
            "of zeros has rank 0.",
        ),
    ),
    Exercise(
        id="2.6",
        name="semiseparable_matvec",
        title="multiply without the matrix",
        points=2,
        minutes=6,
        difficulty="core",
        returns=("y[t]",),
        cases=_ch02_cases.matvec_cases,
        oracle=_ch02_cases.semiseparable_matvec,
        mistakes=_ch02_systems.MATVEC,
        hints=(
            "The result must equal the matrix times `x`. At `t = 0` it is the dot product of `C[0]` and `B[0]`, times "
            "`x[0]`.",
            "Walk through the tokens once and keep N numbers. Nothing else has to be remembered.",
            "Within a step the order is: the old state decays, the new input is written, the output is read.",
            "The state's update has two terms, one from the state before and one from this token's input; the read "
            "comes after it.",
        ),
    ),
    Exercise(
        id="2.7",
        name="parallel",
        title="two systems side by side",
        points=2,
        minutes=8,
        difficulty="core",
        returns=("M[t, s]",),
        cases=_ch02_cases.pair_cases,
        oracle=_ch02_cases.parallel,
        view=_ch02_cases.pair_matrix,
        mistakes=_ch02_systems.PARALLEL,
        hints=(
            "The mixing matrix of the answer must be the sum of the two mixing matrices, for every t and s.",
            "The state of the two together is one state above the other: `N1 + N2` numbers.",
            "The two halves never talk to each other, both see the same `x`, and the output adds what is read from "
            "each.",
            "`A` is block diagonal, with zeros in the two off-diagonal blocks at every step; `B` and `C` list the "
            "first system's entries, then the second's.",
        ),
    ),
    Exercise(
        id="2.8",
        name="series",
        title="one system after the other",
        points=3,
        minutes=25,
        difficulty="hard",
        returns=("M[t, s]",),
        cases=_ch02_cases.pair_cases,
        oracle=_ch02_cases.series,
        view=_ch02_cases.pair_matrix,
        mistakes=_ch02_systems.SERIES,
        hints=(
            "The mixing matrix of the answer must be the product of the two, the second system's on the left. For "
            "`T = 1` it is one number: `C2[0] · B2[0]` times `C1[0] · B1[0]`.",
            "Write down both recurrences, the second with input `u[t]`, and the state as `h1` above `h2`. Then remove "
            "`u[t]` and the new `h1` from the second one: only the old states and `x[t]` may remain on the right.",
            "Replacing `u[t]` by its read of the new `h1`, and the new `h1` by its own recurrence, leaves two terms in "
            "the second update: one with the old `h1` and one with `x[t]`.",
            "The term with the old `h1` is the lower left block of `A`: an N2 × N1 outer product at every step, with "
            "the first transition inside. The term with `x[t]` is the lower half of `B`. The upper half of `C` is "
            "zero.",
        ),
    ),
    Exercise(
        id="2.9",
        name="realize",
        title="recover A, B, C from M",
        points=3,
        minutes=35,
        difficulty="hard",
        returns=("M[t, s]",),
        cases=_ch02_cases.realize_cases,
        oracle=_ch02_cases.realize,
        view=_ch02_cases.realized_matrix,
        mistakes=_ch02_systems.REALIZE,
        hints=(
            "Any system with the right matrix passes. To see where yours fails, compare column s of your writing "
            "factor at step k with column s of the basis you chose there: the construction makes them equal.",
            "At every k take a basis of the row space of the cut block as rows, at most N of them. The first N right "
            "singular vectors do, and their rows are orthonormal.",
            "For orthonormal rows, the coordinates of a vector of the row space are its dot products with the rows. "
            "That gives `C` from row k of `M`, and `A` from the new basis without its newest column.",
            "Three assignments in a loop over k: `B` takes the basis' last column, `C` the coordinates of the block's "
            "first row, `A` the coordinates of the shortened new basis in the old one. Near both ends there are fewer "
            "than N rows: write into the corner of arrays of zeros.",
        ),
    ),
    Exercise(
        id="2.10",
        name="taylor_attention",
        title="attention with a polynomial",
        points=2,
        minutes=12,
        difficulty="core",
        returns=("M[t, s]",),
        cases=_ch02_cases.taylor_cases,
        oracle=_ch02_cases.taylor_attention,
        view=_ch02_cases.taylor_matrix,
        mistakes=_ch02_systems.TAYLOR,
        hints=(
            "A query of zeros gives every input the weight 1, whatever the keys are. With `D = 1`, query 2 and key 3 "
            "the weight is `1 + 6 + 18 = 25`.",
            "Look for one feature vector a query and one a key, made in the same order, whose dot product is the "
            "polynomial. What a token writes is made from its key, what it reads with from its query.",
            "The constant takes one feature, which is 1. The linear term takes the D entries themselves. The square of "
            "a dot product is a sum over all pairs of entries, so it takes all `D * D` products of two entries.",
            "Flatten the outer product of each vector with itself. The factor 1/2 belongs on one side only. Nothing "
            "decays, so every transition is the identity.",
        ),
    ),
)
