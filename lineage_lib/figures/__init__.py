"""The book's plots: one palette, one style, and a module a chapter.

Figures are drawn on an opaque light ground, so that they read the same in the light and the dark
theme, and they never rely on colour alone: lines differ in dash or marker, areas in label.
"""

import matplotlib.pyplot as plt

# Colour carries meaning and keeps it through the whole book.
KEY = "#2563c9"  # keys and queries: blue
STATE = "#1f8a4c"  # the state: green
VALUE = "#c77700"  # values and outputs: amber
ERASE = "#c62f2f"  # erasing: red
DECAY = "#7a3fc0"  # decay: violet
INK, PAPER, GRID = "#20242b", "#fbfaf7", "#d9d6cf"

STYLE = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": GRID,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 10,
    "legend.frameon": False,
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
}


def figure(width: float = 7.0, height: float = 3.2, *, columns: int = 1, rows: int = 1, **kwargs):
    """A figure and its axes in the book's style; sizes in inches. Returns ``(figure, axes)``."""
    with plt.rc_context(STYLE):
        return plt.subplots(rows, columns, figsize=(width, height), **kwargs)
