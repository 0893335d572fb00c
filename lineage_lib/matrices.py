"""The matrix views of a sequence layer: segment products, masks, cut blocks, ranks.

Every function takes and returns NumPy arrays and computes in float64. Tokens are counted from 0,
as arrays are: token t of a formula that counts from 1 is row t - 1 here.
"""

import numbers
import operator

import numpy as np

from lineage_lib.validate import finite, real_array


def segment_products(a) -> np.ndarray:
    """The 1-semiseparable mask L of a scalar recurrence.

    L[t, s] = a[t] a[t-1] ... a[s+1] for s <= t (1 on the diagonal), 0 above it. The decay a[s] is
    left out: it acts before input s arrives, so a[0] never matters.

    a  (T,) decays per step, finite, any sign.  Returns (T, T).
    Source: Dao and Gu (2024), Section 3.2.

    >>> segment_products([1.0, 0.5, 0.5])
    array([[1.  , 0.  , 0.  ],
           [0.5 , 1.  , 0.  ],
           [0.25, 0.5 , 1.  ]])
    """
    a = finite("a", real_array("a", a, "T"))
    L = np.zeros((len(a), len(a)))
    for t in range(len(a)):
        L[t, :t] = a[t] * L[t - 1, :t]
        L[t, t] = 1.0
    return L


def segment_log_sums(log_a) -> np.ndarray:
    """The logarithm of :func:`segment_products` for non-negative decays, safe at a reset.

    Entry (t, s) is log_a[s+1] + ... + log_a[t] for s <= t and -inf above the diagonal. It is
    summed directly, never as a difference of two cumulative sums, because after a reset
    (log_a = -inf) that difference would be -inf - (-inf) = NaN.

    log_a  (T,) natural logarithms of the decays per step, finite or -inf.  Returns (T, T).
    """
    log_a = finite("log_a", real_array("log_a", log_a, "T"), or_minus_inf=True)
    T = len(log_a)
    below = np.tril(np.ones((T, T), bool), -1)
    steps = np.where(below, log_a[:, None], 0.0)  # column s holds the steps after s, and zeros
    return np.where(np.tril(np.ones((T, T), bool)), np.cumsum(steps, axis=0), -np.inf)


def ssd_quadratic(X, a, B, C) -> np.ndarray:
    """Y = (L ∘ C Bᵀ) X: the layer as one masked matrix product.

    X (T, P) inputs, a (T,) decays per step, B, C (T, N) input and output vectors.
    Returns Y (T, P).  Source: Dao and Gu (2024), Section 5.1, Equation 16 (state space duality).
    """
    sizes: dict[str, int] = {}
    X = real_array("X", X, "T P", sizes)
    a = finite("a", real_array("a", a, "T", sizes))
    B = real_array("B", B, "T N", sizes)
    C = real_array("C", C, "T N", sizes)
    return (segment_products(a) * (C @ B.T)) @ X


def ssm_matrix(A, B, C) -> np.ndarray:
    """The mixing matrix M of h_t = A_t h_{t-1} + B_t x_t, y_t = C_t · h_t, started at h = 0.

    M[t, s] = C[t] · A[t] A[t-1] ... A[s+1] B[s] for s <= t, 0 above the diagonal.

    A     (T,) one decay per step, (T, N) a diagonal transition, or (T, N, N); finite
    B, C  (T, N) input and output vectors
    Returns (T, T).  Source: Dao and Gu (2024), Section 3.1, equation (3).

    >>> ssm_matrix([0.9, 0.5], [[1.0], [2.0]], [[1.0], [3.0]])
    array([[1. , 0. ],
           [1.5, 6. ]])
    """
    A, B, C = _system(A, B, C, {})
    T, N = B.shape
    M = np.zeros((T, T))
    carried = np.zeros((T, N))  # row s: what input s has left in the state
    for t in range(T):
        carried = _advance(A[t], carried)
        carried[t] = B[t]
        M[t] = carried @ C[t]
    return M


def semiseparable_matvec(A, B, C, x) -> np.ndarray:
    """y = M x for M = ssm_matrix(A, B, C), without M: one pass with a state of N numbers.

    x (T,); A, B, C as in :func:`ssm_matrix`.  Returns (T,).  Time O(N T) for a diagonal A, memory O(N + T).
    """
    sizes: dict[str, int] = {}
    A, B, C = _system(A, B, C, sizes)
    x = real_array("x", x, "T", sizes)
    y, h = np.zeros_like(x), np.zeros(B.shape[1])
    for t in range(len(x)):
        h = _advance(A[t], h) + B[t] * x[t]
        y[t] = C[t] @ h
    return y


def cut_block(M, k: int) -> np.ndarray:
    """The block of M that maps the inputs up to token k to the outputs from token k on.

    M (T, T); k from 0 to T - 1.  Returns M[k:, :k+1], of shape (T - k, k + 1), as a copy.
    """
    M = _square(M)
    try:
        k = operator.index(k)
    except TypeError:
        raise TypeError(f"k: expected an integer, got {k!r}") from None
    if not 0 <= k < len(M):
        raise ValueError(f"k: expected a token from 0 to {len(M) - 1}, got {k}")
    return M[k:, : k + 1].copy()


def cut_ranks(M, rtol: float = 1e-10) -> np.ndarray:
    """The numerical rank of each of the T cut blocks of M.

    A block's rank is the number of its singular values above ``rtol`` times its largest one. The
    largest of the T ranks is the order of M as a semiseparable matrix.

    M (T, T), finite; rtol in [0, 1).  Returns (T,) integers.
    """
    M, rtol = _square(M), _tolerance(rtol)
    sizes = [np.linalg.svd(M[k:, : k + 1], compute_uv=False) for k in range(len(M))]
    return np.array([np.sum(s > rtol * s[0]) for s in sizes], dtype=int)


def realize(M, *, rtol: float = 1e-10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A system (A, B, C) of the smallest state size N with ssm_matrix(A, B, C) = M.

    At each cut the state holds the past inputs in an orthonormal basis of the directions that the
    outputs from there on can see: the row space of the cut block. So every A[t] has norm at most 1.

    M     (T, T) lower triangular, finite
    rtol  directions whose singular value is at most rtol times the Frobenius norm of M are dropped
    Returns A (T, N, N), B (T, N), C (T, N), padded with zeros where a cut needs fewer than N numbers.
    Source: the converse of the semiseparable theorem; Dao and Gu (2024), Proposition 3.4.
    """
    M, rtol = _square(M), _tolerance(rtol)
    above = np.argwhere(np.triu(M, 1))
    if len(above):
        t, s = above[0]
        raise ValueError(f"M: expected a lower-triangular matrix, got {M[t, s]} at index [{t}, {s}]")
    floor = rtol * np.linalg.norm(M)
    bases = []  # bases[k] (r, k + 1): orthonormal rows that span the row space of cut block k
    for k in range(len(M)):
        _, sizes, rows = np.linalg.svd(M[k:, : k + 1], full_matrices=False)
        bases.append(rows[sizes > floor])
    T, N = len(M), max(map(len, bases), default=0)
    A, B, C = np.zeros((T, N, N)), np.zeros((T, N)), np.zeros((T, N))
    for k, basis in enumerate(bases):
        r = len(basis)
        if k > 0:
            A[k, :r, : len(bases[k - 1])] = basis[:, :k] @ bases[k - 1].T
        B[k, :r] = basis[:, k]
        C[k, :r] = basis @ M[k, : k + 1]
    return A, B, C


def diagonal_form(A, B, C, rtol: float = 1e-10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A diagonal system of the same state size and mixing matrix whose decays are all 0 or 1.

    The state becomes N slots. Each slot follows one direction of the old state from token to token;
    when a transition sends a direction to zero, its slot is emptied (decay 0) and follows a new one.
    Decays other than 0 move into B and C, so entries grow or shrink where transitions do.

    A     (T,), (T, N) or (T, N, N), finite; B, C (T, N)
    rtol  an image this small, relative to the transition and to the vector it moved, counts as zero
    Returns A (T, N) of zeros and ones, B (T, N), C (T, N).
    Source: the interval decomposition of a chain of linear maps (the barcode of a persistence module).
    """
    (A, B, C), rtol = _system(A, B, C, {}), _tolerance(rtol)
    T, N = B.shape
    decays, born = np.ones((T, N)), np.zeros(N, int)
    bases = np.tile(np.eye(N), (T, 1, 1))  # bases[t][:, n]: the direction that slot n follows at token t
    for t in range(1, T):
        images = _advance(A[t], bases[t - 1].T).T
        floors = rtol * np.linalg.norm(_advance(A[t], np.eye(N))) * np.linalg.norm(bases[t - 1], axis=0)
        kept: list[int] = []
        for n in np.argsort(born, kind="stable"):  # oldest first: a slot is only corrected by older ones
            weights = np.linalg.pinv(images[:, kept]) @ images[:, n]
            if np.linalg.norm(images[:, n] - images[:, kept] @ weights) > floors[n]:
                kept.append(n)
            else:
                bases[born[n] : t, :, n] -= bases[born[n] : t][:, :, kept] @ weights
        emptied = np.setdiff1d(np.arange(N), kept)
        bases[t] = images
        bases[t][:, emptied] = np.linalg.svd(images[:, kept])[0][:, len(kept) :]  # what no kept slot covers
        decays[t, emptied], born[emptied] = 0.0, t
    return decays, np.linalg.solve(bases, B[..., None])[..., 0], np.einsum("tmn,tm->tn", bases, C)


def causal_softmax(Q, K) -> np.ndarray:
    """The mixing matrix of causal softmax attention: row t weighs the tokens up to t.

    Q, K (T, D) queries and keys.  Returns (T, T), rows summing to 1; scores are divided by sqrt(D).
    """
    sizes: dict[str, int] = {}
    Q = finite("Q", real_array("Q", Q, "T D", sizes))
    K = finite("K", real_array("K", K, "T D", sizes))
    if Q.shape[1] == 0:
        raise ValueError(f"Q: expected shape (T, D) with D of at least 1, got {Q.shape}")
    scores = np.where(np.tril(np.ones((len(Q), len(Q)), bool)), Q @ K.T / np.sqrt(Q.shape[1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=1, keepdims=True)


def _system(A, B, C, sizes: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, C checked against each other; A keeps its one, two or three axes."""
    if not hasattr(A, "ndim"):
        try:
            A = np.asarray(A)
        except ValueError as error:
            raise TypeError("A: expected an array, got rows of different lengths") from error
    if A.ndim not in (1, 2, 3):
        raise ValueError(f"A: expected shape (T,), (T, N) or (T, N, N), got {tuple(A.shape)}")
    A = finite("A", real_array("A", A, ("T", "T N", "T N N")[A.ndim - 1], sizes))
    return A, real_array("B", B, "T N", sizes), real_array("C", C, "T N", sizes)


def _advance(transition: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The states in the rows of h (or the one state h) after one transition: number, diagonal or matrix."""
    return h @ transition.T if transition.ndim == 2 else h * transition


def _square(M) -> np.ndarray:
    return finite("M", real_array("M", M, "T T"))


def _tolerance(rtol) -> float:
    if not isinstance(rtol, numbers.Real):
        raise TypeError(f"rtol: expected a number, got {rtol!r}")
    if not 0 <= rtol < 1:
        raise ValueError(f"rtol: expected a number in [0, 1), got {rtol!r}")
    return float(rtol)
