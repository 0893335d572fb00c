"""Chapter 04, fourth part: tails and packed documents (4.7 and 4.9)."""

import itertools

import numpy as np

from lineage_lib import reference
from lineage_lib.exercises._ch03_forms import draw_head
from lineage_lib.exercises._ch04_blocks import ada_and_bo, by_hand
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.validate import readable

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
    """What the padded arrays compute from a state that is not empty: the real outputs, the last state, the length."""
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
    T = len(X)
    changed = [name for name, z, x in zip("XaBC", padded, (X, a, B, C)) if not np.array_equal(z[:T], x[: len(z)])]
    if changed:
        raise Malformed(f"the rows that were there must stay as they are; different: {', '.join(changed)}")
    start = np.cos(np.arange(1.0, 1 + B.shape[1] * X.shape[1])).reshape(B.shape[1], X.shape[1])
    Y, S = reference.ssd_recurrent(*padded, start)
    _, before = reference.ssd_recurrent(X, a, B, C, start)
    slip = np.abs(S - before).max()
    if 0 < slip < 1e-6:
        raise Malformed(f"the added tokens change the state, by {slip:.1g}; they must leave it exactly as it was")
    return Y[:T], S, len(padded[0])


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
        Case((np.array([0, 1]), 2000), "one document of one token, and chunks of 2,000"),
        Case((np.array([0, 5, 6, 12]), 4), "documents of 5, 1 and 6 tokens"),
        Case((np.array([0, 4, 12, 16]), 4), "every document is a multiple of T_c"),
        Case((np.array([0, 3, 3, 7]), 2), "document 1 has no tokens"),
        Case((np.array([0, 0, 2, 5, 5]), 3), "the first and the last document have no tokens"),
        Case((np.array([0, 2, 2, 2, 3]), 2), "documents 1 and 2 have no tokens"),
        Case((np.array([0, 2, 3]), 1), "T_c = 1"),
        Case((np.array([0, 2, 5, 6]), 64), "every document is shorter than a chunk"),
        Case((np.append(0, np.cumsum(lengths)), 3), "twelve documents"),
        Case((np.array([0, 70_000, 70_300]), 128), "positions up to 70,300"),
    ]


def packed_view(output, cu_seqlens, T_c):
    """The rows as an array, of whole numbers only."""
    from lineage_lib.checks import Malformed  # checks imports the records

    rows = np.asarray(readable(output))
    if rows.dtype.kind == "f":
        raise Malformed(f"expected whole numbers, which can be used in slices; got an array of {rows.dtype}")
    return rows


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
    view=packed_view,
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
