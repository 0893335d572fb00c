"""Two chunked algorithms carry the whole family: writes that add, and writes that correct.

    additive   S_t =                diag(exp g_t) S_{t-1} + k_t v_tᵀ
    delta      S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

Attention inside a chunk, a recurrence from chunk to chunk. Decays come as logarithms, and what is
left of one token's write at another is a product of exponentials of *sums* of the log-decays that
lie between them: no difference of cumulative sums and no ratio of products, so that nothing
overflows, no digits are lost to a large common term, and a log-decay of -inf, a reset, is an
ordinary number.
"""

from itertools import islice

import torch

from lineage_lib.sequences import Sequences
from lineage_lib.tensors import log_decay, real_tensor, working_dtype

Tensor = torch.Tensor

CACHED = 2**19  # numbers of a tensor of which a CPU's cache holds a few


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
    Source: Yang et al. (2024); Yang et al. (2025) with a decay.

    >>> q = k = torch.ones(1, 5, 1, 4) / 2  # of length 1
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
    sequences = Sequences(sizes["B"], sizes["T"], cu_seqlens)
    if initial_state is not None:
        real_tensor("initial_state", initial_state, "N HV K V", {**sizes, "N": sequences.number})
    scale = sizes["K"] ** -0.5 if scale is None else scale
    o, S = run_chunks(q, k, v, e, g, initial_state, sequences, chunk_length(chunk_size), scale=scale)
    return o, (S if output_final_state else None)


def chunk_length(chunk_size: int) -> int:
    """``chunk_size`` itself, or a ``ValueError`` when it is not a whole number of at least 1."""
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise ValueError(f"chunk_size: expected a whole number of at least 1, got {chunk_size!r}")
    return chunk_size


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
    q, k = (x if x.shape[2] == H else x.repeat_interleave(H // x.shape[2], 2) for x in (q, k))
    g = g[..., None] if g is not None and g.ndim == 3 else g
    tensors = [None if x is None else layout.split(x.to(dtype)) for x in (q, k, v, e, g)]  # (B, H, N, C, ·)
    # On a CPU a few chunks at a time, so that what they need stays in its cache.
    few = max(1, CACHED // max(1, tensors[0][:, :, 0].numel())) if v.device.type == "cpu" else layout.count
    states = [state[rows] for rows, _ in layout.walks]  # (B, H, K, V), each carried through its sequence
    walk = (number for number, (_, chunks) in enumerate(layout.walks) for _ in range(chunks))
    outputs = []
    for first in range(0, layout.count, few):
        part = _Chunks(
            *(None if x is None else x[:, :, first : first + few].contiguous() for x in tensors),
            counts,
            erase_before_decay,
        )
        entering = []
        for n, number in enumerate(islice(walk, few)):
            entering.append(states[number])
            states[number] = part.walk(n, states[number])
        outputs.append(part.outputs(torch.stack(entering, 2), scale))
    return layout.join(outputs).to(v.dtype), torch.cat(states)


class _Chunks:
    """A few chunks of q, k, v, e, g (B, H, n, C, ·), all that does not need the state done at once."""

    def __init__(self, q, k, v, e, g, counts: bool, erase_before_decay: bool):
        value = torch.cat([v, torch.ones_like(v[..., :1])], -1) if counts else v
        # Scores below and on the diagonal; queries, and erase keys, as the state that entered is left to
        # them; keys as the end of the chunk leaves their writes; what the chunk leaves of a state.
        readers = [(q, False)] if e is None else [(q, False), (e, erase_before_decay)]
        scores, readers, kept, self.whole = _decayed(g, readers, k)
        self.scores, self.query, carry = scores[0], readers[0], kept.mT
        if e is None:
            self.values, self.writes = value, (carry @ value).unbind(2)
            return
        # A token writes its value less what it erases, of the state that entered the chunk and of the
        # chunk's earlier writes: (I + erased) written = value − (e · decay since the start)ᵀ state.
        self.solve = _InverseOfUnitLower.apply(scores[1]).unbind(2)
        self.carry, self.erase, self.value = carry.unbind(2), readers[1].unbind(2), value.unbind(2)
        self.values, self.writes = [], None

    def walk(self, n: int, S: Tensor) -> Tensor:
        """Takes the state S (B, H, K, V) through chunk n."""
        if self.writes is not None:
            return self.writes[n] + S if self.whole is None else torch.addcmul(self.writes[n], self.whole[n], S)
        left = _add_product(self.value[n].clone(), self.erase[n], S, -1)
        self.values.append(self.solve[n] @ left)
        return _add_product(S.clone() if self.whole is None else self.whole[n] * S, self.carry[n], self.values[-1])

    def outputs(self, entering: Tensor, scale: float) -> Tensor:
        """What the tokens read (B, H, n, C, V), from the states that entered the chunks (B, H, n, K, V)."""
        values = self.values if self.writes is not None else torch.stack(self.values, 2)
        return _add_product(self.scores @ values, self.query, entering, scale, scale)


def _add_product(x: Tensor, a: Tensor, b: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """beta · x + alpha · a @ b, in one pass and in the place of x."""
    x_, a, b = (t.flatten(0, -3) for t in (x, a, b))
    return x_.baddbmm_(a, b, alpha=alpha, beta=beta).view(x.shape)


def _decayed(g: Tensor | None, readers: list[tuple[Tensor, bool]], k: Tensor):
    """(scores, readers, k, whole): what the chunks' log-decays g (B, H, n, C, 1 or K) do to them.

    A reader (x, before) reads after its token's decay or before it. Its scores (B, H, n, C, C) are
    Σ_c x_ic k_jc · (what is left at i of channel c of j's write), on and below the diagonal. Readers
    come back times what is left of the state that entered the chunk, k times what is left of each
    write at its end, and whole is what the chunk leaves of a state, (B, H, 1 or K, 1) each, None for no decay.
    """
    if g is None:
        return [(x @ k.mT).tril() for x, _ in readers], [x for x, _ in readers], k, None
    if g.shape[-1] == k.shape[-1]:
        return _joined(g, readers, k)
    # One decay for all channels: join ones, and multiply afterwards.
    one = torch.ones_like(g)
    orders = sorted({before for _, before in readers})
    kept, since, until, whole = _joined(g, [(one, before) for before in orders], one)
    kept, since = dict(zip(orders, kept)), dict(zip(orders, since))
    scores = [(x @ k.mT) * kept[before] for x, before in readers]
    return scores, [x * since[before] for x, before in readers], k * until, whole


def _joined(g: Tensor, readers: list[tuple[Tensor, bool]], k: Tensor):
    """:func:`_decayed` with a decay for each channel of k.

    Blocks of 1, 2, 4, … C tokens: readers times what is left since their block's start, keys times
    what is left at its end. For two neighbouring blocks the right one's readers times the left one's
    keys are scores. Then each is joined to the other by the exponential of its sum of log-decays: a
    factor is a product of at most log2 C + 1 rounded numbers, all of them at most 1.
    """
    scores = [torch.diag_embed((x * k).sum(-1)) for x, _ in readers]
    since = [x if before else x * g.exp() for x, before in readers]
    until, total = k, g
    for h in _halves(g.shape[-2]):
        since, until = [x.unflatten(-2, (-1, 2, h)) for x in since], until.unflatten(-2, (-1, 2, h))
        earlier = until[..., 0, :, :].mT
        for score, x in zip(scores, since):
            _below(score, h).copy_(x[..., 1, :, :] @ earlier)
        left, right = total[..., 0::2, :], total[..., 1::2, :]
        one = torch.ones_like(left)
        through_left = torch.stack([one, left.exp()], -2)[..., None, :]
        since = [(x * through_left).flatten(-4, -2) for x in since]
        until = (until * torch.stack([right.exp(), one], -2)[..., None, :]).flatten(-4, -2)
        total = left + right
    return scores, since, until, total.exp().mT.unbind(2)


def _halves(C: int) -> list[int]:
    """1, 2, 4, … below C, a power of two."""
    return [2**level for level in range(C.bit_length() - 1)]


def _padded(x: Tensor, more: int) -> Tensor:
    """x (B, T, …) with ``more`` zeros after its last token."""
    return torch.cat([x, x.new_zeros(x.shape[0], more, *x.shape[2:])], 1) if more else x


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
        for h in _halves(A.shape[-1]):
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
            self.walks.append((rows, chunks))
            self.count += chunks

    def split(self, x: Tensor) -> Tensor:
        pieces = [_padded(x[:, start:end], -(end - start) % self.size) for start, end in self.bounds]
        x = (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)).unflatten(1, (self.count, self.size))
        return _padded(x.transpose(1, 2), self.slots - self.size).permute(0, 3, 2, 1, 4)

    def join(self, outputs: list[Tensor]) -> Tensor:
        """Outputs (B, H, a few chunks, slots, D) one behind the other as (B, T, H, D)."""
        o = torch.cat([x.permute(0, 2, 3, 1, 4) for x in outputs], 1)[:, :, : self.size].flatten(1, 2)
        pieces, first = [], 0
        for (start, end), (_, chunks) in zip(self.bounds, self.walks):
            pieces.append(o[:, first : first + end - start])
            first += chunks * self.size
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)
