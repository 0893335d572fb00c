"""The interactive pieces from Python: settings, what the library says, what is stored for pages without a kernel."""

import json
import re

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from traitlets import TraitError

from lineage_lib import authoring, tasks, widgets
from lineage_lib.rules import RULES
from lineage_lib.widgets import matrix_lab, microscope
from lineage_lib.widgets.gates import GATES, run
from lineage_lib.widgets.piece import HERE

PIECES = pytest.mark.parametrize("piece", widgets.PIECES)


# --- What the pieces compute ---


def test_the_script_knows_the_same_rules_and_gates():
    table = re.search(r"const RULES = \{(.*?)\n\};", (HERE / "shared.js").read_text("utf-8"), re.S)[1]
    rows = re.findall(r'^ +"?([\w-]+)"?: \{ title: "([^"]+)", gates: (\[.*?\]) \}', table, re.M)
    assert {name: (title, tuple(json.loads(gates))) for name, title, gates in rows} == {
        name: (RULES[name].title, gates) for name, gates in GATES.items()
    }


@pytest.mark.parametrize("rule", GATES)
def test_states_are_those_of_the_recurrence(rule):
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    gates = [
        {
            "decay": rng.random(),
            "beta": rng.random(),
            "channel_decay": rng.random(3),
            "erase": rng.random(3),
            "write": rng.random(2),
        }
        for _ in range(5)
    ]
    gates[2]["decay"], gates[2]["channel_decay"][1] = 0.0, 0.0  # a reset
    S = np.zeros((3, 2))
    for t, (key, value, g) in enumerate(zip(k, v, gates)):
        has = GATES[rule]
        alpha = g["channel_decay"][:, None] if "channel_decay" in has else g["decay"] if "decay" in has else 1.0
        e = g["erase"] * key if "erase" in has else g["beta"] * key if "beta" in has else 0 * key
        z = g["write"] * value if "write" in has else g["beta"] * value if "beta" in has else value
        S = alpha * S
        S = S + np.outer(key, z - S.T @ e)
        assert np.abs(run(rule, k, v, gates)[t] - S).max() < 1e-13


@pytest.mark.parametrize("rule", GATES)
def test_shut_gates_change_nothing(rule):
    rng = np.random.default_rng(1)
    k, v = rng.standard_normal((2, 3)), rng.standard_normal((2, 2))
    gates = {"decay": 0.5, "beta": 0.5, "channel_decay": np.full(3, 0.5), "erase": np.ones(3), "write": np.ones(2)}
    first, second = run(rule, k, v, [gates, None])
    assert np.array_equal(first, second) == bool(GATES[rule])  # linear attention has none to shut


def test_the_lab_revises_ada_and_moves_bo_by_the_cosine():
    lab = widgets.MatrixLab(rule="gated-deltanet", angle=60.0, decay=[1.0] * 3, beta=[1.0] * 3)
    ada, bo = lab.answers()["Ada"], lab.answers()["Bo"]
    assert ada[2] == pytest.approx([4, 7])
    assert bo[1] == pytest.approx([1, 2])
    assert bo[2] - bo[1] == pytest.approx(0.5 * (np.array([4, 7]) - ada[1]))  # T7: cosine times error


def test_the_microscope_reads_what_the_stream_says():
    scope = widgets.Microscope(stream="rare", left="gated-deltanet", right="kda", decay=0.9)
    for rule, keeps in (("gated-deltanet", False), ("kda", True)):
        assert (scope.errors(rule)[-1, 3:] < 1e-4).all() == keeps  # keys are rounded to six digits
    scope.stream, scope.skip = "distractors", True
    assert np.nanmax(scope.errors("deltanet")) < 1e-4


@PIECES
def test_fixtures_cover_every_rule_and_nothing_is_missing(piece):
    fixtures = piece.library_data()["fixtures"]
    assert len(fixtures) >= 10
    sides = {"rule": 1, "left": 1, "right": 1}
    seen = {fixture["settings"][side] for fixture in fixtures for side in sides if side in fixture["settings"]}
    assert seen == set(matrix_lab.LAB_RULES if piece is widgets.MatrixLab else GATES)
    for fixture in fixtures:
        assert set(fixture["settings"]) == set(piece().settings())
        assert np.isfinite(fixture["values"]).all()
        piece(**fixture["settings"])  # a setting that Python would refuse is no setting


# --- Settings ---


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decay": [1, 2, 0]}, "decay: expected numbers from 0 to 1 of shape (3,), got [1, 2, 0]"),
        ({"erase": [0.5, 0.5, 0.5]}, "erase: expected numbers from 0 to 1 of shape (3, 2)"),
        ({"beta": "x"}, "beta: expected numbers from 0 to 2"),
        ({"write": [[float("nan"), 0]] * 3}, "write: expected numbers"),
        ({"rule": "gla"}, "'rule' trait"),
        ({"position": 16}, "'position' trait"),
        ({"angle": -1}, "'angle' trait"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings, words):
    with pytest.raises(TraitError, match=re.escape(words)):
        widgets.MatrixLab(**settings)


@PIECES
def test_an_unknown_setting_is_refused(piece):
    with pytest.raises(TypeError, match=f"rul: {piece.__name__} has no such setting; it has "):
        piece(rul="kda")


def test_settings_are_read_and_set():
    lab = widgets.MatrixLab()
    lab.decay = (0.5, 0.25, 1)
    assert lab.decay == [0.5, 0.25, 1.0]
    assert repr(lab) == "MatrixLab(decay=[0.5, 0.25, 1.0])"
    assert lab.settings()["rule"] == "gated-deltanet-2"


# --- What is stored ---


@PIECES
def test_a_stored_output_is_the_same_every_time(piece):
    first, second = (piece(**piece.library_data()["fixtures"][1]["settings"])._repr_mimebundle_() for _ in range(2))
    assert first["text/html"] == second["text/html"]
    part = BeautifulSoup(first["text/html"], "html.parser").div
    assert json.loads(part["data-settings"]) == piece.library_data()["fixtures"][1]["settings"]
    assert part.svg["aria-label"]
    assert "NaN" not in first["text/html"]
    assert "nan" not in first["text/html"]


def test_the_still_picture_shows_the_librarys_numbers():
    lab = widgets.MatrixLab(rule="kda", angle=35.0)
    words = BeautifulSoup(lab.still(), "html.parser").get_text(" ")
    for x in lab.states().ravel():
        assert f"{abs(x):.2f}" in words
    scope = widgets.Microscope(stream="rare", left="gated-deltanet", right="kda")
    words = BeautifulSoup(scope.still(), "html.parser").get_text(" ")
    for rule in ("gated-deltanet", "kda"):
        assert f"{RULES[rule].title}: {np.nanmean(scope.errors(rule)[-1]):.2f}" in words


def test_a_notebook_keeps_no_trace_of_a_kernels_widgets(tmp_path):
    code = "from lineage_lib import widgets\nwidgets.MatrixLab(rule='kda')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    authoring.run(notebook, tmp_path)
    [output] = notebook.cells[0].outputs
    assert set(output["data"]) == {"text/html", "text/plain"}
    assert set(notebook.metadata) == {"language_info"}


# --- A figure with controls ---


def swing(height=1.0, dashed=False, name="sine"):
    """A wave of some height."""
    plt.figure(figsize=(2, 1))
    plt.plot(height * getattr(np, name[:3])(np.arange(9.0)), "--" if dashed else "-")


def test_controls_redraw_the_figure():
    experiment = widgets.live(swing, height=(0.0, 2.0, 0.5), dashed=True, name=["sine", "cosine"])
    assert [control.value for control in experiment.controls.values()] == [1.0, True, "sine"]
    first = experiment._picture.value
    experiment.controls["height"].value = 2.0
    assert experiment._picture.value != first
    assert 'alt="A wave of some height."' in experiment._picture.value
    assert repr(experiment) == "swing(height=2.0, dashed=True, name='sine')"
    assert plt.get_fignums() == []


def test_the_first_frame_is_stored():
    shown = widgets.live(swing, height=(0.0, 2.0, 0.5))._repr_mimebundle_()
    assert set(shown) == {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"}
    assert shown["image/png"].startswith("iVBOR")
    assert shown["text/plain"] == "swing(height=1.0)"


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ({"width": (0, 1)}, "width: swing has no such argument; it has height, dashed, name"),
        ({"height": object()}, "height: expected (lowest, highest, step), a list of choices or a bool"),
    ],
)
def test_a_bad_control_is_refused_by_name(controls, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        widgets.live(swing, **controls)


def test_a_live_figure_needs_defaults():
    def bare(x):
        """Nothing."""

    with pytest.raises(ValueError, match="x: the figure's argument needs a default"):
        widgets.live(bare, x=(0, 1))


# --- The streams ---


def test_rewriting_reproduces_the_known_stream():
    stream = tasks.rewriting(np.random.default_rng(0))
    S, errors = np.zeros((16, 16)), []
    for key, value in zip(stream.keys, stream.values):
        S = S + np.outer(key, value)
        errors.append(S)
    mean = np.nanmean(tasks.recall_errors(np.array(errors), stream), axis=1)
    assert mean[[9, 49, 199]] == pytest.approx([0.545, 2.381, 6.149], abs=6e-4)


@pytest.mark.parametrize("task", [tasks.rewriting, tasks.distracted, tasks.rare])
def test_keys_have_norm_one_and_names_are_orthonormal(task):
    stream = task(np.random.default_rng(3), T=40, names=6, K=8, V=3)
    assert stream.keys.shape == (40, 8)
    assert stream.values.shape == (40, 3)
    assert np.linalg.norm(stream.keys, axis=1) == pytest.approx(1)
    assert stream.book @ stream.book.T == pytest.approx(np.eye(6))
    named = stream.names >= 0
    assert np.array_equal(stream.keys[named], stream.book[stream.names[named]])
    assert named.all() == (task is not tasks.distracted)


def test_rare_names_are_written_once_and_have_their_own_channels():
    stream = tasks.rare(np.random.default_rng(4), T=50, names=6, K=8, V=3)
    assert np.bincount(stream.names)[3:].tolist() == [1, 1, 1]
    assert not stream.book[:3, 4:].any()
    assert not stream.book[3:, :4].any()


def test_errors_before_a_first_write_are_not_numbers():
    stream = microscope.streams()["rewriting"]
    errors = tasks.recall_errors(np.zeros((120, 8, 4)), stream)
    assert np.isnan(errors[0]).sum() == 5
    assert errors[-1] == pytest.approx(1)


def test_too_many_names_are_refused():
    with pytest.raises(ValueError, match="names: expected 1 to K = 4 orthonormal keys, got 5"):
        tasks.rewriting(np.random.default_rng(0), names=5, K=4)
