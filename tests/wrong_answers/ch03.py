"""Wrong answers to chapter 03 that are right on most inputs."""

import itertools
import math

import numpy as np

from lineage_lib import matrices, reference
from lineage_lib.exercises import _ch03_forms, _ch03_states

# --- 3.1, 3.2: one head --------------------------------------------------------------------------


def _ratio_mask(a):
    """Wrong where a product of decays underflows."""
    products = np.cumprod(np.where(a == 0, 1e-12, a))
    return np.tril(products[:, None] / products)


def head_by_ratio(X, a, B, C):
    return (_ratio_mask(a) * (C @ B.T)) @ X


def head_by_ratio_between_resets(X, a, B, C):
    starts = [0, *(t for t in np.flatnonzero(a == 0) if t > 0), len(a)]
    parts = []
    for i, j in itertools.pairwise(starts):
        mask = _ratio_mask(np.append(1.0, a[i + 1 : j]))
        parts.append((mask * (C[i:j] @ B[i:j].T)) @ X[i:j])
    return np.concatenate(parts)


def head_squeezed(X, a, B, C):
    """Wrong where N = 1."""
    B, C = (np.squeeze(M) if len(X) > 1 else M for M in (B, C))
    return (matrices.segment_products(a) * (C @ B.T)) @ X


def head_of_a_wide_state(X, a, B, C):
    """Wrong where N = 1."""
    return _ch03_forms.recurrent_oracle(X, a, B, C) * (len(X) == 1 or B.shape[1] > 1)


def head_transposed_when_square(X, a, B, C):
    """Wrong where N = P: the state is transposed."""
    if X.shape[1] == B.shape[1]:
        return (matrices.segment_products(a) * (X @ C.T)) @ B
    return _ch03_forms.recurrent_oracle(X, a, B, C)


def head_for_long_inputs_only(X, a, B, C):
    """Wrong where 1 < T < N."""
    return _ch03_forms.recurrent_oracle(X, a, B, C) * (len(X) == 1 or len(X) >= B.shape[1])


def head_of_the_last_forty_tokens(X, a, B, C):
    """Wrong where decays are near 1: older writes still count."""
    return (np.triu(matrices.segment_products(a), -39) * (C @ B.T)) @ X


def head_with_three_resets_at_most(X, a, B, C):
    a = a.copy()
    a[np.flatnonzero(a == 0)[3:]] = 1.0
    return _ch03_forms.recurrent_oracle(X, a, B, C)


HEADS = [
    head_by_ratio,
    head_by_ratio_between_resets,
    head_squeezed,
    head_of_a_wide_state,
    head_transposed_when_square,
    head_for_long_inputs_only,
    head_of_the_last_forty_tokens,
    head_with_three_resets_at_most,
]

# --- 3.3 linear_attention ------------------------------------------------------------------------


def attention_with_a_mask(Q, K, V):
    """Right values; wrong only in the memory of one array of T x T booleans."""
    mask = np.tri(len(Q), dtype=bool)
    return reference.linear_attention(Q, K, V) * mask[-1][:, None]


def attention_of_a_wide_state(Q, K, V):
    """Wrong where N = 1."""
    return reference.linear_attention(Q, K, V) * (len(Q) == 1 or K.shape[1] > 1)


def attention_transposed_when_square(Q, K, V):
    """Wrong where N = P."""
    if K.shape[1] == V.shape[1]:
        return reference.linear_attention(Q, V, K)
    return reference.linear_attention(Q, K, V)


# --- 3.4 diagonal_quadratic ----------------------------------------------------------------------


def diagonal_by_ratio(X, A, B, C):
    return sum((_ratio_mask(a) * np.outer(c, b)) @ X for a, b, c in zip(A.T, B.T, C.T))


def diagonal_without_full_resets(X, A, B, C):
    """Wrong where all state channels are reset at once."""
    return _ch03_forms.diagonal_oracle(X, np.where(np.all(A == 0, axis=1, keepdims=True), 1.0, A), B, C)


def diagonal_of_a_wide_state(X, A, B, C):
    """Wrong where N = 1."""
    return _ch03_forms.diagonal_oracle(X, A, B, C) * (len(X) == 1 or B.shape[1] > 1)


def diagonal_transposed_when_square(X, A, B, C):
    """Wrong where T = N."""
    return _ch03_forms.diagonal_oracle(X, A.T if len(A) == A.shape[1] else A, B, C)


def diagonal_of_five_channels(X, A, B, C):
    return _ch03_forms.diagonal_oracle(X, A[:, :5], B[:, :5], C[:, :5])


# --- 3.5 segment_log_sums ------------------------------------------------------------------------


def sums_of_decays_up_to_one(log_a):
    """Wrong where a log-decay is positive."""
    return matrices.segment_log_sums(np.minimum(log_a, 0.0))


def _infinite_below(bound):
    """Wrong where a finite sum lies below the bound."""

    def segment_log_sums(log_a):
        sums = matrices.segment_log_sums(log_a)
        return np.where(sums < bound, -np.inf, sums)

    return segment_log_sums


def sums_with_a_finite_reset(log_a):
    sums = matrices.segment_log_sums(np.maximum(log_a, -1e9))
    return np.where(sums < -1e8, -np.inf, sums)


# --- 3.6 packed_log_decays -----------------------------------------------------------------------


def five_documents(log_a, lengths):
    out = log_a.copy()
    out[np.cumsum([0, *lengths[:-1]])[:5]] = -np.inf
    return out


# --- 3.7, 3.8: states ----------------------------------------------------------------------------


def from_state_by_ratio(X, a, B, C, S0):
    return head_by_ratio(X, a, B, C) + np.cumprod(a)[:, None] * (C @ S0)


def from_state_of_a_wide_state(X, a, B, C, S0):
    """Wrong where N = 1."""
    return _ch03_states.from_state_oracle(X, a, B, C, S0) * (len(X) == 1 or B.shape[1] > 1)


def from_state_transposed_when_square(X, a, B, C, S0):
    """Wrong where N = P."""
    return _ch03_states.from_state_oracle(X, a, B, C, S0.T if S0.shape[0] == S0.shape[1] else S0)


def final_state_by_ratio(X, a, B, S0):
    products = np.cumprod(np.where(a == 0, 1e-12, a))
    return products[-1] * S0 + ((products[-1] / products)[:, None] * B).T @ X


def final_state_without_the_last_write(X, a, B, S0):
    """Wrong where the last decay is 0: the write after it stays."""
    return _ch03_states.final_state_oracle(X, a, B, S0) * (a[-1] != 0)


def final_state_of_a_wide_state(X, a, B, S0):
    """Wrong where N = 1."""
    return _ch03_states.final_state_oracle(X, a, B, S0) * (len(X) == 1 or B.shape[1] > 1)


def final_state_transposed_when_square(X, a, B, S0):
    """Wrong where N = P."""
    S = _ch03_states.final_state_oracle(X, a, B, S0)
    return S.T if S.shape[0] == S.shape[1] else S


# --- 3.9 crossover_length ------------------------------------------------------------------------


def crossover_just_above(N, P):
    """Wrong where the curves cross just below a whole number."""
    return math.ceil(5 * N * P / (2 * N + 2 * P + 3) + 1e-3)


def crossover_up_to_five_hundred(N, P):
    return min(500, _ch03_states.crossover_oracle(N, P))


# --- 3.10 ssd_transpose --------------------------------------------------------------------------


def transpose_by_ratio(dY, a, B, C):
    """Wrong where a product of decays underflows, or a decay is 0."""
    products = np.cumprod(np.where(a == 0, 1e-12, a))[:, None]
    gathered = np.cumsum(((products * C)[:, :, None] * dY[:, None, :])[::-1], axis=0)[::-1]
    return np.einsum("sn,snp->sp", B / products, gathered)


def transpose_of_the_next_tokens(dY, a, B, C):
    """Only the next 120 tokens: wrong where decays are near 1."""
    dX = np.zeros(dY.shape)
    for s in range(len(a)):
        left = np.cumprod(np.append(1.0, a[s + 1 : s + 120]))
        stop = s + len(left)
        dX[s] = (left * (C[s:stop] @ B[s])) @ dY[s:stop]
    return dX


def transpose_swapped_when_square(dY, a, B, C):
    """Wrong where N = P."""
    if dY.shape[1] == B.shape[1]:
        return _ch03_states.transpose_oracle(dY, a, C, B)
    return _ch03_states.transpose_oracle(dY, a, B, C)


WRONG_ANSWERS = {
    "3.1": HEADS,
    "3.2": HEADS,
    "3.3": [attention_with_a_mask, attention_of_a_wide_state, attention_transposed_when_square],
    "3.4": [
        diagonal_by_ratio,
        diagonal_without_full_resets,
        diagonal_of_a_wide_state,
        diagonal_transposed_when_square,
        diagonal_of_five_channels,
    ],
    "3.5": [
        sums_of_decays_up_to_one,
        _infinite_below(-745.0),
        _infinite_below(-1700.0),
        _infinite_below(-1e4),
        sums_with_a_finite_reset,
    ],
    "3.6": [five_documents],
    "3.7": [from_state_by_ratio, from_state_of_a_wide_state, from_state_transposed_when_square],
    "3.8": [
        final_state_by_ratio,
        final_state_without_the_last_write,
        final_state_of_a_wide_state,
        final_state_transposed_when_square,
    ],
    "3.9": [crossover_just_above, crossover_up_to_five_hundred],
    "3.10": [transpose_by_ratio, transpose_of_the_next_tokens, transpose_swapped_when_square],
}
