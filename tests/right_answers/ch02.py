"""Right answers to chapter 02, written differently."""

import numpy as np
import torch

from lineage_lib import matrices

# --- 2.1 segment_products ------------------------------------------------------------------------


def segments_by_slices(a):
    T = len(a)
    return [[float(np.prod(a[s + 1 : t + 1])) if s <= t else 0 for s in range(T)] for t in range(T)]


def segments_by_masked_logs(a):
    steps = np.where(np.tri(len(a), k=-1, dtype=bool), np.log(a)[:, None], 0.0)
    return np.where(np.tri(len(a), dtype=bool), np.exp(np.cumsum(steps, axis=0)), 0.0)


def segments_by_masked_cumprod(a):
    steps = torch.where(torch.ones(len(a), len(a)).tril(-1).bool(), torch.from_numpy(a)[:, None], 1.0)
    return torch.cumprod(steps, dim=0).tril()


def segments_from_the_right(a):
    """Column by column from the last one, in extended precision."""
    L = np.zeros((len(a), len(a)), np.longdouble, order="F")
    for s in reversed(range(len(a))):
        L[s, s] = 1
        L[s + 1 :, s] = np.cumprod(a[s + 1 :].astype(np.longdouble))
    return L


def segments_by_inversion(a):
    """L is the inverse of the matrix with ones on the diagonal and -a below it."""
    return np.tril(np.linalg.inv(np.eye(len(a)) - np.diag(a[1:], -1)))


# --- 2.2 scalar_matrix ---------------------------------------------------------------------------


def scalar_by_impulses(a, b, c):
    M = np.zeros((len(a), len(a)))
    for s in range(len(a)):
        h = 0.0
        for t in range(len(a)):
            h = a[t] * h + b[t] * (t == s)
            M[t, s] = c[t] * h
    return M


def scalar_by_diagonals(a, b, c):
    return np.diag(c) @ segments_by_slices(a) @ np.diag(b)


def scalar_by_rows(a, b, c):
    rows, row = [], np.zeros(len(a))
    for t in range(len(a)):
        row = np.where(np.arange(len(a)) == t, b[t], row * a[t])
        rows.append(list(c[t] * row))
    return rows


# --- 2.3 diagonal_matrix -------------------------------------------------------------------------


def diagonal_by_einsum(A, B, C):
    L = np.stack([matrices.segment_products(a) for a in A.T], axis=-1)
    return np.einsum("tn,tsn,sn->ts", C, L, B)


def diagonal_by_diag_matrices(A, B, C):
    T, N = B.shape
    M = torch.zeros(T, T, dtype=torch.float64)
    for s in range(T):
        h = torch.zeros(N, dtype=torch.float64)
        for t in range(s, T):
            h = torch.diag(torch.from_numpy(A[t])) @ h + (t == s) * torch.from_numpy(B[t])
            M[t, s] = torch.from_numpy(C[t]) @ h
    return M


def diagonal_by_four_loops(A, B, C):
    T, N = B.shape
    M = np.zeros((T, T), order="F")
    for t in range(T):
        for s in range(t + 1):
            for n in range(N):
                term = C[t, n] * B[s, n]
                for j in range(s + 1, t + 1):
                    term *= A[j, n]
                M[t, s] += term
    return M


# --- 2.4 cut_factors -----------------------------------------------------------------------------


def factors_by_definition(A, B, C, k):
    def product(last, first):
        return np.linalg.multi_dot([np.eye(B.shape[1]), np.eye(B.shape[1]), *A[first : last + 1][::-1]])

    reading = [C[t] @ product(t, k + 1) for t in range(k, len(B))]
    writing = [product(k, s + 1) @ B[s] for s in range(k + 1)]
    return np.array(reading), np.array(writing).T


def factors_by_impulses(A, B, C, k):
    """Put 1 into each input and keep the state at k; put each unit state at k and keep the outputs."""

    def run(h, first, last, written=None):
        states = []
        for t in range(first, last + 1):
            h = A[t] @ h + (B[t] if t == written else 0.0)
            states.append(h)
        return h, states

    zero, unit = np.zeros(B.shape[1]), np.eye(B.shape[1])
    writing = np.stack([run(zero, 0, k, written=s)[0] for s in range(k + 1)], axis=1)
    states = np.array([[h, *run(h, k + 1, len(B) - 1)[1]] for h in unit])  # [n, i, m]: what unit n became
    return np.einsum("im,nim->in", C[k:], states).tolist(), np.asfortranarray(writing)


def factors_from_the_end(A, B, C, k):
    """The reading factor from the last output backwards, the writing factor from input k backwards."""
    A, B, C = map(torch.from_numpy, (A, B, C))
    reading = C[len(C) - 1 :]
    for t in range(len(B) - 1, k, -1):
        reading = torch.cat([C[t - 1 : t], reading @ A[t]])
    columns, through = [], torch.eye(B.shape[1], dtype=B.dtype)
    for s in range(k, -1, -1):
        columns.insert(0, through @ B[s])
        through = through @ A[s]
    return reading, torch.stack(columns, dim=1)


# --- 2.5 cut_ranks -------------------------------------------------------------------------------


def ranks_by_numpy(M, rtol):
    return [np.linalg.matrix_rank(M[k:, : k + 1], rtol=rtol) for k in range(len(M))]


def ranks_by_torch(M, rtol):
    M = torch.from_numpy(M)
    return torch.stack([torch.linalg.matrix_rank(M[k:, : k + 1], atol=0.0, rtol=rtol) for k in range(len(M))])


def ranks_by_ratios(M, rtol):
    ranks = np.empty(len(M))
    for k in range(len(M)):
        s = np.linalg.svd(M[k:, : k + 1].T)[1]
        ranks[k] = np.count_nonzero(s / s.max() > rtol) if s.max() > 0 else 0
    return ranks


# --- 2.6 semiseparable_matvec --------------------------------------------------------------------


def matvec_number_by_number(A, B, C, x):
    T, N = B.shape
    y = [0.0] * T
    for n in range(N):
        h = 0.0
        for t in range(T):
            h = float(A[t, n]) * h + float(B[t, n]) * float(x[t])
            y[t] += float(C[t, n]) * h
    return y


def matvec_all_states(A, B, C, x):
    H = (B * x[:, None]).astype(np.longdouble)
    for t in range(1, len(x)):
        H[t] += A[t] * H[t - 1]
    return np.einsum("tn,tn->t", C, H)


def matvec_by_doubling(A, B, C, x):
    """A parallel scan: after round i the pair at t covers the last 2^i tokens."""
    decay, H, reach = A.copy(), B * x[:, None], 1
    while reach < len(x):
        H[reach:] = H[reach:] + decay[reach:] * H[:-reach]
        decay[reach:] = decay[reach:] * decay[:-reach]
        reach *= 2
    return torch.from_numpy((C * H).sum(axis=1))


def matvec_row_by_row(A, B, C, x):
    """One row of the matrix at a time: more work, little memory."""
    y, row = np.zeros(len(x)), np.zeros_like(B)
    for t in range(len(x)):
        row[:t] *= A[t]
        row[t] = B[t]
        y[t] = x[: t + 1] @ (row[: t + 1] @ C[t])
    return y


# --- 2.7 parallel --------------------------------------------------------------------------------


def parallel_second_first(A1, B1, C1, A2, B2, C2):
    n1, n2 = B1.shape[1], B2.shape[1]
    A = [np.block([[q, np.zeros((n2, n1))], [np.zeros((n1, n2)), p]]) for p, q in zip(A1, A2)]
    return np.array(A), np.hstack([B2, B1]), np.hstack([C2, C1])


def parallel_by_torch(A1, B1, C1, A2, B2, C2):
    A = torch.stack([torch.block_diag(torch.from_numpy(p), torch.from_numpy(q)) for p, q in zip(A1, A2)])
    return A, torch.from_numpy(np.hstack([B1, B2])), torch.from_numpy(np.hstack([C1, C2]))


def parallel_interleaved(A1, B1, C1, A2, B2, C2):
    """The state's entries in another order, as nested lists."""
    A, B, C = parallel_second_first(A1, B1, C1, A2, B2, C2)
    order = np.argsort([i % 3 for i in range(B.shape[1])], kind="stable")
    return [A[:, order][:, :, order].tolist(), B[:, order].tolist(), C[:, order].tolist()]


# --- 2.8 series ----------------------------------------------------------------------------------


def series_step_by_step(A1, B1, C1, A2, B2, C2):
    T, n1, n2 = len(A1), B1.shape[1], B2.shape[1]
    A, B, C = np.zeros((T, n1 + n2, n1 + n2)), np.zeros((T, n1 + n2)), np.zeros((T, n1 + n2))
    for t in range(T):
        A[t] = np.block([[A1[t], np.zeros((n1, n2))], [np.outer(B2[t], C1[t] @ A1[t]), A2[t]]])
        B[t] = np.concatenate([B1[t], B2[t] * (C1[t] @ B1[t])])
        C[t, n1:] = C2[t]
    return A, B, C


def series_second_on_top(A1, B1, C1, A2, B2, C2):
    T, n1 = len(A1), B1.shape[1]
    coupling = torch.einsum("tm,tn,tnk->tmk", *map(torch.from_numpy, (B2, C1, A1)))
    lower = torch.cat([torch.zeros(T, n1, B2.shape[1], dtype=torch.float64), torch.from_numpy(A1)], dim=2)
    A = torch.cat([torch.cat([torch.from_numpy(A2), coupling], dim=2), lower], dim=1)
    B = np.hstack([B2 * np.einsum("tn,tn->t", C1, B1)[:, None], B1])
    return A, B, np.hstack([C2, np.zeros_like(C1)])


def series_from_the_product(A1, B1, C1, A2, B2, C2):
    """Multiply the two matrices and recover a system from the product."""
    M = matrices.ssm_matrix(A2, B2, C2) @ matrices.ssm_matrix(A1, B1, C1)
    return realize_reading_basis(M, B1.shape[1] + B2.shape[1])


# --- 2.9 realize ---------------------------------------------------------------------------------


def _corner(shape, value):
    out = np.zeros(shape)
    out[tuple(slice(n) for n in value.shape)] = value
    return out


def realize_reading_basis(M, N):
    """Orthonormal columns instead of rows: the state in the coordinates of the future."""
    T = len(M)
    A, B, C = [], [], []
    old = None
    for k in range(T):
        U = np.linalg.svd(M[k:, : k + 1], full_matrices=False)[0][:, :N]
        A.append(_corner((N, N), U.T @ old[1:] if k else np.zeros((0, 0))))
        B.append(_corner(N, U.T @ M[k:, k]))
        C.append(_corner(N, U[0]))
        old = U
    return A, B, C


def realize_from_rows(M, N):
    """The basis at a cut is a choice of rows of M; rows that are still in the future stay chosen."""
    T = len(M)
    A, B, C = np.zeros((T, N, N)), np.zeros((T, N)), np.zeros((T, N))
    chosen, floor = [], 1e-9 * np.abs(M).max()
    for k in range(T):
        old, chosen = chosen, [t for t in chosen if t >= k]
        rest = M[k:, : k + 1]
        while len(chosen) < N:
            Q = np.linalg.qr(M[chosen, : k + 1].T)[0]
            left = np.linalg.norm(rest - rest @ Q @ Q.T, axis=1)
            if left.max() <= floor:
                break
            chosen.append(k + int(left.argmax()))
        R = M[chosen, : k + 1]
        if k and old and chosen:
            A[k, : len(chosen), : len(old)] = np.linalg.lstsq(M[old, :k].T, R[:, :k].T, rcond=None)[0].T
        B[k, : len(chosen)] = R[:, k]
        if chosen:
            C[k, : len(chosen)] = np.linalg.lstsq(R.T, M[k, : k + 1], rcond=None)[0]
    return A, B, C


def realize_by_pseudo_inverse(M, N):
    """A basis that is not orthonormal, and its pseudo-inverse."""
    T = len(M)
    A, B, C = torch.zeros(T, N, N, dtype=torch.float64), torch.zeros(T, N), torch.zeros(T, N)
    B, C, old = B.double(), C.double(), None
    for k in range(T):
        block = torch.from_numpy(M[k:, : k + 1])
        U = torch.linalg.svd(block, full_matrices=False)[0]
        R = 2 * U[:, :N].T @ block  # scaled by the singular values
        back = torch.linalg.pinv(R, rtol=1e-10)
        if k:
            A[k, : len(R), : old.shape[1]] = R[:, :k] @ old
        B[k, : len(R)] = R[:, k]
        C[k, : len(R)] = block[0] @ back
        old = back
    return A, B, C


def realize_with_an_undefined_start(M, N):
    """Nothing comes before token 0, so its transition may be anything, as np.empty leaves it."""
    A, B, C = realize_reading_basis(M, N)
    return [np.full((N, N), np.nan), *A[1:]], B, C


# --- 2.10 taylor_attention -----------------------------------------------------------------------


def taylor_by_loops(Q, K):
    D = Q.shape[1]
    A, B, C = [], [], []
    for q, k in zip(Q.tolist(), K.tolist()):
        pairs = [(i, j) for i in range(D) for j in range(D)]
        B.append([1.0, *k, *(k[i] * k[j] / 2 for i, j in pairs)])
        C.append([1.0, *q, *(q[i] * q[j] for i, j in pairs)])
        A.append(np.eye(len(C[0])).tolist())
    return A, B, C


def taylor_with_each_pair_once(Q, K):
    """q_i q_j is q_j q_i: 1 + D + D (D + 1) / 2 numbers are enough."""
    i, j = np.triu_indices(Q.shape[1])

    def expand(X):
        return np.hstack([np.ones((len(X), 1)), X, X[:, i] * X[:, j] * np.where(i == j, np.sqrt(0.5), 1.0)])

    B, C = expand(K), expand(Q)
    return np.broadcast_to(np.eye(B.shape[1]), (len(B), B.shape[1], B.shape[1])), B, C


def taylor_by_completing_the_square(Q, K):
    """1 + z + z²/2 = ((1 + z)² + 1) / 2, in powers of the vector (1, k)."""
    ones = torch.ones(len(Q), 1, dtype=torch.float64)
    q, k = (torch.cat([ones, torch.from_numpy(X)], dim=1) for X in (Q, K))
    i, j = np.triu_indices(q.shape[1])
    twice = torch.from_numpy(np.where(i == j, 1.0, 2.0))
    C, B = q[:, i] * q[:, j] * twice / 2, k[:, i] * k[:, j]
    C[:, 0] += 0.5  # feature 0 is 1 · 1
    return torch.eye(B.shape[1], dtype=torch.float64).repeat(len(B), 1, 1), B, C


def taylor_from_the_matrix(Q, K):
    z = Q @ K.T
    return realize_reading_basis(np.tril(1 + z + z**2 / 2), 1 + Q.shape[1] + Q.shape[1] ** 2)


RIGHT_ANSWERS = {
    "2.1": [
        segments_by_slices,
        segments_by_masked_logs,
        segments_by_masked_cumprod,
        segments_from_the_right,
        segments_by_inversion,
    ],
    "2.2": [scalar_by_impulses, scalar_by_diagonals, scalar_by_rows],
    "2.3": [diagonal_by_einsum, diagonal_by_diag_matrices, diagonal_by_four_loops],
    "2.4": [factors_by_definition, factors_by_impulses, factors_from_the_end],
    "2.5": [ranks_by_numpy, ranks_by_torch, ranks_by_ratios],
    "2.6": [matvec_number_by_number, matvec_all_states, matvec_by_doubling, matvec_row_by_row],
    "2.7": [parallel_second_first, parallel_by_torch, parallel_interleaved],
    "2.8": [series_step_by_step, series_second_on_top, series_from_the_product],
    "2.9": [
        realize_reading_basis,
        realize_from_rows,
        realize_by_pseudo_inverse,
        realize_with_an_undefined_start,
    ],
    "2.10": [
        taylor_by_loops,
        taylor_with_each_pair_once,
        taylor_by_completing_the_square,
        taylor_from_the_matrix,
    ],
}
