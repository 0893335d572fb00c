"""Wrong answers to chapter 11 that are right on most inputs, or look right: decays, eigenvalues and norms."""

import numpy as np

from lineage_lib.exercises import _ch11_gates, _ch11_spectra


# 11.6
def log_decay_clipped(z, a, bias):
    return -np.exp(a)[:, None] * np.logaddexp(0, np.clip(z + bias, -20, 20))


def log_decay_with_a_threshold(z, a, bias):
    """Loses its digits far to the left: 1 + exp(x) is rounded before the logarithm."""
    x = z + bias
    return -np.exp(a)[:, None] * np.where(x > 20, x, np.log(1 + np.exp(np.minimum(x, 20))))


def log_decay_as_relu(z, a, bias):
    return -np.exp(a)[:, None] * np.maximum(z + bias, 0)


def log_decay_rates_along_channels(z, a, bias):
    """Wrong unless heads and channels are as many: the rate lies along the channels."""
    return -np.exp(a) * np.logaddexp(0, z + bias)


def log_decay_base_two(z, a, bias):
    return _ch11_gates.decay_oracle(z, a, bias) / np.log(2)


def log_decay_of_the_decay(z, a, bias):
    """Minus infinity where the decay underflows."""
    with np.errstate(all="ignore"):
        return np.log(np.exp(_ch11_gates.decay_oracle(z, a, bias)))


def log_decay_with_nan_to_num(z, a, bias):
    with np.errstate(all="ignore"):
        return np.nan_to_num(-np.exp(a)[:, None] * np.log1p(np.exp(z + bias)))


def log_decay_as_sigmoid(z, a, bias):
    return -np.exp(a)[:, None] * np.exp(-np.logaddexp(0, -(z + bias)))


def log_decay_slowed(z, a, bias):
    return -np.exp(-a)[:, None] * np.logaddexp(0, z + bias)


def log_decay_bounded(z, a, bias):
    return np.maximum(_ch11_gates.decay_oracle(z, a, bias), -5.0)


def log_decay_without_bias(z, a, bias):
    return _ch11_gates.decay_oracle(z, a, np.zeros_like(bias))


def log_decay_bias_outside(z, a, bias):
    return -np.exp(a)[:, None] * (np.logaddexp(0, z) + bias)


def log_decay_rate_cut_off(z, a, bias):
    return _ch11_gates.decay_oracle(z, np.maximum(a, -4), bias)


def log_decay_rate_times_z(z, a, bias):
    return -np.logaddexp(0, np.exp(a)[:, None] * z + bias)


def log_decay_of_an_underflown_sigmoid(z, a, bias):
    with np.errstate(all="ignore"):
        return np.exp(a)[:, None] * np.log(1 / (1 + np.exp(z + bias)))


def log_decay_infinite_above_700(z, a, bias):
    return -np.exp(a)[:, None] * np.where(z + bias > 700, np.inf, np.logaddexp(0, z + bias))


def log_decay_of_one_minus_sigmoid(z, a, bias):
    with np.errstate(all="ignore"):
        return np.exp(a)[:, None] * np.log1p(-1 / (1 + np.exp(-(z + bias))))


def log_decay_shifted(z, a, bias):
    """A shifted log-sum-exp, which rounds 1 + exp(x) on the left."""
    x = z + bias
    top = np.maximum(x, 0)
    return -np.exp(a)[:, None] * (top + np.log(np.exp(-top) + np.exp(x - top)))


# 11.7
def bounded_decays(z, a, bias, lower):
    return np.exp(_ch11_gates.bounded_oracle(z, a, bias, lower))


def bounded_always_at_five(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, a, bias, -5.0)


def bounded_with_nan_to_num(z, a, bias, lower):
    x = np.exp(a)[:, None] * (z + bias)
    with np.errstate(all="ignore"):
        return np.nan_to_num(lower * np.exp(x) / (1 + np.exp(x)))


def bounded_by_a_whole_tanh(z, a, bias, lower):
    return lower * np.tanh(np.exp(a)[:, None] * (z + bias))


def bounded_in_the_first_heads_rate(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, np.full_like(a, a[0]), bias, lower)


def bounded_rates_along_channels(z, a, bias, lower):
    return lower / (1 + np.exp(-np.exp(a) * (z + bias)))


def bounded_softplus_under_tanh(z, a, bias, lower):
    """Runs to the same bound, and is no sigmoid of the argument."""
    return lower * np.tanh(_ch11_gates.decay_oracle(z, a, bias) / lower)


def bounded_with_clipped_argument(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(np.clip(z, -1, 1), a, bias, lower)


def bounded_with_z_cut_off_at_15(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(np.clip(z, -15, 15), a, bias, lower)


def bounded_with_z_cut_off_at_100(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(np.clip(z, -100, 100), a, bias, lower)


def bounded_with_z_cut_off_above(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(np.minimum(z, 100), a, bias, lower)


def bounded_with_the_rate_cut_off(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, np.clip(a, -2, 5), bias, lower)


def bounded_with_the_rate_at_most_e5(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, np.minimum(a, 5), bias, lower)


def bounded_with_the_rate_at_least_e_minus_4(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, np.maximum(a, -4), bias, lower)


# 11.8
def eigenvalues_absolute_transition(k, alpha, b):
    """The symmetric part has other eigenvalues than the matrix."""
    G = _ch11_spectra.transition(k, alpha, b)
    return np.linalg.eigvalsh((G + G.T) / 2)


def eigenvalues_of_the_upper_triangle(k, alpha, b):
    return np.linalg.eigvalsh(_ch11_spectra.transition(k, alpha, b), UPLO="U")


def eigenvalues_of_the_stale_transition(k, alpha, b):
    return np.sort(np.linalg.eigvals(np.diag(alpha) - np.outer(k, b * k)).real)


def eigenvalues_root_of_the_gate_alone(k, alpha, b):
    u = k * np.sqrt(b) * alpha
    return np.linalg.eigvalsh(np.diag(alpha) - np.outer(u, u))


def eigenvalues_by_dividing_by_the_roots(k, alpha, b):
    """Fails where a channel is cleared or not consulted: 1 / 0."""
    root = np.sqrt(b * alpha)
    with np.errstate(all="ignore"):
        return np.linalg.eigvalsh(_ch11_spectra.transition(k, alpha, b) * root[:, None] / root)


def eigenvalues_from_the_determinant(k, alpha, b):
    """All decays but the smallest, and what the determinant leaves for the last."""
    ascending = np.sort(alpha)
    return np.append((1 - b @ k**2) * ascending[0], ascending[1:])


def eigenvalues_clipped(k, alpha, b):
    return np.clip(_ch11_spectra.eigenvalue_oracle(k, alpha, b), 0, alpha.min())


def eigenvalues_with_an_epsilon(k, alpha, b):
    u = k * np.sqrt(b * alpha + 1e-6)
    return np.linalg.eigvalsh(np.diag(alpha) - np.outer(u, u))


def eigenvalues_for_one_gate(k, alpha, b):
    return _ch11_spectra.eigenvalue_oracle(k, alpha, np.full_like(b, b.mean()))


def eigenvalues_as_for_kda(k, alpha, b):
    return np.linalg.eigvalsh(np.diag(alpha) - np.outer(np.sqrt(alpha) * k, np.sqrt(alpha) * k))


def eigenvalues_unsorted_diagonal(k, alpha, b):
    """The diagonal of the transition, which is right without an erase."""
    return np.sort(np.diag(_ch11_spectra.transition(k, alpha, b)))


def eigenvalues_of_the_polynomial(k, alpha, b):
    """Loses half of the digits, or more, where eigenvalues coincide."""
    return np.sort(np.roots(np.poly(_ch11_spectra.transition(k, alpha, b))).real)


def eigenvalues_complex(k, alpha, b):
    return _ch11_spectra.eigenvalue_oracle(k, alpha, b) + 0j


def eigenvalues_without_decay(k, alpha, b):
    return np.sort(np.linalg.eigvals(np.eye(len(k)) - np.outer(k, b * k)).real)


def singular_values_by_the_square(k, alpha, b):
    G = _ch11_spectra.transition(k, alpha, b)
    return np.sqrt(np.linalg.eigvalsh(G.T @ G).clip(0))


# 11.9
def worst_gate_of_the_spectral_radius(k):
    return _ch11_spectra._best_corner(k, lambda b: np.abs(np.linalg.eigvals(_ch11_spectra.transition(k, 1.0, b))).max())


def worst_gate_greedy(k):
    """Opens channels from the smallest up until they hold a third: misses the best subset."""
    order = np.argsort(k**2)
    b = np.zeros(len(k))
    for i in order:
        if np.sum(b * k**2) + k[i] ** 2 <= 1 / 3 + 1e-12:
            b[i] = 1.0
    return b


def worst_gate_of_the_frobenius_norm(k):
    return _ch11_spectra._best_corner(k, lambda b: np.linalg.norm(_ch11_spectra.transition(k, 1.0, b)))


def worst_gate_by_prefixes(k):
    """Opens the smallest channels, however many are best."""
    order, singles = np.argsort(np.abs(k)), [np.zeros(len(k))]
    for n in range(1, len(k)):
        singles.append(np.isin(np.arange(len(k)), order[:n]).astype(float))
    return max(singles, key=lambda b: np.linalg.norm(_ch11_spectra.transition(k, 1.0, b), ord=2))


def worst_gate_one_shut(k):
    shut = [1 - row for row in np.eye(len(k))]
    return max(shut, key=lambda b: np.linalg.norm(_ch11_spectra.transition(k, 1.0, b), ord=2))


def worst_gate_of_both_sides(k):
    return _ch11_spectra._best_corner(
        k, lambda b: np.linalg.norm(np.eye(len(k)) - np.outer(b * k, b * k), ord=2) if b.any() else 0.0
    )


def worst_gate_a_third(k):
    return np.full(len(k), 1 / 3)


def worst_gate_below_a_third(k):
    return (k**2 <= 1 / 3).astype(float)


def worst_gate_of_positive_entries(k):
    return (k > 0).astype(float)


def worst_gate_out_of_range(k):
    return 2 * _ch11_spectra.gate_oracle(k)


def worst_gate_one_number(k):
    return 1.0


def worst_gate_single_channels(k):
    """Tries one open channel at a time."""
    singles = [*np.eye(len(k)), np.zeros(len(k))]
    return max(singles, key=lambda b: np.linalg.norm(_ch11_spectra.transition(k, 1.0, b), ord=2))


def worst_gate_complex(k):
    return _ch11_spectra.gate_oracle(k) + 0j


def worst_gate_slightly_out_of_range(k):
    return _ch11_spectra.gate_oracle(k) - 1e-6


# 11.10
def pair_of_long_keys(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return 1.2 * keys, b


def pair_with_gates_of_two(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys, 2 * b


def pair_in_two_channels_only(K):
    return _ch11_spectra.pair_oracle(2)


def pair_at_the_edge(K):
    """Grows by 9 % a token only."""
    return _ch11_spectra._pair(K, 0.2)


def pair_nearly_small_enough(K):
    """Grows by 9.6 % a token only."""
    return _ch11_spectra._pair(K, 0.55)


def pair_nearly_large_enough(K):
    """Grows by 9.7 % a token only."""
    return _ch11_spectra._pair(K, 0.25)


def pair_with_one_token(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys[[0, 0]], b[[0, 0]]


def pair_with_one_key(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys[[0, 0]], b


def pair_with_shut_gates(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys, 0 * b


def pair_with_keys_along_channels(K):
    return np.eye(2, K), np.eye(2, K)


def pair_exchanged(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return b, keys


def pair_of_nothing(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return np.full_like(keys, np.nan), b


def pair_keys_alone(K):
    return _ch11_spectra.pair_oracle(K)[0]


def pair_with_negative_gates(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys, b - 0.5


def pair_complex(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys + 0j, b


def pair_rounded(K):
    """Keys rounded to three digits, of length 1.00002."""
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys.round(3), b


WRONG_ANSWERS = {
    "11.6": [
        log_decay_clipped,
        log_decay_with_a_threshold,
        log_decay_as_relu,
        log_decay_rates_along_channels,
        log_decay_base_two,
        log_decay_of_the_decay,
        log_decay_with_nan_to_num,
        log_decay_as_sigmoid,
        log_decay_slowed,
        log_decay_bounded,
        log_decay_without_bias,
        log_decay_bias_outside,
        log_decay_rate_cut_off,
        log_decay_rate_times_z,
        log_decay_of_an_underflown_sigmoid,
        log_decay_infinite_above_700,
        log_decay_of_one_minus_sigmoid,
        log_decay_shifted,
    ],
    "11.7": [
        bounded_decays,
        bounded_always_at_five,
        bounded_with_nan_to_num,
        bounded_by_a_whole_tanh,
        bounded_in_the_first_heads_rate,
        bounded_rates_along_channels,
        bounded_softplus_under_tanh,
        bounded_with_clipped_argument,
        bounded_with_z_cut_off_at_15,
        bounded_with_z_cut_off_at_100,
        bounded_with_z_cut_off_above,
        bounded_with_the_rate_cut_off,
        bounded_with_the_rate_at_most_e5,
        bounded_with_the_rate_at_least_e_minus_4,
    ],
    "11.8": [
        eigenvalues_absolute_transition,
        eigenvalues_of_the_upper_triangle,
        eigenvalues_of_the_stale_transition,
        eigenvalues_root_of_the_gate_alone,
        eigenvalues_by_dividing_by_the_roots,
        eigenvalues_from_the_determinant,
        eigenvalues_clipped,
        eigenvalues_with_an_epsilon,
        eigenvalues_for_one_gate,
        eigenvalues_as_for_kda,
        eigenvalues_unsorted_diagonal,
        eigenvalues_of_the_polynomial,
        eigenvalues_complex,
        eigenvalues_without_decay,
        singular_values_by_the_square,
    ],
    "11.9": [
        worst_gate_of_the_spectral_radius,
        worst_gate_greedy,
        worst_gate_of_the_frobenius_norm,
        worst_gate_by_prefixes,
        worst_gate_one_shut,
        worst_gate_of_both_sides,
        worst_gate_a_third,
        worst_gate_below_a_third,
        worst_gate_of_positive_entries,
        worst_gate_out_of_range,
        worst_gate_one_number,
        worst_gate_single_channels,
        worst_gate_complex,
        worst_gate_slightly_out_of_range,
    ],
    "11.10": [
        pair_of_long_keys,
        pair_with_gates_of_two,
        pair_in_two_channels_only,
        pair_at_the_edge,
        pair_nearly_small_enough,
        pair_nearly_large_enough,
        pair_with_one_token,
        pair_with_one_key,
        pair_with_shut_gates,
        pair_with_keys_along_channels,
        pair_exchanged,
        pair_of_nothing,
        pair_keys_alone,
        pair_with_negative_gates,
        pair_complex,
        pair_rounded,
    ],
}
