"""Chapter 12's plots, copying and recall. Each takes the arrays it shows."""

import re

import numpy as np

from lineage_lib.figures import DECAY, ERASE, GRID, INK, KEY, STATE, VALUE, figure

MEMORIES = {"register": (KEY, "D"), "rounded decay": (DECAY, "s"), "random table": (INK, "^"), "counter": (ERASE, "o")}
STATES = {"basis": (KEY, "D"), "adding": (VALUE, "o"), "delta": (STATE, "^"), "one": (ERASE, "s")}  # by the first word
RULES = {"additive": (VALUE, "o", "-"), "decayed": (DECAY, "s", "--"), "delta": (STATE, "^", "-.")}


def ceiling(lengths, success, bits):
    """Share of strings of bits that come back, over their length; the theorem's ceiling as a line.

    success: {name of a memory: share at each length}; bits: of every memory's state.
    """
    fig, ax = figure(7.2, 3.6)
    most = np.minimum(1, 2.0 ** (bits - lengths))
    ax.plot(lengths, most, color=INK, linewidth=1.4, label=f"ceiling of {bits} bits", zorder=0)
    ax.fill_between(lengths, most, 3, color=GRID, alpha=0.5, zorder=-1)
    ax.text(lengths[-1] - 0.1, 1.3, "excluded", ha="right", va="center", color=INK)
    for name, share in success.items():
        colour, mark = MEMORIES[name]
        ax.plot(lengths, share, color=colour, marker=mark, markersize=5, linewidth=1, linestyle=":", label=name)
    ax.set(yscale="log", ylim=(1e-4, 3), xlabel="length of the string, in bits", ylabel="share of strings copied")
    ax.set_yticks([1, 0.1, 0.01, 0.001, 0.0001], ["1", "0.1", "0.01", "0.001", "0.0001"])
    ax.minorticks_off()
    ax.legend(loc="lower left", frameon=False)
    return fig


def frontier(measured, bits_a_symbol):
    """Longest string that comes back in half of the runs, over the bits of the state.

    measured: {name: [(bits, length), …]}; bits_a_symbol: log2 of the number of symbols.
    """
    fig, ax = figure(7.2, 3.8)
    bits = np.logspace(np.log2(8), np.log2(4096), 50, base=2)
    ax.plot(bits, (bits + 1) / bits_a_symbol, color=INK, linewidth=1.4, label="limit of the theorem", zorder=0)
    for name, points in measured.items():
        colour, mark = STATES[re.match(r"\w+", name)[0]]
        ax.plot(*np.transpose(points), color=colour, marker=mark, markersize=6, linestyle=":", label=name)
    ax.set(xscale="log", yscale="log", ylim=(0.8, 2500), xlabel="bits of state")
    ax.set_ylabel("longest string copied, in symbols")
    ax.set_xticks([8, 16, 64, 256, 1024, 4096], ["8", "16", "64", "256", "1,024", "4,096"])
    ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.minorticks_off()
    ax.legend(loc="upper left", frameon=False)
    return fig


def ngram(ns, shares, bound, repeated_text):
    """Failures of copying by n-grams over n.

    shares (n, 2): uniform strings with a repeated n-gram, and copied wrongly; bound (n,); repeated_text (n,): copied
    wrongly where a passage comes twice.
    """
    fig, ax = figure(7.2, 3.4)
    ax.plot(ns, bound, color=INK, linewidth=1.4, label="bound for uniform strings")
    ax.plot(ns, shares[:, 0], color=KEY, marker="s", linestyle="--", label="uniform: an n-gram stands twice")
    ax.plot(ns, shares[:, 1], color=VALUE, marker="o", linestyle=":", label="uniform: copied wrongly")
    ax.plot(ns, repeated_text, color=ERASE, marker="^", linestyle="-.", label="a passage comes twice: copied wrongly")
    ax.set(xlabel="n, symbols looked up", ylabel="share of strings", xticks=ns, ylim=(-0.03, 1.08))
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.08), frameon=False)
    return fig


def recall(ns, recalled, K):
    """Squared error and share of right answers over the number of pairs, measured (marks) and theory (lines).

    recalled: {rule: (n, 5): error, its standard error, share right, theory of the error, theory of the share}.
    """
    fig, (left, right) = figure(8.4, 3.6, columns=2)
    for rule, rows in recalled.items():
        colour, mark, dash = RULES[rule]
        error, spread, hit, error_theory, hit_theory = rows.T
        left.plot(ns, error_theory, color=colour, linestyle=dash)
        left.errorbar(ns, error, spread, color=colour, marker=mark, markersize=5, linestyle="none", label=rule)
        right.plot(ns, hit_theory, color=colour, linestyle=dash)
        right.plot(ns, hit, color=colour, marker=mark, markersize=5, linestyle="none", label=rule)
    for ax, label in ((left, "mean squared error"), (right, "share of answers that are right")):
        ax.axvline(K, color=GRID, linewidth=1.4, zorder=0)
        ax.text(K, 1.01, f"K = {K}", transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=9)
        ax.set(xscale="log", xlabel="pairs", ylabel=label)
        ax.set_xticks(ns, [str(n) for n in ns])
        ax.minorticks_off()
    left.legend(loc="upper left", frameon=False)
    right.set_ylim(0, 1.05)
    right.axhline(1 / 16, color=GRID, linestyle=":", zorder=0)
    right.text(ns[0], 1 / 16 + 0.02, "a guess", fontsize=9)
    return fig


def ages(by_age, K):
    """Squared error of each pair over its age, measured (marks) and theory (lines).

    by_age: {rule: (measured (n,), theory (n,))}, age 0 first.
    """
    fig, ax = figure(7.2, 3.4)
    for rule, (measured, theory) in by_age.items():
        colour, mark, dash = RULES[rule]
        age = np.arange(len(theory))
        ax.plot(age, theory, color=colour, linestyle=dash)
        ax.plot(age[::4], measured[::4], color=colour, marker=mark, markersize=5, linestyle="none", label=rule)
    ax.axhline(1, color=GRID, linestyle=":", zorder=0)
    ax.text(0, 1.03, "an answer of 0", fontsize=9)
    ax.set(xlabel="age: pairs written after it", ylabel="squared error", ylim=(-0.05, None), title=f"K = {K}")
    ax.legend(loc="lower right", frameon=False)
    return fig
