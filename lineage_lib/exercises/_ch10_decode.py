"""Chapter 10, third part: one token of Gated DeltaNet-2, its state updated in place (10.5).

It has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
"""

import numpy as np

from lineage_lib.exercises._ch05_data import RTOL, double, slipped, tl, triton
from lineage_lib.exercises._ch10_data import alike, for_values
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import InOut, Input, Launch, Output


def _decode_cases(rng):
    def case(B, HV, GROUP, K, V, note, *, BK=16, BV=16, scale=0.5, g=None, b=None, w=None, fill=None):
        H = HV // GROUP
        q, v, S = (rng.standard_normal(s) for s in ((B, H, K), (B, HV, V), (B, HV, K, V)))
        k, decays = alike(rng, B, H, K), np.log(rng.uniform(0.3, 1.0, (B, HV, K)))
        erase, write = rng.uniform(0.1, 1.0, (B, HV, K)), rng.uniform(0.1, 1.0, (B, HV, V))
        for array, given in ((decays, g), (erase, b), (write, w)):
            if given is not None:
                array[:] = given
        if fill is not None:  # a channel that is full of this, and that its decay clears
            S[:, :, K // 2], decays[:, :, K // 2] = fill, -np.inf
        arrays = (x.astype(np.float32) for x in (q, k, v, decays, erase, write, S))
        return Case((*arrays, scale, GROUP, BK, BV), note)

    def of_one(*numbers):
        return np.array(numbers, np.float32).reshape(1, 1, -1)

    halved = np.log(of_one(0.5, 1)).astype(np.float32)
    by_hand = (of_one(1, 2), of_one(0.6, 0.8), of_one(4, 2), halved, of_one(1, 0), of_one(1, 0.5))
    S = np.array([[4, 8], [2, 1]], np.float32).reshape(1, 1, 2, 2)
    return [
        Case((*by_hand, S, 1.0, 1, 16, 16), "one row by hand, exp(g) = 0.5, 1; b = 1, 0; w = 1, 0.5"),
        case(1, 1, 1, 1, 1, "all sizes 1"),
        case(1, 1, 1, 3, 5, "no decay at all, b = 2, w = 1", g=0.0, b=2.0, w=1.0),
        case(1, 1, 1, 5, 4, "every g is -20", g=-20.0),
        case(1, 1, 1, 5, 4, "g is -inf in one channel, which is full of 1e38", fill=1e38),
        case(3, 1, 1, 4, 6, "three rows"),
        case(1, 3, 1, 6, 4, "three heads, scale = 1", scale=1.0),
        case(2, 2, 2, 5, 3, "two rows, the two heads of values share one of queries and keys"),
        case(1, 6, 3, 3, 5, "six heads of values share two of queries and keys"),
        case(1, 1, 1, 4, 37, "V = 37 in tiles of 16"),
        case(1, 2, 1, 37, 20, "K = 37 in a tile of 64, V = 20 in tiles of 16", BK=64),
        case(2, 1, 1, 4, 60, "K = 4 in a tile of 16, V = 60 in tiles of 32, two rows", BV=32),
    ]


def decode_oracle(q, k, v, g, b, w, S, scale, GROUP, BK, BV):
    HV = v.shape[1]
    q, k, v, g, b, w, S = double(for_values(q, HV), for_values(k, HV), v, g, b, w, S)
    S = np.exp(g)[..., None] * S
    S = S + k[..., None] * (w * v - np.einsum("bhkv,bhk->bhv", S, b * k))[..., None, :]
    return S, scale * np.einsum("bhkv,bhk->bhv", S, q)


def _decode_launch(q, k, v, g, b, w, S, scale, GROUP, BK, BV):
    B, HV, K, V = S.shape
    inputs = {name: Input(x) for name, x in (("q", q), ("k", k), ("v", v), ("g", g), ("b", b), ("w", w))}
    sizes = {"HV": HV, "GROUP": GROUP, "scale": scale, "K": K, "V": V, "BK": BK, "BV": BV}
    return Launch((triton.cdiv(V, BV), HV, B), {**inputs, "S": InOut(S), "o": Output(v.shape), **sizes})


@triton.jit
def _gdn2_decode_step(
    q, k, v, g, b, w, S, o, HV, GROUP, scale,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, h, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if SLIP == "axes-swapped":
        h, i_b = tl.program_id(2), tl.program_id(1)
    elif SLIP == "first-tile-only":
        i_v = i_v * 0
    n = i_b * HV + h
    n_k = i_b * (HV // GROUP) + h // GROUP
    if SLIP == "heads-in-turn":
        n_k = i_b * (HV // GROUP) + h % (HV // GROUP)
    elif SLIP == "own-key-head":
        n_k = n
    elif SLIP == "place-in-the-group":
        n_k = i_b * (HV // GROUP) + h % GROUP
    elif SLIP == "groups-for-heads":
        n_k = i_b * (HV // GROUP) + h // (HV // GROUP)
    elif SLIP == "rows-of-HV":
        n_k = i_b * HV + h // GROUP
    elif SLIP == "rows-of-GROUP":
        n_k = i_b * GROUP + h // GROUP
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    in_K, in_V = o_k < K, o_v < V
    b_q = tl.load(q + n_k * K + o_k, mask=in_K, other=0.0)
    b_k = tl.load(k + n_k * K + o_k, mask=in_K, other=0.0)
    b_g = tl.load(g + n * K + o_k, mask=in_K, other=0.0)
    if SLIP == "one-decay":
        b_g = b_g * 0.0 + tl.load(g + n * K)
    elif SLIP == "decay-of-the-head":
        b_g = tl.load(g + n + o_k * 0, mask=in_K, other=0.0)
    b_b = tl.load(b + n * K + o_k, mask=in_K, other=0.0)
    b_v = tl.load(v + n * V + o_v, mask=in_V, other=0.0)
    b_w = tl.load(w + n * V + o_v, mask=in_V, other=0.0)
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "transposed":
        tile = o_v[None, :] * K + o_k[:, None]
    p_S, m_S = S + n * K * V + tile, in_K[:, None] & in_V[None, :]
    b_S = tl.load(p_S, mask=m_S, other=0.0)
    decay = tl.exp(b_g)[:, None]
    if SLIP == "no-decay":
        decay = tl.exp(b_k * 0.0)[:, None]
    elif SLIP == "base-2":
        decay = tl.exp2(b_g)[:, None]
    b_e = b_k * b_b
    if SLIP == "erase-at-key":
        b_e = b_k
    elif SLIP == "erase-gate-alone":
        b_e = b_b
    b_old = b_S * decay
    b_read = tl.sum(b_old * b_e[:, None], 0)
    if SLIP == "read-before-decay":
        b_read = tl.sum(b_S * b_e[:, None], 0)
    b_z = b_w * b_v - b_read
    if SLIP == "write-gate-on-all":
        b_z = b_w * (b_v - b_read)
    elif SLIP == "write-gate-left-out":
        b_z = b_v - b_read
    elif SLIP == "nothing-erased":
        b_z = b_w * b_v
    b_key = b_k
    if SLIP == "written-at-erase-key":
        b_key = b_e
    b_new = b_old + b_key[:, None] * b_z[None, :]
    if SLIP == "decayed-last":
        b_z = b_w * b_v - tl.sum(b_S * b_e[:, None], 0)
        b_new = (b_S + b_k[:, None] * b_z[None, :]) * decay
    b_seen = b_new
    if SLIP == "output-before-write":
        b_seen = b_old
    elif SLIP == "output-before-decay":
        b_seen = b_S
    b_o = tl.sum(b_seen * b_q[:, None], 0)
    if SLIP == "output-at-key":
        b_o = tl.sum(b_seen * b_k[:, None], 0)
    if SLIP != "scale-left-out":
        b_o *= scale
    tl.store(o + n * V + o_v, b_o, mask=in_V)
    if SLIP == "decay-alone-stored":
        tl.store(p_S, b_old, mask=m_S)
    elif SLIP != "state-not-stored":
        tl.store(p_S, b_new, mask=m_S)


DECODE = Exercise(
    id="10.5",
    name="gdn2_decode_step",
    title="a decode step of GDN-2, in place",
    points=3,
    minutes=20,
    difficulty="core",
    returns=("S[b, h, k, v]", "o[b, h, v]"),
    cases=_decode_cases,
    oracle=decode_oracle,
    launch=_decode_launch,
    rtol=RTOL,
    mistakes=slipped(
        _gdn2_decode_step,
        (
            "read-before-decay",
            "the decay came too late: what is erased is read from the decayed state, and what is written does not fade",
            "decayed-last",
        ),
        (
            "one-decay",
            "the rows of the state did not decay by exp(g) of their own channel: head h of row b has K log-decays, "
            "from g + (b * HV + h) * K on",
            "decay-of-the-head",
            "base-2",
            "no-decay",
        ),
        (
            "erase-at-key",
            "what is erased was read at another key; it is read at b times k, entry by entry",
            "erase-gate-alone",
            "nothing-erased",
        ),
        ("written-at-erase-key", "the state was written at b times k; b is for what is erased, and the write is at k"),
        (
            "write-gate-on-all",
            "w is at the wrong place; it multiplies the value alone, and what is erased comes off undiminished",
            "write-gate-left-out",
        ),
        (
            "output-before-write",
            "the output is not the new state, read at q: it sees this token's own decay and write",
            "output-before-decay",
            "output-at-key",
        ),
        ("scale-left-out", "scale is missing from the output; the state does not take it"),
        (
            "state-not-stored",
            "the output is right, but the state in memory is not the new one; the next token needs it",
            "decay-alone-stored",
        ),
        (
            "own-key-head",
            "queries and keys were not found: GROUP heads share one, so head h of row b has number "
            "b * (HV // GROUP) + h // GROUP of them",
            "heads-in-turn",
            "place-in-the-group",
            "groups-for-heads",
            "rows-of-HV",
            "rows-of-GROUP",
        ),
        (
            "first-tile-only",
            "the state's tile was not found: axis 0 of the grid counts tiles of V, axis 1 heads, axis 2 rows, and "
            "entry (k, v) of a state stands at k * V + v",
            "axes-swapped",
            "transposed",
        ),
    ),
    hints=(
        "With b = 1, w = 1, no decay and a key of length 1, the new state returns v when it is read at k. With b = 0 "
        "nothing is erased, only added.",
        "Everything of row b and head h stands at number b * HV + h, but for q and k, which have fewer heads. Four "
        "vectors have the keys' channels, three the tile's columns of values, and the state's tile is BK by BV.",
        "A read is the tile times a column, summed over axis 0; a write is a column times a row. There are two reads, "
        "one before the write and one after it.",
        "Load the tile; multiply its rows by the decays; subtract from the gated value what it returns at the gated "
        "key; add the key, as a column, times this row; sum it with the query for the output; store both.",
    ),
)  # fmt: skip
