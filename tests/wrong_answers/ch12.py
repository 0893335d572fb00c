"""Wrong answers to chapter 12 that are right on most inputs."""

import itertools
import math

import numpy as np

from lineage_lib.exercises import _ch12_bounds, _ch12_cache, _ch12_recall, _ch12_states, _ch12_writes

# --- 12.1 -----------------------------------------------------------------------------------------


def twins_of_bits(table, L):
    """Right for two symbols."""
    return _ch12_states.twins_oracle(table[:, :2], L) if table.shape[1] > 1 else None


def twins_of_neighbours(table, L):
    """Compares each string with the one before only."""
    before = None
    for string in itertools.product(range(table.shape[1]), repeat=L):
        state = 0
        for x in string:
            state = int(table[state, x])
        if before is not None and before[1] == state:
            return np.array([before[0], string])
        before = string, state
    return np.zeros((2, L), dtype=int)


def twins_except_the_first(table, L):
    """Forgets the string of state 0: a dictionary's get() with a falsy test on states."""
    known = {}
    for string in itertools.product(range(table.shape[1]), repeat=L):
        state = 0
        for x in string:
            state = int(table[state, x])
        if state and state in known:
            return np.array([known[state], string])
        known.setdefault(state, string)
    return np.zeros((2, L), dtype=int)


def twins_differing_at_the_start_only(table, L):
    """The first string, with its first symbol changed."""
    return np.array([[0] * L, [1] + [0] * (L - 1)])


def twins_among_twenty(table, L):
    """Gives up after 20 strings."""
    known = {}
    for string in itertools.islice(itertools.product(range(table.shape[1]), repeat=L), 20):
        state = 0
        for x in string:
            state = int(table[state, x])
        if state in known:
            return np.array([known[state], string])
        known[state] = string
    return np.zeros((2, L), dtype=int)


# --- 12.2 -----------------------------------------------------------------------------------------


def copied_two_symbols(table, L):
    return _ch12_states.copied_oracle(table[:, :2], L)


def copied_of_few_strings(table, L):
    """Tries strings, at most 4,096 of them."""
    c = table.shape[1]
    states = set()
    for string in itertools.islice(itertools.product(range(c), repeat=L), 4096):
        state = 0
        for x in string:
            state = int(table[state, x])
        states.add(state)
    return len(states)


def copied_at_last(table, L):
    """States that are left at length L and at length L - 1."""
    a, b = (set(_ch12_states._left(table, max(l, 0)).tolist()) for l in (L, L - 1))
    return len(a | b)


def copied_without_the_empty_string(table, L):
    return _ch12_states.copied_oracle(table, L) if L else 0


def copied_entries(table, L):
    """Different entries of the whole table: states that anything leads to."""
    return min(len(np.unique(table)), table.shape[1] ** L)


# --- 12.3 to 12.5 ---------------------------------------------------------------------------------


def ceiling_in_floats(bits, L, c):
    """Overflows for long strings."""
    return min(0.0, math.log2(2.0**bits / float(c) ** L))


def ceiling_whole_bits(bits, L, c):
    return min(0.0, float(bits - L * (c - 1).bit_length()))


def ceiling_rounded_down(bits, L, c):
    return min(0.0, float(math.floor(bits - L * math.log2(c))))


def ceiling_never_zero(bits, L, c):
    return min(-1e-3, bits - L * math.log2(c))


def ceiling_minus_one(bits, L, c):
    """The bits of the corollary for one half."""
    return min(0.0, bits + 1 - L * math.log2(c))


def longest_of_small_states(bits, c):
    """Right below 64 bits."""
    return _ch12_bounds.longest_oracle(min(bits, 63), c)


def longest_at_least_one(bits, c):
    return max(1, _ch12_bounds.longest_oracle(bits, c))


def longest_rounded(bits, c):
    return round(bits / math.log2(c))


def near_by_entropy(bits, L, wrong):
    """The simpler, larger bound."""
    p = wrong / L
    if p in (0, 1):
        return min(0.0, float(bits - L + (L if p else 0)))
    entropy = -p * math.log2(p) - (1 - p) * math.log2(1 - p)
    return min(0.0, bits - L * (1 - entropy))


def near_in_floats(bits, L, wrong):
    """Overflows where L is above a thousand."""
    return min(0.0, bits - L + math.log2(sum(float(math.comb(L, i)) for i in range(wrong + 1))))


def near_three_terms(bits, L, wrong):
    ball = sum(math.comb(L, i) for i in range(min(wrong, 2) + 1))
    return min(0.0, bits + math.log2(ball) - L)


# --- 12.6 -----------------------------------------------------------------------------------------


def ngram_of_one(prompt, n):
    return _ch12_cache.ngram_oracle(prompt, 1)


def ngram_of_two_at_most(prompt, n):
    return _ch12_cache.ngram_oracle(prompt, min(n, 2))


def ngram_counts_the_end(prompt, n):
    """Looks at the last place first, where nothing follows, and stops there."""
    known = prompt.tolist()
    out = known[:n]
    while len(out) < len(known):
        if known[-n:] == out[-n:]:
            out += [known[-1]] * (len(known) - len(out))
            break
        p = next(p for p in range(len(known) - n) if known[p : p + n] == out[-n:])
        out.append(known[p + n])
    return np.array(out)


def ngram_first_symbols_shared(prompt, n):
    """Compares the last symbol and the first of the n only."""
    known = prompt.tolist()
    out = known[:n]
    while len(out) < len(known):
        p = next(p for p in range(len(known) - n) if known[p] == out[-n] and known[p + n - 1] == out[-1])
        out.append(known[p + n])
    return np.array(out)


def ngram_as_a_set(prompt, n):
    """Compares the symbols without their order."""
    known = prompt.tolist()
    out = known[:n]
    while len(out) < len(known):
        p = next(p for p in range(len(known) - n) if sorted(known[p : p + n]) == sorted(out[-n:]))
        out.append(known[p + n])
    return np.array(out)


# --- 12.7 and 12.8 --------------------------------------------------------------------------------


def bits_at_least_one(n, c):
    return max(1, _ch12_recall.bits_oracle(n, c))


def bits_rounded(n, c):
    return round(n * math.log2(c))


def bits_floor_plus_one(n, c):
    return math.floor(n * math.log2(c)) + 1


def bits_of_64(n, c):
    return _ch12_recall.bits_oracle(min(n, 60), c)


def game_from_the_first_key(x, i, k):
    """Starts from the first value instead of from zero, and writes it again: the same; then skips the last bit."""
    return _ch12_recall.game_oracle(x[:-1], min(i, len(x) - 1), k) if len(x) > 1 else _ch12_recall.game_oracle(x, i, k)


def game_half_strength(x, i, k):
    S = np.zeros(k.shape[1])
    for bit, key in zip(x, k):
        S = S + 0.5 * key * ((2 * bit - 1) - S @ key)
    return S, int(S @ k[i] > 0)


def game_by_least_squares(x, i, k):
    """The best state, which one pass does not find."""
    S = np.linalg.lstsq(k, 2.0 * x - 1, rcond=None)[0]
    return S, int(S @ k[i] > 0)


def game_bob_finds_the_nearest(x, i, k):
    """The right message; Bob's guess is 1 wherever the read is not clearly negative."""
    S, _ = _ch12_recall.game_oracle(x, i, k)
    return S, int(S @ k[i] > -1.0)


def game_normalised(x, i, k):
    S, bit = _ch12_recall.game_oracle(x, i, k)
    return S / np.linalg.norm(S), bit


# --- 12.9 and 12.10 -------------------------------------------------------------------------------


def decayed_closed_form(n, K, alpha):
    """The geometric sum, which has no value at alpha = 1."""
    left = alpha ** np.arange(n - 1.0, -1.0, -1.0)
    total = (1 - alpha ** (2 * n)) / (1 - alpha**2) if alpha != 1 else 0.0
    return (1 - left) ** 2 + (total - left**2) / K


def decayed_in_the_long_run(n, K, alpha):
    left = alpha ** np.arange(n - 1.0, -1.0, -1.0)
    total = 1 / (1 - alpha**2) if alpha < 1 else n
    return (1 - left) ** 2 + (total - left**2) / K


def decayed_through_logarithms(n, K, alpha):
    """log(0) times 0 at alpha = 0."""
    left = np.exp(np.log(alpha) * np.arange(n - 1.0, -1.0, -1.0))
    return (1 - left) ** 2 + (np.sum(left**2) - left**2) / K


def decayed_n_over_K(n, K, alpha):
    left = alpha ** np.arange(n - 1.0, -1.0, -1.0)
    return (1 - left) ** 2 + (np.sum(left**2) - np.mean(left**2)) / K


def targets_two_pairs(k, v):
    """Right for two pairs: only the next write is taken into account."""
    targets = v.copy()
    for j in range(len(k) - 1):
        c = k[j] @ k[j + 1]
        targets[j] = (v[j] - c * v[j + 1]) / (1 - c * c)
    return targets


def targets_first_order(k, v):
    """G is nearly the identity: its inverse is taken as 2 I - G."""
    G = k @ k.T
    return np.tril(G) @ (2 * v - G @ v)


def targets_regularised(k, v):
    G = k @ k.T
    return np.tril(G) @ np.linalg.solve(G + 1e-6 * np.eye(len(G)), v)


def targets_sorted_by_length(k, v):
    return _ch12_writes.target_oracle(k[::-1], v[::-1])[::-1]


WRONG_ANSWERS = {
    "12.1": [
        twins_of_bits,
        twins_of_neighbours,
        twins_except_the_first,
        twins_differing_at_the_start_only,
        twins_among_twenty,
    ],
    "12.2": [
        copied_two_symbols,
        copied_of_few_strings,
        copied_at_last,
        copied_without_the_empty_string,
        copied_entries,
    ],
    "12.3": [
        ceiling_in_floats,
        ceiling_whole_bits,
        ceiling_rounded_down,
        ceiling_never_zero,
        ceiling_minus_one,
    ],
    "12.4": [longest_of_small_states, longest_at_least_one, longest_rounded],
    "12.5": [near_by_entropy, near_in_floats, near_three_terms],
    "12.6": [
        ngram_of_one,
        ngram_of_two_at_most,
        ngram_counts_the_end,
        ngram_first_symbols_shared,
        ngram_as_a_set,
    ],
    "12.7": [bits_at_least_one, bits_rounded, bits_floor_plus_one, bits_of_64],
    "12.8": [
        game_from_the_first_key,
        game_half_strength,
        game_by_least_squares,
        game_bob_finds_the_nearest,
        game_normalised,
    ],
    "12.9": [
        decayed_closed_form,
        decayed_in_the_long_run,
        decayed_through_logarithms,
        decayed_n_over_K,
    ],
    "12.10": [targets_two_pairs, targets_first_order, targets_regularised, targets_sorted_by_length],
}
