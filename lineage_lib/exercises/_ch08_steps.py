"""Chapter 08, first part: one correction, its gradient, its side effects, its step size (8.1 to 8.4)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake


def unit(key):
    """A key, or rows of keys, of norm 1."""
    return key / np.linalg.norm(key, axis=-1, keepdims=True)


def unit_or_zero(key):
    """The same, where a key of zeros stays one."""
    norm = np.linalg.norm(key, axis=-1, keepdims=True)
    return key / np.where(norm == 0, 1, norm)


def normalised(oracle, position, sentence):
    """The mistake of dividing keys by their length, argument ``position`` of an oracle.

    A key of zeros becomes NaN, or with a guard stays 0.
    """

    def of(scale):
        return lambda *args: oracle(*args[:position], scale(args[position]), *args[position + 1 :])

    return Mistake("key-normalised", sentence, of(unit), also=(of(unit_or_zero),))


# --- 8.1 one correction -------------------------------------------------------------------------


def _delta_cases(rng):
    def step(K, V, beta, *, length=1.0):
        return rng.standard_normal((K, V)), length * unit(rng.standard_normal(K)), rng.standard_normal(V), beta

    one, rooms = np.array([1.0, 0.0]), np.array([[3.0, 1.0], [1.0, 2.0]])
    known = step(4, 2, 0.7)
    silent = step(3, 2, 0.5)
    silent[1][:] = 0.0
    exact = np.array([0.5, 0.25, -0.5, 1.0], dtype=np.float32)
    return [
        Case((np.array([[3.0], [7.0]]), one, np.array([5.0]), 1.0), "by hand: 3 is replaced by 5, 7 stays"),
        Case((rooms, one, np.array([4.0, 7.0]), 0.5), "by hand: Ada halfway from 31 to 47"),
        Case((np.array([[2.0]]), np.array([0.5]), np.array([3.0]), 1.0), "K = V = 1, a key of length 1/2"),
        Case(step(3, 2, 0.6), "a key in general position"),
        Case(step(2, 5, 0.9), "more value channels than key channels"),
        Case(step(3, 3, 0.3), "K = V: only the values tell a transposed state"),
        Case(step(4, 3, 0.0), "beta = 0: nothing changes"),
        Case(step(3, 2, 1.0), "beta = 1: what stood under the key is replaced"),
        Case(step(5, 2, 2.0), "beta = 2: it is reflected"),
        Case(step(4, 3, 1.0, length=3.0), "a key of length 3: it is used as it comes"),
        Case(step(3, 4, 1.5, length=0.1), "a key of length 1/10"),
        Case((*known[:2], known[0].T @ known[1], 0.7), "the value is what the state answers already: nothing changes"),
        Case(silent, "k = 0: nothing is read and nothing written"),
        Case((np.zeros((3, 2)), *step(3, 2, 0.4)[1:]), "an empty state"),
        Case((np.outer(exact, exact[:3]), exact, exact[1:], 0.5), "32-bit floats"),
        Case(step(24, 17, 0.7), "24 key channels, 17 value channels"),
    ]


def delta_oracle(S, k, v, beta):
    return S + beta * np.outer(k, v - S.T @ k)


def _value_overwritten(S, k, v, beta):
    write = v
    write -= S.T @ k
    write *= beta
    return S + np.outer(k, write)


def _value_first(S, k, v, beta):
    return S + beta * np.outer(v - S @ k, k)


DELTA_STEP = Exercise(
    id="8.1",
    name="delta_step",
    title="write the correction",
    points=2,
    minutes=4,
    difficulty="warm-up",
    returns=("S[k, v]",),
    cases=_delta_cases,
    oracle=delta_oracle,
    mistakes=(
        Mistake(
            "still-additive",
            "the value was added to what the key finds; read what is stored there first and write the difference",
            lambda S, k, v, beta: S + np.outer(k, v),
        ),
        Mistake(
            "never-corrected",
            "beta scaled the new value, and nothing was erased; the write is beta times the error, the value minus "
            "what was read",
            lambda S, k, v, beta: S + beta * np.outer(k, v),
        ),
        Mistake(
            "beta-forgotten",
            "the whole error was written, which is right for beta = 1; a fraction beta of it is asked",
            lambda S, k, v, beta: delta_oracle(S, k, v, 1.0),
        ),
        Mistake(
            "beta-on-the-write-only",
            "beta multiplied the new value alone, and the old one was erased in full; it belongs to the whole error",
            lambda S, k, v, beta: S + np.outer(k, beta * v - S.T @ k),
        ),
        Mistake(
            "beta-on-the-erase-only",
            "beta multiplied what was read alone, and the new value was written in full; it belongs to the whole error",
            lambda S, k, v, beta: S + np.outer(k, v - beta * (S.T @ k)),
        ),
        Mistake(
            "wrong-sign",
            "the step went uphill: the error is the new value minus what was read, not the other way round",
            lambda S, k, v, beta: S - beta * np.outer(k, v - S.T @ k),
        ),
        normalised(
            delta_oracle,
            1,
            "the key was divided by its length; whoever calls the step does that, and the step uses the key as it "
            "comes",
        ),
        Mistake(
            "transposed-state",
            "the state was taken as (V, K); here its rows are key channels, so the read is Sᵀk and the write k eᵀ",
            _value_first,
        ),
        Mistake(
            "value-overwritten",
            "the new state is right, but `write` is another name for `v`, and `-=` or `*=` on it changes `v`; `write "
            "= …` with a product or a difference makes a new array",
            _value_overwritten,
        ),
    ),
    hints=(
        "With `beta = 1` and a key of length 1, the new state answers the key with exactly `v`.",
        "The last line already adds an outer product. What has to change is the row of V numbers that it adds.",
        "What is stored under the key is a read: the transposed state times the key.",
        "Give `write` a new value: the strength times the difference between the new value and what was read.",
    ),
)


# --- 8.2 the gradient ---------------------------------------------------------------------------


def _gradient_cases(rng):
    def pairs(n, K, V):
        return rng.standard_normal((K, V)), rng.standard_normal((n, K)), rng.standard_normal((n, V))

    S, keys, _ = pairs(3, 4, 2)
    solved = S, keys, keys @ S
    S, keys, values = pairs(5, 3, 2)
    keys[3] = keys[1]
    again = S, keys, values
    S, keys, values = pairs(4, 3, 4)
    leaning = S, keys + 3.0, values
    return [
        Case(
            (np.array([[3.0], [7.0]]), np.array([[1.0, 0.0]]), np.array([[5.0]])),
            "by hand: one pair, 3 is read, 5 wanted",
        ),
        Case(
            (np.array([[3.0], [7.0]]), np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[5.0], [6.4]])),
            "by hand: two pairs, errors -2 and 1",
        ),
        Case(pairs(1, 3, 2), "one pair"),
        Case(pairs(3, 4, 2), "three pairs"),
        Case(pairs(6, 2, 3), "more pairs than key channels"),
        Case(pairs(4, 3, 3), "K = V: only the values tell a transposed gradient"),
        Case(pairs(5, 1, 2), "K = 1"),
        Case(pairs(3, 4, 1), "V = 1"),
        Case((np.zeros((3, 2)), *pairs(4, 3, 2)[1:]), "an empty state"),
        Case(solved, "every pair is answered exactly: the gradient is 0"),
        Case(again, "one key with two values"),
        Case(leaning, "keys that lean the same way"),
        Case(pairs(200, 5, 3), "200 pairs"),
    ]


def gradient_oracle(S, K, V):
    return K.T @ (K @ S - V)


def _stepped_between(S, K, V):
    after = S
    for k, v in zip(K, V):
        after = after - np.outer(k, after.T @ k - v)
    return S - after


GRADIENT = Exercise(
    id="8.2",
    name="loss_gradient",
    title="the slope of the squared error",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("gradient[k, v]",),
    cases=_gradient_cases,
    oracle=gradient_oracle,
    mistakes=(
        Mistake(
            "wrong-sign",
            "this is the downhill direction, minus the gradient; the gradient of ½‖r‖² points where the error grows",
            lambda S, K, V: -gradient_oracle(S, K, V),
        ),
        Mistake(
            "factor-two",
            "twice the gradient: the ½ in front of the squares cancels the 2 of the derivative",
            lambda S, K, V: 2 * gradient_oracle(S, K, V),
        ),
        Mistake(
            "mean-over-pairs",
            "the gradients were averaged over the pairs; the loss is a sum, so they are added up",
            lambda S, K, V: gradient_oracle(S, K, V) / len(K),
        ),
        Mistake(
            "mean-of-squares",
            "this is the gradient of the mean square over pairs and value channels; the loss is half the sum",
            lambda S, K, V: 2 * gradient_oracle(S, K, V) / V.size,
        ),
        Mistake(
            "values-only",
            "what is read was left out: -k vᵀ is the gradient of -⟨Sᵀk, v⟩, the loss of linear attention",
            lambda S, K, V: -K.T @ V,
        ),
        Mistake(
            "transposed",
            "the gradient came out as (V, K); it has the shape of S, a row for each key channel",
            lambda S, K, V: (K @ S - V).T @ K,
        ),
        Mistake(
            "last-pair-only",
            "the gradient of the last pair alone; the loss adds up all pairs",
            lambda S, K, V: np.outer(K[-1], S.T @ K[-1] - V[-1]),
        ),
        Mistake(
            "stepped-between-the-pairs",
            "the state was changed after each pair; all errors of a gradient are read from the same S",
            _stepped_between,
        ),
        Mistake(
            "key-forgotten",
            "each error was spread over all key channels alike; the derivative by S[i, j] is error j times k[i]",
            lambda S, K, V: np.outer(np.ones(K.shape[1]), (K @ S - V).sum(axis=0)),
        ),
        normalised(
            gradient_oracle,
            1,
            "the keys were divided by their lengths; the loss has them as they come",
        ),
    ),
    hints=(
        "By hand, one pair: 3 is read and 5 is wanted, so the error is -2, and the gradient is -2 in Ada's row.",
        "For one pair the gradient is an outer product of the key with the error, what is read minus what is wanted.",
        "Errors of all pairs at once: each row of `K` is a key, so its product with the state has a read in each row.",
        "A sum of outer products of rows is one matrix product: the transposed first table times the second.",
    ),
)


# --- 8.3 what other keys hear -------------------------------------------------------------------


def _change_cases(rng):
    def write(n, K, V, beta, *, length=1.0):
        S, v, Q = rng.standard_normal((K, V)), rng.standard_normal(V), unit(rng.standard_normal((n, K)))
        return S, length * unit(rng.standard_normal(K)), v, beta, Q

    ada, others = np.array([1.0, 0.0]), np.array([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
    rooms = np.array([[3.0, 1.0], [1.0, 2.0]])
    same, against, apart = write(1, 4, 2, 0.8), write(1, 3, 2, 0.8), write(2, 3, 2, 0.6)
    apart[4][:] = apart[4] - np.outer(apart[4] @ apart[1], apart[1])
    known = write(3, 4, 2, 0.7)
    long = write(4, 3, 2, 0.9)
    long[4][:] *= np.array([[3.0], [0.5], [-2.0], [0.0]])
    return [
        Case((rooms, ada, np.array([4.0, 7.0]), 1.0, others), "by hand: Bo hears nothing, Cy 0.6 of (1, 6), Ada all"),
        Case(write(1, 3, 2, 0.6), "one question"),
        Case(write(5, 4, 3, 0.9), "five questions"),
        Case((*same[:4], same[1][None]), "the question is the key itself"),
        Case((*against[:4], -against[1][None]), "the question is the opposite of the key"),
        Case(apart, "questions orthogonal to the key: no change"),
        Case(write(3, 3, 3, 0.4), "K = V"),
        Case(write(3, 4, 2, 0.0), "beta = 0"),
        Case(write(3, 4, 2, 2.0), "beta = 2"),
        Case(write(4, 3, 2, 0.7, length=2.0), "a key of length 2: it is used as it comes"),
        Case(long, "questions of other lengths than 1"),
        Case((*known[:2], known[0].T @ known[1], *known[3:]), "the value is stored already: no change"),
        Case((np.zeros((3, 2)), *write(2, 3, 2, 0.5)[1:]), "an empty state"),
        Case(write(2, 1, 3, 0.5), "K = 1"),
        Case(write(150, 6, 2, 0.5), "150 questions"),
    ]


def change_oracle(S, k, v, beta, Q):
    return np.outer(Q @ k, beta * (v - S.T @ k))


def _cosines(scale):
    return lambda S, k, v, beta, Q: np.outer(scale(Q) @ unit(k), beta * (v - S.T @ k))


def _one_state(S, k, v, beta, Q):
    new = S
    new += beta * np.outer(k, v - S.T @ k)
    return Q @ new - Q @ S


CHANGES = Exercise(
    id="8.3",
    name="answer_changes",
    title="what other keys hear",
    points=2,
    minutes=5,
    difficulty="core",
    returns=("change[n, v]",),
    cases=_change_cases,
    oracle=change_oracle,
    mistakes=(
        Mistake(
            "new-answers",
            "these are the answers after the write; what is asked is by how much they changed",
            lambda S, k, v, beta, Q: Q @ delta_oracle(S, k, v, beta),
        ),
        Mistake(
            "old-minus-new",
            "the change has the wrong sign: it is the new answer minus the old one",
            lambda S, k, v, beta, Q: -change_oracle(S, k, v, beta, Q),
        ),
        Mistake(
            "value-instead-of-error",
            "the overlap multiplied the new value; the write is the error, the value minus what was stored",
            lambda S, k, v, beta, Q: np.outer(Q @ k, beta * v),
        ),
        Mistake(
            "beta-forgotten",
            "the change is right for beta = 1; a fraction beta of the error is written",
            lambda S, k, v, beta, Q: change_oracle(S, k, v, 1.0, Q),
        ),
        Mistake(
            "overlap-forgotten",
            "every question was given the change of the key itself; others hear it times their dot product with it",
            lambda S, k, v, beta, Q: np.tile(beta * (v - S.T @ k), (len(Q), 1)),
        ),
        Mistake(
            "cosine-for-lengths",
            "the dot product was divided by the lengths; with vectors of other lengths than 1 it is used as it is",
            _cosines(unit_or_zero),
            also=(_cosines(unit),),
        ),
        normalised(
            change_oracle,
            1,
            "the key was divided by its length; with a key of another length than 1 it is used as it comes",
        ),
        Mistake(
            "error-of-the-question",
            "the error was read at the question; it is read at the key that is written",
            lambda S, k, v, beta, Q: beta * (Q @ k)[:, None] * (v - Q @ S),
        ),
        Mistake(
            "one-state-twice",
            "both answers came from the changed state: a second name for `S` is no copy, and `+=` changes it under "
            "both names",
            _one_state,
        ),
    ),
    hints=(
        "A question orthogonal to the key hears no change; the key itself, of length 1, hears `beta` times the error.",
        "Subtract the two states from each other on paper before you read them: little is left.",
        "What is left is an outer product. Reading it at a question gives a number times a row of V numbers.",
        "That number is the dot product of question and key, one for each row of `Q`; combine all with `np.outer`.",
    ),
)


# --- 8.4 the largest step size ------------------------------------------------------------------


def _beta_cases(rng):
    def keys(T, K, low=0.5, high=3.0):
        return rng.uniform(low, high, (T, 1)) * unit(rng.standard_normal((T, K)))

    silent = keys(5, 3)
    silent[2] = 0.0
    turned = unit(rng.standard_normal((4, 3)))
    longest_first = keys(6, 3, 0.1, 0.5)
    longest_first[0] *= 40
    return [
        Case((np.array([[3.0, 0.0]]),), "by hand: one key of length 3, so 2/9"),
        Case((np.array([[1.0, 0.0], [0.0, 2.0]]),), "by hand: lengths 1 and 2, so 1/2"),
        Case((turned,), "all keys of length 1: 2"),
        Case((keys(1, 4),), "T = 1"),
        Case((keys(5, 1),), "K = 1"),
        Case((keys(7, 3),), "seven keys"),
        Case((keys(3, 3),), "T = K"),
        Case((keys(2, 6),), "more channels than tokens"),
        Case((silent,), "keys[2] = 0 limits nothing"),
        Case((longest_first,), "one long key among short ones"),
        Case((np.tile(keys(1, 3), (4, 1)),), "the same key four times"),
        Case((1e-6 * keys(4, 2),), "very short keys"),
        Case((keys(300, 4),), "300 keys"),
    ]


def largest_beta_oracle(keys):
    return 2 / np.square(keys).sum(axis=1).max()


LARGEST = Exercise(
    id="8.4",
    name="largest_beta",
    title="how large a step may be",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("beta",),
    cases=_beta_cases,
    oracle=largest_beta_oracle,
    mistakes=(
        Mistake(
            "length-not-squared",
            "2 was divided by the length; the eigenvalue has its square, 1 - β‖k‖²",
            lambda keys: 2 / np.linalg.norm(keys, axis=1).max(),
        ),
        Mistake(
            "stops-at-zero",
            "1/‖k‖² brings the eigenvalue to 0; the norm stays at most 1 until it reaches -1, at twice that",
            lambda keys: 1 / np.square(keys).sum(axis=1).max(),
        ),
        Mistake(
            "shortest-key",
            "this is the largest step for the shortest key; every token must be safe, so the longest decides",
            lambda keys: 2 / np.square(keys).sum(axis=1).min(),
            also=(lambda keys: 2 / min(k @ k for k in keys if k.any()),),
        ),
        Mistake(
            "mean-length",
            "the mean of the squared lengths was taken; one long key is enough to make a norm exceed 1",
            lambda keys: 2 / np.square(keys).sum(axis=1).mean(),
        ),
        Mistake(
            "all-keys-at-once",
            "this is the limit for one gradient step on all pairs together; here each token takes its own step",
            lambda keys: 2 / np.linalg.norm(keys, ord=2) ** 2,
        ),
        Mistake(
            "summed-over-tokens",
            "squares were added up over the tokens; a key's squared length is the sum over its channels, axis 1",
            lambda keys: 2 / np.square(keys).sum(axis=0).max(),
        ),
        Mistake(
            "sum-of-all",
            "the squared lengths of all keys were added up; no step sees more than its own key",
            lambda keys: 2 / np.square(keys).sum(),
        ),
        Mistake(
            "capped-at-two",
            "the answer was capped at 2; for keys shorter than 1 larger steps are safe",
            lambda keys: min(2.0, largest_beta_oracle(keys)),
        ),
    ),
    hints=(
        "For keys of length 1 the answer is 2, for a key of length 3 it is 2/9.",
        "Along its key, a transition has eigenvalue 1 minus beta times its squared length; -1 is the lowest allowed.",
        "Solve that for beta for one key; then ask which key of the sequence is the first to complain.",
        "Squared lengths of all rows are a sum of squares along axis 1; the largest of them decides.",
    ),
)

EXERCISES = (DELTA_STEP, GRADIENT, CHANGES, LARGEST)
