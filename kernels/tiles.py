"""Tile sizes by shape: a few rules found by timing on an H200, no tuning on a call.

The walks over chunks wait for one product after another, so a GPU is full when it has about a program a
multiprocessor (132 on Hopper), not more; where heads and sequences are too few, segments make up for it.
"""

from typing import NamedTuple

import torch
import triton


class WalkTiles(NamedTuple):
    """C tokens a chunk, BK × BV the tile of the state."""

    C: int
    BK: int
    BV: int
    SEGMENTS: int
    WARPS: int
    STAGES: int


PROGRAMS = 96  # that a walk should have at least
BORDERS = 1024  # tokens between the borders at which the sum for the gates' gradient starts afresh


def walk_tiles(states: int, T: int, K: int, V: int, dtype: torch.dtype) -> WalkTiles:
    """For ``states`` states K × V, each of T tokens.

    The state's tile is in registers, 64 of each thread's: 16,384 numbers for 8 warps. Keys as wide as 256, and
    float32, whose products take more registers and shared memory, have half or a quarter of that.
    """
    wide = dtype == torch.float32
    C, BK = 32 if wide else 64, max(16, triton.next_power_of_2(K))
    BV = max(16, min(triton.next_power_of_2(V), (4096 if wide else 16384) // BK))
    programs = states * triton.cdiv(V, BV)
    segments = 1
    while programs * segments < PROGRAMS and 2 * segments * 8 * C <= T:  # at least eight chunks in each
        segments *= 2
    return WalkTiles(C, BK, BV, segments, 8 if BV * BK >= 16384 else 4, 2 if BK > 128 else 3)


def recur_tiles(states: int, V: int) -> tuple[int, int]:
    """(values in a tile, warps): small tiles while there are few states, so that every multiprocessor has work."""
    width = 8 if states <= 64 else 32 if states < 512 else 64
    BV = min(triton.next_power_of_2(V), width)
    return BV, 4 if BV >= 32 else 1
