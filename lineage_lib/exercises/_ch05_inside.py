"""Chapter 05, first part: what happens inside a chunk (5.1, 5.3).

Each exercise has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import (
    GAPS,
    RTOL,
    cumulative,
    decay_mask,
    double,
    slipped,
    spans,
    tl,
    tokens,
    triton,
)
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import Input, Launch, Output

# --- 5.1 cumulative decays ------------------------------------------------------------------------


def _cumsum_cases(rng):
    def case(T, H, C, note, g=None):
        return Case((tokens(rng, T, (H, 1), g=g)[-1], C), note)

    by_hand = np.array([[-1.0], [-2.0], [-3.0]], np.float32)
    return [
        Case((by_hand, 2), "three tokens in two chunks: G is -1, -3 and -3"),
        case(1, 1, 16, "T = 1"),
        case(15, 2, 16, "T = C - 1, two heads"),
        case(16, 3, 16, "T = C, three heads"),
        case(17, 2, 16, "T = C + 1: a last chunk of one token"),
        case(53, 1, 16, "T = 3 C + 5"),
        case(70, 1, 64, "one head, two chunks of up to 64"),
        case(10, 2, 8, "every g is -20", g=-20.0),
        case(20, 2, 8, "one decay of -20 among zeros", g={t: -20.0 * (t == 9) for t in range(20)}),
    ]


def cumsum_oracle(g, C):
    return cumulative(g, C)


def _cumsum_launch(g, C):
    T, H = g.shape
    return Launch((triton.cdiv(T, C), H), {"g": Input(g), "G": Output((T, H)), "T": T, "H": H, "C": C})


@triton.jit
def _chunk_cumsum(g, G, T, H, C: tl.constexpr, SLIP: tl.constexpr):
    i_c, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "ids-swapped":
        i_c, i_h = tl.program_id(1), tl.program_id(0)
    t = i_c * C + tl.arange(0, C)
    live = t < T
    place = t * H + i_h
    if SLIP == "head-lost":
        place = t * H
    elif SLIP == "heads-first":
        place = i_h * T + t
    b_g = tl.load(g + place, mask=live, other=0.0)
    b_G = tl.cumsum(b_g, 0)
    if SLIP == "exclusive":
        b_G -= b_g
    elif SLIP == "from-the-end":
        b_G = tl.cumsum(b_g, 0, reverse=True)
    elif SLIP == "not-summed":
        b_G = b_g
    elif SLIP == "not-restarted":
        for c in range(0, i_c):
            b_G += tl.sum(tl.load(g + (c * C + tl.arange(0, C)) * H + i_h), 0)
    elif SLIP == "reads-a-neighbour":
        b_G += tl.load(G + (i_c * C - 1) * H + i_h, mask=i_c > 0, other=0.0)
    if SLIP == "no-tail-mask":
        tl.store(G + place, b_G)
    else:
        tl.store(G + place, b_G, mask=live)


CUMSUM = Exercise(
    id="5.1",
    name="chunk_cumsum",
    title="cumulative decays of a chunk",
    points=1,
    minutes=12,
    difficulty="warm-up",
    returns=("G[t, h]",),
    cases=_cumsum_cases,
    oracle=cumsum_oracle,
    launch=_cumsum_launch,
    rtol=RTOL,
    mistakes=slipped(
        _chunk_cumsum,
        ("exclusive", "each sum stops before its own token; G[t] includes g[t]"),
        ("from-the-end", "the sums run from the chunk's end back to the token; they start at the chunk's first token"),
        ("not-summed", "this is g itself; a token's G adds up the decays of its chunk so far"),
        (
            "not-restarted",
            "the sums go on from one chunk into the next; each chunk starts anew, which is what lets its program "
            "know nothing of the others",
        ),
        (
            "reads-a-neighbour",
            "the program reads in G what another program writes; no order of programs is promised, and each chunk "
            "starts anew",
        ),
        ("no-tail-mask", "the last chunk stores all its C rows; only those with t < T exist"),
        ("head-lost", "every program works on head 0; head h of token t stands at t * H + h"),
        (
            "heads-first",
            "the tensor was taken for (H, T); it is (T, H): from a token to the next there are H entries, from a "
            "head to the next there is one",
        ),
        ("ids-swapped", "axis 0 of the grid was taken for the head; it counts the chunks, and axis 1 the heads"),
    ),
    hints=(
        "One program sees one chunk of one head: at most C numbers. G restarts in every chunk, and rows behind the "
        "last token do not exist.",
        "First the token numbers of this program, a block of C of them; from these the mask and the places in memory; "
        "then load, add up, store.",
        "Token numbers: the program's number on axis 0 times C, plus `tl.arange`. Token t of head h stands t * H + h "
        "entries behind the start. The mask compares token numbers with T, and both the load and the store need it.",
        "`tl.cumsum` over axis 0 of the loaded block is what is stored, at the same places in the other tensor.",
    ),
)

# --- 5.3 the diagonal block -----------------------------------------------------------------------


def _diagonal_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None):
        q, k, v, g = tokens(rng, T, (H, K), (H, K), (H, V), g=g)
        return Case((q, k, v, cumulative(g, C).astype(np.float32), C, BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(2, 1, -1) for x in ([1, 2], [3, 1], [[1, 0], [2, 1]]))
    halved = np.log(np.array([[0.5], [0.25]])).astype(np.float32)
    return [
        Case((*by_hand, halved, 16, 16, 16), "two tokens by hand, K = 1, V = 2, exp(G) = 0.5, 0.25"),
        case(1, 1, 2, 3, "T = 1"),
        case(15, 1, 16, 16, "T = C - 1, K = V = 16", g=0.0),
        case(16, 2, 3, 5, "T = C, two heads"),
        case(17, 2, 5, 3, "T = C + 1: a last chunk of one token"),
        case(53, 1, 6, 9, "T = 3 C + 5"),
        case(40, 1, 4, 2, "C = 32", C=32),
        case(12, 3, 37, 20, "K = 37 in a tile of 64, V = 20 in one of 32, three heads", BK=64, BV=32),
        case(18, 2, 4, 37, "K = 4 in a tile of 16, V = 37 in one of 64, two heads", BV=64),
        case(14, 1, 4, 3, "one decay of -20 among mild ones", g={t: -20.0 if t == 6 else -0.1 for t in range(14)}),
        case(11, 1, 3, 4, "every g is -20: exp(G_t - G_s) overflows above the diagonal", g=-20.0),
    ]


def diagonal_oracle(q, k, v, G, C, BK, BV):
    q, k, v, G = double(q, k, v, G)
    parts = (
        np.einsum("hts,thk,shk,shv->thv", decay_mask(G[j]), q[j], k[j], v[j], optimize=True) for j in spans(len(q), C)
    )
    return np.concatenate([*parts])


def _diagonal_launch(q, k, v, G, C, BK, BV):
    (T, H, K), V = q.shape, v.shape[2]
    q, k, v = Input(q, GAPS["q"]), Input(k, GAPS["k"]), Input(v, GAPS["v"])
    pointers = {"q": q, "k": k, "v": v, "G": Input(G), "o": Output((T, H, V))}
    sizes = {"T": T, "H": H, "q_t": q.stride, "k_t": k.stride, "v_t": v.stride}
    return Launch((triton.cdiv(T, C), H), {**pointers, **sizes, "K": K, "V": V, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _diagonal_block(
    q, k, v, G, o, T, H, q_t, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_c, i_h = tl.program_id(1), tl.program_id(0)
    i, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    t = i_c * C + i
    live = t < T
    m_k, m_v = live[:, None] & (o_k < K)[None, :], live[:, None] & (o_v < V)[None, :]
    if SLIP == "stride-assumed":
        q_t, k_t, v_t = H * K, H * K, H * V
    elif SLIP == "stride-of-q":
        k_t = q_t
    h_k, h_v = i_h * K, i_h * V
    if SLIP == "head-lost":
        h_k, h_v = 0, 0
    elif SLIP == "offset-of-keys":
        h_v = h_k
    b_q = tl.load(q + t[:, None] * q_t + h_k + o_k[None, :], mask=m_k, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + h_k + o_k[None, :], mask=m_k, other=0.0)
    b_v = tl.load(v + t[:, None] * v_t + h_v + o_v[None, :], mask=m_v, other=0.0)
    b_G = tl.load(G + t * H + i_h, mask=live, other=0.0)
    if SLIP == "transposed" or SLIP == "roles-swapped":
        b_A = tl.dot(b_k, tl.trans(b_q), input_precision="ieee")
    else:
        b_A = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
    difference = b_G[:, None] - b_G[None, :]
    seen = i[:, None] >= i[None, :]
    if SLIP == "own-token-lost":
        seen = i[:, None] > i[None, :]
    elif SLIP == "transposed":
        seen = i[:, None] <= i[None, :]
        difference = -difference
    elif SLIP == "decay-reversed":
        difference = -difference
    elif SLIP == "mask-reversed":
        seen = i[:, None] <= i[None, :]
    if SLIP == "no-decay":
        b_A = tl.where(seen, b_A, 0.0)
    elif SLIP == "decay-from-start":
        b_A = tl.where(seen, b_A * tl.exp(b_G)[:, None], 0.0)
    elif SLIP == "future-seen":
        b_A *= tl.exp(tl.minimum(difference, 0.0))
    elif SLIP == "exp-times-mask":
        b_A *= tl.exp(difference) * seen
    else:
        b_A *= tl.exp(tl.where(seen, difference, float("-inf")))
    b_o = tl.dot(b_A, b_v, input_precision="ieee")
    p_o = o + (t[:, None] * H + i_h) * V + o_v[None, :]
    tl.store(p_o, b_o, mask=m_v)


DIAGONAL = Exercise(
    id="5.3",
    name="diagonal_block",
    title="the chunk's own tokens",
    points=3,
    minutes=25,
    difficulty="core",
    returns=("o[t, h, v]",),
    cases=_diagonal_cases,
    oracle=diagonal_oracle,
    launch=_diagonal_launch,
    rtol=RTOL,
    mistakes=slipped(
        _diagonal_block,
        ("future-seen", "tokens read what later tokens write; only s <= t counts", "mask-reversed"),
        ("own-token-lost", "a token does not read its own write; s = t is part of the sum"),
        (
            "transposed",
            "the matrix is transposed: rows are the tokens that read, with their queries, and columns those that write",
            "roles-swapped",
        ),
        (
            "exp-times-mask",
            "the exponential was taken of all differences and then multiplied by the mask; above the diagonal it is "
            "infinite, and infinity times 0 is NaN: mask first, then exponentiate",
        ),
        ("no-decay", "the writes are not decayed on their way; what s wrote reaches t times exp(G_t - G_s)"),
        (
            "decay-from-start",
            "each write is decayed as if it had been made before the chunk's first token: exp(G_t) in place of "
            "exp(G_t - G_s)",
        ),
        (
            "decay-reversed",
            "the exponent has the wrong sign, so that what was written grows; what s wrote reaches t times "
            "exp(G_t - G_s), which is at most 1",
        ),
        (
            "stride-assumed",
            "from one token to the next there need not be H * K entries, nor as many in k as in q: each has its own "
            "stride, q_t, k_t and v_t",
            "stride-of-q",
        ),
        (
            "head-lost",
            "the heads were not found: head h begins h * K entries behind head 0, of v it is h * V",
            "offset-of-keys",
        ),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the chunks, and axis 1 the heads"),
    ),
    hints=(
        "With one token, o is (q·k) v. The first token of every chunk reads itself alone, and what it wrote reaches "
        "the following ones weaker and weaker.",
        "Three tiles are loaded, C by BK, C by BK and C by BV, and the C decays. A product of two tiles gives all q·k "
        "at once, C by C; decay and mask act on that; a second product gives the outputs.",
        "Tiles: a column of token numbers times the token's stride, plus the head's offset, plus a row of channel "
        "numbers; one mask of live tokens and channels for each width. For the decays, subtract a row of G from a "
        "column of G, and choose minus infinity where the row's token comes later.",
        "The exponential of the masked differences multiplies the product of the queries with the transposed keys; "
        "that times the values is stored. Products need `input_precision`.",
    ),
)
