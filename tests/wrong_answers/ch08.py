"""Wrong answers to chapter 08 that are right on most inputs: single steps (8.1 to 8.5)."""

import numpy as np

from lineage_lib.exercises import _ch08_gates, _ch08_steps

delta, gated = _ch08_steps.delta_oracle, _ch08_gates.gated_oracle


# 8.1
def delta_clipped(S, k, v, beta):
    """Wrong beyond 1."""
    return delta(S, k, v, min(beta, 1.0))


def delta_read_transposed(S, k, v, beta):
    """Raises unless K = V."""
    return S + beta * np.outer(k, v - S @ k)


def delta_normalised_when_long(S, k, v, beta):
    return delta(S, k / max(1.0, np.linalg.norm(k)), v, beta)


def delta_of_a_unit_read(S, k, v, beta):
    """The read alone is normalised."""
    return S + beta * np.outer(k, v - S.T @ k / max(k @ k, 1e-12))


def delta_with_epsilon(S, k, v, beta):
    """As a layer does it, and so wrong for keys that are not of length 1."""
    return delta(S, k / np.sqrt(k @ k + 1e-6), v, beta)


def delta_transposed_when_square(S, k, v, beta):
    return delta(S.T, k, v, beta).T if S.shape[0] == S.shape[1] else delta(S, k, v, beta)


def delta_erase_whole_rows(S, k, v, beta):
    """Right for keys along an axis."""
    return (1 - beta * k**2)[:, None] * S + beta * np.outer(k, v)


def delta_shrinks_everything(S, k, v, beta):
    return (1 - beta) * S + beta * np.outer(k, v)


def delta_beta_twice(S, k, v, beta):
    return delta(S, k, v, beta**2)


def delta_of_keys_up_to_nine_channels(S, k, v, beta):
    return delta(S, k, v, beta if len(k) < 10 else beta**2)


def delta_key_changed(S, k, v, beta):
    new = delta(S, k, v, beta)
    k /= 2
    return new


def delta_in_place(S, k, v, beta):
    """Right, but the caller's S is changed."""
    S += beta * np.outer(k, v - S.T @ k)
    return S


def delta_half_precision(S, k, v, beta):
    return delta(*(np.asarray(z, dtype=np.float32) for z in (S, k, v)), np.float32(beta))


# 8.2
def gradient_summed_errors(S, K, V):
    """Keys and errors are added up before they are multiplied: right for one pair."""
    return np.outer(K.sum(axis=0), (K @ S - V).sum(axis=0))


def gradient_clipped(S, K, V):
    return np.clip(_ch08_steps.gradient_oracle(S, K, V), -20, 20)


def gradient_first_pair(S, K, V):
    return np.outer(K[0], K[0] @ S - V[0])


def gradient_of_unit_keys(S, K, V):
    keys = K / np.linalg.norm(K, axis=1, keepdims=True)
    return _ch08_steps.gradient_oracle(S, keys, V)


def gradient_of_distinct_keys(S, K, V):
    """A key that comes twice keeps its last value."""
    newest = {k.tobytes(): i for i, k in enumerate(K)}
    rows = sorted(newest.values())
    return _ch08_steps.gradient_oracle(S, K[rows], V[rows])


def gradient_of_the_norm(S, K, V):
    """The gradient of the unsquared norm, summed over pairs."""
    R = K @ S - V
    return K.T @ (R / np.maximum(np.linalg.norm(R, axis=1, keepdims=True), 1e-300))


def gradient_of_guarded_keys(S, K, V):
    return _ch08_steps.gradient_oracle(S, K / np.maximum(np.linalg.norm(K, axis=1, keepdims=True), 1e-12), V)


def gradient_written_into_the_values(S, K, V):
    """Right, but the caller's V is changed."""
    V -= K @ S
    return -K.T @ V


# 8.3
def change_of_the_state(S, k, v, beta, Q):
    return Q @ (beta * np.outer(k, v))


def change_squared_overlap(S, k, v, beta, Q):
    """Right for cosines 0 and 1."""
    return np.outer((Q @ k) ** 2, beta * (v - S.T @ k))


def change_of_positive_overlaps(S, k, v, beta, Q):
    return np.outer(np.maximum(Q @ k, 0), beta * (v - S.T @ k))


def change_of_the_first(S, k, v, beta, Q):
    return np.outer(Q[:1] @ k, beta * (v - S.T @ k)).repeat(len(Q), axis=0)


def change_key_normalised(S, k, v, beta, Q):
    u = k / np.linalg.norm(k)
    return np.outer(Q @ u, beta * (v - S.T @ u))


def change_overlap_by_size(S, k, v, beta, Q):
    """The overlap loses its sign."""
    return np.outer(np.abs(Q @ k), beta * (v - S.T @ k))


def change_of_unit_questions(S, k, v, beta, Q):
    return _ch08_steps.change_oracle(S, k, v, beta, Q / np.maximum(np.linalg.norm(Q, axis=1, keepdims=True), 1e-12))


def change_beta_on_the_value_only(S, k, v, beta, Q):
    return np.outer(Q @ k, beta * v - S.T @ k)


def change_beta_on_the_read_only(S, k, v, beta, Q):
    return np.outer(Q @ k, v - beta * (S.T @ k))


def change_questions_overwritten(S, k, v, beta, Q):
    """Right, but the caller's Q is changed."""
    answer = _ch08_steps.change_oracle(S, k, v, beta, Q)
    Q *= 2
    return answer


def change_relative(S, k, v, beta, Q):
    old = Q @ S
    return np.outer(Q @ k, beta * (v - S.T @ k)) / np.where(old == 0, 1, np.abs(old))


# 8.4
def largest_of_the_first(keys):
    return 2 / (keys[0] @ keys[0])


def largest_of_the_last(keys):
    return 2 / (keys[-1] @ keys[-1])


def largest_with_epsilon(keys):
    return 2 / (np.square(keys).sum(axis=1).max() + 1e-6)


def largest_by_entries(keys):
    return 2 / np.abs(keys).max() ** 2


def largest_by_sums_of_entries(keys):
    return 2 / np.abs(keys).sum(axis=1).max() ** 2


def largest_strictly_below(keys):
    return 0.999 * _ch08_steps.largest_beta_oracle(keys)


def largest_capped_at_one(keys):
    """A whole number where the cap acts."""
    return min(1, _ch08_steps.largest_beta_oracle(keys))


def largest_capped_at_two_whole(keys):
    return min(2, _ch08_steps.largest_beta_oracle(keys))


def largest_of_the_shortest_unless_zero(keys):
    squares = np.square(keys).sum(axis=1)
    return (2 / squares[squares > 0]).max()


def largest_is_two(keys):
    return 2.0


# 8.5
def gated_decays_twice(S, k, v, alpha, beta):
    """The error is read from a state that has faded twice."""
    return alpha * S + beta * np.outer(k, v - alpha**2 * (S.T @ k))


def gated_beta_twice(S, k, v, alpha, beta):
    return gated(S, k, v, alpha, beta**2)


def gated_fades_by_the_rest(S, k, v, alpha, beta):
    return gated(S, k, v, 1 - alpha, beta)


def gated_without_correction(S, k, v, alpha, beta):
    return alpha * S + beta * np.outer(k, v)


def gated_decay_along_the_key(S, k, v, alpha, beta):
    """Only what stands under the key fades."""
    return delta(S - (1 - alpha) * np.outer(k, S.T @ k), k, v, beta)


def gated_rest_of_the_key_kept(S, k, v, alpha, beta):
    """What is not corrected does not fade: the decay acts on the row that is erased alone."""
    return S + beta * np.outer(k, v) - beta * alpha * np.outer(k, S.T @ k)


def gated_write_scaled_by_alpha(S, k, v, alpha, beta):
    return alpha * S + alpha * beta * np.outer(k, v - alpha * (S.T @ k))


def gated_alpha_as_a_logarithm(S, k, v, alpha, beta):
    return gated(S, k, v, np.exp(alpha), beta)


def gated_beta_on_the_write_only(S, k, v, alpha, beta):
    return alpha * S + np.outer(k, beta * v - alpha * (S.T @ k))


def gated_in_place(S, k, v, alpha, beta):
    """Right, but the caller's S is changed."""
    S *= alpha
    S += beta * np.outer(k, v - S.T @ k)
    return S


def gated_uphill(S, k, v, alpha, beta):
    return gated(S, k, v, alpha, -beta)


def gated_swapped(S, k, v, alpha, beta):
    return gated(S, k, v, beta, alpha)


def gated_not_at_zero_keys(S, k, v, alpha, beta):
    """A key of zeros is taken for padding, and nothing fades."""
    return gated(S, k, v, alpha, beta) if k.any() else S


def gated_only_when_written(S, k, v, alpha, beta):
    """Strength 0 is taken for "skip", and nothing fades."""
    return gated(S, k, v, alpha, beta) if beta else S


def gated_never_without_decay(S, k, v, alpha, beta):
    return gated(S, k, v, min(alpha, 0.995), beta)


def gated_with_a_floor(S, k, v, alpha, beta):
    """Wrong at a reset."""
    return gated(S, k, v, max(alpha, 1e-6), beta)


def gated_beta_on_the_erase_only(S, k, v, alpha, beta):
    return alpha * S + np.outer(k, v - alpha * beta * (S.T @ k))


def gated_key_normalised(S, k, v, alpha, beta):
    return gated(S, k / np.linalg.norm(k), v, alpha, beta)


def gated_value_overwritten(S, k, v, alpha, beta):
    """Right, but the caller's v is changed."""
    kept, write = alpha * S, v
    write -= kept.T @ k
    return kept + beta * np.outer(k, write)


def gated_power_by_width(S, k, v, alpha, beta):
    """Right for narrow keys."""
    return gated(S, k, v, alpha ** (len(k) / 3 if len(k) > 9 else 1), beta)


def gated_tied(S, k, v, alpha, beta):
    """A convex mixture, as in a gated recurrent unit."""
    return alpha * S + (1 - alpha) * beta * np.outer(k, v - S.T @ k)


WRONG_ANSWERS = {
    "8.1": [
        delta_clipped,
        delta_read_transposed,
        delta_normalised_when_long,
        delta_of_a_unit_read,
        delta_with_epsilon,
        delta_transposed_when_square,
        delta_erase_whole_rows,
        delta_shrinks_everything,
        delta_beta_twice,
        delta_of_keys_up_to_nine_channels,
        delta_key_changed,
        delta_half_precision,
        delta_in_place,
    ],
    "8.2": [
        gradient_summed_errors,
        gradient_clipped,
        gradient_first_pair,
        gradient_of_unit_keys,
        gradient_of_distinct_keys,
        gradient_of_the_norm,
        gradient_of_guarded_keys,
        gradient_written_into_the_values,
    ],
    "8.3": [
        change_of_the_state,
        change_squared_overlap,
        change_of_positive_overlaps,
        change_of_the_first,
        change_key_normalised,
        change_relative,
        change_overlap_by_size,
        change_of_unit_questions,
        change_beta_on_the_value_only,
        change_beta_on_the_read_only,
        change_questions_overwritten,
    ],
    "8.4": [
        largest_of_the_first,
        largest_of_the_last,
        largest_with_epsilon,
        largest_by_entries,
        largest_by_sums_of_entries,
        largest_strictly_below,
        largest_capped_at_one,
        largest_capped_at_two_whole,
        largest_is_two,
        largest_of_the_shortest_unless_zero,
    ],
    "8.5": [
        gated_decays_twice,
        gated_beta_twice,
        gated_fades_by_the_rest,
        gated_without_correction,
        gated_decay_along_the_key,
        gated_rest_of_the_key_kept,
        gated_with_a_floor,
        gated_beta_on_the_erase_only,
        gated_key_normalised,
        gated_value_overwritten,
        gated_power_by_width,
        gated_tied,
        gated_write_scaled_by_alpha,
        gated_alpha_as_a_logarithm,
        gated_beta_on_the_write_only,
        gated_in_place,
        gated_uphill,
        gated_swapped,
        gated_not_at_zero_keys,
        gated_only_when_written,
        gated_never_without_decay,
    ],
}
