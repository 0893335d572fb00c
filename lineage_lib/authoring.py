"""From a chapter's one source, ``solutions/NN_slug.md``, to its two notebooks.

The source is jupytext MyST. An answer or check cell carries its id and nothing else::

    ```{code-cell} ipython3
    :id: ex-3-2-answer
    def ssd_quadratic(X, a, B, C):
        ### BEGIN SOLUTION
        ...
        ### END SOLUTION
    ```

The solution notebook keeps the answers and is executed. The chapter notebook has one line,
``raise NotImplementedError(…)``, in place of each answer, and no outputs.
"""

import copy
import hashlib
import re
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from lineage_lib.exercises import CELL_ID, Exercise, find
from lineage_lib.paths import CHAPTERS, SOLUTIONS

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class SourceError(Exception):
    """A chapter's source breaks the format; the message names the file and the cell."""


def sources(solutions: Path = SOLUTIONS) -> list[Path]:
    """The chapters' sources, in book order."""
    return sorted(solutions.glob("[0-9][0-9]_*.md"))


def build(source: Path, chapters: Path = CHAPTERS, *, execute: bool = False, check: bool = False) -> list[Path]:
    """Write the two notebooks of one source; return those that changed.

    The solution notebook is executed when its code or the number of an exercise's cases differs
    from what is stored, or when ``execute`` asks for it; otherwise its stored outputs are kept.
    With ``check`` nothing is executed or written: those that would change are returned.
    """
    target = source.with_suffix(".ipynb")
    solution = read_source(source)
    stored = nbformat.read(target, as_version=4) if target.exists() else None
    if execute or stored is None or _code(stored) != _code(solution) or _stale_checks(stored):
        if check:
            return [target]
        run(solution, source.parent)
    else:
        _copy_outputs(stored, solution, always=True)
    if stored is not None:
        _copy_outputs(stored, solution, always=False)
    written = {target: solution, chapters / target.name: chapter_notebook(solution)}
    return [path for path, notebook in written.items() if _write(notebook, path, check)]


def read_source(path: Path) -> nbformat.NotebookNode:
    """The solution notebook of a source, not executed; a :class:`SourceError` where it breaks the format."""
    raw = jupytext.read(path, fmt="md:myst")
    notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(_METADATA))
    notebook.metadata["lineage"] = {"chapter": path.stem}
    taken: set[str] = set()
    for cell in raw.cells:
        identity = cell.metadata.pop("id", None)
        cell.id = identity or _content_id(cell, taken)
        if cell.id in taken:
            raise SourceError(f"{path.name}: the cell id {cell.id} is used twice")
        taken.add(cell.id)
        if identity:
            exercise, role = split_id(identity, path)
            cell.metadata["lineage"] = {"exercise": exercise.id, "role": role}
            if role == "answer":
                cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), "exercise"})
        notebook.cells.append(cell)
    _add_numbering(notebook, path)
    _add_exercise_lines(notebook, path)
    _require_format(notebook, path)
    for cell in notebook.cells:  # tells ``lineage update`` later whether a learner changed the cell
        cell.metadata["lineage"] = {**cell.metadata.get("lineage", {}), "digest": digest(_learners_source(cell))}
    return notebook


def chapter_notebook(solution: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The learner's notebook: stubs for answers, no outputs, everything else as in the solution."""
    notebook = copy.deepcopy(solution)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.source = _learners_source(cell)
    return notebook


def stub(answer: str, exercise: Exercise) -> str:
    """The answer cell with its marked lines replaced by the exercise's ``raise NotImplementedError``."""
    before, _, after = split_answer(answer)
    indent = re.search(rf"^( *){BEGIN}", answer, re.M)[1]
    return "\n".join([*before, indent + exercise.stub_line, *after])


def split_answer(source: str) -> tuple[list[str], list[str], list[str]]:
    """Lines before, between and after the two markers of an answer cell."""
    lines = source.split("\n")
    marks = [[i for i, line in enumerate(lines) if line.strip() == mark] for mark in (BEGIN, END)]
    if len(marks[0]) != 1 or len(marks[1]) != 1 or marks[0][0] > marks[1][0]:
        raise SourceError(f"an answer cell needs one line {BEGIN!r} and, after it, one line {END!r}")
    begin, end = marks[0][0], marks[1][0]
    return lines[:begin], lines[begin + 1 : end], lines[end + 1 :]


def role_of(cell: nbformat.NotebookNode) -> str | None:
    """ "answer", "check" or None."""
    return cell.metadata.get("lineage", {}).get("role")


def digest(source: str) -> str:
    """A short hash of a cell's words; spaces and line ends do not count."""
    return hashlib.sha256(" ".join(source.split()).encode("utf-8", "backslashreplace")).hexdigest()[:12]


def split_id(identity: str, path: Path) -> tuple[Exercise, str]:
    """The exercise and the role that a hand-written cell id names."""
    match = CELL_ID.fullmatch(identity)
    if not match:
        raise SourceError(f"{path.name}: cell id {identity!r}; expected ex-C-K-answer or ex-C-K-check")
    try:
        return find(f"{match[1]}.{match[2]}"), match[3]
    except KeyError as error:
        raise SourceError(f"{path.name}: cell id {identity}: {error}") from error


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Execute in place, in ``folder``, with outputs that do not depend on the moment."""
    client = NotebookClient(
        notebook,
        timeout=300,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for cell in notebook.cells:  # a widget's model has a random name, and is gone with its kernel
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    notebook.metadata["language_info"] = {"name": "python"}


def _learners_source(cell: nbformat.NotebookNode) -> str:
    """What the chapter notebook holds in place of a cell of the solution."""
    return stub(cell.source, find(cell.metadata.lineage.exercise)) if role_of(cell) == "answer" else cell.source


def _content_id(cell: nbformat.NotebookNode, taken: set[str]) -> str:
    """An id from the cell's text: the same text keeps its id wherever it stands."""
    digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
    identity, copy_number = f"{cell.cell_type[0]}-{digest}", 1
    while identity in taken:
        copy_number += 1
        identity = f"{cell.cell_type[0]}-{digest}-{copy_number}"
    return identity


def _add_numbering(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Front matter that numbers theorems, exercises and equations "3.1, 3.2, …" in JupyterLab, as the book does."""
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        raise SourceError(f"{path.name}: the first cell must be text that starts with the chapter's title")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # JupyterLab would count proofs
            cell.source = re.sub(r"^(:::+ *\{prf:proof\}.*)$", r"\1\n:nonumber:", cell.source, flags=re.M)
    first.source = f"---\nnumbering:\n  enumerator: {int(path.stem[:2])}.%s\n---\n\n{first.source}"


def _add_exercise_lines(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Print each exercise's points, minutes and difficulty, from its record, at the end of its directive."""
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        match = re.search(r"^:::+ *\{exercise\}.*\n:label: ex-(\d+)-(\d+)$", cell.source, re.M)
        if match:
            exercise, _ = split_id(f"ex-{match[1]}-{match[2]}-answer", path)
            head, fence, tail = cell.source.rpartition("\n:::")
            cell.source = f"{head}\n\n{exercise_line(exercise)}{fence}{tail}"


def exercise_line(exercise: Exercise) -> str:
    """*2 points · about 8 minutes · core* ."""
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    return f"*{points} · about {exercise.minutes} minutes · {exercise.difficulty}*"


def _require_format(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Each exercise is a text cell with its directive, then its answer, then its one-line check."""
    cells = notebook.cells
    for i, cell in enumerate(cells):
        role = role_of(cell)
        if role is None:
            continue
        exercise = find(cell.metadata.lineage.exercise)
        where = f"{path.name}: {cell.id}"
        if role == "answer":
            try:
                split_answer(cell.source)
            except SourceError as error:
                raise SourceError(f"{where}: {error}") from error
            if i == 0 or f":label: ex-{exercise.id.replace('.', '-')}\n" not in cells[i - 1].source:
                raise SourceError(f"{where}: the cell before it must be the text of exercise {exercise.id}")
            if i + 1 == len(cells) or cells[i + 1].id != cell.id.replace("answer", "check"):
                raise SourceError(f"{where}: the cell after it must be the check of exercise {exercise.id}")
        elif cell.source != f'check("{exercise.id}", {exercise.name})':
            raise SourceError(f'{where}: expected the one line check("{exercise.id}", {exercise.name})')


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def _stale_checks(stored: nbformat.NotebookNode) -> bool:
    """Whether a check's stored line counts other cases than its record has now."""
    for cell in stored.cells:
        if role_of(cell) == "check":
            exercise = find(cell.metadata.lineage.exercise)
            line = exercise.ok_line(f"{len(exercise.seeded_cases(0))} cases")
            if [output.get("text") for output in cell.outputs] != [f"{line}\n"]:
                return True
    return False


def _copy_outputs(stored: nbformat.NotebookNode, notebook: nbformat.NotebookNode, *, always: bool) -> None:
    """Take over stored outputs: all of them, or those of unchanged cells whose output nbval ignores.

    The second keeps a measured time from changing the notebook whenever another cell is edited.
    """
    old = {cell.id: cell for cell in stored.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.id in old and (always or _output_ignored(cell)):
            cell.outputs, cell.execution_count = old[cell.id].outputs, old[cell.id].execution_count


def _output_ignored(cell: nbformat.NotebookNode) -> bool:
    """nbval's two spellings: the comment NBVAL_IGNORE_OUTPUT, the tag nbval-ignore-output."""
    return "NBVAL_IGNORE_OUTPUT" in cell.source or "nbval-ignore-output" in cell.metadata.get("tags", [])


def _write(notebook: nbformat.NotebookNode, path: Path, check: bool) -> bool:
    nbformat.validate(notebook)
    text = nbformat.writes(notebook, version=4) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    if not check:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return True
