"""Chapter 03's plots, SSD duality. Each takes the arrays it shows; tokens are numbered from 1, as in the formulas."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from lineage_lib.figures import DECAY, GRID, INK, KEY, PAPER, STATE, VALUE, figure


def mask_times_scores(L, scores, readers, writers):
    """Three tables of numbers: the mask, the scores, and their product entry by entry.

    L, scores (T, T); readers, writers: T labels of the rows and of the columns.
    """
    panels = ((L, "mask L", DECAY), (scores, "scores C Bᵀ", KEY), (L * scores, "M = L ∘ C Bᵀ", VALUE))
    fig, axes = figure(8.2, 2.9, columns=3)
    for ax, (matrix, title, colour) in zip(axes, panels):
        ax.imshow(matrix, cmap=_ramp(colour), vmin=0, vmax=1.6)
        for t, s in np.ndindex(matrix.shape):
            ax.text(s, t, f"{matrix[t, s]:g}", ha="center", va="center", color=INK)
        ax.set_title(title)
        ax.set_xticks(range(len(writers)), writers)
        ax.set_yticks(range(len(readers)), readers)
        ax.tick_params(length=0)
    axes[0].set_ylabel("token t reads")
    axes[1].set_xlabel("token s wrote")
    return fig


def masks_as_positions(masks):
    """Masks of different decays, and under each what the last token sees of each earlier one.

    masks: {title: L (T, T)}, all of one size.
    """
    fig, axes = figure(8.2, 4.4, columns=len(masks), rows=2, height_ratios=(2, 1), sharex=True)
    for (upper, lower), (title, L) in zip(axes.T, masks.items()):
        tokens, ticks = np.arange(1, len(L) + 1), _ticks(len(L), every=10)
        upper.imshow(L, cmap=_ramp(DECAY), vmin=0, vmax=1, extent=_extent(len(L)), aspect="auto")
        upper.set(title=title, yticks=ticks)
        upper.tick_params(labelbottom=False)
        lower.step(tokens, L[-1], where="mid", color=DECAY)
        lower.fill_between(tokens, L[-1], step="mid", color=DECAY, alpha=0.2)
        lower.set(ylim=(0, 1.05), xticks=ticks, xlabel="token s")
    axes[0, 0].set_ylabel("token t")
    axes[1, 0].set_ylabel("last row of L")
    return fig


def ways_to_a_mask(masks):
    """Masks made in different ways from the same decays; entries that are not finite are hatched.

    masks: {title: L (T, T)}, all of one size.
    """
    fig, axes = figure(8.6, 2.9, columns=len(masks), sharey=True)
    for ax, (title, L) in zip(axes, masks.items()):
        T = len(L)
        bad, tokens, ticks = ~np.isfinite(L), np.arange(1, T + 1), _ticks(T, every=T * 2 // 5)
        ax.imshow(np.where(bad, 0.0, L), cmap=_ramp(DECAY), vmin=0, vmax=1, extent=_extent(T))
        ax.contourf(tokens, tokens, bad, levels=[0.5, 1.5], colors=[GRID], hatches=["////"])
        ax.set_title(f"{title}\n{bad.sum():,} NaN", fontsize=10)
        ax.set(xticks=ticks, yticks=ticks, xlabel="token s")
    axes[0].set_ylabel("token t")
    return fig


def counted_costs(T, flops, kept, crossover):
    """FLOPs of both forms against the length, and the numbers each keeps besides inputs and outputs.

    flops, kept: {"recurrent": values at T, "quadratic": values at T}.
    """
    fig, axes = figure(8.2, 3.3, columns=2)
    for ax, counts, what in zip(axes, (flops, kept), ("floating-point operations", "numbers kept")):
        _both_forms(ax, T, counts)
        ax.set_ylabel(what)
    axes[0].legend(loc="lower right", frameon=False)
    axes[0].axvline(crossover, color=INK, linestyle=":")
    axes[0].text(crossover * 1.15, 0.05, f"T = {crossover}", color=INK, transform=axes[0].get_xaxis_transform())
    return fig


def measured_times(T, seconds, counted_crossover):
    """Seconds of both forms against the length, with the crossover that counting predicts.

    seconds: {"recurrent": values at T, "quadratic": values at T}.
    """
    fig, ax = figure(6.4, 3.3)
    _both_forms(ax, T, seconds)
    ax.axvline(counted_crossover, color=INK, linestyle=":")
    ax.text(counted_crossover * 1.1, 0.94, "counts cross here", color=INK, transform=ax.get_xaxis_transform())
    ax.set_ylabel("seconds")
    ax.legend(loc="lower right", frameon=False)
    return fig


def _both_forms(ax, T, values):
    """Two curves against the length, on logarithmic axes, told apart by colour, dash and marker."""
    ax.loglog(T, values["recurrent"], color=STATE, marker="o", markersize=5, label="recurrent")
    ax.loglog(T, values["quadratic"], color=KEY, marker="s", markersize=5, linestyle="--", label="quadratic")
    ax.set_xlabel("length T")
    ax.grid(True, color=GRID)


def _extent(T):
    """The edges of a T by T table whose rows and columns are numbered from 1, the first row on top."""
    return 0.5, T + 0.5, T + 0.5, 0.5


def _ticks(T, *, every):
    return [1, *range(every, T + 1, every)]


def _ramp(colour):
    """From the ground to one of the book's colours."""
    return LinearSegmentedColormap.from_list("ramp", [PAPER, colour])
