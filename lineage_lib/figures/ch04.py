"""Chapter 04's plots, chunked SSD. Tokens are numbered from 1 on axes; names in brackets count from 0, as code does."""

from fractions import Fraction

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure

CODE = {"family": "monospace", "color": INK, "ha": "center", "va": "center"}


def twelve_tokens(M, T_c, labels):
    """The mixing matrix as a table of fractions, cut into blocks of T_c by T_c.

    M (T, T); labels: T names of the tokens, shown at the rows.
    """
    T = len(M)
    fig, ax = figure(7.2, 6.4)
    ramp = LinearSegmentedColormap.from_list("ramp", [PAPER, VALUE])
    ax.imshow(M, cmap=ramp, vmin=0, vmax=1.7, extent=(0.5, T + 0.5, T + 0.5, 0.5))
    for t, s in zip(*np.nonzero(M)):
        ax.text(s + 1, t + 1, str(Fraction(M[t, s])), ha="center", va="center", color=INK, fontsize=8.5)
    for border in range(T_c, T, T_c):
        ax.plot([0.5, T + 0.5], [border + 0.5] * 2, color=INK, linewidth=1.6)
        ax.plot([border + 0.5] * 2, [0.5, T + 0.5], color=INK, linewidth=1.6)
    for start in range(0, T, T_c):
        for stop in range(start + T_c, T, T_c):
            box = (stop + 0.5, start + 0.5)
            ax.add_patch(
                Rectangle(box, T_c, T_c, facecolor=GRID, alpha=0.5, hatch="////", edgecolor=PAPER, linewidth=0)
            )
    tokens = np.arange(1, T + 1)
    ax.set_xticks(tokens)
    ax.set_yticks(tokens, [f"{t}  {label}" for t, label in zip(tokens, labels)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("token s wrote")
    ax.set_ylabel("token t reads")
    return fig


def blocks_with_names(J=3):
    """The matrix cut into J by J blocks; every block shows how the code computes it, in the code's own names."""
    fig, ax = figure(9.2, 8.0)
    side = 4.0
    for j in range(J):
        _box(ax, -1.75, side * j + 0.1, 1.15, side - 0.2, VALUE, 0.22)
        ax.text(-1.17, side * (j + 0.5), f"Y[{j}]", fontsize=11, **CODE)
        _box(ax, side * J + 0.6, side * j + 0.1, 1.15, side - 0.2, VALUE, 0.22)
        ax.text(side * J + 1.17, side * (j + 0.5), f"X[{j}]", fontsize=11, **CODE)
        for i in range(J):
            draw = _above if i > j else _diagonal if i == j else _below
            draw(ax, side * i, side * j, side, j, i)
    for border in range(J + 1):
        ax.plot([0, J * side], [side * border] * 2, color=INK, linewidth=1.4)
        ax.plot([side * border] * 2, [0, J * side], color=INK, linewidth=1.4)
    ax.text(-0.3, side * J / 2, "=", fontsize=15, **CODE)
    ax.text(side * J + 0.3, side * J / 2, "@", fontsize=12, **CODE)
    for i in range(J):
        _state_box(ax, side * i, side * J + 0.85, side, i, "green strips" if i < J - 1 else "its strip")
    ax.set(xlim=(-1.9, side * J + 1.9), ylim=(side * J + 2.15, -0.15), aspect="equal")
    ax.axis("off")
    return fig


def _above(ax, x, y, side, j, i):
    ax.add_patch(Rectangle((x, y), side, side, facecolor=GRID, alpha=0.45, hatch="////", edgecolor=PAPER, linewidth=0))
    ax.text(x + side / 2, y + side / 2, "0", fontsize=16, **CODE)


def _diagonal(ax, x, y, side, j, i):
    corners = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 3), (4, 4), (0, 4)]
    steps = [(x + side / 4 * right, y + side / 4 * down) for right, down in corners]
    ax.add_patch(Polygon(steps, facecolor=KEY, alpha=0.2, edgecolor="none"))
    ax.text(x + side * 0.30, y + side * 0.66, f"L[{j}] *", fontsize=10.5, **CODE)
    ax.text(x + side * 0.47, y + side * 0.87, f"(C[{j}] @ B[{j}].T)", fontsize=10.5, **CODE)
    _badge(ax, x + 0.5, y + 0.5, 1, KEY)


def _below(ax, x, y, side, j, i):
    edge, gap = 1.12, 0.12
    start, long = edge + 2 * gap, side - edge - 3 * gap
    _box(ax, x + gap, y + gap, edge, edge, DECAY, 0.3)
    lines = ["between", f"[{j}, {i}]" + ("=1" if i == j - 1 else "")]
    for number, line in enumerate(lines):
        ax.text(x + gap + edge / 2, y + gap + 0.58 + 0.27 * number, line, fontsize=7.5, **CODE)
    _box(ax, x + start, y + gap, long, edge, STATE, 0.25)
    ax.text(x + start + long / 2, y + gap + edge / 2, f"(write[{i}] * B[{i}]).T", fontsize=7.8, **CODE)
    _box(ax, x + gap, y + start, edge, long, KEY, 0.25)
    ax.text(x + gap + edge / 2, y + start + long / 2, f"read[{j}] * C[{j}]", fontsize=9.2, rotation=90, **CODE)
    ax.add_patch(Rectangle((x + start, y + start), long, long, facecolor=VALUE, alpha=0.10, edgecolor="none"))
    for number, line in enumerate(("every entry:", "row at its left", "times column above", "times corner")):
        ax.text(x + start + long / 2, y + start + 0.55 + 0.5 * number, line, fontsize=8.5, ha="center", color=INK)
    _badge(ax, x + start + 0.16, y + gap + 0.16, 2, STATE)
    _badge(ax, x + gap + 0.16, y + gap + 0.16, 3, DECAY)
    _badge(ax, x + gap + 0.16, y + start + 0.16, 4, KEY)


def _state_box(ax, x, y, side, i, what):
    _box(ax, x + 0.12, y, side - 0.24, 1.15, STATE, 0.25)
    ax.text(x + side / 2, y + 0.38, f"states[{i}] =", fontsize=9, **CODE)
    ax.text(x + side / 2, y + 0.80, f"(write[{i}] * B[{i}]).T @ X[{i}]", fontsize=8.5, **CODE)
    _arrow(ax, (x + side / 2, y - 0.78), (x + side / 2, y - 0.06), STATE)
    ax.text(x + side / 2 + 0.15, y - 0.42, f"{what} @ X[{i}]", fontsize=8, ha="left", va="center", color=INK)
    _badge(ax, x + 0.28, y + 0.16, 2, STATE)


def four_steps(J=3):
    """The flow of the algorithm over J chunks, in the code's names."""
    fig, ax = figure(9.2, 4.7)
    width, pitch = 1.95, 4.3
    for j in range(J):
        x, middle, border = pitch * j, pitch * j + 0.75, pitch * j - 1.25
        _named(ax, x, 4.6, width, f"X[{j}], a[{j}],\nB[{j}], C[{j}]", GRID, 0.6)
        _named(ax, x, 3.3, 1.5, f"states[{j}]", STATE, 0.3)
        _named(ax, x, 0.9, width, f"inside[{j}]", KEY, 0.25)
        _named(ax, x, -0.2, width, f"Y[{j}]", VALUE, 0.3)
        _arrow(ax, (middle, 4.6), (middle, 4.02), STATE)
        _badge(ax, middle - 0.3, 4.3, 2, STATE)
        _arrow(ax, (x + 1.75, 4.6), (x + 1.75, 1.62), KEY)
        _badge(ax, x + 2.05, 4.3, 1, KEY)
        _arrow(ax, (middle, 0.9), (middle, 0.52), VALUE)
        _arrow(ax, (border + 0.7, 2.3), (border + pitch - 0.7, 2.3), INK)
        ax.text(border + 1.33, 2.6, f"* decays[{j}]", fontsize=8, **CODE)
        _arrow(ax, (middle, 3.3), (middle, 2.35), STATE)
        ax.text(middle + 0.22, 2.62, "+", fontsize=12, **CODE)
        _badge(ax, middle, 2.02, 3, DECAY)
        _arrow(ax, (border + 0.1, 1.97), (x - 0.04, 0.25), KEY)
        ax.text(border + 0.5, 1.15, f"read[{j}] * C[{j}]", fontsize=7.6, **{**CODE, "ha": "right"})
        _badge(ax, border + 0.2, 0.75, 4, KEY)
    for j in range(J + 1):
        x = pitch * j - 1.25
        _box(ax, x - 0.66, 2.0, 1.32, 0.6, STATE, 0.3)
        ax.text(x, 2.3, f"borders[{j}]", fontsize=8.5, weight="bold", **CODE)
    ax.set(xlim=(-2.3, pitch * J - 0.45), ylim=(5.4, -0.3))
    ax.axis("off")
    return fig


def packed_two_ways(mask, starts, ways):
    """The mask of packed documents under two ways to cut it into chunks.

    mask (T, T) segment products; starts: first tokens of the documents, from 0; ways: {title: chunk starts, from 0}.
    """
    T = len(mask)
    fig, axes = figure(8.2, 4.3, columns=len(ways), sharey=True)
    for ax, (title, cuts) in zip(axes, ways.items()):
        ax.imshow(mask > 0, cmap=LinearSegmentedColormap.from_list("ramp", [PAPER, DECAY]), vmin=0, vmax=2.2,
                  extent=(0.5, T + 0.5, T + 0.5, 0.5))  # fmt: skip
        ends = [*cuts[1:], T]
        for start, end in zip(cuts, ends):
            ax.add_patch(
                Rectangle(
                    (start + 0.5, start + 0.5), end - start, end - start, fill=False, edgecolor=KEY, linewidth=2.2
                )
            )
        for start in starts[1:]:
            ax.plot([0.5, T + 0.5], [start + 0.5] * 2, color=INK, linestyle=":", linewidth=1.2)
            ax.plot([start + 0.5] * 2, [0.5, T + 0.5], color=INK, linestyle=":", linewidth=1.2)
        ax.set_title(f"{title}\n{len(cuts)} chunks")
        ax.set(xticks=range(1, T + 1, 3), yticks=range(1, T + 1, 3), xlabel="token s")
    axes[0].set_ylabel("token t")
    return fig


def counted_chunks(T_c, parts, best, others):
    """FLOPs a token against the chunk length, by part.

    parts: {name: values at T_c}; best: the chunk length with the fewest; others: {name: a constant for comparison}.
    """
    fig, ax = figure(7.2, 3.7)
    total = sum(parts.values())
    looks = zip(parts, ((KEY, "--", "s"), (STATE, "-.", "^"), (DECAY, ":", "v")))
    ax.loglog(T_c, total, color=INK, marker="o", markersize=5, label="all")
    for name, (colour, dash, marker) in looks:
        ax.loglog(T_c, parts[name], color=colour, linestyle=dash, marker=marker, markersize=4, label=name)
    for name, value in others.items():
        ax.axhline(value, color=VALUE, linewidth=1.2)
        ax.text(T_c[-1], value * 1.07, name, color=VALUE, ha="right", va="bottom")
    ax.axvline(best, color=INK, linestyle=":")
    ax.text(best * 1.08, 0.04, f"fewest: {best}", color=INK, transform=ax.get_xaxis_transform())
    ax.set_xticks(T_c, [str(n) for n in T_c])
    ax.minorticks_off()
    ax.set(xlabel="chunk length", ylabel="FLOPs a token")
    ax.grid(True, color=GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return fig


def measured_chunks(T_c, seconds, at_best_rate, counted_best):
    """Milliseconds against the chunk length, beside what the counted FLOPs take at the best rate that was seen."""
    fig, ax = figure(6.4, 3.4)
    ax.loglog(T_c, 1e3 * np.asarray(seconds), color=VALUE, marker="o", markersize=5, label="measured")
    ax.loglog(T_c, 1e3 * np.asarray(at_best_rate), color=KEY, linestyle="--", marker="s", markersize=4,
              label="counted, at the best rate")  # fmt: skip
    ax.axvline(counted_best, color=INK, linestyle=":")
    ax.text(counted_best * 1.08, 0.93, "fewest FLOPs", color=INK, transform=ax.get_xaxis_transform())
    ax.set_xticks(T_c, [str(n) for n in T_c])
    ax.minorticks_off()
    low, high = ax.get_ylim()
    ticks = [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if low < n < high]
    ax.set_yticks(ticks, [str(n) for n in ticks])
    ax.set(xlabel="chunk length", ylabel="milliseconds")
    ax.grid(True, color=GRID)
    ax.legend(frameon=False)
    return fig


def long_sequences(growth):
    """Time, and memory where it was measured, against the length of the sequence, with lines of slope 1.

    growth: records of ``family``, ``T``, ``least_ms`` and ``memory_mb``; a memory of 0 counts as not measured.
    """
    measures = {"least_ms": "milliseconds"}
    if any(record["memory_mb"] > 0 for record in growth):
        measures["memory_mb"] = "megabytes beside the inputs"
    fig, axes = figure(4.6 * len(measures), 3.6, columns=len(measures), squeeze=False)
    looks = {"additive": (STATE, "-", "o"), "delta": (ERASE, "--", "s")}
    for ax, (key, unit) in zip(axes[0], measures.items()):
        measured = [(r["family"], r["T"], r[key]) for r in growth if r[key] > 0]
        for family, (colour, dash, marker) in looks.items():
            points = np.array([(T, value) for name, T, value in measured if name == family]).reshape(-1, 2)
            ax.loglog(*points.T, color=colour, linestyle=dash, marker=marker, markersize=5, label=family)
        lengths = sorted({r["T"] for r in growth})
        T, most = np.array([lengths[0], lengths[-1]]), max(value for *_, value in measured)
        ax.loglog(T, 2 * most * T / T[-1], color=INK, linestyle=":", label="slope 1")
        ax.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
        ax.minorticks_off()
        ax.set(xlabel="tokens", ylabel=unit)
        ax.grid(True, color=GRID)
    axes[0, 0].legend(frameon=False)
    return fig


def float32_errors(errors):
    """Relative error of float32 outputs against the step, one panel a regime, running maxima over 64 steps.

    errors: {regime: {form: (T,) errors}}.
    """
    fig, axes = figure(10.0, 3.2, columns=len(errors), sharey=True)
    looks = ((KEY, "-"), (STATE, "--"), (VALUE, ":"))
    for ax, (regime, forms) in zip(axes, errors.items()):
        for (form, error), (colour, dash) in zip(forms.items(), looks):
            windows = np.asarray(error).reshape(-1, 64).max(axis=1)
            finite = np.isfinite(windows)
            steps = 64 * np.arange(1, len(windows) + 1)
            ax.semilogy(steps[finite], np.maximum(windows[finite], 1e-9), color=colour, linestyle=dash, label=form)
        ax.set_title(regime)
        ax.set(xlabel="step", xticks=(0, 2048, 4096))
        ax.grid(True, color=GRID)
    axes[0].set_ylabel("error of float32")
    axes[0].legend(frameon=False, fontsize=8.5)
    return fig


def _box(ax, x, y, width, height, colour, alpha):
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=alpha, edgecolor="none"))
    ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1.0))


def _named(ax, x, y, width, name, colour, alpha):
    _box(ax, x, y, width, 0.7, colour, alpha)
    ax.text(x + width / 2, y + 0.35, name, fontsize=9, **CODE)


def _arrow(ax, start, end, colour):
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, shrinkA=0, shrinkB=0))


def _badge(ax, x, y, number, colour):
    """A step's number in a filled circle."""
    ax.text(
        x, y, str(number), fontsize=8, color="white", ha="center", va="center", weight="bold", zorder=5,
        bbox={"boxstyle": "circle,pad=0.22", "facecolor": colour, "edgecolor": "white", "linewidth": 0.8},
    )  # fmt: skip
