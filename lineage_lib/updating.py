"""``lineage update``: new chapter texts into ``work/``, with everything that a learner wrote kept."""

import copy
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

from lineage_lib.authoring import digest, role_of
from lineage_lib.grading.submission import Unreadable, read, whole_text
from lineage_lib.paths import CHAPTERS, WORK

_EMPTY = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell, "raw": v4.new_raw_cell}


@dataclass(frozen=True)
class Update:
    """What happened to one notebook: a sentence, and where its former version lies (None: not touched)."""

    path: Path
    message: str
    backup: Path | None = None


def update(chapters: Path = CHAPTERS, work: Path = WORK) -> list[Update]:
    """Bring every notebook in ``work`` that belongs to a chapter up to the chapter's present text.

    Whatever a learner wrote is kept: an answer in its cell, anything else in a cell of its own next
    to the chapter's. The former file is copied to ``work/before_update/`` first, never over another.
    """
    return [_update_one(c, work / c.name) for c in sorted(chapters.glob("*.ipynb")) if (work / c.name).exists()]


def _update_one(chapter: Path, mine: Path) -> Update:
    new = nbformat.read(chapter, as_version=4)
    try:
        read(mine)  # a sentence for every kind of file that is not a notebook
        old = [_sound(cell) for cell in json.loads(mine.read_text(encoding="utf-8-sig"))["cells"]]
        merged = merge(old, new)
        if _content(merged.cells) == _content(old):
            return Update(mine, "up to date")
        text = nbformat.writes(merged, version=4) + "\n"
        backup = _free_name(mine.parent / "before_update" / mine.name)
        backup.parent.mkdir(exist_ok=True)
        backup.write_bytes(mine.read_bytes())
        _replace(mine.resolve(), text.encode("utf-8", "backslashreplace"))  # of a lone surrogate, JSON's own escape
    except Unreadable as unreadable:
        return Update(mine, f"left as it is: {unreadable}")
    except Exception as error:  # one notebook costs no other
        return Update(mine, f"left as it is: {type(error).__name__}: {error}")
    return Update(mine, "updated", backup)


def merge(old: list[NotebookNode], new: NotebookNode) -> NotebookNode:
    """The new chapter with the learner's answers, the learner's cells, and outputs of unchanged cells."""
    merged = copy.deepcopy(new)
    partners: dict[int, NotebookNode] = {}
    for cell in merged.cells:
        place = _partner(cell, old, partners)
        if place is None:
            continue
        before, partners[place] = old[place], cell
        if cell.cell_type == before.cell_type == "code":
            if role_of(cell) == "answer" and _is_learners(before, cell):
                cell.source = before.source
            if cell.source == before.source:
                cell.outputs, cell.execution_count = before.outputs, before.execution_count
    taken, place = {cell.id for cell in merged.cells}, 0
    for i, before in enumerate(old):
        if i in partners:
            place = 1 + next(k for k, cell in enumerate(merged.cells) if cell is partners[i])
        if _is_learners(before, partners.get(i)):
            identity = v4.new_raw_cell().id if before.id in taken else before.id
            merged.cells.insert(place, NotebookNode({**before, "id": identity}))
            taken.add(identity)
            place += 1
    return merged


def _is_learners(before: NotebookNode, now: NotebookNode | None) -> bool:
    """Whether a cell holds words that neither the chapter gave it nor the new cell in its place has."""
    known = {digest(""), _lineage(before).get("digest"), digest(now.source) if now else None}
    return digest(before.source) not in known


def _partner(cell: NotebookNode, old: list[NotebookNode], taken: dict[int, NotebookNode]) -> int | None:
    """The place of the old cell that a chapter's cell stands for: same id, or same metadata after other editors.

    Of several answer cells, one that was written in.
    """

    def rank(i: int) -> tuple[bool, bool, bool]:
        stub = role_of(cell) == "answer" and not _is_learners(old[i], cell)
        return old[i].cell_type != cell.cell_type, stub, old[i].id != cell.id

    return min((i for i in range(len(old)) if i not in taken and _names(old[i]) & _names(cell)), key=rank, default=None)


def _names(cell: NotebookNode) -> set[str]:
    lineage = _lineage(cell)
    by_metadata = f"{lineage.get('exercise')} {role_of(cell)}" if role_of(cell) else lineage.get("digest")
    return {cell.id, by_metadata} - {None}


def _lineage(cell: NotebookNode) -> dict:
    return cell.metadata.get("lineage", {})


def _content(cells: list[NotebookNode]) -> list[tuple]:
    return [(cell.id, cell.cell_type, cell.source, _lineage(cell)) for cell in cells]


def _sound(raw: dict) -> NotebookNode:
    """A stored cell in the present format: what is missing is empty; of a damaged cell, its text and its name."""
    source, identity, metadata = whole_text(raw.get("source") or ""), raw.get("id"), raw.get("metadata")
    if source is None:
        raise ValueError("the text of a cell is damaged")
    cell = _EMPTY[raw["cell_type"]](source)
    if isinstance(identity, str) and re.fullmatch("[a-zA-Z0-9_-]{1,64}", identity):
        cell.id = identity
    if isinstance(metadata, dict) and isinstance(metadata.get("lineage"), dict):
        texts = {key: value for key, value in metadata["lineage"].items() if isinstance(value, str)}
        cell.metadata["lineage"] = texts
    whole = nbformat.from_dict({**cell, **raw, "source": source, "id": cell.id})
    try:
        nbformat.validate(whole, ref=f"{cell.cell_type}_cell", version=4, version_minor=5)
    except nbformat.ValidationError:
        return cell
    return whole if _lineage(whole) == _lineage(cell) else cell


def _replace(path: Path, content: bytes) -> None:
    """Either the new content or the former file, whatever happens in between."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    candidates = (path.with_stem(f"{path.stem}_{k}") for k in range(1, 10_000))
    return path if not path.exists() else next(c for c in candidates if not c.exists())
