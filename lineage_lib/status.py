"""What a learner has solved, read from the notebooks in ``work/`` as they were saved.

Nothing runs and nothing is stored: an exercise counts as solved when its check cell shows its ok
line and was run after its answer cell.
"""

from dataclasses import dataclass, field
from pathlib import Path

from lineage_lib.exercises import Exercise
from lineage_lib.grading.merge import Chapter, chapters, passes
from lineage_lib.grading.report import table
from lineage_lib.grading.submission import Cell, Submission, Unreadable, read
from lineage_lib.paths import WORK

STATES = ("solved", "failing", "attempted", "untouched", "missing")


@dataclass(frozen=True)
class ExerciseStatus:
    """One exercise. ``state`` is one of :data:`STATES`.

    solved     the check passed, after the answer was last run
    failing    the check failed, after the answer was last run
    attempted  the answer was changed, and not checked since
    untouched  the answer cell is still the stub
    missing    the notebook has no such answer or check cell
    """

    id: str
    name: str
    state: str
    of: int

    @property
    def points(self) -> int:
        return self.of if self.state == "solved" else 0


@dataclass(frozen=True)
class ChapterStatus:
    """One chapter; ``problem`` is a sentence when its notebook in ``work/`` cannot be read."""

    chapter: str
    started: bool
    exercises: list[ExerciseStatus] = field(default_factory=list)
    problem: str = ""

    @property
    def points(self) -> int:
        return sum(e.points for e in self.exercises)

    @property
    def of(self) -> int:
        return sum(e.of for e in self.exercises)


def progress(work: Path = WORK) -> list[ChapterStatus]:
    """The state of every chapter of the book, in its order."""
    return [_chapter(chapter, work / f"{chapter.name}.ipynb") for chapter in chapters().values()]


def to_text(progress: list[ChapterStatus]) -> str:
    """A table of the chapters, and of the exercises of each one that was begun."""
    heads = ("", "points", "")
    rows = []
    for chapter in progress:
        solved = sum(e.state == "solved" for e in chapter.exercises)
        summary = f"{solved} of {len(chapter.exercises)} solved" if chapter.started else "not started"
        rows.append((chapter.chapter, f"{chapter.points} of {chapter.of}", summary))
        if chapter.started and not chapter.problem:
            rows += [(f"  {e.id} {e.name}", f"{e.points} of {e.of}", e.state) for e in chapter.exercises]
    total = (f"{sum(c.points for c in progress)} of {sum(c.of for c in progress)}", "")
    lines = table([heads, *rows, ("all chapters", *total)])
    problems = [f"{c.chapter}: {c.problem}" for c in progress if c.problem]
    if not any(c.started for c in progress):
        problems.append("Nothing is started yet: `lineage start` puts your copies of the chapters into work/.")
    return "\n".join([*lines, *([""] if problems else []), *problems]) + "\n"


def _chapter(chapter: Chapter, path: Path) -> ChapterStatus:
    if not path.exists():
        untouched = [ExerciseStatus(e.id, e.name, "untouched", e.points) for e in chapter.exercises]
        return ChapterStatus(chapter.name, False, untouched)
    try:
        saved, problem = read(path), ""
    except Unreadable as unreadable:
        saved, problem = Submission([], None), str(unreadable)
    states = [ExerciseStatus(e.id, e.name, _state(chapter, e, saved), e.points) for e in chapter.exercises]
    if not problem and states and all(e.state == "missing" for e in states):
        problem = "This notebook holds none of the chapter's exercises."
    return ChapterStatus(chapter.name, True, states, problem)


def _state(chapter: Chapter, exercise: Exercise, saved: Submission) -> str:
    answers, checks = (saved.cells_of(exercise.id, role) for role in ("answer", "check"))
    if not answers or not checks:
        return "missing"
    answer, check = answers[0], checks[0]
    if answer.source.split() == chapter.stub(exercise).split():
        return "untouched"
    if not _ran_after(check, answer):
        return "attempted"
    if passes(exercise, check.outputs):
        return "solved"
    failed = any(isinstance(o, dict) and o.get("output_type") == "error" for o in check.outputs)
    return "failing" if failed else "attempted"


def _ran_after(check: Cell, answer: Cell) -> bool:
    counts = answer.execution_count, check.execution_count
    return None not in counts and counts[0] < counts[1]
