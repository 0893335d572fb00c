"""Chapter 00, start here: one exercise, to try the loop."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake


def decay(s, a):
    return a * s


def _cases(rng):
    return [
        Case((np.array([4.0, 8.0, 16.0]), 0.75), "small enough to do by hand"),
        Case((rng.standard_normal(3), 1.0), "a = 1: nothing is forgotten"),
        Case((rng.standard_normal(5), 0.0), "a = 0: a reset"),
        Case((rng.standard_normal((4, 3)), 0.9), "a matrix is a state too"),
    ]


def _in_place(s, a):
    s *= a
    return s


EXERCISES = (
    Exercise(
        id="0.1",
        name="decay",
        title="multiply the state by the decay",
        points=1,
        minutes=2,
        difficulty="warm-up",
        returns=("s_new",),
        cases=_cases,
        oracle=decay,
        mistakes=(
            Mistake(
                "divided",
                "this is s / a; a decay of 0.5 leaves half of the state, it does not double it",
                lambda s, a: s / a,
            ),
            Mistake(
                "added",
                "this is s + a; a decay multiplies the state, it adds nothing to it",
                lambda s, a: s + a,
            ),
            Mistake(
                "complement",
                "this is (1 - a) * s; a is the part that stays, not the part that is lost",
                lambda s, a: (1 - a) * s,
            ),
            Mistake(
                "unchanged",
                "this is s itself; the decay a was not used",
                lambda s, a: np.array(s),
            ),
        ),
        hints=(
            "With `a = 1` the state must come back as it was, and with `a = 0` it must come back as zeros.",
            "Every entry of the state shrinks by the same factor.",
            "NumPy multiplies an array by a number entry by entry.",
            "One line: return the product of the two arguments, as a new array.",
        ),
    ),
)
