"""Right answers to chapter 09, written differently."""

from collections import namedtuple

import numpy as np
import torch

from lineage_lib.chunked import chunk_delta

solve_triangular = torch.linalg.solve_triangular


def recur(Q, K, V, alpha, erase, S0):
    """Any decay (T, 1 or K), erase keys (T, K): (I − k eᵀ) diag(alpha) S + k vᵀ, read after the write."""
    S, O = np.array(S0, dtype=np.longdouble), np.zeros(V.shape, dtype=np.longdouble)
    for t in range(len(V)):
        S = alpha[t][:, None] * S
        S = S + np.outer(K[t], V[t] - S.T @ erase[t])
        O[t] = S.T @ Q[t]
    return O, S


# 9.1: PyTorch, through the WY form, value columns one by one
def factors_in_torch(K, beta, X):
    X = torch.tensor(X)
    for k, b in zip(torch.tensor(K), beta):
        X = X.addr(k, k @ X, alpha=-float(b))
    return X


def factors_through_wy(K, beta, X):
    A = np.tril(beta[:, None] * (K @ K.T), -1)
    return X - K.T @ np.linalg.solve(np.eye(len(K)) + A, beta[:, None] * (K @ X))


def factors_by_column(K, beta, X):
    columns = []
    for x in X.T.tolist():
        for k, b in zip(K, beta):
            x = x - b * (k @ x) * k
        columns.append(x)
    return np.array(columns).T


def factors_recursively(K, beta, X):
    if len(K) == 0:
        return X
    before = factors_recursively(K[:-1], beta[:-1], X)
    return before - beta[-1] * K[-1][:, None] * (K[-1] @ before)[None]


def factors_in_long_double(K, beta, X):
    X = X.astype(np.longdouble)
    for k, b in zip(K, beta):
        X = X - b * k[:, None] * (k @ X)[None]
    return np.asfortranarray(X)


# 9.2: one solve, the product's transpose applied to each key, lists, PyTorch
def rows_by_solve(K, beta):
    A = np.tril(K @ K.T, -1) * beta[:, None]
    return np.linalg.inv(np.eye(len(K)) + A) @ (K * beta[:, None])


def rows_by_products(K, beta):
    P, W = np.eye(K.shape[1]), []
    for k, b in zip(K, beta):
        W.append(b * P.T @ k)
        P = P - np.outer(k, W[-1])
    return W


def rows_in_lists(K, beta):
    W = []
    for i, k in enumerate(K):
        row = k.copy()
        for j in range(i):
            row -= sum(x * y for x, y in zip(k, K[j])) * np.array(W[j])
        W.append((beta[i] * row).tolist())
    return W


def rows_in_torch(K, beta):
    K, beta = torch.tensor(K), torch.tensor(beta)
    A = (beta[:, None] * (K @ K.mT)).tril(-1)
    return solve_triangular(A, beta[:, None] * K, upper=False, unitriangular=True)


def rows_right_looking(K, beta):
    """Each finished row is taken from all rows below at once; a tuple of rows."""
    W = K.copy()
    for i in range(len(K)):
        W[i] *= beta[i]
        W[i + 1 :] -= np.outer(K[i + 1 :] @ K[i], W[i])
    return tuple(W)


# 9.3: one solve for both, by the loop, long double substitution, divided by beta first
def wy_at_once(K, V, beta):
    A = (torch.tensor(beta[:, None] * (K @ K.T))).tril(-1)
    both = solve_triangular(A, torch.tensor(beta[:, None] * np.hstack([K, V])), upper=False, unitriangular=True)
    return both.split([K.shape[1], V.shape[1]], dim=1)


def wy_by_rows(K, V, beta):
    both = np.hstack([K, V]).astype(np.longdouble)
    for i in range(len(K)):
        both[i] = beta[i] * (both[i] - (K[:i] @ K[i]) @ both[:i])
    return [both[:, : K.shape[1]], both[:, K.shape[1] :]]


def wy_by_inverse(K, V, beta):
    T = np.linalg.inv(np.eye(len(K)) + np.tril(np.diag(beta) @ K @ K.T, -1)) @ np.diag(beta)
    return np.asfortranarray(T @ K), (T @ V).tolist()


def wy_one_solve_split(K, V, beta):
    L = np.eye(len(K)) + np.tril(beta[:, None] * (K @ K.T), -1)
    W, U = np.hsplit(np.linalg.solve(L, beta[:, None] * np.hstack([K, V])), [K.shape[1]])
    return [torch.tensor(W), U.tolist()]


# 9.4: W and U, the recurrence itself, PyTorch
def corrected_from_wy(K, V, beta, S0):
    W, U = wy_at_once(K, V, beta)
    return U - W @ torch.tensor(S0)


def corrected_by_the_recurrence(K, V, beta, S0):
    S, D = S0.astype(np.longdouble), []
    for k, v, b in zip(K, V, beta):
        D.append(b * (v - S.T @ k))
        S = S + np.outer(k, D[-1])
    return D


def corrected_from_inverse(K, V, beta, S0):
    W, U = wy_by_inverse(K, V, beta)
    return np.array(U) - W @ S0


def corrected_as_a_matrix(K, V, beta, S0):
    """Substitution token by token; an np.matrix comes back."""
    D = []
    for i, (k, v, b) in enumerate(zip(K, V, beta)):
        D.append(b * (v - k @ S0 - sum(((k @ K[j]) * D[j] for j in range(i)), np.zeros_like(v))))
    return np.asmatrix(D)


# 9.5: token by token, one joined product, PyTorch
def output_by_tokens(Q, K, D, S0):
    S, O = S0, []
    for q, k, d in zip(Q, K, D):
        S = S + np.outer(k, d)
        O.append(q @ S)
    return O, S


def output_joined(Q, K, D, S0):
    joined = np.hstack([Q, np.tril(Q @ K.T)]) @ np.vstack([S0, D])
    return joined, np.vstack([np.eye(len(S0)), K]).T @ np.vstack([S0, D])


def output_in_torch(Q, K, D, S0):
    Q, K, D, S0 = map(torch.tensor, (Q, K, D, S0))
    mask = torch.ones(len(Q), len(Q), dtype=torch.bool).triu(1)
    return (Q @ K.T).masked_fill(mask, 0) @ D + Q @ S0, S0.addmm(K.T, D)


def output_named(Q, K, D, S0):
    states = S0 + np.cumsum(K[:, :, None] * D[:, None], axis=0)
    return namedtuple("Chunk", "O S")(np.einsum("tkv,tk->tv", states, Q), states[-1])


# 9.6: the recurrence, W and U, the library, chunks padded to full length
def delta_by_recurrence(Q, K, V, beta, T_c, S0=None):
    S0 = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    return recur(Q, K, beta[:, None] * V, np.ones((len(V), 1)), beta[:, None] * K, S0)


def delta_by_wy(Q, K, V, beta, T_c, S0=None):
    S = torch.zeros(K.shape[1], V.shape[1], dtype=torch.float64) if S0 is None else torch.tensor(S0)
    O = []
    for q, k, v, b in zip(*(torch.tensor(z).split(T_c) for z in (Q, K, V, beta))):
        W, U = wy_at_once(k.numpy(), v.numpy(), b.numpy())
        D = U - W @ S
        O.append(q @ S + (q @ k.mT).tril() @ D)
        S = S + k.mT @ D
    return torch.cat(O), S


def delta_by_the_library(Q, K, V, beta, T_c, S0=None):
    q, k, v, e = (torch.tensor(z)[None, :, None] for z in (Q, K, beta[:, None] * V, beta[:, None] * K))
    S0 = None if S0 is None else torch.tensor(S0)[None, None]
    o, S = chunk_delta(q, k, v, e, scale=1.0, initial_state=S0, output_final_state=True, chunk_size=T_c)
    return o[0, :, 0], S[0, 0]


def delta_padded(Q, K, V, beta, T_c, S0=None):
    T, extra = len(V), -len(V) % T_c
    Q, K, V = (np.vstack([z, np.zeros((extra, z.shape[1]))]).reshape(-1, T_c, z.shape[1]) for z in (Q, K, V))
    beta = np.append(beta, np.zeros(extra)).reshape(-1, T_c, 1)
    inverse = np.linalg.inv(np.eye(T_c) + np.tril(beta * (K @ K.mT), -1)) * beta.mT
    W, U, scores = inverse @ K, inverse @ V, np.tril(Q @ K.mT)
    S, O = np.zeros((K.shape[2], V.shape[2])) if S0 is None else S0, []
    for j in range(len(K)):
        D = U[j] - W[j] @ S
        O.append(Q[j] @ S + scores[j] @ D)
        S = S + K[j].T @ D
    return np.concatenate(O)[:T].tolist(), S


def delta_chunk_by_recursion(Q, K, V, beta, T_c, S0=None):
    """The first chunk, then the function itself on what is left."""
    S = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    if len(V) == 0:
        return np.zeros((0, V.shape[1])), S
    q, k, v, b = Q[:T_c], K[:T_c], V[:T_c], beta[:T_c]
    T = np.linalg.inv(np.eye(len(k)) + np.tril(b[:, None] * (k @ k.T), -1)) * b
    D = T @ v - (T @ k) @ S
    rest, last = delta_chunk_by_recursion(Q[T_c:], K[T_c:], V[T_c:], beta[T_c:], T_c, S + k.T @ D)
    return np.vstack([q @ S + np.tril(q @ k.T) @ D, rest]), last


# 9.7: the recurrence, decays multiplied up, the library, in one chunk
def gated_by_recurrence(Q, K, V, alpha, beta, T_c, S0=None):
    S0 = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    return recur(Q, K, beta[:, None] * V, alpha[:, None], beta[:, None] * K, S0)


def gated_multiplied_up(Q, K, V, alpha, beta, T_c, S0=None):
    S = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    O = np.empty(V.shape, order="F")
    for start in range(0, len(V), T_c):
        j = slice(start, min(start + T_c, len(V)))
        n = j.stop - start
        G = np.ones((n, n))
        for column in range(n):
            for row in range(column + 1, n):
                G[row, column] = G[row - 1, column] * alpha[start + row]
        G = np.tril(G)
        gamma = np.cumprod(alpha[j])
        D = np.zeros((n, V.shape[1]))
        for i in range(n):
            found = gamma[i] * (K[start + i] @ S) + (G[i, :i] * (K[start : start + i] @ K[start + i])) @ D[:i]
            D[i] = beta[start + i] * (V[start + i] - found)
        O[j] = gamma[:, None] * (Q[j] @ S) + (G * (Q[j] @ K[j].T)) @ D
        S = gamma[-1] * S + K[j].T @ (G[-1, :, None] * D)
    return O, S


def gated_by_the_library(Q, K, V, alpha, beta, T_c, S0=None):
    with np.errstate(divide="ignore"):
        g = np.log(alpha)
    q, k, v, e, g = (torch.tensor(z)[None, :, None] for z in (Q, K, beta[:, None] * V, beta[:, None] * K, g))
    S0 = None if S0 is None else torch.tensor(S0)[None, None]
    o, S = chunk_delta(q, k, v, e, g, scale=1.0, initial_state=S0, output_final_state=True, chunk_size=T_c)
    return o[0, :, 0], S[0, 0]


def gated_in_log_space(Q, K, V, alpha, beta, T_c, S0=None):
    """Sums of logarithms segment by segment, and W and U apart."""
    S = torch.zeros(K.shape[1], V.shape[1], dtype=torch.float64) if S0 is None else torch.tensor(S0)
    O = []
    for q, k, v, a, b in zip(*(torch.tensor(z).split(T_c) for z in (Q, K, V, alpha, beta[:, None]))):
        n = len(a)
        steps = a.log()[:, None].expand(n, n).masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(-1), 0)
        left = steps.cumsum(0).exp().tril()
        gamma = a.log().cumsum(0).exp()[:, None]
        A = (b * left * (k @ k.mT)).tril(-1)
        W = solve_triangular(A, b * gamma * k, upper=False, unitriangular=True)
        U = solve_triangular(A, b * v, upper=False, unitriangular=True)
        D = U - W @ S
        O.append(gamma * (q @ S) + (left * (q @ k.mT)) @ D)
        S = gamma[-1] * S + (left[-1][:, None] * k).mT @ D
    return torch.cat(O), S


def gated_by_floored_logs(Q, K, V, alpha, beta, T_c, S0=None):
    """Differences of summed logarithms, whose floor is the end of the range of float64, token by token."""
    S = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    O = np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        q, k, v, a, b = (z[start : start + T_c] for z in (Q, K, V, np.log(np.maximum(alpha, 1e-300)), beta))
        rows = range(len(a))
        left = np.array([[np.exp(np.sum(a[j + 1 : i + 1])) if j <= i else 0.0 for j in rows] for i in rows])
        gamma, D = np.exp(np.cumsum(a))[:, None], np.zeros(v.shape)
        right, A = b[:, None] * (v - gamma * (k @ S)), b[:, None] * left * (k @ k.T)
        for i in rows:
            D[i] = right[i] - A[i, :i] @ D[:i]
        O[start : start + T_c] = gamma * (q @ S) + (left * (q @ k.T)) @ D
        S = gamma[-1] * S + (left[-1][:, None] * k).T @ D
    return O, S


def gated_state_transposed(Q, K, V, alpha, beta, T_c, S0=None):
    """The state as papers store it, values for rows; decays of masked cumulative sums."""
    S, O = (np.zeros((V.shape[1], K.shape[1])) if S0 is None else S0.T), []
    for start in range(0, len(V), T_c):
        q, k, v, a, b = (z[start : start + T_c] for z in (Q, K, V, alpha, beta))
        below = np.tri(len(a), k=-1, dtype=bool)
        left = np.tril(np.exp(np.cumsum(np.where(below, np.log(a)[:, None], 0.0), axis=0)))
        gamma = np.cumprod(a)
        L = torch.tensor(np.tril(b[:, None] * left * (k @ k.T), -1))
        right = torch.tensor(b[:, None] * (v - gamma[:, None] * (k @ S.T)))
        D = solve_triangular(L, right, upper=False, unitriangular=True).numpy()
        O.extend(gamma[:, None] * (q @ S.T) + (left * (q @ k.T)) @ D)
        S = gamma[-1] * S + D.T @ np.diag(left[-1]) @ k
    return O, S.T


# 9.8: the recurrence, pairwise ratios, the library
def gdn2_by_recurrence(Q, K, V, alpha, b, w, S0):
    return recur(Q, K, w * V, alpha, b * K, S0)


def gdn2_by_pairs(Q, K, V, alpha, b, w, S0):
    G = np.cumsum(np.log(alpha), axis=0)
    kept = np.exp(np.minimum(G[:, None] - G[None], 0))  # (C, C, K)
    A = np.tril(np.einsum("ic,jc,ijc->ij", b * K, K, kept), -1)
    D = np.linalg.solve(np.eye(len(V)) + A, w * V - (b * np.exp(G) * K) @ S0)
    scores = np.tril(np.einsum("ic,jc,ijc->ij", Q, K, kept))
    S = np.exp(G[-1])[:, None] * S0 + (np.exp(G[-1] - G) * K).T @ D
    return (np.exp(G) * Q) @ S0 + scores @ D, S


def gdn2_in_torch(Q, K, V, alpha, b, w, S0):
    """The page's division, γ from summed logarithms."""
    Q, K, V, alpha, b, w, S0 = map(torch.tensor, (Q, K, V, alpha, b, w, S0))
    gamma = alpha.log().cumsum(0).exp()
    erase, write, query = b * gamma * K, K / gamma, gamma * Q
    D = solve_triangular((erase @ write.T).tril(-1), w * V - erase @ S0, upper=False, unitriangular=True)
    return query @ S0 + (query @ write.T).tril() @ D, gamma[-1][:, None] * (S0 + write.T @ D)


def gdn2_by_the_library(Q, K, V, alpha, b, w, S0):
    q, k, v, e, g = (torch.tensor(z)[None, :, None] for z in (Q, K, w * V, b * K, np.log(alpha)))
    S0 = torch.tensor(S0)[None, None]
    o, S = chunk_delta(q, k, v, e, g, scale=1.0, initial_state=S0, output_final_state=True)
    return [o[0, :, 0], S[0, 0]]


def gdn2_anchored_in_the_middle(Q, K, V, alpha, b, w, S0):
    """Logarithms of γ, taken from half of the last one; substitution row by row."""
    G = np.cumsum(np.log(alpha), axis=0)
    middle = G[-1] / 2
    up, down = np.exp(G - middle), np.exp(middle - G)
    query, erase, write, S = up * Q, up * b * K, down * K, np.exp(middle)[:, None] * S0
    A, D = erase @ write.T, w * V - erase @ S
    for i in range(len(D)):
        D[i] -= A[i, :i] @ D[:i]
    return query @ S + np.tril(query @ write.T) @ D, np.exp(middle)[:, None] * (S + write.T @ D)


# 9.9: substitution, NumPy's inverse, PyTorch, blocks of growing size
def inverse_by_substitution(A):
    X = np.eye(len(A))
    for i in range(len(A)):
        X[i] -= A[i, :i] @ X[:i]
    return X


def inverse_by_numpy(A):
    return np.linalg.inv(np.eye(len(A)) + A).tolist()


def inverse_in_torch(A):
    eye = torch.eye(len(A), dtype=torch.float64)
    return solve_triangular(torch.tensor(A), eye, upper=False, unitriangular=True)


def inverse_in_growing_blocks(A):
    X, h = np.eye(len(A)), 1
    while h < len(A):
        for i in range(0, len(A), 2 * h):
            up, low = slice(i, i + h), slice(i + h, i + 2 * h)
            X[low, up] = -X[low, low] @ (A[low, up] @ X[up, up])
        h *= 2
    return X


def inverse_by_np_block(A):
    if len(A) == 1:
        return np.ones((1, 1))
    h = len(A) // 2
    top, low = inverse_by_np_block(A[:h, :h]), inverse_by_np_block(A[h:, h:])
    return np.block([[top, A[:h, h:]], [-low @ (A[h:, :h] @ top), low]])


# 9.10: autograd, substitution from the end, the inverse
def backward_by_autograd(A, X, dX):
    A = torch.tensor(A, requires_grad=True)
    B = ((torch.eye(len(A), dtype=torch.float64) + A).detach() @ torch.tensor(X)).requires_grad_()
    solved = torch.linalg.solve(torch.eye(len(A), dtype=torch.float64) + A.tril(-1), B)
    return torch.autograd.grad(solved, (B, A), torch.tensor(dX))


def backward_from_the_end(A, X, dX):
    dB = dX.copy()
    for i in reversed(range(len(A))):
        dB[i] -= A[i + 1 :, i] @ dB[i + 1 :]
    dA = np.zeros(A.shape)
    for t in range(len(A)):
        for s in range(t):
            dA[t, s] = -dB[t] @ X[s]
    return [dB, dA]


def backward_by_inverse(A, X, dX):
    dB = np.linalg.inv(np.eye(len(A)) + A).T @ dX
    return dB.tolist(), np.where(np.tri(len(A), k=-1, dtype=bool), np.einsum("tv,sv->ts", -dB, X), 0.0)


def backward_from_the_right(A, X, dX):
    """dB as a row times the inverse; a mask that multiplies."""
    dB = (dX.T @ np.linalg.inv(np.eye(len(A)) + A)).T
    return dB, -(dB @ X.T) * np.tri(len(A), k=-1)


RIGHT_ANSWERS = {
    "9.1": [factors_in_torch, factors_through_wy, factors_by_column, factors_recursively, factors_in_long_double],
    "9.2": [rows_by_solve, rows_by_products, rows_in_lists, rows_in_torch, rows_right_looking],
    "9.3": [wy_at_once, wy_by_rows, wy_by_inverse, wy_one_solve_split],
    "9.4": [corrected_from_wy, corrected_by_the_recurrence, corrected_from_inverse, corrected_as_a_matrix],
    "9.5": [output_by_tokens, output_joined, output_in_torch, output_named],
    "9.6": [delta_by_recurrence, delta_by_wy, delta_by_the_library, delta_padded, delta_chunk_by_recursion],
    "9.7": [
        gated_by_recurrence,
        gated_multiplied_up,
        gated_by_the_library,
        gated_in_log_space,
        gated_by_floored_logs,
        gated_state_transposed,
    ],
    "9.8": [gdn2_by_recurrence, gdn2_by_pairs, gdn2_in_torch, gdn2_by_the_library, gdn2_anchored_in_the_middle],
    "9.9": [
        inverse_by_substitution,
        inverse_by_numpy,
        inverse_in_torch,
        inverse_in_growing_blocks,
        inverse_by_np_block,
    ],
    "9.10": [backward_by_autograd, backward_from_the_end, backward_by_inverse, backward_from_the_right],
}
