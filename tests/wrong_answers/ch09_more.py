"""More wrong answers to chapter 09: floors and epsilons, powers of A, slips of a line."""

import numpy as np

from lineage_lib.exercises import _ch09_chunks, _ch09_gates, _ch09_inverse, _ch09_wy
from lineage_lib.exercises._ch09_wy import lower, solve
from lineage_lib.matrices import segment_products
from tests.wrong_answers.ch09 import empty


def by_squaring(A, B):
    """(I − A)(I + A²)(I + A⁴) … B in float64: wrong where keys are nearly equal."""
    X, power, m = np.eye(len(A)) - A, A @ A, 2
    while m < len(A):
        X, power, m = X @ (np.eye(len(A)) + power), power @ power, 2 * m
    return X @ B


# 9.1
def factors_beta_at_least_zero(K, beta, X):
    return _ch09_wy.factors_oracle(K, np.abs(beta), X)


def factors_of_clipped_beta(K, beta, X):
    return _ch09_wy.factors_oracle(K, np.clip(beta, 0, 2), X)


# 9.2
def rows_by_squaring_in_double_precision(K, beta):
    return by_squaring(lower(K, beta), beta[:, None] * K)


def rows_of_absolute_beta(K, beta):
    return _ch09_wy.rows_oracle(K, np.abs(beta))


def rows_from_the_previous_one(K, beta):
    """Only the row just before is subtracted."""
    W = beta[:, None] * K
    for i in range(1, len(K)):
        W[i] -= beta[i] * (K[i] @ K[i - 1]) * W[i - 1]
    return W


def rows_from_the_end(K, beta):
    return _ch09_wy.rows_oracle(K[::-1], beta[::-1])[::-1]


# 9.3
def wy_by_squaring(K, V, beta):
    A = lower(K, beta)
    return by_squaring(A, beta[:, None] * K), by_squaring(A, beta[:, None] * V)


def wy_of_clipped_beta(K, V, beta):
    return _ch09_wy.wy_oracle(K, V, np.clip(beta, 0, 2))


# 9.4
def corrected_by_squaring(K, V, beta, S0):
    return by_squaring(lower(K, beta), beta[:, None] * (V - K @ S0))


def corrected_of_absolute_beta(K, V, beta, S0):
    return _ch09_wy.corrected_oracle(K, V, np.abs(beta), S0)


def corrected_values_not_solved(K, V, beta, S0):
    return beta[:, None] * V - _ch09_wy.wy_oracle(K, V, beta)[0] @ S0


def corrected_read_at_plain_keys(K, V, beta, S0):
    return _ch09_wy.wy_oracle(K, V, beta)[1] - K @ S0


# 9.5
def output_state_of_the_queries(Q, K, D, S0):
    O, _ = _ch09_chunks.output_oracle(Q, K, D, S0)
    return O, S0 + Q.T @ D


def output_corrected_again(Q, K, D, S0):
    """D is corrected by S0 already."""
    return _ch09_chunks.output_oracle(Q, K, D - K @ S0, S0)


# 9.6
def delta_with(**slip):
    return _ch09_chunks._delta_with(**slip)


def delta_by_squaring(Q, K, V, beta, T_c, S0=None):
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        D = by_squaring(lower(K[j], beta[j]), beta[j, None] * (V[j] - K[j] @ S))
        O[j], S = Q[j] @ S + np.tril(Q[j] @ K[j].T) @ D, S + K[j].T @ D
    return O, S


def delta_of_i_minus_a(Q, K, V, beta, T_c, S0=None):
    return delta_with(A=lambda K, beta: -lower(K, beta))(Q, K, V, beta, T_c, S0)


def delta_beta_on_columns(Q, K, V, beta, T_c, S0=None):
    return delta_with(A=lambda K, beta: np.tril(beta * (K @ K.T), -1))(Q, K, V, beta, T_c, S0)


def delta_not_corrected_by_the_state(Q, K, V, beta, T_c, S0=None):
    return delta_with(right=lambda b, V, K, found, S0: b * V)(Q, K, V, beta, T_c, S0)


def delta_at_least_one_whole_chunk(Q, K, V, beta, T_c, S0=None):
    """The short last chunk is dropped, unless it is the only one."""
    return _ch09_chunks._delta(Q, K, V, beta, T_c, S0, upto=max(1, len(V) // T_c) * T_c)


def delta_identity_of_full_size(Q, K, V, beta, T_c, S0=None):
    """The last chunk is shorter than the identity: an exception, or a broadcast."""
    eye = np.eye(T_c)
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        D = np.linalg.solve(eye + lower(K[j], beta[j]), beta[j, None] * (V[j] - K[j] @ S))
        O[j], S = Q[j] @ S + np.tril(Q[j] @ K[j].T) @ D, S + K[j].T @ D
    return O, S


def delta_scaled(Q, K, V, beta, T_c, S0=None):
    return _ch09_chunks.delta_oracle(Q * K.shape[1] ** -0.5, K, V, beta, T_c, S0)


# 9.7
def gated_with(**slip):
    return _ch09_gates._gated_with(**slip)


def gated_with_a_tiny_floor(Q, K, V, alpha, beta, T_c, S0=None):
    """1e-30 of a giant is a giant."""
    return _ch09_gates.gated_oracle(Q, K, V, np.maximum(alpha, 1e-30), beta, T_c, S0)


def gated_with_a_tiny_epsilon(Q, K, V, alpha, beta, T_c, S0=None):
    return _ch09_gates.gated_oracle(Q, K, V, alpha + 1e-30, beta, T_c, S0)


def gated_by_logs_with_an_epsilon(Q, K, V, alpha, beta, T_c, S0=None):
    def ratios(a):
        G = np.cumsum(np.log(a + 1e-30))
        return np.tril(np.exp(np.minimum(G[:, None] - G, 0)))

    return gated_with(ratios=ratios, write=lambda a: ratios(a)[-1])(Q, K, V, alpha, beta, T_c, S0)


def gated_by_division_without_nan(Q, K, V, alpha, beta, T_c, S0=None):
    def ratios(a):
        gamma = np.cumprod(a)
        return np.nan_to_num(np.tril(gamma[:, None] / gamma))

    return gated_with(ratios=ratios, write=lambda a: ratios(a)[-1])(Q, K, V, alpha, beta, T_c, S0)


def gated_by_division_where_not_zero(Q, K, V, alpha, beta, T_c, S0=None):
    """Right between resets, but the tokens after a reset no longer hear one another."""

    def ratios(a):
        gamma = np.cumprod(a)
        left = np.tril(np.where(gamma > 0, gamma[:, None] / np.where(gamma > 0, gamma, 1), 0))
        np.fill_diagonal(left, 1)
        return left

    return gated_with(ratios=ratios, write=lambda a: ratios(a)[-1])(Q, K, V, alpha, beta, T_c, S0)


def gated_ratio_inverted(Q, K, V, alpha, beta, T_c, S0=None):
    def ratios(a):
        gamma = np.cumprod(a)
        return gamma[None, :] / gamma[:, None]

    return gated_with(ratios=ratios)(Q, K, V, alpha, beta, T_c, S0)


def gated_state_by_the_last_decay(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_with(keep=lambda a: a[-1])(Q, K, V, alpha, beta, T_c, S0)


def gated_writes_by_gamma(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_with(write=np.cumprod)(Q, K, V, alpha, beta, T_c, S0)


def gated_values_decayed_too(Q, K, V, alpha, beta, T_c, S0=None):
    """γ multiplies the whole difference, V − K S."""
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        left, gamma = segment_products(alpha[j]), np.cumprod(alpha[j])[:, None]
        D = solve(np.tril(beta[j, None] * left * (K[j] @ K[j].T), -1), beta[j, None] * gamma * (V[j] - K[j] @ S))
        O[j] = gamma * (Q[j] @ S) + (left * (Q[j] @ K[j].T)) @ D
        S = gamma[-1] * S + (left[-1, :, None] * K[j]).T @ D
    return O, S


def gated_by_squaring(Q, K, V, alpha, beta, T_c, S0=None):
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        left, gamma = segment_products(alpha[j]), np.cumprod(alpha[j])[:, None]
        A = np.tril(beta[j, None] * left * (K[j] @ K[j].T), -1)
        D = by_squaring(A, beta[j, None] * (V[j] - gamma * (K[j] @ S)))
        O[j] = gamma * (Q[j] @ S) + (left * (Q[j] @ K[j].T)) @ D
        S = gamma[-1] * S + (left[-1, :, None] * K[j]).T @ D
    return O, S


# 9.8
def gdn2_with(change):
    return _ch09_gates._gdn2_slip(change)


def gdn2_division_with_a_floor(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": K / g.clip(1e-20)})(Q, K, V, alpha, b, w, S0)


def gdn2_division_with_a_floor_at_the_last_token(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": K / g.clip(1e-51)})(Q, K, V, alpha, b, w, S0)


def gdn2_division_with_a_tiny_epsilon(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"write": K / (g + 1e-30)})(Q, K, V, alpha, b, w, S0)


def gdn2_gamma_of_clamped_logs(Q, K, V, alpha, b, w, S0):
    g = np.exp(np.maximum(np.cumsum(np.log(alpha), axis=0), -100.0))
    change = {"erase": b * g * K, "write": K / g, "query": g * Q, "keep": g[-1, :, None], "end": g[-1, :, None]}
    return gdn2_with(lambda *_: change)(Q, K, V, alpha, b, w, S0)


def gdn2_decays_inverted(Q, K, V, alpha, b, w, S0):
    def change(g, Q, K, V, alpha, b, w):
        return {"erase": b * K / g, "write": K * g, "query": Q / g, "end": 1 / g[-1, :, None]}

    return gdn2_with(change)(Q, K, V, alpha, b, w, S0)


def gdn2_erase_before_decay(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"erase": b * g / alpha * K})(Q, K, V, alpha, b, w, S0)


def gdn2_state_undecayed(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"keep": 1.0})(Q, K, V, alpha, b, w, S0)


def gdn2_along_the_channels(Q, K, V, alpha, b, w, S0):
    """The cumulative product runs along the wrong axis."""
    g = np.cumprod(alpha, axis=1)
    change = {"erase": b * g * K, "write": K / g, "query": g * Q, "keep": g[-1, :, None], "end": g[-1, :, None]}
    return gdn2_with(lambda *_: change)(Q, K, V, alpha, b, w, S0)


def gdn2_solved(Q, K, V, alpha, b, w, S0, A, right):
    g = np.cumprod(alpha, axis=0)
    erase, write, query = b * g * K, K / g, g * Q
    D = solve(A(erase @ write.T), right(w * V, erase, S0))
    return query @ S0 + np.tril(query @ write.T) @ D, g[-1, :, None] * (S0 + write.T @ D)


def gdn2_of_i_minus_a(Q, K, V, alpha, b, w, S0):
    return gdn2_solved(Q, K, V, alpha, b, w, S0, lambda M: -np.tril(M, -1), lambda X, E, S: X - E @ S)


def gdn2_diagonal_in_a(Q, K, V, alpha, b, w, S0):
    return gdn2_solved(Q, K, V, alpha, b, w, S0, np.tril, lambda X, E, S: X - E @ S)


def gdn2_start_not_erased(Q, K, V, alpha, b, w, S0):
    return gdn2_solved(Q, K, V, alpha, b, w, S0, lambda M: np.tril(M, -1), lambda X, E, S: X)


def gdn2_start_read_undecayed(Q, K, V, alpha, b, w, S0):
    return gdn2_solved(Q, K, V, alpha, b, w, S0, lambda M: np.tril(M, -1), lambda X, E, S: X - (b * K) @ S)


def gdn2_not_masked(Q, K, V, alpha, b, w, S0):
    return gdn2_with(lambda g, Q, K, V, alpha, b, w: {"mask": lambda P: P})(Q, K, V, alpha, b, w, S0)


# 9.9
def inverse_by_squaring(A):
    return by_squaring(A, np.eye(len(A)))


# 9.10
def backward_by_squaring(A, X, dX):
    dB = by_squaring(A, np.eye(len(A))).T @ dX
    return dB, -np.tril(dB @ X.T, -1)


def backward_upper(A, X, dX):
    dB, _ = _ch09_inverse.backward_oracle(A, X, dX)
    return dB, -np.triu(dB @ X.T, 1)


def backward_where_a_is_not_zero(A, X, dX):
    """Where A is 0 below the diagonal it could still change."""
    dB, dA = _ch09_inverse.backward_oracle(A, X, dX)
    return dB, np.where(A != 0, dA, 0)


WRONG_ANSWERS = {
    "9.1": [factors_beta_at_least_zero, factors_of_clipped_beta],
    "9.2": [
        rows_by_squaring_in_double_precision,
        rows_of_absolute_beta,
        rows_from_the_previous_one,
        rows_from_the_end,
    ],
    "9.3": [wy_by_squaring, wy_of_clipped_beta],
    "9.4": [
        corrected_by_squaring,
        corrected_of_absolute_beta,
        corrected_values_not_solved,
        corrected_read_at_plain_keys,
    ],
    "9.5": [output_state_of_the_queries, output_corrected_again],
    "9.6": [
        delta_by_squaring,
        delta_of_i_minus_a,
        delta_beta_on_columns,
        delta_not_corrected_by_the_state,
        delta_at_least_one_whole_chunk,
        delta_identity_of_full_size,
        delta_scaled,
    ],
    "9.7": [
        gated_with_a_tiny_floor,
        gated_with_a_tiny_epsilon,
        gated_by_logs_with_an_epsilon,
        gated_by_division_without_nan,
        gated_by_division_where_not_zero,
        gated_ratio_inverted,
        gated_state_by_the_last_decay,
        gated_writes_by_gamma,
        gated_values_decayed_too,
        gated_by_squaring,
    ],
    "9.8": [
        gdn2_division_with_a_floor,
        gdn2_division_with_a_floor_at_the_last_token,
        gdn2_division_with_a_tiny_epsilon,
        gdn2_gamma_of_clamped_logs,
        gdn2_decays_inverted,
        gdn2_erase_before_decay,
        gdn2_state_undecayed,
        gdn2_along_the_channels,
        gdn2_of_i_minus_a,
        gdn2_diagonal_in_a,
        gdn2_start_not_erased,
        gdn2_start_read_undecayed,
        gdn2_not_masked,
    ],
    "9.9": [inverse_by_squaring],
    "9.10": [backward_by_squaring, backward_upper, backward_where_a_is_not_zero],
}
