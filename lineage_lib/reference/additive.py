"""Rules that add: linear attention, RetNet, lightning attention, GLA, mLSTM. Recurrent forms.

Everywhere: q, k (B, T, H, K); v (B, T, HV, V) with HV a multiple of H; S (B, HV, K, V); gates are
natural logarithms per step; ``scale=None`` means K ** -0.5 on the query. Returned is
(o (B, T, HV, V), the final state or None). Computed in float64 if any tensor is float64, else in
float32. TypeError for what is not a floating tensor, ValueError for sizes that disagree.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from lineage_lib.reference._loop import Tensor, heads, outer, read, scaled, several, stack, start, take
from lineage_lib.tensors import log_decay

QKV = ("B T H K", "B T H K", "B T HV V")
STATE = "B HV K V"


def naive_recurrent_linear_attn(
    q,
    k,
    v,
    *,
    feature_map: Callable[[Tensor], Tensor] | None = None,
    normalize: bool = False,
    scale=None,
    initial_state=None,
    output_final_state=False,
):
    """S_t = S_{t-1} + φ(k_t) v_tᵀ, o_t = S_tᵀ φ(q_t); normalised: z_t = z_{t-1} + φ(k_t), o_t / (φ(q_t)ᵀ z_t).

    ``feature_map`` φ acts on the last axis, None is the identity. With ``normalize`` the state is
    (S, z (B, HV, K)) and nothing is added to the denominator.
    Source: Katharopoulos et al. (2020), Section 3.3.
    """
    v_in = v
    φ = feature_map or (lambda x: x)
    if isinstance(q, Tensor) and isinstance(k, Tensor):
        q, k = φ(q), φ(k)
    sizes: dict[str, int] = {}
    q, k, v = take(sizes, q=(q, QKV[0]), k=(k, QKV[1]), v=(v, QKV[2]))
    S, z = several(initial_state, 2, "S, z") if normalize else (initial_state, None)
    S = start(sizes, "initial_state", S, STATE, v)
    z = start(sizes, "initial_state's z", z, "B HV K", v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    o = []
    for t in range(sizes["T"]):
        S = S + outer(k[:, t], v[:, t])
        z = z + k[:, t]
        o_t = read(S, q[:, t])
        o.append(o_t / (q[:, t] * z).sum(-1, keepdim=True) if normalize else o_t)
    return stack(o, v_in), ((S, z) if normalize else S) if output_final_state else None


def naive_recurrent_simple_gla(q, k, v, g, *, scale=None, initial_state=None, output_final_state=False):
    """S_t = α_t S_{t-1} + k_t v_tᵀ, o_t = S_tᵀ q_t, α_t = exp g_t, g (B, T, HV).

    One decay a step for the whole state of a head: RetNet and lightning attention with g that no
    token changes, Mamba-2 and the core of mLSTM with g from the token.
    Source: Dao and Gu (2024), Section 5; FLA's simple GLA.
    """
    return _decayed(q, k, v, g, "B T HV", scale, initial_state, output_final_state)


def naive_recurrent_gla(q, k, v, g, *, scale=None, initial_state=None, output_final_state=False):
    """S_t = diag(α_t) S_{t-1} + k_t v_tᵀ, o_t = S_tᵀ q_t, α_t = exp g_t, g (B, T, HV, K).

    A decay for each key channel. Source: Yang et al. (2023), Section 4.
    """
    return _decayed(q, k, v, g, "B T HV K", scale, initial_state, output_final_state)


def retention_log_decay(H: int) -> Tensor:
    """log γ_h = log(1 − 2^(−5−h)) for heads h = 0 … H − 1: (H,), float64. Source: Sun et al. (2023)."""
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(H, dtype=torch.float64)))


def naive_recurrent_retention(q, k, v, *, scale=None, initial_state=None, output_final_state=False):
    """S_t = γ_h S_{t-1} + k_t v_tᵀ, o_t = S_tᵀ q_t, γ_h = 1 − 2^(−5−h) for value heads h = 0, 1, ….

    Without RetNet's rotation of q and k, which is a matter of the layer.
    Source: Sun et al. (2023).
    """
    g = _every_token(retention_log_decay, v)
    return _decayed(q, k, v, g, "B T HV", scale, initial_state, output_final_state)


def lightning_log_decay(H: int, layer: int, num_layers: int) -> Tensor:
    """−2^(−8(h+1)/H) (1 − layer/(num_layers − 1)) for heads h = 0 … H − 1: (H,), float64.

    layer counts from 0; the last layer does not decay. ValueError unless 0 <= layer < num_layers, num_layers >= 2.
    Source: MiniMax-01 (2025), as released.
    """
    if num_layers < 2 or not 0 <= layer < num_layers:
        raise ValueError(
            f"layer: expected 0 <= layer < num_layers with num_layers >= 2, got layer {layer} of {num_layers}"
        )
    h = torch.arange(1, H + 1, dtype=torch.float64)
    return -torch.exp2(-8 * h / H) * (1 - layer / (num_layers - 1))


def naive_recurrent_lightning_attn(
    q, k, v, *, layer: int, num_layers: int, scale=None, initial_state=None, output_final_state=False
):
    """S_t = exp(−s) S_{t-1} + k_t v_tᵀ, o_t = S_tᵀ q_t, the slope s fixed by head and layer.

    Slopes as in :func:`lightning_log_decay`. Source: MiniMax-01 (2025), as released.
    """
    g = _every_token(lambda H: lightning_log_decay(H, layer, num_layers), v)
    return _decayed(q, k, v, g, "B T HV", scale, initial_state, output_final_state)


def naive_recurrent_mlstm(q, k, v, i, f, *, scale=None, initial_state=None, output_final_state=False):
    """xLSTM's matrix memory with exponential input gate, stabilised.

    i, f (B, T, HV) are the gates before their activation: i_t = exp ĩ_t, f_t = sigmoid f̃_t.

        m_t = max(log f_t + m_{t-1}, ĩ_t),  f'_t = exp(log f_t + m_{t-1} − m_t),  i'_t = exp(ĩ_t − m_t)
        S_t = f'_t S_{t-1} + i'_t k_t v_tᵀ,  n_t = f'_t n_{t-1} + i'_t k_t
        o_t = S_tᵀ q_t / max(|n_tᵀ q_t|, exp(−m_t))

    The state is (S, n (B, HV, K), m (B, HV)); S and n are the plain form's, times exp(−m). Without an
    initial state m starts at the lowest number, so that the first gates are exact.
    Source: Beck et al. (2024), the mLSTM and its stabilised form.
    """
    v_in = v
    sizes: dict[str, int] = {}
    q, k, v, i, f = take(sizes, q=(q, QKV[0]), k=(k, QKV[1]), v=(v, QKV[2]), i=(i, "B T HV"), f=(f, "B T HV"))
    S, n, m = several(initial_state, 3, "S, n, m")
    lowest = v.new_full((sizes["B"], sizes["HV"]), torch.finfo(v.dtype).min)
    m = lowest if m is None else start(sizes, "initial_state's m", m, "B HV", v)
    S = start(sizes, "initial_state's S", S, STATE, v)
    n = start(sizes, "initial_state's n", n, "B HV K", v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    log_f = F.logsigmoid(f)
    o = []
    for t in range(sizes["T"]):
        kept = log_f[:, t] + m
        m = torch.maximum(kept, i[:, t])
        f_t, i_t = (kept - m).exp(), (i[:, t] - m).exp()
        S = f_t[..., None, None] * S + i_t[..., None, None] * outer(k[:, t], v[:, t])
        n = f_t[..., None] * n + i_t[..., None] * k[:, t]
        weight = (n * q[:, t]).sum(-1).abs()
        o.append(read(S, q[:, t]) / torch.maximum(weight, (-m).exp())[..., None])
    return stack(o, v_in), (S, n, m) if output_final_state else None


def naive_recurrent_mlstm_plain(q, k, v, i, f, *, scale=None, initial_state=None, output_final_state=False):
    """xLSTM's matrix memory as its equations stand, which overflow for large input gates.

        S_t = f_t S_{t-1} + i_t k_t v_tᵀ,  n_t = f_t n_{t-1} + i_t k_t,  o_t = S_tᵀ q_t / max(|n_tᵀ q_t|, 1)

    Gates as in :func:`naive_recurrent_mlstm`; the state is (S, n). Source: Beck et al. (2024), the mLSTM.
    """
    v_in = v
    sizes: dict[str, int] = {}
    q, k, v, i, f = take(sizes, q=(q, QKV[0]), k=(k, QKV[1]), v=(v, QKV[2]), i=(i, "B T HV"), f=(f, "B T HV"))
    S, n = several(initial_state, 2, "S, n")
    S = start(sizes, "initial_state's S", S, STATE, v)
    n = start(sizes, "initial_state's n", n, "B HV K", v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    f, i = f.sigmoid(), i.exp()
    o = []
    for t in range(sizes["T"]):
        S = f[:, t, :, None, None] * S + i[:, t, :, None, None] * outer(k[:, t], v[:, t])
        n = f[:, t, :, None] * n + i[:, t, :, None] * k[:, t]
        weight = (n * q[:, t]).sum(-1).abs()
        o.append(read(S, q[:, t]) / weight.clamp(min=1)[..., None])
    return stack(o, v_in), (S, n) if output_final_state else None


def _decayed(q, k, v, g, axes, scale, initial_state, output_final_state):
    v_in = v
    sizes: dict[str, int] = {}
    q, k, v, g = take(sizes, q=(q, QKV[0]), k=(k, QKV[1]), v=(v, QKV[2]), g=(g, axes))
    S = start(sizes, "initial_state", initial_state, STATE, v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    alpha = log_decay("g", g).exp()
    alpha = alpha[..., None, None] if alpha.ndim == 3 else alpha[..., None]
    o = []
    for t in range(sizes["T"]):
        S = alpha[:, t] * S + outer(k[:, t], v[:, t])
        o.append(read(S, q[:, t]))
    return stack(o, v_in), S if output_final_state else None


def _every_token(log_decays: Callable[[int], Tensor], v) -> Tensor:
    """The heads' fixed log-decays for every token of v: (B, T, HV)."""
    take({}, v=(v, QKV[2]))
    return log_decays(v.shape[2]).to(v).expand(v.shape[:3])
