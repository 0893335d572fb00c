"""Hints, one rung at a time: ``hint("3.2")`` in a notebook, ``lineage hint 3.2`` in a terminal.

How many rungs of each exercise a learner has seen is kept in ``work/.hints.json``, for both.
"""

import json
import os

from lineage_lib.exercises import find
from lineage_lib.paths import WORK


def hint(exercise_id: str, rung: int | None = None) -> None:
    """Print the next hint of an exercise, or number ``rung`` (1 to 4) again.

    The four rungs go from what a wrong output violates to what the missing line says. When all
    have been shown, the last one is shown again.
    """
    exercise = find(exercise_id)
    count = len(exercise.hints)
    if rung is not None and not (isinstance(rung, int) and 1 <= rung <= count):
        raise ValueError(f"rung: expected a number from 1 to {count}, got {rung!r}")
    seen = _read()
    if rung is None:
        rung = min(seen.get(exercise_id, 0) + 1, count)
        _write({**seen, exercise_id: rung})
    print(f"Hint {rung} of {count} for exercise {exercise_id} ({exercise.name})\n  {exercise.hints[rung - 1]}")


def _read() -> dict[str, int]:
    try:
        seen = json.loads((WORK / ".hints.json").read_text(encoding="utf-8"))
        return {k: v for k, v in seen.items() if isinstance(v, int) and v > 0}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}  # no file yet, or one that something else wrote: hints start at the first rung


def _write(seen: dict[str, int]) -> None:
    if "LINEAGE_REPORT" in os.environ:  # a graded run: the place is its teacher's, not the learner's
        return
    try:
        WORK.mkdir(exist_ok=True)
        (WORK / ".hints.json").write_text(json.dumps(seen, sort_keys=True), encoding="utf-8")
    except OSError:
        pass  # a read-only checkout still shows hints
