"""A reader compares two rules on the family-tree page, opened as a file, with the network blocked."""

import pytest

from lineage_lib.rules import RULES, example, show


@pytest.fixture
def opened(page, outside, book):
    """Opens the page at an address's end and waits until its formulas are set."""
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))

    def open_page(end=""):
        page.goto((book.html / "book/family_tree.html").as_uri() + end)
        set_formulas(page)
        return page

    yield open_page
    assert outside == []
    assert troubles == []


def set_formulas(page):
    page.evaluate("MathJax.startup.promise")
    page.wait_for_function("document.querySelectorAll('.compare-formula mjx-container').length > 5")


def numbers(page, name):
    """The table of a rule's state as the page shows it, and the room it reads for Ada."""
    panel = page.locator(f".compare-state[data-rule={name}]")
    rows = panel.locator(".compare-heat tbody tr").all()
    shown = [[float(t.replace("−", "-")) for t in row.locator("td").all_inner_texts()] for row in rows]
    answer = panel.locator("[data-name=Ada] .compare-answer").inner_text()
    return shown, float(answer.replace("−", "-"))


def expected(name, token):
    run = example.run(RULES[name])
    return run.states[token].tolist(), float(example.room(run.answers["Ada"])[token])


def assert_states(page, token, *names):
    for name in names:
        (shown, answer), (states, room) = numbers(page, name), expected(name, token)
        assert len(shown) == len(states)
        for row, state in zip(shown, states):
            assert row == pytest.approx(state, abs=0.0051)
        assert answer == pytest.approx(room, abs=0.051)


def marks(page):
    return {
        row.get_attribute("data-part"): row.locator(".compare-mark").inner_text()
        for row in page.locator(".compare-row[data-part]").all()
    }


def assert_marks(page, left, right):
    parts, others = (show.equation_parts(RULES[name]) for name in (left, right))
    assert marks(page) == {
        part: "= same" if parts.get(part) == others.get(part) else "≠ differs"
        for part in show.PARTS
        if part in parts or part in others
    }
    assert page.locator(".compare-formula mjx-container").count() == len(parts) + len(others)
    assert page.locator("mjx-merror, mjx-mtext[style*=red]").count() == 0
    assert "\\" not in page.locator(".compare-equations").inner_text()


def test_it_opens_on_two_rules_at_the_end_of_the_stream(opened):
    page = opened()
    assert_marks(page, "mamba-2", "gated-deltanet")
    assert_states(page, len(example.TOKENS) - 1, "mamba-2", "gated-deltanet")


def test_two_rules_are_chosen_and_the_stream_is_stepped(opened):
    page = opened()
    page.get_by_label("One rule").select_option("gla")
    page.get_by_label("Another rule").select_option("kda")
    set_formulas(page)
    assert page.url.endswith("#compare=gla,kda")
    assert_marks(page, "gla", "kda")
    assert marks(page)["read"] == "= same"
    page.get_by_role("button", name="Ada → 31").click()
    for token in range(len(example.TOKENS)):
        assert_states(page, token, "gla", "kda")
        assert page.locator(".compare-token[aria-pressed=true]").inner_text().endswith(example.TOKENS[token])
        if token < len(example.TOKENS) - 1:
            page.get_by_label("One token on").click()
    assert page.get_by_label("One token on").is_disabled()


def test_the_keyboard_is_enough(opened):
    page = opened()
    page.locator(".compare-token").last.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert_states(page, len(example.TOKENS) - 3, "mamba-2", "gated-deltanet")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.get_by_label("One token on").focus()
    for _ in range(3):  # past the end: the button keeps the focus
        page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    assert_states(page, len(example.TOKENS) - 2, "mamba-2", "gated-deltanet")
    page.get_by_label("One rule").focus()
    page.keyboard.press("ArrowDown")
    assert not page.url.endswith(".html")


@pytest.mark.parametrize(("left", "right"), [("s4", "mlstm"), ("rg-lru", "rwkv-6"), ("deltaproduct", "mamba-3")])
def test_the_address_chooses(opened, left, right):
    page = opened(f"#compare={left},{right}")
    assert page.get_by_label("One rule").input_value() == left
    assert_marks(page, left, right)
    assert_states(page, len(example.TOKENS) - 1, left, right)


@pytest.mark.parametrize("end", ["#compare=nothing,kda", "#compare=kda", "#rule-kda"])
def test_another_address_leaves_the_first_choice(opened, end):
    page = opened(end)
    assert page.get_by_label("One rule").input_value() == "mamba-2"


def test_what_was_fed_unfolds(opened):
    page = opened("#compare=mamba-1,kda")
    fed = page.locator(".compare-fed")
    assert not fed.is_visible()
    page.get_by_text("What each rule was fed").click()
    for words in example.run(RULES["mamba-1"]).fed.values():
        assert fed.get_by_text(words, exact=True).first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone(opened, scheme):
    page = opened("#compare=mlstm,deltaproduct")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.locator(".pst-scrollable-table-container:has(table.family)")
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
