"""Right answers to chapter 04, written differently."""

import itertools
import math

import numpy as np
import torch

from lineage_lib import matrices, reference
from lineage_lib.chunked import chunk_additive


def borders(T, T_c):
    return [*range(0, T, T_c), T]


# 4.1: one masked matrix, the recurrence from empty states, PyTorch, a list of rows
def own_chunk_by_one_mask(X, a, B, C, T_c):
    number = np.arange(len(X)) // T_c
    return (matrices.segment_products(a) * (number[:, None] == number) * (C @ B.T)) @ X


def own_chunk_by_resets(X, a, B, C, T_c):
    a = a.copy()
    a[::T_c] = 0
    return reference.ssd_recurrent(X, a, B, C)[0].tolist()


def own_chunk_in_torch(X, a, B, C, T_c):
    parts = []
    for x, d, b, c in zip(*(torch.tensor(z).split(T_c) for z in (X, a, B, C))):
        steps = d[:, None].expand(len(d), len(d)).tril(-1) + torch.ones(len(d), len(d), dtype=d.dtype).triu()
        parts.append((steps.cumprod(0).tril() * (c @ b.mT)) @ x)
    return torch.cat(parts)


def own_chunk_in_rows(X, a, B, C, T_c):
    Y = []
    for t in range(len(X)):
        first = t - t % T_c
        weights = [math.prod(a[s + 1 : t + 1]) * (C[t] @ B[s]) for s in range(first, t + 1)]
        Y.append(sum(w * x for w, x in zip(weights, X[first : t + 1])))
    return np.asfortranarray(Y)


# 4.2: loops over tokens, from the right end, PyTorch, through whole-sequence rows of L
def factors_in_loops(a, B, C, T_c, j, i):
    read, left, decay = [], [], 1.0
    for t in range(j * T_c, min((j + 1) * T_c, len(a))):
        decay *= a[t]
        read.append(decay * C[t])
    for s in range(i * T_c, (i + 1) * T_c):
        left.append(math.prod(a[s + 1 : (i + 1) * T_c]) * B[s])
    return read, math.prod(a[(i + 1) * T_c : j * T_c]), np.array(left).T.tolist()


def factors_in_torch(a, B, C, T_c, j, i):
    a, B, C = map(torch.tensor, (a, B, C))
    chunks = [z.split(T_c) for z in (a, B, C)]
    read = chunks[0][j].cumprod(0)[:, None] * chunks[2][j]
    after = torch.cat([chunks[0][i][1:], torch.ones(1, dtype=a.dtype)])
    write = chunks[1][i].mT * after.flip(0).cumprod(0).flip(0)
    middle = torch.cat([*chunks[0][i + 1 : j], torch.ones(1, dtype=a.dtype)])
    return read, middle.prod(), write


def factors_from_the_mask(a, B, C, T_c, j, i):
    """Rows and columns of the whole mask, with a token of decay 1 in front of every chunk's border."""
    L = matrices.segment_products(a)
    e, b = (i + 1) * T_c - 1, j * T_c - 1  # the last tokens of chunk i and before chunk j
    read = L[b + 1 : b + 1 + T_c, b][:, None] * C[b + 1 : b + 1 + T_c]
    return read.astype(np.longdouble), L[b, e], L[e, e - T_c + 1 : e + 1] * B[e - T_c + 1 : e + 1].T


# 4.3: the recurrence a chunk, einsum over padded chunks, from the end of each chunk
def states_by_recurrence(X, a, B, T_c):
    return [
        reference.ssd_recurrent(X[s:e], a[s:e], B[s:e], B[s:e])[1].tolist()
        for s, e in itertools.pairwise(borders(len(X), T_c))
    ]


def states_padded(X, a, B, T_c):
    extra = -len(X) % T_c
    X, B = (np.pad(z, ((0, extra), (0, 0))).reshape(-1, T_c, z.shape[1]) for z in (X, B))
    a = np.pad(a, (0, extra), constant_values=1.0).reshape(-1, T_c)
    after = np.concatenate([a[:, 1:], np.ones((len(a), 1))], axis=1)
    write = np.cumprod(after[:, ::-1], axis=1)[:, ::-1]
    return np.einsum("js,jsn,jsp->jnp", write, B, X)


def states_from_the_end(X, a, B, T_c):
    Z = torch.zeros(-(-len(X) // T_c), B.shape[1], X.shape[1], dtype=torch.float64)
    left = 1.0
    for s in reversed(range(len(X))):
        left = 1.0 if (s + 1) % T_c == 0 or s + 1 == len(X) else left * a[s + 1]
        Z[s // T_c] += left * torch.outer(torch.tensor(B[s]), torch.tensor(X[s]))
    return Z


# 4.4: the mask of the chunk decays, a scan by doubling, in place
def pass_by_mask(states, decays, S0):
    L = matrices.segment_products(np.append(1.0, decays))
    return np.einsum("ji,inp->jnp", L, np.concatenate([S0[None], states]))


def pass_by_doubling(states, decays, S0):
    d, Z = np.append(1.0, decays), np.concatenate([S0[None], states])
    step = 1
    while step < len(d):
        Z = np.concatenate([Z[:step], Z[step:] + d[step:, None, None] * Z[:-step]])
        d = np.concatenate([d[:step], d[step:] * d[:-step]])
        step *= 2
    return torch.tensor(Z)


def pass_in_place(states, decays, S0):
    out = np.empty((len(states) + 1, *S0.shape), order="F")
    out[0] = S0
    for j, (Z, d) in enumerate(zip(states, decays)):
        np.multiply(out[j], d, out=out[j + 1])
        out[j + 1] += Z
    return out.tolist()


# 4.5: the recurrence, all chunks at once, the library's tensors, chunks of another length
def whole_by_recurrence(X, a, B, C, T_c, S0=None):
    return reference.ssd_recurrent(X, a, B, C, S0)


def whole_at_once(X, a, B, C, T_c, S0=None):
    T = len(X)
    S0 = np.zeros((B.shape[1], X.shape[1])) if S0 is None else S0
    extra = -T % T_c
    X, B, C = (np.pad(z, ((0, extra), (0, 0))).reshape(-1, T_c, z.shape[1]) for z in (X, B, C))
    a = np.pad(a, (0, extra), constant_values=1.0).reshape(-1, T_c)
    L = np.array([matrices.segment_products(d) for d in a])
    states = np.einsum("js,jsn,jsp->jnp", L[:, -1], B, X)
    entering = [S0]
    for d, Z in zip(a.prod(axis=1), states):
        entering.append(d * entering[-1] + Z)
    Y = (L * (C @ B.mT)) @ X + np.cumprod(a, axis=1)[..., None] * (C @ np.array(entering[:-1]))
    return [Y.reshape(-1, X.shape[2])[:T], entering[-1]]


def whole_in_torch(X, a, B, C, T_c, S0=None):
    """Signs of negative decays ride on keys and queries: the library takes logarithms."""
    with np.errstate(divide="ignore"):
        g = np.log(np.abs(a))
    signs = np.cumprod(np.where(a < 0, -1.0, 1.0))
    q, k, v, g = (torch.tensor(z)[None, :, None] for z in (signs[:, None] * C, signs[:, None] * B, X, g))
    S0 = None if S0 is None else torch.tensor(S0)[None, None]
    o, S = chunk_additive(q, k, v, g, scale=1.0, initial_state=S0, output_final_state=True, chunk_size=T_c)
    return o[0, :, 0], signs[-1] * S[0, 0]


def whole_in_halves(X, a, B, C, T_c, S0=None):
    """Recursively: a piece of at most T_c tokens by the quadratic form, a longer one as two halves."""
    S0 = np.zeros((B.shape[1], X.shape[1])) if S0 is None else S0
    if len(X) <= T_c:
        left = np.cumprod(a)
        Y = matrices.ssd_quadratic(X, a, B, C) + left[:, None] * (C @ S0)
        return Y, left[-1] * S0 + (matrices.segment_products(a)[-1] * B.T) @ X
    m = len(X) // 2
    Y1, S1 = whole_in_halves(X[:m], a[:m], B[:m], C[:m], T_c, S0)
    Y2, S2 = whole_in_halves(X[m:], a[m:], B[m:], C[m:], T_c, S1)
    return np.concatenate([Y1, Y2]), S2


# 4.6: chunk by chunk, NumPy integers, a float that is whole
def flops_chunk_by_chunk(T, N, P, T_c):
    total = 0
    for start in range(0, T, T_c):
        n = min(T_c, T - start)
        total += 2 * n * n * N + 2 * n * n * P + 2 * n * N * P + 2 * n * N * P + 2 * N * P
    return total


def flops_in_numpy(T, N, P, T_c):
    sizes = np.diff(np.append(np.arange(0, T, T_c), T)).astype(np.int64)
    return (2 * sizes**2 * (N + P) + 4 * sizes * N * P + 2 * N * P).sum()


def flops_as_float(T, N, P, T_c):
    J = math.ceil(T / T_c)
    r = T - (J - 1) * T_c
    return float(2 * ((J - 1) * T_c * T_c + r * r) * (N + P) + 4 * T * N * P + 2 * J * N * P)


# 4.7: values of zeros and keys of noise, lists, PyTorch
def pad_with_empty_values(X, a, B, C, T_c):
    extra = -(-len(X) // T_c) * T_c - len(X)
    noise = np.arange(1.0, 1 + extra * B.shape[1]).reshape(extra, B.shape[1])
    return (
        np.vstack([X, np.zeros((extra, X.shape[1]))]),
        np.append(a, np.ones(extra)),
        np.vstack([B, noise]),
        np.vstack([C, noise]),
    )


def pad_as_lists(X, a, B, C, T_c):
    X, a, B, C = X.tolist(), a.tolist(), B.tolist(), C.tolist()
    while len(a) % T_c:
        a.append(1)
        for rows in (X, B, C):
            rows.append([0] * len(rows[0]))
    return [X, a, B, C]


def pad_with_empty_keys(X, a, B, C, T_c):
    extra = -len(X) % T_c
    X, B, C = (torch.tensor(z) for z in (X, B, C))
    a = torch.nn.functional.pad(torch.tensor(a), (0, extra), value=1.0)
    again = X[-1:].expand(extra, -1)
    B, C = (torch.nn.functional.pad(z, (0, 0, 0, extra)) for z in (B, C))
    return torch.cat([X, again]), a, B, C


# 4.8: a loop over tokens, decays multiplied up, the library, the library in double precision
def log_by_tokens(q, k, v, g, T_c):
    S, o = 0.0, []
    for t in range(q.shape[1]):
        S = g[:, t].exp()[..., None, None] * S + k[:, t, :, :, None] * v[:, t, :, None, :]
        o.append((q[:, t, :, :, None] * S).sum(2))
    return torch.stack(o, 1)


def log_by_masks_of_products(q, k, v, g, T_c):
    """Decays themselves, multiplied up segment by segment."""
    out = torch.empty_like(v)
    S = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    for start in range(0, q.shape[1], T_c):
        qj, kj, vj = (z[:, start : start + T_c].transpose(1, 2) for z in (q, k, v))  # (B, H, C, D)
        a = g[:, start : start + T_c].transpose(1, 2).exp()
        n = a.shape[-1]
        below = torch.ones(n, n, dtype=torch.bool).tril(-1)
        L = torch.where(below, a[..., :, None], a.new_ones(())).cumprod(-2).tril()
        read = a.cumprod(-1)[..., None]
        out[:, start : start + T_c] = ((L * (qj @ kj.mT)) @ vj + read * (qj @ S)).transpose(1, 2)
        S = read[..., -1:, :] * S + (L[..., -1, :, None] * kj).mT @ vj
    return out


def log_by_the_library(q, k, v, g, T_c):
    return chunk_additive(q, k, v, g, scale=1.0, chunk_size=T_c)[0]


def log_in_double_precision(q, k, v, g, T_c):
    o, _ = chunk_additive(*(z.double() for z in (q, k, v, g)), scale=1.0, chunk_size=T_c)
    return o.to(q.dtype)


# 4.9: token by token, NumPy, tuples
def packed_by_tokens(cu_seqlens, T_c):
    rows, T = [], cu_seqlens[-1]
    document = np.searchsorted(cu_seqlens, np.arange(T), side="right") - 1
    for t in range(T):
        if (t - cu_seqlens[document[t]]) % T_c == 0:
            rows.append([document[t], t, t + 1])
        rows[-1][2] = t + 1
    return rows


def packed_in_numpy(cu_seqlens, T_c):
    lengths = np.diff(cu_seqlens)
    count = -(-lengths // T_c)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    start = cu_seqlens[:-1][document] + number * T_c
    return np.stack([document, start, np.minimum(start + T_c, cu_seqlens[1:][document])], axis=1)


def packed_as_tensor(cu_seqlens, T_c):
    rows, d, start = [], 0, 0
    while start < cu_seqlens[-1]:
        while start >= cu_seqlens[d + 1]:
            d += 1
        stop = min(start + T_c, int(cu_seqlens[d + 1]))
        rows.append((d, start, stop))
        start = stop
    return torch.tensor(rows)


# 4.10: one call, slices and positions, token by token
def stream_at_once(q, k, v, g, lengths):
    return chunk_additive(q, k, v, g, scale=1.0, output_final_state=True, chunk_size=7)


def stream_by_positions(q, k, v, g, lengths):
    o, S, start = torch.zeros_like(v), torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), 0
    for n in lengths:
        piece = slice(start, start + n)
        o[:, piece], S = chunk_additive(
            q[:, piece],
            k[:, piece],
            v[:, piece],
            g[:, piece],
            scale=1.0,
            initial_state=S,
            output_final_state=True,
        )
        start += n
    return [o.numpy(), S.numpy()]


def stream_by_tokens(q, k, v, g, lengths):
    S, o = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), []
    for t in range(sum(lengths)):
        S = g[:, t].exp()[..., None, None] * S + torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        o.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(o, 1), S


RIGHT_ANSWERS = {
    "4.1": [own_chunk_by_one_mask, own_chunk_by_resets, own_chunk_in_torch, own_chunk_in_rows],
    "4.2": [factors_in_loops, factors_in_torch, factors_from_the_mask],
    "4.3": [states_by_recurrence, states_padded, states_from_the_end],
    "4.4": [pass_by_mask, pass_by_doubling, pass_in_place],
    "4.5": [whole_by_recurrence, whole_at_once, whole_in_torch, whole_in_halves],
    "4.6": [flops_chunk_by_chunk, flops_in_numpy, flops_as_float],
    "4.7": [pad_with_empty_values, pad_as_lists, pad_with_empty_keys],
    "4.8": [log_by_tokens, log_by_masks_of_products, log_by_the_library, log_in_double_precision],
    "4.9": [packed_by_tokens, packed_in_numpy, packed_as_tensor],
    "4.10": [stream_at_once, stream_by_positions, stream_by_tokens],
}
