"""The rules that correct, token by token: what decoding runs.

    S̄ = exp(g_t) S_{t-1}        S_t = S̄ + k_t (w_t v_t − S̄ᵀ (b_t k_t))ᵀ        o_t = scale S_tᵀ q_t

One program holds a tile of values of one state; it reads it once, takes the tokens one after another and writes it
once. For a single token the bytes are those of the state, read and written: everything else is small.
"""

import triton
import triton.language as tl

from kernels.arguments import on, written_later
from kernels.numerics import LOG2E, in_two
from kernels.sequences import tokens_of
from kernels.tiles import recur_tiles


@triton.jit
def recur(
    q, k, v, g, b, w, s_in, o, s_out, cu_seqlens, T, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GROUP: tl.constexpr,
    GK: tl.constexpr, EK: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """One program: one sequence and head, BV values. g, b and w have GK, EK and WV numbers a head and token."""
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
    for step in range(length):
        t = first + step
        token = (i_b * T + t) * HV + i_h
        b_k = tl.load(k + i_b * k_b + t * k_t + (i_h // GROUP) * k_h + o_k, mask=m_k, other=0.0).to(tl.float32)
        b_q = tl.load(q + i_b * q_b + t * q_t + (i_h // GROUP) * q_h + o_k, mask=m_k, other=0.0).to(tl.float32)
        b_v = tl.load(v + i_b * v_b + t * v_t + i_h * v_h + o_v, mask=m_v, other=0.0).to(tl.float32)
        b_e = b_k * tl.load(b + token * EK + (o_k if EK > 1 else o_k * 0), mask=m_k, other=0.0).to(tl.float32)
        b_v *= tl.load(w + token * WV + (o_v if WV > 1 else o_v * 0), mask=m_v, other=0.0).to(tl.float32)
        if g is not None:
            whole, part = in_two(tl.load(g + token * GK + (o_k if GK > 1 else o_k * 0), mask=m_k, other=0.0) * LOG2E)
            b_S = b_S * whole[:, None] + b_S * part[:, None]
        b_v -= tl.sum(b_S * b_e[:, None], 0)
        b_S += b_k[:, None] * b_v[None, :]
        tl.store(o + token * V + o_v, (tl.sum(b_S * b_q[:, None], 0) * scale).to(o.dtype.element_ty), mask=m_v)
    if s_out is not None:
        tl.store(s_out + tile, b_S, mask=m_tile)


def run(q, k, v, g, b, w, *, scale, s_in=None, s_out=None, s_strides=(), cu_seqlens=None):
    """The outputs (B, T, HV, V); g (B, T, HV), (B, T, HV, K) or None, b (B, T, HV) or (B, T, HV, K), w (B, T, HV) or
    (B, T, HV, V), None: b, contiguous. s_in may be s_out. Else as :func:`kernels.walk.run`."""
    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    N, w = B if cu_seqlens is None else len(cu_seqlens) - 1, b if w is None else w
    o = written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device)
    BV, warps = recur_tiles(N * HV, V, correcting=True)
    strides = [x.stride(axis) for x in (q, k, v) for axis in range(3)]
    s_k, s_v = s_strides or (V, 1)
    with on(v):
        recur[(N * HV * triton.cdiv(V, BV),)](
            q, k, v, g, b, w, s_in, o, s_out, cu_seqlens, T, HV, scale, *strides, s_k, s_v,
            K, V, triton.next_power_of_2(K), BV, HV // H, K if g is not None and g.ndim == 4 else 1,
            K if b.ndim == 4 else 1, V if w.ndim == 4 else 1, num_warps=warps,
        )  # fmt: skip
    return o
