"""Chapter 02: the known mistakes of exercises 2.1 to 2.5, on matrices and their blocks."""

import numpy as np

from lineage_lib.exercises.record import Mistake
from lineage_lib.matrices import segment_products, ssm_matrix

# --- 2.1 segment_products ------------------------------------------------------------------------


def _divided(a):
    p = np.cumprod(a)
    return np.tril(p[:, None] / p[None, :])


def _log_difference(a):
    total = np.cumsum(np.log(a))
    return np.tril(np.exp(total[:, None] - total[None, :]))


SEGMENT_PRODUCTS = (
    Mistake(
        "own-decay-included",
        "each product starts at a_s; it starts at a_{s+1}, because a_s acts before input s arrives "
        "(so the diagonal is 1, an empty product)",
        lambda a: segment_products(a) * np.asarray(a)[None, :],
    ),
    Mistake(
        "zero-diagonal",
        "the diagonal is 0; for t = s there is nothing to multiply, and an empty product is 1",
        lambda a: np.tril(segment_products(a), -1),
    ),
    Mistake(
        "transposed",
        "the products stand above the diagonal; row t is the output and column s the input, so s <= t is below it",
        lambda a: segment_products(a).T,
    ),
    Mistake(
        "both-sides",
        "the entries above the diagonal are filled too; an output reads no later input, so they are 0",
        lambda a: segment_products(a) + segment_products(a).T - np.eye(len(a)),
    ),
    Mistake(
        "from-the-start",
        "every entry of row t is the product of all decays up to t; input s only meets the decays after s",
        lambda a: np.tril(np.repeat(np.cumprod(a)[:, None], len(a), axis=1)),
    ),
    Mistake(
        "one-step-early",
        "this is a_s ... a_{t-1}; the decay to leave out is a_s, the one to keep is a_t",
        lambda a: segment_products(np.roll(a, 1)),
    ),
    Mistake(
        "quotient-of-cumulative-products",
        "this divides two products that start at the first token; after a reset, or once they underflow, it is 0 / 0",
        _divided,
    ),
    Mistake(
        "difference-of-log-sums",
        "this subtracts two sums of logarithms that start at the first token; after a reset it is -inf - (-inf) = NaN",
        _log_difference,
    ),
)


# --- 2.2 scalar_matrix ---------------------------------------------------------------------------


def _scalar(a, b, c):
    return c[:, None] * segment_products(a) * b[None, :]


def _scalar_read_first(a, b, c):
    M = np.zeros((len(a), len(a)))
    M[1:] = c[1:, None] * segment_products(a)[:-1] * b[None, :]
    return M


SCALAR_MATRIX = (
    Mistake(
        "b-and-c-swapped",
        "rows carry b and columns carry c; output t is read with c_t (row) and input s is written with b_s (column)",
        lambda a, b, c: b[:, None] * segment_products(a) * c[None, :],
    ),
    Mistake(
        "c-scales-columns",
        "c was multiplied into the columns; it belongs to the output, so c_t scales row t: give it a new last axis",
        lambda a, b, c: c * segment_products(a) * b,
    ),
    Mistake(
        "matrix-product-for-entrywise",
        "this is a matrix product of L with the table of c_t b_s; the weights multiply L entry by entry",
        lambda a, b, c: segment_products(a) @ np.outer(c, b),
    ),
    Mistake(
        "decays-forgotten",
        "this is c_t b_s without the decays; every entry is multiplied by L[t, s], which is 0 above the diagonal",
        lambda a, b, c: np.outer(c, b),
    ),
    Mistake(
        "decay-after-write",
        "input s is multiplied by its own a_s: the write was decayed too; a_t multiplies the old state only",
        lambda a, b, c: _scalar(a, b, c) * a[None, :],
    ),
    Mistake(
        "read-before-write",
        "output t reads h_{t-1}, the state before this token's write; y_t = c_t h_t reads it after",
        _scalar_read_first,
    ),
    Mistake(
        "b-forgotten",
        "the write weights b are missing; column s is multiplied by b_s",
        lambda a, b, c: _scalar(a, np.ones_like(b), c),
    ),
    Mistake(
        "c-forgotten",
        "the read weights c are missing; row t is multiplied by c_t",
        lambda a, b, c: _scalar(a, b, np.ones_like(c)),
    ),
)


# --- 2.3 diagonal_matrix -------------------------------------------------------------------------

DIAGONAL_MATRIX = (
    Mistake(
        "mean-decay",
        "the N decays of a step were averaged; each of the N numbers keeps its own decay and so its own mask",
        lambda A, B, C: ssm_matrix(A.mean(axis=1), B, C),
    ),
    Mistake(
        "masks-summed-first",
        "the N masks were added before they met C and B; channel n's mask multiplies C[t, n] B[s, n] first, "
        "then the channels are added",
        lambda A, B, C: sum(segment_products(a) for a in A.T) * (C @ B.T),
    ),
    Mistake(
        "decays-multiplied",
        "the N decays of a step were multiplied together; the N numbers decay side by side, not one after the other",
        lambda A, B, C: ssm_matrix(A.prod(axis=1), B, C),
    ),
    Mistake(
        "first-channel-only",
        "one mask, from the first column of A, was used for all N numbers",
        lambda A, B, C: ssm_matrix(A[:, 0], B, C),
    ),
    Mistake(
        "last-channel-only",
        "this is the matrix of the last of the N numbers alone; the N matrices are added up (+=, not =)",
        lambda A, B, C: ssm_matrix(A[:, -1:], B[:, -1:], C[:, -1:]),
    ),
    Mistake(
        "decays-forgotten",
        "this is C_t · B_s without the decays; the n-th summand is multiplied by the segment products of column n",
        lambda A, B, C: np.tril(C @ B.T),
    ),
    Mistake(
        "b-and-c-swapped",
        "B was used on the rows and C on the columns; output t is read with C_t, input s is written with B_s",
        lambda A, B, C: ssm_matrix(A, C, B),
    ),
    Mistake(
        "own-decay-included",
        "input s is multiplied by its own A_s; the products start at A_{s+1}",
        lambda A, B, C: ssm_matrix(A, A * B, C),
    ),
)


# --- 2.4 cut_factors -----------------------------------------------------------------------------


def _factors(A, B, C, k, *, read_from=1, write_to=0, own=False, read_reversed=False, write_reversed=False):
    """The two factors with the product A_t ... A_{k + read_from} and A_{k + write_to} ... A_{s+1}."""
    T, N = B.shape

    def product(last, first, is_reversed):
        P = np.eye(N)
        for t in range(first, last + 1):
            P = P @ A[t] if is_reversed else A[t] @ P
        return P

    reads = [C[t] @ product(t, k + read_from, read_reversed) for t in range(k, T)]
    writes = [product(k + write_to, s + (0 if own else 1), write_reversed) @ B[s] for s in range(k + 1)]
    return np.array(reads), np.array(writes).T


def _factors_columns_reversed(A, B, C, k):
    reading, writing = _factors(A, B, C, k)
    return reading, writing[:, ::-1]


CUT_FACTORS = (
    Mistake(
        "transition-counted-twice",
        "A_k stands in both factors; the split is at h_k, which A_k has already reached, so the reading factor "
        "starts at A_{k+1}",
        lambda A, B, C, k: _factors(A, B, C, k, read_from=0),
    ),
    Mistake(
        "transition-missing",
        "A_k stands in neither factor; inputs before k pass through A_k on their way into h_k",
        lambda A, B, C, k: _factors(A, B, C, k, write_to=-1),
    ),
    Mistake(
        "transition-in-the-reading-factor",
        "A_k was moved into the reading factor, where input k would meet it too; it belongs to the writing factor, "
        "where only inputs before k meet it",
        lambda A, B, C, k: _factors(A, B, C, k, read_from=0, write_to=-1),
    ),
    Mistake(
        "reading-order-reversed",
        "the reading factor multiplies its transitions in the order of time from left to right; the newest stands on "
        "the left, next to C_t, because it acts last",
        lambda A, B, C, k: _factors(A, B, C, k, read_reversed=True),
    ),
    Mistake(
        "writing-order-reversed",
        "the writing factor multiplies its transitions in the order of time from left to right; the newest, A_k, "
        "stands on the left, because it acts last",
        lambda A, B, C, k: _factors(A, B, C, k, write_reversed=True),
    ),
    Mistake(
        "products-reversed",
        "in both factors the transitions are multiplied in the order of time from left to right; the newest stands on "
        "the left, because it acts last",
        lambda A, B, C, k: _factors(A, B, C, k, read_reversed=True, write_reversed=True),
    ),
    Mistake(
        "own-decay-included",
        "input s passes through its own A_s; it arrives after A_s has acted, so its product starts at A_{s+1}",
        lambda A, B, C, k: _factors(A, B, C, k, own=True),
    ),
    Mistake(
        "columns-reversed",
        "the writing factor lists the inputs from the newest to the oldest; column s belongs to input s",
        _factors_columns_reversed,
    ),
)


# --- 2.5 cut_ranks -------------------------------------------------------------------------------


def _ranks(blocks, count):
    return np.array([count(np.linalg.svd(b, compute_uv=False)) if b.size else 0 for b in blocks])


def _above(rtol):
    return lambda s: int(np.sum(s > rtol * s[0]))


CUT_RANKS = (
    Mistake(
        "rows-after-k",
        "the blocks start at row k + 1; the cut block at k includes row k, and with it the diagonal entry",
        lambda M, rtol: _ranks([M[k + 1 :, : k + 1] for k in range(len(M))], _above(rtol)),
    ),
    Mistake(
        "columns-before-k",
        "the blocks stop at column k - 1; the cut block at k includes column k, and with it the diagonal entry",
        lambda M, rtol: _ranks([M[k:, :k] for k in range(len(M))], _above(rtol)),
    ),
    Mistake(
        "rows-and-columns-swapped",
        "these are rows up to k and columns from k on; the future is in the rows and the past in the columns",
        lambda M, rtol: _ranks([M[: k + 1, k:] for k in range(len(M))], _above(rtol)),
    ),
    Mistake(
        "leading-square",
        "these are the ranks of M[:k+1, :k+1], which maps the past to the past; a cut block maps it to the future",
        lambda M, rtol: _ranks([M[: k + 1, : k + 1] for k in range(len(M))], _above(rtol)),
    ),
    Mistake(
        "whole-matrix",
        "this is the rank of all of M, T times; each entry asks for the rank of one block",
        lambda M, rtol: _ranks([M for _ in range(len(M))], _above(rtol)),
    ),
    Mistake(
        "absolute-tolerance",
        "singular values were compared with rtol itself; the bound is rtol times the block's largest singular value",
        lambda M, rtol: _ranks([M[k:, : k + 1] for k in range(len(M))], lambda s: int(np.sum(s > rtol))),
    ),
    Mistake(
        "relative-to-the-whole-matrix",
        "singular values were compared with the largest one of M; each block has its own largest one",
        lambda M, rtol: _ranks(
            [M[k:, : k + 1] for k in range(len(M))], lambda s: int(np.sum(s > rtol * np.linalg.norm(M, 2)))
        ),
    ),
    Mistake(
        "tolerance-ignored",
        "rtol was not used: singular values that are only noise were counted",
        lambda M, rtol: np.array([np.linalg.matrix_rank(M[k:, : k + 1]) for k in range(len(M))]),
    ),
)
