"""Chapter 09, third part: chunks with decays, decays and gates for each channel (9.7 and 9.8)."""

import numpy as np

from lineage_lib.exercises._ch09_wy import ada_and_bo, again, draw_head, near, solve, unit_head
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.matrices import segment_products

# --- 9.7 with decays -----------------------------------------------------------------------------


def _gated_cases(rng):
    def alphas(T, low=0.6, resets=()):
        alpha = rng.uniform(low, 1.0, T)
        alpha[list(resets)] = 0.0
        return alpha

    def case(head, alpha, T_c, note, start=True):
        Q, K, V, beta = head
        S0 = (rng.standard_normal((K.shape[1], V.shape[1])),) if start else ()
        return Case((Q, K, V, alpha, beta, T_c, *S0), note if start else f"{note}; S0 is not given")

    never = "1 / γ and differences of log(0) are no numbers"
    wiped = unit_head(rng, 11, 3, 2)
    wiped[0][:5], wiped[2][:5] = 0.0, 1e60  # nobody reads what the first five tokens write
    Q, K, V, beta = unit_head(rng, 3, 2, 3)
    alike = near(rng, draw_head(rng, 64, 6, 3, beta=(0.9, 1.0)), 0.98)
    quick = rng.uniform(1e-3, 1e-2, 330)
    quick[-80:] = rng.uniform(0.97, 1.0, 80)
    return [
        case(ada_and_bo(), np.array([0.5, 0.5, 0.5]), 2, "Ada -> 31, Bo -> 12, Ada -> 47, a half a token", False),
        case(draw_head(rng, 1, 2, 3), alphas(1), 1, "one token, T_c = 1"),
        case(draw_head(rng, 1, 3, 2), alphas(1), 4, "one token, T_c = 4"),
        case(draw_head(rng, 3, 3, 2), alphas(3), 4, "T = T_c − 1"),
        case(draw_head(rng, 4, 2, 3), alphas(4), 4, "T = T_c"),
        case(draw_head(rng, 5, 3, 2), alphas(5), 4, "T = T_c + 1"),
        case(draw_head(rng, 17, 3, 2), alphas(17), 4, "T = 4 T_c + 1", False),
        case(draw_head(rng, 6, 4, 3), alphas(6), 1, "T_c = 1: the recurrence"),
        case(draw_head(rng, 9, 1, 2), alphas(9), 4, "K = 1"),
        case(draw_head(rng, 9, 3, 2), np.ones(9), 4, "alpha = 1: the plain delta rule"),
        case(again(unit_head(rng, 15, 4, 2), 0, 1, 0), alphas(15), 6, "two keys, used again and again"),
        case(unit_head(rng, 14, 3, 2), alphas(14, resets=(4, 5)), 5, f"resets at a last and a first token: {never}"),
        case(unit_head(rng, 11, 2, 3), alphas(11, resets=(0, 6, 10)), 4, f"resets at the ends and between: {never}"),
        case(wiped, alphas(11, resets=(5,)), 4, "five values of 1e60 that nobody reads, then a reset"),
        Case((Q, K, V, np.array([0.0, 0.9, 0.8]), beta, 2, np.full((2, 3), 1e60)), "S0 = 1e60, and a reset at once"),
        case(near(rng, draw_head(rng, 64, 6, 3), 0.8), alphas(64, 0.9), 32, "keys near one another"),
        case(alike, alphas(64, 0.999), 64, "64 nearly equal keys, cosine 0.98, one chunk"),
        case(unit_head(rng, 22, 4, 3, beta=(1.0, 2.0)), alphas(22), 8, "beta above 1"),
        case(unit_head(rng, 330, 3, 2), quick, 300, "250 decays below 0.01, whose product underflows, then slow ones"),
        case(unit_head(rng, 300, 4, 2), rng.uniform(0.9999, 1.0, 300), 32, "300 tokens, decays near 1"),
    ]  # fmt: skip


def gated_oracle(Q, K, V, alpha, beta, T_c, S0=None):
    return _gated(Q, K, V, alpha, beta, T_c, S0)


def _gated(Q, K, V, alpha, beta, T_c, S0=None, *, ratios=segment_products, pairs=None, cut=-1, sign=1.0,
           erase=np.cumprod, query=np.cumprod, write=lambda a: segment_products(a)[-1], keep=np.prod):  # fmt: skip
    """The loop over chunks; each piece makes the decays that it needs from those of a chunk."""
    S = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    O = np.zeros(V.shape)
    for start in range(0, len(V), T_c):
        j = slice(start, start + T_c)
        a, b = alpha[j], beta[j, None]
        A = sign * np.tril(b * (pairs or ratios)(a) * (K[j] @ K[j].T), cut)
        D = solve(A, b * (V[j] - erase(a)[:, None] * (K[j] @ S)))
        O[j] = query(a)[:, None] * (Q[j] @ S) + np.tril(ratios(a) * (Q[j] @ K[j].T)) @ D
        S = keep(a) * S + (write(a)[:, None] * K[j]).T @ D
    return O, S


def _gated_with(**slip):
    return lambda Q, K, V, alpha, beta, T_c, S0=None: _gated(Q, K, V, alpha, beta, T_c, S0, **slip)


def _divided(a):
    gamma = np.cumprod(a)
    return np.tril(gamma[:, None] / gamma)


def _inverted(a):
    gamma = np.cumprod(a)
    return np.tril(gamma / gamma[:, None])


def _one_over(a):
    return np.tril(1 / segment_products(a))


def _ones(a):
    return np.ones((len(a), len(a)))


GATED = Exercise(
    id="9.7",
    name="chunked_gated_delta_rule",
    title="chunks with decays",
    points=4,
    minutes=15,
    difficulty="hard",
    returns=("O[t, v]", "S[k, v]"),
    cases=_gated_cases,
    oracle=gated_oracle,
    mistakes=(
        Mistake(
            "alpha-not-used",
            "alpha was not used: this is the plain delta rule; before each correction the state fades by alpha",
            lambda Q, K, V, alpha, beta, T_c, S0=None: gated_oracle(Q, K, V, np.ones_like(alpha), beta, T_c, S0),
        ),
        Mistake(
            "state-read-undecayed",
            "the corrected values take what the incoming state held when the chunk began; by token i it has faded "
            "by γ_i",
            _gated_with(erase=np.ones_like),
        ),
        Mistake(
            "query-undecayed",
            "the outputs read the incoming state as it was when the chunk began; by token i it has faded by γ_i",
            _gated_with(query=np.ones_like),
        ),
        Mistake(
            "pairs-undecayed",
            "A has no Γ; what an earlier token wrote has faded by γ_i / γ_j when token i corrects it",
            _gated_with(pairs=_ones),
        ),
        Mistake(
            "writes-undecayed",
            "the chunk's writes entered the new state in full; at the chunk's end γ_C / γ_i of write i is left",
            _gated_with(write=np.ones_like),
        ),
        Mistake(
            "state-undecayed",
            "the incoming state was handed on in full; the chunk leaves γ_C of it, the product of all its decays",
            _gated_with(keep=lambda a: 1.0),
        ),
        Mistake(
            "ratio-inverted",
            "Γ is upside down: γ_j / γ_i grows, and what token j wrote has faded by γ_i / γ_j when token i hears it",
            _gated_with(ratios=_inverted),
            also=(
                _gated_with(ratios=_one_over),
                _gated_with(pairs=_inverted),
                _gated_with(pairs=_one_over),
                _gated_with(ratios=_inverted, write=lambda a: _inverted(a)[-1]),
                _gated_with(ratios=_one_over, write=lambda a: _one_over(a)[-1]),
            ),
        ),
        Mistake(
            "sign",
            "I − A was solved; the matrix is I + A",
            _gated_with(sign=-1.0),
        ),
        Mistake(
            "scores-undecayed",
            "the scores of the output have no Γ; what token j wrote has faded by γ_i / γ_j when query i reads it",
            _gated_with(ratios=_ones, pairs=segment_products),
        ),
        Mistake(
            "products-divided",
            "Γ was made by dividing cumulative products; after a reset that is 0 / 0, and long strong decays "
            "underflow: multiply the decays between two tokens",
            _gated_with(ratios=_divided, write=lambda a: _divided(a)[-1]),
        ),
    ),
    hints=(
        "With all decays 1 it is the last exercise. Which of your numbers must become smaller when an alpha does?",
        "Five places need a decay: A, the read of the incoming state in the corrected values, its read in the output, "
        "the scores of the output, and the new state, where both of its terms have one.",
        "`matrices.segment_products` of a chunk's alphas is Γ, with ones on the diagonal and zeros above; its last row "
        "holds the decays to the chunk's end. `np.cumprod` gives γ.",
        "Write the lines of the last exercise and multiply: rows of the two reads of the state by γ, both tables of "
        "scores by Γ, keys of the new state by Γ's last row, the old state by the last γ.",
    ),
)


# --- 9.8 decays for each channel, two gates --------------------------------------------------------


def _gdn2_cases(rng):
    def case(C, K, V, note, *, low=0.6, b=None, w=None, alpha=None, start=None, keys=None):
        Q, k, v, _ = unit_head(rng, C, K, V)
        k = k if keys is None else keys(k)
        alpha = rng.uniform(low, 1.0, (C, K)) if alpha is None else np.broadcast_to(alpha, (C, K)).copy()
        b = rng.uniform(0.0, 1.0, (C, K)) if b is None else np.broadcast_to(b, (C, K)).copy()
        w = rng.uniform(0.0, 1.0, (C, V)) if w is None else np.broadcast_to(w, (C, V)).copy()
        S0 = rng.standard_normal((K, V)) if start is None else start
        return Case((Q, k, v, alpha, b, w, S0), note)

    def alike(k):
        return near(rng, (None, k, None, None), 0.98)[1]

    Q, K, V, _ = ada_and_bo()
    half, one = np.full((3, 2), 0.5), np.ones((3, 2))
    beta = rng.uniform(0.2, 1.0, (9, 1))
    return [
        Case((Q, K, V, half, one, one, np.zeros((2, 2))), "Ada -> 31, Bo -> 12, Ada -> 47, all halves, b = w = 1"),
        case(1, 2, 3, "one token"),
        case(2, 3, 2, "two tokens"),
        case(5, 1, 3, "K = 1"),
        case(4, 4, 4, "K = V = C"),
        case(9, 3, 2, "b = w = beta: KDA", b=beta, w=beta),
        case(7, 3, 4, "everything differs"),
        case(6, 4, 2, "b = 0: nothing is erased, GLA", b=0.0, w=1.0),
        case(6, 3, 2, "w = 0: nothing is written", w=0.0),
        case(6, 2, 3, "no decay", alpha=1.0),
        case(8, 3, 2, "b up to 2", b=rng.uniform(1.0, 2.0, (8, 3))),
        case(8, 3, 2, "one channel fades, the others stay", alpha=np.array([0.1, 1.0, 1.0])),
        case(12, 4, 2, "two keys, used again and again", keys=lambda k: k[np.arange(12) % 2]),
        case(7, 3, 2, "keys of norm 2", keys=lambda k: 2 * k),
        case(5, 3, 2, "S0 = 0", start=np.zeros((3, 2))),
        case(40, 5, 3, "40 tokens, decays down to 0.05", low=0.05),
        case(40, 4, 3, "40 tokens, every decay 0.05: γ goes down to 1e-52, below any floor or epsilon", alpha=0.05),
        case(
            40, 6, 3, "40 nearly equal keys, of cosine 0.98: powers of A would lose all digits", low=0.99,
            b=rng.uniform(1.5, 2.0, (40, 6)), keys=alike,
        ),
        case(
            40, 6, 3, "40 keys near one another, no decay, b near 1: powers of A would lose digits", alpha=1.0,
            b=rng.uniform(0.8, 1.0, (40, 6)), keys=alike,
        ),
    ]  # fmt: skip


def gdn2_oracle(Q, K, V, alpha, b, w, S0):
    return _gdn2(Q, K, V, alpha, b, w, S0)


def _gdn2(Q, K, V, alpha, b, w, S0, *, erase=None, write=None, query=None, value=None, keep=None, end=None,
          gate_all=False, mask=np.tril):  # fmt: skip
    gamma = np.cumprod(alpha, axis=0)
    erase = b * gamma * K if erase is None else erase
    write = K / gamma if write is None else write
    query = gamma * Q if query is None else query
    value = w * V if value is None else value
    right = w * (V - erase @ S0) if gate_all else value - erase @ S0
    D = solve(np.tril(erase @ write.T, -1), right)
    last = gamma[-1, :, None]
    S = (last if keep is None else keep) * S0 + (last if end is None else end) * (write.T @ D)
    return query @ S0 + mask(query @ write.T) @ D, S


def _gdn2_slip(change):
    """The wrong answer made of the right one by ``change(gamma, Q, K, V, alpha, b, w)``, a dict of pieces."""

    def gdn2_chunk(Q, K, V, alpha, b, w, S0):
        pieces = change(np.cumprod(alpha, axis=0), Q, K, V, alpha, b, w)
        return _gdn2(Q, K, V, alpha, b, w, S0, **pieces)

    return gdn2_chunk


def _all_of(g, Q, K, b):
    """All pieces that γ has a part in, with another γ."""
    return {"erase": b * g * K, "write": K / g, "query": g * Q, "keep": g[-1, :, None], "end": g[-1, :, None]}


GDN2 = Exercise(
    id="9.8",
    name="gdn2_chunk",
    title="decay, erase, write by channel",
    points=3,
    minutes=12,
    difficulty="hard",
    returns=("O[t, v]", "S[k, v]"),
    cases=_gdn2_cases,
    oracle=gdn2_oracle,
    mistakes=(
        Mistake(
            "write-gate-forgotten",
            "w was not used; the value that is written is w ⊙ v",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"value": V}),
        ),
        Mistake(
            "write-gate-on-the-error",
            "w multiplied the value less what is erased; it gates the value alone, b has gated the erase",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"gate_all": True}),
        ),
        Mistake(
            "gamma-not-used",
            "alpha was not used; what is read is multiplied by γ, what is written divided by it, and the state that "
            "leaves multiplied by the last γ",
            lambda Q, K, V, alpha, b, w, S0: gdn2_oracle(Q, K, V, np.ones_like(alpha), b, w, S0),
        ),
        Mistake(
            "product-along-the-channels",
            "γ runs along the channels; it is the product over tokens, down each column of alpha",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: _all_of(np.cumprod(alpha, axis=1), Q, K, b)),
        ),
        Mistake(
            "erase-before-decay",
            "what is erased was read before this token's decay; fade first, then erase, then write: the erase keys "
            "have alpha_i in their γ",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"erase": b * (g / alpha) * K}),
        ),
        Mistake(
            "decay-after-write",
            "the state faded after the write; fade first, then erase, then write, so a token's write has not met its "
            "own decay",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"erase": b * (g / alpha) * K, "write": K / (g / alpha)}),
        ),
        Mistake(
            "query-undecayed",
            "the queries are Q; what a token reads has faded since the chunk began, channel by channel: γ ⊙ Q",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"query": Q}),
        ),
        Mistake(
            "erase-gate-forgotten",
            "b was not used; the keys that erase are b ⊙ γ ⊙ K",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"erase": g * K}),
        ),
        Mistake(
            "not-multiplied-back",
            "the new state was left in units of γ; multiply row c of it, old state and writes, by the last γ of "
            "channel c",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"keep": 1.0, "end": 1.0}),
        ),
        Mistake(
            "diagonal-missing",
            "the scores of the output were cut strictly below the diagonal; a token reads after its own write, so "
            "there the diagonal stays",
            _gdn2_slip(lambda g, Q, K, V, alpha, b, w: {"mask": lambda P: np.tril(P, -1)}),
        ),
    ),
    hints=(
        "Three new tables first: the queries, the keys that erase, the keys that write. Then it is a chunk without "
        "decays.",
        "γ has a row for each token: a cumulative product down each column of alpha. What reads is multiplied by it, "
        "what is written is divided by it.",
        "The solve is the plain one with the erase keys on the left of the scores and the write keys on the right; its "
        "right side is the gated value less what the erase keys read from S0.",
        "In these units the state that leaves is S0 plus the write keys, transposed, times the corrected values; then "
        "each row is multiplied by the last γ of its channel.",
    ),
)

EXERCISES = (GATED, GDN2)
