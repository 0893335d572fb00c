"""Chapter 05's lemma and theorem, item by item, in float64; and the counts that its figures draw."""

import pytest
import torch

from lineage_lib.chunked import chunk_additive
from lineage_lib.exercises import find
from lineage_lib.figures import ch05 as figures

SEEDS = range(6)


def drawn(seed, T=23, K=5, V=3):
    """q, k (T, K), v (T, V), g (T,) of one head, and the generator they came from."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    g = -torch.rand(T, generator=random, dtype=torch.float64) * (0.1, 1.0, 8.0)[seed % 3]
    return normal(T, K), normal(T, K), normal(T, V), g, normal


def recurrence(q, k, v, g, S=None):
    """Outputs (T, V) and the last state (K, V), token by token."""
    S = q.new_zeros(q.shape[1], v.shape[1]) if S is None else S
    o = []
    for t in range(len(q)):
        S = g[t].exp() * S + torch.outer(k[t], v[t])
        o.append(S.T @ q[t])
    return torch.stack(o), S


def backward(q, k, v, g):
    """The recurrence from the last token to the first: each token brings the log-decay of its successor."""
    g = torch.cat([g[1:], g[:1]])
    return recurrence(*(x.flip(0) for x in (q, k, v, g)))[0].flip(0)


def gradients(q, k, v, g, do, S0=None):
    leaves = [x.clone().requires_grad_() for x in (q, k, v, g)]
    return torch.autograd.grad(recurrence(*leaves, S0)[0], leaves, do)


def same(x, y):
    return torch.allclose(x, y, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_sums_over_pairs(seed):
    """thm-05-gradients, as it is written: L and the three sums, and the reverse sum of the log-decays."""
    q, k, v, g, normal = drawn(seed)
    do = normal(*v.shape)
    dq, dk, dv, dg = gradients(q, k, v, g, do)
    G = g.cumsum(0)
    L = (G[:, None] - G).tril().exp().tril()
    assert same(dq, (L * (do @ v.T)) @ k)
    assert same(dk, (L * (do @ v.T)).T @ q)
    assert same(dv, (L * (q @ k.T)).T @ do)
    assert same(dg, ((q * dq).sum(1) - (k * dk).sum(1)).flip(0).cumsum(0).flip(0))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_walks(seed):
    """The table below the theorem: which tensor stands in which place, and the direction."""
    q, k, v, g, normal = drawn(seed)
    do = normal(*v.shape)
    dq, dk, dv, _ = gradients(q, k, v, g, do)
    assert same(dq, recurrence(do, v, k, g)[0])
    assert same(dk, backward(v, do, q, g))
    assert same(dv, backward(k, q, do, g))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_start_that_is_not_empty_changes_dq_and_dg_alone(seed):
    q, k, v, g, normal = drawn(seed)
    do, S0 = normal(*v.shape), normal(5, 3)
    empty, started = gradients(q, k, v, g, do), gradients(q, k, v, g, do, S0)
    assert [same(x, y) for x, y in zip(empty, started)] == [False, True, True, False]
    assert same(started[0], recurrence(do, v, k, g, S0.T)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_dv_in_chunks(seed):
    """eq-05-dv and eq-05-dpass, from the last chunk to the first."""
    q, k, v, g, normal = drawn(seed)
    do = normal(*v.shape)
    dS, found = torch.zeros(5, 3, dtype=torch.float64), []
    for start in reversed(range(0, len(q), 8)):
        qc, kc, doc, gc = (x[start : start + 8] for x in (q, k, do, g))
        G = gc.cumsum(0)
        L = (G[:, None] - G).tril().exp().tril()
        found.append((L * (qc @ kc.T)).T @ doc + (G[-1] - G).exp()[:, None] * (kc @ dS))
        dS = G[-1].exp() * dS + (G.exp()[:, None] * qc).T @ doc
    assert same(torch.cat(found[::-1]), gradients(q, k, v, g, do)[2])


@pytest.mark.parametrize("cuts", [(23,), (8, 8, 7), (1, 21, 1), (5, 0, 18)])
@pytest.mark.parametrize("seed", SEEDS)
def test_segments(seed, cuts):
    """lem-05-segments: the sum over earlier segments is the state that enters, and outputs follow from it."""
    *tensors, _ = drawn(seed)
    parts = list(zip(*(x.split(cuts) for x in tensors)))
    left = [recurrence(*part)[1] if len(part[0]) else torch.zeros(5, 3, dtype=torch.float64) for part in parts]
    decays = [part[3].sum().exp() for part in parts]
    outputs = []
    for m, part in enumerate(parts):
        enters = torch.zeros(5, 3, dtype=torch.float64)
        for n in range(m):
            enters = enters + torch.stack([*decays[n + 1 : m], torch.ones_like(decays[0])]).prod() * left[n]
        if len(part[0]):
            outputs.append(recurrence(*part, enters)[0])
    assert same(torch.cat(outputs), recurrence(*tensors)[0])


def test_the_recurrence_here_is_the_librarys():
    *tensors, _ = drawn(0)
    o, _ = chunk_additive(*(x[None, :, None] for x in tensors), scale=1.0)
    assert same(o[0, :, 0], recurrence(*tensors)[0])


@pytest.mark.parametrize(("C", "K", "V", "itemsize"), [(16, 8, 12, 4), (64, 128, 128, 2), (32, 20, 64, 2)])
def test_the_figures_count_what_the_exercise_counts(C, K, V, itemsize):
    """per_chunk, summed over whole chunks and with the final state, is exercise 5.2; and its FLOPs are chapter 4's."""
    chunks = 5
    per = figures.per_chunk(C, K, V, itemsize)
    final = 4 * K * V
    separate = chunks * sum(per[name][0] for name in figures.STEPS) + final
    assert find("5.2").oracle(chunks * C, 1, K, V, C, itemsize) == (separate, chunks * per["ssd_walk"][0] + final)
    flops = find("4.6").oracle(chunks * C, K, V, C)
    assert chunks * per["ssd_walk"][1] == flops
    assert chunks * sum(per[name][1] for name in figures.STEPS) == flops
