"""Runs an exercise against a learner's function and explains a failure.

``check("3.2", ssd_quadratic)`` prints one line when every case passes and raises otherwise:
``NotImplementedError`` for an untouched stub, :class:`CheckFailed` for everything else. Its
message says which case failed, where, by how much, and which known mistake gives that output.
"""

import json
import linecache
import os
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lineage_lib.exercises import Case, Exercise, Mistake, find
from lineage_lib.hints import hint
from lineage_lib.outcomes import (
    ROUNDING,
    DeviceLost,
    Malformed,
    NotCompiled,
    Outcome,
    argument_names,
    axes_of,
    call,
    did_the_same,
    kind_of,
    label_of,
    said,
    scale_of,
    shortened,
    unchanged,
    wrong_entries,
)

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
    refused = _refuse(exercise, function)
    if refused is not None:
        return refused
    cases = exercise.seeded_cases(seed)
    if only is not None and not (isinstance(only, int) and 0 <= only < len(cases)):
        raise ValueError(f"case: expected a number from 0 to {len(cases) - 1}, got {only!r}")
    failure, returned, told = None, [], []
    slips = [_Slip(m, function) for m in exercise.mistakes if m.sign != "memory" for function in m.functions]
    exact, rounded = (_Suspects(exercise, slips, loose) for loose in (False, True))
    for number, case in enumerate(cases):  # every case narrows the suspects, also when one alone is asked for
        expected = call(exercise, exercise.oracle, case)
        got = call(exercise, function, case)
        if got.cause == "not attempted":
            return _not_attempted(exercise)
        kept = [part.copy() for part in got.parts]  # a later call may overwrite what this one returned
        returned.append((number, case, got, kept))
        problem = _compare(exercise, case, expected, got)
        told.append((case, expected, replace(got, parts=kept), problem))
        if problem is not None and failure is None and only in (None, number):
            failure = (number, case, problem, got)
        if failure is None:
            continue
        if got.lost:
            break
        while told and rounded.left:  # only now: no known mistake need run beside a right answer
            _narrow(exact, rounded, function, *told.pop(0))
        if not rounded.left:
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


def _refuse(exercise: Exercise, function) -> Verdict | None:
    """The verdict on what cannot be run at all; None: it can."""
    needs = None if callable(function) else f"the function itself, got {kind_of(function)}"
    if needs is None and exercise.launch is not None and function is not exercise.oracle:
        from lineage_lib import launching  # needs PyTorch, which most chapters do without

        if launching.is_kernel(function):
            return _not_attempted(exercise) if launching.is_stub(function, exercise.id) else None
        needs = f"a Triton kernel, got a {type(function).__name__}: put @triton.jit above its def"
    if needs is None:
        return None
    message = f'{exercise.id} {exercise.name}: check needs {needs}\n  again    check("{exercise.id}", {exercise.name})'
    return Verdict(exercise, "wrong", message)


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

    def narrow(self, known: dict[_Slip, Outcome], expected: Outcome, got: Outcome, problem) -> None:
        """Take a case into account: what each known mistake did in it, and what the learner's function did."""
        rtol = max(self.exercise.rtol, ROUNDING) if self.loose else self.exercise.rtol
        self.left = [slip for slip in self.left if slip in known and did_the_same(known[slip], got, rtol)]
        if problem is None or (self.loose and did_the_same(expected, got, 10 * rtol)):
            return
        # Many slips raise the same IndexError: an exception alone is no evidence for one of them.
        self.seen |= {slip for slip in self.left if got.error is None or slip.mistake.sign == "error"}

    def found(self) -> Mistake | None:
        return next((slip.mistake for slip in self.left if slip in self.seen), None)


def _narrow(exact: _Suspects, rounded: _Suspects, function, case: Case, expected: Outcome, got: Outcome, problem):
    """Take a case into account. A known mistake that is itself being judged has just run."""
    known = {s: got if s.function is function else call(exact.exercise, s.function, case) for s in rounded.left}
    for suspects in (exact, rounded):
        suspects.narrow(known, expected, got, problem)


# --- comparing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    cause: str
    headline: str
    lines: tuple[tuple[str, str], ...] = ()
    guess: str = ""  # told only where no known mistake is named


def _allowed(exercise: Exercise, expected: np.ndarray) -> float:
    return exercise.rtol * scale_of(expected)


def _compare(exercise: Exercise, case: Case, expected: Outcome, got: Outcome) -> _Problem | None:
    """The first thing that is wrong with one call, or None."""
    if expected.error is not None or expected.trouble:
        raise RuntimeError(f"exercise {exercise.id}: its oracle fails on its own case ({expected})") from expected.error
    if got.error is not None:
        return _Problem(got.cause, *_raised(exercise, got.error))
    if got.trouble:
        return _Problem("wrong", got.trouble)
    for returned, want, have in zip(exercise.returns, expected.parts, got.parts):
        problem = _compare_part(exercise, returned, want, have, got)
        if problem is not None:
            return problem
    if got.strays:
        why = "what it read there was thrown away, but a GPU may stop a kernel for the access alone: mask the load"
        return _Problem("wrong", f"the values are right, but {got.strays}", (("note", why),))
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
    values = dict(zip(argument_names(exercise), case.args))
    calls = [f"{n}.clone()" if hasattr(values[n], "clone") else f"{n}.copy()" for n in names]
    inputs, copies = ("input", "a copy") if len(names) == 1 else ("inputs", "copies")
    return f"your function changed its {inputs} {_listed(names)} in place; work on {copies}: {_listed(calls)}"


def _listed(words: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _overwritten(exercise: Exercise, returned) -> tuple[int, Case, _Problem, Outcome] | None:
    """The first right result that a later call has changed: the learner's function reuses its memory."""
    for number, case, got, before in returned:
        for label, now, then in zip(exercise.returns, got.parts, before):
            if not unchanged(now, then):
                headline = (
                    f"the {label_of(label)} that your function returned has changed when it was called again; "
                    "make a new array in every call"
                )
                return number, case, _Problem("wrong", headline), got
    return None


def _compare_part(
    exercise: Exercise, returned: str, want: np.ndarray, have: np.ndarray, got: Outcome
) -> _Problem | None:
    label, axes = label_of(returned), axes_of(returned)
    if have.shape != want.shape:
        got, need = _shape(have.shape, ()), _shape(want.shape, axes)
        return _Problem("wrong", f"{label} has the wrong shape", (("shape", f"got {got}, expected {need}"),))
    allowed = _allowed(exercise, want)
    wrong = wrong_entries(have, want, allowed)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    lines = [("where", _where(label, axes, first, wrong))] if want.ndim else []
    negligible = min(1e-12 * scale_of(want), 1e-3 * allowed)  # what an oracle's rounding leaves for a zero
    shown = (0.0 if abs(x) <= negligible else x for x in (have[first], want[first]))
    values = ("values", "got {}, expected {}".format(*_two_numbers(*shown)))
    bad = ~np.isfinite(have) & np.isfinite(want)
    if bad[first]:
        name = "NaN" if np.isnan(have[first]) else "an infinity"
        notes = [("note", _whence(got))] if exercise.launch is not None and name == "NaN" else []
        return _Problem("wrong", f"{label} contains {name} where a number is expected", (*lines, values, *notes))
    # A NaN further on must not hide how large the difference is where there is one.
    difference = float(np.nanmax(np.abs(have[wrong].astype(complex) - want[wrong].astype(complex))))
    limit = f", allowed {allowed:.1g}" if want.dtype.kind in "fc" else ""
    size = ("size", f"largest |difference| {difference:.3g}{limit}")
    coarse = have.dtype.kind == want.dtype.kind == "f" and have.dtype.itemsize < want.dtype.itemsize
    if have.dtype.kind == "c" or coarse:
        lines = [("dtype", f"got {have.dtype}, expected {want.dtype}"), *lines]
    if coarse:  # rounding to this dtype, and not a mistake, explains the difference
        coarse = difference <= 100 * float(np.finfo(have.dtype).eps) * scale_of(want)
    whole = have.dtype.kind in "biu" and want.ndim > 0  # a single whole number may be what it is: min(2, x)
    if coarse or (whole and want.dtype.kind == "f"):
        why = f"it keeps about {np.finfo(have.dtype).precision + 1} digits" if coarse else "it cannot hold these values"
        dtype = ("dtype", f"got {have.dtype}, expected {want.dtype}: {why}")
        rest = [line for line in lines if line[0] != "dtype"]
        return _Problem("wrong", f"{label} has the wrong dtype", (dtype, *rest, size, values))
    notes = [("note", f"{got.strays}: is a load without its mask, or a stride wrong?")] if got.strays else []
    guess = "" if exercise.launch is None else _why_so_much(difference / scale_of(want), got)
    return _Problem("wrong", f"{label} has wrong values", (*lines, size, values, *notes), guess)


_COARSE = 2e-3  # of the largest entry: what rounding the factors to TF32 or 16 bits leaves
_NONSENSE = 1e6  # of the largest entry: no decay that was forgotten makes so much of these cases


def _why_so_much(difference: float, got: Outcome) -> str:
    """What a kernel's difference, relative to the largest entry, says about where it comes from."""
    if difference <= _COARSE:
        return (
            'so small a difference comes from rounding (16 bits somewhere, a dot without input_precision="ieee"), '
            "or from something left out that has almost decayed"
        )
    if difference >= _NONSENSE and got.narrow:
        return "so large a difference: Triton's interpreter computes wrongly with bfloat16 tiles; cast to float32"
    if difference >= _NONSENSE:
        return (
            "so large a difference: numbers on the way have grown far beyond the result; powers of a table, or an "
            "exponential of a positive number?"
        )
    return ""


def _whence(got: Outcome) -> str:
    """Where the NaN in a kernel's result may come from."""
    if got.strays:
        return f"{got.strays}, where NaN lies: is a load without its mask, or a stride wrong?"
    if got.early:
        return f"your kernel read {_listed([*got.early])} where it had written nothing yet: an output starts as NaN"
    if got.blank:
        return (
            "a masked load without other= leaves anything in the lanes that its mask switches off, here NaN: say "
            "other=0.0. Or is it infinity times 0, or infinity minus infinity?"
        )
    if got.strays is not None:
        return "no load left its tensor: is it infinity times 0, or infinity minus infinity?"
    return (
        "NaN lies around every tensor and between the rows of those with a stride, and fills every output until it is "
        "written: is a load without its mask, a stride wrong, an output read? Or is it infinity times 0?"
    )


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
    exercise: Exercise, number: int, case: Case, problem: _Problem, got: Outcome, mistake: Mistake | None
) -> str:
    rows = [("case", _describe(exercise, case)), *problem.lines]
    if mistake is not None:
        rows.append(("likely", mistake.sentence))
    elif problem.guess:
        rows.append(("note", problem.guess))
    printed = got.printed.strip().splitlines()
    if printed:
        shown = [shortened(line) for line in printed[:5]] + (
            [f"… {len(printed) - 5} more lines"] if len(printed) > 5 else []
        )
        rows.append(("printed", "\n           ".join(shown)))
    rows.append(("again", f'check("{exercise.id}", {exercise.name}, case={number})'))
    return "\n".join(
        [f"{exercise.id} {exercise.name}: {problem.headline}", *(f"  {key:<8} {text}" for key, text in rows)]
    )


def _describe(exercise: Exercise, case: Case) -> str:
    shown = []
    for name, value in zip(argument_names(exercise), case.args):
        if hasattr(value, "shape"):
            dtype = str(value.dtype).removeprefix("torch.")
            shape = tuple(value.shape)
            shown.append(f"{name} {shape}" + ("" if dtype == "float64" else f" {dtype}"))
        else:
            shown.append(f"{name}={value!r}")
    return ", ".join(shown) + (f"; {case.note}" if case.note else "")


_KERNEL_NOTES = {  # what is meant by what Triton's interpreter says
    "object is not iterable": "a tile has no entries to pick, b[0] or b[C - 1]: load that entry with a pointer of its "
    "own, or keep it with tl.where, zeros elsewhere, and add up with tl.sum",
    "positional argument": "the check launches the kernel with all arguments of the answer cell's signature, in that "
    "order: keep the signature as it is",
    "'to_tensor'": "on tiles only Triton's own functions work: tl.exp, not np.exp or torch.exp",
}


def _raised(exercise: Exercise, error: BaseException) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A headline, what was raised, and the learner's own line that raised it: the last frame outside libraries."""
    if isinstance(error, NotCompiled):
        rows = [("error", shortened(str(error)))] + [("where", error.where)] * bool(error.where)
        return "your kernel does not compile", tuple(rows)
    if isinstance(error, DeviceLost):
        return "the GPU stopped your kernel", (("error", str(error)),)
    rows = [("error", said(error))]
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    foreign = (os.path.dirname(__file__) + os.sep, sysconfig.get_path("stdlib") + os.sep, "<frozen")
    own = [f for f in frames if "site-packages" not in f[0] and not f[0].startswith(foreign)]
    if own:
        file, line, name = own[-1]
        code = linecache.getline(file, line).strip()
        rows.append(("where", f"line {line}, in {name}" + (f": {code}" if code else "")))
    if isinstance(error, UnboundLocalError):
        rows.append(("note", "a variable is used before it gets a value: what should it be before the loop?"))
    elif isinstance(error, NameError):
        rows.append(("note", "grading takes answer cells alone: keep every helper inside the answer cell"))
    elif exercise.launch is not None:
        rows += [("note", note) for words, note in _KERNEL_NOTES.items() if words in str(error)]
    what = "function" if exercise.launch is None else "kernel"
    return f"your {what} raised {type(error).__name__}", tuple(rows)


def _not_attempted(exercise: Exercise) -> Verdict:
    if exercise.launch is None:
        told = "The stub's raise line was reached. Put your lines in its place; the function must return the result."
    else:
        told = "The stub's raise line is still there. Put your lines in its place; a kernel stores its results."
    stuck = f'Stuck? hint("{exercise.id}") shows one hint at a time.'
    message = f"Exercise {exercise.id}: {exercise.title}\n  {told}\n  {stuck}"
    return Verdict(exercise, "not attempted", message)


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
