"""The walk over chunks that all rules that add share, forward and backward, one decay a head or one a key channel.

Inside the chunks everything has been prepared (:mod:`kernels.scalar_chunks`, :mod:`kernels.channel_chunks`), so that
a step, from one chunk of C tokens to the next, is three products:

    o_t = a_t (q_t S + what P has of v)        S ← d ⊙ S + Σ_t b_t k_tᵀ v_t

P (C, C) is what the chunk's tokens read of each other, a_t and b_t the decays from the chunk's start to t and from t
to its end, d the whole of it, a number or one for each key. Where each key has its own, q and k come with a and b in
them. The gradient of v is the same walk with time reversed:

    dv_t = b_t k_t dS + Pᵀ do        dS ← d ⊙ dS + Σ_t a_t q_tᵀ do_t        query k, key q, value do

The gradients of q, k and the decays need the states that enter each chunk, S from the left and dS from the right: a
walk can keep them, in the dtype in which it reads them, and the chunks are finished each by itself.

One program has the float32 state of one sequence, head and tile of the values in registers; nothing of size K V leaves
the chip. Where that gives too few programs for a GPU, the sequence is split into segments: a first pass walks each
from an empty state, reading only keys and values; the second starts each from what the earlier ones left. Bytes: q, k,
v, o and P once, k and v again for segments, and the states of each segment, and of each chunk if they are kept.

mLSTM divides by the normaliser, the state of a value that is always 1 (in the walk of the gradients, dnq_t):

    n ← d n + Σ_t b_t k_t        o_t = (…) / max(|nq_t|, floor_t), nq_t = a_t q_t·n + Σ_s P_ts

It is 16 more rows of the state, so that it too is carried and read by products, and because 16 rows cost what one
does, at twice the precision: the even ones get the b_t rounded to 16 bits, row 1 what their rounding lost; row 0 and 1
are n, and of row 2 is read what was lost in rounding row 0.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels import tiles as table
from kernels.arguments import on, written_later
from kernels.sequences import slot_of, slots, tokens_of


@triton.jit
def walk(
    # pointers
    q, k, v, pairs, inward, outward, decays, sums, ones, floor, s_in, n_in, local, total, o, lost, nq, states, norms,
    s_out, n_out, cu_seqlens,
    # sizes; strides: batch, token, head of each; s_in and s_out: key, value
    T, HV, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    # meta
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, SEGMENTS: tl.constexpr,
    GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, BY_KEY: tl.constexpr, NORM: tl.constexpr,
    REVERSE: tl.constexpr, LAST_PASS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: a segment of one sequence and head, BV values. A head of q serves GQ heads of the state, and so on.

    BY_KEY: a decay for each key. NORM: with a normaliser. Only the LAST_PASS writes o, or with o None just the states
    that enter the chunks; the pass before it leaves each segment's state, from an empty one, in ``local``.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    SIZE: tl.constexpr = K * V + (K if NORM else 0)  # of a segment's state
    D: tl.constexpr = K if BY_KEY else 1
    pid = tl.program_id(0)
    MANY: tl.constexpr = SEGMENTS if LAST_PASS else SEGMENTS - 1  # nothing starts from what the last one leaves
    i_v, i_s = pid % NV, (pid // NV) % MANY
    i_nh = (pid // (NV * MANY)).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    p_q = q + i_b * q_b + first * q_t + (i_h // GQ) * q_h + o_k[None, :]
    p_k = k + i_b * k_b + first * k_t + (i_h // GK) * k_h + o_k[None, :]
    p_v = v + i_b * v_b + first * v_t + (i_h // GV) * v_h + o_v[:, None]
    token, slot = (i_b * T + first) * HV + i_h, slot_of(i_n, i_b, first, T, C, cu_seqlens)
    tile = i_nh * K * V + o_k[None, :] * s_k + o_v[:, None] * s_v
    own_tile = o_v[:, None] * K + o_k[None, :]  # in memory of our own: values × keys
    m_tile = m_k[None, :] & m_v[:, None]
    line = tl.arange(0, 16)[:, None]
    o_d = o_k if BY_KEY else o_k * 0

    # The state that enters, values × keys: as a left operand it never leaves the registers.
    b_S = tl.zeros((BV, BK), tl.float32)
    b_n = tl.zeros((16, BK), tl.float32)
    if LAST_PASS:
        if s_in is not None:
            b_S += tl.load(s_in + tile, mask=m_tile, other=0.0)
        if n_in is not None:
            b_n += tl.where(line % 2 == 0, tl.load(n_in + i_nh * K + o_k, mask=m_k, other=0.0)[None, :], 0.0)
        if SEGMENTS > 1:
            for s in range(0, i_s):
                left = i_nh * SEGMENTS + s
                b_d = tl.load(total + left * D + o_d, mask=m_k, other=0.0)[None, :]
                b_S = b_S * b_d + tl.load(local + left * SIZE + own_tile, mask=m_tile, other=0.0)
                if NORM:
                    b_1 = tl.load(local + left * SIZE + K * V + o_k, mask=m_k, other=0.0)
                    b_n = b_n * b_d + tl.where(line % 2 == 0, b_1[None, :], 0.0)

    n = tl.cdiv(length, C)
    per = tl.cdiv(n, SEGMENTS)
    kept = tl.full((BK,), 1.0, tl.float32)
    for step in tl.range(i_s * per, tl.minimum((i_s + 1) * per, n), num_stages=STAGES):
        c = n - 1 - step if REVERSE else step
        t = (c * C + o_c).to(tl.int64)
        live = t < length
        chunk = (slot + c) * HV + i_h
        b_k = tl.load(p_k + t[:, None] * k_t, mask=live[:, None] & m_k[None, :], other=0.0)
        b_v = tl.load(p_v + t[None, :] * v_t, mask=live[None, :] & m_v[:, None], other=0.0)
        b_d = tl.load(decays + chunk * D + o_d, mask=m_k, other=0.0) if BY_KEY else tl.load(decays + chunk)
        b_w = b_v
        if outward is not None:
            b_out = tl.load(outward + chunk * C + o_c)
            b_w = (b_v * b_out[None, :]).to(b_v.dtype)
        if LAST_PASS:
            if states is not None:
                tl.store(states + chunk * K * V + own_tile, b_S.to(states.dtype.element_ty), mask=m_tile)
            if norms is not None:
                tl.store(norms + chunk * K + o_k, _normaliser(b_n, line), mask=m_k & (i_v == 0))
            if o is not None:
                b_q = tl.load(p_q + t[:, None] * q_t, mask=live[:, None] & m_k[None, :], other=0.0)
                b_o = tl.dot(b_S.to(b_q.dtype), tl.trans(b_q), input_precision=PRECISION)
                if inward is not None:
                    b_in = tl.load(inward + chunk * C + o_c)
                    b_o *= b_in[None, :]
                # P[t, s] as writers × readers
                row, column = (o_c[:, None], o_c[None, :]) if REVERSE else (o_c[None, :], o_c[:, None])
                b_P = tl.load(pairs + chunk * C * C + row * C + column)
                b_o = tl.dot(b_v, b_P, b_o, input_precision=PRECISION)
                if floor is not None:
                    b_1 = tl.where(line == 2, b_n - b_n.to(b_q.dtype).to(tl.float32), tl.where(line < 2, b_n, 0.0))
                    b_nq = tl.sum(tl.dot(b_1.to(b_q.dtype), tl.trans(b_q), input_precision=PRECISION), 0) * b_in
                    b_nq += tl.load(sums + chunk * C + o_c)
                    b_floor = tl.load(floor + token + t * HV, mask=live, other=1.0)
                    b_o /= tl.maximum(tl.abs(b_nq), b_floor)[None, :]
                    tl.store(nq + token + t * HV, b_nq, mask=live & (i_v == 0))
                at, m_o = (token + t[None, :] * HV) * V + o_v[:, None], live[None, :] & m_v[:, None]
                rounded = b_o.to(o.dtype.element_ty)
                tl.store(o + at, rounded, mask=m_o)
                if lost is not None:
                    tl.store(lost + at, (b_o - rounded.to(tl.float32)).to(rounded.dtype), mask=m_o)
        if BY_KEY:
            b_S = tl.dot(b_w, b_k, b_S * b_d[None, :], input_precision=PRECISION)
        else:
            b_S = tl.dot(b_w, b_k, b_S * b_d, input_precision=PRECISION)
        if NORM:
            b_1 = b_out
            if ones is not None:
                b_1 *= tl.load(ones + token + t * HV, mask=live, other=0.0)
            high = b_1.to(b_k.dtype).to(tl.float32)
            b_lines = tl.where(line % 2 == 0, high[None, :], tl.where(line == 1, (b_1 - high)[None, :], 0.0))
            b_n = tl.dot(b_lines.to(b_k.dtype), b_k, b_n * b_d, input_precision=PRECISION)
        kept *= b_d

    if LAST_PASS:
        if s_out is not None:
            tl.store(s_out + tile, b_S, mask=m_tile & (i_s == SEGMENTS - 1))
        if n_out is not None:
            tl.store(n_out + i_nh * K + o_k, _normaliser(b_n, line), mask=m_k & (i_v == 0) & (i_s == SEGMENTS - 1))
    else:
        left = i_nh * SEGMENTS + i_s
        tl.store(local + left * SIZE + own_tile, b_S, mask=m_tile)
        if NORM:
            tl.store(local + left * SIZE + K * V + o_k, _normaliser(b_n, line), mask=m_k & (i_v == 0))
        tl.store(total + left * D + o_d, kept, mask=(m_k if BY_KEY else o_k == 0) & (i_v == 0))


@triton.jit
def _normaliser(b_n, line):
    return tl.sum(tl.where(line < 2, b_n, 0.0), 0)


class Walked(NamedTuple):
    """o (B, T, HV, V) and what its rounding ``lost``; what was read of the normaliser, ``nq`` (B, T, HV); the states
    that enter each chunk, ``states`` (slots, HV, V, K) in v's dtype, ``norms`` (slots, HV, K)."""

    o: torch.Tensor | None = None
    lost: torch.Tensor | None = None
    nq: torch.Tensor | None = None
    states: torch.Tensor | None = None
    norms: torch.Tensor | None = None


class Prepared(NamedTuple):
    """What a walk needs of each chunk, float32 but for the squares and q and k, in the walks' letters.

    pairs          P (slots, HV, C, C)
    decays         d (slots, HV) or, with one for each key, (slots, HV, K)
    start, end     a and b (slots, HV, C), where they are not in q and k
    sums           of each row of P (slots, HV, C), for a normaliser
    L, H, weights  (slots, HV, C) too: see :mod:`kernels.scalar_chunks`
    inverse        X (slots, HV, C, C), of rules that correct
    erasing        a' (slots, HV, C), or with a decay for each key, decayed, what is erased at, e (B, T, HV, K)
    """

    pairs: torch.Tensor
    decays: torch.Tensor
    start: torch.Tensor | None = None
    end: torch.Tensor | None = None
    sums: torch.Tensor | None = None
    L: torch.Tensor | None = None
    H: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    inverse: torch.Tensor | None = None
    erasing: torch.Tensor | None = None


def run(
    q, k, v, prepared: Prepared, *, read=True, keep=False, reverse=False, s_in=None, s_out=None, s_strides=(),
    n_in=None, n_out=None, norm=False, floor=None, ones=None, with_lost=False, cu_seqlens=None,
) -> Walked:  # fmt: skip
    """One walk with the tensors in their places: allocate, launch.

    q, k (B, T, ·, K), v (B, T, ·, V), their heads divide HV. ``read``: write o; ``keep``: the states that enter the
    chunks. s_in, s_out (N, HV, …), n_in, n_out (N, HV, K) float32, contiguous, ``s_strides`` for a key and a value
    apart. ``norm``: with a normaliser, whose value is ``ones`` (B, T, HV) instead of 1; with ``floor`` (B, T, HV) the
    outputs are divided by it.
    """
    (B, T, _, K), V = k.shape, v.shape[-1]
    HV, C = prepared.pairs.shape[1:3]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    tiles = table.walk_tiles(N * HV, T if cu_seqlens is None else -(-T // N), K, V, v.dtype)
    NV, by_key = triton.cdiv(V, tiles.BV), prepared.decays.ndim == 3

    def scratch(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device=v.device)

    count = slots(B, T, C, cu_seqlens)
    out = Walked(
        written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device) if read else None,
        written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device) if with_lost else None,
        None if floor is None else written_later(cu_seqlens, B, T, HV, dtype=torch.float32, device=v.device),
        scratch(count, HV, V, K, dtype=v.dtype) if keep else None,
        scratch(count, HV, K) if keep and norm else None,
    )
    local = total = None
    if tiles.SEGMENTS > 1:
        local = scratch(N * HV, tiles.SEGMENTS, K * V + (K if norm else 0))
        total = scratch(N * HV, tiles.SEGMENTS, K if by_key else 1)
    inward, outward = (prepared.end, prepared.start) if reverse else (prepared.start, prepared.end)
    strides = [x.stride(axis) for x in (q, k, v) for axis in range(3)]
    groups = [HV // x.shape[2] for x in (q, k, v)]
    s_k, s_v = s_strides or (V, 1)
    stages = 2 if read and keep and tiles.WARPS == 4 else tiles.STAGES  # with more a multiprocessor holds one program
    for last in [False, True] if tiles.SEGMENTS > 1 else [True]:
        with on(v):
            walk[(N * HV * (tiles.SEGMENTS if last else tiles.SEGMENTS - 1) * NV,)](
                q, k, v, prepared.pairs, inward, outward, prepared.decays, prepared.sums, ones, floor,
                s_in, n_in, local, total, *out, s_out, n_out, cu_seqlens, T, HV, *strides, s_k, s_v,
                K, V, tiles.BK, tiles.BV, C, tiles.SEGMENTS, *groups,
                by_key, norm, reverse, last, stages, precision(v.dtype), num_warps=tiles.WARPS,
            )  # fmt: skip
    return out


def precision(dtype: torch.dtype) -> str:
    """Of products of float32 tensors: torch's own switch decides, as it does for torch.matmul.

    Without TF32, three TF32 products with what each operand lacks: nearly float32's accuracy on the tensor cores, where
    float32 products themselves would spill registers by the thousand.
    """
    return "tf32x3" if dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32" else "tf32"
