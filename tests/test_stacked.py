"""Stacked models: each mixer is its rule, by chunks and by kernels, and no model sees another or the future."""

import math
from dataclasses import replace

import pytest
import torch

from lineage_lib import stacked
from lineage_lib.reference import (
    naive_recurrent_gated_delta_product,
    naive_recurrent_gated_delta_rule,
    naive_recurrent_simple_gla,
)
from lineage_lib.stacked import MIXERS, Shape, drawn, logits, weights
from tests.tolerances import allowed, ratio

EVERY = {
    **{name: Shape(mixers=(name,), width=12, H=2, K=6, V=5, conv=2) for name in MIXERS},
    "negative mamba-2": Shape(mixers=("mamba-2",), width=12, H=2, K=6, V=5, negative=True),
    "two factors": Shape(mixers=("deltaproduct",), width=12, H=2, K=6, V=5, factors=2, negative=True),
    "hybrid": Shape(mixers=("gated-deltanet", "attention"), width=12, H=2, K=6, V=5, mlp=2),
}


def models(shape: Shape, *seeds: int):
    parts = weights(shape, 7, 4)
    return parts, torch.stack([drawn(parts, seed) for seed in seeds])


def tokens(M: int, T: int = 41, seed: int = 0):
    return torch.randint(7, (M, 3, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", EVERY)
def test_models_side_by_side_are_the_models_alone(name):
    shape = EVERY[name]
    parts, rows = models(shape, 0, 1)
    both = logits(shape, parts, rows, tokens(2))
    assert both.shape == (2, 3, 41, 4)
    for m, seed in enumerate((0, 1)):
        alone = logits(shape, *models(shape, seed), tokens(2)[m : m + 1])
        torch.testing.assert_close(both[m : m + 1], alone, rtol=1e-4, atol=1e-5)
    assert ratio(both[0], both[1]) > 0.1


@pytest.mark.parametrize("name", EVERY)
def test_no_gradient_crosses_from_model_to_model_and_each_part_has_one(name):
    shape = EVERY[name]
    parts, rows = models(shape, 0, 1)
    rows.requires_grad_()
    (gradient,) = torch.autograd.grad(logits(shape, parts, rows, tokens(2))[0].square().sum(), rows)
    assert not gradient[1].any()
    pieces = gradient[0].split([math.prod(w.shape) for w in parts.values()])
    for part, piece in zip(parts, pieces):
        assert torch.isfinite(piece).all()
        assert piece.any(), f"{part} is not used"


@pytest.mark.parametrize("name", EVERY)
def test_no_token_sees_a_later_one(name):
    shape = EVERY[name]
    parts, rows = models(shape, 0)
    some, other = tokens(1), tokens(1)
    other[:, :, 20:] = (other[:, :, 20:] + 1) % 7
    before, after = (logits(shape, parts, rows, x) for x in (some, other))
    torch.testing.assert_close(before[:, :, :20], after[:, :, :20], rtol=1e-4, atol=1e-5)
    assert ratio(before[:, :, 20:], after[:, :, 20:]) > 0.01


def inputs(n: int, dtype: torch.dtype, T: int = 70, K: int = 16, V: int = 16):
    """q, k, v, g, beta as a mixer hands them over: two sequences and heads, n steps a token, beta up to 2."""
    r = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=r, dtype=dtype)

    unit = torch.nn.functional.normalize
    q, k, v = unit(normal(2, T, 2, K), dim=-1), unit(normal(2, T, n, 2, K), dim=-1), normal(2, T, n, 2, V)
    return q, k, v, -normal(2, T, 2).square() / 4, 2 * normal(2, T, n, 2).sigmoid()


@pytest.mark.parametrize("n", [1, 2])
def test_chunks_are_the_references(n):
    q, k, v, g, beta = inputs(n, torch.float64, K=6, V=5)
    if n == 1:
        k1, v1 = k[:, :, 0], v[:, :, 0]
        expected = naive_recurrent_simple_gla(q, k1, v1, g, scale=1.0)[0]
        assert ratio(stacked._by_chunks(q, k, v, g, None), expected) < 1e-12
        expected = naive_recurrent_gated_delta_rule(q, k1, v1, g, beta[:, :, 0], scale=1.0)[0]
    else:
        flat = [x.flatten(1, 2) for x in (k, v, beta)]
        expected = naive_recurrent_gated_delta_product(q, *flat[:2], g, flat[2], num_householder=n, scale=1.0)[0]
    assert ratio(stacked._by_chunks(q, k, v, g, beta), expected) < 1e-12


@pytest.mark.parametrize(
    ("n", "gated", "delta"), [(1, False, False), (1, True, False), (1, True, True), (2, False, True)]
)
def test_kernels_are_the_chunks(n, gated, delta):
    tensors = inputs(n, torch.float32, T=36)
    given = [x.requires_grad_() for x in (*tensors[:3], *tensors[3:4][: int(gated)], *tensors[4:][: int(delta)])]
    q, k, v = given[:3]
    g, beta = given[3] if gated else None, given[-1] if delta else None
    results = []
    for form in (stacked._by_chunks, stacked._by_kernels):
        o = form(q, k, v, g, beta)
        do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1))
        results.append([o, *torch.autograd.grad(o, given, do)])
    for expected, got in zip(*results):
        assert ratio(got, expected) < allowed(torch.float32, 36, "gate gradient", reflections=True)


def test_signs_in_queries_and_keys_make_decays_negative():
    q, k, v, g, _ = inputs(1, torch.float64, T=23)
    o = stacked._by_chunks(*(lambda q, k, g: (q, k, v, g))(*stacked._signed(q, k, g)), None)
    S, expected = torch.zeros(2, 2, 16, 16, dtype=torch.float64), []
    for t in range(23):
        S = (2 * g[:, t].exp() - 1)[..., None, None] * S + k[:, t, 0, :, :, None] * v[:, t, 0, :, None]
        expected.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    assert (2 * g.exp() < 1).any()
    assert ratio(o, torch.stack(expected, 1)) < 1e-12


def test_rotary_attention_sees_distances_only():
    q, k, v = (torch.randn(1, 9, 2, 6, generator=torch.Generator().manual_seed(i)) for i in range(3))
    o = stacked._attention(q, k, v, True)
    # One more token before the others, whose key is as far from every query as can be.
    q, k, v = (torch.cat([torch.zeros_like(x[:, :1]), x], 1) for x in (q, k, v))
    scores = torch.einsum("bthk,bshk->bhts", *(turned(x) for x in (q, k)))[:, :, 1:, 1:]
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    weight = (scores / 6**0.5).masked_fill(~mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(torch.einsum("bhts,bshv->bthv", weight, v[:, 1:]), o)


def turned(x):
    """x (B, T, H, 6), each pair of channels as a complex number times exp(i t 10000^(−c / 3))."""
    z = torch.complex(x[..., :3], x[..., 3:])
    angle = torch.arange(x.shape[1])[:, None, None] * 10_000.0 ** (-torch.arange(3) / 3)
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def test_the_size_of_the_state_and_the_writes_of_a_token():
    shape = EVERY["two factors"]
    assert shape.state_size == 60
    assert shape.steps_of("deltaproduct") == 2
    assert shape.steps_of("deltanet") == 1
    assert weights(shape, 7, 4)["0.qkv"].shape == (12, 2 * (6 + 2 * 11))


def test_first_values_of_the_gates_are_mambas():
    shape = Shape(mixers=("mamba-2",), width=4, H=5_000, K=1, V=1)
    parts = weights(shape, 2, 2)
    row = drawn(parts, 3)
    split = dict(zip(parts, row.split([math.prod(w.shape) for w in parts.values()])))
    dt, A = torch.nn.functional.softplus(split["0.dt_bias"]), split["0.A_log"].exp()
    assert 1e-3 <= dt.min() < 1.1e-3
    assert 0.09 < dt.max() <= 0.1001
    assert dt.log().mean() == pytest.approx(-4.6, abs=0.1)  # of 0.01
    assert 1 <= A.min() < 1.1 < 15.9 < A.max() <= 16


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(mixers=("mamba",)), "mixers: expected names of attention, .*, got 'mamba'"),
        (dict(K=0), "K: expected a whole number of at least 1, got 0"),
        (dict(factors=1.5), "factors: "),
        (dict(mixers=("attention",), K=5), "K: expected an even number for rotary attention, got 5"),
    ],
)
def test_bad_shapes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(EVERY["two factors"], **changed)
