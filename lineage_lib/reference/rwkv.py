"""RWKV-5, RWKV-6 and RWKV-7, recurrent forms: the receptance r is the query, w are log-decays.

Shapes as in :mod:`lineage_lib.reference.additive`, with as many value heads as key heads. The
papers keep the transpose of our state. Source: Peng et al. (2024) for 5 and 6, Peng et al. (2025) for 7.
"""

from lineage_lib.reference._loop import Tensor, outer, read, scaled, stack, start, take
from lineage_lib.tensors import log_decay

STATE = "B H K V"


def naive_recurrent_rwkv5(r, k, v, w, u, *, scale=None, initial_state=None, output_final_state=False):
    """o_t = (S_{t-1} + diag(u) k_t v_tᵀ)ᵀ r_t, then S_t = diag(exp w) S_{t-1} + k_t v_tᵀ.

    Read before the write: the current token enters the output only through its bonus u.
    r, k (B, T, H, K); v (B, T, H, V); w, u (H, K), the same for every token.
    """
    w = _for_every_token(w, k)
    return naive_recurrent_rwkv6(
        r, k, v, w, u, scale=scale, initial_state=initial_state, output_final_state=output_final_state
    )


def naive_recurrent_rwkv6(r, k, v, w, u, *, scale=None, initial_state=None, output_final_state=False):
    """o_t = (S_{t-1} + diag(u) k_t v_tᵀ)ᵀ r_t, then S_t = diag(exp w_t) S_{t-1} + k_t v_tᵀ.

    As RWKV-5, with log-decays w (B, T, H, K) that each token chooses; u (H, K).
    """
    v_in = v
    sizes: dict[str, int] = {}
    r, k, v, w, u = take(
        sizes,
        r=(r, "B T H K"),
        k=(k, "B T H K"),
        v=(v, "B T H V"),
        w=(w, "B T H K"),
        u=(u, "H K"),
    )
    S = start(sizes, "initial_state", initial_state, STATE, v)
    r, decay = scaled(r, scale), log_decay("w", w).exp()
    o = []
    for t in range(sizes["T"]):
        write = outer(k[:, t], v[:, t])
        o.append(read(S + u[..., None] * write, r[:, t]))
        S = decay[:, t, ..., None] * S + write
    return stack(o, v_in), S if output_final_state else None


def naive_recurrent_rwkv7(r, w, k, v, kappa, a, *, scale=1.0, initial_state=None, output_final_state=False):
    """S_t = (diag(exp w_t) − (a_t ⊙ κ_t) κ_tᵀ) S_{t-1} + k_t v_tᵀ, o_t = S_tᵀ r_t.

    κ (B, T, H, K), of unit length, is the key at which is erased, a (B, T, H, K), in [0, 1], how
    much of it, channel by channel; the write key k is another one. What is erased is read from the
    state *before* it decays, unlike in Gated DeltaNet and KDA. The scale is 1, as in FLA's chunk_rwkv7;
    its fused_recurrent_rwkv7 multiplies by K ** -0.5 unless told otherwise.
    """
    v_in = v
    sizes: dict[str, int] = {}
    r, w, k, v, kappa, a = take(
        sizes,
        r=(r, "B T H K"),
        w=(w, "B T H K"),
        k=(k, "B T H K"),
        v=(v, "B T H V"),
        kappa=(kappa, "B T H K"),
        a=(a, "B T H K"),
    )
    S = start(sizes, "initial_state", initial_state, STATE, v)
    r, decay = scaled(r, scale), log_decay("w", w).exp()
    o = []
    for t in range(sizes["T"]):
        erased = outer(a[:, t] * kappa[:, t], read(S, kappa[:, t]))
        S = decay[:, t, ..., None] * S - erased + outer(k[:, t], v[:, t])
        o.append(read(S, r[:, t]))
    return stack(o, v_in), S if output_final_state else None


def _for_every_token(w: Tensor, k: Tensor) -> Tensor:
    """A head's fixed log-decays (H, K) for each token of k (B, T, H, K)."""
    sizes: dict[str, int] = {}
    take(sizes, k=(k, "B T H K"), w=(w, "H K"))
    return w.expand(k.shape)
