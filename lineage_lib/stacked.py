"""Small models of n layers, several of one shape at once: each axis of weights begins with M models.

A layer adds to its input what a mixer reads, and then, if wanted, what an MLP makes of each token. The weights of
a model are one row of a matrix (M, P), which is split into named parts: an optimiser then needs a handful of
operations, and M models of one shape cost little more than one. No model sees another.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F

from lineage_lib.chunked import chunk_additive, chunk_delta

Tensor = torch.Tensor


class Mixer(NamedTuple):
    """What stands between a layer's projections.

    kind     "softmax"; "add" (S ← αS + k vᵀ) or "delta" (S ← α (I − β k kᵀ) S + β k vᵀ), for the head's state S
    decay    α: 1 for None; "step" exp(−A dt) with a step dt that also scales the value, as Mamba-2 has it; "gate"
             exp(−A dt) alone, as Gated DeltaNet
    product  a token may take several delta steps
    """

    kind: str
    decay: str | None = None
    product: bool = False


MIXERS = {
    "attention": Mixer("softmax"),
    "linear-attention": Mixer("add"),
    "mamba-2": Mixer("add", "step"),
    "deltanet": Mixer("delta"),
    "gated-deltanet": Mixer("delta", "gate"),
    "deltaproduct": Mixer("delta", product=True),
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model's layers and sizes.

    mixers    a name of :data:`MIXERS` for each layer; different ones make a hybrid
    width     D, of the stream that the layers add to
    H, K, V   heads, key and value size: a layer's state is H · K · V numbers (attention keeps 2 · H · K a token)
    factors   delta steps a token takes in a "deltaproduct" layer
    negative  eigenvalues from [−1, 1] instead of [0, 1]: beta in (0, 2), and 2α − 1 for the α of "mamba-2"
    conv      tokens that a causal convolution, a filter a channel, mixes into each query, key and value before a
              SiLU; 0 for neither
    mlp       the MLP's width in multiples of D; 0 for none
    rotary    attention turns queries and keys by their place; a convolution alone tells near places apart
    """

    mixers: tuple[str, ...]
    width: int = 64
    H: int = 1
    K: int = 32
    V: int = 32
    factors: int = 1
    negative: bool = False
    conv: int = 0
    mlp: int = 0
    rotary: bool = True

    def __post_init__(self):
        object.__setattr__(self, "mixers", tuple(self.mixers))
        for name in self.mixers:
            if name not in MIXERS:
                raise ValueError(f"mixers: expected names of {', '.join(MIXERS)}, got {name!r}")
        for name, least in dict(width=1, H=1, K=1, V=1, factors=1, conv=0, mlp=0).items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        if "attention" in self.mixers and self.rotary and self.K % 2:
            raise ValueError(f"K: expected an even number for rotary attention, got {self.K}")

    @property
    def state_size(self) -> int:
        """Numbers in a fixed-state layer's state."""
        return self.H * self.K * self.V

    def steps_of(self, mixer: str) -> int:
        """Writes that a token makes in a layer of this mixer."""
        return self.factors if MIXERS[mixer].product else 1


# --- Weights: names, shapes and first values ---


class Weight(NamedTuple):
    shape: tuple[int, ...]
    draw: Callable[[torch.Generator, tuple[int, ...]], Tensor]
    decays: bool = False  # by weight decay


def _normal(scale: float):
    return lambda generator, shape: scale * torch.randn(shape, generator=generator)


def _constant(value: float):
    return lambda generator, shape: torch.full(shape, value)


def _uniform(low: float, high: float, then: Callable[[Tensor], Tensor] = lambda x: x):
    return lambda generator, shape: then(torch.empty(shape).uniform_(low, high, generator=generator))


def _matrix(rows: int, columns: int, scale: float = 1.0) -> Weight:
    return Weight((rows, columns), _normal(scale / math.sqrt(rows)), decays=True)


def weights(shape: Shape, vocabulary: int, classes: int) -> dict[str, Weight]:
    """Every part of a model's row, in its order."""
    D, H, K, V = shape.width, shape.H, shape.K, shape.V
    parts = {"embedding": Weight((vocabulary, D), _normal(1.0))}
    for i, name in enumerate(shape.mixers):
        mixer, n = MIXERS[name], shape.steps_of(name)
        channels = H * (K + n * (K + V))
        layer = {"norm": Weight((D,), _constant(1.0)), "qkv": _matrix(D, channels)}
        if shape.conv:
            bound = 1 / math.sqrt(shape.conv)
            layer["taps"] = Weight((shape.conv, channels), _uniform(-bound, bound))
        if mixer.kind == "delta":
            layer |= {"beta": _matrix(D, n * H), "beta_bias": Weight((n * H,), _constant(0.0))}
        if mixer.decay:
            # Mamba-2's first values: steps between 0.001 and 0.1, evenly in their logarithm, A from 1 to 16.
            first = _uniform(math.log(1e-3), math.log(0.1), lambda x: x.exp() + torch.log(-torch.expm1(-x.exp())))
            layer |= {"dt": _matrix(D, H), "dt_bias": Weight((H,), first)}
            layer["A_log"] = Weight((H,), _uniform(1, 16, torch.log))
        if mixer.kind != "softmax":
            layer["norm_o"] = Weight((V,), _constant(1.0))
        layer["out"] = _matrix(H * V, D)
        if shape.mlp:
            layer["norm_mlp"] = Weight((D,), _constant(1.0))
            layer |= {"up": _matrix(D, shape.mlp * D), "down": _matrix(shape.mlp * D, D)}
        parts |= {f"{i}.{name}": weight for name, weight in layer.items()}
    return parts | {"norm": Weight((D,), _constant(1.0)), "readout": _matrix(D, classes)}


def drawn(parts: dict[str, Weight], seed: int) -> Tensor:
    """A model's first weights, its row (P,), whoever stands beside it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([weight.draw(generator, weight.shape).flatten() for weight in parts.values()])


# --- Forward ---


def logits(shape: Shape, parts: dict[str, Weight], rows: Tensor, tokens: Tensor) -> Tensor:
    """rows (M, P), tokens (M, B, T) -> (M, B, T, classes).

    On a GPU the mixers are the kernels, elsewhere :mod:`lineage_lib.chunked`.
    """
    M, (B, T) = len(rows), tokens.shape[1:]
    split = rows.split([math.prod(weight.shape) for weight in parts.values()], 1)
    w = {name: part.view(M, *weight.shape) for (name, weight), part in zip(parts.items(), split)}
    # A product with rows of one 1 each, as then is its gradient: the same sums in the same order in every run.
    names = torch.arange(w["embedding"].shape[1], device=tokens.device)
    x = (tokens.flatten(1)[..., None] == names).to(rows.dtype) @ w["embedding"]  # (M, B T, D)
    for i, name in enumerate(shape.mixers):
        layer = {key.partition(".")[2]: value for key, value in w.items() if key.startswith(f"{i}.")}
        x = x + _mixed(shape, name, layer, _normed(x, layer["norm"]).view(M, B, T, -1)) @ layer["out"]
        if shape.mlp:
            x = x + F.silu(_normed(x, layer["norm_mlp"]) @ layer["up"]) @ layer["down"]
    return (_normed(x, w["norm"]) @ w["readout"]).view(M, B, T, -1)


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    """x (M, …, D) divided by the root of its mean square, times the model's weight (M, D)."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-5) * weight.view(len(weight), *(1,) * (x.ndim - 2), -1)


def _mixed(shape: Shape, name: str, w: dict[str, Tensor], y: Tensor) -> Tensor:
    """What a layer's mixer reads: y (M, B, T, D) -> (M, B T, H V)."""
    mixer, n, (H, K, V) = MIXERS[name], shape.steps_of(name), (shape.H, shape.K, shape.V)
    M, B, T, _ = y.shape
    flat = y.flatten(1, 2)

    def per_head(x: Tensor, *sizes: int) -> Tensor:
        return x.reshape(M * B, T, *sizes)

    projected = (flat @ w["qkv"]).view(M, B, T, -1)
    if shape.conv:
        projected = F.silu(_convolved(projected, w["taps"]))
    q, k, v = projected.split([H * K, n * H * K, n * H * V], -1)
    q, k, v = per_head(q, H, K), per_head(k, n, H, K), per_head(v, n, H, V)
    if mixer.kind == "softmax":
        o = _attention(q, k[:, :, 0], v[:, :, 0], shape.rotary)
        return o.reshape(M, B * T, H * V)
    g = beta = None
    if mixer.decay:
        dt = F.softplus(flat @ w["dt"] + w["dt_bias"][:, None])  # (M, B T, H)
        g = per_head(-w["A_log"].exp()[:, None] * dt, H)
    if mixer.decay == "step":
        v = v * per_head(dt, 1, H, 1)
        if shape.negative:
            q, k, g = _signed(q, k, g)
    else:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if mixer.kind == "delta":
        beta = per_head((1 + shape.negative) * torch.sigmoid(flat @ w["beta"] + w["beta_bias"][:, None]), n, H)
    o = (_by_kernels if y.is_cuda else _by_chunks)(q, k, v, g, beta)  # (M B, T, H, V)
    return _normed(o.reshape(M, B * T, H, V), w["norm_o"]).flatten(2)


def _convolved(x: Tensor, taps: Tensor) -> Tensor:
    """x (M, B, T, channels) and taps (M, width, channels), the last one for the token itself."""
    T, width = x.shape[2], taps.shape[1]
    x = F.pad(x, (0, 0, width - 1, 0))
    return sum(x[:, :, i : i + T] * taps[:, i, None, None] for i in range(width))


def _attention(q: Tensor, k: Tensor, v: Tensor, rotary: bool) -> Tensor:
    """q, k (B, T, H, K), v (B, T, H, V) -> (B, T, H, V), causal."""
    if rotary:
        T, K = q.shape[1], q.shape[-1]
        frequencies = 10_000 ** (-torch.arange(0, K, 2, device=q.device, dtype=q.dtype) / K)
        angle = torch.arange(T, device=q.device, dtype=q.dtype)[:, None, None] * frequencies  # (T, 1, K / 2)
        q, k = (_turned(x, angle.cos(), angle.sin()) for x in (q, k))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair of channels c and c + K / 2 as a vector turned by its angle."""
    first, second = x.chunk(2, -1)
    return torch.cat([cosine * first - sine * second, sine * first + cosine * second], -1)


def _signed(q: Tensor, k: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decays 2 exp(g) − 1 in (−1, 1], as log-decays of their magnitudes and signs in q and k.

    Between write s and read t the signs of the decays s + 1 … t multiply: the product of all up to t times that
    of all up to s. q (B, T, H, K), k (B, T, 1, H, K), g (B, T, H).
    """
    decay = 2 * g.exp() - 1
    sign = torch.where(decay < 0, -1.0, 1.0).to(q.dtype).cumprod(1)[..., None]
    return q * sign, k * sign[:, :, None], decay.abs().clamp_min(1e-6).log()


def _by_chunks(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None) -> Tensor:
    """q (B, T, H, K), k (B, T, n, H, K), v (B, T, n, H, V), g (B, T, H), beta (B, T, n, H) -> (B, T, H, V)."""
    n = k.shape[2]
    if n > 1:  # a token's steps stand behind one another: the first decays, the last is read
        q = F.pad(q[:, :, None], (0, 0, 0, 0, n - 1, 0)).flatten(1, 2)
        g = None if g is None else F.pad(g[:, :, None], (0, 0, 0, n - 1)).flatten(1, 2)
    k, v = k.flatten(1, 2), v.flatten(1, 2)
    if beta is None:
        return chunk_additive(q, k, v, g, scale=1.0)[0]
    beta = beta.flatten(1, 2)[..., None]
    o, _ = chunk_delta(q, k, beta * v, beta * k, g, scale=1.0, chunk_size=32)
    return o[:, n - 1 :: n]


def _by_kernels(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None) -> Tensor:
    """As :func:`_by_chunks`, on a GPU or under Triton's interpreter."""
    import kernels  # Triton is for a GPU: whoever trains on a CPU need not have it

    n, k, v = k.shape[2], k.flatten(1, 2), v.flatten(1, 2)
    if beta is None:
        return kernels.chunk_simple_gla(q, k, v, g, scale=1.0)[0]
    beta = beta.flatten(1, 2)
    if n > 1:
        return kernels.chunk_gated_delta_product(q, k, v, g, beta, n, scale=1.0)[0]
    return kernels.chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0]
