"""mLSTM's kernels, interpreted on a CPU: what is theirs alone. The rest is in test_kernels.py."""

import math
from functools import partial

import pytest
import torch
from torch.nn.functional import logsigmoid, normalize

import kernels
from kernels import mlstm, verify
from kernels.operators import OPERATORS, Shape
from lineage_lib.reference import naive_recurrent_mlstm

BOTH = pytest.mark.parametrize("function", [kernels.chunk_mlstm, kernels.fused_recurrent_mlstm])
randn, full, zeros = (partial(make, dtype=torch.float32) for make in (torch.randn, torch.full, torch.zeros))
OUTPUTS = ("o", "S", "n", "m")
pytestmark = pytest.mark.skipif(
    not kernels.INTERPRETED, reason="on a GPU the kernels are verified by python -m kernels.verify"
)


def drawn(T=40, H=1, HV=2, seed=0):
    """q, k, v, i, f, S, n, m by name, of mixed signs and sizes."""
    torch.manual_seed(seed)
    q, k, v = randn(2, T, H, 16), normalize(randn(2, T, H, 16), dim=-1), randn(2, T, HV, 24)
    state = {"S": randn(2, HV, 16, 24), "n": randn(2, HV, 16), "m": randn(2, HV)}
    return {"q": q, "k": k, "v": v, "i": 2 * randn(2, T, HV), "f": 2 + randn(2, T, HV), **state}


def call(function, tensors):
    """The outputs by name."""
    *inputs, S, n, m = (x.to(verify.DEVICE) for x in tensors.values())
    o, state = function(*inputs, initial_state=(S, n, m), output_final_state=True)
    return dict(zip(OUTPUTS, (o, *state)))


def with_gradients(function, tensors, of, dtype=torch.float32):
    """Outputs and gradients by name; the loss is of the outputs named in ``of``."""
    fed = {name: x.to(dtype).requires_grad_() for name, x in tensors.items()}
    outputs = call(function, fed)
    incoming = [randn(outputs[x].shape, generator=torch.Generator().manual_seed(7)).to(outputs[x]) for x in of]
    gradients = torch.autograd.grad([outputs[x] for x in of], list(fed.values()), incoming, materialize_grads=True)
    return outputs | {f"d{name}": x for name, x in zip(fed, gradients)}


@BOTH
@pytest.mark.parametrize("of", [OUTPUTS, ("o",), ("S",), ("m",)], ids="".join)
def test_it_is_the_reference(function, of):
    """Forward, and every gradient through the stabiliser, that of the first m included."""
    tensors = drawn()
    tensors["f"][:, 20, 0] = -torch.inf
    got = with_gradients(function, tensors, of)
    expected = with_gradients(naive_recurrent_mlstm, tensors, of, torch.float64)
    for name, x in expected.items():
        assert verify.ratio(got[name], x) <= (1 if name in OUTPUTS else 2) * verify.BAR[torch.float32], name


def test_the_harness_has_the_same_reference():
    """It takes the chunked form, which is fast; here both are in float64."""
    operator = next(x for x in OPERATORS if x.name == "chunk_mlstm")
    shape = Shape(B=2, T=70, H=1, HV=2, K=16, V=24)

    def recurrent(tensors, shape, packed):
        q, k, v, i, f, S, n, m = tensors.values()
        o, state = naive_recurrent_mlstm(q, k, v, i, f, initial_state=(S, n, m.detach()), output_final_state=True)
        return o, dict(zip(("state S", "state n", "state m"), state))

    for regime in operator.regimes:
        inputs = verify.draw(operator, torch.float64, shape, regime, "unit", 0)
        found, expected = (
            verify.run(operator, function, inputs, shape, torch.float64) for function in (operator.reference, recurrent)
        )
        for name, x in expected.items():
            assert verify.ratio(found[name], x, 1e-6) < 1e-11, (regime, name)


@BOTH
@pytest.mark.parametrize("large", [1000.0, -1000.0, -torch.inf])
def test_gates_of_any_size(function, large):
    """S and n are compared at the reference's m: near 1000 float32's numbers are 6e-5 apart."""
    tensors = drawn()
    tensors["i"][:, 4] = large
    got, expected = call(function, tensors), call(naive_recurrent_mlstm, {k: x.double() for k, x in tensors.items()})
    by = (got["m"] - expected["m"]).exp()
    got |= {"S": got["S"] * by[..., None, None], "n": got["n"] * by[..., None]}
    for name, x in expected.items():
        assert verify.ratio(got[name], x) <= verify.BAR[torch.float32], name


@BOTH
def test_an_empty_state_is_read_as_zero(function):
    """From the start, and after a token that forgets all and writes nothing; and no gradient is NaN."""
    tensors = {name: x for name, x in drawn().items() if name not in ("S", "n", "m")}
    tensors["i"][:, :3] = -torch.inf
    tensors["i"][:, 20], tensors["f"][:, 20] = -torch.inf, -torch.inf
    fed = {name: x.requires_grad_() for name, x in tensors.items()}
    o, _ = function(**fed)
    assert (o[:, :3] == 0).all()
    assert (o[:, 20] == 0).all()
    for name, gradient in zip(fed, torch.autograd.grad(o.square().sum(), list(fed.values()))):
        assert torch.isfinite(gradient).all(), name
    parts = [function(**{name: x[:, part] for name, x in tensors.items()})[0] for part in (slice(3, 20), slice(21, 40))]
    assert verify.ratio(o[:, 3:20], parts[0]) < 1e-6
    assert verify.ratio(o[:, 21:], parts[1]) < 1e-6


@BOTH
def test_no_tokens_leave_the_state_as_it_was(function):
    got = with_gradients(function, drawn(T=0), OUTPUTS)
    for name in ("S", "n", "m"):
        assert torch.equal(got[name], drawn(T=0)[name])
        assert torch.allclose(
            got[f"d{name}"], randn(got[name].shape, generator=torch.Generator().manual_seed(7)), atol=1e-5
        )
    _, (S, n, m) = function(*(drawn(T=0)[name] for name in "qkvif"), output_final_state=True)
    assert (S == 0).all()
    assert (n == 0).all()
    assert (m == torch.finfo(torch.float32).min).all()


@BOTH
def test_the_output_does_not_depend_on_where_m_starts(function):
    tensors = drawn()
    moved = tensors | {"S": 1024 * tensors["S"], "n": 1024 * tensors["n"], "m": tensors["m"] - math.log(1024)}
    a, b = call(function, tensors), call(function, moved)
    assert verify.ratio(b["o"], a["o"]) < 1e-5


def test_decoding_goes_on_where_the_chunks_ended():
    tensors = drawn()
    whole = call(kernels.chunk_mlstm, tensors)
    inputs = {name: tensors[name] for name in "qkvif"}
    first = {name: x[:, :33] for name, x in inputs.items()}
    _, state = kernels.chunk_mlstm(
        **first, initial_state=(tensors["S"], tensors["n"], tensors["m"]), output_final_state=True
    )
    for t in range(33, 40):
        token = {name: x[:, t : t + 1] for name, x in inputs.items()}
        o, state = kernels.fused_recurrent_mlstm(**token, initial_state=state, output_final_state=True)
        assert verify.ratio(o, whole["o"][:, t : t + 1]) < 1e-5
    for name, x in zip(("S", "n", "m"), state):
        assert verify.ratio(x, whole[name]) < 1e-5


@pytest.mark.parametrize("packed", [False, True])
def test_the_stabiliser_is_exact_over_its_blocks(packed):
    """And no error adds up: 600 equal decays with nothing written, in blocks of 16."""
    T, HV = 600, 2
    i, f = full((1, T, HV), -80.0), full((1, T, HV), 6.9)
    i[0, 3], i[0, 300, 1], f[0, 400, 1] = 7.0, 8.0, -torch.inf
    m_in = randn(2 if packed else 1, HV, generator=torch.Generator().manual_seed(0))
    cu_seqlens = torch.tensor([0, 290, T]) if packed else None
    g, w, floor = zeros(3, 1, T, HV)
    m_out, winner = zeros(m_in.shape), torch.zeros(m_in.shape, dtype=torch.int64)
    mlstm.stabilise[(m_in.numel(),)](i, f, m_in, g, w, floor, m_out, winner, cu_seqlens, T, HV, 16)
    log_f, ms = logsigmoid(f.double()), []
    for n, (start, end) in enumerate([(0, 290), (290, T)] if packed else [(0, T)]):
        m, last = m_in[n].double(), torch.full((HV,), -1)
        for t in range(start, end):
            last = torch.where(i[0, t] >= log_f[0, t] + m, t - start, last)
            m = torch.maximum(log_f[0, t] + m, i[0, t].double())
            ms.append(m)
        assert (m_out[n] - m).abs().max() < 1e-6 * m.abs().max()
        assert torch.equal(winner[n], last)
    ms = torch.stack(ms)
    assert verify.ratio(w[0], (i[0] - ms).exp()) < 1e-5
    assert verify.ratio(floor[0].log(), -ms) < 1e-6
    survived = g[0, 4:290].double().sum(0)  # the decays since the token that m comes from
    assert (survived - (log_f[0, 4:290].sum(0) + 7.0 - ms[289])).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"i": zeros(1, 7, 2)}, ValueError, "i: expected"),
        ({"f": None}, TypeError, "f: expected a torch tensor"),
        ({"initial_state": zeros(1, 2, 16, 16)}, TypeError, r"initial_state: expected a tuple \(S, n, m\), got Tensor"),
        ({"initial_state": (zeros(1, 2, 16, 16), None, None)}, TypeError, "initial_state's n: expected a torch tensor"),
        (
            {"initial_state": (zeros(1, 2, 16, 16), zeros(1, 2, 8), zeros(1, 2))},
            ValueError,
            "initial_state's n: expected",
        ),
        ({"v": torch.zeros(1, 8, 2, 16, dtype=torch.float64)}, TypeError, "v: expected float32, float16 or bfloat16"),
    ],
)
def test_bad_input_is_refused_by_name(change, kind, words):
    arguments = {name: zeros(1, 8, 2, 16) for name in "qkv"} | {name: zeros(1, 8, 2) for name in "if"} | change
    with pytest.raises(kind, match=words):
        kernels.chunk_mlstm(**arguments)


def test_gates_may_be_strided_and_of_16_bits():
    tensors = drawn()
    tensors |= {name: tensors[name].half().float() for name in "if"}
    strided = {name: torch.stack([tensors[name].half()] * 2, -1)[..., 0] for name in "if"}
    plain, other = (with_gradients_of_gates(fed) for fed in (tensors, tensors | strided))
    assert torch.equal(plain[0], other[0])
    assert all(verify.ratio(a, b) < 2e-3 for a, b in zip(other[1:], plain[1:]))
    assert [x.dtype for x in other[1:]] == [torch.float16] * 2


def with_gradients_of_gates(tensors):
    fed = {name: tensors[name].detach().requires_grad_(name in "if") for name in "qkvif"}
    o, _ = kernels.chunk_mlstm(**fed)
    return o, *torch.autograd.grad(o.sum(), [fed["i"], fed["f"]])
