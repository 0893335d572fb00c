"""Chapter 07, second part: exponential gates and a state that is a vector (7.5 and 7.6)."""

import numpy as np

from lineage_lib.exercises._ch07_decays import draw_qkv
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 7.5 the stabilised mLSTM -------------------------------------------------------------------


def _mlstm_cases(rng):
    def head(T, K, V, i_pre=None, f_pre=None, *, positive=False):
        """Gates as drawn, or as given; positive queries and keys where a denominator must not pass zero."""
        Q, keys, values = draw_qkv(rng, T, K, V)
        if positive:
            Q, keys = np.abs(Q) + 0.2, np.abs(keys) + 0.2
        i_pre = 2 * rng.standard_normal(T) if i_pre is None else i_pre
        f_pre = rng.normal(1.0, 1.5, T) if f_pre is None else f_pre
        return Q, keys, values, i_pre, f_pre

    one = np.ones((3, 1))
    by_hand = (one, one, np.array([[3.0], [0.0], [5.0]]), np.array([0.0, -800.0, 0.0]), np.zeros(3))
    burst = rng.standard_normal(12)
    burst[4] = 1000.0
    fading = np.append(1000.0, rng.uniform(-60, -40, 399))
    signs, values = np.array([[1.0], [-1.0]]), np.array([[3.0], [5.0]])
    opposite = (np.ones((2, 1)), signs, values, np.array([0.0, 1000.0]), np.full(2, 2.0))
    faint = (np.ones((1, 1)), np.ones((1, 1)), np.full((1, 1), 1e200), np.array([-460.0]), np.array([2.0]))
    return [
        Case(by_hand, "by hand: 3, then 1.5 over the floor of 1, then 5.75 over 1.25"),
        Case(head(1, 2, 3, np.array([1000.0]), np.array([0.5]), positive=True), "T = 1, i_pre = 1000"),
        Case(head(14, 3, 2), "moderate gates, queries and keys of both signs"),
        Case(head(8, 1, 4, positive=True), "K = 1"),
        Case(head(9, 4, 4), "K = V"),
        Case(head(12, 3, 2, burst, positive=True), "i_pre[4] = 1000: one token outweighs all others"),
        Case(head(8, 2, 3, np.full(8, -1000.0)), "i_pre = -1000 throughout: the floor decides"),
        Case(head(10, 2, 3, np.linspace(-300.0, 2000.0, 10), positive=True), "i_pre grows from -300 to 2000"),
        Case(
            head(9, 3, 2, rng.standard_normal(9) + 700, np.where(np.arange(9) == 5, -900.0, 2.0), positive=True),
            "f_pre[5] = -900: what came before is forgotten",
        ),
        Case(
            head(
                7, 2, 3, np.append(2000.0, np.full(6, 700.0)), np.where(np.arange(7) == 5, -900.0, 2.0), positive=True
            ),
            "i_pre[0] = 2000, f_pre[5] = -900: even so the first token outweighs the others",
        ),
        Case(
            head(400, 2, 3, fading, np.full(400, -2.0), positive=True),
            "400 tokens: i_pre[0] = 1000, then far less, and each step keeps an eighth",
        ),
        Case(head(60, 2, 3, f_pre=np.full(60, 40.0), positive=True), "60 tokens with f_pre = 40: nothing is forgotten"),
        Case(head(700, 3, 2, rng.normal(500, 3, 700), rng.uniform(3, 7, 700), positive=True), "700 tokens near 500"),
        Case(opposite, "the second token is loud and its score is negative: 3, then -5"),
        Case(_around_the_floor(rng), "every token forgets all before it and weighs 1/2 or 2, around the floor"),
        Case(faint, "i_pre = -460 and a value of 1e200: faint, and yet it shows"),
    ]


def _around_the_floor(rng):
    """One key channel; every maximum from -600 to 650 with weights below and above the floor, of both signs."""
    i_pre = np.concatenate([np.linspace(-600.0, 650.0, 51), np.linspace(-6.0, 12.0, 37)])
    keys = np.resize([0.5, 2.0, -0.5, -2.0], len(i_pre)) * np.exp(-i_pre)
    i_pre = np.concatenate([[-1000.0], i_pre, [900.0, 900.0, 12000.0]])  # the floor is infinite; 0
    keys = np.concatenate([[1.0], keys, [1e-3, -1e-12, 1e-6]])
    values = rng.uniform(1.0, 2.0, (len(keys), 1))
    return np.ones((len(keys), 1)), keys[:, None], values, i_pre, np.full(len(keys), -5000.0)


def _log_sigmoid(z):
    return -np.logaddexp(0.0, -z)


def _mlstm(Q, K, V, i_pre, f_pre, *, log_forget=None, largest=None, forget=None, floor=None, keep=None, m=0.0):
    """The stabilised loop; each argument replaces one of its formulas.

    log_forget(f_pre)               -> log f
    largest(log_f + m, i, m, f_pre) -> the new m
    forget(log_f, m, new_m)         -> the exponent of the forget gate
    floor(m, new_m)                 -> the floor of the denominator
    keep(m, new_m)                  -> the m of the next token
    """
    log_forget = log_forget or _log_sigmoid
    largest = largest or (lambda kept, i, m, f_pre: max(kept, i))
    forget = forget or (lambda log_f, m, new: log_f + m - new)
    floor = floor or (lambda m, new: np.exp(-new))
    keep = keep or (lambda m, new: new)
    S, n, O = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), np.zeros(V.shape)
    for t in range(len(V)):
        log_f = log_forget(f_pre[t])
        new = largest(log_f + m, i_pre[t], m, f_pre[t])
        f, i = np.exp(forget(log_f, m, new)), np.exp(i_pre[t] - new)
        S = f * S + i * np.outer(K[t], V[t])
        n = f * n + i * K[t]
        O[t] = S.T @ Q[t] / max(abs(n @ Q[t]), floor(m, new))
        m = keep(m, new)
    return O


def mlstm_oracle(Q, K, V, i_pre, f_pre):
    return _mlstm(Q, K, V, i_pre, f_pre)


def mlstm_unstabilised(Q, K, V, i_pre, f_pre):
    """The equations as they stand: right until a gate overflows."""
    S, n, O = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), np.zeros(V.shape)
    for t in range(len(V)):
        f, i = 1 / (1 + np.exp(-f_pre[t])), np.exp(i_pre[t])
        S = f * S + i * np.outer(K[t], V[t])
        n = f * n + i * K[t]
        O[t] = S.T @ Q[t] / max(abs(n @ Q[t]), 1.0)
    return O


MLSTM = Exercise(
    id="7.5",
    name="mlstm_recurrent",
    title="stabilise the exponential gate",
    points=4,
    minutes=15,
    difficulty="core",
    returns=("O[t, v]",),
    cases=_mlstm_cases,
    oracle=mlstm_oracle,
    mistakes=(
        Mistake(
            "unstabilised",
            "the states are still in their original units, so e^1000 overflows and inf / inf is NaN; "
            "subtract the running maximum m in both exponents",
            mlstm_unstabilised,
        ),
        Mistake(
            "floor-of-one",
            "states and normaliser are in units of e^m, but the floor of the denominator is still 1; "
            "in these units it is e^-m",
            lambda *args: _mlstm(*args, floor=lambda m, new: 1.0),
        ),
        Mistake(
            "old-maximum-forgotten",
            "the forget gate's exponent is log f - m; the old state was in units of the old maximum, "
            "so it is log f + old m - new m",
            lambda *args: _mlstm(*args, forget=lambda log_f, m, new: log_f - new),
        ),
        Mistake(
            "maximum-never-falls",
            "m is the largest i_pre so far; it has to fade with the state, so the maximum is taken of "
            "log f + old m and i_pre, or the states underflow",
            lambda *args: _mlstm(*args, largest=lambda kept, i, m, f_pre: max(m, i)),
        ),
        Mistake(
            "maximum-overwritten",
            "m was replaced before the old one was used, so that it cancels in log f + m - m; "
            "the forget gate's exponent needs the old m and the new one",
            lambda *args: _mlstm(*args, forget=lambda log_f, m, new: log_f),
        ),
        Mistake(
            "maximum-not-kept",
            "the new maximum was not kept for the next token: m is 0 at every step",
            lambda *args: _mlstm(*args, keep=lambda m, new: m),
        ),
        Mistake(
            "floor-of-the-old-maximum",
            "the floor is e^-m with the old m; state and normaliser are in units of the new one by then",
            lambda *args: _mlstm(*args, floor=lambda m, new: np.exp(-m)),
        ),
        Mistake(
            "raw-forget-gate-in-the-maximum",
            "the maximum was taken of f_pre + m and i_pre; f_pre is not the logarithm of the forget gate, "
            "and where it is large m runs away upwards until the states underflow",
            lambda *args: _mlstm(*args, largest=lambda kept, i, m, f_pre: max(f_pre + m, i)),
        ),
    ),
    hints=(
        "Wherever the plain loop does not overflow, your output must equal its output. Where it does, every output is "
        "still finite: numerator and denominator are kept in one unit, which cancels.",
        "Three numbers change in each step: the exponent of the input gate, the exponent of the forget gate, and the "
        "floor. All three need the new maximum.",
        "The new maximum is the larger of two numbers: the input gate's exponent, and the forget gate's plus the old "
        "maximum. Keep the old one until both gates are shifted.",
        "Subtract the new maximum from both exponents and add the old one to the forget gate's. Then the floor, which "
        "was 1, becomes the exponential of minus the new maximum, and the new maximum is kept for the next token.",
    ),
)


# --- 7.6 a vector state -------------------------------------------------------------------------


def _rg_lru_cases(rng):
    def layer(T, V, *, r=None, lam=None):
        r = rng.uniform(0.05, 0.95, (T, V)) if r is None else r
        lam = rng.uniform(-4.0, -1.0, V) if lam is None else lam
        return rng.standard_normal((T, V)), r, rng.uniform(0.1, 0.9, (T, V)), lam

    held = layer(400, 3, r=10.0 ** rng.uniform(-19.5, -16.7, (400, 3)))
    held[0][:] = 1e8 * (np.abs(held[0]) + 0.5)
    held[0][0] = 0.0
    extreme = layer(8, 4, lam=np.array([-40.0, -20.0, 20.0, 1000.0]))
    extreme[0][:, 0] *= 1e8
    extreme[0][0, 0] = extreme[1][3, 3] = 0.0
    half = np.log(np.expm1(np.log(2.0) / 8))  # a full recurrence gate then keeps half
    return [
        Case(
            (np.array([[3.0], [0.0], [2.0]]), np.ones((3, 1)), np.ones((3, 1)), np.array([half])),
            "by hand: a = 1/2, so 3, 1.5, 0.75 + 2 sqrt(3/4)",
        ),
        Case(layer(1, 3), "T = 1: the first token enters in full"),
        Case(layer(6, 1), "one channel"),
        Case(layer(7, 4), ""),
        Case(layer(5, 5), "T = V"),
        Case(layer(30, 2, lam=np.array([-6.0, 2.0])), "a slow channel and a fast one"),
        Case(layer(12, 3, r=np.zeros((12, 3))), "r = 0: the first token is kept for ever, nothing else enters"),
        Case(held, "400 tokens with r below 1e-16: a is 1 to all digits, and yet each token enters a little"),
        Case(layer(500, 3, lam=np.array([-9.0, -3.0, 1.0])), "500 tokens; in channel 2 the product of all decays is 0"),
        Case(extreme, "Lambda from -40 to 1000; r[3, 3] = 0: there even the fastest channel holds"),
    ]


def _rg_lru(x, r, i, Lambda, *, c=8.0, rate=None, scale=None, first=1.0):
    """The recurrence with another constant, rate or factor of the input; first=None: no rule for the first token."""
    rate = np.logaddexp(0.0, Lambda) if rate is None else rate
    scale = scale or (lambda log_a: np.sqrt(-np.expm1(2 * log_a)))
    log_a = -c * rate * r
    enter = scale(log_a)
    if first is not None:
        enter[0] = first
    h, H = np.zeros(x.shape[1]), np.zeros(x.shape)
    for t in range(len(x)):
        h = np.exp(log_a[t]) * h + enter[t] * i[t] * x[t]
        H[t] = h
    return H


def rg_lru_oracle(x, r, i, Lambda):
    return _rg_lru(x, r, i, Lambda)


RG_LRU = Exercise(
    id="7.6",
    name="rg_lru",
    title="a vector state with two gates",
    points=3,
    minutes=12,
    difficulty="core",
    returns=("H[t, v]",),
    cases=_rg_lru_cases,
    oracle=rg_lru_oracle,
    mistakes=(
        Mistake(
            "no-first-token-rule",
            "the first token was multiplied by sqrt(1 - a²); there is nothing to keep yet, so it enters in full",
            lambda *args: _rg_lru(*args, first=None),
        ),
        Mistake(
            "no-exponent-eight",
            "the factor c = 8 is missing from the logarithm of a",
            lambda *args: _rg_lru(*args, c=1.0),
        ),
        Mistake(
            "digits-lost",
            "1 - a² was computed from a rounded a, which leaves 0 where a is near 1; "
            "np.expm1 of twice the logarithm of a keeps the digits",
            lambda *args: _rg_lru(*args, scale=lambda log_a: np.sqrt(1 - np.exp(log_a) ** 2)),
        ),
        Mistake(
            "sigmoid-of-lambda",
            "log a was made from log sigmoid(Lambda); the code has minus softplus(Lambda), "
            "so that a larger Lambda forgets faster",
            lambda x, r, i, Lambda: _rg_lru(x, r, i, Lambda, rate=np.logaddexp(0.0, -Lambda)),
        ),
        Mistake(
            "weighted-mean",
            "the input was multiplied by 1 - a, as in a running mean; here it is the square root of 1 - a²",
            lambda *args: _rg_lru(*args, scale=lambda log_a: 1 - np.exp(log_a)),
        ),
        Mistake(
            "root-missing",
            "the input was multiplied by 1 - a² without the square root",
            lambda *args: _rg_lru(*args, scale=lambda log_a: -np.expm1(2 * log_a)),
        ),
        Mistake(
            "two-missing",
            "the input was multiplied by the root of 1 - a; the square of a stands under the root, "
            "and its logarithm is twice that of a",
            lambda *args: _rg_lru(*args, scale=lambda log_a: np.sqrt(-np.expm1(log_a))),
        ),
        Mistake(
            "gates-swapped",
            "r and i have changed places: r sets the decay, i multiplies the input",
            lambda x, r, i, Lambda: _rg_lru(x, i, r, Lambda),
        ),
    ),
    hints=(
        "The first row of the output is `i[0] * x[0]`, whatever the decays are. Where `r` is 0, nothing fades and "
        "nothing enters.",
        "Make the logarithms of all decays first, as a `(T, V)` array; from them the decays and the factors of the "
        "inputs. Then a loop with one line of recurrence.",
        "Under the root stands one minus the exponential of twice the logarithm. `np.expm1(z)` is the exponential of "
        "z minus one, without the loss of digits near zero.",
        "Row 0 of the factors of the inputs is overwritten with ones. Softplus is `np.logaddexp` of zero and its "
        "argument.",
    ),
)

EXERCISES = (MLSTM, RG_LRU)
