"""Where a sequence lies: a row of the batch, or a stretch of the one row into which several are packed."""

import triton
import triton.language as tl


@triton.jit
def tokens_of(i_n, T, cu_seqlens):
    """(row, first token, number of tokens) of sequence i_n, an int64, as all three are: offsets pass 2³¹."""
    row, first, length = i_n, i_n * 0, i_n * 0 + T
    if cu_seqlens is not None:
        first = tl.load(cu_seqlens + i_n).to(tl.int64)
        length = tl.load(cu_seqlens + i_n + 1).to(tl.int64) - first
        row = i_n * 0
    return row, first, length
