"""transformers' torch fallbacks (Hugging Face, Apache-2.0).

Most are decorated: with FLA or mamba_ssm installed the name stands for their GPU kernel. What is
called here is the torch function underneath.
"""

from inspect import unwrap
from types import SimpleNamespace

import torch
from torch.func import functional_call
from transformers.models.kimi_linear.modeling_kimi_linear import (
    chunk_kimi_delta_attention,
    recurrent_kimi_delta_attention,
)
from transformers.models.mamba.modeling_mamba import mamba_selective_scan, mamba_selective_state_update
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan, mamba2_selective_state_update
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
from transformers.models.qwen3_next.modeling_qwen3_next import (
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru
from transformers.models.xlstm.modeling_xlstm import (
    mlstm_chunkwise_native_autograd,
    mlstm_recurrent_sequence_native,
)

from tests.peers import inputs
from tests.peers.float64 import Tensor
from tests.peers.peer import Peer


def delta(function):
    """Gated DeltaNet and KDA: our argument order and layout."""

    def call(q, k, v, g, beta, initial_state):
        return unwrap(function)(q, k, v, g, beta, initial_state=initial_state, output_final_state=True)

    return call


def mamba1(x, dt, A, B, C, D):
    y, h = unwrap(mamba_selective_scan)(x.mT, dt.mT, A, B.mT, C.mT, D, return_last_state=True)
    return y.mT, h


def mamba1_steps(x, dt, A, B, C, D, initial_state):
    h, y = initial_state.clone(), []
    for t in range(x.shape[1]):
        y.append(unwrap(mamba_selective_state_update)(h, x[:, t], dt[:, t], A, B[:, t], C[:, t], D))
    return torch.stack(y, 1), h


def mamba2(x, dt, A, B, C, D, initial_state):
    y, S = unwrap(mamba2_chunk_scan)(x, dt, A, B, C, 32, D, initial_states=initial_state.mT, return_final_states=True)
    return y, S.mT


def mamba2_steps(x, dt, A, B, C, D, initial_state):
    heads, width, keys = *x.shape[2:], B.shape[-1]
    S, y = initial_state.mT.clone(), []
    A, D = A[:, None, None].expand(heads, width, keys), D[:, None].expand(heads, width)
    for t in range(x.shape[1]):
        step = dt[:, t, :, None].expand(-1, -1, width)
        y.append(unwrap(mamba2_selective_state_update)(S, x[:, t], step, A, B[:, t], C[:, t], D))
    return torch.stack(y, 1), S.mT


def mlstm(function, **more):
    """[B, H, T, D], gates [B, H, T], m [B, H, 1]; eps is added to the denominator, here nothing."""

    def call(q, k, v, i, f, initial_state=None):
        S, n, m = initial_state or (None, None, None)
        o, (S, n, m) = function(
            *(x.transpose(1, 2).contiguous() for x in (q, k, v, i, f)),
            c_initial=S,
            n_initial=n,
            m_initial=None if m is None else m[..., None],
            return_last_states=True,
            eps=0.0,
            **more,
        )
        return o.transpose(1, 2), unstabilised(S, n, m[..., 0], initial_state)

    return call


def our_mlstm(form, initial_state=None, **arguments):
    o, state = form(**arguments, initial_state=initial_state, output_final_state=True)
    return o, unstabilised(*state, initial_state)


def unstabilised(S: Tensor, n: Tensor, m: Tensor, initial_state) -> tuple[Tensor, ...]:
    """S and n of the plain form, and m where both start from a given one; from none, 0 there and −inf here.

    S and n do not depend on m, which therefore takes no gradient in our chunked form.
    """
    plain = S * m[..., None, None].exp(), n * m[..., None].exp()
    return (*plain, m.detach()) if initial_state else plain


class _One(torch.nn.Module):
    """A gate whose sigmoid is 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_tensor(torch.inf)


class _Cache:
    def __init__(self, S: Tensor | None):
        self.S = S

    def get_linear_cache(self, layer: int) -> Tensor | None:
        return self.S

    def set_linear_cache(self, layer: int, S: Tensor) -> None:
        self.S = S


def minimax_layer(heads: int, width: int, layer: int, num_layers: int) -> MiniMaxLightningAttention:
    """MiniMax's layer without its projections, activation, norm and gate: its input is q, k, v side by side."""
    config = SimpleNamespace(
        hidden_size=heads * width,
        head_dim=width,
        num_attention_heads=heads,
        num_hidden_layers=num_layers,
        block_size=16,
        hidden_act="silu",
        layer_types=["linear_attention"] * num_layers,
    )
    module = MiniMaxLightningAttention(config, layer)
    module.qkv_proj = module.act_fn = module.norm = module.out_proj = torch.nn.Identity()
    module.output_gate = _One()
    return module


def lightning(q, k, v, layer, num_layers, scale, initial_state=None):
    """From a state MiniMax goes token by token, from none in blocks."""
    module = minimax_layer(*q.shape[2:], layer, num_layers)
    heads = torch.arange(1, q.shape[2] + 1, dtype=q.dtype)
    module.slope_rate = (2.0 ** (-8 * heads / q.shape[2]) * (1 - layer / (num_layers - 1)))[:, None, None]
    module.query_decay, module.key_decay, module.diagonal_decay = module.decay_factors(module.slope_rate)
    cache = _Cache(initial_state)
    o, *_ = module(torch.cat([q, k, v], -1).flatten(2), None, None, cache)
    return o.unflatten(2, v.shape[2:]), cache.S


def rg_lru(x, Lambda, initial_state=None, **gates):
    """Positions start at 0 where a sequence begins, after a given state at 1."""
    blocks, width = gates["input_bias"].shape
    module = RecurrentGemmaRglru(SimpleNamespace(num_attention_heads=blocks, lru_width=blocks * width))
    parameters = {"recurrent_param": Lambda} | {name.replace("_", "_gate_"): value for name, value in gates.items()}
    module.recurrent_states = initial_state
    positions = torch.arange(x.shape[1]) + (initial_state is not None)
    h = functional_call(module, parameters, (x, positions.expand(x.shape[:2])))
    return h, module.recurrent_states


def our_rg_lru(form, x, Lambda, initial_state=None, **gates):
    def gate(name: str) -> Tensor:
        weight, bias = gates[f"{name}_weight"], gates[f"{name}_bias"]
        blocks = x.unflatten(-1, bias.shape)
        return (torch.einsum("bthi,hij->bthj", blocks, weight) + bias).sigmoid().flatten(-2)

    return form(
        x=x,
        r=gate("recurrent"),
        i=gate("input"),
        Lambda=Lambda,
        initial_state=initial_state,
        output_final_state=True,
    )


LIGHTNING_NOTE = (
    "MiniMax adds 1e-5 to the layer factor and to what it divides by; it is given the slopes of the formula"
)
EPS_NOTE = "adds eps, 1e-6 by default, to the denominator; called with 0"
STEP_NOTE = "one token a call"

PEERS = [
    Peer(
        "gated-deltanet",
        torch_recurrent_gated_delta_rule,
        inputs.gated_delta_rule,
        delta(torch_recurrent_gated_delta_rule),
        HV=4,
    ),
    Peer(
        "gated-deltanet",
        torch_chunk_gated_delta_rule,
        inputs.gated_delta_rule,
        delta(torch_chunk_gated_delta_rule),
        T=150,
        HV=4,
    ),
    Peer("kda", recurrent_kimi_delta_attention, inputs.kda, delta(recurrent_kimi_delta_attention)),
    Peer("kda", chunk_kimi_delta_attention, inputs.kda, delta(chunk_kimi_delta_attention), T=150),
    Peer("mamba-1", mamba_selective_scan, inputs.mamba1, mamba1, initial=False),
    Peer("mamba-1", mamba_selective_state_update, inputs.mamba1, mamba1_steps, differentiable=False, note=STEP_NOTE),
    Peer("mamba-2", mamba2_chunk_scan, inputs.mamba2, mamba2, T=150),
    Peer("mamba-2", mamba2_selective_state_update, inputs.mamba2, mamba2_steps, differentiable=False, note=STEP_NOTE),
    Peer(
        "mlstm",
        mlstm_recurrent_sequence_native,
        inputs.mlstm,
        mlstm(mlstm_recurrent_sequence_native),
        ours=our_mlstm,
        note=EPS_NOTE,
    ),
    Peer(
        "mlstm",
        mlstm_chunkwise_native_autograd,
        inputs.mlstm,
        mlstm(mlstm_chunkwise_native_autograd, chunk_size=16),
        precision="given",
        T=96,
        initial=False,
        ours=our_mlstm,
        note=f"{EPS_NOTE}; m starts at 0, ours at the lowest number, so S and n are compared times exp(m)",
    ),
    Peer(
        "lightning-attention",
        MiniMaxLightningAttention.forward,
        inputs.lightning_attn,
        lightning,
        precision="given",
        initial=False,
        note=f"in blocks; {LIGHTNING_NOTE}",
    ),
    Peer(
        "lightning-attention",
        MiniMaxLightningAttention.forward,
        inputs.lightning_attn,
        lightning,
        precision="given",
        note=f"from a cached state, token by token; {LIGHTNING_NOTE}",
    ),
    Peer(
        "rg-lru",
        RecurrentGemmaRglru.forward,
        inputs.rg_lru,
        rg_lru,
        initial=False,
        ours=our_rg_lru,
        note="the first token is written whole",
    ),
    Peer("rg-lru", RecurrentGemmaRglru.forward, inputs.rg_lru, rg_lru, ours=our_rg_lru, note="from a given state"),
]
