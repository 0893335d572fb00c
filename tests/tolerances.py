"""What may differ between two forms: relative size of the error, by dtype, length and what is compared."""

import torch

# Outputs and states; gradients of tensors count twice this, gradients of gates three times.
ROLES = {"output": 1, "gradient": 2, "gate gradient": 3}


def allowed(dtype: torch.dtype, T: int, role: str = "output", *, reflections: bool = False) -> float:
    """The largest RMS(error) / RMS(expected): float32 as a kernel's, float64 by the roundings of T steps.

    reflections: transitions of eigenvalue -1, which forget no rounding. What a token erases is a product
    of rounded numbers (erase key, key, decays), the same at every step where keys repeat: their errors add
    up over T steps. 5 T roundings are allowed; 2.8e-4 of these 1.2e-3 was seen at T = 4096.
    """
    base = 1e-5 if dtype == torch.float32 else min(1e-10, 1e-13 * max(T, 1) ** 0.5)
    if reflections and dtype == torch.float32:
        base = max(base, 5 * T * 2.0**-24)
    return base * ROLES[role]


def ratio(got: torch.Tensor, expected: torch.Tensor) -> float:
    """RMS(got − expected) / RMS(expected); infinite when a number is not finite, 0 for two empty tensors."""
    assert got.shape == expected.shape, f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}"
    if got.numel() == 0:
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, expected = got.detach().to(wide), expected.detach().to(wide)
    if not (torch.isfinite(got).all() and torch.isfinite(expected).all()):
        return float("inf")
    size = expected.abs().square().mean().sqrt().item()
    error = (got - expected).abs().square().mean().sqrt().item()
    return error / size if size > 0 else error
