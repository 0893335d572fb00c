"""Chapter 04, third part: PyTorch, in log space with autograd, and a sequence in pieces (4.8 and 4.10)."""

import numpy as np
import torch

from lineage_lib.chunked import chunk_additive
from lineage_lib.exercises._ch04_blocks import chunks
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.validate import readable


def draw_heads(rng, B, T, H, K, V, *, resets=(), g=None):
    """(q, k, v, g): tensors [B, T, H, D] and [B, T, H] in float64; decays of 0.5 to 1, resets in every head."""
    g = np.log(rng.uniform(0.5, 1.0, (B, T, H))) if g is None else g
    g[:, list(resets)] = -np.inf
    arrays = (rng.standard_normal((B, T, H, D)) for D in (K, K, V))
    return tuple(torch.tensor(z) for z in (*arrays, g))


def settled(value, truth):
    """Where the inputs are float32: the true values, in place of values that are right to float32's digits."""
    value = torch.as_tensor(readable(value)).detach()
    if value.shape != truth.shape or value.dtype != torch.float32:
        return value
    near = (value - truth).abs() <= 2e-5 * truth.abs().max().clamp(min=1.0)
    return torch.where(near, truth.double(), value.double())


def refuse_other_dtype(label, value, inputs):
    """A sentence unless ``value`` has the dtype of the inputs; what has no dtype is left to the check."""
    from lineage_lib.checks import Malformed  # checks imports the records

    got, need = (str(getattr(z, "dtype", "")).removeprefix("torch.") for z in (value, inputs))
    if got and got != need:
        raise Malformed(f"{label} is {got}, and the inputs are {need}: make new tensors with q.new_zeros(…)")


# --- 4.8 in log space, with autograd --------------------------------------------------------------


def _log_cases(rng):
    def case(sizes, T_c, note, *, dtype=torch.float64, **kwargs):
        tensors = draw_heads(rng, *sizes, **kwargs)
        return Case((*(z.to(dtype).requires_grad_() for z in tensors), T_c), note)

    wiped = ([0.0, 1.0], [1.0, 1.0], [1e12, 1.0], [0.0, -np.inf])  # q, k, v, g
    wiped = [torch.tensor(z, dtype=torch.float64).reshape(1, 2, 1, 1) for z in wiped]
    wiped[3] = wiped[3][..., 0]
    stronger = rng.uniform(-15.0, -5.0, (1, 96, 1))
    first = rng.uniform(-40.0, -20.0, (1, 100, 2))
    long = np.concatenate([first, np.log(rng.uniform(0.5, 1.0, (1, 30, 2)))], 1)
    strong = np.log(rng.uniform(0.5, 1.0, (1, 14, 2)))
    strong[:, [3, 5, 9]] = -400.0
    deep = np.log(rng.uniform(0.9, 1.0, (1, 19, 1)))
    deep[:, :4] = -1e9
    slow = np.log(rng.uniform(0.99, 1.0, (1, 130, 1)))
    return [
        case((1, 4, 1, 1, 1), 2, "four tokens in two chunks, all widths 1"),
        case((1, 1, 1, 2, 3), 4, "T = 1"),
        case((2, 8, 1, 3, 2), 4, "two sequences, two full chunks"),
        case((1, 7, 3, 2, 4), 3, "three heads, and a last chunk of one token"),
        case((2, 5, 2, 3, 3), 1, "K = V, T_c = 1: every token is a chunk"),
        case((1, 14, 2, 3, 2), 8, "g[:, 3] = g[:, 5] = g[:, 9] = -400", g=strong),
        case((1, 19, 1, 2, 3), 4, "the first four tokens have g = -1e9, the others are mild", g=deep),
        case((2, 11, 2, 2, 3), 4, "g[:, 3] = g[:, 4] = -inf: a chunk's last and a chunk's first", resets=(3, 4)),
        case((1, 13, 2, 3, 2), 6, "resets at the first, two middle and the last token", resets=(0, 7, 9, 12)),
        case((1, 130, 1, 3, 2), 16, "decays near 1, which keep old writes for long", g=slow),
        Case((*(z.requires_grad_() for z in wiped), 2), "v[:, 0] = 1e12 and g[:, 1] = -inf, which wipes it"),
        case((1, 96, 1, 3, 2), 96, "one full chunk, every g between -15 and -5", g=stronger),
        case((2, 7, 2, 3, 2), 3, "float32, wanted to 4 digits", dtype=torch.float32, resets=(4,)),
        case(
            (1, 130, 2, 3, 2),
            128,
            "float32, wanted to 4 digits: 100 strong decays, then mild",
            dtype=torch.float32,
            g=long,
        ),
    ]


def log_view(output, q, k, v, g, T_c):
    """The output and its gradients with respect to q, k, v and g, for one fixed loss.

    The tensors that were passed in are found in the graph of the output itself.
    """
    from lineage_lib.checks import Malformed  # checks imports the records

    if not hasattr(output, "grad_fn"):
        raise Malformed(f"expected one tensor o [B, T, H, V], got a {type(output).__name__}")
    refuse_other_dtype("o", output, q)
    if output.shape != v.shape:
        raise Malformed(f"o has the wrong shape: got {tuple(output.shape)}, expected [B, T, H, V] = {tuple(v.shape)}")
    leaves = _leaves(output)
    found = {name: next((x for x in leaves if _same(x, z)), None) for name, z in zip("qkvg", (q, k, v, g))}
    lost = [name for name, x in found.items() if x is None]
    if lost:
        raise Malformed(
            f"no gradient reaches {', '.join(lost)}: stay in PyTorch from the inputs to the output, without numpy, "
            "detach or torch.tensor(...)"
        )
    outcome = _with_gradients(output, [found[name] for name in "qkvg"])
    if q.dtype == torch.float64:
        return outcome
    exact = [z.detach().double().requires_grad_() for z in (q, k, v, g)]
    return [settled(x, truth) for x, truth in zip(outcome, _with_gradients(log_oracle(*exact, T_c), exact))]


def _with_gradients(output, inputs):
    loss = (output * torch.cos(torch.arange(output.numel(), dtype=output.dtype)).view_as(output)).sum()
    return output.detach(), *torch.autograd.grad(loss, inputs)


def _leaves(output):
    """The tensors at the ends of a graph."""
    leaves, seen, todo = [], set(), [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    return leaves


def _same(x, z) -> bool:
    return x.shape == z.shape and torch.equal(x.detach(), z.detach())


def segment_log_sums(g):
    """log L for each chunk of log-decays g [..., C]: [..., C, C], summed segment by segment."""
    C = g.shape[-1]
    below = torch.ones(C, C, dtype=torch.bool).tril(-1)
    steps = torch.where(below, g[..., :, None], g.new_zeros(()))
    return steps.cumsum(-2).masked_fill(below.mT, -torch.inf)


def _causal(g):
    return torch.ones(g.shape[-1], g.shape[-1], dtype=torch.bool).tril()


def _differences_of(G):
    """log L as a difference of the cumulative sums G."""
    return (G[..., :, None] - G[..., None, :]).masked_fill(~_causal(G), -torch.inf)


def _mask(g):
    return segment_log_sums(g).exp()


def _exp_then_mask(g):
    """Right on the way forward where nothing is infinite; NaN on the way back once exp overflows."""
    G = g.cumsum(-1)
    return torch.where(_causal(G), (G[..., :, None] - G[..., None, :]).exp(), g.new_zeros(()))


def _exp_times_mask(g):
    G = g.cumsum(-1)
    return (G[..., :, None] - G[..., None, :]).exp() * _causal(G)


def _from_start(g):
    return g.cumsum(-1).exp()


def _first_column(g):
    return segment_log_sums(g)[..., 0].exp()


def log_oracle(q, k, v, g, T_c):
    return _in_log_space(q, k, v, g, T_c)


def _in_log_space(q, k, v, g, T_c, *, mask=_mask, read=_from_start, write=None, whole=None, hand_on=lambda S: S):
    """Chunk by chunk; ``mask``, ``read``, ``write`` and ``whole`` make decays of a chunk's g [b, h, t]."""
    S = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    out = []
    for j in chunks(q.shape[1], T_c):
        qj, kj, vj, gj = q[:, j], k[:, j], v[:, j], g[:, j].mT
        L, from_start = mask(gj), read(gj)
        to_end = L[..., -1, :] if write is None else write(gj)
        scores = torch.einsum("bthk,bshk->bhts", qj, kj)
        inside = torch.einsum("bhts,bshv->bthv", L * scores, vj)
        out.append(inside + torch.einsum("bht,bthk,bhkv->bthv", from_start, qj, S))
        over = (_from_start if whole is None else whole)(gj)[..., -1, None, None]
        S = hand_on(over * S + torch.einsum("bhs,bshk,bshv->bhkv", to_end, kj, vj))
    return torch.cat(out, 1)


def _reshaped(q, k, v, g, T_c):
    """In each chunk, time and heads are swapped by a reshape of every tensor, and swapped back by one."""
    B, T, H = g.shape
    swapped = [[] for _ in range(4)]
    for j in chunks(T, T_c):
        for parts, z in zip(swapped, (q, k, v, g[..., None])):
            parts.append(z[:, j].reshape(B, H, -1, z.shape[-1]).transpose(1, 2))
    q, k, v, g = (torch.cat(parts, 1) for parts in swapped)
    o = _in_log_space(q, k, v, g[..., 0], T_c)
    return torch.cat([o[:, j].transpose(1, 2).reshape(B, -1, H, v.shape[-1]) for j in chunks(T, T_c)], 1)


CHUNKED_LOG = Exercise(
    id="4.8",
    name="ssd_chunked_log",
    title="in PyTorch, from log-decays",
    points=5,
    minutes=25,
    difficulty="hard",
    returns=("o[b, t, h, v]", "dq[b, t, h, k]", "dk[b, t, h, k]", "dv[b, t, h, v]", "dg[b, t, h]"),
    cases=_log_cases,
    oracle=log_oracle,
    view=log_view,
    mistakes=(
        Mistake(
            "cumsum-difference",
            "the mask is a difference of cumulative sums; after a reset that is -inf - (-inf) = NaN: "
            "sum each segment by itself",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, mask=lambda g: _differences_of(g.cumsum(-1)).exp()),
        ),
        Mistake(
            "write-by-difference",
            "the decays of the writes are the chunk's last cumulative sum minus the others; after a reset that is "
            "-inf - (-inf) = NaN: the last row of the mask holds them",
            lambda q, k, v, g, T_c: _in_log_space(
                q, k, v, g, T_c, write=lambda g: (g.sum(-1, keepdim=True) - g.cumsum(-1)).exp()
            ),
        ),
        Mistake(
            "exp-before-mask",
            "the exponential was taken before the mask: above the diagonal it overflows, and although the mask hides "
            "the infinity, the gradient is 0 times infinity, NaN; mask with -inf, then exponentiate",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, mask=_exp_then_mask),
        ),
        Mistake(
            "exp-times-mask",
            "the exponential was multiplied by a mask of zeros and ones: above the diagonal it overflows, and infinity "
            "times 0 is NaN; mask with -inf, then exponentiate",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, mask=_exp_times_mask),
        ),
        Mistake(
            "border-decay-lost",
            "the decay of a chunk's first token is missing, from the read and from what is passed on: both start with "
            "it, and the first column of the mask does not hold it; the chunk's cumulative sum does",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, read=_first_column, whole=_first_column),
        ),
        Mistake(
            "nothing-handed-on",
            "every chunk started from an empty state, so no token hears from an earlier chunk",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, hand_on=torch.zeros_like),
        ),
        Mistake(
            "state-detached",
            "the outputs are right, but the state was cut out of the graph at each border, and the gradients stop "
            "there; hand it on as it is",
            lambda q, k, v, g, T_c: _in_log_space(q, k, v, g, T_c, hand_on=lambda S: S.detach()),
        ),
        Mistake(
            "reshaped",
            "time and heads were swapped by a reshape, which keeps the numbers in their order and mixes the heads up; "
            "swap axes with transpose, or name them in an einsum",
            _reshaped,
        ),
    ),
    hints=(
        "The check compares the output and, by autograd, the gradients of q, k, v and g. A NaN in a gradient alone "
        "comes from an infinity that a mask has hidden.",
        "It is 4.5 with a batch and heads, and with three sets of decays that are exponentials of sums: of segments, "
        "from the chunk's start, and to the chunk's end.",
        "Per chunk, with the page's `segment_log_sums`: the mask is its exponential, and the last row of the mask "
        "weights the writes. The exponential of the chunk's cumulative sum weights the read, and its last entry what "
        "is passed on. Collect the outputs in a list and join them with `torch.cat`.",
        "Read and pass: the state `[B, H, K, V]` is read by an einsum over k with the weights [b, h, t]; then it "
        "becomes its last weight times itself plus an einsum over s of weights, keys and values. Take `g` to "
        "[b, h, t] first.",
    ),
)


# --- 4.10 a sequence in pieces --------------------------------------------------------------------


def _stream_cases(rng):
    def case(sizes, lengths, note, *, dtype=torch.float64, **kwargs):
        return Case((*(z.to(dtype) for z in draw_heads(rng, *sizes, **kwargs)), lengths), note)

    slow = np.log(rng.uniform(0.99, 1.0, (1, 300, 2)))
    return [
        case((1, 3, 1, 1, 1), [1, 2], "three tokens in two pieces, all widths 1"),
        case((1, 1, 1, 2, 3), [1], "one piece of one token"),
        case((2, 6, 2, 3, 2), [1, 2, 3], "three pieces, two sequences, two heads"),
        case((1, 5, 2, 2, 4), [1, 1, 1, 1, 1], "token by token"),
        case((1, 7, 1, 4, 3), [7], "one piece"),
        case((1, 9, 2, 2, 3), [4, 5], "g[:, 4] = -inf: the second piece starts with a reset", resets=(4,)),
        case((2, 9, 1, 3, 3), [3, 1, 5], "g[:, 8] = -inf: the last token resets", resets=(8,)),
        case((2, 6, 2, 3, 2), [2, 3, 1], "float32, wanted to 4 digits", dtype=torch.float32),
        case((1, 300, 2, 3, 2), [100, 70, 129, 1], "300 tokens that keep old writes for long", g=slow),
    ]


def stream_view(output, q, k, v, g, lengths):
    """The output as it is; from float32 inputs, both values must be float32 and right to its digits."""
    if q.dtype == torch.float64 or not isinstance(output, list | tuple) or len(output) != 2 or output[1] is None:
        return output
    for label, value in zip(("o", "S"), output):
        refuse_other_dtype(label, value, q)
    truth = stream_oracle(*(z.double() for z in (q, k, v, g)), lengths)
    return [settled(value, x) for value, x in zip(output, truth)]


def stream_oracle(q, k, v, g, lengths):
    return _whole(q, k, v, g)


def _whole(q, k, v, g, **options):
    return chunk_additive(q, k, v, g, scale=1.0, output_final_state=True, **options)


def _streamed(q, k, v, g, lengths, *, state=lambda now, first: now, scale=1.0):
    """Piece by piece; ``state`` chooses what the next piece starts from."""
    S, first, out = None, None, []
    for piece in zip(*(z.split(lengths, 1) for z in (q, k, v, g))):
        o, now = chunk_additive(*piece, scale=scale, initial_state=S, output_final_state=True)
        first = now if first is None else first
        S = state(now, first)
        out.append(o)
    return torch.cat(out, 1), now


def _not_asked_for(q, k, v, g, lengths):
    parts = zip(*(z.split(lengths, 1) for z in (q, k, v, g)))
    return torch.cat([chunk_additive(*piece, scale=1.0)[0] for piece in parts], 1), None


def _stream_reset_at_starts(q, k, v, g, lengths):
    g = g.clone()
    g[:, np.cumsum([0, *lengths[:-1]])] = -torch.inf
    return _whole(q, k, v, g)


def _border_decay_dropped(q, k, v, g, lengths):
    g = g.clone()
    g[:, np.cumsum([0, *lengths[:-1]])] = 0.0
    return _whole(q, k, v, g)


STREAM = Exercise(
    id="4.10",
    name="stream",
    title="a sequence in pieces",
    points=2,
    minutes=6,
    difficulty="core",
    returns=("o[b, t, h, v]", "S[b, h, k, v]"),
    cases=_stream_cases,
    oracle=stream_oracle,
    view=stream_view,
    mistakes=(
        Mistake(
            "nothing-handed-on",
            "every piece started from an empty state; pass the final state of one call as initial_state of the next",
            _stream_reset_at_starts,
        ),
        Mistake(
            "final-state-not-asked-for",
            "chunk_additive returns None for the state unless it is called with output_final_state=True, and with "
            "None the next piece starts empty",
            _not_asked_for,
        ),
        Mistake(
            "first-state-kept",
            "every later piece started from the state behind the first piece; the state moves on with every piece",
            lambda q, k, v, g, lengths: _streamed(q, k, v, g, lengths, state=lambda now, first: first),
        ),
        Mistake(
            "scaled",
            "the outputs are divided by the square root of K, chunk_additive's default; scale=1.0 turns that off",
            lambda q, k, v, g, lengths: _streamed(q, k, v, g, lengths, scale=None),
        ),
        Mistake(
            "border-decay-dropped",
            "the first decay of each piece was left out; it acts on the state that is handed in",
            _border_decay_dropped,
        ),
        Mistake(
            "pieces-stacked",
            "the output has the right numbers on a wrong axis; pieces are joined along time, dimension 1",
            lambda q, k, v, g, lengths: (
                torch.cat([z for z in _whole(q, k, v, g)[0].split(lengths, 1)], 1).flatten(0, 1),
                _whole(q, k, v, g)[1],
            ),
        ),
        Mistake(
            "last-piece-missing",
            "the tokens of the last piece are missing from the output; it is as long as the input",
            lambda q, k, v, g, lengths: (_whole(q, k, v, g)[0][:, : sum(lengths[:-1])], _whole(q, k, v, g)[1]),
        ),
    ),
    hints=(
        "The result must not depend on where the sequence is cut: one call on everything gives the same numbers.",
        "Each piece is one call of `chunk_additive`. What must one call know from the call before?",
        "`output_final_state=True` makes the call return the state behind its last token; `initial_state` takes it in. "
        "The first call gets `None`.",
        "A loop over the pieces: call with the state so far, keep the new state, collect the outputs; after the loop "
        "join them along dimension 1.",
    ),
)
