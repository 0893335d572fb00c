"""What ``kernels.bench`` times: for each public function its shapes and inputs, the peer, and the least work there is.

An operator is one entry of :data:`WORKLOADS`. Ours and the peer's get the same numbers; a peer that wants another
layout gets them rearranged before anything is timed.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

import torch
import torch.nn.functional as F

Sizes = dict[str, int]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Peer:
    """Somebody else's function.

    name       dotted path to it, or with ``made_with`` to a function that returns it
    package    its distribution, whose version is recorded
    call       (function, tensors) -> its outputs
    arrange    our tensors -> the peer's, for other layouts
    """

    name: str
    package: str
    call: Callable
    arrange: Callable[[Tensors], Tensors] = dict
    made_with: tuple[str, ...] = ()

    def load(self) -> Callable:
        """Import it; an ``ImportError`` or ``AttributeError`` where that cannot be."""
        if self.package == "mamba-ssm":  # imported there, used by none of the Triton kernels
            sys.modules.setdefault("selective_scan_cuda", ModuleType("selective_scan_cuda"))
        module, _, name = self.name.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        return found(*self.made_with) if self.made_with else found

    def version(self) -> str:
        """As installed; of a package that is only on the path, what it says of itself."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return str(getattr(sys.modules.get(self.name.partition(".")[0]), "__version__", "unknown"))


@dataclass(frozen=True)
class Workload:
    """One public function of ``kernels``.

    draw       (sizes, draws) -> its inputs by name
    call       (function, tensors) -> what it returns, the outputs first
    written    names of inputs as large as the outputs, times ``steps``: what must be written at least
    steps      writes that a token takes
    corrects   whether a write reads the state first
    verified   the operator of ``kernels.verify`` whose cases are this function's
    """

    name: str
    shapes: tuple[Sizes, ...]
    draw: Callable
    call: Callable
    peer: Peer
    written: tuple[str, ...]
    verified: str
    passes: tuple[str, ...] = ("forward", "forward+backward")
    steps: int = 1
    corrects: bool = False

    def inputs(self, sizes: Sizes, device, dtype: torch.dtype, seed: int = 0) -> Tensors:
        return self.draw(sizes, Draws(device, dtype, seed))

    def bytes_moved(self, tensors: Tensors, which: str) -> int:
        """Each input read once and each output written once; the backward pass reads the inputs again, and the
        incoming gradient, and writes a gradient for each input."""
        read, written = (
            sum(map(held, tensors.values())),
            sum(held(tensors[name]) for name in self.written) // self.steps,
        )
        return read + written + (2 * read + written if which == "forward+backward" else 0)

    def flops(self, sizes: Sizes, which: str) -> int:
        """Products with the state alone, which no algorithm of a linear cost in T avoids, two operations each:
        a read, and for each write one or, if it corrects, two; backwards each twice, for what is multiplied."""
        state = sizes.get("K", sizes.get("N")) * sizes.get("V", sizes.get("P"))
        products = (1 + self.steps * (1 + self.corrects)) * (3 if which == "forward+backward" else 1)
        return 2 * sizes["B"] * sizes["T"] * sizes["H"] * state * products


def held(x: torch.Tensor) -> int:
    """Bytes of memory behind a tensor: an expanded axis is there once."""
    count = 1
    for size, stride in zip(x.shape, x.stride()):
        count *= size if stride else min(size, 1)
    return count * x.element_size()


class Draws:
    """Random inputs on a device, in the dtype under test or in float32; on "meta" their shapes alone."""

    def __init__(self, device, dtype: torch.dtype, seed: int):
        self.dtype, self.device = dtype, torch.device(device)
        self.generator = None if self.device.type == "meta" else torch.Generator(self.device).manual_seed(seed)

    def normal(self, *shape: int) -> torch.Tensor:
        return self.float32(*shape).to(self.dtype)

    def unit(self, *shape: int) -> torch.Tensor:
        return F.normalize(self.float32(*shape), dim=-1).to(self.dtype)

    def float32(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=torch.float32)

    def log_decay(self, *shape: int) -> torch.Tensor:
        return F.logsigmoid(self.float32(*shape) + 3)


# --- Shapes ---

_HEADLINE = dict(B=2, T=8192, H=16, K=128, V=128)
_CHUNKED = (
    _HEADLINE,
    *(  # those of FLA's own benchmark
        dict(B=B, T=T, H=H, K=D, V=D)
        for B, T, H, D in (
            (1, 8192, 96, 128),
            (2, 16384, 16, 128),
            (4, 2048, 16, 128),
            (4, 4096, 64, 128),
            (8, 2048, 32, 256),
            (8, 1024, 8, 64),
        )
    ),
)
_GATED_DELTA = (
    *_CHUNKED,
    *(
        dict(B=B, T=T, H=H, K=128, V=128)
        for B, T, H in ((1, 8192, 16), (8, 2048, 16), (1, 32768, 16), (1, 8192, 64), (1, 32768, 8))
    ),
    dict(B=1, T=8192, H=64, HQ=16, K=128, V=128),  # for which the hand-written libraries publish times
)
_SSD = (dict(B=2, T=8192, H=32, P=64, N=128, G=1),)
_DECODE = tuple(dict(B=B, T=1, H=32, K=128, V=128) for B in (256, 1, 8, 64))
_SSD_DECODE = tuple(dict(B=B, T=1, H=32, P=128, N=128, G=1) for B in (256, 1, 8, 64))


# --- Inputs ---


def _qkv(s: Sizes, r: Draws) -> Tensors:
    B, T, H, K, V = (s[name] for name in "BTHKV")
    HQ = s.get("HQ", H)
    return {"q": r.normal(B, T, HQ, K), "k": r.unit(B, T, HQ, K), "v": r.normal(B, T, H, V)}


def _by_head(s: Sizes, r: Draws) -> Tensors:
    return _qkv(s, r) | {"g": r.log_decay(s["B"], s["T"], s["H"])}


def _by_channel(s: Sizes, r: Draws) -> Tensors:
    return _qkv(s, r) | {"g": r.log_decay(s["B"], s["T"], s["H"], s["K"])}


def _beta(draw: Callable) -> Callable:
    return lambda s, r: draw(s, r) | {"beta": torch.sigmoid(r.float32(s["B"], s["T"], s["H"]))}


def _two_steps(s: Sizes, r: Draws) -> Tensors:
    """DeltaProduct's: two keys, values and strengths a token."""
    drawn = _beta(_by_head)(s | {"T": 2 * s["T"]}, r)
    return drawn | {name: drawn[name][:, ::2].contiguous() for name in "qg"}


def _erase_and_write(s: Sizes, r: Draws) -> Tensors:
    gates = {"b": s["K"], "w": s["V"]}
    return _by_channel(s, r) | {
        n: torch.sigmoid(r.float32(s["B"], s["T"], s["H"], D)).to(r.dtype) for n, D in gates.items()
    }


def _mlstm(s: Sizes, r: Draws) -> Tensors:
    gates = s["B"], s["T"], s["H"]
    return _qkv(s, r) | {"i": r.float32(*gates), "f": r.float32(*gates) + 3}


def _with_state(draw: Callable) -> Callable:
    def drawn(s: Sizes, r: Draws) -> Tensors:
        return draw(s, r) | {"initial_state": r.float32(s["B"], s["H"], s["K"], s["V"])}

    return drawn


def _mlstm_with_state(s: Sizes, r: Draws) -> Tensors:
    B, H, K = s["B"], s["H"], s["K"]
    return _with_state(_mlstm)(s, r) | {"n": r.float32(B, H, K), "m": r.float32(B, H)}


def _rates(s: Sizes, r: Draws) -> torch.Tensor:
    return -1 - r.float32(s["H"]).abs()


def _ssd(s: Sizes, r: Draws) -> Tensors:
    B, T, H, P, N, G = (s[name] for name in "BTHPNG")
    step = F.softplus(r.float32(B, T, H) - 4)
    return {
        "x": r.normal(B, T, H, P),
        "dt": step,
        "A": _rates(s, r),
        "B": r.unit(B, T, G, N),
        "C": r.normal(B, T, G, N),
    }


def _ssd_with_state(s: Sizes, r: Draws) -> Tensors:
    """One number a head is passed expanded, as mamba_ssm's layer does; its function wants D and dt_bias."""
    B, H, P, N, G = (s[name] for name in "BHPNG")
    return {
        "state": r.float32(B, H, P, N),
        "x": r.normal(B, H, P),
        "dt": (r.float32(B, H) - 4)[..., None].expand(B, H, P),
        "A": _rates(s, r)[:, None, None].expand(H, P, N),
        "B": r.unit(B, G, N),
        "C": r.normal(B, G, N),
        "D": r.float32(H)[:, None].expand(H, P),
        "dt_bias": r.float32(H)[:, None].expand(H, P),
    }


# --- Calls ---


def _in_order(function, tensors):
    return function(*tensors.values())


def _decoded(function, tensors):
    *given, state = tensors.values()
    return function(*given, initial_state=state, output_final_state=True)


def _product(function, tensors):
    return function(**tensors, num_householder=2)


def _decoded_by_name(function, tensors):
    return function(**tensors, output_final_state=True)


def _mlstm_decoded(function, tensors):
    *given, S, n, m = tensors.values()
    return function(*given, initial_state=(S, n, m), output_final_state=True)


def _chunk_scan(function, tensors):
    return function(*tensors.values(), 256)


def _updated(function, tensors):
    return function(**tensors, dt_softplus=True)


def _chunkwise(function, tensors):
    return function(*tensors.values(), return_last_states=False, chunk_size=128)


def _stepped(function, tensors):
    return function(**tensors)


# --- Layouts ---


def _heads_first(tensors: Tensors) -> Tensors:
    return {name: x.transpose(1, 2).contiguous() for name, x in tensors.items()}


def _one_step(tensors: Tensors) -> Tensors:
    """(B, H, ·) without a time axis; gates and m (B, H, 1); the state is c, n, m."""
    q, k, v, i, f, S, n, m = tensors.values()
    step = {name: x[:, 0] for name, x in {"q": q, "k": k, "v": v}.items()}
    return step | {"i": i[:, 0, :, None], "f": f[:, 0, :, None], "c": S, "n": n, "m": m[..., None]}


def _fla(path: str, call: Callable) -> Peer:
    return Peer(f"fla.ops.{path}", "fla-core", call)


_DELTA = {
    "delta_rule": _beta(_qkv),
    "gated_delta_rule": _beta(_by_head),
    "kda": _beta(_by_channel),
    "gdn2": _erase_and_write,
}
_CHUNK_OF = dict(call=_in_order, written=("v",), shapes=_CHUNKED)
_DECODE_OF = dict(passes=("decode",))
WORKLOADS = [
    Workload(
        "chunk_simple_gla",
        draw=_by_head,
        peer=_fla("simple_gla.chunk_simple_gla", _in_order),
        verified="chunk_simple_gla",
        **_CHUNK_OF,
    ),
    Workload("chunk_gla", draw=_by_channel, peer=_fla("gla.chunk_gla", _in_order), verified="chunk_gla", **_CHUNK_OF),
    Workload(
        "chunk_retention",
        draw=_qkv,
        peer=_fla("retention.chunk_retention", _in_order),
        verified="chunk_simple_gla",
        **_CHUNK_OF,
    ),
    Workload(
        "chunk_mlstm",
        draw=_mlstm,
        peer=Peer(
            "mlstm_kernels.torch.chunkwise.triton_xl_chunk.mlstm_chunkwise__xl_chunk",
            "mlstm-kernels",
            _chunkwise,
            _heads_first,
        ),
        verified="chunk_mlstm",
        **_CHUNK_OF,
    ),
    Workload(
        "mamba_chunk_scan_combined",
        shapes=_SSD,
        draw=_ssd,
        call=_chunk_scan,
        peer=Peer("mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined", "mamba-ssm", _chunk_scan),
        written=("x",),
        verified="mamba_chunk_scan_combined",
    ),
    *(
        Workload(
            f"chunk_{name}",
            draw=draw,
            peer=_fla(f"{name}.chunk_{name}", _in_order),
            verified=f"chunk_{name}",
            corrects=True,
            **_CHUNK_OF | dict(shapes=_GATED_DELTA if name == "gated_delta_rule" else _CHUNKED),
        )
        for name, draw in _DELTA.items()
    ),
    Workload(
        "chunk_gated_delta_product",
        draw=_two_steps,
        call=_product,
        peer=_fla("gated_delta_product.chunk_gated_delta_product", _product),
        written=("v",),
        steps=2,
        corrects=True,
        shapes=(_HEADLINE,),
        verified="chunk_gated_delta_product",
    ),
    *(
        Workload(
            f"fused_recurrent_{name}",
            shapes=_DECODE,
            draw=_with_state(draw),
            call=_decoded_by_name,
            peer=_fla(f"{name}.fused_recurrent_{name}", _decoded_by_name),
            written=("v", "initial_state"),
            verified=f"fused_recurrent_{name}",
            corrects=True,
            **_DECODE_OF,
        )
        for name, draw in _DELTA.items()
    ),
    Workload(
        "fused_recurrent_simple_gla",
        shapes=_DECODE,
        draw=_with_state(_by_head),
        call=_decoded,
        peer=_fla("simple_gla.fused_recurrent_simple_gla", _decoded),
        written=("v", "initial_state"),
        verified="fused_recurrent_simple_gla",
        **_DECODE_OF,
    ),
    Workload(
        "fused_recurrent_gla",
        shapes=_DECODE,
        draw=_with_state(_by_channel),
        call=_decoded,
        peer=_fla("gla.fused_recurrent_gla", _decoded),
        written=("v", "initial_state"),
        verified="fused_recurrent_gla",
        **_DECODE_OF,
    ),
    Workload(
        "fused_recurrent_mlstm",
        shapes=_DECODE,
        draw=_mlstm_with_state,
        call=_mlstm_decoded,
        peer=Peer(
            "mlstm_kernels.torch.get_mlstm_step_kernel", "mlstm-kernels", _stepped, _one_step, made_with=("triton",)
        ),
        written=("v", "initial_state", "n", "m"),
        verified="fused_recurrent_mlstm",
        **_DECODE_OF,
    ),
    Workload(
        "selective_state_update",
        shapes=_SSD_DECODE,
        draw=_ssd_with_state,
        call=_updated,
        peer=Peer("mamba_ssm.ops.triton.selective_state_update.selective_state_update", "mamba-ssm", _updated),
        written=("x", "state"),
        verified="selective_state_update",
        **_DECODE_OF,
    ),
]
