"""Chapter 09, first part: products of factors, the WY rows, one solve, corrected values (9.1 to 9.4)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake


def draw_head(rng, T, K, V, *, beta=(0.2, 1.0), norms=(0.5, 1.3)):
    """(Q, K, V, beta) of a random head; ``beta`` and the keys' ``norms`` are ranges."""
    keys = rng.standard_normal((T, K))
    keys *= rng.uniform(*norms, (T, 1)) / np.linalg.norm(keys, axis=1, keepdims=True)
    return rng.standard_normal((T, K)), keys, rng.standard_normal((T, V)), rng.uniform(*beta, T)


def unit_head(rng, T, K, V, *, beta=(0.2, 1.0)):
    return draw_head(rng, T, K, V, beta=beta, norms=(1.0, 1.0))


def again(head, *pattern):
    """The same head, whose token t has the key of token pattern[t], the pattern repeated."""
    Q, K, V, beta = head
    return Q, K[np.resize(pattern, len(K))], V, beta


def near(rng, head, cosine):
    """The same head with unit keys of about this cosine with one another."""
    Q, K, V, beta = head
    common = rng.standard_normal(K.shape[1])
    K = np.sqrt(cosine) * common / np.linalg.norm(common) + np.sqrt(1 - cosine) * K
    return Q, K / np.linalg.norm(K, axis=1, keepdims=True), V, beta


def ada_and_bo():
    """(Q, K, V, beta): Ada -> 31, Bo -> 12, Ada -> 47, with keys of cosine 0.6, a question about each."""
    ada, bo = [1.0, 0.0], [0.6, 0.8]
    return np.array([ada, bo, bo]), np.array([ada, bo, ada]), np.array([[3.0, 1], [1, 2], [4, 7]]), np.ones(3)


def heads(rng):
    """((Q, K, V, beta), note) of the cases that are one chunk."""
    silent = draw_head(rng, 6, 3, 2)
    silent[1][2] = 0.0
    skipping = draw_head(rng, 7, 3, 2)
    skipping[3][[0, 3, 6]] = 0.0
    loud = draw_head(rng, 5, 3, 2)
    loud[2][-1] = 1e20
    alike = near(rng, draw_head(rng, 64, 6, 3, beta=(0.9, 1.0)), 0.98)
    return [
        (ada_and_bo(), "Ada -> 31, Bo -> 12, Ada -> 47, the example of the page"),
        (draw_head(rng, 1, 2, 3), "one token"),
        (draw_head(rng, 2, 3, 2), "two tokens"),
        (draw_head(rng, 5, 1, 3), "K = 1: the state has one row"),
        (draw_head(rng, 4, 4, 4), "K = V = T"),
        (draw_head(rng, 7, 3, 2), "more tokens than key channels"),
        (draw_head(rng, 4, 6, 1), "more key channels than tokens, one value channel"),
        (again(unit_head(rng, 9, 4, 2), 0, 1, 0), "two keys, used again and again"),
        (again(unit_head(rng, 12, 3, 2, beta=(1.0, 1.0)), 0), "one key of norm 1 for all tokens, beta = 1"),
        (near(rng, draw_head(rng, 24, 5, 3), 0.8), "keys near one another"),
        (draw_head(rng, 6, 3, 4, beta=(1.2, 2.0)), "beta above 1"),
        (draw_head(rng, 6, 4, 2, beta=(-1.0, -0.2)), "beta below 0"),
        (skipping, "beta = 0 at some tokens, the first and the last among them"),
        (alike, "64 keys that are nearly equal, of cosine 0.98: powers of A would lose all digits"),
        (silent, "one key is 0"),
        (draw_head(rng, 4, 3, 2, norms=(2.5, 3.5)), "keys of norm near 3"),
        (loud, "the last value is 1e20"),
    ]


def unit(K):
    """The keys at norm 1; a key that is 0 stays."""
    norms = np.linalg.norm(K, axis=1, keepdims=True)
    return K / np.where(norms > 0, norms, 1)


def divided_by_norm(K):
    """The keys at norm 1; a key that is 0 is not a number."""
    return K / np.linalg.norm(K, axis=1, keepdims=True)


def lower(K, beta):
    """A = tril(diag(beta) K Kᵀ, -1)."""
    return np.tril(beta[:, None] * (K @ K.T), -1)


def solve(A, B):
    """(I + A)^-1 B."""
    return np.linalg.solve(np.eye(len(A)) + A, B)


# --- 9.1 a product of factors --------------------------------------------------------------------


def _factor_cases(rng):
    def case(head, note, V=3, **kwargs):
        _, K, _, beta = head
        return Case((K, beta, rng.standard_normal((K.shape[1], V))), note, **kwargs)

    _, K, _, beta = ada_and_bo()
    reflect = unit_head(rng, 1, 3, 2, beta=(2.0, 2.0))
    orthonormal = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    return [
        Case((K, beta, np.eye(2)), "Ada, Bo, Ada, applied to the identity"),
        case(draw_head(rng, 1, 2, 1), "one factor"),
        case(draw_head(rng, 2, 3, 1), "two factors"),
        case(draw_head(rng, 4, 1, 1), "K = 1: factors are numbers", V=1),
        case(reflect, "beta = 2 and a unit key: a reflection"),
        case(draw_head(rng, 6, 3, 1), "six factors", V=2),
        Case((orthonormal, rng.uniform(0, 1, 4), rng.standard_normal((4, 3))), "orthonormal keys"),
        case(again(unit_head(rng, 8, 3, 1), 0, 1), "two keys, used again and again"),
        case(draw_head(rng, 5, 3, 1, beta=(0.0, 0.0)), "beta = 0: nothing happens"),
        case(draw_head(rng, 5, 4, 1, beta=(-1.0, -0.2)), "beta below 0"),
        case(draw_head(rng, 3, 4, 1, norms=(2.5, 3.5)), "keys of norm near 3"),
        case(near(rng, draw_head(rng, 40, 6, 1), 0.5), "40 factors, keys near one another"),
        case(unit_head(rng, 6, 1500, 1), "K = 1,500: a K by K matrix takes 18 MB", V=2, max_bytes=2_000_000),
    ]


def factors_oracle(K, beta, X):
    for k, b in zip(K, beta):
        X = X - np.outer(b * k, k @ X)
    return X


def _by_matrices(K, beta, X):
    P = np.eye(K.shape[1])
    for k, b in zip(K, beta):
        P = (np.eye(K.shape[1]) - b * np.outer(k, k)) @ P
    return P @ X


FACTORS = Exercise(
    id="9.1",
    name="apply_factors",
    title="a product, factor by factor",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("X[k, v]",),
    cases=_factor_cases,
    oracle=factors_oracle,
    mistakes=(
        Mistake(
            "newest-first",
            "the factors were applied from the newest to the oldest; the newest stands on the left, so the oldest "
            "meets X first",
            lambda K, beta, X: factors_oracle(K[::-1], beta[::-1], X),
        ),
        Mistake(
            "all-from-the-start",
            "every factor read the X that was given; each one reads what the factors before it have left",
            lambda K, beta, X: X - (K.T * beta) @ (K @ X),
        ),
        Mistake(
            "sign",
            "k kᵀ X was added; a factor is the identity minus beta k kᵀ",
            lambda K, beta, X: factors_oracle(K, -beta, X),
        ),
        Mistake(
            "beta-forgotten",
            "beta was not used; a factor subtracts beta times k kᵀ X",
            lambda K, beta, X: factors_oracle(K, np.ones_like(beta), X),
        ),
        Mistake(
            "beta-twice",
            "beta stands on both keys, so it was squared; it belongs to k kᵀ once",
            lambda K, beta, X: factors_oracle(K, beta**2, X),
        ),
        Mistake(
            "normalised",
            "the keys were brought to norm 1; they are used as they come",
            lambda K, beta, X: factors_oracle(unit(K), beta, X),
        ),
        Mistake(
            "matrices-formed",
            "K by K matrices were built; k kᵀ X is the outer product of k with the row kᵀ X, which takes K V numbers",
            _by_matrices,
            sign="memory",
        ),
    ),
    hints=(
        "With one factor the rows of the result are those of X less a multiple of one row, the same for all of them.",
        "Walk over the tokens from the first to the last; each step changes X and hands it on.",
        "In `k kᵀ X` multiply from the right: the row `kᵀ X` first, and no K by K matrix appears.",
        "Per token: subtract from X the outer product of the scaled key with the row that the key reads from X. Do not "
        "change the X that was given: make a new one.",
    ),
)


# --- 9.2 the WY rows, one by one -----------------------------------------------------------------


def rows_oracle(K, beta):
    return _rows(K, beta)


def _rows(K, beta, *, inner=None, sign=-1.0):
    """w_i = beta_i k_i + sign · inner_ij (k_i · k_j) w_j, with the right answer's pieces by default."""
    scores = K @ K.T
    inner = np.repeat(beta[:, None], len(K), axis=1) if inner is None else inner
    W = np.zeros(K.shape)
    for i in range(len(K)):
        W[i] = beta[i] * K[i] + sign * (inner[i] * scores[i])[:i] @ W[:i]
    return W


def _gram_schmidt(K, beta):
    W = np.zeros(K.shape)
    for i in range(len(K)):
        W[i] = beta[i] * (K[i] - (W[:i] @ K[i]) @ W[:i])
    return W


def _transposed_rows(K, beta):
    W = np.zeros(K.shape)
    for i in range(len(K)):
        W[i] = beta[i] * (K[i] - (W[:i] @ K[i]) @ K[:i])
    return W


ROWS = Exercise(
    id="9.2",
    name="wy_rows",
    title="the rows of W, one by one",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("W[t, k]",),
    cases=lambda rng: [Case((K, beta), note) for (_, K, _, beta), note in heads(rng)[:-1]],
    oracle=rows_oracle,
    mistakes=(
        Mistake(
            "sign",
            "the earlier rows were added; w_i is the key minus what the earlier rows account for",
            lambda K, beta: _rows(K, beta, sign=1.0),
        ),
        Mistake(
            "keys-for-rows",
            "the sum runs over the earlier keys k_j; it runs over the earlier rows w_j, which are already corrected",
            lambda K, beta: beta[:, None] * (K - np.tril(K @ K.T, -1) @ K),
        ),
        Mistake(
            "beta-on-the-key-alone",
            "beta_i multiplied the key alone; it multiplies the whole bracket, the sum included",
            lambda K, beta: _rows(K, beta, inner=np.ones((len(K), len(K)))),
        ),
        Mistake(
            "beta-on-the-sum-alone",
            "beta_i multiplied the sum alone; it multiplies the whole bracket, the key included",
            lambda K, beta: solve(lower(K, beta), K),
        ),
        Mistake(
            "beta-of-the-earlier-token",
            "the sum was weighted with beta_j, the earlier token's; the strength of token i multiplies all of w_i",
            lambda K, beta: _rows(K, beta, inner=np.repeat(beta[None], len(K), axis=0)),
        ),
        Mistake(
            "beta-forgotten",
            "beta was not used at all; w_i is beta_i times the bracket",
            lambda K, beta: _rows(K, np.ones_like(beta)),
        ),
        Mistake(
            "transposed",
            "the sum is that of (w_jᵀ k_i) k_j, a row of the transposed product; it asks for (k_iᵀ k_j) w_j",
            _transposed_rows,
        ),
        Mistake(
            "normalised",
            "the keys were brought to norm 1; they are used as they come",
            lambda K, beta: rows_oracle(divided_by_norm(K), beta),
            also=(lambda K, beta: rows_oracle(unit(K), beta),),
        ),
        Mistake(
            "gram-schmidt",
            "the scores are those of w_j with k_i, as in Gram and Schmidt's method; they are of the keys, k_iᵀ k_j",
            _gram_schmidt,
        ),
    ),
    hints=(
        "The first row is `beta[0] * K[0]`. With orthogonal keys every row is as plain as that.",
        "Fill `W` from the top. When row i is due, all rows above it are finished.",
        "The scores of token i with the earlier keys are a product of the rows `K[:i]` with `K[i]`; slices of length 0 "
        "are allowed, so the first token needs no special case.",
        "Row i: from the key take the sum of earlier rows, each times its score, and multiply what is left by the "
        "token's strength.",
    ),
)


# --- 9.3 one triangular solve --------------------------------------------------------------------


def wy_oracle(K, V, beta):
    return _wy(K, V, beta)


def _wy(K, V, beta, A=None, on_keys=None, on_values=None):
    A = lower(K, beta) if A is None else A
    on_keys, on_values = (beta if b is None else b for b in (on_keys, on_values))
    return solve(A, on_keys[:, None] * K), solve(A, on_values[:, None] * V)


WY = Exercise(
    id="9.3",
    name="wy_solve",
    title="W and U by one solve",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("W[t, k]", "U[t, v]"),
    cases=lambda rng: [Case((K, V, beta), note) for (_, K, V, beta), note in heads(rng)],
    oracle=wy_oracle,
    mistakes=(
        Mistake(
            "sign",
            "I − A was solved; moving the sum to the left side of the definition of w_i gives I + A",
            lambda K, V, beta: _wy(K, V, beta, -lower(K, beta)),
        ),
        Mistake(
            "diagonal-in-a",
            "A has the diagonal of beta K Kᵀ; a token is corrected by earlier tokens only, so A is strictly lower",
            lambda K, V, beta: _wy(K, V, beta, np.tril(beta[:, None] * (K @ K.T))),
        ),
        Mistake(
            "beta-on-columns",
            "beta scaled the columns of K Kᵀ; it is the reader's strength, so it scales the rows",
            lambda K, V, beta: _wy(K, V, beta, np.tril(beta * (K @ K.T), -1)),
        ),
        Mistake(
            "beta-missing-in-a",
            "A has no beta; row i of it is multiplied by beta_i",
            lambda K, V, beta: _wy(K, V, beta, lower(K, np.ones_like(beta))),
        ),
        Mistake(
            "beta-missing-on-v",
            "the right side of U is V; it is diag(beta) V",
            lambda K, V, beta: _wy(K, V, beta, on_values=np.ones_like(beta)),
        ),
        Mistake(
            "not-cut",
            "A is all of beta K Kᵀ; a token is corrected by earlier tokens only, so A is its strict lower triangle",
            lambda K, V, beta: _wy(K, V, beta, beta[:, None] * (K @ K.T)),
        ),
        Mistake(
            "upper",
            "A is upper triangular; row i belongs to the token that is corrected and has the earlier tokens j < i",
            lambda K, V, beta: _wy(K, V, beta, np.triu(beta[:, None] * (K @ K.T), 1)),
        ),
        Mistake(
            "normalised",
            "the keys were brought to norm 1; they are used as they come",
            lambda K, V, beta: wy_oracle(divided_by_norm(K), V, beta),
            also=(lambda K, V, beta: wy_oracle(unit(K), V, beta),),
        ),
        Mistake(
            "swapped",
            "U was returned first; the order is W, then U",
            lambda K, V, beta: wy_oracle(K, V, beta)[::-1],
        ),
        Mistake(
            "beta-missing-on-the-right",
            "the right sides are K and V; they are diag(beta) K and diag(beta) V",
            lambda K, V, beta: _wy(K, V, beta, on_keys=np.ones_like(beta), on_values=np.ones_like(beta)),
        ),
    ),
    hints=(
        "Compare with the loop: row i of `(I + A) W` is `w_i` plus `beta_i` times the sum over earlier rows.",
        "Entry (i, j) of A is `beta[i]` times the dot product of keys i and j, for j < i, and 0 elsewhere.",
        "`np.tril` with −1 as its second argument keeps what is strictly below the diagonal. `beta[:, None]` scales "
        "rows.",
        "Both right sides are scaled by their token's strength; the matrix that is solved is the identity plus A, the "
        "same for both.",
    ),
)


# --- 9.4 the corrected values --------------------------------------------------------------------


def _corrected_cases(rng):
    cases = []
    for number, ((_, K, V, beta), note) in enumerate(heads(rng)):
        S0 = rng.standard_normal((K.shape[1], V.shape[1]))
        if number == 0:
            S0 = np.array([[2.0, 0.0], [0.0, 5.0]])
        cases.append(Case((K, V, beta, S0), note))
    _, K, V, beta = draw_head(rng, 5, 3, 2)
    _, tiny, values, strength = draw_head(rng, 5, 3, 2)
    return [
        *cases,
        Case((K, V, beta, np.zeros((3, 2))), "S0 = 0"),
        Case((1e-5 * tiny, 1e5 * values, 1e10 * strength, 1e10 * rng.standard_normal((3, 2))), "tiny keys, large beta"),
    ]


def corrected_oracle(K, V, beta, S0):
    return solve(lower(K, beta), beta[:, None] * (V - K @ S0))


CORRECTED = Exercise(
    id="9.4",
    name="corrected_values",
    title="what each token adds",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("D[t, v]",),
    cases=_corrected_cases,
    oracle=corrected_oracle,
    mistakes=(
        Mistake(
            "start-forgotten",
            "S0 was not used: this is U; what the state that came in answers is subtracted too",
            lambda K, V, beta, S0: wy_oracle(K, V, beta)[1],
        ),
        Mistake(
            "read-at-the-keys",
            "the state that came in was read at the keys, beta K S0; the earlier tokens of the chunk have corrected "
            "it meanwhile, so it is read at the rows of W",
            lambda K, V, beta, S0: wy_oracle(K, V, beta)[1] - beta[:, None] * (K @ S0),
        ),
        Mistake(
            "no-solve",
            "each token was corrected by S0 alone; the earlier tokens of the chunk have written since",
            lambda K, V, beta, S0: beta[:, None] * (V - K @ S0),
        ),
        Mistake(
            "beta-missing",
            "the right side is V − K S0 without beta; row i is multiplied by beta_i",
            lambda K, V, beta, S0: solve(lower(K, beta), V - K @ S0),
        ),
        Mistake(
            "error-without-beta",
            "these are the errors, v_i less what the state answers; d_i is beta_i times the error",
            lambda K, V, beta, S0: solve(np.tril(beta * (K @ K.T), -1), V - K @ S0),
        ),
        Mistake(
            "sign",
            "I − A was solved; the matrix is I + A",
            lambda K, V, beta, S0: solve(-lower(K, beta), beta[:, None] * (V - K @ S0)),
        ),
        Mistake(
            "diagonal-in-a",
            "A has the diagonal of beta K Kᵀ; a token is corrected by earlier tokens only, so A is strictly lower",
            lambda K, V, beta, S0: solve(np.tril(beta[:, None] * (K @ K.T)), beta[:, None] * (V - K @ S0)),
        ),
        Mistake(
            "not-cut",
            "A is all of beta K Kᵀ; a token is corrected by earlier tokens only, so A is its strict lower triangle",
            lambda K, V, beta, S0: solve(beta[:, None] * (K @ K.T), beta[:, None] * (V - K @ S0)),
        ),
        Mistake(
            "normalised",
            "the keys were brought to norm 1; they are used as they come",
            lambda K, V, beta, S0: corrected_oracle(divided_by_norm(K), V, beta, S0),
            also=(lambda K, V, beta, S0: corrected_oracle(unit(K), V, beta, S0),),
        ),
        Mistake(
            "beta-on-the-values-alone",
            "beta multiplied V alone; it multiplies the difference, what S0 answers included",
            lambda K, V, beta, S0: solve(lower(K, beta), beta[:, None] * V - K @ S0),
        ),
    ),
    hints=(
        "The first token's corrected value is `beta[0]` times the difference of its value and what S0 holds under its "
        "key.",
        "Two ways: W and U by the solve and then their combination with S0; or one solve whose right side already has "
        "S0 in it.",
        "`K @ S0` has in row i what the state that came in answers to key i.",
        "The right side of the one solve: the differences between the values and these answers, each row times its "
        "strength.",
    ),
)

EXERCISES = (FACTORS, ROWS, WY, CORRECTED)
