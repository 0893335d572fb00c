"""Chapter 11, finer gates: ten exercises, in three parts."""

from lineage_lib.exercises import _ch11_gates, _ch11_spectra, _ch11_steps

EXERCISES = (*_ch11_steps.EXERCISES, *_ch11_gates.EXERCISES, *_ch11_spectra.EXERCISES)
