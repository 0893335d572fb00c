"""Chapter 10: what its records share. Keys of length 1 that are more or less alike, gates, the tables of each chunk."""

import numpy as np

from lineage_lib.exercises._ch05_data import cumulative, decay_mask, spans

GAPS = {"A": 5, "q": 1, "k": 2, "v": 3}  # entries of NaN between two tokens, where a kernel is told a stride


def alike(rng, T, H, K, cosine=0.0):
    """Float32 keys (T, H, K) of length 1, any two of a head with about this cosine.

    1: the same key T times, with a single entry, so that products of keys are 1 and not nearly 1.
    """
    if cosine == 1:
        return np.broadcast_to(np.eye(K, dtype=np.float32)[K // 2], (T, H, K)).copy()
    own, shared = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in rng.standard_normal((2, T, H, K)))
    k = np.sqrt(cosine) * shared[:1] + np.sqrt(1 - cosine) * own
    return (k / np.linalg.norm(k, axis=-1, keepdims=True)).astype(np.float32)


def gates(rng, T, HV, C, *, g=None, beta=None):
    """G and beta (T, HV), float32: G sums log-decays from each chunk's first token on.

    ``g`` gives other log-decays than those of decays from 0.8 to 1: a number for all, or {t: number} for some tokens;
    ``beta`` a number for all strengths, which are otherwise between 0.3 and 1.
    """
    decays = np.log(rng.uniform(0.8, 1.0, (T, HV)))
    if isinstance(g, dict):
        decays[list(g)] = np.array([*g.values()])[:, None]
    elif g is not None:
        decays[:] = g
    strengths = rng.uniform(0.3, 1.0, (T, HV)) if beta is None else np.full((T, HV), beta)
    return cumulative(decays, C).astype(np.float32), strengths.astype(np.float32)


def for_values(x, HV):
    """(T, H, K) as (T, HV, K): each key head as often as value heads share it."""
    return np.repeat(x, HV // x.shape[1], axis=1)


def coefficients(k, G, beta, C):
    """A (T, HV, C): row t has beta_t exp(G_t - G_s) (k_t·k_s) for the tokens s < t of its chunk, else 0; in float64."""
    k, G, beta = for_values(k.astype(np.float64), G.shape[1]), G.astype(np.float64), beta.astype(np.float64)
    A = np.zeros((*G.shape, C))
    for j in spans(len(k), C):
        pairs = np.einsum("thk,shk->hts", k[j], k[j]) * decay_mask(G[j]) * beta[j].T[:, :, None]
        A[j, :, : pairs.shape[2]] = np.tril(pairs, -1).transpose(1, 0, 2)
    return A


def inverse_of(A, C):
    """X (T, HV, C): the rows of (1 + A)^-1 of each chunk; only entries below the diagonal of A are looked at."""
    X = np.zeros((*A.shape[:2], C))
    for j in spans(len(A), C):
        n = len(A[j])
        own = np.tril(np.nan_to_num(A[j, :, :n].astype(np.float64)).transpose(1, 0, 2), -1)
        X[j, :, :n] = np.linalg.inv(np.eye(n) + own).transpose(1, 0, 2)
    return X


def blocks_of(A, C):
    """(T, H, 16): the rows of the inverses of the 16 by 16 blocks on the diagonal, each alone."""
    T = len(A)
    columns = (np.arange(T) // 16 * 16 % C)[:, None] + np.arange(16)
    return inverse_of(np.take_along_axis(A, columns[:, None], 2), 16)


def littered(rng, A, C, litter=None):
    """A in float32, with anything on and above the diagonal: random numbers, or this one."""
    above = np.arange(C) >= (np.arange(len(A)) % C)[:, None]
    rest = rng.standard_normal(A.shape) if litter is None else np.full(A.shape, litter)
    return np.where(above[:, None], rest, A).astype(np.float32)
