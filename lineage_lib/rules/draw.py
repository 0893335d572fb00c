"""Streams for a rule's inputs, the same for tests, benchmarks and figures."""

import torch

from lineage_lib.rules.record import Rule

Tensor = torch.Tensor


def draw(rule: Rule, sizes: dict[str, int], *, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Random tensors for every input of ``rule``: decays that let the state survive, keys of unit length.

    ``sizes`` has B, T, H, K, V, and HV and G where they differ from H; the other letters follow
    (N = K, P = V, D = V, R = K // 2, T*n = T times the rule's number of steps).

    >>> from lineage_lib.rules import RULES
    >>> [tuple(t.shape) for t in draw(RULES["deltanet"], {"B": 1, "T": 5, "H": 2, "K": 4, "V": 3})]
    [(1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 3), (1, 5, 2)]
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = {"HV": sizes["H"], "G": sizes["H"], "N": sizes["K"], "P": sizes["V"], "D": sizes["V"], **sizes}
    sizes.setdefault("R", sizes["K"] // 2)
    sizes.setdefault("T*n", sizes["T"] * rule.substeps)
    tensors = []
    for spec in rule.inputs:
        shape = [sizes[letter] for letter in spec.axes.split()]
        tensors.append(_KINDS[spec.kind](shape, generator).to(_complex(dtype) if "complex" in spec.kind else dtype))
    return tensors


def _normal(shape: list[int], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _uniform(low: float, high: float):
    return lambda shape, generator: low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _unit(shape: list[int], generator: torch.Generator) -> Tensor:
    return torch.nn.functional.normalize(_normal(shape, generator), dim=-1)


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


_KINDS = {
    "vector": _normal,
    "key": _unit,
    "log-decay": _uniform(-0.2, 0.0),
    "gate": _uniform(0.0, 1.0),
    "strength": _uniform(0.0, 1.0),
    "preactivation": _normal,
    "step": _uniform(0.05, 0.5),
    "rate": _uniform(-1.0, -0.1),
    "weight": _normal,
    "angle": _uniform(-3.0, 3.0),
    "complex": lambda shape, generator: torch.complex(_normal(shape, generator), _normal(shape, generator)),
    "complex rate": lambda shape, generator: torch.complex(
        _uniform(-1.0, -0.1)(shape, generator), 3 * _normal(shape, generator)
    ),
}
