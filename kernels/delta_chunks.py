"""Inside the chunks of the rules that correct: the inverse that both kinds of decay need, and what else the walk needs
where a head has one decay a token.

    Γ_ts = exp(g_{s+1} + … + g_t)      P_ts = scale Γ_ts (q_t·k_s), s ≤ t      T_ts = β_t Γ_ts (k_t·k_s), s < t
    X = (1 + T)⁻¹

By halves: where X is the inverse of the blocks on the diagonal, X − X (T between the halves of blocks twice as long) X
is that of these. Up to 16 tokens each block has a warp to itself, after that the products are the chunk's. Squaring T
instead would be less work, and useless: with equal keys its powers grow to 1e9.

The gradients are those of a rule that adds what the walk has corrected, and of its reads by the keys, which are taken
away: :mod:`kernels.scalar_chunks` has both.

Bytes a token, head and 16-bit element, K = V = 128: q and k read, a row of P and of X written, 0.8 KB.
"""

import torch
import triton
import triton.language as tl

from kernels import scalar_chunks
from kernels.arguments import on
from kernels.scalar_chunks import between_tokens
from kernels.sequences import chunk_of
from kernels.tiles import chunk_tile
from kernels.walk import Prepared, precision


@triton.jit
def _doubled(b_X, b_T, row, column, level: tl.constexpr, PRECISION: tl.constexpr):
    """Of the inverses of blocks of 2 to the ``level`` those of blocks twice as long."""
    crossing = (row >> (level + 1) == column >> (level + 1)) & (row >> level != column >> level)
    b_Y = tl.dot(b_X, tl.where(crossing, b_T, 0.0), input_precision=PRECISION)
    return b_X - tl.dot(b_Y, b_X, input_precision=PRECISION)


@triton.jit
def inverse_of(b_T, C: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr):
    """(1 + T)⁻¹ of a strictly lower triangular T (C, C), C = 2 to the LEVELS, at least 16."""
    N: tl.constexpr = C // 16
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    # Blocks of 16 by themselves: a warp has one, and what it hands itself crosses no barrier
    diagonal = row // 16 == column // 16
    b_B = tl.sum(tl.reshape(tl.where(diagonal, b_T, 0.0), (N, 16, N, 16)), 2)
    i, j = tl.arange(0, 16)[None, :, None], tl.arange(0, 16)[None, None, :]
    b_X = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, b_B, 0.0)
    for level in tl.static_range(1, 4):
        b_X = _doubled(b_X, b_B, i, j, level, PRECISION)
    b_X = tl.reshape(tl.broadcast_to(b_X[:, :, None, :], (N, 16, N, 16)), (C, C))
    b_X = tl.where(diagonal, b_X, 0.0)
    for level in tl.static_range(4, LEVELS):
        b_X = _doubled(b_X, b_T, row, column, level, PRECISION)
    return b_X


def inverse_precision(dtype: torch.dtype) -> str:
    """TF32's digits for X that is rounded to bfloat16, three such products for others: with equal keys and strengths of
    2 the entries neither fade nor grow, and rounding errors add up over the levels. float16 itself lacks the range."""
    return "tf32" if dtype == torch.bfloat16 else "tf32x3"


@triton.jit
def prepare(
    q, k, L, H, beta, pairs, inverse, cu_seqlens, T, N, HV, scale, q_b, q_t, q_h, k_b, k_t, k_h,
    K: tl.constexpr, BK: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, GROUP: tl.constexpr,
    HEADS: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One program: P and X of one chunk and HEADS heads that share q and k."""
    pid = tl.program_id(0).to(tl.int64)
    slot, first_head = pid // (HV // HEADS), pid % (HV // HEADS) * HEADS
    _, i_b, first, length, c = chunk_of(slot, N, T, C, cu_seqlens)
    o_c, o_k = tl.arange(0, C), tl.arange(0, BK)
    t, row, column = c * C + o_c, o_c[:, None], o_c[None, :]
    live = t < length
    p_q = q + i_b * q_b + first * q_t + (first_head // GROUP) * q_h + t[:, None] * q_t
    p_k = k + i_b * k_b + first * k_t + (first_head // GROUP) * k_h + t[:, None] * k_t
    if c * C < length:
        place = (slot * HV + first_head) * C + o_c
        # Fetched long before they are needed, as the next heads' are below
        b_L, b_beta, b_H = tl.load(L + place), tl.load(beta + place), tl.zeros((C,), tl.float32)
        if H is not None:
            b_H += tl.load(H + place)
        b_A, b_B = tl.zeros((C, C), tl.float32), tl.zeros((C, C), tl.float32)
        for k0 in range(0, K, BK):
            m = live[:, None] & (k0 + o_k < K)[None, :]
            b_q = tl.load(p_q + k0 + o_k[None, :], mask=m, other=0.0)
            b_k = tl.load(p_k + k0 + o_k[None, :], mask=m, other=0.0)
            b_A = tl.dot(b_q, tl.trans(b_k), b_A, input_precision=PRECISION)
            b_B = tl.dot(b_k, tl.trans(b_k), b_B, input_precision=PRECISION)
        for i in range(HEADS):
            between, at = between_tokens(b_L, b_H), (slot * HV + first_head + i) * C * C + row * C + column
            b_P = tl.where(row >= column, b_A * (between * scale), 0.0)
            tl.store(pairs + at, b_P.to(pairs.dtype.element_ty))
            b_T = tl.where(row > column, b_B * (between * b_beta[:, None]), 0.0)
            if i < HEADS - 1:
                place += C
                b_L, b_beta = tl.load(L + place), tl.load(beta + place)
                if H is not None:
                    b_H = tl.load(H + place)
            tl.store(inverse + at, inverse_of(b_T, C, LEVELS, EXACT).to(inverse.dtype.element_ty))


def prepared(q, k, g, beta, scale, HV, cu_seqlens) -> Prepared:
    """g (B, T, HV) or None, beta (B, T, HV), float32, contiguous."""
    chunks = scalar_chunks.cumulated(q, g, beta, scale, HV, cu_seqlens, erases=True)
    (_, T, H, K), (count, _, C), heads = q.shape, chunks.L.shape, scalar_chunks.sharing(HV, q.shape[2])
    N = len(q) if cu_seqlens is None else len(cu_seqlens) - 1
    pairs, inverse = (torch.empty(count, HV, C, C, dtype=q.dtype, device=q.device) for _ in range(2))
    with on(q):
        prepare[(count * (HV // heads),)](
            q, k, chunks.L, chunks.H, chunks.weights, pairs, inverse, cu_seqlens, T, N, HV, scale,
            *q.stride()[:3], *k.stride()[:3], K, chunk_tile(K, q.dtype), C, C.bit_length() - 1, HV // H, heads,
            precision(q.dtype), inverse_precision(q.dtype),
        )  # fmt: skip
    return chunks._replace(pairs=pairs, inverse=inverse)
