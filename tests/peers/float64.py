"""Runs a peer in float64.

Peers cast what they are given to float32 first, and a wrong epsilon or a small term left out then hides
in the rounding. Inside :func:`float64` every cast to float32 is one to float64, so the same code,
unchanged, is compared at float64's precision.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor


class _Raised(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = [_raise(a) for a in args]
        kwargs = {name: _raise(a) for name, a in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _raise(argument):
    return torch.float64 if argument is torch.float32 else argument


@contextmanager
def float64() -> Iterator[None]:
    """Casts to float32, and new tensors of no given dtype, are float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Raised():
            yield
    finally:
        torch.set_default_dtype(before)
