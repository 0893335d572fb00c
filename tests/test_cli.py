"""The command line: what each command prints, and its errors (one sentence, exit status 2)."""

import io
import json
import sys

import pytest

from lineage_lib import grading, hints, serving
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


@pytest.mark.parametrize("command", ["start", "update", "status", "hint", "grade", "rules", "book", "build"])
def test_help_shows_an_example(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    assert f"example:  lineage {command}" in out


def test_hint_goes_up_one_rung_at_a_time(capsys, work):
    rungs = [run(capsys, "hint", "0.1")[1] for _ in range(5)]
    assert [r[:11] for r in rungs] == ["Hint 1 of 4", "Hint 2 of 4", "Hint 3 of 4", "Hint 4 of 4", "Hint 4 of 4"]
    assert run(capsys, "hint", "0.1", "--rung", "2")[1] == rungs[1]


@pytest.mark.parametrize(
    "store",
    ["[not json", "[]", '{"0.1": Infinity}', '{"0.1": -5}', '{"0.1": "2"}', '{"0.1": 1e3}', "[" * 100_000, "9" * 5000],
    ids=["broken", "list", "infinite", "negative", "text", "fraction", "nested", "digits"],
)
def test_hint_survives_a_broken_store(capsys, work, store):
    work.mkdir()
    (work / ".hints.json").write_text(store)
    assert run(capsys, "hint", "0.1")[1].startswith("Hint 1 of 4")
    assert run(capsys, "hint", "0.1")[1].startswith("Hint 2 of 4")


def test_a_graded_run_does_not_move_its_teachers_hints(capsys, work, monkeypatch, tmp_path):
    monkeypatch.setenv("LINEAGE_REPORT", str(tmp_path / "checks"))
    hints.hint("0.1")
    assert not work.exists()


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
        (("grade", "x.ipynb", "--seed", "-1"), "lineage grade: --seed: expected a number of at least 0, got -1"),
        (("grade", "x.ipynb", "--output", "."), "lineage grade: --output: expected the beginning of a file name"),
        (("grade", "x.ipynb", "--output", "no/marks"), "lineage grade: --output: no is not a folder that can be"),
        (("grade", "x.ipynb", "--csv", "--html"), "lineage grade: several reports at once need --output STEM"),
        (("rules", "gated-delta"), 'lineage rules: there is no rule "gated-delta"; near it: gated-deltanet, '),
    ],
    ids=["hint", "rung", "update", "build", "jobs", "seed", "output", "folder", "forms", "rule"],
)
def test_errors_are_one_sentence(capsys, work, arguments, sentence, monkeypatch):
    monkeypatch.setattr(grading, "grade", lambda *a, **k: pytest.fail("graded before the arguments were looked at"))
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith(sentence)
    assert err.count("\n") == 1


@pytest.mark.parametrize("make", [lambda w: w.symlink_to("nowhere"), lambda w: w.touch()], ids=["link", "file"])
def test_start_says_when_work_is_no_folder(capsys, work, make):
    make(work)
    sentence = "lineage start: work is a file, or a link to nothing; move it away, a folder goes there\n"
    assert run(capsys, "start", "--copy-only") == (2, "", sentence)


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


def test_rules_prints_the_table_or_one_record(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    status, out, err = run(capsys, "rules")
    assert (status, err) == (0, "")
    assert max(map(len, out.split("\n"))) <= 90
    assert "gated-deltanet-2" in out
    _, out, _ = run(capsys, "rules", "kda")
    assert out.startswith("Kimi Delta Attention\n")
    assert "chunk_kda" in out


def test_rules_prints_json(capsys):
    every = json.loads(run(capsys, "rules", "--json")[1])
    one = json.loads(run(capsys, "rules", "kda", "--json")[1])
    assert [record["name"] for record in every][:2] == ["linear-attention", "linear-attention-normalised"]
    assert one in every
    assert one["lower"] == "lineage_lib.rules.lowering.gated_delta_rule"


REPORT = {
    "chapter": None,
    "source": "xᵀ.ipynb",
    "exercises": [],
    "points": 0,
    "of": 0,
    "problems": [],
    "seed": 0,
    "versions": {},
}


@pytest.fixture
def graded(monkeypatch):
    monkeypatch.setattr(grading, "grade", lambda *a, **k: [REPORT])


def test_reports_are_written_where_the_terminal_has_no_such_letter(tmp_path, monkeypatch, graded):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["grade", "x.ipynb", "--json", "--output", str(tmp_path / "marks")]) == 0
    terminal.flush()
    assert b"x?.ipynb" in terminal.buffer.getvalue()
    assert json.loads((tmp_path / "marks.json").read_text(encoding="utf-8"))


def test_a_report_in_the_way_is_named_before_grading(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "grade", lambda *a, **k: pytest.fail("graded, then nowhere to write"))
    (tmp_path / "marks.csv").mkdir()
    status, _, err = run(capsys, "grade", "x.ipynb", "--output", str(tmp_path / "marks"))
    assert (status, err) == (2, f"lineage grade: --output: {tmp_path}/marks.csv is there and cannot be written over\n")


def test_the_table_is_printed_though_a_report_cannot_be_written(capsys, tmp_path, monkeypatch, graded):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    status, out, err = run(capsys, "grade", "x.ipynb", "--output", str(tmp_path / "marks"))
    assert status == 2
    assert "xᵀ.ipynb" in out
    assert "No space left on device" in err
