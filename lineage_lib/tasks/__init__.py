"""Tasks for a memory: streams of keys and values, and tokens with questions.

A stream (:mod:`lineage_lib.tasks.streams`) is what one head writes. A task of tokens
(:mod:`lineage_lib.tasks.recall`, :mod:`lineage_lib.tasks.tracking`) is what a whole model reads; each is a
function of a NumPy generator and the number of sequences that returns :class:`Questions`.
"""

from lineage_lib.tasks.common import Questions
from lineage_lib.tasks.recall import copying, multi_query_recall, pairs_then_questions
from lineage_lib.tasks.streams import Stream, distracted, rare, recall_errors, rewriting
from lineage_lib.tasks.tracking import (
    flip_flop,
    group_elements,
    group_table,
    modular_arithmetic,
    modular_counting,
    parity,
    word_problem,
)

TASKS = {
    task.__name__: task
    for task in (
        multi_query_recall,
        pairs_then_questions,
        copying,
        parity,
        modular_counting,
        modular_arithmetic,
        word_problem,
        flip_flop,
    )
}

__all__ = [
    "TASKS",
    "Questions",
    "Stream",
    "copying",
    "distracted",
    "flip_flop",
    "group_elements",
    "group_table",
    "modular_arithmetic",
    "modular_counting",
    "multi_query_recall",
    "pairs_then_questions",
    "parity",
    "rare",
    "recall_errors",
    "rewriting",
    "word_problem",
]
