"""Chapter 11's plots, finer gates. Each takes the arrays it shows; those with defaults are live experiments."""

import numpy as np

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, PAPER, STATE, VALUE, figure

FLOAT32_EXPONENT = np.log(float(np.finfo(np.float32).max))
LARGEST_NORM = 2 / np.sqrt(3)
GROUND = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}  # keeps a label clear of the lines below it


def five_operations():
    """The five operations of Gated DeltaNet-2 as a graph, from left to right."""
    fig, ax = figure(7.4, 4.0)
    boxes = {
        "alpha": (0.0, 4.0, r"$\alpha_t$", DECAY),
        "S_old": (0.0, 3.1, r"$S_{t-1}$", STATE),
        "b": (0.0, 2.2, r"$b_t$", ERASE),
        "k": (0.0, 1.3, r"$k_t$", KEY),
        "w": (0.0, 0.4, r"$w_t$", VALUE),
        "v": (0.0, -0.5, r"$v_t$", VALUE),
        "faded": (1.9, 3.55, "1  decay\n" r"$\bar S = \mathrm{diag}(\alpha)\, S$", DECAY),
        "e": (1.9, 2.0, "2  erase key\n" r"$e = b \odot k$", ERASE),
        "z": (1.9, -0.1, "4  write value\n" r"$z = w \odot v$", VALUE),
        "r": (3.7, 2.3, "3  read\n" r"$r = \bar S^\top e$", ERASE),
        "new": (5.6, 1.3, "5  update\n" r"$S = \bar S + k\,(z - r)^\top$", STATE),
        "q": (7.6, 0.0, r"$q_t$", KEY),
        "out": (7.6, 1.3, "output\n" r"$o = S^\top q$", VALUE),
    }
    frames = {}
    for name, (x, y, text, colour) in boxes.items():
        frame = {"boxstyle": "round,pad=0.4", "facecolor": "#ffffff", "edgecolor": colour, "linewidth": 1.6}
        frames[name] = ax.text(x, y, text, ha="center", va="center", fontsize=10, color=INK, bbox=frame)
    arrows = (
        "S_old faded, alpha faded, b e, k e, k new, w z, v z, faded r, e r, faded new, r new, z new, new out, q out"
    )
    for pair in arrows.split(", "):
        start, end = pair.split()
        look = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkA": 1, "shrinkB": 2}
        bow = "arc3,rad=-0.2" if pair == "faded new" else "arc3"
        edges = {"patchA": frames[start].get_bbox_patch(), "patchB": frames[end].get_bbox_patch()}
        ax.annotate("", boxes[end][:2], boxes[start][:2], arrowprops={**look, **edges, "connectionstyle": bow})
    ax.set(xlim=(-0.4, 8.3), ylim=(-1.0, 4.4))
    ax.axis("off")
    return fig


def forgetting_dilemma(alphas, lasting, current, kda):
    """What one decay for the whole state costs: error on lasting facts against error on current ones.

    alphas, lasting, current (n,): the decay where a paragraph begins, and both errors;
    kda (lasting, current): the same with a decay for each channel.
    """
    fig, ax = figure(7.2, 3.5)
    ax.plot(current, lasting, color=DECAY, marker="o", markersize=4, label="Gated DeltaNet, one decay")
    for alpha, x, y in zip(alphas, current, lasting):
        if alpha in (1.0, 0.9, 0.6, 0.0):
            ax.annotate(f"α = {alpha:g}", (x, y), textcoords="offset points", xytext=(7, 4), fontsize=9)
    ax.plot(kda[1], kda[0], "*", color=STATE, markersize=15, label="KDA, a decay a channel")
    ax.set(xlabel="error on this paragraph's names", ylabel="error on lasting names", ylim=(-0.06, 1.12))
    ax.set_xlim(0, 1.08 * max(current))
    ax.legend(loc="lower left", bbox_to_anchor=(0.08, 0.12), frameon=False)
    return fig


def order_gap(first=1.0, second=0.2, strength=1.0):
    """How far decay and correction are from commuting, over the direction of the key, for two key channels.

    first, second: the two channels' decays; strength: beta.
    """
    fig, ax = figure(7.2, 3.2)
    angle = np.linspace(0, 90, 181)
    keys = np.stack([np.cos(np.radians(angle)), np.sin(np.radians(angle))], axis=1)
    decay = np.diag([first, second])
    correct = np.eye(2) - strength * keys[:, :, None] * keys[:, None, :]
    gap = np.linalg.norm(correct @ decay - decay @ correct, ord=2, axis=(1, 2))
    ax.plot(angle, gap, color=DECAY)
    ax.axhline(strength * abs(first - second) / 2, color=GRID, linestyle="--", zorder=0)
    ax.set(xlabel="angle of the key to channel 1, in degrees", ylabel="2-norm of the difference", ylim=(-0.02, 1.05))
    ax.set_title(f"decays {first:.2f} and {second:.2f}, β = {strength:.2f}: at most {gap.max():.2f}")
    return fig


def two_decays(rate=4.0, lower=-5.0):
    """Log decay and half-life against the projection of the token, for both parameterisations.

    rate: exp(a); lower: the bound. Two panels: the logarithm of the decay, and the half-life it means.
    """
    fig, (left, right) = figure(7.4, 3.4, columns=2)
    x = np.linspace(-8, 4, 400)
    soft = -rate * np.logaddexp(0, x)
    bounded = lower * np.exp(-np.logaddexp(0, -rate * x))
    for g, style, name in ((soft, "-", "softplus"), (bounded, "--", "with a bound")):
        left.plot(x, g, style, color=DECAY, label=name)
        right.plot(x, np.log(2) / -g, style, color=DECAY, label=name)
    left.axhline(lower, color=ERASE, linestyle=":", linewidth=1.2)
    left.text(-7.8, lower + 0.25, f"bound {lower:g}".replace("-", "−"), color=ERASE)
    left.set(xlabel="projection + bias", ylabel="log decay g", ylim=(min(lower, -5) * 1.6, 0.5))
    right.axhline(np.log(2) / -lower, color=ERASE, linestyle=":", linewidth=1.2)
    right.set(xlabel="projection + bias", ylabel="half-life in steps", yscale="log", ylim=(1e-2, 1e6))
    for ax in (left, right):
        ax.set_title(f"rate {rate:g}")
    right.legend(loc="upper right", frameon=False)
    return fig


def stretch_by_angle(b_1=1.0, b_2=0.0, decay=1.0):
    """The 2-norm and the spectral radius of one step, over the direction of the key, for two key channels.

    b_1, b_2: the erase gate; decay: of both channels.
    """
    fig, ax = figure(7.2, 3.4)
    angle = np.linspace(0, 180, 361)
    keys = np.stack([np.cos(np.radians(angle)), np.sin(np.radians(angle))], axis=1)
    step = decay * (np.eye(2) - keys[:, :, None] * (np.array([b_1, b_2]) * keys)[:, None, :])
    norm = np.linalg.norm(step, ord=2, axis=(1, 2))
    radius = np.abs(np.linalg.eigvals(step)).max(axis=1)
    ax.plot(angle, norm, color=ERASE, label="2-norm")
    ax.plot(angle, radius, color=STATE, linestyle="--", label="largest eigenvalue")
    ax.axhline(LARGEST_NORM, color=GRID, linestyle=":", zorder=0)
    ax.text(180, LARGEST_NORM + 0.01, "2 / √3", ha="right", color=INK, fontsize=9)
    ax.set(xlabel="angle of the key to channel 1, in degrees", ylim=(0.4, 1.25), xticks=range(0, 181, 30))
    ax.set_title(f"b = ({b_1:.2f}, {b_2:.2f}), decay {decay:.2f}: 2-norm up to {norm.max():.3f}")
    ax.legend(loc="lower left", ncols=2, frameon=False)
    return fig


def growing_pair(s, growth, sizes):
    """Growth a token over the small entry s of the keys; the size of the state over time for several decays.

    s, growth (n,); sizes: {decay: (T,) norms of the state}.
    """
    fig, (left, right) = figure(7.4, 3.4, columns=2)
    left.plot(s, growth, color=ERASE)
    best = np.argmax(growth)
    left.plot(s[best], growth[best], "o", color=INK, markersize=5)
    left.annotate(
        r"$\sqrt{5/4}$ at $s = 1/\sqrt{6}$", (s[best], growth[best]), xytext=(-10, 8), textcoords="offset points"
    )
    left.axhline(1, color=GRID, linestyle="--", zorder=0)
    left.set(xlabel="s, the small entry of the keys", ylabel="growth a token", ylim=(0, 1.3))
    for (decay, size), style in zip(sizes.items(), ("-", "--", "-.", ":")):
        right.plot(range(1, len(size) + 1), size, style, color=STATE, label=f"decay {decay:g}")
    right.set(yscale="log", xlabel="token", ylabel="2-norm of the product")
    right.legend(loc="upper left", fontsize=9, frameon=False)
    return fig


def one_step_ellipse(k, corners):
    """Half the sum of two distances is the norm: the erase key e between 0 and 2k, for two key channels.

    k (2,) a key of length 1; corners: {name: erase gate (2,)}.
    """
    fig, ax = figure(7.2, 4.4)
    turn = np.linspace(0, 2 * np.pi, 300)
    along, across = k, np.array([-k[1], k[0]])
    for norm, style in ((1.05, ":"), (1.1, "-."), (LARGEST_NORM, "--")):  # half axes: norm, and its root with 1
        circle = norm * np.cos(turn)[:, None] * along + np.sqrt(norm**2 - 1) * np.sin(turn)[:, None] * across
        ax.plot(*(k + circle).T, style, color=INK, alpha=0.45, linewidth=1.2, zorder=0)
        side = k + norm * np.cos(0.9) * along + np.sqrt(norm**2 - 1) * np.sin(0.9) * across
        ax.text(*side, f"{norm:.2f}", fontsize=9, color=INK, ha="center", va="center", bbox=GROUND)
    ax.plot(*np.stack([np.zeros(2), 2 * k]).T, color=KEY, linewidth=1.5)
    for point, name, shift in (
        (np.zeros(2), "0", (0.04, -0.06)),
        (k, "k", (0.02, 0.08)),
        (2 * k, "2k", (-0.03, -0.12)),
    ):
        ax.plot(*point, "o", color=KEY, markersize=5)
        ax.text(*(point + shift), name, color=KEY)
    ax.fill_between([0, k[0]], [0, 0], [k[1], k[1]], color=ERASE, alpha=0.08, zorder=0)
    for name, gate in corners.items():
        e = np.array(gate) * k
        norm = (np.linalg.norm(e) + np.linalg.norm(2 * k - e)) / 2
        ax.plot(*e, "s", color=ERASE, markersize=6)
        place, side = ((-0.14, e[1] + 0.25), "right") if e[0] == 0 else ((k[0] + 0.3 + 0.5 * gate[1], e[1]), "left")
        line = {"arrowstyle": "-", "color": ERASE, "linewidth": 0.8, "shrinkB": 5}
        ax.annotate(
            f"b = {name}: {norm:.3f}", e, place, color=ERASE, fontsize=10, ha=side, va="center", arrowprops=line
        )
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.set(xlabel="channel 1", ylabel="channel 2")
    return fig
