"""Grading: the answers of a submitted notebook, run in the pristine chapter, and reports about it.

``grade`` gives one dictionary a notebook; the ``to_…`` functions render a list of them.
"""

from lineage_lib.grading.grader import grade
from lineage_lib.grading.report import to_csv, to_html, to_json, to_junit, to_text

__all__ = ["grade", "to_csv", "to_html", "to_json", "to_junit", "to_text"]
