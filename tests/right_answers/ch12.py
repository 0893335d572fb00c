"""Right answers to chapter 12, written differently."""

import bisect
import math
from fractions import Fraction

import numpy as np
import torch


# 12.1: numbers in base c in place of tuples; all states first; level by level
def twins_by_number(table, L):
    states, c = table.shape
    owner = [-1] * states
    for number in range(c**L):
        string = [number // c ** (L - 1 - t) % c for t in range(L)]
        state = 0
        for x in string:
            state = table[state][x]
        if owner[state] >= 0:
            return [[owner[state] // c ** (L - 1 - t) % c for t in range(L)], string]
        owner[state] = number


def twins_level_by_level(table, L):
    """The states of all strings at once, in counting order; the first that has been before."""
    left = np.array([0])
    for _ in range(L):
        left = table[left].ravel()
    values, first = np.unique(left, return_index=True)
    where = dict(zip(values.tolist(), first.tolist()))
    later = next(i for i, s in enumerate(left.tolist()) if where[s] != i)
    numbers = np.array([where[int(left[later])], later])
    return numbers[:, None] // table.shape[1] ** np.arange(L)[::-1] % table.shape[1]


def twins_recursive(table, L):
    known = {}

    def search(state, string):
        if len(string) == L:
            if state in known:
                return np.array([known[state], string])
            known[state] = string
            return None
        for x in range(table.shape[1]):
            found = search(int(table[state, x]), (*string, x))
            if found is not None:
                return found
        return None

    return search(0, ())


# 12.2
def copied_with_sets(table, L):
    states = {0}
    for _ in range(L):
        states = {int(s) for state in states for s in table[state]}
    return len(states)


def copied_with_a_matrix(table, L):
    """Reachability as a product of matrices of zeros and ones."""
    step = np.zeros((len(table), len(table)), dtype=bool)
    step[np.arange(len(table))[:, None], table] = True
    reach = np.arange(len(table)) == 0
    for _ in range(L):
        reach = reach @ step
    return np.count_nonzero(reach)


def copied_counting(table, L):
    """Counts the strings of every state in exact integers; those with any."""
    count = {0: 1}
    for _ in range(L):
        new = {}
        for state, number in count.items():
            for s in table[state].tolist():
                new[s] = new.get(s, 0) + number
        count = new
    return float(len(count))


# 12.3
def ceiling_through_natural_logarithms(bits, L, c):
    return min(0, (bits * np.log(2) - L * np.log(c)) / np.log(2))


def ceiling_of_the_quotient(bits, L, c):
    """Whole numbers, whose quotient is taken exactly."""
    states, strings = 2**bits, c**L
    if states >= strings:
        return 0
    return math.log2(states) - math.log2(strings)


def ceiling_as_numpy(bits, L, c):
    return -np.maximum(0.0, L * np.log2(float(c)) - bits)


# 12.4
def longest_by_division(bits, c):
    states, L = 2**bits, 0
    while states >= c:
        states, L = states // c, L + 1
    return L


def longest_by_a_guess(bits, c):
    """A logarithm for a start, whole numbers for the end."""
    L = int(bits / math.log2(c)) + 2
    while c**L > 1 << bits:
        L -= 1
    return np.int64(L)


def longest_by_bisection(bits, c):
    return bisect.bisect_right(range(bits + 1), 2**bits, key=lambda L: c**L) - 1


# 12.5
def near_term_by_term(bits, L, wrong):
    term = ball = 1
    for i in range(1, wrong + 1):
        term = term * (L - i + 1) // i
        ball += term
    return min(0.0, math.log2(ball << bits) - L)


def near_as_a_fraction(bits, L, wrong):
    share = Fraction(2**bits * sum(math.comb(L, L - i) for i in range(wrong + 1)), 2**L)
    return 0 if share >= 1 else math.log2(share.numerator) - math.log2(share.denominator)


# 12.6
def ngram_with_a_dictionary(prompt, n):
    """The follower of the first place of every n-gram, then a walk."""
    follower = {}
    for p in range(len(prompt) - n):
        follower.setdefault(tuple(prompt[p : p + n].tolist()), int(prompt[p + n]))
    out = prompt[:n].tolist()
    while len(out) < len(prompt):
        out.append(follower[tuple(out[-n:])])
    return out


def ngram_with_windows(prompt, n):
    windows = np.lib.stride_tricks.sliding_window_view(prompt, n)[:-1]
    out = np.empty_like(prompt)
    out[:n] = prompt[:n]
    for t in range(n, len(prompt)):
        out[t] = prompt[np.argmax((windows == out[t - n : t]).all(axis=1)) + n]
    return out


def ngram_backwards(prompt, n):
    """Goes through the places from the last to the first and keeps the last one found."""
    out = list(prompt[:n])
    for _ in range(len(prompt) - n):
        for p in range(len(prompt) - n - 1, -1, -1):
            if all(prompt[p + m] == out[len(out) - n + m] for m in range(n)):
                found = prompt[p + n]
        out.append(found)
    return torch.tensor(np.array(out))


# 12.7
def bits_by_counting(n, c):
    bits, lists = 0, c**n
    while 2**bits < lists:
        bits += 1
    return bits


def bits_by_shifts(n, c):
    lists = 1
    for _ in range(n):
        lists *= c
    lists, bits = lists - 1, 0
    while lists:
        lists, bits = lists >> 1, bits + 1
    return bits


# 12.8
def game_as_matrices(x, i, k):
    """(I − k kᵀ) S + k v."""
    S = np.zeros((k.shape[1], 1))
    for t in range(len(x)):
        S = (np.eye(k.shape[1]) - np.outer(k[t], k[t])) @ S + (1 if x[t] else -1) * k[t][:, None]
    return S[:, 0], bool(k[i] @ S > 0)


def game_in_torch(x, i, k):
    k, values = torch.tensor(k), 2.0 * torch.tensor(x) - 1
    S = torch.zeros(k.shape[1], dtype=k.dtype)
    for key, value in zip(k, values):
        S = S + (value - key.dot(S)) * key
    return S, torch.tensor(1 if k[i].dot(S) > 0 else 0)


def game_by_a_triangular_solve(x, i, k):
    """Chapter 9: corrected values from one system."""
    G = k @ k.T
    d = np.linalg.solve(np.eye(len(x)) + np.tril(G, -1), np.where(x == 1, 1.0, -1.0))
    message = d @ k
    return [message, np.heaviside(message @ k[i], 0)]


# 12.9
def decayed_in_a_loop(n, K, alpha):
    errors = []
    for i in range(n):
        noise = sum(alpha ** (2 * (n - 1 - j)) for j in range(n) if j != i)
        errors.append((1 - alpha ** (n - 1 - i)) ** 2 + noise / K)
    return errors


def decayed_step_by_step(n, K, alpha):
    """Carries what is left of each pair through the writes."""
    left = np.zeros(0)
    for _ in range(n):
        left = np.append(alpha * left, 1.0)
    others = np.ones((n, n)) - np.eye(n)
    return (left - 1) ** 2 + others @ left**2 / K


def decayed_in_torch(n, K, alpha):
    left = torch.tensor(float(alpha), dtype=torch.float64) ** torch.arange(n - 1, -1, -1)
    return 1 - 2 * left + left**2 + (left.square().sum() - left.square()) / K


# 12.10
def targets_through_the_state(k, v):
    """The finished state by least squares, then what each write has to add."""
    S = np.linalg.lstsq(k, v, rcond=None)[0]
    D = np.linalg.lstsq(k.T, S, rcond=None)[0]
    state, targets = np.zeros_like(S), []
    for key, d in zip(k, D):
        state = state + np.outer(key, d)
        targets.append(key @ state)
    return np.array(targets)


def targets_from_the_inverse(k, v):
    G = k @ k.T
    return (np.tril(G) @ np.linalg.inv(G)) @ v


def targets_value_plus_the_rest(k, v):
    """The value, less what later writes will add to it."""
    G = torch.tensor(k @ k.T)
    D = torch.linalg.solve(G, torch.tensor(v))
    return torch.tensor(v) - torch.triu(G, 1) @ D


RIGHT_ANSWERS = {
    "12.1": [twins_by_number, twins_level_by_level, twins_recursive],
    "12.2": [copied_with_sets, copied_with_a_matrix, copied_counting],
    "12.3": [ceiling_through_natural_logarithms, ceiling_of_the_quotient, ceiling_as_numpy],
    "12.4": [longest_by_division, longest_by_a_guess, longest_by_bisection],
    "12.5": [near_term_by_term, near_as_a_fraction],
    "12.6": [ngram_with_a_dictionary, ngram_with_windows, ngram_backwards],
    "12.7": [bits_by_counting, bits_by_shifts],
    "12.8": [game_as_matrices, game_in_torch, game_by_a_triangular_solve],
    "12.9": [decayed_in_a_loop, decayed_step_by_step, decayed_in_torch],
    "12.10": [targets_through_the_state, targets_from_the_inverse, targets_value_plus_the_rest],
}
