"""THE table of update rules, and the forms that follow from a record."""

from lineage_lib.rules.draw import draw
from lineage_lib.rules.record import FORMS, Input, Lowered, Rule, mixing_matrix
from lineage_lib.rules.table import RULES

__all__ = ["FORMS", "RULES", "Input", "Lowered", "Rule", "draw", "mixing_matrix"]
