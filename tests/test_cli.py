"""The command line: what each command prints, and its errors (one sentence, exit status 2)."""

import json

import pytest

from lineage_lib import hints, serving
from lineage_lib.cli import main
from lineage_lib.paths import CHAPTERS


def run(capsys, *arguments):
    """(exit status, stdout, stderr) of one command."""
    try:
        status = main(arguments)
    except SystemExit as stop:  # argparse ends --help and its own errors this way
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    for module in ("lineage_lib.hints", "lineage_lib.serving", "lineage_lib.cli"):
        monkeypatch.setattr(f"{module}.WORK", folder)
    return folder


@pytest.mark.parametrize("command", ["start", "update", "status", "hint", "grade", "book", "build"])
def test_help_shows_an_example(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    assert f"example:  lineage {command}" in out


def test_hint_goes_up_one_rung_at_a_time(capsys, work):
    rungs = [run(capsys, "hint", "0.1")[1] for _ in range(5)]
    assert [r[:11] for r in rungs] == ["Hint 1 of 4", "Hint 2 of 4", "Hint 3 of 4", "Hint 4 of 4", "Hint 4 of 4"]
    assert run(capsys, "hint", "0.1", "--rung", "2")[1] == rungs[1]


def test_hint_survives_a_broken_store(capsys, work):
    work.mkdir()
    (work / ".hints.json").write_text("[not json")
    assert run(capsys, "hint", "0.1")[1].startswith("Hint 1 of 4")


def test_notebook_and_terminal_share_their_place(capsys, work):
    hints.hint("0.1")
    assert "Hint 2 of 4" in run(capsys, "hint", "0.1")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("hint", "0.99"), 'lineage hint: there is no exercise "0.99"; there are 0.1'),
        (("hint", "0.1", "--rung", "7"), "lineage hint: rung: expected a number from 1 to 4, got 7"),
        (("update",), "lineage update: there is no chapter in work/ yet; run `lineage start` first"),
        (("build", "77"), "lineage build: no source solutions/77*.md; there are 00_start_here"),
        (("grade", "x.ipynb", "--jobs", "0"), "lineage grade: --jobs: expected a number of at least 1, got 0"),
        (("grade", "x.ipynb", "--csv", "--html"), "lineage grade: several reports at once need --output STEM"),
    ],
    ids=["hint", "rung", "update", "build", "jobs", "forms"],
)
def test_errors_are_one_sentence(capsys, work, arguments, sentence):
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_start_never_overwrites(capsys, work):
    status, out, _ = run(capsys, "start", "--copy-only")
    assert status == 0
    assert "copied  work/00_start_here.ipynb" in out
    mine = work / "00_start_here.ipynb"
    assert mine.read_bytes() == (CHAPTERS / mine.name).read_bytes()
    mine.write_text("my answers")
    _, out, _ = run(capsys, "start", "--copy-only")
    assert "kept    work/00_start_here.ipynb (yours)" in out
    assert mine.read_text() == "my answers"


def test_build_check_is_green_on_what_is_committed(capsys):
    assert run(capsys, "build", "--check") == (0, "", "")


def test_grade_prints_json_and_writes_reports(capsys, work, tmp_path):
    serving.copy_chapters(work=work)
    target = work / "00_start_here.ipynb"
    target.write_text(target.read_text().replace("raise NotImplementedError(", "return a * s  # ("), encoding="utf-8")
    status, out, err = run(capsys, "grade", str(target), "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["chapter"] == "00_start_here"
    (exercise,) = report["exercises"]
    assert (exercise["id"], exercise["passed"], exercise["points"], exercise["cause"]) == ("0.1", True, 1, "ok")
    status, out, _ = run(capsys, "grade", str(work), "--output", str(tmp_path / "marks"))
    assert status == 0
    assert sorted(p.name for p in tmp_path.glob("marks.*")) == ["marks.csv", "marks.html", "marks.json", "marks.xml"]
    assert isinstance(json.loads((tmp_path / "marks.json").read_text()), list)
