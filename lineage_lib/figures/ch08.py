"""Chapter 08's plots, the delta rule. ``one_write`` and ``step_sizes`` are live: all their arguments have defaults."""

import numpy as np

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, STATE, VALUE, figure

OLD, NEW, CY = np.array([3.0, 1.0]), np.array([4.0, 7.0]), np.array([1.0, 2.0])  # rooms 31, 47 and 12


def one_write(beta=1.0, angle=60):
    """One correcting write: where Ada's answer goes as beta grows, and what a key at an angle to hers hears.

    Ada's key answers 31 and room 47 is written under it with strength beta. Cy's key stands at an
    angle, in degrees, to Ada's, and answers 12 before the write.
    """
    cosine = np.cos(np.radians(angle))
    change = beta * (NEW - OLD)
    fig, (left, right) = figure(7.4, 3.8, columns=2, width_ratios=(1, 1.2))
    line = OLD + np.outer([0.0, 2.0], NEW - OLD)
    left.plot(*line.T, color=GRID, linewidth=2, zorder=0)
    for label, point in (("β = 0", line[0]), ("β = 1", NEW), ("β = 2", line[1])):
        left.plot(*point, marker="o", color=GRID, markersize=7, zorder=1)
        left.annotate(label, point, (9, -4), textcoords="offset points", color=INK, fontsize=9)
    _arrow(left, OLD, OLD + change, VALUE)
    _arrow(left, CY, CY + cosine * change, KEY)
    left.plot(*(OLD + change), marker="s", color=VALUE, markersize=8, label="Ada's answer")
    left.plot(*(CY + cosine * change), marker="D", color=KEY, markersize=7, label="Cy's answer")
    left.set(xlim=(-3.2, 7.5), ylim=(-11.5, 14.5), xlabel="tens", ylabel="ones", title="answers after the write")
    left.legend(loc="lower right", frameon=False, fontsize=9)

    degrees = np.linspace(0, 180, 181)
    size = np.linalg.norm(NEW - OLD)
    right.plot(degrees, beta * np.cos(np.radians(degrees)) * size, color=KEY, label="change, along the error")
    right.plot(angle, beta * cosine * size, marker="D", color=KEY, markersize=8)
    for level, label in ((size, "the error itself"), (0, "")):
        right.axhline(level, color=GRID, zorder=0)
        right.text(180, level + 0.4, label, ha="right", fontsize=9)
    right.set(xticks=[0, 45, 90, 135, 180], xlabel="angle of the other key to Ada's, degrees", ylim=(-13, 13))
    right.set(ylabel="change of its answer", title=f"β = {beta:.1f}, {angle}°: cosine times error")
    return fig


def key_lengths(norms):
    """Size of a state over tokens, one line for each length of the keys, on a logarithmic axis.

    norms: {length: (T,) sizes}.
    """
    fig, ax = figure(7.4, 3.5)
    for (length, sizes), dash in zip(norms.items(), ("-", "--", "-.", ":")):
        tokens = np.arange(1, len(sizes) + 1)
        ax.plot(tokens, sizes, color=STATE, linestyle=dash, linewidth=2)
        nudge = -9 if length == min(norms) else 0  # the two lowest lines end close to each other
        ax.annotate(f"length {length:g}", (tokens[-1], sizes[-1]), (6, nudge), textcoords="offset points", color=INK)
    ax.set(yscale="log", xlabel="token", ylabel="size of the state", xlim=(0, len(tokens) * 1.16))
    return fig


def two_losses(along, additive, delta, stored):
    """Two losses of the state along the direction of a write, and the points that their steps of size 1 reach.

    along (n,): what the key reads; additive, delta (n,): the losses there; stored: (before, value).
    """
    before, value = stored
    fig, ax = figure(7.2, 3.5)
    ax.plot(along, additive, color=VALUE, linestyle="--", label="linear attention: −⟨Sᵀk, v⟩")
    ax.plot(along, delta, color=STATE, label="delta rule: ½‖Sᵀk − v‖²")
    for losses, end, colour in ((additive, before + value, VALUE), (delta, value, STATE)):
        heights = np.interp([before, end], along, losses)
        ax.plot(before, heights[0], "o", color=colour, markerfacecolor="none", markersize=8)
        ax.plot(end, heights[1], "s", color=colour, markersize=8)
    ax.set(xlabel="what the key reads", ylabel="loss")
    ax.set_xticks([before, value, before + value], [f"{before:g}, old", f"{value:g}, new", f"{before + value:g}, both"])
    ax.axhline(0, color=GRID, zorder=0)
    ax.legend(loc="lower left", frameon=False, fontsize=9)
    return fig


def four_rules(errors, theory):
    """Recall error over the stream for four rules, mean and spread over seeds; theory as thin lines.

    errors: {rule: (mean, std) at t = 1, 2, …}; theory: {rule: errors at the same tokens}, of some rules.
    """
    fig, (left, right) = figure(7.4, 3.6, columns=2)
    colours, dashes = (VALUE, DECAY, STATE, KEY), ("--", "-.", "-", (0, (5, 1, 1, 1, 1, 1)))
    for (rule, (mean, std)), colour, dash in zip(errors.items(), colours, dashes):
        t = np.arange(1, len(mean) + 1)
        for ax in (left, right):
            ax.plot(t, mean, color=colour, linestyle=dash, linewidth=2, label=rule)
            ax.fill_between(t, mean - std, mean + std, color=colour, alpha=0.18, linewidth=0)
            if rule in theory:
                ax.plot(t, theory[rule], color=INK, linestyle=":", linewidth=1.3)
    left.plot([], [], color=INK, linestyle=":", label="theory")
    left.set(xlabel="token", ylabel="error of the newest values", ylim=(0, None), title="all four")
    right.set(xlabel="token", ylim=(-0.03, 1.15), title="the same, below 1.15")
    left.legend(loc="upper left", frameon=False, fontsize=9)
    right.axhline(1, color=GRID, zorder=0)
    right.text(len(mean), 1.02, "as wrong as reading 0", ha="right", va="bottom", fontsize=9)
    return fig


def price_of_forgetting(results, titles):
    """Error of each rule on two streams, mean and spread over seeds.

    results: {rule: ((mean, std), (mean, std))}; titles: of the two panels.
    """
    fig, axes = figure(7.4, 0.38 * len(results) + 1.2, columns=2, sharey=True)
    rows = np.arange(len(results))[::-1]
    for column, (ax, title, colour, marker) in enumerate(zip(axes, titles, (ERASE, DECAY), ("o", "s"))):
        mean, std = np.array([result[column] for result in results.values()]).T
        ax.errorbar(mean, rows, xerr=std, color=colour, marker=marker, linestyle="", capsize=3)
        ax.axvline(1, color=GRID, zorder=0)
        ax.set(xlim=(-0.05, 1.15), xlabel="error")
        ax.set_title(title, fontsize=10)
    axes[0].set_yticks(rows, list(results))
    axes[0].text(0.98, rows[0] + 0.45, "as wrong as reading 0", fontsize=9, va="center", ha="right")
    axes[0].set_ylim(-0.6, rows[0] + 0.7)
    return fig


def step_sizes(length=1.0):
    """What is left of the old answer after one write, against beta: the explicit and the implicit step.

    length: of the key. Between the grey lines the old answer does not grow.
    """
    beta = np.linspace(0, 4, 401)
    fig, ax = figure(7.2, 3.5)
    ax.axhspan(-1, 1, color=GRID, alpha=0.35, zorder=0)
    ax.axhline(0, color=GRID, zorder=0)
    ax.plot(beta, 1 - beta * length**2, color=ERASE, linestyle="--", linewidth=2, label="one gradient step: 1 − β‖k‖²")
    ax.plot(beta, 1 / (1 + beta * length**2), color=STATE, linewidth=2, label="implicit step: 1 / (1 + β‖k‖²)")
    if 2 / length**2 <= beta[-1]:
        ax.plot(2 / length**2, -1, "o", color=ERASE, markersize=8)
        limit = f"β = 2/‖k‖² = {2 / length**2:.2f}"
        ax.annotate(limit, (2 / length**2, -1), (-8, -16), textcoords="offset points", ha="right")
    ax.set(xlabel="β", ylabel="factor on the old answer", ylim=(-3, 2.6), title=f"a key of length {length:g}")
    ax.legend(loc="upper right", frameon=False, fontsize=9)
    return fig


def _arrow(ax, start, end, colour):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.6})
