"""One decay a head and token: linear attention, RetNet, simple GLA, Mamba-2's core, mLSTM's core.

    S_t = exp(g_t) S_{t-1} + w_t k_t v_tᵀ        o_t = scale S_tᵀ q_t

Unrolled, o_t = scale Σ_{s≤t} Γ_ts w_s (q_t·k_s) v_s with Γ_ts = exp(g_{s+1} + … + g_t). The gradients
have the same shape, with other tensors in the three places, twice with time reversed:

    dq_t = scale Σ_{s≤t} Γ_ts w_s (do_t·v_s) k_s             query do, key v, value k
    dv_s = scale Σ_{t≥s} Γ_ts w_s (k_s·q_t) do_t   reversed: query k,  key q, value do
    dk_s = scale Σ_{t≥s} Γ_ts w_s (v_s·do_t) q_t   reversed: query v,  key do, value q

so that one kernel, ``walk``, is the whole family, forward and backward. It walks the chunks of one
sequence, head and tile of the values with the float32 state in registers; nothing of size K V leaves the
chip. Where that gives too few programs for a GPU, the sequence is split into segments: a first pass
walks each from an empty state, reading only keys and values; the second starts each from what the
earlier ones left. Bytes moved, for one pass: q, k, v, o once, plus the state of each segment.

mLSTM divides by the normaliser, which is the state of a value that is always 1:

    n_t = exp(g_t) n_{t-1} + w_t k_t        o_t = scale S_tᵀ q_t / max(|nq_t|, floor_t), nq_t = scale n_t·q_t

That value is one more channel of the values in the forward walk and in dv's, where its read is what n adds to
dw; in the walks for dq and dk, whose keys are values, it is one more channel of the keys. It holds a number a
token, 1 or dnq, and its state is a vector.

With G the cumulative log-decay inside a chunk, every exponential is of a difference that is at most 0:
reading from the state that enters exp(G_t), between tokens exp(G_t − G_s), towards the end exp(G_C − G_s).
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels import tiles as table
from kernels.arguments import on, written_later
from kernels.sequences import chunk_of, slots, tokens_of

LOG2E = tl.constexpr(1.4426950408889634)
STRONG = tl.constexpr(-8.0)  # log-decays below are summed apart
WIPED = tl.constexpr(-200.0)  # in base 2: stands for g = −inf, since exp2 of anything below −149 is 0 in float32
NEGLIGIBLE = tl.constexpr(-16.0)  # exp of it is 1.1e-7, less than float32 resolves


@triton.jit
def walk(
    # pointers
    q, k, v, g, w, x, dnq, floor, s_in, n_in, local, total, o, dots, whole, anchors, nq, s_out, n_out, cu_seqlens,
    # sizes and scales
    B, T, HV, scale_read, scale_write,
    # strides: batch, token, head of each; s_in and s_out: key, value
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, x_b, x_t, x_h, s_k, s_v,
    # meta
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, SEGMENTS: tl.constexpr,
    EVERY: tl.constexpr, GQ: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, GX: tl.constexpr,
    REVERSE: tl.constexpr, READ: tl.constexpr, WEIGHTED: tl.constexpr, NORM: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: a segment of one sequence and head, BV values. READ: write o; otherwise only the state.

    A head of q serves GQ heads of the state, and so on. WEIGHTED says what w multiplies: "v", "k", "q" or "o".
    With dots, the state is kept at every border of EVERY tokens, for gate_gradient. What is read of a token's
    own write, by itself or right after it at a border or the end, is left out of dots and states. NORM: the
    normaliser's channel is one of the values, "v", or of the keys, "k", or there is none, "".
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    E: tl.constexpr = K if NORM == "v" else V if NORM == "k" else 0
    SIZE: tl.constexpr = K * V + E  # of a state that is kept: S, values × keys, then n
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
    token = (i_b * T + first) * HV + i_h  # g, w, o and dots are contiguous: (B, T, HV, …)
    tile = o_k[None, :] * s_k + o_v[:, None] * s_v
    kept_tile = o_v[:, None] * K + o_k[None, :]
    m_tile = m_k[None, :] & m_v[:, None]
    o_n, m_n = (o_k, m_k) if NORM == "v" else (o_v, m_v)
    mine = m_n & (i_v == 0) if NORM == "v" else m_n  # n of all keys is with every tile of values: one stores it

    # The state that enters, values × keys: as a left operand it never leaves the registers.
    b_S = tl.zeros((BV, BK), tl.float32)
    if READ and s_in is not None:
        b_S += tl.load(s_in + i_nh * K * V + tile, mask=m_tile, other=0.0)
    b_n = tl.zeros((BK if NORM == "v" else BV,), tl.float32)
    if READ and n_in is not None:
        b_n += tl.load(n_in + i_nh * E + o_n, mask=m_n, other=0.0)
    if READ and SEGMENTS > 1:
        for s in range(0, i_s):
            left = i_nh * SEGMENTS + s
            b_local = tl.load(local + left * SIZE + kept_tile, mask=m_tile, other=0.0)
            b_S = b_S * tl.load(total + left) + b_local
            if NORM != "":
                b_n = b_n * tl.load(total + left) + tl.load(local + left * SIZE + K * V + o_n, mask=m_n, other=0.0)

    n = tl.cdiv(length, C)
    per = tl.cdiv(n, SEGMENTS)
    kept = tl.full((), 1.0, tl.float32)
    for step in tl.range(i_s * per, tl.minimum((i_s + 1) * per, n), num_stages=STAGES):
        c = n - 1 - step if REVERSE else step
        t = (c * C + o_c).to(tl.int64)
        live, last = t < length, t == tl.minimum((c + 1) * C, length) - 1
        if READ and dots is not None:
            border = (c + 1) * C
            at_border = (border % EVERY == 0) & (border < length)
            place = (i_b * HV + i_h) * (T // EVERY + 1) + (first + border) // EVERY
            p_anchor = anchors + place * SIZE
            if REVERSE:
                tl.store(p_anchor + kept_tile, b_S, mask=m_tile & at_border)
                if NORM != "":
                    tl.store(p_anchor + K * V + o_n, b_n, mask=m_n & at_border)
        b_k = tl.load(p_k + t[:, None] * k_t, mask=live[:, None] & m_k[None, :], other=0.0)
        b_v = tl.load(p_v + t[None, :] * v_t, mask=live[None, :] & m_v[:, None], other=0.0)
        # In two parts, strong decays' whole numbers apart: a sum with them in it would lose digits of all differences
        # that follow, and sums of whole numbers are exact in any order
        b_G, b_H = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
        if g is not None:
            b_g = tl.load(g + token + t * HV, mask=live, other=0.0)
            strong = tl.where(b_g < STRONG, tl.ceil(tl.maximum(b_g * LOG2E, WIPED)), 0.0)
            b_H = tl.cumsum(strong, 0)
            b_G = tl.cumsum(tl.maximum(b_g * LOG2E, WIPED) - strong, 0)
        G_end, H_end = tl.sum(tl.where(last, b_G, 0.0), 0), tl.sum(tl.where(last, b_H, 0.0), 0)
        from_start, to_end = tl.exp2(b_G + b_H), tl.exp2(tl.minimum(G_end - b_G, 0.0) + (H_end - b_H))
        inward, outward = (to_end, from_start) if REVERSE else (from_start, to_end)
        end = tl.exp2(G_end + H_end)
        if w is not None:  # rounded as soon as it is multiplied: the same numbers in all four walks
            b_w = tl.load(w + token + t * HV, mask=live, other=0.0)
            if WEIGHTED == "v":
                b_v = (b_v * b_w[None, :]).to(b_v.dtype)
            elif WEIGHTED == "k":
                b_k = (b_k * b_w[:, None]).to(b_k.dtype)
        if NORM != "":  # what the writers, and the readers of keys, have in its channel
            b_1 = b_w
            if dnq is not None:
                b_1 = tl.load(dnq + token + t * HV, mask=live, other=0.0)
            writer, reader = (b_w, b_1) if NORM == "k" and not REVERSE else (b_1, b_w)
        if READ:
            b_q = tl.load(p_q + t[:, None] * q_t, mask=live[:, None] & m_k[None, :], other=0.0)
            if w is not None and WEIGHTED == "q":
                b_q = (b_q * b_w[:, None]).to(b_q.dtype)
            b_A = tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION)  # writers × readers
            if NORM == "k":
                b_A += writer[:, None] * reader[None, :]
            later = b_G[:, None] - b_G[None, :] if REVERSE else b_G[None, :] - b_G[:, None]
            later_H = b_H[:, None] - b_H[None, :] if REVERSE else b_H[None, :] - b_H[:, None]
            seen = o_c[:, None] >= o_c[None, :] if REVERSE else o_c[:, None] <= o_c[None, :]
            between = tl.exp2(tl.where(seen, tl.minimum(later, 0.0) + later_H, 0.0))
            b_A = tl.where(seen, b_A * between, 0.0) * scale_write
            if dots is not None:  # what a token reads of its own write is in q·dq and in k·dk: left out of both
                own = tl.sum(tl.where(o_c[:, None] == o_c[None, :], b_A, 0.0), 0) * scale_read
                b_A = tl.where(o_c[:, None] == o_c[None, :], 0.0, b_A)
            b_o = tl.dot(b_S.to(b_q.dtype), tl.trans(b_q), input_precision=PRECISION) * inward[None, :]
            if NORM == "k":
                b_o += b_n[:, None] * (reader * inward)[None, :]
            if NORM == "v":
                b_nq = tl.sum(b_q.to(tl.float32) * b_n[None, :], 1) * inward
                b_nq = (b_nq + tl.sum(b_A * writer[:, None], 0)) * scale_read
            b_o = tl.dot(b_v, b_A.to(b_v.dtype), b_o, input_precision=PRECISION) * scale_read
            if floor is not None:
                b_o /= tl.maximum(tl.abs(b_nq), tl.load(floor + token + t * HV, mask=live, other=1.0))[None, :]
                tl.store(nq + token + t * HV, b_nq, mask=live & (i_v == 0))
            if dots is not None or whole is not None:
                p_x = x + i_b * x_b + (first + t[None, :]) * x_t + (i_h // GX) * x_h + o_v[:, None]
                b_x = tl.load(p_x, mask=live[None, :] & m_v[:, None], other=0.0).to(tl.float32)
                p_dots = i_v.to(tl.int64) * B * T * HV + token + t * HV
                if dots is not None:
                    b_dots = tl.sum(b_x * b_o, 0)
                    if REVERSE:
                        b_dots = tl.where(last & (at_border | (c == n - 1)), 0.0, b_dots)
                    tl.store(dots + p_dots, b_dots, mask=live)
                    b_o += b_v.to(tl.float32) * own[None, :]
                if whole is not None:
                    b_dots = tl.sum(b_x * b_o, 0)
                    if NORM == "v":
                        b_dots += tl.where(i_v == 0, b_nq, 0.0)
                    tl.store(whole + p_dots, b_dots, mask=live)
            if w is not None and WEIGHTED == "o":
                b_o *= b_w[None, :]
            p_o = o + (token + t[None, :] * HV) * V + o_v[:, None]
            tl.store(p_o, b_o.to(o.dtype.element_ty), mask=live[None, :] & m_v[:, None])
        outward *= scale_write
        if READ and dots is not None and not REVERSE:
            v_last = tl.sum(tl.where(last[None, :], b_v * outward[None, :], 0.0), 1)
            k_last = tl.sum(tl.where(last[:, None], b_k.to(tl.float32), 0.0), 0)
            outward = tl.where(last, 0.0, outward)
        b_S = tl.dot((b_v * outward[None, :]).to(b_k.dtype), b_k, b_S * end, input_precision=PRECISION)
        if NORM == "v":
            b_n = b_n * end + tl.sum(b_k * (writer * outward)[:, None], 0)
        if NORM == "k":
            b_n = b_n * end + tl.sum(b_v * (writer * outward)[None, :], 1)
        if READ and dots is not None and not REVERSE:
            tl.store(p_anchor + kept_tile, b_S, mask=m_tile & at_border)
            if s_out is not None:
                tl.store(s_out + i_nh * K * V + tile, b_S, mask=m_tile & (c == n - 1))
            b_S += v_last[:, None] * k_last[None, :]
            if NORM != "":
                tl.store(p_anchor + K * V + o_n, b_n, mask=m_n & at_border)
                if n_out is not None:
                    tl.store(n_out + i_nh * E + o_n, b_n, mask=m_n & (c == n - 1))
                b_n += v_last * tl.sum(tl.where(last, writer, 0.0), 0)
        kept *= end

    if READ:
        if s_out is not None and (dots is None or REVERSE):
            tl.store(s_out + i_nh * K * V + tile, b_S, mask=m_tile & (i_s == SEGMENTS - 1))
        if n_out is not None and (dots is None or REVERSE):
            tl.store(n_out + i_nh * E + o_n, b_n, mask=mine & (i_s == SEGMENTS - 1))
    else:
        left = i_nh * SEGMENTS + i_s
        tl.store(local + left * SIZE + kept_tile, b_S, mask=m_tile)
        tl.store(total + left, kept)
        if NORM != "":
            tl.store(local + left * SIZE + K * V + o_n, b_n, mask=mine)


@triton.jit
def restart(sum_after, cut_after, value, cut):
    """Of a scan from the end: a sum that starts afresh before every cut."""
    return tl.where(cut > 0, value, sum_after + value), tl.maximum(cut_after, cut)


@triton.jit
def gate_gradient(
    g, reads, writes, read_anchors, write_anchors, last, dg, cu_seqlens, B, T, N, HV, scale,
    KV: tl.constexpr, TILES_R: tl.constexpr, TILES_W: tl.constexpr, EVERY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dg_t = Σ_{i≥t} (q_i·dq_i − k_i·dk_i), up to the next border, and from there on ⟨S, dS⟩ at the border.

    Both say the same: what is read after step t of what was written before. Summed over a whole sequence the
    differences would cancel to nothing but rounding errors, so the sum starts afresh at every border. One
    program: EVERY tokens of one sequence and head. ``last`` is ⟨S_T, dS_T⟩ of the final state. Everywhere without
    what is read of a token's own write: that does not pass a step. What passes a step whose decay is below
    float32's rounding is nothing: the sum starts afresh there too, so that no error of what follows gets past it.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_n, i_b, first, length, i_e = chunk_of(pid // HV, N, T, EVERY, cu_seqlens)
    t = i_e * EVERY + tl.arange(0, EVERY)
    place = (i_b * T + first + t) * HV + i_h
    live = t < length
    b_d = tl.zeros((EVERY,), tl.float32)
    for i in tl.static_range(TILES_R):
        b_d += tl.load(reads + (i_h * 0 + i) * B * T * HV + place, mask=live, other=0.0)
    for i in tl.static_range(TILES_W):
        b_d -= tl.load(writes + (i_h * 0 + i) * B * T * HV + place, mask=live, other=0.0)
    border = (i_e + 1) * EVERY
    after = tl.zeros((), tl.float32)
    if border < length:
        anchor = ((i_b * HV + i_h) * (T // EVERY + 1) + (first + border) // EVERY) * KV
        for start in range(0, KV, BLOCK):
            o_s = start + tl.arange(0, BLOCK)
            b_S = tl.load(read_anchors + anchor + o_s, mask=o_s < KV, other=0.0)
            after += tl.sum(b_S * tl.load(write_anchors + anchor + o_s, mask=o_s < KV, other=0.0), 0)
        after *= scale  # dS came out of its walk without it
    elif last is not None:
        after += tl.load(last + i_n * HV + i_h)
    cut = tl.where(tl.load(g + place, mask=live, other=0.0) < NEGLIGIBLE, 1.0, 0.0)
    b_d, cut_after = tl.associative_scan((tl.where(cut > 0, 0.0, b_d), cut), 0, restart, reverse=True)
    tl.store(dg + place, b_d + tl.where(cut_after > 0, 0.0, after), mask=live)


class Walked(NamedTuple):
    """o (B, T, HV, V), before w; on request, for each tile of values (tiles, B, T, HV), ``dots``, o·x without what is
    read of a token's own write, with ``states`` (B, HV, borders, V K, and n's numbers); or ``whole``, o·x. What was
    read of the normaliser, ``nq`` (B, T, HV)."""

    o: torch.Tensor
    dots: torch.Tensor | None = None
    whole: torch.Tensor | None = None
    states: torch.Tensor | None = None
    nq: torch.Tensor | None = None


def run(
    q, k, v, g, w=None, *, scale_read=1.0, scale_write=1.0, s_in=None, s_out=None, s_strides=(), cu_seqlens=None,
    reverse=False, weighted="", dots_with=None, whole_with=None, norm="", n_in=None, n_out=None, floor=None, dnq=None,
) -> Walked:  # fmt: skip
    """One walk with the tensors in their places: allocate, launch.

    q, k (B, T, ·, K), v (B, T, ·, V), their heads divide the most that any has, HV; g, w (B, T, HV) float32,
    contiguous; s_in, s_out (N, HV, …) float32, contiguous, ``s_strides`` for a key and a value apart.
    ``weighted``: what w multiplies, "v", "k", "q" or "o". ``dots_with`` or ``whole_with`` (B, T, ·, V) asks for the
    products of the outputs with it. ``norm``: where the normaliser's channel is, "v" or "k", its state ``n_in``,
    ``n_out`` (N, HV, ·); with ``floor`` (B, T, HV) the outputs are divided by it; ``dnq`` (B, T, HV), its gradient.
    """
    (B, T, _, K), V = q.shape, v.shape[-1]
    HV = max(x.shape[2] for x in (q, k, v))
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    tiles = table.walk_tiles(N * HV, T if cu_seqlens is None else -(-T // N), K, V, v.dtype)
    NV, size = triton.cdiv(V, tiles.BV), K * V + {"": 0, "v": K, "k": V}[norm]

    def scratch(*shape):
        return written_later(cu_seqlens, *shape, dtype=torch.float32, device=v.device)

    out = Walked(written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device))
    if dots_with is not None:
        out = out._replace(dots=scratch(NV, B, T, HV), states=scratch(B, HV, T // table.BORDERS + 1, size))
    if whole_with is not None:
        out = out._replace(whole=scratch(NV, B, T, HV))
    if floor is not None:
        out = out._replace(nq=scratch(B, T, HV))
    local = total = None
    if tiles.SEGMENTS > 1:
        local, total = scratch(N * HV, tiles.SEGMENTS, size), scratch(N * HV, tiles.SEGMENTS)
    placed = (q, k, v, next((x for x in (dots_with, whole_with) if x is not None), q))
    strides = [x.stride(axis) for x in placed for axis in range(3)]
    groups = [HV // x.shape[2] for x in placed]
    s_k, s_v = s_strides or (V, 1)
    for read in [False, True] if tiles.SEGMENTS > 1 else [True]:
        with on(v):
            walk[(N * HV * tiles.SEGMENTS * NV,)](
                q, k, v, g, w, placed[3], dnq, floor, s_in, n_in, local, total, *out, s_out, n_out, cu_seqlens,
                B, T, HV, scale_read, scale_write, *strides, s_k, s_v,
                K, V, tiles.BK, tiles.BV, tiles.C, tiles.SEGMENTS, table.BORDERS, *groups,
                reverse, read, weighted, norm, tiles.STAGES, precision(v.dtype), num_warps=tiles.WARPS,
            )  # fmt: skip
    return out


def gate(g: torch.Tensor, read: Walked, written: Walked, last, scale, cu_seqlens) -> torch.Tensor:
    """dg (B, T, HV) from what the walks for dq and dk left: their dots and their states at the borders."""
    reads, writes, S = read.dots, written.dots, read.states
    _, B, T, HV = reads.shape
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    dg = written_later(cu_seqlens, B, T, HV, dtype=torch.float32, device=reads.device)
    with on(dg):
        gate_gradient[(slots(B, T, table.BORDERS, cu_seqlens) * HV,)](
            g, reads, writes, S, written.states, last, dg, cu_seqlens, B, T, N, HV, scale,
            S.shape[-1], len(reads), len(writes), table.BORDERS, 4096,
        )  # fmt: skip
    return dg


def precision(dtype: torch.dtype) -> str:
    """Of products of float32 tensors: torch's own switch decides, as it does for torch.matmul.

    Without TF32, three TF32 products with what each operand lacks: nearly float32's accuracy on the tensor cores, where
    float32 products themselves would spill registers by the thousand.
    """
    return "tf32x3" if dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32" else "tf32"
