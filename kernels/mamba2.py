"""Mamba-2, with mamba_ssm's names and arguments: the layer over chunks, and one step of decoding.

    Δ = softplus(dt + dt_bias), clamped      S_t = exp(Δ_t A) S_{t-1} + Δ_t B_t x_tᵀ      y_t = S_tᵀ C_t + D x_t

The chunked form is :class:`kernels.scalar_decay.ScalarDecay` with q = C, k = B, v = x, log-decay Δ A and Δ on
the write; its states are stored values × keys, (N, H, P, N_state), as mamba_ssm has them.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.arguments import Sizes, in_dtype_of, not_offered, on
from kernels.numerics import log_sigmoid
from kernels.scalar_decay import ScalarDecay
from kernels.tiles import update_tiles


def mamba_chunk_scan_combined(
    x, dt, A, B, C, chunk_size=None, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, cu_seqlens=None,
    dt_softplus=False, dt_limit=(0.0, float("inf")), return_final_states=False, return_varlen_states=False,
):  # fmt: skip
    """Mamba-2's layer between its convolution and its norm, differentiable.

    x               (B, T, H, P)
    dt              (B, T, H), the step before ``dt_bias`` (H,), softplus (if ``dt_softplus``) and ``dt_limit``
    A               (H,), at most 0
    B, C            (B, T, G, N_state), each group serving H / G heads
    chunk_size      accepted and not used: the tiles come from the shape
    D               (H,) or (H, P), the input's weight in the output; z (B, T, H, P): y is multiplied by silu(z)
    seq_idx         (B, T) whole numbers: where it changes, another sequence begins with an empty state
    cu_seqlens      (N + 1,) int32 or int64, where each of N packed sequences begins and the last ends; B = 1
    initial_states  (N, H, P, N_state), N = B unless sequences are packed
    Returns y (B, T, H, P), and with ``return_final_states`` the last states, (N, H, P, N_state), float32.
    Source: Dao and Gu (2024), as released.
    """
    sizes = Sizes(x=(x, "B T H P"), dt=(dt, "B T H"), A=(A, "H"), B=(B, "B T G N_state"), C=(C, "B T G N_state"))
    sizes.take(z=(z, "B T H P"), dt_bias=(dt_bias, "H"))
    not_offered(return_varlen_states=return_varlen_states)
    (seq_idx,) = sizes.whole_numbers(seq_idx=(seq_idx, "B T"))
    cu_seqlens = sizes.add_states(cu_seqlens, initial_states=(initial_states, "N H P N_state"))
    if D is not None:
        sizes.take(D=(D, "H P" if D.ndim == 2 else "H"))
    step = dt.float() if dt_bias is None else dt.float() + dt_bias.float()
    step = F.softplus(step) if dt_softplus else step
    if tuple(dt_limit) != (0.0, float("inf")):
        step = step.clamp(*dt_limit)
    g = step * A.float()
    if seq_idx is not None:
        first = F.pad(seq_idx[:, 1:] != seq_idx[:, :-1], (1, 0))
        g = g.masked_fill(first[..., None], -torch.inf)
    B, C = in_dtype_of(x, B, C)
    y, states = ScalarDecay.apply(
        C, B, x, g, step, 1.0, initial_states, cu_seqlens, return_final_states, True, False
    )  # fmt: skip
    if D is not None:
        y = y + (D if D.ndim == 2 else D[:, None]).float() * x
    if z is not None:
        y = y * F.silu(z.float())
    y = y.to(x.dtype)
    return (y, states) if return_final_states else y


@triton.jit
def update(
    state, x, dt, A, B, C, D, z, dt_bias, out, indices,
    H, s_b, s_h, s_p, s_n, x_b, x_h, x_p, dt_b, dt_h, dt_p, A_h, A_p, A_n, B_b, B_g, C_b, C_g, D_h, D_p,
    z_b, z_h, z_p, bias_h, bias_p,
    P: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, GROUP: tl.constexpr, SOFTPLUS: tl.constexpr,
    BY_HEAD: tl.constexpr,
):  # fmt: skip
    """One program: BP channels of one head and row; its part of the state is read and written once. BY_HEAD: A is one
    number a head."""
    NP: tl.constexpr = (P + BP - 1) // BP
    pid = tl.program_id(0)
    i_p, i_bh = pid % NP, (pid // NP).to(tl.int64)
    i_b, i_h = i_bh // H, i_bh % H
    o_p, o_n = i_p * BP + tl.arange(0, BP), tl.arange(0, BN)
    m_p, m_n = o_p < P, o_n < N
    p_out = out + i_bh * P + o_p
    slot = i_b
    if indices is not None:
        slot = tl.load(indices + i_b).to(tl.int64)
    if slot < 0:  # a padded row: its output is 0, and no state is touched
        tl.store(p_out, tl.zeros((BP,), out.dtype.element_ty), mask=m_p)
    else:
        b_dt = tl.load(dt + i_b * dt_b + i_h * dt_h + o_p * dt_p, mask=m_p, other=0.0).to(tl.float32)
        if dt_bias is not None:
            b_dt += tl.load(dt_bias + i_h * bias_h + o_p * bias_p, mask=m_p, other=0.0).to(tl.float32)
        if SOFTPLUS:
            b_dt = -log_sigmoid(-b_dt)
        b_x = tl.load(x + i_b * x_b + i_h * x_h + o_p * x_p, mask=m_p, other=0.0).to(tl.float32)
        b_B = tl.load(B + i_b * B_b + (i_h // GROUP) * B_g + o_n, mask=m_n, other=0.0).to(tl.float32)
        b_C = tl.load(C + i_b * C_b + (i_h // GROUP) * C_g + o_n, mask=m_n, other=0.0).to(tl.float32)
        m = m_p[:, None] & m_n[None, :]
        if BY_HEAD:
            decay = tl.exp(b_dt * tl.load(A + i_h * A_h).to(tl.float32))[:, None]
        else:
            b_A = tl.load(A + i_h * A_h + o_p[:, None] * A_p + o_n[None, :] * A_n, mask=m, other=0.0).to(tl.float32)
            decay = tl.exp(b_dt[:, None] * b_A)
        p_state = state + slot * s_b + i_h * s_h + o_p[:, None] * s_p + o_n[None, :] * s_n
        b_S = tl.load(p_state, mask=m, other=0.0).to(tl.float32)
        b_S = b_S * decay + (b_dt * b_x)[:, None] * b_B[None, :]
        tl.store(p_state, b_S.to(state.dtype.element_ty), mask=m)
        b_y = tl.sum(b_S * b_C[None, :], 1)
        if D is not None:
            b_y += tl.load(D + i_h * D_h + o_p * D_p, mask=m_p, other=0.0).to(tl.float32) * b_x
        if z is not None:
            b_z = tl.load(z + i_b * z_b + i_h * z_h + o_p * z_p, mask=m_p, other=0.0).to(tl.float32)
            b_y *= b_z * tl.sigmoid(b_z)
        tl.store(p_out, b_y.to(out.dtype.element_ty), mask=m_p)


def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None
):
    """One step of Mamba-2's recurrence for every row; ``state`` is changed in place. Returns y (B, H, P).

    state (S, H, P, N), S = B unless rows are told their slots; x, dt, z (B, H, P); A (H, P, N); B, C (B, G, N);
    D, dt_bias (H, P). Mamba-2's one number a head is passed expanded, as mamba_ssm has it: the memory is read once.
    state_batch_indices (B,) whole numbers: the slot of each row's state, no slot twice; a negative one marks a padded
    row, whose y is 0. Without heads, as Mamba-1 has it, state (S, P, N), x (B, P), A (P, N), B (B, N) and so on.
    Source: Gu and Dao (2023), Dao and Gu (2024), as released.
    """
    if x.ndim == 2:
        state, x, dt, A, B, C, D, z, dt_bias = (
            t if t is None else t.unsqueeze(axis)
            for t, axis in zip((state, x, dt, A, B, C, D, z, dt_bias), (1, 1, 1, 0, 1, 1, 0, 1, 0))
        )
        return selective_state_update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus, state_batch_indices).squeeze(1)
    sizes = Sizes(x=(x, "B H P"), dt=(dt, "B H P"), A=(A, "H P N"), B=(B, "B G N"), C=(C, "B G N"), D=(D, "H P"))
    sizes.take(z=(z, "B H P"), dt_bias=(dt_bias, "H P"))
    sizes.take(state=(state, "B H P N" if state_batch_indices is None else "S H P N"))
    (indices,) = sizes.whole_numbers(state_batch_indices=(state_batch_indices, "B"))
    (rows, H, P), (G, N) = x.shape, B.shape[1:]
    out = torch.empty(rows, H, P, dtype=x.dtype, device=x.device)
    B, C = (y if y.stride(-1) == 1 else y.contiguous() for y in (B, C))
    BP, warps = update_tiles(rows * H, P)

    def strides(y, axes):
        return [0] * len(axes) if y is None else [y.stride(axis) for axis in axes]

    with on(x):
        update[(rows * H * triton.cdiv(P, BP),)](
            state, x, dt, A, B, C, D, z, dt_bias, out, indices,
            H, *strides(state, range(4)), *strides(x, range(3)), *strides(dt, range(3)), *strides(A, range(3)),
            *strides(B, range(2)), *strides(C, range(2)), *strides(D, range(2)), *strides(z, range(3)),
            *strides(dt_bias, range(2)),
            P, N, triton.next_power_of_2(N), BP, H // G, dt_softplus, A.stride(1) == A.stride(2) == 0,
            num_warps=warps,
        )  # fmt: skip
    return out
