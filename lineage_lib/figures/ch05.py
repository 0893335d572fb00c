"""Chapter 05's plots: who owns which tile, what is moved, what the machine allows."""

import json

from matplotlib.patches import Polygon, Rectangle

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure
from lineage_lib.paths import ROOT

CODE = {"family": "monospace", "color": INK, "ha": "center", "va": "center"}
WORDS = {"color": INK, "ha": "center", "va": "center"}
STEPS = ("diagonal_block", "chunk_states", "pass_states", "read_states")
LOOKS = {
    "chunk_cumsum": (ERASE, "v"),
    "diagonal_block": (KEY, "s"),
    "chunk_states": (STATE, "^"),
    "pass_states": (DECAY, "D"),
    "read_states": (VALUE, "o"),
    "ssd_walk": (INK, "*"),
    "cumulate": (ERASE, ""),
    "prepare": (PAPER, ""),
    "first pass": (GRID, ""),
    "second pass": (INK, ""),
    "kernels": (INK, ""),  # these four, timed together
}


def machine() -> dict:
    """What was measured of one H200: the committed book/data/h200.json."""
    return _data("h200")


def versions_timed() -> dict:
    """The times of the chapter's versions, as ``benchmarks.ssd_versions`` wrote them to book/data/ssd_versions.json."""
    return _data("ssd_versions")


def _data(name: str) -> dict:
    return json.loads((ROOT / f"book/data/{name}.json").read_text(encoding="utf-8"))


def per_chunk(C: int, K: int, V: int, itemsize: int = 2) -> dict[str, tuple[int, int]]:
    """(bytes, FLOPs) of each kernel for one full chunk and head; FLOPs as chapter 4 counts them.

    q, k, v, o have ``itemsize`` bytes per entry, g, G and states 4. The one final state per head is left out.
    """
    token, sums, state = itemsize * C, 4 * C, 4 * K * V
    inside, across, carry = 2 * C * C * (K + V), 2 * C * K * V, 2 * K * V
    return {
        "chunk_cumsum": (2 * sums, C),
        "diagonal_block": (token * (2 * K + 2 * V) + sums, inside),
        "chunk_states": (token * (K + V) + sums + state, across),
        "pass_states": (2 * state + 4, carry),
        "read_states": (token * (K + 2 * V) + sums + state, across),
        "ssd_walk": (token * (2 * K + 2 * V) + sums, inside + 2 * across + carry),
    }


def programs_on_a_vector(n=10, BLOCK=4, border=4):
    """A vector of n numbers under programs of BLOCK indices each, between two borders of canaries."""
    fig, ax = figure(8.2, 2.6)
    programs = -(-n // BLOCK)
    for i in range(-border, n + border):
        inside = 0 <= i < n
        ax.add_patch(Rectangle((i, 0), 1, 0.8, facecolor=VALUE if inside else GRID, alpha=0.3, edgecolor="none"))
        ax.add_patch(Rectangle((i, 0), 1, 0.8, fill=False, edgecolor=INK, linewidth=0.8))
        ax.text(i + 0.5, 0.4, f"z[{i}]" if inside else "NaN", fontsize=8.5, **CODE)
    for p in range(programs):
        ax.plot([p * BLOCK + 0.08, (p + 1) * BLOCK - 0.08], [1.95, 1.95], color=KEY, linewidth=2)
        ax.text((p + 0.5) * BLOCK, 2.25, f"program {p}", fontsize=10, **WORDS)
        for i in range(p * BLOCK, (p + 1) * BLOCK):
            dead = i >= n
            ax.add_patch(
                Rectangle(
                    (i + 0.06, 1.15), 0.88, 0.6, facecolor=GRID if dead else KEY, alpha=0.5 if dead else 0.25,
                    hatch="////" if dead else None, edgecolor=PAPER if dead else "none", linewidth=0,
                )
            )  # fmt: skip
            ax.text(i + 0.5, 1.45, str(i), fontsize=9.5, **CODE)
            if not dead:
                ax.plot([i + 0.5] * 2, [0.84, 1.11], color=KEY, linewidth=1)
    ax.text(n + 0.35 + programs * BLOCK - n, 1.45, "masked", fontsize=10, ha="left", va="center", color=INK)
    ax.text(-border - 0.2, 1.45, "index", fontsize=10, ha="right", va="center", color=INK)
    ax.text(-border - 0.2, 0.4, "memory", fontsize=10, ha="right", va="center", color=INK)
    ax.set(xlim=(-border - 1.9, n + border + 0.3), ylim=(-0.15, 2.55))
    ax.axis("off")
    return fig


def owners(J=4):
    """Which program owns which tile: one for each chunk in the chain, one for each stripe of the state in the walk."""
    fig, (left, right) = figure(8.2, 4.2, columns=2)
    for ax, walk in ((left, False), (right, True)):
        for j in range(J):
            for i in range(J):
                _block(ax, i, j, walk)
        for border in range(J + 1):
            ax.plot([0, J], [border] * 2, color=INK, linewidth=1)
            ax.plot([border] * 2, [0, J], color=INK, linewidth=1)
        ax.text(J / 2, -0.3, "token s wrote", fontsize=10, **WORDS)
        ax.text(-0.3, J / 2, "token t reads", fontsize=10, rotation=90, **WORDS)
        ax.set(xlim=(-0.6, J + 1.95), ylim=(J + 1.25, -0.6), aspect="equal")
        ax.axis("off")
    left.set_title("four launches:\na program for each chunk", fontsize=11)
    right.set_title("one walk:\na program for each stripe of the state", fontsize=11)
    x, below = J + 0.3, {**WORDS, "ha": "right", "va": "top"}
    for j in range(J):
        _state(left, x, j + 0.08, 1.5, 0.8, [str(j)])
        _state(right, x, j + 0.08, 1.5, 0.8, ["0", "1"])
        if j:
            right.annotate("", (x + 0.75, j + 0.1), (x + 0.75, j - 0.14),
                           arrowprops={"arrowstyle": "-|>", "color": INK})  # fmt: skip
    left.text(x + 1.5, J + 0.15, "states in memory: written once,\npassed, read once", fontsize=10, **below)
    right.text(x + 1.5, J + 0.15, "one state, in registers,\nmoving on", fontsize=10, **below)
    return fig


def _block(ax, i, j, walk):
    """Column i and row j of the matrix; the number is the program's that computes it."""
    if i > j:
        ax.add_patch(Rectangle((i, j), 1, 1, facecolor=GRID, alpha=0.45, edgecolor="none"))
        ax.add_patch(Rectangle((i, j), 1, 1, fill=False, hatch="////", edgecolor=INK, alpha=0.25, linewidth=0))
    elif i == j:
        ax.add_patch(Polygon([(i, j), (i, j + 1), (i + 1, j + 1)], facecolor=KEY, alpha=0.25, edgecolor="none"))
        ax.text(i + (0.33 if walk else 0.36), j + 0.75, "0,1" if walk else str(j), fontsize=11, weight="bold", **CODE)
    else:
        ax.add_patch(Rectangle((i, j), 1, 1, facecolor=STATE, alpha=0.10, edgecolor="none"))
        ax.text(i + 0.5, j + 0.5, "via the\nstate", fontsize=9, linespacing=1.1, **WORDS)


def _state(ax, x, y, width, height, stripes):
    step = width / len(stripes)
    for k, stripe in enumerate(stripes):
        ax.add_patch(Rectangle((x + k * step, y), step, height, facecolor=STATE, alpha=0.25, edgecolor="none"))
        ax.add_patch(Rectangle((x + k * step, y), step, height, fill=False, edgecolor=STATE, linewidth=1))
        ax.text(x + (k + 0.5) * step, y + height / 2, stripe, fontsize=11, weight="bold", **CODE)


def traffic(C=64, K=128, V=128, itemsize=2):
    """Kilobytes that each kernel moves for one chunk and head: tokens and log-decays, and states apart."""
    fig, ax = figure(8.0, 3.0)
    for row, name in enumerate((*STEPS, "ssd_walk")):
        total = per_chunk(C, K, V, itemsize)[name][0]
        states = {"chunk_states": 4 * K * V, "pass_states": 8 * K * V, "read_states": 4 * K * V}.get(name, 0)
        tokens = total - states
        ax.barh(row, tokens / 1e3, color=VALUE, alpha=0.45, edgecolor=INK, linewidth=0.6)
        ax.barh(row, states / 1e3, left=tokens / 1e3, color=STATE, alpha=0.45, hatch="//", edgecolor=INK, linewidth=0.6)
        ax.text(total / 1e3 + 1.5, row, f"{total / 1e3:.0f}", color=INK, va="center")
    ax.set_yticks(range(5), [*STEPS, "ssd_walk"], family="monospace")
    ax.invert_yaxis()
    ax.set(xlabel="kilobytes (1,000 bytes) per chunk and head", xlim=(0, None))
    handles = [Rectangle((0, 0), 1, 1, facecolor=c, alpha=0.45, hatch=h, edgecolor=INK)
               for c, h in ((VALUE, None), (STATE, "//"))]  # fmt: skip
    ax.legend(handles, ["tokens and log-decays", "states"], loc="lower right", frameon=False)
    return fig


def roofline(C=64, width=128):
    """What the machine allows: FLOPs per second against FLOPs per byte, with each kernel on the roof above it."""
    found = machine()
    bandwidth, (slow, fast) = found["copy_tb_per_s"], found["bf16_tflop_per_s"]
    fig, ax = figure(7.6, 4.3)
    x = sorted([2.0**n for n in range(-3, 11)] + [rate / bandwidth for rate in (slow, fast)])
    ax.fill_between(x, [min(bandwidth * a, slow) for a in x], [min(bandwidth * a, fast) for a in x], color=GRID)
    ax.loglog(x, [min(bandwidth * a, fast) for a in x], color=INK, linewidth=1.6)
    ridge = (slow + fast) / 2 / bandwidth
    ax.plot([ridge, ridge], [15, 1400], color=INK, linestyle=":", linewidth=1)
    ax.text(ridge / 1.08, 1100, f"in balance: {ridge:.0f}", color=INK, fontsize=9, ha="right")
    for name, (moved, flops) in per_chunk(C, width, width).items():
        if name == "chunk_cumsum":
            continue
        colour, marker = LOOKS[name]
        intensity = flops / moved
        ax.plot(
            intensity, min(bandwidth * intensity, (slow + fast) / 2), linestyle="none", marker=marker, color=colour,
            markersize=13 if marker == "*" else 9, markerfacecolor="none", markeredgewidth=1.8,
            label=f"{name:15}{intensity:>5.3g}",
        )  # fmt: skip
    ax.text(0.16, bandwidth * 0.16 * 1.9, f"{bandwidth} TB/s", rotation=33, color=INK, fontsize=9)
    ax.text(900, fast * 1.35, f"{slow}–{fast} TFLOP/s", color=INK, fontsize=9, ha="right")
    ax.set(xlabel="FLOPs per byte", ylabel="TFLOP/s, at most", xlim=(0.125, 1024), ylim=(0.5, 2000))
    ax.set_title(f"chunks of {C} tokens, K = V = {width}, 16-bit tokens")
    ax.grid(True, color=GRID)
    legend = ax.legend(loc="lower right", frameon=False, fontsize=8.5, prop={"family": "monospace", "size": 8.5})
    legend.set_title("FLOPs per byte", prop={"size": 8.5})
    return fig


def multiprocessors(ways):
    """The machine's multiprocessors as squares, filled where a program runs.

    ways: {title: programs}.
    """
    total, columns = machine()["multiprocessors"], 12
    fig, axes = figure(3.1 * len(ways), 3.3, columns=len(ways), squeeze=False)
    for ax, (title, programs) in zip(axes[0], ways.items()):
        for n in range(total):
            y, x = divmod(n, columns)
            busy = n < programs
            ax.add_patch(
                Rectangle(
                    (x + 0.08, y + 0.08), 0.84, 0.84, facecolor=STATE if busy else PAPER, alpha=0.55 if busy else 1,
                    hatch=None if busy else "...", edgecolor=STATE if busy else GRID, linewidth=0.8,
                )
            )  # fmt: skip
        ax.set(xlim=(0, columns), ylim=(total / columns, 0), aspect="equal")
        ax.axis("off")
        ax.set_title(f"{title}\n{min(programs, total)} of {total} at work", fontsize=10)
    return fig


def predicted(floors):
    """Lower bounds of the versions' times, launch by launch.

    floors: {version: [(launch, microseconds), …]}.
    """
    fig, ax = figure(8.2, 0.9 + 0.62 * len(floors))
    for row, launches in enumerate(floors.values()):
        left = 0.0
        for name, microseconds in launches:
            _launch(ax, row, 0.62, left, microseconds, name)
            if microseconds > 45:
                ax.text(left + microseconds / 2, row, _broken(name), fontsize=8.5, linespacing=1, **CODE)
            elif microseconds > 10:
                ax.text(left + 2, row - 0.34, name, fontsize=8, **{**CODE, "ha": "left", "va": "bottom"})
            left += microseconds
        ax.text(left + 4, row, f"{left:.0f}", color=INK, va="center")
    ax.set_yticks(range(len(floors)), list(floors))
    ax.invert_yaxis()
    ax.set(xlabel="microseconds, at least", xlim=(0, None))
    return fig


def measured(floors, times):
    """Of each version two bars: a thin one for its lower bound, and below it what was measured, launch by launch.

    floors: {version: [(launch, microseconds), …]}; times: {version: {"median_ms", "launches_ms": {launch: ms}}}.
    """
    fig, ax = figure(9.0, 0.9 + 0.95 * len(floors))
    longest = 1e3 * max(timed["median_ms"] for timed in times.values())
    for row, (version, launches) in enumerate(floors.items()):
        bound, left = 0.0, 0.0
        for name, microseconds in launches:
            _launch(ax, row - 0.31, 0.2, bound, microseconds, name)
            bound += microseconds
        ax.text(bound + longest / 150, row - 0.31, f"at least {bound:.0f}", color=INK, va="center", fontsize=8.5)
        for name, milliseconds in times[version]["launches_ms"].items():
            _launch(ax, row + 0.1, 0.5, left, 1e3 * milliseconds, name)
            if 1e3 * milliseconds > longest / 12:
                label = "four\nlaunches" if name == "kernels" else _broken(name)
                ax.text(left + 500 * milliseconds, row + 0.1, label, fontsize=7.5, linespacing=1, **CODE)
            left += 1e3 * milliseconds
        median = f"{1e3 * times[version]['median_ms']:.0f}"
        ax.text(left + longest / 150, row + 0.1, median, color=INK, va="center", weight="bold")
    ax.set_yticks(range(len(floors)), list(floors))
    ax.invert_yaxis()
    ax.set(xlabel="microseconds", xlim=(0, 1.07 * longest))
    return fig


def _launch(ax, y, height, left, microseconds, name):
    colour = LOOKS[name][0]
    ax.barh(y, microseconds, height, left=left, color=colour, alpha=0.35, edgecolor=INK, linewidth=0.8)


def _broken(name: str) -> str:
    return name.replace("_", "_\n", 1).replace(" ", "\n", 1)
