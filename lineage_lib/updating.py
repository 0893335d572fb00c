"""``lineage update``: new chapter texts into ``work/``, with the learner's answers and cells kept."""

import ast
import copy
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

from lineage_lib.authoring import role_of
from lineage_lib.paths import CHAPTERS, WORK

_OURS = re.compile(r"ex-\d+-\d+-(answer|check)|[cm]-[0-9a-f]{10}(-\d+)?")


@dataclass(frozen=True)
class Update:
    """What happened to one notebook: a sentence, and where its former version lies (None: not touched)."""

    path: Path
    message: str
    backup: Path | None = None


def update(chapters: Path = CHAPTERS, work: Path = WORK) -> list[Update]:
    """Bring every notebook in ``work`` that belongs to a chapter up to the chapter's present text.

    Answers that a learner wrote, and cells that a learner added, are kept; everything else is the
    chapter's. The former file is copied to ``work/before_update/`` first, never over another.
    """
    return [_update_one(c, work / c.name) for c in sorted(chapters.glob("*.ipynb")) if (work / c.name).exists()]


def _update_one(chapter: Path, mine: Path) -> Update:
    new = nbformat.read(chapter, as_version=4)
    try:
        old = nbformat.read(mine, as_version=4)
    except Exception as error:  # nbformat raises many kinds for damaged files
        return Update(mine, f"not a readable notebook, left as it is ({type(error).__name__})")
    merged = merge(old, new)
    if [(c.id, c.source) for c in merged.cells] == [(c.get("id"), c.source) for c in old.cells]:
        return Update(mine, "up to date")
    backup = _free_name(mine.parent / "before_update" / mine.name)
    backup.parent.mkdir(exist_ok=True)
    backup.write_bytes(mine.read_bytes())
    nbformat.write(merged, mine)
    return Update(mine, "updated", backup)


def merge(old: nbformat.NotebookNode, new: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The new chapter with the old notebook's answers, added cells, and outputs of unchanged cells."""
    merged = copy.deepcopy(new)
    by_id = {cell.get("id"): cell for cell in old.cells}
    for cell in merged.cells:
        before = by_id.get(cell.id)
        if before is None or cell.cell_type != "code" or before.cell_type != "code":
            continue
        if role_of(cell) == "answer" and not untouched(before.source):
            cell.source = before.source
        if cell.source == before.source:
            cell.outputs, cell.execution_count = before.outputs, before.execution_count
    for cell, anchor in _added(old, {c.id for c in new.cells}):
        at = next((i for i, c in enumerate(merged.cells) if c.id == anchor), -1)
        merged.cells.insert(at + 1, cell)
    return merged


def untouched(source: str) -> bool:
    """Whether an answer cell is still a stub: a function whose body is its docstring and the raise."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return False
    if not body or not isinstance(body[-1], ast.FunctionDef) or len(body) > 1:
        return not body
    *doc, last = body[0].body
    return len(doc) <= 1 and isinstance(last, ast.Raise) and "NotImplementedError" in ast.unparse(last)


def _added(old: nbformat.NotebookNode, kept: set[str]) -> list[tuple[nbformat.NotebookNode, str | None]]:
    """The learner's own cells, each with the id of the cell it stood after."""
    added, anchor = [], None
    for cell in old.cells:
        identity = cell.get("id") or ""
        if _OURS.fullmatch(identity):
            anchor = identity if identity in kept else anchor
        elif cell.source.strip():
            added.append((cell, anchor))
            anchor = identity
    return added


def _free_name(path: Path) -> Path:
    candidates = (path.with_stem(f"{path.stem}_{k}") for k in range(1, 10_000))
    return path if not path.exists() else next(c for c in candidates if not c.exists())
