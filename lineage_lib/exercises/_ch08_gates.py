"""Chapter 08, second part: the gate, and the whole sequence (8.5 and 8.6)."""

import numpy as np

from lineage_lib.exercises._ch08_steps import delta_oracle, normalised, unit
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
        Case(step(24, 17, 0.8, 0.7), "24 key channels, 17 value channels"),
    ]


def gated_oracle(S, k, v, alpha, beta):
    return delta_oracle(alpha * S, k, v, beta)


GATED_STEP = Exercise(
    id="8.5",
    name="gated_delta_step",
    title="fade, then correct",
    points=2,
    minutes=4,
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
            "only-faded",
            "the state fades, and the value is added to it; give `write` a new value too, a fraction beta of the error",
            lambda S, k, v, alpha, beta: alpha * S + np.outer(k, v),
        ),
        Mistake(
            "never-corrected",
            "beta scaled the value, and nothing was erased: this is an additive memory with a decay",
            lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v),
        ),
        Mistake(
            "error-before-the-decay",
            "the error was read from the state before its decay; fade first, then read",
            lambda S, k, v, alpha, beta: alpha * S + beta * np.outer(k, v - S.T @ k),
        ),
        Mistake(
            "decay-after-the-write",
            "the state faded after the correction, so the new value faded with it; the decay comes first",
            lambda S, k, v, alpha, beta: alpha * delta_oracle(S, k, v, beta),
        ),
        Mistake(
            "rest-not-decayed",
            "alpha acted on what was read, and the state itself was kept in full; all of it fades, also what is not "
            "corrected",
            lambda S, k, v, alpha, beta: S + beta * np.outer(k, v - alpha * (S.T @ k)),
        ),
        Mistake(
            "write-scaled-by-alpha",
            "the correction was multiplied by alpha too; alpha acts on what was stored, and the new write is in full",
            lambda S, k, v, alpha, beta: alpha * S + alpha * beta * np.outer(k, v - alpha * (S.T @ k)),
        ),
        Mistake(
            "alpha-ignored",
            "this is the plain delta rule: alpha was not used, and nothing fades",
            lambda S, k, v, alpha, beta: delta_oracle(S, k, v, beta),
        ),
        Mistake(
            "beta-forgotten",
            "the whole error was written, which is right for beta = 1; a fraction beta of it is asked",
            lambda S, k, v, alpha, beta: gated_oracle(S, k, v, alpha, 1.0),
        ),
        normalised(gated_oracle, 1, "the key was divided by its length; the step uses the key as it comes"),
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
    silent = head(5, 3, 2)
    silent[1][[0, 3]] = 0.0
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
        Case(silent, "K[0] = K[3] = 0: there the state fades and that is all"),
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


SEQUENCE = Exercise(
    id="8.6",
    name="gated_delta_recurrent",
    title="the rule over a sequence",
    points=3,
    minutes=8,
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
            "write-scaled-by-alpha",
            "the corrections were multiplied by alpha too; alpha acts on what was stored, and a new write is in full",
            _sequence(lambda S, k, v, alpha, beta: alpha * S + alpha * beta * np.outer(k, v - alpha * (S.T @ k))),
        ),
        Mistake(
            "alpha-ignored",
            "this is the plain delta rule: alpha was not used, and nothing fades",
            _sequence(lambda S, k, v, alpha, beta: delta_oracle(S, k, v, beta)),
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
            "scaled-query",
            "the outputs carry a factor K^(-1/2); released code has it, the equation and this exercise do not",
            _sequence(gated_oracle, query=lambda q, k: q / np.sqrt(len(q))),
        ),
        normalised(
            _oracle,
            1,
            "the keys were divided by their lengths; a layer does that before it calls the rule, and the rule uses "
            "them as they come",
        ),
    ),
    hints=(
        "By hand, one channel, all gates 1/2: the state 1 fades to 0.5, and half of what it lacks to 3 makes it 1.75.",
        "A loop over tokens with one state that starts as `S0`: one gated step, then one read.",
        "The step is the one of the exercise before: fade, read at the key, write the fraction of the error.",
        "The output of a token is the transposed new state times that token's query. Return the outputs and the state.",
    ),
)

EXERCISES = (GATED_STEP, SEQUENCE)
