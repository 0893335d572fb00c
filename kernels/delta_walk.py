"""The walk over chunks of the rules that correct, one decay a head or one a key channel.

With S the state that enters a chunk, X the inverse of what the chunk's tokens do to each other's corrections and P what
they read of each other (:mod:`kernels.delta_chunks`), a step is five products:

    u_t = β_t (v_t − a'_t Sᵀ e_t)        v'_t = Σ_s X_ts u_s        o_t = a_t Sᵀ q_t + Σ_s P_ts v'_s
    S ← d ⊙ S + Σ_t b_t k_t v'_tᵀ

e is the key, or another one to erase at, a'_t the decay from the chunk's start to t, a_t the same times the reads'
scale, b_t the decay from t to the end, d the whole of it. Where each key has its own decays, they are in q, e and k.
The gradients are a walk from the last chunk to the first, of five products again, with y_t that of u_t:

    dv'_s = b_s dSᵀ k_s + Σ_t P_ts do_t        y_s = Σ_t X_ts dv'_t
    dS ← d ⊙ dS + Σ_t a_t q_t do_tᵀ − Σ_t a'_t β_t e_t y_tᵀ

One program has the float32 state of one sequence, head and tile of the values in registers, values × keys, so that it,
u and v' are left operands: none is a transposed result of a product. v, tokens × values in memory, comes to values ×
tokens by a product with 1, since a copy would cross shared memory between barriers.
Where that gives too few programs for a GPU, a sequence is split into segments. What a segment makes of the state that
enters it is S Φ + Z: a first pass walks from S = 0 for Z and, as more values, all of them 0, from S = 1 for Φ.

Bytes a token, head and 16-bit element, K = V = 128: q, k and v read, a row of P and of X, and o written, 1.3 KB; each
tile of values reads q, k, P and X once more, through the L2 cache.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels import tiles as table
from kernels.arguments import on, written_later
from kernels.sequences import slot_of, slots, tokens_of
from kernels.tiles import WalkTiles, chunk_length
from kernels.walk import Prepared, precision


class Corrected(NamedTuple):
    """o and v' or y (B, T, HV, V); the states that enter each chunk or the gradients of those that leave it,
    (slots, HV, V, K) in v's dtype."""

    o: torch.Tensor | None
    values: torch.Tensor | None
    states: torch.Tensor | None


@triton.jit
def _entering(
    s_in, tile, local, of_sequence, i_s, o_k, o_v, K: tl.constexpr, V: tl.constexpr, SEGMENTS: tl.constexpr,
    LAST_PASS: tl.constexpr,
):  # fmt: skip
    """The state with which segment i_s starts, from what the earlier ones left; before the LAST_PASS 0, and 1 in Φ's
    rows."""
    m_k, m_v = o_k < K, o_v < V
    b_S = tl.zeros((o_v.shape[0], o_k.shape[0]), tl.float32)
    if LAST_PASS:
        if s_in is not None:
            b_S += tl.load(s_in + tile, mask=m_v[:, None] & m_k[None, :], other=0.0)
        if SEGMENTS > 1:
            for s in tl.range(0, i_s, num_stages=1):
                left = local + (of_sequence + s) * (V + K) * K + o_k[None, :]
                b_F = tl.load(left + (V + o_k[:, None]) * K, mask=m_k[:, None] & m_k[None, :], other=0.0)
                b_Z = tl.load(left + o_v[:, None] * K, mask=m_v[:, None] & m_k[None, :], other=0.0)
                b_S = tl.dot(b_S, b_F, b_Z, input_precision="tf32x3")
    else:
        b_S += tl.where(o_v[:, None] - V == o_k[None, :], 1.0, 0.0)
    return b_S


@triton.jit
def walk(
    q, k, v, e, beta, write, pairs, inverse, inward, erasing, outward, decays, s_in, local, o, corrected, states, s_out,
    cu_seqlens,
    # sizes; strides: batch, token, head of each; s_in and s_out: key, value
    T, HV, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, SEGMENTS: tl.constexpr,
    GQ: tl.constexpr, GV: tl.constexpr, WV: tl.constexpr, BY_KEY: tl.constexpr, LAST_PASS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: a segment of one sequence and head, BV values; before the LAST_PASS also of Φ's rows. e None: k.
    ``write``, (B, T, HV, WV), WV 1 or V, is multiplied to v."""
    ROWS: tl.constexpr = V if LAST_PASS else V + K
    NV: tl.constexpr = (ROWS + BV - 1) // BV
    D: tl.constexpr = K if BY_KEY else 1
    MANY: tl.constexpr = SEGMENTS if LAST_PASS else SEGMENTS - 1  # nothing starts from what the last one leaves
    pid = tl.program_id(0)
    i_v, i_s = pid % NV, (pid // NV) % MANY
    i_nh = (pid // (NV * MANY)).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    far = o_c[:, None].to(tl.int64)  # strides may be large
    at_q, at_k, at_v = far * q_t + o_k[None, :], far * k_t + o_k[None, :], far * v_t + o_v[None, :]
    at_o = o_c[None, :] * (HV * V) + o_v[:, None]
    q += i_b * q_b + first * q_t + (i_h // GQ) * q_h
    k += i_b * k_b + first * k_t + (i_h // GQ) * k_h
    v += i_b * v_b + first * v_t + (i_h // GV) * v_h
    token, slot = (i_b * T + first) * HV + i_h, slot_of(i_n, i_b, first, T, C, cu_seqlens)
    tile = i_nh * K * V + o_k[None, :] * s_k + o_v[:, None] * s_v
    own_tile = o_v[:, None] * K + o_k[None, :]  # in memory of our own: values × keys
    m_tile = m_k[None, :] & m_v[:, None]
    o_d = o_k if BY_KEY else o_k * 0
    # What is loaded tokens × values comes to values × tokens by a product, which crosses no barrier as a copy would
    one = tl.where(tl.arange(0, BV)[:, None] == tl.arange(0, BV)[None, :], 1.0, 0.0).to(v.dtype.element_ty)

    b_S = _entering(s_in, tile, local, i_nh * SEGMENTS, i_s, o_k, o_v, K, V, SEGMENTS, LAST_PASS)
    n = tl.cdiv(length, C)
    per = tl.cdiv(n, SEGMENTS)
    for c in tl.range(i_s * per, tl.minimum((i_s + 1) * per, n), num_stages=STAGES):
        live, chunk, now = o_c < (length - c * C).to(tl.int32), (slot + c) * HV + i_h, token + c * C * HV
        m_t = live[:, None] & m_k[None, :]
        m_x = live[:, None] & m_v[None, :]
        b_k = tl.load(k + c * C * k_t + at_k, mask=m_t, other=0.0)
        b_v = tl.load(v + c * C * v_t + at_v, mask=m_x, other=0.0)
        b_M = tl.load(inverse + chunk * C * C + o_c[None, :] * C + o_c[:, None])  # transposed, as P is
        b_d = tl.load(decays + chunk * D + o_d, mask=m_k, other=0.0) if BY_KEY else tl.load(decays + chunk)
        b_e = b_k
        if e is not None:
            b_e = tl.load(e + now * K + (o_c[:, None] * (HV * K) + o_k[None, :]), mask=m_t, other=0.0)
        if LAST_PASS and states is not None:
            tl.store(states + chunk * K * V + own_tile, b_S.to(states.dtype.element_ty), mask=m_tile)
        b_16 = b_S.to(b_k.dtype)
        b_u = tl.dot(b_16, tl.trans(b_e), input_precision=PRECISION)
        if erasing is not None:
            b_u *= tl.load(erasing + chunk * C + o_c)[None, :]
        if write is None:
            b_u = tl.dot(one, tl.trans(b_v), -b_u, input_precision=PRECISION)
        else:
            b_x = tl.dot(one, tl.trans(b_v), input_precision=PRECISION)
            if WV == 1:
                b_x *= tl.load(write + now + o_c * HV, mask=live, other=0.0).to(tl.float32)[None, :]
            else:
                b_w = tl.load(write + now * V + (o_c[:, None] * (HV * V) + o_v[None, :]), mask=m_x, other=0.0)
                b_x *= tl.dot(one, tl.trans(b_w.to(b_v.dtype)), input_precision=PRECISION)
            b_u = b_x - b_u
        if beta is not None:
            b_u *= tl.load(beta + chunk * C + o_c)[None, :]
        b_u = tl.dot(b_u.to(b_k.dtype), b_M, input_precision=PRECISION)
        m_o = live[None, :] & m_v[:, None]
        if LAST_PASS:
            if corrected is not None:
                tl.store(corrected + now * V + at_o, b_u.to(corrected.dtype.element_ty), mask=m_o)
            if o is not None:
                b_q = tl.load(q + c * C * q_t + at_q, mask=m_t, other=0.0)
                b_P = tl.load(pairs + chunk * C * C + o_c[None, :] * C + o_c[:, None])
                b_o = tl.dot(b_16, tl.trans(b_q), input_precision=PRECISION)
                if inward is not None:
                    b_o *= tl.load(inward + chunk * C + o_c)[None, :]
                b_o = tl.dot(b_u.to(b_k.dtype), b_P, b_o, input_precision=PRECISION)
                tl.store(o + now * V + at_o, b_o.to(o.dtype.element_ty), mask=m_o)
        if outward is not None:
            b_u *= tl.load(outward + chunk * C + o_c)[None, :]
        b_S *= b_d[None, :] if BY_KEY else b_d
        b_S = tl.dot(b_u.to(b_k.dtype), b_k, b_S, input_precision=PRECISION)

    if LAST_PASS:
        if s_out is not None:
            tl.store(s_out + tile, b_S, mask=m_tile & (i_s == SEGMENTS - 1))
    else:
        left = local + (i_nh * SEGMENTS + i_s) * (V + K) * K
        tl.store(left + own_tile, b_S, mask=(o_v < V + K)[:, None] & m_k[None, :])


@triton.jit
def walk_back(
    q, k, do, e, beta, pairs, inverse, inward, erasing, outward, decays, s_in, local, y, states, s_out, cu_seqlens,
    T, HV, q_b, q_t, q_h, k_b, k_t, k_h, do_b, do_t, do_h, s_k, s_v,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, SEGMENTS: tl.constexpr,
    GQ: tl.constexpr, BY_KEY: tl.constexpr, LAST_PASS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program of the gradients' walk, from the last chunk to the first, as one of :func:`walk`."""
    ROWS: tl.constexpr = V if LAST_PASS else V + K
    NV: tl.constexpr = (ROWS + BV - 1) // BV
    D: tl.constexpr = K if BY_KEY else 1
    MANY: tl.constexpr = SEGMENTS if LAST_PASS else SEGMENTS - 1
    pid = tl.program_id(0)
    i_v, i_s = pid % NV, (pid // NV) % MANY
    i_nh = (pid // (NV * MANY)).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_c, o_k, o_v = tl.arange(0, C), tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    p_q = q + i_b * q_b + first * q_t + (i_h // GQ) * q_h + o_k[None, :]
    p_k = k + i_b * k_b + first * k_t + (i_h // GQ) * k_h + o_k[None, :]
    p_do = do + i_b * do_b + first * do_t + i_h * do_h + o_v[:, None]
    token, slot = (i_b * T + first) * HV + i_h, slot_of(i_n, i_b, first, T, C, cu_seqlens)
    tile = i_nh * K * V + o_k[None, :] * s_k + o_v[:, None] * s_v
    own_tile, m_tile = o_v[:, None] * K + o_k[None, :], m_k[None, :] & m_v[:, None]
    o_d = o_k if BY_KEY else o_k * 0
    b_S = _entering(s_in, tile, local, i_nh * SEGMENTS, i_s, o_k, o_v, K, V, SEGMENTS, LAST_PASS)
    n = tl.cdiv(length, C)
    per = tl.cdiv(n, SEGMENTS)
    for step in tl.range(i_s * per, tl.minimum((i_s + 1) * per, n), num_stages=STAGES):
        c = n - 1 - step
        t = (c * C + o_c).to(tl.int64)
        live = t < length
        chunk, m_t, m_o = (slot + c) * HV + i_h, live[:, None] & m_k[None, :], live[None, :] & m_v[:, None]
        square = chunk * C * C + o_c[:, None] * C + o_c[None, :]
        b_k = tl.load(p_k + t[:, None] * k_t, mask=m_t, other=0.0)
        b_q = tl.load(p_q + t[:, None] * q_t, mask=m_t, other=0.0)
        b_do = tl.load(p_do + t[None, :] * do_t, mask=m_o, other=0.0)
        b_P, b_X = tl.load(pairs + square), tl.load(inverse + square)
        b_d = tl.load(decays + chunk * D + o_d, mask=m_k, other=0.0) if BY_KEY else tl.load(decays + chunk)
        b_e = b_k
        if e is not None:
            b_e = tl.load(e + (token + t[:, None] * HV) * K + o_k[None, :], mask=m_t, other=0.0)
        if LAST_PASS:
            tl.store(states + chunk * K * V + own_tile, b_S.to(states.dtype.element_ty), mask=m_tile)
        b_y = tl.dot(b_S.to(b_k.dtype), tl.trans(b_k), input_precision=PRECISION)
        if outward is not None:
            b_y *= tl.load(outward + chunk * C + o_c)[None, :]
        b_y = tl.dot(b_do, b_P, b_y, input_precision=PRECISION)
        b_y = tl.dot(b_y.to(b_k.dtype), b_X, input_precision=PRECISION)
        if LAST_PASS:
            tl.store(y + (token + t[None, :] * HV) * V + o_v[:, None], b_y.to(y.dtype.element_ty), mask=m_o)
        if inward is not None:
            b_do = (b_do * tl.load(inward + chunk * C + o_c)[None, :]).to(b_k.dtype)
        if beta is not None:
            b_y *= tl.load(beta + chunk * C + o_c)[None, :]
        if erasing is not None:
            b_y *= tl.load(erasing + chunk * C + o_c)[None, :]
        b_S *= b_d[None, :] if BY_KEY else b_d
        b_S = tl.dot(b_do, b_q, b_S, input_precision=PRECISION)
        b_S = tl.dot((-b_y).to(b_k.dtype), b_e, b_S, input_precision=PRECISION)
    if LAST_PASS:
        if s_out is not None:
            tl.store(s_out + tile, b_S, mask=m_tile & (i_s == SEGMENTS - 1))
    else:
        left = local + (i_nh * SEGMENTS + i_s) * (V + K) * K
        tl.store(left + own_tile, b_S, mask=(o_v < V + K)[:, None] & m_k[None, :])


def run(
    q, k, v, chunks: Prepared, *, write=None, read=True, keep=False, s_in=None, s_out=None, s_strides=(),
    cu_seqlens=None,
) -> Corrected:  # fmt: skip
    """One walk: allocate, launch. ``read``: write o; ``keep``: v' and the states; ``write`` (B, T, HV) or
    (B, T, HV, V), contiguous, multiplies v. Else as :func:`kernels.walk.run`."""
    (B, T, _, K), V = k.shape, v.shape[-1]
    HV, C = chunks.decays.shape[1], chunk_length(v.dtype)
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    by_key = chunks.decays.ndim == 3
    tiles = tiles_of(N * HV, T if cu_seqlens is None else -(-T // N), K, V, v.dtype, by_key, False)
    o, corrected = (
        written_later(cu_seqlens, B, T, HV, V, dtype=v.dtype, device=v.device) if wanted else None
        for wanted in (read, keep)
    )
    states = torch.empty(slots(B, T, C, cu_seqlens), HV, V, K, dtype=v.dtype, device=v.device) if keep else None
    strides = [x.stride(axis) for x in (q, k, v) for axis in range(3)]
    s_k, s_v = s_strides or (V, 1)
    e, erasing = (chunks.erasing, None) if by_key else (None, chunks.erasing)
    for last, grid, local in _passes(tiles, N * HV, K, V, v.device):
        with on(v):
            walk[(grid,)](
                q, k, v, e, chunks.weights, write, chunks.pairs, chunks.inverse, chunks.start, erasing, chunks.end,
                chunks.decays, s_in, local, o, corrected, states, s_out, cu_seqlens, T, HV, *strides, s_k, s_v,
                K, V, tiles.BK, tiles.BV, C, tiles.SEGMENTS, HV // k.shape[2], HV // v.shape[2],
                V if write is not None and write.ndim == 4 else 1, by_key, last, tiles.STAGES, precision(v.dtype),
                num_warps=tiles.WARPS,
            )  # fmt: skip
    return Corrected(o, corrected, states)


KERNELS = ("delta", "delta_back", "delta_by_key", "delta_by_key_back")  # in the tiles' table


def tiles_of(states, T, K, V, dtype, by_key: bool, back: bool) -> WalkTiles:
    tiles = table.walk_tiles(states, T, K, V, dtype, KERNELS[2 * by_key + back])
    # Such keys in float32 fit into registers no more, and fetched ahead not into shared memory either
    return tiles._replace(STAGES=1) if dtype == torch.float32 and tiles.BK > 128 else tiles


def _passes(tiles, states, K, V, device):
    """(whether it is the last, programs, where the segments' states are) of each launch of a walk."""
    S, BV, local = tiles.SEGMENTS, tiles.BV, None
    if S > 1:
        local = torch.empty(states, S, V + K, K, dtype=torch.float32, device=device)
        yield False, states * (S - 1) * triton.cdiv(V + K, BV), local
    yield True, states * S * triton.cdiv(V, BV), local


def run_back(q, k, do, chunks: Prepared, *, s_in=None, s_out=None, s_strides=(), cu_seqlens=None) -> Corrected:
    """y_t, the gradient of β_t (v_t − …), as ``values``, and the gradients of the states that leave the chunks."""
    (B, T, _, K), (HV, V), C = k.shape, do.shape[2:], chunk_length(do.dtype)
    N, by_key = B if cu_seqlens is None else len(cu_seqlens) - 1, chunks.decays.ndim == 3
    tiles = tiles_of(N * HV, T if cu_seqlens is None else -(-T // N), K, V, do.dtype, by_key, True)
    y = written_later(cu_seqlens, B, T, HV, V, dtype=do.dtype, device=do.device)
    states = torch.empty(slots(B, T, C, cu_seqlens), HV, V, K, dtype=do.dtype, device=do.device)
    strides = [x.stride(axis) for x in (q, k, do) for axis in range(3)]
    s_k, s_v = s_strides or (V, 1)
    e, erasing = (chunks.erasing, None) if by_key else (None, chunks.erasing)
    for last, grid, local in _passes(tiles, N * HV, K, V, do.device):
        with on(do):
            walk_back[(grid,)](
                q, k, do, e, chunks.weights, chunks.pairs, chunks.inverse, chunks.start, erasing, chunks.end,
                chunks.decays, s_in, local, y, states, s_out, cu_seqlens, T, HV, *strides, s_k, s_v,
                K, V, tiles.BK, tiles.BV, C, tiles.SEGMENTS, HV // k.shape[2], by_key, last, tiles.STAGES,
                precision(do.dtype), num_warps=tiles.WARPS,
            )  # fmt: skip
    return Corrected(None, y, states)


@triton.jit
def finish_write(
    y, v, write, more, dv, d_write, rows, T, HV, v_b, v_t, v_h, sign,
    V: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, GV: tl.constexpr, WV: tl.constexpr,
):  # fmt: skip
    """One program: dv and the gradient of ``write`` of ROWS heads and tokens, with ``more`` times ``sign`` added."""
    row, o_v = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BV)
    live, i_h, i_t = row < rows, row % HV, row // HV
    p_v = v + i_t // T * v_b + i_t % T * v_t + i_h // GV * v_h
    total = tl.zeros((ROWS,), tl.float32)
    for v0 in range(0, V, BV):
        m, at = live[:, None] & (v0 + o_v < V)[None, :], row[:, None] * V + v0 + o_v[None, :]
        b_y = tl.load(y + at, mask=m, other=0.0).to(tl.float32)
        b_v = tl.load(p_v[:, None] + v0 + o_v[None, :], mask=m, other=0.0).to(tl.float32)
        at_w = at if WV > 1 else row[:, None]
        b_w = tl.load(write + at_w, mask=m if WV > 1 else live[:, None], other=0.0).to(tl.float32)
        # A token of no sequence may hold anything: what is 0 stays 0
        b_x, b_dv = tl.where(b_y == 0, 0.0, b_y * b_v), tl.where(b_y == 0, 0.0, b_y * b_w)
        tl.store(dv + at, b_dv.to(dv.dtype.element_ty), mask=m)
        if WV > 1:
            tl.store(d_write + at, b_x.to(d_write.dtype.element_ty), mask=m)
        else:
            total += tl.sum(b_x, 1)
    if WV == 1:
        tl.store(d_write + row, total + sign * tl.load(more + row, mask=live, other=0.0), mask=live)


def write_gradients(y, v, write, more=None, sign=1.0):
    """y_t is the gradient of write_t ⊙ v_t: dv (B, T, HV, V) and that of ``write``, (B, T, HV), with ``more`` times
    ``sign`` added, in float32, or (B, T, HV, V), in its dtype."""
    (B, T, HV, V), WV = y.shape, y.shape[-1] if write.ndim == 4 else 1
    d_write = torch.empty_like(write, dtype=write.dtype if WV > 1 else torch.float32)
    dv, rows, BV = torch.empty_like(y), B * T * HV, min(128, triton.next_power_of_2(V))
    with on(y):
        finish_write[(triton.cdiv(rows, 32),)](
            y, v, write, more, dv, d_write, rows, T, HV, *(v.stride(axis) for axis in range(3)), sign,
            V, BV, 32, HV // v.shape[2], WV,
        )  # fmt: skip
    return dv, d_write
