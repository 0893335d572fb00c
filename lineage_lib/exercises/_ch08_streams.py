"""Chapter 08, third part: the error to expect on a stream, and the gate that skips (8.7 and 8.8)."""

import numpy as np

from lineage_lib.exercises._ch08_gates import gated_oracle
from lineage_lib.exercises._ch08_steps import normalised, unit
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 8.7 the error to expect --------------------------------------------------------------------


def _expected_cases(rng):
    def some(n, top=300):
        return rng.integers(1, top, n).astype(float)

    return [
        Case((np.array([1.0, 2.0]), 0.5, 0.5), "by hand: the name was written just now, so 0; then 1/6"),
        Case((np.array([1.0]), 0.125, 0.95), "t = 1: the only token wrote it"),
        Case((np.arange(1.0, 8.0), 0.125, 0.95), "the first seven tokens"),
        Case((np.array([10.0, 50.0, 200.0]), 0.125, 0.95), "eight names, a decay of 0.95"),
        Case((some(6), 0.125, 1.0), "alpha = 1: nothing fades"),
        Case((some(6), 0.25, 0.0), "alpha = 0: only the newest write is left"),
        Case((some(6), 1.0, 0.9), "p = 1: one name"),
        Case((some(5), 0.5, 0.8), "two names"),
        Case((some(5), 0.01, 0.99), "a hundred names, short streams"),
        Case((some(7, 40), rng.uniform(0.05, 0.9), rng.uniform(0.3, 0.99)), "any p and alpha"),
        Case((np.array([1e5, 1e6]), 0.125, 0.999), "a million tokens: the long run"),
        Case((np.array([1e6, 300.0, 2000.0, 1000.0]), 0.01, 0.99), "a hundred names: ages of thousands count"),
        Case((np.array([2000.0, 1e6]), 0.01, 0.999), "a hundred names that hardly fade"),
    ]


def expected_oracle(t, p, alpha):
    r = 1 - p
    return 1 - p / (1 - r * alpha) * (1 - (r * alpha) ** t) / (1 - r**t)


def _root_mean_square(t, p, alpha):
    r = 1 - p

    def moment(x):
        return p / (1 - r * x) * (1 - (r * x) ** t) / (1 - r**t)

    return np.sqrt(np.maximum(0.0, 1 - 2 * moment(alpha) + moment(alpha**2)))


EXPECTED = Exercise(
    id="8.7",
    name="expected_error",
    title="the error to expect",
    points=3,
    minutes=10,
    difficulty="hard",
    returns=("error[n]",),
    cases=_expected_cases,
    oracle=expected_oracle,
    mistakes=(
        Mistake(
            "long-run-only",
            "this is the limit for long streams; at token t the newest write is at most t - 1 tokens old",
            lambda t, p, alpha: np.full(len(t), 1 - p / (1 - (1 - p) * alpha)),
        ),
        Mistake(
            "names-never-written",
            "names that were not written yet were counted with an error of 1; divide by the probability of a write",
            lambda t, p, alpha: 1 - p / (1 - (1 - p) * alpha) * (1 - ((1 - p) * alpha) ** t),
        ),
        Mistake(
            "one-age-too-many",
            "ages up to t were summed; t tokens have ages 0 to t - 1",
            lambda t, p, alpha: expected_oracle(t + 1, p, alpha),
        ),
        Mistake(
            "one-age-too-few",
            "ages up to t - 2 were summed, or x to the power t - 1 was used; t tokens have the t ages from 0 to t - 1",
            lambda t, p, alpha: expected_oracle(t - 1, p, alpha),
        ),
        Mistake(
            "series-cut-off",
            "the series was cut off after a thousand terms; with p = 0.01 older writes still count, to a billionth",
            lambda t, p, alpha: expected_oracle(np.minimum(t, 1000), p, alpha),
        ),
        Mistake(
            "ages-from-one",
            "the newest token was given the age 1; it is read right after its write, so alpha to the power 0 is left",
            lambda t, p, alpha: 1 - alpha * (1 - expected_oracle(t, p, alpha)),
        ),
        Mistake(
            "what-is-left",
            "this is the mean of what is left of the value; the error is what is missing, 1 minus that",
            lambda t, p, alpha: 1 - expected_oracle(t, p, alpha),
        ),
        Mistake(
            "root-mean-square",
            "this is the root of the mean squared error; asked is the mean of the error itself",
            _root_mean_square,
        ),
        Mistake(
            "p-for-its-complement",
            "p and 1 - p changed places; an age of m needs m tokens that wrote other names, and one that wrote this",
            lambda t, p, alpha: 1 - (1 - p) / (1 - p * alpha) * (1 - (p * alpha) ** t) / (1 - p**t),
        ),
    ),
    hints=(
        "At `t = 1` the error is 0. At `t = 2` with `p = alpha = 1/2`, ages 0 and 1 have weights 1/2 and 1/4: 1/6.",
        "A write that is m tokens old is read as alpha to the power m times the value. Average what is missing over m.",
        "The weight of age m is p times (1 - p) to the power m, for m from 0 to t - 1; divide by the sum of the "
        "weights.",
        "Both sums are geometric: sums of (1 - p) to the m, and of ((1 - p) alpha) to the m, with t terms each.",
    ),
)


# --- 8.8 the gate that skips --------------------------------------------------------------------


def _skip_cases(rng):
    def head(T, K, V, *, keep=None, alpha=None, beta=None):
        keys = unit(rng.standard_normal((T, K)))
        keep = rng.random(T) < 0.5 if keep is None else np.isin(np.arange(T), keep)
        alpha = rng.uniform(0.5, 0.95, T) if alpha is None else np.full(T, float(alpha))
        beta = rng.uniform(0.2, 1.0, T) if beta is None else np.full(T, float(beta))
        return keys, rng.standard_normal((T, V)), alpha, beta, keep

    keys, rooms = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.array([[3.0, 1.0], [9.0, 9.0], [1.0, 2.0]])
    by_hand = keys, rooms, np.array([0.5, 0.5, 0.5]), np.ones(3), np.array([True, False, True])
    skipped_reset, kept_reset = head(5, 3, 2, keep=[0, 1, 3]), head(6, 2, 3, keep=[0, 2, 3, 5])
    skipped_reset[2][2], kept_reset[2][3] = 0.0, 0.0
    loud = head(6, 3, 2, keep=[0, 3, 5])
    loud[1][[1, 2, 4]] = 1e12
    again = head(6, 3, 2, keep=[0, 2, 4, 5])
    again[0][4] = again[0][0]
    idle, silent = head(6, 3, 2, keep=[0, 1, 3, 4]), head(6, 2, 3, keep=[0, 1, 3, 4])
    idle[3][[1, 4]], idle[2][[0, 3]], silent[0][[1, 2]] = 0.0, 1.0, 0.0
    long = head(5, 3, 2, keep=[0, 2, 4])
    long[0][:] *= rng.uniform(0.5, 1.4, (5, 1))
    return [
        Case(by_hand, "by hand: Ada 31, a distractor, Bo 12 with alpha = 1/2"),
        Case(head(1, 3, 2, keep=[0]), "T = 1, kept"),
        Case(head(1, 2, 3, keep=[]), "T = 1, skipped"),
        Case(head(6, 3, 2, keep=[0, 2, 3]), "three of six are skipped, the last two among them"),
        Case(head(5, 4, 2, keep=[2, 4]), "the first two are skipped"),
        Case(head(6, 1, 3, keep=[0, 1, 4]), "K = 1"),
        Case(head(5, 3, 3, keep=[0, 2, 3]), "K = V"),
        Case(head(7, 2, 4, keep=range(7)), "all are kept: the gated delta rule"),
        Case(head(4, 3, 2, keep=[]), "all are skipped: the state stays empty"),
        Case(skipped_reset, "alpha = 0 at a skipped token: nothing is cleared"),
        Case(kept_reset, "alpha = 0 at a kept token: what came before is gone"),
        Case(loud, "skipped values of 1e12"),
        Case(idle, "beta = 0 at the kept tokens 1 and 4, which still fade; alpha = 1 at the kept tokens 0 and 3"),
        Case(silent, "K[1] = 0 at a kept token, where the state fades and that is all"),
        Case(again, "a key comes again"),
        Case(long, "keys of other lengths than 1"),
        Case(head(5, 3, 2, keep=[0, 1, 3], beta=2.0), "beta = 2"),
        Case(head(300, 4, 3, alpha=0.99), "300 tokens"),
    ]


def _skipping(gate, step=gated_oracle):
    """All states of a step, with alpha, beta and keep of a token passed through ``gate`` first."""

    def run(K, V, alpha, beta, keep):
        S, states = np.zeros((K.shape[1], V.shape[1])), []
        for t in range(len(K)):
            S = step(S, K[t], V[t], *gate(alpha[t], beta[t], keep[t]))
            states.append(S)
        return np.array(states)

    return run


def _gates(alpha, beta, keep):
    return (alpha, beta) if keep else (1.0, 0.0)


_both = _skipping(_gates)


def skip_oracle(K, V, alpha, beta, keep):
    return _both(K, V, alpha, beta, keep)


def _rows_left_empty(K, V, alpha, beta, keep):
    states = _both(K, V, alpha, beta, keep)
    states[~keep] = 0.0
    return states


def _one_array(K, V, alpha, beta, keep):
    S, states = np.zeros((K.shape[1], V.shape[1])), []
    for t in range(len(K)):
        if keep[t]:
            S *= alpha[t]
            S += beta[t] * np.outer(K[t], V[t] - S.T @ K[t])
        states.append(S)
    return np.array(states)


SKIPPING = Exercise(
    id="8.8",
    name="skipping_delta",
    title="skip what nobody asks for",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("S[t, k, v]",),
    cases=_skip_cases,
    oracle=skip_oracle,
    mistakes=(
        Mistake(
            "still-fading",
            "skipped tokens write nothing, but the state still fades at them; their alpha has to be 1 as well",
            _skipping(lambda alpha, beta, keep: (alpha, beta if keep else 0.0)),
        ),
        Mistake(
            "still-writing",
            "skipped tokens do not let the state fade, but they still write; their beta has to be 0 as well",
            _skipping(lambda alpha, beta, keep: (alpha if keep else 1.0, beta)),
        ),
        Mistake(
            "nothing-skipped",
            "this is the gated delta rule at every token: `keep` was not used",
            _skipping(lambda alpha, beta, keep: (alpha, beta)),
        ),
        Mistake(
            "reset-at-skips",
            "a skipped token left an empty state behind: its alpha was set to 0, where 1 keeps everything, or its "
            "row was never filled and the next token went on from it",
            _skipping(lambda alpha, beta, keep: (alpha, beta) if keep else (0.0, 0.0)),
        ),
        Mistake(
            "keep-inverted",
            "the kept tokens were skipped and the others written; keep is True where a token is to be written",
            _skipping(lambda alpha, beta, keep: (1.0, 0.0) if keep else (alpha, beta)),
        ),
        Mistake(
            "rows-left-empty",
            "the states after skipped tokens were left at zero; there stands what stood there before",
            _rows_left_empty,
        ),
        Mistake(
            "one-array",
            "all rows hold the last state: one array was changed in place and stored again and again; make a new one "
            "for each token, or store a copy",
            _one_array,
        ),
        Mistake(
            "error-before-the-decay",
            "the error was read from the state before its decay; fade first, then read",
            _skipping(_gates, lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v - S.T @ k)),
        ),
        normalised(skip_oracle, 0, "the keys were divided by their lengths; they are used as they come"),
    ),
    hints=(
        "After a skipped token the state is the same as before it, in every entry.",
        "A gated delta step does nothing at all for one pair of gates; which decay, and which strength?",
        "Either choose both gates by `keep[t]` before a step, or take no step; in both cases store the state.",
        "Skipped means a decay of 1 and a strength of 0. Put a state into every row, also where nothing happened.",
    ),
)

EXERCISES = (EXPECTED, SKIPPING)
