"""Reads a notebook that was handed in: any file, however broken, becomes cells and sentences.

Nothing is executed here, and nothing but plain JSON is trusted.
"""

import json
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from lineage_lib.exercises import CELL_ID

LARGEST_FILE = 64 * 2**20
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Unreadable(Exception):
    """The file is not a notebook that can be graded; the message is one sentence."""


@dataclass(frozen=True)
class Cell:
    """One cell. ``number`` counts all cells from 1; ``exercise`` and ``role`` are set in answers and checks."""

    number: int
    identity: str
    kind: str
    source: str
    exercise: str | None = None
    role: str | None = None
    execution_count: int | None = None
    outputs: tuple = ()

    @property
    def by_id(self) -> bool:
        """The cell is known by its id, not only by its metadata."""
        return CELL_ID.fullmatch(self.identity) is not None

    @property
    def place(self) -> str:
        return f"cell {self.number}"


@dataclass(frozen=True)
class Submission:
    """A readable notebook: its cells, the chapter its metadata names, and what is odd about it."""

    cells: list[Cell]
    chapter: str | None
    problems: list[str] = field(default_factory=list)

    def cells_of(self, exercise: str, role: str) -> list[Cell]:
        return [c for c in self.cells if (c.exercise, c.role) == (exercise, role)]


def read(path: Path) -> Submission:
    """The notebook at ``path``; an :class:`Unreadable` sentence for everything that is not one."""
    content = _parse(_text(path))
    if not isinstance(content, dict) or not isinstance(content.get("nbformat"), int):
        raise Unreadable("This file is JSON but not a notebook.")
    major, minor = content["nbformat"], content.get("nbformat_minor")
    if major < 4:
        raise Unreadable(
            f"This notebook is saved in format {major}, which has no cell ids; "
            "open it in JupyterLab, save it and hand it in again."
        )
    if major > 4:
        raise Unreadable(f"This notebook is saved in format {major}, which is newer than what the grader reads (4).")
    if not isinstance(content.get("cells"), list):
        raise Unreadable("This notebook has no list of cells.")
    problems = []
    if not isinstance(minor, int) or minor < 5:
        problems.append(f"The notebook is saved in format 4.{minor}, without cell ids: cells are known by metadata.")
    cells = [_cell(i, raw, problems) for i, raw in enumerate(content["cells"], 1)]
    named = _dig(content, "metadata", "lineage", "chapter")
    return Submission([c for c in cells if c], named if isinstance(named, str) else None, problems)


def printable(text: str, longest: int = 4000) -> str:
    """``text`` without control characters and lone surrogates, cut to a readable length.

    Names of files, sources and messages of exceptions are written by others and end up in
    terminals, XML and spreadsheets.
    """
    text = _CONTROL.sub("�", text)
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text) - longest} more characters)"


def whole_text(value) -> str | None:
    """A text that a notebook may store whole or as a list of lines; None for anything else."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else None


def _text(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("This is not a regular file.")
        if status.st_size > LARGEST_FILE:
            raise Unreadable(
                f"The file is too large to be a notebook of this book: {status.st_size / 2**20:.0f} MB, "
                f"at most {LARGEST_FILE / 2**20:.0f} MB are read; clear its outputs."
            )
        raw = path.read_bytes()
    except FileNotFoundError:
        raise Unreadable("There is no such file.") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"The file cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"The file is not UTF-8 text (byte {error.start} is {raw[error.start]:#04x}).") from None
    if not text.strip():
        raise Unreadable("The file is empty.")
    return text


def _parse(text: str):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        why = f"line {error.lineno}: {error.msg}"
        if "<<<<<<<" in text:
            why = "it holds the marks of an unresolved merge (<<<<<<<)"
        raise Unreadable(f"The file is not a notebook: its JSON is broken ({why}).") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"The file is not a notebook: its JSON is broken ({type(error).__name__}).") from None


def _cell(number: int, raw, problems: list[str]) -> Cell | None:
    source = whole_text(raw.get("source")) if isinstance(raw, dict) else None
    identity = raw.get("id") if isinstance(raw, dict) else None
    identity = identity if isinstance(identity, str) else ""
    if source is None:
        problems.append(f"Cell {number} {f'({identity}) ' if identity else ''}is damaged and was not read.")
        return None
    exercise, role = _key(identity, raw)
    count, outputs = raw.get("execution_count"), raw.get("outputs")
    return Cell(
        number,
        identity,
        str(raw.get("cell_type")),
        source,
        exercise,
        role,
        count if isinstance(count, int) else None,
        tuple(outputs) if isinstance(outputs, list) else (),
    )


def _key(identity: str, raw: dict) -> tuple[str | None, str | None]:
    """Exercise and role, by id; by metadata where another editor gave the cell a new id."""
    match = CELL_ID.fullmatch(identity)
    if match:
        return f"{int(match[1])}.{int(match[2])}", match[3]
    exercise = _dig(raw, "metadata", "lineage", "exercise")
    role = _dig(raw, "metadata", "lineage", "role")
    known = isinstance(exercise, str) and role in ("answer", "check")
    return (exercise, role) if known else (None, None)


def _dig(value, *keys: str):
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
