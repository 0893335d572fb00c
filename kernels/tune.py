"""Finds tiles for the walks over chunks on the present GPU and writes them to kernels/tiles.json, offline.

    python -m kernels.tune                                             every walk and shape that kernels.bench times
    python -m kernels.tune --walk delta --walk delta_back              two of the walks
    python -m kernels.tune --states 32 --tokens 8192 --keys 128 --values 128 --dtype bfloat16

From what ``walk_tiles`` gives by rule it goes to the best neighbour, again and again: other tiles of values,
segments, warps, stages. A candidate counts if every output and gradient of a kernel that walks agrees with the
default's; what is minimised is the time of the forward pass plus that of forward and backward. An entry is written
only where the best beats the default by 2 % when both are timed in turn.
"""

import argparse
import datetime
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import kernels
from kernels import tiles as table
from kernels.bench import calls, reason, versions
from kernels.clock import Gpu, rounded
from kernels.tiles import WalkTiles
from kernels.verify import BAR, ratio
from kernels.workloads import WORKLOADS, Tensors, Workload
from lineage_lib import passport

GAIN = 0.02  # less is within what two measurements of one thing differ by
REGISTERS = 128  # of each thread, for the state: more would not leave enough for the rest
DTYPES = {str(dtype)[6:]: dtype for dtype in BAR}
# A walk that asks ``walk_tiles`` under its name, and the kernel by which it is timed.
_TIMED_BY = {
    "walk": "chunk_simple_gla",
    "delta": "chunk_gated_delta_rule",
    "delta_back": "chunk_gated_delta_rule",
    "delta_by_key": "chunk_gdn2",
    "delta_by_key_back": "chunk_gdn2",
}
WALKS: dict[str, Workload] = {walk: next(w for w in WORKLOADS if w.name == name) for walk, name in _TIMED_BY.items()}


def neighbours(t: WalkTiles, T: int, V: int, C: int) -> Iterator[WalkTiles]:
    """What differs in one thing, or in the tile of values and the warps together, and may be faster."""
    widths = [t.BV // 2, t.BV * 2]
    others = [t._replace(BV=BV, WARPS=warps) for BV in widths for warps in (4, 8)]
    others += [t._replace(WARPS=warps) for warps in (4, 8)]
    others += [t._replace(STAGES=t.STAGES + more) for more in (-1, 1)]
    others += [t._replace(SEGMENTS=segments) for segments in (t.SEGMENTS // 2, t.SEGMENTS * 2)]
    for other in others:
        whole = other.SEGMENTS == 1 or other.SEGMENTS * table.LEAST * C <= T
        fits = other.BK * other.BV <= REGISTERS * 32 * other.WARPS
        within = 16 <= other.BV < 2 * max(V, 16) and 1 <= other.STAGES <= 4
        if other != t and other.SEGMENTS >= 1 and whole and fits and within:
            yield other


def search(start: WalkTiles, T: int, V: int, C: int, cost: Callable[[WalkTiles], float], seconds: float) -> WalkTiles:
    """The cheapest of those tried; no tiles are tried twice, none after the seconds have passed."""
    end, tried, best = time.monotonic() + seconds, {start: cost(start)}, None
    while best != min(tried, key=tried.get):
        best = min(tried, key=tried.get)
        for other in dict.fromkeys(neighbours(best, T, V, C)):
            if other not in tried and time.monotonic() < end:
                tried[other] = cost(other)
    return best


class Tuning:
    """One shape: ``states`` states K × V, each of T tokens, in one dtype."""

    def __init__(self, gpu, walk: str, states: int, T: int, K: int, V: int, dtype: torch.dtype, say: Callable = print):
        self.gpu, self.walk, self.dtype, self.say = gpu, walk, dtype, say
        self.workload, self.sizes = WALKS[walk], dict(B=1, T=T, H=states, K=K, V=V)
        first = self.workload.inputs(self.sizes, gpu.device, dtype)
        count = gpu.sets(self.workload.bytes_moved(first, "forward"))
        self.drawn = [first, *(self.workload.inputs(self.sizes, gpu.device, dtype, seed=n) for n in range(1, count))]
        self.default = table.by_rule(states, T, K, V, dtype, walk)
        self.key = (gpu.name, walk, str(dtype)[6:], K, V, table.bucket(states))
        with self.using(self.default):
            self.expected = self.results()

    def using(self, tiles: WalkTiles):
        return table.instead(tiles, self.sizes["K"], self.sizes["V"], self.walk)

    @property
    def function(self) -> Callable:
        return getattr(kernels, self.workload.name)

    def results(self) -> Tensors:
        """The outputs and all gradients for the first inputs."""
        leaves = {name: x.detach().requires_grad_() for name, x in self.drawn[0].items()}
        o = self.workload.call(self.function, leaves)[0]
        incoming = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
        gradients = torch.autograd.grad(o, list(leaves.values()), incoming.to(o))
        return {"o": o.detach(), **{f"d{name}": gradient for name, gradient in zip(leaves, gradients)}}

    def disagreement(self) -> str:
        """What of the results is not the default's, "" if all agree."""
        allowed = {"o": 1, "dg": 3, "dbeta": 3, "db": 3, "dw": 3}
        for name, found in self.results().items():
            error, bar = ratio(found, self.expected[name]), allowed.get(name, 2) * BAR[self.dtype]
            if not error <= bar:
                return f"{name} differs from the default's by {error:.1e}, allowed {bar:.1e}"
        return ""

    def graphs(self, tiles: WalkTiles) -> list[Callable]:
        """Replays of the forward pass and of forward and backward, compiled with these tiles."""
        found = []
        with self.using(tiles):
            for which in ("forward", "forward+backward"):
                form = calls(self.function, self.workload.call, self.drawn, which)
                self.gpu.warm(form)
                found.append(self.gpu.graph(form))
        return found

    def milliseconds(self, *several: WalkTiles) -> list[float]:
        """Of each, timed in turn: forward plus forward and backward."""
        rounds = {(n, part): play for n, t in enumerate(several) for part, play in enumerate(self.graphs(t))}
        medians = {name: statistics.median(ms) for name, ms in self.gpu.times(rounds, len(self.drawn), 0.15).items()}
        return [medians[n, 0] + medians[n, 1] for n in range(len(several))]

    def cost(self, tiles: WalkTiles) -> float:
        """Milliseconds, infinite for what does not run or is not right; a line of the printed table."""
        wrong, ms = "", math.inf
        try:
            with self.using(tiles):
                wrong = self.disagreement()
            if not wrong:
                (ms,) = self.milliseconds(tiles)
        except Exception as error:  # too much shared memory, too many registers
            self.gpu.wait()
            wrong = reason(error)
        self.gpu.free()
        self.say(f"  {shown(tiles)}  {wrong or f'{ms:9.4f} ms'}")
        return ms

    def best(self, seconds: float) -> dict | None:
        """The entry for the table, or None where the rules are as good."""
        C = table.chunk_length(self.dtype)
        found = search(self.default, self.sizes["T"], self.sizes["V"], C, self.cost, seconds)
        if found == self.default:
            return None
        default_ms, ms = self.milliseconds(self.default, found)
        if ms > (1 - GAIN) * default_ms:
            return None
        return dict(zip(table.KEY, self.key)) | {
            "tiles": found._asdict(),
            "ms": rounded(ms),
            "default_ms": rounded(default_ms),
            "timed_at": self.sizes,
            "versions": versions(),
            "date": datetime.date.today().isoformat(),
        }


def shown(tiles: WalkTiles) -> str:
    return " ".join(f"{name} {value:>3}" for name, value in tiles._asdict().items())


def merged(entries: list[dict], key: tuple, entry: dict | None) -> list[dict]:
    """The table with the entry in the place of the one of its key; without one where the rules do as well."""
    others = [old for old in entries if tuple(old[name] for name in table.KEY) != key]
    return sorted([*others, *([entry] if entry else [])], key=lambda e: [str(e[name]) for name in table.KEY])


def jobs() -> list[tuple[int, int, int, int]]:
    """(states, T, K, V) of what is benchmarked, one for each key of the table."""
    found: dict[tuple, tuple] = {}
    for workload in WORKLOADS:
        if workload.name in ("chunk_simple_gla", "mamba_chunk_scan_combined"):
            for s in workload.shapes:
                job = s["B"] * s["H"], s["T"], s.get("K", s.get("N")), s.get("V", s.get("P"))
                found.setdefault((table.bucket(job[0]), *job[2:]), job)
    return list(found.values())


def run(gpu, walks, asked: list[tuple[int, int, int, int]], dtype: torch.dtype, out: Path, seconds: float) -> None:
    """Tune each shape; the table is written after each."""
    for walk in walks:
        for states, T, K, V in asked:
            print(f"{walk}, {states} states {K} x {V}, {T} tokens, {str(dtype)[6:]}", flush=True)
            tuning = Tuning(gpu, walk, states, T, K, V, dtype)
            entry = tuning.best(seconds)
            passport.write(out, merged(table.entries(out), tuning.key, entry))
            table.table.cache_clear()
            gain = entry and f"{entry['default_ms'] / entry['ms']:.2f} times as fast as by rule: {entry['tiles']}"
            print(f"  {gain or 'the rules do as well'}", flush=True)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kernels.tune", description=__doc__.partition("\n")[0])
    for name, what in (("states", "B times H"), ("tokens", "T"), ("keys", "K"), ("values", "V")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what}; all four or none")
    parser.add_argument("--walk", action="append", choices=WALKS, dest="walks", help="all by default")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--seconds", type=float, default=60.0, help="after which no more are tried, each shape")
    parser.add_argument("--out", type=Path, default=table.TABLE, metavar="FILE", help="default: kernels/tiles.json")
    options = parser.parse_args(given)
    sizes = (options.states, options.tokens, options.keys, options.values)
    given_any = any(size is not None for size in sizes)
    if given_any and not all(size and size > 0 for size in sizes):
        parser.error(f"--states, --tokens, --keys, --values: expected four positive numbers or none, got {sizes}")
    options.jobs, options.walks = [sizes] if given_any else jobs(), options.walks or list(WALKS)
    return options


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    try:
        gpu = Gpu()
        table.entries(options.out)
    except (RuntimeError, ValueError) as error:
        print(f"kernels.tune: {error}", file=sys.stderr)
        return 2
    run(gpu, options.walks, options.jobs, DTYPES[options.dtype], options.out, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
