"""Inside the chunks where each key channel has its own decay: what the walk needs, and the gradients from the states.

    P_ts = scale Σ_i q_ti k_si exp(g_{s+1,i} + … + g_ti), s ≤ t       qd_t = scale q_t ⊙ exp(g from the start to t)
    d = exp(g of the whole chunk)                                     kd_s = k_s ⊙ exp(g after s to the end)

No product of matrices has a decay for each pair in it, so the exponential is split at a point between s and t. Halves:
of a span of tokens the later half reads from the earlier, split where they meet, so that both factors are at most 1;
each half is such a span in turn, down to blocks of R = 16. Within a block one split in its middle does for all pairs
where no channel decays by more than 2^64 on the way; where one does (a reset, say), halves go on down to single tokens.

How far a token is from a split is the difference of two cumulative sums of log-decays from the chunk's start, L. They
are exact next to a reset, too: in 16 bits because float32's rounding of a few hundred is far below that of the inputs,
in float32 because strong decays are summed apart in whole numbers of base 2, H. The gradient of a step's log-decay is
all that passes it: for one split, readers after the step, or writers before it, between it and the end of their half;
sums of one kind, products with a matrix of zeros and ones. Within a block they are readers less writers after the step.

    dP_ts = do_t·v_s       dqd = S do       dkd = dS v       dd = Σ_v S ⊙ dS

with S the state that enters a chunk and dS the gradient of the one that leaves it. Rules that correct need the inverse
of :mod:`kernels.delta_chunks` besides, of what the erased keys read; their gradients are these twice, as in
:mod:`kernels.scalar_chunks`.

Bytes a token, head and 16-bit element, K = V = 128: ``cumulate`` reads g and writes L, 1 KB; ``prepare`` reads q, k
and L, 1 KB, and writes qd, kd and a row of P, 0.6 KB; ``finish`` reads q, k, L, v, do, a row of dP and the two states
of 0.5 KB a token, 2.7 KB, and writes dq, dk and the float32 dg, 1 KB.
"""

import functools

import torch
import triton
import triton.language as tl

from kernels import scalar_chunks
from kernels.arguments import on, written_later
from kernels.delta_chunks import inverse_of, inverse_precision
from kernels.numerics import LOG2E, decay
from kernels.scalar_chunks import STRONG, WIPED
from kernels.sequences import chunk_of, slots
from kernels.tiles import chunk_length, chunk_tile
from kernels.walk import Prepared, Walked, precision

R = 16  # rows of a block
BLOCK_LEVELS = tl.constexpr(4)  # halves that a block would have, 8 to 1
MILD = tl.constexpr(64.0)  # 2^64 and 2^-64 leave float32 room for the numbers they multiply


@triton.jit
def cumulate(g, L, H, cu_seqlens, T, N, HV, K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr):
    """One program: of one chunk, head and BK channels, the sums L of its log-decays up to each token, in base 2; with
    H the strong ones' whole numbers apart."""
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64) // NK
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    row, o_k = tl.arange(0, C), tl.program_id(0) % NK * BK + tl.arange(0, BK)
    begin, at = ((i_b * T + first + c * C) * HV + i_h) * K, row[:, None] * (HV * K) + o_k[None, :]
    m = (c * C + row < length)[:, None] & (o_k < K)[None, :]
    b_g = tl.maximum(tl.load(g + begin + at, mask=m, other=0.0) * LOG2E, WIPED)
    if H is not None:
        strong = tl.where(b_g < STRONG * LOG2E, tl.ceil(b_g), 0.0)
        tl.store(H + begin + at, tl.cumsum(strong, 0), mask=m)
        b_g -= strong
    tl.store(L + begin + at, tl.cumsum(b_g, 0), mask=m)


@triton.jit
def _sums(p_L, p_H, at, m_k):
    """L and H at some places; H is 0 where there is none."""
    b_L = tl.load(p_L + at, mask=m_k[None, :], other=0.0)
    b_H = tl.zeros_like(b_L)
    if p_H is not None:
        b_H = tl.load(p_H + at, mask=m_k[None, :], other=0.0)
    return b_L, b_H


@triton.jit
def _distance(p_L, p_H, row, split, left, stride, o_k, m_k):
    """Of each row: the sum of the log-decays from after its row ``split`` to itself, less than 0 if that is earlier.

    ``left`` rows have tokens; those beyond are as the last of them, since nothing decays there.
    """
    at, to = tl.minimum(row, left - 1), tl.minimum(split, left - 1)
    b_L, b_H = _sums(p_L, p_H, at[:, None] * stride + o_k[None, :], m_k)
    L_s, H_s = _sums(p_L, p_H, to[:, None] * stride + o_k[None, :], m_k)
    return (b_L - L_s) + (b_H - H_s)


@triton.jit
def _reads(reader, writer):
    """Whether the half ``reader`` is the later one of a span, and ``writer`` the earlier."""
    return (reader % 2 == 1) & (writer == reader - 1)


@triton.jit
def prepare(
    q, k, erase, L, H, q_decayed, k_decayed, e_decayed, pairs, inverse, decays, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, R: tl.constexpr, LEVELS: tl.constexpr, GROUP: tl.constexpr,
    EK: tl.constexpr, PRECISION: tl.constexpr, INVERSE: tl.constexpr,
):  # fmt: skip
    """One program: one chunk and head. With ``erase``, (B, T, HV, EK), EK 1 or K, also of the keys times it, before
    they are written: (1 + T)⁻¹, T_ts = what e_t reads of k_s, s < t."""
    pid = tl.program_id(0).to(tl.int64)
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    DTYPE: tl.constexpr = q.dtype.element_ty
    # 2^±64 is beyond float16's range, not bfloat16's; TF32 would cut float16's products short, not round them
    WIDE: tl.constexpr = tl.bfloat16 if q.dtype.element_ty == tl.bfloat16 else tl.float32
    EXACT: tl.constexpr = "tf32x3" if q.dtype.element_ty == tl.float16 else PRECISION
    row, stride, left = tl.arange(0, C), HV * K, (length - c * C).to(tl.int32)
    begin, t = ((i_b * T + first + c * C) * HV + i_h) * K, c * C + row
    p_q = q + i_b * q_b + first * q_t + (i_h // GROUP) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (i_h // GROUP) * k_h + t[:, None] * k_t
    p_L, p_H, reader, writer = L + begin, H, row[:, None], row[None, :]
    if H is not None:
        p_H = H + begin
    if left > 0:
        b_P, b_T = tl.zeros((C, C), tl.float32), tl.zeros((C, C), tl.float32)
        for k0 in range(0, K, BK):
            o_k = k0 + tl.arange(0, BK)
            m_k = o_k < K
            m, at = (row < left)[:, None] & m_k[None, :], row[:, None] * stride + o_k[None, :]
            b_q = tl.load(p_q + o_k[None, :], mask=m, other=0.0)
            b_k = tl.load(p_k + o_k[None, :], mask=m, other=0.0)
            b_L, b_H = _sums(p_L, p_H, tl.minimum(row, left - 1)[:, None] * stride + o_k[None, :], m_k)
            tl.store(q_decayed + begin + at, (b_q * (tl.exp2(b_L + b_H) * scale)).to(DTYPE), mask=m)
            D = _distance(p_L, p_H, row * 0 + C - 1, row, left, stride, o_k, m_k)
            tl.store(k_decayed + begin + at, (b_k * tl.exp2(D)).to(DTYPE), mask=m)
            if erase is not None:
                p_erase = erase + ((i_b * T + first + t) * HV + i_h)[:, None] * EK + (o_k[None, :] if EK > 1 else 0)
                b_e = b_k * tl.load(p_erase, mask=m, other=0.0).to(tl.float32)
                tl.store(e_decayed + begin + at, (b_e * tl.exp2(b_L + b_H)).to(DTYPE), mask=m)
            L_end, H_end = _sums(p_L, p_H, (tl.minimum(C, left) - 1) * stride + o_k[None, :], m_k)
            tl.store(decays + pid * K + o_k[None, :], decay(L_end + H_end), mask=m_k[None, :])
            # From the middle of the block, positive before it
            D = _distance(p_L, p_H, row, row // R * R + R // 2 - 1, left, stride, o_k, m_k)
            mild = tl.max(tl.abs(D)) <= MILD
            if mild:
                q_D, k_D = (b_q * (tl.exp2(D) * scale)).to(WIDE), (b_k * tl.exp2(-D)).to(WIDE)
                b_A = tl.dot(q_D, tl.trans(k_D), input_precision=EXACT)
                b_P += tl.where((reader // R == writer // R) & (reader >= writer), b_A, 0.0)
                if erase is not None:
                    b_A = tl.dot((b_e * tl.exp2(D)).to(WIDE), tl.trans(k_D), input_precision=EXACT)
                    b_T += tl.where((reader // R == writer // R) & (reader > writer), b_A, 0.0)
            else:
                own = tl.sum(b_q.to(tl.float32) * b_k.to(tl.float32), 1) * scale
                b_P += tl.where(reader == writer, own[:, None], 0.0)
            for level in range(LEVELS if not mild else LEVELS - BLOCK_LEVELS):
                half = (C // 2) >> level
                D = _distance(p_L, p_H, row, (row // half | 1) * half - 1, left, stride, o_k, m_k)
                factor = tl.exp2(-tl.abs(D))
                q_D, k_D = (b_q * (factor * scale)).to(DTYPE), (b_k * factor).to(DTYPE)
                b_A = tl.dot(q_D, tl.trans(k_D), input_precision=PRECISION)
                b_P += tl.where(_reads(reader // half, writer // half), b_A, 0.0)
                if erase is not None:
                    b_A = tl.dot((b_e * factor).to(DTYPE), tl.trans(k_D), input_precision=PRECISION)
                    b_T += tl.where(_reads(reader // half, writer // half), b_A, 0.0)
        if erase is not None:
            b_X = inverse_of(b_T, C, LEVELS, INVERSE)
            tl.store(inverse + pid * C * C + reader * C + writer, b_X.to(DTYPE))
        tl.store(pairs + pid * C * C + reader * C + writer, b_P.to(DTYPE))


@triton.jit
def _passing(p_E, x, C: tl.constexpr, PARTS: tl.constexpr):
    """E x, E of zeros and ones: for bfloat16's sake of x in parts of 8 digits, one where nothing cancels."""
    o_c = tl.arange(0, C)
    b_E = tl.load(p_E + o_c[:, None] * C + o_c[None, :])
    if b_E.dtype == tl.float32:
        total = tl.dot(b_E, x, input_precision="tf32x3")
    else:
        high = x.to(b_E.dtype)
        total = tl.dot(b_E, high)
        if PARTS == 2:
            total = tl.dot(b_E, (x - high.to(tl.float32)).to(b_E.dtype), total)
    return total


@triton.jit
def _side(
    b_dg, p_own, own_scale, p_other, other_scale, p_do, p_S, pair_grads, steps, p_L, p_H, left, stride, o_k, m_k,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    LEVELS: tl.constexpr, READER: tl.constexpr, STRICT: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
    EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of one side, q as readers or k as writers, and what they are to the decays' added to b_dg."""
    row, o_v = tl.arange(0, C), tl.arange(0, BV)
    live = (row < left)[:, None]
    m, reader, writer = live & m_k[None, :], row[:, None], row[None, :]
    b_d = tl.zeros((C, BK), tl.float32)
    if p_S is not None:
        for v0 in range(0, V, BV):
            m_v = v0 + o_v < V
            b_do = tl.load(p_do + v0 + o_v[None, :], mask=live & m_v[None, :], other=0.0)
            p_tile = p_S + (v0 + o_v[:, None]) * K + o_k[None, :]
            b_S = tl.load(p_tile, mask=m_v[:, None] & m_k[None, :], other=0.0)
            b_d = tl.dot(b_do, b_S, b_d, input_precision=PRECISION)
    own = tl.load(p_own + o_k[None, :], mask=m, other=0.0)
    other = tl.load(p_other + o_k[None, :], mask=m, other=0.0)
    if READER:
        b_L, b_H = _sums(p_L, p_H, tl.minimum(row, left - 1)[:, None] * stride + o_k[None, :], m_k)
        b_d *= tl.exp2(b_L + b_H)
    else:
        b_d *= tl.exp2(_distance(p_L, p_H, row * 0 + C - 1, row, left, stride, o_k, m_k))
    if p_S is not None:
        b_dg += _passing(steps + (0 if READER else C * C), b_d * own.to(tl.float32) * own_scale, C, 1)
    if not STRICT:  # of a token by itself
        b_d += tl.load(pair_grads + row * C + row).to(tl.float32)[:, None] * other * other_scale
    # From the middle of the block, positive before it
    D = _distance(p_L, p_H, row, row // R * R + R // 2 - 1, left, stride, o_k, m_k)
    mild = tl.max(tl.abs(D)) <= MILD
    p_A = pair_grads + (reader * C + writer if READER else writer * C + reader)
    if mild:
        factor, inverse = tl.exp2(D if READER else -D), tl.exp2(-D if READER else D)
        seen = (reader > writer) if READER else (reader < writer)
        b_A = tl.load(p_A, mask=(reader // R == writer // R) & seen, other=0.0).to(WIDE)
        b_x = tl.dot(b_A, (other * (inverse * other_scale)).to(WIDE), input_precision=EXACT) * factor
        b_d += b_x
        b_dg += _passing(steps + 2 * C * C, b_x * own.to(tl.float32) * (own_scale if READER else -own_scale), C, 2)
    for level in range(LEVELS if not mild else LEVELS - BLOCK_LEVELS):
        half = (C // 2) >> level
        D = _distance(p_L, p_H, row, (row // half | 1) * half - 1, left, stride, o_k, m_k)
        factor = tl.exp2(-tl.abs(D))
        seen = _reads(reader // half, writer // half) if READER else _reads(writer // half, reader // half)
        b_A = tl.load(p_A, mask=seen, other=0.0)
        b_x = tl.dot(b_A, (other * (factor * other_scale)).to(DTYPE), input_precision=PRECISION) * factor
        b_d += b_x
        b_dg += _passing(steps + (3 + level) * C * C, b_x * own.to(tl.float32) * own_scale, C, 1)
    return b_d, b_dg


@triton.jit
def finish(
    q, k, v, do, erase, L, H, pair_grads, states, state_grads, steps, dq, dk, dg, d_erase, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, do_b, do_t, do_h,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    LEVELS: tl.constexpr, GROUP: tl.constexpr, EK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: dq, dk and dg of one chunk, head and BK channels; first all of the readers, then of the writers.

    With ``erase`` the reads, taken away, are those of the keys times it, q = k, before they are written; its gradient,
    and what they are to dk and dg, which is added to these, but for what ``state_grads`` were when dk and dg were made.
    """
    STRICT: tl.constexpr = erase is not None
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64) // NK
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    DTYPE: tl.constexpr = q.dtype.element_ty
    WIDE: tl.constexpr = tl.bfloat16 if q.dtype.element_ty == tl.bfloat16 else tl.float32
    EXACT: tl.constexpr = "tf32x3" if q.dtype.element_ty == tl.float16 else PRECISION
    row, o_k, o_v = tl.arange(0, C), tl.program_id(0) % NK * BK + tl.arange(0, BK), tl.arange(0, BV)
    stride, left, m_k = HV * K, (length - c * C).to(tl.int32), o_k < K
    begin, t = ((i_b * T + first + c * C) * HV + i_h) * K, c * C + row
    token = i_b * T + first + t
    p_q = q + i_b * q_b + first * q_t + (i_h // GROUP) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (i_h // GROUP) * k_h + t[:, None] * k_t
    p_v = v + i_b * v_b + first * v_t + i_h * v_h + t[:, None] * v_t
    p_do = do + i_b * do_b + first * do_t + i_h * do_h + t[:, None] * do_t
    p_S, p_dS, p_dP = states + pid * K * V, state_grads, pair_grads + pid * C * C
    p_L, p_H = L + begin, H
    if not STRICT:
        p_dS = state_grads + pid * K * V
    if H is not None:
        p_H = H + begin
    if left > 0:
        b_dg = tl.zeros((C, BK), tl.float32)
        m, at = (row < left)[:, None] & m_k[None, :], row[:, None] * stride + o_k[None, :]
        if STRICT:
            p_erase = erase + (token * HV + i_h)[:, None] * EK + (o_k[None, :] if EK > 1 else 0)
            reads = -tl.load(p_erase, mask=m, other=0.0).to(tl.float32)
            if dg is not None:
                b_dg += tl.load(dg + begin + at, mask=m, other=0.0)
        else:
            reads = scale
            through = tl.zeros((BK,), tl.float32)
            for v0 in range(0, V, BV):
                tile, m_tile = (v0 + o_v[:, None]) * K + o_k[None, :], (v0 + o_v < V)[:, None] & m_k[None, :]
                b_S = tl.load(p_S + tile, mask=m_tile, other=0.0).to(tl.float32)
                through += tl.sum(b_S * tl.load(p_dS + tile, mask=m_tile, other=0.0).to(tl.float32), 0)
            L_end, H_end = _sums(p_L, p_H, (tl.minimum(C, left) - 1) * stride + o_k[None, :], m_k)
            b_dg += through[None, :] * tl.exp2(L_end + H_end)
        b_q, b_dg = _side(
            b_dg, p_q, reads, p_k, 1.0, p_do, p_S, p_dP, steps, p_L, p_H, left, stride, o_k, m_k,
            K, V, BK, BV, C, R, LEVELS, True, STRICT, DTYPE, WIDE, EXACT, PRECISION,
        )  # fmt: skip
        if not STRICT:
            tl.store(dq + begin + at, (b_q * scale).to(DTYPE), mask=m)
        b_d, b_dg = _side(
            b_dg, p_k, 1.0, p_q, reads, p_v, p_dS, p_dP, steps, p_L, p_H, left, stride, o_k, m_k,
            K, V, BK, BV, C, R, LEVELS, False, STRICT, DTYPE, WIDE, EXACT, PRECISION,
        )  # fmt: skip
        if STRICT:
            b_d += b_q * reads + tl.load(dk + begin + at, mask=m, other=0.0).to(tl.float32)
            b_q *= -tl.load(p_k + o_k[None, :], mask=m, other=0.0).to(tl.float32)
            if EK > 1:
                tl.store(d_erase + begin + at, b_q, mask=m)
            else:
                tl.store(d_erase + (token * HV + i_h) * NK + tl.program_id(0) % NK, tl.sum(b_q, 1), mask=row < left)
        tl.store(dk + begin + at, b_d.to(DTYPE), mask=m)
        if dg is not None:
            tl.store(dg + begin + at, b_dg, mask=m)


@functools.cache
def passing_steps(C: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """(matrices, C, C), [t, i] = 1 where what i reads or writes passes step t: of what enters the chunk, of what leaves
    it, of what is read in the rest of a block; across a split, the chunk's, its halves' and so on. Kept."""
    t, i = torch.arange(C)[:, None], torch.arange(C)[None, :]
    found = [i >= t, i < t, (i >= t) & (t // R == i // R)]
    for level in range(C.bit_length() - 1):
        half = C // 2 >> level
        found.append(torch.where(t // half % 2 == 1, i >= t, i < t) & (t // half == i // half))
    return torch.stack(found).to(device, dtype)


def cumulated(g, dtype, cu_seqlens):
    """(L, H) (B, T, HV, K) float32, H only where products are float32; g contiguous float32."""
    (B, T, HV, K), C, BK = g.shape, chunk_length(dtype), min(32, max(16, triton.next_power_of_2(g.shape[-1])))
    N, L = B if cu_seqlens is None else len(cu_seqlens) - 1, torch.empty_like(g)
    H = torch.empty_like(g) if dtype == torch.float32 else None
    with on(g):
        cumulate[(slots(B, T, C, cu_seqlens) * HV * triton.cdiv(K, BK),)](g, L, H, cu_seqlens, T, N, HV, K, BK, C)
    return L, H


def prepared(q, k, L, H, scale, cu_seqlens, erase=None):
    """The decayed q and k (B, T, HV, K), and the rest of what the walk needs; with ``erase`` (B, T, HV) or
    (B, T, HV, K), contiguous, also the decayed keys times it, and the inverse."""
    (B, T, HV, K), C = L.shape, chunk_length(q.dtype)
    N, count = B if cu_seqlens is None else len(cu_seqlens) - 1, slots(B, T, C, cu_seqlens)
    q_decayed, k_decayed = (torch.empty(B, T, HV, K, dtype=q.dtype, device=q.device) for _ in range(2))
    pairs = torch.empty(count, HV, C, C, dtype=q.dtype, device=q.device)
    e_decayed, inverse = (None, None) if erase is None else (torch.empty_like(k_decayed), torch.empty_like(pairs))
    decays = torch.empty(count, HV, K, dtype=torch.float32, device=q.device)
    with on(q):
        prepare[(count * HV,)](
            q, k, erase, L, H, q_decayed, k_decayed, e_decayed, pairs, inverse, decays, cu_seqlens, T, N, HV, scale,
            *q.stride()[:3], *k.stride()[:3], K, chunk_tile(K, q.dtype), C, R, C.bit_length() - 1, HV // q.shape[2],
            K if erase is not None and erase.ndim == 4 else 1, precision(q.dtype), inverse_precision(q.dtype),
            num_stages=1,
        )  # fmt: skip
    return q_decayed, k_decayed, Prepared(pairs, decays, inverse=inverse, erasing=e_decayed)


def finished(q, k, v, do, L, H, left: Walked, right: Walked, scale, cu_seqlens, with_dg):
    """dq, dk (B, T, HV, K) and dg or None; ``left`` and ``right`` have the states at each chunk."""
    dq, dk = (written_later(cu_seqlens, *L.shape, dtype=q.dtype, device=q.device) for _ in range(2))
    dg = written_later(cu_seqlens, *L.shape, dtype=L.dtype, device=L.device) if with_dg else None
    _finish(q, k, v, do, None, L, H, left.states, right.states, dq, dk, dg, None, scale, cu_seqlens)
    return dq, dk, dg


def erased(k, v, do, erase, L, H, left: Walked, dk, dg, cu_seqlens):
    """The gradient of ``erase`` (B, T, HV) or (B, T, HV, K); to dk and dg is added what is theirs of the reads that
    are taken away before a write, whose gradients are −do. v is what was written."""
    (B, T, HV, K), NK = L.shape, triton.cdiv(L.shape[3], chunk_length(k.dtype))
    d_erase = written_later(cu_seqlens, B, T, HV, K if erase.ndim == 4 else NK, dtype=torch.float32, device=k.device)
    _finish(k, k, v, do, erase, L, H, left.states, None, None, dk, dg, d_erase, 1.0, cu_seqlens)
    return d_erase if erase.ndim == 4 else d_erase.sum(-1)


def _finish(q, k, v, do, erase, L, H, states, state_grads, dq, dk, dg, d_erase, scale, cu_seqlens):
    (B, T, HV, K), V, C = L.shape, v.shape[-1], chunk_length(q.dtype)
    N, BK = B if cu_seqlens is None else len(cu_seqlens) - 1, chunk_length(q.dtype)
    pair_grads = scalar_chunks.products(do, v, HV, cu_seqlens)
    steps = passing_steps(C, torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32, q.device)
    with on(q):
        finish[(len(pair_grads) * HV * triton.cdiv(K, BK),)](
            q, k, v, do, erase, L, H, pair_grads, states, state_grads, steps, dq, dk, dg, d_erase, cu_seqlens,
            T, N, HV, scale, *(x.stride(axis) for x in (q, k, v, do) for axis in range(3)),
            K, V, BK, chunk_tile(V, q.dtype), C, R, C.bit_length() - 1, HV // q.shape[2],
            K if erase is not None and erase.ndim == 4 else 1, precision(q.dtype), num_stages=1,
        )  # fmt: skip
