"""What every recurrent form does before, in and after its loop over the tokens."""

from collections.abc import Sequence

import torch

from lineage_lib.tensors import real_tensor, working_dtype

Tensor = torch.Tensor


def take(sizes: dict[str, int], **tensors: tuple) -> list[Tensor | None]:
    """Checked arguments in one working dtype: float64 if any is float64, else float32.

    Each is name=(tensor, "B T H K") or, for what may be complex, name=(tensor, "P N", complex); None
    stays None. A multiple of H heads is demanded of HV, of G's multiple of H.
    """
    given = {
        name: real_tensor(name, value, axes, sizes, complex_too=bool(rest))
        for name, (value, axes, *rest) in tensors.items()
        if value is not None
    }
    for many, few in (("HV", "H"), ("H", "G")):
        if many in sizes and few in sizes and sizes[many] % max(sizes[few], 1):
            raise ValueError(
                f"expected the {many} heads to be a multiple of the {few} heads, got {sizes[many]} and {sizes[few]}"
            )
    dtype = working_dtype(*given.values())
    return [
        given[name].to(dtype.to_complex() if given[name].is_complex() else dtype) if name in given else None
        for name in tensors
    ]


def start(sizes: dict[str, int], name: str, state: Tensor | None, axes: str, like: Tensor) -> Tensor:
    """A state before the first token: the one given, checked, or zeros, in ``like``'s dtype."""
    if state is None:
        return like.new_zeros([sizes[letter] for letter in axes.split()])
    return real_tensor(name, state, axes, sizes, complex_too=like.is_complex()).to(like.dtype)


def several(initial_state, number: int, names: str) -> Sequence[Tensor | None]:
    """The parts of a state that has ``number`` of them, all None when there is no initial state."""
    if initial_state is None:
        return (None,) * number
    if not isinstance(initial_state, Sequence) or len(initial_state) != number:
        raise TypeError(f"initial_state: expected a tuple ({names}), got {type(initial_state).__name__}")
    return initial_state


def scaled(q: Tensor, scale: float | None) -> Tensor:
    return q * (q.shape[-1] ** -0.5 if scale is None else scale)


def heads(x: Tensor, number: int) -> Tensor:
    """x (B, T, H, K) with each head repeated for the value heads that it serves."""
    return x if x.shape[2] == number else x.repeat_interleave(number // x.shape[2], 2)


def outer(k: Tensor, v: Tensor) -> Tensor:
    """k vᵀ: (B, H, K) and (B, H, V) -> (B, H, K, V)."""
    return k[..., :, None] * v[..., None, :]


def read(S: Tensor, q: Tensor) -> Tensor:
    """Sᵀ q: (B, H, K, V) and (B, H, K) -> (B, H, V)."""
    return (S.mT @ q[..., None])[..., 0]


def stack(outputs: list[Tensor], like: Tensor) -> Tensor:
    """The tokens' outputs on the time axis, in ``like``'s dtype; for no token, ``like``, which has none."""
    return torch.stack(outputs, 1).to(like.dtype) if outputs else like.clone()


def skip(y: Tensor, x: Tensor, D: Tensor | None) -> Tensor:
    """y + D x, a state space model's skip; y itself without one."""
    return y if D is None else y + D * x
