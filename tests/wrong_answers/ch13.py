"""Wrong answers to chapter 13 that are right on most inputs, or look right."""

import numpy as np

from lineage_lib.exercises import _ch13_gates, _ch13_reflections, _ch13_words


# 13.1
def stop_by_a_formula(a, b, precision):
    """When what is missing is below half a unit in the last digit: right for some a."""
    if a == 0 or b == 0:
        return int(b != 0)
    digits = {"float16": 11, "float32": 24, "float64": 53}[precision]
    return int(np.ceil(digits * np.log(2) / -np.log(a)))


def stop_at_the_limit(a, b, precision):
    """Counts until the limit b / (1 - a), rounded, is reached; the state may stop before it."""
    r = np.dtype(precision).type
    a, b, h = r(a), r(b), r(0)
    goal = r(float(b) / (1 - float(a)))
    for n in range(4000):
        if h == goal:
            return n
        h = r(r(a * h) + b)
    return 4000


def stop_in_float32_at_most(a, b, precision):
    return _ch13_gates.stop_oracle(a, b, "float16" if precision == "float16" else "float32")


def stop_forgets_b_zero(a, b, precision):
    """At least one step, also where nothing is ever written."""
    return max(1, _ch13_gates.stop_oracle(a, b, precision))


def stop_without_rounding_a(a, b, precision):
    r = np.dtype(precision).type
    h, n = r(0), 0
    while r(r(a * np.float64(h)) + r(b)) != h:
        h, n = r(r(a * np.float64(h)) + r(b)), n + 1
    return n


def stop_always_25(a, b, precision):
    return 25


# 13.2
def ambiguous_for_rising_tables(table, start):
    """Only the state in which ones end: right for counters that stop."""
    s = start
    for _ in range(2 * len(table)):
        s = int(table[s, 1])
    return np.arange(len(table)) == s


def ambiguous_in_few_steps(table, start):
    even, odd = {start}, set()
    for _ in range(len(table)):
        even, odd = (
            even | {int(table[s, 0]) for s in even} | {int(table[s, 1]) for s in odd},
            odd | {int(table[s, 0]) for s in odd} | {int(table[s, 1]) for s in even},
        )
    return np.array([s in even and s in odd for s in range(len(table))])


def ambiguous_for_one_length(table, start):
    """Strings of one length only: after 2 n symbols."""
    pairs = {(start, 0)}
    for _ in range(2 * len(table)):
        pairs = {(int(table[s, x]), p ^ x) for s, p in pairs for x in (0, 1)}
    return np.array([{(s, 0), (s, 1)} <= pairs for s in range(len(table))])


def ambiguous_from_state_zero(table, start):
    return _ch13_gates.ambiguous_oracle(table, 0)


def ambiguous_as_numbers(table, start):
    return np.flatnonzero(_ch13_gates.ambiguous_oracle(table, start))


def ambiguous_by_self_loops(table, start):
    """Marks the states that a one leaves as they are."""
    return (table[:, 1] == np.arange(len(table))) & _ch13_gates.ambiguous_oracle(table, start)


# 13.3
def flip_flop_for_bits(tokens):
    """Right for bits: everything above 1 is written as 1."""
    a, b = _ch13_gates.flip_oracle(tokens)
    return a, np.minimum(b, 1)


def flip_flop_with_soft_gates(tokens):
    a, b = _ch13_gates.flip_oracle(tokens)
    return 0.999 * a, b


def flip_flop_by_differences(tokens):
    """The right states with a = 1 throughout: b is the difference to the last value."""
    held = np.array(_ch13_gates._held(tokens))
    return np.ones(len(tokens)), np.diff(held, prepend=0)


def flip_flop_repeats(tokens):
    """Nothing is forgotten where the same value is written again."""
    a, b = _ch13_gates.flip_oracle(tokens)
    same = np.append(False, (tokens[1:] == tokens[:-1]) & (tokens[1:] >= 0))
    return np.where(same, 1, a), np.where(same, 0, b)


# 13.4
def parity_without_the_first(bits, k, v):
    return _ch13_reflections.parity_oracle(np.append(0, bits[1:]), k, v)


def parity_of_channels(bits, k, v):
    """Reflects every channel on its own: right for a basis vector as key."""
    S, reads = np.outer(k, v), []
    for x in bits:
        S = S - 2 * x * np.diag(k**2) @ S
        reads.append(S.T @ k)
    return np.array(reads)


def parity_with_a_soft_beta(bits, k, v):
    return _ch13_reflections._parity(bits, k, v, beta=lambda x: 1.9999 * x)


def parity_states(bits, k, v):
    return np.array([np.outer(k, read) for read in _ch13_reflections.parity_oracle(bits, k, v)])


def parity_in_float16(bits, k, v):
    return np.float16(_ch13_reflections.parity_oracle(bits, k, v))


def parity_by_xor_of_neighbours(bits, k, v):
    pairs = np.asarray(bits) ^ np.append(0, bits[:-1])
    return (1 - 2 * pairs)[:, None] * v


# 13.5
def swap_of_the_first_two(n, i, j):
    return _ch13_reflections.swap_key(n, 0, 1)


def swap_both_positive_when_next(n, i, j):
    k = _ch13_reflections.swap_key(n, i, j)
    return np.abs(k) if abs(i - j) == 1 else k


def swap_of_small_matrices(n, i, j):
    k = np.zeros(n)
    k[i], k[j] = 0.7, -0.7
    return k


def swap_ordered(n, i, j):
    """Between the two, all places move."""
    k = np.zeros(n)
    k[min(i, j) : max(i, j) + 1] = 1
    k[max(i, j)] = -1
    return k / np.linalg.norm(k)


# 13.6
def permutation_as_one_pass(p):
    """One swap a place, in order, without following where things have gone."""
    n = len(p)
    done, keys = set(), []
    for i in range(n):
        if p[i] != i and i not in done:
            keys.append(_ch13_reflections.swap_key(n, i, p[i]))
            done |= {i, int(p[i])}
    return np.array(keys).reshape(-1, n)


def permutation_of_involutions(p):
    """Right where every cycle has at most two items."""
    n = len(p)
    keys = [_ch13_reflections.swap_key(n, i, p[i]) for i in range(n) if p[i] > i]
    return np.array(keys).reshape(-1, n)


def permutation_with_a_pair_too_many(p):
    n = len(p)
    k = _ch13_reflections.swap_key(n, 0, n - 1)
    return np.concatenate([_ch13_reflections.permutation_keys(p), [k, k]])


def permutation_cycle_backwards(p):
    return _ch13_reflections.permutation_keys(np.argsort(p))


def permutation_matrices(p):
    return np.array([np.eye(len(p)) - 2 * np.outer(k, k) for k in _ch13_reflections.permutation_keys(p)])


# 13.7
def fewest_of_permutations(Q):
    """n minus the trace: right for swaps and cycles of three."""
    return round(len(Q) - np.trace(Q))


def fewest_without_tolerance(Q):
    return int(np.sum(np.linalg.svd(np.eye(len(Q)) - Q, compute_uv=False) > 0))


def fewest_moved_columns(Q):
    return int(np.sum(np.linalg.norm(Q - np.eye(len(Q)), axis=0) > 1e-8))


def fewest_real_eigenvalues(Q):
    return int(np.sum(np.abs(np.linalg.eigvals(Q).real - 1) > 1e-5))


def fewest_at_most_n_minus_one(Q):
    return min(len(Q) - 1, _ch13_reflections.fewest_oracle(Q))


def fewest_two_for_everything(Q):
    return 2 * int(not np.allclose(Q, np.eye(len(Q))))


# 13.8
def distance_of_orthogonal(R):
    """Right for orthogonal matrices: their eigenvalue lies in [0, 2] anyway."""
    return _ch13_words._distance(R, limit=lambda beta: beta)


def distance_lower_limit_forgotten(R):
    return _ch13_words._distance(R, limit=lambda beta: min(beta, 2.0))


def distance_upper_limit_forgotten(R):
    return _ch13_words._distance(R, limit=lambda beta: max(beta, 0.0))


def distance_on_a_coarse_grid(R):
    return min(_ch13_words._distance(R, limit=lambda beta, x=x: x) for x in np.linspace(0, 2, 21))


def distance_by_singular_values(R):
    """As if the best factor came from the largest singular value of I - R."""
    off = np.eye(len(R)) - R
    top = np.linalg.svd(off, compute_uv=False)[0]
    return float(np.sqrt(max(0.0, np.sum(off**2) - min(top, 2.0) ** 2)))


def distance_to_a_3_cycle_only(R):
    return np.sqrt(3.75)


# 13.9
def word_in_place(word, keys, S):
    S = np.array(S)
    states = []
    for g in word:
        for k in keys[g]:
            S -= 2 * np.outer(k, k @ S)
        states.append(S)
    return np.array([states[-1]] * len(states))


def word_two_factors(word, keys, S):
    return _ch13_words._word(word, keys, S, factors=lambda ks: ks[:2])


def word_from_the_right(word, keys, S):
    states = []
    for g in word:
        for k in keys[g]:
            S = S - 2 * np.outer(S @ k, k) if S.shape[0] == S.shape[1] else S - 2 * np.outer(k, k @ S)
        states.append(S)
    return np.array(states)


def word_normalises(word, keys, S):
    """NaN for a key of zeros."""
    with np.errstate(invalid="ignore"):
        return _ch13_words._word(word, keys / np.linalg.norm(keys, axis=2, keepdims=True), S)


def word_changes_its_argument(word, keys, S):
    states = []
    for g in word:
        for k in keys[g]:
            S -= 2 * np.outer(k, k @ S)
        states.append(S.copy())
    return np.array(states)


def word_last_state(word, keys, S):
    return _ch13_words.word_oracle(word, keys, S)[-1]


# 13.10
def turn_counts_from_one(x, m):
    h, count = _ch13_words.turn_oracle(x, m)
    return h, np.where(count == 0, m, count)


def turn_for_bits(x, m):
    """Right for tokens 0 and 1: any other token is one step."""
    return _ch13_words.turn_oracle((np.asarray(x) != 0).astype(int), m)


def turn_floors(x, m):
    h, _ = _ch13_words.turn_oracle(x, m)
    angle = np.arctan2(h[:, 1], h[:, 0]) % (2 * np.pi)
    return h, np.floor(angle * m / (2 * np.pi) - 1e-9) % m


def turn_by_arccos(x, m):
    """Right in the upper half plane."""
    h, _ = _ch13_words.turn_oracle(x, m)
    return h, np.round(np.arccos(np.clip(h[:, 0], -1, 1)) * m / (2 * np.pi)) % m


def turn_rounds_the_state(x, m):
    h, count = _ch13_words.turn_oracle(x, m)
    return h.round(6), count


def turn_in_degrees(x, m):
    angle = 360 / m * np.cumsum(x)
    h = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return h, np.cumsum(x) % m


WRONG_ANSWERS = {
    "13.1": [
        stop_by_a_formula,
        stop_at_the_limit,
        stop_in_float32_at_most,
        stop_forgets_b_zero,
        stop_without_rounding_a,
        stop_always_25,
    ],
    "13.2": [
        ambiguous_for_rising_tables,
        ambiguous_in_few_steps,
        ambiguous_for_one_length,
        ambiguous_from_state_zero,
        ambiguous_as_numbers,
        ambiguous_by_self_loops,
    ],
    "13.3": [flip_flop_for_bits, flip_flop_with_soft_gates, flip_flop_by_differences, flip_flop_repeats],
    "13.4": [
        parity_without_the_first,
        parity_of_channels,
        parity_with_a_soft_beta,
        parity_states,
        parity_in_float16,
        parity_by_xor_of_neighbours,
    ],
    "13.5": [swap_of_the_first_two, swap_both_positive_when_next, swap_of_small_matrices, swap_ordered],
    "13.6": [
        permutation_as_one_pass,
        permutation_of_involutions,
        permutation_with_a_pair_too_many,
        permutation_cycle_backwards,
        permutation_matrices,
    ],
    "13.7": [
        fewest_of_permutations,
        fewest_without_tolerance,
        fewest_moved_columns,
        fewest_real_eigenvalues,
        fewest_at_most_n_minus_one,
        fewest_two_for_everything,
    ],
    "13.8": [
        distance_of_orthogonal,
        distance_lower_limit_forgotten,
        distance_upper_limit_forgotten,
        distance_on_a_coarse_grid,
        distance_by_singular_values,
        distance_to_a_3_cycle_only,
    ],
    "13.9": [
        word_in_place,
        word_two_factors,
        word_from_the_right,
        word_normalises,
        word_changes_its_argument,
        word_last_state,
    ],
    "13.10": [
        turn_counts_from_one,
        turn_for_bits,
        turn_floors,
        turn_by_arccos,
        turn_rounds_the_state,
        turn_in_degrees,
    ],
}
