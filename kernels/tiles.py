"""Tile sizes by shape: what ``kernels.tune`` found for this device and shape, else a few rules; no tuning on a call.

The rules were found by timing the walks on an H200 in bf16; float32's are what compiles without giving up on registers.
A walk waits for one product after another, so a GPU is full when each multiprocessor (132 on Hopper) has about 8 warps,
not more; where heads and sequences are too few, segments make up for it.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import triton

from lineage_lib.passport import read_list


class WalkTiles(NamedTuple):
    """BK × BV the tile of the state."""

    BK: int
    BV: int
    SEGMENTS: int
    WARPS: int
    STAGES: int


PROGRAMS = 96  # of 8 warps that a walk should have at least, or twice as many of 4
DELTA_PROGRAMS = 128  # of 4 warps that a walk that corrects has at most, if that takes segments
LEAST = 8  # chunks in a segment


def walk_tiles(states: int, T: int, K: int, V: int, dtype: torch.dtype, kernel: str = "walk") -> WalkTiles:
    """For ``states`` states K × V, each of T tokens, in ``kernel``: the table's, else by rule."""
    if (kernel, K, V) in _instead:
        return _instead[kernel, K, V]
    found = table().get((device_name(), kernel, str(dtype)[6:], K, V, bucket(states))) if table() else None
    if found is None:
        return by_rule(states, T, K, V, dtype, kernel)
    segments = found.SEGMENTS
    while segments > 1 and segments * LEAST * chunk_length(dtype) > T:
        segments //= 2
    return found._replace(SEGMENTS=segments)


def by_rule(states: int, T: int, K: int, V: int, dtype: torch.dtype, kernel: str = "walk") -> WalkTiles:
    """The state's tile is in registers, 64 of each thread's: 16,384 numbers for 8 warps. Keys as wide as 256
    have half of that, and float32 an eighth: its products are three, and with more ptxas gives up on registers.
    """
    wide = dtype == torch.float32
    C, BK = chunk_length(dtype), max(16, triton.next_power_of_2(K))
    if kernel.startswith("delta"):
        return _delta_rule(states, T, C, BK, V, wide, kernel)
    BV = max(16, min(triton.next_power_of_2(V), (2048 if wide else 16384) // BK))
    warps = 8 if BV * BK >= 16384 else 4
    programs, segments = states * triton.cdiv(V, BV) * warps // 8, 1
    while programs * segments < PROGRAMS and 2 * segments * LEAST * C <= T:
        segments *= 2
    return WalkTiles(BK, BV, segments, warps, 2 if BK > 128 else 3)


def _delta_rule(states: int, T: int, C: int, BK: int, V: int, wide: bool, kernel: str) -> WalkTiles:
    """Rules that correct have twice the products a step, one waiting for the other, so that one program a
    multiprocessor is best, and what it fetches must be there two steps ahead. 64 values are half the traffic of 32, and
    these are quicker where they fill a GPU alone; so are 8 warps on the way back."""
    BV = max(16, min(triton.next_power_of_2(V), 2048 // BK if wide else 64))
    by_key, back = "_by_key" in kernel, kernel.endswith("_back")
    if BK > 128:
        return WalkTiles(BK, BV, 1, 4, 3) if wide else WalkTiles(BK, min(BV, 32 if back else 64), 1, 8, 2 - by_key)
    fills = DELTA_PROGRAMS * 3 // 4 <= states * triton.cdiv(V, 32) <= DELTA_PROGRAMS
    if BV == 64 and (fills or (by_key and not back)):  # e takes room
        return WalkTiles(BK, 32, _segments(states * triton.cdiv(V, 32), T, C), 8 if back else 4, 3)
    return WalkTiles(BK, BV, _segments(states * triton.cdiv(V, BV), T, C), 4, 3)


def _segments(programs: int, T: int, C: int) -> int:
    segments = 1
    while 2 * programs * segments <= DELTA_PROGRAMS and 2 * segments * LEAST * C <= T:
        segments *= 2
    return segments


def recur_tiles(states: int, V: int, correcting: bool = False) -> tuple[int, int]:
    """(values in a tile, warps): small tiles while there are few states, so that every multiprocessor has work; two
    sums over the keys, ``correcting``, are quicker within few warps."""
    width, warps = (16, 2) if states <= 64 else (32, 2) if states < 512 or correcting else (64, 4)
    return min(triton.next_power_of_2(V), width), warps


def update_tiles(states: int, P: int) -> tuple[int, int]:
    """(channels in a tile, warps) of one step whose sums run over the contiguous axis: a warp has whole rows."""
    width, warps = (8, 8) if states <= 64 else (4, 1)
    return min(triton.next_power_of_2(P), width), warps


def chunk_length(dtype: torch.dtype) -> int:
    """Tokens a chunk: with more, float32's three products for one would not fit into registers."""
    return 32 if dtype == torch.float32 else 64


def chunk_tile(channels: int, dtype: torch.dtype) -> int:
    """Channels in a tile inside the chunks."""
    return min(max(16, triton.next_power_of_2(channels)), chunk_length(dtype))


# --- The table: kernels/tiles.json, written by kernels.tune ---

TABLE = Path(__file__).with_name("tiles.json")
KEY = ("device", "kernel", "dtype", "K", "V", "states")
_instead: dict[tuple[str, int, int], WalkTiles] = {}


def bucket(states: int) -> int:
    """Numbers of states up to the same power of two share an entry."""
    return triton.next_power_of_2(max(states, 1))


@functools.cache
def table() -> dict[tuple, WalkTiles]:
    """Device, kernel, dtype, K, V, bucket of states -> tiles."""
    return {tuple(entry[name] for name in KEY): WalkTiles(**entry["tiles"]) for entry in entries(TABLE)}


def entries(path: Path) -> list[dict]:
    """What a table holds, [] if there is none; a ``ValueError`` names the entry that cannot be and why."""
    found = read_list(path, "entries")
    for place, entry in enumerate(found):
        for name in (*KEY, "tiles"):
            if name not in entry:
                raise ValueError(f"{path}: entry {place} has no {name}")
        for name, good, expected in _conditions(entry):
            value = entry["tiles"].get(name)
            if not isinstance(value, int) or not good(value):
                raise ValueError(f"{path}: entry {place}: {name}: expected {expected}, got {value}")
        if len(entry["tiles"]) != len(WalkTiles._fields):
            raise ValueError(f"{path}: entry {place}: expected the tiles {WalkTiles._fields}, got {[*entry['tiles']]}")
    return found


def _conditions(entry: dict) -> list[tuple]:
    """(name, what must hold of it, in words)."""

    def power(least):
        return lambda x: x >= least and x & (x - 1) == 0

    keys = max(16, triton.next_power_of_2(entry["K"]))
    return [
        ("BK", lambda x: x == keys, f"{keys}, all of the keys"),
        ("BV", power(16), "a power of two of at least 16"),
        ("SEGMENTS", power(1), "a power of two"),
        ("WARPS", lambda x: x in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
        ("STAGES", lambda x: 1 <= x <= 8, "1 to 8"),
    ]


@contextlib.contextmanager
def instead(tiles: WalkTiles, K: int, V: int, kernel: str = "walk") -> Iterator[None]:
    """Inside, these tiles are what ``walk_tiles`` gives for states K × V, whatever the table and the rules say."""
    _instead[kernel, K, V] = tiles
    try:
        yield
    finally:
        del _instead[kernel, K, V]


def device_name() -> str | None:
    """Of the present GPU; None where kernels are interpreted."""
    return _name_of(torch.cuda.current_device()) if torch.cuda.is_available() else None


@functools.cache
def _name_of(device: int) -> str:
    return torch.cuda.get_device_name(device)
