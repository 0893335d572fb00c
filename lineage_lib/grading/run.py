"""Runs a merged notebook under ``pytest --nbval`` in a folder of its own, and says what came of each exercise.

An exercise is passed when its check cell ran, in the pristine notebook, raised nothing, and ``check``
itself reported "ok"; nbval compares what the cell printed with what the solution's check printed, and
more than that is a note.

One run has all answers. When something happened in it that one answer may have done to another, each
exercise that did not pass runs again alone, and that run decides.
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
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat

from lineage_lib.exercises import Exercise
from lineage_lib.grading.merge import Answer, Chapter, Finding
from lineage_lib.paths import ROOT

_PLUGIN = Path(__file__).with_name("nbval_watch.py")
_GUARD = Path(__file__).with_name("kernel_guard.py")
_OUT_OF_MEMORY = re.compile(r"MemoryError|can't allocate memory|bad_alloc|OUT OF MEMORY")
_SETTINGS = re.compile(r"(LINEAGE|PYTEST|IPYTHON|COVERAGE|PYTHONSTARTUP).*")


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
    """What the watching plugin recorded of one code cell.

    ``end``: the run ended here, by a "timeout", a "kernel died", or "run died" for everything else.
    """

    passed: bool = False
    end: str | None = None
    exit_code: int | None = None
    error: dict | None = None
    message: str = ""
    checks: list[str] = field(default_factory=list)
    last_words: str = ""

    @property
    def raised(self) -> str:
        """``ValueError: bad shape``, or what nbval said instead."""
        told = f"{self.error['name']}: {self.error['value']}".rstrip(": ") if self.error else self.message
        return told or "The cell failed without a message."

    @property
    def raised_where(self) -> str:
        """``ValueError: bad shape (line 3)``, for a cell whose lines the learner knows."""
        line = self.error["line"] if self.error else None
        return f"{self.raised} (line {line})" if line else self.raised

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


def run(chapter: Chapter, answers: dict[str, Answer], seed: int, limits: Limits, stop: threading.Event) -> Outcome:
    """Grade these answers of one chapter, until ``stop`` is set."""
    sources = {i: answer.source for i, answer in answers.items()}
    answered = [e for e in chapter.exercises if e.id in answers]
    if not answered:
        return Outcome()

    def execute(alone: str | None = None) -> tuple[dict[str, CellResult], str]:
        notebook = chapter.with_answers(sources, alone)
        return _execute(notebook, seed, limits, limits.wall(len(chapter.exercises)), stop)

    results, trouble = execute()
    outcome = Outcome({e.id: _finding(e, answers[e.id], results, limits) for e in answered})
    failures = _failures_of_chapter(chapter, results)
    if results and len(answered) > 1 and (failures or _disturbed(answered, results)):
        for exercise in answered:
            if outcome.findings[exercise.id].cause != "ok" and not stop.is_set():
                results, trouble = execute(exercise.id)
                outcome.findings[exercise.id] = _finding(exercise, answers[exercise.id], results, limits)
    outcome.problems = [*failures, trouble] if trouble else failures
    return outcome


# --- one run ------------------------------------------------------------------------------------


def _execute(
    notebook, seed: int, limits: Limits, wall: float, stop: threading.Event
) -> tuple[dict[str, CellResult], str]:
    """Results by cell id, and a sentence when the run as a whole went wrong."""
    with tempfile.TemporaryDirectory(prefix="lineage-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        nbformat.write(notebook, folder / "merged.ipynb")
        for file in (_PLUGIN, _GUARD):
            shutil.copy(file, folder)
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
        with said.open("w") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(folder, seed),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finished = _wait(process, wall, stop)
        if process.returncode not in (0, 1, 2):  # pytest's codes of runs that it ended itself
            _end(process, record)
        lines = _lines(record)
        results = _by_cell(notebook, lines, finished)
        if results:
            return results, "" if finished else "The run was stopped: it took too long as a whole."
        last = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return {}, f"The notebook could not be run: {last[-1] if last else 'pytest said nothing'}"


def _wait(process: subprocess.Popen, wall: float, stop: threading.Event) -> bool:
    """True when the process ended by itself, False at the wall limit or when ``stop`` is set."""
    end = time.monotonic() + wall
    while time.monotonic() < end and not stop.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return True
    return False


def _end(process: subprocess.Popen, record: Path) -> None:
    """End pytest and the kernel, each with all that it started."""
    kernels = [line["kernel"] for line in _lines(record) if "kernel" in line]
    for group in (process.pid, *kernels):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    process.wait()


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
            last = ids[line.pop("cell")]
            results[last] = CellResult(**line)
        elif "cell" in line:
            last = ids[line["cell"]]
    if last and last not in results:
        results[last] = CellResult(end="run died" if finished else "timeout")
    return results


# --- what came of it ----------------------------------------------------------------------------


def _ids(exercise: Exercise) -> tuple[str, str, str]:
    """Its answer cell, its check cell, and the cell that sets the chapter's names back."""
    return tuple(f"ex-{exercise.id.replace('.', '-')}-{role}" for role in ("answer", "check", "after"))


def _disturbed(answered: list[Exercise], results: dict[str, CellResult]) -> bool:
    """One answer may have spoilt another: the run ended early, memory ran short, or a check did not end as it does."""
    if any(result.end or _ran_out_of_memory(result) for result in results.values()):
        return True
    for exercise in answered:
        wrote, checked, _ = (results.get(identity, CellResult()) for identity in _ids(exercise))
        told = checked.report_on(exercise)
        if (told is None and not wrote.error) or (told and told.cause == "ok" and not checked.passed):
            return True
    return False


def _failures_of_chapter(chapter: Chapter, results: dict[str, CellResult]) -> list[str]:
    """A sentence about the first cell of the book that failed beside these answers, and about how many more did."""
    of_exercises = {identity for e in chapter.exercises for identity in _ids(e)}
    sentences = []
    for cell in chapter.notebook.cells:
        result = results.get(cell.id)
        if result and not result.passed and cell.id not in of_exercises:
            first = cell.source.strip().splitlines()[0]
            what = result.end or result.raised
            sentences.append(f"The chapter's own cell that begins `{first}` failed: {what}.")
    return sentences[:1] + [f"{len(sentences) - 1} more of the chapter's own cells failed."] * (len(sentences) > 1)


def _ran_out_of_memory(result: CellResult) -> bool:
    told = " ".join([result.raised, *result.checks, result.last_words])
    return not result.passed and bool(_OUT_OF_MEMORY.search(told))


def _finding(exercise: Exercise, answer: Answer, results: dict[str, CellResult], limits: Limits) -> Finding:
    finding = _verdict(exercise, results, limits)
    return replace(finding, notes=(*answer.notes, *finding.notes))


def _verdict(exercise: Exercise, results: dict[str, CellResult], limits: Limits) -> Finding:
    mine = [results.get(identity) for identity in _ids(exercise)]
    for result in filter(None, mine):
        if result.end == "kernel died":
            memory = _ran_out_of_memory(result)
            return Finding("memory" if memory else "kernel died", _death(result.exit_code, limits if memory else None))
        if result.end == "timeout":
            return Finding("timeout", f"It did not end within {limits.cell_timeout:g} seconds.")
        if result.end:
            return Finding("kernel died", "The run ended here: by what it printed or raised, if that was very long.")
    wrote, checked, after = mine
    if wrote is None or checked is None:
        return Finding("not graded", "The run ended before this exercise.")
    if after and after.error:
        return Finding("not allowed", after.raised)
    told = checked.report_on(exercise)
    if told and told.cause == "ok" and not checked.error:
        notes = [f"the answer cell raised {wrote.raised_where}"] if wrote.error else []
        notes += [] if checked.passed else ["running it printed or showed something beside the check's line"]
        return replace(told, notes=tuple(notes))
    if checked.passed:
        return Finding("not allowed", "The line of a passed check was printed, but the check did not run.")
    if told and told.cause != "ok":
        cause = "memory" if told.cause == "error" and _OUT_OF_MEMORY.search(told.message) else told.cause
        return replace(told, cause=cause)
    if told:
        return Finding("error", f"The values are right, but the check could not print its line ({checked.raised}).")
    if wrote.error:
        return Finding("memory" if _ran_out_of_memory(wrote) else "error", wrote.raised_where)
    return Finding("memory" if _ran_out_of_memory(checked) else "error", checked.raised)


def _death(code: int | None, limits: Limits | None) -> str:
    if code is None or code >= 0:
        return f"The Python process ended by itself (exit code {code}); an answer must not end it."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    why = f": it ran out of its {limits.memory_mb} MB of memory" if limits else ""
    if name == "SIGKILL":
        why = ": most often the machine is out of memory"
    return f"The Python process was ended by {name}{why}."
