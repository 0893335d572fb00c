"""Chapter 09's plots, the delta rule in chunks. Names in boxes are the code's."""

import numpy as np
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure

CODE = {"family": "monospace", "color": INK, "ha": "center", "va": "center"}
LONG, WIDE, THIN = 2.4, 1.7, 1.1  # tokens of the chunk, key channels, value channels


def one_chunk():
    """One chunk of the delta rule: four equations whose tables are drawn to scale, with the code's names."""
    fig, ax = figure(9.2, 7.6)
    y = 0.0
    _caption(ax, y, 1, "before the state is known, all chunks at once")
    x = _table(ax, 0.0, y, LONG, LONG, "I + A", ERASE, "lower")
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, LONG, WIDE, "W", ERASE)
    x = _table(ax, x + 0.08, y, LONG, THIN, "U", VALUE)
    x = _sign(ax, x, y, "= beta[:, None] *", 3.5)
    x = _table(ax, x, y, LONG, WIDE, "K", KEY)
    x = _table(ax, x + 0.08, y, LONG, THIN, "V", VALUE)
    _note(ax, x + 0.3, y, "A = tril(beta[:, None]\n    * (K @ K.T), -1):\nthe diagonal is I's")

    y = -3.5
    _caption(ax, y, 2, "what each token really adds")
    x = _table(ax, 0.0, y, LONG, THIN, "D", VALUE)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, LONG, THIN, "U", VALUE)
    x = _sign(ax, x, y, "−")
    x = _table(ax, x, y, LONG, WIDE, "W", ERASE)
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, WIDE, THIN, "S0", STATE)
    _note(ax, x + 0.3, y, "the value, less what S0 and\nthe chunk's earlier tokens\nalready answer")

    y = -7.0
    _caption(ax, y, 3, "what each token reads, all at once")
    x = _table(ax, 0.0, y, LONG, THIN, "O", VALUE)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, LONG, WIDE, "Q", KEY)
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, WIDE, THIN, "S0", STATE)
    x = _sign(ax, x, y, "+")
    x = _table(ax, x, y, LONG, LONG, "tril\n(Q @ K.T)", KEY, "lower")
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, LONG, THIN, "D", VALUE)
    _note(ax, x + 0.3, y, "this tril keeps\nits diagonal")

    y = -10.5
    _caption(ax, y, 4, "what leaves the chunk: the S0 of the next one")
    x = _table(ax, 0.0, y, WIDE, THIN, "S", STATE)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, WIDE, THIN, "S0", STATE)
    x = _sign(ax, x, y, "+")
    x = _table(ax, x, y, WIDE, LONG, "K.T", KEY)
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, LONG, THIN, "D", VALUE)
    ax.set(xlim=(-0.1, 16.1), ylim=(-13.1, 0.75), aspect="equal")
    ax.axis("off")
    return fig


def _caption(ax, y, number, words):
    ax.text(
        0.15, y + 0.42, str(number), fontsize=8, color="white", ha="center", va="center", weight="bold",
        bbox={"boxstyle": "circle,pad=0.22", "facecolor": INK, "edgecolor": "white", "linewidth": 0.8},
    )  # fmt: skip
    ax.text(0.45, y + 0.42, words, fontsize=9.5, color=INK, ha="left", va="center")


def _table(ax, x, y, height, width, name, colour, shape="full"):
    """A table whose upper left corner is (x, y); returns the x at its right edge."""
    ax.add_patch(Rectangle((x, y - height), width, height, facecolor=PAPER, edgecolor=colour, linewidth=1.1))
    if shape == "lower":
        corners = [(x, y), (x, y - height), (x + width, y - height)]
        ax.add_patch(Polygon(corners, facecolor=colour, alpha=0.25, edgecolor="none"))
        ax.plot([x, x + width], [y, y - height], color=colour, linewidth=2.2)
        ax.text(x + 0.40 * width, y - 0.72 * height, name, fontsize=9, **CODE)
        ax.text(x + 0.75 * width, y - 0.25 * height, "0", fontsize=11, **CODE)
    else:
        ax.add_patch(Rectangle((x, y - height), width, height, facecolor=colour, alpha=0.22, edgecolor="none"))
        ax.text(x + width / 2, y - height / 2, name, fontsize=11, **CODE)
    return x + width


def _sign(ax, x, y, sign, room=0.55):
    ax.text(x + room / 2, y - 1.1, sign, fontsize=11, **CODE)
    return x + room


def _note(ax, x, y, words):
    ax.text(x, y - 1.1, words, fontsize=8.5, color=INK, ha="left", va="center", linespacing=1.5)


def chunks_in_a_row(J=3):
    """The delta rule over J chunks: solves beside one another, one state passed on, outputs beside one another."""
    fig, ax = figure(9.0, 4.0)
    pitch = 4.2
    for j in range(J):
        x = pitch * j + 1.3
        _named(ax, x - 0.4, 3.3, 2.8, f"Q, K, V, beta [{j + 1}]", GRID)
        _named(ax, x, 2.2, 2.0, f"W[{j + 1}], U[{j + 1}]", ERASE)
        _named(ax, x, 1.0, 2.0, f"D[{j + 1}]", VALUE)
        _named(ax, x, -1.2, 2.0, f"O[{j + 1}]", VALUE)
        _arrow(ax, (x + 1, 3.3), (x + 1, 2.8), KEY)
        _arrow(ax, (x + 1, 2.2), (x + 1, 1.6), ERASE)
        _arrow(ax, (x - 0.55, 0.42), (x + 0.15, 0.98), STATE)
        _arrow(ax, (x + 1.85, 0.98), (x + 2.68, 0.42), VALUE)
        _arrow(ax, (x + 1, 0.98), (x + 1, -0.58), VALUE)
        _arrow(ax, (x - 0.55, -0.22), (x + 0.2, -0.58), KEY)
        _arrow(ax, (x - 0.2, 0.1), (x + 2.66, 0.1), INK)
    for j in range(J + 1):
        x = pitch * j - 0.2
        _named(ax, x, -0.2, 1.3, "S0" if j == 0 else f"S[{j}]", STATE)
    for y, words in ((3.0, "all chunks\nat once"), (0.9, "one after\nanother"), (-0.9, "all chunks\nat once")):
        ax.text(-0.9, y, words, fontsize=9, color=INK, ha="right", va="center")
    ax.set(xlim=(-2.6, pitch * J + 1.3), ylim=(-1.4, 4.1))
    ax.axis("off")
    return fig


def _named(ax, x, y, width, name, colour):
    ax.add_patch(Rectangle((x, y), width, 0.6, facecolor=colour, alpha=0.28, edgecolor="none"))
    ax.add_patch(Rectangle((x, y), width, 0.6, fill=False, edgecolor=colour, linewidth=1.0))
    ax.text(x + width / 2, y + 0.3, name, fontsize=8.5, **CODE)


def _arrow(ax, start, end, colour):
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, shrinkA=0, shrinkB=0))


def cost_of_lengths(T, curves):
    """FLOPs a token against the number of tokens, both on logarithmic axes.

    curves: {name: FLOPs a token at each T}.
    """
    fig, ax = figure(7.0, 3.5)
    looks = ((VALUE, "-", "o"), (ERASE, "--", "s"), (KEY, ":", "^"), (STATE, "-.", "v"))
    for (name, flops), (colour, dash, marker) in zip(curves.items(), looks):
        ax.loglog(T, np.broadcast_to(flops, len(T)), color=colour, linestyle=dash, marker=marker, markersize=4,
                  label=name)  # fmt: skip
    ax.set_xticks(T[::2], [f"{t:,}" for t in T[::2]])
    ax.minorticks_off()
    ax.set(xlabel="tokens", ylabel="FLOPs a token, one head")
    ax.grid(True, color=GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return fig


def dividing_fails(lengths, errors):
    """Error of one chunk in float32 against its length when keys are divided by γ, one line a decay.

    errors: {decay: an error for each length, NaN where outputs are not numbers}.
    """
    fig, ax = figure(7.0, 3.3)
    looks = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "v"))
    places = np.arange(len(lengths))
    for (decay, error), (dash, marker) in zip(errors.items(), looks):
        shown = np.isfinite(error)
        ax.semilogy(places[shown], np.asarray(error)[shown], color=DECAY, linestyle=dash, marker=marker, markersize=5,
                    label=f"decay {decay}")  # fmt: skip
        if not shown.all():
            first = np.argmin(shown)
            ax.plot([first - 1, first], [error[first - 1], 0.3], color=ERASE, linestyle=dash, linewidth=1.0)
            ax.plot(first, 0.3, marker="x", color=ERASE, markersize=9, markeredgewidth=2, linestyle="")
            ax.text(first, 1.0, f"{decay}:\nnot a number", fontsize=8.5, color=INK, ha="center", va="bottom")
    ax.set_xticks(places, [str(C) for C in lengths])
    ax.set(xlabel="tokens in the chunk", ylabel="error of float32", ylim=(1e-8, 200))
    ax.grid(True, color=GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return fig


def two_inverses(cosine=0.5, chunk=64, beta=1.0):
    """The inverse of I + A in float32, by repeated squaring and by merging blocks, for keys of a given cosine."""
    fig, (left, right) = figure(9.0, 3.4, columns=2)
    A = correlated(cosine, chunk, beta)
    exact = np.linalg.inv(np.eye(chunk) + A.astype(float))
    powers, sizes, P = [1], [np.abs(A).max()], A.astype(float)
    while 2 * powers[-1] < chunk:
        P = P @ P
        powers.append(2 * powers[-1])
        sizes.append(np.abs(P).max())
    left.semilogy(powers, np.maximum(sizes, 1e-30), color=ERASE, marker="o", label="largest entry of A to the power m")
    left.axhline(np.abs(exact).max(), color=STATE, linestyle="--", label="largest entry of the inverse")
    left.set_xscale("log", base=2)
    left.set_xticks(powers, [str(m) for m in powers])
    left.set(xlabel="m", title=f"cosine {cosine:.2f}, {chunk} tokens, β = {beta:.1f}", ylim=(1e-12, 1e40))
    left.legend(loc="upper left", frameon=False, fontsize=8.5)
    left.grid(True, color=GRID)

    cosines = np.linspace(0, 1, 11)
    for name, method, colour, dash, marker in (
        ("repeated squaring", squared, ERASE, "-", "o"),
        ("block merge", merged, KEY, "--", "s"),
    ):
        curve = [inverse_error(method, correlated(c, chunk, beta)) for c in cosines]
        right.semilogy(cosines, np.clip(curve, 1e-9, 1e40), color=colour, linestyle=dash, marker=marker, markersize=4,
                       label=name)  # fmt: skip
    right.axvline(cosine, color=INK, linestyle=":")
    right.axhline(1.0, color=GRID)
    right.set(xlabel="cosine between keys", title="error against the largest entry", ylim=(1e-9, 1e40))
    right.legend(loc="upper left", frameon=False, fontsize=8.5)
    right.grid(True, color=GRID)
    return fig


def correlated(cosine, chunk, beta, K=64):
    """A = tril(beta K Kᵀ, -1) in float32, for unit keys whose cosines with one another are about ``cosine``."""
    rng = np.random.default_rng(9)
    common, own = rng.standard_normal(K), rng.standard_normal((chunk, K))
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    keys = np.sqrt(cosine) * common / np.linalg.norm(common) + np.sqrt(1 - cosine) * own
    keys = (keys / np.linalg.norm(keys, axis=1, keepdims=True)).astype(np.float32)
    return np.tril(np.float32(beta) * (keys @ keys.T), -1)


def squared(A):
    """(I − A)(I + A²)(I + A⁴) …, in the dtype of A."""
    eye = np.eye(len(A), dtype=A.dtype)
    X, power, n = eye - A, A @ A, 2
    while n < len(A):
        X, power, n = X @ (eye + power), power @ power, 2 * n
    return X


def merged(A):
    """(I + A)^-1 by joining diagonal blocks of 1, 2, 4, … rows, in the dtype of A; A has a power of two of rows."""
    X, h = np.eye(len(A), dtype=A.dtype), 1
    while h < len(A):
        for i in range(0, len(A), 2 * h):
            up, low = slice(i, i + h), slice(i + h, i + 2 * h)
            X[low, up] = -X[low, low] @ (A[low, up] @ X[up, up])
        h *= 2
    return X


def inverse_error(method, A):
    """Largest error of ``method(A)`` relative to the largest entry of the exact inverse; inf for an overflow."""
    exact = np.linalg.inv(np.eye(len(A)) + A.astype(float))
    with np.errstate(all="ignore"):
        error = np.abs(method(A).astype(float) - exact).max() / np.abs(exact).max()
    return error if np.isfinite(error) else np.inf
