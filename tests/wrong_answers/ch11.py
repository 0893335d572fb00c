"""Wrong answers to chapter 11 that are right on most inputs, or look right: steps and gates."""

import numpy as np

from lineage_lib.exercises import _ch11_gates, _ch11_steps


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


def kda_decayed_write(S, k, v, alpha, beta):
    faded = alpha[:, None] * S
    return faded + beta * np.outer(alpha * k, v - faded.T @ k)


def kda_mean_decay(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(S, k, v, np.full_like(alpha, alpha.mean()), beta)


def kda_read_fades_twice(S, k, v, alpha, beta):
    faded = alpha[:, None] * S
    return faded + beta * np.outer(k, v - faded.T @ (alpha * k))


def kda_interpolated(S, k, v, alpha, beta):
    """Every row is weighed, as if the key were along all of them."""
    return (1 - beta) * alpha[:, None] * S + beta * np.outer(k, v)


def kda_projected(S, k, v, alpha, beta):
    """Right for keys of length 1: the read is divided by the square of the length."""
    faded = alpha[:, None] * S
    return faded + beta * np.outer(k, v - faded.T @ k / (k @ k))


def kda_long_keys_cut(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(S, k / max(1.0, np.linalg.norm(k)), v, alpha, beta)


def kda_gated_deltanet(S, k, v, alpha, beta):
    return _ch11_steps.kda_oracle(S, k, v, np.full_like(alpha, alpha[0]), beta)


def kda_short_keys_stretched(S, k, v, alpha, beta):
    """Right for keys of length 1 and above."""
    return _ch11_steps.kda_oracle(S, k / min(1.0, np.linalg.norm(k)), v, alpha, beta)


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


def five_decay_at_the_end(S, k, v, alpha, b, w):
    e, z = b * k, w * v
    r = S.T @ e
    return S, e, r, z, alpha[:, None] * (S + np.outer(k, z - r))


def five_decay_shown_and_not_used(S, k, v, alpha, b, w):
    faded, e, _, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    r = S.T @ e
    return faded, e, r, z, alpha[:, None] * (S + np.outer(k, z - r))


def five_gate_twice(S, k, v, alpha, b, w):
    faded, e, _, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    r = faded.T @ (b * e)
    return faded, e, r, z, faded + np.outer(k, z - r)


def five_read_of_the_new_state(S, k, v, alpha, b, w):
    faded, e, _, z, new = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, new.T @ e, z, new


def five_sum_of_read_and_write(S, k, v, alpha, b, w):
    faded, e, r, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, r, z, faded + np.outer(k, z + r)


def five_ungated_write(S, k, v, alpha, b, w):
    return _ch11_steps.five_oracle(S, k, v, alpha, b, np.ones_like(w))


def five_in_place(S, k, v, alpha, b, w):
    S *= alpha[:, None]
    e, z = b * k, w * v
    r = S.T @ e
    return S, e, r, z, S + np.outer(k, z - r)


def five_write_decayed(S, k, v, alpha, b, w):
    faded, e, r, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, r, z, faded - np.outer(k, r) + np.outer(alpha * k, z)


def five_gate_cut_off(S, k, v, alpha, b, w):
    return _ch11_steps.five_oracle(S, k, v, alpha, np.clip(b, 0, 1), w)


def five_short_keys_stretched(S, k, v, alpha, b, w):
    length = np.linalg.norm(k)
    return _ch11_steps.five_oracle(S, k / min(1.0, length) if length else k, v, alpha, b, w)


def five_fades_last(S, k, v, alpha, b, w):
    """The update fades as well."""
    faded, e, r, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, r, z, alpha[:, None] * (S + np.outer(k, z - r))


def five_outer_product_exchanged(S, k, v, alpha, b, w):
    """Runs only where K = V."""
    faded, e, r, z, _ = _ch11_steps.five_oracle(S, k, v, alpha, b, w)
    return faded, e, r, z, faded + np.outer(z - r, k)


# 11.3
def stretch_faded_on_both_sides(K, alpha, b):
    P = np.eye(K.shape[1])
    for k, fade, gate in zip(K, alpha, b):
        P = np.diag(fade) @ (np.eye(len(k)) - np.outer(k, gate * k)) @ np.diag(fade) @ P
    return P


def stretch_added(K, alpha, b):
    P = np.eye(K.shape[1])
    for k, fade, gate in zip(K, alpha, b):
        P = (np.eye(len(k)) + np.outer(k, gate * k)) @ np.diag(fade) @ P
    return P


def stretch_first_token_twice(K, alpha, b):
    """Starts with the first token's matrix, and loops over all tokens."""
    return _ch11_steps.stretch_oracle(K, alpha, b) @ _ch11_steps.stretch_oracle(K[:1], alpha[:1], b[:1])


def stretch_with_ratios_of_decays(K, alpha, b):
    """NaN after a reset: the decays are pulled out, and the keys divided by their product so far."""
    fade = np.cumprod(alpha, axis=0)
    with np.errstate(all="ignore"):
        P = np.eye(K.shape[1])
        for k, gate, f in zip(K, b, fade):
            P = (np.eye(len(k)) - np.outer(k / f, gate * k * f)) @ P
        return fade[-1][:, None] * P


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


def stretch_gate_cut_off(K, alpha, b):
    return _ch11_steps.stretch_oracle(K, alpha, np.clip(b, 0, 1))


def stretch_short_keys_stretched(K, alpha, b):
    return _ch11_steps.stretch_oracle(K / np.minimum(1, np.linalg.norm(K, axis=1, keepdims=True)), alpha, b)


def stretch_reset_leaks(K, alpha, b):
    """Decays through their logarithms, with an epsilon that lets a little pass a reset."""
    return _ch11_steps.stretch_oracle(K, np.exp(np.log(alpha + 1e-12)), b)


# 11.4
def ledger_shapes_exchanged(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return w, b


def ledger_one_gate(kinds, K, V):
    """Both gates open for everything but nothing."""
    b, w = _ch11_gates._ledger(kinds, K, V, erasing=(1, 2, 3), writing=(1, 2, 3))
    return b, w


def ledger_kinds_from_one(kinds, K, V):
    return _ch11_gates.ledger_oracle((kinds - 1) % 4, K, V)


def ledger_sigmoids(kinds, K, V):
    b, w = _ch11_gates.ledger_oracle(kinds, K, V)
    return np.clip(b, 1e-4, 1 - 1e-4), np.clip(w, 1e-4, 1 - 1e-4)


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


def gates_for_clipped(rule, alpha, beta, K, V):
    """Right up to beta = 1: gates are cut off at 1."""
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, b.clip(0, 1), w.clip(0, 1)


def gates_for_erase_clipped(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, b.clip(0, 1), w


def gates_for_write_clipped(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, b, w.clip(0, 1)


def gates_for_reflection_undone(rule, alpha, beta, K, V):
    """Right up to beta = 1, and folded back above."""
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, np.minimum(b, 2 - b), np.minimum(w, 2 - w)


def gates_for_convex_weights(rule, alpha, beta, K, V):
    decays, b, _ = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, b, 1 - np.full(V, b[0])


def gates_for_any_name_with_deltanet(rule, alpha, beta, K, V):
    return _ch11_gates.rule_oracle("gated-deltanet" if rule.endswith("deltanet") else rule, alpha, beta, K, V)


def gates_for_no_decay_as_zero(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return (0 * decays if rule in ("linear-attention", "deltanet") else decays), b, w


def gates_for_whole_numbers(rule, alpha, beta, K, V):
    decays, b, w = _ch11_gates.rule_oracle(rule, alpha, beta, K, V)
    return decays, b.astype(int), w.astype(int)


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
        kda_decayed_write,
        kda_mean_decay,
        kda_read_fades_twice,
        kda_interpolated,
        kda_projected,
        kda_long_keys_cut,
        kda_gated_deltanet,
        kda_short_keys_stretched,
    ],
    "11.2": [
        five_without_z_in_the_order,
        five_state_alone,
        five_gates_exchanged,
        five_erase_scaled_by_alpha_twice,
        five_with_a_normalised_erase_key,
        five_new_state_transposed,
        five_decay_at_the_end,
        five_decay_shown_and_not_used,
        five_gate_twice,
        five_read_of_the_new_state,
        five_sum_of_read_and_write,
        five_ungated_write,
        five_in_place,
        five_write_decayed,
        five_gate_cut_off,
        five_short_keys_stretched,
        five_fades_last,
        five_outer_product_exchanged,
    ],
    "11.3": [
        stretch_faded_on_both_sides,
        stretch_added,
        stretch_first_token_twice,
        stretch_with_ratios_of_decays,
        stretch_left_out_first,
        stretch_of_the_last_token,
        stretch_decays_pulled_out,
        stretch_as_a_sum,
        stretch_with_normalised_keys,
        stretch_decays_rounded,
        stretch_gate_cut_off,
        stretch_short_keys_stretched,
        stretch_reset_leaks,
    ],
    "11.4": [
        ledger_shapes_exchanged,
        ledger_one_gate,
        ledger_kinds_from_one,
        ledger_sigmoids,
        ledger_one_number_a_token,
        ledger_kinds_as_gates,
        ledger_always_open_write,
        ledger_half_a_delete,
    ],
    "11.5": [
        gates_for_scalars,
        gates_for_clipped,
        gates_for_erase_clipped,
        gates_for_write_clipped,
        gates_for_reflection_undone,
        gates_for_convex_weights,
        gates_for_any_name_with_deltanet,
        gates_for_no_decay_as_zero,
        gates_for_whole_numbers,
        gates_for_widths_exchanged,
        gates_for_in_another_order,
        gates_for_without_gla,
        gates_for_the_mean_decay,
        gates_for_gated_deltanet_undecayed,
    ],
}
