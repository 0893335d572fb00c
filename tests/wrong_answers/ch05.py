"""Wrong answers to chapter 05 that are right on most inputs. SLIP says what is wrong with each."""

# Before Triton, which reads when it is imported whether it is to interpret.
import kernels

# isort: split
import triton
import triton.language as tl

from lineage_lib.launching import Variant


def slips(kernel, *names, strays=()):
    """``strays`` read outside and throw it away, or count on zeros of a load without other=: a GPU tells nobody."""
    return [Variant(kernel, SLIP=name) for name in (*names, *(strays if kernels.INTERPRETED else ()))]


# right where BK = BV, or where both are at most 32
TILES = ("keys-by-BV", "values-by-BK", "keys-of-32", "values-of-32")


@triton.jit
def cumsum(g, G, T, H, C: tl.constexpr, SLIP: tl.constexpr):
    i, h = tl.arange(0, C), tl.program_id(1)
    first = tl.program_id(0) * C
    if SLIP == "chunks-of-16":
        first = tl.program_id(0) * 16
    t = first + i
    live = t < T
    if SLIP == "last-token-lost":  # where the last chunk is full
        live = t < T - (T % C == 0)
    elif SLIP == "rows-counted-from-0":
        live = i < T
    elif SLIP == "one-row-too-many":
        live = t <= T
    b_g = tl.load(g + t * H + h, mask=live, other=0.0)
    if SLIP == "unmasked":
        b_g = tl.load(g + t * H + h)
    elif SLIP == "clamped":
        b_g = tl.maximum(b_g, -8.0)
    elif SLIP == "float16":
        b_g = b_g.to(tl.float16).to(tl.float32)
    b_G = tl.cumsum(b_g, 0)
    if SLIP == "first-chunk-only":
        b_G = tl.where(first > 0, b_g, b_G)
    tl.store(G + t * H + h, b_G, mask=live)


def always_a_tail(T, H, K, V, C, itemsize):
    """One chunk too many where C divides T."""
    return bytes_moved(T, H, K, V, C, itemsize, T // C + 1)


def bytes_moved(T, H, K, V, C, itemsize, N):
    walk = 2 * itemsize * T * H * (K + V) + 4 * H * (T + K * V)
    return walk + itemsize * T * H * (2 * K + 3 * V) + 8 * T * H + 4 * N * H * (4 * K * V + 1), walk


def bytes_of_reals(T, H, K, V, C, itemsize):
    """T / C chunks, not rounded."""
    return bytes_moved(T, H, K, V, C, itemsize, T / C)


def bytes_of_square_heads(T, H, K, V, C, itemsize):
    """Right where K = V."""
    return bytes_moved(T, H, K, K, C, itemsize, -(-T // C))


def bytes_of_a_read_state(T, H, K, V, C, itemsize):
    """The walk reads an initial state too."""
    separate, fused = bytes_moved(T, H, K, V, C, itemsize, -(-T // C))
    return separate, fused + 4 * H * K * V


@triton.jit
def diagonal(
    q, k, v, G, o, T, H, q_t, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    h, i = tl.program_id(1), tl.arange(0, C)
    t, c, d = tl.program_id(0) * C + i, tl.arange(0, BK), tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.arange(0, BK)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "values-of-32":
        d = tl.arange(0, 32)
    m_k, m_v = (t < T)[:, None] & (c < K)[None, :], (t < T)[:, None] & (d < V)[None, :]
    h_v, h_g = h * V, h
    if SLIP == "one-stride":
        k_t = q_t
    elif SLIP == "offset-of-v":
        h_v = h * K
    elif SLIP == "first-gate":
        h_g = 0
    elif SLIP == "narrow":  # right up to 16 channels
        m_k = m_k & (c < 16)[None, :]
    b_q = tl.load(q + t[:, None] * q_t + h * K + c[None, :], mask=m_k, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + h * K + c[None, :], mask=m_k, other=0.0)
    b_v = tl.load(v + t[:, None] * v_t + h_v + d[None, :], mask=m_v, other=0.0)
    b_G = tl.load(G + t * H + h_g, mask=t < T, other=0.0)
    if SLIP == "values-by-rows":
        b_v = tl.load(v + t[:, None] * v_t + h_v + d[None, :], mask=(t < T)[:, None], other=0.0)
        b_v = tl.where((d < V)[None, :], b_v, 0.0)
    elif SLIP == "no-other":
        b_v = tl.load(v + t[:, None] * v_t + h_v + d[None, :], mask=m_v)
    elif SLIP == "gates-unmasked":
        b_G = tl.load(G + t * H + h_g)
    elif SLIP == "scaled":
        b_q = b_q * tl.rsqrt(tl.zeros((1, 1), tl.float32) + K)
    elif SLIP == "float16":
        b_q, b_k = b_q.to(tl.float16).to(tl.float32), b_k.to(tl.float16).to(tl.float32)
    difference = b_G[:, None] - b_G[None, :]
    if SLIP == "clamped":
        difference = tl.maximum(difference, -8.0)
    elif SLIP == "base-2":
        weight = tl.exp2(tl.minimum(difference, 0.0))
    if SLIP != "base-2":
        weight = tl.exp(tl.minimum(difference, 0.0))
    if SLIP == "two-exponentials":  # exp(G_t) exp(-G_s) overflows
        weight = tl.exp(b_G)[:, None] * tl.exp(-b_G)[None, :]
    seen = i[:, None] >= i[None, :]
    if SLIP == "16-rows":
        seen = seen & (i < 16)[None, :]
    b_A = tl.where(seen, tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * weight, 0.0)
    p_o = o + (t[:, None] * H + h) * V + d[None, :]
    tl.store(p_o, tl.dot(b_A, b_v, input_precision="ieee"), mask=m_v)


@triton.jit
def chunk_states(
    k, v, G, states, T, H, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    t, c, d = n * C + tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.arange(0, BK)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "values-of-32":
        d = tl.arange(0, 32)
    live = t < T
    if SLIP == "16-rows":
        live = live & (t < n * C + 16)
    elif SLIP == "last-token-lost":
        live = live & (t < T - 1)
    h_v, h_g = h * V, h
    if SLIP == "offset-of-v":
        h_v = h * K
    elif SLIP == "first-gate":
        h_g = 0
    elif SLIP == "strides-swapped":
        k_t, v_t = v_t, k_t
    b_k = tl.load(k + t[:, None] * k_t + h * K + c[None, :], mask=live[:, None] & (c < K)[None, :], other=0.0)
    b_v = tl.load(v + t[:, None] * v_t + h_v + d[None, :], mask=live[:, None] & (d < V)[None, :], other=0.0)
    if SLIP == "keys-by-rows":
        b_k = tl.load(k + t[:, None] * k_t + h * K + c[None, :], mask=live[:, None], other=0.0)
    elif SLIP == "values-by-rows":
        b_v = tl.load(v + t[:, None] * v_t + h_v + d[None, :], mask=live[:, None], other=0.0)
    end = tl.minimum(n * C + C, T) - 1
    if SLIP == "end-before-last":
        end = tl.maximum(end - 1, n * C)
    b_G = tl.load(G + t * H + h_g, mask=t < T, other=0.0)
    b_w = tl.exp(tl.load(G + end * H + h_g) - b_G)
    if SLIP == "two-exponentials":
        b_w = tl.exp(tl.load(G + end * H + h_g)) * tl.exp(-b_G)
    elif SLIP == "float16":
        b_k = b_k.to(tl.float16).to(tl.float32)
    b_S = tl.dot(tl.trans(b_k * b_w[:, None]), b_v, input_precision="ieee")
    p_S = states + ((n * H + h) * K + c[:, None]) * V + d[None, :]
    tl.store(p_S, b_S, mask=(c < K)[:, None] & (d < V)[None, :])


@triton.jit
def passing(
    states, G, entering, final, T, H,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    h, c = tl.program_id(1), tl.arange(0, BK)[:, None]
    d = tl.program_id(0) * BV + tl.arange(0, BV)[None, :]
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)[:, None]
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)[:, None]
    elif SLIP == "tiles-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, 16)[None, :]
    elif SLIP == "values-by-BK":
        d = tl.program_id(0) * BK + tl.arange(0, BK)[None, :]
    elif SLIP == "head-of-tiles":
        h = tl.program_id(1) * tl.num_programs(0)
    mask, N = (c < K) & (d < V), tl.cdiv(T, C)
    if SLIP == "narrow":
        mask = mask & (c < 16)
    elif SLIP == "tail-lost":
        N = tl.maximum(T // C, 1)
    b_S = (c + d) * 0.0
    for n in range(0, N):
        place = ((n * H + h) * K + c) * V + d
        tl.store(entering + place, b_S, mask=mask)
        end = tl.minimum(n * C + C, T) - 1
        if SLIP == "next-decay":
            end = tl.minimum(n * C + 2 * C, T) - 1
        elif SLIP == "first-token":
            end = n * C
        decay = tl.exp(tl.load(G + end * H + h))
        if SLIP == "summed-twice":  # G as if it went on from chunk to chunk
            decay = tl.exp(tl.load(G + end * H + h) - tl.load(G + (n * C - 1) * H + h, mask=n > 0, other=0.0))
        b_Z = tl.load(states + place, mask=mask, other=0.0)
        if SLIP == "two-chunks":
            decay = tl.where(n < 2, decay, 0.0)
        b_S = b_S * decay + b_Z
    tl.store(final + (h * K + c) * V + d, b_S, mask=mask)


@triton.jit
def reading(
    q, G, entering, o, T, H, q_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    t, c, d = n * C + tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.arange(0, BK)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "values-of-32":
        d = tl.arange(0, 32)
    b_q = tl.load(q + t[:, None] * q_t + h * K + c[None, :], mask=(t < T)[:, None] & (c < K)[None, :], other=0.0)
    if SLIP == "queries-by-channels":
        b_q = tl.load(q + t[:, None] * q_t + h * K + c[None, :], mask=(c < K)[None, :], other=0.0)
    h_g = h
    if SLIP == "first-gate":
        h_g = 0
    b_w = tl.exp(tl.load(G + t * H + h_g, mask=t < T, other=0.0))
    if SLIP == "end-decay":
        b_w = b_w * 0.0 + tl.exp(tl.load(G + (tl.minimum(n * C + C, T) - 1) * H + h))
    p_S = entering + ((n * H + h) * K + c[:, None]) * V + d[None, :]
    b_S = tl.load(p_S, mask=(c < K)[:, None] & (d < V)[None, :], other=0.0)
    if SLIP == "state-by-keys":
        b_S = tl.load(p_S, mask=(c < K)[:, None], other=0.0)
    elif SLIP == "state-by-values":
        b_S = tl.load(p_S, mask=(d < V)[None, :], other=0.0)
    elif SLIP == "float16":
        b_S = b_S.to(tl.float16).to(tl.float32)
    p_o, m_o = o + (t[:, None] * H + h) * V + d[None, :], (t < T)[:, None] & (d < V)[None, :]
    b_o = tl.load(p_o, mask=m_o, other=0.0)
    if SLIP == "all-decayed":
        b_o = (b_o + tl.dot(b_q, b_S, input_precision="ieee")) * b_w[:, None]
    elif SLIP == "not-first-chunk":
        b_o += tl.where(n > 0, tl.dot(b_q, b_S, input_precision="ieee") * b_w[:, None], 0.0)
    elif SLIP == "subtracted":
        b_o -= tl.dot(b_q, b_S, input_precision="ieee") * b_w[:, None]
    else:
        b_o += tl.dot(b_q, b_S, input_precision="ieee") * b_w[:, None]
    tl.store(p_o, b_o, mask=m_o)


@triton.jit
def walk(
    q, k, v, g, o, final, T, H, q_t, k_t, v_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    """By the recurrence, with the slips of a walk over chunks."""
    h, c, d = tl.program_id(1), tl.arange(0, BK), tl.program_id(0) * BV + tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "tiles-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, 16)
    elif SLIP == "steps-of-16":
        d = tl.program_id(0) * 16 + tl.arange(0, BV)
    elif SLIP == "steps-of-BK":
        d = tl.program_id(0) * BK + tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.program_id(0) * BV + tl.arange(0, BK)
    elif SLIP == "head-of-tiles":
        h = tl.program_id(1) * tl.num_programs(0)
    b_S = (c[:, None] + d[None, :]) * 0.0
    for t in range(0, T):
        b_q = tl.load(q + t * q_t + h * K + c, mask=c < K, other=0.0)
        b_k = tl.load(k + t * k_t + h * K + c, mask=c < K, other=0.0)
        b_v = tl.load(v + t * v_t + h * V + d, mask=d < V, other=0.0)
        if SLIP == "values-unmasked":
            b_v = tl.load(v + t * v_t + h * V + d)
        if SLIP == "first-gate":
            decay = tl.exp(tl.load(g + t * H))
        elif SLIP == "border-undecayed":
            decay = tl.exp(tl.load(g + t * H + h) * (t % C > 0))
        elif SLIP == "border-wiped":
            decay = tl.exp(tl.load(g + t * H + h)) * (t % C > 0)
        elif SLIP == "gate-late":
            decay = tl.exp(tl.load(g + (t - 1) * H + h, mask=t > 0, other=0.0))
        else:
            decay = tl.exp(tl.load(g + t * H + h))
        b_S = b_S * decay + b_k[:, None] * b_v[None, :]
        tl.store(o + (t * H + h) * V + d, tl.sum(b_q[:, None] * b_S, 0), mask=d < V)
    if SLIP == "final-decayed":
        b_S = b_S * tl.exp(tl.load(g + (T - 1) * H + h))
    if SLIP == "final-of-tiles":
        h = h * tl.num_programs(0)
    tl.store(final + (h * K + c[:, None]) * V + d[None, :], b_S, mask=(c < K)[:, None] & (d < V)[None, :])


@triton.jit
def values(
    q, k, do, G, dS, dv, T, H, q_t, k_t, do_t,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SLIP: tl.constexpr,
):  # fmt: skip
    n, h, i = tl.program_id(0), tl.program_id(1), tl.arange(0, C)
    t, c, d = n * C + i, tl.arange(0, BK), tl.arange(0, BV)
    if SLIP == "keys-by-BV":
        c = tl.arange(0, BV)
    elif SLIP == "values-by-BK":
        d = tl.arange(0, BK)
    elif SLIP == "keys-of-32":
        c = tl.arange(0, 32)
    elif SLIP == "values-of-32":
        d = tl.arange(0, 32)
    m_k, m_v = (t < T)[:, None] & (c < K)[None, :], (t < T)[:, None] & (d < V)[None, :]
    b_q = tl.load(q + t[:, None] * q_t + h * K + c[None, :], mask=m_k, other=0.0)
    b_k = tl.load(k + t[:, None] * k_t + h * K + c[None, :], mask=m_k, other=0.0)
    b_do = tl.load(do + t[:, None] * do_t + h * V + d[None, :], mask=m_v, other=0.0)
    b_G = tl.load(G + t * H + h, mask=t < T, other=0.0)
    seen = (i[:, None] <= i[None, :]) & (t < T)[None, :]
    weight = tl.exp(tl.where(seen, b_G[None, :] - b_G[:, None], 0.0))
    if SLIP == "no-decay":
        weight = weight * 0.0 + 1.0
    b_A = tl.where(seen, tl.dot(b_k, tl.trans(b_q), input_precision="ieee") * weight, 0.0)
    N = tl.cdiv(T, C)
    number = n * H + h
    if SLIP == "last-state":
        number = (N - 1) * H + h
    elif SLIP == "state-before":
        number = tl.maximum(n - 1, 0) * H + h
    p_D = dS + (number * K + c[:, None]) * V + d[None, :]
    b_D = tl.load(p_D, mask=(c < K)[:, None] & (d < V)[None, :], other=0.0)
    if SLIP == "state-by-keys":
        b_D = tl.load(p_D, mask=(c < K)[:, None], other=0.0)
    elif SLIP == "no-state-at-the-end":
        b_D = tl.where(n < N - 1, b_D, 0.0)
    b_w = tl.exp(tl.load(G + (tl.minimum(n * C + C, T) - 1) * H + h) - b_G)
    if SLIP == "queries-read":
        b_dv = tl.dot(b_q, b_D, input_precision="ieee") * b_w[:, None]
    else:
        b_dv = tl.dot(b_k, b_D, input_precision="ieee") * b_w[:, None]
    if SLIP != "state-only":
        b_dv = tl.dot(b_A, b_do, b_dv, input_precision="ieee")
    tl.store(dv + (t[:, None] * H + h) * V + d[None, :], b_dv, mask=m_v)


WRONG_ANSWERS = {
    "5.1": slips(
        cumsum,
        "chunks-of-16",
        "last-token-lost",
        "rows-counted-from-0",
        "one-row-too-many",
        "clamped",
        "float16",
        "first-chunk-only",
        strays=("unmasked",),
    ),
    "5.2": [always_a_tail, bytes_of_reals, bytes_of_square_heads, bytes_of_a_read_state],
    "5.3": slips(
        diagonal,
        "one-stride",
        "offset-of-v",
        "first-gate",
        "narrow",
        "scaled",
        "float16",
        "clamped",
        "base-2",
        "two-exponentials",
        "16-rows",
        *TILES,
        strays=("values-by-rows", "gates-unmasked", "no-other"),
    ),
    "5.4": slips(
        chunk_states,
        "16-rows",
        "last-token-lost",
        "offset-of-v",
        "first-gate",
        "strides-swapped",
        "end-before-last",
        "two-exponentials",
        "float16",
        *TILES,
        strays=("keys-by-rows", "values-by-rows"),
    ),
    "5.5": slips(
        passing,
        "narrow",
        "tail-lost",
        "next-decay",
        "first-token",
        "summed-twice",
        "two-chunks",
        *TILES[:3],
        "tiles-of-16",
        "head-of-tiles",
    ),
    "5.6": slips(
        reading,
        "first-gate",
        "end-decay",
        "float16",
        "all-decayed",
        "not-first-chunk",
        "subtracted",
        *TILES,
        strays=("queries-by-channels", "state-by-keys", "state-by-values"),
    ),
    "5.7": slips(
        walk,
        "first-gate",
        "border-undecayed",
        "border-wiped",
        "gate-late",
        "final-decayed",
        *TILES[:3],
        "tiles-of-16",
        "steps-of-16",
        "steps-of-BK",
        "head-of-tiles",
        "final-of-tiles",
        strays=("values-unmasked",),
    ),
    "5.8": slips(
        values,
        "no-decay",
        "last-state",
        "state-before",
        "no-state-at-the-end",
        "queries-read",
        "state-only",
        *TILES,
        strays=("state-by-keys",),
    ),
}
