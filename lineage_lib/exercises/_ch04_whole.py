"""Chapter 04, second part: the whole algorithm and its cost (4.5 and 4.6)."""

import numpy as np

from lineage_lib.exercises._ch03_forms import draw_head
from lineage_lib.exercises._ch04_blocks import chunked_heads, chunks, keeping
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.matrices import segment_products, ssd_quadratic

# --- 4.5 the whole algorithm ----------------------------------------------------------------------


def _whole_cases(rng):
    cases, from_nothing = [], (2, 4, 8, 12, 14)  # numbers of the cases without S0
    for number, ((X, a, B, C), T_c, note) in enumerate(chunked_heads(rng)):
        if number in from_nothing:
            cases.append(Case((X, a, B, C, T_c), f"{note}; S0 is not given"))
        else:
            S0 = np.array([[32.0]]) if number == 0 else rng.standard_normal((B.shape[1], X.shape[1]))
            cases.append(Case((X, a, B, C, T_c, S0), note))
    head, S0 = draw_head(rng, 3000, 3, 2, a=keeping(rng, 3000)), rng.standard_normal((3, 2))
    return [*cases, Case((*head, 50, S0), "3,000 tokens, where a T by T matrix takes 72 MB", max_bytes=8_000_000)]


def whole_oracle(X, a, B, C, T_c, S0=None):
    return _walk(X, a, B, C, T_c, S0)


def _last_row(a):
    return segment_products(a)[-1]


def _first_column(a):
    return segment_products(a)[:, 0]


def _walk(X, a, B, C, T_c, S0=None, *, read=np.cumprod, keep=np.prod, write=_last_row, early=False):
    """The loop over chunks; ``read``, ``keep`` and ``write`` make the decays of each from those of a chunk."""
    S = np.zeros((B.shape[1], X.shape[1])) if S0 is None else S0
    Y = np.zeros(X.shape)
    for j in chunks(len(X), T_c):
        left = keep(a[j]) * S + (write(a[j])[:, None] * B[j]).T @ X[j]
        Y[j] = ssd_quadratic(X[j], a[j], B[j], C[j]) + read(a[j])[:, None] * (C[j] @ (left if early else S))
        S = left
    return Y, S


def _with_matrix(X, a, B, C, T_c, S0=None):
    S0 = np.zeros((B.shape[1], X.shape[1])) if S0 is None else S0
    L, p = segment_products(a), np.cumprod(a)
    return (L * (C @ B.T)) @ X + p[:, None] * (C @ S0), p[-1] * S0 + (L[-1][:, None] * B).T @ X


def _without_tail(X, a, B, C, T_c, S0=None):
    full, Y = len(X) // T_c * T_c, np.zeros(X.shape)
    Y[:full], S = _walk(X[:full], a[:full], B[:full], C[:full], T_c, S0)
    return Y, S


def _walk_with(**slip):
    return lambda X, a, B, C, T_c, S0=None: _walk(X, a, B, C, T_c, S0, **slip)


WHOLE = Exercise(
    id="4.5",
    name="ssd_chunked",
    title="the four steps, chunk by chunk",
    points=4,
    minutes=15,
    difficulty="hard",
    returns=("Y[t, p]", "S[n, p]"),
    cases=_whole_cases,
    oracle=whole_oracle,
    mistakes=(
        Mistake(
            "border-decay-dropped",
            "the first token of a chunk read the incoming state undecayed; the decays of the read start with the "
            "chunk's first token: a_b, a_b a_{b+1}, …",
            _walk_with(read=_first_column),
        ),
        Mistake(
            "border-decay-lost",
            "the decay of a chunk's first token is missing, from the read and from what is passed on: both start with "
            "a_b, which the first column of the mask does not hold; the cumulative product of the chunk's decays does",
            _walk_with(read=_first_column, keep=lambda d: d[1:].prod()),
        ),
        Mistake(
            "pass-not-decayed",
            "the chunk's own state was added to what came in without decaying that; it has met all decays of the chunk",
            _walk_with(keep=lambda d: 1.0),
        ),
        Mistake(
            "write-includes-own",
            "the chunk's write of token s was multiplied by a_s as well; a_s acted before it was written: the last "
            "row of the mask starts with the decay after s",
            _walk_with(write=lambda d: np.cumprod(d[::-1])[::-1]),
        ),
        Mistake(
            "tail-dropped",
            "the last chunk, which is shorter when T is not a multiple of T_c, was left out",
            _without_tail,
        ),
        Mistake(
            "updated-too-early",
            "the state was passed on before it was read, so the tokens of a chunk read the state that leaves it; "
            "they read the one that enters",
            _walk_with(early=True),
        ),
        Mistake(
            "start-ignored",
            "S0 was not used; it is the state that enters the first chunk",
            lambda X, a, B, C, T_c, S0=None: _walk(X, a, B, C, T_c),
        ),
        Mistake(
            "quadratic",
            "this builds a T by T matrix; only one chunk's T_c by T_c block is needed at a time",
            _with_matrix,
            sign="memory",
        ),
    ),
    hints=(
        "With one chunk (`T_c >= T`) this is the quadratic form with an initial state, 3.7 and 3.8. "
        "With `T_c = 1` it is the recurrence.",
        "Carry one state from chunk to chunk. In each chunk it is first read by all tokens and then updated.",
        "A chunk needs three sets of decays: the mask inside; the cumulative product for the read of the incoming "
        "state; the last row of the mask for its own writes. The last cumulative product is what is left of the "
        "incoming state.",
        "Per slice: output = quadratic form + cumulative product times (`C` of the slice times the state); then the "
        "state becomes the last cumulative product times itself + the weighted keys, transposed, times `X` of the "
        "slice.",
    ),
)


# --- 4.6 counting ---------------------------------------------------------------------------------


def flops_oracle(T, N, P, T_c):
    return _flops(T, N, P, T_c)


def _flops(T, N, P, T_c, *, pairs=None, states=4, scan=2, chunk_count=None):
    full, tail = divmod(T, T_c)
    pairs = full * T_c**2 + tail**2 if pairs is None else pairs
    chunk_count = full + (tail > 0) if chunk_count is None else chunk_count
    return 2 * pairs * (N + P) + states * T * N * P + scan * chunk_count * N * P


def _rounded_up(T, N, P, T_c):
    return _flops(-(-T // T_c) * T_c, N, P, T_c)


CHUNK_FLOPS = Exercise(
    id="4.6",
    name="chunk_flops",
    title="FLOPs of the chunk form",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("FLOPs",),
    cases=lambda rng: [
        Case((1, 1, 1, 1), "one token, all sizes 1"),
        Case((4, 1, 1, 2), "two chunks of two tokens"),
        Case((3, 2, 1, 2), "the last chunk has one token"),
        Case((12, 2, 1, 4), "the page's twelve tokens"),
        Case((12, 3, 2, 5), "the last chunk has two tokens"),
        Case((7, 4, 3, 1), "T_c = 1: every token is a chunk"),
        Case((5, 3, 2, 8), "T < T_c: one short chunk"),
        Case((4096, 64, 64, 64), "N = P = T_c"),
        Case((1000, 128, 64, 256), "Mamba-2's default sizes, and a last chunk of 232"),
        Case(
            (int(rng.integers(300, 400)), int(rng.integers(20, 40)), int(rng.integers(41, 60)), 37), "drawn at random"
        ),
        Case((1_000_003, 128, 64, 64), "a million tokens and three"),
    ],
    oracle=flops_oracle,
    mistakes=(
        Mistake(
            "tail-as-full",
            "the last chunk was counted as a full one; it has only the tokens that are left",
            _rounded_up,
        ),
        Mistake(
            "tail-dropped",
            "only the full chunks were counted; the tokens that are left over form a chunk too",
            lambda T, N, P, T_c: _flops(T // T_c * T_c, N, P, T_c),
        ),
        Mistake(
            "formula-as-it-stands",
            "this is the formula for a T that is a multiple of T_c; a shorter last chunk of r tokens has r² pairs of "
            "tokens and not r T_c, and the pass takes a whole step across it",
            lambda T, N, P, T_c: _flops(T, N, P, T_c, pairs=T * T_c, chunk_count=T / T_c),
        ),
        Mistake(
            "formula-with-full-chunks",
            "this is the formula for a T that is a multiple of T_c, its number of chunks rounded down; a shorter last "
            "chunk of r tokens has r² pairs of tokens and not r T_c, and the pass crosses it too",
            lambda T, N, P, T_c: _flops(T, N, P, T_c, pairs=T * T_c, chunk_count=T // T_c),
        ),
        Mistake(
            "products-counted-once",
            "additions were not counted; a product of an m by k with a k by n table is 2 m k n",
            lambda T, N, P, T_c: _flops(T, N, P, T_c) // 2,
        ),
        Mistake(
            "half-blocks",
            "only the triangle on and below the diagonal of each block was counted; the table counts full blocks",
            lambda T, N, P, T_c: _flops(
                T, N, P, T_c, pairs=sum(n * (n + 1) // 2 for n in (*[T_c] * (T // T_c), T % T_c))
            ),
        ),
        Mistake(
            "one-of-two-state-products",
            "2 T N P was counted for the states; writing them takes that much, and reading them takes it again",
            lambda T, N, P, T_c: _flops(T, N, P, T_c, states=2),
        ),
        Mistake(
            "pass-forgotten",
            "the pass between chunks was not counted: a multiplication and an addition for each of the N P numbers, "
            "once a chunk",
            lambda T, N, P, T_c: _flops(T, N, P, T_c, scan=0),
        ),
    ),
    hints=(
        "For a `T` that is a multiple of `T_c` it is the total under the table.",
        "Only two rows of the table depend on how the tokens are cut: the pairs of tokens inside chunks, and the "
        "number of chunks.",
        "`divmod` gives the number of full chunks and the tokens left over. A chunk of r tokens has r² pairs, "
        "full blocks counted.",
        "Twice the pairs times the sum of the widths, plus four times `T` times their product, plus twice the number "
        "of chunks (a short one counts) times their product.",
    ),
)
