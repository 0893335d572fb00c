"""The Triton kernels, interpreted on a CPU: what ``kernels.verify`` compares, and what it takes for granted."""

import dataclasses
import math
import subprocess
import sys
from functools import partial

import pytest
import torch

import kernels
from kernels import tiles, verify
from kernels.numerics import in_two
from kernels.operators import OPERATORS, Shape

import triton  # isort: skip
import triton.language as tl  # isort: skip

EVERY = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
SOME_OF_EACH = pytest.mark.parametrize(
    "name",
    ["chunk_simple_gla", "fused_recurrent_simple_gla", "chunk_gla", "fused_recurrent_gla", "chunk_gated_delta_rule",
     "fused_recurrent_gated_delta_rule", "chunk_gdn2", "fused_recurrent_gdn2"],
)  # fmt: skip
CHUNKED = pytest.mark.parametrize(
    "operator", [o for o in OPERATORS if o.differentiable and "recurrent" not in o.name], ids=lambda o: o.name
)
# Another test's module may have made float64 the default.
randn, rand, zeros, ones = (
    partial(make, dtype=torch.float32) for make in (torch.randn, torch.rand, torch.zeros, torch.ones)
)
SMALL = Shape(B=2, T=70, H=1, HV=2, K=16, V=24)
BY_NAME = {operator.name: operator for operator in OPERATORS}


def drawn(operator, dtype=torch.float32, shape=SMALL, seed=0):
    return verify.draw(operator, dtype, shape, "mixed", "unit", seed)


def ran(operator, inputs, dtype=torch.float32, shape=SMALL):
    return verify.run(operator, operator.ours, inputs, shape, dtype)


pytestmark = pytest.mark.skipif(
    not kernels.INTERPRETED, reason="on a GPU the kernels are verified by python -m kernels.verify"
)


@pytest.mark.parametrize("dtype", verify.DTYPES, ids=str)
@EVERY
def test_every_case_is_within_the_bar(operator, dtype):
    errors = [error for case in verify.cases(operator, dtype) for error in verify.verify(operator, dtype, *case)]
    assert errors
    assert [str(error) for error in errors if error.failed] == []


@pytest.mark.parametrize("gates", ["mixed", "resets"])
@CHUNKED
def test_channels_of_several_tiles(operator, gates):
    """Keys and values wider than a tile inside the chunks, with a rest: the small cases have one tile of each."""
    shape = Shape(T=40, HV=2, K=72, V=40)
    assert min(shape.K, shape.V) > tiles.chunk_tile(shape.K, torch.float32)
    errors = list(verify.verify(operator, torch.float32, shape, gates))
    assert [str(error) for error in errors if error.failed] == []


@pytest.mark.parametrize("name", ["simple_gla", "gla", "mlstm"])
def test_gradients_by_token_are_those_of_the_chunked_form(name):
    """One backward serves both: bit for bit where it works on the same numbers."""
    chunked = BY_NAME[f"chunk_{name}"]
    found = []
    for operator in (chunked, dataclasses.replace(BY_NAME[f"fused_recurrent_{name}"], by_token=False)):
        found.append(ran(operator, drawn(chunked)))
    for key, x in found[0].items():
        assert verify.ratio(found[1][key], x) < 1e-5, key


@EVERY
def test_a_change_of_any_input_is_seen(operator):
    """The harness is not blind: each input matters for the output."""
    shape = Shape(B=2, T=1 if operator.single else 20, H=1, HV=2, K=16, V=24)
    inputs, operator = drawn(operator, shape=shape), dataclasses.replace(operator, differentiable=False)
    right = ran(operator, inputs, shape=shape)["o"]
    for name, x in inputs.items():
        other = ran(operator, {**inputs, name: 0.5 * x}, shape=shape)["o"]
        assert verify.ratio(other, right) > 1e-5, name


def test_the_exit_status_tells(monkeypatch, capsys):
    monkeypatch.setattr(verify, "cases", lambda operator, dtype: [(SMALL, "mixed", "unit")])
    monkeypatch.setattr(verify, "DTYPES", [torch.float32])
    assert verify.main(["chunk_simple_gla"]) == 0
    assert "0 failures" in capsys.readouterr().out
    right = BY_NAME["chunk_simple_gla"]
    wrong = dataclasses.replace(
        right, ours=lambda tensors, *other: right.ours(tensors | {"v": 1.001 * tensors["v"]}, *other)
    )
    monkeypatch.setattr(verify, "OPERATORS", [wrong])
    assert verify.main(["chunk_simple_gla"]) == 1
    assert "FAILED chunk_simple_gla float32 B2 T70" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        verify.main(["nothing"])


@pytest.mark.parametrize("dtype", verify.DTYPES, ids=str)
@EVERY
def test_runs_repeat_and_layout_does_not_matter(operator, dtype):
    errors = list(verify.properties(operator, dtype))
    assert errors
    assert [str(error) for error in errors if error.failed] == []


@pytest.mark.parametrize("keys", ["unit", "identical"])
@pytest.mark.parametrize(("off", "fails"), [(2**-8, False), (2**-3, True)])
def test_what_all_but_cancels_may_move_as_far_as_rounding_moves_it(keys, off, fails):
    """With identical keys mLSTM's dq is far smaller than its terms: a function that does no more than round its keys
    exceeds the bar, and is right; one that cuts them to two digits is wrong whatever the keys are."""

    def inexact(tensors, *other):
        noise = 2 * torch.rand(tensors["k"].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64) - 1
        wide = {name: x.double() for name, x in tensors.items()}
        return operator.reference(wide | {"k": wide["k"] * (1 + off * noise)}, *other)

    operator = BY_NAME["chunk_mlstm"]
    found = verify.verify(
        dataclasses.replace(operator, ours=inexact), torch.bfloat16, Shape(B=1, T=500, HV=2), "mixed", keys
    )
    dq = next(error for error in found if error.what == "dq")
    assert dq.failed is fails
    plain = 2 * verify.BAR[torch.bfloat16]
    assert (dq.error > plain) is (fails or keys == "identical")
    assert (dq.allowed > plain) is (dq.error > plain)


@triton.jit
def two_parts(x, whole, rest, N: tl.constexpr):
    o = tl.arange(0, N)
    w, r = in_two(tl.load(x + o))
    tl.store(whole + o, w)
    tl.store(rest + o, r)


def test_decays_near_one_keep_digits_that_one_has_no_room_for():
    x = -torch.cat([2.0 ** -torch.arange(40.0), torch.tensor([0.0, 0.09, 0.0902, 30.0, 1e4, torch.inf, 1e-30, 1e-20])])
    x = torch.cat([x, -x[1:17]]).float()  # a stabiliser may round to the other side
    whole, rest = torch.empty(2, 64)
    two_parts[(1,)](x, whole, rest, 64)
    y = x.double() * math.log(2)
    expected = torch.where(whole == 1, torch.expm1(y), torch.exp(y))
    assert set(whole.tolist()) == {0.0, 1.0}
    assert (rest - expected).abs().max() < 6e-8
    near = whole == 1
    assert ((rest - expected) / expected.where(expected != 0, 1.0))[near].abs().max() < 3e-7


def test_what_is_not_contiguous_is_not_contiguous():
    x = randn(2, 40, 2, 16, dtype=torch.float16)
    far = verify.FarApart()(x)
    assert far.stride(1) * 39 > 2**31
    for other in (verify.strided(x), far):
        assert torch.equal(other, x)
        assert not other.is_contiguous()
    assert verify.repeated(x).stride(-1) == 0


def test_a_loss_of_the_final_state_alone():
    q, k, v = randn(3, 1, 40, 1, 16).unbind()
    v.requires_grad_()
    _, state = kernels.chunk_simple_gla(q, k, v, output_final_state=True)
    state.sum().backward()
    assert torch.allclose(v.grad, k.sum(-1, keepdim=True).expand(v.shape), atol=1e-5)


@CHUNKED
def test_segments_change_nothing(operator, monkeypatch):
    """The walk in one piece and in segments: the same results to rounding."""
    monkeypatch.setattr(tiles, "LEAST", 2)
    shape = Shape(T=6 * 32 + 5)
    inputs, found = drawn(operator, shape=shape), []
    for programs in (1, 8, 2):
        monkeypatch.setattr(tiles, "PROGRAMS", programs)
        found.append(ran(operator, inputs, shape=shape))
    for other in found[1:]:
        for name, x in other.items():
            if name[1:] not in operator.summed:  # one sum over all tokens, near 0 or not as it happens
                assert verify.ratio(x, found[0][name]) < 1e-5, name


@SOME_OF_EACH
def test_a_reset_forgets_everything(name):
    """What came before a reset, however large, is not in any later result, nor in any gradient."""
    inputs = {key: x.float() for key, x in drawn(BY_NAME[name]).items()}
    inputs["g"][:, 40] = -torch.inf
    huge = {key: x.clone() for key, x in inputs.items()}
    huge["v"][:, :40], huge["initial_state"] = 1e12, huge["initial_state"] * 1e12
    results = []
    for fed in (inputs, huge):
        fed = {key: x.requires_grad_() for key, x in fed.items()}
        o, state = BY_NAME[name].ours(fed, SMALL, None)
        (dq,) = torch.autograd.grad(o[:, 40:].sum() + state.sum(), [fed["q"]])
        results.append((o[:, 40:], state, dq[:, 40:]))
    for a, b in zip(*results):
        assert torch.equal(a, b)


def test_one_channel_reset_leaves_the_others():
    """A wiped channel of the key forgets; its neighbours keep what they held."""
    q, k, v = randn(3, 1, 40, 1, 16).unbind()
    g = zeros(1, 40, 1, 16)
    g[:, 20, :, :8] = -torch.inf
    _, state = kernels.chunk_gla(q, k, v, g, output_final_state=True)
    kept = torch.einsum("btk,btv->kv", k[:, :, 0], v[:, :, 0])
    late = torch.einsum("btk,btv->kv", k[:, 20:, 0], v[:, 20:, 0])
    assert torch.allclose(state[0, 0, 8:], kept[8:], atol=1e-5)
    assert torch.allclose(state[0, 0, :8], late[:8], atol=1e-5)


def test_retention_has_its_decays():
    q, k, v = randn(3, 1, 40, 3, 16)
    g_gamma = torch.log(1 - 2.0 ** (-5 - torch.arange(3.0, dtype=torch.float32)))
    expected, _ = kernels.chunk_simple_gla(q, k, v, g_gamma=g_gamma)
    assert verify.ratio(kernels.chunk_retention(q, k, v)[0], expected) < 1e-5


@pytest.mark.parametrize("name", ["chunk_simple_gla", "fused_recurrent_simple_gla", "chunk_gla", "fused_recurrent_gla"])
def test_a_state_may_be_stored_values_first(name):
    q, k, v = randn(3, 2, 40, 1, 16)
    v, s = v[..., :12], randn(2, 1, 16, 12)
    g = -rand(2, 40, 1, 16)
    function = partial(getattr(kernels, name), q, k, v, g if "simple" not in name else g[..., 0])
    plain = function(initial_state=s, output_final_state=True)
    turned = function(initial_state=s.mT, output_final_state=True, state_v_first=True)
    assert torch.equal(plain[0], turned[0])
    assert torch.equal(plain[1], turned[1].mT)


def test_mixed_dtypes_follow_the_values():
    q, k, v = randn(3, 1, 20, 1, 16)
    o, _ = kernels.chunk_simple_gla(q.half(), k, v)
    assert o.dtype == torch.float32
    assert kernels.chunk_simple_gla(q, k, v.half())[0].dtype == torch.float16


def test_seq_idx_starts_with_an_empty_state():
    inputs = {
        name: x.float()
        for name, x in drawn(BY_NAME["mamba_chunk_scan_combined"], shape=Shape(B=2, T=70, state=False)).items()
    }
    seq_idx = (torch.arange(70) >= 33).int().expand(2, 70)
    packed = kernels.mamba_chunk_scan_combined(**inputs, seq_idx=seq_idx, dt_softplus=True)
    per_token = ("x", "dt", "B", "C", "z")
    for part in (slice(0, 33), slice(33, 70)):
        cut = {name: x[:, part] if name in per_token else x for name, x in inputs.items()}
        assert verify.ratio(packed[:, part], kernels.mamba_chunk_scan_combined(**cut, dt_softplus=True)) < 1e-5


def test_a_padded_row_writes_zeros_and_touches_no_state():
    rows, H, P, N = 3, 2, 8, 16
    x, dt = randn(2, rows, H, P)
    B, C = randn(2, rows, 1, N)
    A = -rand(H, P, N)
    slots = randn(5, H, P, N)
    before = slots.clone()
    y = kernels.selective_state_update(
        slots, x, dt, A, B, C, dt_softplus=True, state_batch_indices=torch.tensor([4, -1, 0])
    )
    assert (y[1] == 0).all()
    assert torch.equal(slots[1:4], before[1:4])
    one = before[4:5].clone()
    alone = kernels.selective_state_update(one, x[:1], dt[:1], A, B[:1], C[:1], dt_softplus=True)
    assert torch.equal(alone[0], y[0])
    assert torch.equal(one[0], slots[4])


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"k": zeros(1, 8, 2, 12)}, ValueError, "k: expected"),
        ({"g": zeros(1, 7, 2)}, ValueError, "g: expected"),
        ({"v": [1.0]}, TypeError, "v: expected a torch tensor, got list"),
        ({"q": torch.zeros(1, 8, 2, 16, dtype=torch.int32)}, TypeError, "q: expected floating-point"),
        ({"v": zeros(1, 8, 3, 16), "g": None}, ValueError, "multiple of the H heads, got 3 and 2"),
        ({"v": torch.zeros(1, 8, 2, 16, dtype=torch.float64)}, TypeError, "v: expected float32, float16 or bfloat16"),
        ({"initial_state": zeros(2, 2, 16, 16)}, ValueError, "initial_state: expected"),
        ({"cu_seqlens": torch.tensor([0.0, 8.0])}, TypeError, "cu_seqlens: expected an int32 or int64 tensor, got"),
        ({"cu_seqlens": [0, 8]}, TypeError, "cu_seqlens: expected an int32 or int64 tensor, got list"),
        ({"cu_seqlens": torch.tensor([8])}, ValueError, "cu_seqlens: expected shape"),
        ({"g_gamma": zeros(2)}, ValueError, "g, g_gamma: expected one of them, got both"),
    ],
)
def test_bad_input_is_refused_by_name(change, kind, words):
    arguments = {name: zeros(1, 8, 2, 16) for name in ("q", "k", "v")} | {"g": zeros(1, 8, 2)} | change
    with pytest.raises(kind, match=words):
        kernels.chunk_simple_gla(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(state_batch_indices=torch.tensor([0.0, 1.0])), "state_batch_indices: expected a tensor of whole numbers"),
        (dict(state_batch_indices=torch.tensor([0])), "state_batch_indices: expected shape \\(B\\) = \\(2,\\)"),
    ],
)
def test_slots_are_checked(arguments, words):
    x, B, A = randn(2, 3, 8), randn(2, 1, 16), -rand(3, 8, 16)
    with pytest.raises((TypeError, ValueError), match=words):
        kernels.selective_state_update(zeros(4, 3, 8, 16), x, x, A, B, B, **arguments)


@pytest.mark.parametrize("seq_idx", [torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 8)], ids=["shape", "dtype"])
def test_seq_idx_is_checked(seq_idx):
    x, dt, B = randn(1, 8, 2, 4), rand(1, 8, 2), randn(1, 8, 1, 16)
    with pytest.raises((TypeError, ValueError), match="seq_idx: expected"):
        kernels.mamba_chunk_scan_combined(x, dt, -rand(2), B, B, seq_idx=seq_idx)


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (kernels.fused_recurrent_simple_gla, dict(reverse=True)),
        (kernels.fused_recurrent_gla, dict(gk=zeros(1, 8, 2, 16), gv=zeros(1, 8, 2, 16))),
        (kernels.fused_recurrent_gla, dict(gk=zeros(1, 8, 2, 16), reverse=True)),
    ],
)
def test_what_is_not_offered_is_refused_by_name(function, more):
    q = zeros(1, 8, 2, 16)
    with pytest.raises(NotImplementedError, match=f"{[*more][-1]}: not offered"):
        function(q, q, q, **more)


def far_heads(x):
    """Heads so far apart that three of them pass 2^31."""
    B, T, H, D = x.shape
    storage = torch.empty((H - 1) * (2**30 + 64) + B * T * D, dtype=x.dtype).untyped_storage()
    view = torch.empty(0, dtype=x.dtype).set_(storage, 0, x.shape, (T * D, D, 2**30 + 64, 1))
    return view.copy_(x)


@SOME_OF_EACH
def test_heads_may_be_far_apart(name):
    operator, shape = BY_NAME[name], Shape(T=20, H=3, HV=3, K=16, V=16)
    inputs = drawn(operator, torch.float16, shape)
    expected, found = (
        ran(operator, inputs, torch.float16, shape),
        verify.run(
            operator,
            operator.ours,
            inputs,
            shape,
            torch.float16,
            lambda x: far_heads(x) if x.ndim == 4 and x.dtype == torch.float16 else x,
        ),
    )
    for key, x in expected.items():
        assert torch.equal(found[key], x), key


@SOME_OF_EACH
def test_cu_seqlens_may_be_strided(name):
    shape = Shape(T=33, H=1, HV=1, K=16, V=16, lengths=(13, 0, 20))
    operator = BY_NAME[name]
    inputs = {key: x.float() for key, x in drawn(operator, shape=shape).items()}
    ends = torch.tensor([0, 13, 13, 33])
    plain, _ = operator.ours(inputs, shape, ends)
    every_other, _ = operator.ours(inputs, shape, torch.stack([ends, ends + 7], 1)[:, 0])
    assert torch.equal(plain, every_other)


@pytest.mark.parametrize("ends", [[0, 13, 33], [70, 83, 103]])
@pytest.mark.parametrize(
    "name",
    ["chunk_simple_gla", "chunk_gla", "chunk_mlstm", "fused_recurrent_gla", "chunk_gated_delta_rule", "chunk_gdn2"],
)
def test_tokens_of_no_sequence_read_zero(name, ends):
    """A row may be padded, with anything, behind its last sequence and before its first: outputs and gradients there
    are 0."""
    shape, operator = Shape(T=110, H=1, HV=1, K=16, V=16, lengths=(13, 20)), BY_NAME[name]
    none = torch.ones(110, dtype=torch.bool)
    none[ends[0] : ends[-1]] = False
    inputs = {key: x.float() for key, x in drawn(operator, shape=shape).items()}
    for key, x in inputs.items():
        if x.shape[:2] == (1, 110) and key != "f":  # mLSTM's forget gate: its own gradient would be NaN there
            x[:, none] = torch.nan
        x.requires_grad_()
    with verify.nan_filled():
        o, state = operator.ours(inputs, shape, torch.tensor(ends))
        parts = list(state.values()) if isinstance(state, dict) else [state]
        loss = o.sum() + sum(x.sum() for x in parts)
        found = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    assert not o[:, none].any()
    for key, gradient in zip(inputs, found):
        if inputs[key].shape[:2] == (1, 110) and gradient is not None:
            assert not gradient[:, none].any(), key
            assert gradient[:, ~none].isfinite().all(), key


def test_strong_decays_of_any_size_cost_no_digits():
    """Sums of strong decays, whatever the order they are added in: what follows them is exact."""
    shape = Shape(T=100, K=16, V=16)
    for name in ("chunk_simple_gla", "chunk_gla"):
        operator = BY_NAME[name]
        inputs = drawn(operator, shape=shape)
        r = torch.Generator().manual_seed(0)
        strong = -8 - 92 * torch.rand(inputs["g"].shape, generator=r, dtype=torch.float64)
        often = torch.rand(inputs["g"].shape, generator=r, dtype=torch.float64) < 0.4
        inputs["g"] = torch.where(often, strong, -1e-3 * torch.ones_like(strong)).float().double()
        o, _ = operator.reference(inputs, shape, None)
        assert verify.ratio(ran(operator, inputs, shape=shape)["o"], o) < 1e-6, name


def test_small_steps_keep_their_digits():
    """softplus(x) is exp(x) far left of 0, where log(1 + exp(x)) is 0."""
    x, B, A = ones(1, 1, 8), ones(1, 1, 16), zeros(1, 8, 16)
    for dt in (-5.0, -12.0, -20.0):
        state = zeros(1, 1, 8, 16)
        kernels.selective_state_update(state, x, x * dt, A, B, B, dt_softplus=True)
        expected = torch.nn.functional.softplus(torch.tensor(dt, dtype=torch.float64))
        assert torch.allclose(state.double(), expected, rtol=1e-5, atol=0.0)


def test_mamba_without_heads_is_one_head():
    state, x, A, B, D = randn(2, 8, 16), randn(2, 8), -rand(8, 16), randn(2, 16), randn(8)
    one = state.unsqueeze(1).clone()
    y = kernels.selective_state_update(state, x, x, A, B, B, D=D, dt_softplus=True)
    x, B = x.unsqueeze(1), B.unsqueeze(1)
    heads = kernels.selective_state_update(one, x, x, A[None], B, B, D=D[None], dt_softplus=True)
    assert torch.equal(y, heads[:, 0])
    assert torch.equal(state, one[:, 0])


def test_mamba_takes_packed_sequences():
    inputs = {
        key: x.float() for key, x in drawn(BY_NAME["mamba_chunk_scan_combined"], shape=Shape(T=70, state=False)).items()
    }
    ends = torch.tensor([0, 33, 33, 70])
    together, states = kernels.mamba_chunk_scan_combined(
        **inputs, cu_seqlens=ends, dt_softplus=True, return_final_states=True
    )
    seq_idx = (torch.arange(70) >= 33).int()[None]
    assert verify.ratio(together, kernels.mamba_chunk_scan_combined(**inputs, seq_idx=seq_idx, dt_softplus=True)) < 1e-6
    assert states.shape[0] == 3
    assert not states[1].any()


def test_mamba_answers_in_the_dtype_of_x():
    inputs = drawn(BY_NAME["mamba_chunk_scan_combined"])
    half = {key: x.to(torch.float16 if key in ("x", "B", "C") else torch.float32) for key, x in inputs.items()}
    assert kernels.mamba_chunk_scan_combined(**half, dt_softplus=True).dtype == torch.float16


def test_packed_sequences_need_one_row():
    q = zeros(2, 8, 1, 16)
    with pytest.raises(ValueError, match="cu_seqlens: packed sequences need a batch of 1, got B = 2"):
        kernels.chunk_simple_gla(q, q, q, cu_seqlens=torch.tensor([0, 8]))


def test_triton_must_not_be_there_first():
    """Without a GPU, Triton reads whether to interpret when it is imported."""
    if not kernels.INTERPRETED:
        pytest.skip("there is a GPU")
    code = "import os; os.environ.pop('TRITON_INTERPRET', None); import triton, kernels"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "import kernels first, or set TRITON_INTERPRET=1" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux")
def test_every_kernel_compiles_for_hopper():
    done = subprocess.run([sys.executable, "-m", "tests.compile_kernels"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
