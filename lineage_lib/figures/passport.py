"""Times of one kernel on one device beside its peer's and the floor, from records of the passport."""

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lineage_lib.figures import GRID, INK, PAPER, STATE, STYLE, VALUE, figure
from lineage_lib.passport import label

PASSES = {"forward": "forward", "forward+backward": "forward and backward", "decode": "one token of decoding"}


def times(records: list[dict]):
    """A panel for each pass, a row for each shape, milliseconds on a logarithmic axis.

    Floor: the end of a grey bar. Ours a green circle, the peer an amber diamond; filled under a CUDA graph, hollow
    when called eagerly. ``records``: of one kernel and device, without those of pass "verify".
    """
    passes = [which for which in PASSES if any(r["pass"] == which for r in records)]
    shapes = list(dict.fromkeys(label(r["shape"]) for r in records))
    fig, axes = figure(
        8.6, 1.5 + 0.42 * len(shapes), columns=len(passes), sharey=True, squeeze=False, subplot_kw={"xscale": "log"}
    )
    for ax, which in zip(axes[0], passes):
        for record in (r for r in records if r["pass"] == which):
            _row(ax, shapes.index(label(record["shape"])), record)
        ax.set_title(PASSES[which])
        ax.set_xlabel("milliseconds")
        _ticks(ax)
    axes[0, 0].set_yticks(
        range(len(shapes)), [shape.replace(" K", "\nK", 1).replace(" P", "\nP", 1) for shape in shapes]
    )
    axes[0, 0].set_ylim(len(shapes) - 0.4, -0.6)
    _legend(fig, records)
    return fig


def _row(ax, y: int, record: dict) -> None:
    floor, peer = record["floor_ms"], record["peer"] or {}
    ax.plot([floor, floor], [y - 0.3, y + 0.3], color=INK, linewidth=1.6, zorder=2)
    for found, colour, marker, dy in ((peer, VALUE, "D", 0.12), (record, STATE, "o", -0.12)):
        style = dict(marker=marker, color=colour, markeredgewidth=1.5, linestyle="none", zorder=4)
        if found.get("eager_ms"):
            ax.plot(found["eager_ms"], y + dy, markerfacecolor=PAPER, markersize=6, **style)
        if found.get("median_ms"):
            ax.plot(found["spread_ms"], [y + dy] * 2, color=colour, linewidth=1.5, zorder=3)
            ax.plot(found["median_ms"], y + dy, markersize=6.5, **style)


def _ticks(ax) -> None:
    """Numbers a reader can read: 0.05, 0.1, 0.2, …"""
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=30))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = _range(ax)
    ax.set_xlim(low / 1.5, high * 1.3)
    ax.tick_params(axis="x", labelsize=8.5)
    ax.grid(axis="x", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)


def _range(ax) -> tuple[float, float]:
    points = [x for line in ax.lines for x in line.get_xdata()]
    return min(points), max(points)


def _legend(fig, records: list[dict]) -> None:
    peers = [r["peer"]["name"].partition(".")[0] for r in records if r["peer"]]

    def mark(colour, marker, filled, text):
        face = colour if filled else PAPER
        return plt.Line2D(
            [], [], color=colour, marker=marker, markerfacecolor=face, markeredgewidth=1.5, linestyle="none", label=text
        )

    entries = [
        plt.Line2D([], [], color=INK, marker="|", markersize=11, linestyle="none", markeredgewidth=1.6, label="floor"),
    ]
    for found, colour, marker, who in (
        (records, STATE, "o", "ours"),
        ([r["peer"] for r in records if r["peer"]], VALUE, "D", peers[0] if peers else ""),
    ):
        for name, filled, how in (("median_ms", True, "in a graph"), ("eager_ms", False, "eager")):
            if any(x.get(name) for x in found):
                entries.append(mark(colour, marker, filled, f"{who}, {how}"))
    with plt.rc_context(STYLE):
        fig.legend(handles=entries, loc="outside lower center", ncols=len(entries), fontsize=9, handletextpad=0.3)
