"""Wrong answers to chapter 01 that are right on most inputs."""

import numpy as np

from lineage_lib.exercises import _ch01_attention, _ch01_crosstalk, _ch01_forms, _ch01_states

# --- 1.1 attend ----------------------------------------------------------------------------------


def attend_clipped(q_t, k, v):
    """Wrong where scores are large: their order is lost."""
    weights = np.exp(np.clip(k @ q_t / np.sqrt(len(q_t)), -700, 700))
    return weights / weights.sum() @ v


def attend_minus_each_size(q_t, k, v):
    """Finite everywhere, but subtracts a number of its own from each score."""
    scores = k @ q_t / np.sqrt(len(q_t))
    weights = np.exp(scores - np.abs(scores))
    return weights / weights.sum() @ v


def attend_minus_the_mean(q_t, k, v):
    """Wrong where scores spread widely: the mean is far below the largest."""
    scores = k @ q_t / np.sqrt(len(q_t))
    weights = np.exp(scores - scores.mean())
    return weights / weights.sum() @ v


def attend_minus_the_largest_key_entry(q_t, k, v):
    """Wrong where scores spread widely: the number is subtracted from the keys and not from the scores."""
    weights = np.exp((k - k.max()) @ q_t / np.sqrt(len(q_t)))
    return weights / weights.sum() @ v


def attend_minus_the_largest_of_each_channel(q_t, k, v):
    """Wrong where the query has negative entries: the shift makes the scores larger."""
    weights = np.exp((k - k.max(axis=0)) @ q_t / np.sqrt(len(q_t)))
    return weights / weights.sum() @ v


def attend_minus_the_largest_before_scaling(q_t, k, v):
    """Wrong where scores are large: the number subtracted is root K times too large."""
    scores = k @ q_t
    weights = np.exp(scores / np.sqrt(len(q_t)) - scores.max())
    return weights / weights.sum() @ v


def attend_minus_the_first(q_t, k, v):
    """Overflows where a later score is far above the first."""
    scores = k @ q_t / np.sqrt(len(q_t))
    weights = np.exp(scores - scores[0])
    return weights / weights.sum() @ v


def attend_minus_the_last(q_t, k, v):
    return attend_minus_the_first(q_t, k[::-1], v[::-1])


def attend_in_long_doubles(q_t, k, v):
    """Overflows above 11,356, where long doubles have 80 bits, and above 709 elsewhere."""
    weights = np.exp((k @ q_t / np.sqrt(len(q_t))).astype(np.longdouble))
    return weights / weights.sum() @ v


def attend_minus_the_mean_in_long_doubles(q_t, k, v):
    scores = (k @ q_t / np.sqrt(len(q_t))).astype(np.longdouble)
    weights = np.exp(scores - scores.mean())
    return weights / weights.sum() @ v


def attend_in_half_of_the_digits(q_t, k, v):
    return _ch01_attention.attend_oracle(*(x.astype(np.float32) for x in (q_t, k, v)))


def attend_squeezed(q_t, k, v):
    """Wrong where K = 1 or t = 1: an axis is lost."""
    return np.squeeze(_ch01_attention.attend_oracle(q_t, k, v) * (k.shape[1] > 1))


def attend_once_a_key(q_t, k, v):
    """Wrong where keys repeat: of equal keys the first alone counts."""
    first = np.sort(np.unique(k, axis=0, return_index=True)[1])
    return _ch01_attention.attend_oracle(q_t, k[first], v[first])


# --- 1.2 kv_cache_bytes --------------------------------------------------------------------------


def bytes_in_32_bits(tokens, layers, kv_heads, head_dim, bytes_per_number):
    """Wrong above 4 GB."""
    return (2 * tokens * layers * kv_heads * head_dim * bytes_per_number) % 2**32


def bytes_of_two_byte_numbers(tokens, layers, kv_heads, head_dim, bytes_per_number):
    return 4 * tokens * layers * kv_heads * head_dim


def bytes_with_the_next_token(tokens, layers, kv_heads, head_dim, bytes_per_number):
    return 2 * (tokens + 1) * layers * kv_heads * head_dim * bytes_per_number


# --- 1.3 step, 1.4 the recurrent form ------------------------------------------------------------


def step_in_place(S, k_t, v_t, q_t):
    """Right values; changes the caller's state."""
    S += np.outer(k_t, v_t)
    return S, S.T @ q_t


def step_transposed(S, k_t, v_t, q_t):
    """The state with values as rows: right where K = V = 1 alone."""
    S, o = _ch01_states.step_oracle(S, k_t, v_t, q_t)
    return S.T, o


def step_of_whole_numbers(S, k_t, v_t, q_t):
    """Wrong where values are not whole."""
    S = (S + np.outer(k_t, v_t)).astype(int)
    return S, S.T @ q_t


def step_transposed_when_square(S, k_t, v_t, q_t):
    if S.shape[0] == S.shape[1]:
        S = S + np.outer(v_t, k_t)
        return S, S.T @ q_t
    return _ch01_states.step_oracle(S, k_t, v_t, q_t)


_KEPT = {}


def step_into_one_array(S, k_t, v_t, q_t):
    """Right values; all states of one shape are one array, which the next call overwrites."""
    kept = _KEPT.setdefault(S.shape, np.empty(S.shape))
    kept[:] = S + np.outer(k_t, v_t)
    return kept, kept.T @ q_t


def recurrent_into_one_array(q, k, v, S0):
    o, S = _ch01_states.recurrent_oracle(q, k, v, S0)
    kept = _KEPT.setdefault(("o", o.shape), np.empty(o.shape))
    kept[:] = o
    return kept, S


def recurrent_backwards(q, k, v, S0):
    """The last state first, from which the writes are taken off again: rounding brings in the future."""
    S, o = S0 + k.T @ v, np.zeros(v.shape)
    last = S
    for t in reversed(range(len(v))):
        o[t] = S.T @ q[t]
        S = S - np.outer(k[t], v[t])
    return o, last


def recurrent_in_place(q, k, v, S0):
    for t in range(len(v)):
        S0 += np.outer(k[t], v[t])
    return q @ S0, S0


def recurrent_of_the_last_forty_tokens(q, k, v, S0):
    o, S = _ch01_states.recurrent_oracle(q, k, v, S0)
    for t in range(40, len(v)):
        o[t] -= (q[t] @ k[t - 40]) * v[t - 40]
    return o, S


def recurrent_transposed_when_square(q, k, v, S0):
    o, S = _ch01_states.recurrent_oracle(q, k, v, S0)
    return (o, S.T) if S.shape[0] == S.shape[1] else (o, S)


def recurrent_first_of_each_key(q, k, v, S0):
    """Wrong where keys repeat: only the first write of a key is kept."""
    _, first = np.unique(k, axis=0, return_index=True)
    kept = np.isin(np.arange(len(k)), first)
    return _ch01_states.recurrent_oracle(q, k * kept[:, None], v, S0)


# --- 1.5 to 1.7 ----------------------------------------------------------------------------------


def parallel_with_a_mask_of_the_width(q, k, v):
    """Wrong where T > K: the mask reaches K tokens back."""
    scores = np.tril(q @ k.T)
    return np.triu(scores, -q.shape[1]) @ v


def parallel_of_positive_scores(q, k, v):
    return np.maximum(np.tril(q @ k.T), 0) @ v


def parallel_less_the_future(q, k, v):
    """All scores, less those of the future: a large key of the future rounds the past away."""
    scores = q @ k.T
    return scores @ v - np.triu(scores, 1) @ v


def parallel_by_infinity(q, k, v):
    """The mask of a softmax without the softmax."""
    scores = np.where(np.tri(len(q), dtype=bool), q @ k.T, -np.inf)
    return scores @ v


def reassociated_for_as_many_questions(q, k, v):
    """Wrong where there are more questions than notes."""
    return _ch01_forms.reassociated_oracle(q[: len(k)], k, v)


def reassociated_value_first_when_square(q, k, v):
    return q @ (v.T @ k) if k.shape[1] == v.shape[1] else _ch01_forms.reassociated_oracle(q, k, v)


def reassociated_beside_a_table(q, k, v):
    """Right values; keeps a table for each pair of question and note."""
    scores = (q @ k.T).astype(np.float32)
    return _ch01_forms.reassociated_oracle(q, k, v) + 0 * scores[0, 0]


def _normalised_by(q, k, v, change):
    z = np.cumsum(k, axis=0)
    states = np.cumsum(k[:, :, None] * v[:, None, :], axis=0)
    return np.einsum("tk,tkv->tv", q, states) / change(np.sum(q * z, axis=1, keepdims=True))


def normalised_with_a_tiny_epsilon(q, k, v):
    """Wrong where the sum of scores is small."""
    return _normalised_by(q, k, v, lambda total: total + 1e-9)


def normalised_with_the_smallest_epsilon(q, k, v):
    """Wrong where the sum of scores is near the epsilon."""
    return _normalised_by(q, k, v, lambda total: total + 1e-16)


def normalised_with_a_lower_limit(q, k, v):
    return _normalised_by(q, k, v, lambda total: np.maximum(total, 1e-8))


def normalised_backwards(q, k, v):
    """Both sums over all tokens, from which later ones are taken off again."""
    S, z, o = k.T @ v, k.sum(axis=0), np.zeros(v.shape)
    for t in reversed(range(len(v))):
        o[t] = S.T @ q[t] / (z @ q[t])
        S, z = S - np.outer(k[t], v[t]), z - k[t]
    return o


def normalised_in_the_type_of_the_values(q, k, v):
    """Wrong where the values are integers: the outputs are cut off."""
    o = np.zeros_like(v)
    o[:] = _ch01_forms.normalised_oracle(q, k, v)
    return o


def normalised_state(q, k, v):
    """Wrong from the second token on: the state itself is divided, row by row, and carried on divided."""
    S, z, o = np.zeros((k.shape[1], v.shape[1])), np.zeros(k.shape[1]), np.zeros(v.shape)
    for t in range(len(v)):
        S, z = S + np.outer(k[t], v[t]), z + k[t]
        S = S / z[:, None]
        o[t] = S.T @ q[t]
    return o


def normalised_by_the_count(q, k, v):
    """Right where all scores of a token are 1."""
    states = np.cumsum(k[:, :, None] * v[:, None, :], axis=0)
    return np.einsum("tk,tkv->tv", q, states) / np.arange(1, len(q) + 1)[:, None]


def normalised_at_least_one(q, k, v):
    return _normalised_by(q, k, v, lambda total: np.maximum(total, 1))


# --- 1.8 crosstalk, 1.9 replace ------------------------------------------------------------------


def crosstalk_by_the_theory(k, v):
    """The expectation for random keys."""
    return (len(k) - 1) / k.shape[1]


def crosstalk_of_the_gram_matrix(k, v):
    """Right on average over random values, wrong for given ones."""
    return np.sum((k @ k.T - np.eye(len(k))) ** 2) / len(k)


def crosstalk_with_an_epsilon(k, v):
    """Wrong where the values are tiny."""
    return np.sum((k @ (k.T @ v) - v) ** 2) / (np.sum(v**2) + 1e-10)


def crosstalk_with_the_smallest_epsilon(k, v):
    return np.sum((k @ (k.T @ v) - v) ** 2) / (np.sum(v**2) + 1e-16)


def crosstalk_up_to_fifty(k, v):
    return min(_ch01_crosstalk.crosstalk_oracle(k, v), 50.0)


def crosstalk_by_length(k, v):
    reads = k @ (k.T @ v)
    return ((np.linalg.norm(reads) - np.linalg.norm(v)) / np.linalg.norm(v)) ** 2


def replace_what_was_read_along_the_key(S, k_t, v_old, v_new):
    """Wrong where other keys are not orthogonal: what they left along the key is erased too."""
    read = S.T @ k_t / (k_t @ k_t)
    return S + np.outer(k_t, v_new - read)


def replace_in_place(S, k_t, v_old, v_new):
    S += np.outer(k_t, v_new - v_old)
    return S


def replace_into_one_array(S, k_t, v_old, v_new):
    """Right values; all states of one shape are one array, which the next call overwrites."""
    kept = _KEPT.setdefault(S.shape, np.empty(S.shape))
    kept[:] = S + np.outer(k_t, v_new - v_old)
    return kept


def replace_and_divide_by_the_length(S, k_t, v_old, v_new):
    """Wrong where the key has not length 1: the change is divided by the squared length, as a read would need."""
    return _ch01_crosstalk.replace_oracle(S, k_t / (k_t @ k_t), v_old, v_new)


WRONG_ANSWERS = {
    "1.1": [
        attend_clipped,
        attend_minus_each_size,
        attend_minus_the_mean,
        attend_minus_the_largest_key_entry,
        attend_minus_the_largest_of_each_channel,
        attend_minus_the_largest_before_scaling,
        attend_minus_the_first,
        attend_minus_the_last,
        attend_in_long_doubles,
        attend_minus_the_mean_in_long_doubles,
        attend_in_half_of_the_digits,
        attend_squeezed,
        attend_once_a_key,
    ],
    "1.2": [bytes_in_32_bits, bytes_of_two_byte_numbers, bytes_with_the_next_token],
    "1.3": [step_in_place, step_into_one_array, step_transposed, step_of_whole_numbers, step_transposed_when_square],
    "1.4": [
        recurrent_in_place,
        recurrent_into_one_array,
        recurrent_backwards,
        recurrent_of_the_last_forty_tokens,
        recurrent_transposed_when_square,
        recurrent_first_of_each_key,
    ],
    "1.5": [
        parallel_with_a_mask_of_the_width,
        parallel_of_positive_scores,
        parallel_less_the_future,
        parallel_by_infinity,
    ],
    "1.6": [
        reassociated_for_as_many_questions,
        reassociated_value_first_when_square,
        reassociated_beside_a_table,
    ],
    "1.7": [
        normalised_with_a_tiny_epsilon,
        normalised_with_the_smallest_epsilon,
        normalised_with_a_lower_limit,
        normalised_backwards,
        normalised_in_the_type_of_the_values,
        normalised_state,
        normalised_by_the_count,
        normalised_at_least_one,
    ],
    "1.8": [
        crosstalk_by_the_theory,
        crosstalk_of_the_gram_matrix,
        crosstalk_with_an_epsilon,
        crosstalk_with_the_smallest_epsilon,
        crosstalk_up_to_fifty,
        crosstalk_by_length,
    ],
    "1.9": [
        replace_what_was_read_along_the_key,
        replace_in_place,
        replace_into_one_array,
        replace_and_divide_by_the_length,
    ],
}
