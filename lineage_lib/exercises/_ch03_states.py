"""Chapter 03, third part: states carried in and out, what both forms cost, the transpose (3.7 to 3.10)."""

import numpy as np

from lineage_lib import matrices, reference
from lineage_lib.exercises._ch03_forms import FADING, SQUARE, adas_room, draw_head, fading
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 3.7 the quadratic form with an initial state -----------------------------------------------


def _state_cases(rng):
    def head(T, N, P, **kwargs):
        return (*draw_head(rng, T, N, P, **kwargs), rng.standard_normal((N, P)))

    return [
        Case(head(1, 2, 3), "T = 1: the first decay acts on S0"),
        Case((*adas_room(), np.array([[99.0], [5.0]])), "Ada's room, with Ada -> 99 and Bo -> 5 carried in"),
        Case(head(2, 1, 4), "N = 1: the state has one row"),
        Case(head(3, 4, 4), SQUARE),
        Case(head(4, 3, 2, a=1.0), "every decay is 1"),
        Case(head(5, 2, 3, resets=(2,)), "a[2] = 0: from there on S0 is gone"),
        Case(head(5, 3, 4, negative=(0, 1, 3)), "a[0], a[1] and a[3] are negative"),
        Case(head(6, 3, 2, resets=(5,)), "a[5] = 0: the last token erases all that was there before its write"),
        Case(head(14, 4, 3, resets=(0,)), "a[0] = 0: S0 is erased before the first write"),
        Case(head(40, 5, 2), "40 tokens"),
        Case(head(330, 3, 2, a=fading(rng, 330)), FADING),
    ]


def from_state_oracle(X, a, B, C, S0):
    return reference.ssd_recurrent(X, a, B, C, S0)[0]


def _with_state_weights(weights, X, a, B, C, S0):
    return matrices.ssd_quadratic(X, a, B, C) + weights[:, None] * (C @ S0)


FROM_STATE = Exercise(
    id="3.7",
    name="ssd_from_state",
    title="add what the initial state says",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("Y[t, p]",),
    cases=_state_cases,
    oracle=from_state_oracle,
    mistakes=(
        Mistake(
            "first-decay-left-out",
            "S0 was decayed by a_t … a_2 only; S0 stands before the first token, so the first decay acts on it too",
            lambda X, a, B, C, S0: _with_state_weights(matrices.segment_products(a)[:, 0], X, a, B, C, S0),
        ),
        Mistake(
            "state-ignored",
            "S0 was not used; every output gets the extra term a_{t:0} S0ᵀ C_t",
            lambda X, a, B, C, S0: matrices.ssd_quadratic(X, a, B, C),
        ),
        Mistake(
            "state-not-decayed",
            "S0 is read in full at every token; by token t it has been multiplied by all decays up to a_t",
            lambda X, a, B, C, S0: _with_state_weights(np.ones_like(a), X, a, B, C, S0),
        ),
        Mistake(
            "one-step-decay",
            "S0 was multiplied by a_t alone; by token t it has been multiplied by a_1 … a_t",
            lambda X, a, B, C, S0: _with_state_weights(a, X, a, B, C, S0),
        ),
        Mistake(
            "decayed-one-step-late",
            "at token t the decays of S0 ran up to a_{t-1} only; a_t acts before the read, so they run up to a_t",
            lambda X, a, B, C, S0: _with_state_weights(np.append(1.0, np.cumprod(a)[:-1]), X, a, B, C, S0),
        ),
        Mistake(
            "decayed-to-the-end",
            "S0 was multiplied by the product of all T decays at every token; by token t only a_1 … a_t have acted",
            lambda X, a, B, C, S0: _with_state_weights(np.full_like(a, a.prod()), X, a, B, C, S0),
        ),
        Mistake(
            "read-with-b",
            "S0 was read with the key B_t; reading is what the query C_t does",
            lambda X, a, B, C, S0: matrices.ssd_quadratic(X, a, B, C) + np.cumprod(a)[:, None] * (B @ S0),
        ),
        Mistake(
            "first-decay-only",
            "only the first decay was applied to S0; the later ones multiply it as well",
            lambda X, a, B, C, S0: _with_state_weights(np.full_like(a, a[0]), X, a, B, C, S0),
        ),
    ),
    hints=(
        "With `S0 = 0` this is exercise 3.2. With `X = 0` only `S0` speaks: the first output is then `a[0] S0ᵀ C[0]`.",
        "The layer is linear, so the answer is a sum: what `X` says to an empty state, plus what `S0` says to no "
        "input.",
        "What `S0` says at token t is `S0ᵀ C[t]` times the product of all decays up to and including `a[t]`.",
        "`np.cumprod(a)` holds those products; `C @ S0` holds all reads. Multiply row t of the second by entry t "
        "of the first, and add the quadratic form.",
    ),
)


# --- 3.8 the final state ------------------------------------------------------------------------


def _final_cases(rng):
    return [Case((c.args[0], c.args[1], c.args[2], c.args[4]), c.note) for c in _state_cases(rng)]


def final_state_oracle(X, a, B, S0):
    return reference.ssd_recurrent(X, a, B, np.zeros_like(B), S0)[1]


def _weighted_state(start, writes, X, B, S0):
    return start * S0 + (writes[:, None] * B).T @ X


FINAL_STATE = Exercise(
    id="3.8",
    name="ssd_final_state",
    title="the state after the last token",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("S[n, p]",),
    cases=_final_cases,
    oracle=final_state_oracle,
    mistakes=(
        Mistake(
            "writes-not-decayed",
            "every write was added in full; write s has been multiplied by the decays s+1 … T by the end",
            lambda X, a, B, S0: _weighted_state(a.prod(), np.ones_like(a), X, B, S0),
        ),
        Mistake(
            "start-not-decayed",
            "S0 was added in full; by the end it has been multiplied by every decay",
            lambda X, a, B, S0: _weighted_state(1.0, matrices.segment_products(a)[-1], X, B, S0),
        ),
        Mistake(
            "start-ignored",
            "S0 was not used; it arrives at the end multiplied by every decay",
            lambda X, a, B, S0: _weighted_state(0.0, matrices.segment_products(a)[-1], X, B, S0),
        ),
        Mistake(
            "first-decay-left-out",
            "S0 was decayed by a_2 … a_T only; the first decay acts on it too",
            lambda X, a, B, S0: _weighted_state(a[1:].prod(), matrices.segment_products(a)[-1], X, B, S0),
        ),
        Mistake(
            "decay-from-the-start",
            "write s was multiplied by the decays from the start up to a_s; what it has met by the end are s+1 … T",
            lambda X, a, B, S0: _weighted_state(a.prod(), np.cumprod(a), X, B, S0),
        ),
        Mistake(
            "column-of-the-mask",
            "the weights are the last column of L, in which only the last write is left; what is left of each write "
            "at the last token is the last row",
            lambda X, a, B, S0: _weighted_state(a.prod(), matrices.segment_products(a)[:, -1], X, B, S0),
        ),
        Mistake(
            "decay-includes-own",
            "write s was multiplied by a_s as well; a_s acted before it was written",
            lambda X, a, B, S0: _weighted_state(a.prod(), matrices.segment_products(a)[-1] * a, X, B, S0),
        ),
        Mistake(
            "cumulative-ratio",
            "a product of all decays was divided by a cumulative product; after a reset that is 0/0, hence NaN",
            lambda X, a, B, S0: _weighted_state(a.prod(), a.prod() / np.cumprod(a), X, B, S0),
        ),
    ),
    hints=(
        "The last token arrives in full: with `T = 1` the answer is `a[0] S0 + B[0] X[0]ᵀ`.",
        "The lemma of the page, at the last token: one term for `S0` and a sum over s of weighted outer products.",
        "The weights of the writes are the last row of the mask. A sum over s of outer products is one matrix product.",
        "Scale row s of `B` by entry s of the last row of the segment products, transpose, multiply with `X`, "
        "and add `S0` times the product of all decays.",
    ),
)


# --- 3.9 where the counts cross -----------------------------------------------------------------


def crossover_oracle(N, P):
    return 5 * N * P // (2 * N + 2 * P + 3) + 1


CROSSOVER = Exercise(
    id="3.9",
    name="crossover_length",
    title="where the recurrence is cheaper",
    points=1,
    minutes=4,
    difficulty="warm-up",
    returns=("T",),
    cases=lambda rng: [
        Case((1, 1), "the smallest head"),
        Case((2, 3), ""),
        Case((6, 15), "at T = 10 both forms need the same number"),
        Case((16, 1), "one channel, as in Mamba-1"),
        Case((16, 64), ""),
        Case((64, 64), "the head of the page"),
        Case((128, 64), "Mamba-2's default head"),
        Case((int(rng.integers(200, 300)), int(rng.integers(65, 129))), "drawn at random"),
        Case((2048, 4760), "a large head: at the answer the recurrence needs barely fewer"),
    ],
    oracle=crossover_oracle,
    mistakes=(
        Mistake(
            "equal-is-enough",
            "at this length the two counts are equal; the ask is the first length at which the recurrence needs fewer",
            lambda N, P: -(-5 * N * P // (2 * N + 2 * P + 3)),
        ),
        Mistake(
            "rounded-down",
            "this is one too short: at this length the quadratic form does not yet need more",
            lambda N, P: 5 * N * P // (2 * N + 2 * P + 3),
        ),
        Mistake(
            "mask-not-counted",
            "only the two matrix products were counted; making the mask and multiplying by it take 3 T² more",
            lambda N, P: 5 * N * P // (2 * N + 2 * P) + 1,
        ),
        Mistake(
            "decay-not-counted",
            "the recurrence was counted as 4 N P a step; decaying the state takes N P more",
            lambda N, P: 4 * N * P // (2 * N + 2 * P + 3) + 1,
        ),
        Mistake(
            "products-counted-once",
            "a dot product of n terms was counted as n; it is n multiplications and n additions, 2 n",
            lambda N, P: 4 * N * P // (N + P + 3) + 1,
        ),
        Mistake(
            "not-rounded",
            "this is where the two curves cross, not a length; a length is a whole number of tokens",
            lambda N, P: 5 * N * P / (2 * N + 2 * P + 3),
        ),
    ),
    hints=(
        "At the length before the answer the recurrence must not yet win, and at the answer it must.",
        "Add up the table: one total is a number times `T`, the other a number times `T²`.",
        "Divide both totals by `T`. The recurrence wins when what is left of the quadratic one is larger.",
        "The lengths at which it wins are those above `5 N P / (2 N + 2 P + 3)`; the answer is the first whole number "
        "strictly above that.",
    ),
)


# --- 3.10 the transpose -------------------------------------------------------------------------


def _transpose_cases(rng):
    X, a, B, C = adas_room()
    return [
        Case(draw_head(rng, 1, 2, 3), "T = 1"),
        Case((X, a, B, C), "Ada's room, read backwards"),
        Case(draw_head(rng, 2, 1, 4), "N = 1: the state has one row"),
        Case(draw_head(rng, 3, 4, 4), SQUARE),
        Case(draw_head(rng, 6, 3, 2, resets=(2,)), "a[2] = 0: nothing crosses from token 2 to token 1"),
        Case(draw_head(rng, 5, 2, 3, a=1.0), "every decay is 1"),
        Case(draw_head(rng, 6, 2, 4, negative=(1, 2, 4)), "a[1], a[2] and a[4] are negative"),
        Case(draw_head(rng, 21, 4, 3, resets=(0, 9, 10)), "resets at 0, 9 and 10"),
        Case(
            draw_head(rng, 1500, 3, 2, a=fading(rng, 1500)),
            "1,500 tokens, where a T by T matrix takes 18 MB; the first 260 decays have a product that underflows to 0",
            max_bytes=2_000_000,
        ),
    ]


def transpose_oracle(dY, a, B, C):
    return _backward(dY, np.append(a[1:], 1.0), C, B)


def _backward(dY, decays, keys, queries):
    """From the last token to the first: decay by ``decays[s]``, write ``keys[s]``, read ``queries[s]``."""
    return reference.ssd_recurrent(dY[::-1], decays[::-1], keys[::-1], queries[::-1])[0][::-1]


def _by_division(dY, a, B, C):
    products = np.cumprod(a)[:, None]
    gathered = np.cumsum(((products * C)[:, :, None] * dY[:, None, :])[::-1], axis=0)[::-1]
    return np.einsum("sn,snp->sp", B / products, gathered)


TRANSPOSE = Exercise(
    id="3.10",
    name="ssd_transpose",
    title="run the layer backwards in time",
    points=4,
    minutes=20,
    difficulty="hard",
    returns=("dX[s, p]",),
    cases=_transpose_cases,
    oracle=transpose_oracle,
    mistakes=(
        Mistake(
            "own-decay",
            "at token s the state was decayed by a_s; between token s+1 and token s stands a_{s+1}",
            lambda dY, a, B, C: _backward(dY, a, C, B),
        ),
        Mistake(
            "no-decay",
            "the decays were not used; on the way from token s+1 to token s the state is multiplied by a_{s+1}",
            lambda dY, a, B, C: _backward(dY, np.ones_like(a), C, B),
        ),
        Mistake(
            "forward-swapped",
            "B and C have changed places, but time still runs forwards",
            lambda dY, a, B, C: reference.ssd_recurrent(dY, a, C, B)[0],
        ),
        Mistake(
            "not-swapped",
            "time runs backwards, but B still writes and C still reads; in the transpose they change places",
            lambda dY, a, B, C: _backward(dY, np.append(a[1:], 1.0), B, C),
        ),
        Mistake(
            "reversed",
            "the rows stand in the order in which they were computed, last token first; row s of dX belongs to token s",
            lambda dY, a, B, C: transpose_oracle(dY, a, B, C)[::-1],
        ),
        Mistake(
            "division",
            "cumulative products were divided by each other; after a reset that is 0/0, hence NaN: "
            "multiply the state by one decay a step",
            _by_division,
        ),
        Mistake(
            "read-before-write",
            "token s was read before dY[s] was written; the sum over t starts at t = s",
            lambda dY, a, B, C: transpose_oracle(dY, a, B, C) - np.sum(B * C, axis=1, keepdims=True) * dY,
        ),
        Mistake(
            "quadratic",
            "this builds the T by T matrix and transposes it; carry one (N, P) state from the last token to the first",
            lambda dY, a, B, C: (matrices.segment_products(a) * (C @ B.T)).T @ dY,
            sign="memory",
        ),
    ),
    hints=(
        "The last row of the result is `(B[-1] · C[-1]) dY[-1]`: after the last token there is nothing. "
        "The first row hears from all.",
        "Write the sums for `dX[s]` and `dX[s + 1]` under each other. What do they share, and by which decay do they "
        "differ?",
        "The shared part is a state of shape `(N, P)` that gathers `C[t] dY[t]ᵀ` from the end. Which decays stand "
        "between t and `s + 1` and also between t and s, and which one is new?",
        "Going from the last token to the first: multiply the state by the decay of the token after this one "
        "(nothing to multiply at the last token), add the outer product of `C[s]` and `dY[s]`, read it with `B[s]`.",
    ),
)

EXERCISES = (FROM_STATE, FINAL_STATE, CROSSOVER, TRANSPOSE)
