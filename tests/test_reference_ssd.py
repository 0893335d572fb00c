"""The reference recurrences: values by hand, equality with the matrix forms, bad input refused by name."""

import numpy as np
import pytest
import torch

from lineage_lib import matrices
from lineage_lib.reference import diagonal_recurrent, linear_attention, ssd_recurrent

SHAPES = [(0, 3, 2), (1, 1, 1), (1, 3, 2), (2, 1, 4), (5, 3, 2), (17, 2, 6), (64, 8, 3), (256, 64, 64)]


def draw(T, N, P, seed=0):
    """(X, a, B, C) with decays of both signs."""
    rng = np.random.default_rng([seed, T, N, P])
    a = rng.uniform(0.5, 1, T) * rng.choice([1, 1, -1], T)
    return rng.standard_normal((T, P)), a, rng.standard_normal((T, N)), rng.standard_normal((T, N))


def close(got, expected):
    """Rounding grows with the number of terms added; 1e-12 of the largest entry leaves room for 10⁴ of them."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype == np.float64
    assert np.abs(got - expected).max(initial=0) <= 1e-12 * max(1, np.abs(expected).max(initial=0))


def test_adas_room_by_hand():
    ada, bo = [1, 0], [0, 1]
    Y, S = ssd_recurrent([[31], [12], [47], [0]], [0.5, 0.5, 0.5, 1], [ada, bo, ada, [0, 0]], [ada, bo, ada, ada])
    assert Y.ravel().tolist() == [31, 12, 54.75, 54.75]
    assert S.ravel().tolist() == [54.75, 6]


@pytest.mark.parametrize(("T", "N", "P"), SHAPES)
def test_recurrent_equals_quadratic(T, N, P):
    X, a, B, C = draw(T, N, P)
    Y, S = ssd_recurrent(X, a, B, C)
    assert S.shape == (N, P)
    close(Y, matrices.ssd_quadratic(X, a, B, C))


@pytest.mark.parametrize("resets", [(0,), (4,), (2, 3), (6,)])
def test_nothing_crosses_a_reset(resets):
    X, a, B, C = draw(7, 3, 2)
    a[list(resets)] = 0
    S0 = np.ones((3, 2))
    Y, S = ssd_recurrent(X, a, B, C, S0)
    last = max(resets)
    after, S_after = ssd_recurrent(X[last:], a[last:], B[last:], C[last:])
    close(Y[last:], after)
    close(S, S_after)


def test_no_decay_is_linear_attention():
    for shape in SHAPES:
        X, _, B, C = draw(*shape)
        close(linear_attention(C, B, X), ssd_recurrent(X, np.ones(len(X)), B, C)[0])
        close(linear_attention(C, B, X), np.tril(C @ B.T) @ X)


@pytest.mark.parametrize("cut", range(8))
def test_split_and_resumed_equals_whole(cut):
    X, a, B, C = draw(7, 3, 2)
    S0 = np.arange(6.0).reshape(3, 2)
    Y, S = ssd_recurrent(X, a, B, C, S0)
    first, carried = ssd_recurrent(X[:cut], a[:cut], B[:cut], C[:cut], S0)
    second, last = ssd_recurrent(X[cut:], a[cut:], B[cut:], C[cut:], carried)
    close(np.concatenate([first, second]), Y)
    close(last, S)


@pytest.mark.parametrize(("T", "N", "P"), SHAPES[:-1])
def test_initial_state_adds_what_the_lemma_says(T, N, P):
    X, a, B, C = draw(T, N, P)
    S0 = draw(N, 1, P)[0]
    close(ssd_recurrent(X, a, B, C, S0)[0], matrices.ssd_quadratic(X, a, B, C) + np.cumprod(a)[:, None] * (C @ S0))


@pytest.mark.parametrize(("T", "N", "P"), SHAPES)
def test_equal_diagonal_decays_are_one_decay(T, N, P):
    X, a, B, C = draw(T, N, P)
    Y, S = ssd_recurrent(X, a, B, C)
    for A in (np.repeat(a[:, None], N, axis=1), np.broadcast_to(a[:, None, None], (T, N, P))):
        Y_diagonal, S_diagonal = diagonal_recurrent(X, A, B, C)
        close(Y_diagonal, Y)
        close(S_diagonal, S)


def test_diagonal_is_a_sum_of_heads_of_state_size_one():
    X, _, B, C = draw(11, 4, 3)
    A = np.random.default_rng(1).uniform(0, 1, (11, 4))
    A[5, 2] = 0
    heads = [matrices.ssd_quadratic(X, A[:, n], B[:, [n]], C[:, [n]]) for n in range(4)]
    close(diagonal_recurrent(X, A, B, C)[0], sum(heads))


def test_mamba1_channels_run_apart():
    X, _, B, C = draw(9, 4, 3)
    A, S0 = np.random.default_rng(1).uniform(0, 1, (9, 4, 3)), np.ones((4, 3))
    Y, S = diagonal_recurrent(X, A, B, C, S0)
    for p in range(3):
        y, s = diagonal_recurrent(X[:, [p]], A[:, :, p], B, C, S0[:, [p]])
        close(y, Y[:, [p]])
        close(s, S[:, [p]])


def test_inputs_are_kept_and_other_arrays_are_welcome():
    X, a, B, C = draw(6, 3, 2)
    S0 = np.ones((3, 2))
    before = [z.copy() for z in (X, a, B, C, S0)]
    Y, S = ssd_recurrent(X, a, B, C, S0)
    assert all(np.array_equal(now, then) for now, then in zip((X, a, B, C, S0), before))
    assert S is not S0
    close(ssd_recurrent(torch.tensor(X), a.tolist(), np.asfortranarray(B), C, S0)[0], Y)
    close(diagonal_recurrent(X, torch.tensor(B), B, C)[0], diagonal_recurrent(X, B.tolist(), B, C)[0])


def test_an_empty_sequence_returns_the_initial_state_as_a_new_array():
    X, a, B, C = draw(0, 3, 2)
    S0 = np.ones((3, 2))
    Y, S = ssd_recurrent(X, a, B, C, S0)
    assert Y.shape == (0, 2)
    S += 1
    assert (S0 == 1).all()


GOOD = dict(zip(("X", "a", "B", "C"), draw(5, 3, 2)), S0=np.zeros((3, 2)))
GOOD_DIAGONAL = {("A" if k == "a" else k): v for k, v in GOOD.items()} | {"A": np.ones((5, 3))}
GOOD_ATTENTION = dict(zip(("Q", "K", "V"), (GOOD["C"], GOOD["B"], GOOD["X"])))


@pytest.mark.parametrize(
    ("function", "arguments", "name", "value", "error", "words"),
    [
        (ssd_recurrent, GOOD, "X", np.ones(5), ValueError, r"X: expected shape \(T, P\), got \(5,\)"),
        (ssd_recurrent, GOOD, "X", [["a"]], TypeError, "X: expected real numbers"),
        (ssd_recurrent, GOOD, "a", np.ones((5, 1)), ValueError, r"a: expected shape \(T,\), got \(5, 1\)"),
        (ssd_recurrent, GOOD, "a", np.ones(4), ValueError, r"a: expected shape \(T,\) with T = 5"),
        (
            ssd_recurrent,
            GOOD,
            "a",
            [1, 1, np.nan, 1, 1],
            ValueError,
            r"a: expected finite values, got nan at index \[2\]",
        ),
        (ssd_recurrent, GOOD, "a", [1, 1, 1, 1, -np.inf], ValueError, "a: expected finite values, got -inf"),
        (ssd_recurrent, GOOD, "B", np.ones((4, 3)), ValueError, r"B: expected shape \(T, N\) with T = 5"),
        (ssd_recurrent, GOOD, "B", [[1, 2], [3]], TypeError, "B: expected an array, got rows of different lengths"),
        (ssd_recurrent, GOOD, "C", np.ones((5, 4)), ValueError, r"C: expected shape \(T, N\) with N = 3"),
        (
            ssd_recurrent,
            GOOD,
            "C",
            np.ones((5, 3), complex),
            TypeError,
            "C: expected real numbers, got dtype complex128",
        ),
        (ssd_recurrent, GOOD, "S0", np.ones((2, 3)), ValueError, r"S0: expected shape \(N, P\) with N = 3"),
        (ssd_recurrent, GOOD, "S0", np.full((3, 2), np.inf), ValueError, "S0: expected finite values"),
        (diagonal_recurrent, GOOD_DIAGONAL, "A", np.ones(5), ValueError, r"A: expected shape \(T, N\), got \(5,\)"),
        (diagonal_recurrent, GOOD_DIAGONAL, "A", np.ones((5, 2)), ValueError, r"A: expected shape \(T, N\) with N = 3"),
        (diagonal_recurrent, GOOD_DIAGONAL, "A", np.ones((5, 3, 4)), ValueError, r"A: expected .* with P = 2"),
        (diagonal_recurrent, GOOD_DIAGONAL, "A", np.full((5, 3), np.nan), ValueError, "A: expected finite values"),
        (diagonal_recurrent, GOOD_DIAGONAL, "A", [[1, 2], [3]], TypeError, "A: expected an array"),
        (diagonal_recurrent, GOOD_DIAGONAL, "S0", np.ones(3), ValueError, "S0: expected shape"),
        (linear_attention, GOOD_ATTENTION, "K", np.ones((5, 2)), ValueError, r"K: expected shape \(T, N\) with N = 3"),
        (linear_attention, GOOD_ATTENTION, "V", np.ones((6, 2)), ValueError, r"V: expected shape \(T, P\) with T = 5"),
        (linear_attention, GOOD_ATTENTION, "Q", None, TypeError, "Q: expected real numbers"),
    ],
)
def test_bad_input_is_refused_by_name(function, arguments, name, value, error, words):
    with pytest.raises(error, match=f"^{words}"):
        function(**(arguments | {name: value}))
