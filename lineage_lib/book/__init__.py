"""The built book: ``build_book()``, and the Sphinx extension that shows executed solutions as chapters.

``display``    an executed solution notebook -> what its page shows
``citations``  links to known papers -> citations; how the bibliography prints
``numbering``  "Theorem 3.1": the chapter's number comes from its file's name
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from lineage_lib.paths import ROOT

TOC = ROOT / "book" / "_toc.yml"
_CHAPTER = re.compile(r"solutions/(\d\d)_\w+")


def build_book(output: Path = ROOT / "_build", *, fresh: bool = False) -> Path:
    """Build the book's pages into ``output/html``; returns the first page.

    A warning fails the build: a ``RuntimeError`` carries what was warned about. ``fresh`` builds
    every page again instead of those whose source changed.
    """
    output = Path(output).absolute()
    if output.name != "_build":
        raise ValueError(f"output: Jupyter Book writes to a folder named _build, got {output}")
    html = output / "html"
    if fresh:
        shutil.rmtree(output, ignore_errors=True)
    jupyter_book = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    options = ["--toc", str(TOC), "--path-output", str(output.parent), "-W", "-n", "--keep-going", "-q"]
    done = subprocess.run([*jupyter_book, "build", str(ROOT), *options], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the book was not built\n{done.stderr.strip() or done.stdout.strip()}")
    return html / "index.html"


def chapter_number(docname: str) -> int | None:
    """3 for ``solutions/03_ssd_duality``; None for a page that is not a chapter."""
    match = _CHAPTER.fullmatch(docname)
    return int(match[1]) if match else None


def setup(app) -> dict:
    """Register with Sphinx; named under ``extensions`` in ``_config.yml``."""
    from lineage_lib.book import citations, display, numbering

    for part in (citations, display, numbering):
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
