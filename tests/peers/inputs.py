"""What is drawn for each rule: arguments of our reference function, by name, in our layout.

Every value fits into float32, so that a peer that casts sees the numbers that we see. The number of
key channels differs from that of value channels, keys are of unit length where a rule corrects,
and decays leave most of the state after a chunk.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from tests.peers.float64 import Tensor

B, H, K, V = 2, 2, 8, 5
Inputs = dict[str, object]


@dataclass(frozen=True)
class Draw:
    """Random tensors for T tokens and HV value heads."""

    T: int
    HV: int
    generator: torch.Generator

    @classmethod
    def of(cls, name: str, T: int, HV: int) -> "Draw":
        return cls(T, HV, torch.Generator().manual_seed(zlib.crc32(name.encode())))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float32).double()

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        x = low + (high - low) * torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return x.float().double()

    def unit(self, *shape: int) -> Tensor:
        return F.normalize(self.normal(*shape), dim=-1).float().double()

    def qkv(self, width: int = V) -> Inputs:
        return {
            "q": self.normal(B, self.T, H, K),
            "k": self.normal(B, self.T, H, K),
            "v": self.normal(B, self.T, self.HV, width),
        }

    def state(self, width: int = V) -> Tensor:
        return self.normal(B, self.HV, K, width)

    def unit_qkv(self) -> Inputs:
        return {**self.qkv(), "k": self.unit(B, self.T, H, K)}

    def log_decays(self, *channels: int) -> Tensor:
        return self.uniform(-0.1, 0.0, B, self.T, self.HV, *channels)


def linear_attn(d: Draw) -> Inputs:
    return {**d.qkv(), "initial_state": d.state()}


def normalised_linear_attn(d: Draw) -> Inputs:
    """Positive features, as the division needs them; the feature map is the caller's."""
    features = {name: d.uniform(0.1, 1.0, B, d.T, H, K) for name in "qk"}
    return {
        **d.qkv(),
        **features,
        "normalize": True,
        "initial_state": (d.state(), d.uniform(0.1, 1.0, B, d.HV, K)),
    }


def lightning_attn(d: Draw) -> Inputs:
    """MiniMax has one width for keys and values."""
    return {**d.qkv(K), "layer": 1, "num_layers": 4, "scale": 1.0, "initial_state": d.state(K)}


def simple_gla(d: Draw) -> Inputs:
    return {**d.qkv(), "g": d.log_decays(), "initial_state": d.state()}


def gla(d: Draw) -> Inputs:
    return {**d.qkv(), "g": d.log_decays(K), "initial_state": d.state()}


def rwkv5(d: Draw) -> Inputs:
    w, u = d.uniform(-0.1, 0.0, H, K), d.normal(H, K)
    return {**_receptance(d.qkv()), "w": w, "u": u, "initial_state": d.state()}


def rwkv6(d: Draw) -> Inputs:
    return {**_receptance(d.qkv()), "w": d.log_decays(K), "u": d.normal(H, K), "initial_state": d.state()}


def rwkv7(d: Draw) -> Inputs:
    """FLA's forms scale the receptance by K ** -0.5."""
    return {
        **_receptance(d.qkv()),
        "w": d.log_decays(K),
        "kappa": d.unit(B, d.T, H, K),
        "a": d.uniform(0.0, 1.0, B, d.T, H, K),
        "scale": K**-0.5,
        "initial_state": d.state(),
    }


def _receptance(qkv: Inputs) -> Inputs:
    return {"r": qkv["q"], "k": qkv["k"], "v": qkv["v"]}


def delta_rule(d: Draw) -> Inputs:
    return {**d.unit_qkv(), "beta": d.uniform(0.0, 2.0, B, d.T, d.HV), "initial_state": d.state()}


def gated_delta_rule(d: Draw) -> Inputs:
    return {**delta_rule(d), "g": d.log_decays()}


def kda(d: Draw) -> Inputs:
    return {**delta_rule(d), "g": d.log_decays(K)}


def gdn2(d: Draw) -> Inputs:
    return {
        **d.unit_qkv(),
        "g": d.log_decays(K),
        "b": d.uniform(0.0, 1.0, B, d.T, d.HV, K),
        "w": d.uniform(0.0, 1.0, B, d.T, d.HV, V),
        "initial_state": d.state(),
    }


def gated_delta_product(d: Draw, steps: int = 3) -> Inputs:
    return {
        "q": d.normal(B, d.T, H, K),
        "k": d.unit(B, d.T * steps, H, K),
        "v": d.normal(B, d.T * steps, H, V),
        "g": d.log_decays(),
        "beta": d.uniform(0.0, 2.0, B, d.T * steps, H),
        "num_householder": steps,
        "initial_state": d.state(),
    }


def mlstm(d: Draw) -> Inputs:
    state = (d.state(), d.normal(B, d.HV, K), d.normal(B, d.HV))
    return {
        **d.qkv(),
        "i": 2 * d.normal(B, d.T, d.HV),
        "f": 3 + d.normal(B, d.T, d.HV),
        "initial_state": state,
    }


def s4(d: Draw, P: int = 6, N: int = 4) -> Inputs:
    def pairs(real: Tensor) -> Tensor:
        return torch.complex(real, d.normal(P, N))

    return {
        "x": d.normal(B, d.T, P),
        "dt": d.uniform(0.01, 0.2, P),
        "A": pairs(d.uniform(-1.0, -0.1, P, N)),
        "B": pairs(d.normal(P, N)),
        "C": pairs(d.normal(P, N)),
        "D": d.normal(P),
    }


def mamba1(d: Draw, P: int = 6, N: int = 4) -> Inputs:
    return {
        "x": d.normal(B, d.T, P),
        "dt": d.uniform(0.01, 0.2, B, d.T, P),
        "A": d.uniform(-1.0, -0.1, P, N),
        "B": d.normal(B, d.T, N),
        "C": d.normal(B, d.T, N),
        "D": d.normal(P),
        "initial_state": d.normal(B, P, N),
    }


def mamba2(d: Draw, groups: int = 1) -> Inputs:
    return {
        "x": d.normal(B, d.T, H, V),
        "dt": d.uniform(0.01, 0.2, B, d.T, H),
        "A": d.uniform(-1.0, -0.1, H),
        "B": d.normal(B, d.T, groups, K),
        "C": d.normal(B, d.T, groups, K),
        "D": d.normal(H),
        "initial_state": d.normal(B, H, K, V),
    }


def mamba3(d: Draw, P: int = 4) -> Inputs:
    """Half of the key channels turn, by angles within mamba_ssm's ±π; its kernel takes powers of 2."""
    return {
        "x": d.normal(B, d.T, H, P),
        "dt": d.uniform(0.01, 0.2, B, d.T, H),
        "A": d.uniform(-1.0, -0.1, B, d.T, H),
        "lam": d.uniform(0.1, 0.9, B, d.T, H),
        "B": d.normal(B, d.T, 1, K),
        "C": d.normal(B, d.T, 1, K),
        "theta": d.uniform(-0.9 * math.pi, 0.9 * math.pi, B, d.T, H, K // 4),
        "D": d.normal(H),
        "initial_state": (d.normal(B, H, K, P), d.normal(B, H, K), d.normal(B, H, P)),
    }


def rg_lru(d: Draw, blocks: int = 2, width: int = 4) -> Inputs:
    """RecurrentGemma's layer makes the gates from x, block by block; these are its parameters."""
    return {
        "x": d.normal(B, d.T, blocks * width),
        "Lambda": d.uniform(-6.0, -3.0, blocks * width),
        **{f"{gate}_weight": d.normal(blocks, width, width) for gate in ("input", "recurrent")},
        **{f"{gate}_bias": d.normal(blocks, width) for gate in ("input", "recurrent")},
        "initial_state": d.normal(B, blocks * width),
    }


def rg_lru_gates(d: Draw, width: int = 8) -> Inputs:
    return {
        "x": d.normal(B, d.T, width),
        "r": d.uniform(0.0, 1.0, B, d.T, width),
        "i": d.uniform(0.0, 1.0, B, d.T, width),
        "Lambda": d.uniform(-6.0, -3.0, width),
        "initial_state": d.normal(B, width),
    }


Drawer = Callable[[Draw], Inputs]
