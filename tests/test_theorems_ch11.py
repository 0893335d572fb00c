"""Every item of chapter 11's theorems, in float64 on random draws."""

import numpy as np
import pytest
import torch

from lineage_lib import reference

SEEDS = pytest.mark.parametrize("seed", range(20))


def unit(rng, K):
    k = rng.standard_normal(K)
    return k / np.linalg.norm(k)


def step(S, k, v, alpha, b, w):
    """One token of the library's Gated DeltaNet-2; each gate a number or one for each channel."""
    K, V = S.shape
    with np.errstate(divide="ignore"):
        g = np.log(np.broadcast_to(alpha, K))
    token = (k, k, v, g, np.broadcast_to(b, K), np.broadcast_to(w, V))
    inputs = [torch.tensor(np.array(z, dtype=float))[None, None, None] for z in token]
    _, state = reference.naive_recurrent_gdn2(
        *inputs, initial_state=torch.tensor(S)[None, None], output_final_state=True
    )
    return state[0, 0].numpy()


def transition(k, alpha, b):
    return step(np.eye(len(k)), k, np.zeros(len(k)), alpha, b, 0.0)


def radius(M):
    return np.abs(np.linalg.eigvals(M)).max()


def norm(M):
    return np.linalg.norm(M, ord=2)


def pair(s, alpha=1.0):
    """Transitions of the two tokens of the growth theorem."""
    c = np.sqrt(1 - s**2)
    return transition(np.array([-s, c]), alpha, [1, 0]), transition(np.array([c, -s]), alpha, [0, 1])


# --- one rate -----------------------------------------------------------------------------------


@SEEDS
def test_mamba2_leaves_one_share_under_every_key(seed):
    rng = np.random.default_rng(seed)
    k, u = np.linalg.qr(rng.standard_normal((5, 5)))[0][:2]
    S, v, alpha = rng.standard_normal((5, 3)), rng.standard_normal(3), rng.random()
    new = step(S, k, v, alpha, 0.0, 1.0)
    np.testing.assert_allclose(new.T @ u, alpha * S.T @ u, atol=1e-12)
    np.testing.assert_allclose(new.T @ k, alpha * S.T @ k + v, atol=1e-12)


@SEEDS
def test_gated_deltanet_replaces_one_and_keeps_the_others(seed):
    rng = np.random.default_rng(seed)
    book = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    S, v = rng.standard_normal((5, 3)), rng.standard_normal(3)
    new = step(S, book[0], v, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(new.T @ book[0], v, atol=1e-12)
    np.testing.assert_allclose(book[1:] @ new, book[1:] @ S, atol=1e-12)


@SEEDS
def test_gated_deltanet_scales_some_vector_of_every_plane_by_its_decay(seed):
    rng = np.random.default_rng(seed)
    k, alpha, beta = unit(rng, 6), rng.random(), 2 * rng.random()
    G = transition(k, alpha, beta)
    plane = rng.standard_normal((2, 6))
    x = plane[0] * (plane[1] @ k) - plane[1] * (plane[0] @ k)  # in the plane, orthogonal to k
    np.testing.assert_allclose(x @ G, alpha * x, atol=1e-12)


def test_kda_clears_two_channels_and_keeps_two():
    S = np.random.default_rng(0).standard_normal((4, 3))
    new = step(S, np.ones(4) / 2, np.ones(3), [0, 0, 1, 1], 0.0, 0.0)
    np.testing.assert_array_equal(new, np.concatenate([np.zeros((2, 3)), S[2:]]))


# --- the order ----------------------------------------------------------------------------------


@SEEDS
def test_distance_of_the_two_orders(seed):
    rng = np.random.default_rng(seed)
    k, alpha, beta = unit(rng, 5), rng.random(5), 2 * rng.random()
    D, E = np.diag(alpha), np.eye(5) - beta * np.outer(k, k)
    spread = np.sqrt(np.sum(k**2 * (alpha - np.sum(k**2 * alpha)) ** 2))
    assert norm(E @ D - D @ E) == pytest.approx(beta * spread, abs=1e-12)
    assert beta * spread <= beta * np.ptp(alpha) / 2 + 1e-12
    np.testing.assert_allclose(transition(k, alpha, beta), E @ D, atol=1e-12)


@SEEDS
def test_orders_agree_only_for_equal_decays_where_the_key_is(seed):
    rng = np.random.default_rng(seed)
    alpha = rng.random(5)
    alpha[[1, 3]] = 0.4
    k = np.zeros(5)
    k[[1, 3]] = unit(rng, 2)
    D, E = np.diag(alpha), np.eye(5) - 0.7 * np.outer(k, k)
    np.testing.assert_allclose(E @ D, D @ E, atol=1e-12)
    alpha[3] = 0.5
    D = np.diag(alpha)
    assert norm(E @ D - D @ E) > 1e-3 * abs(k[1] * k[3])


@SEEDS
def test_distance_of_a_stale_error(seed):
    rng = np.random.default_rng(seed)
    k, alpha, beta = unit(rng, 4), rng.random(4), rng.random()
    stale = np.diag(alpha) - beta * np.outer(k, k)
    assert norm(transition(k, alpha, beta) - stale) == pytest.approx(beta * np.linalg.norm((1 - alpha) * k), abs=1e-12)
    stale = 0.3 * np.eye(4) - beta * np.outer(k, k)
    assert norm(transition(k, 0.3, beta) - stale) == pytest.approx(0.7 * beta, abs=1e-12)


# --- the compact form and the answers -----------------------------------------------------------


@SEEDS
def test_five_operations_are_the_compact_form(seed):
    rng = np.random.default_rng(seed)
    S, k, v = rng.standard_normal((4, 3)), 2 * rng.standard_normal(4), rng.standard_normal(3)
    alpha, b, w = rng.random(4), rng.random(4), rng.random(3)
    faded, e, z = alpha[:, None] * S, b * k, w * v
    five = faded + np.outer(k, z - faded.T @ e)
    compact = (np.eye(4) - np.outer(k, b * k)) @ np.diag(alpha) @ S + np.outer(k, w * v)
    np.testing.assert_allclose(five, compact, atol=1e-12)
    np.testing.assert_allclose(step(S, k, v, alpha, b, w), compact, atol=1e-12)


@SEEDS
def test_a_stretch_is_the_product_of_its_transitions(seed):
    rng = np.random.default_rng(seed)
    S = start = rng.standard_normal((4, 3))
    P = np.eye(4)
    for _ in range(7):
        k, alpha, b = unit(rng, 4), rng.random(4), rng.random(4)
        S, P = step(S, k, np.zeros(3), alpha, b, 0.0), transition(k, alpha, b) @ P
    np.testing.assert_allclose(S, P @ start, atol=1e-12)


@SEEDS
def test_answers_after_one_token(seed):
    rng = np.random.default_rng(seed)
    S, k, v, u = rng.standard_normal((5, 3)), unit(rng, 5), rng.standard_normal(3), rng.standard_normal(5)
    alpha, b, w = rng.random(5), rng.random(5), rng.random(3)
    faded, new = alpha[:, None] * S, step(S, k, v, alpha, b, w)
    np.testing.assert_allclose(new.T @ k, faded.T @ ((1 - b) * k) + w * v, atol=1e-12)
    np.testing.assert_allclose(new.T @ u, faded.T @ u + (u @ k) * (w * v - faded.T @ (b * k)), atol=1e-12)
    u = u - (u @ k) * k
    np.testing.assert_allclose(new.T @ u, faded.T @ u, atol=1e-12)


@SEEDS
def test_corners_of_the_gates_leave_add_delete_and_set(seed):
    rng = np.random.default_rng(seed)
    S, k, v = rng.standard_normal((4, 3)), unit(rng, 4), rng.standard_normal(3)
    old = S.T @ k
    for b, w, expected in ((0, 0, old), (0, 1, old + v), (1, 0, 0 * old), (1, 1, v)):
        np.testing.assert_allclose(step(S, k, v, 1.0, b, w).T @ k, expected, atol=1e-12)


@SEEDS
def test_erasing_keeps_the_ratio_of_value_channels_of_one_stored_value(seed):
    rng = np.random.default_rng(seed)
    k, value = unit(rng, 4), rng.standard_normal(3)
    new = step(np.outer(k, value), k, np.zeros(3), 1.0, rng.random(4), 0.0)
    read = new.T @ k
    np.testing.assert_allclose(np.outer(read, value), np.outer(value, read), atol=1e-12)


# --- the spectrum -------------------------------------------------------------------------------


def gates(rng, K):
    """Decays and erase gates, some of them 0 or 1."""
    alpha, b = rng.random(K), rng.random(K)
    alpha[rng.random(K) < 0.2] = rng.integers(2)
    b[rng.random(K) < 0.3] = rng.integers(2)
    return alpha, b


@SEEDS
def test_spectrum_of_one_token(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        k, (alpha, b) = unit(rng, 5) * rng.random() ** 0.2, gates(rng, 5)
        u = k * np.sqrt(b * alpha)
        twin = np.linalg.eigvalsh(np.diag(alpha) - np.outer(u, u))
        G = transition(k, alpha, b)
        # the two characteristic polynomials agree; eigenvalues of a lopsided matrix lose digits
        np.testing.assert_allclose(np.poly(G), np.poly(twin), atol=1e-10)
        d = np.sort(alpha)
        assert (twin <= d + 1e-12).all()
        assert (twin >= np.append(0, d[:-1]) - 1e-12).all()
        assert np.linalg.det(G) == pytest.approx((1 - b @ k**2) * alpha.prod(), abs=1e-12)


@SEEDS
def test_without_a_hypothesis_an_eigenvalue_leaves_the_interval(seed):
    k = unit(np.random.default_rng(seed), 4)
    assert np.linalg.eigvals(transition(k, 1.0, 2.0)).real.min() == pytest.approx(-1, abs=1e-9)
    assert np.linalg.eigvals(transition(3 * k, 1.0, 1.0)).real.min() == pytest.approx(-8, abs=1e-8)
    assert np.linalg.eigvalsh(0.5 * np.eye(4) - np.outer(k, k)).min() == pytest.approx(-0.5, abs=1e-12)


# --- norms --------------------------------------------------------------------------------------


@SEEDS
def test_norm_of_one_erase(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        K = rng.integers(2, 7)
        k, e = unit(rng, K), rng.standard_normal(K) * rng.choice([0.3, 1.0, 4.0])
        formula = (np.linalg.norm(e) + np.linalg.norm(2 * k - e)) / 2
        measured = norm(np.eye(K) - np.outer(k, e))
        assert measured == pytest.approx(formula, abs=1e-10)
        assert measured > 1
        for beta, one in ((0.0, True), (2.0, True), (1.3, True), (2.1, False), (-0.1, False)):
            assert (norm(np.eye(K) - beta * np.outer(k, k)) < 1 + 1e-9) == one


@SEEDS
def test_largest_norm_and_where_it_is(seed):
    rng = np.random.default_rng(seed)
    for _ in range(50):
        K = rng.integers(2, 7)
        k, (_, b) = unit(rng, K), gates(rng, K)
        assert norm(transition(k, 1.0, b)) <= 2 / np.sqrt(3) + 1e-12
    b = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    k = np.concatenate([unit(rng, 2) * 3**-0.5, unit(rng, 3) * (2 / 3) ** 0.5])
    assert norm(transition(k, 1.0, b)) == pytest.approx(2 / np.sqrt(3), abs=1e-12)


@SEEDS
def test_no_token_of_kda_stretches(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        k, alpha, beta = unit(rng, 4), rng.random(4), 2 * rng.random()
        assert norm(transition(k, alpha, beta)) <= alpha.max() + 1e-12


# --- growth -------------------------------------------------------------------------------------


def test_growth_of_the_pair():
    for s in np.linspace(0.01, 0.99, 50):
        first, second = pair(s)
        rho = np.sqrt(1 - s**2) * (s + np.sqrt(s**2 + 4)) / 2
        assert radius(second @ first) == pytest.approx(rho**2, abs=1e-12)
        assert rho <= np.sqrt(1.25) + 1e-12
    first, second = pair(6**-0.5)
    assert radius(second @ first) == pytest.approx(1.25, abs=1e-12)


def test_decay_at_which_the_growth_stops():
    for alpha, grows in ((2 / np.sqrt(5) + 1e-3, True), (2 / np.sqrt(5) - 1e-3, False)):
        first, second = pair(6**-0.5, alpha)
        assert (radius(second @ first) > 1) == grows


@SEEDS
def test_no_sequence_grows_below_the_safe_decay(seed):
    rng = np.random.default_rng(seed)
    for _ in range(50):
        k, (alpha, b) = unit(rng, 4), gates(rng, 4)
        assert norm(transition(k, np.sqrt(3) / 2 * alpha, b)) <= 1 + 1e-12


def stretched(x):
    """The column x after the token that opens the largest shares, up to a third; and what they hold."""
    share = x**2 / (x @ x)
    order = np.argsort(-share, kind="stable")
    b = np.zeros(len(x))
    b[order[np.cumsum(share[order]) <= 1 / 3 + 1e-12]] = 1.0
    p = b @ share
    turn = np.arccos(np.sqrt(p / (4 - 3 * p))) / 2
    inside, rest = b * x, (1 - b) * x
    k = np.sin(turn) * inside / np.linalg.norm(inside) - np.cos(turn) * rest / np.linalg.norm(rest)
    assert np.isclose(np.linalg.norm(k), 1)
    return step(x[:, None], k, [0.0], 1.0, b, 0.0)[:, 0], p


@pytest.mark.parametrize("K", [13, 14, 20, 37, 100, 400])
def test_with_many_channels_every_token_stretches_nearly_as_far_as_its_norm_allows(K):
    x = np.random.default_rng(K).choice([-1.0, 1.0], K)
    for _ in range(200):
        new, p = stretched(x)
        assert 1 / 3 - 4 / K < p <= 1 / 3 + 1e-12
        assert np.isclose(np.linalg.norm(new) / np.linalg.norm(x), (np.sqrt(p) + np.sqrt(4 - 3 * p)) / 2)
        assert np.ptp(np.log(new**2)) <= np.log(4) + 1e-9
        x = new
