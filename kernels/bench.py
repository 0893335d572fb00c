"""Times every kernel, its peer and the floor on one GPU, and writes the passport.

    python -m kernels.bench                        everything, into kernels/passport/, a file a device
    python -m kernels.bench chunk_gla --quick      one kernel at its first shape
    python -m kernels.bench --shapes B2T8192       shapes that begin like this
    python -m kernels.bench --missing              what has no record of today's source on this device

Per kernel: the errors of ``kernels.verify`` in every dtype, then forward and forward+backward, or one token of
decoding, in bf16. The file is written after every record; a record replaces an older one of the same kernel, shape,
dtype, pass and device. The floor is the larger of two times: the bytes that must be moved at the rate of a large copy,
and the operations that must be done at the rate of a large bf16 product, both rates measured in the same run.
Exit status: 0; 1 if a kernel failed or exceeded its bar; 2 without a GPU.
"""

import argparse
import datetime
import functools
import platform
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

import kernels
from kernels import verify
from kernels.clock import Gpu, rounded, summary
from kernels.operators import OPERATORS
from kernels.workloads import WORKLOADS, Peer, Sizes, Tensors, Workload
from lineage_lib import passport

DTYPE = torch.bfloat16


class Bench:
    """One run on one device: its rates, what is known, and the file that grows."""

    def __init__(self, gpu, out: Path | None = None, say: Callable | None = None):
        self.gpu, self.say = gpu, say or functools.partial(print, flush=True)
        self.out = out or passport.FOLDER / f"{re.sub('[^a-z0-9]+', '-', gpu.name.lower()).strip('-')}.json"
        self.records = passport.read(self.out if self.out.exists() else passport.FOLDER / self.out.name)
        self.verified: dict[tuple, tuple[list, list]] = {}  # by operator and dtype: two kernels may share one
        self.copy, self.product = gpu.rates()
        self.say(f"{gpu.name}: copy {self.copy / 1e9:.2f} TB/s, bf16 product {self.product / 1e9:.0f} TFLOP/s")

    def record(self, kernel: str, dtype: torch.dtype, which: str, shape: Sizes | None, **found) -> dict:
        source = passport.sources(kernel)
        return {
            "kernel": kernel,
            "source": source,
            "source_sha256": passport.digest(source),
            "device": self.gpu.name,
            "versions": versions(),
            "date": datetime.date.today().isoformat(),
            "shape": shape,
            "dtype": str(dtype).removeprefix("torch."),
            "pass": which,
            **found,
        }

    def keep(self, record: dict) -> None:
        self.records = passport.replaced(self.records, record)
        passport.write(self.out, self.records)

    def current(self, kernel: str, dtype: torch.dtype, which: str, shape: Sizes | None) -> dict | None:
        """The record of today's source on this device, if there is one."""
        wanted = passport.key(self.record(kernel, dtype, which, shape))
        known = (r for r in self.records if passport.key(r) == wanted)
        return next((r for r in known if not passport.changed(r)), None)

    # --- Errors ---

    def errors(self, workload: Workload, dtype: torch.dtype) -> dict:
        """The largest error of each result over all cases of the harness, beside what is allowed; what failed, be it
        one of these or that runs repeat and layout does not matter."""
        cases = workload.verified, dtype
        if cases not in self.verified:
            operator = next(o for o in OPERATORS if o.name == workload.verified)
            self.verified[cases] = verify.all_errors(operator, dtype), list(verify.properties(operator, dtype))
        errors, properties = self.verified[cases]
        failed = [str(error) for error in (*errors, *properties) if error.failed]
        worst = {error.what: error for error in sorted(errors, key=lambda error: error.error)}
        found = {
            "cases": len({error.case for error in errors}),
            "verified_as": workload.verified,
            "errors": {what: finite(error.error) for what, error in worst.items()},
            "allowed": {what: rounded(error.allowed) for what, error in worst.items()},
            "failures": len(failed),
            "failed": failed[:10],
        }
        record = self.record(workload.name, dtype, "verify", None, **found)
        self.keep(record)
        shown = ", ".join(f"{what} {error:.1e}" for what, error in record["errors"].items() if error != "inf")
        more = f"; {len(failed)} FAILED, such as {failed[0]}" if failed else ""
        self.say(f"{workload.name} {record['dtype']}, {record['cases']} cases: {shown}{more}")
        return record

    # --- Times ---

    def times(self, workload: Workload, shape: Sizes, which: str, with_peer: bool = True) -> dict:
        """One record: ours and the peer's, in turn, under a graph and eagerly."""
        drawn = [workload.inputs(shape, self.gpu.device, DTYPE, seed=0)]
        size = workload.bytes_moved(drawn[0], "forward")
        drawn += [workload.inputs(shape, self.gpu.device, DTYPE, seed=n) for n in range(1, self.gpu.sets(size))]
        ours = calls(getattr(kernels, workload.name), workload.call, drawn, which)
        self.gpu.warm(ours)
        peer, refused, theirs = workload.peer, "not asked for", None
        if with_peer:
            refused, theirs = self.prepare(peer, drawn, which)
        forms = {"ours": ours} | ({"peer": theirs} if theirs else {})
        found = self.both(forms, refuses={"ours": False, "peer": True})
        bytes_moved, flops = workload.bytes_moved(drawn[0], which), workload.flops(shape, which)
        verified = self.current(workload.name, DTYPE, "verify", None)
        record = self.record(
            workload.name, DTYPE, which, shape,
            **found["ours"],
            floor_ms=rounded(max(bytes_moved / self.copy, flops / self.product)),
            floor={"bytes": bytes_moved, "flops": flops, "copy_tb_s": rounded(self.copy / 1e9),
                   "product_tflop_s": rounded(self.product / 1e9)},
            l2=f"cold: calls rotate over {len(drawn)} sets of inputs, {len(drawn) * size / 2**20:.0f} MiB in all",
            peer={"name": peer.name, "version": peer.version(), **found["peer"]} if theirs else None,
            errors=verified and verified["errors"],
        )  # fmt: skip
        if not theirs:
            record["peer_refused"] = refused
        self.keep(record)
        self.say(line(record))
        del forms, ours, theirs, drawn
        self.gpu.free()
        return record

    def prepare(self, peer: Peer, drawn: list[Tensors], which: str) -> tuple[str, Sequence[Callable] | None]:
        """(why not, None), or ("", the peer's calls, warmed up, tuned)."""
        try:
            theirs = calls(peer.load(), peer.call, [peer.arrange(tensors) for tensors in drawn], which)
            self.gpu.warm(theirs)
        except Exception as error:  # whatever somebody else's code raises is its answer
            self.gpu.wait()  # raises in its turn if the device is no longer usable: nothing after this would be true
            return reason(error), None
        return "", theirs

    def both(self, forms: dict[str, Sequence[Callable]], refuses: dict[str, bool]) -> dict[str, dict]:
        """Times and peak memory of each form. A form that ``refuses`` may fail to be captured: it is timed eagerly."""
        found: dict[str, dict] = {name: {"median_ms": None, "spread_ms": None} for name in forms}
        graphs = {}
        for name, form in forms.items():
            found[name]["peak_mb"] = rounded(self.gpu.peak_mb(form[0]))
            try:
                graphs[name] = self.gpu.graph(form)
            except Exception as error:
                if not refuses[name]:
                    raise
                self.gpu.wait()
                found[name]["graph_refused"] = reason(error)
        count = len(forms["ours"])
        for name, times in self.gpu.times(graphs, count).items():
            found[name]["median_ms"], found[name]["spread_ms"] = summary(times)
        for name, times in self.gpu.times({name: one_by_one(form) for name, form in forms.items()}, count).items():
            found[name]["eager_ms"], found[name]["eager_spread_ms"] = summary(times)
        return found


def calls(function: Callable, call: Callable, drawn: list[Tensors], which: str) -> list[Callable]:
    """For each set of inputs what runs the pass once; incoming gradients are drawn here, outside what is timed."""
    return [_call(function, call, tensors, which) for tensors in drawn]


def _call(function: Callable, call: Callable, tensors: Tensors, which: str) -> Callable[[], object]:
    if which != "forward+backward":

        def forward():
            with torch.no_grad():
                return call(function, tensors)

        return forward
    leaves = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    shape = first(call(function, tensors))
    incoming = torch.randn(shape.shape, device=shape.device, dtype=torch.float32).to(shape.dtype)

    def forward_and_backward():
        o = first(call(function, leaves))
        return torch.autograd.grad(o, list(leaves.values()), incoming)

    return forward_and_backward


def one_by_one(form: Sequence[Callable]) -> Callable[[], None]:
    def play():
        for call in form:
            call()

    return play


def first(returned):
    return returned[0] if isinstance(returned, tuple) else returned


def versions() -> dict[str, str]:
    import triton

    found = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def finite(x: float) -> float | str:
    """For JSON, which has no infinity."""
    return "inf" if x == float("inf") else rounded(x, 2)


def reason(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def line(record: dict) -> str:
    """A record for the terminal."""

    def ms(x):
        return "     –" if x is None else f"{x:6.3f}"

    shown = f"{record['kernel']} {passport.label(record['shape'])} {record['pass']}: ours {ms(record['median_ms'])} ms "
    shown += f"(eager {ms(record['eager_ms'])}, floor {ms(record['floor_ms'])}, peak {record['peak_mb']:.0f} MB)"
    peer = record["peer"]
    if peer is None:
        return f"{shown}; no peer: {record['peer_refused']}"
    shown += f"; {peer['name'].rpartition('.')[2]} {ms(peer['median_ms'])} (eager {ms(peer['eager_ms'])}, "
    shown += f"peak {peer['peak_mb']:.0f} MB)"
    if peer["median_ms"] is None:
        return f"{shown}, no graph: {peer['graph_refused']}"
    return f"{shown}: {peer['median_ms'] / record['median_ms']:.2f} times"


# --- The command ---


def plan(names: Sequence[str], shapes: Sequence[str], quick: bool) -> list[tuple[Workload, list[Sizes]]]:
    """The kernels and shapes asked for; a ``ValueError`` names what there is not."""
    known = {workload.name: workload for workload in WORKLOADS}
    for name in names:
        if name not in known:
            raise ValueError(f"OPERATOR: expected one of {', '.join(known)}, got {name!r}")
    chosen = [workload for workload in WORKLOADS if not names or workload.name in names]
    planned = [(w, [s for s in w.shapes[: 1 if quick else None] if not shapes or begins(s, shapes)]) for w in chosen]
    if not any(kept for _, kept in planned):
        there = sorted({passport.label(s).replace(" ", "") for w in chosen for s in w.shapes})
        raise ValueError(f"--shapes: expected beginnings of {', '.join(there)}, got {' '.join(shapes)}")
    return [(workload, kept) for workload, kept in planned if kept]


def begins(shape: Sizes, beginnings: Iterable[str]) -> bool:
    """B2T81 is no beginning of B2T8192: sizes are whole."""
    text = passport.label(shape).replace(" ", "")
    return any(re.match(re.escape(b.replace(" ", "")) + r"(?!\d)", text, re.IGNORECASE) for b in beginnings)


def arguments(given: list[str] | None) -> argparse.Namespace:
    example = "for example: python -m kernels.bench chunk_simple_gla --quick --only times"
    parser = argparse.ArgumentParser(
        prog="python -m kernels.bench", description=__doc__.partition("\n")[0], epilog=example
    )
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="names of kernels; all by default")
    parser.add_argument("--shapes", nargs="+", default=[], metavar="SHAPE", help="beginnings, such as B2T8192 or B1")
    parser.add_argument("--quick", action="store_true", help="each kernel's first shape only")
    parser.add_argument("--missing", action="store_true", help="only what has no record of today's source")
    parser.add_argument("--only", choices=("errors", "times"), help="one half of the work")
    parser.add_argument("--dtype", choices=[str(dtype)[6:] for dtype in verify.DTYPES], help="errors in one dtype only")
    parser.add_argument("--no-peer", action="store_true", help="do not time the peers")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: kernels/passport/DEVICE.json")
    return parser.parse_args(given)


def run(bench: Bench, planned: list[tuple[Workload, list[Sizes]]], options: argparse.Namespace) -> int:
    """Everything planned, one failure not in the way of the rest; how many failures there were."""
    failures = 0
    for workload, shapes in planned:
        if not hasattr(kernels, workload.name):
            bench.say(f"{workload.name}: not in this version of kernels")
            continue
        jobs: list[tuple] = []
        if options.only != "times":
            jobs += [(d, "verify", None) for d in verify.DTYPES if options.dtype in (None, str(d)[6:])]
        if options.only != "errors":
            jobs += [(DTYPE, which, shape) for shape in shapes for which in workload.passes]
        for dtype, which, shape in jobs:
            if options.missing and bench.current(workload.name, dtype, which, shape):
                continue
            try:
                if which == "verify":
                    failures += bench.errors(workload, dtype)["failures"]
                else:
                    bench.times(workload, shape, which, not options.no_peer)
            except Exception as error:
                failures += 1
                bench.say(f"{workload.name} {passport.label(shape or {})} {which} FAILED: {reason(error)}")
    return failures


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    try:
        planned = plan(options.operators, options.shapes, options.quick)
        bench = Bench(Gpu(), options.out)
    except (RuntimeError, ValueError) as error:
        print(f"kernels.bench: {error}", file=sys.stderr)
        return 2
    failures = run(bench, planned, options)
    print(f"{bench.out}: {len(bench.records)} records; {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
