"""The family-tree page, made from the table of rules: nothing on it is copied by hand.

``{family-table}``            all rules at a glance
``{rule-sections} additive``  a section for each rule of a family, with the anchor ``rule-<name>``
``{compare-rules}``           two rules side by side; static/compare.js shows what is embedded here
"""

import json
import math
import re
import unicodedata

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from lineage_lib.rules import FORMS, RULES, Rule, example, show

K, V, C = show.SIZES.values()
DEFAULT = ("mamba-2", "gated-deltanet")

_BOLD = set("qkvSzubwo")
_GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "κ": "kappa", "λ": "lambda", "φ": "phi", "Δ": "Delta", "ℓ": "ell"}
_ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar"}


# --- Markdown from records ---


def overview() -> str:
    """All rules, a line each, as a Markdown table, and what its numbers count."""
    heads = (
        "Rule",
        "Year",
        "Forgets",
        "Writes",
        "Reads",
        "State",
        "Eigenvalues of the transition",
        "Can it enlarge the state?",
        "FLOPs, recurrent",
        "FLOPs, chunked",
    )
    rows = [
        (
            f"{{ref}}`{r.title} <rule-{r.name}>`",
            str(r.year),
            show.rate(r),
            show.writes(r),
            r.reads.split()[0],
            f"${r.state}$",
            r.eigenvalues,
            re.split("[:;]", r.contraction)[0],
            f"{r.flops(K, V):,}",
            f"{r.chunked_flops(K, V, C):,}",
        )
        for r in RULES.values()
    ]
    align = ["---"] * (len(heads) - 2) + ["---:"] * 2
    lines = ["| " + " | ".join(row) + " |" for row in (heads, align, *rows)]
    return "\n".join([":::{table}", ":class: notation family", "", *lines, ":::", "", counted()])


def counted() -> str:
    """What the FLOPs of the overview count."""
    vectors = [re.split(r",| \(", r.title)[0] for r in RULES.values() if r.carrier(2, 3)[0] > 1]
    return (
        "*Forgets*: the rate and what has one of its own. *Reads*: after or before the write of the same token. "
        f"*FLOPs* are those of one token in one head with $K = V = {K}$, in the chunked form with chunks of $C = {C}$ "
        "tokens; a multiplication and an addition are two. Counted are the leading terms of the recurrence to which "
        "the library reduces the rule: decay of the state, erasing, writing and reading, and in the chunked form whole "
        "blocks. What makes gates, keys and queries is left out. A rule with a vector for each channel has "
        f"a mask for each channel, so chunks do not pay for {', '.join(vectors[:-1])} and {vectors[-1]}. For these, "
        "$K$ is the size $N$ of the vector; RG-LRU has one number."
    )


def section(rule: Rule) -> str:
    """The body of a rule's section: the equation and everything the record says."""
    functions, arguments = show.fla(rule)
    K_is = "" if rule.carrier(2, 3)[0] == 1 else ", with $K$ for $N$" if rule.carrier(2, 3)[1] > 1 else ""
    facts = {
        "Forgets": rule.forgets,
        "Writes": rule.writes,
        "Reads": rule.reads[0].upper() + rule.reads[1:] + ".",
        "State": f"${rule.state}$: {rule.state_size(K, V):,} numbers a head at $K = V = {K}${K_is}.",
        "Eigenvalues": _sentence(rule.eigenvalues),
        "Can it enlarge the state?": _sentence(rule.contraction),
        "FLOPs a token": f"{rule.flops(K, V):,} recurrent, {rule.chunked_flops(K, V, C):,} chunked "
        f"($K = V = {K}$, $C = {C}$).",
        "Paper": "; ".join(f"{{cite:t}}`{key}`" for key in rule.papers) + ".",
        "The paper’s letters": _letters(rule.letters),
        "In FLA": _kernels(functions, arguments),
        "Here": f"`reference.{rule.recurrent.__name__}`, with {_code(i.name for i in rule.inputs)}.",
        "Forms": _forms(rule),
        "Note": rule.note,
    }
    equations = " \\\\\n".join(line.replace(" = ", " &= ", 1) for line in show.equations(rule))
    lines = ["$$", r"\begin{aligned}", equations, r"\end{aligned}", "$$", ""]
    lines += ["::::{list-table}", ":class: rule-facts", ":widths: 22 78", ""]
    for label, words in facts.items():
        if words:
            lines += [f"* - {label}", f"  - {words}"]
    return "\n".join([*lines, "::::"])


def letter(text: str, bold: bool = False) -> str:
    """A letter of a record, "κ̂", "d_k" or "S transposed", as Markdown with a formula."""
    symbol, *words = text.split(" transposed")
    tex = ""
    for char in symbol:
        if char in _ACCENTS:
            body = tex.rstrip().rpartition(" ")[2]
            tex = f"{tex.rstrip()[: -len(body)]}\\{_ACCENTS[char]}{{{body}}}"
        elif char in _GREEK:
            tex += f"\\{_GREEK[char]} "
        elif char == "⊙":
            tex += r"\odot "
        elif unicodedata.category(char).startswith(("L", "N", "Z")) or char in "-_":
            tex += rf"\mathbf {char}" if bold and symbol in _BOLD else char
        else:
            raise ValueError(f"letters: no formula for {char!r} in {text!r}")
    tex = tex.strip().replace("log ", r"\log ")
    return f"${tex}$" + (" transposed" if words else "")


def _letters(letters: dict[str, str]) -> str:
    others = ", ".join(f"{letter(o, bold=True)} is {letter(t)}" for o, t in letters.items() if o != t)
    same = ", ".join(letter(ours, bold=True) for ours, theirs in letters.items() if ours == theirs)
    return f"{others}{'; ' if others and same else ''}{f'the same: {same}' if same else ''}."


def _sentence(words: str) -> str:
    start = words if words.startswith("$") else words[0].upper() + words[1:]
    return start if start.endswith(".") else start + "."


def _code(names) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _kernels(functions: list[str], arguments: dict[str, str]) -> str:
    if not functions:
        return "No function of its own."
    package, _, _ = functions[0].rpartition("'s ")
    names = _code(name.rpartition("'s ")[2] for name in functions)
    said = f"No function of its own; in `{package}` {names}" if package else names
    given = [f"{letter(o, bold=True)} is `{t}`" if o != t else f"`{t}` as here" for o, t in arguments.items()]
    return f"{said}{'; ' if given else ''}{', '.join(given)}."


def _forms(rule: Rule) -> str:
    missing = "".join(f" No {form} form: {why}." for form, why in rule.missing.items())
    kernel = f" Its kernel: `{rule.kernel_file}`." if rule.kernel_file else ""
    return f"{', '.join(form for form in FORMS if form in rule.forms).capitalize()}.{kernel}{missing}"


# --- Two rules side by side ---


def comparison() -> dict:
    """What the page's script needs: every rule's equation in parts and its states after the same stream."""
    return {
        "tokens": example.TOKENS,
        "truth": [_truth(t) for t in range(example.T)],
        "default": DEFAULT,
        "rules": {name: _compared(rule) for name, rule in RULES.items()},
    }


def _compared(rule: Rule) -> dict:
    run = example.run(rule)
    return {
        "title": rule.title,
        "family": "Rules that correct" if rule.family == "delta" else "Rules that add",
        "parts": show.equation_parts(rule),
        "rows": run.rows,
        "columns": run.columns,
        "states": _numbers(run.states.tolist()),
        "answers": {name: _numbers(example.room(digits).tolist()) for name, digits in run.answers.items()},
        "fed": run.fed,
    }


def _truth(t: int) -> dict[str, str]:
    """Where each person is after token t, by name."""
    said = dict(token.split(" → ") for token in example.TOKENS[: t + 1] if " → " in token)
    return {name: said.get(name, "") for name in example.NAMES}


def _numbers(values):
    """Nested lists rounded for the page; None for what is not a number."""
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return None if math.isnan(values) else round(values, 6) + 0.0


# --- Sphinx ---


class FromTable(SphinxDirective):
    """A directive whose Markdown comes from the table."""

    def parsed(self, text: str, into: nodes.Element) -> None:
        self.state.nested_parse(StringList(text.split("\n"), "the table of rules"), 0, into)


class FamilyTable(FromTable):
    def run(self) -> list[nodes.Node]:
        box = nodes.container()
        self.parsed(overview(), box)
        return box.children


class RuleSections(FromTable):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [self._section(rule) for rule in RULES.values() if rule.family == self.arguments[0]]

    def _section(self, rule: Rule) -> nodes.section:
        name = f"rule-{rule.name}"
        part = nodes.section(ids=[name], names=[name], classes=["rule"])
        part += nodes.title(rule.title, rule.title)
        self.state.document.note_explicit_target(part)
        self.parsed(section(rule), part)
        return part


class CompareRules(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        data = json.dumps(comparison(), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        page = (
            '<div class="compare-rules tex2jax_process" id="compare">'
            f'<script type="application/json">{data}</script>'
            "<noscript>The comparison needs JavaScript; the sections below show every equation.</noscript></div>"
        )
        return [nodes.raw("", page, format="html", script="compare.js")]


def _add_files(app, pagename, templatename, context, doctree) -> None:
    if doctree is None:
        return
    if any(node.get("script") == "compare.js" for node in doctree.findall(nodes.raw)):
        app.add_js_file("compare.js", priority=200, loading_method="defer")  # before MathJax: it typesets once
    if any("rule" in node["classes"] for node in doctree.findall(nodes.section)):
        app.add_css_file("family.css", priority=900)


def setup(app) -> None:
    app.add_directive("family-table", FamilyTable)
    app.add_directive("rule-sections", RuleSections)
    app.add_directive("compare-rules", CompareRules)
    app.connect("html-page-context", _add_files)
