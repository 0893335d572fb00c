"""The built book: ``build_book()``, and the Sphinx extension that shows executed solutions as chapters.

``display``    an executed solution notebook -> what its page shows
``citations``  links to known papers -> citations; how the bibliography prints
``lines``      punctuation stays with its formula
``family``     the family-tree page, from the table of rules
``peers``      how far other people's functions are from ours, from the committed results
``passport``   errors and times of the kernels on real GPUs, from the committed records
``pieces``     the interactive pieces, alive without a kernel
``numbering``  "Theorem 3.1": the chapter's number comes from its file's name
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lineage_lib.paths import ROOT

_CHAPTER = re.compile(r"solutions/(\d\d)_\w+")


def build_book(output: Path | None = None, *, root: Path = ROOT) -> Path:
    """Build the pages of the book in ``root`` and return the first one, ``index.html``.

    They go into ``output/html``; ``output`` is a folder named ``_build``, by default the one in
    ``root``. Every page is built anew: pages also depend on hints and on the bibliography, which
    Sphinx does not follow. A warning fails the build: a ``RuntimeError`` carries what was warned about.
    """
    output = Path(output or root / "_build").absolute()
    if output.name != "_build":
        raise ValueError(f"output: expected a folder named _build, got {output}")
    for stale in ("html", ".doctrees"):
        shutil.rmtree(output / stale, ignore_errors=True)
    jupyter_book = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    options = ["--toc", str(root / "book" / "_toc.yml"), "--path-output", str(output.parent)]
    options += ["-W", "-n", "--keep-going", "-q"]
    command = [*jupyter_book, "build", str(root), *options]
    # Pages run no kernel, but exercises' records hold some: whatever imports Triton first, it is to interpret them.
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        said = re.sub(r"\x1b\[[\d;]*m", "", done.stderr.strip() or done.stdout.strip())  # colours
        raise RuntimeError(f"the book was not built\n{said}")
    return output / "html" / "index.html"


def chapter_number(docname: str) -> int | None:
    """3 for ``solutions/03_ssd_duality``; None for a page that is not a chapter."""
    match = _CHAPTER.fullmatch(docname)
    return int(match[1]) if match else None


def setup(app) -> dict:
    """Register with Sphinx; named under ``extensions`` in ``_config.yml``."""
    from lineage_lib.book import citations, display, family, lines, numbering, passport, peers, pieces

    for part in (citations, display, family, lines, numbering, passport, peers, pieces):
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
