"""Chapter 05, second part: what goes from chunk to chunk (5.4 to 5.6).

Each exercise has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import GAPS, RTOL, cumulative, double, slipped, spans, tl, tokens, triton
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import InOut, Input, Launch, Output

# --- 5.4 chunk states -----------------------------------------------------------------------------


def _states_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None):
        k, v, g = tokens(rng, T, (H, K), (H, V), g=g)
        return Case((k, v, cumulative(g, C).astype(np.float32), C, BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(2, 1, -1) for x in ([[1, 3], [2, 1]], [[1, 0, 2], [0, 2, 4]]))
    halved = np.log(np.array([[0.5], [0.25]])).astype(np.float32)
    return [
        Case((*by_hand, halved, 16, 16, 16), "two tokens by hand, K = 2, V = 3, exp(G) = 0.5, 0.25"),
        case(1, 1, 3, 2, "T = 1"),
        case(15, 2, 3, 5, "T = C - 1, two heads"),
        case(16, 1, 16, 16, "T = C, K = V = 16"),
        case(17, 2, 5, 3, "T = C + 1: a last chunk of one token"),
        case(53, 1, 6, 9, "T = 3 C + 5"),
        case(40, 1, 2, 4, "C = 32, no decay at all", C=32, g=0.0),
        case(12, 3, 37, 20, "K = 37 in a tile of 64, V = 20 in one of 32, three heads", BK=64, BV=32),
        case(18, 2, 4, 37, "K = 4 in a tile of 16, V = 37 in one of 64, two heads", BV=64),
        case(14, 1, 4, 3, "one decay of -20 among mild ones", g={t: -20.0 if t == 6 else -0.1 for t in range(14)}),
        case(11, 1, 3, 4, "every g is -20", g=-20.0),
    ]


def states_oracle(k, v, G, C, BK, BV):
    k, v, G = double(k, v, G)
    parts = (np.einsum("sh,shk,shv->hkv", np.exp(G[j][-1] - G[j]), k[j], v[j]) for j in spans(len(k), C))
    return np.stack([*parts])


def _states_launch(k, v, G, C, BK, BV):
    (T, H, K), V = k.shape, v.shape[2]
    N = triton.cdiv(T, C)
    k, v = Input(k, GAPS["k"]), Input(v, GAPS["v"])
    pointers = {"k": k, "v": v, "G": Input(G), "states": Output((N, H, K, V))}
    sizes = {"T": T, "H": H, "k_t": k.stride, "v_t": v.stride}
    return Launch((N, H), {**pointers, **sizes, "K": K, "V": V, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _chunk_states(
    k, v, G, states, T, H, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_c, i_h = tl.program_id(1), tl.program_id(0)
    i, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    t = i_c * C + i
    live = t < T
    if SLIP == "stride-assumed":
        k_t, v_t = H * K, H * V
    elif SLIP == "stride-of-k":
        v_t = k_t
    h_k, h_v = i_h * K, i_h * V
    if SLIP == "head-lost":
        h_k, h_v = 0, 0
    elif SLIP == "offset-of-keys":
        h_v = h_k
    m_k, m_v = live[:, None] & (o_k < K)[None, :], live[:, None] & (o_v < V)[None, :]
    b_k = tl.load(k + t[:, None] * k_t + h_k + o_k[None, :], mask=m_k, other=0.0)
    b_v = tl.load(v + t[:, None] * v_t + h_v + o_v[None, :], mask=m_v, other=0.0)
    b_G = tl.load(G + t * H + i_h, mask=live, other=0.0)
    last = t == tl.minimum((i_c + 1) * C, T) - 1
    if SLIP == "dead-row-end":
        last = i == C - 1
    G_end = tl.sum(tl.where(last, b_G, 0.0), 0)
    if SLIP == "dead-row-outside":
        G_end = tl.load(G + ((i_c + 1) * C - 1) * H + i_h)
    b_w = tl.exp(G_end - b_G)
    if SLIP == "no-decay":
        b_w = tl.where(live, 1.0, 0.0)
    elif SLIP == "decay-reversed":
        b_w = tl.exp(b_G - G_end)
    elif SLIP == "decay-from-start":
        b_w = tl.exp(b_G)
    elif SLIP == "own-decay":
        b_w = tl.exp(G_end - tl.load(G + (t - 1) * H + i_h, mask=live & (i > 0), other=0.0))
    b_S = tl.dot(tl.trans(b_k * b_w[:, None]), b_v, input_precision="ieee")
    place = (i_c * H + i_h) * K * V
    if SLIP == "heads-first":
        place = (i_h * tl.cdiv(T, C) + i_c) * K * V
    m_S = (o_k < K)[:, None] & (o_v < V)[None, :]
    if SLIP == "transposed":
        tl.store(states + place + o_v[None, :] * K + o_k[:, None], b_S, mask=m_S)
    else:
        tl.store(states + place + o_k[:, None] * V + o_v[None, :], b_S, mask=m_S)


STATES = Exercise(
    id="5.4",
    name="chunk_states",
    title="what a chunk adds to the state",
    points=3,
    minutes=20,
    difficulty="core",
    returns=("states[c, h, k, v]",),
    cases=_states_cases,
    oracle=states_oracle,
    launch=_states_launch,
    rtol=RTOL,
    mistakes=slipped(
        _chunk_states,
        ("no-decay", "the writes are added as they are; until the chunk's end each decays by exp(G_end - G_s)"),
        (
            "decay-from-start",
            "each write is weighted with exp(G_s), its distance from the chunk's start; what counts is the distance "
            "to the chunk's end",
        ),
        (
            "decay-reversed",
            "the exponent has the wrong sign, so that old writes grow; each decays by exp(G_end - G_s), at most 1",
        ),
        (
            "own-decay",
            "each write is also decayed by its own token's g; a token first decays the state and then writes, so its "
            "write sees only later decays",
        ),
        (
            "dead-row-end",
            "G_end was taken from row C - 1; in a last chunk that is not full this row holds no token: G_end is that "
            "of the last one that exists, and what else such rows hold is masked",
            "dead-row-outside",
        ),
        ("transposed", "the state is stored with its values as rows; rows are keys: entry (k, v) stands at k * V + v"),
        (
            "stride-assumed",
            "from one token to the next there need not be H * K entries, nor as many in v as in k: each has its own "
            "stride, k_t and v_t",
            "stride-of-k",
        ),
        (
            "head-lost",
            "the heads were not found: head h begins h * K entries behind head 0, of v it is h * V",
            "offset-of-keys",
        ),
        (
            "heads-first",
            "the states were taken for (H, chunks, K, V); they are (chunks, H, K, V), so chunk c of head h is "
            "number c * H + h",
        ),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the chunks, and axis 1 the heads"),
    ),
    hints=(
        "With one token the state is k vᵀ, whatever its g. With several, the last token's write is whole, and the "
        "others have decayed.",
        "It is one product: the keys, weighted and transposed, times the values; the sum over tokens is the product's "
        "inner sum. Rows that do not exist must contribute zero.",
        "The weights need one number, G at the chunk's last token. Take it out of the loaded block: keep the entry of "
        "that token, zeros elsewhere, and add up. Its token number is the smaller of the chunk's end and T, minus 1.",
        "Weight the rows of the keys with the exponential of that number minus G, then `tl.trans`, then the product. "
        "Store at the place of chunk c and head h, with a mask on rows and on columns.",
    ),
)

# --- 5.5 passing states on ------------------------------------------------------------------------


def _pass_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None):
        _, g = tokens(rng, T, (H, 1), g=g, low=0.9)
        states = rng.standard_normal((triton.cdiv(T, C), H, K, V)).astype(np.float32)
        return Case((states, cumulative(g, C).astype(np.float32), C, BK, BV), note)

    by_hand = np.array([[8, 4], [1, 2]], np.float32).reshape(2, 1, 1, 2)
    halved = np.log(np.array([[0.5], [0.25], [0.5]])).astype(np.float32)
    reset = {t: -20.0 * (t == 9) for t in range(24)}
    return [
        Case((by_hand, halved, 2, 16, 16), "two chunks of two tokens and of one, exp(G) = 0.5, 0.25 and 0.5"),
        case(1, 1, 2, 3, "T = 1"),
        case(16, 2, 3, 5, "T = C: one chunk, two heads"),
        case(17, 2, 5, 3, "T = C + 1: a last chunk of one token"),
        case(53, 2, 6, 9, "T = 3 C + 5, two heads"),
        case(35, 2, 3, 37, "V = 37 in tiles of 16, two heads"),
        case(70, 2, 37, 20, "C = 32, K = 37 in a tile of 64, V = 20 in tiles of 16, two heads", C=32, BK=64),
        case(18, 3, 4, 60, "K = 4 in a tile of 16, V = 60 in tiles of 32, three heads", BV=32),
        case(24, 1, 4, 3, "one decay of -20 in the second of three chunks", C=8, g=reset),
        case(40, 1, 3, 4, "no decay at all", C=8, g=0.0),
    ]


def pass_oracle(states, G, C, BK, BV):
    states, G = double(states, G)
    S, entering = np.zeros(states.shape[1:]), []
    for Z, j in zip(states, spans(len(G), C)):
        entering.append(S)
        S = np.exp(G[j][-1])[:, None, None] * S + Z
    return np.stack(entering), S


def _pass_launch(states, G, C, BK, BV):
    (_, H, K, V), T = states.shape, len(G)
    pointers = {"states": Input(states), "G": Input(G), "entering": Output(states.shape), "final": Output((H, K, V))}
    sizes = {"T": T, "H": H, "K": K, "V": V, "C": C, "BK": BK, "BV": BV}
    return Launch((triton.cdiv(V, BV), H), {**pointers, **sizes})


@triton.jit
def _pass_states(
    states, G, entering, final, T, H,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_v, i_h = tl.program_id(1), tl.program_id(0)
    o_k, o_v = tl.arange(0, BK)[:, None], (i_v * BV + tl.arange(0, BV))[None, :]
    if SLIP == "first-tile-only":
        o_v = tl.arange(0, BV)[None, :]
    mask = (o_k < K) & (o_v < V)
    if SLIP == "no-channel-mask":
        mask = (o_k < K) & (o_v >= 0)
    tile = o_k * V + o_v
    i_g = i_h
    if SLIP == "head-lost":
        i_g = 0
    b_S = tl.zeros((BK, BV), tl.float32)
    for c in range(0, tl.cdiv(T, C)):
        place = (c * H + i_h) * K * V + tile
        b_Z = tl.load(states + place, mask=mask, other=0.0)
        end = tl.minimum((c + 1) * C, T) - 1
        if SLIP == "tail-decay-lost":
            G_end = tl.load(G + (c * C + C - 1) * H + i_g, mask=c * C + C - 1 < T, other=0.0)
        elif SLIP == "tail-decay-outside":
            G_end = tl.load(G + (c * C + C - 1) * H + i_g)
        else:
            G_end = tl.load(G + end * H + i_g)
        if SLIP != "stored-after":
            tl.store(entering + place, b_S, mask=mask)
        if SLIP == "last-left-out":
            tl.store(final + i_h * K * V + tile, b_S, mask=mask)  # overwritten by each chunk
        if SLIP == "no-decay":
            b_S += b_Z
        elif SLIP == "write-decayed":
            b_S = (b_S + b_Z) * tl.exp(G_end)
        else:
            b_S = b_S * tl.exp(G_end) + b_Z
        if SLIP == "float16-state":
            b_S = b_S.to(tl.float16).to(tl.float32)
        if SLIP == "stored-after":
            tl.store(entering + place, b_S, mask=mask)
    if SLIP != "last-left-out":
        tl.store(final + i_h * K * V + tile, b_S, mask=mask)


PASS = Exercise(
    id="5.5",
    name="pass_states",
    title="the state that enters a chunk",
    points=2,
    minutes=20,
    difficulty="core",
    returns=("entering[c, h, k, v]", "final[h, k, v]"),
    cases=_pass_cases,
    oracle=pass_oracle,
    launch=_pass_launch,
    rtol=RTOL,
    mistakes=slipped(
        _pass_states,
        (
            "stored-after",
            "each chunk was given the state that leaves it; what enters a chunk is stored before the chunk's own "
            "state is added",
        ),
        ("no-decay", "the chunks' states are only added up; across a chunk what came in decays by exp(G_end)"),
        (
            "write-decayed",
            "the chunk's own state was decayed too; it already stands at the chunk's end, only what came in decays",
        ),
        (
            "tail-decay-lost",
            "the decay across a last chunk that is not full was looked for in row C - 1, where no token is; the last "
            "token that exists has it",
            "tail-decay-outside",
        ),
        ("first-tile-only", "every program works on the first BV columns; the tile's number on axis 0 was not used"),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the tiles of V, and axis 1 the heads"),
        ("head-lost", "every program reads the decays of head 0; head h of token t stands at t * H + h"),
        ("last-left-out", "the final state lacks what the last chunk adds; store it behind the loop"),
        (
            "float16-state",
            "the state was rounded to 16 bits from chunk to chunk; it is carried in float32, because the rounding "
            "of every step stays in it",
        ),
        (
            "no-channel-mask",
            "columns from V on are loaded and stored as if they were this state's; they are the next row's",
        ),
    ),
    hints=(
        "The first chunk is entered by zeros. The second is entered by the first chunk's state exactly as it is, "
        "whatever the decays.",
        "One tile stays on the chip from the first chunk to the last, in a loop: it is stored, decayed, added to. The "
        "order of these three matters.",
        "It starts as a tile of zeros in float32. How much it decays across a chunk is one number: G of the chunk's "
        "last token, loaded with a pointer to that entry alone.",
        "In the loop over `tl.cdiv(T, C)` chunks: load the chunk's tile, store the carried tile as entering, then "
        "carry on the exponential times the carried one, plus the loaded one. Behind the loop store it once more.",
    ),
)

# --- 5.6 reading states ---------------------------------------------------------------------------


def _read_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None):
        q, o, g = tokens(rng, T, (H, K), (H, V), g=g)
        entering = rng.standard_normal((triton.cdiv(T, C), H, K, V)).astype(np.float32)
        return Case((q, cumulative(g, C).astype(np.float32), entering, o, C, BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(2, 1, -1) for x in ([[1, 2], [3, 1]], [[10, 20, 30], [40, 50, 60]]))
    q, o = by_hand
    S = np.array([[4, 0, 8], [4, 4, 0]], np.float32).reshape(1, 1, 2, 3)
    halved = np.log(np.array([[0.5], [0.25]])).astype(np.float32)
    return [
        Case((q, halved, S, o, 16, 16, 16), "two tokens by hand, K = 2, V = 3, exp(G) = 0.5, 0.25"),
        case(1, 1, 3, 2, "T = 1"),
        case(15, 2, 3, 5, "T = C - 1, two heads"),
        case(16, 1, 16, 16, "T = C, K = V = 16"),
        case(17, 2, 5, 3, "T = C + 1: a last chunk of one token"),
        case(53, 1, 6, 9, "T = 3 C + 5"),
        case(40, 1, 2, 4, "C = 32, no decay at all", C=32, g=0.0),
        case(12, 3, 37, 20, "K = 37 in a tile of 64, V = 20 in one of 32, three heads", BK=64, BV=32),
        case(18, 2, 4, 37, "K = 4 in a tile of 16, V = 37 in one of 64, two heads", BV=64),
        case(11, 1, 3, 4, "every g is -20", g=-20.0),
    ]


def read_oracle(q, G, entering, o, C, BK, BV):
    q, G, entering, o = double(q, G, entering, o)
    spanned = enumerate(spans(len(q), C))
    return o + np.concatenate([np.einsum("th,thk,hkv->thv", np.exp(G[j]), q[j], entering[c]) for c, j in spanned])


def _read_launch(q, G, entering, o, C, BK, BV):
    (T, H, K), V = q.shape, o.shape[2]
    q = Input(q, GAPS["q"])
    pointers = {"q": q, "G": Input(G), "entering": Input(entering), "o": InOut(o)}
    sizes = {"T": T, "H": H, "q_t": q.stride, "K": K, "V": V, "C": C, "BK": BK, "BV": BV}
    return Launch((triton.cdiv(T, C), H), {**pointers, **sizes})


@triton.jit
def _read_states(
    q, G, entering, o, T, H, q_t,
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
        q_t = H * K
    b_q = tl.load(q + t[:, None] * q_t + i_h * K + o_k[None, :], mask=m_k, other=0.0)
    b_G = tl.load(G + t * H + i_h, mask=live, other=0.0)
    number = i_c * H + i_h
    if SLIP == "heads-first":
        number = i_h * tl.cdiv(T, C) + i_c
    elif SLIP == "chunk-before":
        number = tl.maximum(i_c - 1, 0) * H + i_h
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "transposed":
        tile = o_v[None, :] * K + o_k[:, None]
    b_S = tl.load(entering + number * K * V + tile, mask=(o_k < K)[:, None] & (o_v < V)[None, :], other=0.0)
    b_w = tl.exp(b_G)
    if SLIP == "no-decay":
        b_w = tl.exp(b_G * 0.0)
    elif SLIP == "first-decay-lost":
        b_w = tl.exp(b_G - tl.sum(tl.where(i == 0, b_G, 0.0), 0))
    elif SLIP == "decay-to-end":
        b_w = tl.exp(tl.sum(tl.where(t == tl.minimum((i_c + 1) * C, T) - 1, b_G, 0.0), 0) - b_G)
    elif SLIP == "decay-reversed":
        b_w = tl.exp(-b_G)
    elif SLIP == "first-chunk-skipped":
        b_w = tl.where(i_c > 0, b_w, 0.0)
    b_o = tl.dot(b_q, b_S, input_precision="ieee") * b_w[:, None]
    if SLIP == "queries-reversed":
        b_o = tl.dot(b_q * tl.exp(-b_G)[:, None], b_S, input_precision="ieee")
    p_o = o + (t[:, None] * H + i_h) * V + o_v[None, :]
    if SLIP != "overwritten":
        b_o += tl.load(p_o, mask=m_v, other=0.0)
    tl.store(p_o, b_o, mask=m_v)


READ = Exercise(
    id="5.6",
    name="read_states",
    title="add what came before the chunk",
    points=2,
    minutes=15,
    difficulty="core",
    returns=("o[t, h, v]",),
    cases=_read_cases,
    oracle=read_oracle,
    launch=_read_launch,
    rtol=RTOL,
    mistakes=slipped(
        _read_states,
        ("overwritten", "what stood in o is lost; the diagonal blocks are already there, load them and add"),
        ("no-decay", "the entering state is read undecayed; by token t it has decayed by exp(G_t)"),
        (
            "first-decay-lost",
            "the decay of the chunk's first token is missing: even the first token reads the entering state decayed "
            "once",
        ),
        (
            "decay-to-end",
            "the state is read with G_t counted backwards, exp(-G_t) or exp(G_end - G_t); from the chunk's start to "
            "the token it has decayed by exp(G_t)",
            "decay-reversed",
            "queries-reversed",
        ),
        ("transposed", "the state was taken for (V, K); rows are keys: entry (k, v) stands at k * V + v"),
        ("chunk-before", "each chunk reads the state that enters the chunk before it"),
        (
            "heads-first",
            "the states were taken for (H, chunks, K, V); they are (chunks, H, K, V), so chunk c of head h is "
            "number c * H + h",
        ),
        ("stride-assumed", "from one token to the next there need not be H * K entries: the stride q_t says how many"),
        (
            "first-chunk-skipped",
            "chunk 0 reads nothing here; entering[0] need not be zeros, since a sequence may start from a state",
        ),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the chunks, and axis 1 the heads"),
    ),
    hints=(
        "With an entering state of zeros o stays as it was. Otherwise every token adds something, the first one too.",
        "One product gives what all tokens of the chunk read: queries, C by BK, times the state, BK by BV. Then each "
        "row has its own decay.",
        "The state of chunk c and head h is number c * H + h of K * V entries each. The row's decay is the exponential "
        "of G, as a column.",
        "Load o where it will be stored, with the same mask, add the decayed product to it, and store the sum.",
    ),
)
