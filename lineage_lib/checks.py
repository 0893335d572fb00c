"""Runs an exercise against a learner's function and explains a failure.

``check("3.2", ssd_quadratic)`` prints one line when every case passes and raises otherwise:
``NotImplementedError`` for an untouched stub, :class:`CheckFailed` for everything else. Its
message says which case failed, where, by how much, and which known mistake gives that output.
"""

import contextlib
import copy
import inspect
import io
import json
import linecache
import os
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lineage_lib.exercises import Case, Exercise, Mistake, find
from lineage_lib.hints import hint
from lineage_lib.validate import readable

__all__ = ["CheckFailed", "Malformed", "Verdict", "check", "hint", "judge"]


class _Explained(Exception):
    """Shown in a notebook as its message alone: the frames of the checker teach nothing."""

    def _render_traceback_(self):
        return str(self).splitlines()


class CheckFailed(_Explained, AssertionError):
    """A check did not pass; the message explains the first failing case."""


class NotAttempted(_Explained, NotImplementedError):
    """The answer cell still raises what the stub raised."""

    def _render_traceback_(self):
        return f"NotImplementedError: {self}".splitlines()


class Malformed(Exception):
    """A returned value cannot be compared at all; the message says what was expected instead."""


@dataclass(frozen=True)
class Verdict:
    """What a check found. ``cause`` is one of the words of the grading report."""

    exercise: Exercise
    cause: str
    message: str
    cases: int = 0
    mistake: str | None = None

    @property
    def passed(self) -> bool:
        return self.cause == "ok"


def check(exercise_id: str, function: Callable, *, case: int | None = None) -> None:
    """Run every case of an exercise, or only number ``case``, on the learner's function.

    The cases are drawn from the seed in ``LINEAGE_SEED`` (0 when it is not set).
    """
    exercise = find(exercise_id)
    verdict = judge(exercise, function, seed=int(os.environ.get("LINEAGE_SEED", "0")), only=case)
    _report(verdict)
    if verdict.cause == "not attempted":
        raise NotAttempted(verdict.message)
    if not verdict.passed:
        raise CheckFailed(verdict.message)
    print(verdict.message)


def judge(exercise: Exercise, function: Callable, *, seed: int = 0, only: int | None = None) -> Verdict:
    """The verdict on one function, without printing or raising."""
    if not callable(function):
        return Verdict(
            exercise,
            "wrong",
            f"{exercise.id} {exercise.name}: check needs the function itself, got {_kind(function)}\n"
            f'  again    check("{exercise.id}", {exercise.name})',
        )
    cases = exercise.seeded_cases(seed)
    if only is not None and not (isinstance(only, int) and 0 <= only < len(cases)):
        raise ValueError(f"case: expected a number from 0 to {len(cases) - 1}, got {only!r}")
    failure, returned = None, []
    slips = [_Slip(m, function) for m in exercise.mistakes if m.sign != "memory" for function in m.functions]
    exact, rounded = (_Suspects(exercise, slips, loose) for loose in (False, True))
    for number, case in enumerate(cases):  # every case narrows the suspects, also when one alone is asked for
        expected = _call(exercise, exercise.oracle, case)
        got = _call(exercise, function, case)
        returned.append((number, case, got, [part.copy() for part in got.parts]))
        if got.cause == "not attempted":
            return Verdict(exercise, "not attempted", _stub_message(exercise, got))
        known = {slip: _call(exercise, slip.function, case) for slip in rounded.left}
        problem = _compare(exercise, case, expected, got)
        for suspects in (exact, rounded):
            suspects.narrow(known, expected, got, problem)
        if problem is not None and failure is None and only in (None, number):
            failure = (number, case, problem, got)
        if failure is not None and not rounded.left:
            break

    ran = len(cases) if only is None else 1
    if failure is None:
        failure = _overwritten(exercise, (r for r in returned if only in (None, r[0])))
    if failure is None:
        which = f"{len(cases)} cases" if only is None else f"case {only}"
        return Verdict(exercise, "ok", exercise.ok_line(which), ran)
    number, case, problem, got = failure
    if problem.cause == "memory":
        mistake = next((m for m in exercise.mistakes if m.sign == "memory"), None)
    else:
        mistake = exact.found() or rounded.found()
    message = _explain(exercise, number, case, problem, got, mistake)
    return Verdict(exercise, problem.cause, message, ran, mistake.name if mistake else None)


@dataclass(frozen=True, eq=False)
class _Slip:
    """One way of making a known mistake."""

    mistake: Mistake
    function: Callable


class _Suspects:
    """The known mistakes that do what the learner's function did, in every case so far.

    ``loose`` compares as far as float32 goes, for who makes a known mistake in float32; then only a
    result that is wrong by much more than rounding is evidence.
    """

    def __init__(self, exercise: Exercise, slips: list[_Slip], loose: bool):
        self.exercise, self.loose = exercise, loose
        self.left = slips
        self.seen: set[_Slip] = set()

    def narrow(self, known: dict[_Slip, "_Outcome"], expected: "_Outcome", got: "_Outcome", problem) -> None:
        """Take a case into account: what each known mistake did in it, and what the learner's function did."""
        rtol = max(self.exercise.rtol, _ROUNDING) if self.loose else self.exercise.rtol
        self.left = [slip for slip in self.left if slip in known and _same(known[slip], got, rtol)]
        if problem is None or (self.loose and _same(expected, got, 10 * rtol)):
            return
        # Many slips raise the same IndexError: an exception alone is no evidence for one of them.
        self.seen |= {slip for slip in self.left if got.error is None or slip.mistake.sign == "error"}

    def found(self) -> Mistake | None:
        return next((slip.mistake for slip in self.left if slip in self.seen), None)


# --- one call -----------------------------------------------------------------------------------


@dataclass
class _Outcome:
    """What one call did: the compared parts, or why there are none."""

    cause: str = "ok"
    parts: list[np.ndarray] = field(default_factory=list)
    error: BaseException | None = None
    trouble: str = ""
    mutated: list[str] = field(default_factory=list)
    peak_bytes: int = 0
    printed: str = ""


def _call(exercise: Exercise, function: Callable, case: Case) -> _Outcome:
    args = [copy.deepcopy(a) for a in case.args]  # one by one: no two arguments share memory
    outcome, out = _Outcome(), io.StringIO()
    try:
        # A right answer may take log(0) on the way; what a learner prints is shown on failure only.
        silent = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
        with np.errstate(all="ignore"), warnings.catch_warnings(), silent[0], silent[1]:
            warnings.simplefilter("ignore")
            if case.max_bytes is not None:
                tracemalloc.start()
            output = function(*args)
            if case.max_bytes is not None:
                outcome.peak_bytes = tracemalloc.get_traced_memory()[1]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a learner's exit() must not end the kernel
        outcome.error = error
        outcome.cause = "memory" if isinstance(error, MemoryError) else "error"
        if isinstance(error, NotImplementedError) and str(error).startswith(f"Exercise {exercise.id}"):
            outcome.cause = "not attempted"
        return outcome
    finally:
        if case.max_bytes is not None:
            tracemalloc.stop()
        outcome.printed = out.getvalue()
    names = _argument_names(exercise)
    outcome.mutated = [n for n, a, b in zip(names, args, case.args) if not _unchanged(a, b)]
    try:
        outcome.parts = _parts(exercise, output, case)
    except Malformed as error:
        outcome.cause, outcome.trouble = "wrong", str(error)
    return outcome


def _argument_names(exercise: Exercise) -> list[str]:
    return list(inspect.signature(exercise.oracle).parameters)


def _unchanged(now, before) -> bool:
    if hasattr(before, "shape"):
        now, before = _array(now), _array(before)
        return now.shape == before.shape and np.array_equal(now, before, equal_nan=now.dtype.kind in "fc")
    if isinstance(before, list | tuple):
        return len(now) == len(before) and all(map(_unchanged, now, before))
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
            raise Malformed(f"what it returned cannot be used ({_said(error)})") from error
    labels = [_label(r) for r in exercise.returns]
    if len(labels) == 1:
        try:
            return [_array(output, labels[0])]
        except Malformed as error:
            if isinstance(output, tuple):
                raise Malformed(f"expected {labels[0]} alone, got a tuple of {len(output)} values") from error
            raise
    if not isinstance(output, list | tuple) or len(output) != len(labels):
        got = f"{len(output)} values" if isinstance(output, list | tuple) else _kind(output)
        raise Malformed(f"expected {len(labels)} values ({', '.join(labels)}), got {got}")
    return [_array(o, label) for o, label in zip(output, labels)]


def _array(value, label: str = "value") -> np.ndarray:
    try:
        array = np.asarray(readable(value))
    except ValueError as error:
        raise Malformed(f"{label} is not an array: its rows have different lengths") from error
    except Exception as error:  # what a learner returns can fail in any way
        raise Malformed(f"{label} cannot be read as an array ({_said(error)})") from error
    if array.dtype.kind not in "biufc":
        raise Malformed(f"{label} is not numeric, got {_kind(value)}")
    return array


def _label(returned: str) -> str:
    return returned.split("[")[0]


def _axes(returned: str) -> list[str]:
    inside = returned.partition("[")[2].rstrip("]")
    return [a.strip() for a in inside.split(",") if a.strip()]


def _kind(value) -> str:
    if value is None or isinstance(value, type):
        return "None" if value is None else f"the class {value.__name__}"
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{shape}"


def _said(error: BaseException) -> str:
    """``ValueError: bad shape``, on one line of bounded length, whatever the exception does."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return _short(f"{type(error).__name__}: {text}".strip().rstrip(":"))


def _short(text: str, length: int = 300) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


# --- comparing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    cause: str
    headline: str
    lines: tuple[tuple[str, str], ...] = ()


def _allowed(exercise: Exercise, expected: np.ndarray) -> float:
    return exercise.rtol * _scale(expected)


def _scale(expected: np.ndarray) -> float:
    """The largest finite entry, at least 1."""
    finite = np.abs(expected[np.isfinite(expected)])
    return max(1.0, float(finite.max(initial=0.0)))


def _wrong_entries(got: np.ndarray, expected: np.ndarray, allowed: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        got, expected = got.astype(np.complex128), expected.astype(np.complex128)
        near = np.abs(got - expected) <= allowed
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return ~(near | same)


_ROUNDING = 2e-5  # of the largest entry: what a computation in float32 may be off by


def _same(known: _Outcome, got: _Outcome, rtol: float) -> bool:
    """A call did what another does, a known mistake: equal values, or the same failure.

    A mistake that changes an argument is named for that one only; who makes another mistake and
    changes an argument besides is told of the values first.
    """
    if known.error is not None or got.error is not None:
        return type(known.error) is type(got.error) and _said(known.error) == _said(got.error)
    if known.trouble != got.trouble or len(known.parts) != len(got.parts):
        return False
    if known.mutated and known.mutated != got.mutated:
        return False
    pairs = zip(known.parts, got.parts)
    return all(x.shape == y.shape and not _wrong_entries(x, y, rtol * _scale(y)).any() for x, y in pairs)


def _compare(exercise: Exercise, case: Case, expected: _Outcome, got: _Outcome) -> _Problem | None:
    """The first thing that is wrong with one call, or None."""
    if expected.error is not None or expected.trouble:
        raise RuntimeError(f"exercise {exercise.id}: its oracle fails on its own case ({expected})") from expected.error
    if got.error is not None:
        return _Problem(got.cause, f"your function raised {type(got.error).__name__}", _error_lines(got.error))
    if got.trouble:
        return _Problem("wrong", got.trouble)
    for returned, want, have in zip(exercise.returns, expected.parts, got.parts):
        problem = _compare_part(exercise, returned, want, have)
        if problem is not None:
            return problem
    if got.mutated:
        return _Problem("wrong", _changed(exercise, case, got.mutated))
    if case.max_bytes is not None and got.peak_bytes > case.max_bytes:
        return _Problem(
            "memory",
            "the values are right, but it takes too much memory",
            (("memory", f"peak {_bytes(got.peak_bytes)}, allowed {_bytes(case.max_bytes)}"),),
        )
    return None


def _changed(exercise: Exercise, case: Case, names: list[str]) -> str:
    """What to do about arguments that were changed, with a call for each that is valid as it stands."""
    values = dict(zip(_argument_names(exercise), case.args))
    calls = [f"{n}.clone()" if hasattr(values[n], "clone") else f"{n}.copy()" for n in names]
    inputs, copies = ("input", "a copy") if len(names) == 1 else ("inputs", "copies")
    return f"your function changed its {inputs} {_listed(names)} in place; work on {copies}: {_listed(calls)}"


def _listed(words: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _overwritten(exercise: Exercise, returned) -> tuple[int, Case, _Problem, _Outcome] | None:
    """The first right result that a later call has changed: the learner's function reuses its memory."""
    for number, case, got, before in returned:
        for label, now, then in zip(exercise.returns, got.parts, before):
            if not _unchanged(now, then):
                headline = (
                    f"the {_label(label)} that your function returned has changed when it was called again; "
                    "make a new array in every call"
                )
                return number, case, _Problem("wrong", headline), got
    return None


def _compare_part(exercise: Exercise, returned: str, want: np.ndarray, have: np.ndarray) -> _Problem | None:
    label, axes = _label(returned), _axes(returned)
    if have.shape != want.shape:
        got, need = _shape(have.shape, ()), _shape(want.shape, axes)
        return _Problem("wrong", f"{label} has the wrong shape", (("shape", f"got {got}, expected {need}"),))
    allowed = _allowed(exercise, want)
    wrong = _wrong_entries(have, want, allowed)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    lines = [("where", _where(label, axes, first, wrong))] if want.ndim else []
    values = ("values", "got {}, expected {}".format(*_two_numbers(have[first], want[first])))
    bad = ~np.isfinite(have) & np.isfinite(want)
    if bad[first]:
        name = "NaN" if np.isnan(have[first]) else "an infinity"
        return _Problem("wrong", f"{label} contains {name} where a number is expected", (*lines, values))
    # A NaN further on must not hide how large the difference is where there is one.
    difference = float(np.nanmax(np.abs(have[wrong].astype(complex) - want[wrong].astype(complex))))
    limit = f", allowed {allowed:.1g}" if want.dtype.kind in "fc" else ""
    size = ("size", f"largest |difference| {difference:.3g}{limit}")
    coarse = have.dtype.kind == want.dtype.kind == "f" and have.dtype.itemsize < want.dtype.itemsize
    if have.dtype.kind == "c" or coarse:
        lines = [("dtype", f"got {have.dtype}, expected {want.dtype}"), *lines]
    if coarse:  # rounding to this dtype, and not a mistake, explains the difference
        coarse = difference <= 100 * float(np.finfo(have.dtype).eps) * _scale(want)
    whole = have.dtype.kind in "biu" and want.ndim > 0  # a single whole number may be what it is: min(2, x)
    if coarse or (whole and want.dtype.kind == "f"):
        why = f"it keeps about {np.finfo(have.dtype).precision + 1} digits" if coarse else "it cannot hold these values"
        dtype = ("dtype", f"got {have.dtype}, expected {want.dtype}: {why}")
        rest = [line for line in lines if line[0] != "dtype"]
        return _Problem("wrong", f"{label} has the wrong dtype", (dtype, *rest, size, values))
    return _Problem("wrong", f"{label} has wrong values", (*lines, size, values))


def _shape(shape: tuple[int, ...], axes: list[str]) -> str:
    if not shape:
        return "a single number"
    named = f" = ({', '.join(axes)})" if len(axes) == len(shape) else ""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''}){named}"


def _where(label: str, axes: list[str], first: tuple[int, ...], wrong: np.ndarray) -> str:
    spelled = f" ({', '.join(f'{a}={i}' for a, i in zip(axes, first))})" if len(axes) == len(first) else ""
    return f"first at {label}[{', '.join(map(str, first))}]{spelled}; {int(wrong.sum())} of {wrong.size} entries"


def _two_numbers(got, expected) -> tuple[str, str]:
    short = f"{got:.6g}", f"{expected:.6g}"
    return short if short[0] != short[1] else (f"{got:.17g}", f"{expected:.17g}")


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


# --- explaining ---------------------------------------------------------------------------------


def _explain(
    exercise: Exercise, number: int, case: Case, problem: _Problem, got: _Outcome, mistake: Mistake | None
) -> str:
    rows = [("case", _describe(exercise, case)), *problem.lines]
    if mistake is not None:
        rows.append(("likely", mistake.sentence))
    printed = got.printed.strip().splitlines()
    if printed:
        shown = [_short(line) for line in printed[:5]] + (
            [f"… {len(printed) - 5} more lines"] if len(printed) > 5 else []
        )
        rows.append(("printed", "\n           ".join(shown)))
    rows.append(("again", f'check("{exercise.id}", {exercise.name}, case={number})'))
    return "\n".join(
        [f"{exercise.id} {exercise.name}: {problem.headline}", *(f"  {key:<8} {text}" for key, text in rows)]
    )


def _describe(exercise: Exercise, case: Case) -> str:
    shown = []
    for name, value in zip(_argument_names(exercise), case.args):
        if hasattr(value, "shape"):
            dtype = str(value.dtype).removeprefix("torch.")
            shape = tuple(value.shape)
            shown.append(f"{name} {shape}" + ("" if dtype == "float64" else f" {dtype}"))
        else:
            shown.append(f"{name}={value!r}")
    return ", ".join(shown) + (f"; {case.note}" if case.note else "")


def _error_lines(error: BaseException) -> tuple[tuple[str, str], ...]:
    """What was raised, and the learner's own line that raised it: the last frame outside libraries."""
    rows = [("error", _said(error))]
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    ours = os.path.dirname(__file__) + os.sep
    own = [f for f in frames if "site-packages" not in f[0] and not f[0].startswith((ours, "<frozen"))]
    if own:
        file, line, name = own[-1]
        code = linecache.getline(file, line).strip()
        rows.append(("where", f"line {line}, in {name}" + (f": {code}" if code else "")))
    if isinstance(error, UnboundLocalError):
        rows.append(("note", "a variable is used before it gets a value: what should it be before the loop?"))
    elif isinstance(error, NameError):
        rows.append(("note", "grading takes answer cells alone: keep every helper inside the answer cell"))
    return tuple(rows)


def _stub_message(exercise: Exercise, got: _Outcome) -> str:
    return (
        f"Exercise {exercise.id}: {exercise.title}\n"
        f"  The stub's raise line was reached. Put your lines in its place; the function must return the result.\n"
        f'  Stuck? hint("{exercise.id}") shows one hint at a time.'
    )


def _report(verdict: Verdict) -> None:
    """Append the verdict to the file that a grading run names; nothing in a learner's notebook."""
    path = os.environ.get("LINEAGE_REPORT")
    if path:
        line = {
            "id": verdict.exercise.id,
            "cause": verdict.cause,
            "mistake": verdict.mistake,
            "message": verdict.message,
        }
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
