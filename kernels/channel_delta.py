"""The delta rule with one decay a key channel and token, with FLA's names: KDA, Gated DeltaNet-2."""

import torch

from kernels import channel_chunks, delta_recur, delta_walk, walk
from kernels.arguments import Sizes, in_dtype_of, last_contiguous, not_offered, over_group, states_of
from kernels.delta import activated, decay_of
from kernels.units import UnitLength


def chunk_kda(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False,
    lower_bound=None, disable_recompute=False, return_intermediate_states=False, state_v_first=False, cu_seqlens=None,
    cu_seqlens_cpu=None, A_log=None, dt_bias=None,
):  # fmt: skip
    """S̄ = diag(exp(g_t)) S_{t-1}, S_t = S̄ + β_t k_t (v_t − S̄ᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t, differentiable.

    q, k                        (B, T, H, K)
    v                           (B, T, HV, V), HV a multiple of H
    g                           (B, T, HV, K), natural logarithms of each step's decay of each key channel, at most 0;
                                −inf wipes the channel
    beta                        (B, T, HV), how much of what the key holds is replaced
    scale                       K ** -0.5 unless given
    initial_state               (N, HV, K, V), or (N, HV, V, K) with ``state_v_first``; N = B or the packed sequences
    use_qk_l2norm_in_kernel     queries and keys are divided by √(their squares' sum + 1e-6)
    use_gate_in_kernel          the log-decay is −exp(A_log) softplus(g + dt_bias), A_log (HV,), dt_bias (HV K,); with
                                ``lower_bound`` it is lower_bound sigmoid(exp(A_log) (g + dt_bias))
    use_beta_sigmoid_in_kernel  beta is the sigmoid of what is given; twice that with ``allow_neg_eigval``
    safe_gate                   accepted and not needed: decays of any strength are safe; nor is ``disable_recompute``
    cu_seqlens                  (N + 1,) int32 or int64, where each packed sequence begins and the last ends; B = 1.
                                ``cu_seqlens_cpu`` is accepted and not needed
    Returns o (B, T, HV, V) in v's dtype and the final state, float32, or None.
    Source: Kimi Team (2025), Equation 1; FLA's ``chunk_kda``.
    """
    not_offered(return_intermediate_states=return_intermediate_states)
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias, lower_bound)
    beta = activated(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call(
        q, k, v, g, beta, None, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first,
        cu_seqlens,
    )  # fmt: skip


def fused_recurrent_kda(
    q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
    lower_bound=None, state_v_first=False, cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_kda` token by token, for decoding; its gradients are those of the chunked form."""
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias, lower_bound)
    beta = activated(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call(
        q, k, v, g, beta, None, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first,
        cu_seqlens, True,
    )  # fmt: skip


def chunk_gdn2(
    q, k, v, g, b, w, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    use_gate_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, safe_gate=False, lower_bound=None,
    disable_recompute=False, return_intermediate_states=False, state_v_first=False, A_log=None, dt_bias=None,
):  # fmt: skip
    """S̄ = diag(exp(g_t)) S_{t-1}, S_t = S̄ + k_t (w_t ⊙ v_t − S̄ᵀ (b_t ⊙ k_t))ᵀ, o_t = scale S_tᵀ q_t, differentiable.

    b, w    (B, T, HV, K) and (B, T, HV, V), how much is erased, by key channel, and written, by value channel
    The others as for :func:`chunk_kda`, which this is with b = w = beta.
    Source: Gated DeltaNet-2 (2026), Equation 10; FLA's ``chunk_gdn2``.
    """
    not_offered(return_intermediate_states=return_intermediate_states)
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias, lower_bound)
    return _call(
        q, k, v, g, b, w, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens
    )  # fmt: skip


def fused_recurrent_gdn2(
    q, k, v, g, b, w, A_log=None, dt_bias=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, lower_bound=None, state_v_first=False, cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_gdn2` token by token, for decoding; its gradients are those of the chunked form."""
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias, lower_bound)
    return _call(
        q, k, v, g, b, w, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens,
        True,
    )  # fmt: skip


def _call(
    q, k, v, g, b, w, scale, initial_state, output_final_state, l2norm, state_v_first, cu_seqlens, by_token=False
):
    """w None: b is beta."""
    sizes = Sizes(q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), g=(g, "B T HV K"))
    gates = {"beta": (b, "B T HV")} if w is None else {"b": (b, "B T HV K"), "w": (w, "B T HV V")}
    for name, (value, _) in ({"g": (g, "")} | gates).items():
        if value is None:
            raise TypeError(f"{name}: expected a torch tensor, got None")
    sizes.take(**gates)
    cu_seqlens = sizes.add_states(
        cu_seqlens, initial_state=(initial_state, "N HV V K" if state_v_first else "N HV K V")
    )
    q, k = in_dtype_of(v, q, k)
    if l2norm:
        q, k = UnitLength.apply(q), UnitLength.apply(k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return ChannelDelta.apply(
        q, k, v, g, b, w, scale, initial_state, cu_seqlens, output_final_state, state_v_first, by_token
    )  # fmt: skip


class ChannelDelta(torch.autograd.Function):
    """o and the final state by one walk; the gradients by two more, and then as those of a rule that adds what was
    corrected, and of its reads by the erased keys. b (B, T, HV, K) and w (B, T, HV, V), or b (B, T, HV) for both."""

    @staticmethod
    def forward(ctx, q, k, v, g, b, w, scale, s0, cu_seqlens, with_state, v_first, by_token):
        q, k, v = map(last_contiguous, (q, k, v))
        g = g.float().contiguous()
        b, w = b.contiguous(), None if w is None else w.contiguous()
        write = b if w is None else w
        state = states_of(q, v, s0, with_state, v_first, cu_seqlens)
        kept = ()
        if by_token:
            o = delta_recur.run(q, k, v, g, b, write, scale=scale, **state)
        else:
            L, H = channel_chunks.cumulated(g, v.dtype, cu_seqlens)
            chunks = channel_chunks.prepared(q, k, L, H, scale, cu_seqlens, erase=b)
            o = delta_walk.run(chunks[0], chunks[1], v, chunks[2], write=write, **state).o
            kept = (L, H, *chunks[:2], *chunks[2])
        ctx.save_for_backward(q, k, v, g if by_token else None, b, w, state["s_in"], cu_seqlens, *kept)
        ctx.scale, ctx.strides = scale, state["s_strides"]
        ctx.set_materialize_grads(False)
        return o, state["s_out"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, ds):
        q, k, v, g, b, w, s0, cu_seqlens, *kept = ctx.saved_tensors
        do = torch.zeros_like(v) if do is None else last_contiguous(do)
        ds = None if ds is None else ds.float().contiguous()
        ds0 = torch.empty_like(s0) if ctx.needs_input_grad[7] else None
        L, H = kept[:2] or channel_chunks.cumulated(g, v.dtype, cu_seqlens)
        if kept:
            q_decayed, k_decayed, chunks = *kept[2:4], walk.Prepared(*kept[4:])
        else:
            q_decayed, k_decayed, chunks = channel_chunks.prepared(q, k, L, H, ctx.scale, cu_seqlens, erase=b)
        shared, write = dict(s_strides=ctx.strides, cu_seqlens=cu_seqlens), b if w is None else w
        _, u, states = delta_walk.run(
            q_decayed, k_decayed, v, chunks, write=write, read=False, keep=True, s_in=s0, **shared
        )  # fmt: skip
        _, y, state_grads = delta_walk.run_back(q_decayed, k_decayed, do, chunks, s_in=ds, s_out=ds0, **shared)
        left, right = walk.Walked(states=states), walk.Walked(states=state_grads)
        dq, dk, dg = channel_chunks.finished(
            q, k, u, do, L, H, left, right, ctx.scale, cu_seqlens, ctx.needs_input_grad[3]
        )  # fmt: skip
        db = channel_chunks.erased(k, u, y, b, L, H, left, dk, dg, cu_seqlens)
        if w is None:
            (dv, db), dw = delta_walk.write_gradients(y, v, b, db), None
        else:
            dv, dw = delta_walk.write_gradients(y, v, w)
        return over_group(dq, q), over_group(dk, k), over_group(dv, v), dg, db, dw, None, ds0, *[None] * 4
