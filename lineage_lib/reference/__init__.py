"""Recurrent forms, one function a rule, in float64: what every other form must equal."""

from lineage_lib.reference.ssd import diagonal_recurrent, linear_attention, ssd_recurrent

__all__ = ["diagonal_recurrent", "linear_attention", "ssd_recurrent"]
