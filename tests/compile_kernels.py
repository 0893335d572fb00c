"""Compiles for Hopper what the public functions launch, which needs no GPU: what the interpreter accepts, the compiler
may not. As a program it prints registers and stack of each: python -m tests.compile_kernels

Run as a program of its own, because Triton reads at its import whether it is to interpret.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

os.environ.pop("TRITON_INTERPRET", None)
torch.cuda.is_available = lambda: True  # or the package would tell Triton to interpret

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import kernels  # noqa: E402
from kernels import verify  # noqa: E402
from kernels.operators import OPERATORS, Shape  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int32: "i32", torch.int64: "i64"}
CASES = [
    (torch.bfloat16, Shape(T=2048, H=2, HV=2, K=128, V=128)),
    (torch.bfloat16, Shape(T=200, H=1, HV=2, K=256, V=64, lengths=(150, 0, 50))),
    (torch.float32, Shape(T=100, K=128, V=128)),
    (torch.float16, Shape(T=2048, H=2, HV=2, K=128, V=128)),
    (torch.bfloat16, Shape(T=1, K=64, V=64, state=False, l2norm=True)),
    (torch.float32, Shape(T=9, K=100, V=60, l2norm=True)),
]
SHARED = 232_448  # bytes of shared memory that a program may have
compiled: dict[tuple, str] = {}


def launched(kernel, *args, grid, warmup=False, **options):
    """In place of a launch: compile what it would run, once for each set of types and constants."""
    signature, constants, attributes = {}, {}, {}
    for position, (parameter, value) in enumerate(zip(kernel.params, args, strict=True)):
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
            signature[parameter.name], constants[position,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name], attributes[position,] = f"*{NAMES[value.dtype]}", [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[position,] = [["tt.divisibility", 16]]
    key = (kernel.__name__, str(signature), str(constants), str(attributes), str(options))
    if key not in compiled:
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
        made = triton.compile(source, target=HOPPER, options=options)
        if made.metadata.shared > SHARED:
            raise MemoryError(f"{kernel.__name__}: {made.metadata.shared} bytes of shared memory, for {constants}")
        compiled[key] = usage(made.asm["cubin"])
        registers, stack = (int(word.partition(":")[2]) for word in compiled[key].split())
        if registers <= 40 and stack > 0:  # the assembler has given up: all lives in memory
            raise MemoryError(f"{kernel.__name__}: {stack} bytes of stack a thread, for {constants}")
        types = " ".join(sorted({x for x in signature.values() if x.startswith("*")}))
        print(f"{kernel.__module__}.{kernel.__name__} {types} {options}: {compiled[key]}", flush=True)


def usage(cubin: bytes) -> str:
    """Registers and stack, as the tool that comes with Triton reads them."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
    return " ".join(word for word in said.split() if word.startswith(("REG:", "STACK:")))


def main() -> int:
    triton.runtime.jit.JITFunction.run = launched
    kernels.INTERPRETED = True  # so that tensors may be on the CPU
    torch.empty, verify.DEVICE = torch.zeros, "cpu"  # nothing is computed: indices among the results must be valid
    for operator in OPERATORS:
        for dtype, shape in CASES:
            if shape.lengths and not operator.packs:
                continue
            if operator.single:
                shape = Shape(B=2, T=1, H=1, HV=2, K=shape.K, V=shape.V)
            verify.run(operator, operator.ours, verify.draw(operator, dtype, shape, "mixed", "unit", 0), shape, dtype)
    print(f"{len(compiled)} kernels compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
