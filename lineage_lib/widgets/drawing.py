"""The pieces' still pictures: SVG in the text's own colour, so that they read in both themes."""

import html

import numpy as np

GREEN, GREY, BLUE = "#1f8a4c", "#6b7280", "#2563c9"


def drawing(inside: str, width: int, height: int, title: str) -> str:
    """An SVG with its text for those who cannot see it."""
    words = html.escape(title)
    return (
        f'<svg class="piece-still" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{words}" '
        f'fill="currentColor" font-size="13">{text(20, 20, title, weight=600)}{inside}</svg>'
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", weight: int = 400, size: int = 13) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}">'
        f"{html.escape(words)}</text>"
    )


def heat(S: np.ndarray, *, x: float, y: float, title: str, below: str) -> str:
    """A state as a grid of numbers, shaded by size: green above zero, grey below."""
    wide, high, top = 62, 26, max(np.abs(S).max(), 1e-9)
    parts = [text(x, y, title)]
    for i, row in enumerate(S):
        for j, value in enumerate(row):
            left, upper = x + j * wide, y + 8 + i * high
            shade = f'fill="{GREEN if value >= 0 else GREY}" fill-opacity="{0.4 * abs(value) / top:.2f}"'
            parts.append(f'<rect x="{left:g}" y="{upper:g}" width="{wide - 3}" height="{high - 3}" rx="4" {shade}/>')
            parts.append(text(left + wide / 2, upper + 16, number(value), anchor="middle"))
    return "".join([*parts, text(x, y + 8 + len(S) * high + 16, below, size=12)])


def line(
    values: np.ndarray, *, x: float, y: float, width: float, height: float, top: float, colour: str, dash: str = ""
) -> str:
    """Numbers from 0 to ``top`` as a line in a box whose lower left corner is (x, y); NaN is left out."""
    step = width / max(1, len(values) - 1)
    points = " ".join(
        f"{x + i * step:.1f},{y - height * min(v, top) / top:.1f}" for i, v in enumerate(values) if not np.isnan(v)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def number(x: float, digits: int = 2) -> str:
    """As the pieces print it: a minus sign of full width, no −0."""
    shown = f"{x:.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", "−")
