"""The family-tree page: made from the table, whole, and what its script is given."""

import json
from functools import cache

import pytest
import torch
from bs4 import BeautifulSoup

from lineage_lib.book import family
from lineage_lib.rules import RULES, example, show

EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@cache
def page(html):
    return BeautifulSoup((html / "book/family_tree.html").read_text(encoding="utf-8"), "html.parser").find("article")


def test_there_is_a_section_for_every_rule_and_no_other(book):
    sections = [part["id"] for part in page(book.html).select("section.rule")]
    assert sorted(sections) == sorted(f"rule-{name}" for name in RULES)


@EVERY
def test_a_section_says_what_the_record_says(book, rule):
    part = page(book.html).find(id=f"rule-{rule.name}")
    assert part.find("h3").get_text().startswith(rule.title)
    words = " ".join(part.get_text(" ").split())
    assert f"{rule.flops(128, 128):,}" in words
    assert f"{rule.chunked_flops(128, 128, 64):,}" in words
    assert f"{rule.state_size(128, 128):,}" in words
    assert rule.forgets[:-1] in words
    assert all(why in words for why in rule.missing.values())
    assert len(part.select(".bibtex-citation, a.reference.internal[href*='bibliography']")) >= len(rule.papers)
    displayed = part.select_one("div.math").get_text()
    for side in show.equations(rule):
        assert side.replace(" = ", " &= ", 1) in displayed
    codes = [code.get_text() for code in part.select("code")]
    functions, arguments = show.fla(rule)
    for name in (*(function.split()[-1] for function in functions), *arguments.values()):
        assert name in codes


def test_the_overview_links_to_every_section(book):
    rows = page(book.html).select("table.family tbody tr")
    assert [row.find("a")["href"] for row in rows] == [f"#rule-{name}" for name in RULES]
    for row, rule in zip(rows, RULES.values()):
        cells = [cell.get_text(" ", strip=True) for cell in row.find_all("td")]
        assert cells[1] == str(rule.year)
        assert cells[-2:] == [f"{rule.flops(128, 128):,}", f"{rule.chunked_flops(128, 128, 64):,}"]


def test_the_script_is_given_every_rules_states(book):
    data = json.loads(page(book.html).select_one("#compare script").string)
    assert list(data["rules"]) == list(RULES)
    assert data["default"] == ["mamba-2", "gated-deltanet"]
    for name, rule in data["rules"].items():
        assert rule["parts"] == show.equation_parts(RULES[name])
        assert torch.allclose(torch.tensor(rule["states"]).double(), example.run(RULES[name]).states, atol=1e-5)
    assert len(json.dumps(data)) < 100_000


def test_only_this_page_loads_the_script(book):
    scripts = {
        name: [
            tag["src"]
            for tag in BeautifulSoup((book.html / name).read_text("utf-8"), "html.parser")("script", src=True)
        ]
        for name in ("book/family_tree.html", "book/intro.html")
    }
    assert any("compare.js" in source for source in scripts["book/family_tree.html"])
    assert not any("compare.js" in source for source in scripts["book/intro.html"])


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("κ̂", r"$\hat{\kappa}$"),
        ("B̄", r"$\bar{B}$"),
        ("Δ x", r"$\Delta x$"),
        ("S transposed", "$S$ transposed"),
        ("a ⊙ κ", r"$a \odot \kappa$"),
        ("log a", r"$\log a$"),
        ("d_k", "$d_k$"),
    ],
)
def test_letters_become_formulas(text, formula):
    assert family.letter(text).replace("  ", " ") == formula


def test_a_letter_without_a_formula_is_refused():
    with pytest.raises(ValueError, match="no formula for"):
        family.letter("✓")
