"""Chapter 05, an SSD kernel from scratch: nine exercises, in five parts."""

from lineage_lib.exercises import _ch05_backward, _ch05_bytes, _ch05_inside, _ch05_states, _ch05_walk

EXERCISES = (
    _ch05_inside.CUMSUM,
    _ch05_bytes.BYTES,
    _ch05_inside.DIAGONAL,
    _ch05_states.STATES,
    _ch05_states.PASS,
    _ch05_states.READ,
    _ch05_walk.WALK,
    _ch05_backward.DV,
    _ch05_walk.DECODE,
)
