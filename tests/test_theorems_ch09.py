"""Chapter 09's theorems, item by item, in float64, each on several random draws."""

from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lineage_lib import reference
from lineage_lib.chunked import chunk_delta
from lineage_lib.matrices import segment_products

SEEDS = range(5)
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def draw(rng, T, K, V, norms=(0.3, 1.5), strength=(-0.5, 2.0)):
    """Keys of any norm, some repeated, one of them 0; strengths of both signs."""
    keys = rng.standard_normal((T, K))
    keys *= rng.uniform(*norms, (T, 1)) / np.linalg.norm(keys, axis=1, keepdims=True)
    if T > 4:
        keys[3], keys[4] = keys[1], 0.0
    return rng.standard_normal((T, K)), keys, rng.standard_normal((T, V)), rng.uniform(*strength, T)


def follow(Q, K, X, E, S, alpha=None):
    """S_t = (I − k eᵀ) diag(alpha) S + k xᵀ: outputs, all states, all written rows, with dense matrices."""
    O, states, written = [], [], []
    for t in range(len(K)):
        faded = S if alpha is None else np.diag(np.broadcast_to(alpha[t], K.shape[1])) @ S
        written.append(X[t] - faded.T @ E[t])
        S = (np.eye(K.shape[1]) - np.outer(K[t], E[t])) @ faded + np.outer(K[t], X[t])
        states.append(S)
        O.append(S.T @ Q[t])
    return np.array(O), np.array(states), np.array(written)


def rows(K, X, beta):
    """The definition of the WY rows, one after another."""
    out = np.zeros(X.shape)
    for i in range(len(K)):
        out[i] = beta[i] * (X[i] - sum(((K[i] @ K[j]) * out[j] for j in range(i)), np.zeros(X.shape[1])))
    return out


def lower(K, beta):
    return np.tril(np.diag(beta) @ K @ K.T, -1)


@pytest.fixture(params=SEEDS)
def rng(request):
    return np.random.default_rng([9, request.param])


# --- a factor -------------------------------------------------------------------------------------


def test_a_factor_takes_one_row_from_all(rng):
    k, X, b = rng.standard_normal(5), rng.standard_normal((5, 3)), rng.uniform(-1, 2)
    np.testing.assert_allclose((np.eye(5) - b * np.outer(k, k)) @ X, X - b * np.outer(k, k @ X), **CLOSE)


def test_eigenvalues_of_a_factor(rng):
    k, b = rng.standard_normal(5), rng.uniform(-1, 2)
    expected = np.sort([1.0] * 4 + [1 - b * k @ k])
    np.testing.assert_allclose(np.linalg.eigvalsh(np.eye(5) - b * np.outer(k, k)), expected, **CLOSE)


def test_factors_commute_for_parallel_and_orthogonal_keys_only(rng):
    k = rng.standard_normal(4)
    other = rng.standard_normal(4)
    H = np.eye(4) - 0.7 * np.outer(k, k)
    orthogonal = other - (other @ k) / (k @ k) * k
    for key, commutes in ((orthogonal, True), (-3 * k, True), (0 * k, True), (other, False)):
        G = np.eye(4) - 0.4 * np.outer(key, key)
        assert np.allclose(G @ H, H @ G, **CLOSE) == commutes


# --- WY -------------------------------------------------------------------------------------------


def test_wy_the_product_of_the_factors(rng):
    _, K, _, beta = draw(rng, 9, 4, 3)
    W, P = rows(K, K, beta), np.eye(4)
    for i in range(9):
        P = (np.eye(4) - beta[i] * np.outer(K[i], K[i])) @ P
        np.testing.assert_allclose(P, np.eye(4) - K[: i + 1].T @ W[: i + 1], **CLOSE)


def test_wy_the_writes_from_an_empty_state(rng):
    Q, K, V, beta = draw(rng, 9, 4, 3)
    U = rows(K, V, beta)
    _, states, _ = follow(Q, K, beta[:, None] * V, beta[:, None] * K, np.zeros((4, 3)))
    for i in range(9):
        np.testing.assert_allclose(states[i], K[: i + 1].T @ U[: i + 1], **CLOSE)


def test_wy_the_last_state(rng):
    Q, K, V, beta = draw(rng, 9, 4, 3)
    S0 = rng.standard_normal((4, 3))
    _, states, _ = follow(Q, K, beta[:, None] * V, beta[:, None] * K, S0)
    W, U = rows(K, K, beta), rows(K, V, beta)
    np.testing.assert_allclose(states[-1], (np.eye(4) - K.T @ W) @ S0 + K.T @ U, **CLOSE)


def test_wy_rows_solve_the_triangular_system(rng):
    _, K, V, beta = draw(rng, 9, 4, 3)
    L = np.eye(9) + lower(K, beta)
    np.testing.assert_allclose(L @ rows(K, K, beta), beta[:, None] * K, **CLOSE)
    np.testing.assert_allclose(L @ rows(K, V, beta), beta[:, None] * V, **CLOSE)
    assert np.linalg.det(L) == pytest.approx(1.0)


def test_the_other_sign_fails(rng):
    Q, K, V, beta = draw(rng, 9, 4, 3, norms=(1, 1), strength=(0.5, 1))
    _, states, _ = follow(Q, K, beta[:, None] * V, beta[:, None] * K, np.zeros((4, 3)))
    U = np.linalg.solve(np.eye(9) - lower(K, beta), beta[:, None] * V)
    assert np.abs(K.T @ U - states[-1]).max() > 0.1


# --- corrected values -----------------------------------------------------------------------------


def corrected(rng):
    """One chunk, its recurrence, and what its tokens write."""
    Q, K, V, beta = draw(rng, 9, 4, 3)
    S0 = rng.standard_normal((4, 3))
    O, states, D = follow(Q, K, beta[:, None] * V, beta[:, None] * K, S0)
    return SimpleNamespace(Q=Q, K=K, V=V, beta=beta, S0=S0, O=O, states=states, D=D)


def test_corrected_values_add_up_to_every_state(rng):
    c = corrected(rng)
    for i in range(9):
        np.testing.assert_allclose(c.states[i], c.S0 + c.K[: i + 1].T @ c.D[: i + 1], **CLOSE)


def test_corrected_values_from_one_solve(rng):
    c = corrected(rng)
    np.testing.assert_allclose((np.eye(9) + lower(c.K, c.beta)) @ c.D, c.beta[:, None] * (c.V - c.K @ c.S0), **CLOSE)


def test_corrected_values_are_u_minus_w_s0(rng):
    c = corrected(rng)
    np.testing.assert_allclose(c.D, rows(c.K, c.V, c.beta) - rows(c.K, c.K, c.beta) @ c.S0, **CLOSE)


def test_output_and_state_of_a_chunk(rng):
    c = corrected(rng)
    np.testing.assert_allclose(c.O, c.Q @ c.S0 + np.tril(c.Q @ c.K.T) @ c.D, **CLOSE)
    np.testing.assert_allclose(c.states[-1], c.S0 + c.K.T @ c.D, **CLOSE)
    assert not np.allclose(c.O, c.Q @ c.S0 + np.tril(c.Q @ c.K.T, -1) @ c.D)


def test_any_erase_key(rng):
    Q, K, X, _ = draw(rng, 8, 4, 3)
    E, S0 = rng.standard_normal((8, 4)) / 2, rng.standard_normal((4, 3))
    _, states, _ = follow(Q, K, X, E, S0)
    D = np.linalg.solve(np.eye(8) + np.tril(E @ K.T, -1), X - E @ S0)
    for i in range(8):
        np.testing.assert_allclose(states[i], S0 + K[: i + 1].T @ D[: i + 1], **CLOSE)


# --- decays ---------------------------------------------------------------------------------------


@pytest.fixture(params=[(), (0,), (4, 5), (8,)], ids=lambda resets: f"resets{resets}")
def gated(request, rng):
    """One gated chunk, its recurrence and the theorem's D, with resets at some tokens."""
    Q, K, V, beta = draw(rng, 9, 4, 3)
    alpha, S0 = rng.uniform(0.3, 1, 9), rng.standard_normal((4, 3))
    alpha[list(request.param)] = 0.0
    O, states, written = follow(Q, K, beta[:, None] * V, beta[:, None] * K, S0, alpha)
    Gamma, gamma = segment_products(alpha), np.cumprod(alpha)
    A = np.tril(beta[:, None] * Gamma * (K @ K.T), -1)
    D = np.linalg.solve(np.eye(9) + A, beta[:, None] * (V - gamma[:, None] * (K @ S0)))
    return SimpleNamespace(Q=Q, K=K, S0=S0, Gamma=Gamma, gamma=gamma, D=D, O=O, states=states, written=written)


def test_gated_solve_gives_what_is_written(gated):
    np.testing.assert_allclose(gated.D, gated.written, **CLOSE)


def test_gated_output(gated):
    np.testing.assert_allclose(
        gated.O, gated.gamma[:, None] * (gated.Q @ gated.S0) + (gated.Gamma * (gated.Q @ gated.K.T)) @ gated.D, **CLOSE
    )


def test_gated_state(gated):
    np.testing.assert_allclose(
        gated.states[-1], gated.gamma[-1] * gated.S0 + (gated.Gamma[-1, :, None] * gated.K).T @ gated.D, **CLOSE
    )


def test_divided_by_the_decays_it_is_the_plain_rule(rng):
    Q, K, V, beta = draw(rng, 9, 4, 3)
    alpha, S0 = rng.uniform(0.3, 1, 9), rng.standard_normal((4, 3))
    gamma, E = np.cumprod(alpha), beta[:, None] * K
    _, states, _ = follow(Q, K, beta[:, None] * V, E, S0, alpha)
    _, plain, _ = follow(Q, K, beta[:, None] * V / gamma[:, None], E, S0)
    np.testing.assert_allclose(states / gamma[:, None, None], plain, rtol=1e-9, atol=1e-8)


def channels(rng, *, kda):
    """One chunk with channel decays: the theorem's (O, S) and the recurrence's."""
    Q, K, V, _ = draw(rng, 9, 4, 3)
    alpha, S0 = rng.uniform(0.3, 1, (9, 4)), rng.standard_normal((4, 3))
    b, w = rng.uniform(0, 1, (9, 4)), rng.uniform(0, 1, (9, 3))
    if kda:
        b, w = (np.repeat(b[:, :1], width, axis=1) for width in (4, 3))
    gamma = np.cumprod(alpha, axis=0)
    query, erase, write = gamma * Q, b * gamma * K, K / gamma
    D = np.linalg.solve(np.eye(9) + np.tril(erase @ write.T, -1), w * V - erase @ S0)
    chunk = query @ S0 + np.tril(query @ write.T) @ D, gamma[-1][:, None] * (S0 + write.T @ D)
    O, states, written = follow(Q, K, w * V, b * K, S0, alpha)
    return chunk, (O, states[-1]), D, written


@pytest.mark.parametrize("kda", [True, False], ids=["kda", "gdn2"])
def test_channel_decays_in_one_formula(rng, kda):
    chunk, recurrence, D, written = channels(rng, kda=kda)
    for a, b in zip(chunk, recurrence):
        np.testing.assert_allclose(a, b, **CLOSE)
    np.testing.assert_allclose(D, written, **CLOSE)


def test_scaling_by_channels_changes_the_two_keys(rng):
    k, e, gamma = rng.standard_normal(4), rng.standard_normal(4), rng.uniform(0.1, 1, 4)
    scaled = np.diag(1 / gamma) @ (np.eye(4) - np.outer(k, e)) @ np.diag(gamma)
    np.testing.assert_allclose(scaled, np.eye(4) - np.outer(k / gamma, gamma * e), **CLOSE)


def test_pairwise_ratios_equal_the_divided_keys(rng):
    Q, K = rng.standard_normal((2, 9, 4))
    alpha = rng.uniform(0.3, 1, (9, 4))
    G, gamma = np.cumsum(np.log(alpha), axis=0), np.cumprod(alpha, axis=0)
    pairs = np.einsum("ic,jc,ijc->ij", Q, K, np.exp(np.minimum(G[:, None] - G[None], 0)))
    np.testing.assert_allclose(np.tril(pairs), np.tril((gamma * Q) @ (K / gamma).T), **CLOSE)


# --- the inverse ----------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 2, 5, 8, 16])
def test_the_inverse_as_a_finite_product(rng, C):
    A = np.tril(rng.uniform(-1, 1, (C, C)), -1) / 2
    assert not np.linalg.matrix_power(A, C).any()
    exact, power = np.linalg.inv(np.eye(C) + A), A @ A
    total = sum(np.linalg.matrix_power(-A, m) for m in range(C))
    product = np.eye(C) - A
    while power.any():
        product, power = product @ (np.eye(C) + power), power @ power
    np.testing.assert_allclose(total, exact, **CLOSE)
    np.testing.assert_allclose(product, exact, **CLOSE)


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.0])
def test_one_key_for_all_tokens(beta):
    A = np.tril(np.full((12, 12), beta), -1)
    inverse = np.linalg.inv(np.eye(12) + A)
    for i in range(12):
        for j in range(i):
            assert inverse[i, j] == pytest.approx(-beta * (1 - beta) ** (i - j - 1), abs=1e-10)
            for m in range(1, 6):
                entry = np.linalg.matrix_power(A, m)[i, j]
                assert entry == pytest.approx(beta**m * comb(i - j - 1, m - 1))


def test_block_merge(rng):
    L1 = rng.standard_normal((3, 3)) + 3 * np.eye(3)
    L2 = rng.standard_normal((4, 4)) + 3 * np.eye(4)
    A21 = rng.standard_normal((4, 3))
    whole = np.block([[L1, np.zeros((3, 4))], [A21, L2]])
    first, second = np.linalg.inv(L1), np.linalg.inv(L2)
    merged = np.block([[first, np.zeros((3, 4))], [-second @ A21 @ first, second]])
    np.testing.assert_allclose(whole @ merged, np.eye(7), atol=1e-11)


def test_gradient_of_the_solve(rng):
    A, B, dX = (torch.tensor(rng.standard_normal(shape)) for shape in ((6, 6), (6, 3), (6, 3)))
    A, B = (0.5 * A.tril(-1)).requires_grad_(), B.requires_grad_()
    L = torch.eye(6, dtype=A.dtype) + A.tril(-1)
    X = torch.linalg.solve(L, B)
    X.backward(dX)
    dB = torch.linalg.solve(L.detach().T, dX)
    torch.testing.assert_close(B.grad, dB)
    torch.testing.assert_close(A.grad, -(dB @ X.detach().T).tril(-1))


# --- chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [0, 1, 7, 8, 9, 29])
@pytest.mark.parametrize("decays", [None, "head", "channel"])
def test_the_library_in_chunks_equals_the_recurrence(T, decays):
    torch.manual_seed(T)
    q, k, v = (torch.randn(2, T, 2, width, dtype=torch.float64) for width in (4, 4, 3))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta, S0 = torch.rand(2, T, 2, dtype=torch.float64), torch.randn(2, 2, 4, 3, dtype=torch.float64)
    g = -torch.rand(2, T, 2, *((4,) if decays == "channel" else ()), dtype=torch.float64)
    options = {"initial_state": S0, "output_final_state": True}
    e, x = beta[..., None] * k, beta[..., None] * v
    chunked = chunk_delta(q, k, x, e, None if decays is None else g, chunk_size=8, **options)
    if decays is None:
        expected = reference.naive_recurrent_delta_rule(q, k, v, beta, **options)
    else:
        rule = reference.naive_recurrent_kda if decays == "channel" else reference.naive_recurrent_gated_delta_rule
        expected = rule(q, k, v, g, beta, **options)
    for a, b in zip(chunked, expected):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
