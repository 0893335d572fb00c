"""Chapter 01's plots, two memories. Tokens are numbered from 1, as in the chapter's formulas."""

import numpy as np
from matplotlib.patches import Rectangle

from lineage_lib.figures import DECAY, GRID, INK, KEY, PAPER, STATE, VALUE, figure


def two_memories(notes, states, names):
    """Above, the cache after each note, one more card each time; below, the state, always of one size.

    notes: T pairs (name, value); states: T arrays (K, 1), after each note; names: K labels of the state's rows.
    """
    fig, axes = figure(7.6, 3.6, columns=len(notes), rows=2, height_ratios=(3, 2))
    for t, (cards, table) in enumerate(axes.T):
        for row, (name, value) in enumerate(notes[: t + 1]):
            _box(cards, 0, row, name, KEY, new=row == t)
            _box(cards, 1, row, f"{value:g}", VALUE, new=row == t)
        for row, name in enumerate(names):
            table.text(-0.1, row + 0.5, name, ha="right", va="center", color=KEY)
            _box(table, 0, row, f"{states[t][row, 0]:g}", STATE, new=name == notes[t][0])
        cards.set(xlim=(-0.8, 2.8), ylim=(len(notes) + 0.1, -0.1), title=f"after token {t + 1}")
        table.set(xlim=(-1.3, 2.3), ylim=(len(names) + 0.1, -0.1))
        for ax in (cards, table):
            ax.axis("off")
    for ax, label in zip(axes[:, 0], ("the cache", "the state")):
        ax.text(-0.12, 0.5, label, transform=ax.transAxes, rotation=90, ha="center", va="center", fontsize=11)
    return fig


def bytes_over_context(tokens, caches, state, crossings):
    """Bytes of caches and of a state against the length of the context, on logarithmic axes.

    caches: {label: bytes at each length}; state: (label, bytes); crossings: lengths at which a cache overtakes it.
    """
    fig, ax = figure(7.2, 3.7)
    for (label, size), colour, dash, marker in zip(caches.items(), (KEY, VALUE), ("--", "-"), ("s", "o")):
        ax.loglog(tokens, size, color=colour, linestyle=dash, marker=marker, markersize=4, markevery=4, label=label)
    label, size = state
    ax.axhline(size, color=STATE, linewidth=2, label=label)
    for number, length in enumerate(crossings):
        offset, side = ((-6, 8), "right") if number == 0 else ((6, -15), "left")
        ax.plot([length], [size], marker="o", markersize=9, markerfacecolor=PAPER, markeredgecolor=INK)
        ax.annotate(f"{length:,}", (length, size), offset, textcoords="offset points", ha=side)
    ax.set(xlabel="tokens of context", ylabel="bytes, one sequence")
    ax.set_yticks([1e6, 1e7, 1e8, 1e9, 1e10, 1e11], ["1 MB", "10 MB", "100 MB", "1 GB", "10 GB", "100 GB"])
    ax.set_xticks([1e2, 1e3, 1e4, 1e5, 1e6], ["100", "1,000", "10,000", "100,000", "1,000,000"])
    ax.minorticks_off()
    ax.grid(True, color=GRID)
    ax.legend(loc="upper left", frameon=False)
    return fig


def crosstalk(loads, widths, capacities, held):
    """Left, the error of reading back against the number of pairs; right, the pairs held against the key width.

    loads: {K: (n, mean, std)}; widths: the K of the right panel; capacities: (mean, std) at each of them;
    held: the pairs that the theory allows at each of them.
    """
    fig, (left, right) = figure(8.4, 3.5, columns=2)
    for (K, (n, mean, std)), marker in zip(loads.items(), ("s", "o")):
        left.errorbar(n, mean, std, color=STATE, linestyle="", marker=marker, capsize=3, label=f"random keys, K = {K}")
        left.plot(n, (np.asarray(n) - 1) / K, color=INK, linestyle="--", linewidth=1)
        left.text(n[-1] * 1.01, (n[-1] - 1) / K, f" (n − 1)/{K}", va="center")
        floor = np.arange(1, n[-1] + 1)
        left.plot(floor, np.maximum(0, floor / K - 1), color=KEY, linestyle=":", linewidth=1.5)
        left.text(n[-1] * 1.01, n[-1] / K - 1, f" n/{K} − 1", va="center", color=KEY)
    left.plot([], [], color=KEY, linestyle=":", label="no keys below: n/K − 1")
    left.set(xlabel="stored pairs n", ylabel="relative squared error", ylim=(-0.1, 5.9))
    left.set_xlim(0, left.get_xlim()[1] * 1.3)
    left.legend(frameon=False, loc="upper left", fontsize=9)
    mean, std = capacities
    right.plot(widths, widths, color=KEY, linestyle=":", marker="^", label="orthonormal keys, exact: K")
    right.errorbar(widths, mean, std, color=STATE, linestyle="", marker="o", capsize=3, label="random keys, error ≤ ¼")
    right.plot(widths, held, color=INK, linestyle="--", linewidth=1, label="theory: 1 + K/4")
    right.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    right.set_xticks(widths, [str(K) for K in widths])
    right.set_yticks(2 ** np.arange(1, 9), [str(n) for n in 2 ** np.arange(1, 9)])
    right.minorticks_off()
    right.set(xlabel="key width K", ylabel="pairs held")
    right.legend(frameon=False, loc="upper left", fontsize=9)
    for ax in (left, right):
        ax.grid(True, color=GRID)
    return fig


def rewriting(errors, theory, sweep, sweep_theory):
    """Left, the error over a stream of rewritten values; right, the error at its end against the decay.

    errors: {label: (mean, std) at t = 1, 2, …}; theory: (t, error) for the additive rule;
    sweep: (decays, mean, std); sweep_theory: (decays, error).
    """
    fig, (left, right) = figure(8.4, 3.5, columns=2)
    for (label, (mean, std)), colour, dash in zip(errors.items(), (STATE, DECAY), ("-", "-.")):
        t = np.arange(1, len(mean) + 1)
        left.plot(t, mean, color=colour, linestyle=dash, label=label)
        left.fill_between(t, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    left.plot(*theory, color=INK, linestyle=":", linewidth=1.5, label="theory: √(t/8 − 1)")
    left.axhline(1, color=GRID, linewidth=1)
    left.text(len(mean), 1.06, "as wrong as reading 0", ha="right", va="bottom", fontsize=9)
    left.set(xlabel="tokens t", ylabel="error of the latest value", ylim=(0, None))
    left.legend(frameon=False, loc="upper left", fontsize=9)
    decays, mean, std = sweep
    right.errorbar(decays, mean, std, color=DECAY, linestyle="", marker="o", markersize=4, capsize=3, label="measured")
    right.plot(*sweep_theory, color=INK, linestyle=":", linewidth=1.5, label="theory")
    right.axhline(1, color=GRID, linewidth=1)
    right.text(decays[0], 1.03, "as wrong as reading 0", va="bottom", fontsize=9)
    right.set(xlabel="decay", ylabel="error after 200 tokens", ylim=(0, 1.8))
    right.legend(frameon=False, loc="lower left", fontsize=9)
    return fig


def _box(ax, column, row, text, colour, *, new):
    ax.add_patch(
        Rectangle(
            (column + 0.03, row + 0.06), 0.94, 0.88, facecolor=PAPER, edgecolor=colour, linewidth=2.4 if new else 1.0
        )
    )
    ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=INK, weight="bold" if new else "normal")
