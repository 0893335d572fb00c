"""Chapter 04, first part: the blocks of the matrix, the chunk states and the pass between them (4.1 to 4.4)."""

import numpy as np

from lineage_lib import reference
from lineage_lib.exercises._ch03_forms import FADING, draw_head, fading, repeat_keys
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.matrices import segment_products, ssd_quadratic

KEEPING = "decays near 1, which keep old writes for long"


def keeping(rng, T):
    """Decays so near 1 that a write survives many chunks."""
    return rng.uniform(0.99, 1.0, T)


def chunks(T, T_c):
    """The slices of all chunks; the last one may be shorter."""
    return [slice(start, min(start + T_c, T)) for start in range(0, T, T_c)]


def by_hand():
    """(X, a, B, C): four tokens, one number of state, decays of one half."""
    one = np.ones((4, 1))
    return np.array([[16.0], [8.0], [4.0], [2.0]]), np.full(4, 0.5), one, one.copy()


def ada_and_bo():
    """(X, a, B, C): the page's twelve tokens, notes and questions about two people."""
    ada, bo, nobody = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
    B = [ada, bo, ada, nobody, bo, nobody, nobody, ada, nobody, bo, nobody, nobody]
    C = [ada, bo, ada, ada, bo, ada, bo, ada, bo, bo, ada, bo]
    X = np.array([[31.0, 12, 47, 0, 20, 0, 0, 5, 0, 40, 0, 0]]).T
    return X, np.where(X[:, 0] > 0, 0.5, 1.0), np.array(B), np.array(C)


def wiped():
    """(X, a, B, C): a huge first token, a reset, and queries that read behind the reset alone."""
    one = np.ones((2, 1))
    return np.array([[1e12], [1.0]]), np.array([1.0, 0.0]), one, np.array([[0.0], [1.0]])


def chunked_heads(rng):
    """(X, a, B, C), chunk length and note of the cases that cut a whole head into chunks."""
    return [
        (by_hand(), 2, "four tokens in two chunks"),
        (draw_head(rng, 1, 2, 3, negative=(0,)), 1, "T = 1, T_c = 1, a negative decay"),
        (wiped(), 2, "X[0] = 1e12 and a[1] = 0, which wipes all of it"),
        (draw_head(rng, 3, 2, 4), 5, "T < T_c: one short chunk"),
        (ada_and_bo(), 4, "the page's twelve tokens"),
        (draw_head(rng, 7, 1, 2), 3, "N = 1, and a last chunk of one token"),
        (draw_head(rng, 5, 3, 2), 1, "T_c = 1: every token is a chunk"),
        (draw_head(rng, 4, 4, 4), 4, "one full chunk: N = P = T = T_c"),
        (draw_head(rng, 14, 3, 2, resets=(3, 4)), 4, "a[3] = a[4] = 0: a chunk's last and a chunk's first token"),
        (draw_head(rng, 11, 2, 3, resets=(0, 5, 10)), 4, "resets at the first, a middle and the last token"),
        (draw_head(rng, 10, 2, 5, negative=(1, 4, 5, 9)), 4, "some decays are negative"),
        (
            draw_head(rng, 14, 3, 2, negative=(1, 6, 7, 8, 11), resets=(2, 12)),
            5,
            "negative decays and zeros in the first and the last chunk, negative decays between",
        ),
        (repeat_keys(*draw_head(rng, 13, 3, 2, a=1.0)), 5, "two keys, each used again and again; every decay is 1"),
        (draw_head(rng, 210, 3, 2, a=keeping(rng, 210)), 16, KEEPING),
        (draw_head(rng, 400, 3, 2, a=fading(rng, 400)), 300, FADING),
    ]


# --- 4.1 what a token hears from its own chunk ----------------------------------------------------


def own_chunk_oracle(X, a, B, C, T_c):
    return _by_chunk(ssd_quadratic, X, a, B, C, chunks(len(X), T_c))


def _by_chunk(form, X, a, B, C, slices):
    Y = np.zeros(X.shape)
    for j in slices:
        Y[j] = form(X[j], a[j], B[j], C[j])
    return Y


def _window(X, a, B, C, T_c):
    return (np.triu(segment_products(a), 1 - T_c) * (C @ B.T)) @ X


def _in_number(T, count):
    """Slices of ``count`` chunks of about one length."""
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(T), count)])
    return [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends)]


OWN_CHUNK = Exercise(
    id="4.1",
    name="own_chunk",
    title="the diagonal blocks",
    points=2,
    minutes=6,
    difficulty="warm-up",
    returns=("Y[t, p]",),
    cases=lambda rng: [Case((*head, T_c), note) for head, T_c, note in chunked_heads(rng)],
    oracle=own_chunk_oracle,
    mistakes=(
        Mistake(
            "tail-dropped",
            "the last chunk, which is shorter when T is not a multiple of T_c, was left out",
            lambda X, a, B, C, T_c: _by_chunk(
                ssd_quadratic, X, a, B, C, [j for j in chunks(len(X), T_c) if j.stop - j.start == T_c]
            ),
        ),
        Mistake(
            "not-cut",
            "tokens heard from other chunks as well: this is the whole lower triangle, not its diagonal blocks",
            lambda X, a, B, C, T_c: ssd_quadratic(X, a, B, C),
        ),
        Mistake(
            "number-of-chunks",
            "the sequence was cut into T_c chunks; T_c is the length of a chunk",
            lambda X, a, B, C, T_c: _by_chunk(ssd_quadratic, X, a, B, C, _in_number(len(X), T_c)),
        ),
        Mistake(
            "window",
            "every token heard from the T_c tokens up to itself, a window that moves with it; a chunk's border stays "
            "where it is, and its first token hears from nobody before it",
            _window,
        ),
        Mistake(
            "mask-of-the-first-chunk",
            "the decays of the first chunk were used in every chunk; chunk j has decays of its own",
            lambda X, a, B, C, T_c: own_chunk_oracle(X, np.resize(a[:T_c], len(a)), B, C, T_c),
        ),
        Mistake(
            "decay-includes-own",
            "the segment products include a_s; a_s acted before token s was written, so L has ones on its diagonal",
            lambda X, a, B, C, T_c: _by_chunk(
                lambda x, d, b, c: (segment_products(d) * d * (c @ b.T)) @ x, X, a, B, C, chunks(len(X), T_c)
            ),
        ),
        Mistake(
            "no-decay",
            "inside a chunk nothing faded; the scores of a chunk are multiplied by the segment products of its decays",
            lambda X, a, B, C, T_c: own_chunk_oracle(X, np.ones_like(a), B, C, T_c),
        ),
        Mistake(
            "swapped-b-c",
            "the scores of a chunk are B Cᵀ; entry (t, s) is the query of t with the key of s, C_t · B_s",
            lambda X, a, B, C, T_c: own_chunk_oracle(X, a, C, B, T_c),
        ),
    ),
    hints=(
        "The first token of every chunk hears from itself alone: its output is `(C[t] · B[t]) X[t]`.",
        "A diagonal block is the matrix of the same layer, run on that chunk alone from an empty state.",
        "Walk over the first tokens of the chunks, 0, `T_c`, 2 `T_c`, …; a slice that reaches past the end of an array "
        "stops at its end, so the last chunk needs no special case.",
        "For each such start, put the quadratic form of the four slices of `T_c` tokens into the same slice of `Y`.",
    ),
)


# --- 4.2 the three factors of a block below the diagonal -------------------------------------------


def _factor_cases(rng):
    def case(T, N, T_c, j, i, note, *, large=(), **kwargs):
        _, a, B, C = draw_head(rng, T, N, 1, **kwargs)
        B[list(large)] *= 1e12
        return Case((a, B, C, T_c, j, i), note)

    _, a, B, C = by_hand()
    return [
        Case((a, B, C, 2, 1, 0), "by hand: two neighbouring chunks"),
        case(2, 2, 1, 1, 0, "T_c = 1: chunks of one token"),
        case(4, 3, 1, 3, 0, "T_c = 1, and two chunks in between"),
        case(12, 2, 4, 2, 0, "one chunk in between"),
        case(12, 2, 4, 1, 0, "neighbours, and a chunk after them"),
        case(12, 3, 3, 3, 1, "N = T_c: every factor but one is square"),
        case(11, 3, 4, 2, 0, "chunk 2 is the short one at the end"),
        case(11, 1, 3, 3, 2, "N = 1, neighbours, chunk 3 is short"),
        case(12, 2, 4, 2, 0, "a[8] = 0: the first token of chunk 2 forgets all", resets=(8,)),
        case(12, 2, 4, 2, 0, "a[3] = 0: the last token of chunk 0 forgets the others", resets=(3,)),
        case(12, 2, 4, 2, 0, "a[3] = 0, and the forgotten keys are near 1e12", resets=(3,), large=(0, 1, 2)),
        case(12, 3, 4, 2, 1, "a[5] = 0 and a[10] = 0: resets inside both chunks", resets=(5, 10)),
        case(12, 3, 4, 2, 1, "a reset and negative decays in both chunks", resets=(5, 10), negative=(6, 8, 9)),
        case(16, 2, 4, 3, 0, "a[6] = 0: a reset in between", resets=(6,)),
        case(15, 2, 4, 3, 1, "negative decays in every chunk", negative=(4, 6, 9, 12, 13)),
        case(330, 3, 20, 16, 14, FADING, a=fading(rng, 330)),
    ]


def factors_oracle(a, B, C, T_c, j, i):
    b, e = j * T_c, (i + 1) * T_c
    return _factors(a, B, C, T_c, j, i, np.cumprod(a[b : b + T_c]), a[e:b].prod())


def _factors(a, B, C, T_c, j, i, read, between, write=None):
    """The factors from the decays that each carries."""
    reader, writer = slice(j * T_c, (j + 1) * T_c), slice(i * T_c, (i + 1) * T_c)
    write = segment_products(a[writer])[-1] if write is None else write
    return read[:, None] * C[reader], between, (write[:, None] * B[writer]).T


def _factors_with(change):
    """The wrong answer that ``change(a, b, e, T_c, factor decays)`` makes of the right decays."""

    def off_diagonal_factors(a, B, C, T_c, j, i):
        b, e = j * T_c, (i + 1) * T_c
        right = np.cumprod(a[b : b + T_c]), a[e:b].prod(), segment_products(a[e - T_c : e])[-1]
        return _factors(a, B, C, T_c, j, i, *change(a, b, e, T_c, *right))

    return off_diagonal_factors


def _not_transposed(a, B, C, T_c, j, i):
    read, between, write = factors_oracle(a, B, C, T_c, j, i)
    return read, between, write.T


def _by_ratio(a, b, e, T_c, read, between, write):
    p = np.cumprod(np.append(1.0, a))
    return p[b + 1 : b + 1 + len(read)] / p[b], p[b] / p[e], p[e] / p[e - T_c + 1 : e + 1]


OFF_DIAGONAL_FACTORS = Exercise(
    id="4.2",
    name="off_diagonal_factors",
    title="left, between, right",
    points=3,
    minutes=8,
    difficulty="core",
    returns=("left[t, n]", "between", "right[n, s]"),
    cases=_factor_cases,
    oracle=factors_oracle,
    mistakes=(
        Mistake(
            "border-decay-dropped",
            "the first token of chunk j reads the incoming state undecayed; its own decay has acted by the time it "
            "reads, so the decays of the left factor start with it",
            _factors_with(lambda a, b, e, T_c, r, m, w: (segment_products(a[b : b + T_c])[:, 0], m, w)),
        ),
        Mistake(
            "border-decay-twice",
            "the decay of chunk j's first token is in the middle factor as well as in the left factor; "
            "the middle factor stops at the token before it",
            _factors_with(lambda a, b, e, T_c, r, m, w: (r, a[e : b + 1].prod(), w)),
        ),
        Mistake(
            "middle-holds-the-writer",
            "the middle factor holds chunk i's decays as well; the right factor already has those that a write meets "
            "until its chunk ends",
            _factors_with(lambda a, b, e, T_c, r, m, w: (r, a[e - T_c : b].prod(), w)),
        ),
        Mistake(
            "middle-in-the-left",
            "the decays between the chunks are in the left factor, and the middle one is 1; the product is right, but "
            "this left factor depends on i, so it cannot serve the whole row of blocks",
            _factors_with(lambda a, b, e, T_c, r, m, w: (r * m, 1.0, w)),
        ),
        Mistake(
            "write-includes-own",
            "the right factor includes a_s; a_s acted before token s was written",
            _factors_with(lambda a, b, e, T_c, r, m, w: (r, m, w * a[e - T_c : e])),
        ),
        Mistake(
            "write-from-the-start",
            "the right factor holds the decays from the start of chunk i up to s; a write meets those after s, "
            "up to the end of its chunk",
            _factors_with(lambda a, b, e, T_c, r, m, w: (r, m, np.cumprod(a[e - T_c : e]))),
        ),
        Mistake(
            "write-not-transposed",
            "the right factor is a table of shape (T_c, N); the product of the three needs one row a state entry",
            _not_transposed,
        ),
        Mistake(
            "cumulative-ratio",
            "cumulative products were divided by each other; after a reset that is 0/0, hence NaN",
            _factors_with(_by_ratio),
        ),
    ),
    hints=(
        "Multiply the three together and compare with the block of `matrices.ssm_matrix(a, B, C)`. "
        "Which rows, which columns?",
        "Every decay from the one after s up to that of t belongs to exactly one factor: the writer's until its chunk "
        "ends, the reader's from the first token of its chunk on, the rest to the middle.",
        "The left factor scales row t of chunk j's `C` by a cumulative product of chunk j's decays. The right "
        "factor scales row s of chunk i's `B` by the last row of chunk i's segment products, and is then transposed.",
        "The middle factor is the product of `a` from the end of chunk i (that index included) to the start of chunk j "
        "(excluded); the product of an empty slice is 1.",
    ),
)


# --- 4.3 what each chunk leaves -------------------------------------------------------------------


def chunk_states_oracle(X, a, B, T_c):
    return _states(X, B, chunks(len(X), T_c), lambda j: segment_products(a[j])[-1])


def _states(X, B, slices, weights):
    return np.array([(weights(j)[:, None] * B[j]).T @ X[j] for j in slices])


def _carried(X, a, B, T_c):
    return np.array(
        [reference.ssd_recurrent(X[: j.stop], a[: j.stop], B[: j.stop], B[: j.stop])[1] for j in chunks(len(X), T_c)]
    )


CHUNK_STATES = Exercise(
    id="4.3",
    name="chunk_states",
    title="what each chunk leaves",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("Z[j, n, p]",),
    cases=lambda rng: [Case((*head[:3], T_c), note) for head, T_c, note in chunked_heads(rng)],
    oracle=chunk_states_oracle,
    mistakes=(
        Mistake(
            "writes-not-decayed",
            "every write was added in full; by the end of its chunk, write s has met the chunk's decays after s",
            lambda X, a, B, T_c: chunk_states_oracle(X, np.ones_like(a), B, T_c),
        ),
        Mistake(
            "decay-includes-own",
            "write s was multiplied by a_s as well; a_s acted before it was written",
            lambda X, a, B, T_c: _states(X, B, chunks(len(X), T_c), lambda j: np.cumprod(a[j][::-1])[::-1]),
        ),
        Mistake(
            "decay-from-the-start",
            "write s was multiplied by the decays from the start of the chunk up to a_s; what it meets are those "
            "after s, up to the chunk's end",
            lambda X, a, B, T_c: _states(X, B, chunks(len(X), T_c), lambda j: np.cumprod(a[j])),
        ),
        Mistake(
            "decayed-by-the-whole-chunk",
            "every write was multiplied by all decays of its chunk; write s meets only those after s, and the chunk's "
            "last token none",
            lambda X, a, B, T_c: _states(X, B, chunks(len(X), T_c), lambda j: np.full(len(a[j]), a[j].prod())),
        ),
        Mistake(
            "carried",
            "each state contains what earlier chunks left; every chunk starts from zero here, and the states are "
            "joined in a later step",
            _carried,
        ),
        Mistake(
            "tail-dropped",
            "the last chunk, which is shorter when T is not a multiple of T_c, leaves a state too",
            lambda X, a, B, T_c: _states(X, B, chunks(len(X) // T_c * T_c, T_c), lambda j: segment_products(a[j])[-1]),
        ),
        Mistake(
            "transposed-states",
            "the states have values in their rows; a state is (N, P): rows are keys, columns are values",
            lambda X, a, B, T_c: chunk_states_oracle(X, a, B, T_c).transpose(0, 2, 1),
        ),
        Mistake(
            "cumulative-ratio",
            "the chunk's whole product was divided by cumulative products; after a reset that is 0/0, hence NaN",
            lambda X, a, B, T_c: _states(X, B, chunks(len(X), T_c), lambda j: np.prod(a[j]) / np.cumprod(a[j])),
        ),
    ),
    hints=(
        "The last token of every chunk is written in full: no decay of its chunk comes after it. Nothing before the "
        "chunk's first token counts.",
        "One chunk alone is exercise 3.8 with an empty start: a weighted sum of outer products, one matrix product.",
        "The weights are what is left of each write at the chunk's last token: the last row of the chunk's own "
        "segment products.",
        "For every start 0, `T_c`, …: scale the rows of that slice of `B` by the last row of the segment products of "
        "that slice of `a`, transpose, multiply with that slice of `X`; collect the results in one array.",
    ),
)


# --- 4.4 pass the states on -----------------------------------------------------------------------


def _pass_cases(rng):
    def case(J, N, P, note, decays=None, zeros=()):
        d = rng.uniform(0.2, 0.9, J) if decays is None else decays
        d[list(zeros)] = 0.0
        return Case((rng.standard_normal((J, N, P)), d, rng.standard_normal((N, P))), note)

    ada = np.array([[[54.75], [6.0]], [[5.0], [10.0]], [[0.0], [40.0]]])
    return [
        Case((np.array([[[16.0]], [[2.0]]]), np.array([0.5, 0.25]), np.array([[8.0]])), "by hand: N = P = 1"),
        Case((ada, np.array([0.125, 0.25, 0.5]), np.zeros((2, 1))), "the page's three chunks, from an empty state"),
        case(1, 2, 3, "one chunk"),
        case(3, 1, 2, "N = 1"),
        case(5, 3, 2, "decays[2] = 0: a reset inside chunk 2", zeros=(2,)),
        case(4, 2, 3, "a reset in the first and in the last chunk", zeros=(0, 3)),
        case(5, 2, 3, "two decays are negative", decays=np.array([0.9, -0.8, 0.7, -0.6, 0.5])),
        case(6, 2, 3, "negative decays, and a reset between them", decays=np.array([0.9, -0.8, 0.7, 0.0, -0.6, 0.5])),
        case(4, 3, 3, "every decay is 1", decays=np.ones(4)),
        case(200, 3, 2, "200 chunks that keep nearly all", decays=keeping(rng, 200)),
        case(300, 2, 3, "decays whose product underflows to 0", decays=rng.uniform(0.001, 0.1, 300)),
    ]


def pass_oracle(states, decays, S0):
    return _passed(lambda S, j: decays[j] * S + states[j], decays, S0)


def _passed(step, decays, S0):
    borders = [S0]
    for j in range(len(decays)):
        borders.append(step(borders[j], j))
    return np.array(borders)


def _pass_by_ratio(states, decays, S0):
    p = np.cumprod(decays)[:, None, None]
    return np.concatenate([S0[None], p * (S0 + np.cumsum(states / p, axis=0))])


PASS_STATES = Exercise(
    id="4.4",
    name="pass_states",
    title="the state at every border",
    points=2,
    minutes=4,
    difficulty="core",
    returns=("S[j, n, p]",),
    cases=_pass_cases,
    oracle=pass_oracle,
    mistakes=(
        Mistake(
            "decay-after-the-write",
            "the chunk's own state was decayed again; it is what is left at the chunk's end, and only what came in "
            "still has to meet the chunk's decays",
            lambda Z, d, S0: _passed(lambda S, j: d[j] * (S + Z[j]), d, S0),
        ),
        Mistake(
            "decay-on-the-chunk-state",
            "the chunk's decays multiply its own state and what came in is kept whole; it is the other way round",
            lambda Z, d, S0: _passed(lambda S, j: S + d[j] * Z[j], d, S0),
        ),
        Mistake(
            "decay-of-another-chunk",
            "what comes into chunk j was multiplied by the decays of the chunk before; it meets those of chunk j",
            lambda Z, d, S0: pass_oracle(Z, np.append(1.0, d[:-1]), S0),
        ),
        Mistake(
            "no-decay",
            "the chunk states were added up and nothing faded between borders",
            lambda Z, d, S0: pass_oracle(Z, np.ones_like(d), S0),
        ),
        Mistake(
            "start-ignored",
            "S0 was not used; it is the state at the first border",
            lambda Z, d, S0: pass_oracle(Z, d, np.zeros_like(S0)),
        ),
        Mistake(
            "last-missing",
            "the state behind the last chunk is missing: J chunks have J + 1 borders",
            lambda Z, d, S0: pass_oracle(Z, d, S0)[:-1],
        ),
        Mistake(
            "first-missing",
            "the state before the first chunk, S0 itself, is missing: J chunks have J + 1 borders",
            lambda Z, d, S0: pass_oracle(Z, d, S0)[1:],
        ),
        Mistake(
            "cumulative-ratio",
            "cumulative products were divided by each other; after a reset that is 0/0, hence NaN",
            _pass_by_ratio,
        ),
    ),
    hints=(
        "There is one border more than there are chunks. The first border's state is `S0`, unchanged.",
        "Across one chunk two things happen to a state: it fades by all decays of that chunk, and what the chunk "
        "leaves is added.",
        "It is a recurrence over chunks with one number of decay a step, like that of an SSD head over tokens.",
        "Start a list with `S0`; for every chunk append its decay times the last entry of the list, plus its state.",
    ),
)

EXERCISES = (OWN_CHUNK, OFF_DIAGONAL_FACTORS, CHUNK_STATES, PASS_STATES)
