"""Wrong answers to chapter 09 that are right on most inputs, or close to right."""

import numpy as np

from lineage_lib.exercises import _ch09_chunks, _ch09_gates, _ch09_inverse, _ch09_wy
from lineage_lib.exercises._ch09_wy import lower, solve
from lineage_lib.matrices import segment_products


def unit(K):
    norms = np.linalg.norm(K, axis=-1, keepdims=True)
    return K / np.where(norms > 0, norms, 1)


def empty(K, V, S0):
    return np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0


# 9.1
def factors_in_place(K, beta, X):
    """Right values, but the caller's X is overwritten."""
    for k, b in zip(K, beta):
        X -= np.outer(b * k, k @ X)
    return X


def factors_beta_at_most_one(K, beta, X):
    return _ch09_wy.factors_oracle(K, np.minimum(beta, 1), X)


def factors_without_the_first(K, beta, X):
    return _ch09_wy.factors_oracle(K[1:], beta[1:], X)


def factors_on_the_right(K, beta, X):
    """The transposed product; wrong unless it is symmetric."""
    return _ch09_wy.factors_oracle(K[::-1], beta[::-1], X)


def factors_of_pairs(K, beta, X):
    """Right up to two tokens: products of three keys are dropped."""
    scores = np.tril(K @ K.T, -1)
    W = beta[:, None] * (K - scores @ (beta[:, None] * K))
    return X - K.T @ (W @ X)


# 9.2
def rows_to_second_order(K, beta):
    """Right for up to two tokens."""
    A = lower(K, beta)
    return (np.eye(len(K)) - A) @ (beta[:, None] * K)


def rows_to_third_order(K, beta):
    """Right for up to three tokens."""
    A = lower(K, beta)
    return (np.eye(len(K)) - A + A @ A) @ (beta[:, None] * K)


def rows_of_unit_keys(K, beta):
    return _ch09_wy.rows_oracle(unit(K), beta)


def rows_by_squaring(K, beta):
    """Wrong where keys repeat or are long: powers of A."""
    return _ch09_inverse._squaring(lower(K, beta).astype(np.float32)).astype(float) @ (beta[:, None] * K)


def rows_with_epsilon(K, beta):
    return solve(lower(K, beta) + 1e-6 * np.eye(len(K)), beta[:, None] * K)


def rows_with_both_betas(K, beta):
    """beta on rows and on columns."""
    return solve(lower(K, beta) * beta, beta[:, None] * K)


# 9.3
def wy_swapped(K, V, beta):
    return _ch09_wy.wy_oracle(K, V, beta)[::-1]


def wy_of_unit_keys(K, V, beta):
    return _ch09_wy.wy_oracle(unit(K), V, beta)


def wy_least_squares_with_ridge(K, V, beta):
    L = np.eye(len(K)) + lower(K, beta)
    inverse = np.linalg.inv(L.T @ L + 1e-8 * np.eye(len(K))) @ L.T
    return inverse @ (beta[:, None] * K), inverse @ (beta[:, None] * V)


def wy_first_order(K, V, beta):
    near = np.eye(len(K)) - lower(K, beta)
    return near @ (beta[:, None] * K), near @ (beta[:, None] * V)


def wy_keys_for_values(K, V, beta):
    """U is made of what the keys hold of V: right only for square V that is K."""
    W, _ = _ch09_wy.wy_oracle(K, V, beta)
    return W, W @ np.linalg.pinv(K) @ V


# 9.4
def corrected_transposed_solve(K, V, beta, S0):
    return np.linalg.solve((np.eye(len(K)) + lower(K, beta)).T, beta[:, None] * (V - K @ S0))


def corrected_beta_on_values_only(K, V, beta, S0):
    return solve(lower(K, beta), beta[:, None] * V - K @ S0)


def corrected_by_the_last_state(K, V, beta, S0):
    """Every token is corrected by what the chunk leaves."""
    D = _ch09_wy.corrected_oracle(K, V, beta, S0)
    return beta[:, None] * (V - K @ (S0 + K.T @ D)) + 0 * D


def corrected_beta_squared(K, V, beta, S0):
    """W is multiplied by beta once more."""
    W, U = _ch09_wy.wy_oracle(K, V, beta)
    return U - beta[:, None] * W @ S0


def corrected_with_clipped_state(K, V, beta, S0):
    return _ch09_wy.corrected_oracle(K, V, beta, np.clip(S0, -1e3, 1e3))


# 9.5
def output_scaled(Q, K, D, S0):
    O, S = _ch09_chunks.output_oracle(Q, K, D, S0)
    return O * K.shape[1] ** -0.5, S


def output_masked_state(Q, K, D, S0):
    """The state is read by the first token alone."""
    O = np.tril(Q @ K.T) @ D
    O[0] += Q[0] @ S0
    return O, S0 + K.T @ D


def output_last_row_dropped(Q, K, D, S0):
    O, _ = _ch09_chunks.output_oracle(Q, K, D, S0)
    return O, S0 + K[:-1].T @ D[:-1]


def output_state_transposed(Q, K, D, S0):
    O, S = _ch09_chunks.output_oracle(Q, K, D, S0)
    return O, S.T


# 9.6
def delta_full_chunks_padded_with_the_last_token(Q, K, V, beta, T_c, S0=None):
    """The last chunk is filled with copies of the last token, which write again."""
    extra = -len(V) % T_c
    Q, K, V = (np.vstack([z, np.repeat(z[-1:], extra, axis=0)]) for z in (Q, K, V))
    O, S = _ch09_chunks.delta_oracle(Q, K, V, np.append(beta, np.repeat(beta[-1], extra)), T_c, S0)
    return O[: len(O) - extra], S


def delta_number_of_chunks(Q, K, V, beta, T_c, S0=None):
    """Additive inside chunks: corrected by the state of the border alone."""
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        D = beta[j, None] * (V[j] - K[j] @ S)
        O[j], S = Q[j] @ S + np.tril(Q[j] @ K[j].T) @ D, S + K[j].T @ D
    return O, S


def delta_additive(Q, K, V, beta, T_c, S0=None):
    S0 = empty(K, V, S0)
    D = beta[:, None] * V
    return Q @ S0 + np.tril(Q @ K.T) @ D, S0 + K.T @ D


def delta_of_unit_keys(Q, K, V, beta, T_c, S0=None):
    return _ch09_chunks.delta_oracle(Q, unit(K), V, beta, T_c, S0)


def delta_first_order(Q, K, V, beta, T_c, S0=None):
    """The inverse is cut after its first term; right for chunks of up to two tokens."""
    S, O = empty(K, V, S0), np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        right = beta[j, None] * (V[j] - K[j] @ S)
        D = right - lower(K[j], beta[j]) @ right
        O[j], S = Q[j] @ S + np.tril(Q[j] @ K[j].T) @ D, S + K[j].T @ D
    return O, S


def delta_old_state_read(Q, K, V, beta, T_c, S0=None):
    """Outputs read before the write."""
    O, S = _ch09_chunks.delta_oracle(Q, K, V, beta, T_c, S0)
    D = _ch09_wy.corrected_oracle(K, V, beta, empty(K, V, S0))
    return O - np.sum(Q * K, axis=1, keepdims=True) * D, S


def delta_without_the_last_write(Q, K, V, beta, T_c, S0=None):
    O, S = _ch09_chunks.delta_oracle(Q, K, V, beta, T_c, S0)
    return O, S - np.outer(K[-1], _ch09_wy.corrected_oracle(K, V, beta, empty(K, V, S0))[-1])


# 9.7
def gated_start_forgotten(Q, K, V, alpha, beta, T_c, S0=None):
    return _ch09_gates.gated_oracle(Q, K, V, alpha, beta, T_c)


def gated_tail_dropped(Q, K, V, alpha, beta, T_c, S0=None):
    full, O = len(V) // T_c * T_c, np.zeros(V.shape)
    cut = (z[:full] for z in (Q, K, V, alpha, beta))
    O[:full], S = _ch09_gates.gated_oracle(*cut, T_c, empty(K, V, S0))
    return O, S


def gated_by_division(Q, K, V, alpha, beta, T_c, S0=None):
    """Wrong after a reset and over long strong decays."""

    def ratios(a):
        gamma = np.cumprod(a)
        return np.tril(gamma[:, None] / gamma)

    return _ch09_gates._gated(Q, K, V, alpha, beta, T_c, S0, ratios=ratios, write=lambda a: ratios(a)[-1])


def gated_by_division_with_a_floor(Q, K, V, alpha, beta, T_c, S0=None):
    return gated_by_division(Q, K, V, np.maximum(alpha, 1e-6), beta, T_c, S0)


def gated_by_differences_of_clamped_logs(Q, K, V, alpha, beta, T_c, S0=None):
    """Resets at -100: of a giant before a reset nothing is left, but digits of the logarithms are lost."""
    g = np.maximum(np.log(alpha), -8.0)
    return _ch09_gates.gated_oracle(Q, K, V, np.exp(g), beta, T_c, S0)


def gated_products_with_own_decay(Q, K, V, alpha, beta, T_c, S0=None):
    """Γ includes the writer's own decay."""

    def ratios(a):
        return segment_products(a) * a

    return _ch09_gates._gated(Q, K, V, alpha, beta, T_c, S0, ratios=ratios, write=lambda a: ratios(a)[-1])


def gated_write_decayed(Q, K, V, alpha, beta, T_c, S0=None):
    """The new write is scaled by alpha."""
    return _ch09_gates.gated_oracle(Q, K, alpha[:, None] * V, alpha, beta, T_c, S0)


def gated_ungated(Q, K, V, alpha, beta, T_c, S0=None):
    return _ch09_chunks.delta_oracle(Q, K, V, beta, T_c, S0)


def gated_scores_undecayed(Q, K, V, alpha, beta, T_c, S0=None):
    """The scores of the output have no Γ, those of A have it."""
    return _ch09_gates._gated(
        Q, K, V, alpha, beta, T_c, S0, ratios=lambda a: np.ones((len(a), len(a))), pairs=segment_products
    )


def gated_additive(Q, K, V, alpha, beta, T_c, S0=None):
    return _ch09_gates.gated_oracle(Q, K, beta[:, None] * V, alpha, np.zeros_like(beta), T_c, S0)


def gated_border_decay_dropped(Q, K, V, alpha, beta, T_c, S0=None):
    """The first token of each chunk leaves the incoming state as it is."""
    alpha = alpha.copy()
    alpha[::T_c] = 1.0
    return _ch09_gates.gated_oracle(Q, K, V, alpha, beta, T_c, S0)


def gated_strict_output(Q, K, V, alpha, beta, T_c, S0=None):
    O, S = _ch09_gates.gated_oracle(Q, K, V, alpha, beta, T_c, S0)
    state, D = empty(K, V, S0), []
    for t in range(len(V)):
        D.append(beta[t] * (V[t] - alpha[t] * state.T @ K[t]))
        state = alpha[t] * state + np.outer(K[t], D[t])
    return O - np.sum(Q * K, axis=1, keepdims=True) * np.array(D), S


# 9.8
def gdn2_one_decay_a_token(Q, K, V, alpha, b, w, S0):
    return _ch09_gates.gdn2_oracle(Q, K, V, np.repeat(alpha.mean(1, keepdims=True), K.shape[1], 1), b, w, S0)


def gdn2_without_erase_gate(Q, K, V, alpha, b, w, S0):
    return _ch09_gates.gdn2_oracle(Q, K, V, alpha, np.ones_like(b), w, S0)


def gdn2_mean_erase_gate(Q, K, V, alpha, b, w, S0):
    return _ch09_gates.gdn2_oracle(Q, K, V, alpha, np.repeat(b.mean(1, keepdims=True), K.shape[1], 1), w, S0)


def gdn2_strict_output(Q, K, V, alpha, b, w, S0):
    gamma = np.cumprod(alpha, axis=0)
    erase, write, query = b * gamma * K, K / gamma, gamma * Q
    D = solve(np.tril(erase @ write.T, -1), w * V - erase @ S0)
    return query @ S0 + np.tril(query @ write.T, -1) @ D, gamma[-1][:, None] * (S0 + write.T @ D)


def gdn2_start_forgotten(Q, K, V, alpha, b, w, S0):
    return _ch09_gates.gdn2_oracle(Q, K, V, alpha, b, w, np.zeros_like(S0))


def gdn2_transposed_scores(Q, K, V, alpha, b, w, S0):
    gamma = np.cumprod(alpha, axis=0)
    erase, write, query = b * gamma * K, K / gamma, gamma * Q
    D = solve(np.tril(write @ erase.T, -1), w * V - erase @ S0)
    return query @ S0 + np.tril(query @ write.T) @ D, gamma[-1][:, None] * (S0 + write.T @ D)


def gdn2_with_a_floor(Q, K, V, alpha, b, w, S0):
    """γ is held above a floor: wrong for strong decays over many tokens."""
    gamma = np.maximum(np.cumprod(alpha, axis=0), 1e-12)
    erase, write, query = b * gamma * K, K / gamma, gamma * Q
    D = solve(np.tril(erase @ write.T, -1), w * V - erase @ S0)
    return query @ S0 + np.tril(query @ write.T) @ D, gamma[-1][:, None] * (S0 + write.T @ D)


def gdn2_gates_at_most_one(Q, K, V, alpha, b, w, S0):
    return _ch09_gates.gdn2_oracle(Q, K, V, alpha, np.minimum(b, 1), w, S0)


# 9.9
def inverse_to_third_order(A):
    """Right up to 4 by 4."""
    return np.eye(len(A)) - A + A @ A - A @ A @ A


def inverse_merged_once(A):
    """One merge of two first-order halves: right up to 4 by 4."""
    return _ch09_inverse._merge(A) if len(A) <= 4 else np.eye(len(A)) - A + A @ A


def inverse_in_single_precision(A):
    return _ch09_inverse._merge(A.astype(np.float32)).astype(np.float32)


def inverse_transposed(A):
    return _ch09_inverse.inverse_oracle(A).T


def inverse_by_fewer_squarings(A):
    """Squaring that stops one factor early."""
    X, power, m = np.eye(len(A)) - A, A @ A, 2
    while m < len(A) // 2:
        X, power, m = X @ (np.eye(len(A)) + power), power @ power, 2 * m
    return X


def inverse_of_a(A):
    return np.linalg.pinv(A)


# 9.10
def backward_swapped(A, X, dX):
    return _ch09_inverse.backward_oracle(A, X, dX)[::-1]


def backward_with_b(A, X, dX):
    """dA is made of B in place of X."""
    dB = solve(A.T, dX)
    return dB, -np.tril(dB @ ((np.eye(len(A)) + A) @ X).T, -1)


def backward_solved_twice(A, X, dX):
    dB = solve(A.T, dX)
    return dB, -np.tril(solve(A.T, dB) @ X.T, -1)


def backward_first_order(A, X, dX):
    dB = dX - A.T @ dX
    return dB, -np.tril(dB @ X.T, -1)


def backward_one_value_channel(A, X, dX):
    """Only the first value channel counts."""
    dB = solve(A.T, dX)
    return dB, -np.tril(np.outer(dB[:, 0], X[:, 0]), -1)


WRONG_ANSWERS = {
    "9.1": [
        factors_in_place,
        factors_beta_at_most_one,
        factors_without_the_first,
        factors_on_the_right,
        factors_of_pairs,
    ],
    "9.2": [
        rows_to_second_order,
        rows_to_third_order,
        rows_of_unit_keys,
        rows_by_squaring,
        rows_with_epsilon,
        rows_with_both_betas,
    ],
    "9.3": [wy_swapped, wy_of_unit_keys, wy_least_squares_with_ridge, wy_first_order, wy_keys_for_values],
    "9.4": [
        corrected_transposed_solve,
        corrected_beta_on_values_only,
        corrected_by_the_last_state,
        corrected_beta_squared,
        corrected_with_clipped_state,
    ],
    "9.5": [output_scaled, output_masked_state, output_last_row_dropped, output_state_transposed],
    "9.6": [
        delta_full_chunks_padded_with_the_last_token,
        delta_number_of_chunks,
        delta_additive,
        delta_of_unit_keys,
        delta_first_order,
        delta_old_state_read,
        delta_without_the_last_write,
    ],
    "9.7": [
        gated_start_forgotten,
        gated_tail_dropped,
        gated_by_division,
        gated_by_division_with_a_floor,
        gated_by_differences_of_clamped_logs,
        gated_products_with_own_decay,
        gated_write_decayed,
        gated_ungated,
        gated_scores_undecayed,
        gated_additive,
        gated_border_decay_dropped,
        gated_strict_output,
    ],
    "9.8": [
        gdn2_one_decay_a_token,
        gdn2_without_erase_gate,
        gdn2_mean_erase_gate,
        gdn2_strict_output,
        gdn2_start_forgotten,
        gdn2_transposed_scores,
        gdn2_with_a_floor,
        gdn2_gates_at_most_one,
    ],
    "9.9": [
        inverse_to_third_order,
        inverse_merged_once,
        inverse_in_single_precision,
        inverse_transposed,
        inverse_by_fewer_squarings,
        inverse_of_a,
    ],
    "9.10": [
        backward_swapped,
        backward_with_b,
        backward_solved_twice,
        backward_first_order,
        backward_one_value_channel,
    ],
}
