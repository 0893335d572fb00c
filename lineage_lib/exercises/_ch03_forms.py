"""Chapter 03, first half: the two forms, linear attention, one mask a state channel (3.1 to 3.4)."""

import numpy as np

from lineage_lib import reference
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.matrices import segment_products, ssd_quadratic


def draw_head(rng, T, N, P, *, resets=(), negative=(), a=None):
    """(X, a, B, C) of one head: decays of size 0.5 to 1, so that the state survives; 0 at the resets."""
    a = rng.uniform(0.5, 1.0, T) if a is None else np.array(np.broadcast_to(a, T), dtype=float)
    a[list(resets)] = 0.0
    a[list(negative)] *= -1.0
    return rng.standard_normal((T, P)), a, rng.standard_normal((T, N)), rng.standard_normal((T, N))


FADING = "260 decays below 0.1, whose product underflows to 0, then decays near 1, which keep old writes for long"
SQUARE = "N = P, and fewer tokens"


def fading(rng, T):
    """260 small decays, which make cumulative products useless, then decays near 1, which show a short memory."""
    return np.append(rng.uniform(0.01, 0.1, 260), rng.uniform(0.97, 1.0, T - 260))


def adas_room():
    """(X, a, B, C): Ada -> 31, Bo -> 12, Ada -> 47, then a question about Ada that writes nothing."""
    ada, bo, nobody = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
    X = np.array([[31.0], [12.0], [47.0], [0.0]])
    return X, np.array([0.5, 0.5, 0.5, 1.0]), np.array([ada, bo, ada, nobody]), np.array([ada, bo, ada, ada])


def repeat_keys(X, a, B, C):
    """The same head with only two different keys, which every third token uses."""
    B = B[[0, 1, 0] * len(B)][: len(B)]
    return X, a, B, B + 0.1 * C


def head_cases(rng):
    return [
        Case(draw_head(rng, 1, 2, 3), "T = 1: one token reads its own write"),
        Case(adas_room(), "Ada's room, the example of the page"),
        Case(draw_head(rng, 2, 1, 4), "N = 1: the state has one row"),
        Case(draw_head(rng, 3, 4, 4), SQUARE),
        Case(draw_head(rng, 5, 3, 2, resets=(2,)), "a[2] = 0: a reset"),
        Case(draw_head(rng, 5, 2, 4, negative=(1, 3)), "a[1] and a[3] are negative"),
        Case(draw_head(rng, 6, 2, 3, a=1.0), "every decay is 1: linear attention"),
        Case(repeat_keys(*draw_head(rng, 7, 3, 2)), "two keys, each used again and again"),
        Case(draw_head(rng, 13, 5, 3, resets=(0, 6, 7, 12)), "resets at 0, 6, 7 and 12, the last token"),
        Case(draw_head(rng, 40, 4, 6), "40 tokens"),
        Case(draw_head(rng, 330, 3, 2, a=fading(rng, 330)), FADING),
    ]


# --- 3.1 the recurrent form ---------------------------------------------------------------------


def recurrent_oracle(X, a, B, C):
    return reference.ssd_recurrent(X, a, B, C)[0]


def _loop(step, X, a, B, C):
    """A recurrence from ``step(S, t, write) -> (S, state that is read)``."""
    S, Y = np.zeros((B.shape[1], X.shape[1])), np.zeros_like(X)
    for t in range(len(X)):
        S, read = step(S, t, np.outer(B[t], X[t]))
        Y[t] = read.T @ C[t]
    return Y


def _twice(S):
    return S, S


RECURRENT = Exercise(
    id="3.1",
    name="ssd_recurrent",
    title="decay, write and read each token",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("Y[t, p]",),
    cases=head_cases,
    oracle=recurrent_oracle,
    mistakes=(
        Mistake(
            "decay-after-write",
            "the state was decayed after the write, so the new token fades too; "
            "the equation decays S_{t-1} and then adds B_t x_tᵀ in full",
            lambda X, a, B, C: _loop(lambda S, t, w: _twice(a[t] * (S + w)), X, a, B, C),
        ),
        Mistake(
            "read-before-write",
            "y_t was read from S_{t-1}, before token t was written; the equation reads S_t, so a token sees itself",
            lambda X, a, B, C: _loop(lambda S, t, w: (a[t] * S + w, S), X, a, B, C),
        ),
        Mistake(
            "no-decay",
            "the decays were not used (this is a = 1, linear attention); S_{t-1} is multiplied by a_t at every step",
            lambda X, a, B, C: _loop(lambda S, t, w: _twice(S + w), X, a, B, C),
        ),
        Mistake(
            "decay-on-the-write",
            "a_t multiplies the write and the old state is kept whole; the equation asks for the opposite",
            lambda X, a, B, C: _loop(lambda S, t, w: _twice(S + a[t] * w), X, a, B, C),
        ),
        Mistake(
            "decay-of-the-step-before",
            "step t used the decay a_{t-1}, or the state was decayed after the read; "
            "the state is decayed by the number of the token that arrives, a_t, and then read",
            lambda X, a, B, C: recurrent_oracle(X, np.append(1.0, a[:-1]), B, C),
        ),
        Mistake(
            "nothing-carried",
            "every step started from an empty state, so y_t sees token t alone; S_t is made from S_{t-1}",
            lambda X, a, B, C: _loop(lambda S, t, w: _twice(w), X, a, B, C),
        ),
        Mistake(
            "swapped-b-c",
            "B and C have changed places: B_t is the key that writes, C_t the query that reads",
            lambda X, a, B, C: recurrent_oracle(X, a, C, B),
        ),
    ),
    hints=(
        "With one token the output is `(C[0] · B[0]) X[0]`, whatever the decay: nothing is there yet that could fade.",
        "Three things happen at a step, in this order: the old state shrinks, the token is written, the state is read.",
        "The state is an `(N, P)` array that starts as zeros and lives outside the loop. A write is an outer product.",
        "Inside the loop over t the state becomes `a[t]` times itself plus the outer product of row t of `B` with "
        "row t of `X`; after that, row t of the output is the transposed state applied to row t of `C`.",
    ),
)


# --- 3.2 the quadratic form ---------------------------------------------------------------------


def _cumulative_ratio(X, a, B, C):
    P = np.cumprod(a)
    return (np.tril(P[:, None] / P) * (C @ B.T)) @ X


QUADRATIC = Exercise(
    id="3.2",
    name="ssd_quadratic",
    title="masked scores times the inputs",
    points=1,
    minutes=3,
    difficulty="warm-up",
    returns=("Y[t, p]",),
    cases=head_cases,
    oracle=ssd_quadratic,
    mistakes=(
        Mistake(
            "decay-includes-own",
            "the segment products include a_s; a_s acted before input s was written, so L[t, s] runs over "
            "s+1 … t and its diagonal is 1",
            lambda X, a, B, C: (segment_products(a) * a * (C @ B.T)) @ X,
        ),
        Mistake(
            "transposed-mask",
            "the mask is transposed: row t lets the future in; L[t, s] is zero for s > t",
            lambda X, a, B, C: (segment_products(a).T * (C @ B.T)) @ X,
        ),
        Mistake(
            "strict-mask",
            "the diagonal of the mask is 0, so a token does not see itself; the read comes after the write, and "
            "L[t, t] = 1",
            lambda X, a, B, C: np.tril(segment_products(a) * (C @ B.T), -1) @ X,
        ),
        Mistake(
            "no-decay",
            "the mask holds only ones and zeros (this is a = 1, linear attention); "
            "entry (t, s) is the product of the decays s+1 … t",
            lambda X, a, B, C: np.tril(C @ B.T) @ X,
        ),
        Mistake(
            "matrix-product",
            "the mask was multiplied as a matrix, L (C Bᵀ) X; the circle in (L ∘ C Bᵀ) multiplies entry by entry",
            lambda X, a, B, C: segment_products(a) @ (C @ B.T) @ X,
        ),
        Mistake(
            "swapped-b-c",
            "the scores are B Cᵀ; entry (t, s) is the query of t with the key of s, C_t · B_s",
            lambda X, a, B, C: (segment_products(a) * (B @ C.T)) @ X,
        ),
        Mistake(
            "no-mask",
            "the scores were not masked, so a token collects from all tokens, the future included, and nothing fades; "
            "they multiply L entry by entry",
            lambda X, a, B, C: (C @ B.T) @ X,
        ),
        Mistake(
            "cumulative-ratio",
            "the mask is a ratio of cumulative products (or a difference of cumulative logarithms); "
            "after a reset that is 0/0, hence NaN: multiply up each segment by itself",
            _cumulative_ratio,
        ),
    ),
    hints=(
        "The first row of the output is `(C[0] · B[0]) X[0]`, and with `T = 1` no decay may show in the result.",
        "Three arrays meet: the mask `(T, T)`, the scores `(T, T)`, the inputs `(T, P)`. "
        "Two of them meet entry by entry, and the result meets the third as a matrix.",
        "Row t, column s of the scores is the query of t with the key of s. `matrices.segment_products` gives the "
        "mask.",
        "One line: the mask times, entry by entry, the matrix product of `C` with `B` transposed; "
        "all of that matrix-multiplied with `X`. Mind the brackets: `*` and `@` bind equally strongly.",
    ),
)


# --- 3.3 linear attention by a cumulative sum ---------------------------------------------------


def _attention_cases(rng):
    def qkv(T, N, P, *, positive=False):
        V, _, K, Q = draw_head(rng, T, N, P)
        return (np.abs(Q), np.abs(K), V) if positive else (Q, K, V)

    X, _, B, C = adas_room()
    return [
        Case(qkv(1, 2, 3), "T = 1"),
        Case((C, B, X), "Ada's room without decay"),
        Case(qkv(2, 1, 4), "N = 1: the state has one row"),
        Case(qkv(3, 4, 4), SQUARE),
        Case(qkv(6, 4, 3, positive=True), "queries and keys are positive"),
        Case(qkv(17, 3, 5), ""),
        Case(
            qkv(1500, 3, 2),
            "1,500 tokens: a (T, N, P) array takes 72 kB, a T by T matrix 18 MB, and 2.25 MB as booleans",
            max_bytes=2_000_000,
        ),
    ]


def _states(K, V):
    return np.cumsum(K[:, :, None] * V[:, None, :], axis=0)


def _read(Q, S):
    return np.einsum("tn,tnp->tp", Q, S)


LINEAR_ATTENTION = Exercise(
    id="3.3",
    name="linear_attention",
    title="cumulate the outer products",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("Y[t, p]",),
    cases=_attention_cases,
    oracle=reference.linear_attention,
    mistakes=(
        Mistake(
            "not-causal",
            "this is Q (Kᵀ V): every token reads the state after the last token, the future included; "
            "token t reads the sum over s up to t",
            lambda Q, K, V: Q @ (K.T @ V),
        ),
        Mistake(
            "cumsum-of-the-product",
            "Kᵀ V was multiplied out and its rows were summed up, but it has no time left in it; "
            "what is summed over time is the outer product of each token",
            lambda Q, K, V: Q @ np.cumsum(K.T @ V, axis=0),
        ),
        Mistake(
            "read-before-write",
            "token t reads the sum over s < t, so it does not see itself; the sum runs to s = t",
            lambda Q, K, V: _read(Q, _states(K, V) - K[:, :, None] * V[:, None, :]),
        ),
        Mistake(
            "summed-apart",
            "K and V were summed apart and multiplied afterwards; what is summed is the outer product of each token",
            lambda Q, K, V: np.einsum("tn,tn,tp->tp", Q, np.cumsum(K, axis=0), np.cumsum(V, axis=0)),
        ),
        Mistake(
            "wrong-axis",
            "the outer products were summed along axis 1, over n; time is axis 0 of the (T, N, P) array",
            lambda Q, K, V: _read(Q, np.cumsum(K[:, :, None] * V[:, None, :], axis=1)),
        ),
        Mistake(
            "normalised",
            "the output was divided by the sum of the scores; this layer has no normaliser",
            lambda Q, K, V: _read(Q, _states(K, V)) / np.sum(Q * np.cumsum(K, axis=0), axis=1, keepdims=True),
        ),
        Mistake(
            "swapped-q-k",
            "Q and K have changed places: K writes (it is summed), Q reads (it stays outside the sum)",
            lambda Q, K, V: _read(K, _states(Q, V)),
        ),
        Mistake(
            "quadratic",
            "this multiplies out the T by T matrix of scores; sum the outer products k vᵀ over time instead, "
            "and no array is larger than (T, N, P)",
            lambda Q, K, V: np.tril(Q @ K.T) @ V,
            sign="memory",
        ),
    ),
    hints=(
        "The last row of the output is `Q[-1] · (Kᵀ V)`; the first row only knows the first token.",
        "Each token makes an `(N, P)` matrix. Stack them to `(T, N, P)` and sum along time.",
        "`np.cumsum` with `axis=0` sums along time. `K` as `(T, N, 1)` times `V` as `(T, 1, P)` makes all outer "
        "products.",
        "After the cumulative sum, row t of the output sums over n: entry n of row t of `Q` times row n of state t. "
        "An `einsum` says that in one line.",
    ),
)


# --- 3.4 one mask a state channel ---------------------------------------------------------------


def _diagonal_cases(rng):
    def diagonal(T, N, P, *, resets=(), negative=(), A=None):
        X, _, B, C = draw_head(rng, T, N, P)
        A = rng.uniform(0.5, 1.0, (T, N)) if A is None else A
        for index in resets:
            A[index] = 0.0
        for index in negative:
            A[index] *= -1.0
        return X, A, B, C

    X, a, B, C = draw_head(rng, 6, 3, 2)
    long = np.stack([fading(rng, 330), rng.uniform(0.5, 1.0, 330)], axis=1)
    return [
        Case(diagonal(1, 2, 3), "T = 1"),
        Case(diagonal(2, 1, 4), "N = 1: a single state channel"),
        Case(diagonal(3, 2, 1), ""),
        Case((X, np.repeat(a[:, None], 3, axis=1), B, C), "all state channels share one decay: plain SSD"),
        Case(diagonal(5, 2, 3, resets=((2, 0),)), "A[2, 0] = 0: channel 0 is reset, channel 1 is not"),
        Case(diagonal(5, 3, 4, negative=((1, 0), (3, 2), (4, 2))), "three decays are negative"),
        Case(diagonal(4, 4, 4), "T = N = P: every argument is square"),
        Case(diagonal(4, 6, 3), "more state channels than tokens"),
        Case(diagonal(6, 2, 4, resets=(3, 5)), "A[3] and A[5] are 0: all channels are reset, the last time at the end"),
        Case(diagonal(24, 3, 5, resets=((7, 1), (8, 1), (15, 0))), "three resets in two channels"),
        Case(diagonal(330, 2, 3, A=long), f"in channel 0, {FADING}"),
    ]


def diagonal_oracle(X, A, B, C):
    return reference.diagonal_recurrent(X, A, B, C)[0]


def _channel_masks(A):
    return np.stack([segment_products(A[:, n]) for n in range(A.shape[1])])


def _sum_of_channels(masks, X, B, C):
    return np.einsum("nts,tn,sn,sp->tp", masks, C, B, X)


def _ratio_diagonal(X, A, B, C):
    P = np.cumprod(A, axis=0)
    return np.tril((C * P) @ (B / P).T) @ X


DIAGONAL = Exercise(
    id="3.4",
    name="diagonal_quadratic",
    title="one mask for each state channel",
    points=3,
    minutes=9,
    difficulty="core",
    returns=("Y[t, p]",),
    cases=_diagonal_cases,
    oracle=diagonal_oracle,
    mistakes=(
        Mistake(
            "mean-decay",
            "one mask was made from the mean decay of the channels; a product of means is not a mean of products: "
            "every channel n needs its own mask",
            lambda X, A, B, C: ssd_quadratic(X, A.mean(axis=1), B, C),
        ),
        Mistake(
            "first-channel",
            "the mask of channel 0 was used for all channels; channel n has the decays A[:, n]",
            lambda X, A, B, C: ssd_quadratic(X, A[:, 0], B, C),
        ),
        Mistake(
            "masks-summed",
            "the N masks were added up and multiplied with C Bᵀ; each mask goes with the scores of its own channel, "
            "and the sum comes last",
            lambda X, A, B, C: (_channel_masks(A).sum(axis=0) * (C @ B.T)) @ X,
        ),
        Mistake(
            "last-channel-only",
            "only the last channel is in the output, as if each had replaced the one before; the channels are added up",
            lambda X, A, B, C: ssd_quadratic(X, A[:, -1], B[:, -1:], C[:, -1:]),
        ),
        Mistake(
            "decay-includes-own",
            "the segment products include A[s]; A[s] acted before input s was written, so a mask's diagonal is 1",
            lambda X, A, B, C: _sum_of_channels(_channel_masks(A) * A.T[:, None, :], X, B, C),
        ),
        Mistake(
            "swapped-b-c",
            "the outer products are b_n c_nᵀ; row t of the scores belongs to the query of t, so they are c_n b_nᵀ",
            lambda X, A, B, C: _sum_of_channels(_channel_masks(A), X, C, B),
        ),
        Mistake(
            "no-outer-product",
            "columns n of C and B were multiplied entry by entry, which pairs each token with itself; "
            "the scores of channel n pair every t with every s: an outer product",
            lambda X, A, B, C: sum((mask * c * b) @ X for mask, c, b in zip(_channel_masks(A), C.T, B.T)),
        ),
        Mistake(
            "cumulative-ratio",
            "cumulative products were divided by each other; after a reset that is 0/0, hence NaN: "
            "build one mask a channel",
            _ratio_diagonal,
        ),
    ),
    hints=(
        "When all columns of `A` are equal the result is that of `ssd_quadratic`. When one channel is reset, "
        "the other channels still remember.",
        "The layer is a sum over n of small layers with state size 1. Each is one you have already written.",
        "Channel n alone: decays are column n of `A`, keys column n of `B`, queries column n of `C`. "
        "Its scores are an outer product of two vectors of length T.",
        "Loop over n and add up: segment products of column n, times the outer product of columns n of `C` and `B`, "
        "matrix-multiplied with `X`.",
    ),
)

EXERCISES = (RECURRENT, QUADRATIC, LINEAR_ATTENTION, DIAGONAL)
