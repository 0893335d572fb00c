"""Which tokens belong together: a batch of equally long rows, or sequences packed into one row.

Packed sequences lie one behind the other on the time axis of a batch of 1; ``cu_seqlens`` holds
where each begins and, last, where the last one ends (FLA's convention).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch


class Sequences:
    """The sequences on the time axis of tensors ``[B, T, …]``.

    number  N: B, or the number of packed sequences, each of which has a state of its own
    bounds  (start, end) of each stretch of the time axis: one for a batch, N when packed

    >>> Sequences(1, 7, torch.tensor([0, 3, 3, 7])).bounds
    [(0, 3), (3, 3), (3, 7)]
    """

    def __init__(self, B: int, T: int, cu_seqlens: torch.Tensor | None = None):
        self.packed = cu_seqlens is not None
        if not self.packed:
            self.number, self.bounds = B, [(0, T)]
            return
        if not isinstance(cu_seqlens, torch.Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
            kind = cu_seqlens.dtype if isinstance(cu_seqlens, torch.Tensor) else type(cu_seqlens).__name__
            raise TypeError(f"cu_seqlens: expected an int32 or int64 tensor, got {kind}")
        if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2:
            raise ValueError(f"cu_seqlens: expected shape (N + 1,) with N >= 1, got {tuple(cu_seqlens.shape)}")
        if B != 1:
            raise ValueError(f"cu_seqlens: packed sequences need a batch of 1, got B = {B}")
        ends = cu_seqlens.tolist()
        if ends[0] != 0:
            raise ValueError(f"cu_seqlens: expected to start at 0, got {ends[0]}")
        if ends[-1] != T:
            raise ValueError(f"cu_seqlens: expected to end at T = {T}, got {ends[-1]}")
        for n, (start, end) in enumerate(pairwise(ends)):
            if end < start:
                raise ValueError(f"cu_seqlens: expected not to decrease, got {start}, {end} at index {n}")
        self.number, self.bounds = len(ends) - 1, list(pairwise(ends))

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """(rows of the states, tokens) of each stretch: all rows for a batch, one when packed."""
        for n, (start, end) in enumerate(self.bounds):
            yield (slice(n, n + 1) if self.packed else slice(None)), slice(start, end)

    def map(self, x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """``function`` of each stretch's tokens ``[B, T_n, …]``, put together again."""
        return torch.cat([function(x[:, tokens]) for _, tokens in self.pieces()], 1)

    def previous(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """x of the token before, and at a sequence's first token ``first`` (N, …)."""
        shifted = [
            torch.cat([first[rows, None], x[:, tokens]], 1)[:, : tokens.stop - tokens.start]
            for rows, tokens in self.pieces()
        ]
        return torch.cat(shifted, 1)

    def following(self, x: torch.Tensor) -> torch.Tensor:
        """x of the token after, and 0 at a sequence's last token."""
        return self.map(x, lambda piece: torch.cat([piece[:, 1:], torch.zeros_like(piece[:, :1])], 1))

    def first(self, x: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
        """x (B, T, …) at each sequence's first token, and ``empty`` (N, …) where there is none: (N, …)."""
        return self._at(x, empty, lambda tokens: tokens.start)

    def last(self, x: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
        """x (B, T, …) at each sequence's last token, and ``empty`` (N, …) where there is none: (N, …)."""
        return self._at(x, empty, lambda tokens: tokens.stop - 1)

    def _at(self, x, empty, index):
        picked = [x[:, index(tokens)] if tokens.stop > tokens.start else empty[rows] for rows, tokens in self.pieces()]
        return torch.cat(picked)

    def repeated(self, n: int) -> "Sequences":
        """The same sequences when every token takes ``n`` places of the time axis."""
        other = object.__new__(Sequences)
        other.packed, other.number = self.packed, self.number
        other.bounds = [(n * start, n * end) for start, end in self.bounds]
        return other
