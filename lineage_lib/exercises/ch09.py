"""Chapter 09, training the delta rule in chunks: ten exercises, in four parts."""

from lineage_lib.exercises import _ch09_chunks, _ch09_gates, _ch09_inverse, _ch09_wy

EXERCISES = (*_ch09_wy.EXERCISES, *_ch09_chunks.EXERCISES, *_ch09_gates.EXERCISES, *_ch09_inverse.EXERCISES)
