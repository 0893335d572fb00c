"""The interactive pieces on the book's pages: a script for each, with the library's values of this build.

A stored output has a piece's settings and its still picture (:mod:`lineage_lib.widgets.piece`). The
script puts the piece in the picture's place. It needs no kernel, no widget manager and no other host,
and works from a file.
"""

import json
from pathlib import Path

from docutils import nodes

from lineage_lib.widgets import PIECES
from lineage_lib.widgets.piece import HERE, Piece, script


def page_script(piece: type[Piece]) -> str:
    """The piece's module as a script that shows every such piece of a page."""
    module = script(piece.source).replace("export default", "return")
    data = json.dumps(piece.library_data(), separators=(",", ":"))
    mount = (HERE / "page.js").read_text(encoding="utf-8")
    parts = (mount, f"const piece = (() => {{\n{module}\n}})();", f'mount("{piece.name}", piece, {data});')
    return "\n".join(["(() => {", *parts, "})();", ""])


def _write_files(app) -> None:
    static = Path(app.outdir, "_static")
    static.mkdir(parents=True, exist_ok=True)
    for piece in PIECES:
        (static / f"{piece.name}.js").write_text(page_script(piece), encoding="utf-8")
    (static / "pieces.css").write_text((HERE / "pieces.css").read_text(encoding="utf-8"), encoding="utf-8")


def _add_files(app, pagename, templatename, context, doctree) -> None:
    outputs = [node.astext() for node in doctree.findall(nodes.raw)] if doctree is not None else []
    shown = [piece for piece in PIECES if any(f'data-piece="{piece.name}"' in output for output in outputs)]
    for piece in shown:
        app.add_js_file(f"{piece.name}.js", loading_method="defer")
    if shown:
        app.add_css_file("pieces.css", priority=900)


def setup(app) -> None:
    app.connect("builder-inited", _write_files)
    app.connect("html-page-context", _add_files)
