"""The ladder: recurrent = matrix = chunked = decode, for every rule in the table, forward and gradients."""

from itertools import pairwise

import pytest
import torch

from lineage_lib.rules import FORMS, RULES
from tests import ladder
from tests.tolerances import allowed, ratio

C = 16
LENGTHS = (0, 1, C - 1, C, C + 1, 3 * C + 5)
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
WITH_RESETS = [rule for rule in RULES.values() if ladder.has_resets(rule)]


def close(rule, got, expected, T, dtype=torch.float64):
    (o, state), (o_wanted, state_wanted) = got, expected
    assert o.dtype == dtype
    assert ratio(o, o_wanted) <= allowed(dtype, T), f"{rule.name}: output, T = {T}"
    for n, (a, b) in enumerate(zip(ladder.parts(state), ladder.parts(state_wanted))):
        assert ratio(a, b) <= allowed(dtype, T), f"{rule.name}: part {n} of the state, T = {T}"


def recurrent(rule, tensors, state=None):
    return rule.recurrent(*tensors, initial_state=state, output_final_state=True, **rule.options)


def chunked(rule, tensors, state=None, **more):
    return rule.chunked(
        *tensors, initial_state=state, output_final_state=True, **{"chunk_size": C, **rule.options, **more}
    )


def matrix(rule, tensors, state=None):
    return rule.matrix(*tensors, initial_state=state, output_final_state=True, **rule.options)


@EVERY
@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from a state"])
def test_every_form_gives_the_same(rule, T, started):
    tensors = ladder.stream(rule, T)
    state = ladder.state_before(rule) if started else None
    expected = recurrent(rule, tensors, state)
    close(rule, chunked(rule, tensors, state), expected, T)
    close(rule, matrix(rule, tensors, state), expected, T)
    if T:
        close(rule, ladder.decode(rule, tensors, T, state), expected, T)


@pytest.mark.parametrize("rule", WITH_RESETS, ids=lambda rule: rule.name)
@pytest.mark.parametrize("t", [0, 1, C - 1, C, C + 1, 3 * C + 4])
def test_every_form_gives_the_same_with_a_reset(rule, t):
    T = 3 * C + 5
    tensors, state = ladder.with_resets(rule, ladder.stream(rule, T), t), ladder.state_before(rule)
    expected = recurrent(rule, tensors, state)
    close(rule, chunked(rule, tensors, state), expected, T)
    close(rule, matrix(rule, tensors, state), expected, T)
    close(rule, ladder.decode(rule, tensors, T, state), expected, T)


@EVERY
@pytest.mark.parametrize("reset", [False, True], ids=["kept", "reset"])
def test_gradients_of_every_form(rule, reset):
    """A random incoming gradient for the output and one for the state, to every input and the state before."""
    T = 2 * C + 3
    if reset and not ladder.has_resets(rule):
        pytest.skip("the rule cannot forget everything at once")
    tensors, state = ladder.stream(rule, T), ladder.state_before(rule)
    if reset:
        tensors = ladder.with_resets(rule, tensors, C + 2)

    def gradients(form):
        inputs = [t.clone().requires_grad_() for t in tensors]
        before = [t.clone().requires_grad_() for t in ladder.parts(state)]
        o, after = form(rule, inputs, ladder.same_structure(state, before))
        generator = torch.Generator().manual_seed(3)
        loss = sum((x.abs() * torch.rand(x.shape, generator=generator)).sum() for x in [o, *ladder.parts(after)])
        # mLSTM's m is a scale that the other two parts of the state follow: it has no gradient of its own.
        used = before[:2] if "m" in rule.state_parts else before
        return torch.autograd.grad(loss, [*inputs, *used], allow_unused=True)

    def unscaled(form):
        if "m" not in rule.state_parts:
            return form

        def with_plain_state(rule, inputs, before):
            o, (S, n, m) = form(rule, inputs, before)
            return o, (S * m.exp()[..., None, None], n * m.exp()[..., None])

        return with_plain_state

    wanted = gradients(unscaled(recurrent))
    names = [i.name for i in rule.inputs] + ["state"] * 3
    for form in (chunked, matrix):
        for name, got, expected in zip(names, gradients(unscaled(form)), wanted):
            got = torch.zeros_like(expected) if got is None else got
            assert ratio(got, expected) <= allowed(torch.float64, T, "gate gradient"), f"{form.__name__}: d{name}"


@EVERY
def test_gradcheck_of_the_chunked_form(rule):
    tensors = ladder.stream(rule, 5, B=1, H=1, K=2, V=3)
    state = ladder.state_before(rule, B=1, H=1, K=2, V=3)
    before = ladder.parts(state)
    if "m" in rule.state_parts:
        before = before[:2]  # as above: the output does not depend on m

    def form(*arguments):
        given = [*arguments[len(tensors) :], *ladder.parts(state)[len(before) :]]
        o, after = chunked(rule, arguments[: len(tensors)], ladder.same_structure(state, given), chunk_size=2)
        return (o, *ladder.parts(after)[: len(before)])

    if "m" in rule.state_parts:

        def form(*arguments, chunked_form=form):
            return chunked_form(*arguments)[0]

    assert torch.autograd.gradcheck(form, [t.requires_grad_() for t in [*tensors, *before]])


@EVERY
def test_split_at_every_point_and_resumed(rule):
    T = 2 * C + 3
    tensors, state = ladder.stream(rule, T), ladder.state_before(rule)
    expected = recurrent(rule, tensors, state)
    for at in range(T + 1):
        first, middle = chunked(rule, ladder.piece(rule, tensors, 0, at), state)
        second, last = chunked(rule, ladder.piece(rule, tensors, at, T), middle)
        close(rule, (torch.cat([first, second], 1), last), expected, T)


@EVERY
@pytest.mark.parametrize("started", [False, True], ids=["from nothing", "from states"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_packed_sequences(rule, started, dtype):
    ends = [0, 3, 3, C + 4, C + 5, 3 * C + 5]
    tensors = ladder.stream(rule, ends[-1], B=1)
    states = ladder.state_before(rule, B=len(ends) - 1) if started else None
    cu_seqlens = torch.tensor(ends, dtype=dtype)
    o, after = chunked(rule, tensors, states, cu_seqlens=cu_seqlens)
    for n, (start, end) in enumerate(pairwise(ends)):
        state = None if states is None else ladder.same_structure(states, [s[n : n + 1] for s in ladder.parts(states)])
        alone = recurrent(rule, ladder.piece(rule, tensors, start, end), state)
        left = ladder.same_structure(after, [s[n : n + 1] for s in ladder.parts(after)])
        close(rule, (o[:, start:end], left), alone, end - start)


@EVERY
@pytest.mark.parametrize("chunk_size", [1, 2, 5, 12, 64, 100])
def test_any_chunk_size(rule, chunk_size):
    T = 37
    tensors = ladder.stream(rule, T)
    close(rule, chunked(rule, tensors, chunk_size=chunk_size), recurrent(rule, tensors), T)


@EVERY
def test_float32(rule):
    T = 3 * C + 5
    narrow = ladder.stream(rule, T, dtype=torch.float32)
    wide = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in narrow]
    close(rule, chunked(rule, narrow), recurrent(rule, wide), T, torch.float32)


@pytest.mark.parametrize(
    "rule", [r for r in RULES.values() if any("HV" in i.axes for i in r.inputs)], ids=lambda r: r.name
)
def test_grouped_values(rule):
    """Four value heads on two key heads are four heads whose keys and queries are repeated."""
    tensors = ladder.stream(rule, 21, HV=4)
    repeated = [
        t.repeat_interleave(2, 2) if i.axes.split()[2:] == ["H", "K"] else t for i, t in zip(rule.inputs, tensors)
    ]
    expected = recurrent(rule, repeated)
    for form in (recurrent, chunked, matrix):
        close(rule, form(rule, tensors), expected, 21)


@EVERY
def test_missing_forms_have_a_reason(rule):
    assert set(rule.missing) <= set(FORMS)
    assert all(len(reason.split()) > 3 for reason in rule.missing.values())
    assert {"recurrent", "matrix", "chunked", "decode"} <= set(rule.forms)
