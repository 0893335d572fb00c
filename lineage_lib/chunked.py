"""Two chunked algorithms carry the whole family: writes that add, and writes that correct.

    additive   S_t =                diag(exp g_t) S_{t-1} + k_t v_tᵀ
    delta      S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

Attention inside a chunk, a recurrence from chunk to chunk. Decays stay logarithms, and every decay
between two tokens is the exponential of a *sum* of log-decays that lies between them: no difference
of cumulative sums and no ratio of products, so that nothing overflows, no digits are lost to a large
common term, and a log-decay of -inf, a reset, is an ordinary number.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from lineage_lib.sequences import Sequences
from lineage_lib.validate import log_decay, real_tensor, working_dtype

Tensor = torch.Tensor


def chunk_additive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor | None]:
    """S_t = diag(exp g_t) S_{t-1} + k_t v_tᵀ, o_t = scale · S_tᵀ q_t, chunk by chunk.

    q, k (B, T, H, K); v (B, T, HV, V) with HV a multiple of H, every key head serving HV / H value
    heads; g, natural logarithms of each step's decay, (B, T, HV), one for the whole state, or
    (B, T, HV, K), one for each key channel, at most 0, -inf for a reset, None for no decay.
    scale None means K ** -0.5. initial_state (N, HV, K, V), N = B or the number of packed sequences
    of ``cu_seqlens`` (N + 1,), which then share one row. T may be any length.

    Returns (o (B, T, HV, V) in v's dtype, the final state (N, HV, K, V) or None). Computes in
    float64 if any tensor is float64, else in float32. Raises TypeError or ValueError for bad input.
    Source: Dao and Gu (2024), Section 6; Yang et al. (2023), Section 4.

    >>> o, S = chunk_additive(*torch.ones(3, 1, 5, 1, 2), output_final_state=True)
    >>> o.shape, S.shape
    (torch.Size([1, 5, 1, 2]), torch.Size([1, 1, 2, 2]))
    """
    return _checked(q, k, v, None, g, scale, initial_state, output_final_state, cu_seqlens, chunk_size)


def chunk_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    e: Tensor,
    g: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor | None]:
    """S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ, o_t = scale · S_tᵀ q_t, chunk by chunk.

    e (B, T, HV, K) is the erase key: what the decayed state holds at e is taken from the value
    before it is written at k. The delta rule has e = beta k and writes beta v; Gated DeltaNet-2 has
    e = b ⊙ k and writes w ⊙ v. k (B, T, H, K) or (B, T, HV, K); everything else as in
    :func:`chunk_additive`.
    Source: Yang et al. (2024), Section 3; the solve in place of the inverse is ours.

    >>> q = k = F.normalize(torch.ones(1, 5, 1, 3), dim=-1)
    >>> o, S = chunk_delta(q, k, torch.arange(5.0).reshape(1, 5, 1, 1), k, scale=1.0)
    >>> o[0, -1].item()  # the last value stands alone
    4.0
    """
    if e is None:
        raise TypeError("e: expected a torch tensor, got None; chunk_additive writes without erasing")
    return _checked(q, k, v, e, g, scale, initial_state, output_final_state, cu_seqlens, chunk_size)


def _checked(q, k, v, e, g, scale, initial_state, output_final_state, cu_seqlens, chunk_size):
    sizes: dict[str, int] = {}
    real_tensor("q", q, "B T H K", sizes)
    real_tensor("k", k, "B T H K", sizes)
    real_tensor("v", v, "B T HV V", sizes)
    if sizes["HV"] % max(sizes["H"], 1):
        raise ValueError(f"v: expected a multiple of q's {sizes['H']} heads, got {sizes['HV']} heads")
    if e is not None:
        real_tensor("e", e, "B T HV K", sizes)
    if g is not None:
        log_decay("g", real_tensor("g", g, "B T HV" if g.ndim == 3 else "B T HV K", sizes))
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size: expected a whole number of at least 1, got {chunk_size!r}")
    sequences = Sequences(sizes["B"], sizes["T"], cu_seqlens)
    if initial_state is not None:
        real_tensor("initial_state", initial_state, "N HV K V", {**sizes, "N": sequences.number})
    scale = sizes["K"] ** -0.5 if scale is None else scale
    o, S = run_chunks(q, k, v, e, g, initial_state, sequences, chunk_size, scale=scale)
    return o, (S if output_final_state else None)


def run_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    e: Tensor | None,
    g: Tensor | None,
    initial_state: Tensor | None,
    sequences: Sequences,
    chunk_size: int = 64,
    *,
    scale: float = 1.0,
    erase_before_decay: bool = False,
    counts: bool = False,
) -> tuple[Tensor, Tensor]:
    """The algorithm, on checked input: (o (B, T, HV, V), final state (N, HV, K, V)).

    ``counts``: the values have one more column, of ones, and so have o and the states.

    ``erase_before_decay``: what is erased is read from the state before its decay, not after it:
    S_t = (diag(exp g_t) − k_t e_tᵀ) S_{t-1} + k_t v_tᵀ, which is RWKV-7's order.
    """
    (H, V), K = v.shape[2:], k.shape[-1]
    V += counts
    dtype = working_dtype(*(t for t in (q, k, v, e, g, initial_state) if t is not None))
    state = v.new_zeros(sequences.number, H, K, V, dtype=dtype) if initial_state is None else initial_state.to(dtype)
    layout = _Layout(sequences, chunk_size)
    if layout.count == 0:
        return v.new_zeros(*v.shape[:-1], V), state
    q, k = (x.repeat_interleave(H // x.shape[2], 2) if x.shape[2] != H else x for x in (q, k))
    q, k, v_, e = (None if x is None else layout.split(x.to(dtype)) for x in (q, k, v, e))  # (B, H, N, C, ·)

    decays = _NoDecay() if g is None else _Decay(layout.split((g if g.ndim == 4 else g[..., None]).to(dtype)))
    if e is not None:
        # What a token writes is its value less what it erases, of the state that entered the chunk and of
        # the chunk's earlier writes: (I + erased) written = value − (e · decay since the start)ᵀ state.
        solve = _InverseOfUnitLower.apply(decays.all_scores(e, k, erase_before_decay)).unbind(2)
        erase = e.unbind(2)
    scores = decays.scores(q, k)
    q, k, v_ = (x.unbind(2) for x in (q, k, v_))  # a chunk each: (B, H, C, ·)
    ones = torch.ones_like(v_[0][..., :1])
    outputs, final = [], []
    for rows, chunks in layout.walks:
        S = state[rows]  # (B, H, K, V)
        for n in chunks:
            written = torch.cat([v_[n], ones], -1) if counts else v_[n]
            if e is not None:
                erased = decays.since_start(n, erase[n], erase_before_decay)
                written = solve[n] @ _add_product(written.clone(memory_format=torch.contiguous_format), erased, S, -1)
            o = scores(n) @ written
            outputs.append(_add_product(o, decays.since_start(n, q[n]), S, scale, scale))
            S = _add_product(decays.over(n, S), decays.until_end(n, k[n]).mT, written)
        final.append(S)
    return layout.join(outputs).to(v.dtype), torch.cat(final)


def _add_product(x: Tensor, a: Tensor, b: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """beta · x + alpha · a @ b, in one pass and in the place of x."""
    x_, a, b = (t.flatten(0, -3) for t in (x, a, b))
    return x_.baddbmm_(a, b, alpha=alpha, beta=beta).view(x.shape)


class _NoDecay:
    """The decays of a chunk in which nothing decays."""

    def scores(self, q: Tensor, k: Tensor) -> Callable[[int], Tensor]:
        q, k = q.unbind(2), k.unbind(2)
        return lambda n: (q[n] @ k[n].mT).tril()

    def all_scores(self, q: Tensor, k: Tensor, earlier: bool = False) -> Tensor:
        return q @ k.mT

    def since_start(self, n: int, x: Tensor, earlier: bool = False) -> Tensor:
        return x

    def until_end(self, n: int, x: Tensor) -> Tensor:
        return x

    def over(self, n: int, S: Tensor) -> Tensor:
        return S.clone()


class _Decay:
    """All decays inside chunks, from their log-decays g (…, C, D), D = 1: one a head, or K: one a channel.

    Blocks of 1, 2, 4, … C tokens have inclusive sums from their start and exclusive sums to their
    end. For two neighbours of h tokens these give what is left of every write of the left at every
    token of the right: exp(from the right one's start) · exp(to the left one's end).
    """

    def __init__(self, g: Tensor):
        prefix = g.contiguous().unsqueeze(-2)  # (…, C, 1, D): blocks, tokens in a block
        suffix = torch.zeros_like(prefix)
        self.neighbours = []  # for h = 1, 2, 4, …: the two factors, (…, C / 2h, h, D) each
        while prefix.shape[-3] > 1:
            (pl, pr), (sl, _) = (x.unflatten(-3, (-1, 2)).unbind(-3) for x in (prefix, suffix))
            self.neighbours.append((pr.exp(), sl.exp()))
            left, right = pl[..., -1:, :], pr[..., -1:, :]  # what each neighbour adds to the other's sums
            prefix = _joined(prefix, torch.zeros_like(left), left)
            suffix = _joined(suffix, right, torch.zeros_like(right))
        from_start = prefix.squeeze(-3).exp()  # (B, H, N, C, D)
        self.whole = from_start[..., -1, :, None].unbind(2)
        self.from_start, self.to_end = from_start.unbind(2), suffix.squeeze(-3).exp().unbind(2)
        # What is left of token j at token i (B, H, N, C, C), where all channels decay alike.
        self.matrix = self._between(torch.ones_like(g), torch.ones_like(g)) if g.shape[-1] == 1 else None

    def scores(self, q: Tensor, k: Tensor) -> Callable[[int], Tensor]:
        """For each chunk the lower triangle of Σ_c q_ic k_jc exp(log-decay of channel c after j up to i)."""
        if self.matrix is None:
            return self._between(q, k).unbind(2).__getitem__
        q, k, matrix = q.unbind(2), k.unbind(2), self.matrix.unbind(2)
        return lambda n: (q[n] @ k[n].mT) * matrix[n]

    def all_scores(self, q: Tensor, k: Tensor, earlier: bool = False) -> Tensor:
        """The same of all chunks (B, H, N, C, C), right below the diagonal; ``earlier``: after j up to i − 1."""
        return self._between(q, k, earlier) if self.matrix is None or earlier else (q @ k.mT) * self.matrix

    def _between(self, q: Tensor, k: Tensor, earlier: bool = False) -> Tensor:
        q, k = q.contiguous(), k.contiguous()
        scores = torch.diag_embed((q * k).sum(-1))
        for since, until in self.neighbours:
            h = since.shape[-2]
            later = q.unflatten(-2, (-1, 2, h))[..., 1, :, :] * (_one_earlier(since) if earlier else since)
            before = k.unflatten(-2, (-1, 2, h))[..., 0, :, :] * until
            _below(scores, h).copy_(later @ before.mT)
        return scores

    def since_start(self, n: int, x: Tensor, earlier: bool = False) -> Tensor:
        """x (B, H, C, ·) times what chunk n's tokens have left of the state that entered; ``earlier``: had before."""
        return x * (_one_earlier(self.from_start[n]) if earlier else self.from_start[n])

    def until_end(self, n: int, x: Tensor) -> Tensor:
        """x (B, H, C, ·) times what the end of chunk n leaves of its tokens' writes."""
        return x * self.to_end[n]

    def over(self, n: int, S: Tensor) -> Tensor:
        """What chunk n leaves of the state S (B, H, K, V), as a new tensor."""
        return self.whole[n] * S


def _padded(x: Tensor, more: int) -> Tensor:
    """x (B, T, …) with ``more`` zeros after its last token."""
    return torch.cat([x, x.new_zeros(x.shape[0], more, *x.shape[2:])], 1) if more else x


def _joined(sums: Tensor, to_left: Tensor, to_right: Tensor) -> Tensor:
    """Sums (…, 2n, h, D) of blocks as sums of the blocks' pairs, (…, n, 2h, D): to each what it lacks."""
    return (sums.unflatten(-3, (-1, 2)) + torch.stack([to_left, to_right], -3)).flatten(-3, -2)


def _one_earlier(decay: Tensor) -> Tensor:
    """What was left one token before, (…, h, D): 1 at the first."""
    return F.pad(decay[..., :-1, :], (0, 0, 1, 0), value=1.0)


def _below(matrix: Tensor, h: int) -> Tensor:
    """Of each diagonal block of 2h rows of (…, C, C) the lower left quarter: a view (…, C/2h, h, h)."""
    blocks = matrix.unflatten(-1, (-1, 2 * h)).unflatten(-3, (-1, 2 * h))  # (…, n, 2h, n, 2h)
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)[..., h:, :h]


class _InverseOfUnitLower(torch.autograd.Function):
    """(I + A)^-1 of the part of A (…, C, C) below the diagonal, by forward substitution in blocks.

    Neighbouring diagonal blocks of 1, 2, 4, … rows are joined: that is what a triangular solve does,
    as matrix products. Powers of A, which overflow where keys repeat, never appear.
    """

    @staticmethod
    def forward(ctx, A: Tensor) -> Tensor:
        inverse = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).repeat(*A.shape[:-2], 1, 1)
        for h in (2**level for level in range(A.shape[-1].bit_length() - 1)):
            whole = inverse.unflatten(-1, (-1, 2 * h)).unflatten(-3, (-1, 2 * h))
            whole = whole.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # (…, n, 2h, 2h)
            _below(inverse, h).copy_(-(whole[..., h:, h:] @ _below(A, h) @ whole[..., :h, :h]))
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ gradient @ inverse.mT).tril(-1)


class _Layout:
    """Tokens ``[B, T, H, D]`` as chunks ``[B, H, count, slots, D]`` and back.

    A chunk has ``slots`` places, a power of two; the last places stay 0 where a chunk has fewer
    tokens. A slot of zeros (no key, no log-decay) leaves the state as it is. Packed sequences share
    the row, but no chunk.
    """

    def __init__(self, sequences: Sequences, chunk_size: int):
        longest = max(end - start for start, end in sequences.bounds)
        size = min(chunk_size, max(longest, 1))
        self.size, self.slots = size, 1 << (size - 1).bit_length()
        self.bounds, self.walks, self.count = sequences.bounds, [], 0
        for rows, tokens in sequences.pieces():
            chunks = -(-(tokens.stop - tokens.start) // size)
            self.walks.append((rows, range(self.count, self.count + chunks)))
            self.count += chunks

    def split(self, x: Tensor) -> Tensor:
        pieces = [_padded(x[:, start:end], -(end - start) % self.size) for start, end in self.bounds]
        x = (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)).unflatten(1, (self.count, self.size))
        return _padded(x.transpose(1, 2), self.slots - self.size).permute(0, 3, 2, 1, 4)

    def join(self, outputs: list[Tensor]) -> Tensor:
        """The chunks' outputs, (B, H, slots, D) each, as (B, T, H, D)."""
        left = {chunks.stop - 1: (end - start - 1) % self.size + 1 for (start, end), (_, chunks) in self._filled()}
        return torch.cat([o[:, :, : left.get(n, self.size)].transpose(1, 2) for n, o in enumerate(outputs)], 1)

    def _filled(self):
        return [(bound, walk) for bound, walk in zip(self.bounds, self.walks) if len(walk[1])]
