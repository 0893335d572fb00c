"""The matrix views against independent formulas, and what they refuse."""

import re

import numpy as np
import pytest
import torch

from lineage_lib import matrices


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def explicit(A, B, C):
    """M[t, s] = C_t · A_t ... A_{s+1} B_s, one entry and one product at a time."""
    T, N = B.shape
    M = np.zeros((T, T))
    for t in range(T):
        for s in range(t + 1):
            carried = B[s].copy()
            for j in range(s + 1, t + 1):
                step = np.asarray(A[j])
                carried = step * carried if step.ndim < 2 else step @ carried
            M[t, s] = sum(C[t, n] * carried[n] for n in range(N))
    return M


def systems(rng, T, N):
    """A, B, C for each of the three kinds of transition, with a reset in the middle where there is one."""
    for shape in ((T,), (T, N), (T, N, N)):
        A = rng.uniform(-1, 1, shape)
        A[T // 2] = 0.0
        yield A, rng.standard_normal((T, N)), rng.standard_normal((T, N))


def orthogonal(rng, T, N):
    return np.linalg.qr(rng.standard_normal((T, N, N)))[0]


SIZES = [(0, 2), (1, 1), (1, 3), (2, 2), (7, 3), (13, 1), (6, 8)]


@pytest.mark.parametrize("T", [0, 1, 2, 9])
def test_segment_products(rng, T):
    a = rng.uniform(-1, 1, T)
    a[T // 2 : T // 2 + 1] = 0.0
    expected = [[np.prod(a[s + 1 : t + 1]) if s <= t else 0.0 for s in range(T)] for t in range(T)]
    np.testing.assert_allclose(matrices.segment_products(a), np.reshape(expected, (T, T)), rtol=1e-13)


def test_segment_products_do_not_underflow_on_the_way():
    L = matrices.segment_products(np.full(500, 0.01))
    assert np.all(np.diag(L) == 1)
    np.testing.assert_allclose(np.diag(L, -1), 0.01)


def test_segment_products_in_log_space(rng):
    a = rng.uniform(0, 1, 9)
    a[4] = 0.0
    with np.errstate(divide="ignore"):
        sums = matrices.segment_log_sums(np.log(a))
    assert not np.isnan(sums).any()
    np.testing.assert_allclose(np.exp(sums), matrices.segment_products(a), rtol=1e-13)


@pytest.mark.parametrize(("T", "N"), SIZES)
def test_ssm_matrix(rng, T, N):
    for A, B, C in systems(rng, T, N) if T else [(np.zeros((0, N)), np.zeros((0, N)), np.zeros((0, N)))]:
        np.testing.assert_allclose(matrices.ssm_matrix(A, B, C), explicit(A, B, C), atol=1e-13)


def test_ssm_matrix_of_the_four_tokens():
    M = matrices.ssm_matrix([0.9, 0.5, 0.5, 0.25], np.c_[[1, 2, 1, 4]], np.c_[[1, 1, 2, 1]])
    expected = [[1, 0, 0, 0], [1 / 2, 2, 0, 0], [1 / 2, 2, 2, 0], [1 / 16, 1 / 4, 1 / 4, 4]]
    np.testing.assert_array_equal(M, expected)


def test_the_first_transition_never_matters(rng):
    for A, B, C in systems(rng, 5, 2):
        changed = A.copy()
        changed[0] = 17.0
        np.testing.assert_array_equal(matrices.ssm_matrix(A, B, C), matrices.ssm_matrix(changed, B, C))


@pytest.mark.parametrize(("T", "N"), SIZES[1:])
def test_matvec_is_the_matrix_times_x(rng, T, N):
    x = rng.standard_normal(T)
    for A, B, C in systems(rng, T, N):
        np.testing.assert_allclose(matrices.semiseparable_matvec(A, B, C, x), explicit(A, B, C) @ x, atol=1e-12)


def test_lists_tensors_and_single_precision_are_taken(rng):
    A, B, C = next(systems(rng, 4, 2))
    expected = matrices.ssm_matrix(A, B, C)
    np.testing.assert_array_equal(matrices.ssm_matrix(A.tolist(), B.tolist(), torch.from_numpy(C)), expected)
    single = matrices.ssm_matrix(*(v.astype(np.float32) for v in (A, B, C)))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, expected, atol=1e-6)


def test_arguments_are_left_alone(rng):
    A, B, C = list(systems(rng, 6, 2))[2]
    copies = [v.copy() for v in (A, B, C)]
    M = matrices.ssm_matrix(A, B, C)
    matrices.semiseparable_matvec(A, B, C, B[:, 0])
    matrices.diagonal_form(A, B, C)
    matrices.realize(M)
    matrices.cut_block(M, 2)[:] = 0.0
    for now, before in zip((A, B, C), copies):
        np.testing.assert_array_equal(now, before)
    np.testing.assert_array_equal(M, matrices.ssm_matrix(A, B, C))


def test_cut_block_is_the_future_against_the_past():
    M = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(matrices.cut_block(M, 2), [[8, 9, 10], [12, 13, 14]])
    assert matrices.cut_block(M, 0).shape == (4, 1)
    assert matrices.cut_block(M, np.int64(3)).shape == (1, 4)


def test_cut_ranks(rng):
    T, N = 11, 3
    A, B, C = orthogonal(rng, T, N), rng.standard_normal((T, N)), rng.standard_normal((T, N))
    ranks = matrices.cut_ranks(matrices.ssm_matrix(A, B, C))
    np.testing.assert_array_equal(ranks, np.minimum(N, np.minimum(np.arange(T) + 1, T - np.arange(T))))
    assert matrices.cut_ranks(np.eye(5)).tolist() == [1] * 5
    assert matrices.cut_ranks(np.zeros((3, 3))).tolist() == [0, 0, 0]
    assert matrices.cut_ranks(np.zeros((0, 0))).shape == (0,)


def test_cut_ranks_count_relative_to_each_block():
    M = np.array([[1.0, 0, 0], [0, 1, 0], [1e-3, 0, 1]])
    assert matrices.cut_ranks(M, rtol=1e-2).tolist() == [1, 1, 1]
    assert matrices.cut_ranks(1e-30 * M, rtol=1e-4).tolist() == [1, 2, 1]


@pytest.mark.parametrize(("T", "N"), SIZES[1:])
def test_realize_gives_the_smallest_system(rng, T, N):
    for system in systems(rng, T, N):
        M = matrices.ssm_matrix(*system)
        A, B, C = matrices.realize(M)
        size = B.shape[1]
        assert size == matrices.cut_ranks(M).max()
        assert (A.shape, B.shape, C.shape) == ((T, size, size), (T, size), (T, size))
        assert np.linalg.norm(A, ord=2, axis=(1, 2)).max() < 1 + 1e-12
        np.testing.assert_allclose(explicit(A, B, C), M, atol=1e-12 * max(1, np.abs(M).max()))


def test_realize_of_any_triangular_matrix(rng):
    M = np.tril(rng.standard_normal((9, 9)))
    A, B, C = matrices.realize(M)
    assert B.shape == (9, 5)
    np.testing.assert_allclose(explicit(A, B, C), M, atol=1e-12)
    assert matrices.realize(np.zeros((3, 3)))[0].shape == (3, 0, 0)


@pytest.mark.parametrize(("T", "N"), SIZES[1:])
def test_diagonal_form_keeps_the_matrix(rng, T, N):
    for kind, (A, B, C) in enumerate(systems(rng, T, N)):
        A = orthogonal(rng, T, N) if kind == 2 else A
        for t in range(3, T, 4):  # some transitions lose a direction, some lose all
            A[t] = 0.0 if kind < 2 or t % 8 == 3 else A[t] @ np.diag([0.0] + [1.0] * (N - 1))
        slots, b, c = matrices.diagonal_form(A, B, C)
        assert set(np.unique(slots)) <= {0.0, 1.0}
        np.testing.assert_allclose(explicit(slots, b, c), explicit(A, B, C), atol=1e-10)


def test_diagonal_form_corrects_a_younger_slot():
    """The transition kills the difference of two directions: the younger one is redefined, and its slot emptied."""
    A = np.array([np.eye(2), [[1, 0], [0, 0]], [[1, 1], [0, 0]]])
    B, C = np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[1.0, -1], [2, 3], [4, 5]])
    slots, b, c = matrices.diagonal_form(A, B, C)
    assert slots.tolist() == [[1, 1], [1, 0], [1, 0]]
    np.testing.assert_allclose(explicit(slots, b, c), explicit(A, B, C), atol=1e-12)


def test_causal_softmax(rng):
    Q, K = rng.standard_normal((2, 6, 3))
    M = matrices.causal_softmax(Q, K)
    for t in range(6):
        weights = np.array([np.exp(Q[t] @ K[s] / np.sqrt(3)) for s in range(t + 1)])
        np.testing.assert_allclose(M[t, : t + 1], weights / weights.sum(), rtol=1e-12)
        assert np.all(M[t, t + 1 :] == 0)
    assert np.isfinite(matrices.causal_softmax(1e4 * Q, K)).all()
    assert matrices.causal_softmax(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 0)


ONES = np.ones((3, 2))
BAD_INPUT = [
    ("segment_products", (ONES,), ValueError, "a: expected shape (T,), got (3, 2)"),
    ("segment_products", ([1.0, np.inf],), ValueError, "a: expected finite values, got inf at index [1]"),
    ("segment_products", (["x"],), TypeError, "a: expected real numbers"),
    ("ssm_matrix", (np.ones(()), ONES, ONES), ValueError, "A: expected shape (T,), (T, N) or (T, N, N), got ()"),
    ("ssm_matrix", (np.ones((3, 2, 2, 2)), ONES, ONES), ValueError, "A: expected shape (T,), (T, N) or (T, N, N)"),
    ("ssm_matrix", (np.ones((3, 2, 3)), ONES, ONES), ValueError, "A: expected shape (T, N, N) with N = 2, got"),
    ("ssm_matrix", ([[1, 2], [3]], ONES, ONES), TypeError, "A: expected an array, got rows of different lengths"),
    ("ssm_matrix", (ONES * np.nan, ONES, ONES), ValueError, "A: expected finite values, got nan at index [0, 0]"),
    ("ssm_matrix", (ONES * 1j, ONES, ONES), TypeError, "A: expected real numbers, got dtype complex128"),
    ("ssm_matrix", (ONES, ONES[:2], ONES), ValueError, "B: expected shape (T, N) with T = 3 as in the earlier"),
    ("ssm_matrix", (ONES, ONES, ONES[:, :1]), ValueError, "C: expected shape (T, N) with N = 2 as in the earlier"),
    ("ssm_matrix", (ONES[:, 0], ONES[:, 0], ONES), ValueError, "B: expected shape (T, N), got (3,)"),
    ("semiseparable_matvec", (ONES, ONES, ONES, ONES), ValueError, "x: expected shape (T,), got (3, 2)"),
    ("semiseparable_matvec", (ONES, ONES, ONES, np.ones(4)), ValueError, "x: expected shape (T,) with T = 3"),
    ("semiseparable_matvec", (ONES - np.inf, ONES, ONES, np.ones(3)), ValueError, "A: expected finite values"),
    ("cut_block", (ONES, 0), ValueError, "M: expected shape (T, T) with T = 3, got (3, 2)"),
    ("cut_block", (np.eye(3), 3), ValueError, "k: expected a token from 0 to 2, got 3"),
    ("cut_block", (np.eye(3), -1), ValueError, "k: expected a token from 0 to 2, got -1"),
    ("cut_block", (np.eye(3), 1.0), TypeError, "k: expected an integer, got 1.0"),
    ("cut_ranks", (ONES,), ValueError, "M: expected shape (T, T)"),
    ("cut_ranks", (np.eye(2) * np.nan,), ValueError, "M: expected finite values"),
    ("cut_ranks", (np.eye(2), 1.0), ValueError, "rtol: expected a number in [0, 1), got 1.0"),
    ("cut_ranks", (np.eye(2), np.nan), ValueError, "rtol: expected a number in [0, 1), got nan"),
    ("cut_ranks", (np.eye(2), "1e-3"), TypeError, "rtol: expected a number, got '1e-3'"),
    ("realize", (np.ones((2, 2)),), ValueError, "M: expected a lower-triangular matrix, got 1.0 at index [0, 1]"),
    ("realize", (np.ones(4),), ValueError, "M: expected shape (T, T), got (4,)"),
    ("diagonal_form", (ONES, ONES, ONES[:2]), ValueError, "C: expected shape (T, N) with T = 3"),
    ("diagonal_form", (ONES * np.inf, ONES, ONES), ValueError, "A: expected finite values"),
    ("causal_softmax", (ONES, ONES[:, :1]), ValueError, "K: expected shape (T, D) with D = 2 as in the earlier"),
    ("causal_softmax", (ONES * np.nan, ONES), ValueError, "Q: expected finite values"),
    ("causal_softmax", (np.ones((3, 0)), np.ones((3, 0))), ValueError, "Q: expected shape (T, D) with D of at least 1"),
    ("ssd_quadratic", (ONES, np.ones(2), ONES, ONES), ValueError, "a: expected shape (T,) with T = 3"),
    ("segment_log_sums", ([0.0, np.nan],), ValueError, "log_a: expected finite or -inf (a reset) values, got nan"),
]


@pytest.mark.parametrize(("name", "args", "kind", "sentence"), BAD_INPUT)
def test_bad_input_is_refused_with_a_sentence(name, args, kind, sentence):
    with pytest.raises(kind, match=re.escape(sentence)):
        getattr(matrices, name)(*args)


def test_realize_takes_its_tolerance_by_name_alone():
    """A learner's own realize(M, N) has another second argument."""
    with pytest.raises(TypeError):
        matrices.realize(np.eye(2), 2)
    with pytest.raises(ValueError, match=re.escape("rtol: expected a number in [0, 1), got -0.001")):
        matrices.realize(np.eye(2), rtol=-1e-3)
