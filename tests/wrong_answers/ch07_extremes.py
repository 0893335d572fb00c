"""Wrong answers to chapter 07 that only small keys, long stretches, resets in a row or large numbers give away."""

import numpy as np

from lineage_lib.exercises import _ch07_decays, _ch07_gates, _ch07_writes


# 7.1
def half_life_linear_below_a_quarter(alpha):
    """Wrong for decays between 0 and 1/4: a straight line from 0 to the half-life of 1/4."""
    alpha = np.asarray(alpha)
    return np.where(alpha < 0.25, 2 * alpha, _ch07_decays.half_life_oracle(np.maximum(alpha, 1e-9)))


def half_life_above_a_tenth(alpha):
    alpha = np.asarray(alpha)
    return np.where(alpha < 0.09, 0.0, _ch07_decays.half_life_oracle(np.maximum(alpha, 1e-9)))


def half_life_of_tables(alpha):
    """Wrong with three axes: the last two are joined."""
    steps = _ch07_decays.half_life_oracle(alpha)
    return steps if steps.ndim < 3 else steps.reshape(len(steps), -1)


# 7.2
def _mamba2_stepping(step, clip=lambda A_log: A_log):
    def answer(x, dt_pre, dt_bias, A_log, B, C, D):
        dt = step(dt_pre + dt_bias)
        return _ch07_decays._mamba2(x, np.exp(-dt * np.exp(clip(A_log))), dt, B, C, D)

    return answer


def mamba2_softplus_in_branches(*args):
    """Wrong below z = -37: log(1 + exp(z)) is 0 there."""
    return _mamba2_stepping(lambda z: np.where(z > 30, z, np.log(1 + np.exp(np.minimum(z, 30)))))(*args)


def mamba2_no_steps_below_minus_twenty(*args):
    return _mamba2_stepping(lambda z: np.where(z < -20, 0.0, np.logaddexp(0, z)))(*args)


def mamba2_with_a_tiny_floor(*args):
    return _mamba2_stepping(lambda z: np.maximum(np.logaddexp(0, z), 1e-9))(*args)


def mamba2_without_slow_rates(*args):
    return _mamba2_stepping(lambda z: np.logaddexp(0, z), lambda A_log: np.clip(A_log, -3, 3))(*args)


# 7.3, 7.4, 7.9: an additive rule in one go, by a ratio of cumulative products, or by its last tokens
def _by_ratio(Q, K, V, alpha, floor, chunk):
    """The state before each chunk, and inside it keys divided by products of decays held above a floor."""
    S, out = np.zeros((K.shape[1], V.shape[1])), np.zeros(V.shape)
    for start in range(0, len(V), chunk):
        part = slice(start, start + chunk)
        products = np.cumprod(np.maximum(alpha[part], floor), axis=0)
        scaled = K[part] / products
        out[part] = (Q[part] * products) @ S + np.tril((Q[part] * products) @ scaled.T) @ V[part]
        S = products[-1][:, None] * (S + scaled.T @ V[part])
    return out


def _of_the_last(count, rule, *streams):
    """rule(*streams) on the last ``count`` tokens before each."""
    return np.stack([rule(*(z[max(0, t + 1 - count) : t + 1] for z in streams))[-1] for t in range(len(streams[0]))])


def gla_by_ratio_above_a_floor(Q, K, V, alpha):
    return _by_ratio(Q, K, V, alpha, 1e-30, len(V))


def gla_in_chunks_by_ratio(Q, K, V, alpha):
    """Wrong where a chunk holds many resets, or one after a huge value."""
    return _by_ratio(Q, K, V, alpha, 1e-30, 8)


def gla_in_chunks_by_ratio_above_a_floor(Q, K, V, alpha):
    return _by_ratio(Q, K, V, alpha, 1e-10, 8)


def gla_of_the_last_hundred(Q, K, V, alpha):
    return _of_the_last(100, _ch07_decays.gla_oracle, Q, K, V, alpha)


def _rwkv6_from_gla(gla):
    """RWKV-6 from an additive rule: all of it one token late, and the bonus."""

    def answer(R, K, V, alpha, u):
        late = np.vstack([np.ones_like(alpha[:1]), alpha[:-1]])
        keys = np.vstack([np.zeros_like(K[:1]), K[:-1]])
        values = np.vstack([np.zeros_like(V[:1]), V[:-1]])
        return gla(R, keys, values, late) + (R * u * K).sum(1)[:, None] * V

    return answer


def rwkv6_by_ratio(R, K, V, alpha, u):
    return _rwkv6_from_gla(lambda *args: _by_ratio(*args, 1e-30, len(V)))(R, K, V, alpha, u)


def rwkv6_in_chunks_by_ratio(R, K, V, alpha, u):
    return _rwkv6_from_gla(lambda *args: _by_ratio(*args, 1e-30, 8))(R, K, V, alpha, u)


def rwkv6_of_the_last_seventeen(R, K, V, alpha, u):
    return _of_the_last(17, lambda *part: _ch07_decays.rwkv6_oracle(*part, u), R, K, V, alpha)


# 7.5
def _with_floor(floor):
    def answer(*args):
        return _ch07_gates._mlstm(*args, floor=lambda m, new: floor(new))

    return answer


def mlstm_floor_below_two(*args):
    """Wrong where a faint key meets a maximum above 2."""
    return _with_floor(lambda m: np.exp(-m) if m < 2 else 0.0)(*args)


def mlstm_floor_at_least_a_tenth(*args):
    return _with_floor(lambda m: max(np.exp(-m), 0.1))(*args)


def mlstm_floor_at_least_a_hundredth(*args):
    return _with_floor(lambda m: max(np.exp(-m), 1e-2))(*args)


def mlstm_floor_at_least_a_millionth(*args):
    return _with_floor(lambda m: max(np.exp(-m), 1e-6))(*args)


def mlstm_floor_of_a_clipped_maximum(*args):
    return _with_floor(lambda m: np.exp(-min(m, 10)))(*args)


def mlstm_floor_of_one_below_minus_three(*args):
    return _with_floor(lambda m: 1.0 if m < -3 else np.exp(-m))(*args)


def mlstm_floor_above_minus_three_hundred(*args):
    return _with_floor(lambda m: np.exp(-max(m, -300)))(*args)


def mlstm_started_at_seven_hundred(*args):
    return _ch07_gates._mlstm(*args, m=700.0)


def mlstm_started_at_three_hundred(*args):
    return _ch07_gates._mlstm(*args, m=300.0)


def _dividing(Q, K, V, i_pre, f_pre, divide):
    S, n, m, O = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), 0.0, np.zeros(V.shape)
    for t in range(len(V)):
        kept = m - np.logaddexp(0, -f_pre[t])
        m = max(kept, i_pre[t])
        f, i = np.exp(kept - m), np.exp(i_pre[t] - m)
        S, n = f * S + i * np.outer(K[t], V[t]), f * n + i * K[t]
        O[t] = divide(S.T @ Q[t], n @ Q[t], m)
    return O


def mlstm_with_a_tiny_epsilon(*args):
    return _dividing(*args, lambda top, nq, m: top / (max(abs(nq), np.exp(-m)) + 1e-12))


def mlstm_signed_when_loud(*args):
    """Wrong for a negative denominator above a maximum of 300."""
    return _dividing(*args, lambda top, nq, m: top / max(abs(nq) if m < 300 else nq, np.exp(-m)))


def mlstm_plain_in_long_doubles(Q, K, V, i_pre, f_pre):
    """Wrong where long doubles overflow too, at about exp(11356); where they are doubles, earlier."""
    wide = [np.asarray(z, dtype=np.longdouble) for z in (Q, K, V, i_pre, f_pre)]
    S, n = np.zeros((K.shape[1], V.shape[1]), np.longdouble), np.zeros(K.shape[1], np.longdouble)
    O = np.zeros(V.shape)
    for t, (q, k, v, i, f) in enumerate(zip(*wide)):
        f, i = 1 / (1 + np.exp(-f)), np.exp(i)
        S, n = f * S + i * np.outer(k, v), f * n + i * k
        O[t] = S.T @ q / max(abs(n @ q), 1.0)
    return O


# 7.6
def rg_lru_softplus_by_logarithm(x, r, i, Lambda):
    """Wrong for a very slow channel, and for a very fast one that holds."""
    return _ch07_gates._rg_lru(x, r, i, Lambda, rate=np.log(1 + np.exp(Lambda)))


def rg_lru_softplus_overflowing(x, r, i, Lambda):
    return _ch07_gates._rg_lru(x, r, i, Lambda, rate=np.log1p(np.exp(Lambda)))


def rg_lru_clipped(x, r, i, Lambda):
    return _ch07_gates.rg_lru_oracle(x, r, i, np.clip(Lambda, -10, 10))


def rg_lru_special_case_for_one(x, r, i, Lambda):
    """Wrong where a rounds to 1 and r is not 1e-17."""

    def scale(log_a):
        a = np.exp(log_a)
        nearly = np.sqrt(16e-17 * np.logaddexp(0, Lambda)) * (r > 0)
        return np.where(a == 1, nearly, np.sqrt(-np.expm1(2 * log_a)))

    return _ch07_gates._rg_lru(x, r, i, Lambda, scale=scale)


def rg_lru_by_running_product(x, r, i, Lambda):
    """Wrong where the product of all decays underflows."""
    log_a = -8 * np.logaddexp(0, Lambda) * r
    u = np.sqrt(-np.expm1(2 * log_a)) * i * x
    u[0] = i[0] * x[0]
    products = np.cumprod(np.vstack([np.ones_like(u[:1]), np.exp(log_a[1:])]), axis=0)
    return products * np.cumsum(u / products, axis=0)


# 7.7
def template_normalised_unless_zero(S, k, v, g, b, w):
    length = np.linalg.norm(k)
    return _ch07_writes.template_oracle(S, k / length if length else k, v, g, b, w)


def template_short_keys_normalised(S, k, v, g, b, w):
    """Wrong for keys shorter than 1."""
    return _ch07_writes.template_oracle(S, k / min(np.linalg.norm(k), 1.0), v, g, b, w)


def template_direction_of_a_zero_key(S, k, v, g, b, w):
    """Wrong for a key of zeros, which becomes NaN; right for all others."""
    length = np.linalg.norm(k)
    return _ch07_writes.template_oracle(S, k / length * length, v, g, b, w)


def template_erase_up_to_one(S, k, v, g, b, w):
    return _ch07_writes.template_oracle(S, k, v, g, np.clip(b, 0, 1), w)


def template_write_up_to_one(S, k, v, g, b, w):
    return _ch07_writes.template_oracle(S, k, v, g, b, np.clip(w, 0, 1))


def template_finite_decays_clipped(S, k, v, g, b, w):
    """Wrong for a decay of exp(-8): a clear is a clear, and all else stays above exp(-5)."""
    return _ch07_writes.template_oracle(S, k, v, np.where(np.isinf(g), g, np.maximum(g, -5)), b, w)


# 7.8
def turn_back_at_most_a_quarter(Z, theta):
    return _ch07_writes.turn_back_oracle(Z, np.clip(theta, -np.pi / 2, np.pi / 2))


def turn_back_at_most_half(Z, theta):
    return _ch07_writes.turn_back_oracle(Z, np.clip(theta, -np.pi, np.pi))


# 7.9
def trapezoid_by_ratio(X, dt, A, lam, B, C):
    """Wrong after several resets: decays that are held above exp(-300) multiply to nothing."""
    total = np.exp(np.cumsum(np.maximum(dt * A, -300)))
    M = np.tril(total[:, None] / total) * (C @ (lam * dt * B.T))
    if len(X) > 1:
        late = ((1 - lam) * dt)[1:] * np.exp(np.maximum(dt * A, -300))[1:]
        M[:, :-1] += np.tril(total[:, None] / total)[:, 1:] * (C @ (late * B[:-1].T))
    return M @ X


def trapezoid_of_the_last_thirteen(*streams):
    return _of_the_last(13, _ch07_writes.trapezoid_oracle, *streams)


def trapezoid_never_holding(X, dt, A, lam, B, C):
    return _ch07_writes.trapezoid_oracle(X, dt, np.minimum(A, -0.2), lam, B, C)


def trapezoid_steps_up_to_one(X, dt, A, lam, B, C):
    return _ch07_writes.trapezoid_oracle(X, np.minimum(dt, 1), A, lam, B, C)


WRONG_ANSWERS = {
    "7.1": [half_life_linear_below_a_quarter, half_life_above_a_tenth, half_life_of_tables],
    "7.2": [
        mamba2_softplus_in_branches,
        mamba2_no_steps_below_minus_twenty,
        mamba2_with_a_tiny_floor,
        mamba2_without_slow_rates,
    ],
    "7.3": [
        gla_by_ratio_above_a_floor,
        gla_in_chunks_by_ratio,
        gla_in_chunks_by_ratio_above_a_floor,
        gla_of_the_last_hundred,
    ],
    "7.4": [rwkv6_by_ratio, rwkv6_in_chunks_by_ratio, rwkv6_of_the_last_seventeen],
    "7.5": [
        mlstm_floor_below_two,
        mlstm_floor_at_least_a_tenth,
        mlstm_floor_at_least_a_hundredth,
        mlstm_floor_at_least_a_millionth,
        mlstm_floor_of_a_clipped_maximum,
        mlstm_floor_of_one_below_minus_three,
        mlstm_floor_above_minus_three_hundred,
        mlstm_with_a_tiny_epsilon,
        mlstm_signed_when_loud,
        mlstm_started_at_seven_hundred,
        mlstm_started_at_three_hundred,
        mlstm_plain_in_long_doubles,
    ],
    "7.6": [
        rg_lru_softplus_by_logarithm,
        rg_lru_softplus_overflowing,
        rg_lru_clipped,
        rg_lru_special_case_for_one,
        rg_lru_by_running_product,
    ],
    "7.7": [
        template_normalised_unless_zero,
        template_short_keys_normalised,
        template_direction_of_a_zero_key,
        template_erase_up_to_one,
        template_write_up_to_one,
        template_finite_decays_clipped,
    ],
    "7.8": [turn_back_at_most_a_quarter, turn_back_at_most_half],
    "7.9": [
        trapezoid_by_ratio,
        trapezoid_of_the_last_thirteen,
        trapezoid_never_holding,
        trapezoid_steps_up_to_one,
    ],
}
