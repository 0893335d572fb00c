"""Chapter 09, second part: one chunk, all chunks (9.5 and 9.6)."""

import numpy as np

from lineage_lib.exercises._ch09_wy import (
    ada_and_bo,
    again,
    corrected_oracle,
    draw_head,
    heads,
    lower,
    near,
    solve,
    unit_head,
)
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 9.5 a chunk's output and state --------------------------------------------------------------


def _output_cases(rng):
    cases = []
    for number, ((Q, K, V, beta), note) in enumerate(heads(rng)[:-1]):
        S0 = np.zeros((K.shape[1], V.shape[1])) if number == 0 else rng.standard_normal((K.shape[1], V.shape[1]))
        D = corrected_oracle(K, V, beta, S0)
        cases.append(Case((Q, K, D, S0), note))
    Q, K, D, _ = draw_head(rng, 5, 3, 2)
    D[-1] = 1e20
    quiet, keys, values, _ = draw_head(rng, 6, 2, 3)
    quiet[:] = 0.0
    return [
        *cases,
        Case((Q, K, D, rng.standard_normal((3, 2))), "the last corrected value is 1e20"),
        Case((quiet, keys, values, rng.standard_normal((2, 3))), "all queries are 0"),
    ]


def output_oracle(Q, K, D, S0):
    return _output(Q, K, D, S0)


def _output(Q, K, D, S0, *, mask=np.tril, read=None, kept=None):
    S = (S0 if kept is None else kept) + K.T @ D
    return Q @ (S0 if read is None else read) + mask(Q @ K.T) @ D, S


OUTPUT = Exercise(
    id="9.5",
    name="chunk_output",
    title="one chunk's output and state",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("O[t, v]", "S[k, v]"),
    cases=_output_cases,
    oracle=output_oracle,
    mistakes=(
        Mistake(
            "diagonal-missing",
            "the scores were cut strictly below the diagonal; a token reads after its own write, so the diagonal stays",
            lambda Q, K, D, S0: _output(Q, K, D, S0, mask=lambda P: np.tril(P, -1)),
        ),
        Mistake(
            "not-masked",
            "every token read every write of the chunk, later ones too; the scores keep the lower triangle",
            lambda Q, K, D, S0: _output(Q, K, D, S0, mask=lambda P: P),
        ),
        Mistake(
            "upper",
            "the upper triangle of the scores was kept; row t reads columns s ≤ t",
            lambda Q, K, D, S0: _output(Q, K, D, S0, mask=np.triu),
        ),
        Mistake(
            "scores-transposed",
            "the scores are K Qᵀ; row t is the query of t with the key of s, Q Kᵀ",
            lambda Q, K, D, S0: _output(Q, K, D, S0, mask=lambda P: np.tril(P.T)),
        ),
        Mistake(
            "start-not-read",
            "the outputs do not read S0; the state that came in is still there, corrections are added on top",
            lambda Q, K, D, S0: _output(Q, K, D, S0, read=np.zeros_like(S0)),
        ),
        Mistake(
            "start-not-kept",
            "S0 is missing from the state that leaves; what the chunk writes is added to it",
            lambda Q, K, D, S0: _output(Q, K, D, S0, kept=np.zeros_like(S0)),
        ),
        Mistake(
            "start-forgotten",
            "S0 was not used at all; the outputs read it, and the state that leaves still has it",
            lambda Q, K, D, S0: output_oracle(Q, K, D, np.zeros_like(S0)),
        ),
        Mistake(
            "new-state-read",
            "the queries read the state that leaves the chunk and its writes once more; they read the one that enters",
            lambda Q, K, D, S0: _output(Q, K, D, S0, read=S0 + K.T @ D),
        ),
        Mistake(
            "subtracted",
            "what the chunk writes was subtracted; D is the difference already, so it is added",
            lambda Q, K, D, S0: _output(Q, K, -D, S0),
        ),
        Mistake(
            "state-transposed",
            "the state has values for rows, Dᵀ K; its rows are key channels, Kᵀ D",
            lambda Q, K, D, S0: (output_oracle(Q, K, D, S0)[0], S0.T + D.T @ K),
        ),
    ),
    hints=(
        "With corrected values the chunk is linear attention: nothing is erased any more.",
        "Two parts add up to the output: what the state that came in answers to each query, and what the chunk's own "
        "writes answer.",
        "Entry (t, s) of the scores is the query of token t with the key of token s, for s up to and including t.",
        "The state that leaves is the state that entered plus the sum of the outer products of keys and corrected "
        "values, one matrix product.",
    ),
)


# --- 9.6 all chunks ------------------------------------------------------------------------------


def _whole_heads(rng):
    """(head, T_c, note): the ladder's lengths with chunks of 5, and what is special."""
    first, last = unit_head(rng, 17, 3, 2), unit_head(rng, 13, 3, 2)
    first[3][[0, 5, 16]], last[2][-1] = 0.0, 1e20
    spelled = {4: "T = T_c − 1", 5: "T = T_c", 6: "T = T_c + 1", 20: "T is a multiple of T_c", 18: "T = 3 T_c + 3"}
    return [
        (ada_and_bo(), 2, "Ada -> 31, Bo -> 12, Ada -> 47 in chunks of two"),
        (draw_head(rng, 1, 2, 3), 1, "one token, T_c = 1"),
        (draw_head(rng, 1, 3, 2), 4, "one token, T_c = 4"),
        *((draw_head(rng, T, 3, 2), 5, note) for T, note in spelled.items()),
        (draw_head(rng, 6, 4, 3), 1, "T_c = 1: the recurrence"),
        (draw_head(rng, 9, 1, 2), 4, "K = 1, and a last chunk of one token"),
        (draw_head(rng, 7, 3, 3), 3, "K = V = T_c"),
        (again(unit_head(rng, 15, 4, 2), 0, 1, 0, 2), 4, "a few keys, used again and again"),
        (again(unit_head(rng, 40, 3, 2, beta=(1.0, 1.0)), 0), 16, "one key of norm 1 for all tokens, beta = 1"),
        (near(rng, draw_head(rng, 64, 6, 3, beta=(0.5, 1.0)), 0.9), 32, "keys near one another"),
        (unit_head(rng, 23, 4, 3, beta=(1.0, 2.0)), 8, "beta above 1"),
        (first, 6, "beta = 0 at some tokens, the first and the last among them"),
        (last, 5, "the last value is 1e20"),
        (draw_head(rng, 8, 3, 2, norms=(1.8, 2.2)), 3, "keys of norm near 2"),
        (
            near(rng, draw_head(rng, 64, 6, 3, beta=(0.9, 1.0)), 0.98),
            64,
            "64 nearly equal keys, cosine 0.98, one chunk",
        ),
        (unit_head(rng, 300, 5, 3), 16, "300 tokens"),
    ]


def _whole_cases(rng):
    cases = []
    for number, ((Q, K, V, beta), T_c, note) in enumerate(_whole_heads(rng)):
        if number % 3 == 0:
            cases.append(Case((Q, K, V, beta, T_c), f"{note}; S0 is not given"))
        else:
            cases.append(Case((Q, K, V, beta, T_c, rng.standard_normal((K.shape[1], V.shape[1]))), note))
    return cases


def delta_oracle(Q, K, V, beta, T_c, S0=None):
    return _delta(Q, K, V, beta, T_c, S0)


def _delta(Q, K, V, beta, T_c, S0=None, *, A=lower, mask=np.tril, right=None, old=lambda S: S,
           enters=lambda S, S0: S, late=False, upto=None):  # fmt: skip
    S0 = np.zeros((K.shape[1], V.shape[1])) if S0 is None else S0
    S, O = S0, np.zeros(V.shape)
    for start in range(0, len(V) if upto is None else upto, T_c):
        j = slice(start, start + T_c)
        S = enters(S, S0) if start else S
        b, found = beta[j, None], K[j] @ S
        D = solve(A(K[j], beta[j]), b * (V[j] - found) if right is None else right(b, V[j], K[j], found, S0))
        left = old(S) + K[j].T @ D
        O[j], S = Q[j] @ (left if late else S) + mask(Q[j] @ K[j].T) @ D, left
    return O, S


def _delta_with(**slip):
    return lambda Q, K, V, beta, T_c, S0=None: _delta(Q, K, V, beta, T_c, S0, **slip)


DELTA = Exercise(
    id="9.6",
    name="chunked_delta_rule",
    title="the delta rule in chunks",
    points=4,
    minutes=15,
    difficulty="hard",
    returns=("O[t, v]", "S[k, v]"),
    cases=_whole_cases,
    oracle=delta_oracle,
    mistakes=(
        Mistake(
            "diagonal-in-a",
            "A has the diagonal of beta K Kᵀ; a token is corrected by earlier tokens only, so A is strictly lower",
            _delta_with(A=lambda K, beta: np.tril(beta[:, None] * (K @ K.T))),
        ),
        Mistake(
            "diagonal-missing",
            "the scores of the output were cut strictly below the diagonal; a token reads after its own write, so "
            "there the diagonal stays",
            _delta_with(mask=lambda P: np.tril(P, -1)),
        ),
        Mistake(
            "start-forgotten",
            "S0 was not used; it is the state that enters the first chunk",
            lambda Q, K, V, beta, T_c, S0=None: _delta(Q, K, V, beta, T_c),
        ),
        Mistake(
            "state-not-carried",
            "every chunk started from S0; a chunk starts from the state that the chunk before has left",
            _delta_with(enters=lambda S, S0: S0),
        ),
        Mistake(
            "state-reset",
            "every chunk after the first started from zeros; a chunk starts from the state that the chunk before has "
            "left",
            _delta_with(enters=lambda S, S0: np.zeros_like(S)),
        ),
        Mistake(
            "sign",
            "I − A was solved; the matrix is I + A",
            _delta_with(A=lambda K, beta: -lower(K, beta)),
        ),
        Mistake(
            "beta-on-columns",
            "beta scaled the columns of K Kᵀ in A; it is the reader's strength, so it scales the rows",
            _delta_with(A=lambda K, beta: np.tril(beta * (K @ K.T), -1)),
        ),
        Mistake(
            "tail-dropped",
            "the last chunk, which is shorter when T is not a multiple of T_c, was left out",
            lambda Q, K, V, beta, T_c, S0=None: _delta(Q, K, V, beta, T_c, S0, upto=len(V) // T_c * T_c),
        ),
        Mistake(
            "read-after-replacing",
            "the outputs read the state that leaves the chunk, so its writes count twice; compute them before the "
            "state is replaced",
            _delta_with(late=True),
        ),
        Mistake(
            "beta-on-the-values-alone",
            "beta multiplied V alone; it multiplies the difference, what the state answers included",
            _delta_with(right=lambda b, V, K, found, S0: b * V - found),
        ),
    ),
    hints=(
        "With `T_c = 1` it is the recurrence; with `T_c >= T` it is one chunk, the last three exercises in a row.",
        "Carry one state from chunk to chunk; each chunk reads the state that enters it and replaces it by the one "
        "that leaves.",
        "Per chunk: slices of all inputs, corrected values by one solve, then output and state.",
        "Walk over the starts 0, `T_c`, 2 `T_c`, …; slices that reach past the end stop there, so the last chunk "
        "needs no special case. Write the outputs of a chunk before the state is replaced.",
    ),
)

EXERCISES = (OUTPUT, DELTA)
