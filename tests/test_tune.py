"""The table of tiles, and ``kernels.tune`` without a GPU: everything but the timing itself."""

import json
import math

import pytest
import torch

import kernels
from kernels import tiles, tune, verify
from kernels.operators import OPERATORS, Shape
from kernels.tiles import WalkTiles
from tests.fake_gpu import Device, refuse

# --- The table ---

FAR = {
    "device": "Test GPU 1", "kernel": "walk", "dtype": "float16", "K": 32, "V": 16, "states": 4,
    "tiles": {"BK": 32, "BV": 16, "SEGMENTS": 8, "WARPS": 2, "STAGES": 4},
}  # fmt: skip


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a table that is used as if this were its device."""
    monkeypatch.setattr(tiles, "TABLE", tmp_path / "tiles.json")
    monkeypatch.setattr(tiles, "device_name", lambda: "Test GPU 1")

    def write(*entries):
        tiles.TABLE.write_text(json.dumps(entries))
        tiles.table.cache_clear()

    yield write
    tiles.table.cache_clear()


def test_the_table_is_looked_up(written):
    written(FAR)
    found = WalkTiles(**FAR["tiles"])
    assert tiles.walk_tiles(3, 4096, 32, 16, torch.float16) == found
    assert tiles.walk_tiles(4, 8 * 8 * 64, 32, 16, torch.float16) == found
    assert tiles.walk_tiles(4, 8 * 8 * 64 - 1, 32, 16, torch.float16) == found._replace(SEGMENTS=4)
    assert tiles.walk_tiles(4, 0, 32, 16, torch.float16).SEGMENTS == 1
    for states, K, V, dtype, kernel in (
        (2, 32, 16, torch.float16, "walk"),
        (4, 16, 32, torch.float16, "walk"),
        (4, 32, 16, torch.float32, "walk"),
        (4, 32, 16, torch.float16, "another"),
    ):
        assert tiles.walk_tiles(states, 4096, K, V, dtype, kernel) == tiles.by_rule(states, 4096, K, V, dtype)


def test_another_device_s_entries_are_not_used(written, monkeypatch):
    written(FAR)
    monkeypatch.setattr(tiles, "device_name", lambda: "Test GPU 2")
    assert tiles.walk_tiles(4, 4096, 32, 16, torch.float16) == tiles.by_rule(4, 4096, 32, 16, torch.float16)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({**FAR, "tiles": {**FAR["tiles"], "BK": 16}}, "entry 0: BK: expected 32, all of the keys, got 16"),
        ({**FAR, "tiles": {**FAR["tiles"], "BV": 48}}, "entry 0: BV: expected a power of two of at least 16, got 48"),
        ({**FAR, "tiles": {**FAR["tiles"], "WARPS": "4"}}, "entry 0: WARPS: expected 1, 2, 4, 8 or 16, got 4"),
        ({**FAR, "tiles": {"BV": 16}}, "entry 0: BK: expected 32, all of the keys, got None"),
        ({**FAR, "tiles": {**FAR["tiles"], "MORE": 1}}, "entry 0: expected the tiles"),
        ({name: x for name, x in FAR.items() if name != "dtype"}, "entry 0 has no dtype"),
    ],
)
def test_a_bad_table_is_refused(written, entry, words):
    written(entry)
    with pytest.raises(ValueError, match=words):
        tiles.walk_tiles(4, 4096, 32, 16, torch.float16)


def test_a_table_that_is_none(written):
    tiles.TABLE.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        tiles.entries(tiles.TABLE)
    tiles.TABLE.write_text("{}")
    with pytest.raises(ValueError, match="expected a list of entries, got dict"):
        tiles.entries(tiles.TABLE)


def test_the_harness_reaches_every_configuration(written):
    """On the device of a table its cases have a shape that each entry is for."""
    written(FAR, {**FAR, "V": 32, "device": "Test GPU 2"})
    assert list(verify.tuned_shapes(torch.float32)) == []
    (shape,) = verify.tuned_shapes(torch.float16)
    assert tiles.walk_tiles(shape.N * shape.HV, shape.T, shape.K, shape.V, torch.float16)._asdict() == FAR["tiles"]


COMMITTED = tiles.entries(tiles.TABLE)
NEAR = [*dict.fromkeys(tune.neighbours(WalkTiles(32, 16, 2, 4, 3), 4 * 8 * 32, 32, 32))]


@pytest.mark.parametrize("entry", COMMITTED, ids=lambda e: " ".join(str(e[name]) for name in tiles.KEY))
def test_every_configuration_of_the_table_is_right(entry):
    shape = Shape(T=tiles.chunk_length(torch.float16) + 9, K=entry["K"], V=entry["V"])
    assert wrong(WalkTiles(**entry["tiles"]), shape, torch.float16) == []


@pytest.mark.parametrize("candidate", NEAR, ids=tune.shown)
def test_every_candidate_is_right(candidate):
    assert wrong(candidate, Shape(T=2 * tiles.chunk_length(torch.float32) + 9, K=32, V=32), torch.float32) == []


def wrong(configuration, shape, dtype):
    operator = next(o for o in OPERATORS if o.name == "chunk_simple_gla")
    with tiles.instead(configuration, shape.K, shape.V):
        assert tiles.walk_tiles(1, shape.T, shape.K, shape.V, dtype) == configuration
        errors = list(verify.verify(operator, dtype, shape))
    return [str(error) for error in errors if error.failed]


# --- The search ---


def test_neighbours_differ_and_fit():
    assert len(NEAR) >= 7
    assert {n.SEGMENTS for n in NEAR} == {1, 2, 4}
    shorter = tune.neighbours(WalkTiles(32, 16, 2, 4, 3), 4 * 8 * 32 - 1, 32, 32)
    assert {n.SEGMENTS for n in shorter} == {1, 2}  # of four, one would have less than eight chunks
    assert {n.BV for n in NEAR} == {16, 32}
    assert {n.BV * n.BK // (32 * n.WARPS) <= tune.REGISTERS for n in NEAR} == {True}
    wide = [*tune.neighbours(WalkTiles(256, 64, 1, 8, 2), 8192, 256, 64)]
    assert WalkTiles(256, 128, 1, 8, 2) in wide
    assert WalkTiles(256, 128, 1, 4, 2) not in wide  # 256 registers of each thread


def test_the_search_goes_downhill():
    costs = {"BV": 64, "SEGMENTS": 4, "WARPS": 8, "STAGES": 2}
    tried = []

    def cost(t):
        assert t not in tried
        tried.append(t)
        return sum(abs(math.log2(getattr(t, name) / x)) for name, x in costs.items())

    start = WalkTiles(64, 16, 1, 4, 3)
    best = tune.search(start, 8192, 64, 64, cost, seconds=60)
    assert best == WalkTiles(64, 64, 4, 8, 2)
    assert tune.search(start, 8192, 64, 64, lambda t: math.inf, seconds=0) == start


@pytest.fixture
def tuning(monkeypatch):
    said = []
    found = tune.Tuning(Device(), "walk", 1, 70, 16, 8, torch.float32, say=said.append)
    found.said = said
    return found


def test_a_wrong_candidate_costs_infinitely_much(tuning, monkeypatch):
    candidate = tuning.default._replace(SEGMENTS=2)
    monkeypatch.setattr(tuning.gpu, "times", lambda rounds, calls, seconds: {name: [1.5] for name in rounds})
    assert tuning.cost(candidate) == 3.0
    assert "3.0000 ms" in tuning.said[-1]
    tuning.expected["dk"] = 1.1 * tuning.expected["dk"]
    assert tuning.cost(candidate) == math.inf
    assert "dk differs from the default's by 9.1e-02, allowed 2.0e-05" in tuning.said[-1]
    monkeypatch.setattr(kernels, "chunk_simple_gla", refuse)
    assert tuning.cost(candidate) == math.inf
    assert "RuntimeError: wrong on this compiler" in tuning.said[-1]


def test_an_entry_must_be_faster(tuning, monkeypatch, written):
    better = tuning.default._replace(STAGES=2)
    monkeypatch.setattr(tuning, "cost", lambda t: 1.0 if t == better else 2.0)
    monkeypatch.setattr(tuning, "milliseconds", lambda *several: [2.0, 1.99])
    assert tuning.best(60) is None
    monkeypatch.setattr(tuning, "milliseconds", lambda *several: [2.0, 1.5])
    entry = tuning.best(60)
    assert entry["tiles"] == better._asdict()
    assert (entry["states"], entry["K"], entry["V"], entry["default_ms"], entry["ms"]) == (1, 16, 8, 2.0, 1.5)
    key = tuple(entry[name] for name in tiles.KEY)
    assert key == tuning.key
    assert tune.merged([FAR], key, entry) == tune.merged([FAR, {**entry, "ms": 9.0}], key, entry)
    assert tune.merged([FAR, entry], key, None) == [FAR]
    written(*tune.merged([FAR], key, entry))
    assert tiles.walk_tiles(1, 70, 16, 8, torch.float32) == better


@pytest.mark.parametrize("walk", tune.WALKS)
def test_a_walk_asks_for_its_tiles_by_its_name(walk, monkeypatch):
    asked, rule = [], tiles.walk_tiles
    monkeypatch.setattr(tiles, "walk_tiles", lambda *a, **k: asked.append((a, k)) or rule(*a, **k))
    tune.Tuning(Device(), walk, 1, 20, 16, 8, torch.float32)
    names = {given.get("kernel", (*positional, "walk")[5]) for positional, given in asked}
    assert walk in names
    assert names == {walk} or names == {walk.removesuffix("_back"), walk.removesuffix("_back") + "_back"}


def test_a_run_writes_its_table(written, monkeypatch, capsys):
    """The whole way, with a clock by which two stages are the fastest."""

    def milliseconds(self, *several):
        return [1.0 if t.STAGES == 2 else 2.0 for t in several]

    monkeypatch.setattr(tune.Tuning, "milliseconds", milliseconds)
    written(FAR)
    tune.run(Device(), ["walk"], [(1, 20, 16, 8)], torch.float32, tiles.TABLE, 60)
    far, entry = sorted(tiles.entries(tiles.TABLE), key=lambda e: e["K"], reverse=True)
    assert far == FAR
    assert (entry["tiles"]["STAGES"], entry["ms"], entry["default_ms"]) == (2, 1.0, 2.0)
    assert tiles.walk_tiles(1, 20, 16, 8, torch.float32).STAGES == 2
    said = capsys.readouterr().out
    assert "walk, 1 states 16 x 8, 20 tokens, float32" in said
    assert "2.00 times as fast as by rule" in said


def test_shapes_to_tune_are_those_that_are_timed():
    assert tune.jobs()[0] == (32, 8192, 128, 128)
    assert len(tune.jobs()) == len({(tiles.bucket(states), K, V) for states, _, K, V in tune.jobs()})
    assert tune.arguments(["--states", "4", "--tokens", "99", "--keys", "8", "--values", "5"]).jobs == [(4, 99, 8, 5)]
    assert tune.arguments([]).walks == list(tune.WALKS)
    assert tune.arguments(["--walk", "delta"]).walks == ["delta"]
    with pytest.raises(SystemExit):
        tune.arguments(["--states", "4"])
