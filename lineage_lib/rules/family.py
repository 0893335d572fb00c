"""THE table: one record per update rule, from the simplest to the richest."""

from lineage_lib.rules import additive, delta
from lineage_lib.rules.record import Rule

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        additive.LINEAR_ATTENTION,
        additive.NORMALISED,
        additive.RETNET,
        additive.LIGHTNING,
        additive.S4,
        additive.MAMBA1,
        additive.MAMBA2,
        additive.RWKV5,
        additive.RWKV6,
        additive.GLA,
        additive.MLSTM,
        additive.RG_LRU,
        additive.MAMBA3,
        delta.DELTANET,
        delta.GATED_DELTANET,
        delta.KDA,
        delta.GDN2,
        delta.RWKV7,
        delta.DELTA_PRODUCT,
    )
}
