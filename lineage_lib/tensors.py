"""As :mod:`lineage_lib.validate`, for PyTorch: what checks NumPy arrays need not load it."""

import torch

from lineage_lib.validate import sized


def real_tensor(name: str, value, axes: str, sizes: dict[str, int], *, complex_too: bool = False) -> torch.Tensor:
    """``value`` itself, a floating torch tensor whose axes are named by ``axes``, e.g. ``"B T H K"``.

    ``sizes`` as in :func:`real_array`. Raises ``TypeError`` for anything but a floating (or, on
    request, complex) tensor, ``ValueError`` for a wrong number of axes or a size that disagrees.

    >>> sizes = {}
    >>> real_tensor("q", torch.zeros(2, 5, 1, 3), "B T H K", sizes).shape, sizes["K"]
    (torch.Size([2, 5, 1, 3]), 3)
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch tensor, got {type(value).__name__}")
    if not (value.is_floating_point() or (complex_too and value.is_complex())):
        raise TypeError(f"{name}: expected floating-point numbers, got {value.dtype}")
    sized(name, tuple(value.shape), axes, sizes)
    return value


def log_decay(name: str, g: torch.Tensor) -> torch.Tensor:
    """``g`` itself, or a ``ValueError`` for the first log-decay above 0 or NaN. -inf, a reset, is one."""
    return _all(name, g, g.detach() <= 0, "log-decays of at most 0")


def step_size(name: str, dt: torch.Tensor) -> torch.Tensor:
    """``dt`` itself, or a ``ValueError`` for the first step below 0 or NaN."""
    return _all(name, dt, dt.detach() >= 0, "steps of at least 0")


def _all(name: str, value: torch.Tensor, good: torch.Tensor, expected: str) -> torch.Tensor:
    if not good.all():
        index = tuple(int(i) for i in (~good).nonzero()[0])
        raise ValueError(f"{name}: expected {expected}, got {value[index].item():.6g} at index {list(index)}")
    return value


def working_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """float64 when any of the tensors is, else float32: the precision in which a layer computes."""
    wide = (torch.float64, torch.complex128)
    return torch.float64 if any(t.dtype in wide for t in tensors) else torch.float32
