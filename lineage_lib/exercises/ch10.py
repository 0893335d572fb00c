"""Chapter 10, a delta-rule kernel from scratch: six exercises, in four parts."""

from lineage_lib.exercises import _ch10_decode, _ch10_inverse, _ch10_repair, _ch10_walk

EXERCISES = (
    _ch10_inverse.BLOCKS,
    _ch10_inverse.MERGE,
    _ch10_walk.STEP,
    _ch10_walk.OUTPUTS,
    _ch10_decode.DECODE,
    _ch10_repair.REPAIR,
)
