"""Chapter 09's plots, the delta rule in chunks. Names in boxes are the code's."""

import numpy as np
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure

CODE = {"family": "monospace", "color": INK, "ha": "center", "va": "center"}
LONG, WIDE, THIN = 2.4, 1.7, 1.1  # tokens of the chunk, key channels, value channels
FLOOR = 1e-9  # of the logarithmic axes: smaller numbers, zero included, are drawn here


def one_chunk():
    """One chunk of the delta rule: four equations whose tables are drawn to scale, with the code's names."""
    fig, ax = figure(7.4, 8.3)
    y = 0.0
    _caption(ax, y, 1, "before the state is known, all chunks at once")
    x = _table(ax, 0.0, y, LONG, LONG, "I + A", ERASE, "lower")
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, LONG, WIDE, "W", ERASE)
    x = _table(ax, x + 0.08, y, LONG, THIN, "U", VALUE)
    x = _sign(ax, x, y, "= beta[:, None] *", 3.5)
    x = _table(ax, x, y, LONG, WIDE, "K", KEY)
    _table(ax, x + 0.08, y, LONG, THIN, "V", VALUE)
    _note(ax, 0.0, y - 1.7, "A = tril(beta[:, None] * (K @ K.T), -1): the diagonal is I's")

    y = -4.1
    _caption(ax, y, 2, "what each token really adds")
    x = _table(ax, 0.0, y, LONG, THIN, "D", VALUE)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, LONG, THIN, "U", VALUE)
    x = _sign(ax, x, y, "−")
    x = _table(ax, x, y, LONG, WIDE, "W", ERASE)
    x = _sign(ax, x, y, "@")
    x = _table(ax, x, y, WIDE, THIN, "S0", STATE)
    _note(ax, x + 0.3, y, "beta times: the value, less what S0 and\nthe chunk's earlier tokens already answer")

    y = -7.55
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

    y = -11.0
    _caption(ax, y, 4, "what leaves the chunk: the S0 of the next one")
    x = _table(ax, 0.0, y, WIDE, THIN, "S", STATE)
    x = _sign(ax, x, y, "=")
    x = _table(ax, x, y, WIDE, THIN, "S0", STATE)
    x = _sign(ax, x, y, "+")
    x = _table(ax, x, y, WIDE, LONG, "K.T", KEY)
    x = _sign(ax, x, y, "@")
    _table(ax, x, y, LONG, THIN, "D", VALUE)
    ax.set(xlim=(-0.1, 12.4), ylim=(-13.5, 0.75), aspect="equal")
    ax.axis("off")
    return fig


def _caption(ax, y, number, words):
    disc = {"boxstyle": "circle,pad=0.22", "facecolor": INK, "edgecolor": "white", "linewidth": 0.8}
    ax.text(0.15, y + 0.42, str(number), fontsize=9, color="white", ha="center", va="center", weight="bold", bbox=disc)
    ax.text(0.45, y + 0.42, words, fontsize=10, color=INK, ha="left", va="center")


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
    ax.text(x, y - 1.1, words, fontsize=9.5, color=INK, ha="left", va="center", linespacing=1.5)


def chunks_in_a_row(J=3):
    """The delta rule over J chunks: solves beside one another, one state passed on, outputs beside one another."""
    fig, ax = figure(7.4, 4.2)
    pitch = 4.4
    for n in range(1, J + 1):
        x = pitch * (n - 0.5)
        left, right = x - pitch / 2, x + pitch / 2  # the states on both sides
        _named(ax, x, 4.3, 2.7, f"Q[{n}], K[{n}]\nV[{n}], beta[{n}]", GRID, 1.05)
        _named(ax, x, 2.9, 2.3, f"W[{n}], U[{n}]", ERASE)
        _named(ax, x, 1.6, 1.3, f"D[{n}]", VALUE)
        _named(ax, x, -1.5, 1.3, f"O[{n}]", VALUE)
        _named(ax, x, -2.8, 2.3, f"Q[{n}], K[{n}]", GRID)
        _arrow(ax, (x, 3.77), (x, 3.22), KEY)
        _arrow(ax, (x, 2.58), (x, 1.92), ERASE)
        _arrow(ax, (left + 0.4, 0.32), (x - 0.66, 1.5), ERASE)
        _arrow(ax, (x + 0.66, 1.5), (right - 0.4, 0.32), VALUE)
        _arrow(ax, (x, 1.28), (x, -1.18), VALUE)
        _arrow(ax, (left + 0.4, -0.32), (x - 0.66, -1.4), STATE)
        _arrow(ax, (x, -2.48), (x, -1.82), KEY)
        _arrow(ax, (left + 0.6, 0.0), (right - 0.6, 0.0), STATE)
        ax.text(left + 0.1, 1.4, f"W[{n}] @", fontsize=9, family="monospace", color=ERASE, ha="left", va="center")
        ax.text(right - 0.05, 1.95, f"K[{n}].T @", fontsize=9, family="monospace", color=KEY, ha="right", va="center")
    for n in range(J + 1):
        _named(ax, pitch * n, 0.0, 1.2, f"S[{n}]" if n else "S0", STATE)
    for y, words in ((3.6, "all chunks\nat once"), (0.0, "one after\nanother"), (-2.1, "all chunks\nat once")):
        ax.text(-0.9, y, words, fontsize=9.5, color=INK, ha="right", va="center")
    ax.set(xlim=(-2.6, pitch * J + 0.7), ylim=(-3.2, 4.9))
    ax.axis("off")
    return fig


def _named(ax, x, y, width, name, colour, height=0.64):
    """A box around the centre (x, y)."""
    corner = (x - width / 2, y - height / 2)
    ax.add_patch(Rectangle(corner, width, height, facecolor=colour, alpha=0.28, edgecolor="none"))
    ax.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=colour, linewidth=1.0))
    ax.text(x, y, name, fontsize=9, **CODE)


def _arrow(ax, start, end, colour):
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, shrinkA=0, shrinkB=0))


def cost_of_lengths(T, curves):
    """FLOPs a token against the number of tokens, both on logarithmic axes.

    curves: {name: FLOPs a token at each T}.
    """
    fig, ax = figure(7.2, 3.5)
    looks = ((VALUE, "-", "o"), (ERASE, "--", "s"), (KEY, ":", "^"), (STATE, "-.", "v"))
    for (name, flops), (colour, dash, marker) in zip(curves.items(), looks):
        look = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4}
        ax.loglog(T, np.broadcast_to(flops, len(T)), label=name, **look)
    ax.set_xticks(T[::2], [f"{t:,}" for t in T[::2]])
    ax.minorticks_off()
    ax.set(xlabel="tokens", ylabel="FLOPs a token, one head")
    ax.grid(True, color=GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return fig


def dividing_fails(lengths, errors):
    """Error of one chunk in float32 against its length when keys are divided by γ, one line a decay.

    errors: {decay: an error for each length, NaN where outputs are not numbers}. Lengths without a number
    are a row for each decay in a strip of its own, above the axis of errors.
    """
    fig, (strip, ax) = figure(7.2, 3.9, rows=2, sharex=True, height_ratios=(1, 2))
    looks = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "v"))
    places = np.arange(len(lengths))
    for row, ((decay, error), (dash, marker)) in enumerate(zip(errors.items(), looks)):
        shown = np.isfinite(error)
        look = {"linestyle": dash, "marker": marker, "markersize": 5}
        ax.semilogy(places[shown], np.asarray(error)[shown], color=DECAY, label=f"decay {decay}", **look)
        lost = places[~shown]
        strip.plot(lost, np.full(len(lost), row), "x", color=ERASE, markersize=8, markeredgewidth=2)
    strip.set_yticks(range(len(errors)), [f"{decay}" for decay in errors])
    strip.set(ylim=(-0.6, len(errors) - 0.4), ylabel="decay", title="not a number")
    strip.grid(True, color=GRID)
    ax.set_xticks(places, [str(C) for C in lengths])
    ax.set(xlabel="tokens in the chunk", ylabel="error of float32", ylim=(1e-8, 1e-5))
    ax.grid(True, color=GRID)
    ax.legend(loc="upper right", ncols=2, frameon=False)
    return fig


def two_inverses(cosine=0.5, chunk=64, beta=1.0):
    """The inverse of I + A in float32, by repeated squaring and by merging blocks, for keys of a given cosine."""
    fig, (left, right) = figure(7.4, 3.8, columns=2, sharey=True)
    A = correlated(cosine, chunk, beta)
    exact = np.linalg.inv(np.eye(chunk) + A.astype(float))
    powers, sizes, P = [1], [np.abs(A).max()], A.astype(float)
    while 2 * powers[-1] < chunk:
        P = P @ P
        powers.append(2 * powers[-1])
        sizes.append(np.abs(P).max())
    left.semilogy(powers, np.maximum(sizes, FLOOR), color=ERASE, marker="o", label="A to the power m")
    left.axhline(np.abs(exact).max(), color=STATE, linestyle="--", label="the inverse")
    left.set_xscale("log", base=2)
    left.set_xticks(powers, [str(m) for m in powers])
    left.set(xlabel="m", title="largest entry")
    left.legend(loc="upper left", frameon=False, fontsize=9)
    left.grid(True, color=GRID)

    cosines = np.linspace(0, 1, 11)
    ways = (("repeated squaring", squared, ERASE, "-", "o"), ("block merge", merged, KEY, "--", "s"))
    curves = {way[0]: [inverse_error(way[1], correlated(c, chunk, beta)) for c in cosines] for way in ways}
    top = np.log10(max(x for curve in (sizes, *curves.values()) for x in curve if np.isfinite(x)))
    top += 0.3 * (top - np.log10(FLOOR))  # room for the legends
    for name, _, colour, dash, marker in ways:
        curve = np.array(curves[name])
        look = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4}
        right.semilogy(cosines, np.where(np.isfinite(curve), np.maximum(curve, FLOOR), np.nan), label=name, **look)
        lost = cosines[~np.isfinite(curve)]
        if len(lost):
            over = right.get_xaxis_transform()  # crosses stand at no error: at a height of the axes
            right.plot(lost, np.full(len(lost), 0.6), "x", color=colour, label="not a number", transform=over)
        for c in cosines[curve < FLOOR]:
            right.annotate(
                "exact", (c, FLOOR), (-20, 1), textcoords="offset points", color=colour, fontsize=9, ha="right"
            )
    right.axvline(cosine, color=INK, linestyle=":")
    right.axhline(1.0, color=GRID)
    right.set(xlabel="cosine between keys", title="error / largest entry", ylim=(FLOOR / 2, 10**top))
    right.legend(loc="upper left", frameon=False, fontsize=9)
    right.grid(True, color=GRID)
    fig.suptitle(f"cosine {cosine:.2f}, {chunk} tokens, β = {beta:.1f}", fontsize=10, color=INK)
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
