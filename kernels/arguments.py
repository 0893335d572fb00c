"""What every public function does before and after its kernels: checks, layouts, groups of heads."""

import contextlib

import torch

import kernels
from lineage_lib.tensors import real_tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Sizes(dict):
    """The length of each named axis of the arguments; disagreement is an error that names the argument.

    Values are not looked at: that would make the device wait.
    """

    def __init__(self, **tensors: tuple):
        super().__init__()
        self._device: tuple[str, torch.device] | None = None
        self.take(**tensors)
        for many, few in (("HV", "H"), ("H", "G")):
            if many in self and few in self and self[many] % max(self[few], 1):
                raise ValueError(
                    f"expected the {many} heads to be a multiple of the {few} heads, got {self[many]} and {self[few]}"
                )

    def add_states(self, cu_seqlens: torch.Tensor | None, **tensors: tuple) -> torch.Tensor | None:
        """N sequences, B or those packed into a batch of 1, and the arguments that have an axis for them.

        Returns ``cu_seqlens`` as the kernels read it, contiguous.
        """
        if cu_seqlens is None:
            self["N"] = self["B"]
        else:
            if not isinstance(cu_seqlens, torch.Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
                kind = cu_seqlens.dtype if isinstance(cu_seqlens, torch.Tensor) else type(cu_seqlens).__name__
                raise TypeError(f"cu_seqlens: expected an int32 or int64 tensor, got {kind}")
            if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2:
                raise ValueError(f"cu_seqlens: expected shape (N + 1,) with N >= 1, got {tuple(cu_seqlens.shape)}")
            if self["B"] != 1:
                raise ValueError(f"cu_seqlens: packed sequences need a batch of 1, got B = {self['B']}")
            self._same_device("cu_seqlens", cu_seqlens)
            self["N"], cu_seqlens = len(cu_seqlens) - 1, cu_seqlens.contiguous()
        self.take(**tensors)
        return cu_seqlens

    def take(self, **tensors: tuple) -> None:
        """name=(tensor or None, "B T H K"): checked, and its sizes taken down."""
        for name, (value, axes) in tensors.items():
            if value is None:
                continue
            real_tensor(name, value, axes, self)
            self._same_device(name, value)

    def whole_numbers(self, **tensors: tuple) -> list[torch.Tensor | None]:
        """name=(tensor or None, "B T") of an integer dtype: checked, contiguous."""
        for name, (value, axes) in tensors.items():
            if value is None:
                continue
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.dtype == torch.bool:
                kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(f"{name}: expected a tensor of whole numbers, got {kind}")
            shape = tuple(self[axis] for axis in axes.split())
            if value.shape != shape:
                raise ValueError(
                    f"{name}: expected shape ({axes.replace(' ', ', ')}) = {shape}, got {tuple(value.shape)}"
                )
            self._same_device(name, value)
        return [value if value is None else value.contiguous() for value, _ in tensors.values()]

    def _same_device(self, name: str, value: torch.Tensor) -> None:
        if not (value.is_cuda or kernels.INTERPRETED):
            raise ValueError(f"{name}: expected it on a GPU, got {value.device}; TRITON_INTERPRET=1 would interpret")
        self._device = self._device or (name, value.device)
        if value.device != self._device[1]:
            first, device = self._device
            raise ValueError(f"{name}: expected it on {device}, as {first} is, got {value.device}")


def in_dtype_of(v: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
    """The others in v's dtype: a kernel multiplies tensors of one dtype, v's, which the outputs have too."""
    if v.dtype not in DTYPES:
        raise TypeError(f"v: expected float32, float16 or bfloat16, got {v.dtype}; lineage_lib.chunked takes float64")
    return [x.to(v.dtype) for x in others]


def on(x: torch.Tensor):
    """Launches inside go to the device that x is on."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def last_contiguous(x: torch.Tensor) -> torch.Tensor:
    """x itself if its last axis is contiguous, as the kernels read it, else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def over_group(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A gradient (B, T, HV, D) summed over the heads that share one of ``like``'s (B, T, H, D), in its dtype."""
    H, HV = like.shape[2], gradient.shape[2]
    if H == HV:
        return gradient
    return gradient.unflatten(2, (H, HV // H)).sum(3, dtype=torch.float32).to(like.dtype)


def states_of(q, v, s0, with_state, v_first, cu_seqlens) -> dict:
    """What a walk is told of states, (N, HV, K, V) or with ``v_first`` (N, HV, V, K): ``s_in`` in float32 or None,
    ``s_out`` to be written, if one is wanted, and how far a key and a value are apart in both."""
    (B, _, _, K), (HV, V), s_out = q.shape, v.shape[2:], None
    if with_state:
        N = B if cu_seqlens is None else len(cu_seqlens) - 1
        s_out = torch.empty(N, HV, *((V, K) if v_first else (K, V)), dtype=torch.float32, device=q.device)
    s_in = None if s0 is None else s0.float().contiguous()
    return dict(s_in=s_in, s_out=s_out, s_strides=(1, K) if v_first else (V, 1), cu_seqlens=cu_seqlens)


def written_later(cu_seqlens, *shape, **how) -> torch.Tensor:
    """An empty tensor for a kernel to write; zeros where tokens may belong to no packed sequence."""
    return (torch.empty if cu_seqlens is None else torch.zeros)(*shape, **how)


def not_offered(**arguments) -> None:
    """Refuse by name what FLA takes at this place and these functions do not."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name}: not offered here, got {type(value).__name__}; leave it out")
