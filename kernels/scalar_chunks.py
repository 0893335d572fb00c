"""Inside the chunks where a head has one decay a token: what the walk needs, and the gradients from the states.

    P_ts = scale Γ_ts w_s (q_t·k_s), s ≤ t       Γ_ts = exp(g_{s+1} + … + g_t)       a_t = scale exp(g from the start)
    b_s = w_s exp(g to the end)                  d = exp(g of the whole chunk)

With S the state that enters a chunk, dS the gradient of the one that leaves it, and D_ts = scale Γ_ts (do_t·v_s):

    dq_t = Σ_{s≤t} D_ts w_s k_s + a_t S do_t          dk_s = w_s dk'_s,  dk'_s = Σ_{t≥s} D_ts q_t + (b_s / w_s) dS v_s
    dw_s = k_s·dk'_s                                  dg_t = Σ_{s<t≤i} P_is (do_i·v_s) + Σ_{i≥t} q_i·(a_i S do_i)
                                                             + Σ_{s<t} k_s·(b_s dS v_s) + d ⟨S, dS⟩

that is, the gradient of a step's log-decay is all that passes the step. mLSTM's normaliser is the state of a value that
is 1, and dnq_t its gradient: it adds dnq_t to each do_t·v_s, dnq_t n to S do_t and dn to dS v_s.

Every exponential is of a sum of log-decays or of a difference of two such sums. Strong decays are summed apart, in
whole numbers of base 2, which are exact in any order: with them in one sum, what follows would lose digits.

Bytes a token, head and 16-bit element, K = V = 128: ``prepare`` reads q and k and writes a row of P, 0.6 KB;
``finish`` reads q, k, v, do, P and the two states of 1 KB a token, 2.1 KB, and writes dq and dk, 0.5 KB.
"""

import torch
import triton
import triton.language as tl

from kernels.arguments import on, written_later
from kernels.sequences import chunk_of, slots
from kernels.tiles import chunk_length, chunk_tile
from kernels.walk import Prepared, Walked, precision

LOG2E = tl.constexpr(1.4426950408889634)
STRONG = tl.constexpr(-8.0)  # log-decays below are summed apart
WIPED = tl.constexpr(-200.0)  # in base 2: stands for g = −inf, since exp2 of anything below −149 is 0 in float32
NEGLIGIBLE = tl.constexpr(-16.0)  # exp of it is 1.1e-7, less than float32 resolves


@triton.jit
def restart(sum_after, cut_after, value, cut):
    """Of a scan from the end: a sum that starts afresh before every cut."""
    return tl.where(cut > 0, value, sum_after + value), tl.maximum(cut_after, cut)


@triton.jit
def _decays(g, at, live, C: tl.constexpr):
    """Of a chunk: exp of the log-decays from its start to each token, from each to its end, of all, and between two
    (readers × writers)."""
    b_G, b_H = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    if g is not None:
        b_g = tl.maximum(tl.load(g + at, mask=live, other=0.0) * LOG2E, WIPED)
        strong = tl.where(b_g < STRONG * LOG2E, tl.ceil(b_g), 0.0)
        b_G, b_H = tl.cumsum(b_g - strong, 0), tl.cumsum(strong, 0)
    last = tl.arange(0, C) == C - 1  # beyond the sequence nothing decays
    G_end, H_end = tl.sum(tl.where(last, b_G, 0.0), 0), tl.sum(tl.where(last, b_H, 0.0), 0)
    to_end = tl.exp2(tl.minimum(G_end - b_G, 0.0) + (H_end - b_H))
    between = tl.minimum(b_G[:, None] - b_G[None, :], 0.0) + (b_H[:, None] - b_H[None, :])
    return tl.exp2(b_G + b_H), to_end, tl.exp2(G_end + H_end), tl.exp2(tl.minimum(between, 0.0))


@triton.jit
def prepare(
    q, k, g, w, pairs, start, end, decays, sums, cu_seqlens, T, N, HV, scale, q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, GQ: tl.constexpr, GK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: one chunk and head."""
    pid = tl.program_id(0).to(tl.int64)
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c, o_k = tl.arange(0, C), tl.arange(0, BK)
    t = c * C + o_c
    live, at = t < length, (i_b * T + first + t) * HV + i_h
    p_q = q + i_b * q_b + first * q_t + (i_h // GQ) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (i_h // GK) * k_h + t[:, None] * k_t
    if c * C < length:
        b_A = tl.zeros((C, C), tl.float32)
        for k0 in range(0, K, BK):
            m = live[:, None] & (k0 + o_k < K)[None, :]
            b_q = tl.load(p_q + k0 + o_k[None, :], mask=m, other=0.0)
            b_k = tl.load(p_k + k0 + o_k[None, :], mask=m, other=0.0)
            b_A = tl.dot(b_q, tl.trans(b_k), b_A, input_precision=PRECISION)
        from_start, to_end, whole, between = _decays(g, at, live, C)
        b_P = tl.where(o_c[:, None] >= o_c[None, :], b_A * between, 0.0) * scale
        if w is not None:
            b_w = tl.load(w + at, mask=live, other=0.0)
            b_P *= b_w[None, :]
            to_end *= b_w
        tl.store(pairs + pid * C * C + o_c[:, None] * C + o_c[None, :], b_P.to(pairs.dtype.element_ty))
        tl.store(start + pid * C + o_c, from_start * scale)
        tl.store(end + pid * C + o_c, to_end)
        tl.store(decays + pid, whole)
        if sums is not None:
            tl.store(sums + pid * C + o_c, tl.sum(b_P, 1))


@triton.jit
def finish(
    q, k, v, do, g, w, dnq, pairs, states, norms, state_grads, norm_grads, dq, dk, dg, dw, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, do_b, do_t, do_h,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr,
    GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: dq, dk, dg and dw of one chunk and head."""
    pid = tl.program_id(0).to(tl.int64)
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    t = c * C + o_c
    live, at = t < length, (i_b * T + first + t) * HV + i_h
    p_q = q + i_b * q_b + first * q_t + (i_h // GQ) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (i_h // GK) * k_h + t[:, None] * k_t
    p_v = v + i_b * v_b + first * v_t + (i_h // GV) * v_h + t[:, None] * v_t
    p_do = do + i_b * do_b + first * do_t + i_h * do_h + t[:, None] * do_t
    if c * C < length:
        b_D, b_E = tl.zeros((C, C), tl.float32), tl.zeros((C, C), tl.float32)  # readers × writers, and transposed
        for v0 in range(0, V, BV):
            m = live[:, None] & (v0 + o_v < V)[None, :]
            b_do = tl.load(p_do + v0 + o_v[None, :], mask=m, other=0.0)
            b_v = tl.load(p_v + v0 + o_v[None, :], mask=m, other=0.0)
            b_D = tl.dot(b_do, tl.trans(b_v), b_D, input_precision=PRECISION)
            b_E = tl.dot(b_v, tl.trans(b_do), b_E, input_precision=PRECISION)
        if dnq is not None:
            b_dnq = tl.load(dnq + at, mask=live, other=0.0)
            b_D += b_dnq[:, None]
            b_E += b_dnq[None, :]
        from_start, to_end, whole, between = _decays(g, at, live, C)
        b_w = tl.full((C,), 1.0, tl.float32)
        if w is not None:
            b_w = tl.load(w + at, mask=live, other=0.0)
        passes, written = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
        if dg is not None:
            b_P = tl.load(pairs + pid * C * C + o_c[:, None] * C + o_c[None, :]).to(tl.float32)
            b_P = tl.where(o_c[:, None] > o_c[None, :], b_P * b_D, 0.0)
            passes += tl.sum(b_P, 1) - tl.sum(b_P, 0)
        seen = o_c[:, None] >= o_c[None, :]
        b_D = (tl.where(seen, b_D * between, 0.0) * (scale * b_w)[None, :]).to(q.dtype.element_ty)
        b_E = (tl.where(tl.trans(seen), b_E * tl.trans(between), 0.0) * scale).to(q.dtype.element_ty)
        through, b_dw = tl.zeros((), tl.float32), tl.zeros((C,), tl.float32)
        for k0 in range(0, K, BK):
            m_k = k0 + o_k < K
            m = live[:, None] & m_k[None, :]
            b_q = tl.load(p_q + k0 + o_k[None, :], mask=m, other=0.0)
            b_k = tl.load(p_k + k0 + o_k[None, :], mask=m, other=0.0)
            b_dq, b_dk = tl.zeros((C, BK), tl.float32), tl.zeros((C, BK), tl.float32)
            for v0 in range(0, V, BV):
                m_v = v0 + o_v < V
                b_do = tl.load(p_do + v0 + o_v[None, :], mask=live[:, None] & m_v[None, :], other=0.0)
                b_v = tl.load(p_v + v0 + o_v[None, :], mask=live[:, None] & m_v[None, :], other=0.0)
                tile = (pid * V + v0 + o_v[:, None]) * K + k0 + o_k[None, :]
                b_S = tl.load(states + tile, mask=m_v[:, None] & m_k[None, :], other=0.0)
                b_dS = tl.load(state_grads + tile, mask=m_v[:, None] & m_k[None, :], other=0.0)
                b_dq = tl.dot(b_do, b_S, b_dq, input_precision=PRECISION)
                b_dk = tl.dot(b_v, b_dS, b_dk, input_precision=PRECISION)
                if dg is not None:
                    through += tl.sum(b_S.to(tl.float32) * b_dS.to(tl.float32))
            if dnq is not None:
                b_n = tl.load(norms + pid * K + k0 + o_k, mask=m_k, other=0.0)
                b_dn = tl.load(norm_grads + pid * K + k0 + o_k, mask=m_k, other=0.0)
                b_dq += b_dnq[:, None] * b_n[None, :]
                b_dk += b_dn[None, :]
                through += tl.sum(b_n * b_dn)
            b_dq *= (from_start * scale)[:, None]
            b_dk *= to_end[:, None]
            if dg is not None:
                passes += tl.sum(b_q.to(tl.float32) * b_dq, 1)
                written += tl.sum(b_k.to(tl.float32) * b_dk, 1) * b_w
            b_dq = tl.dot(b_D, b_k, b_dq, input_precision=PRECISION)
            b_dk = tl.dot(b_E, b_q, b_dk, input_precision=PRECISION)
            if dw is not None:
                b_dw += tl.sum(b_k.to(tl.float32) * b_dk, 1)
            tl.store(dq + at[:, None] * K + k0 + o_k[None, :], b_dq.to(dq.dtype.element_ty), mask=m)
            tl.store(dk + at[:, None] * K + k0 + o_k[None, :], (b_dk * b_w[:, None]).to(dk.dtype.element_ty), mask=m)
        if dw is not None:
            tl.store(dw + at, b_dw, mask=live)
        if dg is not None:
            # Summed from the end, which leaves rounding errors of what does not pass a step: where nothing does, afresh
            cut = tl.where(tl.load(g + at, mask=live, other=0.0) < NEGLIGIBLE, 1.0, 0.0)
            passes, cut = tl.associative_scan((tl.where(cut > 0, 0.0, passes), cut), 0, restart, reverse=True)
            passes += tl.cumsum(written, 0) - written + whole * through
            tl.store(dg + at, passes, mask=live)


def prepared(q, k, g, w, scale, HV, cu_seqlens, norm=False) -> Prepared:
    """g, w (B, T, HV) float32, contiguous, or None."""
    (B, T, H, K), C = q.shape, chunk_length(q.dtype)
    N, count = B if cu_seqlens is None else len(cu_seqlens) - 1, slots(B, T, C, cu_seqlens)
    out = Prepared(
        torch.empty(count, HV, C, C, dtype=q.dtype, device=q.device),
        *(torch.empty(count, HV, *size, dtype=torch.float32, device=q.device) for size in ((), (C,), (C,))),
        torch.empty(count, HV, C, dtype=torch.float32, device=q.device) if norm else None,
    )
    with on(q):
        prepare[(count * HV,)](
            q, k, g, w, out.pairs, out.start, out.end, out.decays, out.sums, cu_seqlens, T, N, HV, scale,
            *q.stride()[:3], *k.stride()[:3], K, chunk_tile(K, q.dtype), C, HV // H, HV // k.shape[2],
            precision(q.dtype),
        )  # fmt: skip
    return out


def finished(q, k, v, do, g, w, dnq, pairs, left: Walked, right: Walked, scale, cu_seqlens, with_dg, with_dw):
    """dq, dk (B, T, HV, K), dg and dw (B, T, HV) or None; ``left`` and ``right`` have the states at each chunk."""
    (B, T, H, K), (HV, V), C = q.shape, do.shape[2:], pairs.shape[-1]
    N, BV = B if cu_seqlens is None else len(cu_seqlens) - 1, chunk_tile(V, q.dtype)
    dq, dk = (written_later(cu_seqlens, B, T, HV, K, dtype=q.dtype, device=q.device) for _ in range(2))
    dg, dw = (
        written_later(cu_seqlens, B, T, HV, dtype=torch.float32, device=q.device) if wanted else None
        for wanted in (with_dg, with_dw)
    )
    with on(q):
        finish[(len(pairs) * HV,)](
            q, k, v, do, g, w, dnq, pairs, left.states, left.norms, right.states, right.norms, dq, dk, dg, dw,
            cu_seqlens, T, N, HV, scale, *(x.stride(axis) for x in (q, k, v, do) for axis in range(3)),
            K, V, chunk_tile(K, q.dtype), BV, C, HV // H, HV // k.shape[2], HV // v.shape[2], precision(q.dtype),
            num_stages=3 if V > BV else 1,  # nothing to fetch ahead
        )  # fmt: skip
    return dq, dk, dg, dw
