"""The built book: what its pages show, how they number, and that they need no other host."""

import json
import re
import shutil
from functools import cache

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from docutils import nodes
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from pybtex.database import parse_file

from lineage_lib.authoring import role_of, split_answer
from lineage_lib.book import build_book, chapter_number
from lineage_lib.book.citations import authors, cite_links, known_addresses
from lineage_lib.book.display import display_cells, folded_hints, outside_code, plain, without_front_matter
from lineage_lib.book.lines import keep_together
from lineage_lib.book.numbering import chapter_numbers
from lineage_lib.checks import judge
from lineage_lib.exercises import find
from lineage_lib.paths import CHAPTERS, ROOT, SOLUTIONS

BIB = ROOT / "book" / "references.bib"


def toc_pages():
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


CHAPTER_PAGES = [page for page in toc_pages() if chapter_number(page) is not None]
every_page = pytest.mark.parametrize("page", toc_pages())
every_chapter = pytest.mark.parametrize("page", CHAPTER_PAGES)


@cache
def parsed(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def article(html, page):
    return parsed(html / f"{page}.html").find("article")


def numbers(soup, word):
    """The numbers after ``word`` in the captions of theorems, exercises and figures, in page order."""
    captions = [tag.get_text(strip=True) for tag in soup.select(".caption-number")]
    return [caption.split()[1] for caption in captions if caption.split()[0] == word]


def equation_numbers(soup):
    return [re.match(r"\(([\d.]+)\)", tag.get_text())[1] for tag in soup.select(".eqno")]


# --- Its parts ---


def test_chapter_number():
    assert chapter_number("solutions/03_ssd_duality") == 3
    assert chapter_number("book/intro") is None


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[Dao and Gu (2024)](https://arxiv.org/abs/2405.21060), Theorem 3.5", "{cite:t}`dao`, Theorem 3.5"),
        ("([Dao and Gu 2024](https://arxiv.org/abs/2405.21060v1))", "({cite:alp}`dao`)"),
        ("[Dao and Gu](https://arxiv.org/abs/2405.21060)", "{cite:t}`dao`"),
        ("[this proof](https://arxiv.org/abs/2405.21060)", "this proof {cite:p}`dao`"),
        ("[Else (2024)](https://arxiv.org/abs/1234.56789)", "[Else (2024)](https://arxiv.org/abs/1234.56789)"),
        ("![Dao (2024)](https://arxiv.org/abs/2405.21060)", "![Dao (2024)](https://arxiv.org/abs/2405.21060)"),
    ],
)
def test_links_to_known_papers_become_citations(link, shown):
    assert cite_links(link, {"https://arxiv.org/abs/2405.21060": ("dao", "Dao and Gu")}) == shown


def test_code_blocks_are_left_alone():
    fenced = "a\n```python\na\n```\na\n```{note}\na\n```\n"
    assert outside_code(fenced, str.upper) == "A\n```python\na\n```\nA\n```{NOTE}\nA\n```\n"


def test_front_matter_is_stripped():
    assert without_front_matter("---\nnumbering:\n  enumerator: 3.%s\n---\n\n# 3 · Title\n\n---\nx") == (
        "# 3 · Title\n\n---\nx"
    )
    assert without_front_matter("# Title") == "# Title"


def test_hints_are_nested_and_show_as_written():
    text = folded_hints(("read `a_s * b`", "a_s * <b>", "three", "four"))
    assert text.startswith("::::::{dropdown} Hint 1 of 4\n")
    assert "read `a_s * b`" in text
    assert plain("a_s * <b> [x]") == r"a\_s \* \<b\> \[x\]"
    assert [line for line in text.split("\n") if line.startswith(":::")][-4:] == [":::", "::::", ":::::", "::::::"]


def test_an_answer_cell_becomes_stub_hints_and_folded_answer():
    solution = nbformat.read(SOLUTIONS / "00_start_here.ipynb", as_version=4)
    answer = next(cell for cell in solution.cells if role_of(cell) == "answer")
    stub, hints, folded = display_cells(answer)
    assert "raise NotImplementedError" in stub.source
    assert "SOLUTION" not in stub.source + folded.source
    assert "Hint 4 of 4" in hints.source
    assert "hide-input" in folded.metadata.tags


def test_numbers_carry_the_chapter_and_count_every_equation():
    given = {"theorem": {"thm-a": (9,), "thm-b": (10,)}, "displaymath": {"equation-x": (7,), "equation-y": (8,)}}
    blocks = [nodes.math_block(ids=ids) for ids in (["equation-x"], [], ["equation-y"])]
    assert chapter_numbers(3, given, blocks) == {
        "theorem": {"thm-a": (3, 1), "thm-b": (3, 2)},
        "displaymath": {"equation-x": (3, 1), "equation-y": (3, 3)},
    }


def test_punctuation_stays_with_its_formula():
    words = [nodes.Text("see ("), nodes.math("", "x"), nodes.Text("), or "), nodes.math("", "y"), nodes.Text(" there")]
    paragraph = nodes.paragraph("", "", *words)
    keep_together(paragraph)
    assert paragraph.astext() == "see (x), or y there"
    assert [span.astext() for span in paragraph.findall(nodes.inline)] == ["(x),"]


# --- A small book of one chapter, number 7, which stands third in its table of contents ---

TEXT = r"""---
numbering:
  enumerator: 7.%s
---

# 7 · A chapter

As {cite:t}`dao2024mamba2` and [Dao and Gu (2024)](https://arxiv.org/abs/2405.21060) show.

$$ a = 1 $$ (eq-07-one)

:::{prf:theorem} First
:label: thm-07-first

By {eq}`eq-07-one`,

$$ b = 2 . $$ (eq-07-two)
:::

:::{prf:proof} of the *first*
:class: dropdown

$$ c = 3 $$ (eq-07-three)
:::

:::{prf:proof}
$d = 4$.
:::

:::{prf:lemma}
:label: lem-07-first

Nothing.
:::

:::{prf:theorem}
:label: thm-07-second

From {prf:ref}`thm-07-first`, {prf:ref}`lem-07-first`, {ref}`ex-7-1`, {numref}`fig-07-dot` and {eq}`eq-07-two`.
:::

:::{exercise} Half
:label: ex-7-1

Do.
:::
"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def small_book(folder, text=TEXT):
    (folder / "book").mkdir(parents=True)
    for name in ("_config.yml", "book/references.bib", "book/static", "book/site", "book/images"):
        source, target = ROOT / name, folder / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    pages = "- file: book/how_to_work\n- file: solutions/07_small\n"
    (folder / "book/_toc.yml").write_text(f"format: jb-book\nroot: book/intro\nchapters:\n{pages}")
    bibliography = "```{bibliography}\n```\n"
    (folder / "book/intro.md").write_text(f"(how)=\n# Small\n\n$$ z = 0 $$ (eq-z)\n\n{bibliography}", encoding="utf-8")
    (folder / "book/how_to_work.md").write_text("# How\n", encoding="utf-8")
    figure = {"image": {"alt": "a dot"}, "figure": {"caption": "A dot.", "name": "fig-07-dot"}}
    picture = new_code_cell("dot()", metadata={"mystnb": figure}, execution_count=1)
    picture.outputs = [nbformat.v4.new_output("display_data", {"image/png": DOT})]
    notebook = new_notebook(cells=[new_markdown_cell(text), picture], metadata={"language_info": {"name": "python"}})
    for room in ("solutions", "chapters"):
        (folder / room).mkdir()
        nbformat.write(notebook, folder / room / "07_small.ipynb")
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = small_book(tmp_path_factory.mktemp("small"))
    return article(build_book(root=root).parent, "solutions/07_small")


def test_each_kind_is_numbered_by_the_chapter(small):
    assert numbers(small, "Theorem") == ["7.1", "7.2"]
    assert numbers(small, "Lemma") == ["7.1"]
    assert numbers(small, "Exercise") == ["7.1"]
    assert numbers(small, "Figure") == ["7.1"]
    assert equation_numbers(small) == ["7.1", "7.2", "7.3"]


def test_references_show_the_same_numbers(small):
    paragraph = small.find(id="thm-07-second").get_text(" ", strip=True)
    assert "From Theorem 7.1 , Lemma 7.1 , Exercise 7.1 , Figure 7.1 and (7.2)" in paragraph


def test_proofs_have_titles_and_fold(small):
    folded, plain_proof = small.select("div.proof.admonition:not([id])")
    assert folded.select_one(".admonition-title").get_text() == "Proof of the first"
    assert "dropdown" in folded["class"]
    assert plain_proof.get_text(" ", strip=True).startswith("Proof")


def test_a_link_and_a_citation_read_the_same(small):
    first, second = small.select(".bibtex-citation")
    assert first.get_text() == second.get_text() == "Dao and Gu (2024)"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("See {eq}`eq-07-none`.", "equation not found: eq-07-none"),
        ("See {prf:ref}`thm-07-none`.", "label 'thm-07-none' not found"),
        ("See {cite:t}`nobody1999`.", "nobody1999"),
    ],
)
def test_a_broken_reference_fails_the_build(tmp_path, broken, said):
    root = small_book(tmp_path / "broken", f"{TEXT}\n{broken}\n")
    with pytest.raises(RuntimeError, match=said):
        build_book(root=root)


def test_output_must_be_a_folder_named_build(tmp_path):
    with pytest.raises(ValueError, match="output: expected a folder named _build"):
        build_book(tmp_path / "site")


# --- The real book ---


def test_it_builds_cold_in_a_minute_of_processor_time(book):
    assert book.seconds < 60
    assert (book.html / "index.html").exists()
    assert (book.html / "searchindex.js").exists()


@every_page
def test_page_has_title_navigation_and_licences(book, page):
    soup = parsed(book.html / f"{page}.html")
    assert soup.find("article").find("h1").get_text(strip=True)
    assert soup.select(".prev-next-area a")
    footer = soup.select_one(".bd-footer-content").get_text(" ", strip=True)
    assert "CC BY 4.0" in footer
    assert "Apache-2.0" in footer
    assert soup.find("link", rel="icon")["href"].endswith(".svg")


@every_page
def test_page_loads_nothing_from_another_host(book, page):
    soup = parsed(book.html / f"{page}.html")
    loaded = [tag["src"] for tag in soup.find_all(src=True)] + [tag["href"] for tag in soup.find_all("link", href=True)]
    assert loaded
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
    for script in soup.find_all("script", src=False):
        assert not re.search(r"https?://", script.get_text()), script.get_text()[:200]


def test_styles_load_nothing_from_another_host(book):
    for sheet in book.html.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(\s*['\"]?|@import\s+['\"]?)(https?:)?//", text), sheet


@every_page
def test_page_shows_no_raw_markup(book, page):
    soup = BeautifulSoup(str(article(book.html, page)), "html.parser")
    for tag in soup.select("pre, script"):
        tag.decompose()
    text = soup.get_text(" ")
    for markup in (":::", "$$", "(eq-", "{eq}", "{ref}", "{cite", "{prf:", "{doc}"):
        assert markup not in text, text[max(0, text.find(markup) - 80) :][:160]


@every_page
def test_every_picture_says_what_it_shows(book, page):
    for image in article(book.html, page).find_all("img"):
        alt = image.get("alt", "")
        assert len(alt) > 15, image
        assert not alt.startswith("../"), image


@every_chapter
def test_no_cell_shows_a_warning(book, page):
    assert [tag.get_text() for tag in article(book.html, page).select(".output.stderr, .output.traceback")] == []


@every_chapter
def test_chapter_is_numbered_by_its_file(book, page):
    soup, chapter = article(book.html, page), chapter_number(page)
    for word in ("Theorem", "Definition", "Lemma", "Corollary", "Exercise", "Figure"):
        found = numbers(soup, word)
        assert found == [f"{chapter}.{k}" for k in range(1, len(found) + 1)]
    equations = equation_numbers(soup)
    assert equations == [f"{chapter}.{k}" for k in range(1, len(equations) + 1)]


@every_chapter
def test_exercise_shows_stub_hints_folded_answer_and_check(book, page):
    soup = article(book.html, page)
    solution = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
    answers = [cell for cell in solution.cells if role_of(cell) == "answer"]
    exercises = [find(cell.metadata.lineage.exercise) for cell in answers]
    stubs, folded = soup.select("div.cell.tag_stub"), soup.select("div.cell.tag_answer > details.hide")
    ladders = [tag for tag in soup.select("details.hint") if not tag.find_parent("details", class_="hint")]
    outputs = [tag.get_text() for tag in soup.select(".output.stream") if not tag.find_parent("details")]
    assert len(stubs) == len(folded) == len(ladders) == len(answers) > 0
    for cell, exercise, stub, details, hints in zip(answers, exercises, stubs, folded, ladders):
        assert exercise.stub_line in stub.get_text()
        assert not stub.find_parent("details")
        _, lines, _ = split_answer(cell.source)
        assert "\n".join(lines) in details.get_text()
        assert not details.has_attr("open")
        assert details.summary.get_text(" ", strip=True) == "Show the answer Hide the answer"
        assert [tag.get_text() for tag in hints.select(".sd-summary-text")] == [f"Hint {k} of 4" for k in (1, 2, 3, 4)]
        assert not any(tag.has_attr("open") for tag in [hints, *hints.find_all("details")])
        assert any(text.startswith(f"ok {exercise.id} {exercise.name}") for text in outputs)


@every_chapter
def test_download_is_the_learners_notebook(book, page):
    link = article(book.html, page).select_one(".chapter-bar a.download")
    learners = CHAPTERS / f"{page.rpartition('/')[2]}.ipynb"
    assert (book.html / page).parent.joinpath(link["href"]).resolve().read_bytes() == learners.read_bytes()


def test_no_source_with_answers_is_published(book):
    assert not (book.html / "_sources").exists()
    for notebook in book.html.rglob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert not any("### BEGIN SOLUTION" in "".join(cell["source"]) for cell in cells)


def test_the_map_has_every_chapter_and_links_those_that_exist(book):
    rows = [row for table in article(book.html, "book/intro").select("table.book-map") for row in table.select("td")]
    firsts, names = rows[0::3], rows[1::3]
    assert [cell.get_text(strip=True) for cell in firsts] == [str(k) for k in range(17)]
    linked = {int(first.get_text()) for first, name in zip(firsts, names) if name.find("a")}
    assert linked == {chapter_number(page) for page in CHAPTER_PAGES}


@pytest.mark.parametrize(
    ("page", "identity", "mistake"),
    [("book/how_to_work.md", "0.1", "complement"), ("README.md", "3.2", "decay-includes-own")],
)
def test_pages_show_what_a_check_really_says(page, identity, mistake):
    exercise = find(identity)
    (known,) = [m for m in exercise.mistakes if m.name == mistake]
    assert judge(exercise, known.function).message in (ROOT / page).read_text(encoding="utf-8")


def test_every_source_is_in_the_bibliography(book):
    entries = parse_file(str(BIB)).entries
    soup = article(book.html, "book/bibliography")
    printed = [tag.get_text(" ", strip=True) for tag in soup.select("[role=doc-biblioentry]")]
    assert len(printed) == len(entries)
    for entry in entries.values():
        assert entry.fields["checked"]
        assert not any(entry.fields["checked"] in text for text in printed)


def test_sources_can_be_told_apart():
    bibliography = parse_file(str(BIB))
    labels = [f"{authors(entry)} {entry.fields['year']}" for entry in bibliography.entries.values()]
    assert len(set(labels)) == len(labels)
    preprints = [entry.fields["eprint"] for entry in bibliography.entries.values() if "eprint" in entry.fields]
    assert len(set(preprints)) == len(preprints)
    assert len(known_addresses(bibliography)) >= len(preprints)


def test_vendored_files_carry_their_licences():
    for folder in (ROOT / "book/site/vendor").iterdir():
        assert folder.is_file() or (folder / "LICENSE").exists()
