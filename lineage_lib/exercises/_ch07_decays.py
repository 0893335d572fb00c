"""Chapter 07, first part: decays that are fixed, set by a step size, gated by channel, read late (7.1 to 7.4)."""

import numpy as np

from lineage_lib import reference
from lineage_lib.exercises.record import Case, Exercise, Mistake

FADING = "the product of all decays underflows to 0"
QUERY_SCALED = (
    "the query was multiplied by one over the root of K, the library's default scale; the equation has no such factor"
)


def draw_qkv(rng, T, K, V):
    """Queries, keys and values of a random head; one key comes back."""
    Q, keys, values = (rng.standard_normal((T, width)) for width in (K, K, V))
    if T > 3:
        keys[3] = keys[1]
    return Q, keys, values


# --- 7.1 half-lives -----------------------------------------------------------------------------


def half_life_oracle(alpha):
    alpha = np.asarray(alpha, dtype=float)
    return np.where(alpha == 1, np.inf, np.log(2) / -np.log(np.where(alpha == 1, 0.5, alpha)))


def _half_life_cases(rng):
    return [
        Case((np.array([0.5, 0.25]),), "half is left after one step, after half a step"),
        Case((np.array([0.9]),), ""),
        Case((1 - 2.0 ** -(5 + np.arange(8)),), "the eight heads of RetNet on the page"),
        Case((np.array([0.8, 1.0, 0.6]),), "alpha[1] = 1: never"),
        Case((np.array([0.7, 0.0]),), "alpha[1] = 0: at once"),
        Case((rng.uniform(0.1, 0.99, (3, 2)),), "a table of decays"),
        Case((np.array([1 - 1e-6]),), "nearly 1"),
        Case((10.0 ** rng.uniform(-6, -1, (2, 1, 3)),), "three axes, decays near 0"),
    ]


HALF_LIFE = Exercise(
    id="7.1",
    name="half_life",
    title="steps until half is left",
    points=1,
    minutes=4,
    difficulty="warm-up",
    returns=("steps",),
    cases=_half_life_cases,
    oracle=half_life_oracle,
    mistakes=(
        Mistake(
            "e-folding",
            "this is the time after which 1/e is left, 37 %; half is left earlier, by the factor ln 2",
            lambda alpha: 1 / np.abs(np.log(alpha)),
        ),
        Mistake(
            "mean-lifetime",
            "this is 1 / (1 - alpha), the sum of all that is left over time; the half-life solves alpha ** n = 1/2",
            lambda alpha: 1 / (1 - np.asarray(alpha)),
        ),
        Mistake(
            "linear-approximation",
            "ln alpha was replaced by alpha - 1, which is close near 1 only; take the logarithm itself",
            lambda alpha: np.log(2) / (1 - np.asarray(alpha)),
        ),
        Mistake(
            "upside-down",
            "this is how many times it halves in one step; asked is how many steps one halving takes",
            lambda alpha: np.abs(np.log2(alpha)),
        ),
        Mistake(
            "negative",
            "the sign is wrong: ln alpha is negative, and a number of steps is not",
            lambda alpha: np.log(2) / np.log(alpha),
        ),
        Mistake(
            "minus-infinity",
            "for alpha = 1 this is minus infinity, since 0 with a minus sign is still 0 to divide by; "
            "what never fades has the half-life plus infinity",
            lambda alpha: np.log(2) / -np.log(alpha),
        ),
        Mistake(
            "whole-steps",
            "the steps were rounded up; the ask is the solution n of alpha ** n = 1/2, which need not be whole",
            lambda alpha: np.ceil(half_life_oracle(alpha)),
        ),
    ),
    hints=(
        "Multiply the decay by itself that many times and you must have one half: `alpha ** n` is 0.5.",
        "Take the logarithm of both sides and solve for n. Which of the two logarithms is negative?",
        "n is the logarithm of one half over the logarithm of the decay, and both are negative or zero.",
        "At `alpha = 1` the quotient divides by zero and its sign is an accident: `np.abs` or `np.where` settles it.",
    ),
)


# --- 7.2 the step size --------------------------------------------------------------------------


def _mamba2_cases(rng):
    def head(T, K, V, *, dt_pre=None, dt_bias=-0.5, A_log=0.3, D=1.5):
        C, B, x = draw_qkv(rng, T, K, V)
        dt_pre = rng.standard_normal(T) if dt_pre is None else dt_pre
        return x, dt_pre, dt_bias, A_log, B, C, D

    one = np.ones((2, 1))
    even = np.log(np.expm1(np.ones(2)))  # softplus of this is 1
    mixed = rng.standard_normal(8)
    mixed[[2, 5]] = -60.0, 800.0
    faint = head(5, 2, 3, dt_pre=np.array([-60.0, -27.0, 0.4, 1.1, -0.3]), dt_bias=0.0, A_log=-6.0, D=0.0)
    faint[0][0], faint[0][1] = 1e27, 1e12
    return [
        Case((3 * one, even, 0.0, np.log(np.log(2.0)), one, one, 0.0), "by hand: both steps 1, decay 1/2"),
        Case(head(1, 2, 3), "T = 1: the decay does not show, the step size does"),
        Case(head(6, 1, 3, A_log=-1.0), "K = 1"),
        Case(head(6, 4, 4, D=0.0), "K = V, no skip"),
        Case(head(7, 3, 2, D=0.0, dt_bias=0.0), "no skip, no bias"),
        Case(head(9, 3, 5, A_log=1.2, dt_bias=-2.0, D=-0.7), "a fast head"),
        Case(head(8, 2, 3, dt_pre=mixed), "dt_pre[2] = -60 skips the token, dt_pre[5] = 800 clears the state"),
        Case(head(300, 2, 3, dt_pre=rng.uniform(-7, -5, 300), A_log=-2.0), "300 tokens with small steps"),
        Case(head(300, 3, 2, A_log=2.0), f"300 tokens; {FADING}"),
        Case(faint, "dt_pre[0] = -60 and an input of 1e27: a tiny step, and yet it shows; A_log = -6: a slow head"),
    ]


def _softplus(z):
    return np.logaddexp(0.0, z)


def _mamba2(x, decay, write, B, C, D):
    Y, _ = reference.ssd_recurrent(np.asarray(write)[:, None] * x, decay, B, C)
    return Y + D * x


def mamba2_oracle(x, dt_pre, dt_bias, A_log, B, C, D):
    dt = _softplus(dt_pre + dt_bias)
    return _mamba2(x, np.exp(-dt * np.exp(A_log)), dt, B, C, D)


def _mamba2_with(step=None, decay=None, write=None):
    """The layer with another step size, decay or factor of the write."""
    step = step or (lambda z, bias: _softplus(z + bias))
    decay = decay or (lambda dt, A_log: np.exp(-dt * np.exp(A_log)))
    write = write or (lambda dt, A_log: dt)

    def answer(x, dt_pre, dt_bias, A_log, B, C, D):
        dt = step(dt_pre, dt_bias)
        S, Y = np.zeros((B.shape[1], x.shape[1])), np.zeros(x.shape)
        a, w = decay(dt, A_log), write(dt, A_log)
        for t in range(len(x)):
            S = a[t] * S + w[t] * np.outer(B[t], x[t])
            Y[t] = S.T @ C[t] + D * x[t]
        return Y

    return answer


MAMBA2 = Exercise(
    id="7.2",
    name="mamba2_recurrent",
    title="the step size acts twice",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("Y[t, v]",),
    cases=_mamba2_cases,
    oracle=mamba2_oracle,
    mistakes=(
        Mistake(
            "write-without-step",
            "the step size is missing from the write; it sets the decay and multiplies B xᵀ as well",
            _mamba2_with(write=lambda dt, A_log: np.ones_like(dt)),
        ),
        Mistake(
            "log-not-undone",
            "A_log was used as the rate itself; it is the rate's logarithm, so that the rate stays positive",
            _mamba2_with(decay=lambda dt, A_log: np.exp(-dt * A_log)),
        ),
        Mistake(
            "zero-order-hold",
            "the write was multiplied by (1 - a) / e^A_log, the zero-order hold of the Mamba paper; "
            "the layers multiply by the step size",
            _mamba2_with(write=lambda dt, A_log: -np.expm1(-dt * np.exp(A_log)) / np.exp(A_log)),
        ),
        Mistake(
            "no-skip",
            "the term D x_t is missing from the output",
            lambda x, dt_pre, dt_bias, A_log, B, C, D: mamba2_oracle(x, dt_pre, dt_bias, A_log, B, C, 0.0),
        ),
        Mistake(
            "softplus-overflow",
            "log(1 + exp(z)) is infinite above z = 709, and 0 below z = -37; np.logaddexp(0, z) is the same function "
            "without that",
            _mamba2_with(step=lambda z, bias: np.log(1 + np.exp(z + bias))),
        ),
        Mistake(
            "growing",
            "the exponent of the decay is positive, so the state grows; it is minus the step size times the rate",
            _mamba2_with(decay=lambda dt, A_log: np.exp(dt * np.exp(A_log))),
        ),
        Mistake(
            "bias-forgotten",
            "dt_bias was not used; it is added to dt_pre before the softplus",
            lambda x, dt_pre, dt_bias, A_log, B, C, D: mamba2_oracle(x, dt_pre, 0.0, A_log, B, C, D),
        ),
        Mistake(
            "query-scaled",
            QUERY_SCALED,
            lambda x, dt_pre, dt_bias, A_log, B, C, D: mamba2_oracle(
                x, dt_pre, dt_bias, A_log, B, C * C.shape[1] ** -0.5, D
            ),
        ),
    ),
    hints=(
        "With one token the output is the step size times `C · B` times the input, plus `D` times the input.",
        "First the step sizes of all tokens, then the decays of all tokens, then the loop.",
        "The decay is `exp` of minus the step size times the rate, and `A_log` is the logarithm of the rate. The same "
        "step size multiplies what is written.",
        "Softplus without overflow is NumPy's `logaddexp` of zero and its argument; the bias is inside the argument.",
    ),
)

# --- 7.3 a decay for each key channel -----------------------------------------------------------


def _channel_cases(rng):
    def gated(T, K, V, *, alpha=None, resets=()):
        alpha = rng.uniform(0.5, 1.0, (T, K)) if alpha is None else alpha
        for index in resets:
            alpha[index] = 0.0
        return *draw_qkv(rng, T, K, V), alpha

    both = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    Q = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    long = np.stack([np.full(400, 0.1), rng.uniform(0.9, 1.0, 400)], axis=1)
    kept = gated(200, 2, 3, alpha=np.ones((200, 2)))
    cleared = gated(20, 3, 2, alpha=np.zeros((20, 3)))
    cleared[0][0], cleared[2][0] = 0.0, 1e40
    return [
        Case((Q, keys, np.array([[31.0], [12.0], [47.0], [0.0]]), both), "Ada's row is cleared, Bo's is kept"),
        Case(gated(1, 2, 3), "T = 1"),
        Case(gated(5, 1, 3), "K = 1"),
        Case(gated(6, 4, 4), "K = V"),
        Case(gated(7, 3, 2, alpha=np.repeat(rng.uniform(0.5, 1, (7, 1)), 3, axis=1)), "all channels share a decay"),
        Case(gated(8, 3, 2, resets=((2, 1), (7, 0))), "alpha[2, 1] = alpha[7, 0] = 0: two channels are cleared"),
        Case(gated(9, 2, 5, resets=(4,)), "alpha[4] = 0: everything is cleared"),
        Case(gated(3, 5, 2), "fewer tokens than channels"),
        Case(gated(400, 2, 3, alpha=long), f"400 tokens; in channel 0 {FADING}"),
        Case(kept, "200 tokens with alpha = 1: nothing fades"),
        Case(cleared, "alpha = 0 throughout: of V[0] = 1e40 nothing is left at token 1"),
    ]


def gla_oracle(Q, K, V, alpha):
    return reference.diagonal_recurrent(V, alpha, K, Q)[0]


def _additive(Q, K, V, step, *, read_first=False):
    """A loop over tokens with the state update ``step(S, t)``."""
    S, out = np.zeros((K.shape[1], V.shape[1])), np.zeros(V.shape)
    for t in range(len(V)):
        if read_first:
            out[t] = S.T @ Q[t]
        S = step(S, t)
        if not read_first:
            out[t] = S.T @ Q[t]
    return out


def _decay_after_write(Q, K, V, alpha):
    return _additive(Q, K, V, lambda S, t: alpha[t][:, None] * (S + np.outer(K[t], V[t])))


def _decay_on_columns(Q, K, V, alpha):
    return _additive(Q, K, V, lambda S, t: alpha[t] * S + np.outer(K[t], V[t]))


def _write_complement(Q, K, V, alpha):
    return _additive(Q, K, V, lambda S, t: alpha[t][:, None] * S + np.outer((1 - alpha[t]) * K[t], V[t]))


def _read_first(Q, K, V, alpha):
    return _additive(Q, K, V, lambda S, t: alpha[t][:, None] * S + np.outer(K[t], V[t]), read_first=True)


def _gla_ratio(Q, K, V, alpha):
    products = np.cumprod(alpha, axis=0)
    return np.tril((Q * products) @ (K / products).T) @ V


GLA = Exercise(
    id="7.3",
    name="gla_recurrent",
    title="one decay for each key channel",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("O[t, v]",),
    cases=_channel_cases,
    oracle=gla_oracle,
    mistakes=(
        Mistake(
            "decay-after-write",
            "the decay acted after the write, so a token fades its own key; decay what was stored, then write in full",
            _decay_after_write,
        ),
        Mistake(
            "decay-on-columns",
            "the decay multiplied the columns of S, the value channels; row i of S belongs to key channel i",
            _decay_on_columns,
        ),
        Mistake(
            "complement-on-the-write",
            "the key was multiplied by 1 - alpha; other rules tie the write to the decay, this one writes k in full",
            _write_complement,
        ),
        Mistake(
            "read-before-write",
            "token t was read before its own write; here the read comes last",
            _read_first,
        ),
        Mistake(
            "swapped-q-k",
            "Q and K have changed places: the key writes, the query reads",
            lambda Q, K, V, alpha: gla_oracle(K, Q, V, alpha),
        ),
        Mistake(
            "cumulative-ratio",
            "keys were divided by a cumulative product; after a reset, or after many small decays, that is 0/0",
            _gla_ratio,
        ),
        Mistake(
            "query-scaled",
            QUERY_SCALED,
            lambda Q, K, V, alpha: gla_oracle(Q * Q.shape[1] ** -0.5, K, V, alpha),
        ),
        Mistake(
            "decay-as-logarithm",
            "alpha was exponentiated; it holds the decays themselves, not their logarithms",
            lambda Q, K, V, alpha: gla_oracle(Q, K, V, np.exp(alpha)),
        ),
    ),
    hints=(
        "A channel whose decay is 0 at token t holds only what tokens t and later wrote. The other channels do not "
        "notice.",
        "Within a step: fade the rows of the state, add the outer product, read with the query.",
        "The state has shape `(K, V)` and the decays of a token have shape `(K,)`. Give them a second axis before you "
        "multiply.",
        "The only difference from chapter 3's loop is the factor of the old state: a column of K numbers in place of "
        "one number.",
    ),
)


# --- 7.4 read before the write ------------------------------------------------------------------


def _rwkv_cases(rng):
    def head(T, K, V, *, u=None, alpha=None, resets=()):
        alpha = rng.uniform(0.5, 1.0, (T, K)) if alpha is None else alpha
        for index in resets:
            alpha[index] = 0.0
        u = rng.uniform(-0.5, 2.5, K) if u is None else np.broadcast_to(u, K).copy()
        return *draw_qkv(rng, T, K, V), alpha, u

    one = np.ones((3, 1))
    long = np.stack([np.full(400, 0.1), np.full(400, 0.98)], axis=1)
    kept = head(200, 2, 3, alpha=np.ones((200, 2)))
    cleared = head(20, 3, 2, alpha=np.zeros((20, 3)))
    cleared[0][:2], cleared[2][0] = 0.0, 1e40
    return [
        Case((one, one, np.array([[3.0], [5.0], [0.0]]), 0.5 * one, np.array([0.1])), "by hand: 0.3, 3.5, 6.5"),
        Case(head(1, 2, 3), "T = 1: the state is empty, the bonus alone speaks"),
        Case(head(5, 1, 3), "K = 1"),
        Case(head(6, 4, 4), "K = V"),
        Case(head(7, 3, 2, u=0.0), "u = 0: a token does not see itself"),
        Case(head(7, 3, 2, u=1.0), "u = 1: a token sees itself in full"),
        Case(head(7, 3, 4, u=(-0.7, 0.4, 1.8)), "one bonus is negative"),
        Case(head(8, 3, 2, resets=(3,)), "alpha[3] = 0: token 3 still reads what it then clears"),
        Case(head(5, 2, 4, resets=(4,)), "alpha[4] = 0, at the last token, shows nowhere"),
        Case(head(400, 2, 3, alpha=long), f"400 tokens; in channel 0 {FADING}"),
        Case(kept, "200 tokens with alpha = 1: nothing fades"),
        Case(cleared, "alpha = 0 throughout: of V[0] = 1e40 nothing is left after token 1"),
    ]


def _rwkv(R, K, V, alpha, u, step, read):
    S, out = np.zeros((K.shape[1], V.shape[1])), np.zeros(V.shape)
    for t in range(len(V)):
        kv, a = np.outer(K[t], V[t]), alpha[t][:, None]
        new = step(S, a, kv, u[:, None])
        out[t] = read(S, new, a, kv, u[:, None]).T @ R[t]
        S = new
    return out


def _fade_and_add(S, a, kv, u):
    return a * S + kv


def _with_bonus(S, new, a, kv, u):
    return S + u * kv


def rwkv6_oracle(R, K, V, alpha, u):
    return _rwkv(R, K, V, alpha, u, _fade_and_add, _with_bonus)


def _rwkv_reading(read, step=_fade_and_add):
    """The recurrence with another read, or another step."""

    def answer(R, K, V, alpha, u):
        return _rwkv(R, K, V, alpha, u, step, read)

    return answer


RWKV6 = Exercise(
    id="7.4",
    name="rwkv6_recurrent",
    title="read before the write",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("O[t, v]",),
    cases=_rwkv_cases,
    oracle=rwkv6_oracle,
    mistakes=(
        Mistake(
            "read-after-write",
            "the state was read after decay and write, as in every other rule here; RWKV-6 reads the state from "
            "before both, plus the bonus",
            _rwkv_reading(lambda S, new, a, kv, u: new),
        ),
        Mistake(
            "no-bonus",
            "the current token is missing from its own output; it enters with the weight u",
            _rwkv_reading(lambda S, new, a, kv, u: S),
        ),
        Mistake(
            "bonus-on-top",
            "the state was read after the write and the bonus was added: the token counts 1 + u times and the past "
            "has faded too early",
            _rwkv_reading(lambda S, new, a, kv, u: new + u * kv),
        ),
        Mistake(
            "decayed-before-read",
            "the read uses the state after this token's decay; token t reads what token t - 1 left, and only then "
            "does the decay act",
            _rwkv_reading(lambda S, new, a, kv, u: a * S + u * kv),
        ),
        Mistake(
            "bonus-stored",
            "u went into the state; it weighs the token in its own read alone, and the state gets k vᵀ in full",
            _rwkv_reading(_with_bonus, lambda S, a, kv, u: a * S + u * kv),
        ),
        Mistake(
            "write-decayed",
            "this token's write was multiplied by this token's decay; only what was stored before fades",
            _rwkv_reading(_with_bonus, lambda S, a, kv, u: a * (S + kv)),
        ),
        Mistake(
            "bonus-ignored",
            "u was not used: the token entered its own read in full, with the weight 1 in place of u",
            lambda R, K, V, alpha, u: rwkv6_oracle(R, K, V, alpha, np.ones_like(u)),
        ),
        Mistake(
            "query-scaled",
            QUERY_SCALED,
            lambda R, K, V, alpha, u: rwkv6_oracle(R * R.shape[1] ** -0.5, K, V, alpha, u),
        ),
    ),
    hints=(
        "With one token the output is `r · (u ⊙ k)` times the value: the state is still empty.",
        "Per token there are two lines, the read and the update. Which must come first?",
        "What is read is the state as the last token left it, plus the outer product of this token with its rows "
        "weighted by u. It is not kept.",
        "Compute the read with the old state. Then fade the rows and add the outer product, without u.",
    ),
)


EXERCISES = (HALF_LIFE, MAMBA2, GLA, RWKV6)
