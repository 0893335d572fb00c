"""A reader opens the built book in a real browser, offline."""

import functools
import http.server
import threading

import pytest
import yaml

from lineage_lib.book import chapter_number
from lineage_lib.paths import ROOT

TOC = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *(chapter["file"] for part in TOC["parts"] for chapter in part["chapters"])]
CHAPTERS = [page for page in PAGES if chapter_number(page) is not None]
PAPER = "rgb(251, 250, 247)"  # the ground of every figure, lineage_lib.figures.PAPER


@pytest.fixture(scope="module")
def address(book):
    """The book's address on this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(book.html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def nothing_goes_wrong(page, outside):
    """After each test: no request left, none failed, and no script stopped."""
    troubles = []

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # which is what becomes of a picture when the test leaves the page
            troubles.append(f"failed: {request.url}: {request.failure}")

    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", failed)
    page.on("response", lambda answer: troubles.append(f"{answer.status}: {answer.url}") if not answer.ok else None)
    yield
    assert outside == []
    assert troubles == []


def open_page(page, where):
    """Open a page and wait for its mathematics."""
    page.goto(where)
    page.evaluate("window.MathJax ? MathJax.startup.promise : null")


def assert_typeset(page):
    wanted = page.locator("article .math").count()
    assert page.locator("article mjx-container").count() >= wanted
    # MathJax sets an unknown command in red and goes on
    unknown = page.locator("mjx-merror, mjx-mtext[style*=red]").evaluate_all("all => all.map(m => m.outerHTML)")
    assert unknown == []


@pytest.mark.parametrize("name", PAGES)
def test_page_is_typeset_and_fits(page, address, name):
    open_page(page, f"{address}/{name}.html")
    assert page.locator("article h1").first.is_visible()
    assert_typeset(page)
    assert page.evaluate("document.fonts.check('16px \"Source Serif 4\"')")
    for width in (1300, 390):  # a laptop, a telephone
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_chapters_have_mathematics(page, address):
    for name in CHAPTERS:
        open_page(page, f"{address}/{name}.html")
        assert page.locator("article mjx-container").count() > 0


def test_first_address_leads_to_the_intro(page, address):
    page.goto(f"{address}/")
    page.wait_for_url("**/book/intro.html")
    page.locator(".prev-next-area a.right-next").click()
    page.wait_for_url("**/book/how_to_work.html")


def test_search_finds_the_chapter(page, address):
    page.goto(f"{address}/book/intro.html")
    page.locator(".bd-sidebar-primary .search-button__button").click()
    page.locator("#pst-search-dialog input[type=search]").fill("semiseparable")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=semiseparable**")
    page.locator("#search-results ul.search li").first.wait_for()
    page.get_by_text("Search finished").wait_for()
    found = page.locator("#search-results ul.search li > a").evaluate_all("links => links.map(a => a.pathname)")
    assert any(path.endswith("/solutions/02_semiseparable.html") for path in found)
    page.locator("#search-results mjx-container").first.wait_for()  # formulas in the excerpts are typeset


@pytest.mark.parametrize("name", CHAPTERS)
def test_hints_and_answer_open(page, address, name):
    open_page(page, f"{address}/{name}.html")
    answer = page.locator("div.tag_answer").first
    assert not answer.locator("pre").is_visible()
    assert answer.locator("summary").inner_text().strip() == "Show the answer"
    answer.locator("summary").click()
    assert answer.locator("pre").is_visible()
    assert answer.locator("summary").inner_text().strip() == "Hide the answer"
    assert page.locator("div.tag_stub").first.is_visible()

    second = page.get_by_text("Hint 2 of 4").first
    assert not second.is_visible()
    page.get_by_text("Hint 1 of 4").first.click()
    assert second.is_visible()
    assert not page.get_by_text("Hint 3 of 4").first.is_visible()


@pytest.mark.parametrize("name", CHAPTERS)
def test_folded_proofs_open(page, address, name):
    open_page(page, f"{address}/{name}.html")
    for proof in page.locator("div.proof.dropdown").all():
        inside = proof.locator(":scope > :nth-child(2)")
        assert not inside.is_visible()
        proof.locator(".admonition-title").click()
        assert inside.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_dark_mode_keeps_figures_on_their_light_ground(page, address, name):
    open_page(page, f"{address}/{name}.html")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for _ in range(3):  # the button goes round: light, dark, system
        if page.evaluate("document.documentElement.dataset.theme") != "dark":
            page.locator(".theme-switch-button").first.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    figures = "article figure img, article div.cell_output img"
    grounds = page.locator(figures).evaluate_all(
        "all => all.map(img => [getComputedStyle(img).backgroundColor, getComputedStyle(img).filter])"
    )
    assert grounds == [[PAPER, "none"]] * len(grounds)
    assert name != TOC["root"] or grounds


@pytest.mark.parametrize("name", [TOC["root"], CHAPTERS[-1]])
def test_page_works_without_a_server(page, book, name):
    open_page(page, (book.html / f"{name}.html").as_uri())
    assert_typeset(page)
    for image in page.locator("article img").all():
        assert image.evaluate("img => img.decode().then(() => img.naturalWidth)") > 0
    page.locator(".prev-next-area a").first.click()
    page.wait_for_url("file:**")
    assert page.locator("article h1").first.is_visible()
