"""Launches a learner's Triton kernel on guarded buffers, and says where it read or wrote what it may not.

Each tensor lies inside a larger buffer filled with a signaling NaN: around it, between its rows where it is
strided, and inside an output. Loading and storing leave its bits alone, any arithmetic changes them. So an
access outside shows: what was read poisons the result, what was written has changed the buffer, and an output
that still holds these bits was never written.

Under Triton's interpreter a launch of several programs runs twice, in order and in reverse. On a GPU it runs twice
as well, in whatever order the device takes. Both results must agree: no program may need another one's.
"""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from lineage_lib.outcomes import DeviceLost, Malformed, NotCompiled

GPU = "cuda"
CANARY = 0x7FA0CA4A  # the bits of a signaling float32 NaN
BORDER = 32768  # entries before and after each tensor: wild strides of small cases stay inside
REPEATABLE = 1e-6  # of the largest entry: what the order of atomic additions may change
_FATAL = ("illegal memory access", "misaligned address", "device-side assert", "unspecified launch failure")


@dataclass(frozen=True)
class Input:
    """A float32 tensor that the kernel reads; ``gap`` entries lie between the rows of its first axis."""

    array: np.ndarray
    gap: int = 0

    @property
    def stride(self) -> int:
        """Entries from one row to the next."""
        return math.prod(self.array.shape[1:]) + self.gap


@dataclass(frozen=True)
class InOut(Input):
    """A float32 tensor that the kernel reads and overwrites; its values afterwards are a result."""


@dataclass(frozen=True)
class Output:
    """A float32 tensor that the kernel writes, every entry."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One launch: how many programs on each axis, and the kernel's arguments by name, in its order."""

    grid: tuple[int, ...]
    arguments: dict[str, "Input | Output | int"]


class Trespass(Malformed):
    """The kernel ran, but touched what it may not, left out what it must write, or depends on an order."""


class Variant:
    """A kernel with some of its constexpr arguments given: one source for a kernel and its known mistakes.

    >>> late = Variant(kernel, SLIP="late")
    >>> late[grid](x, y)  # is kernel[grid](x, y, SLIP="late")
    """

    def __init__(self, kernel, **constants):
        self.fn, self.constants = kernel, constants
        self.__name__ = "_".join([kernel.__name__, *map(str, constants.values())])

    def run(self, *arguments, **options):
        return self.fn.run(*arguments, **options, **self.constants)

    def __call__(self, *arguments):
        return self.fn(*arguments, **self.constants)

    def __getitem__(self, grid: tuple[int, ...]):
        return functools.partial(self.run, grid=grid, warmup=False)


def is_kernel(function) -> bool:
    """Has ``@triton.jit`` been applied to it?"""
    return hasattr(function, "fn") and hasattr(function, "run") and hasattr(function, "__getitem__")


def is_stub(kernel, exercise_id: str) -> bool:
    """Does its body still raise what the stub raised? Found without running it: a compiler refuses ``raise``."""
    code = _innermost(kernel).__code__
    told = any(isinstance(c, str) and c.startswith(f"Exercise {exercise_id}:") for c in code.co_consts)
    return told and "NotImplementedError" in code.co_names


def run(launch: Launch, kernel) -> np.ndarray | tuple[np.ndarray, ...]:
    """What the kernel leaves in its outputs, as float64, in the order of its arguments; one output is no tuple.

    Raises :class:`Trespass`, ``NotCompiled``, ``DeviceLost``, or what the kernel's own lines raised.
    """
    interpreted = _is_interpreted(kernel)
    device = "cpu" if interpreted else GPU
    results = []
    for backwards in (False, True):
        if interpreted and backwards and math.prod(launch.grid) == 1:
            break  # a single program has no order
        order = _reversed_programs(launch.grid) if interpreted and backwards else contextlib.nullcontext()
        buffers = {n: _Buffer(n, a, device) for n, a in launch.arguments.items() if not isinstance(a, int)}
        arguments = [buffers[n].tensor if n in buffers else a for n, a in launch.arguments.items()]
        with _explained_errors(), order, np.errstate(all="ignore"):
            kernel[launch.grid](*arguments)
            if not interpreted:
                torch.cuda.synchronize()
        for buffer in buffers.values():
            buffer.refuse_trespass()
        results.append({n: b.result() for n, b in buffers.items() if b.written})
    for name, value in results[0].items():
        _refuse_order(name, value, results[-1][name], interpreted)
    outputs = tuple(results[0].values())
    return outputs[0] if len(outputs) == 1 else outputs


# --- buffers ------------------------------------------------------------------------------------


class _Buffer:
    """One tensor in the middle of canaries. Everything is compared as bits: a NaN may stand where a NaN stood."""

    def __init__(self, name: str, argument: Input | Output, device: str):
        self.name = name
        self.written = isinstance(argument, InOut | Output)
        self.read = isinstance(argument, Input)
        shape = argument.array.shape if self.read else argument.shape
        row = math.prod(shape[1:])
        stride = argument.stride if self.read else row
        span = (shape[0] - 1) * stride + row
        bits = torch.full((2 * BORDER + span,), CANARY, dtype=torch.int32)
        offsets = np.arange(shape[0])[:, None] * stride + np.arange(row)
        self.inside = torch.from_numpy(BORDER + offsets.reshape(shape))
        if self.read:
            values = np.ascontiguousarray(argument.array, dtype=np.float32)
            bits[self.inside] = torch.from_numpy(values.view(np.int32))
        self.before = bits
        self.bits = bits.to(device, copy=True)
        strides = (stride, *(math.prod(shape[i + 1 :]) for i in range(1, len(shape))))
        self.tensor = self.bits.view(torch.float32).as_strided(shape, strides, BORDER)

    def refuse_trespass(self) -> None:
        """A :class:`Trespass` that says what was written outside, what was changed and what was left out."""
        bits = self.bits.cpu()
        changed = bits != self.before
        if self.written:
            changed[self.inside] = False
        if changed.any():
            raise Trespass(self._what_changed(changed))
        missing = bits[self.inside] == CANARY
        if self.written and missing.any():
            first = tuple(int(i) for i in missing.nonzero()[0])
            count = f"; {int(missing.sum())} of {missing.numel()} entries" if missing.numel() > 1 else ""
            raise Trespass(f"{self.name}[{', '.join(map(str, first))}] was never written{count}")

    def _what_changed(self, changed: torch.Tensor) -> str:
        inside = int(changed[self.inside].sum())
        if inside:
            return f"your kernel wrote into its input {self.name}: {_numbers(inside)} changed"
        low, high = int(self.inside.min()), int(self.inside.max())
        counts = {
            "before its start": int(changed[:low].sum()),
            "behind its end": int(changed[high + 1 :].sum()),
            "between its rows": int(changed[low : high + 1].sum()),
        }
        told = " and ".join(f"{_numbers(n)} {place}" for place, n in counts.items() if n)
        return f"your kernel wrote outside {self.name}: {told} (mask the store: live tokens and channels only)"

    def result(self) -> np.ndarray:
        bits = self.bits.cpu()[self.inside].numpy()
        with np.errstate(all="ignore"):  # a signaling NaN is a NaN
            return bits.view(np.float32).astype(np.float64)


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


def _refuse_order(name: str, first: np.ndarray, second: np.ndarray, interpreted: bool) -> None:
    finite = np.abs(first[np.isfinite(first)])
    allowed = REPEATABLE * max(1.0, float(finite.max(initial=0.0)))
    with np.errstate(all="ignore"):
        same = (np.abs(first - second) <= allowed) | (first == second) | (np.isnan(first) & np.isnan(second))
    if same.all():
        return
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    place, values = f"{name}[{', '.join(map(str, at))}]", (f"{first[at]:.3g}", f"{second[at]:.3g}")
    if interpreted:
        told = f"{place} is {values[0]} with the programs in order and {values[1]} in reverse"
    else:
        told = f"{place} is {values[0]} in one run and {values[1]} in the next"
    raise Trespass(
        f"the result depends on the order in which the programs run: {told}; "
        "two programs write the same entry, or one reads what another writes"
    )


# --- Triton -------------------------------------------------------------------------------------


def _innermost(kernel):
    """The Python function under ``@triton.jit``."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _is_interpreted(kernel) -> bool:
    from triton.runtime.interpreter import InterpretedFunction  # the core of the library needs no Triton

    while not isinstance(kernel, InterpretedFunction) and is_kernel(getattr(kernel, "fn", None)):
        kernel = kernel.fn  # under a decorator of its own, such as triton.heuristics
    return isinstance(kernel, InterpretedFunction)


@contextlib.contextmanager
def _reversed_programs(grid: tuple[int, ...]) -> Iterator[None]:
    """The interpreter runs the programs of one launch from the last to the first.

    Triton has no public way to do so: it tells its builder which program comes next, and here each is told
    another one. A Triton that no longer does that is noticed, and not taken for a kernel that passes.
    """
    from triton.runtime.interpreter import interpreter_builder as builder

    sizes = (*grid, 1, 1)[:3]
    original, told = builder.set_grid_idx, 0

    def set_grid_idx(*place):
        nonlocal told
        told += 1
        original(*(size - 1 - i for size, i in zip(sizes, place)))

    builder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        del builder.set_grid_idx
    if told != math.prod(grid):
        raise RuntimeError(
            f"Triton's interpreter was to run {math.prod(grid)} programs and asked for {told}: "
            "this version of Triton does not let their order be reversed"
        )


@contextlib.contextmanager
def _explained_errors() -> Iterator[None]:
    """What a kernel raises, without what Triton wraps around it."""
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import InterpreterError

    try:
        yield
    except InterpreterError as error:
        while isinstance(error, InterpreterError) and error.__cause__ is not None:
            error = error.__cause__
        raise error from None
    except CompilationError as error:
        raise _not_compiled(error, CompilationError) from error
    except Exception as error:
        if any(words in str(error) for words in _FATAL):
            raise DeviceLost(
                f"{str(error).splitlines()[0]}: it read or wrote far outside its buffers (strides? masks?). Restart "
                "the notebook's kernel: until then nothing runs on the GPU"
            ) from error
        raise


def _not_compiled(error, kind: type[Exception]) -> NotCompiled:
    """The innermost compilation error of a chain: a helper's line, where a helper was called."""
    while isinstance(error.__cause__, kind):
        error = error.__cause__
    why = error.error_message or (str(error.__cause__) if error.__cause__ is not None else str(error))
    line, lines = getattr(error.node, "lineno", 0), (error.src or "").splitlines()
    code = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return NotCompiled(why.strip(), f"line {line} of the kernel: {code}" if code else "")
