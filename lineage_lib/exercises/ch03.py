"""Chapter 03, SSD duality: ten exercises, in three parts."""

from lineage_lib.exercises import _ch03_forms, _ch03_logarithms, _ch03_states

EXERCISES = (*_ch03_forms.EXERCISES, *_ch03_logarithms.EXERCISES, *_ch03_states.EXERCISES)
