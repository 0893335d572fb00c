"""How the rules are related: each is another one with something held fixed. And the traps of some references."""

import math

import pytest
import torch
import torch.nn.functional as F

from lineage_lib import reference
from lineage_lib.rules import RULES
from tests import ladder
from tests.tolerances import ratio

T = 23


def inputs(name, **sizes):
    return ladder.stream(RULES[name], T, **sizes)


def same(got, expected, limit=1e-13):
    for a, b in zip(got, expected):
        assert ratio(a, b) < limit


def run(name, *tensors, **more):
    return RULES[name].recurrent(*tensors, output_final_state=True, **more)


def constant(x, value):
    return torch.full_like(x, value)


def test_gated_deltanet_2_with_one_strength_is_kda():
    q, k, v, g, beta = inputs("kda")
    b, w = (beta[..., None].expand(x.shape) for x in (k, v))
    same(run("gated-deltanet-2", q, k, v, g, b, w), run("kda", q, k, v, g, beta))


def test_kda_with_one_decay_is_gated_deltanet():
    q, k, v, g, beta = inputs("gated-deltanet")
    same(run("kda", q, k, v, g[..., None].expand(k.shape), beta), run("gated-deltanet", q, k, v, g, beta))


def test_gated_deltanet_without_decay_is_deltanet():
    q, k, v, beta = inputs("deltanet")
    same(run("gated-deltanet", q, k, v, torch.zeros_like(beta), beta), run("deltanet", q, k, v, beta))


def test_deltaproduct_of_one_factor_is_gated_deltanet():
    q, k, v, g, beta = inputs("gated-deltanet")
    same(run("deltaproduct", q, k, v, g, beta, num_householder=1), run("gated-deltanet", q, k, v, g, beta))


def test_deltaproduct_without_a_gate_has_gates_of_zero():
    q, k, v, g, beta = inputs("deltaproduct")
    zeros = run("deltaproduct", q, k, v, torch.zeros_like(g), beta, num_householder=2)
    same(run("deltaproduct", q, k, v, None, beta, num_householder=2), zeros)
    same(RULES["deltaproduct"].chunked(q, k, v, None, beta, num_householder=2, output_final_state=True), zeros)


def test_gla_with_one_decay_is_simple_gla_and_retnet_is_one_of_those():
    q, k, v, g = inputs("gla")
    one = g[..., 0]
    simple = reference.naive_recurrent_simple_gla(q, k, v, one, output_final_state=True)
    same(run("gla", q, k, v, one[..., None].expand(k.shape)), simple)
    fixed = reference.retention_log_decay(2).expand(one.shape)
    simple = reference.naive_recurrent_simple_gla(q, k, v, fixed, output_final_state=True)
    same(run("retnet", q, k, v), simple)


def test_rwkv_6_with_fixed_decays_is_rwkv_5():
    r, k, v, w, u = inputs("rwkv-5")
    same(run("rwkv-6", r, k, v, w.expand(k.shape), u), run("rwkv-5", r, k, v, w, u))


def test_rwkv_6_with_a_bonus_of_one_reads_after_the_write():
    r, k, v, w, _ = inputs("rwkv-6")
    still = torch.zeros_like(w)
    same(run("rwkv-6", r, k, v, still, torch.ones(2, 4, dtype=w.dtype)), run("gla", r, k, v, still))


def test_rwkv_7_without_removal_is_gla():
    r, w, k, v, kappa, a = inputs("rwkv-7")
    same(run("rwkv-7", r, w, k, v, kappa, torch.zeros_like(a)), run("gla", r, k, v, w, scale=1.0))


def test_rwkv_7_without_decay_at_its_own_key_is_deltanet():
    q, k, v, beta = inputs("deltanet")
    a = beta[..., None].expand(k.shape)
    got = run("rwkv-7", q, torch.zeros_like(k), beta[..., None] * k, v, k, a)
    same(got, run("deltanet", q, k, v, beta, scale=1.0))


def test_mamba_2_is_simple_gla_with_the_step_on_the_write():
    x, dt, A, B, C, _ = inputs("mamba-2")
    simple = reference.naive_recurrent_simple_gla(C, B, dt[..., None] * x, dt * A, scale=1.0, output_final_state=True)
    same(run("mamba-2", x, dt, A, B, C), simple)


def test_mamba_3_with_lambda_one_and_no_rotation_is_mamba_2():
    x, dt, A, lam, B, C, theta, D = inputs("mamba-3")
    fixed = constant(A, -0.5)
    o, (S, *_) = run("mamba-3", x, dt, fixed, constant(lam, 1.0), B, C, torch.zeros_like(theta), D)
    same((o, S), run("mamba-2", x, dt, torch.full((2,), -0.5, dtype=x.dtype), B, C, D))


def test_mamba_1_is_the_numpy_recurrence_of_chapter_3():
    x, dt, A, B, C, _ = inputs("mamba-1", B=1)
    decay = (dt[0, :, :, None] * A).exp().transpose(1, 2)  # (T, N, P)
    Y, S = reference.diagonal_recurrent(dt[0] * x[0], decay, B[0], C[0])
    o, h = run("mamba-1", x, dt, A, B, C)
    same((o[0], h[0].T), (torch.from_numpy(Y), torch.from_numpy(S)))


def test_mamba_2_is_the_numpy_recurrence_of_chapter_3():
    x, dt, A, B, C, _ = inputs("mamba-2", B=1, H=1)
    Y, S = reference.ssd_recurrent((dt[..., None] * x)[0, :, 0], (dt * A).exp()[0, :, 0], B[0, :, 0], C[0, :, 0])
    o, state = run("mamba-2", x, dt, A, B, C)
    same((o[0, :, 0], state[0, 0]), (torch.from_numpy(Y), torch.from_numpy(S)))


def test_s4_of_real_numbers_is_mamba_1_that_never_chooses():
    x, dt, A, B, C, D = inputs("mamba-1")
    dt, B, C = dt[0, 0], B[0, :3], C[0, :3]  # (P,), (P, N)
    got = run("s4", x, dt, A, B, C, D)
    per_channel = [
        run(
            "mamba-1",
            x[..., p : p + 1],
            dt[p].expand(2, T, 1),
            A[p : p + 1],
            B[p].expand(2, T, 4),
            C[p].expand(2, T, 4),
            D[p : p + 1],
        )
        for p in range(3)
    ]
    same(got, (torch.cat([o for o, _ in per_channel], -1), torch.cat([h for _, h in per_channel], 1)))
    same(RULES["s4"].chunked(x, dt, A, B, C, D, output_final_state=True), got)


def test_mlstm_plain_and_stabilised_agree():
    tensors = inputs("mlstm")
    o, (S, n, m) = run("mlstm", *tensors)
    plain, (S_plain, n_plain) = reference.naive_recurrent_mlstm_plain(*tensors, output_final_state=True)
    same((o, S * m.exp()[..., None, None], n * m.exp()[..., None]), (plain, S_plain, n_plain))


@pytest.mark.parametrize("form", ["recurrent", "chunked"])
@pytest.mark.parametrize("large", [1000.0, -1000.0, -math.inf])
def test_mlstm_of_extreme_gates_is_finite_and_right(form, large):
    """Gates of +-1000 at one token, and one that is shut; beyond the plain form's range only the ratio counts."""
    q, k, v, i, f = inputs("mlstm")
    i = i.clone()
    i[:, 4] = large
    o, (S, *_) = getattr(RULES["mlstm"], form)(q, k, v, i, f, output_final_state=True)
    assert torch.isfinite(o).all()
    assert torch.isfinite(S).all()
    if large < 0:
        plain, _ = reference.naive_recurrent_mlstm_plain(q, k, v, i, f)
        assert ratio(o, plain) < 1e-13
    else:  # nothing else has any weight left at that token
        read = (k[:, 4] * q[:, 4]).sum(-1)[..., None] * v[:, 4] / (k[:, 4] * q[:, 4]).sum(-1).abs()[..., None]
        assert ratio(o[:, 4], read) < 1e-13


def test_mlstm_does_not_depend_on_where_m_starts():
    q, k, v, i, f = inputs("mlstm")
    zero = (torch.zeros(2, 2, 4, 3), torch.zeros(2, 2, 4))
    starts = [(*(z.double() for z in zero), torch.full((2, 2), m, dtype=torch.float64)) for m in (0.0, -5.0, 7.0)]
    results = [run("mlstm", q, k, v, i, f, initial_state=s)[0] for s in starts]
    for o in results:
        assert ratio(o, run("mlstm", q, k, v, i, f)[0]) < 1e-13


def test_rg_lru_writes_its_first_token_whole_and_keeps_digits_near_one():
    x = torch.ones(1, 3, 1)
    h, _ = reference.naive_recurrent_rg_lru(x, torch.full_like(x, 1e-9), torch.ones_like(x), torch.zeros(1))
    # a = exp(-8 ln 2 · 1e-9): float32 rounds it to 1, and 1 - a² would be 0.
    write = math.sqrt(-math.expm1(-2 * 8 * math.log(2) * 1e-9))
    assert h[0, 0, 0] == 1.0
    assert h[0, 1, 0].item() == pytest.approx(1 + write, rel=1e-6)


def test_rg_lru_with_a_state_goes_on_in_the_middle_of_a_document():
    x, r, i, Lambda = inputs("rg-lru")
    state = torch.zeros(2, 3, dtype=torch.float64)
    fresh, _ = reference.naive_recurrent_rg_lru(x, r, i, Lambda)
    going_on, _ = reference.naive_recurrent_rg_lru(x, r, i, Lambda, initial_state=state)
    root = (-torch.expm1(-16 * F.softplus(Lambda) * r[:, 0])).sqrt()
    assert ratio(going_on[:, 0], root * fresh[:, 0]) < 1e-14


def test_half_lives_of_retnet():
    half = math.log(0.5) / reference.retention_log_decay(8)
    assert [round(x, 1) for x in half.tolist()] == [21.8, 44.0, 88.4, 177.1, 354.5, 709.4, 1419.2, 2838.8]


def test_lightning_slopes():
    g = reference.lightning_log_decay(4, 0, 3)
    assert g.tolist() == [-(2.0**-2), -(2.0**-4), -(2.0**-6), -(2.0**-8)]
    assert reference.lightning_log_decay(4, 2, 3).tolist() == [0.0] * 4


BAD = {
    "too few": (lambda: RULES["gla"].chunked(*inputs("gla")[:3]), TypeError, "expected q, k, v, g, got 3 tensors"),
    "none": (lambda: RULES["gla"].chunked(*inputs("gla")[:3], None), TypeError, "g: expected a torch tensor, got None"),
    "a scale too many": (
        lambda: RULES["mamba-2"].chunked(*inputs("mamba-2"), scale=0.5),
        TypeError,
        "scale: Mamba-2 has none, got 0.5",
    ),
    "two tokens in a step": (lambda: RULES["gla"].step(*inputs("gla")), ValueError, "step: expected one token"),
    "positive decay": (
        lambda: RULES["kda"].recurrent(*[-t if n == 3 else t for n, t in enumerate(inputs("kda"))]),
        ValueError,
        "g: expected log-decays of at most 0",
    ),
    "negative step": (
        lambda: RULES["mamba-1"].chunked(*[-t if n == 1 else t for n, t in enumerate(inputs("mamba-1"))]),
        ValueError,
        "dt: expected steps of at least 0",
    ),
    "heads": (
        lambda: RULES["gla"].chunked(*[t[:, :, :1] if n == 1 else t for n, t in enumerate(inputs("gla"))]),
        ValueError,
        "k: expected shape (B, T, H, K) with H = 2",
    ),
    "K of the gate": (
        lambda: RULES["gla"].chunked(*[t[..., :3] if n == 3 else t for n, t in enumerate(inputs("gla"))]),
        ValueError,
        "g: expected shape (B, T, HV, K) with K = 4",
    ),
    "value heads": (
        lambda: reference.naive_recurrent_gla(*inputs("gla", HV=3)),
        ValueError,
        "expected the HV heads to be a multiple of the H heads, got 3 and 2",
    ),
    "half a state": (
        lambda: RULES["mlstm"].chunked(*inputs("mlstm"), initial_state=torch.zeros(2, 2, 4, 3)),
        TypeError,
        "initial_state: expected a tuple (S, n, m), got Tensor",
    ),
    "angles": (
        lambda: RULES["mamba-3"].chunked(*inputs("mamba-3", R=3)),
        ValueError,
        "theta: expected at most 2 angles for N = 4, got 3",
    ),
    "factors": (
        lambda: RULES["deltaproduct"].chunked(*inputs("deltaproduct"), num_householder=3),
        ValueError,
        "k: expected 3 steps for each of the 23 tokens of q, got 46",
    ),
    "layers": (
        lambda: reference.lightning_log_decay(4, 3, 3),
        ValueError,
        "layer: expected 0 <= layer < num_layers with num_layers >= 2, got layer 3 of 3",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)
