"""Chapter 05: what all its records share. Triton, tokens to draw, the chunks of a sequence, the decays inside one."""

from types import SimpleNamespace

import numpy as np

from lineage_lib.exercises.record import Mistake
from lineage_lib.launching import Variant

try:
    # isort: off
    import kernels  # noqa: F401 (before Triton, which reads when it is imported whether it is to interpret)
    import triton
    import triton.language as tl

    # isort: on
except ModuleNotFoundError as missing:
    if missing.name != "triton":
        raise
    # There is no Triton for this platform. Titles, hints and the other chapters are there all the same.
    triton = SimpleNamespace(jit=lambda function: function, cdiv=lambda a, b: -(-a // b))
    tl = SimpleNamespace(constexpr=int)

RTOL = 2e-5  # a float32 kernel against the float64 oracle, relative to the largest entry
GAPS = {"q": 1, "k": 2, "v": 3, "do": 2}  # entries of NaN between two tokens, where a kernel is told a stride


def tokens(rng, T, *widths, g=None, low=0.6):
    """Float32 tensors (T, H, D), one for each (H, D), and log-decays g (T, H) of decays between ``low`` and 1.

    ``g`` gives other log-decays: a number for all, or {t: number} for some tokens.
    """
    tensors = [rng.standard_normal((T, *width)) for width in widths]
    decays = np.log(rng.uniform(low, 1.0, (T, widths[0][0])))
    if isinstance(g, dict):
        decays[list(g)] = np.array([*g.values()])[:, None]
    elif g is not None:
        decays[:] = g
    return *(x.astype(np.float32) for x in tensors), decays.astype(np.float32)


def spans(T, C):
    """The chunks of T tokens as slices, the last one possibly shorter."""
    return [slice(t, min(t + C, T)) for t in range(0, T, C)]


def cumulative(g, C):
    """G (T, H): the sum of g from the first token of each chunk, in float64."""
    return np.concatenate([np.cumsum(g[j].astype(np.float64), 0) for j in spans(len(g), C)])


def decay_mask(G):
    """(H, C, C): exp(G_t − G_s) for s ≤ t, otherwise 0, of one chunk's G (C, H)."""
    below = np.tril(np.ones((len(G), len(G)), bool))
    difference = (G[:, None] - G[None]).transpose(2, 0, 1)
    return np.exp(np.where(below, difference, -np.inf))


def double(*arrays):
    return [a.astype(np.float64) for a in arrays]


def slipped(kernel, *mistakes):
    """The known mistakes of a kernel: its variant with SLIP = name, and with any SLIP that follows the sentence."""
    return tuple(
        Mistake(name, sentence, Variant(kernel, SLIP=name), also=tuple(Variant(kernel, SLIP=other) for other in also))
        for name, sentence, *also in mistakes
    )
