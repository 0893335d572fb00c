"""What the harness knows of each public function: how its inputs are drawn, and what it must equal."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import kernels
from lineage_lib.chunked import chunk_additive, chunk_delta
from lineage_lib.rules import RULES
from lineage_lib.sequences import Sequences

# --- Regimes ---

GATES = {
    "zero": lambda r, *shape: torch.zeros(shape, dtype=torch.float64),
    "slow": lambda r, *shape: torch.full(shape, -1e-3, dtype=torch.float64),
    "mixed": lambda r, *shape: F.logsigmoid(2 + normal(r, *shape)),
    "strong": lambda r, *shape: torch.full(shape, -5.0, dtype=torch.float64),
    "strongest": lambda r, *shape: torch.full(shape, -20.0, dtype=torch.float64),
    "sudden": lambda r, *shape: torch.where(normal(r, *shape) < -0.3, -8 - 30 * normal(r, *shape).abs(), -1e-3),
    "resets": lambda r, *shape: torch.where(normal(r, *shape) < -1.3, -torch.inf, -1e-3),
}
KEYS = ("unit", "correlated", "identical", "zero", "long")


def normal(r: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=r, dtype=torch.float64)


def draw_keys(kind: str, r: torch.Generator, *shape: int) -> torch.Tensor:
    kind, k = kind.partition(",")[0], normal(r, *shape)
    if kind in ("correlated", "identical"):  # cosines of about 0.83, and 1
        k = normal(r, *shape[:1], 1, *shape[2:]) + (0.45 * k if kind == "correlated" else 0 * k)
    return {"zero": 0.0, "long": 2.0}.get(kind, 1.0) * F.normalize(k, dim=-1)


# --- Cases ---


@dataclass(frozen=True)
class Shape:
    """Sizes of one case; ``lengths``: sequences packed into one row; ``state``: one before, and a gradient after;
    ``l2norm``: queries and keys have any length, and the function is to divide by it."""

    B: int = 1
    T: int = 70
    H: int = 1
    HV: int = 1
    K: int = 16
    V: int = 16
    lengths: tuple[int, ...] = ()
    state: bool = True
    l2norm: bool = False

    @property
    def N(self) -> int:
        return len(self.lengths) or self.B

    def __str__(self) -> str:
        sizes = f"B{self.B} T{self.T} H{self.H}/{self.HV} K{self.K} V{self.V}"
        packed = f" packed {list(self.lengths)}" if self.lengths else ""
        return f"{sizes}{packed}{'' if self.state else ' no state'}{' l2norm' if self.l2norm else ''}"


@dataclass(frozen=True)
class Operator:
    """One public function.

    draw            (shape, gates, keys, generator) -> name -> float64 tensor
    ours, reference (tensors by name, shape, cu_seqlens or None) -> (o, final state, a dict of its parts, or None)
    regimes, keys   of GATES and KEYS, those that are worth a case
    gates           names of the inputs whose gradients have the wider bar
    float32         names of the inputs that are never in 16 bits
    summed          names of the inputs that all tokens share: their gradients are sums over tokens, which may happen
                    to be near 0, so errors are compared with the sum of the sizes. The reference takes them by token
    """

    name: str
    draw: Callable
    ours: Callable
    reference: Callable
    gates: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    values: str = "v"
    regimes: tuple[str, ...] = tuple(GATES)
    keys: tuple[str, ...] = ("identical", "zero", "long")
    packs: bool = True
    normalises: bool = False  # has ``use_qk_l2norm_in_kernel``
    differentiable: bool = True
    single: bool = False  # takes one token
    by_token: bool = False  # its loop over tokens is slow where it is interpreted

    def dtype_of(self, name: str, dtype: torch.dtype) -> torch.dtype:
        return torch.float32 if name in self.float32 else dtype


# --- Simple GLA ---


def _draw_simple_gla(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
    B, T, H, HV, K, V = shape.B, shape.T, shape.H, shape.HV, shape.K, shape.V
    drawn = {
        "q": normal(r, B, T, H, K),
        "k": draw_keys(keys, r, B, T, H, K),
        "v": normal(r, B, T, HV, V),
        "g": GATES[gates](r, B, T, HV),
    }
    return drawn | ({"initial_state": normal(r, shape.N, HV, K, V)} if shape.state else {})


def _like_fla(function: Callable) -> Callable:
    def call(tensors, shape, packed):
        return function(**tensors, output_final_state=shape.state, cu_seqlens=packed)

    return call


# --- GLA ---


def _draw_gla(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
    drawn = _draw_simple_gla(shape, gates, keys, r)
    return drawn | {"g": GATES[gates](r, *drawn["v"].shape[:3], shape.K)}


# --- The delta rules ---


def _draw_delta(decay: str, gates_of: str) -> Callable:
    """decay: none, head or channel; gates_of: one number a head, beta, or one a channel, b and w.

    These are between 0 and 1, or what stands in ``keys`` after "beta"; long keys are erased only so far that the
    state does not grow: β ‖k‖² ≤ 2.
    """

    def draw(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
        drawn = (_draw_gla if decay == "channel" else _draw_simple_gla)(shape, gates, keys, r)
        S = drawn.pop("initial_state", None)
        if decay == "none":
            del drawn["g"]
        heads, fixed = drawn["v"].shape[:3], keys.partition("beta ")[2]

        def gate(*size):
            x = torch.rand(*heads, *size, generator=r, dtype=torch.float64) * (0.5 if keys == "long" else 1.0)
            return torch.full_like(x, float(fixed)) if fixed else x

        drawn |= {"beta": gate()} if gates_of == "head" else {"b": gate(shape.K), "w": gate(shape.V)}
        if shape.l2norm:
            drawn |= {name: normal(r, *drawn[name].shape[:-1], 1).exp() * drawn[name] for name in "qk"}
        return drawn | ({} if S is None else {"initial_state": S})

    return draw


def _delta(function: Callable) -> Callable:
    def call(tensors, shape, packed):
        return function(
            **tensors, output_final_state=shape.state, cu_seqlens=packed, use_qk_l2norm_in_kernel=shape.l2norm
        )  # fmt: skip

    return call


def _delta_reference(tensors, shape, packed):
    q, k, v = (tensors[name] for name in "qkv")
    if shape.l2norm:
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    beta = tensors["beta"][..., None] if "beta" in tensors else None
    b, w = (beta, beta) if beta is not None else (tensors["b"], tensors["w"])
    e = b * k.repeat_interleave(shape.HV // shape.H, 2)
    return chunk_delta(
        q, k, w * v, e.expand(*v.shape[:3], -1), tensors.get("g"), initial_state=tensors.get("initial_state"),
        output_final_state=shape.state, cu_seqlens=packed,
    )  # fmt: skip


def _draw_product(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
    """Two steps a token."""
    steps = dataclasses.replace(shape, T=2 * shape.T, lengths=tuple(2 * n for n in shape.lengths))
    drawn = _draw_delta("head", "head")(steps, gates, keys, r)
    return drawn | {name: drawn[name][:, ::2] for name in "qg"}


def _product_reference(tensors, shape, packed):
    run = RULES["deltaproduct"].chunked
    return run(
        *(tensors[name] for name in ("q", "k", "v", "g", "beta")), num_householder=2,
        initial_state=tensors.get("initial_state"), output_final_state=shape.state, cu_seqlens=packed,
    )  # fmt: skip


def _product(tensors, shape, packed):
    return kernels.chunk_gated_delta_product(
        **tensors, num_householder=2, output_final_state=shape.state, cu_seqlens=packed
    )  # fmt: skip


# --- Mamba-2 ---


def _draw_mamba2(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
    """Δ A is the regime's log-decay, with rates A from −4 to −16, as at initialisation, and Δ at most 5."""
    B, T, G, H, N, P = shape.B, shape.T, shape.H, shape.HV, shape.K, shape.V
    A = -torch.linspace(4.0, 16.0, H, dtype=torch.float64)
    step = (GATES[gates](r, B, T, H) / A).clamp(1e-4, 5.0)
    drawn = {
        "x": normal(r, B, T, H, P),
        "dt": step + torch.log(-torch.expm1(-step)) - 0.5,  # what softplus(dt + 0.5) makes the step
        "A": A,
        "B": draw_keys(keys, r, B, T, G, N),
        "C": normal(r, B, T, G, N),
        "D": normal(r, H),
        "z": normal(r, B, T, H, P),
        "dt_bias": torch.full((H,), 0.5, dtype=torch.float64),
    }
    return drawn | ({"initial_states": normal(r, B, H, P, N)} if shape.state else {})


def _mamba2(tensors, shape, packed):
    result = kernels.mamba_chunk_scan_combined(**tensors, dt_softplus=True, return_final_states=shape.state)
    return result if shape.state else (result, None)


def _mamba2_reference(tensors, shape, packed):
    x, dt, A, B, C, D, z, dt_bias = (tensors[n] for n in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias"))
    before = tensors["initial_states"].mT if shape.state else None
    step = F.softplus(dt + dt_bias)
    y, state = chunk_additive(
        C, B, step[..., None] * x, step * A, scale=1.0, initial_state=before, output_final_state=shape.state
    )
    return (y + D[..., None] * x) * F.silu(z), state.mT if shape.state else None


def _update(tensors, shape, packed):
    """selective_state_update on the first token; its state is changed in place."""
    x, dt, A, B, C, D, z, dt_bias = (tensors[n] for n in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias"))
    (_, _, H, P), N = x.shape, B.shape[-1]
    state = tensors["initial_states"].clone()
    y = kernels.selective_state_update(
        state, x[:, 0], dt[:, 0, :, None].expand(-1, -1, P), A[:, None, None].expand(H, P, N), B[:, 0], C[:, 0],
        D=D[:, None].expand(H, P), z=z[:, 0], dt_bias=dt_bias[:, None].expand(H, P), dt_softplus=True,
    )  # fmt: skip
    return y[:, None], state


# --- mLSTM ---


def _draw_mlstm(shape: Shape, gates: str, keys: str, r: torch.Generator) -> dict[str, torch.Tensor]:
    """f is such that logsigmoid(f) is the regime's log-decay; in a regime of its own every i is ±30, and m is 30.

    Near n·q = 0 the outputs have a pole, where float32 has no digits: keys, n and, up to one sign for all channels,
    queries are positive.
    """
    extreme = gates == "open or shut"
    drawn = _draw_simple_gla(shape, "mixed" if extreme else gates, keys, r)
    g, S = drawn.pop("g"), drawn.pop("initial_state", None)
    i = normal(r, *g.shape)
    drawn |= {"q": drawn["q"].abs() * normal(r, *drawn["q"].shape[:-1], 1).sign(), "k": drawn["k"].abs()}
    drawn |= {"i": 30 * i.sign() if extreme else 2 * i, "f": (g - torch.log(-torch.expm1(g))).clamp(max=40.0)}
    if shape.state:
        m = normal(r, *S.shape[:-2]) + 30 * extreme
        drawn |= {"S": S, "n": normal(r, *S.shape[:-1]).abs(), "m": m}
    return drawn


def _mlstm(function: Callable) -> Callable:
    """Without the gradient of the first m: it is a sum over all of S and n, near 0 or not as it happens."""

    def call(tensors, shape, packed):
        q, k, v, i, f = (tensors[name] for name in "qkvif")
        before = (tensors["S"], tensors["n"], tensors["m"].detach()) if shape.state else None
        o, state = function(q, k, v, i, f, initial_state=before, output_final_state=shape.state, cu_seqlens=packed)
        return o, dict(zip(("state S", "state n", "state m"), state)) if shape.state else None

    return call


def _mlstm_reference(tensors, shape, packed):
    """The chunked form, which takes the stabiliser as given; the final state depends on it."""
    o, state = _mlstm(RULES["mlstm"].chunked)(tensors, shape, packed)
    if state is None:
        return o, None
    log_f = F.logsigmoid(tensors["f"])
    last = []  # m_T = max(m_0 + log f_1 + … + log f_T, …, ĩ_{T-1} + log f_T, ĩ_T)
    for rows, t in Sequences(shape.B, shape.T, packed).pieces():
        since = F.pad(log_f[:, t].flip(1).cumsum(1).flip(1), (0, 0, 0, 1))
        last.append((torch.cat([tensors["m"].detach()[rows, None], tensors["i"][:, t]], 1) + since).amax(1))
    m = torch.cat(last)
    lost = (state["state m"] - m).exp()
    return o, {
        "state S": lost[..., None, None] * state["state S"],
        "state n": lost[..., None] * state["state n"],
        "state m": m,
    }


_MAMBA2 = dict(
    draw=_draw_mamba2,
    reference=_mamba2_reference,
    gates=("dt", "A", "dt_bias"),
    float32=("A", "D", "dt", "dt_bias", "initial_states"),
    summed=("A", "D", "dt_bias"),
    # Not "sudden": with Δ from 1e-4 to 5, dA weighs the rounding of one token's dg ten thousand times another's.
    regimes=tuple(name for name in GATES if name != "sudden"),
    values="x",
    packs=False,
)
_SIMPLE_GLA = dict(
    draw=_draw_simple_gla, reference=_like_fla(chunk_additive), gates=("g",), float32=("g", "initial_state")
)
_MLSTM = dict(
    draw=_draw_mlstm,
    reference=_mlstm_reference,
    gates=("i", "f"),
    float32=("i", "f", "S", "n", "m"),
    regimes=(*GATES, "open or shut"),
)
_GLA = _SIMPLE_GLA | dict(draw=_draw_gla)
_KEYS = ("correlated", "identical, beta 1", "unit, beta 2", "unit, beta 0", "zero", "long")
_REFLECTED = ("identical, beta 2",)  # without a decay what rounding the inverse does to a reflection stays forever
_DELTA = dict(
    reference=_delta_reference,
    keys=(*_KEYS, *_REFLECTED),
    gates=("g", "beta", "b", "w"),
    float32=("g", "beta", "initial_state"),
    normalises=True,
)
_DELTA_RULE = _DELTA | dict(draw=_draw_delta("none", "head"), regimes=("zero",), keys=_KEYS)
_GATED_DELTA_RULE = _DELTA | dict(draw=_draw_delta("head", "head"))
_PRODUCT = _GATED_DELTA_RULE | dict(draw=_draw_product, reference=_product_reference, keys=_KEYS, normalises=False)
_KDA = _DELTA | dict(draw=_draw_delta("channel", "head"))
_GDN2 = _DELTA | dict(draw=_draw_delta("channel", "channel"))
OPERATORS = [
    Operator("chunk_simple_gla", ours=_like_fla(kernels.chunk_simple_gla), **_SIMPLE_GLA),
    Operator(
        "fused_recurrent_simple_gla", ours=_like_fla(kernels.fused_recurrent_simple_gla), by_token=True, **_SIMPLE_GLA
    ),
    Operator("chunk_gla", ours=_like_fla(kernels.chunk_gla), **_GLA),
    Operator(
        "fused_recurrent_gla",
        ours=_like_fla(lambda g, **others: kernels.fused_recurrent_gla(gk=g, **others)),
        by_token=True,
        **_GLA,
    ),
    Operator("mamba_chunk_scan_combined", ours=_mamba2, **_MAMBA2),
    Operator("selective_state_update", ours=_update, **_MAMBA2, differentiable=False, single=True),
    Operator("chunk_mlstm", ours=_mlstm(kernels.chunk_mlstm), **_MLSTM),
    Operator("fused_recurrent_mlstm", ours=_mlstm(kernels.fused_recurrent_mlstm), by_token=True, **_MLSTM),
    Operator("chunk_gated_delta_product", ours=_product, **_PRODUCT),
    *(
        Operator(f"{form}_{name}", ours=_delta(getattr(kernels, f"{form}_{name}")), by_token=by_token, **known)
        for name, known in {
            "delta_rule": _DELTA_RULE,
            "gated_delta_rule": _GATED_DELTA_RULE,
            "kda": _KDA,
            "gdn2": _GDN2,
        }.items()
        for form, by_token in (("chunk", False), ("fused_recurrent", True))
    ),
]
