"""Two rules of the table side by side: their equations, part by part, and their states after one stream."""

import re

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from lineage_lib.figures import DECAY, GRID, INK, PAPER, STATE, VALUE, figure
from lineage_lib.rules import example, show

_SHADES = LinearSegmentedColormap.from_list("state", [DECAY, PAPER, STATE])


def two_rules(left: str, right: str):
    """The equations of two rules, parts that differ marked with ≠, above their states after :mod:`example`'s stream.

    left, right: names such as "mamba-2" and "gated-deltanet". A :class:`show.UnknownRule` for another name.
    """
    rules = [show.find(left), show.find(right)]
    parts = [show.equation_parts(rule) for rule in rules]
    runs = [example.run(rule) for rule in rules]
    shown = [part for part in show.PARTS if any(part in p for p in parts)]
    tall = max(len(run.rows) for run in runs)
    fig, axes = figure(
        8.8,
        0.52 * len(shown) + 0.36 * tall + 1.4,
        columns=2,
        rows=2,
        height_ratios=(len(shown) + 0.7, 0.75 * (tall + 1.3)),
    )
    for column, (rule, run) in enumerate(zip(rules, runs)):
        _equations(axes[0, column], rule.title, parts[column], parts[1 - column], shown, first=column == 0)
        _state(axes[1, column], run, tall, top=max(float(run.states.abs().max()) for run in runs))
    return fig


def mathtext(tex: str) -> str:
    r"""LaTeX of a record as matplotlib typesets it, without braces that it demands and sizes that it lacks.

    >>> mathtext(r"\big(\mathbf k_t\big)^\top")
    '$(\\mathbf{k}_t)^\\top$'
    """
    tex = re.sub(r"\\[bB]ig+(?![a-z])", "", tex).replace(r"\frac", r"\dfrac")
    tex = re.sub(r"\\(mathbf|boldsymbol|mathrm|tilde)\s*(\\[A-Za-z]+|[A-Za-z])", r"\\\1{\2}", tex)
    return f"${tex}$"


def _equations(ax, title, parts, others, shown, *, first):
    ax.axis("off")
    ax.set(xlim=(0, 1), ylim=(len(shown), -0.7))
    ax.text(0.08, -0.35, title, fontsize=11.5, fontweight="bold", va="center")
    for y, part in enumerate(shown):
        differs = parts.get(part) != others.get(part)
        if differs:
            ax.axhspan(y + 0.05, y + 0.95, color=VALUE, alpha=0.09, linewidth=0)
        if first:
            ax.text(-0.03, y + 0.5, part, va="center", ha="right", fontsize=9.5)
        ax.text(0.04, y + 0.5, "≠" if differs else "=", color=VALUE if differs else INK, va="center", ha="center")
        formula = mathtext(parts[part]) if part in parts else "nothing"
        ax.text(0.08, y + 0.5, formula, va="center", fontsize=12 if part in parts else 9.5, math_fontfamily="stix")


def _state(ax, run, tall, *, top):
    table = run.states[-1].numpy()
    rows, columns = table.shape
    ax.imshow(table, cmap=_SHADES, vmin=-2 * top, vmax=2 * top, aspect="auto")
    for (i, j), x in np.ndenumerate(table):
        ax.text(j, i, f"{x:.2f}".replace("-0.00", "0.00").replace("-", "−"), ha="center", va="center", fontsize=10)
    ax.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color=GRID, linewidth=1)
    ax.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color=GRID, linewidth=1)
    ax.set_xticks(range(columns), run.columns, fontsize=9)
    ax.set_yticks(range(rows), run.rows, fontsize=9)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_ylim(tall + 0.8, -0.5)  # room below for the answers, and rows of one height in both panels
    across = ax.get_yaxis_transform()
    for line, name in enumerate(example.NAMES):
        y, read = rows - 0.1 + 0.62 * line, float(example.room(run.answers[name])[-1])
        ax.text(0, y, f"{name}’s room?", va="center", fontsize=9.5, transform=across)
        ax.text(0.42, y, f"{read:.1f}", va="center", ha="right", color=VALUE, fontweight="bold", transform=across)
