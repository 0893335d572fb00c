"""Chapter 08's theorems, item by item, on random draws in float64."""

import math

import numpy as np
import pytest
import torch

from lineage_lib import reference, tasks

DRAWS = pytest.mark.parametrize("seed", range(8))
STRENGTHS = (0.0, 0.3, 1.0, 1.7, 2.0)


def gated_step(S, k, v, beta=1.0, alpha=1.0):
    """One token through the library."""
    k, v, S = (torch.tensor(z)[None, None] for z in (k, v, S))
    k, v = k[None], v[None]
    g, beta = (torch.tensor([[[z]]], dtype=torch.float64) for z in (alpha, beta))
    rule = reference.naive_recurrent_gated_delta_rule
    return rule(k, k, v, g.log(), beta, initial_state=S, output_final_state=True)[1][0, 0].numpy()


def draw(seed, K=5, V=3, length=1.0):
    """A state, a key of the given length, a value, and a generator to go on with."""
    rng = np.random.default_rng(seed)
    k = rng.standard_normal(K)
    return rng.standard_normal((K, V)), length * k / np.linalg.norm(k), rng.standard_normal(V), rng


def loss(S, k, v):
    return 0.5 * np.sum((S.T @ k - v) ** 2)


def near(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.abs(b).max()))


# --- thm-08-delta -------------------------------------------------------------------------------


@DRAWS
@pytest.mark.parametrize("length", [1.0, 0.4, 3.0])
def test_a_write_is_a_gradient_step(seed, length):
    S, k, v, _ = draw(seed, length=length)
    gradient = np.empty_like(S)
    for i, j in np.ndindex(*S.shape):  # central differences are exact for a quadratic, up to rounding
        up, down = S.copy(), S.copy()
        up[i, j] += 0.5
        down[i, j] -= 0.5
        gradient[i, j] = loss(up, k, v) - loss(down, k, v)
    assert near(gradient, np.outer(k, S.T @ k - v))
    for beta in STRENGTHS:
        assert near(gated_step(S, k, v, beta), S - beta * gradient)


@DRAWS
@pytest.mark.parametrize("beta", STRENGTHS)
def test_value_stored(seed, beta):
    S, k, v, _ = draw(seed)
    after = gated_step(S, k, v, beta)
    assert near(after.T @ k, (1 - beta) * S.T @ k + beta * v)
    assert near(loss(after, k, v), (1 - beta) ** 2 * loss(S, k, v))


@DRAWS
@pytest.mark.parametrize("beta", STRENGTHS)
def test_other_keys_hear_their_dot_product_times_the_error(seed, beta):
    S, k, v, rng = draw(seed)
    change = gated_step(S, k, v, beta) - S
    u = rng.standard_normal(5)
    assert near(change.T @ u, beta * (k @ u) * (v - S.T @ k))
    orthogonal = u - (u @ k) * k
    assert np.abs(change.T @ orthogonal).max() < 1e-12


@DRAWS
@pytest.mark.parametrize("beta", [*STRENGTHS, -0.1, 2.1])
def test_spectrum_and_norm(seed, beta):
    _, k, _, _ = draw(seed)
    G = np.eye(5) - beta * np.outer(k, k)
    assert near(np.sort(np.linalg.eigvalsh(G)), np.sort([1 - beta, 1, 1, 1, 1]))
    norm = np.linalg.norm(G, ord=2)
    assert near(norm, max(1, abs(1 - beta)))
    assert (norm <= 1 + 1e-12) == (0 <= beta <= 2)


@DRAWS
def test_nearest_state_that_answers(seed):
    S, k, v, rng = draw(seed)
    after = gated_step(S, k, v)
    assert near(after.T @ k, v)
    for _ in range(50):
        other = rng.standard_normal(S.shape)
        other += after - np.outer(k, other.T @ k)  # answers k with v too
        assert near(other.T @ k, v)
        assert np.linalg.norm(after - S) < np.linalg.norm(other - S)


@DRAWS
@pytest.mark.parametrize("length", [0.3, 1.4, 3.0])
def test_keys_of_any_length(seed, length):
    S, k, v, _ = draw(seed, length=length)
    u = k / length
    for beta in STRENGTHS:
        assert near(gated_step(S, k, v, beta), gated_step(S, u, v / length, beta * length**2))
        norm = np.linalg.norm(np.eye(5) - beta * np.outer(k, k), ord=2)
        assert (norm <= 1 + 1e-12) == (beta * length**2 <= 2)


def test_a_key_of_length_three_has_the_eigenvalue_minus_eight():
    _, k, _, _ = draw(0, length=3.0)
    assert near(np.linalg.eigvalsh(np.eye(5) - np.outer(k, k))[0], -8.0)


# --- the losses ---------------------------------------------------------------------------------


@DRAWS
def test_linear_attention_is_a_step_on_the_inner_product(seed):
    S, k, v, _ = draw(seed)
    model = torch.tensor(S, requires_grad=True)
    (-(model.T @ torch.tensor(k)) @ torch.tensor(v)).backward()
    assert near(S - model.grad.numpy(), S + np.outer(k, v))
    a = S.T @ k
    assert near(loss(S, k, v), -(a @ v) + 0.5 * a @ a + 0.5 * v @ v)


# --- thm-08-gated -------------------------------------------------------------------------------

GATES = pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.5), (0.3, 1.0), (0.8, 0.6), (0.9, 2.0), (1.0, 0.4)])


@DRAWS
@GATES
def test_gated_value_stored_and_other_keys(seed, alpha, beta):
    S, k, v, rng = draw(seed)
    after, u = gated_step(S, k, v, beta, alpha), rng.standard_normal(5)
    assert near(after.T @ k, (1 - beta) * alpha * S.T @ k + beta * v)
    assert near(after.T @ u, alpha * S.T @ u + beta * (k @ u) * (v - alpha * S.T @ k))
    orthogonal = u - (u @ k) * k
    assert near(after.T @ orthogonal, alpha * S.T @ orthogonal)


@DRAWS
@GATES
def test_gated_spectrum_and_norm(seed, alpha, beta):
    S, k, v, _ = draw(seed)
    G = alpha * (np.eye(5) - beta * np.outer(k, k))
    assert near(gated_step(S, k, v, beta, alpha), G @ S + beta * np.outer(k, v))
    assert near(np.sort(np.linalg.eigvalsh(G)), np.sort([alpha * (1 - beta), *[alpha] * 4]))
    assert near(np.linalg.norm(G, ord=2), alpha * max(1, abs(1 - beta)))


@DRAWS
def test_weight_decay_of_an_optimiser_reads_the_undecayed_state(seed):
    S, k, v, _ = draw(seed)
    alpha, beta = 0.7, 0.5
    weights = torch.tensor(S, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=beta, weight_decay=(1 - alpha) / beta)
    (0.5 * (weights.T @ torch.tensor(k) - torch.tensor(v)).square().sum()).backward()
    optimiser.step()
    after = weights.detach().numpy()
    assert near(after, alpha * S - beta * np.outer(k, S.T @ k - v))
    assert np.abs(after - gated_step(S, k, v, beta, alpha)).max() > 1e-3


# --- the stream ---------------------------------------------------------------------------------


def states(stream, alpha):
    S, out = np.zeros((stream.keys.shape[1], stream.values.shape[1])), []
    for k, v in zip(stream.keys, stream.values):
        S = gated_step(S, k, v, 1.0, alpha)
        out.append(S)
    return np.array(out)


@pytest.mark.parametrize("alpha", [1.0, 0.95, 0.6])
def test_gated_error_is_one_minus_alpha_to_the_age(alpha):
    stream = tasks.rewriting(np.random.default_rng(3), T=60)
    errors = tasks.recall_errors(states(stream, alpha), stream)
    for name in range(8):
        written = np.flatnonzero(stream.names == name)
        for t in range(written[0], 60):
            age = t - written[written <= t][-1]
            assert abs(errors[t, name] - (1 - alpha**age)) < 1e-12


def test_expected_error_of_the_gated_rule():
    """The series and its limit, against ages drawn from the stream's own law."""
    p, alpha = 1 / 8, 0.95
    rng = np.random.default_rng(0)
    for t in (5, 40):
        weights = p * (1 - p) ** np.arange(t)
        series = 1 - np.sum(weights * alpha ** np.arange(t)) / weights.sum()
        wrote = rng.random((200_000, t)) < p  # newest token first
        age = wrote.argmax(axis=1)[wrote.any(axis=1)]
        assert abs(np.mean(1 - alpha**age) - series) < 2e-3
    long = np.arange(4000)
    limit = 1 - np.sum(p * (1 - p) ** long * alpha**long)
    assert abs(limit - (1 - p / (1 - (1 - p) * alpha))) < 1e-12


def test_additive_error_in_squares():
    """A name written n times reads n − 1 values of noise: its mean squared error is n − 1 values' squares."""
    rng = np.random.default_rng(1)
    for n in (2, 9, 25):
        values = rng.standard_normal((20_000, n, 4))
        off = values.sum(axis=1) - values[:, -1]
        assert abs(np.mean(off**2) / (n - 1) - 1) < 0.03


def test_additive_error_of_a_written_name():
    """The mean error at token t: binomial counts of at least one write, and lengths of normal vectors."""
    rng, V = np.random.default_rng(2), 16
    half = [math.gamma((V + d) / 2) for d in (1, -1, 0)]
    for t in (10, 50):
        n = np.arange(1, t + 1)
        weights = np.array([math.comb(t, i) for i in n.tolist()]) * (1 / 8) ** n * (7 / 8) ** (t - n)
        theory = half[0] * half[1] / half[2] ** 2 * (weights * np.sqrt(n - 1)).sum() / weights.sum()
        counts = rng.binomial(t, 1 / 8, 200_000)
        counts = counts[counts > 0]
        noise, value = np.linalg.norm(rng.standard_normal((2, len(counts), V)), axis=2)
        assert abs(np.mean(np.sqrt(counts - 1) * noise / value) - theory) < 0.01
    assert round(half[0] * half[1] / half[2] ** 2, 3) == 1.034


# --- thm-08-implicit, MesaNet -------------------------------------------------------------------


@DRAWS
@pytest.mark.parametrize("length", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 200.0])
def test_implicit_step(seed, length, beta):
    S, k, v, _ = draw(seed, length=length)
    after = gated_step(S, k, v, beta / (1 + beta * k @ k))
    # the gradient of ½‖S' − S‖² + β/2 ‖S'ᵀk − v‖² vanishes: a step with the new state's error
    assert near(after - S, beta * np.outer(k, v - after.T @ k))
    eigenvalue = 1 - beta / (1 + beta * k @ k) * (k @ k)
    assert near(eigenvalue, 1 / (1 + beta * k @ k))
    assert 0 < eigenvalue <= 1


@DRAWS
def test_ridge_read_is_the_minimum(seed):
    rng = np.random.default_rng(seed)
    K, V, q, lam = rng.standard_normal((7, 4)), rng.standard_normal((7, 3)), rng.standard_normal(4), 0.2
    model = torch.zeros(4, 3, dtype=torch.float64)
    step = 1 / (np.linalg.norm(K, ord=2) ** 2 + lam)
    for _ in range(5000):  # plain gradient descent on the ridge loss
        model = model - step * (torch.tensor(K.T) @ (torch.tensor(K) @ model - torch.tensor(V)) + lam * model)
    o = (K.T @ V).T @ np.linalg.solve(K.T @ K + lam * np.eye(4), q)
    assert np.abs(model.numpy().T @ q - o).max() < 1e-9
