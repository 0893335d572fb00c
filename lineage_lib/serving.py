"""``lineage start``: the learner's copies, the built book and JupyterLab, on this machine only."""

import functools
import http.server
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from lineage_lib.paths import BOOK_HTML, CHAPTERS, WORK

LAB_SETTINGS = Path(__file__).parent / "lab_settings"


def copy_chapters(chapters: Path = CHAPTERS, work: Path = WORK) -> tuple[list[Path], list[Path]]:
    """Put a copy of each chapter into ``work``; a file that is there stays as it is.

    Returns the copies made and the files kept.
    """
    try:
        work.mkdir(exist_ok=True)
    except FileExistsError:
        raise RuntimeError(f"{work.name} is a file, or a link to nothing; move it away, a folder goes there") from None
    made, kept = [], []
    for chapter in sorted(chapters.glob("*.ipynb")):
        target = work / chapter.name
        try:
            with target.open("xb") as file:  # "x": never an existing file, not even in a race
                file.write(chapter.read_bytes())
            made.append(target)
        except FileExistsError:
            kept.append(target)
    return made, kept


def serve(book: Path = BOOK_HTML, work: Path = WORK, *, browser: bool = False) -> None:
    """Serve the book and JupyterLab until interrupted; print both addresses once they answer."""
    for end in {"SIGTERM", "SIGHUP"} & {s.name for s in signal.Signals}:  # no JupyterLab is left behind
        signal.signal(signal.Signals[end], _interrupt)
    handler = functools.partial(_QuietHandler, directory=str(book))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port(8000)), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    book_address = f"http://127.0.0.1:{server.server_port}/"
    lab, lab_address = start_lab(work)
    try:
        print(f"\nbook        {book_address}\nJupyterLab  {lab_address}\n\nCtrl-C ends both.", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(book_address)
        lab.wait()
    except KeyboardInterrupt:
        print()
    finally:
        lab.terminate()
        lab.wait()
        server.shutdown()


def start_lab(work: Path) -> tuple[subprocess.Popen, str]:
    """JupyterLab on the learner's folder, with a fresh token, once it answers: the process and its address."""
    while True:
        port, token = free_port(8888), secrets.token_hex(16)
        with open(work / ".jupyterlab.log", "wb") as log:
            process = subprocess.Popen(lab_command(work, port, token), stdout=log, stderr=subprocess.STDOUT, cwd=work)
        try:
            if _answers(process, f"http://127.0.0.1:{port}/api/status?token={token}"):
                return process, f"http://127.0.0.1:{port}/lab?token={token}"
        except BaseException:
            process.terminate()
            raise
        ended = process.poll() is not None
        process.terminate()
        if not ended or free_port(port) == port:  # else another program took the port in between: try the next
            raise RuntimeError(f"JupyterLab did not start; its log is {work.name}/.jupyterlab.log")


def lab_command(work: Path, port: int, token: str) -> list[str]:
    """The command line of JupyterLab on this machine alone."""
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={work}", f"--LabApp.app_settings_dir={LAB_SETTINGS}",
        f"--LabApp.workspaces_dir={work / '.lab_workspaces'}",  # open tabs are those of this folder
        "--ServerApp.log_level=WARN",
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers often have no other user; the address is loopback
    return command


def free_port(first: int) -> int:
    """The first port from ``first`` on that nothing on this machine listens to."""
    for port in range(first, first + 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError(f"no free port between {first} and {first + 199}")


def _answers(process: subprocess.Popen, address: str, seconds: float = 60) -> bool:
    """Whether the address answers before the process ends. Its token makes sure that it is this process."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return True
        except OSError:
            time.sleep(0.3)
    return False


def _interrupt(*_):
    raise KeyboardInterrupt


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def require_tools() -> None:
    """A ``RuntimeError`` that says what to install when JupyterLab is not there."""
    if shutil.which("jupyter-lab", path=Path(sys.executable).parent) is None:
        raise RuntimeError("JupyterLab is not installed here; run: pip install -r requirements.txt")
