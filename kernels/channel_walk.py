"""The walk over chunks where each key channel has its own decay: GLA.

Inside the chunks everything has been prepared (:mod:`kernels.channel_chunks`), so that one step is three products:

    o = q S + P v          S ← diag(d) S + kᵀ v

with q and k already decayed towards the chunk's start and end, P (C, C) what its tokens read of each other and d
(K,) its whole decay. The gradients are three more walks of the same kernel, two with time reversed; in two of them
the decayed channels are on the side of the values:

    dq = do Sᵀ           query do, key v,  value k
    dk = v dSᵀ           query v,  key do, value q,  reversed
    dv = k dS + Pᵀ do    query k,  key q,  value do, reversed

Bytes of one walk: the four tensors once, P once, and the state of each segment; see :mod:`kernels.scalar_walk`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels import tiles as table
from kernels.arguments import on, written_later
from kernels.scalar_walk import precision
from kernels.sequences import slot_of, tokens_of


@triton.jit
def walk(
    q, k, v, decays, pairs, pair_grads, x, sums, anchors, s_in, local, total, o, s_out, cu_seqlens,
    T, HV, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, SEGMENTS: tl.constexpr,
    EVERY: tl.constexpr, GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, ON_VALUES: tl.constexpr,
    REVERSE: tl.constexpr, READ: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: a segment of one sequence and head, BV values. READ: write o; otherwise only the state.

    ON_VALUES: the decays are those of the values' channels, else of the keys'. ``pair_grads``: q kᵀ of each chunk is
    written there. With x, Σ_t x_t ⊙ o_t of each chunk goes to ``sums``, and the state at every border to ``anchors``.
    What the final state has of the last token's write passes no step: it is left out of both states and of the sums.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0)
    i_v, i_s = pid % NV, (pid // NV) % SEGMENTS
    i_nh = (pid // (NV * SEGMENTS)).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    p_q = q + i_b * q_b + first * q_t + (i_h // GQ) * q_h + o_k[None, :]
    p_k = k + i_b * k_b + first * k_t + (i_h // GK) * k_h + o_k[None, :]
    p_v = v + i_b * v_b + first * v_t + (i_h // GV) * v_h + o_v[:, None]
    token, slot = (i_b * T + first) * HV + i_h, slot_of(i_n, i_b, first, T, C, cu_seqlens)
    D: tl.constexpr = V if ON_VALUES else K
    o_d, m_d = (o_v, m_v) if ON_VALUES else (o_k, m_k)
    tile = i_nh * K * V + o_k[None, :] * s_k + o_v[:, None] * s_v
    scratch = o_v[:, None] * K + o_k[None, :]
    m_tile = m_k[None, :] & m_v[:, None]

    b_S = tl.zeros((BV, BK), tl.float32)
    if READ and s_in is not None:
        b_S += tl.load(s_in + tile, mask=m_tile, other=0.0)
    if READ and SEGMENTS > 1:
        for s in range(0, i_s):
            left = i_nh * SEGMENTS + s
            b_d = tl.load(total + left * D + o_d, mask=m_d, other=0.0)
            b_S = _decay(b_S, b_d, ON_VALUES) + tl.load(local + left * K * V + scratch, mask=m_tile, other=0.0)

    n = tl.cdiv(length, C)
    per = tl.cdiv(n, SEGMENTS)
    kept = tl.full((BV if ON_VALUES else BK,), 1.0, tl.float32)
    for step in tl.range(i_s * per, tl.minimum((i_s + 1) * per, n), num_stages=STAGES):
        c = n - 1 - step if REVERSE else step
        t = (c * C + o_c).to(tl.int64)
        live = t < length
        chunk = (slot + c) * HV + i_h
        if READ and anchors is not None:
            border = (c + 1) * C
            at_border = (border % EVERY == 0) & (border < length)
            place = (i_b * HV + i_h) * (T // EVERY + 1) + (first + border) // EVERY
            if REVERSE:
                tl.store(anchors + place * K * V + scratch, b_S, mask=m_tile & at_border)
        b_k = tl.load(p_k + t[:, None] * k_t, mask=live[:, None] & m_k[None, :], other=0.0)
        wrote = t < length - 1 if x is not None and not REVERSE else live
        b_v = tl.load(p_v + t[None, :] * v_t, mask=wrote[None, :] & m_v[:, None], other=0.0)
        b_d = tl.load(decays + chunk * D + o_d, mask=m_d, other=0.0)
        if READ:
            b_q = tl.load(p_q + t[:, None] * q_t, mask=live[:, None] & m_k[None, :], other=0.0)
            b_o = tl.dot(b_S.to(b_q.dtype), tl.trans(b_q), input_precision=PRECISION)
            if pairs is not None:  # P[t, s] as writers × readers; above its diagonal nothing has been written
                row, column = (o_c[:, None], o_c[None, :]) if REVERSE else (o_c[None, :], o_c[:, None])
                p_pairs = pairs + (token + (c * C + row).to(tl.int64) * HV) * C + column
                b_P = tl.load(p_pairs, mask=(column <= row) & (c * C + row < length), other=0.0)
                b_o = tl.dot(b_v, b_P, b_o, input_precision=PRECISION)
            if pair_grads is not None:
                b_A = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
                p_A = pair_grads + (token + t[:, None] * HV) * C + o_c[None, :]
                m_A = live[:, None] & live[None, :] & (i_v == 0)
                tl.store(p_A, b_A.to(pair_grads.dtype.element_ty), mask=m_A)
            o_at = (token + t[None, :] * HV) * V + o_v[:, None]
            if x is not None:
                counted = t < length - 1 if REVERSE else live
                b_x = tl.load(x + o_at, mask=counted[None, :] & m_v[:, None], other=0.0).to(tl.float32)
                tl.store(sums + chunk * V + o_v, tl.sum(b_x * b_o, 1), mask=m_v)
            tl.store(o + o_at, b_o.to(o.dtype.element_ty), mask=live[None, :] & m_v[:, None])
        b_S = tl.dot(b_v, b_k, _decay(b_S, b_d, ON_VALUES), input_precision=PRECISION)
        if READ and anchors is not None and not REVERSE:
            tl.store(anchors + place * K * V + scratch, b_S, mask=m_tile & at_border)
        kept *= b_d

    left = i_nh * SEGMENTS + i_s
    if READ:
        if s_out is not None:
            tl.store(s_out + tile, b_S, mask=m_tile & (i_s == SEGMENTS - 1))
    else:
        tl.store(local + left * K * V + scratch, b_S, mask=m_tile)
        if ON_VALUES or i_v == 0:
            tl.store(total + left * D + o_d, kept, mask=m_d)


@triton.jit
def _decay(b_S, b_d, ON_VALUES: tl.constexpr):
    """The state's tile, values × keys, times the decays of one of its sides."""
    return b_S * b_d[:, None] if ON_VALUES else b_S * b_d[None, :]


class Walked(NamedTuple):
    """o (B, T, HV, V); on request, per chunk, Σ_t x_t ⊙ o_t (slots, HV, V), with the states at the borders
    (B, HV, borders, V, K)."""

    o: torch.Tensor
    sums: torch.Tensor | None = None
    states: torch.Tensor | None = None


def run(
    q, k, v, decays, C, *, on_values=False, pairs=None, pair_grads=None, x=None, s_in=None, s_out=None, s_strides=(),
    cu_seqlens=None, reverse=False,
) -> Walked:  # fmt: skip
    """One walk with the tensors in their places: allocate, launch.

    q, k (B, T, ·, K), v (B, T, ·, V), their heads divide the most that any has, HV; ``decays`` (slots, HV, K), or
    (slots, HV, V) ``on_values``; ``pairs`` and ``pair_grads`` (B, T, HV, C); s_in, s_out (N, HV, …) float32,
    contiguous, ``s_strides`` for a key and a value apart. x (B, T, HV, V) asks for the sums and border states.
    """
    (B, T, _, K), V = q.shape, v.shape[-1]
    HV = decays.shape[1]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    tiles = table.walk_tiles(N * HV, T if cu_seqlens is None else -(-T // N), K, V, v.dtype, "channel_walk")
    NV = triton.cdiv(V, tiles.BV)

    def scratch(*shape):
        return torch.empty(shape, dtype=torch.float32, device=v.device)

    out = Walked(written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device))
    if x is not None:
        out = Walked(out.o, scratch(len(decays), HV, V), scratch(B, HV, T // table.BORDERS + 1, V, K))
    local = total = None
    if tiles.SEGMENTS > 1:
        local = scratch(N * HV, tiles.SEGMENTS, V, K)
        total = scratch(N * HV, tiles.SEGMENTS, V if on_values else K)
    strides = [y.stride(axis) for y in (q, k, v) for axis in range(3)]
    groups = [HV // y.shape[2] for y in (q, k, v)]
    s_k, s_v = s_strides or (V, 1)
    for read in [False, True] if tiles.SEGMENTS > 1 else [True]:
        with on(v):
            walk[(N * HV * tiles.SEGMENTS * NV,)](
                q, k, v, decays, pairs, pair_grads, x, out.sums, out.states, s_in, local, total, out.o, s_out,
                cu_seqlens, T, HV, *strides, s_k, s_v,
                K, V, tiles.BK, tiles.BV, C, tiles.SEGMENTS, table.BORDERS, *groups,
                on_values, reverse, read, tiles.STAGES, precision(v.dtype), num_warps=tiles.WARPS,
            )  # fmt: skip
    return out
