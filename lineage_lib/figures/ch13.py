"""Chapter 13's plots, state tracking. Each takes the arrays it shows; those with defaults need nothing."""

import numpy as np

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, STATE, VALUE, figure

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")


def staircases(step=0.25):
    """The next state against the state for a rising and a falling step function, with the path from one state."""
    fig, axes = figure(7.4, 3.6, columns=2)
    for ax, decay, write, start, top in zip(axes, (0.75, -0.9), (1.0, 4.0), (0.0, 0.75), (4.5, 4.5)):
        state = np.arange(0, top + step / 2, step)
        following = np.round((decay * state + write) / step) * step
        ax.plot([0, top], [0, top], color=GRID, linewidth=1.2, zorder=0)
        ax.step(state, following, where="mid", color=DECAY, linewidth=1.4)
        path, h = [(start, 0.0 if decay > 0 else start)], start
        for _ in range(12):
            new = np.round((decay * h + write) / step) * step
            path += [(h, new), (new, new)]
            h = new
        ax.plot(*np.array(path).T, color=STATE, linewidth=1.3, linestyle="--")
        ends = sorted({h, new, np.round((decay * h + write) / step) * step})
        ax.plot(ends, ends if len(ends) == 1 else ends[::-1], "o", color=STATE, markersize=6)
        ax.set(xlabel="state", ylabel="next state", xlim=(0, top), ylim=(0, top), aspect="equal")
        ax.set(xticks=range(5), yticks=range(5))
        ax.set_title(f"a = {decay:g}".replace("-", "−") + (": it settles" if decay > 0 else ": it alternates"))
    return fig


def stops(steps, decays):
    """Steps until a state stops changing, for each format. steps {format: counts}; decays: where, from the left."""
    fig, ax = figure(7.2, 3.4)
    for (name, counts), style, marker in zip(steps.items(), STYLES, MARKERS):
        forgetting = 1 - np.array(decays[: len(counts)])
        ax.plot(forgetting, counts, linestyle=style, marker=marker, markersize=5, color=DECAY)
        ax.annotate(name, (forgetting[-1], counts[-1]), (-8, -4), textcoords="offset points", ha="right", va="top")
    ax.set(xscale="log", yscale="log", xlabel="1 − a, what is forgotten in a step", ylabel="steps until it stops")
    ax.set(xlim=(2e-6, 1), ylim=(4, 2e6))
    return fig


def two_mirrors(angle=36):
    """A flag, its image in one mirror, and the image of that in a second one: the flag, turned by twice the angle."""
    fig, ax = figure(5.4, 4.2)
    turn = np.radians(angle)
    flag = np.array([[0.35, 0.0], [1.0, 0.0], [1.0, 0.3], [0.72, 0.16], [0.35, 0.16]])
    flag = flag @ _rotation(np.radians(-25)).T
    once = flag @ _mirrored(0.0).T
    twice = once @ _mirrored(turn).T
    for direction, name in ((0.0, "first mirror"), (turn, "second mirror")):
        end = 1.15 * np.array([np.cos(direction), np.sin(direction)])
        ax.plot(*np.stack([-end, end]).T, color=KEY, linewidth=1.4, linestyle="-" if direction == 0 else "--")
        if name == "first mirror" or angle:
            ax.text(*(1.17 * end), name.replace(" ", "\n"), color=KEY, fontsize=9, ha="center", va="center")
    looks = (
        (flag, {"facecolor": STATE, "edgecolor": STATE, "alpha": 0.9}, "1"),
        (once, {"facecolor": "none", "edgecolor": INK, "linestyle": "--"}, "2"),
        (twice, {"facecolor": VALUE, "edgecolor": VALUE, "alpha": 0.75}, "3"),
    )
    for shape, look, name in looks:
        ax.fill(*shape.T, linewidth=1.4, **look)
        middle = 1.18 * shape[1:3].mean(axis=0)
        ax.text(*middle, name, color=INK, ha="center", va="center")
    arc = np.radians(-17) + np.linspace(0.0, max(2 * turn, 0.001), 80)
    ax.plot(0.24 * np.cos(arc), 0.24 * np.sin(arc), color=ERASE, linewidth=1.4)
    if angle:
        end = {"arrowstyle": "-|>", "color": ERASE, "linewidth": 1.4}
        points = [0.24 * np.array([np.cos(x), np.sin(x)]) for x in (arc[-2], arc[-1])]
        ax.annotate("", points[1], points[0], arrowprops=end)
    ax.set_title(f"mirrors at {angle}°: turned by {2 * angle}°")
    ax.set(xlim=(-1.55, 1.55), ylim=(-1.15, 1.45), aspect="equal")
    ax.axis("off")
    return fig


def _rotation(turn):
    return np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])


def _mirrored(direction):
    """The reflection that leaves the line in this direction alone."""
    c, s = np.cos(2 * direction), np.sin(2 * direction)
    return np.array([[c, s], [s, -c]])


def factor_counts(numbers):
    """Shares of a group's elements by the number of factors that they need. numbers {group: counts from 0 on}."""
    fig, ax = figure(7.2, 3.4)
    shades = ("#ffffff", "#d7e3f7", "#9dbcec", "#5c8de0", KEY)
    hatches = ("", "..", "", "//", "")
    for row, counts in enumerate(numbers.values()):
        left, total = 0.0, sum(counts)
        for r, count in enumerate(counts):
            if not count:
                continue
            share = count / total
            bar = {"color": shades[r], "edgecolor": INK, "linewidth": 0.8, "hatch": hatches[r]}
            ax.barh(row, share, left=left, height=0.66, **bar, label=f"{r}" if row == 3 else None)
            if share > 0.05:
                ground = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
                ax.text(left + share / 2, row, count, ha="center", va="center", fontsize=9, color=INK, bbox=ground)
            left += share
    ax.set(yticks=range(len(numbers)), yticklabels=list(numbers), xlabel="share of the elements", xlim=(0, 1))
    ax.invert_yaxis()
    ax.legend(title="factors", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return fig


def drift(lengths, errors):
    """Distance of a state from the right rotation against the length of the word. errors {format: mean distances}."""
    fig, ax = figure(7.4, 3.7)
    for (name, off), style, marker in zip(errors.items(), STYLES, MARKERS):
        ax.plot(lengths, off, linestyle=style, marker=marker, markersize=4.5, color=STATE, label=name)
    ax.axhline(np.sqrt(6), color=ERASE, linewidth=1)  # the root mean square: E |R - Q|^2 = 6 - 2 E tr = 6
    ax.text(lengths[0], 4, "as far as an unrelated rotation", color=ERASE, fontsize=9, va="bottom")
    ax.set(xscale="log", yscale="log", xlabel="letters", ylabel="distance from the right rotation")
    ax.set(ylim=(1e-15, 1e4))
    ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.44), fontsize=9, ncols=2, frameon=False)
    return fig
