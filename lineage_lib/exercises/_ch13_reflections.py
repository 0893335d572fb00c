"""Chapter 13, second part: reflections, and products of them (13.4 to 13.7)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 13.4 parity by one reflection --------------------------------------------------------------


def draw_key(rng, K):
    k = rng.standard_normal(K)
    return k / np.linalg.norm(k)


def _parity_cases(rng):
    def drawn(T, K, V):
        return rng.integers(0, 2, T), draw_key(rng, K), rng.standard_normal(V)

    return [
        Case((np.array([1, 0, 1, 1]), np.array([0.8, 0.6]), np.array([3.0, 1.0])), "by hand: Ada's key, room 31"),
        Case((np.array([1]), draw_key(rng, 3), rng.standard_normal(2)), "T = 1: a one"),
        Case((np.array([0]), draw_key(rng, 3), rng.standard_normal(2)), "T = 1: a zero"),
        Case((np.ones(7, dtype=int), draw_key(rng, 2), rng.standard_normal(4)), "ones only"),
        Case((np.zeros(5, dtype=int), draw_key(rng, 4), rng.standard_normal(2)), "zeros only"),
        Case(drawn(12, 4, 3), ""),
        Case(drawn(15, 3, 3), "K = V"),
        Case(drawn(300, 5, 2), "300 bits"),
    ]


def parity_oracle(bits, k, v):
    return _parity(bits, k, v)


def _parity(bits, k, v, *, beta=lambda x: 2 * x, target=0.0, before=False, start=1.0):
    S, reads = start * np.outer(k, v), []
    for x in bits:
        old = S.T @ k
        S = S + beta(x) * np.outer(k, target * v - old)
        reads.append(old if before else S.T @ k)
    return np.array(reads).reshape(len(bits), len(v))


PARITY = Exercise(
    id="13.4",
    name="parity_reads",
    title="parity by one reflection",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("reads[t, v]",),
    cases=_parity_cases,
    oracle=parity_oracle,
    mistakes=(
        Mistake(
            "beta-one",
            "a one clears what stands under the key, with beta = 1; with beta = 2 it changes its sign",
            lambda bits, k, v: _parity(bits, k, v, beta=lambda x: x),
        ),
        Mistake(
            "read-before-the-token",
            "the reads are those before each token; a token acts, then the state is read",
            lambda bits, k, v: _parity(bits, k, v, before=True),
        ),
        Mistake(
            "the-value-written-again",
            "every one writes v again, so that nothing changes; the tokens have a value of 0",
            lambda bits, k, v: _parity(bits, k, v, target=1.0),
        ),
        Mistake(
            "zeros-reflect",
            "zeros change the sign and ones leave it; it is the ones that are counted",
            lambda bits, k, v: _parity(bits, k, v, beta=lambda x: 2 * (1 - x)),
        ),
        Mistake(
            "every-token-reflects",
            "every token changes the sign: that is the parity of the length",
            lambda bits, k, v: _parity(bits, k, v, beta=lambda x: 2),
        ),
        Mistake(
            "the-last-bit-only",
            "each read depends on its own bit alone; the sign of the read before it goes on",
            lambda bits, k, v: np.outer(1 - 2 * np.asarray(bits), v),
        ),
        Mistake(
            "starts-empty",
            "the state began at 0, and 0 has no sign; it begins with v under the key",
            lambda bits, k, v: _parity(bits, k, v, start=0.0),
        ),
        Mistake(
            "other-sign",
            "all signs are the other way round; after an even number of ones the read is v itself",
            lambda bits, k, v: -parity_oracle(bits, k, v),
        ),
        Mistake(
            "parity-times-v",
            "the reads are 0 and v; they are v after an even number of ones and -v after an odd one",
            lambda bits, k, v: np.outer(np.cumsum(bits) % 2, v),
        ),
    ),
    hints=(
        "Every row of the result is v or -v.",
        "Put v under the key first: the state before the first token is an outer product.",
        "For each bit, multiply the state with the identity minus beta times the key's outer product with itself, "
        "where beta is 0 or 2, and read at the key.",
        "The factor need not be made: what it takes off the state is beta times an outer product, of the key with what "
        "is read at it.",
    ),
)

# --- 13.5 the key of a swap ---------------------------------------------------------------------


def _swap_cases(rng):
    def drawn(n):
        i, j = rng.choice(n, 2, replace=False)
        return n, int(i), int(j)

    return [
        Case((2, 0, 1), "two places"),
        Case((3, 0, 2), "the outer two of three"),
        Case((4, 2, 1), "the larger index first"),
        Case((5, 3, 4), ""),
        *(Case(drawn(n), "") for n in (4, 6, 9)),
    ]


def swap_oracle(n, i, j):
    return swap_key(n, i, j)


def swap_key(n, i, j):
    return (np.eye(n)[i] - np.eye(n)[j]) / np.sqrt(2)


def _reflection_of(returned, n, i, j):
    k = np.asarray(returned, dtype=float).reshape(-1)
    return np.eye(len(k)) - 2 * np.outer(k, k)


SWAP = Exercise(
    id="13.5",
    name="swap_key",
    title="the reflection of a swap",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("(I - 2 k kᵀ)[i, j]",),
    cases=_swap_cases,
    oracle=swap_oracle,
    view=_reflection_of,
    mistakes=(
        Mistake(
            "sum-of-the-two",
            "the key is along the sum of the two unit vectors; the swap leaves the sum as it is and turns the "
            "difference round",
            lambda n, i, j: (np.eye(n)[i] + np.eye(n)[j]) / np.sqrt(2),
        ),
        Mistake(
            "not-of-length-one",
            "the key's length is √2; keys have length 1",
            lambda n, i, j: np.eye(n)[i] - np.eye(n)[j],
        ),
        Mistake(
            "halved",
            "the difference was divided by 2; its length is √2",
            lambda n, i, j: (np.eye(n)[i] - np.eye(n)[j]) / 2,
        ),
        Mistake(
            "one-place-only",
            "the key is along one channel, so that its reflection changes the sign of one place",
            lambda n, i, j: np.eye(n)[i],
            also=(lambda n, i, j: np.eye(n)[j],),
        ),
        Mistake(
            "places-counted-from-one",
            "places were counted from 1; they are counted from 0",
            lambda n, i, j: swap_key(n, i - 1, j - 1),
        ),
        Mistake(
            "next-neighbours",
            "the first place was exchanged with its neighbour; the second place is given",
            lambda n, i, j: swap_key(n, i, (i + 1) % n) if j != (i + 1) % n else swap_key(n, i, j),
        ),
        Mistake(
            "all-places",
            "the key uses all places alike; only the two that are exchanged may move",
            lambda n, i, j: np.ones(n) / np.sqrt(n),
        ),
    ),
    hints=(
        "A reflection turns its key round and leaves everything orthogonal to the key as it is. What does a swap turn "
        "round?",
        "Two vectors change places. Their sum does not change; one other combination of them changes its sign.",
        "The key has two entries that are not 0, equal in size and of opposite sign.",
        "Take the difference of two rows of `np.eye(n)`, and divide it by its length.",
    ),
)

# --- 13.6 a permutation as reflections ----------------------------------------------------------


def _permutation_cases(rng):
    def cycle(*places, n):
        p = np.arange(n)
        p[list(places)] = np.roll(places, -1)
        return p

    return [
        Case((np.array([1, 0]),), "a swap"),
        Case((np.array([1, 2, 0]),), "a 3-cycle: two factors"),
        Case((np.arange(3),), "nothing moves: no factor"),
        Case((cycle(0, 3, 1, 2, n=4),), "a 4-cycle"),
        Case((np.array([1, 0, 3, 2]),), "two swaps"),
        Case((cycle(4, 1, 2, n=5),), "a 3-cycle of five"),
        Case((np.array([1, 2, 0, 4, 3]),), "a 3-cycle and a swap"),
        Case((cycle(0, 2, 4, 1, 3, n=5),), "a 5-cycle: four factors"),
        *(Case((rng.permutation(n),), "") for n in (5, 6, 8)),
    ]


def permutation_oracle(p):
    return permutation_keys(p)


def permutation_keys(p, *, start=0, stop=None):
    """One swap a misplaced item: exchange what stands at a place with what belongs there."""
    n, keys = len(p), []
    here = np.arange(n)  # here[i]: where item i is now
    for place in range(start, n if stop is None else stop):
        item = int(np.flatnonzero(np.asarray(p) == place)[0])
        if here[item] != place:
            other = int(np.flatnonzero(here == place)[0])
            keys.append(swap_key(n, here[item], place))
            here[other], here[item] = here[item], place
    return np.array(keys).reshape(-1, n)


def _by_neighbours(p):
    """Bubble sort: swaps of neighbouring places only."""
    keys, goal, n = [], list(p), len(p)
    for _ in range(n):
        for i in range(n - 1):
            if goal[i] > goal[i + 1]:
                goal[i], goal[i + 1] = goal[i + 1], goal[i]
                keys.append(swap_key(n, i, i + 1))
    return np.array(keys).reshape(-1, n)


def _product_of(returned, p):
    n = len(p)
    keys = np.asarray(returned, dtype=float)
    keys = keys.reshape(-1, n) if keys.size == 0 else keys
    if keys.ndim != 2 or keys.shape[1] != n:
        raise ValueError(f"expected keys of shape (m, {n}), got {keys.shape}")
    P = np.eye(n)
    for k in keys:
        P = P - 2 * np.outer(k, k @ P)
    return len(keys), P


PERMUTATION = Exercise(
    id="13.6",
    name="permutation_keys",
    title="a permutation as reflections",
    points=3,
    minutes=14,
    difficulty="core",
    returns=("number of keys", "product[i, j]"),
    cases=_permutation_cases,
    oracle=permutation_oracle,
    view=_product_of,
    mistakes=(
        Mistake(
            "the-inverse",
            "this is the inverse permutation: the keys are in the opposite order, or p was read as the item at each "
            "place; the first key acts first, and item i goes to place p[i]",
            lambda p: permutation_keys(p)[::-1],
        ),
        Mistake(
            "neighbours-only",
            "the product is right and too long: only neighbouring places were exchanged; any two places may be",
            lambda p: _by_neighbours(p),
        ),
        Mistake(
            "padded-with-zeros",
            "the product is right and too long: keys of zeros do nothing and are counted as factors",
            lambda p: np.pad(permutation_keys(p), ((0, len(p) - 1 - len(permutation_keys(p))), (0, 0))),
        ),
        Mistake(
            "not-of-length-one",
            "the keys' length is √2; keys have length 1",
            lambda p: np.sqrt(2) * permutation_keys(p),
        ),
        Mistake(
            "a-key-for-every-item",
            "there is a key for every item that moves, each from its old place to its new one; once it has come to "
            "its place an item stays there, so a cycle needs one key less than it has items",
            lambda p: np.array([swap_key(len(p), i, p[i]) for i in range(len(p)) if p[i] != i]).reshape(-1, len(p)),
        ),
        Mistake(
            "one-cycle-only",
            "only one cycle was followed; others are left as they were",
            lambda p: _first_cycle(p),
        ),
        Mistake(
            "sums-for-differences",
            "the keys are along sums of unit vectors: every swap changes signs too",
            lambda p: np.abs(permutation_keys(p)),
        ),
    ),
    hints=(
        "A permutation of n items with c cycles needs n - c swaps; items that stay are cycles of their own.",
        "Each swap can bring one item to its place for good, and the last one of a cycle brings two.",
        "Keep track of where every item is now. Go through the places; if the wrong item stands there, exchange it "
        "with the one that belongs there.",
        "A swap of two places has the key of the exercise before. Collect the keys in the order in which you made "
        "the swaps, and return them as an array with n columns, also when there are none.",
    ),
)


def _first_cycle(p):
    """Swaps for the first cycle that moves anything."""
    moved = [i for i in range(len(p)) if p[i] != i]
    alone, i = np.arange(len(p)), moved[0] if moved else 0
    while moved and alone[i] == i:
        alone[i] = p[i]
        i = int(p[i])
    return permutation_keys(alone)


# --- 13.7 the fewest reflections ----------------------------------------------------------------


def orthogonal(rng, n):
    Q, R = np.linalg.qr(rng.standard_normal((n, n)))
    return Q * np.sign(np.diag(R))


def _turned(rng, blocks):
    """A block-diagonal orthogonal matrix in a random basis; a block is an angle or the entry 1 or -1."""
    n = sum(1 if isinstance(x, int) else 2 for x in blocks)
    D, at = np.zeros((n, n)), 0
    for x in blocks:
        if isinstance(x, int):
            D[at, at] = x
            at += 1
        else:
            D[at : at + 2, at : at + 2] = [[np.cos(x), -np.sin(x)], [np.sin(x), np.cos(x)]]
            at += 2
    Q = orthogonal(rng, n)
    return Q @ D @ Q.T


def _fewest_cases(rng):
    def angle():
        return float(rng.uniform(0.3, 2.5))

    return [
        Case((np.eye(3),), "the identity"),
        Case((np.roll(np.eye(3), 1, axis=0),), "a 3-cycle"),
        Case((np.eye(4)[[1, 0, 2, 3]],), "a swap"),
        Case((-np.eye(3),), "-I"),
        Case((_turned(rng, [angle(), 1]),), "a rotation of space"),
        Case((_turned(rng, [angle(), -1]),), "a rotation and a reflection"),
        Case((_turned(rng, [angle(), 1, 1, 1]),), "a rotation in one plane of five dimensions"),
        Case((_turned(rng, [-1, -1, 1, 1]),), "two reflections"),
        Case((_turned(rng, [angle(), angle(), 1]),), "two planes"),
        Case((np.eye(6)[rng.permutation(6)],), "a permutation"),
        Case((_turned(rng, [-1, 1, 1, 1, 1]),), "one reflection of five dimensions"),
        Case((_turned(rng, [0.001, 1]),), "a rotation by a thousandth"),
    ]


def fewest_oracle(Q):
    return int(np.linalg.matrix_rank(np.eye(len(Q)) - Q, tol=1e-8))


FEWEST = Exercise(
    id="13.7",
    name="fewest_reflections",
    title="the fewest reflections",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("factors",),
    cases=_fewest_cases,
    oracle=fewest_oracle,
    mistakes=(
        Mistake(
            "rank-of-the-matrix",
            "the rank of Q itself was taken, which is always n; what Q leaves alone is what counts",
            lambda Q: int(np.linalg.matrix_rank(Q)),
        ),
        Mistake(
            "fixed-directions",
            "the dimension of what stays fixed was returned; the number asked for is n minus that",
            lambda Q: len(Q) - fewest_oracle(Q),
        ),
        Mistake(
            "diagonal-entries",
            "entries of the diagonal that differ from 1 were counted: in a turned basis that says nothing",
            lambda Q: int(np.sum(~np.isclose(np.diag(Q), 1))),
        ),
        Mistake(
            "eigenvalues-minus-one",
            "only eigenvalues of -1 were counted; a pair of complex ones needs two reflections as well",
            lambda Q: int(np.sum(np.isclose(np.linalg.eigvals(Q), -1))),
        ),
        Mistake(
            "a-plane-counted-once",
            "a rotation in a plane was counted as one; it takes two reflections",
            lambda Q: _planes_once(Q),
        ),
        Mistake(
            "the-determinant",
            "the determinant tells whether the number is even or odd, and not the number",
            lambda Q: int(round(np.linalg.det(Q)) < 0),
        ),
        Mistake(
            "always-n-minus-one",
            "n - 1 is the most that a permutation needs; many matrices need fewer, some one more",
            lambda Q: len(Q) - 1,
        ),
        Mistake(
            "wide-tolerance",
            "a small rotation was taken for none; rounding errors are far smaller, about 1e-15",
            lambda Q: int(np.linalg.matrix_rank(np.eye(len(Q)) - Q, tol=1e-2)),
        ),
    ),
    hints=(
        "The identity needs none, a swap one, a rotation of the plane two, -I as many as there are dimensions.",
        "r reflections leave everything alone that is orthogonal to all r keys. So what Q leaves alone has a dimension "
        "of at least n - r.",
        "A vector that Q leaves alone is one that Q minus the identity sends to zero.",
        "The rank of a matrix is n minus the dimension of what it sends to zero; `np.linalg.matrix_rank` has an "
        "argument `tol` for numbers that are 0 up to rounding.",
    ),
)


def _planes_once(Q):
    values = np.linalg.eigvals(Q)
    moved = values[np.abs(values - 1) > 1e-7]
    return int(np.sum(np.abs(moved.imag) < 1e-7) + np.sum(moved.imag > 1e-7))


EXERCISES = (PARITY, SWAP, PERMUTATION, FEWEST)
