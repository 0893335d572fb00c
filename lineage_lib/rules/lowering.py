"""Each rule's arguments as one of the two recurrences (see :mod:`lineage_lib.rules.record`).

A lowering gets checked tensors in one working dtype, ``state`` (the rule's own, or None),
``sequences``, ``sizes`` (letter of an axis -> size) and the rule's options.
"""

import torch
import torch.nn.functional as F

from lineage_lib.reference import lightning_log_decay, retention_log_decay
from lineage_lib.reference._loop import Tensor, heads, outer, read, several, skip, start
from lineage_lib.reference.state_space import rotate
from lineage_lib.rules.record import Lowered
from lineage_lib.sequences import Sequences

STATE = "N HV K V"


def linear_attention(q, k, v, *, scale, state, sequences, sizes, feature_map=None, normalize=False):
    """The normaliser z is the state of a value that is always 1: one more column."""
    φ = feature_map or (lambda x: x)
    q, k = φ(q), φ(k)
    sizes = {**sizes, "K": k.shape[-1]}
    if not normalize:
        state = _state(state, sizes, sequences, v)
        return Lowered(q, k, v, None, state, sequences, _as_is, scale=_scale(scale, q))
    S, z = several(state, 2, "S, z")
    state = None if state is None else _with_column(S, z, sizes, sequences, v, "z")

    def finish(o: Tensor, S: Tensor):
        return o[..., :-1] / o[..., -1:], (S[..., :-1], S[..., -1])

    return Lowered(q, k, v, None, state, sequences, finish, counts=True)  # a scale would cancel


def simple_gla(q, k, v, g, *, scale, state, sequences, sizes):
    state = _state(state, sizes, sequences, v)
    return Lowered(q, k, v, g, state, sequences, _as_is, scale=_scale(scale, q))


def retention(q, k, v, *, scale, state, sequences, sizes):
    g = retention_log_decay(sizes["HV"]).to(v).expand(v.shape[:3])
    return simple_gla(q, k, v, g, scale=scale, state=state, sequences=sequences, sizes=sizes)


def lightning(q, k, v, *, scale, state, sequences, sizes, layer, num_layers):
    g = lightning_log_decay(sizes["HV"], layer, num_layers).to(v).expand(v.shape[:3])
    return simple_gla(q, k, v, g, scale=scale, state=state, sequences=sequences, sizes=sizes)


def mlstm(q, k, v, i, f, *, scale, state, sequences, sizes):
    """The stabiliser m scales keys and decays, the normaliser is one more column.

    The output does not depend on m, so no gradient flows through it.
    """
    S, n, m = several(state, 3, "S, n, m")
    sizes = {**sizes, "N": sequences.number}
    lowest = v.new_full((sizes["N"], sizes["HV"]), torch.finfo(v.dtype).min)
    m = lowest if m is None else start(sizes, "initial_state's m", m, "N HV", v)
    state = None if state is None else _with_column(S, n, sizes, sequences, v, "n")
    log_f = F.logsigmoid(f)
    with torch.no_grad():
        maxima = torch.cat([_running_maximum(log_f[:, t], i[:, t], m[rows]) for rows, t in sequences.pieces()], 1)
    before = sequences.previous(maxima, m)
    g = log_f + before - maxima
    k = heads(k, sizes["HV"]) * (i - maxima).exp()[..., None]

    def finish(o: Tensor, S: Tensor):
        bound = torch.maximum(o[..., -1].abs(), (-maxima).exp())
        return o[..., :-1] / bound[..., None], (S[..., :-1], S[..., -1], sequences.last(maxima, m))

    q = heads(q, sizes["HV"])
    return Lowered(q, k, v, g, state, sequences, finish, scale=_scale(scale, q), counts=True)


def _running_maximum(log_f: Tensor, i: Tensor, m: Tensor) -> Tensor:
    """m_t = max(log f_t + m_{t-1}, ĩ_t) for all t in log2 T steps: (B, T, H)."""
    if i.shape[1] == 0:
        return i
    i = torch.cat([torch.maximum(log_f[:, :1] + m[:, None], i[:, :1]), i[:, 1:]], 1)
    width = 1
    while width < i.shape[1]:
        # i covers the last `width` tokens, log_f is the decay over them: join with the ones before.
        i = torch.cat([i[:, :width], torch.maximum(i[:, width:], log_f[:, width:] + i[:, :-width])], 1)
        log_f = torch.cat([log_f[:, :width], log_f[:, width:] + log_f[:, :-width]], 1)
        width *= 2
    return i


def rwkv5(r, k, v, w, u, *, scale, state, sequences, sizes):
    return rwkv6(r, k, v, w.expand(k.shape), u, scale=scale, state=state, sequences=sequences, sizes=sizes)


def rwkv6(r, k, v, w, u, *, scale, state, sequences, sizes):
    """Reading before the write is reading after the last token's write, with the next token's query."""
    scale = _scale(scale, r)
    state = start({**sizes, "N": sequences.number}, "initial_state", state, "N H K V", v)
    at_start = scale * read(state, sequences.first(r, torch.zeros_like(state[..., 0])))
    bonus = scale * (r * u * k).sum(-1, keepdim=True) * v

    def finish(o: Tensor, S: Tensor):
        return sequences.previous(o, at_start) + bonus, S

    return Lowered(sequences.following(r), k, v, w, state, sequences, finish, scale=scale)


def rwkv7(r, w, k, v, kappa, a, *, scale, state, sequences, sizes):
    """Two steps a token: erase at κ and decay, writing nothing; then write at k, erasing nothing."""
    nothing = torch.zeros_like(k)
    state = None if state is None else start({**sizes, "N": sequences.number}, "initial_state", state, "N H K V", v)
    return Lowered(
        q=_interleave(nothing, r),
        scale=1.0 if scale is None else scale,
        k=_interleave(a * kappa, k),
        v=_interleave(torch.zeros_like(v), v),
        e=_interleave(kappa, nothing),
        g=_interleave(w, nothing),
        state=state,
        sequences=sequences.repeated(2),
        finish=lambda o, S: (o[:, 1::2], S),
        erase_before_decay=True,
    )


def delta_rule(q, k, v, beta, *, scale, state, sequences, sizes):
    return gdn2(
        q, k, v, None, beta[..., None], beta[..., None], scale=scale, state=state, sequences=sequences, sizes=sizes
    )


def gated_delta_rule(q, k, v, g, beta, *, scale, state, sequences, sizes):
    return gdn2(
        q, k, v, g, beta[..., None], beta[..., None], scale=scale, state=state, sequences=sequences, sizes=sizes
    )


def gdn2(q, k, v, g, b, w, *, scale, state, sequences, sizes):
    k = heads(k, sizes["HV"])
    state = _state(state, sizes, sequences, v)
    return Lowered(q, k, w * v, g, state, sequences, _as_is, e=b * k, scale=_scale(scale, q))


def delta_product(q, k, v, g, beta, *, scale, state, sequences, sizes, num_householder):
    """Every token takes n places: the decay at the first, the query at the last."""
    n, HV = num_householder, sizes["HV"]
    if sizes["T*n"] != sizes["T"] * n:
        raise ValueError(f"k: expected {n} steps for each of the {sizes['T']} tokens of q, got {sizes['T*n']}")
    q, k = heads(q, HV), heads(k, HV)
    nothing = [torch.zeros_like(q)] * (n - 1)
    if g is not None:
        g = _interleave(g, *[torch.zeros_like(g)] * (n - 1))
    return Lowered(
        q=_interleave(*nothing, q),
        scale=_scale(scale, q),
        k=k,
        v=beta[..., None] * v,
        e=beta[..., None] * k,
        g=g,
        state=_state(state, sizes, sequences, v),
        sequences=sequences.repeated(n),
        finish=lambda o, S: (o[:, n - 1 :: n], S),
    )


def s4(x, dt, A, B, C, D, *, state, sequences, sizes):
    """A channel is a head with one value; the phase of A turns keys and queries instead of the state."""
    real = not (A.is_complex() or B.is_complex() or C.is_complex())
    ones = x.new_ones(*x.shape[:2], 1, 1, dtype=torch.float64)
    position = sequences.map(ones, lambda piece: piece.cumsum(1))  # 1, 2, … within each sequence
    rate = dt.double()[:, None] * A.to(torch.complex128)
    phase = torch.remainder(position * rate.imag, 2 * torch.pi)  # (B, T, P, N)
    turn = torch.polar(torch.ones_like(phase), phase).to(x.dtype.to_complex())
    write, reader = turn.conj() * (dt[:, None] * B), turn * C
    k, q = torch.cat([write.real, write.imag], -1), torch.cat([reader.real, -reader.imag], -1)
    g = (dt[:, None] * (A.real if A.is_complex() else A)).repeat(1, 2).expand(k.shape)
    if state is not None:
        h = start({**sizes, "Q": sequences.number}, "initial_state", state, "Q P N", x.to(x.dtype.to_complex()))
        state = torch.cat([h.real, h.imag], -1)[..., None]
    whole = sequences.last(turn, turn.new_ones(sequences.number, *turn.shape[2:]))

    def finish(o: Tensor, S: Tensor):
        h = torch.complex(*S.squeeze(-1).chunk(2, -1)) * whole
        return skip(o[..., 0], x, D), h.real if real else h

    return Lowered(q, k, x[..., None], g, state, sequences, finish)


def mamba1(x, dt, A, B, C, D, *, state, sequences, sizes):
    """A channel is a head with one value, and all share the keys and queries."""
    every = (*x.shape, sizes["N"])
    state = None if state is None else start({**sizes, "Q": sequences.number}, "initial_state", state, "Q P N", x)

    def finish(o: Tensor, S: Tensor):
        return skip(o[..., 0], x, D), S[..., 0]

    return Lowered(
        C[:, :, None].expand(every),
        B[:, :, None].expand(every),
        (dt * x)[..., None],
        dt[..., None] * A,
        None if state is None else state[..., None],
        sequences,
        finish,
    )


def mamba2(x, dt, A, B, C, D, *, state, sequences, sizes):
    state = None if state is None else start({**sizes, "Q": sequences.number}, "initial_state", state, "Q H N P", x)

    def finish(o: Tensor, S: Tensor):
        return skip(o, x, None if D is None else D[:, None]), S

    return Lowered(C, B, dt[..., None] * x, dt * A, state, sequences, finish)


def mamba3(x, dt, A, lam, B, C, theta, D, *, state, sequences, sizes):
    """Two taps become one write, and the state's turning that of keys and queries the other way.

    A token's write is x_t B_t with the weight λ_t Δ_t now and (1 − λ_{t+1}) Δ_{t+1} more from the next
    token on. Both are written at once, and the output takes the second part out again.
    """
    sizes = {**sizes, "Q": sequences.number}
    if 2 * sizes["R"] > sizes["N"]:
        raise ValueError(f"theta: expected at most {sizes['N'] // 2} angles for N = {sizes['N']}, got {sizes['R']}")
    B, C = heads(B, sizes["H"]), heads(C, sizes["H"])
    late = (1 - lam) * dt
    later = sequences.following(late)
    angle = sequences.map((dt[..., None] * theta).double(), lambda piece: piece.cumsum(1))
    angle = torch.remainder(angle, 2 * torch.pi).to(x.dtype)
    S, B_last, x_last = several(state, 3, "S, B, x")
    S = start(sizes, "initial_state's S", S, "Q H N P", x)
    B_last = start(sizes, "initial_state's B", B_last, "Q H N", x)
    x_last = start(sizes, "initial_state's x", x_last, "Q H P", x)
    first = sequences.first(late, torch.zeros_like(x_last[..., 0]))
    whole = sequences.last(angle, angle.new_zeros(sizes["Q"], *angle.shape[2:]))

    def finish(o: Tensor, S: Tensor):
        o = o - ((C * B).sum(-1) * later)[..., None] * x
        S = rotate(S.mT, whole[..., None, :]).mT
        return skip(o, x, None if D is None else D[:, None]), (
            S,
            sequences.last(B, B_last),
            sequences.last(x, x_last),
        )

    return Lowered(
        q=rotate(C, -angle),
        k=rotate(B, -angle),
        v=(lam * dt + later)[..., None] * x,
        g=dt * A,
        state=S + outer(first[..., None] * B_last, x_last),
        sequences=sequences,
        finish=finish,
    )


def rg_lru(x, r, i, Lambda, *, state, sequences, sizes, c=8.0):
    """A channel is a head with one key and one value, both 1 wide."""
    log_a = -c * F.softplus(Lambda) * r
    write = (-torch.expm1(2 * log_a)).sqrt()
    if state is None:
        begins = sequences.previous(torch.zeros_like(x[..., 0]), x.new_ones(sequences.number))
        write = torch.where(begins[..., None] > 0, 1.0, write)
    else:
        state = start({**sizes, "Q": sequences.number}, "initial_state", state, "Q D", x)[..., None, None]
    one = torch.ones_like(x)[..., None]

    def finish(o: Tensor, S: Tensor):
        return o[..., 0], S[..., 0, 0]

    return Lowered(one, one, (write * i * x)[..., None], log_a, state, sequences, finish)


def _scale(scale: float | None, q: Tensor) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _as_is(o: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    return o, S


def _state(state, sizes: dict[str, int], sequences: Sequences, v: Tensor) -> Tensor | None:
    return None if state is None else start({**sizes, "N": sequences.number}, "initial_state", state, STATE, v)


def _with_column(S, z, sizes, sequences, v, name: str) -> Tensor:
    sizes = {**sizes, "N": sequences.number}
    S = start(sizes, "initial_state's S", S, STATE, v)
    return torch.cat([S, start(sizes, f"initial_state's {name}", z, "N HV K", v)[..., None]], -1)


def _interleave(*steps: Tensor) -> Tensor:
    """(B, T, …) each into (B, n T, …): a token's n steps one behind the other."""
    return torch.stack(steps, 2).flatten(1, 2)
