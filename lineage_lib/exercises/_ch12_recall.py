"""Chapter 12, fourth part: bits for recall, and the game of INDEX (12.7 and 12.8)."""

import math

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 12.7 bits for recall ------------------------------------------------------------------------


def _bits_cases(rng):
    drawn = [(int(rng.integers(20, 300)), int(rng.integers(3, 900))) for _ in range(3)]
    return [
        Case((2, 3), "by hand: 9 answers, and 8 states are too few"),
        Case((1, 8), "8 values: 3 bits are just enough"),
        Case((4, 16), "16 bits exactly"),
        Case((5, 3), "243 answers fit into 8 bits"),
        Case((0, 9), "no pair: nothing to keep"),
        Case((6, 1), "one value only: nothing to keep"),
        Case((1000, 50000), "1,000 pairs, 50,000 values"),
        Case((64, 2), "64 yes-or-no values"),
        Case((29, 2), "29 yes-or-no values: logarithms round"),
        Case((1, 2**29), "one value of 29 bits"),
        Case((1, 2**49 + 1), "one value more than 49 bits hold"),
        Case((53, 10), ""),
        *(Case(case) for case in drawn),
    ]


def bits_oracle(n, c):
    return (c**n - 1).bit_length()


BITS = Exercise(
    id="12.7",
    name="recall_bits",
    title="the fewest bits for n pairs",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("bits",),
    cases=_bits_cases,
    oracle=bits_oracle,
    mistakes=(
        Mistake(
            "rounded-for-each-pair",
            "each pair was given whole bits; only their sum has to be whole, and one state may serve several pairs",
            lambda n, c: n * (c - 1).bit_length(),
        ),
        Mistake(
            "rounded-down",
            "so many bits make fewer states than there are answers",
            lambda n, c: math.floor(n * math.log2(c)),
        ),
        Mistake(
            "logarithms-in-floats",
            "logarithms are rounded: at and just above a power of two this may be one bit off; compare whole numbers",
            lambda n, c: math.ceil(n * math.log2(c)),
            also=(
                lambda n, c: math.ceil(n * math.log(c) / math.log(2)),
                lambda n, c: math.ceil(math.log(c**n, 2)),
            ),
        ),
        Mistake(
            "one-too-many-at-equality",
            "where answers and states are equally many this is one bit more than needed",
            lambda n, c: (c**n).bit_length(),
        ),
        Mistake(
            "not-whole",
            "this is the logarithm; the ask is a whole number of bits",
            lambda n, c: n * math.log2(c),
        ),
        Mistake(
            "pairs-and-values-swapped",
            "n and c are swapped: there are c values for each of n keys",
            lambda n, c: (max(n, 1) ** c - 1).bit_length(),
        ),
        Mistake(
            "one-question",
            "these are the bits for telling n · c cases apart; a state has to answer all n questions",
            lambda n, c: max(n * c - 1, 0).bit_length(),
        ),
        Mistake(
            "natural-logarithm",
            "the logarithm was taken to base e; bits count to base 2",
            lambda n, c: math.ceil(n * math.log(c)),
        ),
        Mistake(
            "bytes",
            "these are bytes; the ask is bits",
            lambda n, c: -(-bits_oracle(n, c) // 8),
        ),
    ),
    hints=(
        "How many different lists of answers are there, and how many states do b bits make?",
        "The number of states must be at least the number of lists; they may be equal.",
        "Python's integers are exact at any size, and an int has a method bit_length(): the bits of its binary form.",
        "States numbered from 0 must reach the number of lists less one: ask that number for its length in binary.",
    ),
)


# --- 12.8 INDEX, played with a state -------------------------------------------------------------


def _game_cases(rng):
    def unit(N, K):
        k = rng.standard_normal((N, K))
        return k / np.linalg.norm(k, axis=1, keepdims=True)

    def bits(N):
        x = rng.integers(0, 2, N)
        x[rng.integers(0, N)] = 0
        return x

    crowded = unit(40, 4)
    message = bits(40)
    where = int(np.argmax((crowded @ _message(message, crowded) > 0) != message))  # an answer that is wrong
    ones = np.ones(5, dtype=int)
    halves = np.array([[0.5, 0.5, -0.5, 0.5], [0.5, -0.5, 0.5, 0.5], [-0.5, -0.5, 0.5, 0.5]])
    return [
        Case((np.array([1, 0]), 1, np.array([[1.0, 0.0], [0.6, 0.8]])), "by hand: two bits, keys of cosine 0.6"),
        Case((np.array([1, 0]), 0, np.array([[1.0, 0.0], [0.6, 0.8]])), "the same, the first bit"),
        Case((np.array([0]), 0, np.array([[1.0]])), "one bit"),
        Case((np.array([1, 1, 0, 1]), 2, np.eye(5)[:4]), "orthonormal keys: every answer is right"),
        Case((bits(6), 1, np.linalg.qr(rng.standard_normal((6, 6)))[0]), "an orthonormal basis"),
        Case((np.array([1, 0, 1]), 1, halves), "Bob reads exactly 0, which is not positive"),
        Case((ones, 2, unit(5, 3)), "all bits are 1"),
        Case((0 * ones, 4, unit(5, 7)), "all bits are 0"),
        Case((bits(8), 3, unit(8, 8)), "as many bits as channels"),
        Case((bits(12), 0, unit(12, 5)), "more bits than channels"),
        Case((message, where, crowded), "ten times as many bits as channels: this answer is wrong"),
    ]


def game_oracle(x, i, k):
    return _game(x, i, k)


def _message(x, k, *, value=lambda x: 2.0 * x - 1.0, delta=True):
    S = np.zeros(k.shape[1])
    for key, v in zip(k, value(np.asarray(x))):
        S = S + key * (v - (S @ key if delta else 0.0))
    return S


def _game(x, i, k, *, bob=lambda S, k, i, x: int(S @ k[i] > 0), **alice):
    S = _message(x, k, **alice)
    return S, bob(S, k, i, x)


def _game_with(**slip):
    return lambda x, i, k: _game(x, i, k, **slip)


def _alice_knows(x, i, k):
    S = _message(x[: i + 1], k[: i + 1])
    return S, int(S @ k[i] > 0)


def _backwards(x, i, k):
    S = _message(x[::-1], k[::-1])
    return S, int(S @ k[i] > 0)


GAME = Exercise(
    id="12.8",
    name="index_game",
    title="INDEX, played with a state",
    points=2,
    minutes=10,
    difficulty="core",
    returns=("message[k]", "guess"),
    cases=_game_cases,
    oracle=game_oracle,
    mistakes=(
        Mistake(
            "bob-sees-the-bits",
            "the guess is Alice's bit itself; Bob has the message and the keys, and where the state is wrong so is he",
            _game_with(bob=lambda S, k, i, x: int(x[i])),
        ),
        Mistake(
            "alice-knows-the-index",
            "the message stops after bit i, or holds it alone; Alice does not know which bit will be asked for",
            _alice_knows,
            also=(lambda x, i, k: (k[i] * (2.0 * x[i] - 1.0), int(x[i])),),
        ),
        Mistake(
            "added-not-corrected",
            "the values were added; the delta rule first subtracts what stands under the key",
            _game_with(delta=False),
        ),
        Mistake(
            "bits-as-values",
            "bits were written as 0 and 1, so that a 0 and an empty place are the same; write −1 and 1",
            _game_with(value=lambda x: 1.0 * x),
            also=(_game_with(value=lambda x: 1.0 * x, bob=lambda S, k, i, x: int(S @ k[i] > 0.5)),),
        ),
        Mistake(
            "values-negated",
            "1 was written as −1, and 0 as 1",
            _game_with(value=lambda x: 1.0 - 2.0 * x, bob=lambda S, k, i, x: int(S @ k[i] < 0)),
            also=(_game_with(value=lambda x: 1.0 - 2.0 * x),),
        ),
        Mistake(
            "sign-for-a-bit",
            "the guess is the sign, −1 or 1; a bit is 0 or 1",
            _game_with(bob=lambda S, k, i, x: np.sign(S @ k[i])),
        ),
        Mistake(
            "read-for-a-bit",
            "the guess is what was read, a number with a sign; round it to a bit",
            _game_with(bob=lambda S, k, i, x: S @ k[i]),
        ),
        Mistake(
            "written-backwards",
            "the bits were written from the last to the first; they come in their order",
            _backwards,
        ),
        Mistake(
            "zero-for-a-one",
            "Bob says 1 where he reads 0; he says it only if what he reads is positive",
            _game_with(bob=lambda S, k, i, x: int(S @ k[i] >= 0)),
        ),
        Mistake(
            "threshold-one-half",
            "the guess is 1 only above one half; values are −1 and 1, and 0 lies between them",
            _game_with(bob=lambda S, k, i, x: int(S @ k[i] > 0.5)),
        ),
    ),
    hints=(
        "Alice's part is a loop over her bits and does not contain i; Bob's part contains no bit.",
        "Alice starts with a state of zeros and writes a value of −1 or 1 under each key in turn, by the delta rule.",
        "With one value channel the state is a vector: what stands under a key is the dot product of the two.",
        "At each write subtract what is read from the value, and add that multiple of the key. Bob reads at his key "
        "and looks at the sign.",
    ),
)

EXERCISES = (BITS, GAME)
