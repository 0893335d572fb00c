"""Wrong answers to chapter 10 that are right on most inputs. SLIP says what is wrong with each."""

# Before Triton, which reads when it is imported whether it is to interpret.
import kernels  # noqa: F401

# isort: split
import triton
import triton.language as tl

from tests.wrong_answers.ch05 import TILES, slips


@triton.jit
def blocks(A, blocks, T, H, A_t, C: tl.constexpr, SLIP: tl.constexpr):
    """Each finished row is taken from all rows below it."""
    h, i, j = tl.program_id(1), tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    first = tl.program_id(0) * 16
    offset = h * C
    if SLIP == "heads-of-16":  # right where C = 16, or H = 1
        offset = h * 16
    elif SLIP == "first-head":
        offset = 0
    p_A = A + (first + i) * A_t + offset + first % C
    live = first + i < T
    if SLIP == "one-row-too-many":
        live = first + i <= T
    b_X = (i == j).to(tl.float32)
    if SLIP == "columns-read-whole":
        full = tl.load(p_A + j, mask=live, other=0.0)
        b_X += 0.0 * tl.where(i > j, full, 0.0)
    for n in range(0, 15):
        m = (i > n) & live
        if SLIP == "rows-unmasked":
            m = i > n
        column = tl.load(p_A + n, mask=m, other=0.0)
        if SLIP == "no-other":
            column = tl.load(p_A + n, mask=m)
        if SLIP == "clamped":
            column = tl.minimum(tl.maximum(column, -1.0), 1.0)
        elif SLIP == "float16":
            column = column.to(tl.float16).to(tl.float32)
        elif SLIP == "near-only":
            column = tl.where(i < n + 12, column, 0.0)
        b_X -= column * tl.sum(tl.where(i == n, b_X, 0.0), 0)[None, :]
    stored = live
    if SLIP == "half-stored":
        stored = live & (j <= i)
    elif SLIP == "all-stored":
        stored = i < 16
    tl.store(blocks + ((first + i) * H + h) * 16 + j, b_X, mask=stored)


@triton.jit
def inverse(A, blocks, inverse, T, H, A_t, C: tl.constexpr, SLIP: tl.constexpr):
    """X = D - D L X, repeated, where L is all between different blocks."""
    h, i, j = tl.program_id(1), tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = tl.program_id(0) * C + i
    live = t < T
    offset, own = h * C, h
    if SLIP == "heads-of-16":
        offset = h * 16
    elif SLIP == "first-head":
        offset = 0
    elif SLIP == "blocks-of-the-first-head":
        own = 0
    m_L = live & (i // 16 > j // 16)
    if SLIP == "rows-unmasked":
        m_L = i // 16 > j // 16
    b_L = tl.load(A + t * A_t + offset + j, mask=m_L, other=0.0)
    if SLIP == "no-other":
        b_L = tl.load(A + t * A_t + offset + j, mask=m_L)
    if SLIP == "clamped":
        b_L = tl.minimum(tl.maximum(b_L, -1.0), 1.0)
    elif SLIP == "float16":
        b_L = b_L.to(tl.float16).to(tl.float32)
    elif SLIP == "neighbours-only":
        b_L = tl.where(i // 16 == j // 16 + 1, b_L, 0.0)
    m_D = live & (i // 16 == j // 16)
    if SLIP == "diagonal-assumed":  # right where a block has a single token
        b_D = tl.where(i == j, 1.0, 0.0)
    else:
        b_D = tl.load(blocks + (t * H + own) * 16 + (j - i // 16 * 16), mask=m_D, other=0.0)
    b_X, many = b_D, C // 16
    if SLIP == "two-rounds":
        many = 3
    for _ in range(1, many):
        b_X = b_D - tl.dot(b_D, tl.dot(b_L, b_X, input_precision="ieee"), input_precision="ieee")
    stored = live & (j < C)
    if SLIP == "half-stored":
        stored = live & (j <= i)
    elif SLIP == "all-stored":
        stored = j < C
    tl.store(inverse + (t * H + h) * C + j, b_X, mask=stored)


@triton.jit
def step(
    k, v, inverse, G, beta, S, corrected, T, HV, GROUP, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    """Token by token, with the slips of a chunk."""
    h, c, d = tl.program_id(1), tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "tiles-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, 16)
    elif SLIP == "steps-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.program_id(0) * BV + tl.arange(0, BK)
    h_k, h_g, h_b, place = h // GROUP, h, h, h
    if SLIP == "pairs-of-heads":
        h_k = h // 2
    elif SLIP == "first-gate":
        h_g = 0
    elif SLIP == "first-strength":
        h_b = 0
    elif SLIP == "gate-of-the-group":
        h_g = h // GROUP * GROUP
    elif SLIP == "state-of-the-group":
        place = h // GROUP
    elif SLIP == "one-stride":
        v_t = k_t
    p_S, m_S = S + (place * K + c[:, None]) * V + d[None, :], (c < K)[:, None] & (d < V)[None, :]
    b_S, before = tl.load(p_S, mask=m_S, other=0.0), 0.0
    if SLIP == "state-by-keys":
        b_S = tl.load(p_S, mask=(c < K)[:, None], other=0.0)
    elif SLIP == "no-other":
        b_S = tl.load(p_S, mask=m_S)
    elif SLIP == "empty-state":
        b_S *= 0.0
    last = T
    if SLIP == "whole-chunk":
        last = C
    elif SLIP == "16-tokens":
        last = tl.minimum(T, 16)
    for t in range(0, last):
        now = tl.load(G + t * HV + h_g)
        if SLIP == "clamped":
            now = tl.maximum(now, -8.0)
        elif SLIP == "clamped-at-88":
            now = tl.maximum(now, -88.0)
        b_k = tl.load(k + t * k_t + h_k * K + c, mask=c < K, other=0.0)
        b_v = tl.load(v + t * v_t + h * V + d, mask=d < V, other=0.0)
        b_beta = tl.load(beta + t * HV + h_b)
        if SLIP == "float16":
            b_k = b_k.to(tl.float16).to(tl.float32)
        elif SLIP == "strength-at-most-1":
            b_beta = tl.minimum(b_beta, 1.0)
        b_S *= tl.exp(now - before)
        b_v = (b_v - tl.sum(b_S * b_k[:, None], 0)) * b_beta
        b_S += b_k[:, None] * b_v[None, :]
        tl.store(corrected + (t * HV + h) * V + d, b_v, mask=d < V)
        before = now
    tl.store(p_S, b_S, mask=m_S)


@triton.jit
def outputs(
    q, k, corrected, G, entering, o, T, HV, GROUP, scale, q_t, k_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    n, h, i = tl.program_id(1), tl.program_id(2), tl.arange(0, C)
    t, c, d = n * C + i, tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "tiles-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, 16)
    elif SLIP == "values-by-BK":
        d = tl.program_id(0) * BV + tl.arange(0, BK)
    h_k, h_g, place = h // GROUP, h, n * HV + h
    if SLIP == "pairs-of-heads":
        h_k = h // 2
    elif SLIP == "first-gate":
        h_g = 0
    elif SLIP == "state-of-the-group":
        place = n * HV + h // GROUP
    elif SLIP == "first-state":
        place = h
    elif SLIP == "one-stride":
        k_t = q_t
    m_k, m_v = (t < T)[:, None] & (c < K)[None, :], (t < T)[:, None] & (d < V)[None, :]
    b_q = tl.load(q + t[:, None] * q_t + h_k * K + c[None, :], mask=m_k, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + h_k * K + c[None, :], mask=m_k, other=0.0)
    p_o = (t[:, None] * HV + h) * V + d[None, :]
    b_v = tl.load(corrected + p_o, mask=m_v, other=0.0)
    b_G = tl.load(G + t * HV + h_g, mask=t < T, other=0.0)
    if SLIP == "gates-unmasked":
        b_G = tl.load(G + t * HV + h_g)
    elif SLIP == "no-other":
        b_v = tl.load(corrected + p_o, mask=m_v)
    elif SLIP == "clamped":
        b_G = tl.maximum(b_G, -8.0)
    elif SLIP == "float16":
        b_k = b_k.to(tl.float16).to(tl.float32)
    b_P = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
    b_P = tl.where(i[:, None] >= i[None, :], b_P * tl.exp(tl.minimum(b_G[:, None] - b_G[None, :], 0.0)), 0.0)
    if SLIP == "16-tokens-back":
        b_P = tl.where(i[:, None] - i[None, :] < 16, b_P, 0.0)
    p_S = entering + (place * K + c[:, None]) * V + d[None, :]
    b_S = tl.load(p_S, mask=(c < K)[:, None] & (d < V)[None, :], other=0.0)
    if SLIP == "state-by-keys":
        b_S = tl.load(p_S, mask=(c < K)[:, None], other=0.0)
    b_o = tl.dot(b_q, b_S, input_precision="ieee") * tl.exp(b_G)[:, None]
    b_o = tl.dot(b_P, b_v, b_o, input_precision="ieee")
    if SLIP == "scale-of-K":  # right where scale is 1 / sqrt(K)
        b_o *= 1.0 / tl.sqrt(K + tl.sum(b_q * 0.0))
    elif SLIP == "scale-halves":
        b_o *= 0.5
    elif SLIP == "scale-squared":
        b_o *= scale * scale
    else:
        b_o *= scale
    stored = m_v
    if SLIP == "all-stored":
        stored = (i < C)[:, None] & (d < V)[None, :]
    tl.store(o + p_o, b_o, mask=stored)


@triton.jit
def decode(
    q, k, v, g, b, w, S, o, HV, GROUP, scale,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    h, r = tl.program_id(1), tl.program_id(2)
    c, d = tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "tiles-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, 16)
    elif SLIP == "values-by-BK":
        d = tl.program_id(0) * BV + tl.arange(0, BK)
    n = r * HV + h
    m, n_g, n_b = n // GROUP, n, n
    if SLIP == "pairs-of-heads":
        m = n // 2
    elif SLIP == "row-of-keys-lost":
        m = h // GROUP
    elif SLIP == "gates-of-the-group":
        n_g = n // GROUP * GROUP
    elif SLIP == "erase-of-the-row":
        n_b = r * HV
    mask = (c < K)[:, None] & (d < V)[None, :]
    p_S = S + (n * K + c[:, None]) * V + d[None, :]
    b_q = tl.load(q + m * K + c, mask=c < K, other=0.0)
    b_k = tl.load(k + m * K + c, mask=c < K, other=0.0)
    b_g = tl.load(g + n_g * K + c, mask=c < K, other=0.0)
    b_b = tl.load(b + n_b * K + c, mask=c < K, other=0.0)
    if SLIP == "clamped":
        b_g = tl.maximum(b_g, -20.0)
    elif SLIP == "clamped-at-8":
        b_g = tl.maximum(b_g, -8.0)
    elif SLIP == "erase-at-most-1":
        b_b = tl.minimum(b_b, 1.0)
    b_v = tl.load(v + n * V + d, mask=d < V, other=0.0) * tl.load(w + n * V + d, mask=d < V, other=0.0)
    if SLIP == "values-unmasked":
        b_v = tl.load(v + n * V + d) * tl.load(w + n * V + d)
    elif SLIP == "no-other":
        b_k = tl.load(k + m * K + c, mask=c < K)
    if SLIP == "clamped-at-50":
        b_g = tl.maximum(b_g, -50.0)
    elif SLIP == "clamped-at-87":
        b_g = tl.maximum(b_g, -87.0)
    b_S = tl.load(p_S, mask=mask, other=0.0)
    if SLIP == "state-by-keys":
        b_S = tl.load(p_S, mask=(c < K)[:, None], other=0.0)
    if SLIP == "read-behind-zero":  # what a cleared channel held, times exp(g) of the read alone
        b_v -= tl.sum(b_S * (b_b * b_k)[:, None], 0) - tl.sum(b_S * (b_b * b_k * (1 - tl.exp(b_g)))[:, None], 0)
        b_S *= tl.exp(b_g)[:, None]
    else:
        b_S *= tl.exp(b_g)[:, None]
        b_v -= tl.sum(b_S * (b_b * b_k)[:, None], 0)
    b_S += b_k[:, None] * b_v[None, :]
    b_o = tl.sum(b_S * b_q[:, None], 0)
    if SLIP == "scale-of-K":
        b_o *= 1.0 / tl.sqrt(K + tl.sum(b_q * 0.0))
    elif SLIP == "scale-squared":
        b_o *= scale * scale
    else:
        b_o *= scale
    if SLIP == "scaled-state":
        b_S *= scale
    elif SLIP == "float16":
        b_S = b_S.to(tl.float16).to(tl.float32)
    tl.store(o + n * V + d, b_o, mask=d < V)
    tl.store(p_S, b_S, mask=mask)
    if SLIP == "stored-by-every-program":  # the whole state, of which other programs own columns
        for first in range(0, V, BV):
            e = first + tl.arange(0, BV)
            p_S = S + (n * K + c[:, None]) * V + e[None, :]
            m_S = (c < K)[:, None] & (e < V)[None, :]
            tl.store(p_S, tl.load(p_S, mask=m_S, other=0.0) + 0.0 * tl.sum(b_S), mask=m_S)
            if first != tl.program_id(0) * BV:
                tl.store(p_S, tl.load(p_S, mask=m_S, other=0.0) * tl.exp(b_g)[:, None], mask=m_S)


@triton.jit
def repaired(
    k, G, beta, inverse, T, HV, GROUP, k_t, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr
):
    """Row by row; and what looks like a cure."""
    first, h = tl.program_id(0) * C, tl.program_id(1)
    n, c = tl.arange(0, C), tl.arange(0, BK)
    if SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    h_k, h_g = h // GROUP, h
    if SLIP == "pairs-of-heads":
        h_k = h // 2
    elif SLIP == "gates-of-the-group":
        h_g = h // GROUP * GROUP
    t = first + n
    p_k = k + h_k * K + c[None, :] + t[:, None] * k_t
    b_k = tl.load(p_k, mask=(t < T)[:, None] & (c < K)[None, :], other=0.0)
    if SLIP == "no-other":
        b_k = tl.load(p_k, mask=(t < T)[:, None] & (c < K)[None, :])
    elif SLIP == "keys-by-rows":
        b_k = tl.where((c < K)[None, :], tl.load(p_k, mask=(t < T)[:, None], other=0.0), 0.0)
    b_G = tl.load(G + t * HV + h_g, mask=t < T, other=0.0)
    b_beta = tl.load(beta + t * HV + h, mask=t < T, other=0.0)
    if SLIP == "strength-at-most-1":
        b_beta = tl.minimum(b_beta, 1.0)
    i, j = n[:, None], n[None, :]
    below = (i > j) & (t < T)[:, None]
    later = tl.where(below, b_G[:, None] - b_G[None, :], 0.0)
    if SLIP == "differences-clamped":
        later = tl.maximum(later, -5.0)
    b_A = tl.dot(b_k, tl.trans(b_k), input_precision="ieee") * b_beta[:, None]
    if SLIP == "split-by-blocks":  # at the first token of the reader's block of 16
        b_R = tl.load(G + (first + n // 16 * 16) * HV + h, mask=first + n // 16 * 16 < T, other=0.0)
        b_A = tl.where(below, b_A * tl.exp(b_G - b_R)[:, None] * tl.exp(b_R[:, None] - b_G[None, :]), 0.0)
    elif SLIP == "chunk-of-ones":
        b_A = tl.where(below, tl.minimum(tl.maximum(b_A * tl.exp(later), -1.0), 1.0), 0.0)
    else:
        b_A = tl.where(below, b_A * tl.exp(later), 0.0)
    if SLIP == "float16":
        b_A = b_A.to(tl.float16).to(tl.float32)
    elif SLIP == "small-dropped":
        b_A = tl.where(tl.abs(b_A) > 0.01, b_A, 0.0)
    b_X = tl.where(i == j, 1.0, 0.0)
    size = 1
    if SLIP == "powers-of-32":  # of blocks of 32, and one merge
        b_P = tl.where(i // 32 == j // 32, b_A, 0.0)
        b_X -= b_P
        for _ in range(0, 4):
            b_P = tl.dot(b_P, b_P, input_precision="ieee")
            b_X = tl.dot(b_X, tl.where(i == j, 1.0, 0.0) + b_P, input_precision="ieee")
        size = 32
    elif SLIP == "powers-by-Horner":
        for _ in range(1, C):
            b_X = tl.where(i == j, 1.0, 0.0) - tl.dot(b_A.to(tl.float16).to(tl.float32), b_X, input_precision="ieee")
        size = C
    while size < C:
        b_B = tl.where((i // size != j // size) & (i // (2 * size) == j // (2 * size)), b_A, 0.0)
        b_X -= tl.dot(b_X, tl.dot(b_B, b_X, input_precision="ieee"), input_precision="ieee")
        size *= 2
    if SLIP == "inverse-clamped":
        b_X = tl.minimum(tl.maximum(b_X, -1.0), 1.0)
    stored = (t < T)[:, None] & (j < C)
    if SLIP == "all-stored":
        stored = (i < C) & (j < C)
    tl.store(inverse + (t[:, None] * HV + h) * C + j, b_X, mask=stored)


WRONG_ANSWERS = {
    "10.1": slips(
        blocks,
        "heads-of-16",
        "first-head",
        "one-row-too-many",
        "clamped",
        "float16",
        "near-only",
        "half-stored",
        "all-stored",
        strays=("rows-unmasked", "no-other"),
    ),
    "10.2": slips(
        inverse,
        "heads-of-16",
        "first-head",
        "blocks-of-the-first-head",
        "clamped",
        "float16",
        "neighbours-only",
        "diagonal-assumed",
        "two-rounds",
        "half-stored",
        "all-stored",
        strays=("rows-unmasked", "no-other"),
    ),
    "10.3": slips(
        step,
        *TILES[:3],
        "tiles-of-16",
        "steps-of-16",
        "pairs-of-heads",
        "first-gate",
        "first-strength",
        "gate-of-the-group",
        "state-of-the-group",
        "one-stride",
        "empty-state",
        "whole-chunk",
        "16-tokens",
        "clamped",
        "clamped-at-88",
        "float16",
        "strength-at-most-1",
        strays=("state-by-keys", "no-other"),
    ),
    "10.4": slips(
        outputs,
        *TILES[:3],
        "tiles-of-16",
        "pairs-of-heads",
        "first-gate",
        "state-of-the-group",
        "first-state",
        "one-stride",
        "clamped",
        "float16",
        "16-tokens-back",
        "scale-of-K",
        "scale-halves",
        "scale-squared",
        "all-stored",
        strays=("state-by-keys", "gates-unmasked", "no-other"),
    ),
    "10.5": slips(
        decode,
        *TILES[:3],
        "tiles-of-16",
        "pairs-of-heads",
        "row-of-keys-lost",
        "gates-of-the-group",
        "erase-of-the-row",
        "clamped",
        "clamped-at-8",
        "clamped-at-50",
        "clamped-at-87",
        "erase-at-most-1",
        "read-behind-zero",
        "scale-of-K",
        "scale-squared",
        "scaled-state",
        "float16",
        "stored-by-every-program",
        strays=("state-by-keys", "values-unmasked", "no-other"),
    ),
    "10.6": slips(
        repaired,
        "keys-of-32",
        "pairs-of-heads",
        "gates-of-the-group",
        "strength-at-most-1",
        "differences-clamped",
        "split-by-blocks",
        "chunk-of-ones",
        "float16",
        "small-dropped",
        "powers-of-32",
        "powers-by-Horner",
        "inverse-clamped",
        "all-stored",
        strays=("keys-by-rows", "no-other"),
    ),
}
