"""Chapter 12, copying and recall: ten exercises, in five parts."""

from lineage_lib.exercises import _ch12_bounds, _ch12_cache, _ch12_recall, _ch12_states, _ch12_writes

EXERCISES = (
    *_ch12_states.EXERCISES,
    *_ch12_bounds.EXERCISES,
    *_ch12_cache.EXERCISES,
    *_ch12_recall.EXERCISES,
    *_ch12_writes.EXERCISES,
)
