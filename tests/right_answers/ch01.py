"""Right answers to chapter 01, written differently."""

import math

import numpy as np
import torch


# 1.1: PyTorch's own softmax, plain Python, one pass over the cache, long doubles
def attend_in_torch(q_t, k, v):
    q_t, k, v = map(torch.tensor, (q_t, k, v))
    return torch.softmax((k @ q_t) * len(q_t) ** -0.5, dim=0) @ v


def attend_in_python(q_t, k, v):
    scores = [sum(a * b for a, b in zip(key, q_t)) / math.sqrt(len(q_t)) for key in k]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [sum(w * value for w, value in zip(weights, column)) / sum(weights) for column in v.T]


def attend_in_one_pass(q_t, k, v):
    """The running maximum of streaming attention: sums are rescaled when a larger score arrives."""
    top, total, out = -np.inf, 0.0, np.zeros(v.shape[1])
    for key, value in zip(k, v):
        score = key @ q_t / np.sqrt(key.size)
        new = max(top, score)
        shrink, weight = np.exp(top - new), np.exp(score - new)
        top, total, out = new, total * shrink + weight, out * shrink + weight * value
    return out / total


def attend_through_log_sum(q_t, k, v):
    scores = (k @ q_t[:, None])[:, 0].astype(np.longdouble) / np.sqrt(np.longdouble(k.shape[1]))
    return np.exp(scores - np.logaddexp.reduce(scores)) @ v


# 1.2
def bytes_of_a_layer_first(tokens, layers, kv_heads, head_dim, bytes_per_number):
    key = value = kv_heads * head_dim * bytes_per_number
    return layers * ((key + value) * tokens)


def bytes_by_shape(tokens, layers, kv_heads, head_dim, bytes_per_number):
    return np.int64(bytes_per_number) * math.prod((layers, 2, kv_heads, tokens, head_dim))


def bytes_as_float(tokens, layers, kv_heads, head_dim, bytes_per_number):
    return 2.0 * tokens * layers * kv_heads * head_dim * bytes_per_number


# 1.3
def step_by_broadcasting(S, k_t, v_t, q_t):
    new = S + k_t[:, None] * v_t[None, :]
    return [new, q_t @ new]


def step_in_torch(S, k_t, v_t, q_t):
    S, k_t, v_t, q_t = map(torch.tensor, (S, k_t, v_t, q_t))
    new = torch.addr(S, k_t, v_t)
    return new, torch.einsum("kv,k->v", new, q_t)


def step_value_first(S, k_t, v_t, q_t):
    """The read without the new state: the old read plus the score times the value."""
    return np.asfortranarray(S) + np.einsum("k,v->kv", k_t, v_t), S.T @ q_t + (k_t @ q_t) * v_t


# 1.4
def recurrent_row_by_row(q, k, v, S0):
    S, rows = np.array(S0, order="F"), []
    for query, key, value in zip(q, k, v):
        S += key[:, None] * value
        rows.append(query @ S)
    return rows, S


def recurrent_in_torch(q, k, v, S0):
    q, k, v, S = map(torch.tensor, (q, k, v, S0))
    o = torch.empty_like(v)
    for t in range(len(v)):
        S = S + torch.outer(k[t], v[t])
        o[t] = S.T @ q[t]
    return o, S


def recurrent_in_blocks(q, k, v, S0):
    S, pieces = S0, []
    for at in range(0, len(q), 16):
        here = slice(at, at + 16)
        pieces.append(q[here] @ S + np.tril(q[here] @ k[here].T) @ v[here])
        S = S + k[here].T @ v[here]
    return np.concatenate(pieces), S


def recurrent_column_by_column(q, k, v, S0):
    """One value channel after the other: its states are (T, K)."""
    o, S = np.empty(v.shape), np.empty(S0.shape)
    for c in range(v.shape[1]):
        states = S0[:, c] + np.cumsum(k * v[:, [c]], axis=0)
        o[:, c], S[:, c] = np.sum(q * states, axis=1), states[-1]
    return o, S


# 1.5
def parallel_in_one_einsum(q, k, v):
    return np.einsum("ts,tk,sk,sv->tv", np.tri(len(q)), q, k, v)


def parallel_pair_by_pair(q, k, v):
    return [sum((q[t] @ k[s]) * v[s] for s in range(t + 1)) for t in range(len(q))]


def parallel_in_torch(q, k, v):
    q, k, v = map(torch.tensor, (q, k, v))
    future = torch.ones(len(q), len(q)).triu(1).bool()
    return (q @ k.mT).masked_fill(future, 0) @ v


def parallel_from_states(q, k, v):
    return np.einsum("tk,tkv->tv", q, np.cumsum(np.einsum("tk,tv->tkv", k, v), axis=0))


def parallel_mask_times_scores(q, k, v):
    return (np.tri(len(q)) * (q @ k.T)) @ v


# 1.6
def questions_through_a_loop(q, k, v):
    S = np.zeros((k.shape[1], v.shape[1]))
    for key, value in zip(k, v):
        S += np.outer(key, value)
    return [S.T @ query for query in q]


def questions_in_torch(q, k, v):
    q, k, v = map(torch.tensor, (q, k, v))
    return torch.einsum("mk,kv->mv", q, torch.einsum("tk,tv->kv", k, v))


def questions_value_first(q, k, v):
    return ((v.T @ k) @ q.T).T


def questions_one_at_a_time(q, k, v):
    return np.stack([v.T @ (k @ query) for query in q])


# 1.7
def normalised_with_a_column_of_ones(q, k, v):
    """The normaliser is one more value channel, whose values are all 1."""
    wide = np.column_stack([v, np.ones(len(v))])
    S, rows = np.zeros((k.shape[1], wide.shape[1])), []
    for query, key, value in zip(q, k, wide):
        S = S + np.outer(key, value)
        rows.append(query @ S)
    rows = np.array(rows)
    return rows[:, :-1] / rows[:, -1:]


def normalised_as_weights(q, k, v):
    rows = []
    for t in range(len(q)):
        scores = k[: t + 1] @ q[t]
        rows.append(scores / scores.sum() @ v[: t + 1])
    return rows


def normalised_in_torch(q, k, v):
    q, k, v = map(torch.tensor, (q, k, v))
    S = (k[:, :, None] * v[:, None, :]).cumsum(0)
    z = k.cumsum(0)
    return torch.einsum("tk,tkv->tv", q, S) / (q * z).sum(1, keepdim=True)


# 1.8
def crosstalk_through_dot_products(k, v):
    error = (k @ k.T - np.eye(len(k))) @ v
    return (error * error).sum() / (v * v).sum()


def crosstalk_in_torch(k, v):
    k, v = torch.tensor(k), torch.tensor(v)
    S = torch.einsum("nk,nv->kv", k, v)
    return ((k @ S - v).norm() / v.norm()) ** 2


def crosstalk_pair_by_pair(k, v):
    S = sum(np.outer(key, value) for key, value in zip(k, v))
    errors = [S.T @ key - value for key, value in zip(k, v)]
    return sum(float(e @ e) for e in errors) / sum(float(value @ value) for value in v)


# 1.9
def replace_in_two_steps(S, k_t, v_old, v_new):
    without = S - np.outer(k_t, v_old)
    return without + np.outer(k_t, v_new)


def replace_in_torch(S, k_t, v_old, v_new):
    S, k_t, v_old, v_new = map(torch.tensor, (S, k_t, v_old, v_new))
    return torch.addr(S, k_t, v_new - v_old)


def replace_entry_by_entry(S, k_t, v_old, v_new):
    return [[s + a * (new - old) for s, old, new in zip(row, v_old, v_new)] for row, a in zip(S.tolist(), k_t)]


RIGHT_ANSWERS = {
    "1.1": [attend_in_torch, attend_in_python, attend_in_one_pass, attend_through_log_sum],
    "1.2": [bytes_of_a_layer_first, bytes_by_shape, bytes_as_float],
    "1.3": [step_by_broadcasting, step_in_torch, step_value_first],
    "1.4": [recurrent_row_by_row, recurrent_in_torch, recurrent_in_blocks, recurrent_column_by_column],
    "1.5": [
        parallel_in_one_einsum,
        parallel_pair_by_pair,
        parallel_in_torch,
        parallel_from_states,
        parallel_mask_times_scores,
    ],
    "1.6": [questions_through_a_loop, questions_in_torch, questions_value_first, questions_one_at_a_time],
    "1.7": [normalised_with_a_column_of_ones, normalised_as_weights, normalised_in_torch],
    "1.8": [crosstalk_through_dot_products, crosstalk_in_torch, crosstalk_pair_by_pair],
    "1.9": [replace_in_two_steps, replace_in_torch, replace_entry_by_entry],
}
