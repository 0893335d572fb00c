"""`lineage grade`, end to end: whole submissions, each with a different fate.

All toy submissions are graded in one call, as a teacher grades a class; every test reads its report.
"""

import json
import os
import threading
import time

import nbformat
import pytest

from lineage_lib.authoring import role_of
from lineage_lib.grading import grade
from lineage_lib.grading.merge import Answer, chapters, merge
from lineage_lib.grading.run import Limits, run
from lineage_lib.grading.submission import read
from lineage_lib.paths import CHAPTERS, SOLUTIONS
from tests.toy_book import ToyBook

BOOK = chapters()
PLAIN = {"cell_timeout": 5, "memory_mb": 768, "jobs": 2, "seed": 5}


def times(k, body=None):
    return f"def times_{k}(x):\n    return {body or f'{k} * x'}\n"


RIGHT = {k: times(k) for k in range(1, 10)}
WRONG_IN_MANY_WAYS = {
    1: RIGHT[1],
    2: times(2, "x + 2"),
    3: times(3, "x - 3"),
    4: "def times_4(x:\n    return 4 * x",
    5: "start = 1\nmissing\n" + RIGHT[5],
    6: times(6, "x[1000]"),
    8: "import os\n" + times(8, "8 * x * len(os.sep)"),
    9: times(9, "np.ones(10**10)"),
}
ENDINGS = {
    1: RIGHT[1],
    2: "def times_2(x):\n    while True:\n        pass",
    3: RIGHT[3],
    4: "kept = []\ndef times_4(x):\n    while True:\n        kept.append(np.ones(10**6))",
    5: RIGHT[5] + "exit()",
    6: times(6, "np.lib.stride_tricks.as_strided(x, (10**10,), (8,)).sum()"),  # reads far outside its memory
    7: RIGHT[7],
}
HONEST = {
    1: "import math\nimport os\nnp = math\nx = 3\n" + times(1, "1 * x"),
    2: "# check, print and os are words of this comment\n" + times(2, "np.add(x, x)"),
    3: RIGHT[3] + "print('tried:', times_3(np.ones(2)))\ncheck('90.3', times_3)",
    4: RIGHT[4] + "assert times_4(1) == 5, 'my own test was wrong'",
    5: "%matplotlib inline\nfrom functools import lru_cache\n" + times(5, "times_4(x) + x"),
    6: "%%time\nhelper = lambda x: 6 * x\n" + times(6, "helper(x)"),
    7: "from lineage_lib.matrices import segment_products\n" + times(7, "7 * x + 0 * segment_products([1.0])[0]"),
    8: "class Scale:\n    def __init__(self, k):\n        self.k = k\n" + times(8, "Scale(8).k * x"),
    9: times(9, "(print('printed'), 9 * x)[1]"),
}
NOISY = {
    1: times(1, "(display(x), 1 * x)[1]"),
    2: "import logging\nlogging.basicConfig(level=10)\n" + times(2, "(logging.info('here'), 2 * x)[1]"),
    3: "import sys\ndef times_3(x, out=sys.stdout):\n    print('here', file=out)\n    return 3 * x",
    4: "#NBVAL_SKIP\n## NBVAL_RAISES_EXCEPTION\n" + RIGHT[4],
    5: RIGHT[5] + "from IPython.display import display\nimport tracemalloc\ntracemalloc.start()\ntracemalloc.stop()",
}
SPOILING = {
    1: RIGHT[1] + "import sys\nsys.stdout.close()",
    2: RIGHT[2],
    3: RIGHT[3] + "import random\nrandom._os.kill(random._os.getppid(), 9)",
    4: RIGHT[4],
    5: times(5, "times_4(x) + x"),
    6: "def times_6(x):\n    raise ValueError('x' * 10**8)",
    7: RIGHT[7],
    8: times(8, "7 * x"),
}
SNEAKY = {
    1: RIGHT[1] + "print('ok 90.1 times_1: 2 cases')",
    2: times(2, "print('ok 90.2 times_2: 2 cases')"),
    3: "check = lambda *_: print('ok 90.3 times_3: 2 cases')\n" + times(3, "x"),
    4: "import lineage_lib.checks as c\n" + times(4, "x"),
    5: "for n in [np]:\n    n.isnan = lambda x: True\n" + times(5, "x"),
    6: "import lineage_lib\nfor m in [lineage_lib]:\n    m.checks._compare = lambda *_: None\n" + times(6, "x"),
    7: "from lineage_lib.exercises import find\ntimes_7 = find('90.7').oracle",
    8: "try:\n    raise SystemExit\nexcept BaseException:\n    pass\n" + times(8, "exit()"),
    9: "def print(*_):\n    pass\n" + RIGHT[9],
}


def fill(notebook, sources):
    """The chapter with these answers, by the exercise's number in its chapter."""
    for cell in notebook.cells:
        if role_of(cell) == "answer":
            cell.source = sources.get(int(cell.id.split("-")[2]), cell.source)
    return notebook


def cell_of(notebook, identity):
    return next(c for c in notebook.cells if c.id == identity)


def doubled_and_damaged(notebook):
    """Answers 1 to 9 right, then their cells copied, split, turned to text and deleted."""
    answer = {k: cell_of(fill(notebook, RIGHT), f"ex-90-{k}-answer") for k in range(1, 10)}

    def after(k, **changes):
        copied = nbformat.from_dict({**json.loads(json.dumps(answer[k])), "id": f"new-{k}", **changes})
        notebook.cells.insert(notebook.cells.index(answer[k]) + 1, copied)

    after(1)
    after(2, source=times(2, "x + x"))
    after(3, source=answer[3].source, metadata={})
    answer[3].source = "import math"
    answer[4]["cell_type"] = "markdown"
    notebook.cells.remove(answer[5])
    after(6, source=BOOK_STUB.format(k=6))
    answer[7]["id"] = "renewed"
    after(8, source="print('a part that was split off')")
    answer[9].source = "# nothing but a comment"
    return notebook


BOOK_STUB = 'def times_{k}(x):\n    raise NotImplementedError("Exercise 90.{k}: multiply by {k}")'


def tampered(notebook):
    """Wrong answers, and everything else changed so that it looks right."""
    fill(notebook, SNEAKY)
    for cell in notebook.cells:
        if role_of(cell) == "check":
            k = cell.id.split("-")[2]
            cell.source = f"print('ok 90.{k} times_{k}: 2 cases')"
            cell.metadata["tags"] = ["raises-exception", "nbval-skip"]
            cell.outputs = [nbformat.v4.new_output("stream", text=f"ok 90.{k} times_{k}: 2 cases\n")]
            cell.execution_count = 1
    return notebook


def without_ids(notebook):
    raw = json.loads(nbformat.writes(fill(notebook, {1: RIGHT[1]})))
    for cell in raw["cells"]:
        del cell["id"]
    return json.dumps({**raw, "nbformat_minor": 4})


def broken_files(toy):
    """{file name: (its bytes, words of the sentence)}."""
    good = json.loads(nbformat.writes(toy.chapter()))
    return {
        "empty.ipynb": (b"", "is empty"),
        "blank.ipynb": (b" \n\n", "is empty"),
        "cut.ipynb": (json.dumps(good).encode()[:-40], "JSON is broken"),
        "merge.ipynb": (b'{"cells": [\n<<<<<<< ours\n]}', "unresolved merge"),
        "list.ipynb": (b"[1, 2]", "not a notebook"),
        "number.ipynb": (b"7", "not a notebook"),
        "deep.ipynb": (b"[" * 200_000, "JSON is broken"),
        "latin.ipynb": ('{"a": "é"}'.encode("latin-1"), "not UTF-8"),
        "binary.ipynb": (bytes(range(256)), "not UTF-8"),
        "format3.ipynb": (json.dumps({"nbformat": 3, "worksheets": []}).encode(), "format 3"),
        "format9.ipynb": (json.dumps({**good, "nbformat": 9}).encode(), "format 9"),
        "no_cells.ipynb": (json.dumps({"nbformat": 4, "cells": {}}).encode(), "no list of cells"),
        "other_book.ipynb": (json.dumps({**good, "cells": [], "metadata": {}}).encode(), "no answer cell of any"),
        "all_deleted.ipynb": (json.dumps({**good, "cells": []}).encode(), ""),
        "odd_cells.ipynb": (json.dumps({**good, "cells": [3, {"source": 5}, *good["cells"]]}).encode(), "damaged"),
        "surrogate.ipynb": (json.dumps(fill(toy.chapter(), {1: RIGHT[1] + "# \ud800"})).encode(), ""),
    }


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return ToyBook(tmp_path_factory.mktemp("toy") / "book")


@pytest.fixture(scope="module")
def graded(toy, tmp_path_factory):
    """The reports of a class of toy submissions, by their path in it."""
    folder = tmp_path_factory.mktemp("class")
    notebooks = {
        "ada/90_toy": fill(toy.chapter(), WRONG_IN_MANY_WAYS),
        "bo/90_toy": fill(toy.chapter(), ENDINGS),
        "cy/90_toy": fill(toy.chapter(), HONEST),
        "cy/noisy": fill(toy.chapter(), NOISY),
        "di/90_toy": tampered(toy.chapter()),
        "ed/90_toy": doubled_and_damaged(toy.chapter()),
        "fe/untouched": toy.chapter(),
        "gus/90_toy": fill(toy.chapter("91_toy"), {1: RIGHT[1]}),
        "gus/spoiling": fill(toy.chapter(), SPOILING),
        "hal/.hidden/90_toy": toy.chapter(),
        "hal/.ipynb_checkpoints/90_toy": toy.chapter(),
    }
    mixed = fill(toy.chapter(), {1: RIGHT[1]})
    mixed.cells += [cell_of(toy.chapter("91_toy"), "ex-91-1-answer"), cell_of(toy.chapter(), "ex-90-9-answer")]
    mixed.cells[-1] = nbformat.from_dict({**mixed.cells[-1], "id": "ex-90-77-answer"})
    mixed.cells.append(nbformat.from_dict({**mixed.cells[-1], "id": f"ex-{'9' * 5000}-1-answer", "metadata": {}}))
    notebooks["ida/mixed"] = mixed
    for name, notebook in notebooks.items():
        path = folder / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook), encoding="utf-8")
    (folder / "jo").mkdir()
    (folder / "jo/old.ipynb").write_text(without_ids(toy.chapter()))
    (folder / "zoe").mkdir()
    for name, (content, _) in broken_files(toy).items():
        (folder / "zoe" / name).write_bytes(content)
    os.mkfifo(folder / "zoe/pipe.ipynb")
    with (folder / "zoe/huge.ipynb").open("wb") as file:
        file.truncate(65 * 2**20)
    (folder / "zoe/lost.ipynb").symlink_to(folder / "nowhere")
    (folder / "zoe/folder.ipynb").mkdir()
    (folder / "zoe/two\nlines.IPYNB").write_bytes(b"")
    return toy.grade(folder, **PLAIN)


def causes(report):
    return {row["id"].split(".")[1]: row["cause"] for row in report["exercises"]}


def row(report, k):
    return report["exercises"][k - 1]


def test_every_cause_is_named_and_explained(graded):
    report = graded["ada/90_toy.ipynb"]
    assert list(causes(report).values()) == [
        *("ok", "wrong", "wrong", "error", "error", "error", "not attempted", "not allowed", "memory")
    ]
    assert row(report, 2)["mistake"] == "added"
    assert "this is x + 2" in row(report, 2)["message"]
    assert row(report, 3)["mistake"] is None
    assert row(report, 4)["message"].startswith("SyntaxError")
    assert "line 1" in row(report, 4)["message"]
    assert row(report, 5)["message"] == "NameError: name 'missing' is not defined (line 2)"
    assert "IndexError" in row(report, 6)["message"]
    assert row(report, 8)["message"].startswith("Line 3: `os.sep`")
    assert (report["points"], report["of"], report["problems"]) == (1, 45, [])


def test_report_keeps_its_contract(graded):
    for report in graded.values():
        assert list(report) == ["chapter", "source", "exercises", "points", "of", "problems", "seed", "versions"]
        assert {"lineage", "python", "numpy", "nbval", "exercises"} <= set(report["versions"])
        assert report["points"] == sum(r["points"] for r in report["exercises"])
        for exercise in report["exercises"]:
            assert list(exercise) == ["id", "name", "passed", "points", "of", "cause", "mistake", "message", "notes"]
            assert exercise["points"] == (exercise["of"] if exercise["passed"] else 0)
            assert exercise["passed"] == (exercise["cause"] == "ok")
            assert exercise["message"]


def test_what_ends_the_kernel_costs_no_other_exercise(graded):
    report = graded["bo/90_toy.ipynb"]
    assert list(causes(report).values()) == [
        *("ok", "timeout", "ok", "memory", "ok", "kernel died", "ok", "not attempted", "not attempted")
    ]
    assert "5 seconds" in row(report, 2)["message"]
    assert "SIG" in row(report, 6)["message"]
    assert report["problems"] == []


def test_honest_answers_are_not_refused(graded):
    report = graded["cy/90_toy.ipynb"]
    assert {r["cause"] for r in report["exercises"]} == {"ok"}, report["exercises"]
    assert report["points"] == report["of"] == 45
    assert report["problems"] == []
    assert "my own test was wrong" in row(report, 4)["notes"][0]
    assert row(report, 7)["notes"] == ["calls the library's matrices.segment_products (line 3)"]
    assert row(report, 1)["notes"] == []


def test_what_an_answer_shows_beside_its_result_is_a_note(graded):
    report = graded["cy/noisy.ipynb"]
    assert list(causes(report).values())[:5] == ["ok"] * 5, report["exercises"]
    assert [len(r["notes"]) for r in report["exercises"]] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert "showed something" in row(report, 1)["notes"][0]


def test_an_answer_that_spoils_the_run_costs_no_other_answer(graded):
    """Some end the grader's own processes; a wrong answer among them keeps its explanation."""
    report = graded["gus/spoiling.ipynb"]
    found = list(causes(report).values())
    assert found == ["error", "ok", "kernel died", "ok", "ok", found[5], "ok", "wrong", "not attempted"]
    assert found[5] in ("error", "memory", "kernel died")
    assert "could not print" in row(report, 1)["message"]
    assert report["problems"] == [
        "The chapter's own cell that begins `print(1 * np.ones(2))` failed: ValueError: I/O operation on closed file.",
        "1 more of the chapter's own cells failed.",
    ]


def test_tampering_gains_nothing(graded):
    report = graded["di/90_toy.ipynb"]
    assert causes(report) == {
        "1": "ok",  # a right answer that prints a line of its own
        "2": "wrong",
        "3": "not allowed",
        "4": "not allowed",
        "5": "not allowed",
        "6": "not allowed",
        "7": "not allowed",
        "8": "wrong",
        "9": "not allowed",
    }
    assert row(report, 3)["message"] == "Line 1: `check` may not get a new meaning."
    assert "numpy.isnan belongs to a library" in row(report, 5)["message"]
    assert "lineage_lib.checks._compare belongs to a library" in row(report, 6)["message"]


def test_doubled_split_and_lost_cells(graded):
    report = graded["ed/90_toy.ipynb"]
    assert causes(report) == {
        "1": "ok",
        "2": "duplicated cell",
        "3": "split cell",
        "4": "missing cell",
        "5": "missing cell",
        "6": "ok",
        "7": "ok",
        "8": "ok",
        "9": "not attempted",
    }
    assert row(report, 2)["message"].startswith("Cell 9 and cell 10 answer this exercise differently")
    assert "Cell 9 is the original" in row(report, 2)["message"]
    assert "does not define times_3, but cell 15 does" in row(report, 3)["message"]
    assert "markdown" in row(report, 4)["message"]
    assert "ex-90-5-answer" in row(report, 5)["message"]
    problems = "\n".join(report["problems"])
    for words in ("Exercise 90.1: cell 4 and cell 5", "Exercise 90.8: its answer cell is split", "new ids"):
        assert words in problems


def test_chapter_is_known_by_its_cells(graded):
    assert graded["fe/untouched.ipynb"]["chapter"] == "90_toy"
    assert set(causes(graded["fe/untouched.ipynb"]).values()) == {"not attempted"}
    renamed = graded["gus/90_toy.ipynb"]
    assert (renamed["chapter"], renamed["points"]) == ("91_toy", 1)
    assert "named 90_toy" in renamed["problems"][0]
    mixed = graded["ida/mixed.ipynb"]
    assert (mixed["chapter"], mixed["points"]) == ("90_toy", 1)
    assert "91.1 of another chapter" in mixed["problems"][0]
    assert "90.77, which does not exist" in mixed["problems"][1]
    assert len(mixed["problems"]) == 2


def test_cells_without_ids_are_known_by_metadata(graded):
    old = graded["jo/old.ipynb"]
    assert (old["chapter"], old["points"]) == ("90_toy", 1)
    assert "without cell ids" in old["problems"][0]


def test_broken_files_are_sentences(graded, toy):
    for name, (_, words) in broken_files(toy).items():
        report = graded[f"zoe/{name}"]
        assert report["points"] == 0
        assert words in " ".join(report["problems"]), name
    assert set(causes(graded["zoe/all_deleted.ipynb"]).values()) == {"missing cell"}
    assert causes(graded["zoe/surrogate.ipynb"])["1"] == "error"
    assert "regular file" in graded["zoe/pipe.ipynb"]["problems"][0]
    assert "too large" in graded["zoe/huge.ipynb"]["problems"][0]
    assert "no such file" in graded["zoe/lost.ipynb"]["problems"][0]
    assert "is empty" in graded["zoe/two lines.IPYNB"]["problems"][0]


def test_sources_are_sorted_and_hidden_folders_left_out(graded):
    assert list(graded) == sorted(graded)
    assert not [source for source in graded if "/." in source]


def test_paths_that_hold_no_notebook(tmp_path):
    (tmp_path / "empty").mkdir()
    copy = tmp_path / "copy.ipynb"
    copy.write_bytes((CHAPTERS / "00_start_here.ipynb").read_bytes())
    missing, folder, readable = grade([tmp_path / "nowhere.ipynb", tmp_path / "empty", copy, copy, tmp_path])
    assert missing["problems"] == ["There is no such file."]
    assert folder["problems"] == ["There is no notebook in this folder."]
    assert readable["chapter"] == "00_start_here"


@pytest.mark.parametrize("options", [{"jobs": 0}, {"cell_timeout": 0}, {"memory_mb": 10}])
def test_limits_that_make_no_sense(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        grade([], **options)


@pytest.mark.parametrize("chapter", BOOK.values(), ids=[c.name for c in BOOK.values()])
def test_every_solution_merges_whole(chapter):
    """All answers of the book are taken, none is refused, and the checks carry the solution's lines."""
    assert chapter.faults == {}
    path = SOLUTIONS / f"{chapter.name}.ipynb"
    merged = merge(read(path), path.name, BOOK)
    assert merged.findings == {}
    assert merged.problems == []
    assert list(merged.answers) == [e.id for e in chapter.exercises]
    notebook = chapter.with_answers({i: a.source for i, a in merged.answers.items()})
    nbformat.validate(notebook)
    own = {c.id: c.source for c in chapter.notebook.cells if role_of(c) is None}
    assert own.items() <= {c.id: c.source for c in notebook.cells}.items()
    assert {c.id: c.source for c in notebook.cells if role_of(c) == "answer"} == {
        c.id: c.source for c in nbformat.read(path, as_version=4).cells if role_of(c) == "answer"
    }


def test_first_chapter_earns_full_points():
    (report,) = grade([SOLUTIONS / "00_start_here.ipynb"])
    assert report["points"] == report["of"] > 0
    assert report["problems"] == []


def test_a_run_that_is_stopped_ends_at_once():
    """What Ctrl-C does to every notebook that is being graded."""
    stop, chapter = threading.Event(), BOOK["00"]
    endless = {"0.1": Answer("def decay(s, a):\n    while True:\n        pass")}
    threading.Timer(3, stop.set).start()
    start = time.monotonic()
    outcome = run(chapter, endless, 0, Limits(), stop)
    assert time.monotonic() - start < 15
    assert outcome.findings["0.1"].cause != "ok"


def test_incomplete_book_is_a_sentence(toy, tmp_path):
    """Last, because it takes the solution away."""
    path = tmp_path / "91_toy.ipynb"
    nbformat.write(fill(toy.chapter("91_toy"), {1: RIGHT[1]}), path)
    (toy.root / "solutions/91_toy.ipynb").unlink()
    (report,) = toy.grade(path).values()
    assert causes(report) == {"1": "not graded", "2": "not attempted"}
    assert "solutions/91_toy.ipynb is missing" in report["problems"][0]
