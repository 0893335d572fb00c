"""Line ends: punctuation stays on the line of the formula it belongs to."""

import re

from docutils import nodes

_OPENING = re.compile(r"[(\[“‘]+$")
_CLOSING = re.compile(r"^[.,;:!?)\]”’]+")


def keep_together(doctree: nodes.document) -> None:
    """Put each inline formula with the punctuation around it into one span that does not break.

    MathJax sets a formula as a box, and browsers may break a line on either side of a box.
    """
    for formula in list(doctree.findall(nodes.math)):
        parent = formula.parent
        place = parent.index(formula)
        before = _cut(parent, place - 1, _OPENING) if place else ""
        after = _cut(parent, place + 1, _CLOSING) if place + 1 < len(parent) else ""
        if before or after:
            kept = [nodes.Text(before), formula.deepcopy(), nodes.Text(after)]
            parent[place] = nodes.inline("", "", *kept, classes=["together"])


def _cut(parent: nodes.Element, place: int, pattern: re.Pattern) -> str:
    """Take what matches ``pattern`` out of the text at ``place``."""
    text = parent[place]
    match = pattern.search(text) if isinstance(text, nodes.Text) else None
    if not match:
        return ""
    parent[place] = nodes.Text(text[: match.start()] + text[match.end() :])
    return match[0]


def setup(app) -> None:
    app.connect("doctree-resolved", lambda app, doctree, docname: keep_together(doctree))
