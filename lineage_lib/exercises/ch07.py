"""Chapter 07, one family of update rules: nine exercises, in three parts."""

from lineage_lib.exercises import _ch07_decays, _ch07_gates, _ch07_writes

EXERCISES = (*_ch07_decays.EXERCISES, *_ch07_gates.EXERCISES, *_ch07_writes.EXERCISES)
