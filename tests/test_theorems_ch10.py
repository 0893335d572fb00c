"""Chapter 10's lemmas and theorems, item by item, in float64; and the counts that its figure draws."""

import pytest
import torch

from lineage_lib import reference
from lineage_lib.figures import ch10 as figures

SEEDS = pytest.mark.parametrize("seed", range(6))
SCALE = 0.7


def drawn(seed, T=23, K=5, V=3):
    """q, k (T, K), v (T, V), g, beta (T,), some keys alike; do (T, V), S0 and dS (K, V)."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    k = torch.nn.functional.normalize(normal(T, K) + (0.0, 1.0, 3.0)[seed % 3] * normal(K), dim=-1)
    k[7] = k[3]
    g = -torch.rand(T, generator=random, dtype=torch.float64) * (0.1, 1.0, 4.0)[seed // 2]
    beta = 2 * torch.rand(T, generator=random, dtype=torch.float64)
    return (normal(T, K), k, normal(T, V), g, beta), (normal(T, V), normal(K, V), normal(K, V))


def recurrence(q, k, v, g, beta, S0=None):
    heads = [x[None, :, None] for x in (q, k, v, g, beta)]
    start = None if S0 is None else S0[None, None]
    rule = reference.naive_recurrent_gated_delta_rule
    o, S = rule(*heads, scale=SCALE, initial_state=start, output_final_state=True)
    return o[0, :, 0], S[0, 0]


def gradients(inputs, do, S0=None, dS=None):
    leaves = [x.clone().requires_grad_() for x in (*inputs, *([] if S0 is None else [S0]))]
    o, S = recurrence(*leaves)
    return torch.autograd.grad((o * do).sum() + (0 if dS is None else (S * dS).sum()), leaves)


def between(g):
    """Γ_ts for s <= t, else 0, as a product of decays and not by sums of logarithms."""
    L = torch.zeros(len(g), len(g), dtype=g.dtype)
    for t in range(len(g)):
        L[t, t] = 1.0
        for s in range(t):
            L[t, s] = g[t].exp() * L[t - 1, s]
    return L


def tables(q, k, g, beta):
    """T, X, P of eq-10-tables, entry by entry."""
    L = between(g)
    T = torch.tril(beta[:, None] * L * (k @ k.T), -1)
    return T, torch.linalg.inv(torch.eye(len(g), dtype=g.dtype) + T), SCALE * L * (q @ k.T)


def chunks(length, *tensors):
    return list(zip(*(x.split(length) for x in tensors)))


def edges(g):
    """a', b, d."""
    L = between(g)
    start = torch.cumprod(g.exp(), 0)
    return start[:, None], L[-1][:, None], start[-1]


def same(x, y):
    return torch.allclose(x, y, rtol=1e-9, atol=1e-10)


# --- Forward ---


@SEEDS
@pytest.mark.parametrize("C", [1, 4, 8, 23, 40])
def test_the_walk(seed, C):
    """eq-10-walk, chunk by chunk from a state, is the recurrence."""
    inputs, (_, S, _) = drawn(seed)
    o_right, S_right = recurrence(*inputs, S)
    found = []
    for q, k, v, g, beta in chunks(C, *inputs):
        a, b, d = edges(g)
        _, X, P = tables(q, k, g, beta)
        new = X @ (beta[:, None] * (v - a * (k @ S)))
        found.append(SCALE * a * (q @ S) + P @ new)
        S = d * S + k.T @ (b * new)
    assert same(torch.cat(found), o_right)
    assert same(S, S_right)


@SEEDS
def test_what_the_inverse_holds(seed):
    """lem-10-bounded: every entry, and the bound; with longer keys it does not hold."""
    (q, k, _, g, beta), _ = drawn(seed)
    _, X, _ = tables(q, k, g, beta)
    L = between(g)
    for s in range(len(k)):
        z = k[s]
        for t in range(s + 1, len(k)):
            assert same(X[t, s], -beta[t] * L[t, s] * (k[t] @ z))
            z = z - beta[t] * k[t] * (k[t] @ z)
    below = torch.tril(X, -1).abs()
    assert (below <= beta[:, None] + 1e-12).all()
    _, longer, _ = tables(q, 2 * k, 0 * g, torch.full_like(beta, 2.0))
    assert torch.tril(longer, -1).abs().max() > 100


@SEEDS
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_all_merges_at_once(seed, size):
    """lem-10-merges for every size; four blocks at once do not merge so."""
    (q, k, _, g, beta), _ = drawn(seed, T=32)
    T, X, _ = tables(q, k, g, beta)
    i = torch.arange(32)
    i, j = i[:, None], i[None, :]
    D = torch.where(
        i // size == j // size, X, 0.0
    )  # of a triangular matrix the blocks' inverses are its inverse's blocks
    for count in (2, 4):
        together = i // (count * size) == j // (count * size)
        B = torch.where(together & (i // size != j // size), T, 0.0)
        merged = D - D @ B @ D
        if count * size <= 32:
            assert same(merged, torch.where(together, X, 0.0)) == (count == 2)


@SEEDS
@pytest.mark.parametrize("cuts", [(23,), (8, 8, 7), (1, 21, 1)])
def test_segments(seed, cuts):
    """lem-10-segments."""
    inputs, (_, E, _) = drawn(seed)
    _, S_right = recurrence(*inputs, E)
    for q, k, v, g, beta in zip(*(x.split(cuts) for x in inputs)):
        _, Z = recurrence(q, k, v, g, beta)
        _, Phi = recurrence(q, k, torch.zeros_like(k), g, beta, torch.eye(5, dtype=k.dtype))
        E = Phi @ E + Z
    assert same(E, S_right)


# --- Backward ---


@SEEDS
def test_gradients_are_those_of_two_rules(seed):
    """thm-10-gradients: the adjoint equation, dv and dbeta; dq, dk and dg from autograd of two rules that add."""
    (q, k, v, g, beta), (do, _, _) = drawn(seed)
    truth = gradients((q, k, v, g, beta), do)
    L = between(g)
    _, X, P = tables(q, k, g, beta)
    new = X @ (beta[:, None] * v)
    y = torch.linalg.solve((torch.eye(23, dtype=g.dtype) + (beta[:, None] * L * (k @ k.T)).tril(-1)).T, P.T @ do)
    assert same(X.T @ (P.T @ do), y)

    leaves = [x.clone().requires_grad_() for x in (q, k, k, k, g)]
    q_, k_, reader, writer, g_ = leaves
    G = g_.cumsum(0)
    decay = (G[:, None] - G).tril().exp().tril()
    o = SCALE * (decay * (q_ @ k_.T)) @ new
    r = (decay * (reader @ writer.T)).tril(-1) @ new
    loss = (o * do).sum() - (r * beta[:, None] * y).sum()
    dq, dk, as_reader, as_writer, dg = torch.autograd.grad(loss, leaves)
    for found, right in zip((dq, dk + as_reader + as_writer, beta[:, None] * y, dg, (y * (v - r)).sum(1)), truth):
        assert same(found, right)


@SEEDS
@pytest.mark.parametrize("C", [4, 8, 23])
def test_the_walk_backward(seed, C):
    """thm-10-back, eq-10-chunk and eq-10-dg: every gradient, from a state and with a gradient of the last one."""
    inputs, (do, S0, dS) = drawn(seed)
    truth = gradients(inputs, do, S0, dS)
    S, forward = S0, []
    for q, k, v, g, beta in chunks(C, *inputs):
        a, b, d = edges(g)
        new = tables(q, k, g, beta)[1] @ (beta[:, None] * (v - a * (k @ S)))
        forward.append((S, new))
        S = d * S + k.T @ (b * new)
    parts = []
    for (S, new), (q, k, v, g, beta, doc) in reversed(list(zip(forward, chunks(C, *inputs, do)))):
        a, b, d = edges(g)
        _, X, P = tables(q, k, g, beta)
        y = X.T @ (b * (k @ dS) + P.T @ doc)
        dq, dk, dg = of_chunk(q, k, new, doc, g, SCALE, S, dS, False)
        as_reader, as_writer, more = of_chunk(k, k, new, -beta[:, None] * y, g, 1.0, S, torch.zeros_like(S), True)
        r = a * (k @ S) + (between(g) * (k @ k.T)).tril(-1) @ new
        parts.append((dq, dk + as_reader + as_writer, beta[:, None] * y, dg + more, (y * (v - r)).sum(1)))
        dS = d * dS + SCALE * (a * q).T @ doc - (a * beta[:, None] * k).T @ y
    found = [torch.cat(part[::-1]) for part in zip(*parts)]
    for gradient, right in zip([*found, dS], truth):
        assert same(gradient, right)


def of_chunk(q, k, v, do, g, scale, S, dS, strict):
    """eq-10-chunk and eq-10-dg as they are written; STRICT: pairs s < t alone."""
    a, b, d = edges(g)
    D = scale * between(g) * (do @ v.T)
    D = D.tril(-1) if strict else D
    dq = D @ k + scale * a * (do @ S.T)
    dk = D.T @ q + b * (v @ dS.T)
    pairs, dg = D * (q @ k.T), []
    for i in range(len(g)):
        passing = pairs[i:, :i].sum()
        passing = passing + (scale * a * q * (do @ S.T))[i:].sum() + (b * k * (v @ dS.T))[:i].sum()
        dg.append(passing + d * (S * dS).sum())
    return dq, dk, torch.stack(dg)


# --- What the figures draw ---


@pytest.mark.parametrize(("C", "K", "V", "itemsize"), [(64, 128, 128, 2), (32, 20, 64, 4)])
def test_bytes_of_the_launches(C, K, V, itemsize):
    """The totals, counted by array: how often each is read or written."""
    ways = figures.totals(figures.per_chunk(C, K, V, itemsize))
    key, value, square, state, number = itemsize * C * K, itemsize * C * V, itemsize * C * C, itemsize * K * V, 4 * C
    q, k, v, o = key, key, value, value
    inverse, rows_of_w, rows_of_u, corrected, sums, beta = square, key, value, value, number, number
    launches = (
        (number, sums),
        (k, beta, sums, inverse),
        (k, v, beta, sums, inverse, rows_of_w, rows_of_u),
        (k, rows_of_w, rows_of_u, sums, state, corrected),
        (q, k, corrected, state, sums, o),
    )
    assert ways["five launches"] == sum(map(sum, launches))
    walk = (
        (number, beta, *[number] * 5, 4),
        (q, k, sums, beta, square, square),
        (q, k, v, square, square, *[number] * 4, 4, o),
    )
    assert ways["one walk"] == sum(map(sum, walk))
    assert ways["the least"] == q + k + v + o + number + beta


def test_the_training_runs_are_read_where_they_are():
    recall = figures.recall_training()
    if recall is not None:
        assert set(recall["curves"]) == set(recall["accuracy"]) == {"recurrence", "kernels", "wrong gradient"}
