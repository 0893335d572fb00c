"""Compiles every kernel for Hopper, which needs no GPU: what the interpreter accepts, the compiler may not.

Run as a program of its own, because Triton reads at its import whether it is to interpret.
"""

import os

import torch

os.environ.pop("TRITON_INTERPRET", None)
torch.cuda.is_available = lambda: True  # or the package would tell Triton to interpret

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernels import mamba2, scalar_recur, scalar_walk  # noqa: E402
from kernels.tiles import walk_tiles  # noqa: E402

FLOATS = {"g", "w", "s_in", "s_out", "local", "total", "dots", "whole", "anchors", "last", "dg"}
FLOATS |= {"reads", "writes", "read_anchors", "write_anchors", "state", "A", "D", "dt_bias"}
ACTIVATIONS = {"q", "k", "v", "x", "o"}
OF_UPDATE = {"x", "dt", "B", "C", "z", "out"}  # in the walks B is the batch


def compile_for_hopper(kernel, activations, constants, *, warps, stages=3, absent=()):
    """One variant; ``absent``: optional pointers that are None."""
    signature, constexprs = {}, {}
    for position, name in enumerate(kernel.arg_names):
        if name in constants or name in absent:
            signature[name], constexprs[position,] = "constexpr", constants.get(name)
        elif name in (OF_UPDATE if kernel is mamba2.update else ACTIVATIONS):
            signature[name] = f"*{activations}"
        elif name in FLOATS:
            signature[name] = "*fp32"
        elif name in ("cu_seqlens", "indices"):
            signature[name] = "*i64"
        else:
            signature[name] = "fp32" if name.startswith("scale") else "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs)
    options = {"num_warps": warps, "num_stages": stages}
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def main():
    for dtype, name, precision in ((torch.bfloat16, "bf16", "tf32"), (torch.float32, "fp32", "ieee")):
        tiles = walk_tiles(32, 8192, 128, 128, dtype)
        common = dict(K=128, V=128, BK=tiles.BK, BV=tiles.BV, C=tiles.C, SEGMENTS=4, EVERY=1024, GQ=1, GK=1, GV=2, GX=1)
        common |= dict(STAGES=tiles.STAGES, PRECISION=precision)
        products = ["dots", "whole", "anchors"]
        for reverse, read, weighted, absent in (
            (False, False, "v", [*products, "s_in"]),
            (False, True, "v", products),
            (False, True, "k", ["whole"]),
            (True, True, "q", ["whole", "cu_seqlens"]),
            (True, True, "o", ["dots", "anchors"]),
            (True, False, "o", [*products, "w", "g"]),
        ):
            constants = common | dict(REVERSE=reverse, READ=read, WEIGHTED=weighted)
            compile_for_hopper(scalar_walk.walk, name, constants, warps=tiles.WARPS, absent=absent)
    gate = dict(KV=128 * 128, TILES_R=2, TILES_W=1, EVERY=1024, BLOCK=4096)
    compile_for_hopper(scalar_walk.gate_gradient, "bf16", gate, warps=4)
    recur = dict(K=128, V=128, BK=128, BV=64, GROUP=2)
    compile_for_hopper(scalar_recur.recur, "bf16", recur, warps=4)
    update = dict(P=64, N=128, BN=128, BP=64, GROUP=32, SOFTPLUS=True)
    compile_for_hopper(mamba2.update, "bf16", update, warps=4)


if __name__ == "__main__":
    main()
