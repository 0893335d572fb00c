"""Chapter 08, the delta rule is one step of learning: ten exercises, in four parts."""

from lineage_lib.exercises import _ch08_gates, _ch08_steps, _ch08_streams, _ch08_views

EXERCISES = (*_ch08_steps.EXERCISES, *_ch08_gates.EXERCISES, *_ch08_streams.EXERCISES, *_ch08_views.EXERCISES)
