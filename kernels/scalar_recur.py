"""Token by token, with one decay a head or one a key channel: what decoding runs.

    S_t = exp(g_t) S_{t-1} + w_t k_t v_tᵀ        o_t = scale S_tᵀ q_t

One program holds a tile of values of one state; it reads it once, takes the tokens one after another and
writes it once. For a single token the bytes are those of the state, read and written: everything else is small.
With mLSTM's gates i and f the program works out g, w and the stabiliser m itself and keeps the normaliser n beside
S, as in :mod:`kernels.mlstm`.
"""

import triton
import triton.language as tl

from kernels.arguments import on, written_later
from kernels.numerics import LOG2E, in_two, log_sigmoid
from kernels.sequences import tokens_of
from kernels.tiles import recur_tiles

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the stabiliser of an empty state: −inf would leave inf − inf


@triton.jit
def carry(m, rest, log_f):
    """log f + m, and what its rounding lost: ``rest`` for the next step, or equal steps would all err alike."""
    step = log_f + rest
    carried = m + step
    return carried, step - (tl.maximum(carried, LOWEST) - m)


@triton.jit
def recur(
    q, k, v, g, w, i, f, s_in, n_in, m_in, o, lost, nq, s_out, n_out, m_out, cu_seqlens,
    B, T, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GROUP: tl.constexpr,
    CHANNELS: tl.constexpr,
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
    b_n, m, rest = tl.zeros((BK,), tl.float32), tl.full((), LOWEST, tl.float32), tl.zeros((), tl.float32)
    if n_in is not None:
        b_n += tl.load(n_in + i_nh * K + o_k, mask=m_k, other=0.0)
    if m_in is not None:
        m = tl.maximum(tl.load(m_in + i_nh), m)
    for step in range(length):
        t = first + step
        token = (i_b * T + t) * HV + i_h
        b_k = tl.load(k + i_b * k_b + t * k_t + (i_h // GROUP) * k_h + o_k, mask=m_k, other=0.0).to(tl.float32)
        b_q = tl.load(q + i_b * q_b + t * q_t + (i_h // GROUP) * q_h + o_k, mask=m_k, other=0.0).to(tl.float32) * scale
        b_v = tl.load(v + i_b * v_b + t * v_t + i_h * v_h + o_v, mask=m_v, other=0.0).to(tl.float32)
        if w is not None:
            b_v *= tl.load(w + token)
        if i is not None:
            b_i = tl.load(i + token).to(tl.float32)
            log_f = log_sigmoid(tl.load(f + token).to(tl.float32))
            carried, left = carry(m, rest, log_f)
            new = tl.maximum(tl.maximum(carried, b_i), LOWEST)
            rest = tl.where(carried > b_i, left, 0.0)
            whole, part = in_two(tl.maximum(log_f + (m - new), -1e4) * LOG2E)
            m, write = new, tl.exp(b_i - new)
            b_n = b_n * whole + (b_n * part + b_k * write)
            b_v *= write
        b_kv = b_k[:, None] * b_v[None, :]
        if CHANNELS:
            whole, part = in_two(tl.load(g + token * K + o_k, mask=m_k, other=0.0) * LOG2E)
            whole, part = whole[:, None], part[:, None]  # only now: each is needed by one thread, not by all of a row
        elif g is not None:
            whole, part = in_two(tl.load(g + token) * LOG2E)
        if g is None and i is None:
            b_S += b_kv
        else:
            b_S = b_S * whole + (b_S * part + b_kv)
        b_o = tl.sum(b_S * b_q[:, None], 0)
        if i is not None:
            b_nq = tl.sum(b_n * b_q, 0)
            b_o /= tl.maximum(tl.abs(b_nq), tl.exp(tl.maximum(-m, -87.0)))
            tl.store(nq + token, b_nq, mask=i_v == 0)
        rounded = b_o.to(o.dtype.element_ty)
        tl.store(o + token * V + o_v, rounded, mask=m_v)
        if lost is not None:
            tl.store(lost + token * V + o_v, (b_o - rounded.to(tl.float32)).to(rounded.dtype), mask=m_v)
    if s_out is not None:
        tl.store(s_out + tile, b_S, mask=m_tile)
    if n_out is not None:
        tl.store(n_out + i_nh * K + o_k, b_n, mask=m_k & (i_v == 0))
    if m_out is not None:
        tl.store(m_out + i_nh, m, mask=i_v == 0)


def run(
    q, k, v, g, w=None, *, scale, s_in=None, s_out=None, s_strides=(), cu_seqlens=None,
    i=None, f=None, n_in=None, m_in=None, nq=None, n_out=None, m_out=None, lost=None,
):  # fmt: skip
    """The outputs (B, T, HV, V); arguments as for :func:`kernels.walk.run`, g also (B, T, HV, K).

    s_in may be s_out. mLSTM has i, f (B, T, HV), contiguous, in place of g and w; nq (B, T, HV) and, unless None,
    ``lost``, what rounding takes from o, to be written; and n and m before and after, (N, HV, K) and (N, HV): not the
    same tensors, because every tile of values reads them.
    """
    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    o = written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device)
    BV, warps = recur_tiles(N * HV, V)
    strides = [x.stride(axis) for x in (q, k, v) for axis in range(3)]
    s_k, s_v = s_strides or (V, 1)
    with on(v):
        recur[(N * HV * triton.cdiv(V, BV),)](
            q, k, v, g, w, i, f, s_in, n_in, m_in, o, lost, nq, s_out, n_out, m_out, cu_seqlens, B, T, HV, scale,
            *strides, s_k, s_v, K, V, triton.next_power_of_2(K), BV, HV // H, g is not None and g.ndim == 4,
            num_warps=warps,
        )  # fmt: skip
    return o
