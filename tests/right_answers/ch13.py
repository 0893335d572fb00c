"""Right answers to chapter 13, written differently."""

import itertools
import math

import numpy as np
import torch


# 13.1: a generator of states, a list of all states, torch
def stop_from_a_list(a, b, precision):
    r = np.dtype(precision).type
    states = [r(0)]
    while len(states) < 2 or states[-1] != states[-2]:
        states.append(r(r(r(a) * states[-1]) + r(b)))
    return len(states) - 2


def stop_in_arrays(a, b, precision):
    h, before = np.zeros(1, precision), None
    a, b = np.array([a], precision), np.array([b], precision)
    for n in itertools.count():
        before, h = h, np.add(np.multiply(a, h), b)
        if before == h:
            return np.int64(n)


def stop_in_torch(a, b, precision):
    dtype = getattr(torch, precision)
    a, b, h = (torch.tensor(x, dtype=dtype) for x in (a, b, 0.0))
    n = 0
    while not torch.equal(torch.add(torch.mul(a, h), b), h):
        h = torch.add(torch.mul(a, h), b)
        n += 1
    return torch.tensor(n)


# 13.2: matrices of truth values, recursion by levels, whole numbers
def ambiguous_by_levels(table, start):
    even, odd = {start}, set()
    for _ in range(2 * len(table)):
        step = {int(table[s, 0]) for s in even} | {int(table[s, 1]) for s in odd}
        odd |= {int(table[s, 0]) for s in odd} | {int(table[s, 1]) for s in even}
        even |= step
    return [s in even and s in odd for s in range(len(table))]


def ambiguous_by_a_graph(table, start):
    n = len(table)
    reach = np.eye(2 * n, dtype=bool)
    for s in range(n):
        for p in range(2):
            reach[p * n + s, p * n + table[s, 0]] = True
            reach[p * n + s, (1 - p) * n + table[s, 1]] = True
    for _ in range(int(np.ceil(np.log2(2 * n))) + 1):
        reach = (reach.astype(int) @ reach.astype(int)) > 0
    return (reach[start, :n] & reach[start, n:]).astype(int)


# 13.3: loops, arithmetic with truth values
def flip_flop_by_a_loop(tokens):
    a, b = [], []
    for x in tokens.tolist():
        a.append(1 if x == -1 else 0)
        b.append(0 if x == -1 else x)
    return a, b


def flip_flop_by_clipping(tokens):
    return np.asarray(tokens == -1), np.maximum(tokens, 0)


# 13.4: signs, matrices, torch
def parity_by_signs(bits, k, v):
    return (1 - 2 * (np.cumsum(bits) % 2))[:, None] * v


def parity_by_matrices(bits, k, v):
    S, reads = np.outer(k, v), []
    for x in bits:
        S = (np.eye(len(k)) - 2 * x * np.outer(k, k)) @ S
        reads.append(k @ S)
    return reads


def parity_in_torch(bits, k, v):
    k, v = torch.from_numpy(k.copy()), torch.from_numpy(v.copy())
    S, out = torch.outer(k, v), torch.zeros(len(bits), len(v), dtype=torch.float64)
    for t, x in enumerate(bits.tolist()):
        S = torch.addr(S, k, k @ S, alpha=-2.0 * x)
        out[t] = k @ S
    return out


# 13.5: the other sign, a list, from the eigenvectors of the swap
def swap_with_the_other_sign(n, i, j):
    k = [0.0] * n
    k[j], k[i] = math.sqrt(0.5), -math.sqrt(0.5)
    return k


def swap_from_the_eigenvectors(n, i, j):
    P = np.eye(n)
    P[[i, j]] = P[[j, i]]
    return np.linalg.eigh(P)[1][:, 0]


# 13.6: cycle by cycle, by the proof of the theorem, backwards
def permutation_by_cycles(p):
    n, seen, keys = len(p), set(), []
    for first in range(n):
        cycle = []
        while first not in seen:
            seen.add(first)
            cycle.append(first)
            first = int(p[first])
        for other in cycle[1:]:
            k = np.zeros(n)
            k[cycle[0]], k[other] = math.sqrt(0.5), -math.sqrt(0.5)
            keys.append(k)
    return np.array(keys).reshape(len(keys), n)


def permutation_by_mirrors(p):
    n, keys = len(p), []
    Q = np.zeros((n, n))
    Q[p, np.arange(n)] = 1
    for x in range(n):
        off = Q[:, x] - np.eye(n)[x]
        if np.linalg.norm(off) > 1e-9:
            k = off / np.linalg.norm(off)
            keys.insert(0, k)
            Q = Q - 2 * np.outer(k, k @ Q)
    return np.array(keys).reshape(-1, n)


# 13.7: singular values, eigenvalues, a Gram matrix
def fewest_by_singular_values(Q):
    return int(np.sum(np.linalg.svd(Q - np.eye(len(Q)), compute_uv=False) > 1e-8))


def fewest_by_eigenvalues(Q):
    return int(np.sum(np.abs(np.linalg.eigvals(Q) - 1) > 1e-7))


def fewest_in_torch(Q):
    return torch.linalg.matrix_rank(torch.eye(len(Q), dtype=torch.float64) - torch.from_numpy(Q), tol=1e-9)


# 13.8: singular values of a root, a search over beta
def distance_with_the_key(R):
    off = np.eye(len(R)) - R
    values, vectors = np.linalg.eigh(off + off.T)
    beta = min(max(values[-1] / 2, 0.0), 2.0)
    return np.linalg.norm(off - beta * np.outer(vectors[:, -1], vectors[:, -1]))


def distance_by_cases(R):
    off = np.eye(len(R)) - R
    top = max(np.linalg.eigvalsh(0.5 * off + 0.5 * off.T))
    square = np.linalg.norm(off) ** 2
    if top >= 2:
        return math.sqrt(max(square - 4 * top + 4, 0.0))
    return math.sqrt(max(square - max(top, 0.0) ** 2, 0.0))


# 13.9: matrices, einsum, column by column
def word_by_matrices(word, keys, S):
    n = len(S)
    letters = []
    for factors in keys:
        P = np.eye(n)
        for k in factors:
            P = (np.eye(n) - 2 * np.outer(k, k)) @ P
        letters.append(P)
    states = np.zeros((len(word), *S.shape))
    for t, g in enumerate(word):
        S = letters[g] @ S
        states[t] = S
    return states


def word_in_torch(word, keys, S):
    keys, S = torch.from_numpy(keys.copy()), torch.from_numpy(S.copy())
    states = []
    for g in word.tolist():
        for j in range(keys.shape[1]):
            S = S - 2 * torch.einsum("k,l,lv->kv", keys[g, j], keys[g, j], S)
        states.append(S)
    return torch.stack(states)


# 13.10: matrices, complex numbers, exact counts
def turning_by_matrices(x, m):
    theta, h = 2 * np.pi / m, np.array([1.0, 0.0])
    states, counts = [], []
    for step in x:
        c, s = np.cos(step * theta), np.sin(step * theta)
        h = np.array([[c, -s], [s, c]]) @ h
        states.append(h)
        hours = [np.array([np.cos(theta * k), np.sin(theta * k)]) @ h for k in range(m)]
        counts.append(int(np.argmax(hours)))
    return states, counts


def turning_in_the_complex_plane(x, m):
    z = np.cumprod(np.exp(2j * np.pi * np.asarray(x) / m))
    return np.column_stack([z.real, z.imag]), np.rint(np.angle(z) * m / (2 * np.pi)).astype(int) % m


RIGHT_ANSWERS = {
    "13.1": [stop_from_a_list, stop_in_arrays, stop_in_torch],
    "13.2": [ambiguous_by_levels, ambiguous_by_a_graph],
    "13.3": [flip_flop_by_a_loop, flip_flop_by_clipping],
    "13.4": [parity_by_signs, parity_by_matrices, parity_in_torch],
    "13.5": [swap_with_the_other_sign, swap_from_the_eigenvectors],
    "13.6": [permutation_by_cycles, permutation_by_mirrors],
    "13.7": [fewest_by_singular_values, fewest_by_eigenvalues, fewest_in_torch],
    "13.8": [distance_with_the_key, distance_by_cases],
    "13.9": [word_by_matrices, word_in_torch],
    "13.10": [turning_by_matrices, turning_in_the_complex_plane],
}
