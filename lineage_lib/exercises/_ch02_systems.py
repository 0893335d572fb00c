"""Chapter 02: the known mistakes of exercises 2.6 to 2.10, on systems (A, B, C)."""

import numpy as np

from lineage_lib.exercises.record import Mistake
from lineage_lib.matrices import semiseparable_matvec, ssm_matrix

# --- 2.6 semiseparable_matvec --------------------------------------------------------------------


def _scan(A, B, C, x, *, order):
    """The recurrence with its three steps in the order of the letters: d decay, w write, r read."""
    y, h = np.zeros(len(x)), np.zeros(B.shape[1])
    for t in range(len(x)):
        for step in order:
            if step == "d":
                h = A[t] * h
            elif step == "w":
                h = h + B[t] * x[t]
            else:
                y[t] = C[t] @ h
    return y


def _divided_scan(A, B, C, x):
    p = np.cumprod(A, axis=0)
    return np.sum(C * p * np.cumsum(B * x[:, None] / p, axis=0), axis=1)


MATVEC = (
    Mistake(
        "read-before-write",
        "y_t was read before x_t was written; y_t = C_t · h_t reads the new state, so x_t counts in y_t",
        lambda A, B, C, x: _scan(A, B, C, x, order="drw"),
    ),
    Mistake(
        "read-before-update",
        "y_t was read before the state was updated, so it is C_t · h_{t-1}; y_t = C_t · h_t reads the new state",
        lambda A, B, C, x: _scan(A, B, C, x, order="rdw"),
    ),
    Mistake(
        "decay-after-write",
        "the decay A_t also shrank the input of the same step; A_t multiplies h_{t-1} only",
        lambda A, B, C, x: _scan(A, B, C, x, order="wdr"),
    ),
    Mistake(
        "decay-one-step-late",
        "the state was written and read first and decayed by A_t afterwards; A_t acts before input t is written",
        lambda A, B, C, x: _scan(A, B, C, x, order="wrd"),
    ),
    Mistake(
        "no-decay",
        "the decays A were not used: the state only adds",
        lambda A, B, C, x: _scan(A, B, C, x, order="wr"),
    ),
    Mistake(
        "b-and-c-swapped",
        "the state was written with C and read with B; B_t writes, C_t reads",
        lambda A, B, C, x: semiseparable_matvec(A, C, B, x),
    ),
    Mistake(
        "divided-by-cumulative-decays",
        "inputs were divided by the product of all decays so far; after a reset, or once that product underflows, "
        "this divides by 0",
        _divided_scan,
    ),
    Mistake(
        "builds-the-matrix",
        "an array of T x T numbers was built; the state alone, N numbers, is enough to go from one token to the next",
        lambda A, B, C, x: ssm_matrix(A, B, C) @ x,
        sign="memory",
    ),
)


# --- 2.7 parallel --------------------------------------------------------------------------------


def blocks(top_left, top_right, bottom_left, bottom_right):
    """The transitions [[top_left, top_right], [bottom_left, bottom_right]]; None is a block of zeros."""
    T, n1, n2 = len(top_left), top_left.shape[1], bottom_right.shape[1]
    A = np.zeros((T, n1 + n2, n1 + n2))
    A[:, :n1, :n1], A[:, n1:, n1:] = top_left, bottom_right
    if top_right is not None:
        A[:, :n1, n1:] = top_right
    if bottom_left is not None:
        A[:, n1:, :n1] = bottom_left
    return A


def _outer(left, right):
    return left[:, :, None] * right[:, None, :]


def _beside(u, v):
    return np.concatenate([u, v], axis=1)


def _dot(u, v):
    return np.sum(u * v, axis=1, keepdims=True)


PARALLEL = (
    Mistake(
        "second-system-lost",
        "the sum equals the first system alone; the second one must be written by B2 and read by C2 too",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A1, None, None, A2), _beside(B1, B2), _beside(C1, 0 * C2)),
    ),
    Mistake(
        "first-system-lost",
        "the sum equals the second system alone; the first one must be written by B1 and read by C1 too",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A1, None, None, A2), _beside(B1, B2), _beside(0 * C1, C2)),
    ),
    Mistake(
        "systems-chained",
        "the second system also takes in the first one's output; side by side, both see only x",
        lambda A1, B1, C1, A2, B2, C2: (
            blocks(A1, None, _outer(B2, np.einsum("tn,tnm->tm", C1, A1)), A2),
            _beside(B1, B2 + B2 * _dot(C1, B1)),
            _beside(C1, C2),
        ),
    ),
    Mistake(
        "readers-misplaced",
        "C lists the second system first and B the first system first; both must follow the same order of the state",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A1, None, None, A2), _beside(B1, B2), _beside(C2, C1)),
    ),
    Mistake(
        "writers-misplaced",
        "B lists the second system first and C the first system first; both must follow the same order of the state",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A1, None, None, A2), _beside(B2, B1), _beside(C1, C2)),
    ),
    Mistake(
        "transitions-misplaced",
        "A lists the second system first, B and C the first; all three must follow the same order of the state",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A2, None, None, A1), _beside(B1, B2), _beside(C1, C2)),
    ),
    Mistake(
        "halved",
        "the two outputs were averaged; the ask is their sum",
        lambda A1, B1, C1, A2, B2, C2: (blocks(A1, None, None, A2), _beside(B1, B2), _beside(C1, C2) / 2),
    ),
)


# --- 2.8 series ----------------------------------------------------------------------------------


def chain(A1, B1, C1, A2, B2, C2):
    """System 1 feeding system 2 within the same step; the state is h1 above h2."""
    coupling = _outer(B2, np.einsum("tn,tnm->tm", C1, A1))
    return blocks(A1, None, coupling, A2), _beside(B1, B2 * _dot(C1, B1)), _beside(0 * C1, C2)


def _chain_undecayed(A1, B1, C1, A2, B2, C2):
    _, B, C = chain(A1, B1, C1, A2, B2, C2)
    return blocks(A1, None, _outer(B2, C1), A2), B, C


def _chain_no_direct_path(A1, B1, C1, A2, B2, C2):
    A, _, C = chain(A1, B1, C1, A2, B2, C2)
    return A, _beside(B1, 0 * B2), C


def _chain_old_state(A1, B1, C1, A2, B2, C2):
    _, _, C = chain(A1, B1, C1, A2, B2, C2)
    return blocks(A1, None, _outer(B2, C1), A2), _beside(B1, 0 * B2), C


def _chain_fed_x(A1, B1, C1, A2, B2, C2):
    A, _, C = chain(A1, B1, C1, A2, B2, C2)
    return A, _beside(B1, B2), C


def _chain_transposed(A1, B1, C1, A2, B2, C2):
    _, B, C = chain(A1, B1, C1, A2, B2, C2)
    return blocks(A1, None, _outer(B2, np.einsum("tmn,tn->tm", A1, C1)), A2), B, C


def _chain_upper_right(A1, B1, C1, A2, B2, C2):
    _, B, C = chain(A1, B1, C1, A2, B2, C2)
    return blocks(A1, _outer(np.einsum("tn,tnm->tm", C1, A1), B2), None, A2), B, C


def _chain_both_read(A1, B1, C1, A2, B2, C2):
    A, B, _ = chain(A1, B1, C1, A2, B2, C2)
    return A, B, _beside(C1, C2)


SERIES = (
    Mistake(
        "old-state-read",
        "u_t was read from the old state, as C1_t · h1_{t-1}; it reads h1_t = A1_t h1_{t-1} + B1_t x_t, so A1_t stands "
        "in the coupling and x_t reaches system 2 within the step",
        _chain_old_state,
    ),
    Mistake(
        "old-state-undecayed",
        "the coupling of system 2 to the old h1 lacks A1_t: u_t = C1_t · h1_t, and h1_t contains A1_t h1_{t-1}",
        _chain_undecayed,
    ),
    Mistake(
        "no-direct-path",
        "x_t does not reach y_t within the step; it does, through B1_t, C1_t and then B2_t",
        _chain_no_direct_path,
    ),
    Mistake(
        "x-fed-directly",
        "system 2 takes in x_t itself within the step; it takes in u_t, where x_t has passed B1_t and C1_t",
        _chain_fed_x,
    ),
    Mistake(
        "transition-transposed",
        "the coupling contains A1_t C1_t; C1_t · (A1_t h) multiplies A1_t by C1_t from the left, C1_tᵀ A1_t",
        _chain_transposed,
    ),
    Mistake(
        "coupling-upper-right",
        "the coupling stands in the upper right block, where system 2 drives system 1; with h1 above h2, system 1 "
        "drives system 2 from the lower left block",
        _chain_upper_right,
    ),
    Mistake(
        "order-reversed",
        "this is M1 M2: system 2 runs first; in M2 M1 x system 1 does",
        lambda A1, B1, C1, A2, B2, C2: chain(A2, B2, C2, A1, B1, C1),
    ),
    Mistake(
        "both-read",
        "u is added to the output, which gives M1 + M2 M1; only system 2's state is read out",
        _chain_both_read,
    ),
)


# --- 2.9 realize ---------------------------------------------------------------------------------


def _realize(M, N, *, basis, carry, read=lambda R, row: R @ row):
    """The construction of the converse with its parts as arguments."""
    T = len(M)
    A, B, C = np.zeros((T, N, N)), np.zeros((T, N)), np.zeros((T, N))
    old = np.zeros((0, 0))
    for k in range(T):
        R = basis(M, N, k)
        step = carry(R, old)
        A[k, : step.shape[0], : step.shape[1]] = step
        B[k, : len(R)] = R[:, -1]
        C[k, : len(R)] = read(R, M[k, : k + 1])
        old = R
    return A, B, C


def _row_basis(M, N, k):
    return np.linalg.svd(M[k:, : k + 1], full_matrices=False)[2][:N]


def _basis_below(M, N, k):
    return np.linalg.svd(M[k + 1 :, : k + 1], full_matrices=False)[2][:N]


def _carry(R, old):
    return R[:, :-1] @ old.T


def _without_singular_values(M, N):
    A, B, C = _realize(M, N, basis=_row_basis, carry=_carry)
    for k in range(len(M)):
        U = np.linalg.svd(M[k:, : k + 1], full_matrices=False)[0]
        C[k, : min(N, U.shape[1])] = U[0, :N]
    return A, B, C


def _scaled_basis(M, N, k):
    _, sizes, rows = np.linalg.svd(M[k:, : k + 1], full_matrices=False)
    return (sizes[:, None] * rows)[:N]


def _transitions_early(M, N):
    A, B, C = _realize(M, N, basis=_row_basis, carry=_carry)
    return np.roll(A, -1, axis=0), B, C


def _first_rows(M, N):
    """Least squares in the first rows of each block; its first row is its own coordinate."""
    return _realize(
        M,
        N,
        basis=lambda M, N, k: M[k : k + N, : k + 1],
        carry=lambda R, old: R[:, :-1] @ np.linalg.pinv(old, rcond=1e-10),
        read=lambda R, row: np.eye(len(R))[0],
    )


def _low_rank(M, N):
    U, s, rows = np.linalg.svd(M)
    A = np.broadcast_to(np.eye(N), (len(M), N, N))
    B, C = np.zeros((len(M), N)), np.zeros((len(M), N))
    r = min(N, len(M))
    B[:, :r], C[:, :r] = rows[:r].T, U[:, :r] * s[:r]
    return A, B, C


REALIZE = (
    Mistake(
        "transition-transposed",
        "the transitions came out transposed; the rows of A_k are the new state's numbers, its columns the old one's",
        lambda M, N: _realize(M, N, basis=_row_basis, carry=lambda R, old: _carry(R, old).T),
    ),
    Mistake(
        "transitions-one-step-early",
        "the transition into step k was stored at k - 1; A[k] carries the state of step k - 1 to step k",
        _transitions_early,
    ),
    Mistake(
        "basis-not-carried",
        "the transitions are identities, but the basis changes from cut to cut and A_k has to translate the old "
        "coordinates into the new ones",
        lambda M, N: _realize(M, N, basis=_row_basis, carry=lambda R, old: np.eye(N)),
    ),
    Mistake(
        "diagonal-excluded",
        "the blocks start below row k; then the basis does not cover row k itself, which C_k must read",
        lambda M, N: _realize(M, N, basis=_basis_below, carry=_carry),
    ),
    Mistake(
        "singular-values-lost",
        "C_k was taken from U alone; the first row of the block is U[0] times the singular values times the basis",
        _without_singular_values,
    ),
    Mistake(
        "singular-values-kept",
        "the rows of the basis carry the singular values, and coordinates were taken as dot products; that is right "
        "for orthonormal rows only, the rows of Vᵀ alone",
        lambda M, N: _realize(M, N, basis=_scaled_basis, carry=_carry),
    ),
    Mistake(
        "first-rows-as-basis",
        "the first N rows of each block were taken as its basis; they need not span its row space: a later row may "
        "bring a direction that they lack",
        _first_rows,
    ),
    Mistake(
        "low-rank-of-the-whole",
        "M itself was approximated by rank N and its upper half cut off; only its cut blocks have rank N",
        _low_rank,
    ),
)


# --- 2.10 taylor_attention -----------------------------------------------------------------------


def features(X, weights):
    """1, the entries and all products of two entries of each row of X, the three groups weighted."""
    pairs = _outer(X, X).reshape(len(X), -1)
    return np.concatenate([w * part for w, part in zip(weights, (np.ones((len(X), 1)), X, pairs))], axis=1)


def feature_system(reads, writes):
    """The system that keeps everything it writes."""
    T, N = writes.shape
    return np.tile(np.eye(N), (T, 1, 1)), writes, reads


def _polynomial(Q, K, weights):
    return feature_system(features(Q, weights), features(K, (1, 1, 1)))


def _normalised(Q, K):
    A, B, C = _polynomial(Q, K, (1, 1, 0.5))
    return A, B, C / _dot(C, np.cumsum(B, axis=0))


def _pairs_once(Q, K):
    i, j = np.triu_indices(Q.shape[1])

    def pairs(X):
        return np.concatenate([np.ones((len(X), 1)), X, X[:, i] * X[:, j]], axis=1)

    return feature_system(pairs(Q) * np.repeat([1, 1, 0.5], [1, Q.shape[1], len(i)]), pairs(K))


def _squares_alone(Q, K):
    def squares(X):
        return np.concatenate([np.ones((len(X), 1)), X, X**2], axis=1)

    D = Q.shape[1]
    return feature_system(squares(Q) * np.repeat([1, 1, 0.5], [1, D, D]), squares(K))


TAYLOR = (
    Mistake(
        "constant-forgotten",
        "this is z + z²/2; the series starts with 1, which takes a feature that is always 1",
        lambda Q, K: _polynomial(Q, K, (0, 1, 0.5)),
    ),
    Mistake(
        "half-forgotten",
        "this is 1 + z + z²; the square has the factor 1/2",
        lambda Q, K: _polynomial(Q, K, (1, 1, 1)),
    ),
    Mistake(
        "half-on-both-sides",
        "this is 1 + z + z²/4: the 1/2 was put into the features of queries and of keys; their product has it twice",
        lambda Q, K: _polynomial(Q, K, (1, 1, 0.25)),
    ),
    Mistake(
        "squares-alone",
        "the square of each entry was used and not the products of different entries; (q1 k1 + q2 k2)² also has the "
        "mixed term 2 q1 q2 k1 k2",
        _squares_alone,
    ),
    Mistake(
        "mixed-terms-once",
        "each product of two different entries was counted once; (q1 k1 + q2 k2)² has 2 q1 q2 k1 k2, so a pair that "
        "is kept once needs the factor 2",
        _pairs_once,
    ),
    Mistake(
        "queries-and-keys-swapped",
        "queries were written and keys read; token s writes its key, token t reads with its query",
        lambda Q, K: _polynomial(K, Q, (1, 1, 0.5)),
    ),
    Mistake(
        "scores-divided",
        "the scores were divided by the square root of D; here z is the dot product itself",
        lambda Q, K: _polynomial(Q / np.sqrt(Q.shape[1]), K, (1, 1, 0.5)),
    ),
    Mistake(
        "normalised",
        "each row was divided by its sum; the ask is the polynomial itself, not normalised",
        _normalised,
    ),
)
