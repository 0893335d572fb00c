"""Wrong answers to chapter 02 that are right on most inputs."""

import numpy as np

from lineage_lib import matrices
from lineage_lib.exercises import _ch02_cases, _ch02_systems

# --- 2.1, 2.2, 2.3: matrices ---------------------------------------------------------------------


def segments_of_the_last_nine_decays(a):
    """Wrong where decays are near 1: older inputs still count."""
    T = len(a)
    return [[np.prod(a[max(s + 1, t - 9) : t + 1]) if s <= t else 0.0 for s in range(T)] for t in range(T)]


def scalar_of_eight_tokens(a, b, c):
    M = _ch02_cases.scalar_matrix(a, b, c)
    M[8:] = 0.0
    return M


def scalar_with_a_last_reset_of_everything(a, b, c):
    """Wrong where the last decay is 0."""
    return _ch02_cases.scalar_matrix(a, b, c) * np.sign(a[-1])


def diagonal_of_seven_diagonals(A, B, C):
    return np.triu(matrices.ssm_matrix(A, B, C), -6)


def diagonal_of_five_numbers(A, B, C):
    return matrices.ssm_matrix(A[:, :5], B[:, :5], C[:, :5])


def diagonal_transposed_when_square(A, B, C):
    """Wrong where T = N."""
    return matrices.ssm_matrix(A.T if len(A) == A.shape[1] else A, B, C)


def diagonal_for_long_inputs_only(A, B, C):
    """Wrong where 1 < T < N."""
    return matrices.ssm_matrix(A, B, C) * (len(A) == 1 or len(A) >= A.shape[1])


def _without_full_resets(A):
    """Wrong where all numbers of the state are reset at once."""
    return np.where(np.all(A == 0, axis=1, keepdims=True), 1.0, A)


def diagonal_without_full_resets(A, B, C):
    return matrices.ssm_matrix(_without_full_resets(A), B, C)


# --- 2.4 cut_factors -----------------------------------------------------------------------------


def _through(A, k):
    """P[t] = A_t ... A_1 for t up to k."""
    P = [np.eye(A.shape[1])]
    for t in range(1, k + 1):
        P.append(A[t] @ P[-1])
    return P


def writing_by_inverses(A, B, C, k):
    """Wrong where a reset stands at the cut or before it."""
    P = _through(A, k)
    reading = _ch02_cases.cut_factors(A, B, C, k)[0]
    return reading, np.array([P[k] @ np.linalg.inv(P[s]) @ B[s] for s in range(k + 1)]).T


def writing_by_pseudo_inverses(A, B, C, k):
    P = _through(A, k)
    reading = _ch02_cases.cut_factors(A, B, C, k)[0]
    return reading, np.array([P[k] @ np.linalg.pinv(P[s]) @ B[s] for s in range(k + 1)]).T


def both_by_pseudo_inverses(A, B, C, k):
    P = _through(A, len(A) - 1)
    reading = np.array([C[t] @ P[t] @ np.linalg.pinv(P[k]) for t in range(k, len(A))])
    return reading, writing_by_pseudo_inverses(A, B, C, k)[1]


# --- 2.5 cut_ranks -------------------------------------------------------------------------------


def _counting(count):
    def cut_ranks(M, rtol):
        blocks = [M[k:, : k + 1] for k in range(len(M))]
        return np.array([count(b, np.linalg.svd(b, compute_uv=False), rtol) for b in blocks])

    return cut_ranks


def _above(bound):
    return _counting(lambda b, s, rtol: np.sum(s > bound(b, s, rtol)))


RANKS = [
    _above(lambda b, s, rtol: 1e-7 * s[0]),  # rtol ignored
    _above(lambda b, s, rtol: 1e-8 * s[0]),
    _above(lambda b, s, rtol: np.sqrt(rtol) * s[0]),  # squares compared with rtol itself
    _above(lambda b, s, rtol: rtol * np.linalg.norm(b)),
    _above(lambda b, s, rtol: rtol * np.sum(s)),
    _above(lambda b, s, rtol: rtol * s[0] * max(b.shape)),
    _above(lambda b, s, rtol: rtol * np.abs(b).max()),
    _counting(lambda b, s, rtol: min(4, np.sum(s > rtol * s[0]))),
]

# --- 2.6 semiseparable_matvec --------------------------------------------------------------------


def _window(size):
    """Only the last ``size`` tokens count: wrong where decays are near 1."""

    def semiseparable_matvec(A, B, C, x):
        term, y = B * x[:, None], np.zeros(len(x))
        for lag in range(min(size, len(x))):
            y[lag:] += np.sum(C[lag:] * term, axis=1)  # term[s]: what input s has left after lag steps
            term = A[lag + 1 :] * term[:-1]
        return y

    return semiseparable_matvec


def matvec_without_full_resets(A, B, C, x):
    return matrices.semiseparable_matvec(_without_full_resets(A), B, C, x)


def matvec_with_a_mask(A, B, C, x):
    """Right values; wrong only in the memory of one array of T x T booleans."""
    mask = np.tri(len(x), dtype=bool)
    return matrices.semiseparable_matvec(A, B, C, x) * mask[-1]


# --- 2.8 series ----------------------------------------------------------------------------------


def series_uncoupled_at_a_reset(A1, B1, C1, A2, B2, C2):
    """Wrong where the second system is reset: the first one still drives it."""
    A, B, C = _ch02_systems.chain(A1, B1, C1, A2, B2, C2)
    n = B1.shape[1]
    A[np.all(A2 == 0, axis=(1, 2)), n:, :n] = 0.0
    return A, B, C


def series_reversed_for_equal_sizes(A1, B1, C1, A2, B2, C2):
    """Wrong where both systems have 2 numbers."""
    if B1.shape[1] == B2.shape[1] == 2:
        return _ch02_systems.chain(A2, B2, C2, A1, B1, C1)
    return _ch02_systems.chain(A1, B1, C1, A2, B2, C2)


WRONG_ANSWERS = {
    "2.1": [segments_of_the_last_nine_decays],
    "2.2": [scalar_of_eight_tokens, scalar_with_a_last_reset_of_everything],
    "2.3": [
        diagonal_of_seven_diagonals,
        diagonal_of_five_numbers,
        diagonal_transposed_when_square,
        diagonal_for_long_inputs_only,
        diagonal_without_full_resets,
    ],
    "2.4": [writing_by_inverses, writing_by_pseudo_inverses, both_by_pseudo_inverses],
    "2.5": RANKS,
    "2.6": [_window(60), _window(300), matvec_without_full_resets, matvec_with_a_mask],
    "2.8": [series_uncoupled_at_a_reset, series_reversed_for_equal_sizes],
}
