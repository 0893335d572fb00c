"""Two chunked algorithms carry the whole family: writes that add, and writes that correct.

    additive   S_t =                diag(exp g_t) S_{t-1} + k_t v_tᵀ
    delta      S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

Attention inside a chunk, a recurrence from chunk to chunk. Decays stay logarithms, and every decay
between two tokens is the exponential of a *sum* of log-decays that lies between them: no difference
of cumulative sums and no ratio of products, so that nothing overflows, no digits are lost to a large
common term, and a log-decay of -inf, a reset, is an ordinary number.
"""

from itertools import islice

import torch
import torch.nn.functional as F

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
        decay = _NoDecay() if g is None else _Decay(g)
        value = torch.cat([v, torch.ones_like(v[..., :1])], -1) if counts else v
        # Scores below and on the diagonal; queries as the state that entered is left to them; keys as the
        # end of the chunk leaves their writes.
        self.scores, *erased = decay.scores(k, (q, False), *([] if e is None else [(e, erase_before_decay)]))
        self.query, carry = decay.since_start(q), decay.until_end(k).mT
        self.whole = decay.whole
        if e is None:
            self.values, self.writes = value, (carry @ value).unbind(2)
            return
        # A token writes its value less what it erases, of the state that entered the chunk and of the
        # chunk's earlier writes: (I + erased) written = value − (e · decay since the start)ᵀ state.
        erase = decay.since_start(e, erase_before_decay)
        self.solve = _InverseOfUnitLower.apply(*erased).unbind(2)
        self.carry, self.erase, self.value = carry.unbind(2), erase.unbind(2), value.unbind(2)
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


class _Decay:
    """All decays inside chunks, from their log-decays g (…, C, D), D = 1: one a head, or K: one a channel.

    Blocks of 1, 2, 4, … C tokens: what is left since a block's start at each of its tokens, and what
    is left of each token's write at the block's end. For two neighbouring blocks the product of the
    right one's first factor and the left one's second is what is left of every write of the left at
    every token of the right. Blocks are joined by the exponential of the other's sum of log-decays,
    so that a factor is a product of at most log2 C rounded numbers, all of them at most 1.
    """

    def __init__(self, g: Tensor):
        since, until, total = g.exp(), torch.ones_like(g), g
        self.neighbours = []  # for h = 1, 2, 4, …: the two factors, (…, C / 2h, h, D) each
        for h in _halves(g.shape[-2]):
            since, until = (x.unflatten(-2, (-1, 2, h)) for x in (since, until))
            self.neighbours.append((since[..., 1, :, :], until[..., 0, :, :]))
            left, right = total[..., 0::2, :], total[..., 1::2, :]
            one = torch.ones_like(left)
            since = (since * torch.stack([one, left.exp()], -2)[..., None, :]).flatten(-4, -2)
            until = (until * torch.stack([right.exp(), one], -2)[..., None, :]).flatten(-4, -2)
            total = left + right
        self.from_start, self.to_end = since, until  # (B, H, n, C, D)
        self.whole = since[..., -1, :, None].unbind(2)  # (B, H, D, 1) for each chunk

    def scores(self, k: Tensor, *queries: tuple[Tensor, bool]) -> list[Tensor]:
        """For each (q, earlier) the lower triangle of Σ_c q_ic k_jc exp(log-decay of c after j up to i).

        (B, H, n, C, C). ``earlier``: up to i − 1, and right below the diagonal only.
        """
        if self.from_start.shape[-1] > 1:
            return self._between(k, *queries)
        one = torch.ones_like(self.from_start)
        orders = sorted({earlier for _, earlier in queries})
        kept = dict(zip(orders, self._between(one, *((one, earlier) for earlier in orders))))
        return [(q @ k.mT) * kept[earlier] for q, earlier in queries]

    def since_start(self, x: Tensor, earlier: bool = False) -> Tensor:
        """x (B, H, n, C, ·) times what a token has left of the state that entered; ``earlier``: the token before."""
        return x * (_one_earlier(self.from_start) if earlier else self.from_start)

    def until_end(self, x: Tensor) -> Tensor:
        """x (B, H, n, C, ·) times what the end of the chunk leaves of a token's write."""
        return x * self.to_end

    def _between(self, k: Tensor, *queries: tuple[Tensor, bool]) -> list[Tensor]:
        scores = [torch.diag_embed((q * k).sum(-1)) for q, _ in queries]
        for h, (since, until) in zip(_halves(k.shape[-2]), self.neighbours):
            before = (k.unflatten(-2, (-1, 2, h))[..., 0, :, :] * until).mT
            for (q, earlier), score in zip(queries, scores):
                later = q.unflatten(-2, (-1, 2, h))[..., 1, :, :] * (_one_earlier(since) if earlier else since)
                _below(score, h).copy_(later @ before)
        return scores


class _NoDecay:
    """As :class:`_Decay`, where nothing decays."""

    whole = None

    def scores(self, k: Tensor, *queries: tuple[Tensor, bool]) -> list[Tensor]:
        return [(q @ k.mT).tril() for q, _ in queries]

    def since_start(self, x: Tensor, earlier: bool = False) -> Tensor:
        return x

    def until_end(self, x: Tensor) -> Tensor:
        return x


def _halves(C: int) -> list[int]:
    """1, 2, 4, … below C, a power of two."""
    return [2**level for level in range(C.bit_length() - 1)]


def _padded(x: Tensor, more: int) -> Tensor:
    """x (B, T, …) with ``more`` zeros after its last token."""
    return torch.cat([x, x.new_zeros(x.shape[0], more, *x.shape[2:])], 1) if more else x


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
