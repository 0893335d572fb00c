"""One harness for all kernels: ``python -m kernels.verify`` compares each with its float64 reference.

    python -m kernels.verify                     every operator, on the GPU if there is one
    python -m kernels.verify chunk_simple_gla    one of them

Through the public function, forward and every gradient, over shapes, regimes and dtypes: with a GPU the whole
matrix, without one small shapes under the interpreter. The exit status is 0 if nothing exceeds the bar.
What the interpreter cannot see: TF32, races, compile errors, reads out of bounds.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator

import torch

import kernels
from kernels import tiles
from kernels.operators import OPERATORS, Operator, Shape

GPU = not kernels.INTERPRETED
DEVICE = "cuda" if GPU else "cpu"

# RMS(error) / RMS(reference) of outputs and states, by dtype; twice that for gradients, three times for the gates'.
BAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 6e-3}
DTYPES = [torch.float32, torch.float16, torch.bfloat16] if GPU else [torch.float32, torch.float16]


def cases(operator: Operator, dtype: torch.dtype) -> Iterator[tuple[Shape, str, str]]:
    """(shape, gates, keys): on a CPU one of each kind, on a GPU the whole matrix."""
    C = 16 if operator.by_token and not GPU else 32 if dtype == torch.float32 else 64
    if operator.single:
        yield from ((Shape(B=b, T=1, H=h, HV=2, K=k, V=v), "mixed", "unit") for b, h, k, v in _ONE_TOKEN)
        return
    shapes = [Shape(T=T) for T in (0, C - 1, C, C + 1, 3 * C + 5)] + [
        Shape(B=2, T=1, H=2, HV=4),  # several heads: a gradient that is one number may cancel to nothing
        Shape(B=2, T=C + 6, H=1 + GPU, HV=2 + 2 * GPU, K=16, V=32),
        Shape(B=2, HV=2, K=8, V=4, T=20),
        Shape(K=20, V=12, T=C + 3, state=False),
    ]
    if GPU or not operator.by_token:  # long enough for segments
        shapes.append(Shape(T=16 * C + 7))
    if operator.packs:
        shapes.append(Shape(T=2 * C + 9, HV=2, lengths=(0, C, 1, 0, C + 8)))
    if operator.normalises:
        shapes += [Shape(T=T, HV=2, K=20, l2norm=True) for T in (0, C + 6)]
    yield from ((shape, "mixed", "unit") for shape in shapes)
    for gates, keys in [(g, "unit") for g in operator.regimes] + [("mixed", k) for k in operator.keys]:
        yield Shape(B=1 + GPU, T=C + 7, HV=2), gates, keys
    if GPU:
        yield from ((shape, "mixed", "unit") for shape in tuned_shapes(dtype) if not operator.by_token)
        wide = [
            Shape(B=2, T=1000, H=2, HV=2, K=128, V=128),
            Shape(T=513, H=2, HV=4, K=64, V=128),
            Shape(T=700, K=256, V=256),
            Shape(T=333, HV=2, K=100, V=60),
            Shape(T=4096, K=128, V=128),
            Shape(T=8192, HV=4, K=64, V=64),
        ]
        wide += [Shape(T=700, HV=2, K=128, V=128, lengths=(3, 0, 297, 400))] * operator.packs
        wide += [Shape(B=2, T=700, H=2, HV=4, K=128, V=128, l2norm=True)] * operator.normalises
        yield from ((shape, gates, "unit") for shape, gates in itertools.product(wide, operator.regimes))
        yield from ((wide[0], "mixed", keys) for keys in operator.keys)


def tuned_shapes(dtype: torch.dtype) -> Iterator[Shape]:
    """A shape for each configuration that the table has for this device, with all its segments and a tail."""
    for entry in tiles.entries(tiles.TABLE):
        if entry["device"] == tiles.device_name() and entry["dtype"] == str(dtype)[6:]:
            found, states = tiles.WalkTiles(**entry["tiles"]), entry["states"]
            T = tiles.LEAST * tiles.chunk_length(dtype) * found.SEGMENTS + 5
            yield Shape(T=T, H=states, HV=states, K=entry["K"], V=entry["V"])


_ONE_TOKEN = [(1, 1, 16, 16), (3, 2, 20, 12), (2, 1, 128, 64)]


class Error:
    """How far one result of one case is from its reference; ``allowed`` is the bar for it."""

    def __init__(self, case: str, what: str, error: float, allowed: float):
        self.case, self.what, self.error, self.allowed = case, what, error, allowed

    @property
    def failed(self) -> bool:
        return not self.error <= self.allowed

    def __str__(self) -> str:
        return f"{self.case}: {self.what} {self.error:.1e}, allowed {self.allowed:.1e}"


def ratio(got: torch.Tensor, expected: torch.Tensor, smallest: float = 1e-30) -> float:
    """RMS(error) / RMS(expected), which counts as ``smallest`` at least; infinite for what is not finite."""
    if got.numel() == 0:
        return 0.0
    got, expected = got.detach().double(), expected.detach().double()
    if not torch.isfinite(got).all():
        return float("inf")
    size = expected.square().mean().sqrt().item()
    return (got - expected).square().mean().sqrt().item() / max(size, smallest)


def verify(
    operator: Operator, dtype: torch.dtype, shape: Shape, gates: str = "mixed", keys: str = "unit", seed: int = 0
) -> Iterator[Error]:
    """The errors of one case: outputs, final state, and every gradient through the public function.

    Some results are small differences of large terms: mLSTM's dq with identical keys is all but 0. What exceeds the bar
    may be twice as far off as the exact result moves when inputs and incoming gradients are rounded once more to the
    dtype: a kernel rounds what it makes of them, too.
    """
    inputs = draw(operator, dtype, shape, gates, keys, seed)
    by_token = {name: inputs[name].expand(shape.B, shape.T, -1) for name in operator.summed}
    expected = run(operator, operator.reference, inputs | by_token, shape, torch.float64)
    with nan_filled():
        got = run(operator, operator.ours, inputs, shape, dtype)
    moved = None
    smallest = torch.finfo(dtype).tiny  # nothing smaller than a normal number of the kernel's dtype is asked for
    for name, theirs in expected.items():
        role = 1 if name == "o" or name.startswith("state") else 3 if name[1:] in operator.gates else 2
        if role == 3:  # a sum of terms like v·dv, faded: float32's rounding of one of them is no error
            v, dv = inputs[operator.values], expected.get(f"d{operator.values}")
            smallest = max(smallest, 1.2e-7 * (v.to(dv) * dv).sum(-1).square().mean().sqrt().item() / (3 * BAR[dtype]))
        case = f"{operator.name} {str(dtype)[6:]} {shape} {gates} gates, {keys} keys"
        allowed = role * BAR[dtype]
        if name[1:] in by_token and name in got:
            sizes, theirs = theirs.abs().sum((0, 1)), theirs.sum((0, 1))
            error = ratio(got[name] - theirs + sizes, sizes, smallest * max(1, shape.B * shape.T))
        else:
            error = ratio(got[name], theirs, smallest)
            if allowed < error < 1:
                inexact = Rounding(dtype)
                moved = moved or run(operator, operator.reference, inputs | by_token, shape, torch.float64, inexact)
                allowed = max(allowed, 2 * ratio(moved[name], theirs, smallest))
        yield Error(case, name, error, allowed)


class Rounding:
    """Each number off by a random part of what rounding it to ``dtype`` may take or add."""

    def __init__(self, dtype: torch.dtype):
        self.generator, self.half = torch.Generator().manual_seed(1), torch.finfo(dtype).eps / 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.half * (2 * torch.rand(x.shape, generator=self.generator, dtype=x.dtype) - 1).to(x.device))


def all_errors(operator: Operator, dtype: torch.dtype) -> list[Error]:
    """The errors of every case."""
    return [error for case in cases(operator, dtype) for error in verify(operator, dtype, *case)]


# --- What is not a matter of rounding ---


def properties(operator: Operator, dtype: torch.dtype) -> Iterator[Error]:
    """Runs repeat bit for bit; layout in memory and offsets beyond 2^31 change nothing but, at most, a last digit;
    decoding does not drift."""
    small = Shape(B=2, T=1 if operator.single else 20, H=1, HV=2, K=16, V=24)
    large = Shape(B=2, T=1000, H=2, HV=4, K=128, V=128) if GPU and not operator.single else small

    def ran(inputs, shape=small, arrange=lambda x: x):
        return run(operator, operator.ours, inputs, shape, dtype, arrange)

    def compared(what, expected, got, allowed):
        for name, x in expected.items():
            error = ratio(got[name], x) if allowed else 0.0 if torch.equal(got[name], x) else float("inf")
            yield Error(f"{operator.name} {str(dtype)[6:]} {what}", name, error, allowed)

    inputs = draw(operator, dtype, large, "mixed", "unit", 0)
    first = ran(inputs, large)
    for _ in range(999 if GPU else 1):
        yield from compared("run again", first, ran(inputs, large), 0.0)
    if GPU:
        inputs = draw(operator, dtype, small, "mixed", "unit", 0)
        first = ran(inputs)
    yield from compared("strided", first, ran(inputs, arrange=strided), BAR[dtype])
    if not operator.single and dtype != torch.float32:
        yield from compared("with offsets beyond 2^31", first, ran(inputs, arrange=FarApart()), BAR[dtype])
    copied = ran(inputs, arrange=lambda x: repeated(x).contiguous())
    yield from compared("expanded", copied, ran(inputs, arrange=repeated), BAR[dtype])
    if operator.by_token:
        yield from compared("after many steps", *after_many_steps(operator, dtype), BAR[dtype])


def after_many_steps(operator: Operator, dtype: torch.dtype) -> Iterator[dict[str, torch.Tensor]]:
    """The last outputs and the state, by the reference and by the kernel, after 100,000 steps of decoding."""
    shape = Shape(T=100_000 if GPU else 500, K=16, V=16)
    inputs = draw(operator, dtype, shape, "mixed", "unit", 0)
    fed = {name: x.to(DEVICE, operator.dtype_of(name, dtype)) for name, x in inputs.items()}
    for function, given in ((operator.reference, inputs), (operator.ours, fed)):
        with torch.no_grad():
            o, state = function(given, shape, None)
        state = state if isinstance(state, dict) else {"state": state}
        yield {name: x.to(DEVICE) for name, x in ({"o": o[:, -100:]} | state).items()}


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, with no axis contiguous."""
    return torch.stack([x, x], -1)[..., 0].transpose(0, 1).contiguous().transpose(0, 1) if x.ndim > 1 else x


def repeated(x: torch.Tensor) -> torch.Tensor:
    """The first channel everywhere, with a stride of 0."""
    return x[..., :1].expand(x.shape)


class FarApart:
    """Tokens so far apart in memory that offsets pass 2^31: of memory only the touched pages are taken."""

    STRIDE = 2**31 // 16  # elements from token to token, more than any of these has numbers

    def __init__(self):
        self.storage, self.used = {}, 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim != 4 or x.shape[1] < 2 or x.dtype == torch.float32:
            return x
        B, T, H, D = x.shape
        if x.dtype not in self.storage:
            self.storage[x.dtype] = torch.empty(self.STRIDE * T, dtype=x.dtype, device=x.device).untyped_storage()
        view = torch.empty(0, dtype=x.dtype, device=x.device)
        view.set_(self.storage[x.dtype], self.used, (B, T, H, D), (H * D, self.STRIDE, D, 1))
        self.used += B * H * D
        return view.copy_(x)


def draw(operator, dtype, shape, gates, keys, seed) -> dict[str, torch.Tensor]:
    """float64 inputs, rounded to the dtypes in which the kernel gets them."""
    drawn = operator.draw(shape, gates, keys, torch.Generator().manual_seed(seed))
    return {name: x.to(operator.dtype_of(name, dtype)).double() for name, x in drawn.items()}


def run(operator, function, inputs, shape, dtype, arrange=lambda x: x) -> dict[str, torch.Tensor]:
    """Name -> outputs, final state and the gradients of all inputs; incoming gradients are drawn.

    ``arrange`` lays a tensor out in memory, inputs and incoming gradients alike.
    """
    fed = {}
    for name, x in inputs.items():
        to = torch.float64 if dtype == torch.float64 else operator.dtype_of(name, dtype)
        fed[name] = arrange(x.to(DEVICE, to)).detach().requires_grad_(operator.differentiable)
    packed = None
    if shape.lengths:
        packed = torch.tensor([0, *itertools.accumulate(shape.lengths)], dtype=torch.int32, device=DEVICE)
    o, state = function(fed, shape, packed)
    found = {"o": o} | (state if isinstance(state, dict) else {} if state is None else {"state": state})
    if not operator.differentiable or (operator.by_token and not GPU):
        return found  # forms by token have the chunked form's backward: where time is short it is verified there
    # bfloat16's few digits are exact in every dtype
    incoming = [torch.randn(x.shape, generator=torch.Generator().manual_seed(7)).bfloat16() for x in found.values()]
    pairs = [(x, arrange(g.to(DEVICE, x.dtype))) for x, g in zip(found.values(), incoming) if x.requires_grad]
    if pairs:  # without tokens and state nothing depends on anything
        gradients = torch.autograd.grad(
            [x for x, _ in pairs], list(fed.values()), [g for _, g in pairs], allow_unused=True
        )
        for (name, x), gradient in zip(fed.items(), gradients):
            found[f"d{name}"] = torch.zeros_like(x) if gradient is None else gradient
    return found


@contextlib.contextmanager
def nan_filled():
    """torch.empty returns NaN: what a kernel leaves unwritten shows."""
    plain, like = torch.empty, torch.empty_like

    def filled(x):
        return x.fill_(float("nan")) if x.is_floating_point() else x

    torch.empty = lambda *a, **k: filled(plain(*a, **k))
    torch.empty_like = lambda *a, **k: filled(like(*a, **k))
    try:
        yield
    finally:
        torch.empty, torch.empty_like = plain, like


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.verify", description=__doc__.partition("\n")[0])
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="names of operators; all by default")
    dtypes = {str(dtype)[6:]: dtype for dtype in DTYPES}
    parser.add_argument("--dtype", choices=dtypes, help="one of them; all by default")
    parser.add_argument("--jobs", type=int, default=1, help="so many operators and dtypes at a time, in processes")
    given = parser.parse_args(arguments)
    known = [operator.name for operator in OPERATORS]
    for name in given.operators:
        if name not in known:
            parser.error(f"no operator {name}; there are {', '.join(known)}")
    parts = list(itertools.product(given.operators or known, [given.dtype] if given.dtype else dtypes))
    if given.jobs > 1 and len(parts) > 1:
        command = [sys.executable, "-m", "kernels.verify"]
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            return max(pool.map(lambda part: subprocess.call([*command, part[0], "--dtype", part[1]]), parts))
    operators = {operator.name: operator for operator in OPERATORS}
    failures = sum(report(operators[name], dtypes[dtype]) for name, dtype in parts)
    print(f"on {torch.cuda.get_device_name() if GPU else 'the CPU, interpreted'}: {failures} failures")
    return int(failures > 0)


def report(operator: Operator, dtype: torch.dtype) -> int:
    """Print the largest errors by result, and each that is not allowed; the number of these."""
    errors = all_errors(operator, dtype)
    worst = {e.what: max(x.error for x in errors if x.what == e.what) for e in errors}
    print(f"{operator.name} {str(dtype)[6:]}: {', '.join(f'{k} {v:.1e}' for k, v in worst.items())}", flush=True)
    failed = [error for error in [*errors, *properties(operator, dtype)] if error.failed]
    for error in failed:
        print(f"  FAILED {error}", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
