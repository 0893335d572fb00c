"""Chapter 05, third part: the whole forward in one kernel, and one token of it (5.7, 5.9).

Each exercise has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import GAPS, RTOL, double, slipped, tl, tokens, triton
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import InOut, Input, Launch, Output

# --- 5.7 the whole forward ------------------------------------------------------------------------


def _walk_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None, low=0.8):
        return Case((*tokens(rng, T, (H, K), (H, K), (H, V), g=g, low=low), C, BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(2, 1, -1) for x in ([1, 2], [3, 1], [[1, 0], [2, 1]]))
    halved = np.log(np.array([[0.5], [0.5]])).astype(np.float32)
    return [
        Case((*by_hand, halved, 16, 16, 16), "two tokens by hand, K = 1, V = 2, exp(g) = 0.5"),
        case(1, 1, 2, 3, "T = 1"),
        case(16, 1, 16, 16, "T = C, K = V = 16"),
        case(17, 2, 5, 3, "T = C + 1, two heads"),
        case(53, 1, 6, 9, "T = 3 C + 5"),
        case(31, 2, 4, 37, "T = 2 C - 1, V = 37 in tiles of 16, two heads"),
        case(18, 2, 37, 20, "K = 37 in a tile of 64, V = 20 in tiles of 16, two heads", BK=64),
        case(18, 3, 4, 60, "K = 4 in a tile of 16, V = 60 in tiles of 32, three heads", BV=32),
        case(40, 1, 4, 3, "C = 32, no decay at all", C=32, g=0.0),
        case(24, 1, 4, 3, "one decay of -20 among mild ones", g={t: -20.0 if t == 18 else -0.1 for t in range(24)}),
        case(20, 1, 3, 4, "every g is -20: exp(G_t - G_s) overflows above the diagonal", g=-20.0),
    ]


def walk_oracle(q, k, v, g, C, BK, BV):
    q, k, v, g = double(q, k, v, g)
    S, o = np.zeros((*q.shape[1:], v.shape[2])), []
    for t in range(len(q)):
        S = np.exp(g[t])[:, None, None] * S + k[t][:, :, None] * v[t][:, None, :]
        o.append(np.einsum("hkv,hk->hv", S, q[t]))
    return np.stack(o), S


def _walk_launch(q, k, v, g, C, BK, BV):
    (T, H, K), V = q.shape, v.shape[2]
    q, k, v = Input(q, GAPS["q"]), Input(k, GAPS["k"]), Input(v, GAPS["v"])
    pointers = {"q": q, "k": k, "v": v, "g": Input(g), "o": Output((T, H, V)), "final": Output((H, K, V))}
    sizes = {"T": T, "H": H, "q_t": q.stride, "k_t": k.stride, "v_t": v.stride}
    return Launch((triton.cdiv(V, BV), H), {**pointers, **sizes, "K": K, "V": V, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _ssd_walk(
    q, k, v, g, o, final, T, H, q_t, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_v, i_h = tl.program_id(1), tl.program_id(0)
    i, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    if SLIP == "first-tile-only":
        o_v = tl.arange(0, BV)
    seen = i[:, None] >= i[None, :]
    b_S = tl.zeros((BK, BV), tl.float32)
    for c in range(0, tl.cdiv(T, C)):
        t = c * C + i
        live = t < T
        m_k, m_v = live[:, None] & (o_k < K)[None, :], live[:, None] & (o_v < V)[None, :]
        b_q = tl.load(q + t[:, None] * q_t + i_h * K + o_k[None, :], mask=m_k, other=0.0)
        b_k = tl.load(k + t[:, None] * k_t + i_h * K + o_k[None, :], mask=m_k, other=0.0)
        b_v = tl.load(v + t[:, None] * v_t + i_h * V + o_v[None, :], mask=m_v, other=0.0)
        b_g = tl.load(g + t * H + i_h, mask=live, other=0.0)
        b_G = tl.cumsum(b_g, 0)
        G_end = tl.sum(b_g, 0)
        if SLIP == "not-summed":
            b_G = b_g
        b_w = tl.exp(G_end - b_G)
        if SLIP == "writes-undecayed":
            b_w = tl.exp(b_G * 0.0)
        b_A = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        if SLIP == "queries-scaled":
            b_A *= tl.exp(b_G)[:, None]
        elif SLIP == "keys-weighted":
            b_A *= b_w[None, :]
        b_A *= tl.exp(tl.where(seen, b_G[:, None] - b_G[None, :], float("-inf")))
        b_o = tl.dot(b_A, b_v, input_precision="ieee")
        b_new = tl.dot(tl.trans(b_k * b_w[:, None]), b_v, input_precision="ieee")
        if SLIP == "read-after-update":
            b_S = b_S * tl.exp(G_end) + b_new
        from_start = tl.exp(b_G)[:, None]
        if SLIP == "read-undecayed":
            from_start = tl.exp(b_G * 0.0)[:, None]
        if SLIP == "diagonal-lost":
            b_o = tl.zeros((C, BV), tl.float32)
        if SLIP != "state-not-read":
            b_o += tl.dot(b_q, b_S, input_precision="ieee") * from_start
        if SLIP == "state-undecayed":
            b_S += b_new
        elif SLIP != "read-after-update":
            b_S = b_S * tl.exp(G_end) + b_new
        tl.store(o + (t[:, None] * H + i_h) * V + o_v[None, :], b_o, mask=m_v)
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "final-transposed":
        tile = o_v[None, :] * K + o_k[:, None]
    tl.store(final + i_h * K * V + tile, b_S, mask=(o_k < K)[:, None] & (o_v < V)[None, :])


WALK = Exercise(
    id="5.7",
    name="ssd_walk",
    title="the whole forward in one walk",
    points=5,
    minutes=35,
    difficulty="hard",
    returns=("o[t, h, v]", "final[h, k, v]"),
    cases=_walk_cases,
    oracle=walk_oracle,
    launch=_walk_launch,
    rtol=RTOL,
    mistakes=slipped(
        _ssd_walk,
        (
            "read-after-update",
            "a chunk's tokens read the state that already holds the chunk's own writes; they see these through the "
            "diagonal block, and the state as it entered",
        ),
        ("state-undecayed", "across a chunk what came in decays by exp(G_end); here nothing was lost"),
        ("read-undecayed", "the entering state is read undecayed; by token t it has decayed by exp(G_t)"),
        ("writes-undecayed", "the writes enter the state as they are; until the chunk's end each decays"),
        (
            "state-not-read",
            "the outputs are those of one part alone; they add up the diagonal block and what the state brings",
            "diagonal-lost",
        ),
        (
            "queries-scaled",
            "the scores of the diagonal block already hold a decay meant for the state: they are taken from the "
            "queries and keys as they were loaded, times exp(G_t - G_s)",
            "keys-weighted",
        ),
        ("not-summed", "g itself was taken for G; inside each chunk G adds up the decays so far"),
        ("final-transposed", "the final state is stored with its values as rows: entry (k, v) stands at k * V + v"),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the tiles of V, and axis 1 the heads"),
        ("first-tile-only", "every program works on the first BV columns; the tile's number on axis 0 was not used"),
    ),
    hints=(
        "For T up to C the outputs are those of the diagonal block alone. From the second chunk on they also hold what "
        "the state brings, and the final state is what a longer sequence would go on with.",
        "It is the bodies of 5.1, 5.3, 5.4, 5.5 and 5.6 in one loop over the chunks, for BV columns of the values. "
        "Nothing but o and the final state is stored.",
        "Only the values, the outputs and the state have columns of the tile; queries and keys are needed whole. The "
        "sum of the loaded decays is the chunk's last G, because dead rows are loaded as zeros.",
        "Per chunk, in this order: the diagonal block; plus the decayed read of the carried tile; store; then the "
        "carried tile becomes its decayed self plus the weighted keys, transposed, times the values.",
    ),
)

# --- 5.9 one token --------------------------------------------------------------------------------


def _decode_cases(rng):
    def case(B, H, K, V, note, *, BK=16, BV=16, g=None):
        q, k, v, g = tokens(rng, B, (H, K), (H, K), (H, V), g=g, low=0.2)
        return Case((q, k, v, g, rng.standard_normal((B, H, K, V)).astype(np.float32), BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(1, 1, -1) for x in ([1, 10], [3, 1], [1, 0, 2]))
    S = np.array([[4, 8, 0], [2, 2, 2]], np.float32).reshape(1, 1, 2, 3)
    return [
        Case((*by_hand, np.log(np.array([[0.5]], np.float32)), S, 16, 16), "one row by hand, exp(g) = 0.5"),
        case(1, 1, 1, 1, "all sizes 1"),
        case(3, 1, 4, 6, "three rows"),
        case(1, 3, 6, 4, "three heads"),
        case(2, 3, 5, 3, "two rows, three heads"),
        case(2, 3, 4, 37, "V = 37 in tiles of 16, two rows, three heads"),
        case(2, 2, 37, 20, "K = 37 in a tile of 64, V = 20 in tiles of 16", BK=64),
        case(3, 2, 4, 60, "K = 4 in a tile of 16, V = 60 in tiles of 32, three rows, two heads", BV=32),
        case(2, 2, 3, 5, "no decay at all", g=0.0),
        case(2, 2, 5, 4, "every g is -20", g=-20.0),
    ]


def decode_oracle(q, k, v, g, S, BK, BV):
    q, k, v, g, S = double(q, k, v, g, S)
    S = np.exp(g)[..., None, None] * S + k[..., :, None] * v[..., None, :]
    return S, np.einsum("bhkv,bhk->bhv", S, q)


def _decode_launch(q, k, v, g, S, BK, BV):
    B, H, K, V = S.shape
    pointers = {"q": Input(q), "k": Input(k), "v": Input(v), "g": Input(g), "S": InOut(S), "o": Output(v.shape)}
    return Launch((triton.cdiv(V, BV), H, B), {**pointers, "H": H, "K": K, "V": V, "BK": BK, "BV": BV})


@triton.jit
def _decode_step(
    q, k, v, g, S, o, H,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, i_h, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if SLIP == "first-tile-only":
        i_v = i_v * 0
    n = i_b * H + i_h
    if SLIP == "row-lost":
        n = i_h
    elif SLIP == "axes-swapped":
        n = i_h * H + i_b
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    m_S = m_k[:, None] & m_v[None, :]
    p_S = S + n * K * V + o_k[:, None] * V + o_v[None, :]
    if SLIP == "transposed":
        p_S = S + n * K * V + o_v[None, :] * K + o_k[:, None]
    b_S = tl.load(p_S, mask=m_S, other=0.0)
    b_q = tl.load(q + n * K + o_k, mask=m_k, other=0.0)
    b_k = tl.load(k + n * K + o_k, mask=m_k, other=0.0)
    b_v = tl.load(v + n * V + o_v, mask=m_v, other=0.0)
    decay = tl.exp(tl.load(g + n))
    if SLIP == "no-decay":
        decay = decay * 0.0 + 1.0
    elif SLIP == "first-gate":
        decay = tl.exp(tl.load(g + i_b * H))
    elif SLIP == "gate-of-row":
        decay = tl.exp(tl.load(g + i_b))
    elif SLIP == "gate-of-head":
        decay = tl.exp(tl.load(g + i_h))
    b_new = b_S * decay + b_k[:, None] * b_v[None, :]
    if SLIP == "write-decayed":
        b_new = (b_S + b_k[:, None] * b_v[None, :]) * decay
    b_read = b_new
    if SLIP == "read-before-write":
        b_read = b_S * decay
    elif SLIP == "read-before-decay":
        b_read = b_S
    b_o = tl.sum(b_read * b_q[:, None], 0)
    if SLIP == "summed-over-values":
        b_o = tl.sum(b_read * b_q[:, None], 1)
    tl.store(o + n * V + o_v, b_o, mask=m_v)
    if SLIP != "state-not-stored":
        tl.store(p_S, b_new, mask=m_S)


DECODE = Exercise(
    id="5.9",
    name="decode_step",
    title="one token in place",
    points=2,
    minutes=15,
    difficulty="core",
    returns=("S[b, h, k, v]", "o[b, h, v]"),
    cases=_decode_cases,
    oracle=decode_oracle,
    launch=_decode_launch,
    rtol=RTOL,
    mistakes=slipped(
        _decode_step,
        (
            "read-before-write",
            "the output was read from the old state; o is read from the new one, decayed and with its own write",
            "read-before-decay",
        ),
        ("write-decayed", "the new write was decayed too; only what was there before decays"),
        ("no-decay", "the state was added to without decaying; it is multiplied by exp(g) first"),
        ("state-not-stored", "the output is right, but the state in memory is the old one; the next token needs it"),
        (
            "transposed",
            "the state was taken for (V, K); rows are keys: entry (k, v) stands at k * V + v",
        ),
        ("row-lost", "every row works on the state of row 0; row b and head h are number b * H + h"),
        (
            "first-gate",
            "the gates were not found: head h of row b has its own, at b * H + h",
            "gate-of-row",
            "gate-of-head",
        ),
        ("axes-swapped", "axis 1 of the grid was taken for the row; it counts the heads, and axis 2 the rows"),
        ("summed-over-values", "the read was summed over the values; it is summed over the keys, axis 0 of the tile"),
        ("first-tile-only", "every program works on the first BV columns; the tile's number on axis 0 was not used"),
    ),
    hints=(
        "With a state of zeros, S becomes k vᵀ and o becomes (q·k) v. The state in memory must be the new one "
        "afterwards.",
        "Everything of row b and head h stands at number b * H + h: of K, of V, of K * V entries, or of one. The tile "
        "of the state is BK by BV.",
        "The write is a column times a row; the read is the state times a column, summed over the keys. No product of "
        "tiles is needed.",
        "Load the tile, multiply it by the exponential of the gate, add the column of keys times the row of values; "
        "sum it, times the column of queries, over axis 0; store both, with the masks of the loads.",
    ),
)  # fmt: skip
