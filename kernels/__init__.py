"""Triton kernels of the family, with FLA's names and arguments.

With a GPU they are compiled; without one Triton's interpreter runs them on the CPU, slowly but with the
same results. ``kernels.INTERPRETED`` says which.
"""

import os
import sys

import torch

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise ImportError(
            "kernels: there is no GPU, and Triton was imported before it could be told to interpret; "
            "import kernels first, or set TRITON_INTERPRET=1"
        )
    os.environ["TRITON_INTERPRET"] = "1"

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

from kernels.channel_delta import chunk_gdn2, chunk_kda, fused_recurrent_gdn2, fused_recurrent_kda  # noqa: E402
from kernels.delta import (  # noqa: E402
    chunk_delta_rule,
    chunk_gated_delta_product,
    chunk_gated_delta_rule,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
)
from kernels.gla import chunk_gla, fused_recurrent_gla  # noqa: E402
from kernels.mamba2 import mamba_chunk_scan_combined, selective_state_update  # noqa: E402
from kernels.mlstm import chunk_mlstm, fused_recurrent_mlstm  # noqa: E402
from kernels.scalar_decay import chunk_retention, chunk_simple_gla, fused_recurrent_simple_gla  # noqa: E402

__all__ = [
    "INTERPRETED",
    "chunk_delta_rule",
    "chunk_gated_delta_product",
    "chunk_gated_delta_rule",
    "chunk_gdn2",
    "chunk_gla",
    "chunk_kda",
    "chunk_mlstm",
    "chunk_retention",
    "chunk_simple_gla",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn2",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_mlstm",
    "fused_recurrent_simple_gla",
    "mamba_chunk_scan_combined",
    "selective_state_update",
]
