"""Runs a merged notebook under ``pytest --nbval`` in a folder of its own, and says what came of each exercise.

The verdict "ok" is nbval's: the check cell ran, in the pristine notebook, and printed exactly what
the solution's check printed. What ``check`` itself reported only explains a failure.

When a timeout or a dead kernel ends a run, the exercise at fault is set aside and the others run
again without it.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from lineage_lib.exercises import Exercise
from lineage_lib.grading.merge import Answer, Chapter, Finding
from lineage_lib.paths import ROOT

_PLUGIN = Path(__file__).with_name("nbval_watch.py")
_OUT_OF_MEMORY = re.compile(r"MemoryError|can't allocate memory|bad_alloc")
_SETTINGS = re.compile(r"(LINEAGE|PYTEST|IPYTHON|COVERAGE)_?.*")
_RUNNING: set[subprocess.Popen] = set()
_STOPPED = threading.Event()


@dataclass(frozen=True)
class Limits:
    """What one run may use. Times in seconds, memory of the kernel in MB."""

    cell_timeout: float = 60
    memory_mb: int = 4096

    def wall(self, exercises: int) -> float:
        """Longer than any run whose cells each keep their own limit."""
        return 180 + 2 * exercises * self.cell_timeout


@dataclass(frozen=True)
class CellResult:
    """What the watching plugin recorded of one code cell. ``end``: "timeout" or "kernel died" ended the run here."""

    passed: bool = False
    end: str | None = None
    exit_code: int | None = None
    error: dict | None = None
    message: str = ""
    checks: list[str] = field(default_factory=list)

    @property
    def raised(self) -> str:
        """``ValueError: bad shape (line 3)``, or what nbval said instead."""
        if self.error is None:
            return self.message
        line = f" (line {self.error['line']})" if self.error["line"] else ""
        return f"{self.error['name']}: {self.error['value']}".rstrip(": ") + line

    def report_on(self, exercise: Exercise) -> Finding | None:
        """The last thing that ``check`` reported about this exercise while the cell ran."""
        for line in reversed(self.checks):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                told = json.loads(line)
                if told["id"] == exercise.id:
                    return Finding(told["cause"], str(told["message"]), told["mistake"])
        return None


@dataclass
class Outcome:
    """The verdict on every exercise that had an answer, and what went wrong outside of them."""

    findings: dict[str, Finding] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run(chapter: Chapter, answers: dict[str, Answer], seed: int, limits: Limits) -> Outcome:
    """Grade these answers of one chapter."""
    outcome, left = Outcome(), dict(answers)
    while left:
        notebook = chapter.with_answers({i: a.source for i, a in left.items()})
        results, trouble = _execute(notebook, seed, limits, len(chapter.exercises))
        at_fault = _at_fault(chapter, left, results)
        if at_fault is None:
            _conclude(outcome, chapter, left, results, trouble)
            break
        outcome.findings[at_fault.id] = _finding(at_fault, left.pop(at_fault.id), results, limits)
        rest = [e.id for e in chapter.exercises]
        if not set(rest[rest.index(at_fault.id) :]) & set(left):  # nothing after it: all others are decided
            _conclude(outcome, chapter, left, results, "")
            break
    return outcome


def stop_all() -> None:
    """End every run of this process, and let none begin."""
    _STOPPED.set()
    for process in list(_RUNNING):
        _kill(process.pid)


# --- one run ------------------------------------------------------------------------------------


def _execute(notebook, seed: int, limits: Limits, exercises: int) -> tuple[dict[str, CellResult], str]:
    """Results by cell id, and a sentence when the run as a whole went wrong."""
    with tempfile.TemporaryDirectory(prefix="lineage-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        nbformat.write(notebook, folder / "merged.ipynb")
        shutil.copy(_PLUGIN, folder)
        (folder / "grading.ini").write_text("[pytest]\n")
        record, said = folder / "record", folder / "said"
        command = [sys.executable, "-m", "pytest", "-c", "grading.ini", "--rootdir=.", "--noconftest", "-q"]
        command += [
            "-p",
            "no:cacheprovider",
            "-p",
            "nbval.plugin",
            "-p",
            _PLUGIN.stem,
            "--nbval",
            "--nbval-current-env",
        ]
        command += [f"--nbval-cell-timeout={limits.cell_timeout}", "--color=no", "merged.ipynb"]
        command += [f"--watch-record={record}", f"--watch-memory-mb={limits.memory_mb}"]
        finished = _wait(command, folder, _environment(folder, seed), said, record, limits.wall(exercises))
        lines = _lines(record)
        results = _by_cell(notebook, lines, finished)
        if results:
            return results, "" if finished else "The run was stopped: it took too long as a whole."
        last = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return {}, f"The notebook could not be run: {last[-1] if last else 'pytest said nothing'}"


def _wait(command, folder: Path, environment: dict, said: Path, record: Path, wall: float) -> bool:
    """Run to the end, or to the wall limit: then False, and everything that was started is ended."""
    if _STOPPED.is_set():
        return False
    with said.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _RUNNING.add(process)
        try:
            process.wait(wall)
            return not _STOPPED.is_set()
        except subprocess.TimeoutExpired:
            return False
        finally:
            _RUNNING.discard(process)
            if process.poll() is None or _STOPPED.is_set():
                _kill(process.pid)
                process.wait()
                for line in _lines(record):
                    if "kernel" in line:
                        _kill(line["kernel"])


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _environment(folder: Path, seed: int) -> dict[str, str]:
    """The caller's, without its settings of pytest, IPython and this grader, and with this library first."""
    kept = {k: v for k, v in os.environ.items() if not _SETTINGS.fullmatch(k)}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return kept | {
        "PYTHONPATH": path,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "LINEAGE_SEED": str(seed),
        "LINEAGE_REPORT": str(folder / "checks"),
        "OMP_NUM_THREADS": "2",  # the same on every machine, and several notebooks at a time
        "OPENBLAS_NUM_THREADS": "2",
    }


def _lines(record: Path) -> list[dict]:
    if not record.exists():
        return []
    lines = []
    for line in record.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # the last line of a run that was killed
            lines.append(json.loads(line))
    return lines


def _by_cell(notebook, lines: list[dict], finished: bool) -> dict[str, CellResult]:
    ids = [cell.id for cell in notebook.cells if cell.cell_type == "code"]  # nbval counts code cells from 0
    results, last = {}, None
    for line in lines:
        if "passed" in line:
            results[ids[line.pop("cell")]] = CellResult(**line)
        elif "cell" in line:
            last = ids[line["cell"]]
    if not finished and last and last not in results:
        results[last] = CellResult(end="timeout")
    return results


# --- what came of it ----------------------------------------------------------------------------


def _ids(exercise: Exercise) -> tuple[str, str]:
    stem = f"ex-{exercise.id.replace('.', '-')}"
    return f"{stem}-answer", f"{stem}-check"


def _at_fault(chapter: Chapter, left: dict[str, Answer], results: dict[str, CellResult]) -> Exercise | None:
    """The exercise that ended the run; or the first to run out of memory, when it was not the only cell to."""
    short = [identity for identity, result in results.items() if _ran_out_of_memory(result)]
    ended = [identity for identity, result in results.items() if result.end]
    suspects = short[:1] if len({*short, *ended}) > 1 else ended
    return next((e for e in chapter.exercises if e.id in left and set(_ids(e)) & set(suspects)), None)


def _ran_out_of_memory(result: CellResult) -> bool:
    told = " ".join([result.raised, *result.checks])
    return not result.passed and bool(_OUT_OF_MEMORY.search(told))


def _conclude(outcome: Outcome, chapter: Chapter, left, results: dict[str, CellResult], trouble: str) -> None:
    for exercise in chapter.exercises:
        if exercise.id in left:
            outcome.findings[exercise.id] = _finding(exercise, left[exercise.id], results, None)
    if trouble:
        outcome.problems.append(trouble)
    of_exercises = {identity for e in chapter.exercises for identity in _ids(e)}
    for cell in chapter.notebook.cells:
        result = results.get(cell.id)
        if result and not result.passed and cell.id not in of_exercises:
            first = cell.source.strip().splitlines()[0]
            what = result.end or result.raised
            outcome.problems.append(f"The chapter's own cell that begins `{first}` failed: {what}.")


def _finding(exercise: Exercise, answer: Answer, results: dict[str, CellResult], limits: Limits | None) -> Finding:
    wrote, checked = (results.get(identity) for identity in _ids(exercise))
    if checked is None and (wrote is None or not wrote.end):
        return Finding("not graded", "The run ended before this exercise.")
    for result in (wrote, checked):
        if result and result.end == "kernel died":
            return Finding("kernel died", _death(result.exit_code))
        if result and result.end == "timeout":
            return Finding("timeout", f"Stopped after {limits.cell_timeout:g} seconds." if limits else "Stopped.")
    told = checked.report_on(exercise)
    remarks = [*answer.notes]
    if wrote is not None and wrote.error:
        remarks.append(f"the answer cell raised {wrote.raised}")
    if checked.passed and told and told.cause == "ok":
        return Finding("ok", "\n".join([told.message, *(f"note: {r}" for r in remarks)]))
    if checked.passed:
        return Finding("not allowed", "The line of a passed check was printed, but the check did not run.")
    if told and told.cause != "ok":
        cause = "memory" if told.cause == "error" and _OUT_OF_MEMORY.search(told.message) else told.cause
        return Finding(cause, told.message, told.mistake)
    if told:
        return Finding("error", "The answer is right, but running it printed more than the check's one line.")
    failed = wrote if wrote is not None and wrote.error else checked
    return Finding("memory" if _ran_out_of_memory(failed) else "error", failed.raised)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        why = ": most often the machine was out of memory" if name == "SIGKILL" else ""
        return f"The Python process was ended by {name}{why}."
    return f"The Python process ended by itself (exit code {code}); an answer must not end it."
