"""The interactive pieces, in the book without a kernel and in JupyterLab with one; no request leaves the machine."""

import re

import nbformat
import numpy as np
import pytest

from lineage_lib import serving
from lineage_lib.widgets import PIECES, MatrixLab, Microscope
from lineage_lib.widgets.gates import GATES
from lineage_lib.widgets.matrix_lab import LAB_RULES, WRITES
from lineage_lib.widgets.microscope import PEOPLE, STREAMS, T


@pytest.fixture
def opened(page, outside, book):
    """Opens a page of the book that has a piece, as a file, and returns that piece."""
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))

    def open_piece(piece):
        page.goto(page_with(book, piece).as_uri())
        shown = page.locator(f".lineage-piece[data-piece={piece.name}] .piece").first
        shown.scroll_into_view_if_needed()
        return shown

    yield open_piece
    assert outside == []
    assert troubles == []


def page_with(book, piece):
    pages = [
        page
        for page in sorted(book.html.glob("solutions/*.html"))
        if f'data-piece="{piece.name}"' in page.read_text("utf-8")
    ]
    assert pages, f"no page has a {piece.name}"
    return pages[-1]


def number(shown, cell):
    return float(shown.locator(f"[data-cell='{cell}']").get_attribute("data-value"))


def drag_to(shown, name, value):
    """Move a slider as a hand does; it lands on the step nearest to ``value``."""
    handle = shown.locator(f"input[data-setting='{name}']")
    handle.evaluate(
        "(node, x) => { node.value = x; node.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def settled(shown):
    """Wait for the frame in which the piece is drawn again."""
    shown.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def assert_lab(shown, settings):
    """Every number of the lab that is not hidden equals the library's."""
    settled(shown)
    lab = MatrixLab(**settings)
    states, answers = lab.states(), lab.answers()
    t = max(0, -(-settings["position"] // 5) - 1)
    for i in range(2):
        for j in range(2):
            assert number(shown, f"after.{i}.{j}") == pytest.approx(states[t, i, j], abs=1e-9, rel=1e-9)
    for name, digits in answers.items():
        for token in range(len(WRITES)):
            for j in range(2):
                assert number(shown, f"{name}.{token}.{j}") == pytest.approx(digits[token, j], abs=1e-9, rel=1e-9)


def assert_microscope(shown, settings):
    settled(shown)
    scope, t = Microscope(**settings), settings["position"] - 1
    for side in ("left", "right"):
        panel = shown.locator(f".piece-side[data-side={side}]")
        errors, S = scope.errors(settings[side])[t], scope.states(settings[side])[t]
        for n in range(len(PEOPLE)):
            value = float(panel.locator(f".value[data-row='{n}']").get_attribute("data-value"))
            assert value == pytest.approx(errors[n], abs=1e-9, rel=1e-9, nan_ok=True)
        assert number(shown, f"{side}.mean") == pytest.approx(np.nanmean(errors), abs=1e-9, rel=1e-9)
        for i, j in ((0, 0), (7, 3), (4, 1)):
            assert number(panel, f"{side}.{i}.{j}") == pytest.approx(S[i, j], abs=1e-9, rel=1e-9)


# --- In the book ---


@pytest.mark.parametrize("piece", PIECES)
def test_it_is_checked_against_the_library_when_it_opens(opened, piece):
    shown = opened(piece)
    assert int(shown.get_attribute("data-checked")) >= 10
    assert float(shown.get_attribute("data-worst")) < 1e-9
    assert shown.locator(".piece-error").count() == 0


@pytest.mark.parametrize("piece", PIECES)
def test_a_mismatch_with_the_library_shows_an_error(page, book, piece):
    script = (book.html / f"_static/{piece.name}.js").read_text("utf-8")
    wrong = re.sub(
        r'"values":\[([-\d.e]+),',
        lambda m: f'"values":[{float(m[1]) + 2e-9 * max(1, abs(float(m[1])))!r},',
        script,
        count=1,
    )
    assert wrong != script
    page.route(f"**/{piece.name}.js*", lambda route: route.fulfill(body=wrong, content_type="text/javascript"))
    page.goto(page_with(book, piece).as_uri())
    alert = page.locator(f".lineage-piece[data-piece={piece.name}] .piece-error").first
    assert alert.inner_text().startswith("These numbers are not those of the library")


def test_the_lab_shows_the_librarys_numbers_at_ten_random_settings(opened):
    shown, rng = opened(MatrixLab), np.random.default_rng(5)
    for i in range(10):
        settings = {"rule": LAB_RULES[i % 4], "angle": float(rng.integers(181))}
        shown.locator("select[data-setting=rule]").select_option(settings["rule"])
        drag_to(shown, "angle", settings["angle"])
        for t in range(len(WRITES)):
            shown.locator(f"button[data-token='{t}']").click()
            settled(shown)
            for handle in shown.locator(".piece-gates input").all():
                name = handle.get_attribute("data-setting")
                drag_to(shown, name, round(rng.random(), 2))
                gate, *place = name.split(".")
                value = float(handle.input_value())
                settings.setdefault(gate, MatrixLab.class_traits()[gate].default())
                settings[gate] = with_value(settings[gate], [int(p) for p in place], value)
        settings["position"] = 15
        assert_lab(shown, settings)


def with_value(nested, place, value):
    if not place:
        return value
    changed = list(nested)
    changed[place[0]] = with_value(nested[place[0]], place[1:], value)
    return changed


def test_the_lab_goes_step_by_step_with_keys(opened):
    shown = opened(MatrixLab)
    rule = shown.locator("select[data-setting=rule]").input_value()
    shown.get_by_role("button", name="One step back").focus()
    shown.page.keyboard.press("Home")
    settled(shown)
    assert "The state is empty" in shown.locator(".piece-status").inner_text()
    for position in range(1, 16):
        shown.page.keyboard.press("ArrowRight")
        settled(shown)
        assert f"(step {position} of 15)" in shown.locator(".piece-status").inner_text()
        seen = shown.locator("[data-cell='after.0.0']").inner_text() != "–"
        assert seen == ((position - 1) % 5 >= 3)
    assert_lab(shown, {"rule": rule, "position": 15})
    gate = shown.locator(".piece-gates input").first
    gate.focus()
    before = float(gate.input_value())
    shown.page.keyboard.press("ArrowLeft")
    settled(shown)
    assert float(gate.input_value()) == pytest.approx(before - 0.01)
    assert "(step 15 of 15)" in shown.locator(".piece-status").inner_text()


def test_a_gate_is_dragged_with_the_mouse_while_bos_answer_is_watched(opened):
    shown = opened(MatrixLab)
    shown.locator("select[data-setting=rule]").select_option("gated-deltanet")
    shown.locator("button[data-token='2']").click()
    settled(shown)
    before = number(shown, "Bo.2.0")
    gate = shown.locator("input[data-setting='beta.2']")
    box = gate.bounding_box()
    middle = box["y"] + box["height"] / 2
    shown.page.mouse.move(box["x"] + box["width"] / 2, middle)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 2, middle, steps=4)
    shown.page.mouse.up()
    beta = float(gate.input_value())
    assert beta < 0.2
    assert_lab(shown, {"rule": "gated-deltanet", "position": 15, "beta": [1.0, 1.0, beta]})
    assert abs(number(shown, "Bo.2.0") - before) > 0.1
    shown.get_by_role("button", name="Set all gates back").click()
    assert_lab(shown, {"rule": "gated-deltanet", "position": 15})


def test_the_microscope_shows_the_librarys_numbers_at_ten_random_settings(opened):
    shown, rng = opened(Microscope), np.random.default_rng(6)
    for i in range(10):
        left, right = list(GATES)[i % 6], list(GATES)[(i * 2 + 1) % 6]
        settings = {"stream": list(STREAMS)[i % 3], "left": left, "right": right}
        for name, value in settings.items():
            shown.locator(f"select[data-setting={name}]").select_option(value)
        settled(shown)
        skip = shown.locator("input[data-setting=skip]")
        if skip.is_enabled():
            skip.set_checked(bool(rng.integers(2)))
        settings["skip"] = skip.is_checked()
        for name in ("decay", "slow_decay", "beta", "erase", "write"):
            drag_to(shown, name, round(0.5 + rng.random() / 2, 2))
            settings[name] = float(shown.locator(f"input[data-setting={name}]").input_value())
        settings["position"] = int(rng.integers(1, T + 1))
        drag_to(shown, "position", settings["position"])
        assert_microscope(shown, settings)


def test_the_microscope_is_stepped_played_and_dragged(opened):
    shown = opened(Microscope)
    line = shown.get_by_role("group", name="Play and step")
    line.get_by_role("button", name="One token back").focus()
    shown.page.keyboard.press("Home")
    settled(shown)  # the button can go no further back, and keeps the focus
    shown.page.keyboard.press("ArrowRight")
    settled(shown)
    status = shown.locator(".piece-status")
    assert status.inner_text().startswith(f"Token 2 of {T}")
    line.get_by_role("button", name="Play the stream, or stop it").click()
    shown.page.wait_for_timeout(700)
    line.get_by_role("button", name="Play the stream, or stop it").click()
    settled(shown)
    reached = int(re.match(r"Token (\d+)", status.inner_text())[1])
    assert 3 <= reached <= 12
    shown.page.wait_for_timeout(300)
    assert status.inner_text().startswith(f"Token {reached} ")
    chart = shown.locator(".piece-chart").first
    box = chart.bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=3)
    shown.page.mouse.up()
    settled(shown)
    assert 55 <= int(re.match(r"Token (\d+)", status.inner_text())[1]) <= 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("piece", PIECES)
def test_it_fits_a_telephone(opened, piece, scheme):
    shown = opened(piece)
    shown.page.emulate_media(color_scheme=scheme)
    shown.page.set_viewport_size({"width": 390, "height": 800})
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_two_pieces_on_a_page_keep_apart(opened):
    """Each label belongs to the control beside it: no id is given twice."""
    page = opened(Microscope).page
    assert page.locator(".piece").count() > 1
    ids = page.eval_on_selector_all(".piece [id]", "nodes => nodes.map(node => node.id)")
    assert len(ids) == len(set(ids))
    own = "nodes => nodes.every(label => label.control && label.closest('.piece').contains(label.control))"
    assert page.eval_on_selector_all(".piece label", own)
    scope = page.locator("[data-piece=microscope] .piece")
    scope.locator("select[data-setting=stream]").select_option("distractors")
    before = scope.locator("input[data-setting=skip]").is_checked()
    scope.get_by_text("The gates shut at distractors").click()
    assert scope.locator("input[data-setting=skip]").is_checked() != before


def test_without_scripts_there_is_a_still_picture(chromium, book):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    for piece in PIECES:
        page.goto(page_with(book, piece).as_uri())
        assert page.locator(f".lineage-piece[data-piece={piece.name}] svg.piece-still").first.is_visible()
    context.close()


def test_only_pages_with_a_piece_load_its_script(book):
    for page in book.html.glob("*/*.html"):
        text = page.read_text("utf-8")
        for piece in PIECES:
            assert (f"_static/{piece.name}.js" in text) == (f'data-piece="{piece.name}"' in text), page.name


# --- In JupyterLab ---

NOTEBOOK = (
    "from lineage_lib import widgets\nlab = widgets.MatrixLab(rule='kda')\nlab",
    "scope = widgets.Microscope(stream='distractors')\nscope",
    "print(lab.settings())",
    "lab.position, lab.angle, lab.beta = 15, 20.0, [0.5, 1.0, 1.5]\n"
    "scope.left, scope.skip, scope.position = 'mamba-2', True, 60",
    "print(scope.settings())",
)


@pytest.fixture
def jupyterlab(tmp_path, page, outside):
    """A notebook with both pieces, opened in JupyterLab with its kernel running."""
    work = tmp_path / "work"
    work.mkdir()
    cells = [nbformat.v4.new_code_cell(code) for code in NOTEBOOK]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), work / "pieces.ipynb")
    process, address = serving.start_lab(work)
    page.goto(address.replace("/lab?", "/lab/tree/pieces.ipynb?"))
    page.locator(".jp-CodeCell").first.wait_for(timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)
    yield page
    process.terminate()
    process.wait()
    assert outside == []


@pytest.mark.timeout(240)
def test_the_pieces_are_widgets_in_jupyterlab(jupyterlab):
    page = jupyterlab

    def run(i):
        page.locator(".jp-CodeCell").nth(i).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")

    def printed(i):
        output = page.locator(".jp-CodeCell").nth(i).locator(".jp-OutputArea-output", has_text="{")
        output.wait_for(timeout=60_000)
        return eval(output.inner_text())

    run(0)
    lab = page.locator(".jp-CodeCell").nth(0).locator(".piece")
    lab.wait_for(timeout=60_000)
    assert float(lab.get_attribute("data-worst")) < 1e-9
    assert int(lab.get_attribute("data-checked")) >= 10
    lab.locator("button[data-token='1']").click()
    drag_to(lab, "channel_decay.1.0", 0.37)
    gate = lab.locator("input[data-setting='beta.1']")
    gate.focus()
    page.keyboard.press("ArrowLeft")
    assert_lab(
        lab,
        {
            "rule": "kda",
            "position": 10,
            "channel_decay": [[0.98, 0.82], [0.37, 0.82], [0.98, 0.82]],
            "beta": [1.0, 0.99, 1.0],
        },
    )

    run(1)
    scope = page.locator(".jp-CodeCell").nth(1).locator(".piece")
    scope.wait_for(timeout=60_000)
    assert float(scope.get_attribute("data-worst")) < 1e-9

    run(2)  # what the mouse did is read from Python
    settings = printed(2)
    assert settings["position"] == 10
    assert settings["channel_decay"][1] == [0.37, 0.82]
    assert settings["beta"] == [1.0, 0.99, 1.0]

    run(3)  # what Python sets is shown
    page.locator(".piece-status", has_text="step 15 of 15").wait_for(timeout=60_000)
    assert_lab(lab, {**settings, "position": 15, "angle": 20.0, "beta": [0.5, 1.0, 1.5]})
    page.locator(".piece-status", has_text="Token 60 of").wait_for(timeout=60_000)
    run(4)
    assert_microscope(scope, printed(4))
