"""A peer, and how far it is from ours."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import torch

from lineage_lib.chunked import chunk_additive
from lineage_lib.reference import naive_recurrent_simple_gla
from lineage_lib.rules import RULES
from tests.peers.float64 import Tensor, float64
from tests.peers.inputs import Draw, Drawer, Inputs

PACKAGES = {"fla": "fla-core", "transformers": "transformers", "mamba_ssm": "mamba-ssm"}
SIMPLE_GLA = "simple-gla"  # no row of the table: the recurrence that RetNet, Mamba-2 and mLSTM share


def our_forms(rule: str) -> dict[str, Callable]:
    """Our recurrent and chunked form of a rule, called by argument name; chunks short enough for a few and a tail."""
    if rule == SIMPLE_GLA:
        return {"recurrent": naive_recurrent_simple_gla, "chunked": partial(chunk_additive, chunk_size=16)}
    record = RULES[rule]

    def chunked(**arguments):
        tensors = [arguments.pop(i.name, None) for i in record.inputs]
        return record.chunked(*tensors, **arguments, chunk_size=16)

    return {"recurrent": record.recurrent, "chunked": chunked}


@dataclass(frozen=True)
class Peer:
    """Somebody else's function for one rule, called with our arguments.

    rule            its key in RULES
    function        theirs, as it is imported
    inputs          draws our arguments
    call            takes our arguments by name, returns (o, final state or None) in our layout
    precision       "cast": theirs casts to float32, "given": it keeps the dtype, "float32": it takes no other
    T, HV           tokens (a chunk form may want a multiple of its chunk) and value heads
    initial         theirs takes an initial state
    differentiable  autograd goes through it
    ours            calls our form where its arguments or its result are not theirs
    note            what had to be converted, and what differs in its own right
    """

    rule: str
    function: Callable
    inputs: Drawer
    call: Callable[..., tuple[Tensor, object]]
    precision: str = "cast"
    T: int = 37
    HV: int = 2
    initial: bool = True
    differentiable: bool = True
    ours: Callable[..., tuple[Tensor, object]] | None = None
    note: str = ""

    @property
    def name(self) -> str:
        function = inspect.unwrap(self.function)
        return f"{function.__module__}.{function.__qualname__}"

    @property
    def package(self) -> str:
        return PACKAGES[self.name.split(".")[0]]

    @property
    def version(self) -> str:
        return version(self.package)

    def draw(self) -> Inputs:
        arguments = self.inputs(Draw.of(self.name, self.T, self.HV))
        if not self.initial:
            arguments.pop("initial_state", None)
        return arguments

    def run(self, arguments: Inputs, dtype: torch.dtype) -> "Result":
        """Theirs, in its own precision for float32 and with every cast raised for float64."""
        with float64() if dtype is torch.float64 and self.precision == "cast" else nullcontext():
            return result(self.call, arguments, dtype, self.differentiable)

    def run_ours(self, form: Callable, arguments: Inputs, theirs: "Result") -> "Result":
        """Our recurrent or chunked form, in float64; without the final state where ``theirs`` has none."""

        def call(**arguments):
            o, S = self.ours(form, **arguments) if self.ours else form(**arguments, output_final_state=True)
            return o, (S if theirs.state else None)

        return result(call, arguments, torch.float64, self.differentiable)


@dataclass(frozen=True)
class Result:
    """Output, final state and gradients (by argument) of one call."""

    output: list[Tensor]
    state: list[Tensor]
    gradient: list[Tensor]


def result(call: Callable, arguments: Inputs, dtype: torch.dtype, differentiable: bool) -> Result:
    """Runs ``call`` on copies of the arguments in ``dtype``, and its backward pass.

    The gradient is that of a sum of output and final state with fixed weights.
    """
    leaves: list[Tensor] = []

    def leaf(x):
        if isinstance(x, tuple):
            return tuple(map(leaf, x))
        if not isinstance(x, Tensor):
            return x
        x = x.detach().to(dtype.to_complex() if x.is_complex() else dtype).requires_grad_(differentiable)
        leaves.append(x)
        return x

    arguments = {name: leaf(x) for name, x in arguments.items()}
    o, S = call(**arguments)
    states = list(_flat(S))
    gradients: list[Tensor] = []
    if differentiable:
        sum(_weighted(x) for x in [o, *states]).backward()
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
    return Result([o.detach()], [x.detach() for x in states], gradients)


def _flat(state) -> Iterator[Tensor]:
    if isinstance(state, tuple):
        for part in state:
            yield from _flat(part)
    elif state is not None:
        yield state


def _weighted(x: Tensor) -> Tensor:
    """A sum in which every entry has a weight of its own; of a complex state, real and imaginary part."""
    x = torch.view_as_real(x).double() if x.is_complex() else x.double()
    weights = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).reshape(x.shape)
    return (x * weights.cos()).sum()


def difference(theirs: list[Tensor], ours: list[Tensor]) -> float | None:
    """The largest difference, in proportion to the largest entry of its tensor; None where there is no tensor."""
    each = []
    for a, b in zip(theirs, ours, strict=True):
        assert a.shape == b.shape, f"theirs {tuple(a.shape)}, ours {tuple(b.shape)}"
        each.append((a - b).abs().max() / b.abs().max())
    return torch.stack(each).max().item() if each else None
