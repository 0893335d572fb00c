"""Right answers to chapter 03, written differently."""

import math

import numpy as np
import torch

from lineage_lib import matrices, reference


# 3.1: list of lists, a whole history of states, PyTorch, the closed form of the lemma
def recurrent_in_lists(X, a, B, C):
    N, P = B.shape[1], X.shape[1]
    S, Y = [[0.0] * P for _ in range(N)], []
    for t in range(len(X)):
        for n in range(N):
            for p in range(P):
                S[n][p] = a[t] * S[n][p] + B[t, n] * X[t, p]
        Y.append([sum(C[t, n] * S[n][p] for n in range(N)) for p in range(P)])
    return Y


def recurrent_value_first(X, a, B, C):
    S, reads = np.zeros((X.shape[1], B.shape[1]), order="F"), []
    for x, decay, key, query in zip(X, a, B, C):
        S *= decay
        S += x[:, None] * key
        reads.append(S @ query)
    return np.asfortranarray(reads)


def recurrent_in_torch(X, a, B, C):
    X, a, B, C = map(torch.tensor, (X, a, B, C))
    S, Y = torch.zeros(B.shape[1], X.shape[1], dtype=X.dtype), torch.empty_like(X)
    for t in range(len(X)):
        S = torch.addr(a[t] * S, B[t], X[t])
        Y[t] = torch.mv(S.T, C[t])
    return Y


def recurrent_from_the_lemma(X, a, B, C):
    """A double loop over pairs, with math.prod as the segment product."""
    return [sum(math.prod(a[s + 1 : t + 1]) * (C[t] @ B[s]) * X[s] for s in range(t + 1)) for t in range(len(X))]


# 3.2: one einsum, the recurrence, complex logarithms in long doubles, row by row
def quadratic_in_one_einsum(X, a, B, C):
    return np.einsum("ts,tn,sn,sp->tp", matrices.segment_products(a), C, B, X)


def quadratic_as_recurrence(X, a, B, C):
    return reference.ssd_recurrent(X, a, B, C)[0].tolist()


def quadratic_in_logarithms(X, a, B, C):
    X, a, B, C = (z.astype(np.longdouble) for z in (X, a, B, C))
    T = len(a)
    log_a = np.log(a.astype(np.clongdouble))  # a negative decay turns by half a circle
    log_L = np.full((T, T), -np.inf, dtype=np.clongdouble)
    for s in range(T):
        log_L[s:, s] = np.cumsum(np.append(0.0, log_a[s + 1 :]))
    return (np.exp(log_L).real * (C @ B.T)) @ X


def quadratic_row_by_row(X, a, B, C):
    Y, weights = np.zeros_like(X), np.zeros(len(X))
    for t in range(len(X)):
        weights *= a[t]
        weights[t] = 1
        Y[t] = (weights * (B @ C[t])) @ X
    return Y


def quadratic_in_torch(X, a, B, C):
    X, a, B, C = map(torch.tensor, (X, a, B, C))
    steps = a[:, None].expand(len(a), len(a)).tril(-1) + torch.ones(len(a), len(a), dtype=a.dtype).triu()
    return (steps.cumprod(0).tril() * (C @ B.mT)) @ X


# 3.3: a running state, one einsum channel by channel, PyTorch, cumulative sums without the big array
def linear_attention_running(Q, K, V):
    S, Y = np.zeros((K.shape[1], V.shape[1])), []
    for q, k, v in zip(Q, K, V):
        S += np.outer(k, v)
        Y.append(q @ S)
    return Y


def linear_attention_by_key_channel(Q, K, V):
    return sum(Q[:, [n]] * np.cumsum(K[:, [n]] * V, axis=0) for n in range(K.shape[1]))


def linear_attention_value_first(Q, K, V):
    Q, K, V = map(torch.tensor, (Q, K, V))
    return torch.einsum("tpn,tn->tp", torch.einsum("tp,tn->tpn", V, K).cumsum(0), Q)


def linear_attention_in_blocks(Q, K, V):
    S, Y = np.zeros((K.shape[1], V.shape[1])), []
    for start in range(0, len(Q), 16):
        q, k, v = Q[start : start + 16], K[start : start + 16], V[start : start + 16]
        Y.append(q @ S + np.tril(q @ k.T) @ v)
        S = S + k.T @ v
    return np.concatenate(Y)


# 3.4: the recurrence, all masks at once, channel sums in PyTorch
def diagonal_as_recurrence(X, A, B, C):
    S, Y = np.zeros((B.shape[1], X.shape[1])), np.zeros_like(X)
    for t in range(len(X)):
        S = A[t][:, None] * S + B[t][:, None] * X[t]
        Y[t] = C[t] @ S
    return Y


def diagonal_all_masks(X, A, B, C):
    T, N = A.shape
    L = np.zeros((T, T, N))
    for t in range(T):
        for s in range(t + 1):
            L[t, s] = A[s + 1 : t + 1].prod(axis=0)
    return np.einsum("tsn,tn,sn,sp->tp", L, C, B, X, optimize=True)


def diagonal_as_sum_of_heads(X, A, B, C):
    heads = [matrices.ssd_quadratic(X, A[:, n], B[:, [n]], C[:, [n]]) for n in range(A.shape[1])]
    return torch.tensor(np.stack(heads)).sum(0)


def diagonal_as_one_matrix(X, A, B, C):
    M = sum(matrices.segment_products(a) * np.multiply.outer(c, b) for a, b, c in zip(A.T, B.T, C.T))
    return M.dot(X)


# 3.5: row by row, column by column, entry by entry, PyTorch
def log_sums_by_rows(log_a):
    T = len(log_a)
    out = np.full((T, T), -np.inf)
    for t in range(T):
        if t:
            out[t, :t] = out[t - 1, :t] + log_a[t]
        out[t, t] = 0
    return out


def log_sums_by_columns(log_a):
    T = len(log_a)
    return [[sum(log_a[s + 1 : t + 1]) if s <= t else -math.inf for s in range(T)] for t in range(T)]


def log_sums_of_products(log_a):
    """Long doubles; the sums in reversed time."""
    T = len(log_a)
    out = np.full((T, T), -np.inf, dtype=np.longdouble)
    for t in range(T):
        back = np.cumsum(log_a[: t + 1][::-1].astype(np.longdouble))
        out[t, : t + 1] = np.append(0.0, back[:-1])[::-1]
    return out


def log_sums_in_torch(log_a):
    log_a = torch.tensor(log_a)
    T = len(log_a)
    below = torch.ones(T, T, dtype=torch.bool).tril(-1)
    steps = log_a[:, None].repeat(1, T).masked_fill(~below, 0)
    return steps.cumsum(0).masked_fill(below.mT, -torch.inf)


# 3.6: a list, a running position, np.where
def packed_as_list(log_a, lengths):
    packed = []
    for length in lengths:
        packed += [-math.inf, *log_a[len(packed) + 1 : len(packed) + length]]
    return packed


def packed_by_position(log_a, lengths):
    out, start = log_a.copy(), 0
    for length in lengths:
        out[start] = float("-inf")
        start += length
    return out


def packed_by_document_number(log_a, lengths):
    number = np.repeat(np.arange(len(lengths)), lengths)
    return np.where(np.diff(number, prepend=-1) > 0, -np.inf, log_a)


# 3.7: S0 as extra tokens, by superposition, the recurrence
def from_state_with_extra_tokens(X, a, B, C, S0):
    """Row n of S0 is what a token with key n and value S0[n] would have left."""
    N = len(S0)
    Y = matrices.ssd_quadratic(
        np.concatenate([S0, X]),
        np.concatenate([np.ones(N), a]),
        np.concatenate([np.eye(N), B]),
        np.concatenate([np.zeros((N, N)), C]),
    )
    return Y[N:]


def from_state_by_superposition(X, a, B, C, S0):
    silent = reference.ssd_recurrent(0 * X, a, B, C, S0)[0]
    return torch.tensor(silent + (matrices.segment_products(a) * (C @ B.T)) @ X)


def from_state_row_by_row(X, a, B, C, S0):
    return [y + np.prod(a[: t + 1]) * (S0.T @ C[t]) for t, y in enumerate(matrices.ssd_quadratic(X, a, B, C))]


# 3.8: the recurrence, a loop from the end, einsum in long doubles
def final_state_by_loop(X, a, B, S0):
    S = S0.copy()
    for t in range(len(X)):
        S = a[t] * S + np.outer(B[t], X[t])
    return S


def final_state_from_the_end(X, a, B, S0):
    S, left = np.zeros_like(S0), 1.0
    for t in reversed(range(len(X))):
        S += left * np.outer(B[t], X[t])
        left *= a[t]
    return (S + left * S0).tolist()


def final_state_with_a_first_token(X, a, B, S0):
    left = matrices.segment_products(np.append(1.0, a))[-1].astype(np.longdouble)
    return left[0] * S0 + np.einsum("s,sn,sp->np", left[1:], B, X)


# 3.9: search, fractions, the ceiling of a little more
def crossover_by_search(N, P):
    T = 1
    while 5 * N * P * T >= 2 * T * T + 2 * T * T * N + T * T + 2 * T * T * P:
        T += 1
    return T


def crossover_by_floor(N, P):
    return math.floor(5 * N * P / (2 * N + 2 * P + 3)) + 1


def crossover_in_numpy(N, P):
    T = np.arange(1, 10 * (N + P) + 10)
    return float(T[np.argmax(T * 5 * N * P < T**2 * (2 * (N + P) + 3))])


# 3.10: decay before the write, by reversal, PyTorch's own gradient, column by column of M
def transpose_decay_first(dY, a, B, C):
    T = len(dY)
    G, dX = np.zeros((B.shape[1], dY.shape[1])), np.zeros_like(dY)
    for s in range(T - 1, -1, -1):
        if s < T - 1:
            G = a[s + 1] * G
        G = G + np.outer(C[s], dY[s])
        dX[s] = B[s] @ G
    return dX


def transpose_by_reversal(dY, a, B, C):
    backwards = reference.ssd_recurrent(dY[::-1], np.roll(a, -1)[::-1], C[::-1], B[::-1])[0]
    return backwards[::-1].tolist()


def transpose_by_autograd(dY, a, B, C):
    a, B, C = map(torch.tensor, (a, B, C))
    X = torch.zeros(dY.shape, dtype=B.dtype, requires_grad=True)
    S, Y = torch.zeros(B.shape[1], X.shape[1], dtype=B.dtype), []
    for t in range(len(X)):
        S = a[t] * S + torch.outer(B[t], X[t])
        Y.append(S.T @ C[t])
    torch.stack(Y).backward(torch.tensor(dY))
    return X.grad


def transpose_column_by_column(dY, a, B, C):
    """Time proportional to T², memory to T."""
    return [(np.cumprod(np.append(1, a[s + 1 :])) * (C[s:] @ B[s])) @ dY[s:] for s in range(len(dY))]


RIGHT_ANSWERS = {
    "3.1": [recurrent_in_lists, recurrent_value_first, recurrent_in_torch, recurrent_from_the_lemma],
    "3.2": [
        quadratic_in_one_einsum,
        quadratic_as_recurrence,
        quadratic_in_logarithms,
        quadratic_row_by_row,
        quadratic_in_torch,
    ],
    "3.3": [
        linear_attention_running,
        linear_attention_by_key_channel,
        linear_attention_value_first,
        linear_attention_in_blocks,
    ],
    "3.4": [diagonal_as_recurrence, diagonal_all_masks, diagonal_as_sum_of_heads, diagonal_as_one_matrix],
    "3.5": [log_sums_by_rows, log_sums_by_columns, log_sums_of_products, log_sums_in_torch],
    "3.6": [packed_as_list, packed_by_position, packed_by_document_number],
    "3.7": [from_state_with_extra_tokens, from_state_by_superposition, from_state_row_by_row],
    "3.8": [final_state_by_loop, final_state_from_the_end, final_state_with_a_first_token],
    "3.9": [crossover_by_search, crossover_by_floor, crossover_in_numpy],
    "3.10": [transpose_decay_first, transpose_by_reversal, transpose_by_autograd, transpose_column_by_column],
}
