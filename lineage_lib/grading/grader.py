"""From files to reports: what ``lineage grade PATH…`` computes."""

import hashlib
import os
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lineage_lib
import lineage_lib.exercises
from lineage_lib.grading import submission
from lineage_lib.grading.merge import Chapter, Finding, Merge, chapters, merge
from lineage_lib.grading.run import Limits, run
from lineage_lib.grading.submission import Unreadable, printable
from lineage_lib.machine import versions


def grade(
    paths: list[Path], *, seed: int | None = None, cell_timeout: float = 60, memory_mb: int = 4096, jobs: int = 1
) -> list[dict]:
    """One report a notebook, in the order of the paths; a folder gives its notebooks, sorted.

    Nothing about a submission makes this raise: what is wrong with it is a sentence in its report.
    The cases of every exercise are drawn from ``seed``; without one, a fresh seed for this call.

    Each report is ``{"chapter", "source", "exercises": [{"id", "name", "passed", "points", "of",
    "cause", "mistake", "message", "notes"}], "points", "of", "problems", "seed", "versions"}``. ``chapter``
    is None when the notebook could not be recognised.
    """
    if not jobs >= 1:
        raise ValueError(f"jobs: expected at least 1, got {jobs}")
    if not cell_timeout > 0:
        raise ValueError(f"cell_timeout: expected seconds above 0, got {cell_timeout}")
    if memory_mb < 512:
        raise ValueError(f"memory_mb: expected at least 512, which Python and NumPy need, got {memory_mb}")
    seed = secrets.randbelow(2**32) if seed is None else seed
    limits, book = Limits(cell_timeout, memory_mb), chapters()
    stop = threading.Event()
    tasks = [(source, path, seed, limits, book, stop) for source, path in _notebooks(paths)]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(lambda task: _grade_whatever_comes(*task), tasks))
        except BaseException:  # Ctrl-C: what runs ends, what waits never begins
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _notebooks(paths: list[Path]) -> list[tuple[str, Path]]:
    """(source, path) of each notebook: below a folder, the path from there, which names the student."""
    found: dict[Path, str] = {}
    for given in map(Path, paths):
        inside = _below(given) if given.is_dir() else [given]
        for path in inside or [given]:
            source = path if path == given or len(paths) > 1 else path.relative_to(given)
            found.setdefault(path, source.as_posix())
    return [(source, path) for path, source in found.items()]


def _below(folder: Path) -> list[Path]:
    """The notebooks of a folder, without hidden folders, editors' copies and linked folders."""
    paths = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        paths += [
            Path(root, name) for name in sorted(files) if name.lower().endswith(".ipynb") and not name.startswith(".")
        ]
    return paths


def _grade_whatever_comes(source: str, path: Path, seed: int, *others) -> dict:
    """A fault of the grader on one notebook must not cost a class its reports."""
    try:
        return _grade_one(source, path, seed, *others)
    except Exception as error:
        return _report(source, seed, problems=[f"The grader itself failed: {type(error).__name__}: {error}"])


def _grade_one(
    source: str, path: Path, seed: int, limits: Limits, book: dict[str, Chapter], stop: threading.Event
) -> dict:
    if path.is_dir():
        return _report(source, seed, problems=["There is no notebook in this folder."])
    try:
        merged = merge(submission.read(path), path.name, book)
    except Unreadable as unreadable:
        return _report(source, seed, problems=[str(unreadable)])
    if merged is None:
        return _report(source, seed, problems=["This notebook holds no answer cell of any chapter of this book."])
    faults = {e: sentence for e, sentence in merged.chapter.faults.items() if merged.answers.pop(e, None)}
    merged.findings.update({e: Finding("not graded", sentence) for e, sentence in faults.items()})
    merged.problems += dict.fromkeys(faults.values())
    outcome = run(merged.chapter, merged.answers, seed, limits, stop)
    merged.findings.update(outcome.findings)
    return _report(source, seed, merged, [*merged.problems, *outcome.problems])


def _report(source: str, seed: int, merged: Merge | None = None, problems: list[str] = ()) -> dict:
    rows = [] if merged is None else [_row(e, merged.findings[e.id]) for e in merged.chapter.exercises]
    chapter = None if merged is None else merged.chapter.name
    return {
        "chapter": chapter,
        "source": printable(re.sub(r"\s", " ", source)),
        "exercises": rows,
        "points": sum(row["points"] for row in rows),
        "of": sum(row["of"] for row in rows),
        "problems": [printable(sentence) for sentence in problems],
        "seed": seed,
        "versions": _versions(chapter),
    }


def _row(exercise, finding: Finding) -> dict:
    passed = finding.cause == "ok"
    return {
        "id": exercise.id,
        "name": exercise.name,
        "passed": passed,
        "points": exercise.points if passed else 0,
        "of": exercise.points,
        "cause": finding.cause,
        "mistake": finding.mistake,
        "message": printable(finding.message),
        "notes": [printable(" ".join(note.split()), 200) for note in finding.notes],
    }


def _versions(chapter: str | None) -> dict[str, str | None]:
    """What the verdicts depend on; ``exercises`` is a hash of the chapter's records as they were."""
    folder = Path(lineage_lib.exercises.__file__).parent
    records = sorted(folder.glob(f"*ch{chapter[:2]}*.py")) if chapter else []
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in records)).hexdigest()
    return {
        "lineage": lineage_lib.__version__,
        **versions(),
        "exercises": digest[:12] if records else None,
    }
