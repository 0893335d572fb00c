"""Puts the answers of a submitted notebook into the pristine chapter.

From the submission come the sources of its answer cells and nothing else: every other cell, every
output, every tag is the book's own. An answer that cannot be taken becomes a :class:`Finding`.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import nbformat

from lineage_lib.exercises import Exercise, find
from lineage_lib.grading.scan import Scan, bound_names, imported_names, parse, scan
from lineage_lib.grading.submission import Cell, Submission, whole_text
from lineage_lib.paths import CHAPTERS, SOLUTIONS


@dataclass(frozen=True)
class Finding:
    """A verdict on one exercise: a cause of the grading report, and why. Notes cost nothing."""

    cause: str
    message: str = ""
    mistake: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The source that a learner wrote for one exercise, and remarks that cost nothing."""

    source: str
    notes: tuple[str, ...] = ()


@dataclass
class Merge:
    """What was taken from one submission: per exercise either an answer or a finding."""

    chapter: "Chapter"
    answers: dict[str, Answer] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chapter:
    """A chapter as the book has it: the notebook with stubs, and what its solution printed."""

    name: str
    folder: Path = CHAPTERS
    solutions: Path = SOLUTIONS

    @cached_property
    def notebook(self) -> nbformat.NotebookNode:
        return nbformat.read(self.folder / f"{self.name}.ipynb", as_version=4)

    @cached_property
    def exercises(self) -> list[Exercise]:
        cells = (c.metadata.get("lineage", {}) for c in self.notebook.cells)
        return [find(m["exercise"]) for m in cells if m.get("role") == "answer"]

    @cached_property
    def stubs(self) -> dict[str, str]:
        return {_key(c): c.source for c in self.notebook.cells if _key(c)[1] == "answer"}

    @cached_property
    def imports(self) -> dict[str, str]:
        """What the names mean that the chapter's own cells import."""
        return {name: module for tree in self._own_cells for name, module in imported_names(tree).items()}

    @cached_property
    def names(self) -> list[str]:
        """The names that the chapter's own cells bind."""
        return sorted(set().union(*(bound_names(tree) for tree in self._own_cells)))

    @property
    def _own_cells(self):
        return [parse(c.source) for c in self.notebook.cells if c.cell_type == "code" and _key(c)[1] is None]

    @cached_property
    def solved(self) -> dict[tuple[str, str], nbformat.NotebookNode]:
        """The answer and check cells of the solution, by exercise and role; none when the file is missing."""
        try:
            solution = nbformat.read(self.solutions / f"{self.name}.ipynb", as_version=4)
        except OSError:
            return {}
        return {_key(c): c for c in solution.cells if _key(c)[1] in ("answer", "check")}

    @cached_property
    def faults(self) -> dict[str, str]:
        """Exercises that cannot be graded, because the solution does not hold what their check prints now."""
        file = f"solutions/{self.name}.ipynb"
        if not self.solved:
            return {e.id: f"The book's {file} is missing; run `lineage build`." for e in self.exercises}
        stored = {exercise: cell.outputs for (exercise, role), cell in self.solved.items() if role == "check"}
        return {
            e.id: f"The book's {file} is older than its exercise {e.id}; run `lineage build`."
            for e in self.exercises
            if not passes(e, stored.get(e.id, []), cases=len(e.seeded_cases(0)))
        }

    def helpers(self, exercise: Exercise) -> set[str]:
        """The parts of the library that the book's own answer uses."""
        solved = self.solved.get((exercise.id, "answer"))
        return set(scan(solved.source, self.imports).library) if solved else set()

    def stub(self, exercise: Exercise) -> str:
        return self.stubs[exercise.id, "answer"]

    def with_answers(self, answers: dict[str, str], alone: str | None = None) -> nbformat.NotebookNode:
        """The notebook to run: these answers, the solution's check outputs, and a guard around each exercise.

        For one exercise ``alone``, the notebook ends with its check, and in place of the learner's
        other answers stand the book's.
        """
        merged = copy.deepcopy(self.notebook)
        cells = []
        for cell in merged.cells:
            exercise, role = _key(cell)
            if role == "answer":
                own = alone in (None, exercise) or exercise not in answers
                source = answers.get(exercise, cell.source) if own else self.solved[exercise, "answer"].source
                cell.source = _MARKER.sub(r"\1not \2", source)
                cells += [_code(cell.id, "before", _KEEP.format(names=self.names)), cell]
            elif role != "check":
                cells.append(cell)
            elif alone in (None, exercise):
                solved = self.solved[exercise, "check"]
                cell.source = f"from lineage_lib.checks import check\n\n{cell.source}"
                cell.outputs, cell.execution_count = solved.outputs, solved.execution_count
                cells += [cell, _code(cell.id, "after", _PUT_BACK)]
                if alone:
                    break
        merged.cells = cells
        return merged


_KEEP = "import kernel_guard\n\nkernel_guard.keep(globals(), {names})"
_PUT_BACK = "import kernel_guard\n\nkernel_guard.put_back(globals())"
_MARKER = re.compile(r"(#\s*)((?:NBVAL|PYTEST_VALIDATE)_)")  # comments that tell nbval to skip a cell


def passes(exercise: Exercise, outputs: Sequence, *, cases: int | None = None) -> bool:
    """The outputs of a check are its one line, ``ok 3.2 ssd_quadratic: 14 cases``, and nothing else.

    Any number of cases, when none is given.
    """
    if not all(isinstance(o, dict) and o.get("name") == "stdout" for o in outputs):
        return False
    texts = [whole_text(o.get("text")) for o in outputs]
    line = re.escape(exercise.ok_line("")) + rf"{cases or '[0-9]+'} cases\n?"
    return None not in texts and re.fullmatch(line, "".join(texts)) is not None


def chapters(folder: Path = CHAPTERS) -> dict[str, Chapter]:
    """The chapters of the book by their number, "03"."""
    return {path.name[:2]: Chapter(path.stem, folder) for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))}


def merge(submission: Submission, file_name: str, book: dict[str, Chapter]) -> Merge | None:
    """The answers of a submission; None when it holds nothing of any chapter of this book."""
    known = {e.id: chapter for chapter in book.values() for e in chapter.exercises}
    cells = [c for c in submission.cells if c.role == "answer"]
    counts = {c: len({a.exercise for a in cells if known.get(a.exercise) is c}) for c in book.values()}
    # The answer cells decide; between equals the notebook's own metadata, then the file's name.
    favourites = (submission.chapter, Path(file_name).stem)
    chapter = max(book.values(), key=lambda c: (counts[c], c.name == favourites[0], c.name == favourites[1]))
    if not counts[chapter] and submission.chapter != chapter.name:
        return None
    merged = Merge(chapter, problems=list(submission.problems))
    _name_strangers(merged, cells, known, file_name)
    for exercise in chapter.exercises:
        _take(merged, exercise, submission)
    with_id = {c.exercise for c in cells if c.by_id}
    if any(c.exercise not in with_id for c in cells) and not submission.problems:
        merged.problems.append("Another editor gave answer cells new ids; they were found by their metadata.")
    return merged


def _name_strangers(merged: Merge, cells: list[Cell], known: dict[str, Chapter], file_name: str) -> None:
    chapter, stem = merged.chapter, Path(file_name).stem
    if re.match(r"\d\d_", stem) and stem[:2] != chapter.name[:2]:
        merged.problems.append(
            f"The file is named {stem}, but its answer cells are those of {chapter.name}; "
            f"it was graded as {chapter.name}."
        )
    for cell in cells:
        if cell.exercise not in known:
            merged.problems.append(f"{cell.place.capitalize()} answers exercise {cell.exercise}, which does not exist.")
        elif known[cell.exercise] is not chapter:
            merged.problems.append(
                f"{cell.place.capitalize()} answers exercise {cell.exercise} of another chapter; it was not graded."
            )


def _take(merged: Merge, exercise: Exercise, submission: Submission) -> None:
    """Find the one cell that holds the answer, and look at its source."""
    chosen = _choose(merged, exercise, submission)
    if isinstance(chosen, Cell):
        chosen = _judge_source(exercise, chosen, merged.chapter, submission)
    if isinstance(chosen, Answer):
        merged.answers[exercise.id] = chosen
    else:
        merged.findings[exercise.id] = chosen


def _choose(merged: Merge, exercise: Exercise, submission: Submission) -> Cell | Finding:
    cells = submission.cells_of(exercise.id, "answer")
    identity = f"ex-{exercise.id.replace('.', '-')}-answer"
    if not cells:
        return Finding("missing cell", f"The answer cell ({identity}) is not in the notebook.")
    code = [c for c in cells if c.kind == "code"]
    if not code:
        what = f"{cells[0].place} ({identity}) is a {cells[0].kind} cell"
        return Finding("missing cell", f"{what.capitalize()}; turn it back into a code cell.")
    if len(code) == 1:
        return code[0]
    places = " and ".join(c.place for c in code)
    stub = merged.chapter.stub(exercise).strip()
    written = [c for c in code if c.source.strip() not in ("", stub)] or code[:1]
    if len({c.source.strip() for c in written}) == 1:
        merged.problems.append(f"Exercise {exercise.id}: {places} hold its answer; {written[0].place} was taken.")
        return written[0]
    defining = [c for c in written if exercise.name in scan(c.source, {}).binds]
    if len(defining) == 1:
        merged.problems.append(
            f"Exercise {exercise.id}: its answer cell is split or copied ({places}); "
            f"only {defining[0].place}, which defines {exercise.name}, was taken."
        )
        return defining[0]
    original = [f" {c.place.capitalize()} is the original." for c in written if c.identity == identity]
    return Finding(
        "duplicated cell",
        f"{places.capitalize()} answer this exercise differently; keep the one that is meant, as {identity}, "
        f"and delete the others.{original[0] if len(original) == 1 else ''}",
    )


def _judge_source(exercise: Exercise, cell: Cell, chapter: Chapter, submission: Submission) -> Answer | Finding:
    if cell.source.strip() == chapter.stub(exercise).strip():
        return Finding("not attempted", "The answer cell is as it was.")
    found: Scan = scan(cell.source, chapter.imports)
    if found.error:
        return Finding("error", found.error)
    if found.empty:
        return Finding("not attempted", "The answer cell is empty.")
    if found.refused:
        return Finding("not allowed", f"{found.refused[0].upper()}{found.refused[1:]}.")
    if exercise.name in found.binds:
        beyond = {p: line for p, line in found.library.items() if p not in chapter.helpers(exercise)}
        calls = (f"calls the library's {p.removeprefix('lineage_lib.')} (line {n})" for p, n in beyond.items())
        return Answer(cell.source, tuple(calls))
    missing = f"The answer cell does not define {exercise.name}"
    other = _defines_elsewhere(exercise, cell, submission)
    if other is None:
        return Finding("error", f"{missing}.")
    return Finding("split cell", f"{missing}, but {other.place} does: was the answer split? Merge the two cells.")


def _defines_elsewhere(exercise: Exercise, cell: Cell, submission: Submission) -> Cell | None:
    others = (c for c in submission.cells if c.kind == "code" and c is not cell)
    return next((c for c in others if exercise.name in scan(c.source, {}).binds), None)


def _key(cell: nbformat.NotebookNode) -> tuple[str | None, str | None]:
    """Exercise and role of a cell of the book."""
    lineage = cell.metadata.get("lineage", {})
    return lineage.get("exercise"), lineage.get("role")


def _code(beside: str, place: str, source: str) -> nbformat.NotebookNode:
    """A cell of the grader's own, ``ex-3-2-before`` or ``ex-3-2-after``."""
    return nbformat.v4.new_code_cell(source, id=f"{beside.rpartition('-')[0]}-{place}")
