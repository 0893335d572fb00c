"""The two chunked algorithms where others broke: strong decay, resets, hard keys, long sequences, bad input."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from lineage_lib.chunked import chunk_additive, chunk_delta
from lineage_lib.reference import naive_recurrent_gdn2, naive_recurrent_gla, naive_recurrent_simple_gla
from lineage_lib.rules import RULES
from tests.tolerances import allowed, ratio

GATES = ("one", "1 - 1e-3", "mixed", "e^-5", "resets")
KEYS = ("random", "cosine 0.9", "identical", "zero")
BETAS = (0.0, 0.5, 1.0, 2.0)


def gates(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Log-decays (B, T, H) or (B, T, H, K) of one regime."""
    g = torch.zeros(shape, dtype=torch.float64)
    if kind == "1 - 1e-3":
        g += torch.log1p(torch.tensor(-1e-3, dtype=torch.float64))
    elif kind == "e^-5":
        g -= 5.0
    elif kind == "mixed":  # from barely forgetting to forgetting at once, side by side
        g -= 10.0 ** (-6 + 8 * torch.rand(shape, generator=generator, dtype=torch.float64))
    elif kind == "resets":
        g -= 1e-3
        g[torch.rand(shape, generator=generator) < 0.02] = -torch.inf
    return g


def keys(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    k = F.normalize(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1)
    one = k[:, :1]
    if kind == "cosine 0.9":  # with one direction, whence about 0.81 with each other
        across = F.normalize(k - (k * one).sum(-1, keepdim=True) * one, dim=-1)
        return torch.cat([one, 0.9 * one + (1 - 0.81) ** 0.5 * across[:, 1:]], 1)
    return {"random": k, "identical": one.expand_as(k).clone(), "zero": torch.zeros_like(k)}[kind]


def hard_heads(T: int, K: int, V: int, gate: str, channels: bool):
    """One head for every pair of keys and beta: q, k, v, g, b, w, gates of one regime."""
    generator = torch.Generator().manual_seed(5)
    pairs = list(itertools.product(KEYS, BETAS))
    H = len(pairs)
    q = torch.randn(1, T, H, K, generator=generator, dtype=torch.float64)
    v = torch.randn(1, T, H, V, generator=generator, dtype=torch.float64)
    k = torch.cat([keys(kind, (1, T, 1, K), generator) for kind, _ in pairs], 2)
    beta = torch.tensor([b for _, b in pairs], dtype=torch.float64).expand(1, T, H)
    g = gates(gate, (1, T, H, K) if channels else (1, T, H), generator)
    return q, k, v, g, beta[..., None].expand(1, T, H, K), beta[..., None].expand(1, T, H, V)


def delta(q, k, v, g, b, w, **more):
    return chunk_delta(q, k, w * v, b * k, g, **more)


def per_channel(g, K):
    return g if g.ndim == 4 else g[..., None].expand(*g.shape, K)


@pytest.mark.parametrize("channels", [False, True], ids=["a decay a head", "a decay a channel"])
@pytest.mark.parametrize("gate", GATES)
def test_4096_steps(gate, channels):
    """Float64 to 1e-10 (in fact better) for every head on its own, float32 to a kernel's tolerance.

    With beta = 2 a transition is a reflection and keeps for ever what a rounding does to it. Chunked,
    each kᵀk is rounded once for all values; with identical keys that error is the same at every step.
    """
    T, K, V = 4096, 8, 5
    inputs = [t.float().double() for t in hard_heads(T, K, V, gate, channels)]
    q, k, v, g, b, w = inputs
    additive = naive_recurrent_gla if channels else naive_recurrent_simple_gla
    expected = {
        "delta": naive_recurrent_gdn2(q, k, v, per_channel(g, K), b, w, output_final_state=True),
        "additive": additive(q, k, v, g, output_final_state=True),
    }
    for dtype in (torch.float64, torch.float32):
        q, k, v, g, b, w = (t.to(dtype) for t in inputs)
        got = {
            "delta": delta(q, k, v, g, b, w, output_final_state=True),
            "additive": chunk_additive(q, k, v, g, output_final_state=True),
        }
        for name, (h, head) in itertools.product(got, enumerate(itertools.product(KEYS, BETAS))):
            for part, (axis, what) in enumerate([(2, "output"), (1, "state")]):
                a, exact = (x[part].select(axis, h) for x in (got[name], expected[name]))
                limit = allowed(dtype, T, reflections=name == "delta" and head[1] == 2.0)
                assert ratio(a, exact) <= limit, (name, what, dtype, *head)


@pytest.mark.parametrize("channels", [False, True], ids=["a decay a head", "a decay a channel"])
@pytest.mark.parametrize("gate", GATES)
def test_gradients_in_every_regime(gate, channels):
    T = 150
    inputs = hard_heads(T, 6, 5, gate, channels)

    def gradients(form):
        leaves = [t.clone().requires_grad_() for t in inputs]
        o, S = form(*leaves, output_final_state=True)
        generator = torch.Generator().manual_seed(2)
        loss = sum((x * torch.randn(x.shape, generator=generator, dtype=x.dtype)).sum() for x in (o, S))
        return torch.autograd.grad(loss, leaves)

    def reference(q, k, v, g, b, w, **more):
        return naive_recurrent_gdn2(q, k, v, per_channel(g, k.shape[-1]), b, w, **more)

    for name, got, expected in zip("qkvgbw", gradients(delta), gradients(reference)):
        assert ratio(got, expected) <= allowed(torch.float64, T, "gate gradient"), name


def test_strong_decay_on_every_token_is_finite():
    """One chunk whose log-decays add up to -1280, forward and backward, in float32."""
    q, k, v = (torch.randn(1, 64, 2, 8, generator=torch.Generator().manual_seed(s)) for s in range(3))
    for g in (torch.full((1, 64, 2), -20.0), torch.full((1, 64, 2, 8), -20.0)):
        g.requires_grad_()
        o, S = delta(q, F.normalize(k, dim=-1), v, g, torch.ones(()), torch.ones(()), output_final_state=True)
        (o.sum() + S.sum()).backward()
        assert torch.isfinite(o).all()
        assert torch.isfinite(g.grad).all()


def test_first_token_forgets_and_the_rest_keeps():
    """exp(sum) is one exponential: a strong first decay and none afterwards leave exactly the new writes."""
    T = 128
    q, k, v = (torch.randn(1, T, 1, 4, generator=torch.Generator().manual_seed(s)) for s in range(3))
    g = torch.zeros(1, T, 1)
    g[:, 0] = -100.0
    S0 = torch.full((1, 1, 4, 4), 1e6)
    fresh = chunk_additive(q, k, v, torch.zeros(1, T, 1), output_final_state=True)
    kept = chunk_additive(q, k, v, g, initial_state=S0, output_final_state=True)
    for a, b in zip(kept, fresh):
        assert ratio(a, b) < 1e-6


@pytest.mark.parametrize("channels", [False, True], ids=["a decay a head", "a decay a channel"])
@pytest.mark.parametrize("t", [0, 5, 15, 16, 31, 39])
def test_a_reset_wipes_exactly(t, channels):
    """What was huge before the reset leaves no trace: the rest equals a fresh run of the rest."""
    T, generator = 40, torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, T, 2, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    k = F.normalize(k, dim=-1)
    v[:, :t] *= 1e200
    g = gates("mixed", (1, T, 2, 4) if channels else (1, T, 2), generator)
    g[:, t] = -torch.inf
    for form in (lambda *a, **m: delta(*a, torch.ones(()), torch.ones(()), **m), chunk_additive):
        whole = form(q, k, v, g, chunk_size=16, output_final_state=True)
        rest = form(*(x[:, t:] for x in (q, k, v, g)), chunk_size=16, output_final_state=True)
        assert ratio(whole[0][:, t:], rest[0]) < 1e-13
        assert ratio(whole[1], rest[1]) < 1e-13


def test_correlated_keys_in_float32():
    """One vector with a tenth of noise, beta = 1, gates of -0.02: where powers of the erase matrix fail."""
    generator = torch.Generator().manual_seed(0)
    T, K = 256, 64
    k = F.normalize(
        torch.randn(1, 1, 1, K, generator=generator) + 0.1 * torch.randn(1, T, 1, K, generator=generator), dim=-1
    )
    q, v = (torch.randn(1, T, 1, K, generator=generator) for _ in range(2))
    g, one = torch.full((1, T, 1), -0.02), torch.ones(1, T, 1, 1)
    b = one.expand(1, T, 1, K)
    wide = [t.double() for t in (q, k, v, per_channel(g, K), b, b)]
    assert ratio(delta(q, k, v, g, one, one)[0], naive_recurrent_gdn2(*wide)[0]) <= allowed(torch.float32, T)


def test_no_gate_is_a_gate_of_zeros():
    q, k, v = (torch.randn(2, 21, 2, 4, dtype=torch.float64) for _ in range(3))
    results = []
    for g in (None, torch.zeros(2, 21, 2, dtype=torch.float64), torch.zeros(2, 21, 2, 4, dtype=torch.float64)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        o, S = chunk_delta(*leaves, 0.3 * leaves[1], g, chunk_size=8, output_final_state=True)
        results.append([o, S, *torch.autograd.grad(o.square().sum() + S.sum(), leaves)])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert ratio(a, b) < 1e-13


def test_dtypes():
    q, k, v = (torch.randn(1, 20, 2, 4).bfloat16() for _ in range(3))
    o, S = chunk_additive(q, k, v, -torch.rand(1, 20, 2), output_final_state=True)
    assert o.dtype == torch.bfloat16
    assert S.dtype == torch.float32
    assert chunk_additive(q, k, v)[1] is None


def test_strided_and_expanded_inputs_and_gradients():
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(2, 3, 4, 40, dtype=torch.float64, generator=generator)  # (B, H, K, T): all strides odd
    q = base.permute(0, 3, 1, 2).requires_grad_()
    k = F.normalize(torch.randn(1, 40, 1, 4, dtype=torch.float64, generator=generator), dim=-1).expand(2, 40, 3, 4)
    v = torch.randn(2, 40, 3, 5, dtype=torch.float64, generator=generator)
    o, _ = chunk_delta(q, k, v, k, chunk_size=16)
    (got,) = torch.autograd.grad(o, q, torch.ones(1, dtype=torch.float64).expand_as(o))
    flat = q.detach().contiguous().requires_grad_()
    o2, _ = chunk_delta(flat, k.contiguous(), v, k.contiguous(), chunk_size=16)
    (wanted,) = torch.autograd.grad(o2.sum(), flat)
    assert ratio(o, o2) < 1e-14
    assert ratio(got, wanted) < 1e-13


def a_call(**changes):
    ones = {name: torch.ones(1, 6, 2, 4) for name in ("q", "k", "v", "e")}
    return chunk_delta(**{**ones, "g": torch.zeros(1, 6, 2), **changes})


BAD = {
    "no tensor": ({"q": [1.0]}, TypeError, "q: expected a torch tensor, got list"),
    "whole numbers": (
        {"k": torch.ones(1, 6, 2, 4).long()},
        TypeError,
        "k: expected floating-point numbers, got torch.int64",
    ),
    "axes": ({"q": torch.ones(6, 2, 4)}, ValueError, r"q: expected shape (B, T, H, K), got (6, 2, 4)"),
    "heads": ({"k": torch.ones(1, 6, 3, 4)}, ValueError, "k: expected shape (B, T, H, K) with H = 2 as in the earlier"),
    "value heads": ({"v": torch.ones(1, 6, 3, 4)}, ValueError, "v: expected a multiple of q's 2 heads, got 3 heads"),
    "K of the gate": ({"g": torch.zeros(1, 6, 2, 5)}, ValueError, "g: expected shape (B, T, HV, K) with K = 4"),
    "heads of the gate": ({"g": torch.zeros(1, 6, 1)}, ValueError, "g: expected shape (B, T, HV) with HV = 2"),
    "positive decay": (
        {"g": torch.full((1, 6, 2), 1e-3)},
        ValueError,
        "g: expected log-decays of at most 0, got 0.001 at",
    ),
    "no number": (
        {"g": torch.full((1, 6, 2), torch.nan)},
        ValueError,
        "g: expected log-decays of at most 0, got nan at",
    ),
    "no erase key": ({"e": None}, TypeError, "e: expected a torch tensor, got None"),
    "state": (
        {"initial_state": torch.ones(2, 2, 4, 4)},
        ValueError,
        "initial_state: expected shape (N, HV, K, V) with N = 1",
    ),
    "chunk": ({"chunk_size": 0}, ValueError, "chunk_size: expected a whole number of at least 1, got 0"),
    "start": ({"cu_seqlens": torch.tensor([1, 6])}, ValueError, "cu_seqlens: expected to start at 0, got 1"),
    "end": ({"cu_seqlens": torch.tensor([0, 5])}, ValueError, "cu_seqlens: expected to end at T = 6, got 5"),
    "decreasing": (
        {"cu_seqlens": torch.tensor([0, 4, 3, 6])},
        ValueError,
        "cu_seqlens: expected not to decrease, got 4, 3 at",
    ),
    "floats": (
        {"cu_seqlens": torch.tensor([0.0, 6.0])},
        TypeError,
        "cu_seqlens: expected an int32 or int64 tensor, got",
    ),
    "a list": ({"cu_seqlens": [0, 6]}, TypeError, "cu_seqlens: expected an int32 or int64 tensor, got list"),
    "two axes": ({"cu_seqlens": torch.tensor([[0, 6]])}, ValueError, "cu_seqlens: expected shape (N + 1,)"),
}


@pytest.mark.parametrize(("changes", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named(changes, error, message):
    with pytest.raises(error) as raised:
        a_call(**changes)
    assert message in str(raised.value)


@pytest.mark.parametrize("chunk_size", [0, -1, 2.0, True, None])
def test_bad_chunk_sizes(chunk_size):
    x = torch.ones(1, 6, 2, 4)
    for call in (
        lambda: chunk_additive(x, x, x, chunk_size=chunk_size),
        lambda: RULES["retnet"].chunked(x, x, x, chunk_size=chunk_size),
    ):
        with pytest.raises(ValueError, match="chunk_size: expected a whole number of at least 1, got"):
            call()


@pytest.mark.parametrize("shape", [(0, 5, 2, 4), (2, 0, 2, 4), (1, 5, 0, 4)], ids=["no row", "no token", "no head"])
def test_nothing_comes_to_nothing(shape):
    x = torch.ones(shape)
    B, _, H, K = shape
    for o, S in (chunk_additive(x, x, x, output_final_state=True), chunk_delta(x, x, x, x, output_final_state=True)):
        assert o.shape == shape
        assert S.shape == (B, H, K, K)
        assert not S.any()


def test_packed_sequences_need_a_batch_of_one():
    x = torch.ones(2, 6, 2, 4)
    with pytest.raises(ValueError, match="cu_seqlens: packed sequences need a batch of 1, got B = 2"):
        chunk_additive(x, x, x, cu_seqlens=torch.tensor([0, 6]))
