"""``lineage start`` as a process: two printed addresses that answer, and a clean end."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from urllib.parse import urlparse

import pytest

from lineage_lib import serving

SERVE = """
import signal, sys
from pathlib import Path
from lineage_lib import serving
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where these tests run in the background
serving.serve(book=Path(sys.argv[1]), work=Path(sys.argv[2]))
"""


@pytest.mark.timeout(120)
def test_both_addresses_answer(tmp_path):
    book, work = tmp_path / "book", tmp_path / "work"
    book.mkdir()
    work.mkdir()
    (book / "index.html").write_text("<title>the book</title>")
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(book), str(work)], stdout=subprocess.PIPE, text=True)
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            line = process.stdout.readline()
            assert line, f"ended early: {printed}"
            printed += line
        addresses = re.findall(r"http://127\.0\.0\.1:\d+/\S*", printed)
        assert len(addresses) == 2
        pages = [urllib.request.urlopen(address, timeout=20).read().decode() for address in addresses]
        assert "the book" in pages[0]
        assert "JupyterLab" in pages[1]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_a_taken_port_is_skipped():
    first = serving.free_port(8000)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first))
        taken.listen()
        assert serving.free_port(first) > first


def test_a_port_taken_between_the_look_and_the_launch(tmp_path, monkeypatch):
    """Two starts at a time look at the same port; the one that comes second takes the next."""
    find = serving.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        looks = iter([taken.getsockname()[1]])
        monkeypatch.setattr(serving, "free_port", lambda first: next(looks, None) or find(first))
        process, address = serving.start_lab(tmp_path)
        process.terminate()
        process.wait()
    assert urlparse(address).port >= 8888


def test_lab_that_cannot_start_says_where_its_log_is(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "lab_command", lambda *a: [sys.executable, "-c", "raise SystemExit(1)"])
    (tmp_path / "work").mkdir()
    with pytest.raises(RuntimeError, match=r"JupyterLab did not start; its log is work/\.jupyterlab\.log"):
        serving.start_lab(tmp_path / "work")
