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


@triton.jit
def slot_of(i_n, i_b, first, T, C: tl.constexpr, cu_seqlens):
    """Where the chunks of sequence i_n begin in a list of all chunks, of which a row has T // C + 1 or, packed with
    others, each sequence one more than it may need: no host has to know the lengths."""
    slot = i_b * (T // C + 1)
    if cu_seqlens is not None:
        slot = first // C + i_n
    return slot


@triton.jit
def chunk_of(slot, N, T, C: tl.constexpr, cu_seqlens):
    """(sequence, row, first token, number of tokens, chunk within it) of a slot; that chunk may have no tokens."""
    i_n, c = slot // (T // C + 1), slot % (T // C + 1)
    i_b, first, length = i_n, c * 0, c * 0 + T
    if cu_seqlens is not None:
        i_n, high = slot * 0, slot * 0 + N  # the last sequence whose chunks begin at this slot or before
        while high - i_n > 1:
            middle = (i_n + high) // 2
            begins = tl.load(cu_seqlens + middle).to(tl.int64) // C + middle
            i_n = tl.where(begins <= slot, middle, i_n)
            high = tl.where(begins <= slot, high, middle)
        i_b, first, length = tokens_of(i_n, T, cu_seqlens)
        c = slot - slot_of(i_n, i_b, first, T, C, cu_seqlens)
        length = tl.where(c < 0, 0, length)  # before the first sequence
        c = tl.maximum(c, 0)
    return i_n, i_b, first, length, c


def slots(B: int, T: int, C: int, cu_seqlens) -> int:
    """How many slots there are."""
    return B * (T // C + 1) if cu_seqlens is None else T // C + len(cu_seqlens) - 1
