"""Chapter 03, second part: sums of logarithms and the resets in them (3.5 and 3.6)."""

import numpy as np

from lineage_lib import matrices
from lineage_lib.exercises.record import Case, Exercise, Mistake


def _log_decays(rng, T, *, resets=()):
    log_a = np.log(rng.uniform(0.5, 1.0, T))
    log_a[list(resets)] = -np.inf
    return log_a


# --- 3.5 segment sums that survive a reset ------------------------------------------------------


def _log_cases(rng):
    return [
        Case((_log_decays(rng, 1),), "T = 1: the sum of nothing is 0"),
        Case((_log_decays(rng, 3),), ""),
        Case((_log_decays(rng, 4, resets=(2,)),), "log_a[2] = -inf: a reset"),
        Case((_log_decays(rng, 5, resets=(0,)),), "log_a[0] = -inf: a reset at the first token"),
        Case((np.zeros(4),), "every decay is 1"),
        Case(
            (np.append(-1e12, _log_decays(rng, 5)),),
            "log_a[0] = -1e12 is in no segment, but in every cumulative sum",
        ),
        Case(
            (_log_decays(rng, 6) * [1, -1, 1, 1, -1, -1],),
            "log_a[1], log_a[4] and log_a[5] are positive: decays above 1",
        ),
        Case(
            (-(10.0 ** np.arange(12)),),
            "log-decays from -1 to -1e11: products of such decays underflow, sums of their logarithms do not",
        ),
        Case((_log_decays(rng, 40, resets=(3, 4, 9, 39)),), "four resets, two side by side and one at the last token"),
    ]


def _differences(log_a):
    c = np.cumsum(log_a)
    return c[:, None] - c


def _differences_between_resets(log_a):
    document = np.cumsum(np.isinf(log_a))
    sums = _differences(np.where(np.isinf(log_a), 0.0, log_a))
    return _masked(np.where(document[:, None] == document, sums, -np.inf))


def _first_row_forgotten(log_a):
    out = matrices.segment_log_sums(log_a)
    out[:, 0] = -np.inf
    return out


def _above(T):
    return ~np.tri(T, dtype=bool)


def _masked(sums):
    return np.where(_above(len(sums)), -np.inf, sums)


SEGMENT_LOG_SUMS = Exercise(
    id="3.5",
    name="segment_log_sums",
    title="the logarithm of the mask",
    points=3,
    minutes=12,
    difficulty="core",
    returns=("logL[t, s]",),
    cases=_log_cases,
    oracle=matrices.segment_log_sums,
    mistakes=(
        Mistake(
            "cumsum-difference",
            "cumulative sums were subtracted; after a reset that is -inf - (-inf) = NaN: sum each segment by itself",
            lambda log_a: _masked(_differences(log_a)),
        ),
        Mistake(
            "difference-between-resets",
            "cumulative sums that start again at each reset were subtracted; a large sum has lost the digits of its "
            "small terms before the subtraction: sum each segment by itself",
            _differences_between_resets,
        ),
        Mistake(
            "mask-multiplied",
            "a mask of zeros and ones was multiplied in, and at a reset 0 · (-inf) is NaN; select with np.where",
            lambda log_a: _masked(np.cumsum(np.tri(len(log_a), k=-1) * log_a[:, None], axis=0)),
        ),
        Mistake(
            "one-early",
            "entry (t, s) sums s … t-1; the decay of s acted before s was written, and that of t acts on it: s+1 … t",
            lambda log_a: matrices.segment_log_sums(np.append(0.0, log_a[:-1])),
        ),
        Mistake(
            "includes-own",
            "the segments include log_a[s]; entry (t, s) sums s+1 … t, so the diagonal is 0",
            lambda log_a: _masked(matrices.segment_log_sums(log_a) + log_a),
        ),
        Mistake(
            "first-row-forgotten",
            "row 0 was never filled in: its diagonal entry is 0 like every other, and column 0 is summed from it",
            _first_row_forgotten,
        ),
        Mistake(
            "zero-above",
            "the entries above the diagonal are 0, and exp(0) = 1 lets the future in; they are -inf",
            lambda log_a: np.where(_above(len(log_a)), 0.0, matrices.segment_log_sums(log_a)),
        ),
        Mistake(
            "log-of-products",
            "the decays were multiplied before the logarithm was taken; long products underflow to 0: add logarithms",
            lambda log_a: np.log(matrices.segment_products(np.exp(log_a))),
        ),
    ),
    hints=(
        "No entry may be NaN, and both `-inf` minus `-inf` and 0 times `-inf` are. The diagonal is 0, even at a reset; "
        "everything above the diagonal is `-inf`.",
        "Down column s, each row adds one more logarithm: first nothing, then `log_a[s + 1]`, then `log_a[s + 2]`, …",
        "So column s is a cumulative sum down the rows of: zeros down to row s, then `log_a` from row `s + 1` on. "
        "Zeros are harmless where `-inf` minus `-inf` is not.",
        "Build the `(T, T)` array whose row t is `log_a[t]` strictly below the diagonal and 0 elsewhere, "
        "sum it cumulatively along axis 0, and put `-inf` above the diagonal at the end.",
    ),
)


# --- 3.6 packed documents -----------------------------------------------------------------------


def _packed_cases(rng):
    return [
        Case((_log_decays(rng, 3), [2, 1]), "two documents"),
        Case((_log_decays(rng, 3), [1, 1, 1]), "three documents of one token each"),
        Case((_log_decays(rng, 6), [3, 1, 2]), "three documents"),
        Case((_log_decays(rng, 4), [4]), "one document: no document starts inside"),
        Case((_log_decays(rng, 1), [1]), "one document of one token"),
        Case((_log_decays(rng, 8, resets=(2,)), [4, 1, 3]), "the model itself resets at token 2"),
        Case((_log_decays(rng, 16), [2, 4, 1, 5, 2, 1, 1]), "seven documents"),
    ]


def packed_oracle(log_a, lengths):
    return _set_at(log_a, _starts(lengths), -np.inf)


def _starts(lengths):
    return np.cumsum([0, *lengths[:-1]])


def _set_at(log_a, positions, value):
    out = np.array(log_a, dtype=float)
    out[positions] = value
    return out


PACKED = Exercise(
    id="3.6",
    name="packed_log_decays",
    title="a reset at every document start",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("log_a[t]",),
    cases=_packed_cases,
    oracle=packed_oracle,
    mistakes=(
        Mistake(
            "first-not-reset",
            "the first document starts without a reset; whatever state is carried in would leak into it",
            lambda log_a, lengths: _set_at(log_a, _starts(lengths)[1:], -np.inf),
        ),
        Mistake(
            "last-token-reset",
            "the reset stands at the last token of each document and erases what that token should still see; "
            "a_t acts before token t is written, so the reset belongs to the first token",
            lambda log_a, lengths: _set_at(log_a, np.cumsum(lengths) - 1, -np.inf),
        ),
        Mistake(
            "ends",
            "the position after the last token does not exist; if it came from np.cumsum(lengths), those are the ends "
            "of the documents, and a reset stands where a document starts",
            lambda log_a, lengths: _set_at(log_a, np.cumsum(lengths), -np.inf),
            sign="error",
        ),
        Mistake(
            "lengths-as-positions",
            "the lengths were used as positions; a document starts where all lengths before it add up to",
            lambda log_a, lengths: _set_at(log_a, lengths, -np.inf),
        ),
        Mistake(
            "lengths-not-summed",
            "only the length of the document before was used; a document starts where all lengths before it add up to",
            lambda log_a, lengths: _set_at(log_a, [0, *lengths[:-1]], -np.inf),
        ),
        Mistake(
            "nothing-to-sum",
            "with a single document nothing is left to sum, and np.cumsum([]) is an array of floats, which is no "
            "index; put the 0 of the first document in front before summing",
            lambda log_a, lengths: _set_at(_set_at(log_a, [0], -np.inf), np.cumsum(lengths[:-1]), -np.inf),
            sign="error",
        ),
        Mistake(
            "log-of-one",
            "the logarithm was set to 0, a decay of 1, which keeps everything; a decay of 0 has the logarithm -inf",
            lambda log_a, lengths: _set_at(log_a, _starts(lengths), 0.0),
        ),
        Mistake(
            "finite-penalty",
            "a large finite number stands where -inf belongs; sums that cross it lose the digits of everything else",
            lambda log_a, lengths: _set_at(log_a, _starts(lengths), -1e9),
        ),
    ),
    hints=(
        "As many entries change as there are documents, and entry 0 is always one of them.",
        "Document number i starts where the lengths before it add up to.",
        "`np.cumsum` of the lengths says where documents end; with a 0 in front and the last left off, where they "
        "start. Put the 0 in front first: `np.cumsum([])` is an array of floats, and floats are no index.",
        "Copy `log_a`, and write minus infinity at the start of every document.",
    ),
)

EXERCISES = (SEGMENT_LOG_SUMS, PACKED)
