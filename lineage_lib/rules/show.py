"""The table as a reader sees it: in a terminal, in a notebook, as JSON; and one record in full."""

import dataclasses
import difflib
import html
import re
import shutil
import textwrap

from lineage_lib.rules.family import RULES
from lineage_lib.rules.record import FORMS, Rule

SIZES = {"K": 128, "V": 128, "C": 64}
PARTS = ("forget", "write", "read", "with")

_FORGETS = {"none": "never", "fixed": "fixed", "per token": "token"}
_HEADS = ("name", "year", "family", "forgets", "writes", "reads", "state", "forms")
_LETTERS = {"recurrent": "R", "matrix": "M", "chunked": "C", "kernel": "K", "decode": "D"}
_MATH = re.compile(r"\$([^$]+)\$")


class UnknownRule(LookupError):
    """No rule has this name."""


def find(name: str) -> Rule:
    """The rule with this name; an :class:`UnknownRule` that lists the nearest names when there is none.

    >>> find("Gated DeltaNet").name
    'gated-deltanet'
    """
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    if wanted in RULES:
        return RULES[wanted]
    near = difflib.get_close_matches(wanted, RULES, n=3, cutoff=0.5) or [r for r in RULES if wanted and wanted in r]
    raise UnknownRule(f'there is no rule "{name}"; {"near it: " if near else "there are "}{", ".join(near or RULES)}')


# --- What a record says, in a few words ---


def forgets(rule: Rule) -> str:
    """ "never", "fixed, head", "token, channel"."""
    return ", ".join([_FORGETS[rule.decay], *([] if rule.decay == "none" else [rule.decay_axis])])


def rate(rule: Rule) -> str:
    """ "never", "fixed, a head", "by the token, a key channel"."""
    if rule.decay == "none":
        return "never"
    channel = "key channel" if rule.carrier(2, 3)[0] == 1 else "state entry"
    one = channel if rule.decay_axis == "channel" else rule.decay_axis
    return f"{'fixed' if rule.decay == 'fixed' else 'by the token'}, a {one}"


def writes(rule: Rule) -> str:
    """ "adds", "adds, divides", "corrects"."""
    if rule.family == "delta":
        return "corrects"
    return "adds, divides" if {"z", "n"} & {*rule.state_parts} else "adds"  # z, n: the sums it divides by


def state(rule: Rule) -> str:
    """The size of the state without LaTeX: "KV + K", "2N a channel"."""
    return re.sub(r"\\text\s*\{([^}]*)\}", r"\1", rule.state).replace("  ", " ")


def forms(rule: Rule) -> str:
    """A letter for each form that the rule has, a dash for each that it lacks."""
    return "".join(_LETTERS[form] if form in rule.forms else "-" for form in FORMS)


def fla(rule: Rule) -> tuple[list[str], dict[str, str]]:
    """(functions, our letter -> their argument) of FLA, or of the package that the record names."""
    functions = [rule.fla[form] for form in ("chunk", "recurrent") if form in rule.fla]
    return functions, {ours: theirs for ours, theirs in rule.fla.items() if ours not in ("chunk", "recurrent")}


def equation_parts(rule: Rule) -> dict[str, str]:
    r"""The equation by part, LaTeX: what is kept of the state, what is added, what is read, what belongs to it.

    >>> equation_parts(RULES["retnet"])["forget"]
    '\\gamma_h\\, \\mathbf S_{t-1}'
    """
    kept = rf"\mathbf {rule.state_parts[0]}_{{t-1}}"
    if rule.parts["forget"]:
        kept = rf"{rule.parts['forget']}\, {kept}"
    return {"forget": kept, **{part: rule.parts[part] for part in PARTS[1:] if part in rule.parts}}


def equations(rule: Rule) -> list[str]:
    """The rule in LaTeX, an equation an entry: the state, the output, and what belongs to them."""
    parts = equation_parts(rule)
    channels, width, _ = rule.carrier(2, 3)
    output = "o_t" if channels > 1 and width > 1 else r"\mathbf o_t"  # of one channel: a number
    lines = [rf"\mathbf {rule.state_parts[0]}_t = {parts['forget']} + {parts['write']}", f"{output} = {parts['read']}"]
    return lines + ([parts["with"]] if "with" in parts else [])


# --- JSON ---


def as_dict(rule: Rule, *, K: int = 128, V: int = 128, C: int = 64) -> dict:
    """Every field of the record, and what follows from it, as what JSON can hold.

    Functions become their qualified names; sizes and FLOPs (a token and head) are those of ``at``.
    """
    record = {f.name: getattr(rule, f.name) for f in dataclasses.fields(rule)}
    for name in ("recurrent", "lower"):
        record[name] = f"{record[name].__module__}.{record[name].__qualname__}"
    record["inputs"] = [dataclasses.asdict(i) for i in rule.inputs]
    record["state_size"] = rule.state_size(K, V)
    record["carrier"] = list(rule.carrier(K, V))
    return record | {
        "equations": equations(rule),
        "forms": list(rule.forms),
        "flops": {"recurrent": rule.flops(K, V), "chunked": rule.chunked_flops(K, V, C)},
        "at": {"K": K, "V": V, "C": C},
    }


# --- Terminal ---


def to_text(width: int | None = None) -> str:
    """The table for a terminal ``width`` columns wide, by default this one's."""
    width = width or min(max(shutil.get_terminal_size((100, 24)).columns, 80), 120)
    rows = [
        (r.name, str(r.year), r.family, forgets(r), writes(r), r.reads.split()[0], state(r), forms(r))
        for r in RULES.values()
    ]
    legend = (
        "forgets: at a rate that is fixed or the token's, one a head or a channel; reads: after or before the write; "
        f"forms: {', '.join(f'{letter} {form}' for form, letter in _LETTERS.items())}."
    )
    return "\n".join([*_columns([_HEADS, *rows], width), "", *textwrap.wrap(legend, width)])


def record_text(rule: Rule, width: int | None = None) -> str:
    """One record in full, for a terminal."""
    width = width or min(max(shutil.get_terminal_size((100, 24)).columns, 80), 120)
    functions, arguments = fla(rule)
    at = f"at K = V = {SIZES['K']}"
    numbers = f"{rule.state_size(SIZES['K'], SIZES['V']):,} numbers {at}"
    flops = (
        f"{rule.flops(SIZES['K'], SIZES['V']):,} recurrent, {rule.chunked_flops(**SIZES):,} chunked {at}, "
        f"C = {SIZES['C']}, a token and head"
    )
    lines = {
        "name": rule.name,
        "year": str(rule.year),
        "family": rule.family,
        "decay": forgets(rule),
        "forgets": rule.forgets,
        "writes": rule.writes,
        "reads": rule.reads,
        **{part: rule.parts[part] for part in PARTS if rule.parts.get(part)},
        "state": f"{state(rule)}: {numbers}",
        "parts of it": ", ".join(rule.state_parts),
        "eigenvalues": _MATH.sub(r"\1", rule.eigenvalues),
        "enlarges?": _MATH.sub(r"\1", rule.contraction),
        "FLOPs": flops,
        "inputs": "; ".join(f"{i.name} ({i.axes}), {i.kind}{', may be None' * i.optional}" for i in rule.inputs),
        "options": ", ".join(f"{name}={value}" for name, value in rule.options.items()),
        "forms": ", ".join(rule.forms),
        **{f"no {form}": why for form, why in rule.missing.items()},
        "papers": ", ".join(rule.papers),
        "letters": ", ".join(f"{ours} is {theirs}" for ours, theirs in rule.letters.items()),
        "kernels": ", ".join(functions),
        "arguments": ", ".join(f"{ours} is {theirs}" for ours, theirs in arguments.items()),
        "reference": as_dict(rule)["recurrent"],
        "note": rule.note,
    }
    margin = max(map(len, lines)) + 2
    text = [rule.title, "=" * len(rule.title)]
    for label, value in lines.items():
        if value:
            wrapped = textwrap.wrap(value, width - margin, break_long_words=False, break_on_hyphens=False)
            text += [f"{label:<{margin}}{wrapped[0]}", *(" " * margin + line for line in wrapped[1:])]
    return "\n".join(text)


def _columns(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Rows as aligned columns; where they do not fit into ``width``, cells are wrapped, as few as possible."""
    columns = list(zip(*rows))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    least[0] = sorted(map(len, columns[0]))[-2]  # names are there to be typed: only the longest is wrapped
    gap = 2 if width >= 100 else 1

    def height(i: int, w: int) -> int:
        return sum(len(textwrap.wrap(cell, w)) for cell in columns[i])

    while sum(widths) + gap * (len(widths) - 1) > width:
        wide = [i for i, w in enumerate(widths) if w > least[i]]
        if not wide:
            break
        widths[min(wide, key=lambda i: (height(i, widths[i] - 1) - height(i, widths[i]), -widths[i]))] -= 1
    lines = []
    for row in [rows[0], tuple("-" * w for w in widths), *rows[1:]]:
        cells = [textwrap.wrap(cell, w) for cell, w in zip(row, widths)]
        for k in range(max(map(len, cells))):
            parts = (f"{cell[k] if k < len(cell) else '':<{w}}" for cell, w in zip(cells, widths))
            lines.append((" " * gap).join(parts).rstrip())
    return lines


# --- Notebook ---


class Table:
    """The table, as text and, in a notebook, as HTML with typeset equations."""

    def __repr__(self) -> str:
        return to_text(width=100)

    def _repr_html_(self) -> str:
        heads = ("Rule", "Year", "Forgets", "Writes", "State and output", "State size", "Eigenvalues")
        rows = [
            (
                html.escape(r.title),
                str(r.year),
                rate(r),
                writes(r),
                "<br>".join(f"\\(\\displaystyle {html.escape(line)}\\)" for line in equations(r)),
                f"\\({html.escape(r.state)}\\)",
                with_math(r.eigenvalues),
            )
            for r in RULES.values()
        ]
        head = "".join(f'<th scope="col">{name}</th>' for name in heads)
        body = "\n".join(
            f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
        )
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<div class="rule-table tex2jax_process" style="overflow-x: auto">\n{table}\n</div>'


def with_math(words: str) -> str:
    r"""HTML of words with ``$…$`` formulas, in the delimiters ``\(…\)`` that book and JupyterLab both know."""
    return _MATH.sub(r"\\(\1\\)", html.escape(words))


def table() -> Table:
    """The whole table: typeset in a notebook, text elsewhere."""
    return Table()
