"""The table of rules: its records hold together, and it shows itself in a terminal, a notebook and as JSON."""

import json
import re

import pytest
import torch
from matplotlib import pyplot as plt
from pybtex.database import parse_file

from lineage_lib import rules
from lineage_lib.figures.compare import mathtext, two_rules
from lineage_lib.paths import ROOT
from lineage_lib.rules import FORMS, RULES, example, show

EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
BIBLIOGRAPHY = parse_file(str(ROOT / "book" / "references.bib")).entries


@EVERY
def test_a_record_is_whole(rule):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert RULES[rule.name] is rule
    assert rule.family in ("additive", "delta")
    assert rule.decay in ("none", "fixed", "per token")
    assert rule.decay_axis in ("none", "head", "channel")
    assert (rule.decay == "none") == (rule.decay_axis == "none")
    assert rule.reads in ("after the write", "before the write")
    assert rule.parts.keys() <= set(show.PARTS)
    assert all(part.strip() for name, part in rule.parts.items() if name != "forget")
    assert {"forget", "write", "read"} <= rule.parts.keys()
    assert bool(rule.parts["forget"]) or rule.decay == "none"
    for sentence in (rule.forgets, rule.writes, *filter(None, [rule.note])):
        assert sentence[0].isupper() or sentence[1] == " ", sentence
        assert sentence.endswith("."), sentence
    assert rule.eigenvalues
    assert rule.contraction
    assert rule.letters
    assert rule.missing.keys() <= set(FORMS)
    assert all(rule.missing.values())


@EVERY
def test_its_papers_are_in_the_bibliography_and_the_first_is_the_year(rule):
    assert rule.papers
    assert [key for key in rule.papers if key not in BIBLIOGRAPHY] == []
    assert rule.year == int(BIBLIOGRAPHY[rule.papers[0]].fields["year"][:4])


@EVERY
def test_braces_and_sizes_of_its_formulas_match(rule):
    for tex in (*rule.parts.values(), rule.state, rule.eigenvalues, rule.contraction):
        assert tex.count("{") == tex.count("}")
        assert tex.count("$") % 2 == 0
    for tex in rule.parts.values():
        assert tex.count(r"\big(") == tex.count(r"\big)")


@EVERY
def test_the_size_of_the_state_is_that_of_the_reference(rule):
    K, V = 4, 3
    tensors = rules.draw(rule, {"B": 1, "T": 2, "H": 1, "K": K, "V": V})
    _, state = rule.recurrent(*tensors, output_final_state=True, **rule.options)
    parts = [state] if isinstance(state, torch.Tensor) else list(state)
    assert len(parts) == len(rule.state_parts)
    assert sum(part.numel() * (2 if part.is_complex() else 1) for part in parts) == rule.state_size(K, V)


@EVERY
def test_what_carries_it_is_what_it_is_lowered_to(rule):
    K, V = 4, 3
    low = rule.lowered(*rules.draw(rule, {"B": 1, "T": 2, "H": 1, "K": K, "V": V}), **rule.options)
    heads, width, values = rule.carrier(K, V)
    assert (low.v.shape[2], low.v.shape[3] + low.counts) == (heads, values)
    assert low.k.shape[-1] == width


def test_flops_count_every_use_of_the_state():
    K = V = 128
    assert RULES["linear-attention"].flops(K, V) == 4 * K * V  # write, read
    assert RULES["mamba-2"].flops(K, V) == 5 * K * V  # and the decay
    assert RULES["gated-deltanet"].flops(K, V) == 7 * K * V + V  # and what the key holds, subtracted
    assert RULES["rwkv-7"].flops(K, V) == 9 * K * V + V  # one key to erase, one to write
    assert RULES["rg-lru"].flops(K, V) == 5 * V
    mamba2, mamba1 = (RULES[name].chunked_flops(K, V, 64) for name in ("mamba-2", "mamba-1"))
    assert mamba1 > 20 * mamba2  # a mask for each channel


# --- Showing it ---


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_fits_a_terminal(width):
    lines = show.to_text(width).split("\n")
    assert max(map(len, lines)) <= width
    assert all(word in lines[0] for word in ["name", "year", "family", "forgets", "writes", "reads", "state", "forms"])
    for rule in RULES.values():
        assert any(line.startswith(rule.name[:17]) and str(rule.year) in line for line in lines)


@EVERY
def test_a_record_fits_a_terminal_and_says_everything(rule):
    text = show.record_text(rule, 80)
    assert max(len(line) for line in text.split("\n") if "\\" not in line) <= 80
    words = " ".join(text.split())
    for said in (rule.title, rule.forgets, rule.writes, rule.note, *rule.papers, *rule.missing.values()):
        assert said in words
    assert "$" not in text


@EVERY
def test_json_has_every_field(rule):
    record = json.loads(json.dumps(show.as_dict(rule), allow_nan=False))
    assert set(rule.__dataclass_fields__) <= record.keys()
    assert record["recurrent"].startswith("lineage_lib.reference.")
    assert record["at"] == {"K": 128, "V": 128, "C": 64}
    assert record["state_size"] == rule.state_size(128, 128)
    assert record["flops"] == {"recurrent": rule.flops(128, 128), "chunked": rule.chunked_flops(128, 128, 64)}
    assert record["forms"] == list(rule.forms)


@pytest.mark.parametrize(
    ("name", "found"), [("kda", "kda"), ("Gated DeltaNet", "gated-deltanet"), (" RWKV-7 ", "rwkv-7")]
)
def test_a_rule_is_found_by_name(name, found):
    assert show.find(name).name == found


@pytest.mark.parametrize(
    ("name", "near"), [("gated-delta", "gated-deltanet"), ("mamba", "mamba-2"), ("lru", "rg-lru"), ("", "kda")]
)
def test_an_unknown_rule_names_the_nearest(name, near):
    with pytest.raises(LookupError, match=f'no rule "{name}".*{near}'):
        show.find(name)


def test_the_notebook_table_is_the_same_every_time():
    table = rules.table()
    shown = table._repr_html_()
    assert shown == rules.table()._repr_html_()
    assert repr(table) == show.to_text(100)
    assert shown.count("<tr>") == len(RULES) + 1
    assert shown.count(r"\(") == shown.count(r"\)") > 3 * len(RULES)
    assert "$" not in shown


# --- The small stream and its pictures ---


@EVERY
def test_the_stream_is_fed_to_every_rule(rule):
    run = example.run(rule)
    assert run.states.shape == (len(example.TOKENS), len(run.rows), len(run.columns))
    assert torch.isfinite(run.states).all()
    assert torch.isfinite(run.answers["Ada"]).all()
    assert run.fed.keys() >= {spec.name for spec in rule.inputs}


@EVERY
def test_every_form_gives_the_streams_answer(rule):
    tensors = example.inputs(rule)
    options = {**rule.options, **({"scale": 1.0} if rule.has_scale else {})}
    o, _ = rule.chunked(*tensors, chunk_size=3, **options)
    assert torch.allclose(o.reshape(-1, 2), example.run(rule).answers["Ada"])


def test_the_stream_by_hand():
    def asked(name, person="Ada"):
        return float(example.room(example.run(RULES[name]).answers[person])[-1])

    assert asked("linear-attention") == pytest.approx(31 + 47)
    assert asked("linear-attention-normalised") == pytest.approx((31 + 47) / 2)
    assert asked("deltanet") == pytest.approx(47)
    assert asked("deltanet", "Bo") == pytest.approx(12)
    assert asked("mamba-2") == pytest.approx(31 * 0.9**6 + 47 * 0.9**4)
    assert asked("gated-deltanet") == pytest.approx(47 * 0.9**4)
    assert asked("rwkv-6", "Bo") == pytest.approx(12 * 0.9**4)  # read before this token's decay
    assert asked("gated-deltanet", "Bo") == pytest.approx(12 * 0.9**5)


def test_mathtext_is_what_matplotlib_reads():
    assert mathtext(r"\big(\mathbf k_t\big)^\top") == r"$(\mathbf{k}_t)^\top$"


@EVERY
def test_two_rules_are_drawn(rule):
    fig = two_rules(rule.name, "mamba-2")
    fig.canvas.draw()
    texts = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert {rule.title, "Mamba-2"} <= set(texts)
    parts, others = show.equation_parts(rule), show.equation_parts(RULES["mamba-2"])
    differ = sum(parts.get(part) != others.get(part) for part in show.PARTS)
    assert texts.count("≠") == 2 * differ
    plt.close(fig)
