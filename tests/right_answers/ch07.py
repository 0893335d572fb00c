"""Right answers to chapter 07, written differently."""

import math

import numpy as np
import torch

from lineage_lib import matrices, reference


def _batched(*arrays):
    """(T, D) -> (1, T, 1, D), (T,) -> (1, T, 1)."""
    return [torch.tensor(np.asarray(z))[None, :, None] for z in arrays]


# 7.1: base two, the logarithm of 1 / alpha, number by number, log1p in long doubles
def half_life_in_base_two(alpha):
    return np.abs(-1 / np.log2(alpha))


def half_life_of_the_reciprocal(alpha):
    return np.log(2) / np.log(1 / alpha)


def half_life_of_the_reciprocal_in_base_two(alpha):
    return 1 / np.log2(1 / alpha)


def half_life_in_lists(alpha):
    if np.ndim(alpha):
        return [half_life_in_lists(a) for a in alpha]
    if alpha in (0.0, 1.0):
        return math.inf if alpha else 0.0
    return math.log(0.5) / math.log(alpha)


def half_life_of_what_is_lost(alpha):
    lost = 1 - np.asarray(alpha, dtype=np.longdouble)
    return np.log(np.longdouble(2)) / np.abs(np.log1p(-lost))


# 7.2: the matrix form, the library, Δ on the key and the decay as a power
def mamba2_as_matrix(x, dt_pre, dt_bias, A_log, B, C, D):
    dt = np.log1p(np.exp(-np.abs(dt_pre + dt_bias))) + np.maximum(dt_pre + dt_bias, 0)
    log_L = matrices.segment_log_sums(-dt * np.exp(A_log))
    return (np.exp(log_L) * (C @ (dt[:, None] * B).T)) @ x + D * x


def mamba2_in_the_library(x, dt_pre, dt_bias, A_log, B, C, D):
    x, dt_pre, B, C = _batched(x, dt_pre, B, C)
    dt = torch.nn.functional.softplus(dt_pre + dt_bias)
    A, skip = -torch.tensor([A_log], dtype=torch.float64).exp(), torch.tensor([D], dtype=torch.float64)
    return reference.naive_recurrent_mamba2(x, dt, A, B, C, skip)[0][0, :, 0]


def mamba2_channel_by_channel(x, dt_pre, dt_bias, A_log, B, C, D):
    dt, keeps = np.logaddexp(0, dt_pre + dt_bias), math.exp(-math.exp(A_log))
    Y = np.empty(x.shape, order="F")
    for p in range(x.shape[1]):
        h = np.zeros(B.shape[1])
        for t in range(len(x)):
            h = keeps ** dt[t] * h + x[t, p] * dt[t] * B[t]
            Y[t, p] = h @ C[t] + D * x[t, p]
    return Y


# 7.3: one mask a channel, the library, lists
def gla_by_masks(Q, K, V, alpha):
    O = np.zeros(V.shape)
    for k in range(K.shape[1]):
        O += (matrices.segment_products(alpha[:, k]) * np.outer(Q[:, k], K[:, k])) @ V
    return O


def gla_in_the_library(Q, K, V, alpha):
    return reference.naive_recurrent_gla(*_batched(Q, K, V, np.log(alpha)), scale=1.0)[0][0, :, 0]


def gla_in_lists(Q, K, V, alpha):
    S, O = [[0.0] * V.shape[1] for _ in range(K.shape[1])], []
    for q, k, v, a in zip(Q, K, V, alpha):
        S = [[a[i] * S[i][j] + k[i] * v[j] for j in range(len(v))] for i in range(len(k))]
        O.append([sum(q[i] * S[i][j] for i in range(len(k))) for j in range(len(v))])
    return O


# 7.4: scores with a strict mask, the library, the bonus apart
def rwkv6_by_scores(R, K, V, alpha, u):
    O = ((R * u * K).sum(axis=1))[:, None] * V
    for t in range(len(V)):
        left = np.ones(K.shape[1])
        for s in reversed(range(t)):
            O[t] += (R[t] * left @ K[s]) * V[s]
            left = left * alpha[s]
    return O


def rwkv6_in_the_library(R, K, V, alpha, u):
    r, k, v, w = _batched(R, K, V, np.log(alpha))
    return reference.naive_recurrent_rwkv6(r, k, v, w, torch.tensor(u)[None], scale=1.0)[0][0, :, 0]


def rwkv6_value_first(R, K, V, alpha, u):
    S, O = np.zeros((V.shape[1], K.shape[1])), []
    for r, k, v, a in zip(R, K, V, alpha):
        O.append(S @ r + v * (r @ (u * k)))
        S *= a
        S += v[:, None] * k
    return np.array(O)


# 7.5: weights as in a softmax, the library, another start of m, torch with a floor in logarithms
def mlstm_as_attention(Q, K, V, i_pre, f_pre):
    """A table of log weights, row by row relative to its largest."""
    log_f = -np.logaddexp(0, -f_pre)
    H = np.zeros(V.shape)
    for t in range(len(V)):
        log_w = i_pre[: t + 1] + np.append(np.cumsum(log_f[t:0:-1])[::-1], 0.0)
        m = log_w.max()
        w = np.exp(log_w - m) * (K[: t + 1] @ Q[t])
        H[t] = w @ V[: t + 1] / max(abs(w.sum()), np.exp(-m))
    return H


def mlstm_in_the_library(Q, K, V, i_pre, f_pre):
    return reference.naive_recurrent_mlstm(*_batched(Q, K, V, i_pre, f_pre), scale=1.0)[0][0, :, 0]


def mlstm_with_one_array(Q, K, V, i_pre, f_pre):
    """The normaliser as one more value column; m from minus infinity."""
    wide = np.concatenate([V, np.ones((len(V), 1))], axis=1)
    S, m, H = np.zeros((K.shape[1], wide.shape[1])), -np.inf, []
    for q, k, v, i, f in zip(Q, K, wide, i_pre, f_pre):
        kept = m + min(f, 0.0) - math.log1p(math.exp(-abs(f)))
        m = max(kept, i)
        S = math.exp(kept - m) * S + math.exp(i - m) * np.outer(k, v)
        *top, weight = S.T @ q
        floor = math.exp(-m) if m > -700 else math.inf
        H.append(np.array(top) / max(abs(weight), floor))
    return H


# 7.6: closed products in long doubles, the library, column by column
def rg_lru_in_long_doubles(x, r, i, Lambda):
    x, r, i, Lambda = (np.asarray(z, dtype=np.longdouble) for z in (x, r, i, Lambda))
    log_a = -8 * r * np.logaddexp(0, Lambda)
    u = np.sqrt(-np.expm1(2 * log_a)) * i * x
    u[0] = i[0] * x[0]
    H = [u[0]]
    for t in range(1, len(x)):
        H.append(np.exp(log_a[t]) * H[-1] + u[t])
    return np.stack(H)


def rg_lru_in_the_library(x, r, i, Lambda):
    x, r, i = (torch.tensor(z)[None] for z in (x, r, i))
    return reference.naive_recurrent_rg_lru(x, r, i, torch.tensor(Lambda))[0][0]


def rg_lru_by_tanh(x, r, i, Lambda):
    """1 − a² = (1 + a²) tanh(−ln a)."""
    rate = 8 * (np.maximum(Lambda, 0) + np.log1p(np.exp(-np.abs(Lambda))))
    H = np.zeros(x.shape)
    for c in range(x.shape[1]):
        h = i[0, c] * x[0, c]
        H[0, c] = h
        for t in range(1, len(x)):
            z = rate[c] * r[t, c]
            a = math.exp(-z)
            h = a * h + math.sqrt((1 + a * a) * math.tanh(z)) * i[t, c] * x[t, c]
            H[t, c] = h
    return H


# 7.7: matrices, einsum in torch, the library
def template_with_matrices(S, k, v, g, b, w):
    G = (np.eye(len(k)) - k[:, None] * (b * k)[None, :]) @ np.diag(np.exp(g))
    return G @ S + k[:, None] * (w * v)[None, :]


def template_in_torch(S, k, v, g, b, w):
    S, k, v, g, b, w = map(torch.tensor, (S, k, v, g, b, w))
    S = torch.einsum("k,kv->kv", g.exp(), S)
    return S + torch.einsum("k,v->kv", k, w * v - torch.einsum("kv,k->v", S, b * k))


def template_in_the_library(S, k, v, g, b, w):
    q, k, v, g, b, w = _batched(*(z[None] for z in (k, k, v, g, b, w)))
    state = torch.tensor(S)[None, None]
    _, S = reference.naive_recurrent_gdn2(q, k, v, g, b, w, initial_state=state, output_final_state=True)
    return S[0, 0]


# 7.8: complex numbers, matrices, the library
def turn_back_in_complex(Z, theta):
    z = (Z[:, ::2] + 1j * Z[:, 1::2]) * np.exp(-1j * np.cumsum(theta, axis=0))
    return np.stack([z.real, z.imag], axis=-1).reshape(Z.shape)


def turn_back_by_matrices(Z, theta):
    rows, P = [], np.eye(Z.shape[1])
    for z, angles in zip(Z, theta):
        R = np.zeros_like(P)
        for j, a in enumerate(angles):
            R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
        P = R @ P
        rows.append(P.T @ z)
    return rows


def turn_back_in_the_library(Z, theta):
    return reference.rotate(torch.tensor(Z), -torch.tensor(theta).cumsum(0))


# 7.9: the matrix of both taps, the library, the two taps as one shifted input
def trapezoid_as_matrix(X, dt, A, lam, B, C):
    alpha = np.exp(dt * A)
    M = matrices.segment_products(alpha) * (C @ (lam * dt * B.T))
    if len(X) > 1:
        late = ((1 - lam) * dt * alpha)[1:]
        M[:, :-1] += matrices.segment_products(alpha)[:, 1:] * (C @ (late * B[:-1].T))
    return M @ X


def trapezoid_in_the_library(X, dt, A, lam, B, C):
    x, dt, A, lam, B, C = _batched(X, dt, A, lam, B, C)
    theta = torch.zeros(1, len(X), 1, 0, dtype=torch.float64)
    return reference.naive_recurrent_mamba3(x, dt, A, lam, B, C, theta)[0][0, :, 0]


def trapezoid_in_one_state(X, dt, A, lam, B, C):
    """The earlier token is added to the state before the decay."""
    S, Y = np.zeros((B.shape[1], X.shape[1])), []
    for t in range(len(X)):
        if t:
            S = S + (1 - lam[t]) * dt[t] * np.outer(B[t - 1], X[t - 1])
        S = math.exp(dt[t] * A[t]) * S + lam[t] * dt[t] * np.outer(B[t], X[t])
        Y.append((S * C[t][:, None]).sum(axis=0))
    return Y


RIGHT_ANSWERS = {
    "7.1": [
        half_life_in_base_two,
        half_life_of_the_reciprocal,
        half_life_of_the_reciprocal_in_base_two,
        half_life_in_lists,
        half_life_of_what_is_lost,
    ],
    "7.2": [mamba2_as_matrix, mamba2_in_the_library, mamba2_channel_by_channel],
    "7.3": [gla_by_masks, gla_in_the_library, gla_in_lists],
    "7.4": [rwkv6_by_scores, rwkv6_in_the_library, rwkv6_value_first],
    "7.5": [mlstm_as_attention, mlstm_in_the_library, mlstm_with_one_array],
    "7.6": [rg_lru_in_long_doubles, rg_lru_in_the_library, rg_lru_by_tanh],
    "7.7": [template_with_matrices, template_in_torch, template_in_the_library],
    "7.8": [turn_back_in_complex, turn_back_by_matrices, turn_back_in_the_library],
    "7.9": [trapezoid_as_matrix, trapezoid_in_the_library, trapezoid_in_one_state],
}
