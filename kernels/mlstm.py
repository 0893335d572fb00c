"""mLSTM, xLSTM's matrix memory: one decay a head and token, an exponential input gate, a normaliser.

    m_t = max(log f_t + m_{t-1}, ĩ_t)      g_t = log f_t + m_{t-1} − m_t      w_t = exp(ĩ_t − m_t)      f_t = σ(f̃_t)
    S_t = exp(g_t) S_{t-1} + w_t k_t v_tᵀ      n_t = exp(g_t) n_{t-1} + w_t k_t
    o_t = scale S_tᵀ q_t / max(|scale n_t·q_t|, exp(−m_t))

The stabiliser m comes first, exactly, from a scan of its steps m → max(log f + m, ĩ), which compose to such steps:
one program a sequence and head reads two numbers a token and writes three. The rest is
:mod:`kernels.walk` with its normaliser. No output depends on m, so that their gradients take it as given:

    do'_t = do_t / max(…)      dnq_t = −sign(nq_t) (do'_t·o_t) where |nq_t| > exp(−m_t), else 0      dĩ_t = w_t dw_t

are the gradients of scale S_tᵀ q_t and of nq_t = scale n_t·q_t, which a walk and :mod:`kernels.scalar_chunks` take to
q, k, v and the gates. The final state does depend on m_T: its gradient goes to the input gate that m_T comes from and
to the decays since.
"""

import torch
import triton
import triton.language as tl

from kernels import scalar_chunks, scalar_recur, walk
from kernels.arguments import Sizes, in_dtype_of, last_contiguous, on, over_group, written_later
from kernels.numerics import log_sigmoid
from kernels.scalar_recur import LOWEST, carry
from kernels.sequences import tokens_of
from lineage_lib.reference._loop import several


def chunk_mlstm(q, k, v, i, f, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None):
    """xLSTM's matrix memory with its exact stabiliser, differentiable.

    q, k                (B, T, H, K)
    v                   (B, T, HV, V), HV a multiple of H
    i, f                (B, T, HV), the gates before exp and sigmoid; -inf: nothing is written, all is forgotten
    scale               K ** -0.5 unless given
    initial_state       (S (N, HV, K, V), n (N, HV, K), m (N, HV)): S and n are the plain form's times exp(−m);
                        N = B or the packed sequences
    cu_seqlens          (N + 1,) int32 or int64, where each packed sequence begins and the last ends; B = 1
    Returns o (B, T, HV, V) in v's dtype and the final state (S, n, m), float32, or None. The m of an empty state
    is the lowest float32 number.
    Source: Beck et al. (2024), the mLSTM and its stabilised form; the arguments are like FLA's.

    >>> o, (S, n, m) = chunk_mlstm(*torch.ones(3, 1, 5, 1, 16), *torch.ones(2, 1, 5, 1), output_final_state=True)
    >>> o.shape, S.shape, n.shape, m.shape
    (torch.Size([1, 5, 1, 16]), torch.Size([1, 1, 16, 16]), torch.Size([1, 1, 16]), torch.Size([1, 1]))
    """
    return _call(q, k, v, i, f, scale, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_mlstm(q, k, v, i, f, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None):
    """:func:`chunk_mlstm` token by token, for decoding; its gradients are those of the chunked form."""
    return _call(q, k, v, i, f, scale, initial_state, output_final_state, cu_seqlens, True)


STATE = ("N HV K V", "N HV K", "N HV")  # axes of S, n, m


def _call(q, k, v, i, f, scale, initial_state, output_final_state, cu_seqlens, by_token=False):
    sizes = Sizes(q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), i=(i, "B T HV"), f=(f, "B T HV"))
    parts = dict(
        zip(("initial_state's S", "initial_state's n", "initial_state's m"), several(initial_state, 3, "S, n, m"))
    )
    for name, x in ({"i": i, "f": f} | (parts if initial_state is not None else {})).items():
        if x is None:
            raise TypeError(f"{name}: expected a torch tensor, got None")
    cu_seqlens = sizes.add_states(cu_seqlens, **{name: (x, axes) for (name, x), axes in zip(parts.items(), STATE)})
    q, k = in_dtype_of(v, q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, *state = MLSTM.apply(q, k, v, i, f, scale, *parts.values(), cu_seqlens, output_final_state, by_token)
    return o, tuple(state) if output_final_state else None


@triton.jit
def _then(log_f, m, rest, log_f_next, m_next, rest_next):
    """Two steps m → max(log f + m, ĩ), one after the other; each is its log f and what it makes of an empty m."""
    carried, lost = carry(m, rest, log_f_next)
    new = m_next >= carried
    return log_f + log_f_next, tl.where(new, m_next, carried), tl.where(new, rest_next, lost)


@triton.jit
def stabilise(i, f, m_in, g, w, floor, m_out, winner, cu_seqlens, T, HV, BLOCK: tl.constexpr):
    """One program: m of one sequence and head, and with it g, w and floor = exp(−m) of each of its tokens.

    ``winner``: the token whose input gate the last m comes from, −1 for m_in. m is LOWEST at least, and floor more
    than 0, so that an empty state is read as 0 and no difference is of two infinities.
    """
    i_nh = tl.program_id(0).to(tl.int64)
    i_n, i_h = i_nh // HV, i_nh % HV
    i_b, first, length = tokens_of(i_n, T, cu_seqlens)
    o_t = tl.arange(0, BLOCK)
    m, won = tl.full((), LOWEST, tl.float32), i_nh * 0 - 1
    if m_in is not None:
        m = tl.maximum(tl.load(m_in + i_nh), m)
    for start in range(0, length, BLOCK):
        t = start + o_t
        live = t < length
        token = (i_b * T + first + t) * HV + i_h
        b_i = tl.load(i + token, mask=live, other=0.0).to(tl.float32)
        log_f = log_sigmoid(tl.load(f + token, mask=live, other=0.0).to(tl.float32))
        b_m = tl.maximum(b_i, tl.maximum(tl.where(o_t == 0, log_f + m, LOWEST), LOWEST))
        _, b_m, _ = tl.associative_scan((log_f, b_m, tl.zeros_like(b_m)), 0, _then)
        before = tl.where(o_t == 0, m, tl.gather(b_m, tl.maximum(o_t - 1, 0), 0))
        tl.store(g + token, tl.maximum(log_f + (before - b_m), -1e4), mask=live)  # exp of that is 0
        tl.store(w + token, tl.exp(b_i - b_m), mask=live)
        tl.store(floor + token, tl.exp(tl.maximum(-b_m, -87.0)), mask=live)
        m = tl.sum(tl.where(t == tl.minimum(start + BLOCK, length) - 1, b_m, 0.0), 0)
        won = tl.maximum(won, tl.max(tl.where(live & (b_i >= b_m), t, -1), 0))
    tl.store(m_out + i_nh, m)
    tl.store(winner + i_nh, won)


@triton.jit
def through_normaliser(
    o,
    lost,
    do,
    nq,
    floor,
    do_scaled,
    dnq,
    rows,
    T,
    HV,
    do_b,
    do_t,
    do_h,
    V: tl.constexpr,
    BV: tl.constexpr,
    R: tl.constexpr,
):
    """do' and dnq, from do: R rows, each of a token and head. dnq is what is left of terms like do'·v that all but
    cancel: it takes do' as the walks read it, rounded, and o before it was rounded."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    o_v = tl.arange(0, BV)
    m_r, tile = row < rows, row[:, None] * V + o_v[None, :]
    m = m_r[:, None] & (o_v < V)[None, :]
    at = (row // HV // T) * do_b + (row // HV % T) * do_t + (row % HV) * do_h
    b_nq = tl.load(nq + row, mask=m_r, other=0.0)
    b_floor = tl.load(floor + row, mask=m_r, other=1.0)
    b_do = tl.load(do + at[:, None] + o_v[None, :], mask=m, other=0.0).to(tl.float32)
    b_do = (b_do / tl.maximum(tl.abs(b_nq), b_floor)[:, None]).to(do_scaled.dtype.element_ty)
    tl.store(do_scaled + tile, b_do, mask=m)
    b_o = tl.load(o + tile, mask=m, other=0.0).to(tl.float32)
    if lost is not None:
        b_o += tl.load(lost + tile, mask=m, other=0.0).to(tl.float32)
    read = tl.sum(b_do.to(tl.float32) * b_o, 1)
    tl.store(dnq + row, tl.where(b_nq > b_floor, -read, tl.where(b_nq < -b_floor, read, 0.0)), mask=m_r)


class MLSTM(torch.autograd.Function):
    """o and the final S, n, m: the stabiliser, then one walk; the gradients by three more."""

    @staticmethod
    def forward(ctx, q, k, v, i, f, scale, s0, n0, m0, cu_seqlens, with_state, by_token):
        (B, T, _, K), (HV, V) = q.shape, v.shape[2:]
        N = B if cu_seqlens is None else len(cu_seqlens) - 1
        q, k, v = map(last_contiguous, (q, k, v))
        i, f = i.contiguous(), f.contiguous()
        s0, n0, m0 = (None if x is None else x.float().contiguous() for x in (s0, n0, m0))

        def empty(*shape, dtype=torch.float32):
            return written_later(cu_seqlens, *shape, dtype=dtype, device=v.device)

        m = empty(N, HV)
        s, n = (empty(N, HV, K, V), empty(N, HV, K)) if with_state else (None, None)
        state = dict(s_in=s0, n_in=n0, s_out=s, n_out=n, cu_seqlens=cu_seqlens)
        g = w = floor = winner = None
        with_lost = any(ctx.needs_input_grad) and v.dtype != torch.float32
        if not by_token or any(ctx.needs_input_grad):
            g, w, floor = empty(3, B, T, HV)
            winner, block = empty(N, HV, dtype=torch.int64), min(4096, max(16, triton.next_power_of_2(T)))
            with on(v):
                stabilise[(N * HV,)](
                    i, f, m0, g, w, floor, m, winner, cu_seqlens, T, HV, block, num_warps=8 if block > 1024 else 4
                )
        if by_token:
            chunks, nq = (), empty(B, T, HV)
            lost = empty(*v.shape, dtype=v.dtype) if with_lost else None
            o = scalar_recur.run(q, k, v, None, scale=scale, i=i, f=f, m_in=m0, m_out=m, nq=nq, lost=lost, **state)
        else:
            chunks = scalar_chunks.prepared(q, k, g, w, scale, HV, cu_seqlens, norm=True)
            o, lost, nq, *_ = walk.run(q, k, v, chunks, norm=True, floor=floor, with_lost=with_lost, **state)
        ctx.save_for_backward(q, k, v, f, g, w, floor, nq, o, lost, s0, n0, s, n, winner, cu_seqlens, *chunks)
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return (o, s, n, m) if with_state else (o, None, None, None)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, ds, dn, dm):
        q, k, v, f, g, w, floor, nq, o, lost, s0, n0, s, n, winner, cu_seqlens, *chunks = ctx.saved_tensors
        (_, T, HV, V), scale = v.shape, ctx.scale
        do = torch.zeros_like(v) if do is None else last_contiguous(do)
        do_scaled, dnq, BV = torch.empty_like(o), torch.empty_like(nq), triton.next_power_of_2(V)
        rows, R = nq.numel(), max(1, 4096 // BV)
        with on(v):
            through_normaliser[(triton.cdiv(rows, R),)](
                o, lost, do, nq, floor, do_scaled, dnq, rows, T, HV, *do.stride()[:3], V, BV, R
            )
        final = not (ds is None and dn is None and dm is None)
        if final:
            ds, dn = (torch.zeros_like(x) if dx is None else dx.float().contiguous() for x, dx in ((s, ds), (n, dn)))
        ds0, dn0 = (None if x is None else torch.empty_like(x) for x in (s0, n0))
        chunks = walk.Prepared(*chunks) if chunks else scalar_chunks.prepared(q, k, g, w, scale, HV, cu_seqlens)
        keep = dict(keep=True, norm=True, cu_seqlens=cu_seqlens)
        left = walk.run(q, k, v, chunks, read=False, s_in=s0, n_in=n0, **keep)
        right = walk.run(
            k, q, do_scaled, chunks, reverse=True, s_in=ds, n_in=dn, s_out=ds0, n_out=dn0, ones=dnq, **keep
        )  # fmt: skip
        dq, dk, dlog_f, dw = scalar_chunks.finished(
            q, k, v, do_scaled, g, dnq, chunks, left, right, scale, cu_seqlens, True, True
        )  # fmt: skip
        di = w * dw
        dm0 = None if s0 is None else (s0 * ds0).sum((-1, -2)) + (n0 * dn0).sum(-1)
        if final:
            to_m = -(ds * s).sum((-1, -2)) - (dn * n).sum(-1) + (0.0 if dm is None else dm)
            dm0 = None if s0 is None else dm0 + to_m.where(winner < 0, 0.0)
            t = torch.arange(T, device=v.device)[:, None]
            if cu_seqlens is not None:
                of = torch.searchsorted(cu_seqlens[1:].long(), t[:, 0], right=True)  # each token's sequence, N for none
                to_m = to_m.new_zeros(1, T, HV) + torch.nn.functional.pad(to_m, (0, 0, 0, 1))[of]
                of = of.clamp(max=len(cu_seqlens) - 2)
                t, winner = t - cu_seqlens[of, None], winner[None, of]
            else:
                winner, to_m = winner[:, None], to_m[:, None]
            di, dlog_f = di + to_m.where(t == winner, 0.0), dlog_f + to_m.where(t > winner, 0.0)
        df = dlog_f * torch.sigmoid(-f.float())
        return over_group(dq, q), over_group(dk, k), right.o, di, df, None, ds0, dn0, dm0, *[None] * 3
