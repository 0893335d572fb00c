"""Chapter 07's plots, one family of update rules. Each takes the arrays it shows."""

import textwrap

import numpy as np

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, STATE, VALUE, figure
from lineage_lib.rules import show

DASHES = ("-", "--", "-.", ":")


def fixed_decays(gammas, slopes):
    """What RetNet's heads keep over time, and how long lightning attention's heads keep half, by layer.

    gammas (H,) decays a step; slopes (L, H) rates a step, layer by head, 0 for no decay.
    """
    fig, (left, right) = figure(8.4, 3.3, columns=2)
    steps = np.geomspace(1, 10_000, 300)
    for h, gamma in enumerate(gammas):
        left.plot(steps, gamma**steps, color=DECAY, linestyle=DASHES[h % 4], alpha=0.45 + 0.55 * h / len(gammas))
        left.plot(np.log(2) / -np.log(gamma), 0.5, "o", color=INK, markersize=4)
    left.axhline(0.5, color=GRID, zorder=0)
    left.set(xscale="log", xlabel="steps", ylabel="left of a write", title="RetNet, eight heads")
    left.text(3, 0.36, "head 0", color=INK)
    left.text(2900, 0.72, "head 7", color=INK)

    layers = np.arange(len(slopes))
    with np.errstate(divide="ignore"):
        half_lives = np.log(2) / slopes
    for h, marker in zip((0, len(slopes.T) // 2, len(slopes.T) - 1), "osD"):
        shown = np.isfinite(half_lives[:, h])
        right.plot(layers[shown], half_lives[shown, h], color=DECAY, marker=marker, markersize=4, label=f"head {h}")
    right.set(yscale="log", xlabel="layer", ylabel="half-life in steps", title="lightning attention, 12 layers")
    right.axvspan(len(slopes) - 1.4, len(slopes) - 0.6, color=GRID, alpha=0.6)
    right.text(len(slopes) - 1.6, half_lives[0, 0], "last layer: no decay", color=INK, ha="right", va="center")
    right.set_xlim(-0.5, len(slopes) - 0.5)
    right.legend(loc="upper left", frameon=False)
    return fig


def tiny_case(reads, stored, replaced, asked):
    """The value read under Ada's name at every token, one panel a rule; the last read is Bo's.

    reads: {title: values at tokens 0, 1, …}; stored, replaced, asked: the tokens of the two writes
    under Ada and of the question about Bo.
    """
    columns = 4
    rows = -(-len(reads) // columns)
    fig, axes = figure(8.6, 1.75 * rows + 0.3, columns=columns, rows=rows, sharex=True, sharey=True)
    for ax, (title, values) in zip(axes.flat, reads.items()):
        tokens = np.arange(len(values))
        ax.plot(tokens[stored:asked], values[stored:asked], color=STATE, marker="o", markersize=3)
        ax.plot(tokens[asked], values[asked], color=KEY, marker="s", markersize=6)
        ax.axhline(5, color=GRID, linestyle="--", zorder=0)
        ax.axvline(replaced, color=GRID, zorder=0)
        ax.set_title(title, fontsize=9)
        ax.set(xticks=[stored, replaced], yticks=[0, 3, 5, 7])
    for ax in axes.flat[len(reads) :]:
        ax.axis("off")
    fig.supxlabel("token", color=INK)
    fig.supylabel("value read", color=INK)
    return fig


def running_maximum(i_pre, log_f, m):
    """The logarithm of every token's weight as it fades, and the running maximum that follows the largest.

    i_pre, log_f, m (T,): the input gates' exponents, the logarithms of the forget gates, the maximum.
    """
    fig, ax = figure(7.4, 3.3)
    tokens = np.arange(len(m))
    faded = np.cumsum(log_f)
    for s in range(len(m)):
        weight = i_pre[s] + faded[s:] - faded[s]
        ax.plot(tokens[s:], weight, color=VALUE, alpha=0.55, linewidth=1)
        ax.plot(tokens[s], weight[0], "o", color=VALUE, markersize=4)
    ax.plot(tokens, m, color=INK, linewidth=2.2, linestyle="--", label="$m_t$")
    ax.plot([], [], color=VALUE, marker="o", markersize=4, label="log weight of each token")
    ax.axhline(0, color=GRID, zorder=0)
    ax.axhline(88.7, color=ERASE, linestyle=":", linewidth=1.2)
    ax.text(len(m) - 1, 90, "float32 overflows above", color=ERASE, ha="right", va="bottom")
    ax.set(xlabel="token", ylabel="logarithm")
    ax.legend(loc="lower left", frameon=False)
    return fig


def turning_state(fading, turning):
    """A value stored once: a state that fades, one that fades and turns; the path of the turning one.

    fading (T,): what a plain decaying state returns; turning (T, 2): the two rows of the turning state.
    """
    fig, (left, right) = figure(8.2, 3.2, columns=2, width_ratios=(1.7, 1))
    steps = np.arange(len(fading))
    left.plot(steps, fading, color=DECAY, linestyle="--", label="fades")
    left.plot(steps, turning[:, 0], color=STATE, marker="o", markersize=3, label="fades and turns")
    left.axhline(0, color=GRID, zorder=0)
    left.set(xlabel="steps since the write", ylabel="value read")
    left.legend(loc="upper right", frameon=False)
    right.plot(turning[:, 0], turning[:, 1], color=STATE, marker="o", markersize=3)
    right.plot(*turning[0], "s", color=VALUE, markersize=8)
    right.axhline(0, color=GRID, zorder=0)
    right.axvline(0, color=GRID, zorder=0)
    right.set(xlabel="first row of the state", ylabel="second row", aspect="equal")
    return fig


def two_axes(rules):
    """The family on its two axes, from the records of lineage_lib.rules."""
    columns = {
        ("none", "none"): "never",
        ("fixed", "head"): "fixed,\na head",
        ("fixed", "channel"): "fixed,\na channel",
        ("per token", "head"): "by the token,\na head",
        ("per token", "channel"): "by the token,\na channel",
    }
    rows = {"adds": KEY, "adds, divides": VALUE, "corrects": ERASE}  # as show.writes has it
    places: dict[tuple[int, int], list[str]] = {}
    for rule in rules:
        place = [*columns].index((rule.decay, rule.decay_axis)), [*rows].index(show.writes(rule))
        places.setdefault(place, []).append(rule.title.split(",")[0].split(" (")[0])

    fig, ax = figure(8.8, 4.4)
    colours = list(rows.values())
    for (x, y), titles in places.items():
        text = "\n".join(textwrap.fill(title, 22) for title in titles)
        ax.text(x, y, text, color=colours[y], ha="center", va="center", fontsize=8.5, linespacing=1.5)
    ax.set_xticks(range(len(columns)), columns.values(), fontsize=9)
    ax.set_yticks(range(len(rows)), [name.replace(", ", ",\nthen ") for name in rows], fontsize=9)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    ax.set_xticks(np.arange(len(columns) - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(rows) - 1) + 0.5, minor=True)
    ax.grid(True, which="minor", color=GRID)
    ax.tick_params(which="both", length=0)
    ax.set_xlabel("how it forgets, coarse to fine")
    ax.set_ylabel("how it writes")
    return fig
