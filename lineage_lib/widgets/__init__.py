"""What moves: a figure with controls, the matrix lab, the state microscope.

``live(draw, beta=(0.0, 2.0, 0.1))``  a figure function with a control for each argument named
``MatrixLab(rule="kda")``             three writes through a rule, step by step
``Microscope(stream="rare")``         a stream of writes under two rules

In JupyterLab these are ordinary widgets, whose settings can be read and set from Python. On a page
without a kernel the pieces compute in the browser, and a live figure shows its first frame.
"""

from lineage_lib.widgets.live import Experiment, live
from lineage_lib.widgets.matrix_lab import MatrixLab
from lineage_lib.widgets.microscope import Microscope

PIECES = MatrixLab, Microscope

__all__ = ["PIECES", "Experiment", "MatrixLab", "Microscope", "live"]
