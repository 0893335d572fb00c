"""Chapter 04, chunked SSD: ten exercises, in four parts."""

from lineage_lib.exercises import _ch04_blocks, _ch04_lengths, _ch04_torch, _ch04_whole

EXERCISES = (
    *_ch04_blocks.EXERCISES,
    _ch04_whole.WHOLE,
    _ch04_whole.CHUNK_FLOPS,
    _ch04_lengths.PAD,
    _ch04_torch.CHUNKED_LOG,
    _ch04_lengths.PACKED_CHUNKS,
    _ch04_torch.STREAM,
)
