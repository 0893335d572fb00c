"""Times on a GPU: rounds under CUDA graphs and eagerly, peak memory, and the two rates that make a floor.

A round calls a function once on each of several sets of inputs, together larger than the L2 cache: every call finds
its inputs in memory, as it does between the other layers of a model. Rounds are queued without waiting, so that under
a graph no launch shows and eagerly what shows is what a caller pays. Forms that are compared take turns, so that a
clock that changes changes for all.
"""

import itertools
import statistics
from collections.abc import Callable, Sequence

import torch

from kernels import INTERPRETED

TURNS = 5
MOST_SETS = 64


class Gpu:
    """The present CUDA device. A ``RuntimeError`` where there is none."""

    def __init__(self):
        if INTERPRETED or not torch.cuda.is_available():
            why = "TRITON_INTERPRET is set" if torch.cuda.is_available() else "no GPU"
            raise RuntimeError(f"{why}: times of interpreted kernels would say nothing")
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name(self.device)

    def sets(self, size: int) -> int:
        """How many inputs of so many bytes make three caches full, at least two."""
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size
        return max(2, min(MOST_SETS, -(-3 * cache // max(size, 1))))

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def warm(self, calls: Sequence[Callable]) -> None:
        """Compile, and let a peer tune itself: the first call on a stream of its own, as a capture wants it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in [calls[0], *calls]:
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.wait()

    def graph(self, calls: Sequence[Callable]) -> Callable[[], None]:
        """All calls captured into one graph; what replays it."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph):
                for call in calls:
                    call()
        finally:
            torch.cuda.set_stream(stream)  # a capture that fails leaves its own stream in place
        self.wait()
        return graph.replay

    def times(self, rounds: dict[str, Callable], calls: int, seconds: float = 0.4) -> dict[str, list[float]]:
        """Milliseconds a call, one number for each round of each form; a round is ``calls`` calls."""
        counts = {}
        for name, play in rounds.items():
            first = self._queued(play, 3)  # the first rounds after other work are slower
            counts[name] = max(2, min(100, round(1e3 * seconds / max(statistics.median(first), 1e-3) / TURNS)))
        found: dict[str, list[float]] = {name: [] for name in rounds}
        for _ in range(TURNS):
            for name, play in rounds.items():
                found[name] += [ms / calls for ms in self._queued(play, counts[name] + 1)[1:]]
        return found

    def _queued(self, play: Callable, count: int) -> list[float]:
        """Milliseconds of each of ``count`` rounds that are queued one after the other."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            play()
            mark.record()
        self.wait()
        return [start.elapsed_time(end) for start, end in itertools.pairwise(marks)]

    def peak_mb(self, call: Callable) -> float:
        """The most memory during a call, in MiB above what is held before it."""
        self.wait()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        call()
        self.wait()
        return (torch.cuda.max_memory_allocated(self.device) - before) / 2**20

    def free(self) -> None:
        """Give cached memory back, so that one measurement's leftovers are not in the next one's way."""
        torch.cuda.empty_cache()

    def rates(self) -> tuple[float, float]:
        """Bytes a millisecond of a large copy, read plus written; FLOPs a millisecond of a large bf16 product."""
        x = torch.randn(2**29, device=self.device).bfloat16()
        y = torch.empty_like(x)
        a = torch.randn(8192, 8192, device=self.device).bfloat16()
        found = self.times({"copy": lambda: y.copy_(x), "product": lambda: a @ a}, calls=1)
        moved, computed = 2 * x.numel() * x.element_size(), 2 * 8192**3
        return moved / statistics.median(found["copy"]), computed / statistics.median(found["product"])


def summary(times: Sequence[float]) -> tuple[float, list[float]]:
    """(median, [10th, 90th percentile]) with four digits."""
    deciles = statistics.quantiles(times, n=10, method="inclusive") if len(times) > 1 else list(times) * 9
    return rounded(statistics.median(times)), [rounded(deciles[0]), rounded(deciles[-1])]


def rounded(x: float, digits: int = 4) -> float:
    return float(f"{x:.{digits}g}")
