"""More wrong answers to chapter 09: slips of a line, most of them without a name; some once had one."""

import numpy as np

from lineage_lib.exercises import _ch09_chunks, _ch09_gates, _ch09_inverse, _ch09_wy
from lineage_lib.exercises._ch09_wy import lower, solve
from lineage_lib.matrices import segment_products
from tests.wrong_answers.ch09 import empty, unit
from tests.wrong_answers.ch09_more import by_squaring, delta_with, gated_with, gdn2_with


# 9.1
def factors_of_clipped_norms(K, beta, X):
    return _ch09_wy.factors_oracle(K / np.maximum(np.linalg.norm(K, axis=1, keepdims=True), 1), beta, X)


def factors_that_change_a_key(K, beta, X):
    """Right values; the keys are scaled in place."""
    for k, b in zip(K, beta):
        row = k @ X
        k *= b
        X = X - np.outer(k, row)
    return X


# 9.2
def rows_of_the_upper_triangle(K, beta):
    return solve(np.triu(beta[:, None] * (K @ K.T), 1), beta[:, None] * K)


def rows_with_beta_twice(K, beta):
    return _ch09_wy._rows(K, beta, inner=np.outer(beta, beta))


def rows_multiplied(K, beta):
    return (np.eye(len(K)) + lower(K, beta)) @ (beta[:, None] * K)


# 9.3
def wy_beta_missing_on_k(K, V, beta):
    return _ch09_wy._wy(K, V, beta, on_keys=np.ones_like(beta))


def wy_transposed(K, V, beta):
    return _ch09_wy._wy(K, V, beta, lower(K, beta).T)


def wy_multiplied(K, V, beta):
    L = np.eye(len(K)) + lower(K, beta)
    return L @ (beta[:, None] * K), L @ (beta[:, None] * V)


def wy_second_order(K, V, beta):
    A = lower(K, beta)
    near = np.eye(len(K)) - A + A @ A
    return near @ (beta[:, None] * K), near @ (beta[:, None] * V)


def wy_not_cut_but_for_the_diagonal(K, V, beta):
    A = beta[:, None] * (K @ K.T)
    return _ch09_wy._wy(K, V, beta, A - np.diag(np.diag(A)))


# 9.4
def corrected_without_beta(K, V, beta, S0):
    return _ch09_wy.corrected_oracle(K, V, np.ones_like(beta), S0)


def corrected_start_added(K, V, beta, S0):
    return _ch09_wy.corrected_oracle(K, V, beta, -S0)


def corrected_beta_on_columns(K, V, beta, S0):
    return solve(np.tril(beta * (K @ K.T), -1), beta[:, None] * (V - K @ S0))


def corrected_beta_missing_in_a(K, V, beta, S0):
    return solve(np.tril(K @ K.T, -1), beta[:, None] * (V - K @ S0))


def corrected_of_unit_keys(K, V, beta, S0):
    return _ch09_wy.corrected_oracle(unit(K), V, beta, S0)


def corrected_multiplied(K, V, beta, S0):
    return (np.eye(len(K)) + lower(K, beta)) @ (beta[:, None] * (V - K @ S0))


# 9.5
def output_start_read_at_the_keys(Q, K, D, S0):
    return K @ S0 + np.tril(Q @ K.T) @ D, S0 + K.T @ D


def output_added_to_the_callers_state(Q, K, D, S0):
    O = Q @ S0 + np.tril(Q @ K.T) @ D
    S0 += K.T @ D
    return O, S0


# 9.6
def delta_not_masked(Q, K, V, beta, T_c, S0=None):
    return delta_with(mask=lambda P: P)(Q, K, V, beta, T_c, S0)


def delta_start_in_every_correction(Q, K, V, beta, T_c, S0=None):
    return delta_with(right=lambda b, V, K, found, S0: b * (V - K @ S0))(Q, K, V, beta, T_c, S0)


def delta_old_state_lost(Q, K, V, beta, T_c, S0=None):
    return delta_with(old=np.zeros_like)(Q, K, V, beta, T_c, S0)


def delta_right_side_without_beta(Q, K, V, beta, T_c, S0=None):
    return delta_with(right=lambda b, V, K, found, S0: V - found)(Q, K, V, beta, T_c, S0)


def delta_a_without_beta(Q, K, V, beta, T_c, S0=None):
    return delta_with(A=lambda K, beta: np.tril(K @ K.T, -1))(Q, K, V, beta, T_c, S0)


def delta_without_beta(Q, K, V, beta, T_c, S0=None):
    return _ch09_chunks.delta_oracle(Q, K, V, np.ones_like(beta), T_c, S0)


def delta_outputs_from_the_start(Q, K, V, beta, T_c, S0=None):
    """Every chunk's outputs are made as if it were the first one; the state is right."""
    cuts = range(T_c, len(V), T_c)
    pieces = zip(*(np.split(z, cuts) for z in (Q, K, V, beta)))
    O = np.concatenate([_ch09_chunks.delta_oracle(*piece, T_c, S0)[0] for piece in pieces])
    return O, _ch09_chunks.delta_oracle(Q, K, V, beta, T_c, S0)[1]


# 9.7
def gated_error_before_decay(Q, K, V, alpha, beta, T_c, S0=None):
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for t in range(len(V)):
        S = alpha[t] * S + np.outer(beta[t] * K[t], V[t] - S.T @ K[t])
        O[t] = S.T @ Q[t]
    return O, S


def gated_decay_after_write(Q, K, V, alpha, beta, T_c, S0=None):
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for t in range(len(V)):
        S = alpha[t] * (S + np.outer(beta[t] * K[t], V[t] - S.T @ K[t]))
        O[t] = S.T @ Q[t]
    return O, S


def gated_all_by_the_last_gamma(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_with(write=lambda a: np.full(len(a), np.prod(a)))(Q, K, V, alpha, beta, T_c, S0)


def gated_both_reads_undecayed(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_with(erase=np.ones_like, query=np.ones_like)(Q, K, V, alpha, beta, T_c, S0)


def gated_no_ratios(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_with(ratios=lambda a: np.ones((len(a), len(a))))(Q, K, V, alpha, beta, T_c, S0)


def gated_gamma_of_the_whole_sequence(Q, K, V, alpha, beta, T_c, S0=None):
    whole = np.cumprod(alpha)
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        left, gamma, b = segment_products(alpha[j]), whole[j, None], beta[j, None]
        D = solve(np.tril(b * left * (K[j] @ K[j].T), -1), b * (V[j] - gamma * (K[j] @ S)))
        O[j] = gamma * (Q[j] @ S) + (left * (Q[j] @ K[j].T)) @ D
        S = gamma[-1] * S + (left[-1, :, None] * K[j]).T @ D
    return O, S


def gated_values_divided(Q, K, V, alpha, beta, T_c, S0=None):
    """The plain rule on V / γ, as in the derivation: not a number after a reset."""
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        gamma = np.cumprod(alpha[j])[:, None]
        o, S = _ch09_chunks.delta_oracle(Q[j], K[j], V[j] / gamma, beta[j], T_c, S)
        O[j], S = gamma * o, gamma[-1] * S
    return O, S


def gated_values_divided_with_a_floor(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_values_divided(Q, K, V, np.maximum(alpha, 1e-12), beta, T_c, S0)


def gated_logs_subtracted(Q, K, V, alpha, beta, T_c, S0=None):
    def ratios(a):
        G = np.cumsum(np.log(a))
        return np.tril(np.exp(G[:, None] - G))

    return gated_with(ratios=ratios, write=lambda a: ratios(a)[-1])(Q, K, V, alpha, beta, T_c, S0)


# 9.8
def gdn2_by_squaring(Q, K, V, alpha, b, w, S0):
    """Wrong where keys are nearly equal and little fades: powers of A."""
    g = np.cumprod(alpha, axis=0)
    erase, write, query = b * g * K, K / g, g * Q
    D = by_squaring(np.tril(erase @ write.T, -1), w * V - erase @ S0)
    return query @ S0 + np.tril(query @ write.T) @ D, g[-1, :, None] * (S0 + write.T @ D)


def gdn2_by_powers(Q, K, V, alpha, b, w, S0):
    g = np.cumprod(alpha, axis=0)
    erase, write, query = b * g * K, K / g, g * Q
    A = np.tril(erase @ write.T, -1)
    D = sum(np.linalg.matrix_power(-A, m) for m in range(len(K))) @ (w * V - erase @ S0)
    return query @ S0 + np.tril(query @ write.T) @ D, g[-1, :, None] * (S0 + write.T @ D)


def gdn2_erase_gate_on_the_write_keys(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"erase": g * K, "write": b * K / g})(Q, K, V, alpha, b, w, S0)


def gdn2_erase_gate_on_both_keys(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": b * K / g})(Q, K, V, alpha, b, w, S0)


def gdn2_writes_still_divided(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"end": 1.0})(Q, K, V, alpha, b, w, S0)


def gdn2_keys_not_divided(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": K})(Q, K, V, alpha, b, w, S0)


def gdn2_start_read_without_the_gate(Q, K, V, alpha, b, w, S0):
    g = np.cumprod(alpha, axis=0)
    D = solve(np.tril((b * g * K) @ (K / g).T, -1), w * V - (g * K) @ S0)
    return (g * Q) @ S0 + np.tril((g * Q) @ (K / g).T) @ D, g[-1, :, None] * (S0 + (K / g).T @ D)


def gdn2_with_an_epsilon(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": K / (g + 1e-8)})(Q, K, V, alpha, b, w, S0)


def gdn2_product_in_place(Q, K, V, alpha, b, w, S0):
    """Right values; the caller's alpha becomes γ."""
    result = _ch09_gates.gdn2_oracle(Q, K, V, alpha, b, w, S0)
    np.cumprod(alpha, axis=0, out=alpha)
    return result


# 9.9
def inverse_by_powers(A):
    return sum(np.linalg.matrix_power(-A, m) for m in range(len(A)))


def inverse_quarter_from_above(A):
    """A21 is taken from above the diagonal, where A is 0."""
    n = len(A)
    X = np.eye(n)
    if n > 1:
        h = n // 2
        X[:h, :h], X[h:, h:] = inverse_quarter_from_above(A[:h, :h]), inverse_quarter_from_above(A[h:, h:])
        X[h:, :h] = -X[h:, h:] @ A[:h, h:] @ X[:h, :h]
    return X


# 9.10
def backward_transposed_after_the_mask(A, X, dX):
    dB, dA = _ch09_inverse.backward_oracle(A, X, dX)
    return dB, dA.T


def backward_through_the_upper_triangle_of_a(A, X, dX):
    """triu of A in place of its transpose: zeros."""
    dB = solve(np.triu(A, 1), dX)
    return dB, -np.tril(dB @ X.T, -1)


WRONG_ANSWERS = {
    "9.1": [factors_of_clipped_norms, factors_that_change_a_key],
    "9.2": [rows_of_the_upper_triangle, rows_with_beta_twice, rows_multiplied],
    "9.3": [
        wy_beta_missing_on_k,
        wy_transposed,
        wy_multiplied,
        wy_second_order,
        wy_not_cut_but_for_the_diagonal,
    ],
    "9.4": [
        corrected_without_beta,
        corrected_start_added,
        corrected_beta_on_columns,
        corrected_beta_missing_in_a,
        corrected_of_unit_keys,
        corrected_multiplied,
    ],
    "9.5": [output_start_read_at_the_keys, output_added_to_the_callers_state],
    "9.6": [
        delta_not_masked,
        delta_start_in_every_correction,
        delta_old_state_lost,
        delta_right_side_without_beta,
        delta_a_without_beta,
        delta_without_beta,
        delta_outputs_from_the_start,
    ],
    "9.7": [
        gated_error_before_decay,
        gated_decay_after_write,
        gated_all_by_the_last_gamma,
        gated_both_reads_undecayed,
        gated_no_ratios,
        gated_gamma_of_the_whole_sequence,
        gated_values_divided,
        gated_values_divided_with_a_floor,
        gated_logs_subtracted,
    ],
    "9.8": [
        gdn2_by_squaring,
        gdn2_by_powers,
        gdn2_erase_gate_on_the_write_keys,
        gdn2_erase_gate_on_both_keys,
        gdn2_writes_still_divided,
        gdn2_keys_not_divided,
        gdn2_start_read_without_the_gate,
        gdn2_with_an_epsilon,
        gdn2_product_in_place,
    ],
    "9.9": [inverse_by_powers, inverse_quarter_from_above],
    "9.10": [backward_transposed_after_the_mask, backward_through_the_upper_triangle_of_a],
}
