"""Recurrent forms, one function a rule: what every other form must equal.

``naive_recurrent_*`` are PyTorch, batched ``[B, T, H, D]``, with FLA's argument names. The three
NumPy forms of one head, in the letters of chapters 2 and 3, are what those chapters are read with.
"""

from lineage_lib.reference.additive import (
    lightning_log_decay,
    naive_recurrent_gla,
    naive_recurrent_lightning_attn,
    naive_recurrent_linear_attn,
    naive_recurrent_mlstm,
    naive_recurrent_mlstm_plain,
    naive_recurrent_retention,
    naive_recurrent_simple_gla,
    retention_log_decay,
)
from lineage_lib.reference.delta import (
    naive_recurrent_delta_rule,
    naive_recurrent_gated_delta_product,
    naive_recurrent_gated_delta_rule,
    naive_recurrent_gdn2,
    naive_recurrent_kda,
)
from lineage_lib.reference.rwkv import naive_recurrent_rwkv5, naive_recurrent_rwkv6, naive_recurrent_rwkv7
from lineage_lib.reference.ssd import diagonal_recurrent, linear_attention, ssd_recurrent
from lineage_lib.reference.state_space import (
    naive_recurrent_mamba1,
    naive_recurrent_mamba2,
    naive_recurrent_mamba3,
    naive_recurrent_rg_lru,
    naive_recurrent_s4,
    rotate,
)

__all__ = [
    "diagonal_recurrent",
    "lightning_log_decay",
    "linear_attention",
    "naive_recurrent_delta_rule",
    "naive_recurrent_gated_delta_product",
    "naive_recurrent_gated_delta_rule",
    "naive_recurrent_gdn2",
    "naive_recurrent_gla",
    "naive_recurrent_kda",
    "naive_recurrent_lightning_attn",
    "naive_recurrent_linear_attn",
    "naive_recurrent_mamba1",
    "naive_recurrent_mamba2",
    "naive_recurrent_mamba3",
    "naive_recurrent_mlstm",
    "naive_recurrent_mlstm_plain",
    "naive_recurrent_retention",
    "naive_recurrent_rg_lru",
    "naive_recurrent_rwkv5",
    "naive_recurrent_rwkv6",
    "naive_recurrent_rwkv7",
    "naive_recurrent_s4",
    "naive_recurrent_simple_gla",
    "retention_log_decay",
    "rotate",
    "ssd_recurrent",
]
