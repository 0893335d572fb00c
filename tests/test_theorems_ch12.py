"""Chapter 12's theorems on random and on exhaustive cases."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

SEEDS = pytest.mark.parametrize("seed", range(5))


def unit(rng, *shape):
    k = rng.standard_normal(shape)
    return k / np.linalg.norm(k, axis=-1, keepdims=True)


def final(table, z):
    state = 0
    for x in z:
        state = int(table[state, x])
    return state


def H(p):
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def ball(L, w):
    return sum(math.comb(L, i) for i in range(w + 1))


# --- copying --------------------------------------------------------------------------------------


@SEEDS
def test_twins_stay_twins(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 7, (7, 3))
    known = {}
    for z in itertools.product(range(3), repeat=2):
        known.setdefault(final(table, z), []).append(z)
    twins = max(known.values(), key=len)
    assert len(twins) >= 2  # 9 strings, 7 states
    for rest in itertools.product(range(3), repeat=3):
        assert len({final(table, z + rest) for z in twins}) == 1


@SEEDS
def test_no_decoder_with_coins_passes_the_ceiling(seed):
    rng = np.random.default_rng(seed)
    for states, c, L in ((3, 2, 3), (5, 3, 2), (4, 2, 4)):
        table = rng.integers(0, states, (states, c))
        p = rng.random((states, c**L)) ** 6
        p /= p.sum(axis=1, keepdims=True)
        copied = sum(p[final(table, z), i] for i, z in enumerate(itertools.product(range(c), repeat=L))) / c**L
        assert copied <= states / c**L + 1e-12


@pytest.mark.parametrize(("states", "c", "L"), [(5, 2, 4), (77, 3, 6), (9, 3, 2), (1, 4, 3), (10, 10, 2)])
def test_the_saturating_number_reaches_the_ceiling(states, c, L):
    table = np.minimum(c * np.arange(states)[:, None] + np.arange(c), states - 1)
    copied = 0
    for z in itertools.product(range(c), repeat=L):
        state = final(table, z)
        copied += tuple(state // c ** (L - 1 - t) % c for t in range(L)) == z
    assert copied == min(states, c**L)


@SEEDS
def test_nearly_copying(seed):
    rng = np.random.default_rng(seed)
    L, states = 8, 5
    strings = np.array(list(itertools.product((0, 1), repeat=L)))
    table = rng.integers(0, states, (states, 2))
    left = np.array([final(table, z) for z in strings])
    answers = rng.integers(0, 2, (states, L))
    for w in range(L + 1):
        share = np.mean(np.sum(answers[left] != strings, axis=1) <= w)
        assert share <= states * ball(L, w) / 2**L + 1e-12


def test_size_of_a_ball():
    for L in (1, 2, 7, 30, 101):
        for w in range(L // 2 + 1):
            assert math.log2(ball(L, w)) <= L * H(w / L) + 1e-9


# --- n-grams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("L", "c", "n"), [(5, 2, 2), (8, 2, 3), (6, 3, 2), (9, 2, 5), (6, 3, 4)])
def test_pairs_of_ngrams_agree_with_the_stated_probability(L, c, n):
    """Also where they overlap; and the union bound."""
    strings = list(itertools.product(range(c), repeat=L))
    for i, j in itertools.combinations(range(L - n + 1), 2):
        equal = sum(z[i : i + n] == z[j : j + n] for z in strings)
        assert Fraction(equal, len(strings)) == Fraction(1, c**n)
    repeated = sum(len({z[p : p + n] for p in range(L - n + 1)}) < L - n + 1 for z in strings)
    most = Fraction(math.comb(L - n + 1, 2), c**n)
    assert Fraction(repeated, len(strings)) <= most < Fraction(L * L, c**n)


@SEEDS
def test_without_repeated_ngrams_the_copy_is_exact(seed):
    rng = np.random.default_rng(seed)
    seen = 0
    for _ in range(200):
        z, n = rng.integers(0, 3, 12).tolist(), 3
        if len({tuple(z[p : p + n]) for p in range(10)}) < 10:
            continue
        seen += 1
        out = z[:n]
        while len(out) < 12:
            p = next(p for p in range(12 - n) if z[p : p + n] == out[-n:])
            out.append(z[p + n])
        assert out == z
    assert seen


# --- recall and INDEX -----------------------------------------------------------------------------


def test_index_by_exhaustion():
    """The best of all protocols with N bits and two messages: the map of strings to messages is tried in full."""
    for N in (2, 3):
        strings = np.array(list(itertools.product((0, 1), repeat=N)))
        least = 1.0
        for messages in itertools.product((0, 1), repeat=2**N):
            wrong = 0
            for m in (0, 1):
                group = strings[np.array(messages) == m]
                ones = group.sum(axis=0)
                wrong += np.minimum(ones, len(group) - ones).sum()
            least = min(least, wrong / strings.size)
        assert N * (1 - H(least)) <= 1 + 1e-12


@pytest.mark.parametrize(("N", "b"), [(64, 8), (200, 64), (1000, 999)])
def test_a_register_obeys(N, b):
    delta = (N - b) / 2 / N
    assert b >= N * (1 - H(delta))


def test_one_game_is_weaker_than_many():
    for N, delta, epsilon in ((10, 0.1, 0.2), (1000, 0.01, 0.05), (50, 0.3, 0.1)):
        assert N * (1 - H(delta + epsilon)) - math.log2((delta + epsilon) / epsilon) <= N * (1 - H(delta))


@SEEDS
def test_a_state_for_recall_recites_the_list(seed):
    """Fewer states than lists: some assignment gets a wrong answer."""
    rng = np.random.default_rng(seed)
    n, c, states = 3, 2, 7
    answers = rng.integers(0, c, (states, n))
    answered = 0
    for values in itertools.product(range(c), repeat=n):
        answered += any((row == values).all() for row in answers)  # even if the memory chose its state freely
    assert answered <= states < c**n


# --- what rules lose ------------------------------------------------------------------------------


def final_states(k, v, alpha, correct, beta=1.0):
    S = np.zeros((len(k), k.shape[2], v.shape[2]))
    for t in range(k.shape[1]):
        S = alpha * S
        old = np.einsum("rk,rkv->rv", k[:, t], S) if correct else 0.0
        S = S + beta * k[:, t, :, None] * (v[:, t] - old)[:, None, :]
    return S


def errors(k, v, *rule, **kwargs):
    return np.sum((k @ final_states(k, v, *rule, **kwargs) - v) ** 2, axis=2)


def delta_theory(n, K):
    r, result = 1 - 1 / K, []
    for a in range(n - 1, -1, -1):
        q = 1.0
        for j in range(a):
            q = (1 - 2 * (K + 1) / (K * (K + 2))) * q + K * (1 - r ** (n - a + j)) / (K * (K + 2)) + 1 / K
        result.append(1 - 2 * r**a + q)
    return np.array(result)


@pytest.mark.parametrize("values", ["random", "equal", "opposite"])
@pytest.mark.parametrize(("n", "K"), [(2, 2), (5, 2), (6, 4), (12, 5), (9, 16)])
def test_errors_of_the_three_rules(n, K, values):
    """Within five standard errors of the mean of 20,000 draws, for any fixed values of length 1."""
    rng = np.random.default_rng([n, K])
    k = unit(rng, 20_000, n, K)
    v = {"random": unit(rng, n, 3), "equal": np.tile(unit(rng, 3), (n, 1))}
    v["opposite"] = v["equal"] * (-1.0) ** np.arange(n)[:, None]
    v = np.broadcast_to(v[values], (len(k), n, 3))
    for alpha, correct in ((1.0, False), (0.8, False), (1.0, True)):
        left = alpha ** np.arange(n - 1.0, -1, -1)
        theory = delta_theory(n, K) if correct else (1 - left) ** 2 + (np.sum(left**2) - left**2) / K
        got = errors(k, v, alpha, correct)
        off = np.abs(got.mean(0) - theory) - 5 * got.std(0) / np.sqrt(len(k))
        assert (off < 1e-9).all()


def test_the_delta_theory_at_width_one_is_exact():
    """Keys are 1 or -1; the state is the newest value with its key's sign, and all others are guessed."""
    theory = delta_theory(4, 1)
    np.testing.assert_allclose(theory, [2, 2, 2, 0], atol=1e-12)


@SEEDS
def test_fourth_moments(seed):
    rng = np.random.default_rng(seed)
    K = 3
    u, M = unit(rng, 400_000, K), rng.standard_normal((K, K))
    M = M + M.T
    got = np.einsum("ri,rj,r->ij", u, u, np.einsum("ri,ij,rj->r", u, M, u)) / len(u)
    np.testing.assert_allclose(got, (2 * M + np.trace(M) * np.eye(K)) / (K * (K + 2)), atol=0.01)


@SEEDS
def test_what_is_dropped_matters(seed):
    """Without a hypothesis the theory fails, by far more than chance."""
    rng = np.random.default_rng(seed)
    n, K, runs = 8, 6, 4000
    k, v = unit(rng, runs, n, K), unit(rng, runs, n, 2)
    theory = delta_theory(n, K).mean()
    common = k + 1.0 / np.sqrt(K)
    common /= np.linalg.norm(common, axis=2, keepdims=True)
    for keys, beta in ((0.7 * k, 1.0), (1.5 * k, 1.0), (common, 1.0), (k, 0.5)):
        got = errors(keys, v, 1.0, True, beta=beta).mean(1)
        assert abs(got.mean() - theory) > 5 * got.std() / np.sqrt(runs)


# --- targets --------------------------------------------------------------------------------------


@SEEDS
def test_targets_make_all_reads_exact(seed):
    rng = np.random.default_rng(seed)
    for n, K in ((1, 1), (3, 3), (5, 8)):
        k, v = unit(rng, n, K), rng.standard_normal((n, 2))
        G = k @ k.T
        targets = np.tril(G) @ np.linalg.solve(G, v)
        np.testing.assert_allclose(targets[-1], v[-1], atol=1e-9 * np.linalg.cond(G))
        S = final_states(k[None], targets[None], 1.0, True)[0]
        np.testing.assert_allclose(k @ S, v, atol=1e-9 * np.linalg.cond(G))
        other = targets + 0.1 * rng.standard_normal(targets.shape)
        assert np.abs(k @ final_states(k[None], other[None], 1.0, True)[0] - v).max() > 1e-4


def test_ada_and_cy_by_hand():
    k = np.array([[1.0, 0.0], [0.6, 0.8]])
    S = final_states(k[None], np.array([[[37.1875], [12.0]]]), 1.0, True)[0]
    np.testing.assert_allclose(k @ S, [[31.0], [12.0]], atol=1e-12)
