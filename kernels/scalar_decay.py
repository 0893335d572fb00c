"""One decay a head and token, with FLA's names: simple GLA, RetNet; and the function that Mamba-2 and mLSTM use."""

import functools

import torch

from kernels import scalar_chunks, scalar_recur, walk
from kernels.arguments import Sizes, in_dtype_of, last_contiguous, not_offered, over_group, states_of
from lineage_lib.reference import retention_log_decay


def chunk_simple_gla(
    q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False, state_v_first=False,
    cu_seqlens=None, cu_seqlens_cpu=None,
):  # fmt: skip
    """S_t = exp(g_t) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t, differentiable.

    q, k                (B, T, H, K)
    v                   (B, T, HV, V), HV a multiple of H
    g                   (B, T, HV), natural logarithms of each step's decay, at most 0; -inf wipes the state
    g_gamma             (HV,) in its place: the same decay at every step
    scale               K ** -0.5 unless given
    initial_state       (N, HV, K, V), or (N, HV, V, K) with ``state_v_first``; N = B or the packed sequences
    cu_seqlens          (N + 1,) int32 or int64, where each packed sequence begins and the last ends; B = 1.
                        ``cu_seqlens_cpu`` is accepted and not needed
    Returns o (B, T, HV, V) in v's dtype and the final state, float32, or None.
    Source: Yang et al. (2023), Section 4, with one decay a head; FLA's ``chunk_simple_gla``.

    >>> o, S = chunk_simple_gla(*torch.ones(3, 1, 5, 1, 16), output_final_state=True)
    >>> o.shape, S.shape
    (torch.Size([1, 5, 1, 16]), torch.Size([1, 1, 16, 16]))
    """
    return _call(q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens)


def fused_recurrent_simple_gla(
    q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False, reverse=False,
    state_v_first=False, cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_simple_gla` token by token, for decoding; its gradients are those of the chunked form.

    ``reverse`` keeps, as in FLA, the place of what is not offered.
    """
    not_offered(reverse=reverse)
    return _call(q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens, True)


def chunk_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None):
    """RetNet: :func:`chunk_simple_gla` with the fixed decays 1 − 2^(−5−h) of head h = 0, 1, … (Sun et al. 2023)."""
    return chunk_simple_gla(
        q,
        k,
        v,
        None,
        retention_decays(v.shape[2], v.device),
        scale,
        initial_state,
        output_final_state,
        cu_seqlens=cu_seqlens,
    )


@functools.cache
def retention_decays(heads: int, device: torch.device) -> torch.Tensor:
    """RetNet's log-decays (heads,): kept, because a call would spend five launches on them."""
    return retention_log_decay(heads).to(device, torch.float32)


def _call(q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens, by_token=False):
    sizes = Sizes(q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), g=(g, "B T HV"), g_gamma=(g_gamma, "HV"))
    cu_seqlens = sizes.add_states(
        cu_seqlens, initial_state=(initial_state, "N HV V K" if state_v_first else "N HV K V")
    )
    if g is not None and g_gamma is not None:
        raise ValueError("g, g_gamma: expected one of them, got both")
    if g_gamma is not None:
        g = g_gamma.expand(v.shape[:3])
    q, k = in_dtype_of(v, q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return ScalarDecay.apply(
        q, k, v, g, None, scale, initial_state, cu_seqlens, output_final_state, state_v_first, by_token
    )


class ScalarDecay(torch.autograd.Function):
    """o and the final state of S_t = exp(g_t) S_{t-1} + w_t k_t v_tᵀ by one walk; the gradients by two more, which
    keep the states, and from these.

    Of k and v one may have fewer heads than HV, as q may: each then serves a group of them. ``v_first``: states
    are stored as (N, HV, V, K). ``by_token``: forward by the recurrence itself.
    """

    @staticmethod
    def forward(ctx, q, k, v, g, w, scale, s0, cu_seqlens, with_state, v_first, by_token):
        q, k, v = map(last_contiguous, (q, k, v))
        g, w = (None if x is None else x.float().contiguous() for x in (g, w))
        state = states_of(q, v, s0, with_state, v_first, cu_seqlens)
        if by_token:
            o, chunks = scalar_recur.run(q, k, v, g, w, scale=scale, **state), ()
        else:
            chunks = scalar_chunks.prepared(q, k, g, w, scale, v.shape[2], cu_seqlens)
            o = walk.run(q, k, v, chunks, **state).o
        ctx.save_for_backward(q, k, v, g, w, state["s_in"], cu_seqlens, *chunks)
        ctx.scale, ctx.strides = scale, state["s_strides"]
        ctx.set_materialize_grads(False)
        return o, state["s_out"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, ds):
        q, k, v, g, w, s0, cu_seqlens, *chunks = ctx.saved_tensors
        do = torch.zeros_like(v) if do is None else last_contiguous(do)
        ds = None if ds is None else ds.float().contiguous()
        ds0 = torch.empty_like(s0) if ctx.needs_input_grad[6] else None
        if chunks:
            chunks = walk.Prepared(*chunks)
        else:
            chunks = scalar_chunks.prepared(q, k, g, w, ctx.scale, do.shape[2], cu_seqlens)
        keep = dict(keep=True, s_strides=ctx.strides, cu_seqlens=cu_seqlens)
        left = walk.run(q, k, v, chunks, read=False, s_in=s0, **keep)
        right = walk.run(k, q, do, chunks, reverse=True, s_in=ds, s_out=ds0, **keep)
        dq, dk, dg, dw = scalar_chunks.finished(
            q, k, v, do, g, None, chunks, left, right, ctx.scale, cu_seqlens, *ctx.needs_input_grad[3:5]
        )  # fmt: skip
        return over_group(dq, q), over_group(dk, k), over_group(right.o, v), dg, dw, None, ds0, *[None] * 4
