"""One decay a head and token, token by token: what decoding runs.

    S_t = exp(g_t) S_{t-1} + w_t k_t v_tᵀ        o_t = scale S_tᵀ q_t

One program holds a tile of values of one state; it reads it once, takes the tokens one after another and
writes it once. For a single token the bytes are those of the state, read and written: everything else is small.
"""

import torch
import triton
import triton.language as tl

from kernels.arguments import on
from kernels.sequences import tokens_of
from kernels.tiles import recur_tiles


@triton.jit
def recur(
    q, k, v, g, w, s_in, o, s_out, cu_seqlens,
    B, T, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One program: one sequence and head, BV values, token by token; the state is read and written once."""
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0)
    i_v, i_nh = pid % NV, (pid // NV).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    tile, m_tile = i_nh * K * V + o_k[:, None] * s_k + o_v[None, :] * s_v, m_k[:, None] & m_v[None, :]
    b_S = tl.zeros((BK, BV), tl.float32)
    if s_in is not None:
        b_S += tl.load(s_in + tile, mask=m_tile, other=0.0)
    for t in range(first, first + length):
        token = (i_b * T + t) * HV + i_h
        b_k = tl.load(k + i_b * k_b + t * k_t + (i_h // GROUP) * k_h + o_k, mask=m_k, other=0.0).to(tl.float32)
        b_q = tl.load(q + i_b * q_b + t * q_t + (i_h // GROUP) * q_h + o_k, mask=m_k, other=0.0).to(tl.float32) * scale
        b_v = tl.load(v + i_b * v_b + t * v_t + i_h * v_h + o_v, mask=m_v, other=0.0).to(tl.float32)
        if w is not None:
            b_v *= tl.load(w + token)
        if g is not None:
            b_S *= tl.exp(tl.load(g + token))
        b_S += b_k[:, None] * b_v[None, :]
        b_o = tl.sum(b_S * b_q[:, None], 0)
        tl.store(o + token * V + o_v, b_o.to(o.dtype.element_ty), mask=m_v)
    if s_out is not None:
        tl.store(s_out + tile, b_S, mask=m_tile)


def run(q, k, v, g, w=None, *, scale, s_in=None, s_out=None, s_strides=(), cu_seqlens=None):
    """The outputs (B, T, HV, V); arguments as for :func:`kernels.scalar_walk.run`. s_in may be s_out."""
    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    o = torch.empty(B, T, HV, V, dtype=v.dtype, device=v.device)
    BV, warps = recur_tiles(N * HV, V)
    strides = [x.stride(axis) for x in (q, k, v) for axis in range(3)]
    s_k, s_v = s_strides or (V, 1)
    with on(v):
        recur[(N * HV * triton.cdiv(V, BV),)](
            q, k, v, g, w, s_in, o, s_out, cu_seqlens, B, T, HV, scale, *strides, s_k, s_v,
            K, V, triton.next_power_of_2(K), BV, HV // H, num_warps=warps,
        )  # fmt: skip
    return o
