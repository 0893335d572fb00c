"""Gated linear attention, one decay a key channel and token, with FLA's names: :mod:`kernels.channel_chunks` inside
the chunks, :mod:`kernels.walk` across them."""

import torch

from kernels import channel_chunks, scalar_recur, walk
from kernels.arguments import Sizes, in_dtype_of, last_contiguous, not_offered, over_group, states_of


def chunk_gla(
    q, k, v, g, scale=None, initial_state=None, output_final_state=False, state_v_first=False, cu_seqlens=None,
    cu_seqlens_cpu=None,
):  # fmt: skip
    """S_t = diag(exp(g_t)) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t, differentiable.

    q, k                (B, T, H, K)
    v                   (B, T, HV, V), HV a multiple of H
    g                   (B, T, HV, K), natural logarithms of each step's decay of each key channel, at most 0; -inf
                        wipes the channel
    scale               K ** -0.5 unless given
    initial_state       (N, HV, K, V), or (N, HV, V, K) with ``state_v_first``; N = B or the packed sequences
    cu_seqlens          (N + 1,) int32 or int64, where each packed sequence begins and the last ends; B = 1.
                        ``cu_seqlens_cpu`` is accepted and not needed
    Returns o (B, T, HV, V) in v's dtype and the final state, float32, or None.
    Source: Yang et al. (2023), Section 4; FLA's ``chunk_gla``.

    >>> o, S = chunk_gla(*torch.ones(3, 1, 5, 1, 16), torch.zeros(1, 5, 1, 16), output_final_state=True)
    >>> o.shape, S.shape
    (torch.Size([1, 5, 1, 16]), torch.Size([1, 1, 16, 16]))
    """
    return _call(q, k, v, g, scale, initial_state, output_final_state, state_v_first, cu_seqlens, by_token=False)


def fused_recurrent_gla(
    q, k, v, gk, gv=None, scale=None, initial_state=None, output_final_state=False, reverse=False,
    state_v_first=False, cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_gla` token by token, for decoding; its gradients are those of the chunked form.

    The log-decays are ``gk`` here, as FLA has it; ``gv`` and ``reverse`` keep the place of what is not offered.
    """
    not_offered(gv=gv, reverse=reverse)
    return _call(q, k, v, gk, scale, initial_state, output_final_state, state_v_first, cu_seqlens, by_token=True)


def _call(q, k, v, g, scale, initial_state, output_final_state, state_v_first, cu_seqlens, by_token):
    sizes = Sizes(q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), g=(g, "B T HV K"))
    cu_seqlens = sizes.add_states(
        cu_seqlens, initial_state=(initial_state, "N HV V K" if state_v_first else "N HV K V")
    )
    q, k = in_dtype_of(v, q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return ChannelDecay.apply(
        q, k, v, g, scale, initial_state, cu_seqlens, output_final_state, state_v_first, by_token
    )  # fmt: skip


class ChannelDecay(torch.autograd.Function):
    """o and the final state by one walk; the gradients by two more, which keep the states, and from these.

    Kept for them instead of g: its sums, the decayed q and k, P, and a decay a chunk and channel.
    """

    @staticmethod
    def forward(ctx, q, k, v, g, scale, s0, cu_seqlens, with_state, v_first, by_token):
        q, k, v = map(last_contiguous, (q, k, v))
        g, state = g.float().contiguous(), states_of(q, v, s0, with_state, v_first, cu_seqlens)
        if by_token:
            o, kept = scalar_recur.run(q, k, v, g, scale=scale, **state), ()
        else:
            L, H = channel_chunks.cumulated(g, v.dtype, cu_seqlens)
            chunks = channel_chunks.prepared(q, k, L, H, scale, cu_seqlens)
            o = walk.run(chunks[0], chunks[1], v, chunks[2], **state).o
            kept = (L, H, *chunks[:2], chunks[2].pairs, chunks[2].decays)
        ctx.save_for_backward(q, k, v, g if by_token else None, state["s_in"], cu_seqlens, *kept)
        ctx.scale, ctx.strides = scale, state["s_strides"]
        ctx.set_materialize_grads(False)
        return o, state["s_out"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, ds):
        q, k, v, g, s0, cu_seqlens, *kept = ctx.saved_tensors
        do = torch.zeros_like(v) if do is None else last_contiguous(do)
        ds = None if ds is None else ds.float().contiguous()
        ds0 = torch.empty_like(s0) if ctx.needs_input_grad[5] else None
        L, H = kept[:2] or channel_chunks.cumulated(g, v.dtype, cu_seqlens)
        if kept:
            q_decayed, k_decayed, chunks = *kept[2:4], walk.Prepared(*kept[4:])
        else:
            q_decayed, k_decayed, chunks = channel_chunks.prepared(q, k, L, H, ctx.scale, cu_seqlens)
        keep = dict(keep=True, s_strides=ctx.strides, cu_seqlens=cu_seqlens)
        left = walk.run(q_decayed, k_decayed, v, chunks, read=False, s_in=s0, **keep)
        right = walk.run(k_decayed, q_decayed, do, chunks, reverse=True, s_in=ds, s_out=ds0, **keep)
        dq, dk, dg = channel_chunks.finished(
            q, k, v, do, L, H, left, right, ctx.scale, cu_seqlens, ctx.needs_input_grad[3]
        )  # fmt: skip
        return over_group(dq, q), over_group(dk, k), over_group(right.o, v), dg, None, ds0, *[None] * 4
