"""Inside the chunks where each key channel has its own decay: what the walk needs, and the gradients from the states.

    P_ts = scale Σ_i q_ti k_si exp(g_{s+1,i} + … + g_ti), s ≤ t       qd_t = scale q_t ⊙ exp(g from the start to t)
    d = exp(g of the whole chunk)                                     kd_s = k_s ⊙ exp(g after s to the end)

No product of matrices has a decay for each pair in it, so the exponential is split at a point between s and t. Where
no channel decays by more than 2^64 from the chunk's middle, that does for all pairs. Else halves: of a span of tokens
the later half reads from the earlier, split where they meet, so that both factors are at most 1; each half is such a
span in turn, down to blocks of R = 16. Within a block one split in its middle does, if it is mild in the same sense;
where it is not (a reset, say), halves go on down to single tokens.

How far a token is from a split is the difference of two cumulative sums of log-decays from the chunk's start, L. They
are exact next to a reset, too: in 16 bits because float32's rounding of a few hundred is far below that of the inputs,
in float32 because strong decays are summed apart in whole numbers of base 2, H. The gradient of a step's log-decay is
all that passes it: for one split, readers after the step, or writers before it, between it and the end of their half;
sums of one kind, products with a matrix of zeros and ones. Where one split does for a span they are readers less
writers after the step.

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
ERASED_TILE = 32  # channels: with more, both sides and the gate would not fit into registers
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
def _steps(p_L, p_H, C: tl.constexpr, R: tl.constexpr, LEVELS: tl.constexpr, left, stride, o_k, m_k):
    """How far each row is from the chunk's middle; how many splits it takes, the chunk's, its halves' and so on; and
    whether the last is that of whole spans, so mild that factors above 1 do no harm."""
    row = tl.arange(0, C)
    D = _distance(p_L, p_H, row, row * 0 + C // 2 - 1, left, stride, o_k, m_k)
    n, mild = tl.full((), 1, tl.int32), tl.max(tl.abs(D)) <= MILD
    if not mild:
        of_block = _distance(p_L, p_H, row, row // R * R + R // 2 - 1, left, stride, o_k, m_k)
        mild = tl.max(tl.abs(of_block)) <= MILD
        n = tl.where(mild, LEVELS - BLOCK_LEVELS + 1, LEVELS)
    return D, n, mild


@triton.jit
def _seen(later, earlier, half, whole):
    """Whether token ``later`` is in the second half of a span and ``earlier`` in its first; with ``whole`` both only in
    it, one after the other."""
    across = (later // half % 2 == 1) & (earlier // half == later // half - 1)
    return tl.where(whole, (later // (2 * half) == earlier // (2 * half)) & (later > earlier), across)


@triton.jit
def _gate(p_gate, m, o_k, live, EK: tl.constexpr):
    """Of each row and channel, or of each row."""
    if EK > 1:
        gate = tl.load(p_gate + o_k[None, :], mask=m, other=0.0)
    else:
        gate = tl.load(p_gate, mask=live[:, None], other=0.0)
    return gate.to(tl.float32)


@triton.jit
def _factors(D):
    """What rows that read and rows that write are multiplied by, as far as it is wanted of those that do not."""
    return tl.exp2(tl.minimum(D, MILD)), tl.exp2(tl.minimum(-D, MILD))


@triton.jit
def prepare(
    q, k, erase, L, H, q_decayed, k_decayed, e_decayed, pairs, inverse, decays, cu_seqlens, T, N, HV, scale,
    q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, R: tl.constexpr, LEVELS: tl.constexpr, GROUP: tl.constexpr,
    EK: tl.constexpr, PRECISION: tl.constexpr, INVERSE: tl.constexpr,
):  # fmt: skip
    """One program: of one chunk and head, P, or with ``erase``, (B, T, HV, EK), EK 1 or K, also (1 + T)⁻¹, T_ts = what
    the keys times it, before they are written, read of k_s, s < t: then each by a program of its own."""
    SIDES: tl.constexpr = 1 if erase is None else 2
    pid = tl.program_id(0).to(tl.int64) // SIDES
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    row, left = tl.arange(0, C), (length - c * C).to(tl.int32)
    begin, t, square = ((i_b * T + first + c * C) * HV + i_h) * K, c * C + row, row[:, None] * C + row[None, :]
    p_q = q + i_b * q_b + first * q_t + (i_h // GROUP) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (i_h // GROUP) * k_h + t[:, None] * k_t
    p_L, p_H = L + begin, H
    if H is not None:
        p_H = H + begin
    if left > 0:
        if tl.program_id(0) % SIDES == 0:
            b_P = _pairs(
                p_q, p_k, None, q_decayed + begin, k_decayed + begin, decays + pid * K, p_L, p_H, left, HV * K, scale,
                K, BK, C, R, LEVELS, EK, PRECISION,
            )  # fmt: skip
            tl.store(pairs + pid * C * C + square, b_P.to(pairs.dtype.element_ty))
        if erase is not None:  # noqa: SIM102 only this is known when this is compiled
            if tl.program_id(0) % SIDES == 1:
                p_erase = erase + ((i_b * T + first + t) * HV + i_h)[:, None] * EK
                b_T = _pairs(
                    p_k, p_k, p_erase, e_decayed + begin, None, None, p_L, p_H, left, HV * K, 1.0,
                    K, BK, C, R, LEVELS, EK, PRECISION,
                )  # fmt: skip
                b_X = inverse_of(b_T, C, LEVELS, INVERSE)
                tl.store(inverse + pid * C * C + square, b_X.to(inverse.dtype.element_ty))


@triton.jit
def _pairs(
    p_r, p_k, p_erase, r_decayed, k_decayed, decays, p_L, p_H, left, stride, scale,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, R: tl.constexpr, LEVELS: tl.constexpr, EK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """What each row r reads of the keys, times scale, of those not after it; with ``p_erase``, which is multiplied to
    r, of those before it. r from the chunk's start is stored, and if wanted k to its end and the decay of it all."""
    DTYPE: tl.constexpr = r_decayed.dtype.element_ty
    # 2^±64 is beyond float16's range, not bfloat16's; TF32 would cut float16's products short, not round them
    WIDE: tl.constexpr = tl.bfloat16 if r_decayed.dtype.element_ty == tl.bfloat16 else tl.float32
    EXACT: tl.constexpr = "tf32x3" if r_decayed.dtype.element_ty == tl.float16 else PRECISION
    row = tl.arange(0, C)
    reader, writer = row[:, None], row[None, :]
    b_P = tl.zeros((C, C), tl.float32)
    for k0 in range(0, K, BK):
        o_k = k0 + tl.arange(0, BK)
        m_k = o_k < K
        m, at = (row < left)[:, None] & m_k[None, :], row[:, None] * stride + o_k[None, :]
        b_r = tl.load(p_r + o_k[None, :], mask=m, other=0.0).to(tl.float32) * scale
        b_k = tl.load(p_k + o_k[None, :], mask=m, other=0.0)
        if p_erase is not None:
            b_r *= _gate(p_erase, m, o_k, row < left, EK)
        D, n, mild = _steps(p_L, p_H, C, R, LEVELS, left, stride, o_k, m_k)
        L_end, H_end = _sums(p_L, p_H, (tl.minimum(C, left) - 1) * stride + o_k[None, :], m_k)
        if n == 1:
            r_D, k_D = b_r * tl.exp2(D), b_k * tl.exp2(-D)
            b_A = tl.dot(r_D.to(WIDE), tl.trans(k_D.to(WIDE)), input_precision=EXACT)
            b_P += tl.where(reader > writer if p_erase is not None else reader >= writer, b_A, 0.0)
            L_mid, H_mid = _sums(p_L, p_H, (tl.minimum(C // 2, left) - 1) * stride + o_k[None, :], m_k)
            r_D, k_D = r_D * tl.exp2(L_mid + H_mid), k_D * tl.exp2((L_end - L_mid) + (H_end - H_mid))
        else:
            for step in range(n):
                half = (C // 2) >> step
                D = _distance(p_L, p_H, row, (row // half | 1) * half - 1, left, stride, o_k, m_k)
                reads, writes = _factors(D)
                b_A = tl.dot((b_r * reads).to(WIDE), tl.trans((b_k * writes).to(WIDE)), input_precision=EXACT)
                b_P += tl.where(_seen(reader, writer, half, mild & (step == n - 1)), b_A, 0.0)
            if p_erase is None:  # of a token by itself
                own = tl.sum(b_r * b_k.to(tl.float32), 1)
                b_P += tl.where(reader == writer, own[:, None], 0.0)
            b_L, b_H = _sums(p_L, p_H, tl.minimum(row, left - 1)[:, None] * stride + o_k[None, :], m_k)
            r_D, k_D = b_r * tl.exp2(b_L + b_H), b_k * tl.exp2((L_end - b_L) + (H_end - b_H))
        tl.store(r_decayed + at, r_D.to(DTYPE), mask=m)
        if k_decayed is not None:
            tl.store(k_decayed + at, k_D.to(DTYPE), mask=m)
            tl.store(decays + o_k[None, :], decay(L_end + H_end), mask=m_k[None, :])
    return b_P


@triton.jit
def _product(b_E, x, PARTS: tl.constexpr):
    """E x; for bfloat16's sake of x in parts of 8 digits, two where a sum of such products cancels."""
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
    LEVELS: tl.constexpr, READER: tl.constexpr, STRICT: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
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
    D, n, mild = _steps(p_L, p_H, C, R, LEVELS, left, stride, o_k, m_k)
    if READER:
        b_L, b_H = _sums(p_L, p_H, tl.minimum(row, left - 1)[:, None] * stride + o_k[None, :], m_k)
        b_d *= tl.exp2(b_L + b_H)
    else:
        b_d *= tl.exp2(_distance(p_L, p_H, row * 0 + C - 1, row, left, stride, o_k, m_k))
    if p_S is not None:
        b_E = tl.load(steps + ((0 if READER else C * C) + reader * C + writer))
        b_dg += _product(b_E, b_d * own.to(tl.float32) * own_scale, 1)
    if not STRICT:  # of a token by itself
        b_d += tl.load(pair_grads + row * C + row).to(tl.float32)[:, None] * other * other_scale
    for step in range(n):
        half, last = (C // 2) >> step, mild & (step == n - 1)
        if step > 0:
            D = _distance(p_L, p_H, row, (row // half | 1) * half - 1, left, stride, o_k, m_k)
        reads, writes = _factors(D if READER else -D)
        seen = _seen(reader, writer, half, last) if READER else _seen(writer, reader, half, last)
        p_A = pair_grads + (reader * C + writer if READER else writer * C + reader)
        b_A = tl.load(p_A, mask=seen, other=0.0).to(WIDE)
        b_x = _product(b_A, other * (writes * other_scale), 2) * reads
        b_d += b_x
        sign = 1.0 if READER else tl.where(last, -1.0, 1.0)
        b_E = tl.load(steps + (2 + 2 * step + tl.where(last, 1, 0)) * C * C + (reader * C + writer))
        b_dg += _product(b_E, b_x * own.to(tl.float32) * (own_scale * sign), 2)
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
            reads = -_gate(erase + (token * HV + i_h)[:, None] * EK, m, o_k, row < left, EK)
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
            K, V, BK, BV, C, R, LEVELS, True, STRICT, WIDE, PRECISION,
        )  # fmt: skip
        if not STRICT:
            tl.store(dq + begin + at, (b_q * scale).to(DTYPE), mask=m)
        b_d, b_dg = _side(
            b_dg, p_k, 1.0, p_q, reads, p_v, p_dS, p_dP, steps, p_L, p_H, left, stride, o_k, m_k,
            K, V, BK, BV, C, R, LEVELS, False, STRICT, WIDE, PRECISION,
        )  # fmt: skip
        if STRICT:
            b_d += b_q * reads + tl.load(dk + begin + at, mask=m, other=0.0).to(tl.float32)
            b_q *= -tl.load(p_k + o_k[None, :], mask=m, other=0.0).to(tl.float32)
            if EK > 1:
                tl.store(d_erase + begin + at, b_q.to(d_erase.dtype.element_ty), mask=m)
            else:
                tl.store(d_erase + (token * HV + i_h) * NK + tl.program_id(0) % NK, tl.sum(b_q, 1), mask=row < left)
        tl.store(dk + begin + at, b_d.to(DTYPE), mask=m)
        if dg is not None:
            tl.store(dg + begin + at, b_dg, mask=m)


@functools.cache
def passing_steps(C: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """(matrices, C, C), [t, i] = 1 where what i reads or writes passes step t: of what enters the chunk, of what leaves
    it; then for the chunk, its halves and so on, across its middle, and of what is read in the rest of it. Kept."""
    t, i = torch.arange(C)[:, None], torch.arange(C)[None, :]
    found = [i >= t, i < t]
    for level in range(C.bit_length() - 1):
        half = C // 2 >> level
        found.append(torch.where(t // half % 2 == 1, i >= t, i < t) & (t // half == i // half))
        found.append((i >= t) & (t // (2 * half) == i // (2 * half)))
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
        prepare[(count * HV * (1 if erase is None else 2),)](
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
    """The gradient of ``erase``, (B, T, HV) in float32 or (B, T, HV, K) in its dtype; to dk and dg is added what is
    theirs of the reads that are taken away before a write, whose gradients are −do. v is what was written."""
    (B, T, HV, K), NK = L.shape, triton.cdiv(L.shape[3], ERASED_TILE)
    size, dtype = (K, erase.dtype) if erase.ndim == 4 else (NK, torch.float32)
    d_erase = written_later(cu_seqlens, B, T, HV, size, dtype=dtype, device=k.device)
    _finish(k, k, v, do, erase, L, H, left.states, None, None, dk, dg, d_erase, 1.0, cu_seqlens)
    return d_erase if erase.ndim == 4 else d_erase.sum(-1)


def _finish(q, k, v, do, erase, L, H, states, state_grads, dq, dk, dg, d_erase, scale, cu_seqlens):
    (B, T, HV, K), V, C = L.shape, v.shape[-1], chunk_length(q.dtype)
    N, BK = B if cu_seqlens is None else len(cu_seqlens) - 1, C if erase is None else ERASED_TILE
    pair_grads = scalar_chunks.products(do, v, HV, cu_seqlens)
    steps = passing_steps(C, torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32, q.device)
    with on(q):
        finish[(len(pair_grads) * HV * triton.cdiv(K, BK),)](
            q, k, v, do, erase, L, H, pair_grads, states, state_grads, steps, dq, dk, dg, d_erase, cu_seqlens,
            T, N, HV, scale, *(x.stride(axis) for x in (q, k, v, do) for axis in range(3)),
            K, V, BK, chunk_tile(V, q.dtype), C, R, C.bit_length() - 1, HV // q.shape[2],
            K if erase is not None and erase.ndim == 4 else 1, precision(q.dtype), num_stages=1,
        )  # fmt: skip
