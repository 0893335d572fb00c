"""Right answers to chapter 10, written differently."""

# Before Triton, which reads when it is imported whether it is to interpret.
import kernels  # noqa: F401

# isort: split
import triton
import triton.language as tl


# 10.1: column after column of the inverse; all rows at once, by merges of ever larger blocks
@triton.jit
def blocks_by_column(A, blocks, T, H, A_t, C: tl.constexpr):
    b, h, i = tl.program_id(0), tl.program_id(1), tl.arange(0, 16)
    t = b * 16 + i
    m = (t < T)[:, None] & (i[:, None] > i[None, :])
    b_A = tl.load(A + t[:, None] * A_t + h * C + b * 16 % C + i[None, :], mask=m, other=0.0)
    for j in range(0, 16):
        x = tl.where(i == j, 1.0, 0.0)
        for n in range(1, 16):  # x[n] from those above it
            row = tl.sum(tl.where(i[:, None] == n, b_A, 0.0), 0)
            x = tl.where(i == n, x - tl.sum(row * x, 0), x)
        tl.store(blocks + (t * H + h) * 16 + j, x, mask=t < T)


@triton.jit
def blocks_by_merging(A, blocks, T, H, A_t, C: tl.constexpr):
    h, i, j = tl.program_id(1), tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    first = tl.program_id(0) * 16
    p_A = A + (first + i) * A_t + h * C + first % C + j
    b_A = tl.load(p_A, mask=(first + i < T) & (i > j), other=0.0)
    b_X = tl.where(i == j, 1.0, 0.0)
    for level in range(0, 4):
        pair = (i >> (level + 1) == j >> (level + 1)) & (i >> level != j >> level)
        b_B = tl.dot(tl.where(pair, b_A, 0.0), b_X, input_precision="ieee")
        b_X -= tl.dot(b_X, b_B, input_precision="ieee")
    tl.store(blocks + ((first + i) * H + h) * 16 + j, b_X, mask=first + i < T)


@triton.jit
def blocks_eliminated(A, blocks, T, H, A_t, C: tl.constexpr):
    """Each finished row is taken from all rows below it."""
    h, i, j = tl.program_id(1), tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    first = tl.program_id(0) * 16
    p_A = A + (first + i) * A_t + h * C + first % C
    b_X = (i == j).to(tl.float32)
    for n in range(0, 15):
        column = tl.load(p_A + n, mask=(i > n) & (first + i < T), other=0.0)
        b_X -= column * tl.sum(tl.where(i == n, b_X, 0.0), 0)[None, :]
    tl.store(blocks + ((first + i) * H + h) * 16 + j, b_X, mask=first + i < T)


# 10.2: without the blocks, row by row; all rows of blocks at once, by an equation for X that is repeated
@triton.jit
def inverse_by_substitution(A, blocks, inverse, T, H, A_t, C: tl.constexpr):
    c, h, j = tl.program_id(0), tl.program_id(1), tl.arange(0, C)
    b_X = tl.where(j[:, None] == j[None, :], 1.0, 0.0)
    for n in range(1, C):
        b_a = tl.load(A + (c * C + n) * A_t + h * C + j, mask=(j < n) & (c * C + n < T), other=0.0)
        b_X -= tl.where(j[:, None] == n, tl.sum(b_a[:, None] * b_X, 0)[None, :], 0.0)
    t = c * C + j[:, None]
    tl.store(inverse + (t * H + h) * C + j[None, :], b_X, mask=t < T)


@triton.jit
def inverse_of_block_rows(A, blocks, inverse, T, H, A_t, C: tl.constexpr):
    """X = D − D L X, repeated: each time one more row of blocks is right. L is all between different blocks."""
    h, i, j = tl.program_id(1), tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = tl.program_id(0) * C + i
    b_L = tl.load(A + t * A_t + h * C + j, mask=(t < T) & (i // 16 > j // 16), other=0.0)
    p_D = blocks + (t * H + h) * 16 + (j - i // 16 * 16)
    b_D = tl.load(p_D, mask=(t < T) & (i // 16 == j // 16), other=0.0)
    b_X = b_D
    for _ in range(1, C // 16):
        b_X = b_D - tl.dot(b_D, tl.dot(b_L, b_X, input_precision="ieee"), input_precision="ieee")
    tl.store(inverse + (t * H + h) * C + j, b_X, mask=t < T)


# 10.3: token by token, without the inverse; everything transposed, the state as values × keys
@triton.jit
def step_by_token(
    k, v, inverse, G, beta, S, corrected, T, HV, GROUP, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    h, c, d = tl.program_id(1), tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    p_S, m_S = S + (h * K + c[:, None]) * V + d[None, :], (c < K)[:, None] & (d < V)[None, :]
    b_S, before = tl.load(p_S, mask=m_S, other=0.0), 0.0
    for t in range(0, T):
        now = tl.load(G + t * HV + h)
        b_k = tl.load(k + t * k_t + (h // GROUP) * K + c, mask=c < K, other=0.0)
        b_v = tl.load(v + t * v_t + h * V + d, mask=d < V, other=0.0)
        b_S *= tl.exp(now - before)
        b_v = (b_v - tl.sum(b_S * b_k[:, None], 0)) * tl.load(beta + t * HV + h)
        b_S += b_k[:, None] * b_v[None, :]
        tl.store(corrected + (t * HV + h) * V + d, b_v, mask=d < V)
        before = now
    tl.store(p_S, b_S, mask=m_S)


@triton.jit
def step_transposed(
    k, v, inverse, G, beta, S, corrected, T, HV, GROUP, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    h, t, c = tl.program_id(1), tl.arange(0, C), tl.arange(0, BK)
    d = tl.program_id(0) * BV + tl.arange(0, BV)
    m_k, m_v = (t < T)[:, None] & (c < K)[None, :], (d < V)[:, None] & (t < T)[None, :]
    b_k = tl.load(k + t[:, None] * k_t + (h // GROUP) * K + c[None, :], mask=m_k, other=0.0)
    b_v = tl.load(v + t[None, :] * v_t + h * V + d[:, None], mask=m_v, other=0.0)
    seen = (t[None, :] < T) & (t[:, None] <= t[None, :])
    b_X = tl.load(inverse + (t[None, :] * HV + h) * C + t[:, None], mask=seen, other=0.0)
    b_G = tl.load(G + t * HV + h, mask=t < T, other=0.0) * 1.4426950408889634
    b_beta = tl.load(beta + t * HV + h, mask=t < T, other=0.0)
    end = tl.load(G + (T - 1) * HV + h) * 1.4426950408889634
    p_S, m_S = S + (h * K + c[None, :]) * V + d[:, None], (d < V)[:, None] & (c < K)[None, :]
    b_S = tl.load(p_S, mask=m_S, other=0.0)
    b_u = b_v - tl.dot(b_S, tl.trans(b_k), input_precision="ieee") * tl.exp2(b_G)[None, :]
    b_u = tl.dot(b_u * b_beta[None, :], b_X, input_precision="ieee")
    tl.store(corrected + (t[None, :] * HV + h) * V + d[:, None], b_u, mask=m_v)
    b_u *= tl.exp2(tl.minimum(end - b_G, 0.0))[None, :]
    tl.store(p_S, tl.dot(b_u, b_k, b_S * tl.exp2(end), input_precision="ieee"), mask=m_S)


# 10.4: with a state that goes along; with scaled queries and everything transposed
@triton.jit
def outputs_by_token(
    q, k, corrected, G, entering, o, T, HV, GROUP, scale, q_t, k_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(1), tl.program_id(2)
    c, d = tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    p_S = entering + ((n * HV + h) * K + c[:, None]) * V + d[None, :]
    b_S, before = tl.load(p_S, mask=(c < K)[:, None] & (d < V)[None, :], other=0.0), 0.0
    for t in range(n * C, tl.minimum(n * C + C, T)):
        now = tl.load(G + t * HV + h)
        b_q = tl.load(q + t * q_t + (h // GROUP) * K + c, mask=c < K, other=0.0) * scale
        b_k = tl.load(k + t * k_t + (h // GROUP) * K + c, mask=c < K, other=0.0)
        b_v = tl.load(corrected + (t * HV + h) * V + d, mask=d < V, other=0.0)
        b_S = b_S * tl.exp(now - before) + b_k[:, None] * b_v[None, :]
        tl.store(o + (t * HV + h) * V + d, tl.sum(b_S * b_q[:, None], 0), mask=d < V)
        before = now


@triton.jit
def outputs_transposed(
    q, k, corrected, G, entering, o, T, HV, GROUP, scale, q_t, k_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    n, h, i = tl.program_id(1), tl.program_id(2), tl.arange(0, C)
    t, c, d = n * C + i, tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    m_k, m_v = (c < K)[:, None] & (t < T)[None, :], (d < V)[:, None] & (t < T)[None, :]
    b_q = tl.load(q + t[None, :] * q_t + (h // GROUP) * K + c[:, None], mask=m_k, other=0.0) * scale
    b_k = tl.load(k + t[None, :] * k_t + (h // GROUP) * K + c[:, None], mask=m_k, other=0.0)
    p_o = (t[None, :] * HV + h) * V + d[:, None]
    b_v = tl.load(corrected + p_o, mask=m_v, other=0.0)
    b_G = tl.load(G + t * HV + h, mask=t < T, other=0.0)
    b_P = tl.dot(tl.trans(b_k), b_q, input_precision="ieee")  # writers × readers
    b_P = tl.where(i[:, None] <= i[None, :], b_P * tl.exp(tl.minimum(b_G[None, :] - b_G[:, None], 0.0)), 0.0)
    p_S = entering + ((n * HV + h) * K + c[None, :]) * V + d[:, None]
    b_S = tl.load(p_S, mask=(d < V)[:, None] & (c < K)[None, :], other=0.0)
    b_o = tl.dot(b_S, b_q * tl.exp(b_G)[None, :], input_precision="ieee")
    tl.store(o + p_o, tl.dot(b_v, b_P, b_o, input_precision="ieee"), mask=m_v)


# 10.5: key by key in two passes over the rows of the state; from the old state, with q·k
@triton.jit
def decode_by_key(
    q, k, v, g, b, w, S, o, HV, GROUP, scale,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    h, r, d = tl.program_id(1), tl.program_id(2), tl.program_id(0) * BV + tl.arange(0, BV)
    n = r * HV + h
    key = (n // GROUP) * K  # HV is a multiple of GROUP
    b_z = tl.load(w + n * V + d, mask=d < V, other=0.0) * tl.load(v + n * V + d, mask=d < V, other=0.0)
    for c in range(0, K):
        row = tl.load(S + (n * K + c) * V + d, mask=d < V, other=0.0)
        b_z -= tl.exp(tl.load(g + n * K + c)) * tl.load(b + n * K + c) * tl.load(k + key + c) * row
    b_o = tl.zeros((BV,), tl.float32)
    for c in range(0, K):
        p_S = S + (n * K + c) * V + d
        row = tl.load(p_S, mask=d < V, other=0.0) * tl.exp(tl.load(g + n * K + c))
        row += tl.load(k + key + c) * b_z
        tl.store(p_S, row, mask=d < V)
        b_o += row * tl.load(q + key + c)
    tl.store(o + n * V + d, scale * b_o, mask=d < V)


@triton.jit
def decode_from_the_old_state(
    q, k, v, g, b, w, S, o, HV, GROUP, scale,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    h, r = tl.program_id(1), tl.program_id(2)
    c, d = tl.arange(0, BK)[None, :], tl.program_id(0) * BV + tl.arange(0, BV)[:, None]
    n, m = r * HV + h, r * (HV // GROUP) + h // GROUP
    p_S, mask = S + (n * K + c) * V + d, (c < K) & (d < V)
    b_q = tl.load(q + m * K + c, mask=c < K, other=0.0) * scale
    b_k = tl.load(k + m * K + c, mask=c < K, other=0.0)
    decay = tl.exp2(tl.load(g + n * K + c, mask=c < K, other=0.0) * 1.4426950408889634)
    b_S = tl.load(p_S, mask=mask, other=0.0) * decay
    b_e = tl.load(b + n * K + c, mask=c < K, other=0.0) * b_k
    b_z = tl.load(v + n * V + d, mask=d < V, other=0.0) * tl.load(w + n * V + d, mask=d < V, other=0.0)
    b_z -= tl.sum(b_S * b_e, 1)[:, None]
    tl.store(p_S, b_S + b_z * b_k, mask=mask)
    tl.store(o + n * V + d, tl.sum(b_S * b_q, 1)[:, None] + tl.sum(b_q * b_k, 1)[:, None] * b_z, mask=d < V)


# 10.6: row by row; halves of halves with the decays of neighbours, in base 2
@triton.jit
def repaired_by_substitution(
    k, G, beta, inverse, T, HV, GROUP, k_t, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr
):
    first, h = tl.program_id(0) * C, tl.program_id(1)
    n, c = tl.arange(0, C), tl.arange(0, BK)
    t, key = first + n, k + (h // GROUP) * K + c
    b_k = tl.load(key[None, :] + t[:, None] * k_t, mask=(t < T)[:, None] & (c < K)[None, :], other=0.0)
    b_G = tl.load(G + t * HV + h, mask=t < T, other=0.0)
    b_X = tl.where(n[:, None] == n[None, :], 1.0, 0.0)
    for i in range(1, tl.minimum(C, T - first)):
        own = tl.load(key + (first + i) * k_t, mask=c < K, other=0.0)
        decay = tl.exp(tl.where(n < i, tl.load(G + (first + i) * HV + h) - b_G, float("-inf")))
        row = tl.sum(b_k * own[None, :], 1) * decay * tl.load(beta + (first + i) * HV + h)
        b_X -= tl.where(n[:, None] == i, tl.sum(row[:, None] * b_X, 0)[None, :], 0.0)
    tl.store(inverse + (t[:, None] * HV + h) * C + n[None, :], b_X, mask=(t < T)[:, None])


@triton.jit
def repaired_by_halves(k, G, beta, inverse, T, HV, GROUP, k_t, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr):
    h, n, c = tl.program_id(1), tl.arange(0, C), tl.arange(0, BK)
    t = tl.program_id(0) * C + n
    m = (c < K)[:, None] & (t < T)[None, :]
    b_k = tl.load(k + t[None, :] * k_t + h // GROUP * K + c[:, None], mask=m, other=0.0)
    b_G = 1.4426950408889634 * tl.load(G + t * HV + h, mask=t < T, other=0.0)
    b_beta = tl.load(beta + t * HV + h, mask=t < T, other=0.0)
    weight = tl.exp2(tl.minimum(b_G[:, None] - b_G[None, :], 0.0)) * b_beta[:, None]
    b_A = tl.dot(tl.trans(b_k), b_k, input_precision="ieee") * weight
    i, j = n[:, None], n[None, :]
    b_X = tl.where(i == j, 1.0, 0.0) - tl.where((i // 2 == j // 2) & (i > j), b_A, 0.0)
    size = 2
    while size < C:
        corner = (i // size == j // size + 1) & (i // size % 2 == 1)
        b_Y = tl.dot(tl.where(corner, b_A, 0.0), b_X, input_precision="ieee")
        b_X -= tl.dot(b_X, b_Y, input_precision="ieee")
        size *= 2
    tl.store(inverse + (t[:, None] * HV + h) * C + n[None, :], b_X, mask=(t < T)[:, None])


RIGHT_ANSWERS = {
    "10.1": [blocks_by_column, blocks_by_merging, blocks_eliminated],
    "10.2": [inverse_by_substitution, inverse_of_block_rows],
    "10.3": [step_by_token, step_transposed],
    "10.4": [outputs_by_token, outputs_transposed],
    "10.5": [decode_by_key, decode_from_the_old_state],
    "10.6": [repaired_by_substitution, repaired_by_halves],
}
