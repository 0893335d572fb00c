"""Renders what ``grade`` returned: JSON, CSV, HTML, JUnit and a table for the terminal.

Everything a learner wrote is escaped for the format it lands in.
"""

import csv
import html
import io
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable

_COLUMNS = ("source", "chapter", "id", "name", "passed", "points", "of", "cause", "mistake", "message", "notes")


def to_json(reports: list[dict], single: bool = False) -> str:
    """The reports as a list; with ``single``, the one report as an object."""
    return json.dumps(reports[0] if single else reports, indent=2, ensure_ascii=False) + "\n"


def to_csv(reports: list[dict]) -> str:
    """One row an exercise. A notebook that could not be graded has one row, with cause "not graded"."""
    out = io.StringIO()
    table = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for report in reports:
        broken = {"passed": False, "points": 0, "of": 0, "cause": "not graded", "message": " ".join(report["problems"])}
        for row in report["exercises"] or [broken]:
            notes = "; ".join(row.get("notes", ()))
            row = {"source": report["source"], "chapter": report["chapter"], **row, "notes": notes}
            table.writerow({key: _plain(value) for key, value in row.items()})
    return out.getvalue()


def to_junit(reports: list[dict]) -> str:
    """One test suite a notebook, one test case an exercise; a notebook that could not be graded is one error."""
    root = ElementTree.Element("testsuites", name="lineage grade")
    for report in reports:
        rows = report["exercises"]
        failures = sum(not row["passed"] for row in rows)
        counts = {"tests": len(rows) or 1, "failures": failures, "errors": 0 if rows else 1}
        suite = ElementTree.SubElement(
            root, "testsuite", name=report["source"], **{k: str(v) for k, v in counts.items()}
        )
        properties = ElementTree.SubElement(suite, "properties")
        facts = {"chapter": report["chapter"], "points": report["points"], "of": report["of"], "seed": report["seed"]}
        for name, value in {**facts, **report["versions"]}.items():
            ElementTree.SubElement(properties, "property", name=name, value=str(value))
        for row in rows:
            case = ElementTree.SubElement(
                suite, "testcase", classname=report["chapter"], name=f"{row['id']} {row['name']}"
            )
            if not row["passed"]:
                what = {"type": row["cause"], "message": _headline(row)}
                ElementTree.SubElement(case, "failure", what).text = row["message"]
            if row["notes"]:
                ElementTree.SubElement(case, "system-out").text = "\n".join(row["notes"])
        if not rows:
            case = ElementTree.SubElement(suite, "testcase", classname="notebook", name="can be graded")
            ElementTree.SubElement(case, "error", type="not graded", message=" ".join(report["problems"]))
        ElementTree.SubElement(suite, "system-out").text = "\n".join(report["problems"])
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def to_text(reports: list[dict]) -> str:
    """For a terminal: one notebook with every message, several as a table with the exercises not passed."""
    if len(reports) == 1:
        return _one(reports[0])
    lines = table([("notebook", "chapter", "points", "not passed", "notes"), *map(_summary, reports)])
    for report in reports:
        lines += [f"{report['source']}: {sentence}" for sentence in report["problems"]]
    return "\n".join(lines) + "\n"


def to_html(reports: list[dict]) -> str:
    """One page that needs nothing else: a table of all notebooks, then each with its messages."""
    rows = [
        _html_row([*_summary(r)[:3], _open(r) or " ".join(r["problems"]), _notes(r)], i) for i, r in _count(reports)
    ]
    heads = ["notebook", "chapter", "points", "not passed", "notes"]
    summary = _html_table(heads, rows) if len(reports) > 1 else ""
    sections = "\n".join(_section(report, i) for i, report in _count(reports))
    return _PAGE.format(count=_plural(len(reports), "notebook"), summary=summary, sections=sections)


def _one(report: dict) -> str:
    lines = [f"{report['source']}   {report['chapter'] or 'not recognised'}   {_points(report)} points", ""]
    rows = [(f"{r['id']} {r['name']}", f"{r['points']} of {r['of']}", _verdict(r)) for r in report["exercises"]]
    lines += table([("exercise", "points", "result"), *rows]) if rows else []
    for row in report["exercises"]:
        if not row["passed"] or row["notes"]:
            lines += ["", f"{row['id']} {row['name']}: {_verdict(row)}", *_indented(row["message"])]
            lines += [f"  note: {note}" for note in row["notes"]]
    lines += ["", *report["problems"]] if report["problems"] else []
    lines += ["", f"Cases drawn with LINEAGE_SEED={report['seed']}."] if rows else []
    return "\n".join(lines) + "\n"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of a plain table; the first row holds the heads."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]


def _summary(report: dict) -> tuple[str, ...]:
    return report["source"], report["chapter"] or "not recognised", _points(report), _open(report), _notes(report)


def _open(report: dict) -> str:
    """``wrong: 3.1, 3.4; timeout: 3.2``."""
    by_verdict: dict[str, list[str]] = {}
    for row in report["exercises"]:
        if not row["passed"]:
            by_verdict.setdefault(_verdict(row), []).append(row["id"])
    return "; ".join(f"{verdict}: {', '.join(ids)}" for verdict, ids in by_verdict.items())


def _notes(report: dict) -> str:
    """``3.1 calls the library's reference.ssd_recurrent (line 2)``."""
    return "; ".join(f"{row['id']} {note}" for row in report["exercises"] for note in row["notes"])


def _points(report: dict) -> str:
    return f"{report['points']} of {report['of']}"


def _verdict(row: dict) -> str:
    return f"{row['cause']} ({row['mistake']})" if row["mistake"] else row["cause"]


def _headline(row: dict) -> str:
    return row["message"].partition("\n")[0]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _plain(value):
    """A spreadsheet runs a text that begins like a formula; a quote in front makes it text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


# --- HTML ---------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Grading: {count}</title>
<style>
:root {{ color-scheme: light dark; --ground: #fbfaf7; --ink: #20242b; --line: #d9d6cf;
  --good: #1a7340; --bad: #b32626; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #16191e; --ink: #e6e4df; --line: #3a3f47;
    --good: #6fcf97; --bad: #ff8a80; }}
}}
body {{ background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0; }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }}
pre {{ margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }}
td:first-child, td:nth-child(2) {{ white-space: nowrap; }}
section {{ margin-top: 2.5rem; }}
a {{ color: inherit; }}
.passed {{ color: var(--good); }}
.open {{ color: var(--bad); }}
.versions {{ font-size: .8rem; opacity: .75; }}
</style>
</head>
<body>
<h1>Grading: {count}</h1>
{summary}
{sections}
</body>
</html>
"""


def _count(reports: list[dict]) -> Iterable[tuple[int, dict]]:
    return enumerate(reports, 1)


def _html_row(texts: list[str], number: int) -> str:
    first, *others = map(html.escape, texts)
    return "".join([f'<td><a href="#n{number}">{first}</a></td>', *(f"<td>{text}</td>" for text in others)])


def _html_table(heads: list[str], rows: list[str]) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _section(report: dict, number: int) -> str:
    title = f"{html.escape(report['source'])}: {_points(report)} points"
    problems = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in report["problems"])
    rows = [
        f"<td>{html.escape(r['id'])} <code>{html.escape(r['name'])}</code></td><td>{r['points']} of {r['of']}</td>"
        f'<td class="{"passed" if r["passed"] else "open"}">{html.escape(_verdict(r))}</td>'
        f"<td><pre>{html.escape(r['message'])}</pre></td><td>{html.escape('; '.join(r['notes']))}</td>"
        for r in report["exercises"]
    ]
    known = {"seed": report["seed"], **report["versions"]}
    versions = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return "\n".join(
        [
            f'<section id="n{number}">',
            f"<h2>{title}</h2>",
            f"<p>{html.escape(report['chapter'] or 'Not recognised as a chapter of this book.')}</p>",
            f"<ul>{problems}</ul>" if problems else "",
            _html_table(["exercise", "points", "result", "what the check says", "notes"], rows) if rows else "",
            f'<p class="versions">{html.escape(versions)}</p>',
            "</section>",
        ]
    )
