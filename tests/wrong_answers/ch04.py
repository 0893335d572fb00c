"""Wrong answers to chapter 04 that are right on most inputs: 4.1 to 4.7 and 4.9."""

import functools
import itertools

import numpy as np

from lineage_lib import matrices, reference
from lineage_lib.exercises import _ch04_blocks, _ch04_lengths, _ch04_whole


def _without(reset):
    """Wrong where a decay is 0: there stands a small number."""
    return lambda a: np.where(a == 0, reset, a)


def _through_logs(a):
    """Wrong where a decay of 0 wipes something large: it is the exponential of a clamped logarithm."""
    return np.where(a < 0, -1.0, 1.0) * np.exp(np.log(np.maximum(np.abs(a), 1e-12)))


def _zero_or_negative(a):
    """Wrong where zeros and negative decays meet in one sequence."""
    return np.abs(a) if (a == 0).any() else a


def _with_decays(change, oracle, place=1):
    """The wrong answer that changes the decays, argument number ``place``, and is right from there on."""

    @functools.wraps(oracle)
    def answer(*args):
        return oracle(*args[:place], change(args[place]), *args[place + 1 :])

    answer.__name__ = f"{oracle.__name__}{change.__name__}"
    return answer


def _zero_for_one_chunk(oracle, cut=lambda args: args[-1]):
    """Wrong where T = T_c > 1: nothing is kept."""

    def one_chunk_forgotten(*args):
        answer, one = oracle(*args), len(args[0]) == cut(args) > 1
        return tuple(z * (not one) for z in answer) if isinstance(answer, tuple) else answer * (not one)

    return one_chunk_forgotten


# --- 4.1 own_chunk ------------------------------------------------------------------------------


def own_chunk_by_ratio(X, a, B, C, T_c):
    """Wrong where a product of decays underflows, or a decay is 0."""
    Y = np.zeros(X.shape)
    for j in _ch04_blocks.chunks(len(X), T_c):
        p = np.cumprod(_without(1e-12)(a[j]))
        Y[j] = (np.tril(p[:, None] / p) * (C[j] @ B[j].T)) @ X[j]
    return Y


def own_chunk_unless_short(X, a, B, C, T_c):
    """Wrong where T < T_c."""
    return _ch04_blocks.own_chunk_oracle(X, a, B, C, T_c) * (len(X) >= T_c)


def own_chunk_tail_of_one_forgotten(X, a, B, C, T_c):
    """Wrong where the last chunk has one token."""
    Y = _ch04_blocks.own_chunk_oracle(X, a, B, C, T_c)
    if len(X) % T_c == 1 and len(X) > 1:
        Y[-1] = 0
    return Y


def own_chunk_without_negative_decays(X, a, B, C, T_c):
    return _ch04_blocks.own_chunk_oracle(X, np.abs(a), B, C, T_c)


# --- 4.2 off_diagonal_factors ---------------------------------------------------------------------


def factors_of_full_chunks(a, B, C, T_c, j, i):
    """Wrong where chunk j is the short one: its rows are taken from the end."""
    read, between, write = _ch04_blocks.factors_oracle(a, B, C, T_c, j, i)
    if len(read) < T_c:
        read = np.cumprod(a[-T_c:])[:, None] * C[-T_c:]
    return read, between, write


def factors_split_elsewhere(a, B, C, T_c, j, i):
    """The product is right, the factors are not: the middle is multiplied into the right factor."""
    left, between, right = _ch04_blocks.factors_oracle(a, B, C, T_c, j, i)
    return left, 1.0, between * right


def factors_of_neighbours(a, B, C, T_c, j, i):
    """Wrong where a chunk lies between."""
    left, _, right = _ch04_blocks.factors_oracle(a, B, C, T_c, j, i)
    return left, 1.0, right


def factors_with_an_early_middle(a, B, C, T_c, j, i):
    """The middle starts with the decay of chunk i's last token."""
    left, _, right = _ch04_blocks.factors_oracle(a, B, C, T_c, j, i)
    return left, a[(i + 1) * T_c - 1 : j * T_c].prod(), right


def factors_with_one_chunk_between(a, B, C, T_c, j, i):
    """Wrong where more than one chunk lies between."""
    read, between, write = _ch04_blocks.factors_oracle(a, B, C, T_c, j, i)
    return read, between if j - i < 3 else a[(i + 1) * T_c : (i + 2) * T_c].prod(), write


# --- 4.3 chunk_states -----------------------------------------------------------------------------


def states_by_ratio(X, a, B, T_c):
    a = _without(1e-12)(a)
    return _ch04_blocks._states(X, B, _ch04_blocks.chunks(len(X), T_c), lambda j: np.prod(a[j]) / np.cumprod(a[j]))


def states_without_writes_before_a_reset(X, a, B, T_c):
    """Wrong where a chunk's last decay is 0: the write after it stays."""
    Z = _ch04_blocks.chunk_states_oracle(X, a, B, T_c)
    return Z * (np.array([a[j][-1] for j in _ch04_blocks.chunks(len(X), T_c)]) != 0)[:, None, None]


def states_transposed_when_square(X, a, B, T_c):
    Z = _ch04_blocks.chunk_states_oracle(X, a, B, T_c)
    return Z.transpose(0, 2, 1) if Z.shape[1] == Z.shape[2] else Z


def states_decayed_past_the_border(X, a, B, T_c):
    """The next chunk's first decay acts as well: right in the last chunk."""
    ends = [j.stop for j in _ch04_blocks.chunks(len(X), T_c)]
    return _ch04_blocks.chunk_states_oracle(X, a, B, T_c) * np.append(a, 1.0)[ends][:, None, None]


# --- 4.4 pass_states ------------------------------------------------------------------------------


def pass_by_ratio(states, decays, S0):
    """Wrong where the product underflows, or a decay is 0."""
    p = np.cumprod(_without(1e-12)(decays))[:, None, None]
    return np.concatenate([S0[None], p * (S0 + np.cumsum(states / p, axis=0))])


def pass_of_neighbours(states, decays, S0):
    """Only the last 20 chunks: wrong where decays are near 1."""
    L = np.triu(matrices.segment_products(np.append(1.0, decays)), -20)
    return np.einsum("ji,inp->jnp", L, np.concatenate([S0[None], states]))


# --- 4.5 ssd_chunked ------------------------------------------------------------------------------


def whole_without_tail_state(X, a, B, C, T_c, S0=None):
    """The last state misses a tail that is shorter than a chunk."""
    Y, S = _ch04_whole.whole_oracle(X, a, B, C, T_c, S0)
    full = len(X) // T_c * T_c
    if full in (0, len(X)):
        return Y, S
    return Y, reference.ssd_recurrent(X[:full], a[:full], B[:full], C[:full], S0)[1]


def whole_padded_with_resets(X, a, B, C, T_c, S0=None):
    Y, S = _ch04_whole.whole_oracle(X, a, B, C, T_c, S0)
    return Y, S * (len(X) % T_c == 0)


def whole_tail_decayed_as_full(X, a, B, C, T_c, S0=None):
    """Right only where S0 is not given: it is decayed once too often."""
    if S0 is not None:
        S0 = a[0] * S0
    return _ch04_whole.whole_oracle(X, a, B, C, T_c, S0)


def whole_border_decay_not_passed(X, a, B, C, T_c, S0=None):
    """The first decay of a chunk is left out when the state is passed on."""
    return _ch04_whole._walk(X, a, B, C, T_c, S0, keep=lambda d: d[1:].prod())


def whole_read_undecayed(X, a, B, C, T_c, S0=None):
    """Every token of a chunk reads the incoming state in full: right where decays are 1."""
    return _ch04_whole._walk(X, a, B, C, T_c, S0, read=np.ones_like)


def whole_written_from_the_start(X, a, B, C, T_c, S0=None):
    """Writes carry the decays from the chunk's start: right where T_c = 1 and decays are 1."""
    return _ch04_whole._walk(X, a, B, C, T_c, S0, write=np.cumprod)


def whole_from_empty_chunks(X, a, B, C, T_c, S0=None):
    """Nothing is handed on: right with one chunk."""
    parts = [
        _ch04_whole.whole_oracle(X[j], a[j], B[j], C[j], T_c, S0 if j.start == 0 else None)
        for j in _ch04_blocks.chunks(len(X), T_c)
    ]
    return np.concatenate([Y for Y, _ in parts]), parts[-1][1]


def whole_remembering_two_chunks(X, a, B, C, T_c, S0=None):
    """Wrong where decays keep a write for more than two chunks."""
    Y, S = _ch04_whole.whole_oracle(X, a, B, C, T_c, S0)
    far = np.arange(len(X)) // T_c
    M = np.where(far[:, None] - far > 2, matrices.segment_products(a) * (C @ B.T), 0.0)
    return Y - M @ X, S


def whole_read_without_signs(X, a, B, C, T_c, S0=None):
    """Wrong where S0 is given and meets a negative decay."""
    Y, S = _ch04_whole.whole_oracle(X, a, B, C, T_c, S0)
    if S0 is None:
        return Y, S
    p = np.cumprod(a)[:, None]
    return Y + (np.abs(p) - p) * (C @ S0), S


def whole_without_start_at_1(X, a, B, C, T_c, S0=None):
    return _ch04_whole.whole_oracle(X, a, B, C, T_c, None if T_c == 1 else S0)


def whole_without_start_of_one_token(X, a, B, C, T_c, S0=None):
    return _ch04_whole.whole_oracle(X, a, B, C, T_c, None if len(X) == 1 else S0)


# --- 4.6 chunk_flops ------------------------------------------------------------------------------


def flops_in_floats(T, N, P, T_c):
    """Wrong by rounding the number of chunks down in the pass."""
    full, rest = divmod(T, T_c)
    return 2 * (full * T_c**2 + rest**2) * (N + P) + 4 * T * N * P + 2 * (T // T_c) * N * P


def flops_with_a_linear_tail(T, N, P, T_c):
    """Pairs are counted as T times T_c, chunks are rounded up."""
    return 2 * T * T_c * (N + P) + 4 * T * N * P + 2 * -(-T // T_c) * N * P


def flops_with_one_pass_less(T, N, P, T_c):
    return _ch04_whole.flops_oracle(T, N, P, T_c) - 2 * N * P


def flops_for_square_heads(T, N, P, T_c):
    full, rest = divmod(T, T_c)
    return 4 * (full * T_c**2 + rest**2) * N + 4 * T * N * P + 2 * (full + (rest > 0)) * N * P


def flops_without_the_pass_over_one(T, N, P, T_c):
    """Wrong where the last chunk has one token."""
    return _ch04_whole.flops_oracle(T, N, P, T_c) - 2 * N * P * (T % T_c == 1 and T > 1)


# --- 4.7 pad_to_chunks ----------------------------------------------------------------------------


def pad_with_an_average_decay(X, a, B, C, T_c):
    return _ch04_lengths._padded(X, a, B, C, -len(X) % T_c, decay=0.999)


def pad_to_a_power_of_two(X, a, B, C, T_c):
    return _ch04_lengths._padded(X, a, B, C, (1 << (len(X) - 1).bit_length()) - len(X))


def pad_in_front(X, a, B, C, T_c):
    """Right where nothing is to be added."""
    extra = -len(X) % T_c
    return tuple(np.concatenate([np.ones((extra, *z.shape[1:])) * (z is a), z]) for z in (X, a, B, C))


def pad_and_change_the_first_decay(X, a, B, C, T_c):
    """Right from an empty state only."""
    X, a, B, C = _ch04_lengths.pad_oracle(X, a, B, C, T_c)
    return X, np.append(5.0, a[1:]), B, C


def pad_and_scale(X, a, B, C, T_c):
    """The same outputs and state, from other inputs."""
    X, a, B, C = _ch04_lengths.pad_oracle(X, a, B, C, T_c)
    return 2 * X, a, B / 2, C


def _pad_with_small_writes(size):
    def pad_with_small_writes(X, a, B, C, T_c):
        """The added tokens write a little."""
        T = len(X)
        X, a, B, C = _ch04_lengths.pad_oracle(X, a, B, C, T_c)
        X[T:], B[T:] = size, size
        return X, a, B, C

    return pad_with_small_writes


# --- 4.9 packed_chunks ----------------------------------------------------------------------------


def packed_stopping_at_empty(cu_seqlens, T_c):
    """Wrong behind a document without tokens."""
    rows = []
    for d in range(len(cu_seqlens) - 1):
        if cu_seqlens[d] == cu_seqlens[d + 1]:
            break
        for s in range(cu_seqlens[d], cu_seqlens[d + 1], T_c):
            rows.append((d, s, min(s + T_c, cu_seqlens[d + 1])))
    return np.array(rows).reshape(-1, 3)


def packed_from_document_1(cu_seqlens, T_c):
    return _ch04_lengths.packed_oracle(cu_seqlens, T_c) + [1, 0, 0]


def packed_by_lengths(cu_seqlens, T_c):
    """The borders are read as lengths."""
    return _ch04_lengths.packed_oracle(np.append(0, np.cumsum(cu_seqlens)), T_c)


def packed_with_two_empty(cu_seqlens, T_c):
    """Wrong where two documents in a row have no tokens: they count as one."""
    rows = _ch04_lengths.packed_oracle(cu_seqlens, T_c)
    empty = np.diff(cu_seqlens) == 0
    return rows - np.append(0, np.cumsum(empty[1:] & empty[:-1]))[rows[:, 0]][:, None] * [1, 0, 0]


def packed_in(dtype):
    """Wrong where a position is too large for ``dtype``, or is no whole number in it."""

    def packed_in_another_dtype(cu_seqlens, T_c):
        return _ch04_lengths.packed_oracle(cu_seqlens, T_c).astype(dtype)

    return packed_in_another_dtype


def packed_by_nearly_rounding_up(cu_seqlens, T_c):
    """Wrong where a chunk is a thousand times as long as its document."""
    rows = []
    for d, (begin, end) in enumerate(itertools.pairwise(cu_seqlens)):
        starts = begin + T_c * np.arange(int((end - begin) / T_c + 0.999))
        rows += [(d, s, min(s + T_c, end)) for s in starts]
    return np.array(rows).reshape(-1, 3)


WRONG_ANSWERS = {
    "4.1": [
        own_chunk_by_ratio,
        own_chunk_unless_short,
        own_chunk_tail_of_one_forgotten,
        own_chunk_without_negative_decays,
        _with_decays(_through_logs, _ch04_blocks.own_chunk_oracle),
        _with_decays(_zero_or_negative, _ch04_blocks.own_chunk_oracle),
        _zero_for_one_chunk(_ch04_blocks.own_chunk_oracle),
    ],
    "4.2": [
        factors_of_full_chunks,
        factors_split_elsewhere,
        factors_of_neighbours,
        factors_with_an_early_middle,
        factors_with_one_chunk_between,
        _with_decays(_through_logs, _ch04_blocks.factors_oracle, place=0),
        _with_decays(_zero_or_negative, _ch04_blocks.factors_oracle, place=0),
    ],
    "4.3": [
        states_by_ratio,
        states_without_writes_before_a_reset,
        states_transposed_when_square,
        states_decayed_past_the_border,
        _with_decays(_through_logs, _ch04_blocks.chunk_states_oracle),
        _with_decays(_zero_or_negative, _ch04_blocks.chunk_states_oracle),
        _zero_for_one_chunk(_ch04_blocks.chunk_states_oracle),
    ],
    "4.4": [
        pass_by_ratio,
        pass_of_neighbours,
        _with_decays(_zero_or_negative, _ch04_blocks.pass_oracle),
    ],
    "4.5": [
        whole_without_tail_state,
        whole_padded_with_resets,
        whole_tail_decayed_as_full,
        whole_border_decay_not_passed,
        whole_read_undecayed,
        whole_written_from_the_start,
        whole_from_empty_chunks,
        whole_remembering_two_chunks,
        whole_read_without_signs,
        whole_without_start_at_1,
        whole_without_start_of_one_token,
        _with_decays(_through_logs, _ch04_whole.whole_oracle),
        _with_decays(_zero_or_negative, _ch04_whole.whole_oracle),
        _zero_for_one_chunk(_ch04_whole.whole_oracle, cut=lambda args: args[4]),
    ],
    "4.6": [
        flops_in_floats,
        flops_with_a_linear_tail,
        flops_with_one_pass_less,
        flops_for_square_heads,
        flops_without_the_pass_over_one,
    ],
    "4.7": [
        pad_with_an_average_decay,
        pad_to_a_power_of_two,
        pad_in_front,
        pad_and_change_the_first_decay,
        pad_and_scale,
        _pad_with_small_writes(1e-3),
        _pad_with_small_writes(1e-6),
    ],
    "4.9": [
        packed_stopping_at_empty,
        packed_from_document_1,
        packed_by_lengths,
        packed_with_two_empty,
        packed_in(np.uint8),
        packed_in(np.uint16),
        packed_in(float),
        packed_by_nearly_rounding_up,
    ],
}
