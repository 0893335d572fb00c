"""The delta family's kernels beyond the harness: their options, segments, hard keys, and what is refused."""

import contextlib
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import kernels
from kernels import delta_walk, tiles, verify
from kernels.delta_chunks import inverse_of
from kernels.operators import OPERATORS, Shape

import triton  # isort: skip
import triton.language as tl  # isort: skip

pytestmark = pytest.mark.skipif(
    not kernels.INTERPRETED, reason="on a GPU the kernels are verified by python -m kernels.verify"
)
randn, rand, zeros = (partial(make, dtype=torch.float32) for make in (torch.randn, torch.rand, torch.zeros))
CHUNKED = pytest.mark.parametrize(
    "operator", [o for o in OPERATORS if o.name in ("chunk_gated_delta_rule", "chunk_gdn2")], ids=lambda o: o.name
)
B, T, H, HV, K, V = 1, 40, 1, 2, 16, 16


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def tokens():
    return randn(B, T, H, K), randn(B, T, H, K), randn(B, T, HV, V)


def alike(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert verify.ratio(a, b) < 1e-5


@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
def test_gates_and_lengths_in_the_kernel(form):
    """What the options do is what FLA's names say, and gradients pass through it."""
    q, k, v = tokens()
    g, beta, A_log, dt_bias = randn(B, T, HV, K), randn(B, T, HV), randn(HV), randn(HV * K)
    unit = [F.normalize(x, dim=-1) for x in (q, k)]
    kda, known = getattr(kernels, f"{form}_kda"), dict(output_final_state=True)
    raw = [x.requires_grad_() for x in (q, k, v, g, beta)]
    got = kda(
        *raw, A_log=A_log, dt_bias=dt_bias, use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True,
        use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, **known,
    )  # fmt: skip
    decay = -A_log.exp()[:, None] * F.softplus(g + dt_bias.view(HV, K))
    alike(got, kda(*unit, v, decay, 2 * torch.sigmoid(beta), **known))
    assert all(x.any() for x in torch.autograd.grad(got[0].sum(), raw))
    decay = -4.0 * torch.sigmoid(A_log.exp()[:, None] * (g + dt_bias.view(HV, K)))
    bounded = dict(A_log=A_log, dt_bias=dt_bias, use_gate_in_kernel=True, lower_bound=-4.0)
    alike(kda(*unit, v, g, beta, **bounded, **known), kda(*unit, v, decay, beta, **known))
    gated = getattr(kernels, f"{form}_gated_delta_rule")
    raw, rates, bias, half = randn(B, T, HV), randn(HV), randn(HV), torch.full((B, T, HV), 0.5)
    activated = gated(*unit, v, g=raw, beta=half, use_gate_in_kernel=True, A_log=rates, dt_bias=bias)
    alike(activated[:1], gated(*unit, v, g=-rates.exp() * F.softplus(raw + bias), beta=half)[:1])
    scalar = dict(g=F.logsigmoid(randn(B, T, HV)), use_qk_l2norm_in_kernel=True)
    alike(
        gated(q, k, v, beta=beta, use_beta_sigmoid_in_kernel=True, **scalar, **known),
        gated(*unit, v, beta=torch.sigmoid(beta), g=scalar["g"], **known),
    )


def test_kda_is_gated_deltanet_2_with_equal_gates():
    q, k, v = tokens()
    g, beta = F.logsigmoid(randn(B, T, HV, K)), rand(B, T, HV)
    k = F.normalize(k, dim=-1)
    b, w = beta[..., None].expand(-1, -1, -1, K), beta[..., None].expand(-1, -1, -1, V)
    alike(kernels.chunk_gdn2(q, k, v, g, b, w)[:1], kernels.chunk_kda(q, k, v, g, beta)[:1])
    b = rand(B, T, HV, K)
    alike(kernels.chunk_gdn2(q, k, v, g, b, b)[:1], kernels.chunk_gdn2(q, k, v, g, b, b.clone())[:1])


@CHUNKED
def test_a_state_may_be_stored_values_first(operator):
    inputs = verify.draw(operator, torch.float32, Shape(T=T, HV=HV, K=16, V=24), "mixed", "unit", 0)
    inputs = {name: x.float() for name, x in inputs.items()}
    function = getattr(kernels, operator.name)
    o, S = function(**inputs, output_final_state=True)
    turned = inputs | {"initial_state": inputs["initial_state"].mT}
    alike(function(**turned, output_final_state=True, state_v_first=True), (o, S.mT))


@CHUNKED
def test_prefill_and_decode_at_every_split(operator):
    """The first tokens in chunks, the others one by one from the state that is left: as all in chunks."""
    decode = getattr(kernels, operator.name.replace("chunk", "fused_recurrent"))
    shape = Shape(T=34, K=16, V=16)
    inputs = {name: x.float() for name, x in verify.draw(operator, torch.float32, shape, "mixed", "unit", 0).items()}
    o, S = getattr(kernels, operator.name)(**inputs, output_final_state=True)
    by_token = set(inputs) - {"initial_state"}
    for split in range(shape.T + 1):
        first, rest = ({n: x[:, part] if n in by_token else x for n, x in inputs.items()}
                       for part in (slice(split), slice(split, None)))  # fmt: skip
        o_first, state = getattr(kernels, operator.name)(**first, output_final_state=True)
        o_rest, state = decode(**rest | {"initial_state": state}, output_final_state=True)
        alike((torch.cat([o_first, o_rest], 1), state), (o, S))


@CHUNKED
@pytest.mark.parametrize("segments", [2, 3])
def test_segments_change_nothing(operator, segments):
    shape = Shape(T=150, HV=2, K=16, V=24)
    with contextlib.ExitStack() as stack:
        for kernel in delta_walk.KERNELS:
            stack.enter_context(tiles.instead(tiles.WalkTiles(16, 16, segments, 4, 2), 16, 24, kernel))
        errors = list(verify.verify(operator, torch.float32, shape))
    assert [str(error) for error in errors if error.failed] == []


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.name.startswith("chunk_") and "beta" in str(o.keys)],
                         ids=lambda o: o.name)  # fmt: skip
@pytest.mark.parametrize("gates", ["zero", "strongest", "resets"])
def test_reflections_stay_finite(operator, gates):
    """Equal keys and beta 2: T has nothing but 2 below its diagonal, and its powers would overflow float16."""
    found = verify.verify(operator, torch.float16, Shape(T=130, HV=2), gates, "identical, beta 2")
    assert all(math.isfinite(error.error) for error in found)


@CHUNKED
def test_gradients_are_the_same_token_by_token(operator):
    """The chunked form keeps for its backward pass what decoding has to make first."""
    decode = getattr(kernels, operator.name.replace("chunk", "fused_recurrent"))
    drawn = verify.draw(operator, torch.float32, Shape(T=70, HV=2), "mixed", "unit", 0)
    inputs = {name: x.float().requires_grad_() for name, x in drawn.items()}
    both = []
    for function in (getattr(kernels, operator.name), decode):
        o, S = function(**inputs, output_final_state=True)
        both.append(torch.autograd.grad((o.square().sum() + S.square().sum()), list(inputs.values())))
    alike(*both)


@triton.jit
def inverted(T, X, C: tl.constexpr, LEVELS: tl.constexpr):
    at = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(X + at, inverse_of(tl.load(T + at), C, LEVELS, "tf32x3"))


@pytest.mark.parametrize("cosine", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("C", [16, 32, 64])
def test_the_inverse(C, cosine):
    k = F.normalize((1 - cosine) * randn(C, 32) + cosine * randn(1, 32), dim=-1)
    T = (2 * k @ k.T).tril(-1)
    X = zeros(C, C)
    inverted[(1,)](T, X, C, C.bit_length() - 1)
    expected = torch.linalg.inv(torch.eye(C, dtype=torch.float64) + T.double())
    assert verify.ratio(X, expected) < 1e-5


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda q, k, v: kernels.chunk_delta_rule(q, k, v, rand(B, T, H)), ValueError, "beta: expected"),
        (lambda q, k, v: kernels.chunk_kda(q, k, v, rand(B, T, HV), rand(B, T, HV)), ValueError, "g: expected"),
        (
            lambda q, k, v: kernels.chunk_gdn2(q, k, v, -rand(B, T, HV, K), rand(B, T, HV), rand(B, T, HV, V)),
            ValueError,
            "b: expected",
        ),
        (
            lambda q, k, v: kernels.chunk_gated_delta_rule(q, k, v, None, rand(B, T, HV), allow_neg_eigval=True),
            ValueError,
            "allow_neg_eigval: expected only with use_beta_sigmoid_in_kernel",
        ),
        (
            lambda q, k, v: kernels.chunk_kda(q, k, v, rand(B, T, HV, K), rand(B, T, HV), use_gate_in_kernel=True),
            TypeError,
            "A_log: expected a tensor",
        ),
        (
            lambda q, k, v: kernels.chunk_kda(q, k, v, -rand(B, T, HV, K), rand(B, T, HV), A_log=rand(HV)),
            ValueError,
            "A_log: expected only with use_gate_in_kernel",
        ),
        (
            lambda q, k, v: kernels.chunk_gated_delta_product(q, k, v, None, rand(B, T, HV), 0),
            ValueError,
            "num_householder: expected a whole number of at least 1, got 0",
        ),
        (
            lambda q, k, v: kernels.chunk_gated_delta_product(q, k, v, None, rand(B, T, HV), 2),
            ValueError,
            "v: expected 2 times q's 40 tokens, got 40",
        ),
        (
            lambda q, k, v: kernels.fused_recurrent_gated_delta_rule(q, k, v, gk=rand(B, T, HV, K)),
            NotImplementedError,
            "gk: not offered here",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, kind, words):
    with pytest.raises(kind, match=words):
        call(*tokens())
