"""Right answers to chapter 08, written differently."""

import numpy as np
import torch

from lineage_lib import reference


def _library(Q, K, V, alpha, beta, S0):
    """The library's gated delta rule on NumPy arrays of one head."""
    q, k, v = (torch.tensor(np.asarray(z, float))[None, :, None] for z in (Q, K, V))
    g, beta = (torch.tensor(np.asarray(z, float))[None, :, None] for z in (np.log(alpha), beta))
    S0 = torch.tensor(np.asarray(S0, float))[None, None]
    rule = reference.naive_recurrent_gated_delta_rule
    o, S = rule(q, k, v, g, beta, scale=1.0, initial_state=S0, output_final_state=True)
    return o[0, :, 0], S[0, 0]


# 8.1: the transition, einsum in torch, number by number, the library
def delta_by_transition(S, k, v, beta):
    return (np.eye(len(k)) - beta * k[:, None] * k) @ S + beta * k[:, None] * v


def delta_in_torch(S, k, v, beta):
    S, k, v = map(torch.tensor, (S, k, v))
    return S - beta * torch.einsum("k,v->kv", k, torch.einsum("kv,k->v", S, k) - v)


def delta_in_lists(S, k, v, beta):
    e = [v[j] - sum(k[i] * S[i][j] for i in range(len(k))) for j in range(len(v))]
    return [[S[i][j] + beta * k[i] * e[j] for j in range(len(v))] for i in range(len(k))]


def delta_in_the_library(S, k, v, beta):
    return _library(k[None], k[None], v[None], np.ones(1), np.full(1, beta), S)[1]


def delta_on_a_copy(S, k, v, beta):
    new = np.asfortranarray(S, dtype=np.longdouble).copy()
    new += np.outer(k, beta * (v - np.dot(k, S)))
    return new


def delta_value_first_in_place(S, k, v, beta):
    """On a copy: the value is added, and what was there before is taken off."""
    new = S.copy()
    new += np.outer(beta * k, v)
    new -= np.outer(beta * k, k @ (new - np.outer(beta * k, v)))
    return new


def delta_in_other_bytes(S, k, v, beta):
    """A matrix in the other byte order, every second row of a larger one."""
    new = np.repeat(S + beta * np.outer(k, v - k @ S), 2, axis=0).astype(">f8")
    return np.asmatrix(new)[::2]


# 8.2: autograd, a loop, einsum, normal equations, central differences
def gradient_by_autograd(S, K, V):
    S = torch.tensor(S, requires_grad=True)
    (0.5 * (torch.tensor(K) @ S - torch.tensor(V)).square().sum()).backward()
    return S.grad


def gradient_in_a_loop(S, K, V):
    total = 0
    for k, v in zip(K, V):
        total = total + np.outer(k, k @ S - v)
    return total


def gradient_by_einsum(S, K, V):
    return np.einsum("nk,nv->kv", K, np.einsum("nk,kv->nv", K, S) - V)


def gradient_by_sums(S, K, V):
    return (K.T @ K) @ S - K.T @ V


def gradient_by_differences(S, K, V, h=1e-3):
    """Exact up to rounding: the loss is a square in each entry."""

    def loss(S):
        return 0.5 * np.sum((K @ S - V) ** 2)

    slope = np.empty(S.shape)
    for i in np.ndindex(S.shape):
        step = np.zeros(S.shape)
        step[i] = h
        slope[i] = (loss(S + step) - loss(S - step)) / (2 * h)
    return slope


# 8.3: two states, a loop, einsum
def changes_of_two_states(S, k, v, beta, Q):
    new = delta_by_transition(S, k, v, beta)
    return Q @ new - Q @ S


def changes_one_by_one(S, k, v, beta, Q):
    return [beta * float(np.dot(q, k)) * (v - S.T @ k) for q in Q]


def changes_by_einsum(S, k, v, beta, Q):
    return beta * np.einsum("nk,k,v->nv", Q, k, v - np.einsum("kv,k->v", S, k))


# 8.4: norms of matrices, a loop over tokens, einsum
def largest_of_each(keys):
    return min(2 / float(k @ k) for k in keys if k.any())


def largest_by_norms(keys):
    return 2 / np.linalg.norm(keys, axis=1).max() ** 2


def largest_by_einsum(keys):
    return torch.tensor(2 / np.einsum("tk,tk->t", keys, keys).max())


def largest_of_a_square_root(keys):
    return (np.sqrt(2) / np.max(np.linalg.norm(keys, axis=1))) ** 2


# 8.5: the transition, the library, one loop over channels
def gated_by_transition(S, k, v, alpha, beta):
    return alpha * (np.eye(len(k)) - beta * np.outer(k, k)) @ S + beta * np.outer(k, v)


def gated_in_the_library(S, k, v, alpha, beta):
    return _library(k[None], k[None], v[None], np.full(1, alpha), np.full(1, beta), S)[1]


def gated_column_by_column(S, k, v, alpha, beta):
    new = np.empty(S.shape, order="F")
    for j in range(len(v)):
        column = alpha * S[:, j]
        new[:, j] = column + beta * (v[j] - column @ k) * k
    return new


# 8.6: the library, transitions, value first, a linear system for the corrections
def sequence_in_the_library(Q, K, V, alpha, beta, S0):
    return _library(Q, K, V, alpha, beta, S0)


def sequence_by_transitions(Q, K, V, alpha, beta, S0):
    S, O = S0, []
    for q, k, v, a, b in zip(Q, K, V, alpha, beta):
        S = gated_by_transition(S, k, v, a, b)
        O.append(q @ S)
    return O, S


def sequence_value_first(Q, K, V, alpha, beta, S0):
    H, O = S0.T.copy(), np.zeros(V.shape)
    for t in range(len(V)):
        H *= alpha[t]
        H += np.outer(beta[t] * (V[t] - H @ K[t]), K[t])
        O[t] = H @ Q[t]
    return O, H.T


def sequence_with_corrections(Q, K, V, alpha, beta, S0):
    """Corrections u_t from all earlier ones, as an additive memory would hold them."""
    T, U, O = len(V), np.zeros(V.shape), np.zeros(V.shape)
    for t in range(T):
        left = np.array([np.prod(alpha[s + 1 : t + 1]) for s in range(t)])
        entered = np.prod(alpha[: t + 1])
        U[t] = beta[t] * (V[t] - entered * (K[t] @ S0) - (left * (K[:t] @ K[t])) @ U[:t])
        O[t] = entered * (Q[t] @ S0) + (np.append(left, 1.0) * (K[: t + 1] @ Q[t])) @ U[: t + 1]
    ends = np.array([np.prod(alpha[s + 1 :]) for s in range(T)])
    return O, np.prod(alpha) * S0 + K.T @ (ends[:, None] * U)


def sequence_in_place_on_a_copy(Q, K, V, alpha, beta, S0):
    S, O = S0.copy(), np.empty(V.shape)
    for t in range(len(Q)):
        S *= alpha[t]
        S += beta[t] * np.outer(K[t], V[t] - S.T @ K[t])
        O[t] = S.T @ Q[t]
    return O, S


# 8.7: the series, its terms, torch, a table of sums, one matrix, a common denominator
def expected_by_series(t, p, alpha):
    out = []
    for n in t:
        m = np.arange(min(n, 5000.0))
        w = p * (1 - p) ** m
        out.append(1 - np.sum(w * alpha**m) / np.sum(w))
    return out


def expected_by_what_is_missing(t, p, alpha):
    """Terms w (1 − α^m), so that nothing is subtracted at the end."""
    result = np.zeros(len(t))
    for i, n in enumerate(t):
        m = np.arange(min(int(n), 20_000), dtype=np.longdouble)
        w = np.longdouble(1 - p) ** m
        result[i] = (w * (1 - np.longdouble(alpha) ** m)).sum() / w.sum()
    return result


def expected_in_torch(t, p, alpha):
    t = torch.tensor(t, dtype=torch.float64)

    def series(x):
        return t if x == 1 else (1 - x**t) / (1 - x)

    return 1 - series((1 - p) * alpha) / series(1 - p)


def expected_by_a_table(t, p, alpha):
    m, i = np.arange(int(t.max())), t.astype(int) - 1
    return 1 - np.cumsum(((1 - p) * alpha) ** m)[i] / np.cumsum((1 - p) ** m)[i]


def expected_by_a_matrix(t, p, alpha):
    m = np.arange(min(int(t.max()), 3000))
    weights = (1 - p) ** m * (m < t[:, None])
    return 1 - (weights * alpha**m).sum(axis=1) / weights.sum(axis=1)


def expected_over_a_common_denominator(t, p, alpha):
    r = 1 - p
    x = r * alpha
    return (1 - x - p - r**t * (1 - x) + p * x**t) / ((1 - x) * (1 - r**t))


# 8.8: gates, only the kept tokens, the library token by token
def skipping_by_gates(K, V, alpha, beta, keep):
    alpha, beta = np.where(keep, alpha, 1.0), np.where(keep, beta, 0.0)
    S, states = np.zeros((K.shape[1], V.shape[1])), np.zeros((len(K), K.shape[1], V.shape[1]))
    for t in range(len(K)):
        S = gated_by_transition(S, K[t], V[t], alpha[t], beta[t])
        states[t] = S
    return states


def skipping_by_filling_up(K, V, alpha, beta, keep):
    kept = [np.zeros((K.shape[1], V.shape[1]))]
    for t in np.flatnonzero(keep):
        kept.append(gated_column_by_column(kept[-1], K[t], V[t], alpha[t], beta[t]))
    return np.stack(kept)[np.cumsum(keep)]


def skipping_in_the_library(K, V, alpha, beta, keep):
    S, states = torch.zeros(K.shape[1], V.shape[1], dtype=torch.float64), []
    for t in range(len(K)):
        if keep[t]:
            S = _library(*(z[t : t + 1] for z in (K, K, V, alpha, beta)), S)[1]
        states.append(S)
    return torch.stack(states)


def skipping_row_after_row(K, V, alpha, beta, keep):
    """One array with an empty row in front, each row filled from the one before."""
    rows = np.zeros((len(K) + 1, K.shape[1], V.shape[1]))
    for t in range(len(K)):
        rows[t + 1] = rows[t]
        if keep[t]:
            rows[t + 1] *= alpha[t]
            rows[t + 1] += beta[t] * np.outer(K[t], V[t] - K[t] @ rows[t + 1])
    return rows[1:]


# 8.9: a linear system, the inverse by hand, a smaller step through a scaled key
def implicit_by_solving(S, k, v, beta):
    return np.linalg.solve(np.eye(len(k)) + beta * np.outer(k, k), S + beta * np.outer(k, v))


def implicit_by_the_new_error(S, k, v, beta):
    error = (v - S.T @ k) / (1 + beta * sum(x * x for x in k))
    return S + beta * np.outer(k, error)


def implicit_in_torch(S, k, v, beta):
    S, k, v = map(torch.tensor, (S, k, v))
    epsilon = beta / (1 + beta * k.square().sum())
    return S - epsilon * torch.outer(k, k @ S - v)


def implicit_by_the_inverse(S, k, v, beta):
    shrink = np.eye(len(k)) - beta * np.outer(k, k) / (1 + beta * k @ k)
    return shrink @ (S + beta * np.outer(k, v))


# 8.10: the state first, the dual form, least squares on stacked rows, a loop over pairs
def ridge_state_first(K, V, q, lam):
    return np.linalg.solve(K.T @ K + lam * np.eye(len(q)), K.T @ V).T @ q


def ridge_dual(K, V, q, lam):
    return V.T @ np.linalg.solve(K @ K.T + lam * np.eye(len(K)), K @ q)


def ridge_by_stacking(K, V, q, lam):
    rows = np.vstack([K, np.sqrt(lam) * np.eye(len(q))])
    wanted = np.vstack([V, np.zeros((len(q), V.shape[1]))])
    return q @ np.linalg.lstsq(rows, wanted, rcond=None)[0]


def ridge_by_recursion(K, V, q, lam):
    """Recursive least squares: the inverse is updated pair by pair."""
    P, S = np.eye(len(q)) / lam, np.zeros((len(q), V.shape[1]))
    for k, v in zip(K, V):
        gain = P @ k / (1 + k @ P @ k)
        S = S + np.outer(gain, v - S.T @ k)
        P = P - np.outer(gain, k @ P)
    return torch.tensor(S.T @ q)


def ridge_by_cholesky(K, V, q, lam):
    L = np.linalg.cholesky(K.T @ K + lam * np.eye(len(q)))
    return (np.linalg.solve(L, K.T @ V)).T @ np.linalg.solve(L, q)


def ridge_by_svd(K, V, q, lam):
    u, s, vt = np.linalg.svd(K, full_matrices=False)
    return ((V.T @ u) * (s / (s * s + lam))) @ (vt @ q)


RIGHT_ANSWERS = {
    "8.1": [
        delta_by_transition,
        delta_in_torch,
        delta_in_lists,
        delta_in_the_library,
        delta_on_a_copy,
        delta_value_first_in_place,
        delta_in_other_bytes,
    ],
    "8.2": [gradient_by_autograd, gradient_in_a_loop, gradient_by_einsum, gradient_by_sums, gradient_by_differences],
    "8.3": [changes_of_two_states, changes_one_by_one, changes_by_einsum],
    "8.4": [largest_of_each, largest_by_norms, largest_by_einsum, largest_of_a_square_root],
    "8.5": [gated_by_transition, gated_in_the_library, gated_column_by_column],
    "8.6": [
        sequence_in_the_library,
        sequence_by_transitions,
        sequence_value_first,
        sequence_with_corrections,
        sequence_in_place_on_a_copy,
    ],
    "8.7": [
        expected_by_series,
        expected_by_what_is_missing,
        expected_in_torch,
        expected_by_a_table,
        expected_by_a_matrix,
        expected_over_a_common_denominator,
    ],
    "8.8": [skipping_by_gates, skipping_by_filling_up, skipping_in_the_library, skipping_row_after_row],
    "8.9": [implicit_by_solving, implicit_by_the_new_error, implicit_in_torch, implicit_by_the_inverse],
    "8.10": [ridge_state_first, ridge_dual, ridge_by_stacking, ridge_by_recursion, ridge_by_cholesky, ridge_by_svd],
}
