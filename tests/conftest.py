"""Fixtures that several test files share."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lineage_lib.book import build_book

# Read when Triton is imported, which some test's module may do before the kernels are.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Small tensors, and a process a core when run with -n: more threads would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def default_dtype():
    """A chapter's first cell may make float64 the default: not for the tests that follow."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@dataclass(frozen=True)
class BuiltBook:
    """The book's pages, and the processor time that the cold build took: other work beside it does not change that."""

    html: Path
    seconds: float


def _of_children() -> float:
    """Processor time in seconds of the processes that this one has waited for."""
    return sum(os.times()[2:4])


@pytest.fixture(scope="session")
def book(tmp_path_factory) -> BuiltBook:
    """The real book, built once a run, also when several processes share the run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "book"
    report = folder / "report"
    try:
        folder.mkdir()
    except FileExistsError:  # another process builds it
        end = time.monotonic() + 600
        while not report.exists() and time.monotonic() < end:
            time.sleep(0.2)
    else:
        start, failure = _of_children(), ""
        try:
            build_book(folder / "_build")
        except RuntimeError as error:
            failure = str(error)
        unfinished = report.with_suffix(".part")
        unfinished.write_text(f"{_of_children() - start}\n{failure}", encoding="utf-8")
        unfinished.rename(report)
    assert report.exists(), "the book was not built within ten minutes"
    seconds, _, failure = report.read_text(encoding="utf-8").partition("\n")
    assert not failure, failure
    return BuiltBook(folder / "_build" / "html", float(seconds))
