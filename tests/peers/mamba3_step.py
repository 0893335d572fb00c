"""mamba_ssm's Mamba-3 decoding kernel on the CPU.

The package has no torch form of Mamba-3, so its Triton kernel runs under Triton's interpreter. What
the interpreter cannot do is put in its place: sine, cosine and tanh as PTX instructions are Triton's own
functions, the tuner, which needs a GPU, is left out, and the kernel's output, a product in bfloat16, is
not used: state and rotated query, both float32, are what is read.
"""

import importlib
import os
from collections.abc import Callable

import torch
import triton
import triton.language as tl

MODULE = "mamba_ssm.ops.triton.mamba3.mamba3_siso_step"


def interpreted_step() -> Callable:
    """The package's ``mamba3_siso_step``; kernels are interpreted that are defined while the variable is set."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        module = importlib.import_module(MODULE)
        module.cos_approx, module.sin_approx = triton.jit(_cos), triton.jit(_sin)
        module.tanh_approx, module.sigmoid_approx = triton.jit(_tanh), triton.jit(_sigmoid)
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
    module.mamba3_siso_step_kernel = module.mamba3_siso_step_kernel.fn
    return module.mamba3_siso_step


def _cos(x):
    return tl.cos(x)


def _sin(x):
    return tl.sin(x)


def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


def _tanh(x):
    return 2 / (1 + tl.exp(-2 * x)) - 1


def run(step: Callable, x, dt, A, trap, B, C, angles, D, state) -> tuple[torch.Tensor, tuple]:
    """Token by token: y (B, T, H, P) and the kernel's last state (angle, S (B, H, P, N), B, x).

    dt, A, trap (B, T, H), trap before its sigmoid, angles (B, T, H, R) before their tanh.
    """
    zero, y = torch.zeros_like(B[0, 0].expand(x.shape[2], -1)).contiguous(), []
    for t in range(x.shape[1]):

        def token(key, state, t=t):
            gates = (dt[:, t] * A[:, t], dt[:, t], trap[:, t])
            tensors = [m.contiguous() for m in (C[:, t], key[:, t], x[:, t], *gates)]
            return step(*tensors, zero, zero, angles[:, t].contiguous(), None, None, state)[1]

        query = token(C, state)[2]  # the kernel turns a key as it turns the query
        state = token(B, state)
        y.append((state[1] @ query[..., None])[..., 0] + D[:, None] * x[:, t])
    return torch.stack(y, 1), state
