"""Exponentials and logarithms where the hardware's alone would be too coarse."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def in_two(x):
    """2^x as 1, or 0 far from 1, and the rest: a state that is faded thousands of times keeps its digits as S + rest S,
    where the rounding of 2^x itself, and the hardware's last digit, would add up, with equal steps to one side."""
    y = tl.maximum(x * LN2, -1.0)  # the series is of numbers near 0
    near = tl.abs(y) < 1 / 16
    series = y * (1.0 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24))))  # what follows is 1e-8
    return tl.where(near, 1.0, 0.0), tl.where(near, series, tl.exp2(x))


@triton.jit
def decay(x):
    """2^x, near 1 rounded to the nearest number."""
    whole, rest = in_two(x)
    return whole + rest


@triton.jit
def log_sigmoid(x):
    """min(x, 0) − log(1 + e), e = exp(−|x|). 1 + e is rounded: the last factor takes that out of its logarithm."""
    e = tl.exp(-tl.abs(x))
    u = 1.0 + e
    return tl.minimum(x, 0.0) - tl.where(u > 1.0, tl.log(u) * (e / tl.maximum(u - 1.0, 1e-7)), e)
