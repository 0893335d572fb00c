"""Chapter 11, first part: one step of KDA, Gated DeltaNet-2 in five operations, its transitions (11.1 to 11.3)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

ADA, BO = np.array([0.8, 0.6]), np.array([-0.6, 0.8])
TWO_ROOMS = np.outer(ADA, [3.0, 1.0]) + np.outer(BO, [1.0, 2.0])


def draw_key(rng, K, length=1.0):
    """A random key of the given length."""
    k = rng.standard_normal(K)
    return length * k / np.linalg.norm(k)


# --- 11.1 one step of KDA -----------------------------------------------------------------------


def _kda_cases(rng):
    def step(K, V, *, beta=None, alpha=None, length=1.0):
        alpha = rng.uniform(0.2, 0.95, K) if alpha is None else np.asarray(alpha, float)
        beta = rng.uniform(0.3, 0.9) if beta is None else beta
        return rng.standard_normal((K, V)), draw_key(rng, K, length), rng.standard_normal(V), alpha, beta

    giant = step(3, 2, alpha=[0.7, 0.0, 0.4])
    giant[0][1] = 1e12
    faint = step(2, 3)
    faint[0][:] *= 1e-20
    faint[2][:] *= 1e-20
    return [
        Case((TWO_ROOMS, ADA, np.array([4.0, 7.0]), np.array([1.0, 0.5]), 1.0), "by hand: Ada → 47, channel 1 fades"),
        Case(step(1, 1), "K = V = 1"),
        Case(step(3, 2), ""),
        Case(step(3, 3), "K = V"),
        Case(step(2, 5), "more value channels than key channels"),
        Case(step(4, 2, alpha=np.full(4, 0.6)), "all decays equal: Gated DeltaNet"),
        Case(step(4, 3, alpha=np.ones(4)), "no decay: DeltaNet"),
        Case(step(4, 3, beta=0.0), "beta = 0: the state fades and that is all"),
        Case(step(3, 4, beta=1.0), "beta = 1"),
        Case(step(3, 4, beta=2.0), "beta = 2: the value under the key is reflected"),
        Case(step(3, 2, length=1.5), "a key of length 1.5"),
        Case(step(2, 3, length=0.5), "a key of length 0.5"),
        Case(giant, "alpha[1] = 0 clears a row of 1e12 before anything is read"),
        Case((np.zeros((2, 3)), *step(2, 3)[1:]), "an empty state"),
        Case(faint, "everything is 1e-20 times smaller"),
    ]


def kda_oracle(S, k, v, alpha, beta):
    faded = alpha[:, None] * S
    return faded + np.outer(beta * k, v - faded.T @ k)


def _kda_columns(S, k, v, alpha, beta):
    faded = S * alpha
    return faded + beta * np.outer(k, v - faded.T @ k)


KDA = Exercise(
    id="11.1",
    name="kda_step",
    title="fade by channel, then correct",
    points=2,
    minutes=8,
    difficulty="warm-up",
    returns=("S[k, v]",),
    cases=_kda_cases,
    oracle=kda_oracle,
    mistakes=(
        Mistake(
            "error-before-decay",
            "the error was read from the state before it faded; fade first, then read at the key",
            lambda S, k, v, alpha, beta: alpha[:, None] * S + beta * np.outer(k, v - S.T @ k),
        ),
        Mistake(
            "decay-after-correction",
            "the state was corrected first and faded afterwards; the decay stands next to the old state, "
            "so it acts first, and the new write does not fade",
            lambda S, k, v, alpha, beta: alpha[:, None] * (S + beta * np.outer(k, v - S.T @ k)),
        ),
        Mistake(
            "erase-before-decay",
            "the two factors have changed places: the state was erased first and faded afterwards; the decay stands "
            "next to the old state, so it acts first",
            lambda S, k, v, alpha, beta: alpha[:, None] * (S - beta * np.outer(k, S.T @ k)) + beta * np.outer(k, v),
        ),
        Mistake(
            "decay-on-columns",
            "the decay multiplied the columns of the state; it has one entry for each key channel, and these are rows",
            _kda_columns,
        ),
        Mistake(
            "beta-on-the-erase-alone",
            "beta weighs what is erased, and the value is written in full; it weighs the whole error",
            lambda S, k, v, alpha, beta: alpha[:, None] * S + np.outer(k, v - beta * (alpha[:, None] * S).T @ k),
        ),
        Mistake(
            "beta-on-the-write-alone",
            "beta weighs the new value, and the old one is erased in full; it weighs the whole error",
            lambda S, k, v, alpha, beta: alpha[:, None] * S + np.outer(k, beta * v - (alpha[:, None] * S).T @ k),
        ),
        Mistake(
            "nothing-erased",
            "the value was added and nothing was erased: that is GLA; write the difference between the value and "
            "what the faded state holds under the key",
            lambda S, k, v, alpha, beta: alpha[:, None] * S + beta * np.outer(k, v),
        ),
        Mistake(
            "decay-left-out",
            "nothing faded: that is DeltaNet; row i of the old state is multiplied by alpha[i]",
            lambda S, k, v, alpha, beta: kda_oracle(S, k, v, np.ones_like(alpha), beta),
        ),
        Mistake(
            "beta-left-out",
            "the whole error was corrected, as if beta were 1; beta multiplies it",
            lambda S, k, v, alpha, beta: kda_oracle(S, k, v, alpha, 1.0),
        ),
        Mistake(
            "key-normalised",
            "the key was divided by its length; it is used as it comes",
            lambda S, k, v, alpha, beta: kda_oracle(S, k / np.linalg.norm(k), v, alpha, beta),
            also=(
                lambda S, k, v, alpha, beta: kda_oracle(S, k / max(1.0, np.linalg.norm(k)), v, alpha, beta),
                lambda S, k, v, alpha, beta: kda_oracle(S, k / min(1.0, np.linalg.norm(k)), v, alpha, beta),
            ),
        ),
    ),
    hints=(
        "With `beta = 1` and a key of length 1, reading your new state at the key gives exactly `v`, whatever the "
        "decays are.",
        "Two lines. The first makes the faded state, and the second uses nothing but the faded state.",
        "Row i of the state belongs to key channel i, so the decays need a second axis before they multiply it.",
        "After fading, add an outer product: the key, times beta, with the error, which is the value minus what the "
        "faded state returns at the key.",
    ),
)


# --- 11.2 Gated DeltaNet-2 in five operations ---------------------------------------------------


def _five_cases(rng):
    def step(K, V, *, alpha=None, b=None, w=None, length=1.0):
        alpha = rng.uniform(0.2, 0.95, K) if alpha is None else np.asarray(alpha, float)
        b = rng.uniform(0.1, 0.9, K) if b is None else np.full(K, b)
        w = rng.uniform(0.1, 0.9, V) if w is None else np.full(V, w)
        return rng.standard_normal((K, V)), draw_key(rng, K, length), rng.standard_normal(V), alpha, b, w

    by_hand = (TWO_ROOMS, ADA, np.array([4.0, 7.0]), np.ones(2), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    giant = step(3, 2, alpha=[0.7, 0.0, 0.4])
    giant[0][1] = 1e12
    silent = step(3, 2)
    silent[1][:] = 0.0
    return [
        Case(by_hand, "by hand: erase through channel 0, write the ones"),
        Case(step(1, 1), "K = V = 1"),
        Case(step(3, 2), ""),
        Case(step(3, 3), "K = V"),
        Case(step(2, 5), "more value channels than key channels"),
        Case(step(4, 3, alpha=np.ones(4)), "no decay"),
        Case(step(4, 2, b=0.7, w=0.7), "b = w = 0.7: KDA"),
        Case(step(2, 4, b=0.0), "b = 0: nothing is erased"),
        Case(step(4, 2, w=0.0), "w = 0: nothing is written"),
        Case(step(3, 4, b=1.0, w=1.0), "both gates open"),
        Case(step(2, 3, b=1.6), "b = 1.6: more is erased than was read"),
        Case(step(3, 2, length=1.5), "a key of length 1.5"),
        Case(step(4, 2, length=0.5), "a key of length 0.5"),
        Case(giant, "alpha[1] = 0 clears a row of 1e12 before anything is read"),
        Case(silent, "k = 0: the state fades and that is all"),
    ]


def five_oracle(S, k, v, alpha, b, w):
    faded = alpha[:, None] * S
    e, z = b * k, w * v
    r = faded.T @ e
    return faded, e, r, z, faded + np.outer(k, z - r)


def _five_as(*args, order):
    """The five results in another order; the same one may come twice."""
    results = five_oracle(*args)
    return tuple(results[i] for i in order)


def _five(S, k, v, alpha, b, w, *, read=None, update=None):
    """The five operations with another read or update, each a function of the results before it."""
    faded = alpha[:, None] * S
    e, z = b * k, w * v
    r = faded.T @ e if read is None else read(faded, e)
    return faded, e, r, z, faded + np.outer(k, z - r) if update is None else update(faded, e, r, z)


FIVE = Exercise(
    id="11.2",
    name="gdn2_step",
    title="five small operations",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("S_bar[k, v]", "e[k]", "r[v]", "z[v]", "S_new[k, v]"),
    cases=_five_cases,
    oracle=five_oracle,
    mistakes=(
        Mistake(
            "read-before-decay",
            "r was read from the state before it faded; the erase key reads the faded state",
            lambda S, k, v, alpha, b, w: _five(S, k, v, alpha, b, w, read=lambda faded, e: S.T @ e),
        ),
        Mistake(
            "update-along-the-erase-key",
            "the update went along the erase key; b gates what is read, and the update goes along k itself",
            lambda *args: _five(*args, update=lambda faded, e, r, z: faded + np.outer(e, z - r)),
        ),
        Mistake(
            "erase-gate-on-the-rows",
            "b multiplied the rows that are erased, and the whole key read them: that is k on the wrong side; "
            "b belongs to the key that reads",
            lambda S, k, v, alpha, b, w: _five(
                S,
                k,
                v,
                alpha,
                b,
                w,
                read=lambda faded, e: faded.T @ k,
                update=lambda faded, e, r, z: faded - np.outer(b * k, r) + np.outer(k, z),
            ),
        ),
        Mistake(
            "write-gate-on-the-error",
            "w multiplied what was read as well; it gates the new value alone",
            lambda S, k, v, alpha, b, w: _five(
                S, k, v, alpha, b, w, update=lambda faded, e, r, z: faded + np.outer(k, w * (v - r))
            ),
        ),
        Mistake(
            "update-of-the-old-state",
            "the update was not added to the faded state: S fades first, and the update is added to what is left, and "
            "does not fade itself",
            lambda S, k, v, alpha, b, w: _five(
                S, k, v, alpha, b, w, update=lambda faded, e, r, z: S + np.outer(k, z - r)
            ),
            also=(
                lambda S, k, v, alpha, b, w: _five(
                    S, k, v, alpha, b, w, update=lambda faded, e, r, z: alpha[:, None] * (S + np.outer(k, z - r))
                ),
                lambda S, k, v, alpha, b, w: _five(
                    S, k, v, alpha, b, w, update=lambda faded, e, r, z: alpha[:, None] * (faded + np.outer(k, z - r))
                ),
            ),
        ),
        Mistake(
            "sign-of-the-update",
            "a sign in the update is wrong: the new value z is added, and what was read, r, is subtracted",
            lambda S, k, v, alpha, b, w: _five(
                S, k, v, alpha, b, w, update=lambda faded, e, r, z: faded + np.outer(k, r - z)
            ),
            also=(
                lambda S, k, v, alpha, b, w: _five(
                    S, k, v, alpha, b, w, update=lambda faded, e, r, z: faded + np.outer(k, z + r)
                ),
            ),
        ),
        Mistake(
            "one-array-for-two",
            "S_bar holds the values of S_new: S_new was returned in its place, or the update was added in place, so "
            "that the faded state is gone; make a new array for S_new",
            lambda *args: _five_as(*args, order=(4, 1, 2, 3, 4)),
        ),
        Mistake(
            "r-and-z-exchanged",
            "r and z were returned in each other's place; the order is S_bar, e, r, z, S_new",
            lambda *args: _five_as(*args, order=(0, 1, 3, 2, 4)),
        ),
        Mistake(
            "key-normalised",
            "the key was divided by its length; it is used as it comes",
            lambda S, k, v, alpha, b, w: five_oracle(S, k / np.linalg.norm(k), v, alpha, b, w),
        ),
        Mistake(
            "the-read-as-erased",
            "r is what the faded state returns at the whole key; it is read with the gated key e",
            lambda S, k, v, alpha, b, w: _five(S, k, v, alpha, b, w, read=lambda faded, e: faded.T @ k),
        ),
    ),
    hints=(
        "The check compares all five results, so the first of them that differs tells which operation to look at.",
        "Two of the five are products entry by entry: a gate with a vector of its own width. b has as many entries as "
        "the key, w as many as the value.",
        "Only one operation multiplies rows: the first. Everything after it uses the faded state, never `S`.",
        "The last one adds an outer product to the faded state: the plain key with z minus r.",
    ),
)


# --- 11.3 the transition of a stretch -----------------------------------------------------------


def _stretch_cases(rng):
    def stretch(T, K, *, alpha=None, b=None, lengths=1.0):
        keys = np.array([draw_key(rng, K) for _ in range(T)]) * lengths
        alpha = rng.uniform(0.5, 1.0, (T, K)) if alpha is None else alpha
        return keys, alpha, rng.uniform(0.1, 1.0, (T, K)) if b is None else b

    repeated = stretch(6, 3)
    repeated[0][3] = repeated[0][1]
    reset = stretch(7, 3)
    reset[1][2] = 0.0
    first, last = stretch(4, 3), stretch(5, 2)
    flood = stretch(5, 3, lengths=1e3)
    flood[1][3] = 0.0
    first[1][0, 1], last[1][-1, 0] = 0.0, 0.0
    return [
        Case((ADA[None], np.array([[1.0, 0.5]]), np.array([[1.0, 0.0]])), "by hand: T = 1, one gate shut"),
        Case(stretch(1, 4), "T = 1"),
        Case(stretch(2, 2), "two tokens: the newest stands on the left"),
        Case(stretch(5, 1), "K = 1"),
        Case(stretch(5, 3), ""),
        Case(stretch(3, 3), "T = K"),
        Case(stretch(4, 3, alpha=np.ones((4, 3))), "no decay"),
        Case(stretch(5, 3, b=np.zeros((5, 3))), "b = 0: the decays alone"),
        Case(repeated, "a key comes back"),
        Case(reset, "alpha[2] = 0: nothing older passes"),
        Case(first, "a channel is cleared by the first token"),
        Case(last, "a channel is cleared by the last token"),
        Case(stretch(60, 4, alpha=np.full((60, 4), 0.9999)), "60 tokens, slow decays"),
        Case(stretch(4, 3, lengths=1.5), "keys of length 1.5"),
        Case(stretch(4, 3, lengths=0.5), "keys of length 0.5"),
        Case(stretch(4, 3, b=np.full((4, 3), 1.6)), "b = 1.6: more is erased than was read"),
        Case(flood, "alpha[3] = 0 clears what keys of length 1000 have made"),
    ]


def stretch_oracle(keys, alpha, b):
    P = np.eye(keys.shape[1])
    for k, a, gate in zip(keys, alpha, b):
        P = (np.eye(len(k)) - np.outer(k, gate * k)) @ np.diag(a) @ P
    return P


def _stretch(keys, alpha, b, *, token, left=True):
    """The product of ``token(k, a, gate)`` over the tokens; left: newest on the left."""
    P = np.eye(keys.shape[1])
    for k, a, gate in zip(keys, alpha, b):
        P = token(k, a, gate) @ P if left else P @ token(k, a, gate)
    return P


def _lengths(keys):
    return np.linalg.norm(keys, axis=1, keepdims=True)


def _erase(k, gate):
    return np.eye(len(k)) - np.outer(k, gate * k)


STRETCH = Exercise(
    id="11.3",
    name="stretch_transition",
    title="the transition of a stretch",
    points=2,
    minutes=9,
    difficulty="core",
    returns=("P[k, j]",),
    cases=_stretch_cases,
    oracle=stretch_oracle,
    mistakes=(
        Mistake(
            "oldest-on-the-left",
            "the oldest token's matrix stands on the left; it acts on the state first, so it stands on the right",
            lambda keys, alpha, b: _stretch(
                keys, alpha, b, token=lambda k, a, g: _erase(k, g) @ np.diag(a), left=False
            ),
        ),
        Mistake(
            "decay-after-erase",
            "each token erases first and fades afterwards; the decay is the factor next to the old state",
            lambda keys, alpha, b: _stretch(keys, alpha, b, token=lambda k, a, g: np.diag(a) @ _erase(k, g)),
        ),
        Mistake(
            "gate-on-the-other-side",
            "the erase is (b ⊙ k) kᵀ; the gate belongs to the key that reads, so it is k (b ⊙ k)ᵀ",
            lambda keys, alpha, b: _stretch(keys, alpha, b, token=lambda k, a, g: _erase(k, g).T @ np.diag(a)),
        ),
        Mistake(
            "transposed",
            "this is the transpose: the matrix that acts on a row from the right, as in papers that store values "
            "as rows",
            lambda keys, alpha, b: stretch_oracle(keys, alpha, b).T,
        ),
        Mistake(
            "decay-left-out",
            "only the erase factors were multiplied; each token also fades the rows",
            lambda keys, alpha, b: _stretch(keys, alpha, b, token=lambda k, a, g: _erase(k, g)),
        ),
        Mistake(
            "gate-on-both-keys",
            "b multiplied both keys; the key on the left is k itself",
            lambda keys, alpha, b: _stretch(
                keys, alpha, b, token=lambda k, a, g: (np.eye(len(k)) - np.outer(g * k, g * k)) @ np.diag(a)
            ),
        ),
        Mistake(
            "gate-left-out",
            "the whole key read what is erased, as if b were 1; b multiplies the key on the right",
            lambda keys, alpha, b: stretch_oracle(keys, alpha, np.ones_like(b)),
        ),
        Mistake(
            "keys-normalised",
            "the keys were divided by their lengths; they are used as they come",
            lambda keys, alpha, b: stretch_oracle(keys / _lengths(keys), alpha, b),
            also=(
                lambda keys, alpha, b: stretch_oracle(keys / np.maximum(1.0, _lengths(keys)), alpha, b),
                lambda keys, alpha, b: stretch_oracle(keys / np.minimum(1.0, _lengths(keys)), alpha, b),
            ),
        ),
        Mistake(
            "decay-undone",
            "what is erased was read from the state before its decay: diag(alpha) minus k (b ⊙ k)ᵀ; "
            "the erase acts on the faded state",
            lambda keys, alpha, b: _stretch(keys, alpha, b, token=lambda k, a, g: np.diag(a) - np.outer(k, g * k)),
        ),
    ),
    hints=(
        "For one token the matrix is the one in front of the old state. For two tokens, the second one's matrix acts "
        "on what the first one's has made.",
        "Start with the identity and loop over the tokens; each multiplies the product so far.",
        "New factors go to the left. A token's factor is itself a product: erase on the left, decay on the right.",
        "The decay is a diagonal matrix, so it multiplies the columns of the erase factor: so does `@ np.diag(…)`.",
    ),
)

EXERCISES = (KDA, FIVE, STRETCH)
