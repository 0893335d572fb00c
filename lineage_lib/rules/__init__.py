"""THE table of update rules, and the forms that follow from a record.

``RULES``       name -> record, from the simplest to the richest
``table()``     the whole table, for a notebook or a terminal
"""

from lineage_lib.rules.draw import draw
from lineage_lib.rules.family import RULES
from lineage_lib.rules.record import FORMS, Input, Lowered, Rule, mixing_matrix
from lineage_lib.rules.show import table

__all__ = ["FORMS", "RULES", "Input", "Lowered", "Rule", "draw", "mixing_matrix", "table"]
