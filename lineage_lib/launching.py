"""Launches a learner's Triton kernel on guarded buffers, and says where it read or wrote what it may not.

Each tensor lies inside a larger buffer filled with a signaling NaN: around it, between its rows where it is
strided, and inside an output. Loading and storing leave its bits alone, any arithmetic changes them. So an
access outside shows: what was read poisons the result, what was written has changed the buffer, and an output
that still holds these bits was never written.

Triton's interpreter is also asked for the address of every load, store and atomic, so that a load outside is seen
even where its number is thrown away, and an address far from everything before it ends the process. What it fills
with zeros, the masked lanes of a load without ``other=``, is NaN here: a GPU leaves anything there.

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
    arguments: dict[str, "Input | Output | int | float"]


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


@dataclass(frozen=True)
class Ran:
    """What a launch left behind.

    values     the outputs as float64, in the order of the arguments; one output is no tuple
    strays     what was read outside, in words, "" for nothing; None: a GPU ran it, and nobody looked
    early      names of the outputs that were read where nothing had been written yet
    blank      a load left lanes open: its mask was off there, and it had no ``other=``
    narrow     something was computed in bfloat16, which Triton's interpreter takes for whole numbers
    """

    values: np.ndarray | tuple[np.ndarray, ...]
    strays: str | None = None
    early: tuple[str, ...] = ()
    blank: bool = False
    narrow: bool = False


def run(launch: Launch, kernel) -> Ran:
    """Launch the kernel on fresh buffers, twice where there is an order to change.

    Raises :class:`Trespass`, ``NotCompiled``, ``DeviceLost``, or what the kernel's own lines raised.
    """
    interpreted = _is_interpreted(kernel)
    device = "cpu" if interpreted else GPU
    results, watches = [], []
    for backwards in (False, True):
        if interpreted and backwards and math.prod(launch.grid) == 1:
            break  # a single program has no order
        order = _reversed_programs(launch.grid) if interpreted and backwards else contextlib.nullcontext()
        buffers = {n: _Buffer(n, a, device) for n, a in launch.arguments.items() if not isinstance(a, int | float)}
        arguments = [buffers[n].tensor if n in buffers else a for n, a in launch.arguments.items()]
        watch = _Watch([*buffers.values()]) if interpreted else None
        with _explained_errors(), order, watch or contextlib.nullcontext(), np.errstate(all="ignore"):
            kernel[launch.grid](*arguments)
            if not interpreted:
                torch.cuda.synchronize()
        for buffer in buffers.values():
            buffer.refuse_trespass()
        results.append({n: b.result() for n, b in buffers.items() if b.written})
        watches += [watch] if interpreted else []
    for name, value in results[0].items():
        _refuse_order(name, value, results[-1][name], interpreted)
    outputs = tuple(results[0].values())
    values = outputs[0] if len(outputs) == 1 else outputs
    if not interpreted:
        return Ran(values)
    strays, first = next((w.strays() for w in watches if w.strays()), ""), watches[0]
    return Ran(values, strays, first.early(), first.blank, first.narrow)


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
        told = self.whereabouts(changed)
        return f"your kernel wrote outside {told} (mask the store: live tokens and channels only)"

    def whereabouts(self, marked: torch.Tensor) -> str:
        """``y: 2 numbers behind its end``, of marked entries outside the tensor."""
        low, high = int(self.inside.min()), int(self.inside.max())
        counts = {
            "before its start": int(marked[:low].sum()),
            "behind its end": int(marked[high + 1 :].sum()),
            "between its rows": int(marked[low : high + 1].sum()),
        }
        return f"{self.name}: " + " and ".join(f"{_numbers(n)} {place}" for place, n in counts.items() if n)

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


# Methods of the interpreter's builder: the positions of their pointers and their mask.
_ACCESSES = {"create_masked_load": (0, 1), "create_masked_store": (0, 2), "create_atomic_rmw": (1, 3)}
_ARITHMETIC = ("create_dot", "binary_op")  # methods whose first two arguments are tiles


class _Watch:
    """Sees the address of every load, store and atomic that Triton's interpreter runs inside ``with``.

    Triton has no public way to do so: its builder gets the pointers and the mask of each, and here passes them on.
    So it also sees bfloat16 tiles in arithmetic, and puts NaN where a masked load has no ``other=``.
    A Triton whose builder no longer does that is noticed, and not taken for a kernel that stays inside.
    """

    def __init__(self, buffers: list[_Buffer]):
        self.arguments, self.buffers = buffers, sorted(buffers, key=lambda b: b.bits.data_ptr())
        self.starts = np.array([b.bits.data_ptr() for b in self.buffers])
        self.sizes = np.array([len(b.bits) for b in self.buffers])
        self.firsts = np.cumsum(self.sizes) - self.sizes  # all buffers behind each other: one number an entry
        self.stray, self.inside, self.fresh, self.hasty = np.zeros((4, self.sizes.sum()), bool)
        self.blank = self.narrow = False
        for first, buffer in zip(self.firsts, self.buffers):
            own = first + buffer.inside.numpy()
            self.inside[own] = True
            self.fresh[own] = not buffer.read

    def __enter__(self) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        for method, (pointers, mask) in _ACCESSES.items():
            setattr(builder, method, self._watched(getattr(builder, method), pointers, mask))
        for method in _ARITHMETIC:
            setattr(builder, method, self._reckoned(getattr(builder, method)))
        try:
            self._refuse_blindness(builder)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *raised) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        for method in (*_ACCESSES, *_ARITHMETIC):
            delattr(builder, method)

    def _watched(self, original, pointers: int, mask: int):
        reads, writes = original.__name__ != "create_masked_store", original.__name__ != "create_masked_load"

        def watched(*arguments, **options):
            self._see(arguments[pointers].data, arguments[mask].data, reads, writes)
            if not writes:
                arguments = self._open_lanes(*arguments)
            return original(*arguments, **options)

        return watched

    def _reckoned(self, original):
        import triton.language as tl

        def reckoned(a, b, *arguments, **options):
            self.narrow |= tl.bfloat16 in (a.dtype.scalar, b.dtype.scalar)
            return original(a, b, *arguments, **options)

        return reckoned

    def _open_lanes(self, pointers, mask, other, *rest):
        """A load's arguments, with NaN for the lanes that its mask switches off and no ``other=`` fills."""
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        if other is None and pointers.get_element_ty() == tl.float32 and not np.all(mask.data):
            self.blank = True
            other = TensorHandle(np.full(pointers.data.shape, np.nan, np.float32), tl.float32)
        return pointers, mask, other, *rest

    def _see(self, pointers: np.ndarray, mask: np.ndarray, reads: bool, writes: bool) -> None:
        addresses = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)].astype(np.int64)
        owners = np.searchsorted(self.starts, addresses, side="right") - 1
        entries = (addresses - self.starts[owners]) // 4
        if ((owners < 0) | (entries >= self.sizes[owners])).any():
            what = "read" if reads else "write"
            raise Trespass(
                f"your kernel was about to {what} more than {BORDER} entries away from every tensor: is a stride "
                "wrong, or a number that is no token?"
            )
        entries += self.firsts[owners]
        if reads:
            self.stray[entries] |= ~self.inside[entries]
            self.hasty[entries] |= self.fresh[entries]
        if writes:
            self.fresh[entries] = False

    def _refuse_blindness(self, builder) -> None:
        """Load the first entry of the first border, and see whether that was seen."""
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        pointer = TensorHandle(self.starts[:1].astype(np.uint64), tl.pointer_type(tl.float32))
        builder.create_load(pointer, None, None, False)
        if not self.stray[0]:
            raise RuntimeError("this version of Triton does not let its loads be watched")
        self.stray[0] = False

    def _marked(self, entries: np.ndarray) -> Iterator[tuple[_Buffer, torch.Tensor]]:
        """The buffers with marked entries, in the order of the arguments: where they lie changes from run to run."""
        places = zip(self.buffers, self.firsts, self.sizes)
        for buffer, first, size in sorted(places, key=lambda place: self.arguments.index(place[0])):
            if entries[first : first + size].any():
                yield buffer, torch.from_numpy(entries[first : first + size])

    def strays(self) -> str:
        """``your kernel read outside k: 5 numbers behind its end``, or "": every load stayed inside."""
        told = "; outside ".join(buffer.whereabouts(marked) for buffer, marked in self._marked(self.stray))
        return f"your kernel read outside {told}" if told else ""

    def early(self) -> tuple[str, ...]:
        return tuple(buffer.name for buffer, _ in self._marked(self.hasty))


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
