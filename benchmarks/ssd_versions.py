"""Times chapter 5's versions of one SSD forward pass on a GPU: five launches, one walk, the walk with more programs.

    python -m benchmarks.ssd_versions [--out book/data/ssd_versions.json]

One sequence of 8,192 tokens with 32 heads, K = V = 128, bf16, from an empty state. The kernels are those of the
chapter's exercises with tiles rounded to 16 bits before each product; the last version is this repository's own. Each
with 4 and 8 warps, of which the faster counts; under a CUDA graph, inputs rotating so that none is in the cache.
"""

import argparse
import datetime
import json
from collections.abc import Callable
from pathlib import Path

import torch

import kernels  # before Triton: without a GPU it is to interpret
from kernels.clock import Gpu, summary

import triton  # isort: skip
import triton.language as tl  # isort: skip

T, H, K, V = 8192, 32, 128, 128


@triton.jit
def chunk_cumsum(g, G, T, H, C: tl.constexpr):
    h = tl.program_id(1)
    t = tl.program_id(0) * C + tl.arange(0, C)
    b_g = tl.load(g + t * H + h, mask=t < T, other=0.0)
    tl.store(G + t * H + h, tl.cumsum(b_g, 0), mask=t < T)


@triton.jit
def _rows(x, t, T, H, h, i, D: tl.constexpr):
    """Rows t of head h of a tensor (T, H, D), channels i."""
    return tl.load(x + (t[:, None] * H + h) * D + i[None, :], mask=(t < T)[:, None], other=0.0)


@triton.jit
def diagonal_block(q, k, v, G, o, T, H, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr):
    h, r = tl.program_id(1), tl.arange(0, C)
    t, i, j = tl.program_id(0) * C + r, tl.arange(0, K), tl.arange(0, V)
    b_v = _rows(v, t, T, H, h, j, V)
    b_G = tl.load(G + t * H + h, mask=t < T, other=0.0)
    b_A = tl.dot(_rows(q, t, T, H, h, i, K), tl.trans(_rows(k, t, T, H, h, i, K)))
    b_A *= tl.exp(tl.where(r[:, None] >= r[None, :], b_G[:, None] - b_G[None, :], float("-inf")))
    b_o = tl.dot(b_A.to(b_v.dtype), b_v)
    tl.store(o + (t[:, None] * H + h) * V + j[None, :], b_o.to(o.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def chunk_states(k, v, G, states, T, H, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr):
    c, h = tl.program_id(0), tl.program_id(1)
    t, i, j = c * C + tl.arange(0, C), tl.arange(0, K), tl.arange(0, V)
    b_k, b_v = _rows(k, t, T, H, h, i, K), _rows(v, t, T, H, h, j, V)
    b_G = tl.load(G + t * H + h, mask=t < T, other=0.0)
    G_end = tl.load(G + (tl.minimum((c + 1) * C, T) - 1) * H + h)
    b_Z = tl.dot(tl.trans((b_k * tl.exp(G_end - b_G)[:, None]).to(b_v.dtype)), b_v)
    tl.store(states + (c * H + h) * K * V + i[:, None] * V + j[None, :], b_Z)


@triton.jit
def pass_states(states, G, entering, T, H, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BV: tl.constexpr):
    h, i, j = tl.program_id(1), tl.arange(0, K), tl.program_id(0) * BV + tl.arange(0, BV)
    tile = i[:, None] * V + j[None, :]
    b_S = tl.zeros((K, BV), tl.float32)
    for c in range(0, tl.cdiv(T, C)):
        place = (c * H + h) * K * V + tile
        tl.store(entering + place, b_S)
        b_S *= tl.exp(tl.load(G + (tl.minimum((c + 1) * C, T) - 1) * H + h))
        b_S += tl.load(states + place)


@triton.jit
def read_states(q, G, entering, o, T, H, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr):
    c, h = tl.program_id(0), tl.program_id(1)
    t, i, j = c * C + tl.arange(0, C), tl.arange(0, K), tl.arange(0, V)
    b_q, b_o = _rows(q, t, T, H, h, i, K), _rows(o, t, T, H, h, j, V)
    b_G = tl.load(G + t * H + h, mask=t < T, other=0.0)
    b_S = tl.load(entering + (c * H + h) * K * V + i[:, None] * V + j[None, :])
    b_o = b_o + tl.dot(b_q, b_S.to(b_q.dtype)) * tl.exp(b_G)[:, None]
    tl.store(o + (t[:, None] * H + h) * V + j[None, :], b_o.to(o.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def ssd_walk(q, k, v, g, o, T, H, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BV: tl.constexpr):
    h, r, i = tl.program_id(1), tl.arange(0, C), tl.arange(0, K)
    j = tl.program_id(0) * BV + tl.arange(0, BV)
    b_S = tl.zeros((K, BV), tl.float32)
    for c in range(0, tl.cdiv(T, C)):
        t = c * C + r
        b_q, b_k, b_v = _rows(q, t, T, H, h, i, K), _rows(k, t, T, H, h, i, K), _rows(v, t, T, H, h, j, V)
        b_g = tl.load(g + t * H + h, mask=t < T, other=0.0)
        b_G, G_end = tl.cumsum(b_g, 0), tl.sum(b_g, 0)
        b_A = tl.dot(b_q, tl.trans(b_k))
        b_A *= tl.exp(tl.where(r[:, None] >= r[None, :], b_G[:, None] - b_G[None, :], float("-inf")))
        b_o = tl.dot(b_q, b_S.to(b_q.dtype)) * tl.exp(b_G)[:, None]
        b_o = tl.dot(b_A.to(b_v.dtype), b_v, b_o)
        tl.store(o + (t[:, None] * H + h) * V + j[None, :], b_o.to(o.dtype.element_ty), mask=(t < T)[:, None])
        b_k = (b_k * tl.exp(G_end - b_G)[:, None]).to(b_v.dtype)
        b_S = tl.dot(tl.trans(b_k), b_v, b_S * tl.exp(G_end))


def launches(q, k, v, g, C: int, warps: int) -> list[tuple[str, Callable[[], None]]]:
    """The five launches by name, in order; the last leaves o in ``launches``' own buffer, ``calls[-1][1]()``."""
    (T, H, K), V = q.shape, v.shape[-1]
    G, o = torch.empty_like(g), torch.empty_like(v)
    states, entering = (torch.empty(triton.cdiv(T, C), H, K, V, device=q.device) for _ in range(2))
    grid, tiles, how = (triton.cdiv(T, C), H), triton.cdiv(V, 32), dict(num_warps=warps)

    def last():
        read_states[grid](q, G, entering, o, T, H, K, V, C, **how)
        return o

    return [
        ("chunk_cumsum", lambda: chunk_cumsum[grid](g, G, T, H, C, num_warps=1)),
        ("diagonal_block", lambda: diagonal_block[grid](q, k, v, G, o, T, H, K, V, C, **how)),
        ("chunk_states", lambda: chunk_states[grid](k, v, G, states, T, H, K, V, C, **how)),
        ("pass_states", lambda: pass_states[(tiles, H)](states, G, entering, T, H, K, V, C, V // tiles, **how)),
        ("read_states", last),
    ]


def walk(q, k, v, g, tiles: int, warps: int) -> list[tuple[str, Callable[[], None]]]:
    (T, H, K), V = q.shape, v.shape[-1]
    o = torch.empty_like(v)

    def call():
        ssd_walk[(tiles, H)](q, k, v, g, o, T, H, K, V, 64, V // tiles, num_warps=warps)
        return o

    return [("ssd_walk", call)]


def own(q, k, v, g, warps: int) -> list[tuple[str, Callable[[], None]]]:
    """This repository's kernels: a launch prepares the chunks; the walk chooses its segments and warps itself."""
    return [("kernels", lambda: kernels.chunk_simple_gla(q[None], k[None], v[None], g[None], scale=1.0)[0][0])]


VERSIONS = {
    "five launches, C = 64": lambda *x: launches(*x[:4], 64, x[4]),
    "five launches, C = 128": lambda *x: launches(*x[:4], 128, x[4]),
    "one walk": lambda *x: walk(*x[:4], 1, x[4]),
    "walk, 4 tiles of V": lambda *x: walk(*x[:4], 4, x[4]),
    "walk, segments": lambda *x: own(*x),
}


def drawn(T: int, H: int, K: int, V: int, dtype: torch.dtype, device, seed: int = 0) -> list[torch.Tensor]:
    r = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(T, H, D, generator=r) / D**0.25 for D in (K, K, V))
    g = torch.nn.functional.logsigmoid(3 + torch.randn(T, H, generator=r))
    return [x.to(device, dtype) for x in (q, k, v)] + [g.to(device)]


def result(calls: list[tuple[str, Callable]]) -> torch.Tensor:
    return [call() for _, call in calls][-1]


def measure(gpu: Gpu) -> dict:
    one = drawn(T, H, K, V, torch.bfloat16, gpu.device)
    inputs = [one, *([x.clone() for x in one] for _ in range(gpu.sets(sum(x.nbytes for x in one)) - 1))]
    expected = result(VERSIONS["walk, segments"](*one, 4)).double()
    found = {}
    for version, make in VERSIONS.items():
        best = None
        for warps in (4, 8):
            calls = [make(*x, warps) for x in inputs]
            error = (result(calls[0]).double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
            if not error < 1e-2:
                raise RuntimeError(f"{version} with {warps} warps: its outputs are off by {error:.1e}")
            parts = {name: [x[n][1] for x in calls] for n, (name, _) in enumerate(calls[0])}
            whole = [call for x in calls for _, call in x]
            gpu.warm(whole)
            rounds = {"whole": gpu.graph(whole)} | {name: gpu.graph(part) for name, part in parts.items()}
            times = {name: summary(ms) for name, ms in gpu.times(rounds, len(inputs)).items()}
            median, spread = times.pop("whole")
            if best is None or median < best["median_ms"]:
                by_launch = {name: ms for name, (ms, _) in times.items()}
                best = {"median_ms": median, "spread_ms": spread, "warps": warps, "launches_ms": by_launch}
            del calls, parts, whole, rounds
            gpu.free()
        found[version] = best
        print(f"{version}: {best}", flush=True)
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    shape = {"T": T, "H": H, "K": K, "V": V}
    date = datetime.date.today().isoformat()
    return {"device": gpu.name, "versions": versions, "date": date, "shape": shape, "dtype": "bfloat16", "times": found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ssd_versions", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("book/data/ssd_versions.json"))
    out = parser.parse_args().out
    try:
        gpu = Gpu()
    except RuntimeError as error:
        parser.error(str(error))
    out.write_text(json.dumps(measure(gpu), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
