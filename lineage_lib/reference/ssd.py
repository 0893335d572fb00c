"""The additive memory with one decay a step (Mamba-2's SSD), one decay a state entry, and none.

The state S is (N, P): rows are keys (state entries), columns are values (channels). A step decays
the state, writes ``B xᵀ`` and reads ``Sᵀ C`` after the write. X already holds Mamba-2's step size:
a faithful layer writes ``Δ_t x_t``.

Every function takes what NumPy can turn into real arrays and computes in float64.
"""

import numpy as np

from lineage_lib.validate import finite, real_array


def ssd_recurrent(X, a, B, C, S0=None) -> tuple[np.ndarray, np.ndarray]:
    """S_t = a_t S_{t-1} + B_t x_tᵀ, y_t = S_tᵀ C_t.  Returns (Y, S_T).

    X (T, P) inputs, a (T,) decays per step, finite, any sign, B, C (T, N) keys and queries,
    S0 (N, P) the state before the first step, zeros when None.
    Returns Y (T, P) and the state after the last step (N, P).
    Source: Dao and Gu (2024), Section 5.1.

    >>> Y, S = ssd_recurrent([[31.0], [47.0]], [0.5, 0.5], [[1.0], [1.0]], [[1.0], [1.0]])
    >>> Y.shape, S
    ((2, 1), array([[62.5]]))
    """
    sizes: dict[str, int] = {}
    X = real_array("X", X, "T P", sizes)
    a = finite("a", real_array("a", a, "T", sizes))
    B = real_array("B", B, "T N", sizes)
    C = real_array("C", C, "T N", sizes)
    return _run(X, a, B, C, _initial_state(S0, sizes))


def diagonal_recurrent(X, A, B, C, S0=None) -> tuple[np.ndarray, np.ndarray]:
    """S_t = A_t ∘ S_{t-1} + B_t x_tᵀ, y_t = S_tᵀ C_t: a decay for each entry of the state.

    X (T, P), B, C (T, N), S0 (N, P) as in :func:`ssd_recurrent`. A is (T, N), the diagonal of
    the transition, shared by the P channels, or (T, N, P), a diagonal for each channel, as in
    Mamba-1. Returns Y (T, P) and the state after the last step (N, P).
    Source: Gu and Dao (2023), Section 3.

    >>> Y, S = diagonal_recurrent([[1.0], [1.0]], [[1.0, 1.0], [0.5, 0.0]], np.ones((2, 2)), np.ones((2, 2)))
    >>> S.ravel()
    array([1.5, 1. ])
    """
    sizes: dict[str, int] = {}
    X = real_array("X", X, "T P", sizes)
    B = real_array("B", B, "T N", sizes)
    C = real_array("C", C, "T N", sizes)
    rank = A.ndim if hasattr(A, "ndim") else np.asarray(A, dtype=object).ndim
    A = finite("A", real_array("A", A, "T N P" if rank == 3 else "T N", sizes))
    return _run(X, A if rank == 3 else A[:, :, None], B, C, _initial_state(S0, sizes))


def linear_attention(Q, K, V) -> np.ndarray:
    """Y = Q · cumsum(Kᵀ V): causal linear attention without a normaliser, linear in T.

    Q, K (T, N) queries and keys, V (T, P) values. Returns Y (T, P). Keeps all T states (T, N, P).
    Source: Dao and Gu (2024), Equation 14.

    >>> linear_attention([[1.0], [1.0]], [[1.0], [1.0]], [[31.0], [47.0]]).ravel()
    array([31., 78.])
    """
    sizes: dict[str, int] = {}
    Q = real_array("Q", Q, "T N", sizes)
    K = real_array("K", K, "T N", sizes)
    V = real_array("V", V, "T P", sizes)
    states = np.cumsum(K[:, :, None] * V[:, None, :], axis=0)
    return np.einsum("tn,tnp->tp", Q, states)


def _initial_state(S0, sizes: dict[str, int]) -> np.ndarray:
    if S0 is None:
        return np.zeros((sizes["N"], sizes["P"]))
    return finite("S0", real_array("S0", S0, "N P", sizes))


def _run(X, decays, B, C, S) -> tuple[np.ndarray, np.ndarray]:
    """The loop over steps; ``decays[t]`` is anything that multiplies the state entry by entry."""
    Y = np.empty_like(X)
    for t in range(len(X)):
        S = decays[t] * S + np.outer(B[t], X[t])
        Y[t] = S.T @ C[t]
    return Y, S
