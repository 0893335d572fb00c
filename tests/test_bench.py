"""``kernels.bench`` without a GPU: everything but the timing itself."""

import contextlib
import dataclasses
import json
import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import kernels
from kernels import bench, clock, tune, verify
from kernels.operators import OPERATORS, Shape
from kernels.workloads import WORKLOADS, Peer, held
from lineage_lib import passport
from tests.fake_gpu import Device, refuse

TINY = {"B": 2, "T": 20, "H": 2, "K": 16, "V": 8, "P": 8, "N": 16, "G": 1}
EVERY = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def named(name):
    return next(workload for workload in WORKLOADS if workload.name == name)


def tiny(workload, **sizes):
    one_token = {"T": 1} if workload.passes == ("decode",) else {}
    shape = {name: TINY[name] for name in workload.shapes[0]} | one_token | sizes
    return dataclasses.replace(workload, shapes=(shape,))


def with_peer(workload, function, monkeypatch, **changes):
    """The workload, its peer a function of a module made for the test."""
    module = ModuleType("somebody")
    module.function, module.__version__ = function, "1.2"
    monkeypatch.setitem(sys.modules, "somebody", module)
    peer = dataclasses.replace(workload.peer, name="somebody.function", package="somebody", made_with=(), **changes)
    return dataclasses.replace(workload, peer=peer)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A run whose passport is a folder of its own; float32, since bf16 is not computed where it is interpreted."""
    monkeypatch.setattr(passport, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "DTYPE", torch.float32)
    monkeypatch.setattr(verify, "properties", lambda operator, dtype: [])
    said = []
    run = bench.Bench(Device(), say=said.append)
    run.said = said
    return run


# --- Workloads ---


@EVERY
def test_ours_runs_and_returns_what_is_counted(workload):
    workload = tiny(workload)
    inputs = workload.inputs(workload.shapes[0], "cpu", torch.float32)
    sizes = [inputs[name].numel() // workload.steps for name in workload.written]
    returned = workload.call(getattr(kernels, workload.name), inputs)
    o, *states = returned if isinstance(returned, tuple) else (returned,)
    written = [o, *(x for s in states for x in (s if isinstance(s, tuple) else (s,)) if x is not None)]
    if workload.name == "selective_state_update":
        written.append(inputs["state"])
    assert [x.numel() for x in written] == sizes
    assert all(torch.isfinite(x).all() for x in written)


@pytest.mark.parametrize(
    "workload", [w for w in WORKLOADS if "forward+backward" in w.passes], ids=lambda workload: workload.name
)
def test_every_input_gets_a_gradient(workload):
    workload = tiny(workload)
    inputs = workload.inputs(workload.shapes[0], "cpu", torch.float32)
    (call,) = bench.calls(getattr(kernels, workload.name), workload.call, [inputs], "forward+backward")
    gradients = call()
    assert [g.shape for g in gradients] == [x.shape for x in inputs.values()]
    assert all(g.abs().max() > 0 for g in gradients)


def test_names_and_shapes_are_those_of_the_issue():
    assert {w.name for w in WORKLOADS} >= set(passport.kernel_names())
    assert {w.verified for w in WORKLOADS} <= {o.name for o in OPERATORS} | set(passport.kernel_names())
    for name in ("chunk_simple_gla", "chunk_gla", "chunk_retention", "chunk_mlstm"):
        assert [passport.label(s) for s in named(name).shapes] == [
            "B2 T8192 H16 K128 V128",
            "B1 T8192 H96 K128 V128",
            "B2 T16384 H16 K128 V128",
            "B4 T2048 H16 K128 V128",
            "B4 T4096 H64 K128 V128",
            "B8 T2048 H32 K256 V256",
            "B8 T1024 H8 K64 V64",
        ]
    assert {s["B"] for s in named("fused_recurrent_gla").shapes} == {1, 8, 64, 256}


@pytest.mark.parametrize(
    ("name", "which", "moved", "flops"),
    [
        # q, k, v, o of 2 · 8192 · 16 heads · 128 numbers of 2 bytes, and a float32 decay a head
        ("chunk_simple_gla", "forward", 4 * 67108864 + 1048576, 4 * 262144 * 16384),
        # again q, k, v and g; do; dq, dk, dv and dg
        ("chunk_simple_gla", "forward+backward", 11 * 67108864 + 3 * 1048576, 12 * 262144 * 16384),
        ("chunk_gla", "forward", 4 * 67108864 + 134217728, 4 * 262144 * 16384),
        ("chunk_mlstm", "forward", 4 * 67108864 + 2 * 1048576, 4 * 262144 * 16384),
        # x and y of 32 heads · 64; B and C of one group · 128; dt; A
        ("mamba_chunk_scan_combined", "forward", 2 * 67108864 + 2 * 4194304 + 2097152 + 128, 4 * 524288 * 8192),
        # B = 256: the state in and out, float32; q, k, v, o of 32 heads · 128; g
        ("fused_recurrent_simple_gla", "decode", 2 * 536870912 + 4 * 2097152 + 32768, 4 * 8192 * 16384),
        # the state; x and y; B and C; dt, one number a head and row; A, D, dt_bias one a head
        (
            "selective_state_update",
            "decode",
            2 * 536870912 + 2 * 2097152 + 2 * 65536 + 32768 + 3 * 128,
            4 * 8192 * 16384,
        ),
    ],
)
def test_bytes_and_operations_counted_by_hand(name, which, moved, flops):
    workload = named(name)
    sizes = workload.shapes[0]
    assert workload.bytes_moved(workload.inputs(sizes, "meta", torch.bfloat16), which) == moved
    assert workload.flops(sizes, which) == flops


def test_an_expanded_axis_is_held_once():
    assert held(torch.zeros(3, 1, 4, dtype=torch.float32).expand(3, 5, 4)) == 48
    assert held(torch.zeros(0, 4)) == 0


@EVERY
def test_peers_get_the_same_numbers(workload):
    """What the peer's call hands over: positions, names, layouts."""
    workload = tiny(workload)
    inputs = workload.inputs(workload.shapes[0], "cpu", torch.float32)
    got = {}

    def function(*args, **kwargs):
        got.update(args=args, kwargs=kwargs)

    workload.peer.call(function, workload.peer.arrange(inputs))
    tensors = [x for x in (*got["args"], *got["kwargs"].values()) if isinstance(x, torch.Tensor)]
    tensors += [x for values in got["kwargs"].values() if isinstance(values, tuple) for x in values]
    assert [x.double().sum().item() for x in tensors] == pytest.approx(
        [x.double().sum().item() for x in inputs.values()]
    )
    shapes = {name: tuple(x.shape) for name, x in got["kwargs"].items() if isinstance(x, torch.Tensor)}
    B, H, T, K, V = 2, 2, workload.shapes[0]["T"], 16, 8
    if workload.name == "chunk_mlstm":
        assert [tuple(x.shape) for x in tensors] == [(B, H, T, K), (B, H, T, K), (B, H, T, V), (B, H, T), (B, H, T)]
        assert all(x.is_contiguous() for x in tensors)
    elif workload.name == "fused_recurrent_mlstm":
        gate = (B, H, 1)
        vectors = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "i": gate, "f": gate}
        assert shapes == vectors | {"c": (B, H, K, V), "n": (B, H, K), "m": gate}
    elif workload.name == "mamba_chunk_scan_combined":
        assert got["args"][5] == 256
    elif workload.name == "selective_state_update":
        assert shapes["A"] == (H, V, K)
        assert inputs["A"].stride()[1:] == (0, 0)
        assert inputs["dt"].stride(-1) == inputs["dt_bias"].stride(-1) == 0


# --- Records ---


@pytest.mark.parametrize("which", ["forward", "forward+backward"])
def test_a_record_has_what_the_contract_says(fresh, monkeypatch, which):
    workload = with_peer(tiny(named("chunk_simple_gla")), kernels.chunk_simple_gla, monkeypatch)
    fresh.times(workload, workload.shapes[0], which)
    (record,) = json.loads((passport.FOLDER / "test-gpu-1.json").read_text())
    source = passport.sources("chunk_simple_gla")
    inputs = workload.inputs(workload.shapes[0], "cpu", torch.float32)
    moved = workload.bytes_moved(inputs, which)
    assert {
        name: record[name] for name in ("kernel", "source", "source_sha256", "device", "shape", "dtype", "pass")
    } == {
        "kernel": "chunk_simple_gla",
        "source": source,
        "source_sha256": passport.digest(source),
        "device": "Test GPU 1",
        "shape": {"B": 2, "T": 20, "H": 2, "K": 16, "V": 8},
        "dtype": "float32",
        "pass": which,
    }
    assert record["median_ms"] == 2.0
    assert record["spread_ms"] == [1.2, 2.8]
    assert record["eager_ms"] == 2.0
    assert record["peak_mb"] == 12.35
    assert record["floor_ms"] == clock.rounded(moved / 4e9)
    assert record["versions"]["torch"] == torch.__version__
    assert record["errors"] is None  # not verified in this passport
    assert record["peer"] == {
        "name": "somebody.function", "version": "1.2", "median_ms": 4.0, "spread_ms": [4.0, 4.0], "eager_ms": 4.0,
        "eager_spread_ms": [4.0, 4.0], "peak_mb": 12.35,
    }  # fmt: skip
    assert "2.00 times" in fresh.said[-1]
    assert not passport.changed(record)


def test_arithmetic_may_be_the_floor(fresh):
    workload = tiny(named("chunk_retention"))
    fresh.product = 1.0  # a device that hardly multiplies
    record = fresh.times(workload, workload.shapes[0], "forward", with_peer=False)
    assert record["floor_ms"] == 4 * 2 * 20 * 2 * 16 * 8
    assert record["peer_refused"] == "not asked for"


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (Peer("no_such_package.function", "nothing", refuse), "ModuleNotFoundError: No module named 'no_such_package'"),
        (Peer("torch.no_such_function", "torch", refuse), "AttributeError: module 'torch' has no attribute"),
        (Peer("torch.add", "torch", refuse), "RuntimeError: wrong on this compiler"),
    ],
)
def test_a_peer_that_refuses_is_recorded(fresh, peer, why):
    workload = dataclasses.replace(tiny(named("chunk_simple_gla")), peer=peer)
    record = fresh.times(workload, workload.shapes[0], "forward")
    assert record["peer"] is None
    assert record["peer_refused"].startswith(why)
    assert "elsewhere" not in record["peer_refused"]
    assert record["median_ms"] == 2.0
    assert why in fresh.said[-1]


def test_a_peer_that_breaks_the_device_is_not_hidden(fresh, monkeypatch):
    def broken():
        raise RuntimeError("an illegal memory access was encountered")

    workload = dataclasses.replace(tiny(named("chunk_simple_gla")), peer=Peer("torch.add", "torch", refuse))
    monkeypatch.setattr(fresh.gpu, "wait", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        fresh.times(workload, workload.shapes[0], "forward")


def test_a_peer_without_a_graph_is_timed_eagerly(fresh, monkeypatch):
    workload = with_peer(tiny(named("chunk_simple_gla")), kernels.chunk_simple_gla, monkeypatch)
    captured = []

    def graph(calls):
        captured.append(calls)
        if len(captured) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return lambda: None

    monkeypatch.setattr(fresh.gpu, "graph", graph)
    peer = fresh.times(workload, workload.shapes[0], "forward")["peer"]
    assert peer["median_ms"] is None
    assert peer["eager_ms"] == 4.0
    assert "capturing" in peer["graph_refused"]
    assert "no graph: RuntimeError" in fresh.said[-1]
    monkeypatch.setattr(fresh.gpu, "graph", refuse)
    with pytest.raises(RuntimeError, match="wrong on this compiler"):  # but ours must be captured
        fresh.times(workload, workload.shapes[0], "forward")


def test_errors_are_the_harness_s(fresh, monkeypatch):
    few = [(Shape(T=5), "mixed", "unit"), (Shape(T=40), "strong", "unit")]
    monkeypatch.setattr(verify, "cases", lambda operator, dtype: few)
    record = fresh.errors(named("chunk_simple_gla"), torch.float32)
    operator = next(o for o in OPERATORS if o.name == "chunk_simple_gla")
    all_of_them = [e for case in few for e in verify.verify(operator, torch.float32, *case)]
    assert record["cases"] == 2
    assert record["failures"] == 0
    assert set(record["errors"]) == {"o", "state", "dq", "dk", "dv", "dg", "dinitial_state"}
    for what, error in record["errors"].items():
        assert error == clock.rounded(max(e.error for e in all_of_them if e.what == what), 2)
        assert error <= record["allowed"][what]
    monkeypatch.setattr(verify, "cases", refuse)
    shared = fresh.errors(named("chunk_retention"), torch.float32)  # same operator: not run again
    assert (shared["kernel"], shared["verified_as"]) == ("chunk_retention", "chunk_simple_gla")
    workload = tiny(named("chunk_simple_gla"))
    timed = fresh.times(workload, workload.shapes[0], "forward", with_peer=False)
    assert timed["errors"] == record["errors"]


def test_what_is_not_finite_can_be_written(fresh, monkeypatch):
    bad = verify.Error("a case", "o", math.inf, 1e-5)
    differs = verify.Error("run again", "o", math.inf, 0.0)
    monkeypatch.setattr(verify, "all_errors", lambda operator, dtype: [bad, verify.Error("a case", "o", 1e-7, 1e-5)])
    monkeypatch.setattr(verify, "properties", lambda operator, dtype: [differs])
    record = fresh.errors(named("chunk_simple_gla"), torch.float32)
    assert record["errors"] == {"o": "inf"}
    assert record["failures"] == 2
    assert record["failed"] == ["a case: o inf, allowed 1.0e-05", "run again: o inf, allowed 0.0e+00"]
    assert "2 FAILED, such as a case: o inf" in fresh.said[-1]
    assert passport.read(fresh.out) == [record]


def test_a_record_replaces_only_its_own(fresh):
    workload = tiny(named("chunk_retention"))
    shape, longer = workload.shapes[0], workload.shapes[0] | {"T": 30}
    for s, which in ((shape, "forward"), (longer, "forward"), (shape, "forward+backward")):
        fresh.times(workload, s, which, with_peer=False)
    fresh.gpu.ms["ours"] = [7.0]
    fresh.times(workload, shape, "forward", with_peer=False)
    records = passport.read(fresh.out)
    assert [(r["shape"]["T"], r["pass"], r["median_ms"]) for r in records] == [
        (20, "forward", 7.0),
        (30, "forward", 2.0),
        (20, "forward+backward", 2.0),
    ]


def test_out_begins_with_what_is_known(fresh, tmp_path):
    workload = tiny(named("chunk_retention"))
    fresh.times(workload, workload.shapes[0], "forward", with_peer=False)
    elsewhere = bench.Bench(Device(), tmp_path / "out" / "test-gpu-1.json", say=fresh.said.append)
    elsewhere.times(workload, workload.shapes[0] | {"T": 30}, "forward", with_peer=False)
    assert len(passport.read(tmp_path / "out" / "test-gpu-1.json")) == 2
    assert len(passport.read(fresh.out)) == 1


def options(**given):
    return SimpleNamespace(**({"only": None, "missing": False, "no_peer": True, "dtype": None} | given))


def test_a_run_goes_on_after_a_failure(fresh, monkeypatch):
    good, bad = tiny(named("chunk_retention")), tiny(named("chunk_simple_gla"))
    monkeypatch.setattr(kernels, "chunk_simple_gla", refuse)
    unknown = dataclasses.replace(good, name="not_written_yet")
    planned = [(w, w.shapes) for w in (unknown, bad, good)]
    assert bench.run(fresh, planned, options(only="times")) == 2
    assert fresh.said[1] == "not_written_yet: not in this version of kernels"
    assert "FAILED: RuntimeError: wrong on this compiler" in fresh.said[2]
    assert [r["pass"] for r in passport.read(fresh.out)] == ["forward", "forward+backward"]


def test_only_what_is_missing(fresh, monkeypatch):
    workload = tiny(named("chunk_retention"))
    monkeypatch.setattr(verify, "DTYPES", [torch.float32])
    monkeypatch.setattr(verify, "cases", lambda operator, dtype: [(Shape(T=5), "mixed", "unit")])
    fresh.times(workload, workload.shapes[0], "forward", with_peer=False)
    fresh.gpu.ms["ours"] = [7.0]
    assert bench.run(fresh, [(workload, workload.shapes)], options(missing=True)) == 0
    assert [(r["pass"], r.get("median_ms")) for r in passport.read(fresh.out)] == [
        ("forward", 2.0),
        ("verify", None),
        ("forward+backward", 7.0),
    ]
    said = len(fresh.said)
    assert bench.run(fresh, [(workload, workload.shapes)], options(missing=True)) == 0
    assert len(fresh.said) == said
    for record in fresh.records:
        record["source_sha256"] = "of an older source"
    bench.run(fresh, [(workload, workload.shapes)], options(missing=True))
    assert len(fresh.said) == said + 3


def test_errors_in_one_dtype(fresh, monkeypatch):
    workload = tiny(named("chunk_retention"))
    monkeypatch.setattr(verify, "DTYPES", [torch.float32, torch.float16])
    monkeypatch.setattr(verify, "cases", lambda operator, dtype: [(Shape(T=5), "mixed", "unit")])
    assert bench.run(fresh, [(workload, workload.shapes)], options(only="errors", dtype="float16")) == 0
    assert [(r["pass"], r["dtype"]) for r in passport.read(fresh.out)] == [("verify", "float16")]


# --- The command ---


@pytest.mark.skipif(not kernels.INTERPRETED, reason="there is a GPU")
@pytest.mark.parametrize("command", [bench, tune], ids=lambda module: module.__name__)
def test_without_a_gpu_one_sentence_and_status_2(command, capsys):
    assert command.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"{command.__name__}: no GPU: times of interpreted kernels would say nothing\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["nothing"], "OPERATOR: expected one of chunk_simple_gla"),
        (["--shapes", "B2T81"], "--shapes: expected beginnings of B1T1H32"),
        (["chunk_gla", "--shapes", "B256"], "--shapes: expected beginnings of B1T8192"),
    ],
)
def test_what_there_is_not(given, words, capsys):
    assert bench.main(given) == 2
    assert words in capsys.readouterr().err


def test_the_plan():
    assert sum(len(shapes) for _, shapes in bench.plan([], [], False)) == 8 * 7 + 6 + 2 + 8 * 4
    assert all(shapes == [w.shapes[0]] for w, shapes in bench.plan([], [], True))
    chosen = bench.plan(["chunk_gla", "chunk_simple_gla"], ["b2t8192", "B8 T1024"], False)
    assert [(w.name, [s["B"] for s in shapes]) for w, shapes in chosen] == [
        ("chunk_simple_gla", [2, 8]),
        ("chunk_gla", [2, 8]),
    ]


# --- The clock ---


def test_medians_and_deciles():
    assert clock.summary([3.0, 1.0, 2.0]) == (2.0, [1.2, 2.8])
    assert clock.summary([1.23456]) == (1.235, [1.235, 1.235])


def test_forms_take_turns(monkeypatch):
    """On a device whose clock a test moves: what is timed is a round, divided by its calls."""
    now, played = [0.0], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now[0]

        def elapsed_time(self, other):
            return other.at - self.at

    def player(name, ms):
        def play():
            played.append(name)
            now[0] += ms

        return play

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    gpu = clock.Gpu.__new__(clock.Gpu)
    gpu.device = None
    found = gpu.times({"ours": player("o", 10.0), "peer": player("p", 40.0)}, calls=4, seconds=0.4)
    assert set(found["ours"]) == {2.5}
    assert set(found["peer"]) == {10.0}
    assert (len(found["ours"]), len(found["peer"])) == (5 * 8, 5 * 2)
    turns = "".join(played)[6:]
    assert turns == ("o" * 9 + "p" * 3) * 5


def test_a_failed_capture_puts_the_stream_back(monkeypatch):
    streams = ["plain"]

    @contextlib.contextmanager
    def graph(graph):
        streams.append("capturing")
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    with pytest.raises(RuntimeError, match="wrong on this compiler"):
        clock.Gpu.__new__(clock.Gpu).graph([refuse])
    assert streams == ["plain", "capturing", "plain"]


def test_sets_of_inputs_exceed_the_cache(monkeypatch):
    gpu = clock.Gpu.__new__(clock.Gpu)
    gpu.device = None
    cache = SimpleNamespace(L2_cache_size=50 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: cache)
    assert gpu.sets(2**30) == 2
    assert gpu.sets(17 * 2**20) == 9
    assert gpu.sets(1000) == clock.MOST_SETS
