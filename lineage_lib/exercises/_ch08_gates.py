"""Chapter 08, second part: the gate, the whole sequence, the error to expect, the gate that skips (8.5 to 8.8)."""

import numpy as np

from lineage_lib.exercises._ch08_steps import delta_oracle, unit
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 8.5 one gated correction -------------------------------------------------------------------


def _gated_cases(rng):
    def step(K, V, alpha, beta, *, length=1.0):
        key = length * unit(rng.standard_normal(K))
        return rng.standard_normal((K, V)), key, rng.standard_normal(V), alpha, beta

    ada = np.array([1.0, 0.0])
    rooms, new = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([4.0, 7.0])
    full, silent = step(3, 2, 0.0, 0.7), step(3, 2, 0.6, 0.5)
    full[0][:] *= 1e12
    silent[1][:] = 0.0
    exact = np.array([0.5, 0.25, -0.5, 1.0], dtype=np.float32)
    return [
        Case((rooms, ada, new, 0.5, 1.0), "by hand: Bo's 12 fades to half, Ada moves to 47"),
        Case((rooms, ada, new, 0.5, 0.5), "by hand: half of what is missing to 47, seen from the faded 31"),
        Case(step(1, 1, 0.8, 0.5), "K = V = 1"),
        Case(step(3, 2, 0.9, 0.6), "a key in general position"),
        Case(step(2, 5, 0.7, 0.9), "more value channels than key channels"),
        Case(step(3, 3, 0.6, 0.3), "K = V"),
        Case(step(3, 2, 1.0, 0.8), "alpha = 1: the plain delta rule"),
        Case(full, "alpha = 0 and an old state of 1e12: it is gone before it is read"),
        Case(step(4, 3, 0.9, 0.0), "beta = 0: the state fades and that is all"),
        Case(step(4, 2, 0.8, 1.0), "beta = 1"),
        Case(step(5, 2, 0.9, 2.0), "beta = 2"),
        Case(step(4, 3, 0.7, 0.8, length=2.0), "a key of length 2: it is used as it comes"),
        Case(silent, "k = 0: the state fades and that is all"),
        Case((np.zeros((3, 2)), *step(3, 2, 0.5, 0.4)[1:]), "an empty state"),
        Case((np.outer(exact, exact[:3]), exact, exact[1:], 0.5, 0.5), "32-bit floats"),
    ]


def gated_oracle(S, k, v, alpha, beta):
    return delta_oracle(alpha * S, k, v, beta)


def _gated_in_place(S, k, v, alpha, beta):
    S *= alpha
    S += beta * np.outer(k, v - S.T @ k)
    return S


GATED_STEP = Exercise(
    id="8.5",
    name="gated_delta_step",
    title="fade, then correct",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("S[k, v]",),
    cases=_gated_cases,
    oracle=gated_oracle,
    mistakes=(
        Mistake(
            "still-additive",
            "the value was added to a state that neither fades nor is corrected",
            lambda S, k, v, alpha, beta: S + np.outer(k, v),
        ),
        Mistake(
            "error-before-the-decay",
            "the error was read from the state before its decay; fade first, then read",
            lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v - S.T @ k),
        ),
        Mistake(
            "write-scaled-by-alpha",
            "the correction was multiplied by alpha; what is stored fades, what is written now does not",
            lambda S, k, v, alpha, beta: alpha * S + alpha * beta * np.outer(k, v - alpha * (S.T @ k)),
        ),
        Mistake(
            "rest-not-decayed",
            "alpha acted on what was read, and the state itself was kept in full; all of it fades, also what is not "
            "corrected",
            lambda S, k, v, alpha, beta: S + beta * np.outer(k, v - alpha * (S.T @ k)),
        ),
        Mistake(
            "beta-on-the-write-only",
            "beta multiplied the new value alone, and the old one was erased in full; it belongs to the whole error",
            lambda S, k, v, alpha, beta: alpha * S + np.outer(k, beta * v - alpha * (S.T @ k)),
        ),
        Mistake(
            "beta-on-the-erase-only",
            "beta multiplied what was read alone, and the new value was written in full; it belongs to the whole error",
            lambda S, k, v, alpha, beta: alpha * S + np.outer(k, v - alpha * beta * (S.T @ k)),
        ),
        Mistake(
            "key-normalised",
            "the key was divided by its length; whoever calls the step does that, and the step uses the key as it "
            "comes",
            lambda S, k, v, alpha, beta: gated_oracle(S, k / np.linalg.norm(k), v, alpha, beta),
        ),
        Mistake(
            "in-place",
            "the new state is right, but it was made inside the old one; the caller still needs that, so make a new "
            "array",
            _gated_in_place,
        ),
    ),
    hints=(
        "With `beta = 1` the new state answers Ada with 47 whatever `alpha` is, and Bo's 12 becomes `alpha` times 12.",
        "Both names of the first line need a new value: `kept` is the state after its decay, `write` the correction.",
        "The error is read from what is left after the decay, not from the state that came in.",
        "Two lines: first the faded state; then the strength times the value minus the read from the faded state.",
    ),
)


# --- 8.6 the whole sequence ---------------------------------------------------------------------


def _sequence_cases(rng):
    def head(T, K, V, *, alpha=None, beta=None, lengths=None, S0=None):
        keys = unit(rng.standard_normal((T, K))) * (1.0 if lengths is None else lengths[:, None])
        alpha = rng.uniform(0.6, 1.0, T) if alpha is None else np.broadcast_to(np.asarray(alpha, float), T).copy()
        beta = rng.uniform(0.1, 1.0, T) if beta is None else np.full(T, float(beta))
        S0 = rng.standard_normal((K, V)) if S0 is None else S0
        return rng.standard_normal((T, K)), keys, rng.standard_normal((T, V)), alpha, beta, S0

    def reset(T, *at):
        decays = rng.uniform(0.6, 1.0, T)
        decays[[*at]] = 0.0
        return decays

    rooms = np.array([[3.0, 1.0], [1.0, 2.0], [4.0, 7.0]])
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    by_hand = keys[[0, 0, 1]], keys, rooms, np.array([1.0, 1.0, 0.5]), np.ones(3), np.zeros((2, 2))
    again = head(6, 3, 2)
    again[1][3:] = again[1][:3]
    leaning = head(9, 4, 2)
    leaning[1][:] = unit(leaning[1] + 2.0)
    leak, ahead, unread = head(6, 3, 2, alpha=reset(6, 3)), head(5, 2, 3), head(5, 3, 2)
    leak[2][2] = 1e12
    leak[0][:3] = 0.0  # nobody asks before the reset: the outputs stay small
    ahead[2][4] = 1e20
    ahead[0][4], unread[0][:2] = 0.0, 0.0
    full = head(4, 2, 3, alpha=reset(4, 0), S0=1e12 * rng.standard_normal((2, 3)))
    return [
        Case(by_hand, "by hand: Ada in 31, Bo in 12, Ada in 47 while all else halves; Ada, Ada, Bo are asked"),
        Case(head(1, 3, 2), "T = 1: the given state fades and is corrected before it is read"),
        Case(head(5, 3, 2), "K = 3, V = 2"),
        Case(head(6, 1, 3), "K = 1"),
        Case(head(5, 3, 3), "K = V"),
        Case(head(7, 2, 5, S0=np.zeros((2, 5))), "an empty state to start with"),
        Case(head(6, 3, 2, alpha=1.0), "no decay: the plain delta rule"),
        Case(head(6, 3, 2, beta=0.0), "beta = 0: nothing is written"),
        Case(head(6, 3, 4, beta=1.0), "beta = 1"),
        Case(head(6, 3, 2, beta=2.0), "beta = 2"),
        Case(again, "each key comes twice"),
        Case(leaning, "keys that lean the same way"),
        Case(head(6, 3, 2, lengths=rng.uniform(0.5, 1.4, 6)), "keys of other lengths than 1, used as they come"),
        Case(full, "alpha[0] = 0: a given state of 1e12 is gone"),
        Case(leak, "alpha[3] = 0 after a value of 1e12"),
        Case(head(5, 3, 2, alpha=reset(5, 4)), "alpha[4] = 0 at the last token"),
        Case(unread, "zero queries at first"),
        Case(ahead, "the last value is 1e20: nothing may come back from the future"),
        Case(head(400, 3, 2, alpha=0.9999), "400 tokens that hardly fade"),
        Case(head(200, 3, 2, alpha=1e-3), "200 tokens that fade almost at once"),
    ]


def _sequence(step, *, query=lambda q, k: q, early=False):
    """A loop with a step, a query and a moment of reading to choose."""

    def run(Q, K, V, alpha, beta, S0):
        S, O = S0, np.zeros(V.shape)
        for t in range(len(K)):
            before = S
            S = step(S, K[t], V[t], alpha[t], beta[t])
            O[t] = (before if early else S).T @ query(Q[t], K[t])
        return O, S

    return run


sequence_oracle = _sequence(gated_oracle)


def _oracle(Q, K, V, alpha, beta, S0):
    return sequence_oracle(Q, K, V, alpha, beta, S0)


def _late_decay(Q, K, V, alpha, beta, S0):
    return sequence_oracle(Q, K, V, np.append(1.0, alpha[:-1]), beta, S0)


SEQUENCE = Exercise(
    id="8.6",
    name="gated_delta_recurrent",
    title="the rule over a sequence",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("O[t, v]", "S[k, v]"),
    cases=_sequence_cases,
    oracle=_oracle,
    mistakes=(
        Mistake(
            "read-before-the-write",
            "each query was put to the state before its token's write; the state is read after it",
            _sequence(gated_oracle, early=True),
        ),
        Mistake(
            "start-forgotten",
            "the run started from an empty state; it starts from S0",
            lambda Q, K, V, alpha, beta, S0: sequence_oracle(Q, K, V, alpha, beta, np.zeros_like(S0)),
        ),
        Mistake(
            "error-before-the-decay",
            "the error was read from the state before its decay; fade first, then read",
            _sequence(lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v - S.T @ k)),
        ),
        Mistake(
            "decay-after-the-write",
            "the state faded after the write, so the newest correction was scaled by alpha too; the decay comes first",
            _sequence(lambda S, k, v, alpha, beta: alpha * delta_oracle(S, k, v, beta)),
        ),
        Mistake(
            "never-corrected",
            "beta scaled the value, and nothing was erased: this is an additive memory with a decay",
            _sequence(lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v)),
        ),
        Mistake(
            "read-at-the-key",
            "the state was read at the key; the error is read at the key, the output at the query",
            _sequence(gated_oracle, query=lambda q, k: k),
        ),
        Mistake(
            "decay-one-token-late",
            "each token used the decay of the token before it; token t fades the state by alpha[t] before its write",
            _late_decay,
        ),
        Mistake(
            "scaled-query",
            "the outputs carry a factor K^(-1/2); released code has it, the equation and this exercise do not",
            _sequence(gated_oracle, query=lambda q, k: q / np.sqrt(len(q))),
        ),
    ),
    hints=(
        "By hand: Ada is asked twice and answers 31 each time, then Bo answers half of 12; the last state holds 47.",
        "A loop over tokens with one state that starts as `S0`: one gated step, then one read.",
        "The step is the one of the exercise before: fade, read at the key, write the fraction of the error.",
        "The output of a token is the transposed new state times that token's query. Return the outputs and the state.",
    ),
)


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
        Case((some(5), 0.01, 0.99), "a hundred names"),
        Case((some(7, 40), rng.uniform(0.05, 0.9), rng.uniform(0.3, 0.99)), "any p and alpha"),
        Case((np.array([1e5, 1e6]), 0.125, 0.999), "a million tokens: the long run"),
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
    minutes=12,
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
        Case(again, "a key comes again"),
        Case(long, "keys of other lengths than 1"),
        Case(head(5, 3, 2, keep=[0, 1, 3], beta=2.0), "beta = 2"),
        Case(head(300, 4, 3, alpha=0.99), "300 tokens"),
    ]


def _skipping(gate):
    """All states, with alpha, beta and keep of a token passed through ``gate`` first."""

    def run(K, V, alpha, beta, keep):
        S, states = np.zeros((K.shape[1], V.shape[1])), []
        for t in range(len(K)):
            S = gated_oracle(S, K[t], V[t], *gate(alpha[t], beta[t], keep[t]))
            states.append(S)
        return np.array(states)

    return run


_both = _skipping(lambda alpha, beta, keep: (alpha, beta) if keep else (1.0, 0.0))


def skip_oracle(K, V, alpha, beta, keep):
    return _both(K, V, alpha, beta, keep)


def _rows_left_empty(K, V, alpha, beta, keep):
    states = _both(K, V, alpha, beta, keep)
    states[~keep] = 0.0
    return states


def _written_additively(K, V, alpha, beta, keep):
    S, states = np.zeros((K.shape[1], V.shape[1])), []
    for t in range(len(K)):
        S = alpha[t] * S + beta[t] * np.outer(K[t], V[t]) if keep[t] else S
        states.append(S)
    return np.array(states)


def _undecayed_error(K, V, alpha, beta, keep):
    S, states = np.zeros((K.shape[1], V.shape[1])), []
    for t in range(len(K)):
        S = alpha[t] * S + beta[t] * np.outer(K[t], V[t] - S.T @ K[t]) if keep[t] else S
        states.append(S)
    return np.array(states)


SKIPPING = Exercise(
    id="8.8",
    name="skipping_delta",
    title="skip what nobody asks for",
    points=2,
    minutes=8,
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
            "reset-at-skips",
            "a skipped token cleared the state: its alpha was set to 0, where 1 keeps everything",
            _skipping(lambda alpha, beta, keep: (alpha, beta) if keep else (0.0, 0.0)),
        ),
        Mistake(
            "keep-inverted",
            "the kept tokens were skipped and the others written; keep is True where a token is to be written",
            _skipping(lambda alpha, beta, keep: (1.0, 0.0) if keep else (alpha, beta)),
        ),
        Mistake(
            "nothing-skipped",
            "keep was not used: distractors were written like everything else",
            _skipping(lambda alpha, beta, keep: (alpha, beta)),
        ),
        Mistake(
            "rows-left-empty",
            "the states after skipped tokens were left at zero; there stands what stood there before",
            _rows_left_empty,
        ),
        Mistake(
            "never-corrected",
            "kept tokens were added and nothing was erased; they correct, as in the gated delta rule",
            _written_additively,
        ),
        Mistake(
            "error-before-the-decay",
            "the error was read from the state before its decay; fade first, then read",
            _undecayed_error,
        ),
    ),
    hints=(
        "After a skipped token the state is the same as before it, in every entry.",
        "A gated delta step does nothing at all for one pair of gates; which decay, and which strength?",
        "Either choose both gates by `keep[t]` before a step, or take no step; in both cases store the state.",
        "Skipped means a decay of 1 and a strength of 0. Put a state into every row, also where nothing happened.",
    ),
)

EXERCISES = (GATED_STEP, SEQUENCE, EXPECTED, SKIPPING)
