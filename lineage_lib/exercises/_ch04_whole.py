"""Chapter 04, second part: the whole algorithm, its cost, tails and packed documents (4.5 to 4.7 and 4.9)."""

import itertools

import numpy as np

from lineage_lib import reference
from lineage_lib.exercises._ch03_forms import draw_head
from lineage_lib.exercises._ch04_blocks import ada_and_bo, by_hand, chunked_heads, chunks, keeping
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.matrices import segment_products, ssd_quadratic

# --- 4.5 the whole algorithm ----------------------------------------------------------------------


def _whole_cases(rng):
    cases = []
    for number, ((X, a, B, C), T_c, note) in enumerate(chunked_heads(rng)):
        if number % 2:
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
        "A whole number. For a `T` that is a multiple of `T_c` it is the total under the table.",
        "Only two rows of the table depend on how the tokens are cut: the pairs of tokens inside chunks, and the "
        "number of chunks.",
        "`divmod` gives the number of full chunks and the tokens left over. A chunk of r tokens has r² pairs, "
        "full blocks counted.",
        "Twice the pairs times the sum of the widths, plus four times `T` times their product, plus twice the number "
        "of chunks (a short one counts) times their product.",
    ),
)


# --- 4.7 padding ----------------------------------------------------------------------------------


def _pad_cases(rng):
    room = ada_and_bo()
    return [
        Case((*(z[:3] for z in by_hand()), 2), "three tokens to four"),
        Case((*draw_head(rng, 4, 2, 3), 4), "T = T_c: nothing to add"),
        Case((*draw_head(rng, 1, 3, 2), 4), "T = 1"),
        Case((*draw_head(rng, 5, 2, 3), 1), "T_c = 1: nothing to add"),
        Case((*(z[:10] for z in room), 4), "the page's first ten tokens"),
        Case((*draw_head(rng, 9, 3, 3), 4), "N = P, and three tokens to add"),
        Case((*draw_head(rng, 7, 2, 5, resets=(6,)), 5), "a[6] = 0: the last token resets"),
        Case((*draw_head(rng, 12, 3, 2), 6), "T is a multiple of T_c: nothing to add"),
        Case((*draw_head(rng, 21, 4, 3, negative=(2, 20)), 16), "negative decays, the last one among them"),
    ]


def pad_view(output, X, a, B, C, T_c):
    """What the padded arrays compute: the outputs of the real tokens, the last state, the length."""
    from lineage_lib.checks import Malformed  # checks imports the records

    if not isinstance(output, list | tuple) or len(output) != 4:
        raise Malformed("expected four arrays, X, a, B and C")
    padded = [np.asarray(z, dtype=float) for z in output]
    shapes = [z.shape for z in padded]
    rest = (X.shape[1:], a.shape[1:], B.shape[1:], C.shape[1:])
    if any(s[1:] != r or not s for s, r in zip(shapes, rest)):
        raise Malformed(f"only the number of rows may change; got the shapes {', '.join(map(str, shapes))}")
    if len({s[0] for s in shapes}) > 1:
        raise Malformed(f"X, a, B and C need the same number of rows; got {', '.join(str(s[0]) for s in shapes)}")
    Y, S = reference.ssd_recurrent(*padded)
    return Y[: len(X)], S, len(padded[0])


def pad_oracle(X, a, B, C, T_c):
    return _padded(X, a, B, C, -len(X) % T_c)


def _padded(X, a, B, C, extra, *, decay=1.0):
    X, B, C = (np.concatenate([z, np.zeros((extra, z.shape[1]))]) for z in (X, B, C))
    return X, np.append(a, np.full(extra, decay)), B, C


PAD = Exercise(
    id="4.7",
    name="pad_to_chunks",
    title="tokens that change nothing",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("Y[t, p]", "S[n, p]", "length"),
    cases=_pad_cases,
    oracle=pad_oracle,
    view=pad_view,
    mistakes=(
        Mistake(
            "padded-with-resets",
            "the added tokens have the decay 0, which wipes the state; a token that changes nothing keeps all of it",
            lambda X, a, B, C, T_c: _padded(X, a, B, C, -len(X) % T_c, decay=0.0),
        ),
        Mistake(
            "last-token-repeated",
            "the last token was repeated, and its decay and its write with it; an added token must write nothing",
            lambda X, a, B, C, T_c: tuple(
                np.concatenate([z, np.repeat(z[-1:], -len(X) % T_c, axis=0)]) for z in (X, a, B, C)
            ),
        ),
        Mistake(
            "last-decay-repeated",
            "the added tokens write nothing, but have the decay of the last token, and the state fades; only a decay "
            "of 1 keeps it",
            lambda X, a, B, C, T_c: _padded(X, a, B, C, -len(X) % T_c, decay=a[-1]),
        ),
        Mistake(
            "ones",
            "the added tokens have ones everywhere, so they write; a decay of 1 is right, but X or B must be 0",
            lambda X, a, B, C, T_c: tuple(
                np.concatenate([z, np.ones((-len(X) % T_c, *z.shape[1:]))]) for z in (X, a, B, C)
            ),
        ),
        Mistake(
            "remainder-added",
            "as many tokens were added as stand in the last, shorter chunk; what it lacks is T_c minus that many",
            lambda X, a, B, C, T_c: _padded(X, a, B, C, len(X) % T_c),
        ),
        Mistake(
            "one-chunk-too-many",
            "a sequence whose length is a multiple of T_c already got a whole chunk more",
            lambda X, a, B, C, T_c: _padded(X, a, B, C, T_c - len(X) % T_c),
        ),
        Mistake(
            "cut-off",
            "the sequence was cut down to a multiple of T_c and lost its last tokens",
            lambda X, a, B, C, T_c: tuple(z[: len(X) // T_c * T_c] for z in (X, a, B, C)),
        ),
        Mistake(
            "not-padded",
            "the arrays came back as they were; their length is to become a multiple of T_c",
            lambda X, a, B, C, T_c: (X, a, B, C),
        ),
    ),
    hints=(
        "The check runs the padded arrays: the first `T` outputs, the last state and the length must be right. "
        "What the added tokens read is thrown away.",
        "The state after an added token must be the state before it: it may not fade, and nothing may be written.",
        "A decay of 1 keeps everything; a key or a value of zeros writes nothing. As many tokens are missing as bring "
        "the length to the next multiple, and none if it is one.",
        "The number of missing tokens is minus `len(X)`, modulo `T_c`. Put that many ones behind `a`, and that many "
        "rows of zeros behind the other three.",
    ),
)


# --- 4.9 packed documents -------------------------------------------------------------------------


def _packed_cases(rng):
    lengths = rng.integers(1, 9, 12)
    return [
        Case((np.array([0, 3, 8]), 2), "two documents, of 3 and 5 tokens"),
        Case((np.array([0, 4]), 4), "one document, one full chunk"),
        Case((np.array([0, 1]), 4), "one document of one token"),
        Case((np.array([0, 5, 6, 12]), 4), "documents of 5, 1 and 6 tokens"),
        Case((np.array([0, 4, 12, 16]), 4), "every document is a multiple of T_c"),
        Case((np.array([0, 3, 3, 7]), 2), "document 1 has no tokens"),
        Case((np.array([0, 0, 2, 5, 5]), 3), "the first and the last document have no tokens"),
        Case((np.array([0, 2, 3]), 1), "T_c = 1"),
        Case((np.array([0, 2, 5, 6]), 64), "every document is shorter than a chunk"),
        Case((np.append(0, np.cumsum(lengths)), 3), "twelve documents"),
    ]


def packed_oracle(cu_seqlens, T_c):
    return _chunk_rows(cu_seqlens, T_c)


def _chunk_rows(cu_seqlens, T_c, row=lambda d, start, begin, end, T_c: (d, start, min(start + T_c, end))):
    rows = []
    for d, (begin, end) in enumerate(itertools.pairwise(cu_seqlens)):
        rows += [row(d, start, begin, end, T_c) for start in range(begin, end, T_c)]
    return np.array(rows)


def _across_documents(cu_seqlens, T_c):
    T = cu_seqlens[-1]
    return np.array([(np.searchsorted(cu_seqlens, s, side="right") - 1, s, min(s + T_c, T)) for s in range(0, T, T_c)])


def _full_only(cu_seqlens, T_c):
    return np.array([r for r in packed_oracle(cu_seqlens, T_c) if r[2] - r[1] == T_c])


def _with_empty(cu_seqlens, T_c):
    rows = [tuple(r) for r in packed_oracle(cu_seqlens, T_c)]
    rows += [(d, s, s) for d, (s, e) in enumerate(itertools.pairwise(cu_seqlens)) if s == e]
    return np.array(sorted(rows))


PACKED_CHUNKS = Exercise(
    id="4.9",
    name="packed_chunks",
    title="chunks that keep to a document",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("chunks[j, column]",),
    cases=_packed_cases,
    oracle=packed_oracle,
    mistakes=(
        Mistake(
            "across-documents",
            "the packed sequence was cut every T_c tokens, so some chunks hold tokens of two documents; start anew at "
            "every document",
            _across_documents,
        ),
        Mistake(
            "past-the-end",
            "the last chunk of a document reaches past its end, into the next one",
            lambda cu, T_c: _chunk_rows(cu, T_c, lambda d, s, begin, end, T_c: (d, s, s + T_c)),
        ),
        Mistake(
            "counted-in-the-document",
            "positions were counted from the start of each document; they are positions in the packed sequence",
            lambda cu, T_c: _chunk_rows(
                cu, T_c, lambda d, s, begin, end, T_c: (d, s - begin, min(s + T_c, end) - begin)
            ),
        ),
        Mistake(
            "tail-dropped",
            "the last, shorter chunk of a document is missing",
            _full_only,
        ),
        Mistake(
            "empty-chunks",
            "a document without tokens got a chunk; it has none",
            _with_empty,
        ),
        Mistake(
            "empty-not-counted",
            "a document without tokens was left out of the count, so the numbers of those behind it are too small",
            lambda cu, T_c: packed_oracle(np.unique(cu), T_c),
        ),
        Mistake(
            "transposed",
            "the result has one column a chunk; it is one row (document, start, stop) a chunk",
            lambda cu, T_c: packed_oracle(cu, T_c).T,
        ),
        Mistake(
            "last-token-included",
            "the third column names the last token; it is one past it, as in a slice",
            lambda cu, T_c: packed_oracle(cu, T_c) - [0, 0, 1],
        ),
    ),
    hints=(
        "Read the third column of one row and the second of the next: inside a document they are equal, and every "
        "border in `cu_seqlens` appears in them.",
        "Two neighbours in `cu_seqlens` are the first token of a document and the one after its last.",
        "A `range` with three arguments gives the chunk starts of one document; it is empty when the document is.",
        "Two nested loops, over documents and over the starts of their chunks; the end of a chunk is its start plus "
        "`T_c`, or the document's end where that comes first.",
    ),
)
