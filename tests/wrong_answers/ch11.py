"""Wrong answers to chapter 11 that are right on most inputs, or look right."""

import numpy as np

from lineage_lib.exercises import _ch11_gates, _ch11_spectra, _ch11_steps


# 11.1
def kda_normalised(S, k, v, alpha, beta):
    """Wrong for keys of another length: the key is normalised."""
    return _ch11_steps.kda_oracle(S, k / np.linalg.norm(k), v, alpha, beta)


def kda_with_an_epsilon(S, k, v, alpha, beta):
    """Wrong where something depends on digits: the key is divided by its norm plus an epsilon."""
    return _ch11_steps.kda_oracle(S, k / (np.linalg.norm(k) + 1e-6), v, alpha, beta)


def kda_clipped_strength(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(S, k, v, alpha, min(beta, 1.0))


def kda_in_float32(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(*(np.asarray(z, dtype=np.float32) for z in (S, k, v, alpha)), np.float32(beta))


def kda_transposed_when_square(S, k, v, alpha, beta):
    new = _ch11_steps.kda_oracle(S, k, v, alpha, beta)
    return new.T if S.shape[0] == S.shape[1] else new


def kda_by_dividing_the_decay_out(S, k, v, alpha, beta):
    """NaN where a channel is cleared: what was written is divided by the decay, to multiply it afterwards."""
    with np.errstate(all="ignore"):
        return alpha[:, None] * (S + np.outer(beta * k / alpha, v - (alpha[:, None] * S).T @ k))


def kda_reset_leaks(S, k, v, alpha, beta):
    """A decay of 0 through its logarithm with a floor: a giant leaks through a reset."""
    return _ch11_steps.kda_oracle(S, k, v, np.exp(np.log(np.maximum(alpha, 1e-8))), beta)


def kda_in_place(S, k, v, alpha, beta):
    S *= alpha[:, None]
    S += beta * np.outer(k, v - S.T @ k)
    return S


def kda_signed_write(S, k, v, alpha, beta):
    faded = alpha[:, None] * S
    return faded - beta * np.outer(k, v - faded.T @ k)


def kda_gated_deltanet(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(S, k, v, np.full_like(alpha, alpha[0]), beta)


# 11.2
def five_without_z_in_the_order(S, k, v, alpha, b, w):
    """z before r, as the gates are made; the ask has r third."""
    faded, e, r, z, new = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, z, r, new


def five_state_alone(S, k, v, alpha, b, w):
    return _ch11_steps.five_oracle(S, k, v, alpha, b, w)[-1]


def five_gates_exchanged(S, k, v, alpha, b, w):
    """b on the value and w on the key; runs only where K = V."""
    return _ch11_steps.five_oracle(S, k, v, alpha, w, b)


def five_erase_scaled_by_alpha_twice(S, k, v, alpha, b, w):
    faded = alpha[:, None] * S
    e, z = b * k, w * v
    r = faded.T @ (alpha * e)
    return faded, e, r, z, faded + np.outer(k, z - r)


def five_with_a_normalised_erase_key(S, k, v, alpha, b, w):
    faded, e, z = alpha[:, None] * S, b * k, w * v
    e = e / max(np.linalg.norm(e), 1e-12)
    r = faded.T @ e
    return faded, e, r, z, faded + np.outer(k, z - r)


def five_new_state_transposed(S, k, v, alpha, b, w):
    *rest, new = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return *rest, new.T


def five_write_decayed(S, k, v, alpha, b, w):
    faded, e, r, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, r, z, faded - np.outer(k, r) + np.outer(alpha * k, z)


# 11.3
def stretch_left_out_first(K, alpha, b):
    """Wrong as soon as the first token does something: the loop starts at the second."""
    return _ch11_steps.stretch_oracle(K[1:], alpha[1:], b[1:])


def stretch_of_the_last_token(K, alpha, b):
    return _ch11_steps.stretch_oracle(K[-1:], alpha[-1:], b[-1:])


def stretch_decays_pulled_out(K, alpha, b):
    """Right for one decay a token: all decays are multiplied first and applied once."""
    return _ch11_steps.stretch_oracle(K, np.ones_like(alpha), b) @ np.diag(alpha.prod(axis=0))


def stretch_as_a_sum(K, alpha, b):
    """Right for orthogonal keys without decays: the erases are added up."""
    return np.diag(alpha.prod(axis=0)) - K.T @ (b * K)


def stretch_with_normalised_keys(K, alpha, b):
    return _ch11_steps.stretch_oracle(K / np.linalg.norm(K, axis=1, keepdims=True), alpha, b)


def stretch_decays_rounded(K, alpha, b):
    return _ch11_steps.stretch_oracle(K, np.round(alpha, 3), b)


# 11.4
def ledger_shapes_exchanged(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return w, b


def ledger_one_number_a_token(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return b[:, 0], w[:, 0]


def ledger_kinds_as_gates(kinds, K, V):
    return np.tile(kinds[:, None] % 2, (1, K)), np.tile(kinds[:, None] // 2, (1, V))


def ledger_always_open_write(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return b, np.ones_like(w)


def ledger_half_a_delete(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return np.where(kinds[:, None] == _ch11_gates.DELETE, 0.5, b), w


# 11.5
def gates_for_scalars(rule, alpha, beta, K, V):
    """Numbers where arrays with an entry for each channel are asked for."""
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays[0], b[0], w[0]


def gates_for_widths_exchanged(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, np.full(V, b[0]), np.full(K, w[0])


def gates_for_in_another_order(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return b, w, decays


def gates_for_without_gla(rule, alpha, beta, K, V):
    """GLA is not among the rules that add."""
    return _ch11_gates.rule_oracle("kda" if rule == "gla" else rule, alpha, beta, K, V)


def gates_for_the_mean_decay(rule, alpha, beta, K, V):
    return _ch11_gates.rule_oracle(rule, np.mean(alpha), beta, K, V)


def gates_for_gated_deltanet_undecayed(rule, alpha, beta, K, V):
    return _ch11_gates.rule_oracle("deltanet" if rule == "gated-deltanet" else rule, alpha, beta, K, V)


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


def log_decay_without_bias(z, a, bias):
    return _ch11_gates.decay_oracle(z, a, np.zeros_like(bias))


# 11.7
def bounded_decays(z, a, bias, lower):
    return np.exp(_ch11_gates.bounded_oracle(z, a, bias, lower))


def bounded_always_at_five(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(z, a, bias, -5.0)


def bounded_rates_along_channels(z, a, bias, lower):
    return lower / (1 + np.exp(-np.exp(a) * (z + bias)))


def bounded_softplus_under_tanh(z, a, bias, lower):
    """Runs to the same bound, and is no sigmoid of the argument."""
    return lower * np.tanh(_ch11_gates.decay_oracle(z, a, bias) / lower)


def bounded_with_clipped_argument(z, a, bias, lower):
    return _ch11_gates.bounded_oracle(np.clip(z, -1, 1), a, bias, lower)


# 11.8
def eigenvalues_absolute_transition(k, alpha, b):
    """The symmetric part has other eigenvalues than the matrix."""
    G = _ch11_spectra.transition(k, alpha, b)
    return np.linalg.eigvalsh((G + G.T) / 2)


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


def pair_keys_alone(K):
    return _ch11_spectra.pair_oracle(K)[0]


def pair_with_negative_gates(K):
    keys, b = _ch11_spectra.pair_oracle(K)
    return keys, b - 0.5


WRONG_ANSWERS = {
    "11.1": [
        kda_normalised,
        kda_with_an_epsilon,
        kda_clipped_strength,
        kda_in_float32,
        kda_transposed_when_square,
        kda_by_dividing_the_decay_out,
        kda_reset_leaks,
        kda_in_place,
        kda_signed_write,
        kda_gated_deltanet,
    ],
    "11.2": [
        five_without_z_in_the_order,
        five_state_alone,
        five_gates_exchanged,
        five_erase_scaled_by_alpha_twice,
        five_with_a_normalised_erase_key,
        five_new_state_transposed,
        five_write_decayed,
    ],
    "11.3": [
        stretch_left_out_first,
        stretch_of_the_last_token,
        stretch_decays_pulled_out,
        stretch_as_a_sum,
        stretch_with_normalised_keys,
        stretch_decays_rounded,
    ],
    "11.4": [
        ledger_shapes_exchanged,
        ledger_one_number_a_token,
        ledger_kinds_as_gates,
        ledger_always_open_write,
        ledger_half_a_delete,
    ],
    "11.5": [
        gates_for_scalars,
        gates_for_widths_exchanged,
        gates_for_in_another_order,
        gates_for_without_gla,
        gates_for_the_mean_decay,
        gates_for_gated_deltanet_undecayed,
    ],
    "11.6": [
        log_decay_clipped,
        log_decay_with_a_threshold,
        log_decay_as_relu,
        log_decay_rates_along_channels,
        log_decay_base_two,
        log_decay_without_bias,
    ],
    "11.7": [
        bounded_decays,
        bounded_always_at_five,
        bounded_rates_along_channels,
        bounded_softplus_under_tanh,
        bounded_with_clipped_argument,
    ],
    "11.8": [
        eigenvalues_absolute_transition,
        eigenvalues_clipped,
        eigenvalues_with_an_epsilon,
        eigenvalues_for_one_gate,
        eigenvalues_as_for_kda,
        eigenvalues_unsorted_diagonal,
    ],
    "11.9": [
        worst_gate_of_the_spectral_radius,
        worst_gate_greedy,
        worst_gate_of_the_frobenius_norm,
        worst_gate_of_positive_entries,
        worst_gate_out_of_range,
        worst_gate_one_number,
        worst_gate_single_channels,
    ],
    "11.10": [
        pair_of_long_keys,
        pair_with_gates_of_two,
        pair_in_two_channels_only,
        pair_at_the_edge,
        pair_keys_alone,
        pair_with_negative_gates,
    ],
}
