"""The ladder's kernel rung: the Triton kernels, interpreted where there is no GPU, equal each rule's recurrence."""

from itertools import pairwise

import pytest
import torch

import kernels
from lineage_lib.paths import ROOT
from lineage_lib.rules import RULES
from lineage_lib.rules.record import Rule
from tests import ladder
from tests.tolerances import allowed, ratio

C = 32  # tokens a chunk of the kernels in float32
WITH_KERNEL = [rule for rule in RULES.values() if "kernel" in rule.forms]
pytestmark = pytest.mark.skipif(
    not kernels.INTERPRETED, reason="on a GPU the kernels are verified by python -m kernels.verify"
)

EVERY = pytest.mark.parametrize("rule", WITH_KERNEL, ids=lambda rule: rule.name)


def narrow(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def both(rule: Rule, tensors, state=None, **more):
    """The rule's kernel on float32 inputs, its recurrence on the same numbers in float64."""
    given = [narrow(t) for t in tensors]
    before = None if state is None else ladder.same_structure(state, [narrow(s) for s in ladder.parts(state)])
    got = rule.kernel(*given, initial_state=before, output_final_state=True, **rule.options, **more)
    if more:
        return got
    exact = None if state is None else ladder.same_structure(state, [wide(narrow(s)) for s in ladder.parts(state)])
    return got, rule.recurrent(*[wide(t) for t in given], initial_state=exact, output_final_state=True, **rule.options)


def close(rule, got, expected, T):
    (o, state), (o_wanted, state_wanted) = got, expected
    assert ratio(o, o_wanted) <= allowed(torch.float32, T), f"{rule.name}: output, T = {T}"
    for n, (a, b) in enumerate(zip(ladder.parts(state), ladder.parts(state_wanted))):
        assert ratio(a, b) <= allowed(torch.float32, T), f"{rule.name}: part {n} of the state, T = {T}"


@EVERY
@pytest.mark.parametrize("T", [0, 1, C - 1, C, C + 1, 3 * C + 5])
def test_kernel_equals_recurrence(rule, T):
    """From a state where T is even, from nothing elsewhere."""
    state = None if T % 2 else ladder.state_before(rule)
    close(rule, *both(rule, ladder.stream(rule, T), state), T)


@pytest.mark.parametrize("rule", [r for r in WITH_KERNEL if ladder.has_resets(r)], ids=lambda rule: rule.name)
def test_kernel_equals_recurrence_with_a_reset(rule):
    T = 2 * C + 3
    close(rule, *both(rule, ladder.with_resets(rule, ladder.stream(rule, T), C + 2), ladder.state_before(rule)), T)


@EVERY
def test_gradients_of_the_kernel(rule):
    """A random incoming gradient for the output, to every input and the state before."""
    T = C + 5
    found = []
    for to, form in ((narrow, rule.kernel), (wide, rule.recurrent)):
        inputs = [to(narrow(t)).requires_grad_() for t in ladder.stream(rule, T)]
        before = ladder.state_before(rule)
        parts = [to(narrow(s)).requires_grad_() for s in ladder.parts(before)]
        o, _ = form(*inputs, initial_state=ladder.same_structure(before, parts), **rule.options)
        do = to(torch.randn(o.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float32))
        used = parts[:2] if "m" in rule.state_parts else parts  # mLSTM's m is a scale that the other two follow
        found.append(torch.autograd.grad(o, [*inputs, *used], do, allow_unused=True))
    for name, got, expected in zip([*(i.name for i in rule.inputs), *rule.state_parts], *found):
        if expected is None:
            assert got is None or not got.any()
        else:
            assert ratio(got, expected) <= allowed(torch.float32, T, "gate gradient"), f"{rule.name}: d{name}"


@EVERY
def test_packed_sequences_through_the_kernel(rule):
    ends = [0, 3, 3, C + 4, C + 5, 2 * C + 7]
    tensors, states = ladder.stream(rule, ends[-1], B=1), ladder.state_before(rule, B=len(ends) - 1)
    o, after = both(rule, tensors, states, cu_seqlens=torch.tensor(ends))
    for n, (start, end) in enumerate(pairwise(ends)):
        state = ladder.same_structure(states, [s[n : n + 1] for s in ladder.parts(states)])
        _, alone = both(rule, ladder.piece(rule, tensors, start, end), state)
        left = ladder.same_structure(after, [s[n : n + 1] for s in ladder.parts(after)])
        close(rule, (o[:, start:end], left), alone, end - start)


def test_the_table_names_the_kernel():
    assert {rule.name for rule in RULES.values() if rule not in WITH_KERNEL} == {"rwkv-7"}
    for rule in RULES.values():
        walk = "kernels/delta_walk.py" if rule.family == "delta" else "kernels/walk.py"
        assert (ROOT / walk).exists()
        assert rule.kernel_file == (walk if rule in WITH_KERNEL else None), rule.name


def test_a_rule_without_a_kernel_says_so():
    rule = RULES["rwkv-7"]
    with pytest.raises(NotImplementedError, match=rule.missing["kernel"]):
        rule.kernel(*ladder.stream(rule, 3, dtype=torch.float32))
