"""Wrong answers to chapter 07 that are right on most inputs."""

import numpy as np

from lineage_lib.exercises import _ch07_decays, _ch07_gates, _ch07_writes


# 7.1
def half_life_of_fast_decays(alpha):
    """Wrong near 1: 1 - alpha is all that is left of the logarithm's digits."""
    alpha = np.asarray(alpha, dtype=np.float32)
    return np.log(2) / np.abs(np.log(alpha.astype(float)))


def half_life_flat(alpha):
    """Wrong for a table: its shape is lost."""
    return _ch07_decays.half_life_oracle(alpha).ravel()


def half_life_without_zero(alpha):
    return np.log(2) / np.abs(np.log(np.asarray(alpha) + 1e-12))


# 7.2
def mamba2_clipped(x, dt_pre, dt_bias, A_log, B, C, D):
    """Wrong for a large step size: the argument of softplus is clipped, as to avoid an overflow."""
    return _ch07_decays.mamba2_oracle(x, np.minimum(dt_pre, 50), dt_bias, A_log, B, C, D)


def mamba2_with_a_floor(x, dt_pre, dt_bias, A_log, B, C, D):
    """Wrong for tiny steps: they are held above a floor."""
    dt = np.maximum(np.logaddexp(0, dt_pre + dt_bias), 0.03)
    return _ch07_decays.mamba2_oracle(x, np.log(np.expm1(np.minimum(dt, 700))), 0.0, A_log, B, C, D)


def mamba2_by_ratio(x, dt_pre, dt_bias, A_log, B, C, D):
    """Wrong over long stretches: cumulative products are divided by each other."""
    dt = np.logaddexp(0, dt_pre + dt_bias)
    products = np.cumprod(np.exp(-dt * np.exp(A_log)))
    return np.tril(products[:, None] / products * (C @ (dt[:, None] * B).T)) @ x + D * x


def mamba2_transposed_when_square(x, dt_pre, dt_bias, A_log, B, C, D):
    if x.shape[1] == B.shape[1]:
        x, B = B, x
    return _ch07_decays.mamba2_oracle(x, dt_pre, dt_bias, A_log, B, C, D)


def mamba2_step_in_the_write_only(x, dt_pre, dt_bias, A_log, B, C, D):
    dt = np.logaddexp(0, dt_pre + dt_bias)
    return _ch07_decays._mamba2(x, np.full_like(dt, np.exp(-np.exp(A_log))), dt, B, C, D)


def mamba2_without_softplus(x, dt_pre, dt_bias, A_log, B, C, D):
    return _ch07_decays._mamba2_with(step=lambda z, bias: z + bias)(x, dt_pre, dt_bias, A_log, B, C, D)


def mamba2_exponential_step(x, dt_pre, dt_bias, A_log, B, C, D):
    """Close to right for very small steps alone."""
    return _ch07_decays._mamba2_with(step=lambda z, bias: np.exp(z + bias))(x, dt_pre, dt_bias, A_log, B, C, D)


def mamba2_bias_after_softplus(x, dt_pre, dt_bias, A_log, B, C, D):
    """Wrong unless the bias is 0."""
    step = _ch07_decays._mamba2_with(step=lambda z, bias: np.logaddexp(0, z) + bias)
    return step(x, dt_pre, dt_bias, A_log, B, C, D)


# 7.3
def gla_mean_decay(Q, K, V, alpha):
    """Wrong unless all channels share a decay."""
    return _ch07_decays.gla_oracle(Q, K, V, np.repeat(alpha.mean(1, keepdims=True), K.shape[1], axis=1))


def gla_without_decay(Q, K, V, alpha):
    return _ch07_decays.gla_oracle(Q, K, V, np.ones_like(alpha))


def gla_by_clipped_ratio(Q, K, V, alpha):
    """Wrong after a reset, and where many decays multiply to nothing."""
    products = np.cumprod(np.maximum(alpha, 1e-6), axis=0)
    return np.tril((Q * products) @ (K / products).T) @ V


def gla_first_channel_when_equal(Q, K, V, alpha):
    """Wrong unless all channels share a decay."""
    return _ch07_decays.gla_oracle(Q, K, V, np.repeat(alpha[:, :1], K.shape[1], axis=1))


def gla_of_the_last_fifty(Q, K, V, alpha):
    """Wrong over long stretches of slow decays."""
    return np.stack([_ch07_decays.gla_oracle(*(z[max(0, t - 50) : t + 1] for z in (Q, K, V, alpha)))[-1]
                     for t in range(len(V))])  # fmt: skip


# 7.4
def rwkv6_first_token_in_full(R, K, V, alpha, u):
    """Wrong at the first token, which takes no bonus."""
    O = _ch07_decays.rwkv6_oracle(R, K, V, alpha, u)
    O[0] = (R[0] @ K[0]) * V[0]
    return O


def rwkv6_positive_bonus(R, K, V, alpha, u):
    return _ch07_decays.rwkv6_oracle(R, K, V, alpha, np.abs(u))


def rwkv6_mean_bonus(R, K, V, alpha, u):
    return _ch07_decays.rwkv6_oracle(R, K, V, alpha, np.full_like(u, u.mean()))


def rwkv6_decay_of_the_next_token(R, K, V, alpha, u):
    """Wrong unless the decays are constant."""
    return _ch07_decays.rwkv6_oracle(R, K, V, np.roll(alpha, -1, axis=0), u)


def rwkv6_swapped(R, K, V, alpha, u):
    return _ch07_decays.rwkv6_oracle(K, R, V, alpha, u)


# 7.5
def mlstm_clipped(Q, K, V, i_pre, f_pre):
    """Wrong where two loud tokens differ: the exponents are clipped."""
    return _ch07_gates.mlstm_oracle(Q, K, V, np.clip(i_pre, -600, 600), f_pre)


def mlstm_with_epsilon(Q, K, V, i_pre, f_pre):
    return _mlstm_dividing(Q, K, V, i_pre, f_pre, lambda top, nq, m: top / (max(abs(nq), np.exp(-m)) + 1e-6))


def mlstm_signed_denominator(Q, K, V, i_pre, f_pre):
    """Wrong where n · q is negative."""
    return _mlstm_dividing(Q, K, V, i_pre, f_pre, lambda top, nq, m: top / max(nq, np.exp(-m)))


def mlstm_undivided(Q, K, V, i_pre, f_pre):
    return _mlstm_dividing(Q, K, V, i_pre, f_pre, lambda top, nq, m: top)


def _mlstm_dividing(Q, K, V, i_pre, f_pre, divide):
    """The stabilised loop with another denominator."""
    S, n, m, H = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), 0.0, np.zeros(V.shape)
    for t in range(len(V)):
        kept = m - np.logaddexp(0, -f_pre[t])
        m = max(kept, i_pre[t])
        f, i = np.exp(kept - m), np.exp(i_pre[t] - m)
        S, n = f * S + i * np.outer(K[t], V[t]), f * n + i * K[t]
        H[t] = divide(S.T @ Q[t], n @ Q[t], m)
    return H


def mlstm_started_far_above(Q, K, V, i_pre, f_pre):
    return _ch07_gates._mlstm(Q, K, V, i_pre, f_pre, m=1e4)


def mlstm_scaled(Q, K, V, i_pre, f_pre):
    """Wrong wherever the floor acts: the scale does not cancel against it."""
    return _ch07_gates.mlstm_oracle(Q * K.shape[1] ** -0.5, K, V, i_pre, f_pre)


def mlstm_without_floor(Q, K, V, i_pre, f_pre):
    return _mlstm_dividing(Q, K, V, i_pre, f_pre, lambda top, nq, m: top / abs(nq))


def mlstm_naive_log_sigmoid(Q, K, V, i_pre, f_pre):
    """Wrong where the sigmoid underflows: its logarithm is minus infinity."""
    return _ch07_gates._mlstm(Q, K, V, i_pre, f_pre, log_forget=lambda z: np.log(1 / (1 + np.exp(-z))))


def mlstm_forget_gate_not_squashed(Q, K, V, i_pre, f_pre):
    return _ch07_gates._mlstm(Q, K, V, i_pre, f_pre, log_forget=lambda z: z)


def mlstm_sigmoid_input_gate(Q, K, V, i_pre, f_pre):
    return _ch07_gates.mlstm_unstabilised(Q, K, V, -np.logaddexp(0, -i_pre), f_pre)


# 7.6
def rg_lru_in_factors(x, r, i, Lambda):
    """Wrong where a rounds to 1: (1 - a) (1 + a) is no better than 1 - a²."""
    return _ch07_gates._rg_lru(x, r, i, Lambda, scale=lambda log_a: np.sqrt((1 - np.exp(log_a)) * (1 + np.exp(log_a))))


def rg_lru_with_epsilon(x, r, i, Lambda):
    return _ch07_gates._rg_lru(x, r, i, Lambda, scale=lambda log_a: np.sqrt(np.maximum(1 - np.exp(2 * log_a), 1e-6)))


def rg_lru_root_of_one_minus_a(x, r, i, Lambda):
    return _ch07_gates._rg_lru(x, r, i, Lambda, scale=lambda log_a: np.sqrt(1 - np.exp(log_a)))


def rg_lru_without_input_gate(x, r, i, Lambda):
    return _ch07_gates.rg_lru_oracle(x, r, np.ones_like(i), Lambda)


def rg_lru_without_recurrence_gate(x, r, i, Lambda):
    return _ch07_gates.rg_lru_oracle(x, np.ones_like(r), i, Lambda)


def rg_lru_write_decayed(x, r, i, Lambda):
    """The new input is multiplied by a as well."""
    a = np.exp(-8 * np.logaddexp(0, Lambda) * r)
    return _ch07_gates.rg_lru_oracle(x, r, i * np.vstack([np.ones_like(a[:1]), a[1:]]), Lambda)


def rg_lru_first_token_ungated(x, r, i, Lambda):
    H, extra = _ch07_gates.rg_lru_oracle(x, r, i, Lambda), (1 - i[0]) * x[0]
    for t, a in enumerate(np.exp(-8 * np.logaddexp(0, Lambda) * r)):
        extra = a * extra if t else extra
        H[t] += extra
    return H


# 7.7
def template_normalised(S, k, v, g, b, w):
    """Wrong for keys of another length than 1."""
    return _ch07_writes.template_oracle(S, k / np.linalg.norm(k), v, g, b, w)


def template_mean_gates(S, k, v, g, b, w):
    """Wrong where the gates differ between channels."""
    return _ch07_writes.template_oracle(S, k, v, g, np.full_like(b, b.mean()), np.full_like(w, w.mean()))


def template_b_for_both(S, k, v, g, b, w):
    return _ch07_writes.template_oracle(S, k, v, g, b, np.full_like(w, b[0]))


def template_gates_ignored(S, k, v, g, b, w):
    return _ch07_writes.template_oracle(S, k, v, g, np.ones_like(b), np.ones_like(w))


def template_written_then_erased(S, k, v, g, b, w):
    """The new value is written first and then partly erased."""
    written = np.exp(g)[:, None] * S + np.outer(k, w * v)
    return written - np.outer(k, written.T @ (b * k))


def template_finite_decays(S, k, v, g, b, w):
    return _ch07_writes.template_oracle(S, k, v, np.maximum(g, -5), b, w)


# 7.8
def turn_back_two_pairs(Z, theta):
    """Wrong from the third pair on."""
    out = Z.copy()
    out[:, :4] = _ch07_writes.turn_back_oracle(Z[:, :4], theta[:, :2])
    return out


def turn_back_by_the_first_pair(Z, theta):
    return _ch07_writes.turn_back_oracle(Z, np.repeat(theta[:, :1], theta.shape[1], axis=1))


def turn_back_with_two_minus_signs(Z, theta):
    """No rotation: both sines have a minus."""
    phi, out = np.cumsum(theta, axis=0), np.empty(Z.shape)
    out[:, 0::2] = np.cos(phi) * Z[:, 0::2] - np.sin(phi) * Z[:, 1::2]
    out[:, 1::2] = np.cos(phi) * Z[:, 1::2] - np.sin(phi) * Z[:, 0::2]
    return out


def turn_back_in_single_precision(Z, theta):
    phi = np.cumsum(theta.astype(np.float32), axis=0)
    return _ch07_writes._turned(Z, -phi)


# 7.9
def trapezoid_earlier_key_with_this_value(X, dt, A, lam, B, C):
    earlier = lambda t: np.outer(B[t - 1], X[t]) if t else 0.0  # noqa: E731
    return _ch07_writes._trapezoid(X, dt, A, lam, B, C, earlier=earlier)


def trapezoid_without_step_size(X, dt, A, lam, B, C):
    """Wrong unless all steps are 1: the step size sets the decay alone."""
    weights = {"before": lambda t, a: (1 - lam[t]) * a, "now": lambda t, a: lam[t]}
    return _ch07_writes._trapezoid(X, dt, A, lam, B, C, **weights)


def trapezoid_without_state(X, dt, A, lam, B, C):
    """Wrong beyond two tokens."""
    Y = np.zeros(X.shape)
    for t in range(len(X)):
        S = lam[t] * dt[t] * np.outer(B[t], X[t])
        if t:
            S += np.exp(dt[t] * A[t]) * dt[t] * np.outer(B[t - 1], X[t - 1])
        Y[t] = S.T @ C[t]
    return Y


WRONG_ANSWERS = {
    "7.1": [half_life_of_fast_decays, half_life_flat, half_life_without_zero],
    "7.2": [
        mamba2_clipped,
        mamba2_with_a_floor,
        mamba2_by_ratio,
        mamba2_transposed_when_square,
        mamba2_step_in_the_write_only,
        mamba2_without_softplus,
        mamba2_exponential_step,
        mamba2_bias_after_softplus,
    ],
    "7.3": [
        gla_by_clipped_ratio,
        gla_first_channel_when_equal,
        gla_of_the_last_fifty,
        gla_mean_decay,
        gla_without_decay,
    ],
    "7.4": [
        rwkv6_first_token_in_full,
        rwkv6_positive_bonus,
        rwkv6_mean_bonus,
        rwkv6_decay_of_the_next_token,
        rwkv6_swapped,
    ],
    "7.5": [
        mlstm_clipped,
        mlstm_with_epsilon,
        mlstm_started_far_above,
        mlstm_scaled,
        mlstm_without_floor,
        mlstm_naive_log_sigmoid,
        mlstm_signed_denominator,
        mlstm_undivided,
        mlstm_forget_gate_not_squashed,
        mlstm_sigmoid_input_gate,
    ],
    "7.6": [
        rg_lru_in_factors,
        rg_lru_with_epsilon,
        rg_lru_first_token_ungated,
        rg_lru_root_of_one_minus_a,
        rg_lru_without_input_gate,
        rg_lru_without_recurrence_gate,
        rg_lru_write_decayed,
    ],
    "7.7": [
        template_normalised,
        template_mean_gates,
        template_b_for_both,
        template_gates_ignored,
        template_written_then_erased,
        template_finite_decays,
    ],
    "7.8": [
        turn_back_two_pairs,
        turn_back_by_the_first_pair,
        turn_back_with_two_minus_signs,
        turn_back_in_single_precision,
    ],
    "7.9": [trapezoid_earlier_key_with_this_value, trapezoid_without_step_size, trapezoid_without_state],
}
