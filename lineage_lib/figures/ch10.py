"""Chapter 10's plots: what the launches of the delta rule move, its inverse, a step of its walk, digits, training."""

import json

import numpy as np
from matplotlib.patches import Polygon, Rectangle

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure
from lineage_lib.paths import ROOT

CODE = {"family": "monospace", "color": INK, "ha": "center", "va": "center"}
WORDS = {"color": INK, "ha": "center", "va": "center"}
GROUND = {"facecolor": PAPER, "edgecolor": "none", "boxstyle": "round,pad=0.15"}  # behind words on a hatch
LONG, WIDE, THIN = 1.9, 2.9, 1.3  # tokens of the chunk, key channels, value channels
PARTS = {  # what is moved: (colour, hatch)
    "inputs, outputs, numbers by token": (VALUE, None),
    "tables of pairs": (ERASE, ".."),
    "rows handed over": (KEY, "\\\\"),
    "states": (STATE, "//"),
}


def recall_training() -> dict | None:
    """The training runs that ``benchmarks.recall_training`` wrote to book/data; None before it has.

    The file's "reference" is the chapter's recurrence and is called so.
    """
    path = ROOT / "book/data/recall_training.json"
    if not path.exists():
        return None
    recall = json.loads(path.read_text(encoding="utf-8"))
    for part in ("curves", "accuracy"):
        recall[part] = {"recurrence" if name == "reference" else name: x for name, x in recall[part].items()}
    return recall


def per_chunk(C: int, K: int, V: int, itemsize: int = 2) -> dict[str, dict[str, dict[str, int]]]:
    """{way: {launch: {part: bytes}}} for one full chunk and head, each input read once, each output written once.

    Entries of q, k, v, o, of what is handed over, tables and states have ``itemsize`` bytes; numbers by token 4: g,
    beta and what is summed of them. The one final state per head is left out.
    """
    keys, values, square = itemsize * C * K, itemsize * C * V, itemsize * C * C
    state, number = itemsize * K * V, 4 * C

    def moved(own=0, tables=0, rows=0, states=0):
        return dict(zip(PARTS, (own, tables, rows, states)))

    return {
        "five launches": {
            "sums": moved(2 * number),
            "inverse": moved(keys + 2 * number, square),
            "W and U": moved(keys + values + 2 * number, square, keys + values),
            "states": moved(keys + number, 0, keys + 2 * values, state),
            "outputs": moved(2 * keys + values + number, 0, values, state),
        },
        "one walk": {
            "cumulate": moved(7 * number + 4),
            "prepare": moved(2 * keys + 2 * number, 2 * square),
            "walk": moved(2 * keys + 2 * values + 4 * number + 4, 2 * square),
        },
        "the least": {"all in one": moved(2 * keys + 2 * values + 2 * number)},
    }


def totals(ways: dict) -> dict[str, int]:
    """{way: bytes}."""
    return {way: sum(sum(parts.values()) for parts in launches.values()) for way, launches in ways.items()}


def traffic(C=64, K=128, V=128, itemsize=2):
    """Kilobytes of every launch, by what is moved: five launches, those of this repository, the least."""
    fig, ax = figure(8.2, 4.3)
    ways, y, ticks = per_chunk(C, K, V, itemsize), 0.0, {}
    for way, launches in ways.items():
        for launch, parts in launches.items():
            left = 0.0
            for part, size in parts.items():
                colour, hatch = PARTS[part]
                ax.barh(
                    y, size / 1e3, 0.72, left=left, color=colour, alpha=0.45, hatch=hatch, edgecolor=INK, linewidth=0.6
                )
                left += size / 1e3
            ax.text(left + 1, y, f"{left:.0f}", color=INK, va="center")
            ticks[y], y = launch, y + 1
        top = y - 0.5 - len(launches) / 2
        ax.text(121, top, f"{way}:\n{totals(ways)[way] / 1e3:.0f} KB", fontsize=10.5, **WORDS)
        y += 0.6
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.invert_yaxis()
    ax.set(xlabel="kilobytes (1,000 bytes) per chunk and head", xlim=(0, 134))
    handles = [Rectangle((0, 0), 1, 1, facecolor=c, alpha=0.45, hatch=h, edgecolor=INK) for c, h in PARTS.values()]
    ax.legend(handles, list(PARTS), loc="upper center", bbox_to_anchor=(0.42, 1.12), ncols=4, frameon=False, fontsize=9)
    return fig


def blocks(C=64, first=16):
    """The inverse of a unit lower triangular C × C table: blocks on the diagonal by rows, the others by two merges."""
    fig, axes = figure(8.2, 3.2, columns=3)
    titles = (
        f"by rows: {C // first} blocks of {first}",
        f"merged to blocks of {2 * first}",
        f"merged to one block of {4 * first}",
    )
    for level, (ax, title) in enumerate(zip(axes, titles)):
        for i in range(0, C, first):
            known = level > 0
            ax.add_patch(Polygon([(i, i), (i, i + first), (i + first, i + first)], facecolor=STATE if known else KEY,
                                 alpha=0.15 if known else 0.4, edgecolor=INK, linewidth=0.8))  # fmt: skip
        h = first
        for done in range(1, level + 1):
            for i in range(0, C, 2 * h):
                new = done == level
                ax.add_patch(Rectangle((i, i + h), h, h, facecolor=ERASE if new else STATE, alpha=0.35 if new else 0.15,
                                       hatch="//" if new else None, edgecolor=INK, linewidth=0.8))  # fmt: skip
                if new:
                    text = "−X₂ T₂₁ X₁" if h > first else "−X₂\nT₂₁\nX₁"
                    ax.text(i + h / 2, i + 1.5 * h, text, fontsize=9.5, bbox=GROUND, **WORDS)
                    for corner, name in ((i, "X₁"), (i + h, "X₂")):
                        where = (corner + 0.34 * h, corner + 0.74 * h)
                        ax.text(*where, name, fontsize=9.5, **WORDS)
            h *= 2
        ax.plot([0, C, 0, 0], [0, C, C, 0], color=INK, linewidth=1.2)
        ax.text(0.76 * C, 0.22 * C, "0", fontsize=12, **CODE)
        ax.set(xlim=(-1, C + 1), ylim=(C + 1, -1), aspect="equal")
        ax.set_title(title, fontsize=10.5)
        ax.axis("off")
    return fig


def step():
    """One step of the walk: the five products, the state kept values × keys. Left operands are on the chip."""
    fig, ax = figure(7.4, 7.9)
    y = 0.0
    _number(ax, y, 1, "what the keys miss")
    x = _table(ax, 0.0, y, THIN, LONG, "u", VALUE, held=True)
    x = _sign(ax, x, y, "= β(")
    x = _table(ax, x, y, THIN, LONG, "v", VALUE)
    x = _sign(ax, x, y, "− a'", 1.0)
    x = _table(ax, x, y, THIN, WIDE, "S", STATE, held=True)
    x = _sign(ax, x, y, "@", 0.5)
    x = _table(ax, x, y, WIDE, LONG, "k.T", KEY)
    _sign(ax, x, y, ")", 0.4)
    y = -4.2
    _number(ax, y, 2, "the chunk's corrections, one product")
    x = _table(ax, 0.0, y, THIN, LONG, "v'", VALUE, held=True)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, THIN, LONG, "u", VALUE, held=True)
    x = _sign(ax, x, y, "@", 0.5)
    _table(ax, x, y, LONG, LONG, "X.T", ERASE, "upper")
    y = -7.2
    _number(ax, y, 3, "the outputs")
    x = _table(ax, 0.0, y, THIN, LONG, "o", VALUE)
    x = _sign(ax, x, y, "= a", 1.0)
    x = _table(ax, x, y, THIN, WIDE, "S", STATE, held=True)
    x = _sign(ax, x, y, "@", 0.5)
    x = _table(ax, x, y, WIDE, LONG, "q.T", KEY)
    x = _sign(ax, x, y, "+", 0.6)
    x = _table(ax, x, y, THIN, LONG, "v'", VALUE, held=True)
    x = _sign(ax, x, y, "@", 0.5)
    _table(ax, x, y, LONG, LONG, "P.T", KEY, "upper")
    y = -11.4
    _number(ax, y, 4, "the state for the next chunk")
    x = _table(ax, 0.0, y, THIN, WIDE, "S", STATE, held=True)
    x = _sign(ax, x, y, "← d", 1.0)
    x = _table(ax, x, y, THIN, WIDE, "S", STATE, held=True)
    x = _sign(ax, x, y, "+", 0.6)
    x = _table(ax, x, y, THIN, LONG, "b v'", VALUE, held=True)
    x = _sign(ax, x, y, "@", 0.5)
    _table(ax, x, y, LONG, WIDE, "k", KEY)
    ax.text(
        7.6,
        -5.1,
        "thick frame: in registers;\nin a product always on the left",
        fontsize=10,
        ha="left",
        va="center",
        color=INK,
    )
    ax.set(xlim=(-0.1, 13.2), ylim=(-13.4, 0.8), aspect="equal")
    ax.axis("off")
    return fig


def _number(ax, y, number, words):
    disc = {"boxstyle": "circle,pad=0.22", "facecolor": INK, "edgecolor": "white", "linewidth": 0.8}
    ax.text(0.15, y + 0.42, str(number), fontsize=9, color="white", ha="center", va="center", weight="bold", bbox=disc)
    ax.text(0.5, y + 0.42, words, fontsize=10, color=INK, ha="left", va="center")


def _table(ax, x, y, height, width, name, colour, shape="full", held=False):
    """A table whose upper left corner is (x, y); ``held``: in registers, with a thick frame. Returns its right edge."""
    ax.add_patch(Rectangle((x, y - height), width, height, facecolor=PAPER, edgecolor=colour, linewidth=1.0))
    if shape == "upper":
        corners = [(x, y), (x + width, y), (x + width, y - height)]
        ax.add_patch(Polygon(corners, facecolor=colour, alpha=0.25, edgecolor="none"))
        ax.text(x + 0.68 * width, y - 0.32 * height, name, fontsize=9.5, **CODE)
        ax.text(x + 0.25 * width, y - 0.75 * height, "0", fontsize=10, **CODE)
    else:
        ax.add_patch(Rectangle((x, y - height), width, height, facecolor=colour, alpha=0.22, edgecolor="none"))
        ax.text(x + width / 2, y - height / 2, name, fontsize=10.5, **CODE)
    if held:
        ax.add_patch(Rectangle((x, y - height), width, height, fill=False, edgecolor=INK, linewidth=2.4))
    return x + width


def _sign(ax, x, y, sign, room=0.9):
    ax.text(x + room / 2, y - 0.65, sign, fontsize=11, **CODE)
    return x + room


def digits(errors, stored):
    """Errors of the inverse, a group for each case, a marker for each kind of rounding.

    errors: {case: {rounding: error}}; stored: {case: error of the exact inverse when it is rounded to bfloat16}.
    """
    fig, ax = figure(7.6, 3.6)
    looks = ((KEY, "o"), (DECAY, "s"), (ERASE, "^"))
    places = np.arange(len(errors))
    for (kind, (colour, marker)), shift in zip(zip(next(iter(errors.values())), looks), (-0.2, 0, 0.2)):
        found = [error[kind] for error in errors.values()]
        ax.semilogy(places + shift, found, marker, color=colour, markersize=8, markerfacecolor="none",
                    markeredgewidth=1.8, label=f"products of {kind}")  # fmt: skip
    for place, case in enumerate(errors):
        line = ax.hlines(stored[case], place - 0.36, place + 0.36, color=INK, linestyle="--", linewidth=1.2)
    line.set_label("rounded once, when stored in bf16")
    ax.set_xticks(places, list(errors))
    ax.set(ylabel="error of the inverse", xlim=(-0.6, len(errors) - 0.4))
    ax.grid(True, axis="y", color=GRID)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False)
    return fig


def training(recall):
    """Loss against steps, one line a run: the recurrence, the kernels, and a gradient that is wrong."""
    fig, ax = figure(7.4, 3.6)
    looks = {
        "recurrence": {"color": INK, "linestyle": "-", "linewidth": 3.4, "alpha": 0.35},
        "kernels": {"color": STATE, "linestyle": "--"},
        "wrong gradient": {"color": ERASE, "linestyle": ":", "marker": "x", "markersize": 5},
    }
    for name, curve in recall["curves"].items():
        steps, losses = zip(*curve)
        look = dict(looks.get(name, {"color": KEY}))
        if "marker" in look:
            look["markevery"] = max(1, len(steps) // 12)
        ax.plot(steps, losses, label=name, **look)
    guess = np.log(recall["setting"]["values"])
    ax.axhline(guess, color=INK, linewidth=0.8)
    ax.text(ax.get_xlim()[1], guess + 0.06, "a guess among the values", fontsize=9, color=INK, ha="right", va="bottom")
    ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
    ax.grid(True, color=GRID)
    ax.legend(loc="center right", frameon=True, facecolor=PAPER, edgecolor="none", framealpha=1)
    return fig
