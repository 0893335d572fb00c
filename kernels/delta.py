"""The delta rule with one decay a head and token or none, with FLA's names: DeltaNet, Gated DeltaNet, DeltaProduct."""

import torch
import torch.nn.functional as F

from kernels import delta_chunks, delta_recur, delta_walk, scalar_chunks, walk
from kernels.arguments import Sizes, in_dtype_of, last_contiguous, not_offered, over_group, states_of
from kernels.units import UnitLength


def chunk_delta_rule(
    q, k, v, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    cu_seqlens=None, cu_seqlens_cpu=None,
):  # fmt: skip
    """S_t = S_{t-1} + β_t k_t (v_t − S_{t-1}ᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t, differentiable.

    Arguments as for :func:`chunk_gated_delta_rule`, which this is without decay.
    Source: Schlag et al. (2021); Yang et al. (2024); FLA's ``chunk_delta_rule``.
    """
    return chunk_gated_delta_rule(
        q, k, v, None, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens
    )  # fmt: skip


def fused_recurrent_delta_rule(
    q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_delta_rule` token by token, for decoding; its gradients are those of the chunked form."""
    return fused_recurrent_gated_delta_rule(
        q, k, v, beta=beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
    )  # fmt: skip


def chunk_gated_delta_rule(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False, cu_seqlens=None,
    cu_seqlens_cpu=None, use_gate_in_kernel=False, A_log=None, dt_bias=None,
):  # fmt: skip
    """S̄ = exp(g_t) S_{t-1}, S_t = S̄ + β_t k_t (v_t − S̄ᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t, differentiable.

    q, k                        (B, T, H, K); keys longer than √(2 / β_t) may make the state grow
    v                           (B, T, HV, V), HV a multiple of H
    g                           (B, T, HV), natural logarithms of each step's decay, at most 0; -inf wipes the state
    beta                        (B, T, HV), how much of what the key holds is replaced; None: all
    scale                       K ** -0.5 unless given
    initial_state               (N, HV, K, V), or (N, HV, V, K) with ``state_v_first``; N = B or the packed sequences
    use_qk_l2norm_in_kernel     queries and keys are divided by √(their squares' sum + 1e-6)
    use_beta_sigmoid_in_kernel  beta is the sigmoid of what is given; twice that with ``allow_neg_eigval``
    use_gate_in_kernel          the log-decay is −exp(A_log) softplus(g + dt_bias), both (HV,)
    cu_seqlens                  (N + 1,) int32 or int64, where each packed sequence begins and the last ends; B = 1.
                                ``cu_seqlens_cpu`` is accepted and not needed
    Returns o (B, T, HV, V) in v's dtype and the final state, float32, or None.
    Source: Yang et al. (2025), the gated delta rule; FLA's ``chunk_gated_delta_rule``.

    >>> o, S = chunk_gated_delta_rule(*torch.ones(3, 1, 5, 1, 16), *torch.zeros(2, 1, 5, 1), output_final_state=True)
    >>> o.shape, S.shape
    (torch.Size([1, 5, 1, 16]), torch.Size([1, 1, 16, 16]))
    """
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias)
    beta = activated(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call(
        q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens
    )  # fmt: skip


def fused_recurrent_gated_delta_rule(
    q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, A_log=None, dt_bias=None, use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False, state_v_first=False, cu_seqlens=None,
):  # fmt: skip
    """:func:`chunk_gated_delta_rule` token by token, for decoding; its gradients are those of the chunked form.

    ``gk`` and ``gv`` keep, as in FLA, the places of what is not offered: decays by channel are
    :func:`fused_recurrent_kda`'s.
    """
    not_offered(gk=gk, gv=gv)
    g = decay_of(g, use_gate_in_kernel, A_log, dt_bias)
    beta = activated(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call(
        q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, state_v_first, cu_seqlens,
        True,
    )  # fmt: skip


def chunk_gated_delta_product(
    q, k, v, g, beta, num_householder, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None,
):  # fmt: skip
    """Each token decays once, then takes n = ``num_householder`` delta steps, then reads.

    k (B, T n, H, K), v (B, T n, HV, V), beta (B, T n, HV): a token's n steps lie behind one another; q (B, T, H, K) and
    g (B, T, HV) or None have one for each token, which ``cu_seqlens`` counts. The rest as for
    :func:`chunk_gated_delta_rule`, which this is with n times the tokens, of which every n-th is read.
    Source: Siems et al. (2025), DeltaProduct; FLA's ``chunk_gated_delta_product``.
    """
    n = num_householder
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"num_householder: expected a whole number of at least 1, got {n!r}")
    sizes = Sizes(q=(q, "B T H K"), v=(v, "B T*n HV V"), g=(g, "B T HV"))
    if sizes["T*n"] != sizes["T"] * n:
        raise ValueError(f"v: expected {n} times q's {sizes['T']} tokens, got {sizes['T*n']}")
    q = F.pad(q[:, :, None], (0, 0, 0, 0, n - 1, 0)).flatten(1, 2)
    g = None if g is None else F.pad(g[:, :, None], (0, 0, 0, n - 1)).flatten(1, 2)
    o, S = chunk_gated_delta_rule(
        q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        cu_seqlens=None if cu_seqlens is None else cu_seqlens * n,
    )  # fmt: skip
    return o[:, n - 1 :: n], S


def activated(beta, sigmoid, doubled):
    """beta itself or its sigmoid, in float32, or twice that."""
    if doubled and not sigmoid:
        raise ValueError("allow_neg_eigval: expected only with use_beta_sigmoid_in_kernel, which it doubles")
    if not sigmoid:
        return beta
    if not isinstance(beta, torch.Tensor):
        raise TypeError(f"beta: expected a torch tensor with use_beta_sigmoid_in_kernel, got {type(beta).__name__}")
    return torch.sigmoid(beta.float()) * (2 if doubled else 1)


def decay_of(g, activate, A_log, dt_bias, lower_bound=None):
    """g itself, or the log-decay that it is with ``activate``, in float32: −exp(A_log) softplus(g + dt_bias), or
    lower_bound sigmoid(exp(A_log) (g + dt_bias)); A_log (HV,), dt_bias as many as g has for a token."""
    if not activate:
        for name, value in {"A_log": A_log, "dt_bias": dt_bias, "lower_bound": lower_bound}.items():
            if value is not None:
                raise ValueError(f"{name}: expected only with use_gate_in_kernel, got {type(value).__name__}")
        return g
    if not isinstance(g, torch.Tensor):
        raise TypeError(f"g: expected a torch tensor with use_gate_in_kernel, got {type(g).__name__}")
    if A_log is None and lower_bound is None:
        raise TypeError("A_log: expected a tensor (HV,) with use_gate_in_kernel, got None")
    sizes = dict(A_log=(A_log, (g.shape[2],)), dt_bias=(dt_bias, (g.shape[2:].numel(),)))
    for name, (value, shape) in sizes.items():
        if value is not None and value.shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, got {tuple(value.shape)}")
    g = g.float() if dt_bias is None else g.float() + dt_bias.float().view(g.shape[2:])
    rate = 1.0 if A_log is None else A_log.float().exp().view(-1, *[1] * (g.ndim - 3))
    return -rate * F.softplus(g) if lower_bound is None else lower_bound * torch.sigmoid(rate * g)


def _call(
    q, k, v, g, beta, scale, initial_state, output_final_state, l2norm, state_v_first, cu_seqlens, by_token=False
):
    sizes = Sizes(q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), g=(g, "B T HV"), beta=(beta, "B T HV"))
    cu_seqlens = sizes.add_states(
        cu_seqlens, initial_state=(initial_state, "N HV V K" if state_v_first else "N HV K V")
    )
    q, k = in_dtype_of(v, q, k)
    if l2norm:
        q, k = UnitLength.apply(q), UnitLength.apply(k)
    if beta is None:
        beta = torch.ones(v.shape[:3], dtype=torch.float32, device=v.device)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return ScalarDelta.apply(
        q, k, v, g, beta, scale, initial_state, cu_seqlens, output_final_state, state_v_first, by_token
    )  # fmt: skip


class ScalarDelta(torch.autograd.Function):
    """o and the final state by one walk; the gradients by two more, and then as those of a rule that adds what was
    corrected, and of its reads by the keys."""

    @staticmethod
    def forward(ctx, q, k, v, g, beta, scale, s0, cu_seqlens, with_state, v_first, by_token):
        q, k, v = map(last_contiguous, (q, k, v))
        g, beta = (None if x is None else x.float().contiguous() for x in (g, beta))
        state = states_of(q, v, s0, with_state, v_first, cu_seqlens)
        if by_token:
            o, chunks = delta_recur.run(q, k, v, g, beta, None, scale=scale, **state), ()
        else:
            chunks = delta_chunks.prepared(q, k, g, beta, scale, v.shape[2], cu_seqlens)
            o = delta_walk.run(q, k, v, chunks, **state).o
        ctx.save_for_backward(q, k, v, g, beta, state["s_in"], cu_seqlens, *chunks)
        ctx.scale, ctx.strides = scale, state["s_strides"]
        ctx.set_materialize_grads(False)
        return o, state["s_out"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, ds):
        q, k, v, g, beta, s0, cu_seqlens, *chunks = ctx.saved_tensors
        do = torch.zeros_like(v) if do is None else last_contiguous(do)
        ds = None if ds is None else ds.float().contiguous()
        ds0 = torch.empty_like(s0) if ctx.needs_input_grad[6] else None
        if chunks:
            chunks = walk.Prepared(*chunks)
        else:
            chunks = delta_chunks.prepared(q, k, g, beta, ctx.scale, do.shape[2], cu_seqlens)
        shared = dict(s_strides=ctx.strides, cu_seqlens=cu_seqlens)
        _, u, states = delta_walk.run(q, k, v, chunks, read=False, keep=True, s_in=s0, **shared)
        _, y, state_grads = delta_walk.run_back(q, k, do, chunks, s_in=ds, s_out=ds0, **shared)
        left, right = walk.Walked(states=states), walk.Walked(states=state_grads)
        dq, dk, dg, _ = scalar_chunks.finished(
            q, k, u, do, g, None, chunks._replace(weights=None), left, right, ctx.scale, cu_seqlens,
            ctx.needs_input_grad[3], False,
        )  # fmt: skip
        erased = chunks._replace(start=chunks.erasing, weights=-chunks.weights)
        dk, _, more, read = scalar_chunks.finished(
            k, k, u, y, g, None, erased, left, None, 1.0, cu_seqlens, ctx.needs_input_grad[3], True, dq=dk
        )  # fmt: skip
        dg = None if dg is None else dg + more
        dv, dbeta = delta_walk.write_gradients(y, v, beta, read, -1.0)
        return over_group(dq, q), over_group(dk, k), over_group(dv, v), dg, dbeta, None, ds0, *[None] * 4
