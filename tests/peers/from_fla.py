"""FLA's ``naive_*`` functions (flash-linear-attention, MIT). All but a few cast to float32."""

import warnings

with warnings.catch_warnings():  # that there is no GPU
    warnings.simplefilter("ignore")
    from fla.ops.delta_rule.naive import delta_rule_chunkwise, delta_rule_parallel, delta_rule_recurrence
    from fla.ops.gated_delta_product.naive import naive_recurrent_gated_delta_product
    from fla.ops.gated_delta_rule.naive import naive_chunk_gated_delta_rule, naive_recurrent_gated_delta_rule
    from fla.ops.gdn2.naive import naive_chunk_gdn2, naive_recurrent_gdn2
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_chunkwise, dplr_recurrence
    from fla.ops.generalized_delta_rule.iplr.naive import iplr_chunkwise, iplr_recurrence
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.hgrn.naive import naive_recurrent_hgrn
    from fla.ops.kda.naive import naive_chunk_kda, naive_recurrent_kda
    from fla.ops.linear_attn.naive import naive_chunk_linear_attn, naive_recurrent_linear_attn
    from fla.ops.retention.naive import naive_retention
    from fla.ops.rwkv6.chunk_naive import naive_chunk_rwkv6
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
    from fla.ops.simple_gla.naive import (
        naive_chunk_simple_gla,
        naive_parallel_simple_gla,
        naive_recurrent_simple_gla,
    )

import torch

from tests.peers import inputs
from tests.peers.peer import Peer

EPSILON = 1e-10  # what FLA adds to the normaliser's denominator


def heads_first(*tensors):
    """[B, T, H, …] as [B, H, T, …], and back."""
    return [x.transpose(1, 2) for x in tensors]


def without_scale(q):
    """q for a function that has no scale, or one that cannot be set: ours is K ** -0.5."""
    return q * q.shape[-1] ** -0.5


def linear_attn_recurrent(q, k, v, initial_state):
    return naive_recurrent_linear_attn(q, k, v, initial_state=initial_state, output_final_state=True)


def linear_attn_chunk(q, k, v):
    return naive_chunk_linear_attn(q, k, v), None


def normalised_recurrent(q, k, v, initial_state, normalize):
    S, z = initial_state
    o, (S, z_all) = naive_recurrent_linear_attn(
        q, k, v, initial_state=(S, z[:, None]), output_final_state=True, normalize=normalize
    )
    return o * (1 + EPSILON / _denominator(q, k, z)), (S, z_all[:, 0])


def normalised_chunk(q, k, v, normalize):
    return naive_chunk_linear_attn(q, k, v, normalize=normalize) * (1 + EPSILON / _denominator(q, k, 0 * k[:, 0])), None


def _denominator(q, k, z):
    return (without_scale(q) * (k.cumsum(1) + z[:, None])).sum(-1, keepdim=True)


def retention(q, k, v):
    (o,) = heads_first(naive_retention(*heads_first(q, k, v)))
    return o, None


def simple_gla_parallel(q, k, v, g):
    o, _ = naive_parallel_simple_gla(q, k, v, g)
    return o, None


def with_state(function, *names):
    """A function in our layout that takes ``names`` after q, k and v, in its own order."""

    def call(q, k, v, initial_state, **gates):
        ordered = [gates[name] for name in names]
        return function(q, k, v, *ordered, initial_state=initial_state, output_final_state=True)

    return call


def delta_product(q, k, v, g, beta, num_householder, initial_state):
    scale = q.shape[-1] ** -0.5
    return naive_recurrent_gated_delta_product(
        q, k, v, g, beta, scale, num_householder=num_householder, initial_state=initial_state
    )


def rwkv6_recurrent(r, k, v, w, u, initial_state):
    w = w.expand(k.shape)  # RWKV-5's is the same for every token
    o, S = naive_recurrent_rwkv6(*heads_first(r, k, v, w), u, initial_state=initial_state, output_final_state=True)
    return heads_first(o)[0], S


def rwkv6_chunk(r, k, v, w, u):
    o = naive_chunk_rwkv6(*heads_first(without_scale(r), k, v, w.expand(k.shape)), u)
    return heads_first(o)[0], None


def rwkv7(function):
    def call(r, w, k, v, kappa, a, scale, initial_state):
        o, S = function(*heads_first(r, k, v, -kappa, a * kappa, w), initial_state=initial_state)
        return heads_first(o)[0], S

    return call


def delta_recurrent(q, k, v, beta, initial_state):
    o, S = delta_rule_recurrence(*heads_first(q, k, v, beta), initial_state=initial_state)
    return heads_first(o)[0], S


def delta_chunk(q, k, v, beta):
    o, S = delta_rule_chunkwise(*heads_first(q, k, v, beta))
    return heads_first(o)[0], S


def delta_parallel(q, k, v, beta):
    o, _ = delta_rule_parallel(*heads_first(q, k, v, beta))
    return heads_first(o)[0], None


def delta_iplr(function):
    """Identity plus low rank: S + b (aᵀ S) + k vᵀ, with a = k, b = -beta k and beta v written."""

    def call(q, k, v, beta, initial_state):
        beta = beta[..., None]
        o, S = function(*heads_first(q, k, beta * v, k, -beta * k), initial_state=initial_state)
        return heads_first(o)[0], S

    return call


def rg_lru_hgrn(x, r, i, Lambda, initial_state):
    """HGRN's h = exp(g) h + x, given RG-LRU's decay and write."""
    g = -8.0 * torch.nn.functional.softplus(Lambda) * r
    write = (-torch.expm1(2 * g)).sqrt() * i * x
    return naive_recurrent_hgrn(write, g, initial_state=initial_state, output_final_state=True)


EPS_NOTE = "FLA adds 1e-10 to the denominator: its output is multiplied by what that takes away"
SCALED_NOTE = "has no scale: the query is given times K ** -0.5; writes in place, so that autograd does not pass"
UNMASKED_NOTE = "exponentiates before it masks: under strong decay the output is right, its gradient not a number"
PAIR_NOTE = "is given -kappa and a kappa; scales by K ** -0.5, RWKV-7 does not"

PEERS = [
    Peer("linear-attention", naive_recurrent_linear_attn, inputs.linear_attn, linear_attn_recurrent),
    Peer(
        "linear-attention",
        naive_chunk_linear_attn,
        inputs.linear_attn,
        linear_attn_chunk,
        precision="given",
        T=128,
        initial=False,
    ),
    Peer(
        "linear-attention-normalised",
        naive_recurrent_linear_attn,
        inputs.normalised_linear_attn,
        normalised_recurrent,
        note=EPS_NOTE,
    ),
    Peer(
        "linear-attention-normalised",
        naive_chunk_linear_attn,
        inputs.normalised_linear_attn,
        normalised_chunk,
        precision="given",
        T=128,
        initial=False,
        note=EPS_NOTE,
    ),
    Peer("retnet", naive_retention, inputs.linear_attn, retention, initial=False),
    Peer("simple-gla", naive_recurrent_simple_gla, inputs.simple_gla, with_state(naive_recurrent_simple_gla, "g")),
    Peer("simple-gla", naive_chunk_simple_gla, inputs.simple_gla, with_state(naive_chunk_simple_gla, "g"), T=150),
    Peer("simple-gla", naive_parallel_simple_gla, inputs.simple_gla, simple_gla_parallel, initial=False),
    Peer("gla", naive_recurrent_gla, inputs.gla, with_state(naive_recurrent_gla, "g")),
    Peer("rwkv-5", naive_recurrent_rwkv6, inputs.rwkv5, rwkv6_recurrent, note="w is the same for every token"),
    Peer("rwkv-6", naive_recurrent_rwkv6, inputs.rwkv6, rwkv6_recurrent),
    Peer(
        "rwkv-6",
        naive_chunk_rwkv6,
        inputs.rwkv6,
        rwkv6_chunk,
        T=96,
        initial=False,
        differentiable=False,
        note=SCALED_NOTE,
    ),
    Peer("rwkv-7", dplr_recurrence, inputs.rwkv7, rwkv7(dplr_recurrence), note=PAIR_NOTE),
    Peer("rwkv-7", dplr_chunkwise, inputs.rwkv7, rwkv7(dplr_chunkwise), T=96, note=PAIR_NOTE),
    Peer("deltanet", delta_rule_recurrence, inputs.delta_rule, delta_recurrent),
    Peer("deltanet", delta_rule_chunkwise, inputs.delta_rule, delta_chunk, precision="given", T=96, initial=False),
    Peer("deltanet", delta_rule_parallel, inputs.delta_rule, delta_parallel, precision="given", T=256, initial=False),
    Peer("deltanet", iplr_recurrence, inputs.delta_rule, delta_iplr(iplr_recurrence)),
    Peer("deltanet", iplr_chunkwise, inputs.delta_rule, delta_iplr(iplr_chunkwise), precision="given", T=96),
    Peer(
        "gated-deltanet",
        naive_recurrent_gated_delta_rule,
        inputs.gated_delta_rule,
        with_state(naive_recurrent_gated_delta_rule, "beta", "g"),
        note="takes beta before g, its chunk form g before beta",
    ),
    Peer(
        "gated-deltanet",
        naive_chunk_gated_delta_rule,
        inputs.gated_delta_rule,
        with_state(naive_chunk_gated_delta_rule, "g", "beta"),
        T=150,
    ),
    Peer("kda", naive_recurrent_kda, inputs.kda, with_state(naive_recurrent_kda, "g", "beta"), HV=4),
    Peer("kda", naive_chunk_kda, inputs.kda, with_state(naive_chunk_kda, "g", "beta"), T=128, HV=4, note=UNMASKED_NOTE),
    Peer("gated-deltanet-2", naive_recurrent_gdn2, inputs.gdn2, with_state(naive_recurrent_gdn2, "g", "b", "w")),
    Peer(
        "gated-deltanet-2",
        naive_chunk_gdn2,
        inputs.gdn2,
        with_state(naive_chunk_gdn2, "g", "b", "w"),
        T=150,
        note=UNMASKED_NOTE,
    ),
    Peer(
        "deltaproduct",
        naive_recurrent_gated_delta_product,
        inputs.gated_delta_product,
        delta_product,
        note="takes no default scale, and returns the state in any case",
    ),
    Peer(
        "rg-lru",
        naive_recurrent_hgrn,
        inputs.rg_lru_gates,
        rg_lru_hgrn,
        note="HGRN's recurrence, given RG-LRU's decay and write",
    ),
]
