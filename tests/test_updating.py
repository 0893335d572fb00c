"""New chapter texts reach a learner without costing an answer, a note or an output."""

import copy
import json
import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from lineage_lib import serving, updating
from lineage_lib.authoring import digest
from lineage_lib.paths import CHAPTERS

NAME = "00_start_here.ipynb"
ANSWER, CHECK = "ex-0-1-answer", "ex-0-1-check"
DECAY = "def decay(s, a):\n    return a * s"


def chapter():
    """The chapter as JSON, every cell with its digest."""
    notebook = json.loads((CHAPTERS / NAME).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        rewrite(cell, "".join(cell["source"]))
    return notebook


def rewrite(cell, source):
    """What the book's authors do to a cell."""
    cell["source"] = source
    cell["metadata"].setdefault("lineage", {})["digest"] = digest(source)


def find(notebook, identity):
    return next(c for c in notebook["cells"] if c.get("id") == identity)


def save(notebook, folder):
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_text(json.dumps(notebook), encoding="utf-8")


def edition(change):
    notebook = chapter()
    change(notebook)
    return notebook


def revise(notebook):
    """A later edition: the title's text differs, a paragraph and an import are new, the stub's docstring is longer."""
    first, answer = notebook["cells"][0], find(notebook, ANSWER)
    rewrite(first, f"{first['source']}\n\nA better first sentence.")
    first["id"] = "m-0123456789"
    notebook["cells"].insert(3, {"cell_type": "markdown", "id": "m-abcdefabcd", "metadata": {}, "source": ""})
    rewrite(notebook["cells"][3], "A new paragraph.")
    rewrite(answer, answer["source"].replace("The state s,", "The whole state s,"))
    rewrite(find(notebook, CHECK), 'check("0.1", decay, 1)')


@pytest.fixture
def updated(tmp_path):
    """``updated(learner's change)`` -> (Update, its cells, the chapter's); the chapter's change is ``revise``."""

    def run(mine, theirs=revise):
        old, new = (n if isinstance(n, dict) else edition(n) for n in (mine, theirs))
        save(old, tmp_path / "work")
        save(new, tmp_path / "newer")
        (done,) = updating.update(tmp_path / "newer", tmp_path / "work")
        notebook = nbformat.read(tmp_path / "work" / NAME, as_version=4)
        nbformat.validate(notebook)
        (again,) = updating.update(tmp_path / "newer", tmp_path / "work")
        assert again.message == "up to date"
        assert not [*(tmp_path / "work").glob(".*")]
        return done, notebook.cells, new["cells"]

    return run


def text(cells):
    return "\n".join(c.source for c in cells)


def solve(notebook, source=DECAY):
    find(notebook, ANSWER)["source"] = source


def test_nothing_to_do_touches_nothing(tmp_path):
    work = tmp_path / "work"
    serving.copy_chapters(work=work)
    before = (work / NAME).read_bytes()
    assert {u.message for u in updating.update(work=work)} == {"up to date"}
    assert (work / NAME).read_bytes() == before
    assert not (work / "before_update").exists()


def test_answers_outputs_and_own_cells_are_kept(updated):
    def mine(notebook):
        solve(notebook)
        output = nbformat.v4.new_output("stream", text="42\n")
        first = next(c for c in notebook["cells"] if c["cell_type"] == "code")
        first.update(outputs=[output], execution_count=7)
        notebook["cells"].insert(2, new_markdown_cell("My note.", id="f00dfeed"))
        notebook["cells"].insert(3, new_markdown_cell("My second note.", id="f00dfeee"))
        notebook["cells"].append(new_code_cell("print('mine')", id="deadbeef"))

    done, cells, new = updated(mine)
    assert done.message == "updated"
    order = [c.id for c in cells]
    assert order.index("f00dfeed") == 2
    assert order.index("f00dfeee") == 3
    assert order[-1] == "deadbeef"
    assert [i for i in order if i not in ("f00dfeed", "f00dfeee", "deadbeef")] == [c["id"] for c in new]
    assert cells[order.index(ANSWER)].source == DECAY
    assert next(c for c in cells if c.cell_type == "code").outputs[0].text == "42\n"
    assert "A better first sentence." in cells[0].source


def test_the_former_file_is_kept_and_never_written_over(tmp_path, updated):
    for k, name in enumerate(["00_start_here.ipynb", "00_start_here_1.ipynb"]):
        done, _, _ = updated(lambda n, k=k: solve(n, f"mine {k}"))
        assert done.backup == tmp_path / "work" / "before_update" / name
        assert f"mine {k}" in done.backup.read_text(encoding="utf-8")
    assert "mine 0" in done.backup.with_name("00_start_here.ipynb").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "mine",
    [
        lambda n: None,
        lambda n: solve(n, find(n, ANSWER)["source"].replace("\n", "\r\n") + "\n\n"),
        lambda n: solve(n, "  "),
        lambda n: find(n, ANSWER).update(id="abcd1234"),
    ],
    ids=["as-it-was", "crlf", "emptied", "other-id"],
)
def test_a_chapter_without_own_words_becomes_the_new_one(updated, mine):
    _, cells, new = updated(mine)
    assert [(c.id, c.source) for c in cells] == [(c["id"], c["source"]) for c in new]


RAISE = '    raise NotImplementedError("Exercise 0.1: multiply the state by the decay")'


@pytest.mark.parametrize(
    "source",
    [
        DECAY,
        f"def decay(s, a):\n    return a * s\n{RAISE}",
        f"def decay(s, a):\n    # think of a as what stays\n{RAISE}",
        "# def decay(s, a):\n#     return a * s",
        f'def decay(s, a):\n    """My words."""\n{RAISE}',
        f"@functools.cache\ndef decay(s, a):\n{RAISE}",
        "def decay(s, a",
        DECAY + "  # MINE \ud800 \x00",
    ],
    ids=["answer", "line-above", "comment", "all-comment", "docstring", "decorated", "syntax", "surrogate"],
)
def test_an_answer_stays_in_its_cell(updated, source):
    _, cells, new = updated(lambda n: solve(n, source))
    assert [c.id for c in cells] == [c["id"] for c in new]
    assert next(c for c in cells if c.id == ANSWER).source == source


def no_ids(notebook):
    solve(notebook)
    notebook["nbformat_minor"] = 4
    for cell in notebook["cells"]:
        del cell["id"]


def fresh_id(notebook):
    solve(notebook)
    find(notebook, ANSWER)["id"] = "abcd1234"


def pasted(notebook):
    """The original is a stub still, its copy was written in."""
    copied = {**copy.deepcopy(find(notebook, ANSWER)), "id": "abcd1234", "source": DECAY}
    notebook["cells"].append(copied)


@pytest.mark.parametrize("mine", [no_ids, fresh_id, pasted], ids=["4.4", "other-id", "copy"])
def test_an_answer_is_found_by_its_metadata(updated, mine):
    _, cells, new = updated(mine)
    assert [c.id for c in cells] == [c["id"] for c in new]
    assert next(c for c in cells if c.id == ANSWER).source == DECAY


def second_answer(notebook):
    solve(notebook)
    place = notebook["cells"].index(find(notebook, ANSWER))
    notebook["cells"].insert(place + 1, {**copy.deepcopy(find(notebook, ANSWER)), "source": "# MINE"})


def turned_into(kind):
    def change(notebook):
        cell = find(notebook, ANSWER)
        cell.update(cell_type=kind, source="MINE: a * s")
        del cell["outputs"], cell["execution_count"]

    return change


def edited(pick):
    def change(notebook):
        cell = pick(notebook)
        cell["source"] += "\n# MINE"

    return change


def lookalike(notebook):
    cell = {"cell_type": "markdown", "id": "m-0123456789", "metadata": {}, "source": "MINE"}
    notebook["cells"].insert(1, cell)


def empty_ids(notebook):
    notebook["cells"][5:5] = [{"cell_type": "markdown", "id": "", "metadata": {}, "source": "MINE"}] * 2


@pytest.mark.parametrize(
    ("mine", "beside"),
    [
        (second_answer, ANSWER),
        (turned_into("markdown"), ANSWER),
        (turned_into("raw"), ANSWER),
        (edited(lambda n: find(n, CHECK)), CHECK),
        (edited(lambda n: n["cells"][0]), None),
        (edited(lambda n: n["cells"][4]), None),
        (edited(lambda n: next(c for c in n["cells"] if c["cell_type"] == "code")), None),
        (lookalike, None),
        (empty_ids, None),
    ],
    ids=["second", "markdown", "raw", "check", "revised-text", "text", "code", "lookalike", "empty-ids"],
)
def test_other_words_of_a_learner_get_a_cell_of_their_own(updated, mine, beside):
    done, cells, new = updated(mine)
    assert done.message == "updated"
    own = [i for i, c in enumerate(cells) if "MINE" in c.source]
    assert len(own) == (2 if mine is empty_ids else 1)
    rest = [(c.id, c.source) for i, c in enumerate(cells) if i not in own]
    assert [i for i, _ in rest] == [c["id"] for c in new]
    assert all(source == c["source"] or i == ANSWER for (i, source), c in zip(rest, new, strict=True))
    assert beside is None or cells[own[0] - 1].id == beside


def test_an_answer_of_a_removed_exercise_is_kept(updated):
    def without(notebook):
        notebook["cells"] = [c for c in notebook["cells"] if not c["id"].startswith("ex-0-1")]

    _, cells, new = updated(solve, without)
    assert DECAY in text(cells)
    assert len(cells) == len(new) + 1


def test_answers_are_kept_where_digests_are_missing(updated):
    def undigested(notebook):
        for cell in notebook["cells"]:
            del cell["metadata"]["lineage"]["digest"]

    def mine(notebook):
        solve(notebook)
        undigested(notebook)

    _, cells, new = updated(mine, chapter())
    assert [c.id for c in cells] == [c["id"] for c in new]
    _, cells, new = updated(mine, undigested)
    assert DECAY in text(cells)
    assert [c.id for c in cells] == [c["id"] for c in new]


@pytest.mark.parametrize(
    "damage",
    [
        lambda n: [c.pop("outputs", 0) for c in n["cells"]],
        lambda n: [c.pop("execution_count", 0) for c in n["cells"]],
        lambda n: [c.pop("metadata") for c in n["cells"]],
        lambda n: n["cells"][1].pop("source"),
        lambda n: n["cells"][1].update(source=None),
        lambda n: find(n, ANSWER).update(outputs="x"),
        lambda n: find(n, ANSWER).update(outputs=[{"a": 1}, 3]),
        lambda n: find(n, ANSWER).update(execution_count="x"),
        lambda n: find(n, ANSWER).update(id=5),
        lambda n: find(n, ANSWER).update(id="a b/c"),
        lambda n: find(n, ANSWER)["metadata"].update(lineage=[1]),
        lambda n: find(n, ANSWER)["metadata"].update(lineage={"exercise": ["0.1"], "role": "answer"}),
        lambda n: find(n, ANSWER)["metadata"].update(tags=3),
        lambda n: n.pop("metadata"),
        lambda n: n.update(nbformat_minor=99),
        lambda n: n.update(nbformat_minor=None),
    ],
)
def test_a_damaged_notebook_is_mended(updated, damage):
    def mine(notebook):
        solve(notebook)
        damage(notebook)

    done, cells, _ = updated(mine)
    assert done.message == "updated"
    assert next(c for c in cells if c.id == ANSWER).source == DECAY


def raw(change):
    return json.dumps(edition(change)).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{not a notebook", "its JSON is broken"),
        (b"", "The file is empty."),
        (b"[" * 100_000, "its JSON is broken"),
        (raw(lambda n: n["cells"].insert(1, "text")), "AttributeError"),
        (raw(lambda n: n["cells"][1].update(source=3)), "the text of a cell is damaged"),
        (raw(lambda n: n["cells"][1].pop("cell_type")), "KeyError"),
        (raw(lambda n: n.update(nbformat=3)), "format 3"),
    ],
)
def test_what_cannot_be_read_is_left_alone(tmp_path, content, words):
    """And costs no other notebook its update."""
    save(edition(revise), tmp_path / "newer")
    (tmp_path / "newer" / "01_next.ipynb").write_bytes((tmp_path / "newer" / NAME).read_bytes())
    save(chapter(), tmp_path / "work")
    (tmp_path / "work" / NAME).rename(tmp_path / "work" / "01_next.ipynb")
    (tmp_path / "work" / NAME).write_bytes(content)
    left, done = updating.update(tmp_path / "newer", tmp_path / "work")
    assert left.message.startswith("left as it is: ")
    assert words in left.message
    assert left.backup is None
    assert (tmp_path / "work" / NAME).read_bytes() == content
    assert done.message == "updated"


def test_a_failing_write_leaves_the_former_file(tmp_path, monkeypatch):
    save(edition(revise), tmp_path / "newer")
    save(edition(solve), tmp_path / "work")
    before = (tmp_path / "work" / NAME).read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    (done,) = updating.update(tmp_path / "newer", tmp_path / "work")
    assert "No space left on device" in done.message
    assert (tmp_path / "work" / NAME).read_bytes() == before
    assert not [*(tmp_path / "work").glob(".*")]
