"""Vectors divided by their lengths, for queries and keys: one launch each way instead of six torch operations."""

import torch
import triton
import triton.language as tl

from kernels.arguments import last_contiguous, on

EPSILON = tl.constexpr(1e-6)  # FLA's, under the root: a vector of zeros stays one
ROWS = 16


@triton.jit
def normalise(x, dy, out, rows, T, H, x_b, x_t, x_h, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr):
    """One program: ROWS vectors of x, or with ``dy``, contiguous, the gradients of ROWS."""
    row, o_d = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BD)
    i_t = row // H
    p_x = x + i_t // T * x_b + i_t % T * x_t + row % H * x_h
    m, at = (row < rows)[:, None] & (o_d < D)[None, :], row[:, None] * D + o_d[None, :]
    b_x = tl.load(p_x[:, None] + o_d[None, :], mask=m, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(b_x * b_x, 1) + EPSILON)[:, None]
    b_y = b_x * r
    if dy is not None:
        b_dy = tl.load(dy + at, mask=m, other=0.0).to(tl.float32)
        b_y = r * (b_dy - b_y * tl.sum(b_y * b_dy, 1)[:, None])
    tl.store(out + at, b_y.to(out.dtype.element_ty), mask=m)


def _launch(x, dy=None):
    B, T, H, D = x.shape
    out, rows = torch.empty(x.shape, dtype=x.dtype, device=x.device), B * T * H
    with on(x):
        normalise[(triton.cdiv(rows, ROWS),)](
            x, dy, out, rows, T, H, *x.stride()[:3], D, triton.next_power_of_2(D), ROWS
        )
    return out


class UnitLength(torch.autograd.Function):
    """x / √(Σ x² + 1e-6) over the last axis of (B, T, H, D)."""

    @staticmethod
    def forward(ctx, x):
        x = last_contiguous(x)
        ctx.save_for_backward(x)
        return _launch(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return _launch(*ctx.saved_tensors, dy.contiguous())
