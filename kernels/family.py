"""Any rule of the table that adds, through the kernel of its recurrence."""

import torch

from kernels.arguments import in_dtype_of
from kernels.gla import ChannelDecay
from kernels.scalar_decay import ScalarDecay
from lineage_lib.rules import Lowered


def run_lowered(low: Lowered) -> tuple[torch.Tensor, torch.Tensor]:
    """(o (B, T, HV, V), final state (N, HV, K, V)) of S_t = diag(exp g_t) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t.

    Differentiable.
    """
    v, cu_seqlens = low.values, None
    if low.sequences.packed:
        cu_seqlens = torch.tensor([0, *(end for _, end in low.sequences.bounds)], device=v.device)
    q, k = in_dtype_of(v, low.q, low.k)
    if low.g is not None and low.g.ndim == 4:
        return ChannelDecay.apply(q, k, v, low.g, low.scale, low.state, cu_seqlens, True, False, False)
    return ScalarDecay.apply(q, k, v, low.g, None, low.scale, low.state, cu_seqlens, True, False, False)
