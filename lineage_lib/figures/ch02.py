"""Chapter 02's pictures. Tokens are numbered from 1 on every axis, as in the chapter's formulas."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from lineage_lib.figures import DECAY, GRID, INK, KEY, PAPER, STATE, VALUE, figure

_SIZES = LinearSegmentedColormap.from_list("sizes", [PAPER, VALUE])


def routes(T: int = 7, cut: int = 4):
    """Every route from the inputs up to the cut to the outputs from the cut on, through one state."""
    fig, ax = figure(7.2, 3.0)
    ax.set(xlim=(0.3, T + 0.8), ylim=(-0.55, 2.6))
    ax.axis("off")
    for t in range(1, T + 1):
        past, future, at = t <= cut, t >= cut, t == cut
        _node(ax, t, 0, f"$x_{t}$", VALUE if past else GRID)
        _node(ax, t, 1, f"$\\mathbf{{h}}_{t}$", STATE, strong=at)
        _node(ax, t, 2, f"$y_{t}$", VALUE if future else GRID)
        _arrow(ax, (t, 0.22), (t, 0.78), KEY if past else GRID, f"$\\mathbf{{B}}_{t}$", (0.08, 0.46))
        _arrow(ax, (t, 1.22), (t, 1.78), KEY if future else GRID, f"$\\mathbf{{C}}_{t}$", (0.08, 1.44))
        if t < T:
            _arrow(ax, (t + 0.22, 1), (t + 0.78, 1), DECAY, f"$\\mathbf{{A}}_{t + 1}$", (0.38, 1.09))
    ax.add_patch(Rectangle((0.62, -0.32), cut - 0.24, 0.64, fill=False, edgecolor=INK, linestyle="--"))
    ax.add_patch(Rectangle((cut - 0.38, 1.68), T - cut + 0.76, 0.64, fill=False, edgecolor=INK, linestyle="--"))
    ax.text(0.62, -0.48, f"the past: columns 1 to {cut} of $\\mathbf{{M}}$", va="center")
    ax.text(T + 0.38, 2.47, f"the future: rows {cut} to {T} of $\\mathbf{{M}}$", va="center", ha="right")
    ax.text(0.62, 2.47, f"the only way across: the N numbers of $\\mathbf{{h}}_{cut}$", color=STATE, va="center")
    return fig


def four_tokens(M, cut: int = 3):
    """A small matrix as numbers on a heat map, with the cut block outlined."""
    fig, ax = figure(4.2, 3.4)
    _heat(ax, M)
    for (t, s), value in np.ndenumerate(M):
        if s <= t:
            ax.text(s + 1, t + 1, f"{value:.4g}", ha="center", va="center")
    _outline(ax, cut, len(M))
    ax.set(xticks=range(1, len(M) + 1), yticks=range(1, len(M) + 1), xlabel="input s", ylabel="output t")
    return fig


def covering(M, rows: list[int], columns: list[int]):
    """A submatrix below the diagonal (crosses) and the cut block around it (outline)."""
    fig, ax = figure(4.6, 3.8)
    _heat(ax, M)
    _outline(ax, min(rows), len(M))
    for t in rows:
        ax.plot(columns, [t] * len(columns), linestyle="", marker="x", color=INK, markersize=7)
    ax.set(xticks=range(1, len(M) + 1), yticks=range(1, len(M) + 1), xlabel="input s", ylabel="output t")
    return fig


def two_matrices(left, right, titles: tuple[str, str], cut: int):
    """Two mixing matrices side by side, the same cut block outlined in both; colours show roots of sizes."""
    fig, axes = figure(7.4, 3.7, columns=2)
    for ax, M, title in zip(axes, (left, right), titles):
        _heat(ax, np.abs(M) ** 0.5)
        _outline(ax, cut, len(M))
        ticks = [1, *range(16, len(M) + 1, 16)]
        ax.set(title=title, xticks=ticks, yticks=ticks, xlabel="input s")
    axes[0].set_ylabel("output t")
    return fig


# The matrix of outputs comes first and the recurrence second; further ones are variants of the first.
_LINES = ((VALUE, "-", "o"), (STATE, "-", "s"), (VALUE, "--", "^"), (VALUE, ":", "D"))


def rank_curves(curves: dict[str, np.ndarray]):
    """The rank of every cut block against the cut, one line a matrix, under the largest rank possible."""
    fig, ax = figure(7.2, 3.4)
    T = len(next(iter(curves.values())))
    cuts = np.arange(1, T + 1)
    ax.fill_between(cuts, np.minimum(cuts, T + 1 - cuts), color=GRID, alpha=0.6, linewidth=0)
    ax.text(T / 2, T / 7, "possible ranks", ha="center", color=INK)
    for (label, ranks), (color, dash, marker) in zip(curves.items(), _LINES):
        ax.plot(cuts, ranks, color=color, linestyle=dash, marker=marker, markersize=3.5, linewidth=1.2, label=label)
    ax.set(xlabel="cut k", ylabel="rank of the cut block", xlim=(0, T + 1), ylim=(0, None))
    ax.legend(loc="upper left", frameon=False)
    return fig


def spectra(curves: dict[str, np.ndarray], tolerances: tuple[float, ...] = ()):
    """Singular values of one cut block per matrix, each divided by its largest, on a log scale.

    Values that are only rounding, and so differ between machines, are drawn at the edge of a band.
    """
    rounding = 1e-15
    fig, ax = figure(7.2, 3.8)
    for (label, values), (color, dash, marker) in zip(curves.items(), _LINES):
        shown = np.maximum(values / values[0], rounding)
        index = np.arange(1, len(values) + 1)
        ax.plot(index, shown, color=color, linestyle=dash, marker=marker, markersize=3.5, linewidth=1.2, label=label)
    for tolerance in tolerances:
        ax.axhline(tolerance, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
        ax.text(len(values) + 0.4, tolerance * 1.6, f"rtol = {tolerance:g}", ha="right", fontsize=9)
    ax.axhspan(rounding / 40, rounding, color=GRID, alpha=0.6, linewidth=0)
    ax.text(0.7, rounding / 14, "rounding", fontsize=9)
    ax.set(xlabel="number of the singular value", ylabel="relative to the largest", yscale="log")
    ax.set(xlim=(0.5, None), ylim=(rounding / 40, 4))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return fig


def _node(ax, x: float, y: float, text: str, color: str, *, strong: bool = False):
    face, ink = (color, PAPER) if strong else (PAPER, INK)
    box = {"boxstyle": "circle,pad=0.25", "facecolor": face, "edgecolor": color, "linewidth": 1.6}
    ax.text(x, y, text, ha="center", va="center", color=ink, bbox=box)


def _arrow(ax, start: tuple, end: tuple, color: str, label: str, offset: tuple[float, float]):
    ax.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.3})
    x = start[0] + offset[0] if start[0] == end[0] else start[0] - 0.22 + offset[0]
    ax.text(x, offset[1], label, color=color if color != GRID else INK)


def _heat(ax, M):
    """A heat map with rows and columns numbered from 1: the larger an entry's size, the darker."""
    sizes, T = np.abs(M), len(M)
    ax.imshow(sizes, cmap=_SIZES, vmin=0, extent=(0.5, T + 0.5, T + 0.5, 0.5), interpolation="nearest")


def _outline(ax, cut: int, T: int):
    block = Rectangle((0.5, cut - 0.5), cut, T - cut + 1, fill=False, edgecolor=STATE, linewidth=2.4)
    block.set(zorder=3, clip_on=False)  # above the axes' own lines
    ax.add_patch(block)
