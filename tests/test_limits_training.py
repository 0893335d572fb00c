"""The grids of trained models: points, files of records, and one point of each lab trained again."""

import json
from dataclasses import asdict, replace

import pytest

from benchmarks import limits_training
from benchmarks.limits_training import GRIDS, bands, read, write
from lineage_lib.paths import ROOT
from lineage_lib.training import Test, train

SMALL = ["recall/deltanet", "recall/linear-attention", "parity/deltanet+", "parity/deltanet±"]


@pytest.fixture
def run(tmp_path, capsys):
    """A function that runs the command and returns the records and what was printed."""

    def command(*options: str) -> tuple[dict, str]:
        limits_training.main([*options, "--out", str(tmp_path)])
        return read(tmp_path / "limits_small.json"), capsys.readouterr().out

    return command


@pytest.fixture
def quick(monkeypatch):
    """Points that take a moment, and no test of long sequences."""
    points = {name: replace(x, seeds=(0,), steps=2, batch=2, tests=(Test(batch=2),))
              for name, x in GRIDS["small"]().items()}  # fmt: skip
    monkeypatch.setitem(GRIDS, "small", lambda: points)
    return [*points]


@pytest.mark.parametrize("grid", GRIDS)
def test_every_point_draws_its_task_and_its_tests(grid):
    for setting in GRIDS[grid]().values():
        assert len(setting.seeds) >= 3
        for test in setting.tests:
            tokens = setting.draw(0, 0, 0, 1, test.arguments).tokens
            assert not test.cuts or test.cuts[-1] <= tokens.shape[1]


def test_mixers_of_a_point_have_the_state_that_its_name_says():
    for name, setting in GRIDS["recall"]().items():
        K = int(name.rpartition("-")[2])
        assert setting.shape.state_size == K * K


def test_a_grid_is_written_point_by_point_and_only_what_is_missing_is_trained(quick, run):
    records, printed = run("--grid", "small", "--point", "parity")
    assert [*records] == ["parity/deltanet+", "parity/deltanet±"]
    assert "small parity/deltanet±: 2 steps" in printed
    older = records["parity/deltanet+"]
    records, printed = run("--grid", "small", "--missing")
    assert [*records] == quick, "in the order of the grid"
    assert records["parity/deltanet+"] == older
    assert printed.count("2 steps") == len(quick) - 2


def test_options_change_seeds_and_steps(quick, run):
    records, _ = run("--grid", "small", "--point", "parity/deltanet+", "--seeds", "4", "7", "--steps", "1")
    assert records["parity/deltanet+"]["setting"]["seeds"] == [4, 7]
    assert records["parity/deltanet+"]["steps"] == 1


def test_no_point_is_started_once_the_minutes_are_over(quick, run):
    assert run("--grid", "small", "--minutes", "0")[0] == {}


def test_a_list_trains_nothing(quick, run):
    records, printed = run("--grid", "small", "--list")
    assert records == {}
    assert "small recall/deltanet: deltanet, deltanet, state 512" in printed


def test_checkpoints_are_gone_in_the_end(quick, run, tmp_path):
    run("--grid", "small", "--point", "parity/deltanet+", "--checkpoints", str(tmp_path / "half"))
    assert not [*(tmp_path / "half").iterdir()]


def test_an_unknown_point_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--grid", "small", "--point", "chess")
    assert "--point: no point of small begins with chess" in capsys.readouterr().err


def test_a_record_replaces_its_forerunner(tmp_path):
    path = tmp_path / "x.json"
    write(path, {"b": {"point": "b", "n": 1}, "a": {"point": "a", "n": 1}}, ["a", "b"])
    write(path, {**read(path), "b": {"point": "b", "n": 2}}, ["a", "b"])
    assert json.loads(path.read_text(encoding="utf-8")) == [{"point": "a", "n": 1}, {"point": "b", "n": 2}]


# --- What is committed, and CI's points ---


@pytest.fixture(scope="module")
def committed():
    return read(ROOT / "book/data/limits_small.json")


def test_committed_records_are_of_todays_small_points(committed):
    assert [*committed] == [*GRIDS["small"]()]
    for name, setting in GRIDS["small"]().items():
        assert committed[name]["setting"] == json.loads(json.dumps(asdict(setting)))
        assert committed[name]["steps"] == setting.steps


@pytest.mark.parametrize("name", SMALL)
def test_a_point_trained_again_lies_in_its_band(name, committed):
    record = train(replace(GRIDS["small"]()[name], seeds=(1,)), progress=False)
    assert len(committed[name]["setting"]["seeds"]) >= 5
    for (low, high), test in zip(bands(committed[name]), record["tests"]):
        assert low <= test["accuracy"][0] <= high, test["places"]


def test_the_bands_say_what_the_chapters_say(committed):
    """DeltaNet recalls what is rewritten, a sum does not; reflections solve parity."""
    band = {name: bands(committed[name]) for name in committed}
    assert band["recall/deltanet"][0][0] > 0.95
    assert band["recall/linear-attention"][0][1] < 0.9
    assert band["recall/once/deltanet"][0][0] > 0.95
    assert band["recall/once/linear-attention"][0][0] > 0.95
    assert band["parity/deltanet±"][1][0] > 0.95, "to 256 tokens"
    assert band["parity/deltanet+"][1][1] < 0.55
