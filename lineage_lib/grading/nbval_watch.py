"""A pytest plugin beside nbval: what happened in each cell, while it happens.

nbval knows a dead kernel from a slow one only by its timeout, and says what a cell raised only in
prose. This plugin notices a death within a second, ends the run at the first timeout or death (nbval
reports the cells after it as XFAIL or XPASS, which says nothing), limits memory, and appends one JSON
line a cell to the file named by ``--watch-record``. Nothing is lost when the run itself is killed.

The file is copied beside the notebook it watches, so that pytest does not import the whole library.
"""

import contextlib
import json
import os
import re
import resource
import signal
import time
from pathlib import Path
from queue import Empty

import nbval.plugin
import pytest
from nbval.kernel import RunningKernel, start_new_kernel

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class KernelDied(Exception):
    """The kernel's process has ended."""


class WatchedKernel(RunningKernel):
    """nbval's kernel; waiting for a reply ends as soon as the process has."""

    exit_code: int | None = None
    stderr = Path("kernel-stderr")

    def __init__(self, kernel_name, cwd=None, startup_timeout=60):
        # As nbval does, but what a dying process says is kept.
        with self.stderr.open("w") as stderr:
            self.km, self.kc = start_new_kernel(startup_timeout, kernel_name, stderr=stderr, cwd=cwd)
        self._ensure_iopub_up()

    def await_reply(self, msg_id, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 1.0 if end is None else min(1.0, end - time.monotonic())
            try:
                return super().await_reply(msg_id, timeout=max(left, 0.01))
            except Empty:
                if self.ended() is not None:
                    raise KernelDied from None
                if end is not None and time.monotonic() >= end:
                    raise

    @classmethod
    def last_words(cls) -> str:
        """The end of what the process wrote to its standard error."""
        return cls.stderr.read_bytes()[-2000:].decode(errors="replace")

    def ended(self) -> int | None:
        """The exit code of the kernel's process; None while it runs."""
        process = self.km.provisioner.process if hasattr(self, "km") else None
        if self.exit_code is None and process is not None:
            self.exit_code = process.poll()
        return self.exit_code

    def stop(self):
        self.ended()
        super().stop()


def pytest_addoption(parser):
    group = parser.getgroup("watch", "what happens in each cell of a graded notebook")
    group.addoption("--watch-record", help="append one JSON line a cell to this file")
    group.addoption("--watch-memory-mb", type=int, help="memory that the kernel may use")


def pytest_configure(config):
    config.watch = Watch(config)
    config.pluginmanager.register(config.watch)
    nbval.plugin.RunningKernel = WatchedKernel
    limit = config.option.watch_memory_mb * 2**20
    # Inherited by the kernel. Private memory only: libraries map far more addresses than they use.
    for what, most in ((resource.RLIMIT_DATA, limit), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # a platform without this limit
            resource.setrlimit(what, (most, most))


class Watch:
    """Writes the record of one run."""

    def __init__(self, config):
        self.path = config.option.watch_record
        self.checks = os.environ["LINEAGE_REPORT"]
        self.read = 0
        self.kernel = None
        self.group = None

    def write(self, **line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item):
        if self.kernel is None:
            self.kernel = item.parent.kernel
            self.group = self.kernel.km.provisioner.process.pid  # the kernel leads a group of its own
            self.write(kernel=self.group)
        self.write(cell=item.cell_num)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "call" or (call.when == "setup" and report.failed):
            end = self.end(item, call)
            if end:
                item.session.shouldstop = end
            self.write(
                cell=item.cell_num,
                passed=report.passed and not hasattr(report, "wasxfail"),
                end=end,
                exit_code=item.parent.kernel.exit_code if item.parent.kernel else None,
                error=self.error(item),
                message=str(call.excinfo.value) if call.excinfo else "",
                checks=self.new_checks(),
                last_words=WatchedKernel.last_words() if end == "kernel died" else "",
            )
        return report

    def end(self, item, call) -> str | None:
        kernel = item.parent.kernel
        if call.excinfo is None or kernel is None:
            return None
        if call.excinfo.errisinstance(KernelDied) or kernel.ended() is not None:
            return "kernel died"
        if item.parent.timed_out:
            return "timeout"
        return None if call.excinfo.errisinstance(nbval.plugin.NbCellError) else "run died"

    def error(self, item) -> dict | None:
        raised = [o for o in item.test_outputs or [] if o.output_type == "error"]
        if not raised:
            return None
        trace = ANSI.sub("", "\n".join(raised[0].traceback))
        line = re.search(r"Cell In\[\d+\], line (\d+)", trace)
        return {"name": raised[0].ename, "value": raised[0].evalue, "line": int(line[1]) if line else None}

    def new_checks(self) -> list[str]:
        """The lines that ``check`` has reported since the last cell."""
        if not os.path.exists(self.checks):
            return []
        with open(self.checks, encoding="utf-8", errors="replace") as file:
            file.seek(self.read)
            lines = file.read()
            self.read = file.tell()
        return lines.splitlines()

    def pytest_unconfigure(self):
        """End what a dead kernel's children still do; nbval ends the group of a living one."""
        if self.kernel is not None and self.kernel.exit_code is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
