"""Rules that correct: DeltaNet, Gated DeltaNet, KDA, Gated DeltaNet-2, DeltaProduct. Recurrent forms.

The conventions are those of :mod:`lineage_lib.reference.additive`. Keys are used as they come:
normalise them first (every one of these layers does), or the transition may expand the state.
A gate decays the state first; the error is taken against the decayed state.
"""

from lineage_lib.reference._loop import Tensor, heads, outer, read, scaled, stack, start, take
from lineage_lib.reference.additive import QKV, STATE
from lineage_lib.tensors import log_decay


def naive_recurrent_delta_rule(q, k, v, beta, *, scale=None, initial_state=None, output_final_state=False):
    """S_t = S_{t-1} + β_t k_t (v_t − S_{t-1}ᵀ k_t)ᵀ, o_t = S_tᵀ q_t; beta (B, T, HV).

    Source: Schlag et al. (2021); Yang et al. (2024).
    """
    gates = {"beta": (beta, "B T HV")}
    return _run(q, k, v, gates, _beta, scale, initial_state, output_final_state)


def naive_recurrent_gated_delta_rule(q, k, v, g, beta, *, scale=None, initial_state=None, output_final_state=False):
    """S̄ = α_t S_{t-1}, S_t = S̄ + β_t k_t (v_t − S̄ᵀ k_t)ᵀ, o_t = S_tᵀ q_t; g = log α, beta (B, T, HV).

    Source: Yang et al. (2025), the gated delta rule (Equation 10 of the ICLR version).
    """
    gates = {"g": (g, "B T HV"), "beta": (beta, "B T HV")}
    return _run(q, k, v, gates, _beta, scale, initial_state, output_final_state)


def naive_recurrent_kda(q, k, v, g, beta, *, scale=None, initial_state=None, output_final_state=False):
    """S̄ = diag(α_t) S_{t-1}, S_t = S̄ + β_t k_t (v_t − S̄ᵀ k_t)ᵀ, o_t = S_tᵀ q_t; g = log α (B, T, HV, K).

    Source: Kimi Team (2025), Equation 1.
    """
    gates = {"g": (g, "B T HV K"), "beta": (beta, "B T HV")}
    return _run(q, k, v, gates, _beta, scale, initial_state, output_final_state)


def naive_recurrent_gdn2(q, k, v, g, b, w, *, scale=None, initial_state=None, output_final_state=False):
    """S̄ = diag(α_t) S_{t-1}, S_t = S̄ + k_t (w_t ⊙ v_t − S̄ᵀ (b_t ⊙ k_t))ᵀ, o_t = S_tᵀ q_t.

    g = log α and the erase gate b (B, T, HV, K), the write gate w (B, T, HV, V).
    Source: Gated DeltaNet-2 (2026), Equation 10.
    """
    gates = {"g": (g, "B T HV K"), "b": (b, "B T HV K"), "w": (w, "B T HV V")}
    return _run(q, k, v, gates, lambda k, v, b, w: (b * k, w * v), scale, initial_state, output_final_state)


def naive_recurrent_gated_delta_product(
    q, k, v, g, beta, *, num_householder: int, scale=None, initial_state=None, output_final_state=False
):
    """Each token decays once, then takes n = num_householder delta steps, then reads.

        S̄_0 = α_t S_{t-1},  S̄_j = S̄_{j-1} + β_j k_j (v_j − S̄_{j-1}ᵀ k_j)ᵀ for j = 1 … n,  S_t = S̄_n

    q (B, T, H, K); k (B, T n, H, K), v (B, T n, HV, V), beta (B, T n, HV): a token's n steps lie
    behind one another; g = log α (B, T, HV), or None for no decay.
    Source: Siems et al. (2025), DeltaProduct.
    """
    n = num_householder
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"num_householder: expected a whole number of at least 1, got {n!r}")
    v_in = v
    sizes: dict[str, int] = {}
    k, v, beta = take(sizes, k=(k, "B T*n H K"), v=(v, "B T*n HV V"), beta=(beta, "B T*n HV"))
    q, g, k, v, beta = take(
        sizes, q=(q, "B T H K"), g=(g, "B T HV"), k=(k, "B T*n H K"), v=(v, "B T*n HV V"), beta=(beta, "B T*n HV")
    )
    if sizes["T*n"] != sizes["T"] * n:
        raise ValueError(f"k: expected {n} steps for each of the {sizes['T']} tokens of q, got {sizes['T*n']}")
    S = start(sizes, "initial_state", initial_state, STATE, v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    alpha = v.new_ones(sizes["B"], sizes["T"], sizes["HV"]) if g is None else log_decay("g", g).exp()
    o = []
    for t in range(sizes["T"]):
        S = alpha[:, t, :, None, None] * S
        for j in range(t * n, (t + 1) * n):
            S = S + outer(beta[:, j, :, None] * k[:, j], v[:, j] - read(S, k[:, j]))
        o.append(read(S, q[:, t]))
    return stack(o, v_in[:, : sizes["T"]]), S if output_final_state else None


def _beta(k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One strength for erasing and for writing."""
    return beta[..., None] * k, beta[..., None] * v


def _run(q, k, v, gates, erase_and_write, scale, initial_state, output_final_state):
    """The loop: ``erase_and_write(k, v, *gates)`` gives the key at which is erased and the value written."""
    v_in = v
    sizes: dict[str, int] = {}
    q, k, v, *given = take(sizes, q=(q, QKV[0]), k=(k, QKV[1]), v=(v, QKV[2]), **gates)
    gate = dict(zip(gates, given))
    S = start(sizes, "initial_state", initial_state, STATE, v)
    q, k = scaled(heads(q, sizes["HV"]), scale), heads(k, sizes["HV"])
    alpha = log_decay("g", gate.pop("g")).exp() if "g" in gate else v.new_ones(v.shape[:3])
    alpha = alpha[..., None, None] if alpha.ndim == 3 else alpha[..., None]
    erase, write = erase_and_write(k, v, *gate.values())
    o = []
    for t in range(sizes["T"]):
        S = alpha[:, t] * S
        S = S + outer(k[:, t], write[:, t] - read(S, erase[:, t]))
        o.append(read(S, q[:, t]))
    return stack(o, v_in), S if output_final_state else None
