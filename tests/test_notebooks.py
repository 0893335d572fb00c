"""The notebooks under nbval, as a learner and a teacher run them."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import nbformat
import pytest

from lineage_lib import authoring
from lineage_lib.paths import CHAPTERS, ROOT, SOLUTIONS

CHAPTER_NAMES = [source.stem for source in authoring.sources()]


def nbval(notebook, *options):
    """{cell id: passed} of the code cells, from ``pytest --nbval`` with the repository's own options."""
    report = notebook.with_suffix(f".{len(options)}.xml")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
    run = subprocess.run([*command, str(notebook)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    passed = {case.get("name"): case.find("failure") is None and case.find("error") is None for case in cases}
    code = [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    assert len(passed) == len(code), run.stdout
    return {cell.id: passed[f"Cell {k}"] for k, cell in enumerate(code)}


@pytest.fixture
def copy_of(tmp_path):
    def copy(name):
        path = tmp_path / f"{name}.ipynb"
        path.write_bytes((CHAPTERS / f"{name}.ipynb").read_bytes())
        return path

    return copy


def failing(cells):
    return [identity for identity, passed in cells.items() if not passed]


@pytest.mark.parametrize("name", CHAPTER_NAMES)
def test_untouched_chapter_fails_in_its_checks_only(name, copy_of):
    notebook = copy_of(name)
    checks = [c.id for c in nbformat.read(notebook, as_version=4).cells if authoring.role_of(c) == "check"]
    assert checks
    assert failing(nbval(notebook, "--nbval")) == checks
    assert failing(nbval(notebook, "--nbval", "--nbval-lax")) == checks


@pytest.mark.parametrize("name", CHAPTER_NAMES)
def test_one_answer_filled_in_turns_its_check_green(name, copy_of):
    """Every second exercise is answered, so each check stands alone whatever its neighbours do."""
    notebook = copy_of(name)
    answers = {c.id: c.source for c in nbformat.read(SOLUTIONS / notebook.name, as_version=4).cells}
    chapter = nbformat.read(notebook, as_version=4)
    checks = [c.id for c in chapter.cells if authoring.role_of(c) == "check"]
    for cell in chapter.cells:
        if cell.id.replace("answer", "check") in checks[::2]:
            cell.source = answers[cell.id]
    nbformat.write(chapter, notebook)
    assert failing(nbval(notebook, "--nbval")) == checks[1::2]


@pytest.mark.parametrize("name", CHAPTER_NAMES)
def test_solution_outputs_hold_no_error_and_no_path(name):
    text = (SOLUTIONS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert '"output_type": "error"' not in text
    assert str(ROOT) not in text
    assert "site-packages" not in text
    for cell in nbformat.reads(text, as_version=4).cells:
        assert cell.cell_type != "code" or cell.execution_count, f"{cell.id} was not executed"
