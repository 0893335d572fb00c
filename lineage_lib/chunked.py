"""Two chunked algorithms carry the whole family: writes that add, and writes that correct.

    additive   S_t =                diag(exp g_t) S_{t-1} + k_t v_tᵀ
    delta      S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

Attention inside a chunk, a recurrence from chunk to chunk. Decays stay logarithms, and every decay
between two tokens is the exponential of a *sum* of log-decays that lies between them: no difference
of cumulative sums and no ratio of products, so that nothing overflows, no digits are lost to a large
common term, and a log-decay of -inf, a reset, is an ordinary number.
"""

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
    q = q * (sizes["K"] ** -0.5 if scale is None else scale)
    o, S = run_chunks(q, k, v, e, g, initial_state, sequences, chunk_size)
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
    erase_before_decay: bool = False,
) -> tuple[Tensor, Tensor]:
    """The algorithm, on checked input and without a scale: (o (B, T, HV, V), final state (N, HV, K, V)).

    ``erase_before_decay``: what is erased is read from the state before its decay, not after it:
    S_t = (diag(exp g_t) − k_t e_tᵀ) S_{t-1} + k_t v_tᵀ, which is RWKV-7's order.
    """
    (H, V), K = v.shape[2:], k.shape[-1]
    dtype = working_dtype(*(t for t in (q, k, v, e, g, initial_state) if t is not None))
    state = v.new_zeros(sequences.number, H, K, V, dtype=dtype) if initial_state is None else initial_state.to(dtype)
    layout = _Layout(sequences, chunk_size)
    if layout.count == 0:
        return v.clone(), state
    q, k = (x.repeat_interleave(H // x.shape[2], 2) if x.shape[2] != H else x for x in (q, k))
    q, k, v_, e = (None if x is None else layout.split(x.to(dtype)) for x in (q, k, v, e))  # (B, H, N, C, ·)

    if g is None:
        decays, from_start, to_end, whole = None, 1.0, 1.0, None
    else:
        g = layout.split((g if g.ndim == 4 else g[..., None]).to(dtype))
        decays, prefix, suffix = _decays(g)
        # (…, C, 1 or K): what is left at a token of the state that entered, and at the end of a token's write
        from_start, to_end = prefix.exp(), suffix.exp()
        whole = from_start[..., -1, :, None]  # (B, H, N, 1 or K, 1)
    erase_decays, erase_from_start = decays, from_start
    if erase_before_decay and g is not None:
        erase_decays = [(_one_earlier(later), earlier) for later, earlier in decays]
        erase_from_start = _one_earlier(from_start)
    scores = _scores(q, k, decays, diagonal=True)  # (B, H, N, C, C)
    carry = (k * to_end).mT  # (B, H, N, K, C)

    if e is None:
        values, writes = v_, (carry @ v_).unbind(2)
        entering, state = _walk(layout, state, lambda n, S: _decayed(whole, n, S) + writes[n])
    else:
        # What a token writes is its value less what it erases, of the state that entered the chunk and of
        # the chunk's earlier writes: (I + erased) written = value − (e · decay since the start)ᵀ state.
        solve = _InverseOfUnitLower.apply(_scores(e, k, erase_decays, diagonal=False)).unbind(2)
        erase, value, carries = (e * erase_from_start).unbind(2), v_.unbind(2), carry.unbind(2)
        written = []

        def correct(n: int, S: Tensor) -> Tensor:
            written.append(solve[n] @ _add_product(value[n], erase[n], S, sign=-1))
            return _add_product(_decayed(whole, n, S), carries[n], written[-1])

        entering, state = _walk(layout, state, correct)
        values = torch.stack(written, 2)
    o = _add_product(scores @ values, q * from_start, entering)
    return layout.join(o).to(v.dtype), state


def _decayed(whole: Tensor | None, n: int, S: Tensor) -> Tensor:
    return S if whole is None else whole[:, :, n] * S


def _add_product(x: Tensor, a: Tensor, b: Tensor, sign: int = 1) -> Tensor:
    """x + sign · a @ b in one pass."""
    flat = (t.reshape(-1, *t.shape[-2:]) for t in (x, a, b))
    return torch.baddbmm(*flat, alpha=sign).view_as(x)


def _walk(layout: "_Layout", initial: Tensor, step) -> tuple[Tensor, Tensor]:
    """Carries the state through the chunks: (state entering each chunk (B, H, N, K, V), final states)."""
    entering, final = [], []
    for rows, chunks in layout.walks:
        S = initial[rows]
        for n in chunks:
            entering.append(S)
            S = step(n, S)
        final.append(S)
    return torch.stack(entering, 2), torch.cat(final)


def _decays(g: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
    """Log-decays of one chunk, g (…, C, D), into all that the algorithm needs of them.

    Blocks of 1, 2, 4, … C tokens: of each, the inclusive sums from its start and the exclusive sums
    to its end. For two neighbours of h tokens these give what is left of every write of the left at
    every token of the right: exp(from the right one's start) · exp(to the left one's end).
    Returns those two factors for each h (…, C/2h, h, D), and the sums of the whole chunk.
    """
    prefix = g.unsqueeze(-2)  # (…, C, 1, D): blocks, tokens in a block
    suffix = torch.zeros_like(prefix)
    factors = []
    while prefix.shape[-3] > 1:
        (pl, pr), (sl, _) = _halves(prefix), _halves(suffix)
        factors.append((pr.exp(), sl.exp()))
        left, right = pl[..., -1:, :], pr[..., -1:, :]  # what each neighbour adds to the other's sums
        prefix = _joined(prefix, torch.zeros_like(left), left)
        suffix = _joined(suffix, right, torch.zeros_like(right))
    return factors, prefix.squeeze(-3), suffix.squeeze(-3)


def _scores(q: Tensor, k: Tensor, decays: list[tuple[Tensor, Tensor]] | None, *, diagonal: bool) -> Tensor:
    """Lower triangle of Σ_c q_ic k_jc exp(log-decay of channel c between j and i): (…, C, C)."""
    if decays is None:
        return (q @ k.mT).tril(0 if diagonal else -1)
    if q.shape[-1] > 1 and decays and decays[0][0].shape[-1] == 1:
        one = q.new_ones(1).expand(*q.shape[:-1], 1)
        return (q @ k.mT) * _scores(one, one, decays, diagonal=diagonal)
    C = q.shape[-2]
    scores = q.new_zeros(*q.shape[:-1], C)
    if diagonal:
        scores.diagonal(dim1=-2, dim2=-1).copy_((q * k).sum(-1))
    for from_start, to_end in decays:
        h = from_start.shape[-2]
        later = q.unflatten(-2, (-1, 2, h))[..., 1, :, :] * from_start
        earlier = k.unflatten(-2, (-1, 2, h))[..., 0, :, :] * to_end
        _below(scores, h).copy_(later @ earlier.mT)
    return scores


def _below(matrix: Tensor, h: int) -> Tensor:
    """Of each diagonal block of 2h rows of (…, C, C) the lower left quarter: a view (…, C/2h, h, h)."""
    blocks = matrix.unflatten(-1, (-1, 2 * h)).unflatten(-3, (-1, 2 * h))  # (…, n, 2h, n, 2h)
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)[..., h:, :h]


class _InverseOfUnitLower(torch.autograd.Function):
    """(I + A)^-1 of A (…, C, C), strictly lower triangular, by forward substitution in blocks.

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


def _joined(sums: Tensor, to_left: Tensor, to_right: Tensor) -> Tensor:
    """Sums (…, 2n, h, D) of blocks as sums of the blocks' pairs, (…, n, 2h, D): to each what it lacks."""
    return (sums.unflatten(-3, (-1, 2)) + torch.stack([to_left, to_right], -3)).flatten(-3, -2)


def _one_earlier(decay: Tensor) -> Tensor:
    """What was left one token before, (…, h, D): 1 at the first."""
    return F.pad(decay[..., :-1, :], (0, 0, 1, 0), value=1.0)


def _halves(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(…, 2n, h, D) into the left and the right neighbours, (…, n, h, D) each."""
    return blocks.unflatten(-3, (-1, 2)).unbind(-3)


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
        pieces = []
        for start, end in self.bounds:
            piece = x[:, start:end]
            pieces.append(F.pad(piece, (0, 0, 0, 0, 0, -(end - start) % self.size)))
        x = (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)).unflatten(1, (self.count, self.size))
        x = F.pad(x, (0, 0, 0, 0, 0, self.slots - self.size)) if self.slots != self.size else x
        return x.permute(0, 3, 1, 2, 4).contiguous()

    def join(self, o: Tensor) -> Tensor:
        o = o[..., : self.size, :].permute(0, 2, 3, 1, 4).flatten(1, 2)  # (B, count * size, H, V)
        pieces = [
            o[:, chunks.start * self.size :][:, : end - start]
            for (start, end), (_, chunks) in zip(self.bounds, self.walks)
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)
