"""Right answers to chapter 11, written differently."""

import itertools
import math

import numpy as np
import torch

from lineage_lib import reference


def _head(*arrays):
    """(…) -> (1, 1, 1, …): one sequence, one token, one head."""
    return [torch.tensor(np.asarray(z, dtype=float))[None, None, None] for z in arrays]


def _in_the_library(S, k, v, alpha, b, w):
    """Gated DeltaNet-2 of the library for one token."""
    with np.errstate(divide="ignore"):
        g = np.log(np.asarray(alpha, dtype=float))
    start = torch.tensor(np.asarray(S, dtype=float))[None, None]
    _, state = reference.naive_recurrent_gdn2(
        *_head(k, k, v, g, b, w), scale=1.0, initial_state=start, output_final_state=True
    )
    return state[0, 0]


# 11.1: the library, entry by entry, the transition as a matrix, extended precision
def kda_in_the_library(S, k, v, alpha, beta):
    return _in_the_library(S, k, v, alpha, np.full_like(k, beta), np.full_like(v, beta))


def kda_entry_by_entry(S, k, v, alpha, beta):
    K, V = S.shape
    new = [[alpha[i] * S[i, j] for j in range(V)] for i in range(K)]
    for j in range(V):
        found = sum(k[i] * new[i][j] for i in range(K))
        for i in range(K):
            new[i][j] += beta * k[i] * (v[j] - found)
    return new


def kda_as_matrices(S, k, v, alpha, beta):
    return (np.eye(len(k)) - beta * np.outer(k, k)) @ np.diag(alpha) @ S + beta * np.outer(k, v)


def kda_in_extended_precision(S, k, v, alpha, beta):
    S, k, v, alpha = (np.asarray(z, dtype=np.longdouble) for z in (S, k, v, alpha))
    faded = np.einsum("k,kv->kv", alpha, S)
    error = v - np.einsum("k,kv->v", k, faded)
    return np.asfortranarray(faded + beta * np.einsum("k,v->kv", k, error))


# 11.2: einsum, torch, the compact form with its parts
def five_by_einsum(S, k, v, alpha, b, w):
    faded = np.einsum("k,kv->kv", alpha, S)
    e, z = np.multiply(b, k), np.multiply(w, v)
    r = np.einsum("kv,k->v", faded, e)
    return [faded, e, r, z, faded + np.einsum("k,v->kv", k, z - r)]


def five_in_torch(S, k, v, alpha, b, w):
    S, k, v, alpha, b, w = (torch.from_numpy(np.array(x)) for x in (S, k, v, alpha, b, w))
    faded = torch.diag(alpha) @ S
    e, z = b * k, w * v
    r = e @ faded
    return faded, e, r, z, torch.addr(faded, k, z - r)


def five_from_the_compact_form(S, k, v, alpha, b, w):
    D, e, z = np.diag(alpha), b * k, w * v
    return D @ S, e, (D @ S).T @ e, z, (np.eye(len(k)) - np.outer(k, e)) @ D @ S + np.outer(k, z)


# 11.3: by columns through the library, with broadcasting, by multi_dot
def stretch_by_running_the_identity(K, alpha, b):
    P = np.eye(K.shape[1])
    for key, fade, gate in zip(K, alpha, b):
        P = _in_the_library(P, key, np.zeros(len(key)), fade, gate, np.zeros(len(key))).numpy()
    return P


def stretch_without_matrices(K, alpha, b):
    P = np.identity(K.shape[1])
    for t in range(len(K)):
        P = alpha[t][:, np.newaxis] * P
        P = P - K[t][:, np.newaxis] * ((b[t] * K[t]) @ P)[np.newaxis, :]
    return P


def stretch_by_multi_dot(K, alpha, b):
    eye = np.eye(K.shape[1])
    tokens = [(eye - np.outer(K[t], b[t] * K[t])) * alpha[t] for t in reversed(range(len(K)))]
    return np.linalg.multi_dot([*tokens, eye]) if len(tokens) > 1 else tokens[0]


# 11.4: a table, lists, whole numbers
def ledger_from_a_table(kinds, K, V):
    pairs = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])[kinds]
    return np.repeat(pairs[:, :1], K, axis=1), np.repeat(pairs[:, 1:], V, axis=1)


def ledger_in_lists(kinds, K, V):
    b = [[1.0 if kind in (1, 3) else 0.0] * K for kind in kinds]
    w = [[1.0 if kind in (1, 2) else 0.0] * V for kind in kinds]
    return b, w


def ledger_in_truth_values(kinds, K, V):
    erase, write = np.isin(kinds, [1, 3]), np.isin(kinds, [1, 2])
    return np.broadcast_to(erase[:, None], (len(kinds), K)), np.broadcast_to(write[:, None], (len(kinds), V))


# 11.5: a dictionary of settings, match
def gates_from_a_dictionary(rule, alpha, beta, K, V):
    adds = {"linear-attention", "mamba-2", "gla"}
    stays = {"linear-attention", "deltanet"}
    decays = np.ones(K) * (1.0 if rule in stays else alpha)
    return decays, np.ones(K) * beta * (rule not in adds), np.ones(V) * (1.0 if rule in adds else beta)


def gates_by_matching(rule, alpha, beta, K, V):
    match rule:
        case "kda":
            return list(alpha), [beta] * K, [beta] * V
        case "gated-deltanet":
            return [alpha] * K, [beta] * K, [beta] * V
        case "deltanet":
            return [1.0] * K, [beta] * K, [beta] * V
        case "gla":
            return alpha, [0.0] * K, [1.0] * V
        case "mamba-2":
            return [alpha] * K, [0] * K, [1] * V
        case _:
            return [1] * K, [0] * K, [1] * V


# 11.6: torch, log1p in two halves, head by head
def log_decay_in_torch(z, a, bias):
    z, a, bias = map(torch.from_numpy, (z, a, bias))
    return -a.exp()[None, :, None] * torch.nn.functional.softplus(z + bias, threshold=40)


def log_decay_in_two_halves(z, a, bias):
    x = z + bias[None]
    soft = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return np.einsum("h,thk->thk", -np.exp(a), soft)


def log_decay_head_by_head(z, a, bias):
    g = np.empty(z.shape)
    for h in range(z.shape[1]):
        g[:, h] = -math.exp(a[h]) * np.logaddexp(z[:, h] + bias[h], 0.0)
    return g


# 11.7: torch, tanh, head by head
def bounded_in_torch(z, a, bias, lower):
    z, a, bias = map(torch.from_numpy, (z, a, bias))
    return lower * torch.sigmoid(a.exp()[:, None] * (z + bias))


def bounded_by_tanh(z, a, bias, lower):
    return lower * (1 + np.tanh(np.exp(a)[None, :, None] * (z + bias) / 2)) / 2


def bounded_head_by_head(z, a, bias, lower):
    g = np.empty(z.shape)
    for h in range(z.shape[1]):
        x = np.exp(a[h]) * (z[:, h] + bias[h])
        g[:, h] = np.where(x >= 0, lower / (1 + np.exp(-x)), lower * np.exp(x) / (1 + np.exp(np.minimum(x, 0))))
    return g


# 11.8: the general solver, also for matrices with the same eigenvalues, the scaling itself, torch
def eigenvalues_of_the_transition(k, alpha, b):
    return np.sort(np.linalg.eigvals((np.eye(len(k)) - np.outer(k, b * k)) @ np.diag(alpha)).real)


def eigenvalues_of_the_other_gate_side(k, alpha, b):
    """Another matrix, with the same eigenvalues."""
    return np.sort(np.linalg.eigvals((np.eye(len(k)) - np.outer(b * k, k)) @ np.diag(alpha)).real)


def eigenvalues_of_the_other_order(k, alpha, b):
    return np.sort_complex(np.linalg.eigvals(np.diag(alpha) @ (np.eye(len(k)) - np.outer(k, b * k)))).real


def eigenvalues_entry_by_entry(k, alpha, b):
    K = len(k)
    M = [[(alpha[i] if i == j else 0.0) for j in range(K)] for i in range(K)]
    for i, j in itertools.product(range(K), repeat=2):
        M[i][j] -= k[i] * k[j] * math.sqrt(b[i] * alpha[i] * b[j] * alpha[j])
    return sorted(np.linalg.eigvalsh(M))


def eigenvalues_in_torch(k, alpha, b):
    k, alpha, b = map(torch.from_numpy, (k, alpha, b))
    u = k * (b * alpha).sqrt()
    return torch.linalg.eigvalsh(torch.diag(alpha) - torch.outer(u, u))


def eigenvalues_by_jacobi(k, alpha, b):
    """Rotates the largest entry off the diagonal away until none is left."""
    u = k * np.sqrt(b * alpha)
    M = np.diag(alpha) - np.outer(u, u)
    for _ in range(20 * len(k) ** 2):
        off = np.abs(np.triu(M, 1))
        i, j = np.unravel_index(off.argmax(), off.shape)
        if off[i, j] < 1e-15:
            break
        turn = 0.5 * np.arctan2(2 * M[i, j], M[j, j] - M[i, i])
        R = np.eye(len(k))
        R[i, i] = R[j, j] = np.cos(turn)
        R[i, j], R[j, i] = np.sin(turn), -np.sin(turn)
        M = R.T @ M @ R
    return np.sort(np.diag(M))


# 11.9: the closed form, recursion over channels
def worst_gate_by_the_closed_form(k):
    def stretch(b):
        share = sum(gate * x * x for gate, x in zip(b, k))
        return math.sqrt(max(share, 0.0)) + math.sqrt(max(4 - 3 * share, 0.0))

    corners = itertools.product((0.0, 1.0), repeat=len(k))
    return list(max(corners, key=stretch)) if len(k) > 1 else [0.0]


def worst_gate_with_the_gate_on_the_left(k):
    """The transpose has the same norm."""
    corners = [np.array(b) for b in itertools.product((0.0, 1.0), repeat=len(k))]
    return max(corners, key=lambda b: np.linalg.norm(np.eye(len(k)) - np.outer(b * k, k), ord=2))


def worst_gate_by_singular_values(k):
    best, norm = np.zeros(len(k)), 1.0
    for bits in range(2 ** len(k)):
        b = np.array([(bits >> i) & 1 for i in range(len(k))], dtype=float)
        largest = np.linalg.svd(np.eye(len(k)) - np.outer(k, b * k), compute_uv=False)[0]
        if largest > norm:
            best, norm = b, largest
    return best


def worst_gate_by_distances(k):
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * len(k), indexing="ij")).reshape(len(k), -1).T
    e = corners * k
    norms = np.linalg.norm(e, axis=1) + np.linalg.norm(2 * k - e, axis=1)
    return corners[norms.argmax()] if len(k) > 1 else np.zeros(1)


# 11.10: another angle, other channels, three fifths, found by a scan
def pair_at_another_angle(K):
    keys, b = np.zeros((2, K)), np.zeros((2, K))
    s, c = np.sin(0.5), np.cos(0.5)
    keys[0, :2], keys[1, :2] = (s, c), (c, s)
    b[0, 0] = b[1, 1] = 1.0
    return keys, b


def pair_in_the_last_channels(K):
    keys, b = torch.zeros(2, K, dtype=torch.float64), torch.zeros(2, K, dtype=torch.float64)
    keys[0, -2:] = torch.tensor([12.0, -5.0]) / 13
    keys[1, -2:] = torch.tensor([-5.0, 12.0]) / 13
    b[0, -1], b[1, -2] = 1.0, 1.0
    return [keys, b]


def pair_with_gates_nearly_open(K):
    """Channels that the key does not use may have any gate, and gates need not be exactly 0 or 1."""
    keys, b = np.zeros((2, K)), np.full((2, K), 0.7)
    keys[:, :2] = [[-(6**-0.5), (5 / 6) ** 0.5], [(5 / 6) ** 0.5, -(6**-0.5)]]
    b[:, :2] = [[1.0, 0.004], [0.004, 1.0]]
    return keys, b


def pair_across_three_channels(K):
    """The first and the last channel, entries of equal sign, the unused gates open."""
    s, c = 0.4, math.sqrt(1 - 0.16)
    keys, b = np.zeros((2, K)), np.ones((2, K))
    keys[:, 0], keys[:, -1] = (s, c), (c, s)
    b[0, -1] = b[1, 0] = 0.0
    return keys, b


def pair_near_the_edge(K):
    keys, b = np.zeros((2, K)), np.zeros((2, K))
    keys[:, :2] = [[0.27, math.sqrt(1 - 0.27**2)], [-math.sqrt(1 - 0.27**2), -0.27]]
    b[:, :2] = np.eye(2)
    return keys.tolist(), b.astype(int)


def pair_by_a_scan(K):
    def transition(k, b):
        return np.eye(2) - np.outer(k, b * k)

    best = None
    for angle in np.linspace(0, np.pi, 60):
        keys = np.array([[np.cos(angle), np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        product = transition(keys[1], np.array([0.0, 1.0])) @ transition(keys[0], np.array([1.0, 0.0]))
        radius = np.abs(np.linalg.eigvals(product)).max()
        best = max(best or (0.0, angle), (radius, angle))
    angle = best[1]
    keys, b = np.zeros((2, K)), np.zeros((2, K))
    keys[:, :2] = [[np.cos(angle), np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    b[:, :2] = np.eye(2)
    return keys, b


def pair_in_one_array(K):
    """One array (2, 2, K), which unpacks into keys and b."""
    return np.array(pair_at_another_angle(K))


def pair_from_a_generator(K):
    return (z for z in pair_at_another_angle(K))


def pair_rounded_a_little_above_one(K):
    keys, b = pair_at_another_angle(K)
    return keys * (1 + 5e-7), b * (1 + 1e-12)


def worst_gate_rounded_a_little_above_one(k):
    return np.array(worst_gate_by_the_closed_form(k)) * (1 + 1e-12)


RIGHT_ANSWERS = {
    "11.1": [kda_in_the_library, kda_entry_by_entry, kda_as_matrices, kda_in_extended_precision],
    "11.2": [five_by_einsum, five_in_torch, five_from_the_compact_form],
    "11.3": [stretch_by_running_the_identity, stretch_without_matrices, stretch_by_multi_dot],
    "11.4": [ledger_from_a_table, ledger_in_lists, ledger_in_truth_values],
    "11.5": [gates_from_a_dictionary, gates_by_matching],
    "11.6": [log_decay_in_torch, log_decay_in_two_halves, log_decay_head_by_head],
    "11.7": [bounded_in_torch, bounded_by_tanh, bounded_head_by_head],
    "11.8": [
        eigenvalues_of_the_transition,
        eigenvalues_of_the_other_gate_side,
        eigenvalues_of_the_other_order,
        eigenvalues_entry_by_entry,
        eigenvalues_in_torch,
        eigenvalues_by_jacobi,
    ],
    "11.9": [
        worst_gate_by_the_closed_form,
        worst_gate_with_the_gate_on_the_left,
        worst_gate_by_singular_values,
        worst_gate_by_distances,
        worst_gate_rounded_a_little_above_one,
    ],
    "11.10": [
        pair_across_three_channels,
        pair_near_the_edge,
        pair_at_another_angle,
        pair_in_the_last_channels,
        pair_with_gates_nearly_open,
        pair_by_a_scan,
        pair_in_one_array,
        pair_from_a_generator,
        pair_rounded_a_little_above_one,
    ],
}
