"""Chapter 13, third part: how far one factor is from a rotation, words, and a state that turns (13.8 to 13.10)."""

import numpy as np

from lineage_lib.exercises._ch13_reflections import draw_key, swap_key
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 13.8 how far a matrix is from one factor --------------------------------------------------


def _cycle(n):
    return np.roll(np.eye(n), 1, axis=0)


def _distance_cases(rng):
    def orthogonal(n):
        Q, R = np.linalg.qr(rng.standard_normal((n, n)))
        return Q * np.sign(np.diag(R))

    def factor(n, beta):
        k = rng.standard_normal(n)
        k /= np.linalg.norm(k)
        return np.eye(n) - beta * np.outer(k, k)

    return [
        Case((_cycle(3),), "a 3-cycle"),
        Case((np.array([[0.0, 1.0], [1.0, 0.0]]),), "a swap: one factor with beta = 2"),
        Case((np.eye(3),), "the identity: beta = 0"),
        Case((np.array([[0.0, -1.0], [1.0, 0.0]]),), "a quarter turn"),
        Case((factor(4, 0.7),), "one factor with beta = 0.7"),
        Case((factor(3, 2.0),), "a reflection"),
        Case((_cycle(5),), "a 5-cycle"),
        Case((orthogonal(3),), "a random orthogonal matrix"),
        Case((orthogonal(6),), ""),
        Case((-3 * np.eye(2),), "-3 I: beta cannot be 4"),
        Case((2.5 * np.eye(3),), "2.5 I: beta cannot be negative"),
        Case((rng.standard_normal((4, 4)),), "no symmetry, no orthogonality"),
        Case((factor(3, 1.2) @ factor(3, 1.7),), "a product of two factors"),
        Case((np.diag([0.0, 6.0]),), "the eigenvalue of I - R that is largest in size is negative"),
        *(Case((factor(n, float(rng.uniform(0.2, 1.9))),), "one factor: 0 up to rounding") for n in (3, 4, 5, 6, 7, 8)),
    ]


def distance_oracle(R):
    return _distance(R)


def _distance(R, *, symmetric=lambda M: (M + M.T) / 2, pick=np.max, limit=lambda beta: np.clip(beta, 0.0, 2.0)):
    """The distance; ``symmetric`` what eigenvalues are taken of, ``pick`` which one, ``limit`` the range of beta."""
    off = np.eye(len(R)) - R
    top = pick(np.linalg.eigvals(symmetric(off)).real)
    beta = limit(top)
    return np.sqrt(max(0.0, np.sum(off**2) - 2 * beta * top + beta**2))


DISTANCE = Exercise(
    id="13.8",
    name="distance_to_one_factor",
    title="distance to one factor",
    points=3,
    minutes=15,
    difficulty="hard",
    returns=("distance",),
    cases=_distance_cases,
    oracle=distance_oracle,
    rtol=1e-7,  # the root of a rounded 0
    mistakes=(
        Mistake(
            "reflections-only",
            "beta was fixed at 2; it may be anything from 0 to 2",
            lambda R: _distance(R, limit=lambda beta: 2.0),
        ),
        Mistake(
            "beta-not-limited",
            "beta was allowed outside [0, 2]; limit it before the distance is worked out",
            lambda R: _distance(R, limit=lambda beta: beta),
        ),
        Mistake(
            "beta-at-most-one",
            "beta was kept below 1; here it goes up to 2",
            lambda R: _distance(R, limit=lambda beta: np.clip(beta, 0.0, 1.0)),
        ),
        Mistake(
            "smallest-eigenvalue",
            "the smallest eigenvalue was taken; the best key belongs to the largest",
            lambda R: _distance(R, pick=np.min),
        ),
        Mistake(
            "largest-in-size",
            "the eigenvalue of largest size was taken, which may be negative; the best key belongs to the largest",
            lambda R: _distance(R, pick=lambda values: values[np.argmax(np.abs(values))]),
        ),
        Mistake(
            "squared",
            "this is the square of the distance",
            lambda R: distance_oracle(R) ** 2,
        ),
        Mistake(
            "to-the-identity",
            "this is the distance to the identity, one factor with beta = 0; others are nearer",
            lambda R: _distance(R, limit=lambda beta: 0.0),
        ),
        Mistake(
            "in-the-2-norm",
            "this is a 2-norm; the distance is the root of the sum of squared entries, the Frobenius norm",
            lambda R: _two_norm(R),
        ),
        Mistake(
            "without-the-transpose",
            "eigenvalues were taken of I - R itself; only its symmetric part decides what a key gains",
            lambda R: _distance(R, symmetric=lambda M: M),
        ),
    ),
    hints=(
        "For a swap the distance is 0, and for a 3-cycle it is the root of 3.75.",
        "Square the distance and expand it: one term does not depend on the key, one is linear in beta, one is beta "
        "squared.",
        "For a given beta the best key makes kᵀ(I - R)k largest. A quadratic form only sees the symmetric part of its "
        "matrix, and its maximum over keys of length 1 is an eigenvalue.",
        "With that eigenvalue the squared distance is a parabola in beta. Its lowest point is where beta equals the "
        "eigenvalue, or the end of [0, 2] that is nearest to it.",
    ),
)


def _two_norm(R):
    off = np.eye(len(R)) - R
    values, vectors = np.linalg.eigh((off + off.T) / 2)
    k, beta = vectors[:, -1], np.clip(values[-1], 0.0, 2.0)
    return np.linalg.norm(off - beta * np.outer(k, k), ord=2)


# --- 13.9 a word in reflections -----------------------------------------------------------------


def _word_cases(rng):
    def drawn(T, letters, m, K, V):
        keys = np.array([[draw_key(rng, K) for _ in range(m)] for _ in range(letters)])
        return rng.integers(0, letters, T), keys, rng.standard_normal((K, V))

    swap = np.array([[swap_key(3, 0, 1), np.zeros(3)], [swap_key(3, 0, 1), swap_key(3, 1, 2)]])
    idle = drawn(6, 3, 2, 4, 2)
    idle[1][1] = 0.0
    short = drawn(6, 3, 2, 4, 2)
    short[1][:] *= 0.8
    return [
        Case((np.array([1, 0]), swap, np.array([[31.0], [12.0], [47.0]])), "by hand: a 3-cycle, then a swap"),
        Case(drawn(1, 2, 1, 3, 2), "one token, one factor"),
        Case(drawn(1, 2, 3, 4, 2), "one token, three factors"),
        Case(drawn(5, 2, 1, 3, 2), "one factor a token"),
        Case(drawn(6, 3, 2, 4, 2), ""),
        Case(drawn(7, 3, 2, 3, 3), "K = V"),
        Case(idle, "a letter whose keys are 0: nothing happens"),
        Case(short, "keys shorter than 1, used as they come"),
        Case(drawn(40, 5, 4, 5, 3), "40 tokens, four factors"),
    ]


def word_oracle(word, keys, S):
    return _word(word, keys, S)


def _word(word, keys, S, *, beta=2.0, factors=lambda ks: ks, before=False):
    states = []
    for g in word:
        old = S
        for k in factors(keys[g]):
            S = S - beta * np.outer(k, k @ S)
        states.append(old if before else S)
    return np.array(states)


def _normalised(keys):
    lengths = np.linalg.norm(keys, axis=-1, keepdims=True)
    return np.divide(keys, lengths, out=np.zeros_like(keys), where=lengths > 0)


def _together(word, keys, S):
    states = []
    for g in word:
        S = S - 2 * sum(np.outer(k, k @ S) for k in keys[g])
        states.append(S)
    return np.array(states)


WORD = Exercise(
    id="13.9",
    name="run_word",
    title="a word in reflections",
    points=2,
    minutes=9,
    difficulty="core",
    returns=("states[t, k, v]",),
    cases=_word_cases,
    oracle=word_oracle,
    mistakes=(
        Mistake(
            "last-factor-first",
            "a letter's factors acted in the opposite order; the first one of the list acts first",
            lambda word, keys, S: _word(word, keys, S, factors=lambda ks: ks[::-1]),
        ),
        Mistake(
            "first-factor-only",
            "only the first factor of each letter acted",
            lambda word, keys, S: _word(word, keys, S, factors=lambda ks: ks[:1]),
        ),
        Mistake(
            "last-factor-only",
            "only the last factor of each letter acted: each factor has to continue from the state that the one "
            "before it has left",
            lambda word, keys, S: _word(word, keys, S, factors=lambda ks: ks[-1:]),
        ),
        Mistake(
            "factors-together",
            "all factors of a letter read the same old state; each reads what the one before it has left",
            lambda word, keys, S: _together(word, keys, S),
        ),
        Mistake(
            "beta-one",
            "the factors erase, with beta = 1; a reflection has beta = 2",
            lambda word, keys, S: _word(word, keys, S, beta=1.0),
        ),
        Mistake(
            "keys-normalised",
            "the keys were divided by their lengths; they are used as they come",
            lambda word, keys, S: _word(word, _normalised(keys), S),
        ),
        Mistake(
            "before-the-letter",
            "the states are those before each letter; return the state after it",
            lambda word, keys, S: _word(word, keys, S, before=True),
        ),
        Mistake(
            "word-backwards",
            "the last letter of the word acted first",
            lambda word, keys, S: _word(word[::-1], keys, S),
        ),
        Mistake(
            "each-letter-from-the-start",
            "every letter acted on the first state; it acts on what the letters before it have left",
            lambda word, keys, S: np.array([_word([g], keys, S)[0] for g in word]),
        ),
    ),
    hints=(
        "One token with one factor is a delta step with beta = 2 and a value of 0.",
        "Two loops: over the letters of the word, and inside over the rows of the letter's keys.",
        "Inside, each factor replaces the state. After the inner loop, not within it, the state is stored.",
        "A factor takes from the state twice the outer product of the key with what the state returns at the key.",
    ),
)

# --- 13.10 counting modulo m by turning ----------------------------------------------------------


def _turn_cases(rng):
    def counted(T, m, low=0, high=2):
        return rng.integers(low, high, T), m

    return [
        Case((np.array([1, 0, 1, 1]), 3), "by hand: three ones, modulo 3"),
        Case((np.array([1]), 4), "T = 1: a quarter turn"),
        Case((np.array([0]), 5), "T = 1: nothing to count"),
        Case(counted(20, 2), "m = 2: parity"),
        Case(counted(30, 3), ""),
        Case(counted(40, 7), ""),
        Case(counted(25, 5, 0, 5), "tokens from 0 to 4"),
        Case(counted(25, 6, -3, 4), "tokens that count down too"),
        Case((np.array([-1, -1, 1, -2]), 5), "below 0 from the first token on"),
        Case((np.array([1, 1, 1, 1, 1, 1]), 6), "once around"),
        Case(counted(300, 12), "300 tokens modulo 12"),
    ]


def turn_oracle(x, m):
    return _turn(x, m)


def _turn(x, m, *, angle=None, decode=None):
    """States and counts; ``angle(x, m)`` the angle after each token, ``decode(h, m)`` the counts."""
    exact = np.cumsum(x)
    phi = 2 * np.pi * (exact % m) / m if angle is None else angle(x, m)
    h = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    if decode is not None:
        return h, decode(h, m)
    return h, np.round(np.arctan2(h[:, 1], h[:, 0]) * m / (2 * np.pi)).astype(int) % m


def _before(x):
    return np.cumsum(x) - x


TURN = Exercise(
    id="13.10",
    name="rotating_counter",
    title="counting modulo m by turning",
    points=2,
    minutes=10,
    difficulty="core",
    returns=("h[t, 2]", "count[t]"),
    cases=_turn_cases,
    oracle=turn_oracle,
    mistakes=(
        Mistake(
            "half-the-angle",
            "a one turns by π/m; a whole turn is 2π, so that m ones lead back to the start",
            lambda x, m: _turn(x, m, angle=lambda x, m: np.pi * np.cumsum(x) / m),
            also=(
                lambda x, m: (
                    _turn(x, m, angle=lambda x, m: np.pi * np.cumsum(x) / m)[0],
                    np.cumsum(x) % m,
                ),
            ),
        ),
        Mistake(
            "turned-backwards",
            "the state turned clockwise; R(θ) takes (1, 0) to (cos θ, sin θ)",
            lambda x, m: _turn(x, m, angle=lambda x, m: -2 * np.pi * np.cumsum(x) / m),
            also=(lambda x, m: (_turn(x, m, angle=lambda x, m: -2 * np.pi * np.cumsum(x) / m)[0], np.cumsum(x) % m),),
        ),
        Mistake(
            "before-the-token",
            "the states are those before each token; a token turns the state and is then read",
            lambda x, m: _turn(x, m, angle=lambda x, m: 2 * np.pi * _before(x) / m),
        ),
        Mistake(
            "count-not-reduced",
            "the counts grow past m - 1; they are remainders modulo m",
            lambda x, m: (turn_oracle(x, m)[0], np.cumsum(x)),
        ),
        Mistake(
            "negative-counts",
            "angles below 0 were decoded as negative counts; add m to them, or take the remainder",
            lambda x, m: _turn(
                x,
                m,
                decode=lambda h, m: np.round(np.arctan2(h[:, 1].round(9), h[:, 0]) * m / (2 * np.pi)),
            ),
        ),
        Mistake(
            "remainder-with-a-sign",
            "sums below 0 have a negative remainder; from 0 to m - 1 is asked for, as % gives it and fmod does not",
            lambda x, m: (turn_oracle(x, m)[0], np.fmod(np.cumsum(x), m)),
        ),
        Mistake(
            "rounded-down",
            "the angle was cut off, not rounded: a count may come out one too small",
            lambda x, m: _turn(x, m, decode=lambda h, m: np.floor(np.arctan2(h[:, 1], h[:, 0]) * m / (2 * np.pi)) % m),
        ),
        Mistake(
            "one-token-forgotten",
            "each state is the start turned by its own token alone; the angles of all tokens so far add up",
            lambda x, m: _turn(x, m, angle=lambda x, m: 2 * np.pi * np.asarray(x) / m),
        ),
        Mistake(
            "length-counted",
            "every token turns the state, a 0 too; the angle is the token times 2π/m",
            lambda x, m: _turn(x, m, angle=lambda x, m: 2 * np.pi * np.arange(1, len(x) + 1) / m),
        ),
        Mistake(
            "sine-first",
            "cosine and sine have changed places; the state begins at (1, 0)",
            lambda x, m: (turn_oracle(x, m)[0][:, ::-1], turn_oracle(x, m)[1]),
        ),
    ),
    hints=(
        "After m ones the state must be (1, 0) again, and after one of them (cos 2π/m, sin 2π/m).",
        "Either turn the state token by token with a 2 by 2 matrix, or add the angles: rotations in one plane add up.",
        "`np.arctan2(y, x)` gives the angle of a point, between -π and π. Divided by one token's angle it is nearly a "
        "whole number.",
        "Round before you take the remainder: `np.round`, then `% m`, which is never negative in Python.",
    ),
)

EXERCISES = (DISTANCE, WORD, TURN)
