"""Chapter 01, first part: the exact record and its cost (1.1 and 1.2)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 1.1 one query reads the cache --------------------------------------------------------------


def _cache_cases(rng):
    def cache(t, K, V, *, size=1.0):
        return size * rng.standard_normal(K), rng.standard_normal((t, K)), rng.standard_normal((t, V))

    ada, bo = [1.0, 0.0], [0.0, 1.0]
    rooms = np.array([[31.0], [12.0], [47.0]])
    q, k, v = cache(6, 4, 3)
    high, low = np.array([30_000.0, 10.0]), np.array([-30_000.0, 10.0])
    near = np.array([[1.0, 0.1], [1.0, 0.3], [1.0, 0.2]])
    wide = np.array([[1.0, 2.0], [-1.0, 0.5], [0.9, 0.1]])
    return [
        Case((np.array([0.0]), np.array([[5.0], [9.0]]), np.array([[31.0], [47.0]])), "a query of 0: equal weights"),
        Case(cache(1, 3, 2), "one entry: whatever the query, its value is the answer"),
        Case((np.array([2.0, 0.0]), np.array([ada, bo, ada]), rooms), "Ada's room, with a query of length 2"),
        Case(cache(3, 3, 3), "t = K = V"),
        Case(cache(4, 1, 2), "K = 1"),
        Case((q, k[[0, 1, 0, 0, 2, 1]], v), "repeated keys"),
        Case((high, near, rooms), "scaled scores near 21,000, whose exponentials overflow"),
        Case((low, near, rooms), "scaled scores near -21,000, whose exponentials are all 0"),
        Case((np.array([-50_000.0, 10.0]), wide, rooms), "scaled scores from about -35,000 to 35,000"),
        Case(cache(40, 8, 5, size=3.0), "40 entries"),
    ]


def _scores(q_t, k):
    return k @ q_t / np.sqrt(len(q_t))


def _softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def attend_oracle(q_t, k, v):
    return _softmax(_scores(q_t, k)) @ v


def _overflowing(q_t, k, v):
    weights = np.exp(_scores(q_t, k))
    return weights / weights.sum() @ v


def _power(q_t, k, v):
    scores = _scores(q_t, k)
    return scores / scores.sum() @ v


ATTEND = Exercise(
    id="1.1",
    name="attend",
    title="one query reads the cache",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("o[v]",),
    cases=_cache_cases,
    oracle=attend_oracle,
    mistakes=(
        Mistake(
            "overflow",
            "the exponentials overflowed to infinity, or all of them became 0: just before exponentiating, subtract "
            "from the scores, divided by the root of K, the largest of them; that changes no weight",
            _overflowing,
        ),
        Mistake(
            "not-scaled",
            "the scores were not divided by the square root of K, the length of the query",
            lambda q_t, k, v: _softmax(k @ q_t) @ v,
        ),
        Mistake(
            "scaled-by-the-width",
            "the scores were divided by K; the equation divides by the square root of K",
            lambda q_t, k, v: _softmax(k @ q_t / len(q_t)) @ v,
        ),
        Mistake(
            "scaled-by-the-length",
            "the scores were divided by the square root of the number of entries; K is the width of a key",
            lambda q_t, k, v: _softmax(k @ q_t / np.sqrt(len(k))) @ v,
        ),
        Mistake(
            "not-normalised",
            "the weights do not add up to 1: divide the exponentials by their sum",
            lambda q_t, k, v: np.exp(_scores(q_t, k) - _scores(q_t, k).max()) @ v,
        ),
        Mistake(
            "no-exponential",
            "the scores themselves were divided by their sum; scores may be negative or add up to 0, which is why "
            "they are exponentiated first",
            _power,
        ),
        Mistake(
            "best-match-only",
            "only the value of the largest score was returned; the softmax gives every entry a share, and equal "
            "scores equal shares",
            lambda q_t, k, v: v[np.argmax(k @ q_t)],
        ),
        Mistake(
            "scaled-by-the-value-width",
            "the scores were divided by the square root of V; K is the width of a key, not of a value",
            lambda q_t, k, v: _softmax(k @ q_t / np.sqrt(v.shape[1])) @ v,
        ),
    ),
    hints=(
        "With a single entry the answer is its value, whatever the query. With a query of zeros it is the mean of the "
        "values. And no entry of the result is NaN.",
        "Three steps: one score for each entry, one weight for each score, one weighted sum of the values.",
        "All scores at once are a matrix times a vector, `(t, K)` times `(K,)`. Subtracting one number from all scores "
        "multiplies all exponentials by one factor, and that cancels when you divide by their sum.",
        "Score each row of `k` against `q_t` and divide by the root of their width; subtract the largest score; "
        "exponentiate; divide by the sum; then the weights, as a row vector, times `v`.",
    ),
)


# --- 1.2 bytes of a cache -----------------------------------------------------------------------


def _byte_cases(rng):
    drawn = tuple(int(n) for n in (*rng.integers(100, 1000, 2), *rng.integers(3, 50, 2), 4))
    return [
        Case((1, 1, 1, 1, 1), "one key and one value of one number each"),
        Case((0, 5, 3, 7, 2), "no tokens yet"),
        Case((3, 1, 1, 4, 2), ""),
        Case((3, 5, 1, 4, 1), "five layers"),
        Case((7, 3, 5, 11, 2), ""),
        Case(drawn, "drawn at random"),
        Case((1000, 15, 2, 256, 2), "the attention layers of Qwen3.5-397B-A17B at 1,000 tokens"),
        Case((1_048_576, 62, 8, 128, 2), "62 layers with 8 heads at about a million tokens"),
    ]


def kv_cache_bytes_oracle(tokens, layers, kv_heads, head_dim, bytes_per_number):
    return 2 * tokens * layers * kv_heads * head_dim * bytes_per_number


KV_CACHE_BYTES = Exercise(
    id="1.2",
    name="kv_cache_bytes",
    title="how large the cache is",
    points=1,
    minutes=3,
    difficulty="warm-up",
    returns=("bytes",),
    cases=_byte_cases,
    oracle=kv_cache_bytes_oracle,
    mistakes=(
        Mistake(
            "keys-only",
            "one vector was counted for each token; a token leaves two in the cache, a key and a value",
            lambda t, layers, h, d, b: t * layers * h * d * b,
        ),
        Mistake(
            "one-layer",
            "the layers were not counted; every attention layer has a cache of its own",
            lambda t, layers, h, d, b: 2 * t * h * d * b,
        ),
        Mistake(
            "one-head",
            "the heads were not counted; every key-value head stores its own keys and values",
            lambda t, layers, h, d, b: 2 * t * layers * d * b,
        ),
        Mistake(
            "numbers",
            "this is the number of numbers; each takes `bytes_per_number` bytes",
            lambda t, layers, h, d, b: 2 * t * layers * h * d,
        ),
        Mistake(
            "bits",
            "this is eight times too many: bits instead of bytes",
            lambda t, layers, h, d, b: 16 * t * layers * h * d * b,
        ),
        Mistake(
            "square-of-the-tokens",
            "this grows with the square of the tokens, as a table of all scores would; the cache holds keys and "
            "values, and grows in proportion to the tokens",
            lambda t, layers, h, d, b: 2 * t * t * layers * h * d * b,
        ),
    ),
    hints=(
        "Twice the tokens are twice the bytes; so are twice the layers, twice the heads, twice the width.",
        "What does one token leave behind in one head of one layer?",
        "A key and a value: two vectors of `head_dim` numbers each, and every number takes `bytes_per_number` bytes.",
        "Two vectors a token, in each head of each layer: a product of all five arguments and one constant.",
    ),
)

EXERCISES = (ATTEND, KV_CACHE_BYTES)
