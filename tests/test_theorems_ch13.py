"""Every item of chapter 13's theorems: exhaustively where that is possible, on random draws elsewhere."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from lineage_lib.exercises._ch13_reflections import fewest_oracle, orthogonal, permutation_keys
from lineage_lib.exercises._ch13_words import distance_oracle, draw_key

SEEDS = pytest.mark.parametrize("seed", range(20))


def grid(x, steps=8, top=4.0):
    return np.clip(np.round(steps * x) / steps, -top, top)


def cycle_of(step, h):
    """The states that a sequence walks round in the end."""
    seen, order = {}, []
    while (key := tuple(np.asarray(h).tolist())) not in seen:
        seen[key] = len(order)
        order.append(key)
        h = step(h)
    return order[seen[key] :]


# --- states that settle -------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 6))
def test_every_rising_function_settles_within_its_number_of_values(n):
    for f in itertools.combinations_with_replacement(range(n), n):
        for h in range(n):
            for _ in range(n - 1):
                h = f[h]
            assert f[h] == h


def test_the_number_of_steps_cannot_be_less():
    climb = [1, 2, 3, 4, 4]
    h, steps = 0, 0
    while climb[h] != h:
        h, steps = climb[h], steps + 1
    assert steps == len(climb) - 1


@SEEDS
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_the_state_of_a_non_negative_gate_is_monotone(seed, precision):
    rng = np.random.default_rng(seed)
    number = np.dtype(precision).type
    a, b, h = (number(x) for x in (rng.random(), rng.normal(), 3 * rng.normal()))
    states = [h]
    for _ in range(300):
        states.append(a * states[-1] + b)
    assert np.all(np.diff(states) >= 0) or np.all(np.diff(states) <= 0)


@pytest.mark.parametrize(("a", "steps"), [(0.5, 25), (0.9, 138), (0.999, 10_277)])
def test_the_steps_that_the_page_names(a, steps):
    a, h = np.float32(a), np.float32(0)
    for _ in range(steps - 1):
        h = a * h + np.float32(1)
    assert a * h + np.float32(1) != h
    h = a * h + np.float32(1)
    assert a * h + np.float32(1) == h


class Stack:
    """A random network as in the theorem: rising functions chosen by what is seen, any function as output."""

    def __init__(self, rng, layers, size, window, entries=2, symbols=3):
        self.draw, self.size, self.window, self.entries, self.symbols = rng, size, window, entries, symbols
        self.steps = [{} for _ in range(layers)]
        self.outputs = [{} for _ in range(layers)]

    def chosen(self, table, key, make):
        if key not in table:
            table[key] = make()
        return table[key]

    def run(self, word):
        """All states and windows after the word."""
        seen, memory = list(word), []
        for steps, outputs in zip(self.steps, self.outputs):
            state, shown = (0,) * self.entries, []
            for t in range(len(seen)):
                view = tuple(seen[max(0, t - self.window + 1) : t + 1])
                rules = self.chosen(
                    steps,
                    view,
                    lambda: np.sort(self.draw.integers(0, self.size, (self.entries, self.size)), axis=1).tolist(),
                )
                state = tuple(rule[h] for rule, h in zip(rules, state))
                shown.append(self.chosen(outputs, (view, state), lambda: int(self.draw.integers(0, self.symbols))))
            memory.append((state, tuple(seen[len(seen) - self.window + 1 :])))
            seen = shown
        return memory


@SEEDS
@pytest.mark.parametrize("window", [1, 3])
def test_networks_cannot_tell_copies_of_a_word_apart(seed, window):
    rng = np.random.default_rng(seed)
    layers, size = 2, 4
    stack = Stack(rng, layers, size, window)
    v, u = (rng.integers(0, 3, n).tolist() for n in (2, int(rng.integers(1, 4))))
    enough = layers * (size + window - 2) + window - 1
    first = stack.run(v + enough * u)
    for more in (1, 2, 5):
        assert stack.run(v + (enough + more) * u) == first


def test_a_falling_function_or_one_that_looks_elsewhere_escapes():
    assert len(cycle_of(lambda h: -h, np.array([1.0]))) == 2
    assert len(cycle_of(lambda h: h[::-1], np.array([0.0, 1.0]))) == 2
    assert len(cycle_of(lambda h: (h + 1) % 256, np.array([0]))) == 256


# --- symmetric transitions ----------------------------------------------------------------------


def gdn2(rng, K, largest):
    """A transition of Gated DeltaNet-2, with some gates shut, and what it writes."""
    k, alpha, b = draw_key(rng, K), rng.uniform(0.3, 1, K), rng.uniform(0, largest, K)
    b[rng.random(K) < 0.2] = 0.0
    alpha[rng.random(K) < 0.1] = 0.0
    return (np.eye(K) - np.outer(k, b * k)) @ np.diag(alpha), k * rng.normal()


@pytest.mark.parametrize(("largest", "longest"), [(1.0, 1), (2.0, 2)])
def test_rounded_once_a_delta_rule_ends_with_the_period_of_the_theorem(largest, longest):
    rng = np.random.default_rng(0)
    lengths = set()
    for _ in range(400):
        G, b = gdn2(rng, int(rng.integers(2, 5)), largest)
        start = grid(rng.uniform(-3, 3, len(b)))
        lengths.add(len(cycle_of(lambda h, G=G, b=b: grid(G @ h + b), start)))
    assert max(lengths) == longest


def test_all_symmetric_matrices_of_a_small_grid_end_with_period_one_or_two():
    values = (-1.0, -0.5, 0.0, 0.5, 1.0)
    states = list(itertools.product((-1.0, 0.0, 1.0), repeat=2))
    for p, q, r in itertools.product(values, repeat=3):
        M = np.array([[p, q], [q, r]])
        semidefinite = np.linalg.eigvalsh(M)[0] >= -1e-12
        for b in itertools.product((-0.5, 0.0, 0.25), repeat=2):
            for h in states:
                cycle = cycle_of(lambda h, M=M, b=b: grid(M @ np.asarray(h) + b, steps=1, top=1.0), np.array(h))
                assert len(cycle) <= (1 if semidefinite else 2)


def test_without_symmetry_eigenvalues_of_one_alternate():
    G, b = np.array([[-1.0, 2.0], [-2.0, 3.0]]), np.array([-1.0, 0.0])
    np.testing.assert_allclose(np.poly(G), [1, -2, 1], atol=1e-12)
    assert len(cycle_of(lambda h: np.clip(np.round(G @ h + b), 0, 1), np.array([0.0, 1.0]))) == 2


def test_several_roundings_a_step_alternate_with_beta_below_one():
    rng, found = np.random.default_rng(1), 0
    for _ in range(300):
        k, beta, v = grid(draw_key(rng, 3)), rng.random(), rng.normal()

        def step(h, k=k, beta=beta, v=v):
            return grid(h + grid(grid(beta * grid(v - grid(k @ h))) * k))

        cycle = cycle_of(step, np.zeros(3))
        found += len(cycle) > 1
    assert found > 0


# --- reflections --------------------------------------------------------------------------------


def product(keys, n):
    P = np.eye(n)
    for k in keys:
        P = P - 2 * np.outer(k, k @ P)
    return P


@pytest.mark.parametrize("n", range(2, 6))
def test_a_permutation_needs_as_many_swaps_as_items_minus_cycles(n):
    """Breadth first over all swaps: no shorter product exists, and ours is as short."""
    swaps = list(itertools.combinations(range(n), 2))
    needed, front = {tuple(range(n)): 0}, [tuple(range(n))]
    for p in front:
        for i, j in swaps:
            q = tuple(j if x == i else i if x == j else x for x in p)
            if q not in needed:
                needed[q] = needed[p] + 1
                front.append(q)
    for p, count in needed.items():
        Q = np.zeros((n, n))
        Q[list(p), range(n)] = 1
        keys = permutation_keys(np.array(p))
        assert count == len(keys) == fewest_oracle(Q)
        np.testing.assert_allclose(product(keys, n), Q, atol=1e-12)


@SEEDS
def test_the_proof_makes_an_orthogonal_matrix_of_as_many_reflections_as_its_rank(seed):
    rng = np.random.default_rng(seed)
    n, r = 6, int(rng.integers(1, 7))
    Q = product([draw_key(rng, n) for _ in range(r)], n)
    keys, rest = [], Q
    while np.abs(rest - np.eye(n)).max() > 1e-7:
        off = rest - np.eye(n)
        x = np.argmax(np.linalg.norm(off, axis=0))
        keys.insert(0, off[:, x] / np.linalg.norm(off[:, x]))
        rest = rest - 2 * np.outer(keys[0], keys[0] @ rest)
    assert len(keys) == fewest_oracle(Q) == r
    np.testing.assert_allclose(product(keys, n), Q, atol=1e-6)


@SEEDS
def test_factors_of_any_kind_leave_a_space_alone(seed):
    rng = np.random.default_rng(seed)
    n, r = 6, int(rng.integers(1, 6))
    P = np.eye(n)
    for _ in range(r):
        P = (np.eye(n) - np.outer(rng.standard_normal(n), rng.standard_normal(n))) @ P
    assert np.linalg.matrix_rank(np.eye(n) - P) <= r


@SEEDS
def test_products_of_factors_with_beta_up_to_one_have_no_modulus_of_one_but_one(seed):
    rng = np.random.default_rng(seed)
    for r in (2, 3, 5):
        P = np.eye(4)
        for _ in range(r):
            k = draw_key(rng, 4)
            P = P - rng.uniform(0.2, 1) * np.outer(k, k @ P)
        z = np.linalg.eigvals(P)
        assert np.all((np.abs(z) < 1 - 1e-6) | (np.abs(z - 1) < 1e-6))
        assert r > 2 or np.abs(z.imag).max() < 1e-6


@SEEDS
def test_no_factor_is_nearer_than_the_distance(seed):
    rng = np.random.default_rng(seed)
    R = orthogonal(rng, 4) if seed % 2 else rng.standard_normal((4, 4))
    nearest = distance_oracle(R)
    off = np.eye(4) - R
    values, vectors = np.linalg.eigh((off + off.T) / 2)
    best = vectors[:, -1]
    beta = np.clip(values[-1], 0, 2)
    assert np.linalg.norm(off - beta * np.outer(best, best)) == pytest.approx(nearest, abs=1e-9)
    for _ in range(300):
        k, beta = draw_key(rng, 4), rng.uniform(0, 2)
        assert np.linalg.norm(off - beta * np.outer(k, k)) >= nearest - 1e-9


@pytest.mark.parametrize("theta", np.linspace(0, np.pi, 7))
def test_the_distance_of_a_rotation_of_space(theta):
    c, s = np.cos(theta), np.sin(theta)
    R = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
    assert distance_oracle(R) ** 2 == pytest.approx((1 - c) * (3 + c), abs=1e-12)


def test_the_distance_of_a_cycle_of_three():
    assert distance_oracle(np.roll(np.eye(3), 1, axis=0)) ** 2 == pytest.approx(15 / 4)


# --- a state that turns -------------------------------------------------------------------------


@SEEDS
def test_turning_the_state_is_turning_keys_and_queries(seed):
    rng = np.random.default_rng(seed)
    T, K, V = 12, 5, 3
    turns = [orthogonal(rng, K) for _ in range(T)]
    alpha, q, k, v = rng.random(T), *(rng.standard_normal((T, n)) for n in (K, K, V))
    S, plain, P = np.zeros((K, V)), np.zeros((K, V)), np.eye(K)
    for t in range(T):
        S = alpha[t] * turns[t] @ S + np.outer(k[t], v[t])
        P = turns[t] @ P
        plain = alpha[t] * plain + np.outer(P.T @ k[t], v[t])
        np.testing.assert_allclose(S.T @ q[t], plain.T @ (P.T @ q[t]), atol=1e-12)


def affine_monoid(letters, start):
    """States reached, and the action of each letter on them; letters {name: (a, b)} in Gaussian fractions."""
    states, moves = [start], {}
    for z in states:
        for name, (a, b) in letters.items():
            new = add(multiply(a, z), b)
            moves[z, name] = new
            if new not in states:
                states.append(new)
            if len(states) > 60:
                return None
    return states, moves


def multiply(x, y):
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def add(x, y):
    return x[0] + y[0], x[1] + y[1]


def test_words_permute_the_smallest_image_as_the_theorem_says():
    """All pairs of letters with a in {0, 1, -1, i, -i} and small b: smallest images, permuted and commuting."""
    units = [(Fraction(x), Fraction(y)) for x, y in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))]
    shifts = [(Fraction(0), Fraction(0)), (Fraction(1), Fraction(0)), (Fraction(1), Fraction(2))]
    letters = list(itertools.product(units, shifts))
    checked = 0
    for x, y in itertools.combinations(letters, 2):
        found = affine_monoid({"x": x, "y": y}, (Fraction(0), Fraction(0)))
        if found is None:
            continue
        states, moves = found
        act = {w: {z: moves[z, w] for z in states} for w in "xy"}
        words, front = {tuple(states)}, [tuple(states)]
        for image in front:
            for w in "xy":
                new = tuple(act[w][z] for z in image)
                if new not in words:
                    words.add(new)
                    front.append(new)
        u = min(words, key=lambda w: (len(set(w)), [str(z) for z in w]))
        effect = dict(zip(states, u))
        Y = sorted(set(u))
        permutations = {tuple(effect[dict(zip(states, w))[z]] for z in Y) for w in words}
        real = all(letter[0][1] == 0 for letter in (x, y))
        rising = real and all(letter[0][0] >= 0 for letter in (x, y))
        for p, q in itertools.product(permutations, repeat=2):
            p, q = dict(zip(Y, p)), dict(zip(Y, q))
            assert sorted(p.values()) == Y
            assert all(p[q[z]] == q[p[z]] for z in Y)
        for p in permutations:
            p = dict(zip(Y, p))
            assert not real or all(p[p[z]] == z for z in Y)
            assert not rising or all(p[z] == z for z in Y)
        checked += 1
    assert checked > 40


@pytest.mark.parametrize("m", [3, 5, 12])
def test_two_mirrors_in_turn_count_modulo_m(m):
    angle = np.pi / m
    keys = np.array([[0.0, 1.0], [-np.sin(angle), np.cos(angle)]])
    h, seen = np.array([np.cos(0.1), np.sin(0.1)]), []
    for j in range(2 * m):
        seen.append(h)
        k = keys[j % 2]
        h = h - 2 * k * (k @ h)
    np.testing.assert_allclose(h, seen[0], atol=1e-12)
    gaps = [np.linalg.norm(x - y) for x, y in itertools.combinations(seen, 2)]
    assert min(gaps) > 0.15


def test_two_levels_of_threshold_gates_make_parity():
    for bits in itertools.product((0, 1), repeat=7):
        gates = [sum(bits) >= j for j in range(1, 8)]
        assert sum(g * (-1) ** j for j, g in enumerate(gates)) == sum(bits) % 2
