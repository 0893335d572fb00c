"""An executed solution notebook as its page shows it: stub, folded hints, folded answer, check with its output."""

import copy
import re

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from lineage_lib.authoring import role_of, split_answer, stub
from lineage_lib.book import chapter_number
from lineage_lib.book.citations import cite_links
from lineage_lib.exercises import find

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.S)
_FENCED = re.compile(r"^(?P<fence>`{3,}|~{3,})(?!\{).*?^(?P=fence)`*$", re.S | re.M)


def display_notebook(text: str, slug: str, addresses: dict[str, tuple[str, str]]) -> str:
    """The notebook of chapter ``slug``, rewritten for its page.

    ``addresses`` are those that the bibliography knows, :func:`citations.known_addresses`.
    """
    notebook = nbformat.reads(text, as_version=4)
    title = notebook.cells[0]
    title.source = with_chapter_bar(without_front_matter(title.source), slug)
    notebook.cells = [shown for cell in notebook.cells for shown in display_cells(cell)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = outside_code(cell.source, lambda prose: cite_links(prose, addresses))
    return nbformat.writes(notebook)


def display_cells(cell: NotebookNode) -> list[NotebookNode]:
    """What one cell of the solution becomes on the page: itself, or the parts of an answer cell."""
    if role_of(cell) != "answer":
        return [cell]
    exercise = find(cell.metadata.lineage.exercise)
    shown_stub = new_code_cell(stub(cell.source, exercise), id=f"{cell.id}-stub", metadata={"tags": ["stub"]})
    hints = new_markdown_cell(folded_hints(exercise.hints), id=f"{cell.id}-hints")
    return [shown_stub, hints, folded_answer(cell)]


def folded_answer(cell: NotebookNode) -> NotebookNode:
    """The answer cell without its markers, folded until asked for."""
    answer = copy.deepcopy(cell)
    before, between, after = split_answer(cell.source)
    answer.source = "\n".join([*before, *between, *after])
    answer.metadata["tags"] = ["answer", "hide-input"]
    answer.metadata["mystnb"] = {"code_prompt_show": "Show the answer", "code_prompt_hide": "Hide the answer"}
    return answer


def folded_hints(hints: tuple[str, ...]) -> str:
    """Markdown in which each hint, once opened, shows its text and the next, still folded, hint."""
    inner = ""
    for rung in range(len(hints), 0, -1):
        fence = ":" * (3 + len(hints) - rung)
        head = f"{fence}{{dropdown}} Hint {rung} of {len(hints)}\n:class-container: hint\n\n"
        inner = f"{head}{plain(hints[rung - 1])}\n\n{inner}{fence}\n"
    return inner


def plain(text: str) -> str:
    """Markdown that shows ``text`` as a terminal would, but for code between backticks."""
    spans = re.split(r"(`[^`]+`)", text)
    return "".join(s if i % 2 else re.sub(r"([\\*_<>$\[\]{}#~])", r"\\\1", s) for i, s in enumerate(spans))


def without_front_matter(source: str) -> str:
    """The first cell without the front matter that numbers theorems in JupyterLab."""
    return _FRONT_MATTER.sub("", source, count=1)


def with_chapter_bar(source: str, slug: str) -> str:
    """Put the download link of the learner's notebook under the chapter's title."""
    title, _, rest = source.partition("\n")
    bar = (
        "\n:::{div} chapter-bar\n"
        f"{{download}}`Download this chapter’s notebook </chapters/{slug}.ipynb>` and solve it in JupyterLab; "
        "{doc}`how to work with it </book/how_to_work>`. Hints and answers on this page are folded.\n:::\n"
    )
    return f"{title}\n{bar}{rest}"


def outside_code(source: str, change) -> str:
    """``source`` with ``change`` applied to what does not stand in a fenced code block."""
    parts, end = [], 0
    for block in _FENCED.finditer(source):
        parts += [change(source[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(source[end:])])


def _on_source_read(app, docname: str, source: list[str]) -> None:
    if chapter_number(docname) is not None and source[0].lstrip().startswith("{"):
        slug = docname.rpartition("/")[2]
        source[0] = display_notebook(source[0], slug, app.config.lineage_addresses)


def setup(app) -> None:
    app.connect("source-read", _on_source_read)
