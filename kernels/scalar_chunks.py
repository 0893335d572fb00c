"""Inside the chunks where a head has one decay a token: what the walk needs, and the gradients from the states.

    P_ts = scale Γ_ts w_s (q_t·k_s), s ≤ t       Γ_ts = exp(g_{s+1} + … + g_t)       a_t = scale exp(g from the start)
    b_s = w_s exp(g to the end)                  d = exp(g of the whole chunk)

With S the state that enters a chunk, dS the gradient of the one that leaves it, and D_ts = scale Γ_ts (do_t·v_s):

    dq_t = Σ_{s≤t} D_ts w_s k_s + a_t S do_t          dk_s = w_s dk'_s,  dk'_s = Σ_{t≥s} D_ts q_t + (b_s / w_s) dS v_s
    dw_s = k_s·dk'_s                                  dg_t = Σ_{s<t≤i} P_is (do_i·v_s) + Σ_{i≥t} q_i·(a_i S do_i)
                                                             + Σ_{s<t} k_s·(b_s dS v_s) + d ⟨S, dS⟩

that is, the gradient of a step's log-decay is all that passes the step. mLSTM's normaliser is the state of a value that
is 1, and dnq_t its gradient: it adds dnq_t to each do_t·v_s, dnq_t n to S do_t and dn to dS v_s.

A rule that corrects (:mod:`kernels.delta_walk`) adds what it has corrected, so that all this holds with it for v. And
it reads at its keys, before they are written: the same once more with the keys for q, s < t, and minus y for do; what
the states' gradients are to the keys is in the first already.

Forward: ``cumulate`` sums the log-decays, ``prepare`` makes P. Backward, once the walks have kept S and dS:
``compare`` makes D and what pairs of tokens are to dg and dw, ``finish`` dq, dk and what the states are to dg and dw,
``finish_gates`` these two. In one kernel products, sums over tokens and scans would take turns, each waiting for the
other, and registers would have room for few programs. Heads that share q and k, up to 8, share a program: q kᵀ is made
once, and their dq and dk are summed.

Every exponential is of a sum of log-decays from the chunk's start, L, or of a difference of two. In float32 strong
decays are summed apart, as H, in whole numbers of base 2, which are exact in any order: with them in one sum, what
follows would lose digits; 16-bit inputs have fewer.

Bytes a token, head and 16-bit element, K = V = 128: ``prepare`` reads q and k and writes a row of P, 0.6 KB;
``compare`` reads q, k, v and do and writes a row of D, 1.1 KB; ``finish`` reads q, k, v, do, D and the two states of
0.5 KB a token, 2.1 KB, and writes dq and dk, 0.5 KB. All of the float32 numbers by token are 0.1 KB.
"""

import math

import torch
import triton
import triton.language as tl

from kernels.arguments import on, written_later
from kernels.numerics import LOG2E, decay
from kernels.sequences import chunk_of, slots
from kernels.tiles import chunk_length, chunk_tile
from kernels.walk import Prepared, Walked, precision

STRONG = tl.constexpr(-8.0)  # log-decays below are summed apart
WIPED = tl.constexpr(-200.0)  # in base 2: stands for g = −inf, since exp2 of anything below −149 is 0 in float32
NEGLIGIBLE = tl.constexpr(-16.0)  # exp of it is 1.1e-7, less than float32 resolves


@triton.jit
def restart(sum_after, cut_after, value, cut):
    """Of a scan from the end: a sum that starts afresh before every cut."""
    return tl.where(cut > 0, value, sum_after + value), tl.maximum(cut_after, cut)


@triton.jit
def between_tokens(b_L, b_H):
    """2 to the log-decays between each two tokens, rows less columns; those before their column count as 0."""
    between = tl.minimum(b_L[:, None] - b_L[None, :], 0.0) + (b_H[:, None] - b_H[None, :])
    return tl.exp2(tl.minimum(between, 0.0))


@triton.jit
def cumulate(
    g, w, decays, start, end, L, H, weights, erasing, cu_seqlens, T, N, HV, scale, C: tl.constexpr,
    HEADS: tl.constexpr,
):  # fmt: skip
    """One program: d, a, b, L, H of one chunk and HEADS heads, and w as the others are laid out. With ``erasing``, a
    without the scale, w is not a factor of what is written, and not in b."""
    pid, tiles = tl.program_id(0).to(tl.int64), tl.cdiv(HV, HEADS)
    slot, o_h, o_c = pid // tiles, pid % tiles * HEADS + tl.arange(0, HEADS)[None, :], tl.arange(0, C)[:, None]
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    t, m = c * C + o_c, o_h < HV
    live, at = (t < length) & m, (i_b * T + first + t) * HV + o_h
    place, of_head = (slot * HV + o_h) * C + o_c, slot * HV + tl.ravel(o_h)
    if c * C < length:
        b_L, b_H = tl.zeros((C, HEADS), tl.float32), tl.zeros((C, HEADS), tl.float32)
        if g is not None:
            b_g = tl.maximum(tl.load(g + at, mask=live, other=0.0) * LOG2E, WIPED)
            if H is not None:
                strong = tl.where(b_g < STRONG * LOG2E, tl.ceil(b_g), 0.0)
                b_H += tl.cumsum(strong, 0)
                b_g -= strong
            b_L += tl.cumsum(b_g, 0)
        last = o_c == C - 1  # beyond the sequence nothing decays
        L_end, H_end = tl.sum(tl.where(last, b_L, 0.0), 0), tl.sum(tl.where(last, b_H, 0.0), 0)
        to_end = tl.exp2(tl.minimum(L_end[None, :] - b_L, 0.0) + (H_end[None, :] - b_H))
        if w is not None:
            b_w = tl.load(w + at, mask=live, other=0.0)
            tl.store(weights + place, b_w, mask=m)
            if erasing is None:
                to_end *= b_w
        if erasing is not None:
            tl.store(erasing + place, tl.exp2(b_L + b_H), mask=m)
        tl.store(decays + of_head, decay(L_end + H_end), mask=tl.ravel(m))
        tl.store(start + place, tl.exp2(b_L + b_H) * scale, mask=m)
        tl.store(end + place, to_end, mask=m)
        tl.store(L + place, b_L, mask=m)
        if H is not None:
            tl.store(H + place, b_H, mask=m)


@triton.jit
def prepare(
    q, k, L, H, weights, pairs, sums, cu_seqlens, T, N, HV, scale, q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, GQ: tl.constexpr, GK: tl.constexpr, HEADS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: P of one chunk and HEADS heads that share q and k; without ``L`` only scale q kᵀ, s ≤ t."""
    pid = tl.program_id(0).to(tl.int64)
    slot, first_head = pid // (HV // HEADS), pid % (HV // HEADS) * HEADS
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c, o_k = tl.arange(0, C), tl.arange(0, BK)
    t, row, column = c * C + o_c, o_c[:, None], o_c[None, :]
    live = t < length
    p_q = q + i_b * q_b + first * q_t + (first_head // GQ) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (first_head // GK) * k_h + t[:, None] * k_t
    if c * C < length:
        b_A = tl.zeros((C, C), tl.float32)
        for k0 in range(0, K, BK):
            m = live[:, None] & (k0 + o_k < K)[None, :]
            b_q = tl.load(p_q + k0 + o_k[None, :], mask=m, other=0.0)
            b_k = tl.load(p_k + k0 + o_k[None, :], mask=m, other=0.0)
            b_A = tl.dot(b_q, tl.trans(b_k), b_A, input_precision=PRECISION)
        b_A = tl.where(row >= column, b_A * scale, 0.0)
        for i in tl.range(0, HEADS, num_stages=3):  # fetches the next heads' L and w
            of_head = slot * HV + first_head + i
            b_P, place = b_A, of_head * C + o_c
            if L is not None:
                b_L, b_H = tl.load(L + place), tl.zeros((C,), tl.float32)
                if H is not None:
                    b_H += tl.load(H + place)
                b_P *= between_tokens(b_L, b_H)
            if weights is not None:
                b_P *= tl.load(weights + place)[None, :]
            if sums is not None:
                tl.store(sums + place, tl.sum(b_P, 1))
            tl.store(pairs + of_head * C * C + row * C + column, b_P.to(pairs.dtype.element_ty))


@triton.jit
def compare(
    q, k, v, do, dnq, L, H, weights, pair_grads, sums, cu_seqlens,
    T, N, HV, size, scale, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, do_b, do_t, do_h,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr,
    GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, HEADS: tl.constexpr, PRECISION: tl.constexpr,
    STRICT: tl.constexpr,
):  # fmt: skip
    """One program: of one chunk and HEADS heads that share q and k, D_ts w_s; with ``sums`` also what pairs
    are to dg before it is summed, and to dw. STRICT: of s < t alone, D_ts w_t."""
    pid = tl.program_id(0).to(tl.int64)
    slot, first_head = pid // (HV // HEADS), pid % (HV // HEADS) * HEADS
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    t, row, column = c * C + o_c, o_c[:, None], o_c[None, :]
    live, token = t < length, (i_b * T + first + t) * HV
    p_q = q + i_b * q_b + first * q_t + (first_head // GQ) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (first_head // GK) * k_h + t[:, None] * k_t
    p_v = v + i_b * v_b + first * v_t + t[:, None] * v_t
    p_do = do + i_b * do_b + first * do_t + t[:, None] * do_t
    if c * C < length:
        b_A = tl.zeros((C, C), tl.float32)
        if sums is not None:
            for k0 in range(0, K, BK):
                m = live[:, None] & (k0 + o_k < K)[None, :]
                b_q = tl.load(p_q + k0 + o_k[None, :], mask=m, other=0.0)
                b_k = tl.load(p_k + k0 + o_k[None, :], mask=m, other=0.0)
                b_A = tl.dot(b_q, tl.trans(b_k), b_A, input_precision=PRECISION)
        for i in range(HEADS):
            i_h = first_head + i
            of_head = slot * HV + i_h
            place = of_head * C + o_c
            b_L, b_H, b_w = tl.load(L + place), tl.zeros((C,), tl.float32), tl.full((C,), 1.0, tl.float32)
            if H is not None:
                b_H += tl.load(H + place)
            if weights is not None:
                b_w = tl.load(weights + place)
            b_D = tl.zeros((C, C), tl.float32)
            for v0 in range(0, V, BV):
                m = live[:, None] & (v0 + o_v < V)[None, :]
                b_do = tl.load(p_do + i_h * do_h + v0 + o_v[None, :], mask=m, other=0.0)
                b_v = tl.load(p_v + i_h // GV * v_h + v0 + o_v[None, :], mask=m, other=0.0)
                b_D = tl.dot(b_do, tl.trans(b_v), b_D, input_precision=PRECISION)
            if dnq is not None:
                b_D += tl.load(dnq + token + i_h, mask=live, other=0.0)[:, None]
            b_D = tl.where(row > column if STRICT else row >= column, b_D * (between_tokens(b_L, b_H) * scale), 0.0)
            b_W = b_w[:, None] if STRICT else b_w[None, :]
            tl.store(pair_grads + of_head * C * C + row * C + column, (b_D * b_W).to(pair_grads.dtype.element_ty))
            if sums is not None:
                b_D *= b_A
                to_others = tl.where(row > column, b_D, 0.0)
                by_reader, by_writer = tl.sum(to_others * b_W, 1), tl.sum(to_others * b_W, 0)
                tl.store(sums + place, by_reader - by_writer)
                tl.store(sums + size + place, tl.sum(b_D, 1 if STRICT else 0))


@triton.jit
def finish(
    q, k, v, do, dnq, start, end, pair_grads, states, norms, state_grads, norm_grads, dq, dk, sums, through, cu_seqlens,
    T, N, HV, size, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, do_b, do_t, do_h,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr,
    GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, HEADS: tl.constexpr, PRECISION: tl.constexpr,
    STRICT: tl.constexpr,
):  # fmt: skip
    """One program: of one chunk, HEADS heads that share q and k, and BK of the keys, the sum of the heads' dq or dk;
    with ``sums`` also q_t·(S do_t) or k_t·(dS v_t) and ⟨S, dS⟩ of these keys. STRICT: the keys are the queries, too,
    and to what dq has is added all that their reads are to it, but for dS, which has it already."""
    NK: tl.constexpr = (K + BK - 1) // BK
    SIDES: tl.constexpr = 1 if STRICT else 2
    pid = tl.program_id(0)
    side, i_k, block = pid % SIDES, pid // SIDES % NK, (pid // (SIDES * NK)).to(tl.int64)
    slot, first_head = block // (HV // HEADS), block % (HV // HEADS) * HEADS
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    t, o_k = c * C + tl.arange(0, C), i_k * BK + tl.arange(0, BK)
    token, live, part = i_b * T + first + t, t < length, (2 + i_k + side * NK).to(tl.int64) * size
    p_q = q + i_b * q_b + first * q_t + (first_head // GQ) * q_h + t[:, None] * q_t + o_k[None, :]
    p_k = k + i_b * k_b + first * k_t + (first_head // GK) * k_h + t[:, None] * k_t + o_k[None, :]
    p_v = v + i_b * v_b + first * v_t + t[:, None] * v_t
    p_do = do + i_b * do_b + first * do_t + t[:, None] * do_t
    out = (token[:, None] * (HV // HEADS) + first_head // HEADS) * K + o_k[None, :]
    if c * C < length:
        if side == 0:
            _side(
                p_q, p_k, p_do, do_h, 1, start, pair_grads, states, norms, state_grads, norm_grads, dq + out,
                dnq, sums, part, through, i_k, slot, first_head, live, token * HV, o_k, HV, NK,
                K, V, BK, BV, C, HEADS, True, STRICT, PRECISION,
            )  # fmt: skip
        if not STRICT:  # noqa: SIM102 only the first is known when this is compiled
            if side == 1:
                _side(
                    p_k, p_q, p_v, v_h, GV, end, pair_grads, state_grads, norm_grads, None, None, dk + out,
                    dnq, sums, part, None, i_k, slot, first_head, live, token * HV, o_k, HV, NK,
                    K, V, BK, BV, C, HEADS, False, STRICT, PRECISION,
                )  # fmt: skip


@triton.jit
def _side(
    p_own, p_other, p_value, value_h, GV, edge, pair_grads, states, norms, far_states, far_norms, p_grad,
    dnq, sums, part, through, i_k, slot, first_head, live, token, o_k, HV, NK: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr,
    READS: tl.constexpr, STRICT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """READS: own are the queries, with do, a and S; else the keys, with v, b and dS. The far states are the others."""
    o_c, o_v, m_k = tl.arange(0, C), tl.arange(0, BV), o_k < K
    m, row, column = live[:, None] & m_k[None, :], o_c[:, None], o_c[None, :]
    b_own, b_other = tl.load(p_own, mask=m, other=0.0), tl.load(p_other, mask=m, other=0.0)
    b_grad = tl.zeros((C, BK), tl.float32)
    if STRICT:
        b_grad += tl.load(p_grad, mask=m, other=0.0).to(tl.float32)
    for i in range(HEADS):
        i_h = first_head + i
        of_head = slot * HV + i_h
        b_edge = tl.load(edge + of_head * C + o_c)
        b_D = tl.load(pair_grads + of_head * C * C + (row * C + column if READS else column * C + row))
        b_x, b_through = tl.zeros((C, BK), tl.float32), tl.zeros((), tl.float32)
        for v0 in range(0, V, BV):
            m_v = v0 + o_v < V
            m_S, tile = m_v[:, None] & m_k[None, :], (of_head * V + v0 + o_v[:, None]) * K + o_k[None, :]
            m_value = live[:, None] & m_v[None, :]
            b_value = tl.load(p_value + i_h // GV * value_h + v0 + o_v[None, :], mask=m_value, other=0.0)
            b_S = tl.load(states + tile, mask=m_S, other=0.0)
            b_x = tl.dot(b_value, b_S, b_x, input_precision=PRECISION)
            if through is not None:
                b_dS = tl.load(far_states + tile, mask=m_S, other=0.0)
                b_through += tl.sum(b_S.to(tl.float32) * b_dS.to(tl.float32))
        if dnq is not None:
            b_n = tl.load(norms + of_head * K + o_k, mask=m_k, other=0.0)
            if READS:
                b_x += tl.load(dnq + token + i_h, mask=live, other=0.0)[:, None] * b_n[None, :]
                if through is not None:
                    b_through += tl.sum(b_n * tl.load(far_norms + of_head * K + o_k, mask=m_k, other=0.0))
            else:
                b_x += b_n[None, :]
        if sums is not None:
            tl.store(sums + part + of_head * C + o_c, tl.sum(b_own.to(tl.float32) * b_x, 1))
        if through is not None:
            tl.store(through + of_head * NK + i_k, b_through)
        b_grad = tl.dot(b_D, b_other, b_grad + b_x * b_edge[:, None], input_precision=PRECISION)
        if STRICT:
            b_D = tl.load(pair_grads + of_head * C * C + column * C + row)
            b_grad = tl.dot(b_D, b_other, b_grad, input_precision=PRECISION)
    tl.store(p_grad, b_grad.to(p_grad.dtype.element_ty), mask=m)


@triton.jit
def finish_gates(
    g, start, L, H, weights, sums, through, dg, dw, cu_seqlens, T, N, HV, size, C: tl.constexpr, NK: tl.constexpr,
    STRICT: tl.constexpr,
):  # fmt: skip
    """One program: dg and dw of one chunk and head, from what ``compare`` and ``finish`` left in ``sums``."""
    pid = tl.program_id(0).to(tl.int64)
    slot, i_h = pid // HV, pid % HV
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c = tl.arange(0, C)
    t, place, last = c * C + o_c, pid * C + o_c, o_c == C - 1
    live, at = t < length, (i_b * T + first + t) * HV + i_h
    if c * C < length:
        read, written, b_through = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32), tl.zeros((), tl.float32)
        for i in range(NK):
            read += tl.load(sums + (2 + i) * size + place)
            if not STRICT:
                written += tl.load(sums + (2 + NK + i) * size + place)
                b_through += tl.load(through + pid * NK + i)
        read *= tl.load(start + place)
        b_L, b_H = tl.load(L + place), tl.zeros((C,), tl.float32)
        if H is not None:
            b_H += tl.load(H + place)
        L_end, H_end = tl.sum(tl.where(last, b_L, 0.0), 0), tl.sum(tl.where(last, b_H, 0.0), 0)
        written *= tl.exp2(tl.minimum(L_end - b_L, 0.0) + (H_end - b_H))
        if dw is not None:
            tl.store(dw + at, tl.load(sums + size + place) + (read if STRICT else written), mask=live)
        if dg is not None:
            if weights is not None:
                b_w = tl.load(weights + place)
                read, written = (read * b_w, written) if STRICT else (read, written * b_w)
            passes = tl.load(sums + place) + read
            # Summed from the end, which leaves rounding errors of what does not pass: where nothing does, afresh
            cut = tl.where(tl.load(g + at, mask=live, other=0.0) < NEGLIGIBLE, 1.0, 0.0)
            passes, cut = tl.associative_scan((tl.where(cut > 0, 0.0, passes), cut), 0, restart, reverse=True)
            passes += tl.cumsum(written, 0) - written + tl.exp2(L_end + H_end) * b_through
            tl.store(dg + at, passes, mask=live)


def sharing(HV: int, *heads: int) -> int:
    """How many heads of HV in a row, up to 8, share q and k, of which there are so many heads."""
    return math.gcd(8, *(HV // few for few in heads))


def products(q, k, HV, cu_seqlens) -> torch.Tensor:
    """q_t·k_s, s ≤ t, of each chunk (slots, HV, C, C), 0 for s > t; heads of q and k divide HV."""
    return _prepared(q, k, 1.0, HV, cu_seqlens, 1)


def prepared(q, k, g, w, scale, HV, cu_seqlens, norm=False) -> Prepared:
    """g, w (B, T, HV) float32, contiguous, or None."""
    chunks = cumulated(q, g, w, scale, HV, cu_seqlens)
    sums = torch.empty_like(chunks.L) if norm else None
    shared = sharing(HV, q.shape[2], k.shape[2])
    pairs = _prepared(q, k, scale, HV, cu_seqlens, shared, chunks.L, chunks.H, chunks.weights, sums)
    return chunks._replace(pairs=pairs, sums=sums)


def cumulated(like, g, w, scale, HV, cu_seqlens, erases=False) -> Prepared:
    """What depends on g and w alone, for products of ``like``'s dtype."""
    (B, T), C = like.shape[:2], chunk_length(like.dtype)
    N, count = B if cu_seqlens is None else len(cu_seqlens) - 1, slots(B, T, C, cu_seqlens)

    def empty(*size, wanted=True):
        return torch.empty(count, HV, *size, dtype=torch.float32, device=like.device) if wanted else None

    decays, start, end, L, erasing = empty(), empty(C), empty(C), empty(C), empty(C, wanted=erases)
    H, weights = empty(C, wanted=like.dtype == torch.float32), empty(C, wanted=w is not None)
    heads = min(16, triton.next_power_of_2(HV))
    with on(like):
        cumulate[(count * triton.cdiv(HV, heads),)](
            g, w, decays, start, end, L, H, weights, erasing, cu_seqlens, T, N, HV, scale, C, heads
        )
    return Prepared(None, decays, start, end, None, L, H, weights, erasing=erasing)


def _prepared(q, k, scale, HV, cu_seqlens, heads, L=None, H=None, weights=None, sums=None) -> torch.Tensor:
    (B, T, _, K), C = q.shape, chunk_length(q.dtype)
    N, count = B if cu_seqlens is None else len(cu_seqlens) - 1, slots(B, T, C, cu_seqlens)
    pairs = torch.empty(count, HV, C, C, dtype=q.dtype, device=q.device)
    with on(q):
        prepare[(count * (HV // heads),)](
            q, k, L, H, weights, pairs, sums, cu_seqlens, T, N, HV, scale, *q.stride()[:3], *k.stride()[:3],
            K, chunk_tile(K, q.dtype), C, HV // q.shape[2], HV // k.shape[2], heads, precision(q.dtype),
        )  # fmt: skip
    return pairs


def finished(
    q, k, v, do, g, dnq, chunks: Prepared, left: Walked, right: Walked | None, scale, cu_seqlens, with_dg, with_dw,
    dq=None,
):  # fmt: skip
    """dq, dk (B, T, ·, K), sums over heads that share them or some of these, dg and dw (B, T, HV) or None; ``left``
    and ``right`` have the states at each chunk.

    Without ``right``: of reads by the keys, q = k, before they are written, the weights being the readers'; their
    gradients but for what is in ``right``'s are added to ``dq``; dk is None.
    """
    (B, T, H, K), (HV, V), (count, _, C), strict = q.shape, do.shape[2:], chunks.L.shape, right is None
    N, heads, BV = B if cu_seqlens is None else len(cu_seqlens) - 1, sharing(HV, H, k.shape[2]), chunk_tile(V, q.dtype)
    BK = min(max(16, triton.next_power_of_2(K)), 32 if q.dtype == torch.float32 else 128)
    NK, size, sums, through, dk = triton.cdiv(K, BK), count * HV * C, None, None, None
    if not strict:
        dq, dk = (written_later(cu_seqlens, B, T, HV // heads, K, dtype=q.dtype, device=q.device) for _ in range(2))
    dg, dw = (
        written_later(cu_seqlens, B, T, HV, dtype=torch.float32, device=q.device) if wanted else None
        for wanted in (with_dg, with_dw)
    )
    if with_dg or with_dw:
        sums = torch.empty(2 + (1 if strict else 2) * NK, *chunks.L.shape, dtype=torch.float32, device=q.device)
        through = None if strict else torch.empty(count, HV, NK, dtype=torch.float32, device=q.device)
    pair_grads = torch.empty_like(chunks.pairs)
    start, decays = chunks.start, (chunks.L, chunks.H, chunks.weights)
    edge = start * chunks.weights if strict else start
    strides = [x.stride(axis) for x in (q, k, v, do) for axis in range(3)]
    shared = (C, HV // H, HV // k.shape[2], HV // v.shape[2], heads, precision(q.dtype), strict)
    with on(q):
        compare[(count * (HV // heads),)](
            q, k, v, do, dnq, *decays, pair_grads, sums, cu_seqlens, T, N, HV, size, scale, *strides,
            K, V, chunk_tile(K, q.dtype), BV, *shared,
        )  # fmt: skip
        right = right or Walked()
        finish[(count * (HV // heads) * NK * (1 if strict else 2),)](
            q, k, v, do, dnq, edge, chunks.end, pair_grads, left.states, left.norms, right.states, right.norms,
            dq, dk, sums, through, cu_seqlens, T, N, HV, size, *strides, K, V, BK, BV, *shared,
        )  # fmt: skip
        if sums is not None:
            finish_gates[(count * HV,)](
                g, start, *decays, sums, through, dg, dw, cu_seqlens, T, N, HV, size, C, NK, strict, num_warps=1
            )
    return dq, dk, dg, dw
