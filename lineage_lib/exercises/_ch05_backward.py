"""Chapter 05, fourth part: one piece of the backward pass (5.8).

It has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP.
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

# --- 5.8 the gradient of the values ---------------------------------------------------------------


def _dv_cases(rng):
    def case(T, H, K, V, note, *, C=16, BK=16, BV=16, g=None):
        q, k, do, g = tokens(rng, T, (H, K), (H, K), (H, V), g=g)
        dS = rng.standard_normal((triton.cdiv(T, C), H, K, V)).astype(np.float32)
        return Case((q, k, do, cumulative(g, C).astype(np.float32), dS, C, BK, BV), note)

    by_hand = (np.array(x, np.float32).reshape(2, 1, -1) for x in ([1, 2], [3, 1], [[1, 0], [2, 1]]))
    dS = np.array([[4, 8]], np.float32).reshape(1, 1, 1, 2)
    halved = np.log(np.array([[0.5], [0.25]])).astype(np.float32)
    return [
        Case((*by_hand, halved, dS, 16, 16, 16), "two tokens by hand, K = 1, V = 2, exp(G) = 0.5, 0.25"),
        case(1, 1, 2, 3, "T = 1"),
        case(15, 2, 16, 16, "T = C - 1, K = V = 16, two heads"),
        case(17, 2, 5, 3, "T = C + 1: a last chunk of one token"),
        case(53, 1, 6, 9, "T = 3 C + 5"),
        case(25, 1, 4, 2, "C = 32, no decay at all", C=32, g=0.0),
        case(12, 2, 37, 20, "K = 37 in a tile of 64, V = 20 in one of 32, two heads", BK=64, BV=32),
        case(18, 3, 4, 37, "K = 4 in a tile of 16, V = 37 in one of 64, three heads", BV=64),
        case(14, 1, 4, 3, "one decay of -20 among mild ones", g={t: -20.0 if t == 6 else -0.1 for t in range(14)}),
        case(16, 1, 3, 4, "every g is -20: exp(G_t - G_s) overflows where t < s", g=-20.0),
        case(11, 1, 3, 4, "every g is -20, and the chunk is not full", g=-20.0),
    ]


def dv_oracle(q, k, do, G, dS, C, BK, BV):
    q, k, do, G, dS = double(q, k, do, G, dS)
    parts = []
    for c, j in enumerate(spans(len(q), C)):
        inside = np.einsum("hts,thk,shk,thv->shv", decay_mask(G[j]), q[j], k[j], do[j], optimize=True)
        parts.append(inside + np.einsum("sh,shk,hkv->shv", np.exp(G[j][-1] - G[j]), k[j], dS[c]))
    return np.concatenate(parts)


def _dv_launch(q, k, do, G, dS, C, BK, BV):
    (T, H, K), V = q.shape, do.shape[2]
    q, k, do = Input(q, GAPS["q"]), Input(k, GAPS["k"]), Input(do, GAPS["do"])
    pointers = {"q": q, "k": k, "do": do, "G": Input(G), "dS": Input(dS), "dv": Output((T, H, V))}
    sizes = {"T": T, "H": H, "q_t": q.stride, "k_t": k.stride, "do_t": do.stride}
    return Launch((triton.cdiv(T, C), H), {**pointers, **sizes, "K": K, "V": V, "C": C, "BK": BK, "BV": BV})


@triton.jit
def _dv_block(
    q, k, do, G, dS, dv, T, H, q_t, k_t, do_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0), tl.program_id(1)
    if SLIP == "axes-swapped":
        i_c, i_h = tl.program_id(1), tl.program_id(0)
    i, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    t = i_c * C + i
    live = t < T
    m_k, m_v = live[:, None] & (o_k < K)[None, :], live[:, None] & (o_v < V)[None, :]
    b_q = tl.load(q + t[:, None] * q_t + i_h * K + o_k[None, :], mask=m_k, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + i_h * K + o_k[None, :], mask=m_k, other=0.0)
    b_do = tl.load(do + t[:, None] * do_t + i_h * V + o_v[None, :], mask=m_v, other=0.0)
    b_G = tl.load(G + t * H + i_h, mask=live, other=0.0)
    # rows are writers s, columns readers t
    b_A = tl.dot(b_k, tl.trans(b_q), input_precision="ieee")
    difference = b_G[None, :] - b_G[:, None]
    seen = (i[:, None] <= i[None, :]) & live[None, :]  # dead readers have G = 0: their differences are positive
    if SLIP == "dead-readers":
        seen = i[:, None] <= i[None, :]
    elif SLIP == "forward-mask":
        seen = i[:, None] >= i[None, :]
        difference = -difference
    elif SLIP == "not-transposed":
        b_A = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        difference = -difference
        seen = i[:, None] >= i[None, :]
    if SLIP == "exp-times-mask":
        b_A *= tl.exp(difference) * seen
    elif SLIP == "inside-undecayed":
        b_A = tl.where(seen, b_A, 0.0)
    elif SLIP == "inside-reversed":
        b_A *= tl.exp(tl.where(seen, -difference, float("-inf")))
    else:
        b_A *= tl.exp(tl.where(seen, difference, float("-inf")))
    b_dv = tl.dot(b_A, b_do, input_precision="ieee")
    place = (i_c * H + i_h) * K * V
    if SLIP == "heads-first":
        place = (i_h * tl.cdiv(T, C) + i_c) * K * V
    tile = o_k[:, None] * V + o_v[None, :]
    if SLIP == "transposed-state":
        tile = o_v[None, :] * K + o_k[:, None]
    b_dS = tl.load(dS + place + tile, mask=(o_k < K)[:, None] & (o_v < V)[None, :], other=0.0)
    last = t == tl.minimum((i_c + 1) * C, T) - 1
    if SLIP == "dead-row-end":
        last = i == C - 1
    G_end = tl.sum(tl.where(last, b_G, 0.0), 0)
    if SLIP == "dead-row-outside":
        G_end = tl.load(G + ((i_c + 1) * C - 1) * H + i_h)
    b_w = tl.exp(G_end - b_G)
    if SLIP == "decay-from-start":
        b_w = tl.exp(b_G)
    elif SLIP == "state-undecayed":
        b_w = tl.exp(b_G * 0.0)
    elif SLIP == "decay-reversed":
        b_w = tl.exp(b_G - G_end)
    if SLIP == "dead-row-keys":
        G_end = tl.sum(tl.where(i == C - 1, b_G, 0.0), 0)
        b_dv += tl.dot(b_k * tl.exp(G_end - b_G)[:, None], b_dS, input_precision="ieee")
    elif SLIP != "inside-only":
        b_dv += tl.dot(b_k, b_dS, input_precision="ieee") * b_w[:, None]
    tl.store(dv + (t[:, None] * H + i_h) * V + o_v[None, :], b_dv, mask=m_v)


DV = Exercise(
    id="5.8",
    name="dv_block",
    title="the gradient of the values",
    points=3,
    minutes=25,
    difficulty="hard",
    returns=("dv[t, h, v]",),
    cases=_dv_cases,
    oracle=dv_oracle,
    launch=_dv_launch,
    rtol=RTOL,
    mistakes=slipped(
        _dv_block,
        ("inside-only", "what later chunks read of a write is missing: the part that comes through dS"),
        (
            "not-transposed",
            "the matrix of the forward pass was used as it is; a gradient goes back through its transpose",
        ),
        (
            "forward-mask",
            "each write hears from the tokens before it; those that read it come after it, t >= s",
        ),
        (
            "inside-undecayed",
            "inside the chunk the gradients have another decay than exp(G_t - G_s), with t the reader and s the writer",
            "inside-reversed",
        ),
        (
            "exp-times-mask",
            "the exponential was taken of all differences and then multiplied by the mask; on the side that is "
            "masked it is infinite, and infinity times 0 is NaN: mask first, then exponentiate",
        ),
        (
            "state-undecayed",
            "the part through dS has another decay than exp(G_end - G_s): the write of s goes from its token to the "
            "chunk's end",
            "decay-from-start",
            "decay-reversed",
        ),
        (
            "dead-row-end",
            "G_end was taken from row C - 1; in a last chunk that is not full this row holds no token, and G_end is "
            "that of the last one that exists",
            "dead-row-outside",
            "dead-row-keys",
        ),
        (
            "transposed-state",
            "dS was taken for another shape; it is (chunks, H, K, V): chunk c of head h is number c * H + h, and in "
            "it entry (k, v) stands at k * V + v",
            "heads-first",
        ),
        ("axes-swapped", "axis 0 of the grid was taken for the head; it counts the chunks, and axis 1 the heads"),
        (
            "dead-readers",
            "rows behind the last token count as readers here: their G was loaded as 0, so that G_t - G_s is positive "
            "and its exponential may be infinite, and infinity times 0 is NaN; mask t < T as well as t >= s",
        ),
    ),
    hints=(
        "For the chunk's last token, dv is (q·k) do plus what dS says, undecayed. Every earlier token hears from more "
        "readers, never from those before it.",
        "Two products make two parts: writers by readers, C by C, times the incoming gradients; and keys times dS, "
        "each row with its own decay.",
        "With writers as rows the first matrix is the keys times the transposed queries, and the difference is a row "
        "of G minus a column of G, kept where the column's token is not before the row's and exists. The second decay "
        "is that of 5.4.",
        "Mask with minus infinity, exponentiate, multiply, and take the product with the incoming gradients; add the "
        "product of keys and dS, times the column of decays to the end; store with the mask of live rows and columns.",
    ),
)  # fmt: skip
