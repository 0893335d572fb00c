"""Chapter 13, state tracking: ten exercises, in three parts."""

from lineage_lib.exercises import _ch13_gates, _ch13_reflections, _ch13_words

EXERCISES = (*_ch13_gates.EXERCISES, *_ch13_reflections.EXERCISES, *_ch13_words.EXERCISES)
