"""``{peer-table}``: how far other people's functions are from ours, from the committed book/data/peers.json."""

import json

from docutils import nodes

from lineage_lib.book.family import FromTable
from lineage_lib.paths import ROOT
from lineage_lib.rules import RULES

DATA = ROOT / "book" / "data" / "peers.json"
HEADS = ("Rule", "Function", "Package", "In float64", "As shipped", "Strong decay", "A reset", "What differs")


def table() -> str:
    """A row for each peer, as a Markdown table."""
    rows = [_row(peer) for peer in json.loads(DATA.read_text(encoding="utf-8"))]
    align = ["---"] * 3 + ["---:"] * 4 + ["---"]
    lines = ["| " + " | ".join(row) + " |" for row in (HEADS, align, *rows)]
    return "\n".join([":::{table}", ":class: notation family", "", *lines, ":::"])


def _row(peer: dict) -> tuple[str, ...]:
    name = peer["rule"]
    title = f"{{ref}}`{RULES[name].title} <rule-{name}>`" if name in RULES else f"`{name}`"
    exact = max(peer[part] for part in ("output", "state", "gradient") if peer[part] is not None)
    return (
        title,
        f"`{peer['peer'].rpartition('.')[2]}`" if not peer["peer"].endswith(".forward") else _method(peer["peer"]),
        f"{peer['package']} {peer['version']}",
        *(_number(x) for x in (exact, peer["shipped"], peer["strong"], peer["reset"])),
        peer["note"],
    )


def _method(path: str) -> str:
    return f"`{path.rpartition('.')[0].rpartition('.')[2]}`"


def _number(x: float | str | None) -> str:
    if x is None:
        return "–"
    return "NaN" if x != x or x == "nan" else f"{x:.0e}".replace("-", "\N{NON-BREAKING HYPHEN}")


class PeerTable(FromTable):
    def run(self) -> list[nodes.Node]:
        box = nodes.container()
        self.parsed(table(), box)
        return box.children


def setup(app) -> None:
    app.add_directive("peer-table", PeerTable)
