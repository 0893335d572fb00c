"""Chapter 10, first part: the inverses of blocks of 16, and the whole one from them (10.1, 10.2).

Each exercise has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import RTOL, slipped, tl, triton
from lineage_lib.exercises._ch10_data import GAPS, alike, blocks_of, coefficients, gates, inverse_of, littered
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import Input, Launch, Output


def _table(rng, T, H, C, *, K=5, cosine=0.0, litter=None, **given):
    """A (T, H, C) of keys, with litter on and above the diagonal."""
    return littered(rng, coefficients(alike(rng, T, H, K, cosine), *gates(rng, T, H, C, **given), C), C, litter)


def _by_hand():
    A = np.full((3, 1, 16), 9.0, np.float32)
    A[1, 0, 0], A[2, 0, :2] = 0.5, (2.0, 4.0)
    return A


# --- 10.1 the inverses of blocks of 16 tokens -----------------------------------------------------


def _blocks_cases(rng):
    def case(T, H, C, note, **given):
        return Case((_table(rng, T, H, C, **given), C), note)

    nothing = np.zeros((12, 1, 32))
    return [
        Case((_by_hand(), 16), "three tokens by hand: A below the diagonal is 0.5 and 2, 4"),
        case(1, 1, 16, "T = 1"),
        case(16, 1, 16, "T = C = 16"),
        case(15, 1, 16, "the same key in every token, beta = 1", cosine=1.0, beta=1.0, g=0.0),
        case(16, 1, 16, "the same key in every token, beta = 1.9, no decay", cosine=1.0, beta=1.9, g=0.0),
        case(14, 1, 16, "nearly equal keys, beta = 2", cosine=0.98, beta=2.0, g=-0.01),
        case(13, 1, 16, "NaN on and above the diagonal", litter=np.nan),
        case(17, 1, 16, "T = C + 1: a last block of one token"),
        Case((littered(rng, nothing, 32, 1e9), 32), "A is zero below the diagonal and 1e9 elsewhere"),
        case(23, 2, 32, "two blocks in a chunk, the second not full, two heads"),
        case(67, 1, 64, "T = 64 + 3, C = 64: a second chunk of three tokens"),
    ]


def blocks_oracle(A, C):
    return blocks_of(A, C)


def _blocks_launch(A, C):
    T, H = A.shape[:2]
    A = Input(A, GAPS["A"])
    grid = (triton.cdiv(T, 16), H)
    return Launch(grid, {"A": A, "blocks": Output((T, H, 16)), "T": T, "H": H, "A_t": A.stride, "C": C})


@triton.jit
def _invert_blocks(A, blocks, T, H, A_t, C: tl.constexpr, SLIP: tl.constexpr):
    i_b, h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_b, h = tl.program_id(1), tl.program_id(0)
    if SLIP == "stride-assumed":
        A_t = H * C
    first, i, o = i_b * 16, tl.arange(0, 16)[:, None], tl.arange(0, 16)
    start = first % C
    if SLIP == "first-columns":
        start = 0
    elif SLIP == "columns-not-wrapped":
        start = first
    p_A = A + first * A_t + h * C + start + o
    b_one = tl.where(i == o[None, :], 1.0, 0.0)
    b_X = b_one
    if SLIP == "diagonal-lost":
        b_X = tl.where((i == 0) & (o[None, :] == 0), 1.0, 0.0)
    last = 16
    if SLIP == "last-row-lost":
        last = 15
    for n in range(1, last):
        m_A = (o < n) & (first + n < T)
        if SLIP == "diagonal-read":
            m_A = (o <= n) & (first + n < T)
        elif SLIP == "all-read":
            m_A = (o < 16) & (first + n < T)
        b_a = tl.load(p_A + n * A_t, mask=m_A, other=0.0)
        if SLIP == "columns-read-whole":  # each finished row is taken from all others
            b_c = tl.load(A + (first + i) * A_t + h * C + start + n - 1, mask=first + i < T, other=0.0)
            b_X -= b_c * tl.sum(tl.where(i == n - 1, b_X, 0.0), 0)[None, :]
            b_a *= 0.0
        if SLIP == "multiplied-by-mask":
            b_a = tl.load(p_A + n * A_t, mask=(o < 16) & (first + n < T), other=0.0) * (o < n)
        if SLIP == "one-term" or SLIP == "squared" or SLIP == "squared-and-added":
            b_sum = tl.sum(b_a[:, None] * b_one, 0)
        else:
            b_sum = tl.sum(b_a[:, None] * b_X, 0)
        if SLIP == "added":
            b_X += tl.where(i == n, b_sum[None, :], 0.0)
        else:
            b_X -= tl.where(i == n, b_sum[None, :], 0.0)
    if SLIP == "squared":
        b_A = b_one - b_X
        for _ in range(0, 3):
            b_A = tl.dot(b_A, b_A, input_precision="ieee")
            b_X = tl.dot(b_X, b_one + b_A, input_precision="ieee")
    elif SLIP == "squared-and-added":
        b_A = tl.load(p_A + i * A_t, mask=(o[None, :] < i) & (first + i < T), other=0.0)
        for _ in range(0, 3):
            b_A = tl.dot(b_A, b_A, input_precision="ieee")
            b_X += tl.dot(b_A, b_X, input_precision="ieee")
    if SLIP == "transposed":
        b_X = tl.trans(b_X)
    t = first + i
    tl.store(blocks + (t * H + h) * 16 + o[None, :], b_X, mask=t < T)


BLOCKS = Exercise(
    id="10.1",
    name="invert_blocks",
    title="the inverses of blocks of 16",
    points=3,
    minutes=25,
    difficulty="core",
    returns=("blocks[t, h, j]",),
    cases=_blocks_cases,
    oracle=blocks_oracle,
    launch=_blocks_launch,
    rtol=RTOL,
    mistakes=slipped(
        _invert_blocks,
        (
            "one-term",
            "the result is 1 minus the table; a row takes away multiples of the rows of the inverse, which are "
            "finished by then, and not of the rows of the identity",
        ),
        ("added", "the multiples of the earlier rows were added; they came to the other side of an equation"),
        (
            "diagonal-read",
            "entries on or above the diagonal were used; what stands there is not part of the table, whatever it is: "
            "of row n only the first n columns of the block count",
            "all-read",
            "columns-read-whole",
        ),
        (
            "multiplied-by-mask",
            "what stands on and above the diagonal was multiplied by 0; NaN times 0 is NaN, so mask the load or choose "
            "with tl.where",
        ),
        (
            "squared",
            "this is the series of powers of the table, by repeated squaring; with like keys and beta near 2 the "
            "powers of 16 rows are large enough to lose the digits",
            "squared-and-added",
        ),
        (
            "first-columns",
            "the block's columns were looked for at the wrong place; token s of a chunk is in column s % C, so those "
            "of a block start where its first token's is",
            "columns-not-wrapped",
        ),
        ("diagonal-lost", "the ones on the diagonal are missing; the rows start as those of the identity"),
        ("last-row-lost", "the last row of each block is still the identity's; rows 1 to 15 have something to lose"),
        ("stride-assumed", "from one token to the next there need not be H * C entries: the stride A_t says how many"),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the blocks, and axis 1 the heads"),
    ),
    hints=(
        "Multiply what you have stored by 1 + T of its block: the result must be the identity. Row 0 of each block is "
        "1 and zeros, whatever the table holds.",
        "The inverse is one tile of 16 by 16 that starts as the identity; a loop over n finishes one row after "
        "another. A tile cannot be indexed: choose a row with a comparison of its number and n.",
        "Row n of the table is a vector of 16 entries, loaded with a mask that keeps those before n and a token that "
        "exists. As a column, times the tile, summed over axis 0, it is the sum of the rows that have to go.",
        "Take that sum away where the row's number is n, and nothing elsewhere. After the loop store all 16 columns "
        "of the rows whose token exists.",
    ),
)

# --- 10.2 from blocks to the inverse of a chunk ---------------------------------------------------


def _merge_cases(rng):
    def of(A, C, note):
        return Case((A, blocks_of(A, C).astype(np.float32), C), note)

    def case(T, H, C, note, **given):
        return of(_table(rng, T, H, C, **given), C, note)

    corner = np.zeros((32, 1, 32))
    corner[16:, 0, :16] = rng.standard_normal((16, 16))
    loose = 0.2 * rng.standard_normal((64, 1, 64))
    return [
        of(_by_hand(), 16, "three tokens by hand, C = 16: nothing to merge"),
        of(littered(rng, corner, 32), 32, "two blocks, and the table is zero in both"),
        case(1, 1, 32, "T = 1"),
        case(32, 1, 32, "T = C = 32"),
        case(64, 1, 64, "T = C = 64"),
        of(littered(rng, loose, 64), 64, "a table that is not made of keys"),
        case(45, 1, 64, "NaN on and above the diagonal", litter=np.nan),
        case(64, 1, 64, "the same key in every token, beta = 1, no decay", cosine=1.0, beta=1.0, g=0.0),
        case(52, 1, 64, "the same key in every token, beta = 2, no decay", cosine=1.0, beta=2.0, g=0.0),
        case(64, 1, 64, "nearly equal keys, beta = 1.7", cosine=0.98, beta=1.7, g=-0.02),
        case(33, 2, 32, "T = C + 1, two heads"),
        case(85, 1, 64, "two chunks of 64, the last one not full"),
        case(63, 3, 64, "T = C - 1, three heads"),
        case(21, 2, 16, "C = 16, the last chunk not full"),
    ]


def merge_oracle(A, blocks, C):
    return inverse_of(A, C)


def _merge_launch(A, blocks, C):
    T, H = A.shape[:2]
    A = Input(A, GAPS["A"])
    pointers = {"A": A, "blocks": Input(blocks), "inverse": Output((T, H, C))}
    return Launch((triton.cdiv(T, C), H), {**pointers, "T": T, "H": H, "A_t": A.stride, "C": C})


@triton.jit
def _merge_blocks(A, blocks, inverse, T, H, A_t, C: tl.constexpr, SLIP: tl.constexpr):
    i_c, h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_c, h = tl.program_id(1), tl.program_id(0)
    if SLIP == "stride-assumed":
        A_t = H * C
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = i_c * C + i
    p_A, m_A = A + t * A_t + h * C + j, (t < T) & (j < i)
    if SLIP == "all-read":
        m_A = (t < T) & (j < C)
    b_A = tl.load(p_A, mask=m_A, other=0.0)
    if SLIP == "multiplied-by-mask":
        b_A = tl.load(p_A, mask=(t < T) & (j < C), other=0.0) * (j < i)
    m_X = (t < T) & (i // 16 == j // 16)
    p_X = blocks + (t * H + h) * 16 + j % 16
    if SLIP == "long-rows":
        p_X = blocks + (t * H + h) * C + j
    elif SLIP == "column-not-wrapped":
        p_X = blocks + (t * H + h) * 16 + j
    if SLIP == "blocks-everywhere":
        m_X = (t < T) & (j < C)
    b_X = tl.load(p_X, mask=m_X, other=0.0)
    b_D = b_X
    size, wide = 16, C
    if SLIP == "one-merge":
        size = C // 2
    elif SLIP == "last-merge-lost":
        wide = C // 2
    elif SLIP == "squared" or SLIP == "squared-and-added":
        b_one = tl.where(i == j, 1.0, 0.0)
        b_X, size = b_one - b_A, C
        power = 2
        while power < C:
            b_A = tl.dot(b_A, b_A, input_precision="ieee")
            if SLIP == "squared":
                b_X = tl.dot(b_X, b_one + b_A, input_precision="ieee")
            else:
                b_X += tl.dot(b_X, b_A, input_precision="ieee")
            power *= 2
    while size < wide:
        pair = i // (2 * size) == j // (2 * size)
        if SLIP == "all-at-once":
            pair = j < C
        between = pair & (i // size != j // size)
        if SLIP == "blocks-again":
            between = pair
        b_B = tl.where(between, b_A, 0.0)
        if SLIP == "right-only":
            b_X -= tl.dot(b_B, b_X, input_precision="ieee")
        elif SLIP == "left-only":
            b_X -= tl.dot(b_X, b_B, input_precision="ieee")
        elif SLIP == "not-multiplied":
            b_X -= b_B
        elif SLIP == "table-first":
            b_X -= tl.dot(b_B, tl.dot(b_X, b_X, input_precision="ieee"), input_precision="ieee")
        elif SLIP == "table-last":
            b_X -= tl.dot(tl.dot(b_X, b_X, input_precision="ieee"), b_B, input_precision="ieee")
        else:
            b_Y = tl.dot(b_X, b_B, input_precision="ieee")
            if SLIP == "added":
                b_X += tl.dot(b_Y, b_X, input_precision="ieee")
            elif SLIP == "blocks-of-16-kept":
                b_X -= tl.dot(b_Y, b_D, input_precision="ieee")
            elif SLIP == "transposed":
                b_X -= tl.dot(tl.dot(tl.trans(b_X), b_B, input_precision="ieee"), tl.trans(b_X), input_precision="ieee")
            else:
                b_X -= tl.dot(b_Y, b_X, input_precision="ieee")
        size *= 2
        if SLIP == "all-at-once" or SLIP == "first-merge":
            size = C
    tl.store(inverse + (t * H + h) * C + j, b_X, mask=t < T)


MERGE = Exercise(
    id="10.2",
    name="merge_blocks",
    title="the whole inverse from blocks of 16",
    points=4,
    minutes=30,
    difficulty="hard",
    returns=("inverse[t, h, j]",),
    cases=_merge_cases,
    oracle=merge_oracle,
    launch=_merge_launch,
    rtol=RTOL,
    mistakes=slipped(
        _merge_blocks,
        ("added", "the corner was added; it is minus the product of three"),
        (
            "right-only",
            "the corner is a product of three: the lower block's inverse, what lies between, the upper block's "
            "inverse; a factor is missing or at another place",
            "left-only",
            "not-multiplied",
            "table-first",
            "table-last",
        ),
        (
            "all-at-once",
            "all blocks of 16 were merged in one go; with more than two of them a token also reaches another by way "
            "of a block between them, so merge two and two, and then these",
        ),
        (
            "first-merge",
            "blocks were not merged at every size; 16 make 32, and these make 64, until one block is the whole chunk",
            "one-merge",
            "last-merge-lost",
        ),
        (
            "blocks-again",
            "the table inside the blocks was used again; their inverses have it already, and what lies between is "
            "in the same pair, but not in the same block",
        ),
        (
            "blocks-of-16-kept",
            "the second merge multiplied by the inverses of blocks of 16; it needs those of 32, which the first has "
            "made",
        ),
        (
            "all-read",
            "entries on or above the diagonal were used; what stands there is not part of the table, whatever it is",
            "multiplied-by-mask",
        ),
        (
            "long-rows",
            "the blocks were not found: a token's row in them has 16 entries, and column j of the chunk is the "
            "block's column j % 16; outside the token's own block there are zeros",
            "column-not-wrapped",
            "blocks-everywhere",
        ),
        (
            "squared",
            "this is the series of powers of the table, by repeated squaring; with like keys the powers grow far "
            "beyond the inverse and take its digits with them",
            "squared-and-added",
        ),
        (
            "axes-swapped",
            "the program's rows of the table were not found: axis 0 of the grid counts the chunks, axis 1 the heads, "
            "and from one token to the next there are A_t entries, which need not be H * C",
            "stride-assumed",
        ),
    ),
    hints=(
        "With C = 16 the inverse is the blocks as they are. With C = 32 there is one corner for each chunk, and the "
        "rest stands there already.",
        "Three tiles of C by C: the table below the diagonal, zeros elsewhere; the inverses on their blocks, zeros "
        "elsewhere; and, new for every size, the part of the table between two neighbours.",
        "Two tokens are in neighbours where they are in the same block of twice the size, and not in the same one of "
        "this size.",
        "In a loop over the sizes 16 and 32, as far as C goes: the tile of inverses loses the product of itself, the "
        "table between neighbours, and itself. Then store all C columns of the rows that exist.",
    ),
)
