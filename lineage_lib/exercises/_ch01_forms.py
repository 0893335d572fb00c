"""Chapter 01, third part: linear attention without a loop, and with a normaliser (1.5 to 1.7)."""

import numpy as np

from lineage_lib.exercises._ch01_states import LONG, adas_room, draw, read, repeat_keys, sums, unread_giant
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 1.5 the parallel form ----------------------------------------------------------------------


def _form_cases(rng):
    _, k, v = draw(rng, 6, 3, 2)
    return [
        Case(adas_room(), "Ada's room, the example of the page"),
        Case(draw(rng, 1, 2, 3), "T = 1: one token reads its own write"),
        Case(draw(rng, 2, 1, 4), "K = 1"),
        Case(draw(rng, 4, 4, 4), "T = K = V"),
        Case(draw(rng, 3, 6, 2), "fewer tokens than K"),
        Case((k, k, v), "queries equal keys"),
        Case(repeat_keys(*draw(rng, 7, 3, 1)), "two keys, each used again and again; V = 1"),
        Case(unread_giant(0.0), "the last key is 1e20: no earlier token may know of it"),
        Case(draw(rng, 40, 5, 6), "40 tokens"),
    ]


def parallel_oracle(q, k, v):
    return np.tril(q @ k.T) @ v


def _row_normalised(q, k, v):
    scores = np.tril(q @ k.T)
    return scores / scores.sum(axis=1, keepdims=True) @ v


def _softmaxed(q, k, v):
    scores = np.where(np.tri(len(q), dtype=bool), q @ k.T, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


PARALLEL = Exercise(
    id="1.5",
    name="linear_attention_parallel",
    title="masked scores times the values",
    points=1,
    minutes=4,
    difficulty="warm-up",
    returns=("o[t, v]",),
    cases=_form_cases,
    oracle=parallel_oracle,
    mistakes=(
        Mistake(
            "no-mask",
            "the scores were not masked, so a token collects from all tokens, the future included",
            lambda q, k, v: q @ k.T @ v,
        ),
        Mistake(
            "strict-mask",
            "the diagonal was masked too, so a token does not see its own write; the read comes after the write",
            lambda q, k, v: np.tril(q @ k.T, -1) @ v,
        ),
        Mistake(
            "transposed-mask",
            "the upper triangle was kept, which is the future; row t keeps the columns s <= t",
            lambda q, k, v: np.triu(q @ k.T) @ v,
        ),
        Mistake(
            "swapped-q-k",
            "the scores are keys times queries; row t, column s is the query of t with the key of s",
            lambda q, k, v: np.tril(k @ q.T) @ v,
        ),
        Mistake(
            "softmax",
            "a softmax was taken; linear attention uses the scores as they are",
            _softmaxed,
        ),
        Mistake(
            "scaled",
            "the scores were divided by the square root of K; this form has no scale",
            lambda q, k, v: parallel_oracle(q, k, v) / np.sqrt(q.shape[1]),
        ),
        Mistake(
            "rows-normalised",
            "each row of scores was divided by its sum; the normaliser is a later section's subject, and this form "
            "has none",
            _row_normalised,
        ),
        Mistake(
            "masked-too-late",
            "the lower triangle was taken of the whole product, a `(T, V)` array; the mask belongs on the `(T, T)` "
            "table of scores, before the values are summed",
            lambda q, k, v: np.tril(q @ k.T @ v),
        ),
    ),
    hints=(
        "The first row of the output is `(q[0] · k[0]) v[0]`. The last row knows all tokens.",
        "Attention without the softmax: a table of scores, made causal, times the values.",
        "Row t, column s of `q @ k.T` is the score of query t with key s. `np.tril` sets what lies above the diagonal "
        "to 0.",
        "One line: the lower triangle, diagonal included, of queries times transposed keys; that, as a matrix, times "
        "the values.",
    ),
)


# --- 1.6 the reassociated form ------------------------------------------------------------------


def _question_cases(rng):
    def asked(M, T, K, V):
        return rng.standard_normal((M, K)), rng.standard_normal((T, K)), rng.standard_normal((T, V))

    q, k, v = adas_room()
    return [
        Case((q[1:], k[:3], v[:3]), "Ada's room: after the three notes, Bo, Ada and Ada again are asked for"),
        Case(asked(1, 4, 3, 2), "one question"),
        Case(asked(4, 1, 3, 2), "one note"),
        Case(asked(5, 5, 5, 5), "every argument is square"),
        Case(asked(3, 7, 1, 4), "K = 1"),
        Case(asked(7, 3, 5, 1), "V = 1"),
        Case(asked(6, 9, 2, 3), "more notes than K"),
        Case(
            asked(1200, 1500, 3, 2),
            "1,200 questions, 1,500 notes: a table of scores takes 14.4 MB, and 1.8 MB as booleans",
            max_bytes=1_000_000,
        ),
    ]


def reassociated_oracle(q, k, v):
    return q @ (k.T @ v)


REASSOCIATED = Exercise(
    id="1.6",
    name="linear_attention_reassociated",
    title="questions after all the notes",
    points=1,
    minutes=4,
    difficulty="warm-up",
    returns=("o[m, v]",),
    cases=_question_cases,
    oracle=reassociated_oracle,
    mistakes=(
        Mistake(
            "table-of-scores",
            "the scores of all questions with all notes were multiplied out; move the brackets, and the product in "
            "the middle has the size of a state",
            lambda q, k, v: (q @ k.T) @ v,
            sign="memory",
        ),
        Mistake(
            "masked",
            "question m saw the notes up to number m only; here every question comes after all the notes",
            lambda q, k, v: np.tril(q @ k.T) @ v,
        ),
        Mistake(
            "summed-apart",
            "keys and values were summed apart, and multiplied afterwards; what is summed over the notes is the outer "
            "product of each key with its value",
            lambda q, k, v: np.outer(q @ k.sum(axis=0), v.sum(axis=0)),
        ),
        Mistake(
            "averaged",
            "the result was divided by the number of notes; the state is their sum",
            lambda q, k, v: reassociated_oracle(q, k, v) / len(k),
        ),
        Mistake(
            "last-note-only",
            "only the last note is in the state; the state is the sum over all notes",
            lambda q, k, v: q @ np.outer(k[-1], v[-1]),
        ),
        Mistake(
            "softmax",
            "a softmax was taken over the scores; linear attention uses them as they are",
            lambda q, k, v: np.stack([_attend_without_scale(x, k, v) for x in q]),
        ),
        Mistake(
            "normalised",
            "each read was divided by the sum of its scores; the equation has no division",
            lambda q, k, v: reassociated_oracle(q, k, v) / (q @ k.sum(axis=0))[:, None],
        ),
    ),
    hints=(
        "One question and one note give `(q[0] · k[0]) v[0]`. The number of questions and that of notes may differ.",
        "A product of three matrices can be bracketed in two ways. Which of them has a small matrix in the middle?",
        "Values and keys share the axis of the notes. Sum over it first: what comes out is the state, `(K, V)`.",
        "Multiply the transposed keys by the values, in brackets; then the queries by that.",
    ),
)


def _attend_without_scale(q_t, k, v):
    scores = k @ q_t
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ v


# --- 1.7 with the normaliser --------------------------------------------------------------------


def _feature_cases(rng):
    def features(T, K, V, *, size=1.0):
        return *(size * rng.uniform(0.1, 2.0, (T, K)) for _ in range(2)), rng.standard_normal((T, V))

    q, k, v = (x[:3] for x in adas_room())
    return [
        Case((q, k, v), "the three notes of Ada's room, each reading its own name"),
        Case(features(1, 2, 3), "T = 1: the output is the token's own value"),
        Case(features(3, 1, 2), "K = 1"),
        Case(features(4, 4, 4), "T = K = V"),
        Case(repeat_keys(*features(7, 3, 1)), "two keys, each used again and again; V = 1"),
        Case(features(5, 2, 3, size=1e-3), "small features"),
        Case(features(2, 3, 2, size=1e-20), "tiny features, with sums of scores near 1e-40"),
        Case((*features(4, 3, 2)[:2], rng.integers(1, 50, (4, 2))), "the values are integers, the outputs are not"),
        Case(unread_giant(1.0), "the last key is 1e20: no earlier token may know of it"),
        Case(features(40, 5, 6), "40 tokens"),
        Case(features(1500, 4, 3), LONG, max_bytes=2_000_000),
    ]


def _divided(q, k, v, total):
    return read(q, sums(k, v)) / total[:, None]


def _normalised(q, k, v, z):
    return _divided(q, k, v, np.sum(q * z, axis=1))


def _phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def normalised_oracle(q, k, v):
    return _normalised(q, k, v, np.cumsum(k, axis=0))


NORMALISED = Exercise(
    id="1.7",
    name="normalised_linear_attention",
    title="a second sum for the weights",
    points=2,
    minutes=9,
    difficulty="core",
    returns=("o[t, v]",),
    cases=_feature_cases,
    oracle=normalised_oracle,
    mistakes=(
        Mistake(
            "not-normalised",
            "the read was not divided by the sum of the scores, `z · q`",
            lambda q, k, v: read(q, sums(k, v)),
        ),
        Mistake(
            "normaliser-of-all-tokens",
            "z is the sum of all keys, the future's included; at token t it is the sum of the keys up to t",
            lambda q, k, v: _normalised(q, k, v, np.broadcast_to(k.sum(axis=0), k.shape)),
        ),
        Mistake(
            "normaliser-one-late",
            "z was read before the key of token t was added, while the state already held its write; both are sums "
            "up to t",
            lambda q, k, v: _normalised(q, k, v, np.cumsum(k, axis=0) - k),
        ),
        Mistake(
            "features-twice",
            "`q` and `k` were put through the feature map again; they have been through one already",
            lambda q, k, v: normalised_oracle(_phi(q), _phi(k), v),
        ),
        Mistake(
            "query-left-out",
            "the read was divided by the sum of the entries of z; the normaliser is read with the query, `z · q`",
            lambda q, k, v: read(q, sums(k, v)) / np.cumsum(k, axis=0).sum(axis=1, keepdims=True),
        ),
        Mistake(
            "epsilon",
            "a small number was added to the sum of the scores; the equation has none, and where the sum is small "
            "itself it changes the answer",
            lambda q, k, v: _divided(q, k, v, np.sum(q * np.cumsum(k, axis=0), axis=1) + 1e-6),
        ),
        Mistake(
            "not-causal",
            "every token reads the state and the normaliser after the last token; token t knows the tokens up to t",
            lambda q, k, v: q @ (k.T @ v) / (q @ k.sum(axis=0))[:, None],
        ),
        Mistake(
            "quadratic",
            "the table of all scores is kept at once; the two sums S and z, carried through the tokens, are enough",
            lambda q, k, v: _row_normalised(q, k, v),
            sign="memory",
        ),
    ),
    hints=(
        "The first output is `v[0]`, whatever query and key are. And if all values are equal, so are all outputs.",
        "Carry two sums through the tokens: S as before, and z, which is what S would be if every value were 1. The "
        "outputs are floats, also where the values are integers.",
        "z is a vector of K numbers, the sum of the keys so far. Both sums include token t before it reads.",
        "In a loop over t: add the outer product to S, add row t of `k` to z, and divide the read by the dot product "
        "of z with row t of `q`.",
    ),
)

EXERCISES = (PARALLEL, REASSOCIATED, NORMALISED)
