"""Chapter 01, two memories: nine exercises, in four parts."""

from lineage_lib.exercises import _ch01_attention, _ch01_crosstalk, _ch01_forms, _ch01_states

EXERCISES = (
    *_ch01_attention.EXERCISES,
    *_ch01_states.EXERCISES,
    *_ch01_forms.EXERCISES,
    *_ch01_crosstalk.EXERCISES,
)
