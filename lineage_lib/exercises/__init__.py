"""All exercises, by id. A chapter's records live in its own module, ``chNN.EXERCISES``."""

import importlib
import pkgutil
import re
from functools import cache

from lineage_lib.exercises.record import CELL_ID, DIFFICULTIES, Case, Exercise, Mistake

__all__ = ["CELL_ID", "DIFFICULTIES", "Case", "Exercise", "Mistake", "all_exercises", "find"]


@cache
def all_exercises() -> dict[str, Exercise]:
    """Every exercise of the book, ``{"3.2": Exercise(...)}``, in book order."""
    found: dict[str, Exercise] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__) if re.fullmatch(r"ch\d\d", m.name)):
        for exercise in importlib.import_module(f"{__name__}.{module}").EXERCISES:
            if exercise.id in found:
                raise ValueError(f"exercise id {exercise.id} is used twice")
            found[exercise.id] = exercise
    return found


def find(exercise_id: str) -> Exercise:
    """The exercise with this id; a ``KeyError`` that lists its chapter's ids when there is none."""
    if not isinstance(exercise_id, str):
        raise TypeError(
            f'exercise id: expected a string such as "3.2", got {exercise_id!r} ({type(exercise_id).__name__})'
        )
    known = all_exercises()
    if exercise_id in known:
        return known[exercise_id]
    near = [i for i in known if i.split(".")[0] == exercise_id.split(".")[0]] or list(known)
    raise UnknownExercise(f'there is no exercise "{exercise_id}"; there are {", ".join(near)}')


class UnknownExercise(KeyError):
    """No exercise has this id."""

    def __str__(self) -> str:
        return self.args[0]
