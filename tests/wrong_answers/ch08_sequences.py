"""Wrong answers to chapter 08 that are right on most inputs: sequences, expectations, solvers (8.6 to 8.10)."""

import numpy as np

from lineage_lib.exercises import _ch08_gates, _ch08_steps, _ch08_streams, _ch08_views

delta, gated = _ch08_steps.delta_oracle, _ch08_gates.gated_oracle
sequence, skip, expected = _ch08_gates.sequence_oracle, _ch08_streams.skip_oracle, _ch08_streams.expected_oracle
implicit, ridge = _ch08_views.implicit_oracle, _ch08_views.ridge_oracle


# 8.6
def sequence_last_state_forgotten(Q, K, V, alpha, beta, S0):
    O, _ = sequence(Q, K, V, alpha, beta, S0)
    return O, S0


def sequence_state_before_last(Q, K, V, alpha, beta, S0):
    O, _ = sequence(Q, K, V, alpha, beta, S0)
    return O, sequence(Q[:-1], K[:-1], V[:-1], alpha[:-1], beta[:-1], S0)[1]


def sequence_start_not_faded(Q, K, V, alpha, beta, S0):
    return sequence(Q, K, V, np.append(1.0, alpha[1:]), beta, S0)


def sequence_start_not_corrected(Q, K, V, alpha, beta, S0):
    """The start is carried along as an additive memory would, past the corrections."""
    O, S = sequence(Q, K, V, alpha, beta, np.zeros_like(S0))
    left = np.cumprod(alpha)
    return O + left[:, None] * (Q @ S0), S + left[-1] * S0


def sequence_normalised_keys(Q, K, V, alpha, beta, S0):
    keys = K / np.linalg.norm(K, axis=1, keepdims=True)
    return sequence(Q, keys, V, alpha, beta, S0)


def sequence_normalised_queries(Q, K, V, alpha, beta, S0):
    queries = Q / np.maximum(np.linalg.norm(Q, axis=1, keepdims=True), 1e-12)
    return sequence(queries, K, V, alpha, beta, S0)


def sequence_clipped_beta(Q, K, V, alpha, beta, S0):
    return sequence(Q, K, V, alpha, np.minimum(beta, 1.0), S0)


def sequence_one_beta(Q, K, V, alpha, beta, S0):
    return sequence(Q, K, V, alpha, np.full_like(beta, beta[0]), S0)


def sequence_floor(Q, K, V, alpha, beta, S0):
    """Wrong at resets."""
    return sequence(Q, K, V, np.maximum(alpha, 1e-8), beta, S0)


def sequence_by_ratios(Q, K, V, alpha, beta, S0):
    """Cumulative products divided by each other: wrong after a reset, and where they underflow."""
    g = np.cumprod(alpha)
    A = np.tril(beta[:, None] * (g[:, None] / g) * (K @ K.T), -1)
    U = np.linalg.solve(np.eye(len(V)) + A, beta[:, None] * (V - g[:, None] * (K @ S0)))
    O = g[:, None] * (Q @ S0) + np.tril((g[:, None] / g) * (Q @ K.T)) @ U
    return O, g[-1] * S0 + (K * (g[-1] / g)[:, None]).T @ U


def sequence_swapped(Q, K, V, alpha, beta, S0):
    return sequence(K, Q, V, alpha, beta, S0)


def sequence_in_place(Q, K, V, alpha, beta, S0):
    """The caller's S0 is overwritten."""
    O = np.zeros(V.shape)
    for t in range(len(V)):
        S0 *= alpha[t]
        S0 += beta[t] * np.outer(K[t], V[t] - S0.T @ K[t])
        O[t] = S0.T @ Q[t]
    return O, S0


def sequence_decay_one_token_late(Q, K, V, alpha, beta, S0):
    return sequence(Q, K, V, np.append(1.0, alpha[:-1]), beta, S0)


def sequence_outputs_alone(Q, K, V, alpha, beta, S0):
    return sequence(Q, K, V, alpha, beta, S0)[0]


def sequence_with(step):
    """A loop over tokens with another step."""

    def with_another_step(Q, K, V, alpha, beta, S0):
        return _ch08_gates._sequence(step)(Q, K, V, alpha, beta, S0)

    return with_another_step


STEPS = (
    lambda S, k, v, a, b: S + np.outer(k, v),
    lambda S, k, v, a, b: a * S + np.outer(k, v),
    lambda S, k, v, a, b: S + b * np.outer(k, v - a * (S.T @ k)),  # the decay in the error only
    lambda S, k, v, a, b: a * S + a * b * np.outer(k, v - a * (S.T @ k)),
    lambda S, k, v, a, b: a * S + np.outer(k, b * v - a * (S.T @ k)),
    lambda S, k, v, a, b: a * S + np.outer(k, v - b * a * (S.T @ k)),
    lambda S, k, v, a, b: gated(S, k, v, a, 1.0),
    lambda S, k, v, a, b: gated(S, k, v, np.exp(a), b),
    lambda S, k, v, a, b: gated(S, k, v, b, a),
    lambda S, k, v, a, b: gated(S, k, v, a, -b),
    lambda S, k, v, a, b: gated(S, k, v, min(a, 0.995), b),
    lambda S, k, v, a, b: gated(S, k, v, a, b or 1.0),
    lambda S, k, v, a, b: gated(S, k, v, a, b) if b else S,
    lambda S, k, v, a, b: gated(S, k, v, a, b) if k.any() else S,
)


def sequence_state_transposed(Q, K, V, alpha, beta, S0):
    O, S = sequence(Q, K, V, alpha, beta, S0)
    return O, S.T


def sequence_outputs_over_values(Q, K, V, alpha, beta, S0):
    """Right, but the outputs are written into the caller's V."""
    S = S0
    for t in range(len(V)):
        S = gated(S, K[t], V[t], alpha[t], beta[t])
        V[t] = S.T @ Q[t]
    return V, S


# 8.7
def expected_of_the_last(t, p, alpha):
    """One token count for all."""
    return np.full(len(t), expected(t[-1:], p, alpha)[0])


def expected_mean_age(t, p, alpha):
    """The error at the mean age; right for alpha = 1 and p = 1."""
    age = (1 - p) / p
    return 1 - alpha ** np.minimum(age, t - 1)


def expected_uniform_ages(t, p, alpha):
    return np.array([1 - np.mean(alpha ** np.arange(n)) for n in t])


def expected_short_series(t, p, alpha):
    """A series cut after twenty terms."""
    return expected(np.minimum(t, 20.0), p, alpha)


def expected_cut_at(terms):
    """ "Enough terms": with p = 0.01 and a slow decay older writes still count."""

    def cut(t, p, alpha):
        return expected(np.minimum(t, terms), p, alpha)

    return cut


def expected_denominator_with_epsilon(t, p, alpha):
    r = 1 - p
    return 1 - (1 - (r * alpha) ** t) / (1 - r * alpha + 1e-8) / ((1 - r**t) / (p + 1e-8))


def expected_one_token_more_above(t, p, alpha):
    """t + 1 terms in one sum and t in the other."""
    r = 1 - p
    return 1 - p * (1 - (r * alpha) ** (t + 1)) / (1 - r * alpha) / (1 - r**t)


def expected_with_eight_names(t, p, alpha):
    return expected(t, 0.125, alpha)


def expected_squared(t, p, alpha):
    r = 1 - p

    def moment(x):
        return p / (1 - r * x) * (1 - (r * x) ** t) / (1 - r**t)

    return 1 - 2 * moment(alpha) + moment(alpha**2)


# 8.8
def skip_by_zero_values(K, V, alpha, beta, keep):
    """A skipped token writes 0 under its key, and so erases there."""
    return skip(K, V * keep[:, None], np.where(keep, alpha, 1.0), beta, np.ones_like(keep))


def skip_by_zero_keys(K, V, alpha, beta, keep):
    return skip(K * keep[:, None], V, alpha, beta, np.ones_like(keep))


def skip_dropping_rows(K, V, alpha, beta, keep):
    return skip(K, V, alpha, beta, keep)[keep] if keep.any() else skip(K, V, alpha, beta, keep)


def skip_with_late_decay(K, V, alpha, beta, keep):
    """Decays of skipped tokens are made up for at the next kept one."""
    alpha, owed = alpha.copy(), 1.0
    for t in range(len(K)):
        owed *= alpha[t]
        if keep[t]:
            alpha[t], owed = owed, 1.0
    return skip(K, V, alpha, beta, keep)


def skip_stops_at_the_first(K, V, alpha, beta, keep):
    return skip(K, V, alpha, beta, np.cumprod(keep).astype(bool))


def skip_nothing(K, V, alpha, beta, keep):
    return skip(K, V, alpha, beta, np.ones_like(keep))


def skip_additive(K, V, alpha, beta, keep):
    S, states = np.zeros((K.shape[1], V.shape[1])), []
    for t in range(len(K)):
        S = alpha[t] * S + beta[t] * np.outer(K[t], V[t]) if keep[t] else S
        states.append(S)
    return np.array(states)


def skip_gates_changed(K, V, alpha, beta, keep):
    """Right, but the caller's gates are changed."""
    alpha[~keep], beta[~keep] = 1.0, 0.0
    return skip(K, V, alpha, beta, np.ones_like(keep))


def skip_last_state_alone(K, V, alpha, beta, keep):
    return skip(K, V, alpha, beta, keep)[-1]


def skip_with_weak_writes(K, V, alpha, beta, keep):
    return skip(K, V, np.where(keep, alpha, 1.0), np.where(keep, beta, 1e-3), np.ones_like(keep))


def skip_weak_tokens(K, V, alpha, beta, keep):
    """A kept token of strength 0 is taken for a skipped one, and does not fade."""
    return skip(K, V, alpha, beta, keep & (beta > 0))


def skip_zero_strength_as_one(K, V, alpha, beta, keep):
    return skip(K, V, alpha, np.where(beta == 0, 1.0, beta), keep)


def skip_never_without_decay(K, V, alpha, beta, keep):
    return skip(K, V, np.minimum(alpha, 0.995), beta, keep)


def skip_zero_keys(K, V, alpha, beta, keep):
    """A key of zeros is taken for padding, and does not fade."""
    return skip(K, V, alpha, beta, keep & K.any(axis=1))


def skip_states_before(K, V, alpha, beta, keep):
    states = skip(K, V, alpha, beta, keep)
    return np.concatenate([np.zeros_like(states[:1]), states[:-1]])


def skip_with(step):
    """The right gates with another step."""

    def with_another_step(K, V, alpha, beta, keep):
        return _ch08_streams._skipping(_ch08_streams._gates, step)(K, V, alpha, beta, keep)

    return with_another_step


# 8.9
def implicit_normalised(S, k, v, beta):
    norm = np.linalg.norm(k)
    return implicit(S, k / norm if norm else k, v, beta)


def implicit_epsilon_on_the_write_only(S, k, v, beta):
    return S + np.outer(k, beta / (1 + beta * (k @ k)) * v - beta * (S.T @ k))


def implicit_diagonal(S, k, v, beta):
    """As a layer with a decay for each entry does it: right for keys along an axis."""
    epsilon = beta / (1 + beta * (k @ k))
    return (1 - epsilon * k[:, None] ** 2) * S + epsilon * np.outer(k, v)


def implicit_clipped(S, k, v, beta):
    """Wrong for a large beta."""
    return implicit(S, k, v, min(beta, 100.0))


def implicit_minus(S, k, v, beta):
    return delta(S, k, v, beta / (1 - beta * (k @ k) + 1e-12))


def implicit_replaces(S, k, v, beta):
    """The limit of large beta."""
    return delta(S, k, v, 1 / max(k @ k, 1e-300))


def implicit_gated(S, k, v, beta):
    """The old state shrinks as well."""
    return delta(S / (1 + beta * (k @ k)), k, v, beta / (1 + beta * (k @ k)))


def implicit_two_beta(S, k, v, beta):
    """The factor ½ of the loss forgotten."""
    return implicit(S, k, v, 2 * beta)


# 8.10
def ridge_normalised_keys(K, V, q, lam):
    return ridge(K / np.linalg.norm(K, axis=1, keepdims=True), V, q, lam)


def ridge_of_the_keys(K, V, q, lam):
    """Divides by the sum of scores, as a normaliser does."""
    return (K.T @ V).T @ q / (np.abs(K @ q).sum() + lam)


def ridge_tiny(K, V, q, lam):
    return ridge(K, V, q, 1e-8)


def ridge_newest_pair(K, V, q, lam):
    return ridge(K[-1:], V[-1:], q, lam)


def ridge_solved_twice(K, V, q, lam):
    A = K.T @ K + lam * np.eye(K.shape[1])
    return (K.T @ V).T @ np.linalg.solve(A, np.linalg.solve(A, q))


def ridge_with_jitter(K, V, q, lam):
    return ridge(K, V, q, lam + 1e-4)


def ridge_forgotten_by_inverse(K, V, q, lam):
    """Singular where there are fewer pairs than key channels."""
    return (K.T @ V).T @ np.linalg.inv(K.T @ K) @ q


def ridge_forgotten_state_first(K, V, q, lam):
    return np.linalg.solve(K.T @ K, K.T @ V).T @ q


def ridge_forgotten_in_lstsq(K, V, q, lam):
    return np.linalg.lstsq(K, V, rcond=None)[0].T @ q


def ridge_everywhere_by_solve(K, V, q, lam):
    return (K.T @ V).T @ np.linalg.solve(K.T @ K + lam, q)


def ridge_capped(K, V, q, lam):
    return ridge(K, V, q, min(lam, 60.0))


def ridge_query_overwritten(K, V, q, lam):
    """Right, but the caller's q is changed."""
    answer = ridge(K, V, q, lam)
    q *= 2
    return answer


def ridge_by_few_iterations(K, V, q, lam):
    """Two iterations of conjugate gradients: exact for K up to 2."""
    A, x, r = K.T @ K + lam * np.eye(K.shape[1]), np.zeros(len(q)), q.copy()
    p = r
    for _ in range(2):
        if not r.any():
            break
        a = r @ r / (p @ A @ p)
        x, new = x + a * p, r - a * (A @ p)
        p, r = new + (new @ new) / (r @ r) * p, new
    return (K.T @ V).T @ x


WRONG_ANSWERS = {
    "8.6": [
        sequence_last_state_forgotten,
        sequence_state_before_last,
        sequence_start_not_faded,
        sequence_start_not_corrected,
        sequence_normalised_keys,
        sequence_normalised_queries,
        sequence_clipped_beta,
        sequence_one_beta,
        sequence_floor,
        sequence_by_ratios,
        sequence_swapped,
        sequence_in_place,
        sequence_decay_one_token_late,
        sequence_outputs_alone,
        sequence_state_transposed,
        sequence_outputs_over_values,
        *map(sequence_with, STEPS),
    ],
    "8.7": [
        expected_of_the_last,
        expected_mean_age,
        expected_uniform_ages,
        expected_short_series,
        *map(expected_cut_at, (300, 400, 500, 700, 1000, 1500, 2000)),
        expected_denominator_with_epsilon,
        expected_one_token_more_above,
        expected_with_eight_names,
        expected_squared,
    ],
    "8.8": [
        skip_by_zero_values,
        skip_by_zero_keys,
        skip_dropping_rows,
        skip_with_late_decay,
        skip_stops_at_the_first,
        skip_nothing,
        skip_additive,
        skip_gates_changed,
        skip_last_state_alone,
        skip_with_weak_writes,
        skip_weak_tokens,
        skip_zero_strength_as_one,
        skip_never_without_decay,
        skip_zero_keys,
        skip_states_before,
        *map(skip_with, STEPS),
    ],
    "8.9": [
        implicit_normalised,
        implicit_clipped,
        implicit_minus,
        implicit_replaces,
        implicit_gated,
        implicit_two_beta,
        implicit_epsilon_on_the_write_only,
        implicit_diagonal,
    ],
    "8.10": [
        ridge_normalised_keys,
        ridge_of_the_keys,
        ridge_tiny,
        ridge_newest_pair,
        ridge_solved_twice,
        ridge_with_jitter,
        ridge_by_few_iterations,
        ridge_forgotten_by_inverse,
        ridge_forgotten_state_first,
        ridge_forgotten_in_lstsq,
        ridge_everywhere_by_solve,
        ridge_capped,
        ridge_query_overwritten,
    ],
}
