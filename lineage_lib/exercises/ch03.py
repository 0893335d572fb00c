"""Chapter 03, SSD duality: ten exercises, records in two halves."""

from lineage_lib.exercises import _ch03_forms, _ch03_numbers

EXERCISES = (*_ch03_forms.EXERCISES, *_ch03_numbers.EXERCISES)
