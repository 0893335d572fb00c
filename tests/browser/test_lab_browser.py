"""A learner in JupyterLab: types an answer, runs its check, types a known mistake, reads its name."""

import pytest

from lineage_lib import serving

CHAPTER, EXERCISE = "03_ssd_duality", "3.2"
RIGHT = "return (matrices.segment_products(a) * (C @ B.T)) @ X"
MISTAKE = "return (matrices.segment_products(a) * a * (C @ B.T)) @ X"
NAMED = "the segment products include a_s"


@pytest.fixture
def lab(tmp_path):
    """The address of JupyterLab on a folder that holds fresh copies of the chapters."""
    work = tmp_path / "work"
    serving.copy_chapters(work=work)
    process, address = serving.start_lab(work)
    yield address
    process.terminate()
    process.wait()


@pytest.mark.timeout(180)
def test_answer_then_known_mistake(lab, page):
    page.goto(lab.replace("/lab?", f"/lab/tree/{CHAPTER}.ipynb?"))
    answer = page.locator(".jp-CodeCell", has_text=f"Exercise {EXERCISE}:")
    check = page.locator(".jp-CodeCell", has_text=f'check("{EXERCISE}"').first
    imports = page.locator(".jp-CodeCell").first
    imports.wait_for(timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)  # a cell run before the kernel is up is lost

    run_cell(page, imports)
    run_cell(page, answer)
    run_cell(page, check)
    expect_output(check, "NotImplementedError: Exercise")

    answer.locator(".cm-line", has_text="raise NotImplementedError").click()
    page.keyboard.press("Home")
    page.keyboard.type(f"{RIGHT}\n")
    page.keyboard.press("Shift+Enter")
    run_cell(page, check)
    expect_output(check, f"ok {EXERCISE} ")

    answer.locator(".cm-line", has_text=RIGHT).click()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.type(MISTAKE)
    page.keyboard.press("Shift+Enter")
    run_cell(page, check)
    expect_output(check, NAMED)


@pytest.mark.timeout(180)
def test_text_is_typeset_as_in_the_book(lab, page):
    """Theorems, exercises and equations are numbered by chapter in JupyterLab too."""
    page.goto(lab.replace("/lab?", f"/lab/tree/{CHAPTER}.ipynb?"))
    page.get_by_text(f"Exercise {EXERCISE}", exact=False).first.wait_for(timeout=60_000)
    assert page.locator(".jp-MarkdownCell .katex, .jp-MarkdownCell mjx-container").count() > 0
    raw = "[...document.querySelectorAll('.jp-MarkdownCell')].filter(c => c.innerText.includes(':::')).length"
    page.wait_for_function(f"{raw} === 0", timeout=60_000)  # cells below the fold are rendered when idle


def run_cell(page, cell):
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")


def expect_output(cell, text):
    cell.locator(".jp-OutputArea-output", has_text=text).wait_for(timeout=60_000)
