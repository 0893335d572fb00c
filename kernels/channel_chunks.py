"""Inside the chunks where each key channel has its own decay: what the walks need, and the gradients they leave over.

    P_ts = scale Σ_i q_ti k_si exp(g_{s+1,i} + … + g_ti),  s ≤ t           within a chunk
    qd_t = scale q_t ⊙ exp(g from the chunk's start to t)     kd_s = k_s ⊙ exp(g after s to the chunk's end)

A chunk is cut into blocks of R = 16 rows. Between two blocks the exponential splits at the later one's start, and
every factor is at most 1. Within a block it splits at the middle, exp(L_t − M) exp(M − L_s), where no channel decays
by more than 2^64 on the way; elsewhere (a reset, say) column by column. Distances are sums of log-decays, all of one
sign, never differences of long sums: exact next to a reset, and in float32.

Bytes a token, head and 16-bit element, K = V = 128: ``prepare`` reads q, k and the float32 g, 1 KB, and writes qd,
kd and a row of P, 0.6 KB; ``finish`` reads q, k, g, their two unfinished gradients and a row of dP, 1.7 KB, and
writes dq, dk and the float32 dg, 1 KB.
"""

import torch
import triton
import triton.language as tl

from kernels import tiles as table
from kernels.arguments import on, written_later
from kernels.scalar_walk import LOG2E, NEGLIGIBLE, WIPED, precision, restart
from kernels.sequences import chunk_of, slot_of, slots

R = 16  # rows of a block
MILD = tl.constexpr(64.0)  # 2^64 and 2^-64 leave float32 room for the numbers they multiply
FAINT = tl.constexpr(2.0**-23)  # a decay below leaves nothing that float32 resolves


@triton.jit
def _rows(p, t, length, stride, m_k):
    """Rows t of a tensor, float32, 0 beyond the sequence."""
    return tl.load(p + t[:, None] * stride, mask=(t < length)[:, None] & m_k[None, :], other=0.0).to(tl.float32)


@triton.jit
def _log2_decays(p, t, here, stride, m_k):
    """Rows t of g where ``here``, else 0; in base 2."""
    b_g = tl.load(p + t[:, None] * stride, mask=here[:, None] & m_k[None, :], other=0.0)
    return tl.maximum(b_g * LOG2E, WIPED)


@triton.jit
def _from_block(p_q, p_g, t0, length, q_t, g_t, m_k, R: tl.constexpr):
    """Rows t0 … t0 + R − 1, decayed from before the first to each; and the whole decay of these rows."""
    t = t0 + tl.arange(0, R)
    b_g = _log2_decays(p_g, t, t < length, g_t, m_k)
    return _rows(p_q, t, length, q_t, m_k) * tl.exp2(tl.cumsum(b_g, 0)), tl.sum(b_g, 0)


@triton.jit
def _to_block(p_k, p_g, t0, length, k_t, g_t, m_k, R: tl.constexpr):
    """Rows t0 … t0 + R − 1, decayed from after each to the last; and the whole decay of these rows."""
    o_r = tl.arange(0, R)
    t = t0 + o_r
    after = tl.cumsum(_log2_decays(p_g, t + 1, (o_r < R - 1) & (t + 1 < length), g_t, m_k), 0, reverse=True)
    whole = tl.sum(_log2_decays(p_g, t, t < length, g_t, m_k), 0)
    return _rows(p_k, t, length, k_t, m_k) * tl.exp2(after), whole


@triton.jit
def _middle(b_g, R: tl.constexpr):
    """Of a block's log-decays: (their sums L to each row, L at the middle, whether exp(L − M) and exp(M − L) fit)."""
    L = tl.cumsum(b_g, 0)
    M = tl.sum(tl.where(tl.arange(0, R)[:, None] < R // 2, b_g, 0.0), 0)
    end = tl.sum(b_g, 0)
    return L, M, tl.max(tl.maximum(-M, M - end), 0) <= MILD


@triton.jit
def _column_by_column(p_q, p_k, p_g, t0, length, q_t, k_t, g_t, K: tl.constexpr, R: tl.constexpr):
    """P / scale of one block, however strong its decays; 32 channels at a time, to need few registers."""
    o_r, o_i = tl.arange(0, R), tl.arange(0, 32)
    b_A = tl.zeros((R, R), tl.float32)
    for i0 in range(0, K, 32):
        m_i = i0 + o_i < K
        b_q = _rows(p_q + i0 + o_i[None, :], t0 + o_r, length, q_t, m_i)
        D = tl.zeros((R, 32), tl.float32)  # from after row s to each later row
        for i in range(R):
            s = R - 1 - i
            seen, m_s = o_r[:, None] >= s, m_i & (t0 + s < length)
            k_s = tl.load(p_k + (t0 + s) * k_t + i0 + o_i, mask=m_s, other=0.0).to(tl.float32)
            column = tl.sum(tl.where(seen, b_q * tl.exp2(D) * k_s[None, :], 0.0), 1)
            b_A += tl.where(o_r[None, :] == s, column[:, None], 0.0)
            g_s = tl.load(p_g + (t0 + s) * g_t + i0 + o_i, mask=m_s, other=0.0)
            D += tl.where(seen, tl.maximum(g_s * LOG2E, WIPED)[None, :], 0.0)
    return b_A


@triton.jit
def prepare(
    q, k, g, q_decayed, k_decayed, pairs, decays, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, R: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: one chunk and head. Its blocks from the last to the first; above P's diagonal nothing is written."""
    pid = tl.program_id(0).to(tl.int64)
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    # 2^±64 is beyond float16's range, not bfloat16's; TF32 would cut float16's products short, not round them
    WIDE: tl.constexpr = tl.bfloat16 if q.dtype.element_ty == tl.bfloat16 else tl.float32
    EXACT: tl.constexpr = "tf32x3" if q.dtype.element_ty == tl.float16 else PRECISION
    o_r, o_k = tl.arange(0, R), tl.arange(0, BK)
    m_k = o_k < K
    p_q = q + i_b * q_b + first * q_t + (i_h // GROUP) * q_h
    p_k = k + i_b * k_b + first * k_t + (i_h // GROUP) * k_h
    token, g_t = (i_b * T + first) * HV + i_h, HV * K
    p_g = g + token * K
    later = tl.zeros((BK,), tl.float32)
    if c * C < length:
        for j in range(C // R):
            t0 = c * C + C - R - j * R
            t = t0 + o_r
            live = t < length
            m = live[:, None] & m_k[None, :]
            at = (token + t[:, None] * HV) * K + o_k[None, :]
            p_pairs = pairs + (token + t[:, None] * HV) * C
            b_q, b_k = (
                _rows(p_q + o_k[None, :], t, length, q_t, m_k) * scale,
                _rows(p_k + o_k[None, :], t, length, k_t, m_k),
            )
            b_g = _log2_decays(p_g + o_k[None, :], t, live, g_t, m_k)
            L, M, mild = _middle(b_g, R)
            if mild:
                q_M, k_M = (b_q * tl.exp2(L - M)).to(WIDE), (b_k * tl.exp2(M - L)).to(WIDE)
                b_A = tl.dot(q_M, tl.trans(k_M), input_precision=EXACT)
            else:
                b_A = _column_by_column(p_q, p_k, p_g, t0, length, q_t, k_t, g_t, K, R) * scale
            b_A = tl.where(o_r[:, None] >= o_r[None, :], b_A, 0.0)
            tl.store(p_pairs + t0 - c * C + o_r[None, :], b_A.to(pairs.dtype.element_ty), mask=live[:, None])
            b_q *= tl.exp2(L)
            earlier = tl.zeros((BK,), tl.float32)
            for i in range(C // R - 1 - j):
                s0 = t0 - R - i * R
                k_s, whole = _to_block(p_k + o_k[None, :], p_g + o_k[None, :], s0, length, k_t, g_t, m_k, R)
                k_s = (k_s * tl.exp2(earlier)).to(k.dtype.element_ty)
                b_P = tl.dot(b_q.to(k.dtype.element_ty), tl.trans(k_s), input_precision=PRECISION)
                tl.store(p_pairs + s0 - c * C + o_r[None, :], b_P.to(pairs.dtype.element_ty), mask=live[:, None])
                earlier += whole
            tl.store(q_decayed + at, (b_q * tl.exp2(earlier)[None, :]).to(q_decayed.dtype.element_ty), mask=m)
            k_s, whole = _to_block(p_k + o_k[None, :], p_g + o_k[None, :], t0, length, k_t, g_t, m_k, R)
            tl.store(k_decayed + at, (k_s * tl.exp2(later)[None, :]).to(k_decayed.dtype.element_ty), mask=m)
            later += whole
        tl.store(decays + (slot * HV + i_h) * K + o_k, tl.exp2(later), mask=m_k)


@triton.jit
def passing(
    reads, writes, decays, read_anchors, write_anchors, last, passes, cu_seqlens, T, N, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """⟨S, dS⟩ of each channel at each chunk's end: what passes it. One program: EVERY tokens of one sequence and head.

    From one chunk's end to the one before: what its tokens read of earlier writes is added, what is read later of
    its own writes is taken away. At borders, and where nothing passes the chunk, the sum starts afresh.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_n, i_b, first, length, i_e = chunk_of(pid // HV, N, T, EVERY, cu_seqlens)
    slot = slot_of(i_n, i_b, first, T, C, cu_seqlens)
    o_k, o_v = tl.arange(0, BK), tl.arange(0, BV)
    m_k = o_k < K
    after, border = tl.zeros((BK,), tl.float32), (i_e + 1) * EVERY
    if border < length:
        place = (i_b * HV + i_h) * (T // EVERY + 1) + (first + border) // EVERY
        for v0 in range(0, V, BV):
            m = m_k[:, None] & (v0 + o_v < V)[None, :]
            b_S = tl.load(read_anchors + place * K * V + o_k[:, None] * V + v0 + o_v[None, :], mask=m, other=0.0)
            b_dS = tl.load(write_anchors + place * K * V + o_k[:, None] * V + v0 + o_v[None, :], mask=m, other=0.0)
            after += tl.sum(b_S * b_dS, 1)
    elif last is not None:
        after += tl.load(last + (i_n * HV + i_h) * K + o_k, mask=m_k, other=0.0)
    begin, end = i_e * EVERY // C, tl.cdiv(tl.minimum(border, length), C)
    for i in range(0, end - begin):
        at = ((slot + end - 1 - i) * HV + i_h) * K + o_k
        tl.store(passes + at, after, mask=m_k)
        read = tl.load(reads + at, mask=m_k, other=0.0)
        whole = tl.load(decays + at, mask=m_k, other=0.0)
        after = tl.where(whole < FAINT, read, after + read - tl.load(writes + at, mask=m_k, other=0.0))


@triton.jit
def finish(
    q, k, g, pair_grads, q_grads, k_grads, passes, dq, dk, dg, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, R: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq, dk and dg of one chunk, head and BK channels, from dP = do vᵀ and the gradients of the decayed q and k.

    dg_t = Σ_{i≥t} (q_i ⊙ dq_i − k_i ⊙ dk_i) within the chunk, and what passes its end. A token's read of its own
    write is in both products and passes no step: it is left out of both.
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64) // NK
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    # 2^±64 is beyond float16's range, not bfloat16's; TF32 would cut float16's products short, not round them
    WIDE: tl.constexpr = tl.bfloat16 if q.dtype.element_ty == tl.bfloat16 else tl.float32
    EXACT: tl.constexpr = "tf32x3" if q.dtype.element_ty == tl.float16 else PRECISION
    o_r, o_k = tl.arange(0, R), tl.program_id(0) % NK * BK + tl.arange(0, BK)
    m_k = o_k < K
    p_q = q + i_b * q_b + first * q_t + (i_h // GROUP) * q_h + o_k[None, :]
    p_k = k + i_b * k_b + first * k_t + (i_h // GROUP) * k_h + o_k[None, :]
    token, g_t = (i_b * T + first) * HV + i_h, HV * K
    p_g, p_A = g + token * K + o_k[None, :], pair_grads + token * C - c * C
    p_gq, p_gk = q_grads + token * K + o_k[None, :], k_grads + token * K + o_k[None, :]
    after = tl.zeros((BK,), tl.float32)
    if passes is not None:
        after += tl.load(passes + (slot * HV + i_h) * K + o_k, mask=m_k & (c * C < length), other=0.0)
    if c * C < length:
        for j in range(C // R):
            t0 = c * C + C - R - j * R
            t = t0 + o_r
            live = t < length
            m = live[:, None] & m_k[None, :]
            at = (token + t[:, None] * HV) * K + o_k[None, :]
            b_q, b_k = _rows(p_q, t, length, q_t, m_k) * scale, _rows(p_k, t, length, k_t, m_k)
            b_g = _log2_decays(p_g, t, live, g_t, m_k)
            L, M, mild = _middle(b_g, R)
            # rows of P are readers t; here those of this block, then its columns
            earlier, later = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)
            b_dq, b_dk = tl.zeros((R, BK), tl.float32), tl.zeros((R, BK), tl.float32)
            for i in range(C // R - 1 - j):
                s0 = t0 - R - i * R
                b_dP = tl.load(p_A + t[:, None] * HV * C + s0 + o_r[None, :], mask=live[:, None], other=0.0)
                k_s, whole = _to_block(p_k, p_g, s0, length, k_t, g_t, m_k, R)
                k_s = (k_s * tl.exp2(earlier)).to(b_dP.dtype)
                b_dq = tl.dot(b_dP, k_s, b_dq, input_precision=PRECISION)
                earlier += whole
            for i in range(j):
                r0 = t0 + R + i * R
                m_dP = live[:, None] & (r0 + o_r < length)[None, :]
                b_dP = tl.load(p_A + (r0 + o_r)[None, :] * HV * C + t[:, None], mask=m_dP, other=0.0)
                q_r, whole = _from_block(p_q, p_g, r0, length, q_t, g_t, m_k, R)
                q_r = (q_r * (scale * tl.exp2(later))).to(b_dP.dtype)
                b_dk = tl.dot(b_dP, q_r, b_dk, input_precision=PRECISION)
                later += whole
            b_g1 = _log2_decays(p_g, t + 1, (o_r < R - 1) & (t + 1 < length), g_t, m_k)
            to_end = tl.exp2(tl.cumsum(b_g1, 0, reverse=True))
            b_dq += _rows(p_gq, t, length, g_t, m_k) * tl.exp2(earlier)
            b_dq *= tl.exp2(L)
            left = _rows(p_gk, t, length, g_t, m_k) * tl.exp2(later) * to_end  # read from the state that leaves
            b_dk *= to_end
            own = tl.load(p_A + t * HV * C + t, mask=live, other=0.0).to(tl.float32)[:, None]
            if mild:
                p_own = p_A + t[:, None] * HV * C + t[None, :]
                below = (o_r[:, None] > o_r[None, :]) & live[:, None]
                b_dP = tl.load(p_own, mask=below, other=0.0).to(WIDE)
                k_M = (b_k * tl.exp2(M - L)).to(WIDE)
                b_dq += tl.exp2(L - M) * tl.dot(b_dP, k_M, input_precision=EXACT)
                p_own = p_A + t[None, :] * HV * C + t[:, None]
                above = (o_r[:, None] < o_r[None, :]) & live[None, :]
                b_dP = tl.load(p_own, mask=above, other=0.0).to(WIDE)
                q_M = (b_q * tl.exp2(L - M)).to(WIDE)
                b_dk += tl.exp2(M - L) * tl.dot(b_dP, q_M, input_precision=EXACT)
            else:
                D = tl.zeros((R, BK), tl.float32)  # from after row s to each later row
                for i in range(R):
                    s = R - 1 - i
                    m_s = m_k & (t0 + s < length)
                    k_s = tl.load(p_k + (t0 + s) * k_t, mask=m_s[None, :], other=0.0).to(tl.float32)
                    column = tl.load(p_A + t * HV * C + t0 + s, mask=live & (o_r > s), other=0.0).to(tl.float32)
                    b_dq += column[:, None] * tl.exp2(D) * k_s
                    g_s = tl.load(p_g + (t0 + s) * g_t, mask=m_s[None, :], other=0.0)
                    D += tl.where(o_r[:, None] >= s, tl.maximum(g_s * LOG2E, WIPED), 0.0)
                D = tl.zeros((R, BK), tl.float32)  # from after each row to row r
                for r in range(R):
                    m_r = m_k & (t0 + r < length)
                    g_r = tl.load(p_g + (t0 + r) * g_t, mask=m_r[None, :], other=0.0)
                    D += tl.where(o_r[:, None] < r, tl.maximum(g_r * LOG2E, WIPED), 0.0)
                    q_r = tl.load(p_q + (t0 + r) * q_t, mask=m_r[None, :], other=0.0).to(tl.float32) * scale
                    row = tl.load(p_A + (t0 + r) * HV * C + t, mask=(o_r < r) & (t0 + r < length), other=0.0)
                    b_dk += row.to(tl.float32)[:, None] * tl.exp2(D) * q_r
            tl.store(dq + at, ((b_dq + own * b_k) * scale).to(dq.dtype.element_ty), mask=m)
            tl.store(dk + at, (b_dk + left + own * b_q).to(dk.dtype.element_ty), mask=m)
            if dg is not None:
                cut = tl.where(b_g < NEGLIGIBLE * LOG2E, 1.0, 0.0)
                b_dk += tl.where(t[:, None] < length - 1, left, 0.0)
                b_d = tl.where(cut > 0, 0.0, b_q * b_dq - b_k * b_dk)
                b_d, cut_after = tl.associative_scan((b_d, cut), 0, restart, reverse=True)
                b_d += tl.where(cut_after > 0, 0.0, after[None, :])
                tl.store(dg + at, b_d, mask=m)
                after = tl.sum(tl.where(o_r[:, None] == 0, b_d, 0.0), 0)


def _launch(kernel, q, k, *tensors, scale, cu_seqlens, C, chunks, BK):
    (B, T, H, K), HV = q.shape, tensors[0].shape[2]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    strides = [x.stride(axis) for x in (q, k) for axis in range(3)]
    with on(q):
        kernel[(chunks * HV * triton.cdiv(K, BK),)](
            q, k, *tensors, cu_seqlens, T, N, HV, scale, *strides,
            K, BK, C, R, HV // H, precision(q.dtype), num_warps=4,
        )  # fmt: skip


def prepared(q, k, g, scale, cu_seqlens, C):
    """(qd, kd (B, T, HV, K), P (B, T, HV, C), the chunks' decays (slots, HV, K) float32); g contiguous float32."""
    B, T, HV, K = g.shape
    q_decayed, k_decayed = (torch.empty(B, T, HV, K, dtype=q.dtype, device=q.device) for _ in range(2))
    pairs = torch.empty(B, T, HV, C, dtype=q.dtype, device=q.device)
    decays = torch.empty(slots(B, T, C, cu_seqlens), HV, K, dtype=torch.float32, device=q.device)
    sizes = dict(scale=scale, cu_seqlens=cu_seqlens, C=C, chunks=len(decays), BK=max(16, triton.next_power_of_2(K)))
    _launch(prepare, q, k, g, q_decayed, k_decayed, pairs, decays, **sizes)
    return q_decayed, k_decayed, pairs, decays


def finished(q, k, g, pair_grads, read, written, decays, last, scale, cu_seqlens, with_dg):
    """dq, dk (B, T, HV, K) and dg or None, from what the walks for qd and kd left; ``last`` ⟨S_T, dS_T⟩ (N, HV, K)."""
    B, T, HV, K = g.shape
    C, V = pair_grads.shape[-1], read.states.shape[-1] if with_dg else 0
    dq, dk = (written_later(cu_seqlens, B, T, HV, K, dtype=q.dtype, device=q.device) for _ in range(2))
    dg = passes = None
    if with_dg:
        dg, passes = written_later(cu_seqlens, *g.shape, dtype=g.dtype, device=g.device), torch.empty_like(decays)
        N = B if cu_seqlens is None else len(cu_seqlens) - 1
        with on(q):
            passing[(slots(B, T, table.BORDERS, cu_seqlens) * HV,)](
                read.sums, written.sums, decays, read.states, written.states, last, passes, cu_seqlens, T, N, HV,
                K, V, max(16, triton.next_power_of_2(K)), min(64, max(16, triton.next_power_of_2(V))), C,
                table.BORDERS,
            )  # fmt: skip
    tensors = (g, pair_grads, read.o, written.o, passes, dq, dk, dg)
    BK = min(64, max(16, triton.next_power_of_2(K)))
    _launch(finish, q, k, *tensors, scale=scale, cu_seqlens=cu_seqlens, C=C, chunks=len(decays), BK=BK)
    return dq, dk, dg
