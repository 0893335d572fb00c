"""`lineage status`: what is solved, from the saved notebooks alone."""

import json

import nbformat
import pytest

from lineage_lib.exercises import all_exercises
from lineage_lib.paths import CHAPTERS, SOLUTIONS
from lineage_lib.status import progress, to_text

NAME = "00_start_here"
BOOK = sorted(path.stem for path in CHAPTERS.glob("[0-9][0-9]_*.ipynb"))
OK = nbformat.v4.new_output("stream", text="ok 0.1 decay: 4 cases\n")
FAILED = nbformat.v4.new_output("error", ename="CheckFailed", evalue="0.1 decay: …", traceback=[])


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def save(work, *, answer="def decay(s, a):\n    return a * s", ran=(1, 2), outputs=(), edit=lambda notebook: None):
    """A learner's copy of chapter 00 in which 0.1 was worked on."""
    notebook = nbformat.read(CHAPTERS / f"{NAME}.ipynb", as_version=4)
    cells = {cell.id: cell for cell in notebook.cells}
    if answer is not None:
        cells["ex-0-1-answer"].source = answer
    cells["ex-0-1-answer"].execution_count, cells["ex-0-1-check"].execution_count = ran
    cells["ex-0-1-check"].outputs = list(outputs)
    edit(notebook)
    nbformat.write(notebook, work / f"{NAME}.ipynb")


def state(work):
    chapter = next(c for c in progress(work) if c.chapter == NAME)
    return next(e for e in chapter.exercises if e.id == "0.1").state


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"outputs": [OK]}, "solved"),
        ({"outputs": [OK], "ran": (7, 9)}, "solved"),
        ({"outputs": [OK], "ran": (3, 2)}, "attempted"),  # the answer was run again, its check was not
        ({"outputs": [OK], "ran": (None, 2)}, "attempted"),
        ({"outputs": [OK], "ran": (1, None)}, "attempted"),
        ({"outputs": [FAILED]}, "failing"),
        ({"outputs": [OK, FAILED]}, "failing"),
        ({"outputs": [FAILED], "ran": (3, 2)}, "attempted"),
        ({"outputs": []}, "attempted"),
        ({"outputs": [OK, OK]}, "attempted"),
        ({"outputs": [nbformat.v4.new_output("stream", text="ok 0.1 decay: case 2\n")]}, "attempted"),
        ({"answer": None, "outputs": [FAILED]}, "untouched"),
        ({"answer": None, "outputs": [OK]}, "untouched"),
    ],
)
def test_state_of_an_exercise(work, saved, expected):
    save(work, **saved)
    assert state(work) == expected


@pytest.mark.parametrize("role", ["answer", "check"])
def test_deleted_cell_is_missing(work, role):
    save(work, outputs=[OK], edit=lambda n: n.cells.remove(next(c for c in n.cells if c.id == f"ex-0-1-{role}")))
    assert state(work) == "missing"


@pytest.mark.parametrize("name", BOOK)
def test_solutions_count_as_solved_and_chapters_as_untouched(name):
    solved, untouched = (next(c for c in progress(folder) if c.chapter == name) for folder in (SOLUTIONS, CHAPTERS))
    assert solved.points == solved.of == sum(e.points for e in all_exercises().values() if e.chapter == name[:2])
    assert {e.state for e in untouched.exercises} == {"untouched"}
    assert untouched.points == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b'{"cells": [', "JSON is broken"),
        (b"\xff\xfe", "not UTF-8"),
        (json.dumps({"nbformat": 4, "nbformat_minor": 5, "cells": []}).encode(), "none of the chapter's exercises"),
        (json.dumps({"nbformat": 4, "nbformat_minor": 5, "cells": [1, {"source": 2}]}).encode(), "none of the chapter"),
    ],
)
def test_broken_notebook_is_a_sentence(work, content, words):
    (work / f"{NAME}.ipynb").write_bytes(content)
    chapters = progress(work)
    broken = next(c for c in chapters if c.chapter == NAME)
    assert words in broken.problem
    assert (broken.points, broken.started) == (0, True)
    assert f"{NAME}: {broken.problem}" in to_text(chapters)


def test_line_ends_do_not_make_a_stub_attempted(work):
    def as_on_windows(notebook):
        cell = next(c for c in notebook.cells if c.id == "ex-0-1-answer")
        cell.source = cell.source.replace("\n", "\r\n")

    save(work, answer=None, edit=as_on_windows)
    assert state(work) == "untouched"


def test_an_endless_cell_id_names_no_exercise(work):
    save(work, outputs=[OK])
    raw = json.loads((work / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    raw["cells"][1]["id"] = f"ex-{'9' * 5000}-1-answer"
    (work / f"{NAME}.ipynb").write_text(json.dumps(raw), encoding="utf-8")
    assert state(work) == "solved"


def test_odd_outputs_do_not_matter(work):
    save(work)
    raw = json.loads((work / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    for cell in raw["cells"]:
        cell["outputs"], cell["execution_count"] = [3, {"text": 4, "name": "stdout"}], "x"
    (work / f"{NAME}.ipynb").write_text(json.dumps(raw), encoding="utf-8")
    assert state(work) == "attempted"


def test_nothing_started(tmp_path):
    chapters = progress(tmp_path / "nowhere")
    assert [c.chapter for c in chapters] == BOOK
    assert not any(c.started or c.points for c in chapters)
    assert "lineage start" in to_text(chapters)


def test_text(work):
    save(work, outputs=[OK])
    (work / "notes.ipynb").write_text("{}")
    lines = to_text(progress(work)).splitlines()
    assert any(line.split() == ["0.1", "decay", "1", "of", "1", "solved"] for line in lines)
    assert lines[1].startswith(NAME)
    assert "1 of 1 solved" in lines[1]
    assert lines[1 + 1 + 1 + len(BOOK) - 1].startswith("all chapters")
