"""Chapter 01, second part: one evolving summary (1.3 and 1.4), and the inputs that chapter 01 shares."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

LONG = "1,500 tokens: a T by T table takes 18 MB, and 2.25 MB as booleans"


def draw(rng, T, K, V):
    """(q, k, v) of T tokens."""
    return rng.standard_normal((T, K)), rng.standard_normal((T, K)), rng.standard_normal((T, V))


def adas_room():
    """(q, k, v): Ada -> 31, Bo -> 12, Ada -> 47, then a question about Ada that writes nothing."""
    ada, bo, nobody = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
    return np.array([ada, bo, ada, ada]), np.array([ada, bo, ada, nobody]), np.array([[31.0], [12.0], [47.0], [0.0]])


def repeat_keys(q, k, v):
    """The same tokens with only two different keys, which every third token uses."""
    return q, k[[0, 1, 0] * len(k)][: len(k)], v


def unread_giant(last_query):
    """(q, k, v) of three tokens; the last key is so large that adding and subtracting its write loses the others."""
    k = np.array([[1.0], [1.0], [1e20]])
    return np.array([[1.0], [1.0], [last_query]]), k, np.array([[31.0], [12.0], [47.0]])


def sums(k, v):
    """The state after each token, (T, K, V)."""
    return np.cumsum(k[:, :, None] * v[:, None, :], axis=0)


def read(q, states):
    return np.einsum("tk,tkv->tv", q, states)


# --- 1.3 one step -------------------------------------------------------------------------------


def _step_cases(rng):
    def step(K, V):
        return rng.standard_normal((K, V)), *(rng.standard_normal(n) for n in (K, V, K))

    ada, bo = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    S, k_t, v_t, q_t = step(3, 2)
    return [
        Case((np.zeros((2, 1)), ada, np.array([31.0]), ada), "the first token: Ada -> 31, and it reads Ada"),
        Case((np.array([[31.0], [12.0]]), ada, np.array([47.0]), ada), "the third token: Ada -> 47, and it reads Ada"),
        Case((np.array([[31.0], [12.0]]), ada, np.array([47.0]), bo), "writes under Ada, reads Bo"),
        Case((S, np.zeros(3), v_t, q_t), "a key of 0 writes nothing"),
        Case((S, k_t, v_t, q_t), ""),
        Case(step(1, 4), "K = 1"),
        Case(step(4, 1), "V = 1"),
        Case(step(3, 3), "K = V"),
        Case(step(6, 9), ""),
    ]


def step_oracle(S, k_t, v_t, q_t):
    S = S + np.outer(k_t, v_t)
    return S, S.T @ q_t


def _overwrite_the_row(S, k_t, v_t, q_t):
    S = S.copy()
    S[np.argmax(k_t)] = v_t
    return S, S.T @ q_t


STEP = Exercise(
    id="1.3",
    name="step",
    title="write one token, then read",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("S[k, v]", "o[v]"),
    cases=_step_cases,
    oracle=step_oracle,
    mistakes=(
        Mistake(
            "read-before-write",
            "o was read from the old state; the read comes after the write, so a token sees what it wrote itself",
            lambda S, k_t, v_t, q_t: (S + np.outer(k_t, v_t), S.T @ q_t),
        ),
        Mistake(
            "nothing-kept",
            "the new state is the write alone; the write is added to what the state held before",
            lambda S, k_t, v_t, q_t: step_oracle(np.zeros_like(S), k_t, v_t, q_t),
        ),
        Mistake(
            "swapped-q-k",
            "query and key have changed places: the key writes, the query reads",
            lambda S, k_t, v_t, q_t: step_oracle(S, q_t, v_t, k_t),
        ),
        Mistake(
            "row-overwritten",
            "one row of the state was set to the value, as in a dictionary; a write adds to every row, as strongly as "
            "the key says",
            _overwrite_the_row,
        ),
        Mistake(
            "transposed-write",
            "the write is `v kᵀ`, of shape `(V, K)`; rows of the state are keys, so it is `k vᵀ`",
            lambda S, k_t, v_t, q_t: (S + np.outer(v_t, k_t), (S + np.outer(v_t, k_t)).T @ q_t),
            sign="error",
        ),
        Mistake(
            "read-without-transposing",
            "the state was multiplied by the query from the wrong side; `Sᵀ q` adds up the rows of S: V entries",
            lambda S, k_t, v_t, q_t: (S + np.outer(k_t, v_t), (S + np.outer(k_t, v_t)) @ q_t),
            sign="error",
        ),
        Mistake(
            "order-swapped",
            "the output was returned first; the ask is the new state first, then the output",
            lambda S, k_t, v_t, q_t: step_oracle(S, k_t, v_t, q_t)[::-1],
        ),
        Mistake(
            "scaled",
            "the read was divided by the square root of K, as attention's scores are; the state's read has no scale",
            lambda S, k_t, v_t, q_t: (S + np.outer(k_t, v_t), (S + np.outer(k_t, v_t)).T @ q_t / np.sqrt(len(q_t))),
        ),
    ),
    hints=(
        "From an empty state, with key and query both Ada, the token reads its own value back.",
        "Two lines: the first makes the new state from the old one, the second reads the new one.",
        "`np.outer` of two vectors of lengths K and V is a `(K, V)` array: the write. Do not change the caller's "
        "array: `+=` would.",
        "Add to the state the outer product of key and value, in this order; then multiply the transposed new state "
        "by the query, and return both.",
    ),
)


# --- 1.4 the recurrent form ---------------------------------------------------------------------


def _recurrent_cases(rng):
    def run(T, K, V, *, empty=False):
        S0 = np.zeros((K, V)) if empty else rng.standard_normal((K, V))
        return *draw(rng, T, K, V), S0

    prompt = np.array([[99.0], [5.0]])
    return [
        Case((*adas_room(), np.zeros((2, 1))), "Ada's room, from an empty state"),
        Case((*adas_room(), prompt), "Ada's room, where a prompt has left Ada -> 99 and Bo -> 5"),
        Case(run(1, 2, 3), "T = 1"),
        Case(run(3, 3, 3), "T = K = V"),
        Case(run(4, 1, 3), "K = 1"),
        Case(run(5, 3, 1), "V = 1"),
        Case((*repeat_keys(*draw(rng, 7, 3, 2)), rng.standard_normal((3, 2))), "two keys, each used again and again"),
        Case(run(6, 4, 2, empty=True), "from an empty state"),
        Case((*unread_giant(0.0), np.zeros((1, 1))), "the last key is 1e20: no earlier token may know of it"),
        Case(run(40, 5, 4), "40 tokens"),
        Case(run(1500, 24, 20), f"{LONG}; T states take 5.8 MB", max_bytes=2_000_000),
    ]


def recurrent_oracle(q, k, v, S0):
    S, o = S0.copy(), np.zeros_like(v)
    for t in range(len(v)):
        S, o[t] = step_oracle(S, k[t], v[t], q[t])
    return o, S


def _read_old_state(q, k, v, S0):
    o, S = recurrent_oracle(q, k, v, S0)
    return o - np.sum(q * k, axis=1, keepdims=True) * v, S


def _from_the_second_token(q, k, v, S0):
    o, S = recurrent_oracle(q[1:], k[1:], v[1:], S0)
    return np.concatenate([np.zeros_like(v[:1]), o]), S


RECURRENT = Exercise(
    id="1.4",
    name="linear_attention_recurrent",
    title="a loop that carries the state",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("o[t, v]", "S[k, v]"),
    cases=_recurrent_cases,
    oracle=recurrent_oracle,
    mistakes=(
        Mistake(
            "read-before-write",
            "token t was read from the state before its write; the read comes after it",
            _read_old_state,
        ),
        Mistake(
            "start-ignored",
            "the state started empty; it starts as S0, which the prompt has left",
            lambda q, k, v, S0: recurrent_oracle(q, k, v, np.zeros_like(S0)),
        ),
        Mistake(
            "order-swapped",
            "the state was returned first; the ask is the outputs first, then the last state",
            lambda q, k, v, S0: recurrent_oracle(q, k, v, S0)[::-1],
        ),
        Mistake(
            "first-token-skipped",
            "the first token was neither written nor read; S0 is the state before it, so the loop starts at row 0",
            _from_the_second_token,
        ),
        Mistake(
            "everyone-reads-the-end",
            "every token was read from the last state; token t reads the state right after its own write",
            lambda q, k, v, S0: (q @ recurrent_oracle(q, k, v, S0)[1], recurrent_oracle(q, k, v, S0)[1]),
        ),
        Mistake(
            "swapped-q-k",
            "queries and keys have changed places: keys write, queries read",
            lambda q, k, v, S0: recurrent_oracle(k, q, v, S0),
        ),
        Mistake(
            "nothing-carried",
            "every token started again from S0, so it sees the prompt and itself; it starts from the state that the "
            "token before has left",
            lambda q, k, v, S0: (q @ S0 + np.sum(q * k, axis=1, keepdims=True) * v, S0 + np.outer(k[-1], v[-1])),
        ),
        Mistake(
            "more-than-one-state",
            "a state for every token, or a score for every pair of tokens, is kept at once; one state of `(K, V)` "
            "numbers, carried through the loop, is enough",
            lambda q, k, v, S0: (read(q, S0 + sums(k, v)), S0 + k.T @ v),
            sign="memory",
        ),
    ),
    hints=(
        "The first token reads `S0` plus its own write. The returned state is the one that the last token read.",
        "Exercise 1.3 is the body of the loop. The state lives outside the loop, and one is enough.",
        "Start from a copy of `S0`, and from an output array of floats, as many as in `v`. Loop over t.",
        "In the loop: the state becomes itself plus the outer product of row t of `k` and row t of `v`; then row t of "
        "the output is the transposed state times row t of `q`. After the loop return outputs and state.",
    ),
)

EXERCISES = (STEP, RECURRENT)
