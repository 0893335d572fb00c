"""New chapter texts reach a learner without costing an answer, a note or an output."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from lineage_lib import serving, updating
from lineage_lib.paths import CHAPTERS

NAME = "00_start_here.ipynb"


@pytest.fixture
def work(tmp_path):
    serving.copy_chapters(work=tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def newer(tmp_path):
    """Chapters of a later edition: one text differs, one paragraph is new, the stub's docstring is longer."""
    folder = tmp_path / "newer"
    folder.mkdir()
    notebook = nbformat.read(CHAPTERS / NAME, as_version=4)
    notebook.cells[0].source += "\n\nA better first sentence."
    notebook.cells[0].id = "m-0123456789"
    notebook.cells.insert(3, new_markdown_cell("A new paragraph.", id="m-abcdefabcd"))
    answer = next(c for c in notebook.cells if c.id == "ex-0-1-answer")
    answer.source = answer.source.replace("The state s,", "The whole state s,")
    nbformat.write(notebook, folder / NAME)
    return folder


def edit(work, change):
    notebook = nbformat.read(work / NAME, as_version=4)
    change(notebook)
    nbformat.write(notebook, work / NAME)


def cells(work):
    return {c.id: c for c in nbformat.read(work / NAME, as_version=4).cells}


def solve(notebook):
    for cell in notebook.cells:
        if cell.id == "ex-0-1-answer":
            cell.source = "def decay(s, a):\n    return a * s"
        if cell.id == "ex-0-1-check":
            cell.outputs = [nbformat.v4.new_output("stream", text="ok 0.1 decay: 4 cases\n")]
            cell.execution_count = 7


def test_nothing_to_do_touches_nothing(work):
    before = (work / NAME).read_bytes()
    assert {u.message for u in updating.update(work=work)} == {"up to date"}
    assert (work / NAME).read_bytes() == before
    assert not (work / "before_update").exists()


def test_answers_outputs_and_own_cells_are_kept(work, newer):
    edit(work, solve)
    edit(work, lambda n: n.cells.insert(2, new_markdown_cell("My note.", id="f00dfeed")))
    edit(work, lambda n: n.cells.append(new_code_cell("print('mine')", id="deadbeef")))
    former = (work / NAME).read_bytes()
    (done,) = updating.update(newer, work)
    after = cells(work)
    assert done.message == "updated"
    assert done.backup.read_bytes() == former
    assert after["ex-0-1-answer"].source == "def decay(s, a):\n    return a * s"
    assert after["ex-0-1-check"].outputs[0].text == "ok 0.1 decay: 4 cases\n"
    assert "A better first sentence." in after["m-0123456789"].source
    order = [*after]
    assert order.index("f00dfeed") == 2
    assert order[-1] == "deadbeef"
    assert updating.update(newer, work)[0].message == "up to date"


def test_an_untouched_stub_gets_the_new_stub(work, newer):
    updating.update(newer, work)
    assert "The whole state s," in cells(work)["ex-0-1-answer"].source


def test_backups_never_overwrite_each_other(work, newer):
    updating.update(newer, work)
    edit(work, lambda n: n.cells.pop(0))
    updating.update(newer, work)
    assert sorted(p.name for p in (work / "before_update").iterdir()) == [
        "00_start_here.ipynb",
        "00_start_here_1.ipynb",
    ]


def test_a_damaged_file_is_left_alone(work, newer):
    (work / NAME).write_text("{not a notebook")
    (done,) = updating.update(newer, work)
    assert done.message.startswith("not a readable notebook, left as it is")
    assert (work / NAME).read_text() == "{not a notebook"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f(a):\n    """Doc."""\n    raise NotImplementedError("x")', True),
        ('def f(a):\n    """Doc."""\n    b = 1\n    raise NotImplementedError("x")', False),
        ("def f(a):\n    return a", False),
        ("def f(a:", False),
        ("import math\ndef f(a):\n    raise NotImplementedError()", False),
        ("", True),
    ],
    ids=["stub", "begun", "answer", "syntax", "import", "empty"],
)
def test_what_counts_as_untouched(source, expected):
    assert updating.untouched(source) is expected
