"""All exercises, by id. A chapter's records live in its own module, ``chNN.EXERCISES``."""

import importlib
import importlib.util
import pkgutil
import re
from functools import cache

from lineage_lib.exercises.record import CELL_ID, DIFFICULTIES, Case, Exercise, Mistake

__all__ = ["CELL_ID", "DIFFICULTIES", "Case", "Exercise", "Mistake", "all_exercises", "find"]


def all_exercises() -> dict[str, Exercise]:
    """Every exercise of the book, ``{"3.2": Exercise(...)}``, in book order."""
    modules = (m.name for m in pkgutil.iter_modules(__path__))
    chapters = sorted(name for name in modules if re.fullmatch(r"ch\d\d", name))
    return {identity: exercise for chapter in chapters for identity, exercise in _chapter(chapter).items()}


def find(exercise_id: str) -> Exercise:
    """The exercise with this id; a ``KeyError`` that lists its chapter's ids when there is none."""
    if not isinstance(exercise_id, str):
        raise TypeError(
            f'exercise id: expected a string such as "3.2", got {exercise_id!r} ({type(exercise_id).__name__})'
        )
    number = exercise_id.split(".")[0]
    # Only its own chapter is loaded: others may need PyTorch.
    chapter = f"ch{number:0>2}"
    known = _chapter(chapter) if re.fullmatch(r"ch[0-9]{2}", chapter) and _exists(chapter) else all_exercises()
    if exercise_id in known:
        return known[exercise_id]
    raise UnknownExercise(f'there is no exercise "{exercise_id}"; there are {", ".join(known)}')


def _exists(chapter: str) -> bool:
    return importlib.util.find_spec(f"{__name__}.{chapter}") is not None


@cache
def _chapter(name: str) -> dict[str, Exercise]:
    found: dict[str, Exercise] = {}
    for exercise in importlib.import_module(f"{__name__}.{name}").EXERCISES:
        if exercise.id in found or f"ch{exercise.chapter}" != name:
            raise ValueError(f"exercise id {exercise.id} is used twice, or belongs to another chapter than {name}")
        found[exercise.id] = exercise
    return found


class UnknownExercise(KeyError):
    """No exercise has this id."""

    def __str__(self) -> str:
        return self.args[0]
