"""What one call of a learner's function did, and whether two calls did the same."""

import contextlib
import copy
import inspect
import io
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lineage_lib.exercises import Case, Exercise
from lineage_lib.validate import readable


class Malformed(Exception):
    """What came back cannot be compared at all; the message says what was expected instead."""


class NotCompiled(Exception):
    """Triton refused to compile a kernel; ``where`` is the line it stopped at, "" when it does not say."""

    def __init__(self, message: str, where: str = ""):
        super().__init__(message)
        self.where = where


class DeviceLost(Exception):
    """The GPU stopped a kernel, and nothing more can run on it in this process."""


@dataclass
class Outcome:
    """What one call did: the compared parts, or why there are none."""

    cause: str = "ok"
    parts: list[np.ndarray] = field(default_factory=list)
    error: BaseException | None = None
    lost: bool = False  # nothing more can run in this process
    trouble: str = ""
    mutated: list[str] = field(default_factory=list)
    strays: str | None = None  # what a kernel read outside its tensors; None: nobody looked
    early: tuple[str, ...] = ()  # outputs that a kernel read before it wrote them
    blank: bool = False  # a kernel's masked load had no other=
    narrow: bool = False  # a kernel computed in bfloat16 under Triton's interpreter
    peak_bytes: int = 0
    printed: str = ""


def call(exercise: Exercise, function: Callable, case: Case) -> Outcome:
    args = [copy.deepcopy(a) for a in case.args]  # one by one: no two arguments share memory
    outcome, out = Outcome(), io.StringIO()
    try:
        # A right answer may take log(0) on the way; what a learner prints is shown on failure only.
        silent = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
        with np.errstate(all="ignore"), warnings.catch_warnings(), silent[0], silent[1]:
            warnings.simplefilter("ignore")
            if case.max_bytes is not None:
                tracemalloc.start()
            output = _output(exercise, function, args, outcome)
            if case.max_bytes is not None:
                outcome.peak_bytes = tracemalloc.get_traced_memory()[1]
    except KeyboardInterrupt:
        raise
    except Malformed as error:
        outcome.cause, outcome.trouble = "wrong", str(error)
        return outcome
    except BaseException as error:  # SystemExit too: a learner's exit() must not end the kernel
        outcome.error, outcome.lost = error, isinstance(error, DeviceLost)
        outcome.cause = "memory" if isinstance(error, MemoryError) else "error"
        if isinstance(error, NotImplementedError) and str(error).startswith(f"Exercise {exercise.id}"):
            outcome.cause = "not attempted"
        return outcome
    finally:
        if case.max_bytes is not None:
            tracemalloc.stop()
        outcome.printed = out.getvalue()
    names = argument_names(exercise)
    outcome.mutated = [n for n, a, b in zip(names, args, case.args) if not unchanged(a, b)]
    try:
        outcome.parts = _parts(exercise, output, case)
    except Malformed as error:
        outcome.cause, outcome.trouble = "wrong", str(error)
    return outcome


def _output(exercise: Exercise, function: Callable, args: list, outcome: Outcome):
    """What a function returns, or what a kernel leaves in its outputs; how it read them goes into ``outcome``."""
    if exercise.launch is None or function is exercise.oracle:
        return function(*args)
    from lineage_lib import launching  # needs PyTorch, which most chapters do without

    ran = launching.run(exercise.launch(*args), function)
    outcome.strays, outcome.early, outcome.blank, outcome.narrow = ran.strays, ran.early, ran.blank, ran.narrow
    return ran.values


def argument_names(exercise: Exercise) -> list[str]:
    return list(inspect.signature(exercise.oracle).parameters)


def unchanged(now, before) -> bool:
    if hasattr(before, "shape"):
        now, before = as_array(now), as_array(before)
        return now.shape == before.shape and np.array_equal(now, before, equal_nan=now.dtype.kind in "fc")
    if isinstance(before, list | tuple):
        return len(now) == len(before) and all(map(unchanged, now, before))
    return type(now) is type(before) and now == before


def _parts(exercise: Exercise, output, case: Case) -> list[np.ndarray]:
    """The returned value as one array a label of ``exercise.returns``."""
    if output is None:
        raise Malformed("your function returned None: is a return statement missing?")
    if exercise.view is not None:
        try:
            output = exercise.view(output, *copy.deepcopy(case.args))
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"what it returned cannot be used ({said(error)})") from error
    labels = [label_of(r) for r in exercise.returns]
    if len(labels) == 1:
        try:
            return [as_array(output, labels[0])]
        except Malformed as error:
            if isinstance(output, tuple):
                raise Malformed(f"expected {labels[0]} alone, got a tuple of {len(output)} values") from error
            raise
    if not isinstance(output, list | tuple) or len(output) != len(labels):
        got = f"{len(output)} values" if isinstance(output, list | tuple) else kind_of(output)
        raise Malformed(f"expected {len(labels)} values ({', '.join(labels)}), got {got}")
    return [as_array(o, label) for o, label in zip(output, labels)]


def as_array(value, label: str = "value") -> np.ndarray:
    try:
        array = np.asarray(readable(value))
    except ValueError as error:
        raise Malformed(f"{label} is not an array: its rows have different lengths") from error
    except Exception as error:  # what a learner returns can fail in any way
        raise Malformed(f"{label} cannot be read as an array ({said(error)})") from error
    if array.dtype.kind not in "biufc":
        raise Malformed(f"{label} is not numeric, got {kind_of(value)}")
    return array


def label_of(returned: str) -> str:
    return returned.split("[")[0]


def axes_of(returned: str) -> list[str]:
    inside = returned.partition("[")[2].rstrip("]")
    return [a.strip() for a in inside.split(",") if a.strip()]


def kind_of(value) -> str:
    if value is None or isinstance(value, type):
        return "None" if value is None else f"the class {value.__name__}"
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{shape}"


def said(error: BaseException) -> str:
    """``ValueError: bad shape``, on one line of bounded length, whatever the exception does."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return shortened(f"{type(error).__name__}: {text}".strip().rstrip(":"))


def shortened(text: str, length: int = 300) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def scale_of(expected: np.ndarray) -> float:
    """The largest finite entry, at least 1."""
    finite = np.abs(expected[np.isfinite(expected)])
    return max(1.0, float(finite.max(initial=0.0)))


def wrong_entries(got: np.ndarray, expected: np.ndarray, allowed: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        got, expected = got.astype(np.complex128), expected.astype(np.complex128)
        near = np.abs(got - expected) <= allowed
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return ~(near | same)


ROUNDING = 2e-5  # of the largest entry: what a computation in float32 may be off by


def did_the_same(known: Outcome, got: Outcome, rtol: float) -> bool:
    """A call did what another does, a known mistake: equal values, or the same failure.

    A mistake that changes an argument is named for that one only; who makes another mistake and
    changes an argument besides is told of the values first.
    """
    if known.error is not None or got.error is not None:
        return type(known.error) is type(got.error) and said(known.error) == said(got.error)
    if known.trouble != got.trouble or len(known.parts) != len(got.parts):
        return False
    if known.mutated and known.mutated != got.mutated:
        return False
    if known.strays and got.strays is not None and known.strays != got.strays:
        return False  # both may be NaN throughout, but not out of the same place
    pairs = zip(known.parts, got.parts)
    return all(x.shape == y.shape and not wrong_entries(x, y, rtol * scale_of(y)).any() for x, y in pairs)
