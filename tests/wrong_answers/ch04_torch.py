"""Wrong answers to chapter 04 that are right on most inputs: those in PyTorch, 4.8 and 4.10."""

import numpy as np
import torch

from lineage_lib.exercises import _ch04_torch

# --- 4.8 ssd_chunked_log --------------------------------------------------------------------------


def log_of_finite_resets(q, k, v, g, T_c):
    """Resets are clamped at -10: wrong where one stands."""
    return _ch04_torch.log_oracle(q, k, v, g.clamp(min=-10.0), T_c)


def log_of_the_first_head(q, k, v, g, T_c):
    return _ch04_torch.log_oracle(q, k, v, g[:, :, :1].expand_as(g), T_c)


def log_of_the_first_sequence(q, k, v, g, T_c):
    return _ch04_torch.log_oracle(q, k, v, g[:1].expand_as(g), T_c)


def log_from_one_sum(q, k, v, g, T_c):
    """One cumulative sum over all: its differences lose digits behind -1e9, and are NaN behind a reset."""
    G = g.cumsum(1).mT  # (B, H, T)
    keep = torch.ones(G.shape[-1], G.shape[-1], dtype=torch.bool).tril()
    d = (G[..., :, None] - G[..., None, :]).masked_fill(~keep, -torch.inf)
    return torch.einsum("bhts,bthk,bshk,bshv->bthv", d.exp(), q, k, v)


def log_with_an_undecayed_pass(q, k, v, g, T_c):
    """What comes into a chunk is passed on whole: right with two chunks at most."""
    return _ch04_torch._in_log_space(q, k, v, g, T_c, whole=torch.ones_like)


def log_scaled(q, k, v, g, T_c):
    """Right where K = 1."""
    return _ch04_torch.log_oracle(q * q.shape[-1] ** -0.5, k, v, g, T_c)


def log_without_gradient_of_g(q, k, v, g, T_c):
    return _ch04_torch.log_oracle(q, k, v, g.detach(), T_c)


def log_in_float32(q, k, v, g, T_c):
    return _ch04_torch.log_oracle(q.float(), k.float(), v.float(), g.float(), T_c)


def log_in_float64(q, k, v, g, T_c):
    """Wrong where the inputs are float32: the output is float64."""
    return _ch04_torch.log_oracle(q.double(), k.double(), v.double(), g.double(), T_c)


def log_of_resets_only(q, k, v, g, T_c):
    """Every decay below one half counts as a reset."""
    return _ch04_torch.log_oracle(q, k, v, torch.where(g < -0.7, -torch.inf, g), T_c)


def log_of_one_chunk_forgotten(q, k, v, g, T_c):
    """Wrong where T = T_c > 1."""
    return _ch04_torch.log_oracle(q, k, v, g, T_c) * (q.shape[1] != T_c or T_c == 1)


def _clamped(low, mask=_ch04_torch._mask, **slip):
    """Log-decays below ``low`` are raised to it: wrong where what they wipe is large, or the mask cannot bear it."""

    def log_clamped(q, k, v, g, T_c):
        return _ch04_torch._in_log_space(q, k, v, g.clamp(min=low), T_c, mask=mask, **slip)

    log_clamped.__name__ = f"log_clamped_at_{-low:g}{mask.__name__}"
    return log_clamped


def _ratio_of_products(g):
    p = g.exp().cumprod(-1)
    return torch.where(_ch04_torch._causal(g), p[..., :, None] / p[..., None, :], g.new_zeros(()))


def _difference(g):
    return _ch04_torch._differences_of(g.cumsum(-1)).exp()


def log_from_clamped_differences(q, k, v, g, T_c):
    """Within a chunk, differences of sums of log-decays that are clamped at -100: exp(-100) counts as 0."""
    S, o = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3]), []
    for qj, kj, vj, gj in zip(*(z.split(T_c, 1) for z in (q, k, v, g))):
        G = gj.clamp(min=-100.0).cumsum(1)  # (B, C, H)
        d = (G[:, :, None] - G[:, None]).permute(0, 3, 1, 2)  # (B, H, C, C)
        keep = torch.ones(d.shape[-2:], dtype=torch.bool).tril()
        M = d.masked_fill(~keep, -torch.inf).exp() * (qj.transpose(1, 2) @ kj.permute(0, 2, 3, 1))
        o.append((M @ vj.transpose(1, 2)).transpose(1, 2) + torch.einsum("bthk,bhkv->bthv", qj * G.exp()[..., None], S))
        write = (G[:, -1:] - G).exp()[..., None] * kj
        S = G[:, -1].exp()[..., None, None] * S + torch.einsum("bshk,bshv->bhkv", write, vj)
    return torch.cat(o, 1)


# --- 4.10 stream ----------------------------------------------------------------------------------


def stream_of_three_pieces(q, k, v, g, lengths):
    """Wrong behind the third piece: no state is handed on."""
    if len(lengths) < 4:
        return _ch04_torch.stream_oracle(q, k, v, g, lengths)
    g = g.clone()
    g[:, int(np.sum(lengths[:3]))] = -torch.inf
    return _ch04_torch.stream_oracle(q, k, v, g, lengths)


def stream_with_the_first_state(q, k, v, g, lengths):
    """The state behind the first piece is returned."""
    o, S = _ch04_torch.stream_oracle(q, k, v, g, lengths)
    n = lengths[0]
    return o, _ch04_torch.stream_oracle(q[:, :n], k[:, :n], v[:, :n], g[:, :n], lengths)[1] if n < 7 else S


def stream_in_float64(q, k, v, g, lengths):
    """Wrong where the inputs are float32: the state is float64."""
    o, S = _ch04_torch.stream_oracle(q, k, v, g, lengths)
    return o, S.double()


WRONG_ANSWERS = {
    "4.8": [
        log_of_finite_resets,
        log_of_the_first_head,
        log_of_the_first_sequence,
        log_from_one_sum,
        log_with_an_undecayed_pass,
        log_scaled,
        log_without_gradient_of_g,
        log_in_float32,
        log_in_float64,
        log_of_resets_only,
        log_of_one_chunk_forgotten,
        log_from_clamped_differences,
        _clamped(-22.0),
        _clamped(-30.0, _ratio_of_products),
        _clamped(-30.0, _ch04_torch._exp_then_mask),
        *(_clamped(low, _difference) for low in (-30.0, -60.0, -1e3, -1e6)),
    ],
    "4.10": [stream_of_three_pieces, stream_with_the_first_state, stream_in_float64],
}
