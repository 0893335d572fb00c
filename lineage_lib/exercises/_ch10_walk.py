"""Chapter 10, second part: one chunk of the walk, and the outputs of all (10.3, 10.4).

Each exercise has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import RTOL, double, slipped, spans, tl, triton
from lineage_lib.exercises._ch10_data import GAPS, alike, coefficients, for_values, gates, inverse_of
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import InOut, Input, Launch, Output


def _normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def _column(*numbers):
    return np.array(numbers, np.float32).reshape(len(numbers), 1)


# --- 10.3 one chunk of the walk -------------------------------------------------------------------


def _step_cases(rng):
    def case(T, HV, GROUP, K, V, note, *, C=16, BK=16, BV=16, cosine=0.0, **given):
        k, (G, beta) = alike(rng, T, HV // GROUP, K, cosine), gates(rng, T, HV, C, **given)
        X = inverse_of(coefficients(k, G, beta, C), C).astype(np.float32)
        return Case((k, _normal(rng, T, HV, V), X, G, beta, _normal(rng, HV, K, V), GROUP, C, BK, BV), note)

    k, v = _column(1, 1).reshape(2, 1, 1), _column(8, 4).reshape(2, 1, 1)
    G, beta, S = np.log(_column(0.5, 0.25)).astype(np.float32), _column(1, 0.5), _column(4).reshape(1, 1, 1)
    X = inverse_of(coefficients(k, G, beta, 16), 16).astype(np.float32)
    return [
        Case((k, v, X, G, beta, S, 1, 16, 16, 16), "two tokens by hand, K = V = 1, every decay 0.5, beta = 1, 0.5"),
        case(1, 1, 1, 2, 3, "T = 1"),
        case(16, 1, 1, 16, 16, "T = C = 16, K = V = 16"),
        case(16, 1, 1, 3, 4, "one decay of -20 among mild ones", g={t: -20.0 if t == 11 else -0.1 for t in range(16)}),
        case(64, 1, 1, 3, 4, "every g is -20: exp(-G) overflows", C=64, g=-20.0),
        case(12, 1, 1, 3, 4, "every g is -20, and the chunk is not full", g=-20.0),
        case(15, 1, 1, 4, 3, "the same key in every token, beta = 1, no decay", cosine=1.0, beta=1.0, g=0.0),
        case(30, 1, 1, 4, 3, "nearly equal keys, beta = 2", C=32, cosine=0.98, beta=2.0, g=-0.05),
        case(13, 2, 1, 5, 3, "T < C, two heads"),
        case(9, 6, 3, 4, 5, "six heads of values share two of keys, T < C"),
        case(21, 1, 1, 4, 37, "C = 32, V = 37 in tiles of 16", C=32),
        case(16, 2, 1, 37, 20, "K = 37 in a tile of 64, V = 20 in tiles of 16", BK=64),
        case(40, 1, 1, 4, 60, "C = 64, V = 60 in tiles of 32", C=64, BV=32),
    ]


def step_oracle(k, v, inverse, G, beta, S, GROUP, C, BK, BV):
    """Token by token, by the rule that the chunk's three equations are made from."""
    k, v, G, beta, S = double(for_values(k, v.shape[1]), v, G, beta, S)
    corrected, before = np.zeros(v.shape), np.zeros(G[0].shape)
    for t in range(len(k)):
        S = np.exp(G[t] - before)[:, None, None] * S
        corrected[t] = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", S, k[t]))
        S = S + k[t][:, :, None] * corrected[t][:, None, :]
        before = G[t]
    return S, corrected


def _step_launch(k, v, inverse, G, beta, S, GROUP, C, BK, BV):
    (T, HV, V), K = v.shape, k.shape[2]
    k, v = Input(k, GAPS["k"]), Input(v, GAPS["v"])
    inputs = {"k": k, "v": v, "inverse": Input(inverse), "G": Input(G), "beta": Input(beta)}
    sizes = {"T": T, "HV": HV, "GROUP": GROUP, "k_t": k.stride, "v_t": v.stride, "K": K, "V": V}
    outputs = {"S": InOut(S), "corrected": Output((T, HV, V))}
    return Launch((triton.cdiv(V, BV), HV), {**inputs, **outputs, **sizes, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _chunk_step(
    k, v, inverse, G, beta, S, corrected, T, HV, GROUP, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_v, h = tl.program_id(1), tl.program_id(0)
    elif SLIP == "first-tile-only":
        i_v = i_v * 0
    h_k = h // GROUP
    if SLIP == "heads-in-turn":
        h_k = h % (HV // GROUP)
    elif SLIP == "place-in-the-group":
        h_k = h % GROUP
    elif SLIP == "groups-for-heads":
        h_k = h // (HV // GROUP)
    elif SLIP == "own-key-head":
        h_k = h
    t, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    live, in_K, in_V = t < T, o_k < K, o_v < V
    m_v, m_S = live[:, None] & in_V[None, :], in_K[:, None] & in_V[None, :]
    b_k = tl.load(k + t[:, None] * k_t + h_k * K + o_k[None, :], mask=live[:, None] & in_K[None, :], other=0.0)
    b_v = tl.load(v + t[:, None] * v_t + h * V + o_v[None, :], mask=m_v, other=0.0)
    row = t * HV + h
    b_G = tl.load(G + row, mask=live, other=0.0)
    b_beta = tl.load(beta + row, mask=live, other=0.0)
    G_end = tl.load(G + (T - 1) * HV + h)
    if SLIP == "dead-row-end":
        G_end = tl.sum(tl.where(t == C - 1, b_G, 0.0), 0)
    b_X = tl.load(inverse + row[:, None] * C + t[None, :], mask=live[:, None], other=0.0)
    if SLIP == "inverse-transposed":
        b_X = tl.trans(b_X)
    elif SLIP == "inverse-left-out":
        b_X = tl.where(t[:, None] == t[None, :], 1.0, 0.0)
    elif SLIP == "inverse-heads-first":
        b_X = tl.load(inverse + (h * T + t[:, None]) * C + t[None, :], mask=live[:, None], other=0.0)
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "state-transposed":
        tile = o_v[None, :] * K + o_k[:, None]
    b_S = tl.load(S + h * K * V + tile, mask=m_S, other=0.0)
    if SLIP == "read-twice-decayed":
        b_S *= tl.exp(G_end)
    b_read = tl.dot(b_k, b_S, input_precision="ieee")
    if SLIP == "read-to-end":
        b_read *= tl.exp(G_end)
    elif SLIP == "own-decay-lost":
        b_read *= tl.exp(tl.load(G + row - HV, mask=live & (t > 0), other=0.0))[:, None]
    elif SLIP != "read-undecayed":
        b_read *= tl.exp(b_G)[:, None]
    if SLIP == "beta-on-values":
        b_u = b_v * b_beta[:, None] - b_read
    elif SLIP == "beta-on-read":
        b_u = b_v - b_read * b_beta[:, None]
    elif SLIP == "beta-left-out":
        b_u = b_v - b_read
    elif SLIP == "nothing-read":
        b_u = b_v * b_beta[:, None]
    else:
        b_u = (b_v - b_read) * b_beta[:, None]
    b_new = tl.dot(b_X, b_u, input_precision="ieee")
    if SLIP == "beta-after":
        b_new = tl.dot(b_X, b_v - b_read, input_precision="ieee") * b_beta[:, None]
    b_stored = b_new
    if SLIP == "u-stored":
        b_stored = b_u
    tl.store(corrected + row[:, None] * V + o_v[None, :], b_stored, mask=m_v)
    if SLIP == "writes-split":
        b_k *= (tl.exp(G_end) * tl.exp(-b_G))[:, None]
    elif SLIP == "writes-from-start":
        b_k *= tl.exp(b_G)[:, None]
    elif SLIP != "writes-undecayed":
        b_k *= tl.exp(G_end - b_G)[:, None]
    if not (SLIP == "state-undecayed" or SLIP == "state-decayed-last" or SLIP == "read-twice-decayed"):
        b_S *= tl.exp(G_end)
    b_write = b_new
    if SLIP == "values-written":
        b_write = b_v
    elif SLIP == "u-written":
        b_write = b_u
    b_S += tl.dot(tl.trans(b_k), b_write, input_precision="ieee")
    if SLIP == "state-replaced":
        b_S = tl.dot(tl.trans(b_k), b_write, input_precision="ieee")
    elif SLIP == "state-decayed-last":
        b_S *= tl.exp(G_end)
    tl.store(S + h * K * V + tile, b_S, mask=m_S)


STEP = Exercise(
    id="10.3",
    name="chunk_step",
    title="one chunk of the walk",
    points=5,
    minutes=35,
    difficulty="hard",
    returns=("S[h, k, v]", "corrected[t, h, v]"),
    cases=_step_cases,
    oracle=step_oracle,
    launch=_step_launch,
    rtol=RTOL,
    mistakes=slipped(
        _chunk_step,
        (
            "read-undecayed",
            "what a token reads of the entering state has another decay than exp(G_t), that of the tokens up to its "
            "own",
            "read-to-end",
            "read-twice-decayed",
            "own-decay-lost",
            "nothing-read",
        ),
        (
            "beta-on-values",
            "beta is at the wrong place; u_t is beta_t times the whole difference of the value and what was read, and "
            "X acts on what beta has multiplied already",
            "beta-on-read",
            "beta-left-out",
            "beta-after",
        ),
        (
            "inverse-transposed",
            "v' is not X u: row t of X, with a 1 in column t, stands at (t * HV + h) * C, and its entries weigh the "
            "u_s of the tokens s up to t",
            "inverse-left-out",
            "inverse-heads-first",
        ),
        (
            "u-written",
            "something else than v' was written into the state or stored; the u still need X, and plain values would "
            "repeat what the state holds already",
            "values-written",
            "u-stored",
        ),
        (
            "state-undecayed",
            "the state that entered leaves as exp(G_end) times itself, with what was written added",
            "state-replaced",
            "state-decayed-last",
        ),
        (
            "writes-undecayed",
            "the write of token t enters the state with another decay than exp(G_end - G_t), from its token to the "
            "chunk's end",
            "writes-from-start",
        ),
        (
            "writes-split",
            "exp(G_end - G_t) was split into two factors; exp(-G_t) overflows where decays are strong, and infinity "
            "times 0 is NaN: take the difference first",
        ),
        (
            "dead-row-end",
            "G_end was taken from row C - 1; where the chunk is not full this row holds no token, and G_end is that "
            "of token T - 1",
        ),
        (
            "own-key-head",
            "the keys were taken from another head: GROUP heads in a row share one, so that head h has h // GROUP",
            "heads-in-turn",
            "place-in-the-group",
            "groups-for-heads",
        ),
        (
            "first-tile-only",
            "the program's place was taken for another one: axis 0 of the grid counts the tiles of V, axis 1 the "
            "heads, and entry (k, v) of a head's state stands at k * V + v",
            "axes-swapped",
            "state-transposed",
        ),
    ),
    hints=(
        "With a state of zeros and beta = 0 nothing happens at all. With a single token X is 1, and this is the delta "
        "rule's step: decay, read, correct, write.",
        "Three products: keys times the state; X times the u; the keys, transposed, times v'. The state's own term is "
        "no product, only a decay. Everything but the keys, X and the numbers of a token has columns of the tile of V.",
        "Rows of the first product take exp(G_t), rows of keys in the last one exp(G_end - G_t), and the tile of the "
        "state exp(G_end), a single number that can be loaded from token T - 1.",
        "In this order: load the state; u, a column of beta times the difference; v' and its store; the keys decayed "
        "to the end; the state decayed, plus their transpose times v'; its store, where it was loaded.",
    ),
)  # fmt: skip

# --- 10.4 the outputs -----------------------------------------------------------------------------


def _outputs_cases(rng):
    def case(T, HV, GROUP, K, V, note, *, scale=0.5, C=16, BK=16, BV=16, **given):
        H, N = HV // GROUP, triton.cdiv(T, C)
        q, k, corrected = _normal(rng, T, H, K), alike(rng, T, H, K), _normal(rng, T, HV, V)
        G, _ = gates(rng, T, HV, C, **given)
        return Case((q, k, corrected, G, _normal(rng, N, HV, K, V), scale, GROUP, C, BK, BV), note)

    q, k, corrected = (_column(*x).reshape(2, 1, 1) for x in ((1, 2), (3, 1), (1, 4)))
    G, S = np.log(_column(0.5, 0.25)).astype(np.float32), _column(8).reshape(1, 1, 1, 1)
    return [
        Case((q, k, corrected, G, S, 0.5, 1, 16, 16, 16), "two tokens by hand, K = V = 1, exp(G) = 0.5, 0.25"),
        case(1, 1, 1, 2, 3, "T = 1"),
        case(16, 1, 1, 16, 16, "T = C, K = V = 16, scale = 1", scale=1.0),
        case(14, 1, 1, 4, 3, "one decay of -20 among mild ones", g={t: -20.0 if t == 6 else -0.1 for t in range(14)}),
        case(12, 1, 1, 4, 3, "one decay of -95 among mild ones", g={t: -95.0 if t == 6 else -0.01 for t in range(12)}),
        case(13, 1, 1, 3, 4, "every g is -20: exp(G_t - G_s) overflows above the diagonal", g=-20.0),
        case(60, 1, 1, 3, 4, "C = 64, every g is -2", C=64, g=-2.0),
        case(17, 2, 1, 5, 3, "T = C + 1: a last chunk of one token"),
        case(35, 1, 1, 6, 9, "T = 2 C + 3"),
        case(9, 6, 3, 4, 5, "six heads of values share two of queries and keys"),
        case(25, 1, 1, 4, 37, "C = 32, V = 37 in tiles of 16, no decay at all", C=32, g=0.0),
        case(14, 2, 1, 37, 20, "K = 37 in a tile of 64, V = 20 in tiles of 16", BK=64),
        case(11, 1, 1, 4, 60, "V = 60 in tiles of 32", BV=32),
    ]


def outputs_oracle(q, k, corrected, G, entering, scale, GROUP, C, BK, BV):
    """Token by token: the state that enters a chunk decays and takes the corrected values as they come."""
    HV = G.shape[1]
    q, k, corrected, entering = double(for_values(q, HV), for_values(k, HV), corrected, entering)
    o = np.zeros(corrected.shape)
    for c, j in enumerate(spans(len(q), C)):
        S, before = entering[c], np.zeros(HV)
        for t in range(len(q))[j]:
            S = np.exp(G[t] - before)[:, None, None] * S + k[t][:, :, None] * corrected[t][:, None, :]
            o[t], before = scale * np.einsum("hkv,hk->hv", S, q[t]), G[t].astype(np.float64)
    return o


def _outputs_launch(q, k, corrected, G, entering, scale, GROUP, C, BK, BV):
    (T, HV, V), K = corrected.shape, q.shape[2]
    q, k = Input(q, GAPS["q"]), Input(k, GAPS["k"])
    inputs = {"q": q, "k": k, "corrected": Input(corrected), "G": Input(G), "entering": Input(entering)}
    sizes = {"T": T, "HV": HV, "GROUP": GROUP, "scale": scale, "q_t": q.stride, "k_t": k.stride, "K": K, "V": V}
    grid = (triton.cdiv(V, BV), triton.cdiv(T, C), HV)
    return Launch(grid, {**inputs, "o": Output((T, HV, V)), **sizes, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _chunk_outputs(
    q, k, corrected, G, entering, o, T, HV, GROUP, scale, q_t, k_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, c, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if SLIP == "axes-swapped":
        c, h = tl.program_id(2), tl.program_id(1)
    elif SLIP == "first-tile-only":
        i_v = i_v * 0
    h_k = h // GROUP
    if SLIP == "heads-in-turn":
        h_k = h % (HV // GROUP)
    elif SLIP == "place-in-the-group":
        h_k = h % GROUP
    elif SLIP == "groups-for-heads":
        h_k = h // (HV // GROUP)
    elif SLIP == "own-head":
        h_k = h
    n, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    t = c * C + n
    live, in_K, in_V = t < T, o_k < K, o_v < V
    m_q, m_o = live[:, None] & in_K[None, :], live[:, None] & in_V[None, :]
    b_q = tl.load(q + t[:, None] * q_t + h_k * K + o_k[None, :], mask=m_q, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + h_k * K + o_k[None, :], mask=m_q, other=0.0)
    p_o = (t[:, None] * HV + h) * V + o_v[None, :]
    b_v = tl.load(corrected + p_o, mask=m_o, other=0.0)
    b_G = tl.load(G + t * HV + h, mask=live, other=0.0)
    place = c * HV + h
    if SLIP == "heads-first":
        place = h * tl.cdiv(T, C) + c
    elif SLIP == "chunk-before":
        place = tl.maximum(c - 1, 0) * HV + h
    elif SLIP == "chunk-less-one":
        place = (c - 1) * HV + h
    elif SLIP == "chunk-and-one":
        place = (c + 1) * HV + h
    elif SLIP == "chunk-left-out":
        place = h
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "state-transposed":
        tile = o_v[None, :] * K + o_k[:, None]
    b_S = tl.load(entering + place * K * V + tile, mask=in_K[:, None] & in_V[None, :], other=0.0)
    seen = (n[:, None] >= n[None, :]) & live[:, None]
    if SLIP == "diagonal-lost":
        seen = (n[:, None] > n[None, :]) & live[:, None]
    elif SLIP == "later-seen":
        seen = (n[:, None] <= n[None, :]) & live[:, None]
    later = b_G[:, None] - b_G[None, :]
    b_P = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
    if SLIP == "exp-times-mask":
        b_P *= tl.exp(later) * seen
    elif SLIP == "exp-split":
        b_P = tl.where(seen, b_P * (tl.exp(b_G)[:, None] * tl.exp(-b_G)[None, :]), 0.0)
    elif SLIP == "moved-to-the-middle" or SLIP == "moved-to-the-end":
        b_moved = b_G - tl.min(b_G, 0)
        if SLIP == "moved-to-the-middle":
            b_moved = b_G - 0.5 * tl.min(b_G, 0)
        b_P = tl.where(seen, b_P * (tl.exp(b_moved)[:, None] * tl.exp(-b_moved)[None, :]), 0.0)
    elif SLIP == "inside-undecayed":
        b_P = tl.where(seen, b_P, 0.0)
    elif SLIP == "inside-from-start":
        b_P = tl.where(seen, b_P * tl.exp(b_G)[:, None], 0.0)
    elif SLIP == "all-seen":
        b_P *= tl.exp(tl.minimum(later, 0.0))
    else:
        b_P *= tl.exp(tl.where(seen, later, float("-inf")))
    b_inside = tl.dot(b_P, b_v, input_precision="ieee")
    b_state = tl.dot(b_q, b_S, input_precision="ieee")
    if SLIP == "read-to-end":
        b_state *= tl.exp(tl.load(G + (tl.minimum((c + 1) * C, T) - 1) * HV + h))
    elif SLIP == "own-decay-lost":
        b_state *= tl.exp(tl.load(G + (t - 1) * HV + h, mask=live & (n > 0), other=0.0))[:, None]
    elif SLIP != "read-undecayed":
        b_state *= tl.exp(b_G)[:, None]
    if SLIP == "state-left-out" or (SLIP == "first-chunk-skipped" and c == 0):
        b_state *= 0.0
    elif SLIP == "inside-left-out":
        b_inside *= 0.0
    if SLIP == "scale-on-scores":
        b_o = b_inside * scale + b_state
    elif SLIP == "scale-on-state":
        b_o = b_inside + b_state * scale
    elif SLIP == "scale-left-out":
        b_o = b_inside + b_state
    elif SLIP == "scale-twice":
        b_o = (b_inside + b_state) * scale * scale
    else:
        b_o = (b_inside + b_state) * scale
    tl.store(o + p_o, b_o, mask=m_o)


OUTPUTS = Exercise(
    id="10.4",
    name="chunk_outputs",
    title="the outputs of all chunks",
    points=4,
    minutes=25,
    difficulty="core",
    returns=("o[t, h, v]",),
    cases=_outputs_cases,
    oracle=outputs_oracle,
    launch=_outputs_launch,
    rtol=RTOL,
    mistakes=slipped(
        _chunk_outputs,
        (
            "state-left-out",
            "a part is missing: an output adds what the token reads of the entering state, in the first chunk too, "
            "and what it hears from its own chunk",
            "first-chunk-skipped",
            "inside-left-out",
        ),
        (
            "diagonal-lost",
            "other tokens were heard than those up to t: a token hears its own write and none that comes later, s <= t",
            "all-seen",
            "later-seen",
        ),
        (
            "inside-undecayed",
            "inside the chunk a write has another decay than exp(G_t - G_s), from its token to the reader's",
            "inside-from-start",
        ),
        (
            "exp-times-mask",
            "the exponential was taken of all differences and then multiplied by the mask; above the diagonal it is "
            "infinite, and infinity times 0 is NaN: mask first, then exponentiate",
        ),
        (
            "exp-split",
            "exp(G_t - G_s) was split into two factors; wherever the sums start, one of them overflows where decays "
            "are strong, and infinity times 0 is NaN: take the difference first",
            "moved-to-the-end",
            "moved-to-the-middle",
        ),
        (
            "read-undecayed",
            "the entering state is read with another decay than exp(G_t); by token t that much is left of it",
            "read-to-end",
            "own-decay-lost",
        ),
        (
            "scale-left-out",
            "scale is missing, is there twice or multiplies one part alone; it multiplies the sum of both, once",
            "scale-on-scores",
            "scale-on-state",
            "scale-twice",
        ),
        (
            "chunk-before",
            "another state was read than the one that enters the chunk: chunk c of head h is number c * HV + h, and "
            "in it entry (k, v) stands at k * V + v",
            "chunk-less-one",
            "chunk-and-one",
            "chunk-left-out",
            "heads-first",
            "state-transposed",
        ),
        (
            "own-head",
            "queries and keys were taken from another head: GROUP heads in a row share one, so that head h has "
            "h // GROUP",
            "heads-in-turn",
            "place-in-the-group",
            "groups-for-heads",
        ),
        (
            "first-tile-only",
            "the program's place was taken for another one: axis 0 of the grid counts the tiles of V, axis 1 the "
            "chunks, axis 2 the heads",
            "axes-swapped",
        ),
    ),
    hints=(
        "The first token of a chunk reads the state, decayed once, and its own write, which has not decayed: both "
        "times scale.",
        "Two parts, three products: scores of queries and keys, C by C; scores times v'; queries times the state, BK "
        "by BV. Queries and keys are needed whole, values and state only in the tile's columns.",
        "A score's decay is the exponential of a column of G minus a row of G, minus infinity where the row's token "
        "is before the column's. The state's part has one decay a row.",
        "Mask the differences, exponentiate, multiply the scores, and take their product with v'; add the product of "
        "queries and state, times the column of exp(G); store the sum, scaled, where v' was loaded.",
    ),
)  # fmt: skip
