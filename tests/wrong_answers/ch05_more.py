"""More wrong answers to chapter 05: one token in place (5.9). SLIP says what is wrong with each."""

# Before Triton, which reads when it is imported whether it is to interpret.
import kernels  # noqa: F401

# isort: split
import triton
import triton.language as tl

from tests.wrong_answers.ch05 import TILES, slips


@triton.jit
def decode(
    q, k, v, g, S, o, H,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    i_v, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = b * H + h
    if SLIP == "rows-inside-heads":
        n = h * tl.num_programs(2) + b
    elif SLIP == "head-of-tiles":
        n = b * H + h * tl.num_programs(0)
    elif SLIP == "row-of-tiles":
        n = b * H * tl.num_programs(0) + h
    c, d = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "tiles-of-16":
        d = i_v * 16 + tl.arange(0, 16)
    elif SLIP == "values-by-BK":
        d = i_v * BK + tl.arange(0, BK)
    m_k = c < K
    if SLIP == "narrow":
        m_k = m_k & (c < 16)
    p_S, m_S = S + (n * K + c[:, None]) * V + d[None, :], m_k[:, None] & (d < V)[None, :]
    b_q = tl.load(q + n * K + c, mask=m_k, other=0.0)
    b_k = tl.load(k + n * K + c, mask=m_k, other=0.0)
    b_v = tl.load(v + n * V + d, mask=d < V, other=0.0)
    if SLIP == "values-unmasked":
        b_v = tl.load(v + n * V + d)
    decay = tl.exp(tl.load(g + b * H + h))
    if SLIP == "base-2":
        decay = tl.exp2(tl.load(g + b * H + h))
    b_old = tl.load(p_S, mask=m_S, other=0.0)
    b_S = b_old * decay + b_k[:, None] * b_v[None, :]
    if SLIP == "keys-read":
        b_q = b_k
    elif SLIP == "overwritten":
        b_S = b_old * decay * 0.0 + b_k[:, None] * b_v[None, :]
    tl.store(o + n * V + d, tl.sum(b_S * b_q[:, None], 0), mask=d < V)
    if SLIP == "decayed-twice":
        b_S = b_S * decay
    elif SLIP == "first-tile-stored":
        m_S = m_S & (i_v == 0)
    tl.store(p_S, b_S, mask=m_S)


WRONG_ANSWERS = {
    "5.9": slips(
        decode,
        "rows-inside-heads",
        "narrow",
        "base-2",
        "keys-read",
        "overwritten",
        "decayed-twice",
        "first-tile-stored",
        *TILES[:3],
        "tiles-of-16",
        "head-of-tiles",
        "row-of-tiles",
        strays=("values-unmasked",),
    ),
}
