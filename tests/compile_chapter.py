"""Compiles the Triton kernels of the records and right answers of chapters 05 and 10 for Hopper, which needs no GPU.

What the interpreter accepts, the compiler may not. Run as a program of its own, because Triton reads at its
import whether it is to interpret. ``python -m tests.compile_chapter --mistakes`` compiles the known mistakes too.
"""

import os
import sys

import torch

os.environ.pop("TRITON_INTERPRET", None)
torch.cuda.is_available = lambda: True  # or the package would tell Triton to interpret

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from lineage_lib.exercises import ch05, ch10  # noqa: E402
from lineage_lib.launching import Variant  # noqa: E402
from tests.right_answers import ch05 as right05  # noqa: E402
from tests.right_answers import ch10 as right10  # noqa: E402

RIGHT_ANSWERS = right05.RIGHT_ANSWERS | right10.RIGHT_ANSWERS


def compile_launch(kernel, arguments):
    """``arguments`` as a launch has them, by the parameters' order; a variant's own constants come last."""
    constants = {}
    if isinstance(kernel, Variant):
        constants, kernel = kernel.constants, kernel.fn
    signature, constexprs = {}, {}
    for position, parameter in enumerate(kernel.params):
        value = constants[parameter.name] if parameter.name in constants else arguments[position]
        if parameter.is_constexpr:
            signature[parameter.name], constexprs[position,] = "constexpr", value
        else:
            signature[parameter.name] = {int: "i32", float: "fp32"}.get(type(value), "*fp32")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def main(with_mistakes: bool):
    for exercise in (*ch05.EXERCISES, *ch10.EXERCISES):
        if exercise.launch is None:
            continue
        case = exercise.seeded_cases(0)[-2]
        arguments = [*exercise.launch(*case.args).arguments.values()]
        kernels = [function for mistake in exercise.mistakes for function in mistake.functions]
        right = [Variant(kernels[0].fn, SLIP=""), *RIGHT_ANSWERS[exercise.id]]
        for kernel in right + kernels * with_mistakes:
            try:
                compile_launch(kernel, arguments)
            except Exception as error:
                raise SystemExit(f"{exercise.id} {kernel.__name__}: {error}") from error


if __name__ == "__main__":
    main("--mistakes" in sys.argv)
