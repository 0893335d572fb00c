"""Trains the small models of chapters 12 and 13: what fixed states recall, copy and track.

    python -m benchmarks.limits_training --grid recall [copying tracking words small] [--point NAME …] [--missing]
        [--seeds 0 1 2] [--device cuda] [--minutes 10] [--checkpoints DIR] [--out book/data]

A grid is a list of points; a point is a setting of :mod:`lineage_lib.training`, trained with several seeds and
learning rates at once. After each point its record replaces that of the same name in
``book/data/limits_GRID.json``. The grids write different files, so that several may run at once on one GPU, and one
compiles while another computes. ``--list`` only shows the points. Two cores train all of ``small`` in some minutes.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from lineage_lib.stacked import Shape
from lineage_lib.training import Setting, Test, train

SIZES = (16, 32, 64, 128)  # K = V of a fixed-state layer, with one head
FIXED = ("linear-attention", "mamba-2", "deltanet", "gated-deltanet")
RATES = (3e-3, 1e-2)
Points = dict[str, Setting]


def _sized(K: int, *mixers: str, **more) -> Shape:
    return Shape(mixers=mixers, width=128, H=1, K=K, V=K, **more)


def _family(conv: int, sizes: tuple[int, ...] = SIZES) -> dict[str, Shape]:
    """Two layers of each mixer at each size of the state, a hybrid, and attention, whose state grows."""
    shapes = {f"{name}-{K}": _sized(K, name, name, conv=conv) for name in FIXED for K in sizes}
    shapes |= {f"hybrid-{K}": _sized(K, "gated-deltanet", "attention", conv=conv) for K in sizes[:2]}
    return shapes | {"attention-64": _sized(64, "attention", "attention", conv=conv)}


def recall() -> Points:
    """MQAR of Zoology: trained on 4 to 64 pairs, tested at each number; and with 16 pairs of which 16 get updates.

    Zoology's longest sequences, 256 tokens, and its gaps; 256 tokens of vocabulary in place of 8,192. With so few,
    random fillers would often repeat a key and so write to it; what is not asked is 0, Zoology's other choice.
    """
    every = (4, 8, 16, 32, 64)
    plain = Setting(
        task="multi_query_recall", arguments=dict(T=256, pairs=every, vocabulary=256, fill=False),
        shape=_sized(16, "deltanet"), seeds=(0, 1, 2), learning_rates=RATES, batch=48, steps=1500, solved=0.998,
        tests=tuple(Test(arguments=dict(pairs=pairs), batch=128) for pairs in every),
    )  # fmt: skip
    updated = replace(
        plain, arguments=dict(T=128, pairs=16, updates=16, vocabulary=128, fill=False), tests=(Test(batch=256),)
    )
    points = {name: replace(plain, shape=shape) for name, shape in _family(2).items()}
    return points | {f"updates/{name}": replace(updated, shape=x) for name, x in _family(2, (16, 32, 64)).items()}


def copying() -> Points:
    """Uniform strings of 8 to 64 of 26 letters; tested at 8, 16, 32, 64 and, never seen in training, 96 letters."""
    base = Setting(
        task="copying", arguments=dict(shortest=8, longest=64), shape=_sized(16, "deltanet"), seeds=(0, 1, 2),
        learning_rates=RATES, batch=64, steps=1500, solved=0.999,
        tests=tuple(Test(arguments=dict(shortest=n, longest=n)) for n in (8, 16, 32, 64, 96)),
    )  # fmt: skip
    return {name: replace(base, shape=shape) for name, shape in _family(4).items() if "linear" not in name}


def tracking() -> Points:
    """Parity and the sum modulo 3: eigenvalues in [0, 1] (``+``) and [−1, 1] (``±``), tested far beyond 40 tokens.

    Lengths 3 to 40 and then to 256 are those of Grazzi et al.; each prefix is asked, but in ``once/``, where a
    sequence is asked once after 3 to 40 tokens, as theirs are.
    """
    lengths = Test(arguments=dict(T=4096, shortest=None), cuts=(0, 40, 256, 1024, 4096), batch=64)
    base = Setting(
        task="parity", arguments=dict(T=40), shape=_sized(32, "deltanet"), seeds=(0, 1, 2, 3, 4), learning_rates=RATES,
        batch=128, steps=2000, check_every=200, tests=(lengths,),
    )  # fmt: skip
    shapes, products = {}, {}
    for sign in "+±":
        size = dict(width=64, K=32, V=32, negative=sign == "±")
        shapes |= {f"{name}{sign}": Shape(mixers=(name, name), **size) for name in FIXED[1:]}
        products |= {f"deltaproduct-{n}{sign}": Shape(mixers=("deltaproduct",), factors=n, **size) for n in (1, 2, 3)}
    shapes["attention"] = Shape(mixers=("attention", "attention"), width=64, K=32, V=32, mlp=2)
    once = replace(base, arguments=dict(T=40, shortest=3), steps=4000)
    points = {f"parity/{name}": replace(base, shape=shape) for name, shape in shapes.items()}
    points |= {f"parity/once/{name}": replace(once, shape=shapes[name]) for name in ("deltanet+", "deltanet±")}
    three = replace(base, task="modular_counting", arguments=dict(T=40, modulus=3), steps=3000)
    return points | {f"mod3/{name}": replace(three, shape=shape) for name, shape in (shapes | products).items()}


def words() -> Points:
    """Words in S3 and A5: one layer whose tokens take 1, 2, … delta steps; trained on 32 tokens, tested to 512."""
    lengths = Test(arguments=dict(T=512), cuts=(0, 32, 64, 128, 512), batch=64)
    base = Setting(
        task="word_problem", arguments=dict(T=32, group="S3"), shape=_sized(16, "deltanet"), seeds=(0, 1, 2),
        learning_rates=RATES, batch=128, steps=4000, check_every=200, tests=(lengths,),
    )  # fmt: skip
    points = {}
    for group, most, K in (("S3", 3, 16), ("A5", 4, 32)):
        for n in range(1, most + 1):
            shape = Shape(mixers=("deltaproduct",), width=128, H=4, K=K, V=K, factors=n, negative=True)
            points[f"{group}/{n}"] = replace(base, arguments=dict(T=32, group=group), shape=shape)
    return points


def small() -> Points:
    """What two cores train in seconds, ten seeds of each: the points that the tests train again with one of them.

    Recall of keys that get further values, which a memory that only adds cannot tell from the first, beside the
    recall of keys that are written once, which it can; and parity. States of two heads of 16 × 16.
    """
    seeds, points = tuple(range(10)), {}
    told = dict(pairs=4, updates=8, questions=12, keys=16, values=16)
    for kind, arguments in {"": told, "once/": {**told, "pairs": 8, "updates": 0}}.items():
        for name in ("deltanet", "linear-attention"):
            points[f"recall/{kind}{name}"] = Setting(
                task="pairs_then_questions", arguments=arguments, seeds=seeds, learning_rates=(1e-2,), steps=500,
                shape=Shape(mixers=(name, name), width=64, H=2, K=16, V=16, conv=2),
            )  # fmt: skip
    for sign in "+±":
        points[f"parity/deltanet{sign}"] = Setting(
            task="parity", arguments=dict(T=40), seeds=seeds, learning_rates=(2e-2,), steps=500,
            shape=Shape(mixers=("deltanet",), width=32, H=2, K=16, V=16, negative=sign == "±"),
            tests=(Test(arguments=dict(T=1024), cuts=(0, 40, 256, 1024), batch=64),),
        )  # fmt: skip
    return points


GRIDS = {grid.__name__: grid for grid in (recall, copying, tracking, words, small)}


# --- Files of records ---


def read(path: Path) -> dict[str, dict]:
    """The records of a file by the names of their points."""
    return {x["point"]: x for x in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


def write(path: Path, records: dict[str, dict], order: list[str]) -> None:
    """Writes records in the grid's order, one a line, beside the file and then over it."""
    known = [records[name] for name in order if name in records]
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in known)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    os.replace(unfinished, path)


def summary(record: dict) -> str:
    """One line: the steps, the seconds, and at each test the accuracies of the best learning rate's seeds."""
    rates = len(record["setting"]["learning_rates"])
    tests = []
    for test in record["tests"]:
        share = torch.tensor(test["accuracy"]).view(rates, -1)
        tests.append("/".join(f"{x:.3f}" for x in share[share.mean(1).argmax()].tolist()))
    return f"{record['point']}: {record['steps']} steps, {record['seconds']} s, {'  '.join(tests)}"


def bands(record: dict, margin: float = 0.01) -> list[tuple[float, float]]:
    """For each test the least and the largest accuracy of the record's models, and ``margin`` more on either side.

    The margin is for other processors, whose sums round otherwise, so that a seed there is another training.
    """
    return [(min(test["accuracy"]) - margin, max(test["accuracy"]) + margin) for test in record["tests"]]


# --- The command ---


def chosen(given: argparse.Namespace) -> Iterator[tuple[str, str, Setting]]:
    """(grid, point, setting) of what is asked for, in order."""
    for grid in given.grid:
        for name, setting in GRIDS[grid]().items():
            if given.point and not any(name.startswith(beginning) for beginning in given.point):
                continue
            if given.missing and name in read(given.out / f"limits_{grid}.json"):
                continue
            setting = replace(setting, seeds=given.seeds) if given.seeds else setting
            yield grid, name, replace(setting, steps=given.steps) if given.steps else setting


def main(arguments: list[str] | None = None) -> None:
    what = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits_training", description=what)
    parser.add_argument("--grid", nargs="+", choices=GRIDS, required=True)
    parser.add_argument("--point", nargs="+", help="only points whose names begin so")
    parser.add_argument("--missing", action="store_true", help="only points without a record")
    parser.add_argument("--seeds", nargs="+", type=int, help="in place of a point's own")
    parser.add_argument("--steps", type=int, help="in place of a point's own, to try it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after these no point is started")
    parser.add_argument("--checkpoints", type=Path, help="a folder; an interrupted point goes on from there")
    parser.add_argument("--out", type=Path, default=Path("book/data"))
    parser.add_argument("--list", action="store_true", help="show the points and train none")
    given = parser.parse_args(arguments)
    began, points = time.monotonic(), [*chosen(given)]
    if given.point and not points and not given.missing:
        parser.error(f"--point: no point of {', '.join(given.grid)} begins with {' or '.join(given.point)}")
    for done, (grid, name, setting) in enumerate(points):
        if given.list:
            print(f"{grid} {name}: {', '.join(setting.shape.mixers)}, state {setting.shape.state_size}")
            continue
        if time.monotonic() - began > 60 * given.minutes:
            print(f"{given.minutes:g} minutes are over: {len(points) - done} points are left", file=sys.stderr)
            break
        checkpoint = None
        if given.checkpoints is not None:
            given.checkpoints.mkdir(parents=True, exist_ok=True)
            checkpoint = given.checkpoints / f"{grid}-{name.replace('/', '-')}.checkpoint"
        record = {"point": name, **train(setting, device=given.device, checkpoint=checkpoint)}
        path = given.out / f"limits_{grid}.json"
        write(path, {**read(path), name: record}, [*GRIDS[grid]()])
        print(f"{grid} {summary(record)}", flush=True)
        gc.collect()  # a recorded step holds memory of the GPU until then


if __name__ == "__main__":
    main()
