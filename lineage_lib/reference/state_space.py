"""State space models: S4 (diagonal), Mamba-1, Mamba-2, Mamba-3, and RG-LRU. Recurrent forms.

x are the inputs (values), B the keys, C the queries, dt the positive step sizes (after softplus),
A the negative rates, D the skip, which may be None. A state has its keys before its values, where
the Mamba kernels keep the transpose. There is no scale. Computed in float64 if any tensor is
float64, else in float32. TypeError for what is not a floating tensor, ValueError for sizes that disagree.
"""

import torch
import torch.nn.functional as F

from lineage_lib.reference._loop import Tensor, heads, outer, read, several, skip, stack, start, take
from lineage_lib.tensors import log_decay, step_size


def naive_recurrent_s4(x, dt, A, B, C, D=None, *, initial_state=None, output_final_state=False):
    """h_t = exp(Δ A) h_{t-1} + Δ B x_t, y_t = Re(Cᵀ h_t) + D x_t, in each channel on its own.

    x (B, T, P); dt, D (P,); A, B, C (P, N), complex or real, Re A <= 0, the same for every token.
    The state is (B, P, N), complex when A, B or C is. A real layer that keeps one of each pair of
    conjugate entries takes twice the real part: put the 2 into C.
    Source: Gu et al. (2021); the diagonal form with B̄ = Δ B.
    """
    x_in = x
    sizes: dict[str, int] = {}
    x, dt, A, B, C, D = take(
        sizes,
        x=(x, "B T P"),
        dt=(dt, "P"),
        A=(A, "P N", complex),
        B=(B, "P N", complex),
        C=(C, "P N", complex),
        D=(D, "P"),
    )
    log_decay("A", A.real if A.is_complex() else A)
    step_size("dt", dt)
    decay, write = (dt[:, None] * A).exp(), dt[:, None] * B
    h = start(sizes, "initial_state", initial_state, "B P N", x.to(torch.result_type(decay * write, C)))
    y = []
    for t in range(sizes["T"]):
        h = decay * h + write * x[:, t, :, None]
        y_t = (C * h).sum(-1)
        y.append(skip(y_t.real if y_t.is_complex() else y_t, x[:, t], D))
    return stack(y, x_in), h if output_final_state else None


def naive_recurrent_mamba1(x, dt, A, B, C, D=None, *, initial_state=None, output_final_state=False):
    """h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t B_t x_t, y_t = C_tᵀ h_t + D x_t, in each channel on its own.

    x, dt (B, T, P); A (P, N), at most 0; B, C (B, T, N), shared by the channels; D (P,); the state is (B, P, N).
    The write is Δ B, as released, not the zero-order hold that the paper describes.
    Source: Gu and Dao (2023), as released.
    """
    x_in = x
    sizes: dict[str, int] = {}
    x, dt, A, B, C, D = take(
        sizes,
        x=(x, "B T P"),
        dt=(dt, "B T P"),
        A=(A, "P N"),
        B=(B, "B T N"),
        C=(C, "B T N"),
        D=(D, "P"),
    )
    log_decay("A", A)
    step_size("dt", dt)
    h = start(sizes, "initial_state", initial_state, "B P N", x)
    y = []
    for t in range(sizes["T"]):
        h = (dt[:, t, :, None] * A).exp() * h + outer(dt[:, t] * x[:, t], B[:, t])
        y.append(skip((h @ C[:, t, :, None])[..., 0], x[:, t], D))
    return stack(y, x_in), h if output_final_state else None


def naive_recurrent_mamba2(x, dt, A, B, C, D=None, *, initial_state=None, output_final_state=False):
    """S_t = exp(Δ_t A) S_{t-1} + Δ_t B_t x_tᵀ, y_t = S_tᵀ C_t + D x_t, in each head.

    x (B, T, H, P); dt (B, T, H); A (H,), at most 0; B, C (B, T, G, N), each group serving H / G
    heads; D (H,); the state is (B, H, N, P). Δ sets the decay and multiplies the write.
    Source: Dao and Gu (2024), as released.
    """
    x_in = x
    sizes: dict[str, int] = {}
    x, dt, A, B, C, D = take(
        sizes,
        x=(x, "B T H P"),
        dt=(dt, "B T H"),
        A=(A, "H"),
        B=(B, "B T G N"),
        C=(C, "B T G N"),
        D=(D, "H"),
    )
    log_decay("A", A)
    step_size("dt", dt)
    S = start(sizes, "initial_state", initial_state, "B H N P", x)
    B, C = heads(B, sizes["H"]), heads(C, sizes["H"])
    y = []
    for t in range(sizes["T"]):
        decay = (dt[:, t] * A).exp()[..., None, None]
        S = decay * S + outer(B[:, t], dt[:, t, :, None] * x[:, t])
        y.append(skip(read(S, C[:, t]), x[:, t], None if D is None else D[:, None]))
    return stack(y, x_in), S if output_final_state else None


def naive_recurrent_mamba3(x, dt, A, lam, B, C, theta, D=None, *, initial_state=None, output_final_state=False):
    """A trapezoidal step and a rotating state, single input:

        S_t = α_t R_t (S_{t-1} + (1 − λ_t) Δ_t B_{t-1} x_{t-1}ᵀ) + λ_t Δ_t B_t x_tᵀ,  α_t = exp(Δ_t A_t)
        y_t = S_tᵀ C_t + D x_t

    x (B, T, H, P); dt, A (at most 0), lam (in [0, 1]) (B, T, H); B, C (B, T, G, N); theta
    (B, T, H, R) with 2 R <= N; D (H,). R_t turns the rows 2 i and 2 i + 1 of the state by the angle
    Δ_t θ_t,i for i < R and leaves the others. λ = 1, θ = 0 is Mamba-2. The state is
    (S (B, H, N, P), B_t (B, H, N), x_t (B, H, P)) of the last token.
    Source: Lahoti et al. (2026), Propositions 1 to 4.
    """
    x_in = x
    sizes: dict[str, int] = {}
    x, dt, A, lam, B, C, theta, D = take(
        sizes,
        x=(x, "B T H P"),
        dt=(dt, "B T H"),
        A=(A, "B T H"),
        lam=(lam, "B T H"),
        B=(B, "B T G N"),
        C=(C, "B T G N"),
        theta=(theta, "B T H R"),
        D=(D, "H"),
    )
    if 2 * sizes["R"] > sizes["N"]:
        raise ValueError(f"theta: expected at most {sizes['N'] // 2} angles for N = {sizes['N']}, got {sizes['R']}")
    log_decay("A", A)
    step_size("dt", dt)
    S, B_last, x_last = several(initial_state, 3, "S, B, x")
    S = start(sizes, "initial_state's S", S, "B H N P", x)
    B_last = start(sizes, "initial_state's B", B_last, "B H N", x)
    x_last = start(sizes, "initial_state's x", x_last, "B H P", x)
    B, C = heads(B, sizes["H"]), heads(C, sizes["H"])
    y = []
    for t in range(sizes["T"]):
        Δ, λ = dt[:, t, :, None], lam[:, t, :, None]
        S = S + outer((1 - λ) * Δ * B_last, x_last)
        S = (dt[:, t] * A[:, t]).exp()[..., None, None] * rotate(S.mT, (Δ * theta[:, t])[..., None, :]).mT
        B_last, x_last = B[:, t], x[:, t]
        S = S + outer(λ * Δ * B_last, x_last)
        y.append(skip(read(S, C[:, t]), x_last, None if D is None else D[:, None]))
    return stack(y, x_in), (S, B_last, x_last) if output_final_state else None


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """x (…, N) with its entries 2 i and 2 i + 1 turned by angle (…, R), i < R, the other entries as they are.

    >>> rotate(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([torch.pi / 2])).round()
    tensor([-0., 1., 5.])
    """
    R = angle.shape[-1]
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0 : 2 * R : 2], x[..., 1 : 2 * R : 2]
    turned = torch.stack([cos * even - sin * odd, sin * even + cos * odd], -1).flatten(-2)
    return torch.cat([turned, x[..., 2 * R :].expand(*turned.shape[:-1], -1)], -1)


def naive_recurrent_rg_lru(x, r, i, Lambda, *, c=8.0, initial_state=None, output_final_state=False):
    """h_t = a_t ⊙ h_{t-1} + √(1 − a_t²) ⊙ i_t ⊙ x_t, log a_t = −c softplus(Λ) r_t; the output is h.

    x, r, i (B, T, D), r and i gates in [0, 1]; Λ (D,); the state is a vector, (B, D). A sequence
    that begins here (no initial state) writes its first token whole: 1 in place of the root.
    Source: De et al. (2024); c and the first token's rule as in RecurrentGemma as released.
    """
    x_in = x
    sizes: dict[str, int] = {}
    x, r, i, Lambda = take(sizes, x=(x, "B T D"), r=(r, "B T D"), i=(i, "B T D"), Lambda=(Lambda, "D"))
    log_a = -c * F.softplus(Lambda) * r
    h = start(sizes, "initial_state", initial_state, "B D", x)
    y = []
    for t in range(sizes["T"]):
        # 1 − a² as −expm1(2 log a): near a = 1 the difference would lose its digits.
        write = (-torch.expm1(2 * log_a[:, t])).sqrt() if t or initial_state is not None else 1.0
        h = log_a[:, t].exp() * h + write * i[:, t] * x[:, t]
        y.append(h)
    return stack(y, x_in), h if output_final_state else None
