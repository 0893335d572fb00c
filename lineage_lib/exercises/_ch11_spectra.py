"""Chapter 11, third part: eigenvalues, the gate with the largest norm, a sequence that grows (11.8 to 11.10)."""

from itertools import product

import numpy as np

from lineage_lib.checks import Malformed
from lineage_lib.exercises._ch11_steps import ADA, draw_key
from lineage_lib.exercises.record import Case, Exercise, Mistake
from lineage_lib.validate import readable


def transition(k, alpha, b):
    """(I − k (b ⊙ k)ᵀ) diag(α)."""
    return (np.eye(len(k)) - np.outer(k, b * k)) * alpha


def _real(value, name):
    """The value as an array of real numbers."""
    array = np.asarray(readable(value))
    if array.dtype.kind == "c":
        raise Malformed(f"{name} must be real, got {array.dtype}")
    return array


def _as_gate(value, shape):
    """The value as gates of the given shape, which lie between 0 and 1."""
    b = _real(value, "b").astype(float)
    if b.shape != shape:
        raise Malformed(f"b has the wrong shape: got {b.shape}, expected {shape}")
    outside = np.argwhere(~((b >= -1e-9) & (b <= 1 + 1e-9)))
    if len(outside):
        first = tuple(int(i) for i in outside[0])
        where = ", ".join(map(str, first))
        raise Malformed(f"every entry of b must lie between 0 and 1 (to 1e-9): b[{where}] is {b[first]:.10g}")
    return b.clip(0, 1)


# --- 11.8 eigenvalues of a transition -----------------------------------------------------------


def _eigenvalue_cases(rng):
    def token(K, *, alpha=None, b=None):
        alpha = rng.uniform(0.2, 1.0, K) if alpha is None else np.asarray(alpha, float)
        return draw_key(rng, K), alpha, rng.uniform(0.1, 1.0, K) if b is None else np.asarray(b, float)

    return [
        Case((ADA, np.ones(2), np.array([1.0, 0.0])), "by hand: 0.36 and 1"),
        Case((ADA, np.array([0.5, 1.0]), np.ones(2)), "by hand: KDA with beta = 1: 0 and 0.68"),
        Case(token(1), "K = 1"),
        Case(token(2), "K = 2"),
        Case(token(3), ""),
        Case(token(4, alpha=np.ones(4)), "no decay"),
        Case(token(4, alpha=np.full(4, 0.7)), "one decay for all channels"),
        Case(token(3, b=np.zeros(3)), "b = 0: the decays themselves"),
        Case(token(4, b=[0.0, 1.0, 1.0, 0.0]), "two channels are not consulted"),
        Case(token(3, alpha=[0.6, 0.0, 0.9]), "alpha[1] = 0: a channel is cleared"),
        Case(token(3, b=np.ones(3)), "b = 1: one eigenvalue is 0"),
        Case(token(30), "thirty channels"),
    ]


def eigenvalue_oracle(k, alpha, b):
    u = k * np.sqrt(b * alpha)
    return np.linalg.eigvalsh(np.diag(alpha) - np.outer(u, u))


EIGENVALUES = Exercise(
    id="11.8",
    name="transition_eigenvalues",
    title="eigenvalues of a transition",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("eigenvalues[i]",),
    view=lambda returned, k, alpha, b: _real(returned, "eigenvalues"),
    cases=_eigenvalue_cases,
    oracle=eigenvalue_oracle,
    mistakes=(
        Mistake(
            "eigvalsh-of-the-transition",
            "the transition was taken for symmetric, and it is not: np.linalg.eigvalsh looks at one triangle alone, "
            "and the mean of the transition and its transpose has other eigenvalues",
            lambda k, alpha, b: np.linalg.eigvalsh(transition(k, alpha, b)),
            also=(
                lambda k, alpha, b: np.linalg.eigvalsh(transition(k, alpha, b), UPLO="U"),
                lambda k, alpha, b: np.linalg.eigvalsh((transition(k, alpha, b) + transition(k, alpha, b).T) / 2),
            ),
        ),
        Mistake(
            "decay-missing-in-u",
            "what is erased does not know the decay; the erase reads the faded state, so u = k ⊙ √(b ⊙ α)",
            lambda k, alpha, b: np.linalg.eigvalsh(np.diag(alpha) - np.outer(k * np.sqrt(b), k * np.sqrt(b))),
        ),
        Mistake(
            "gate-missing-in-u",
            "u was made without the erase gate; the diagonal scaling gives u = k ⊙ √(b ⊙ α)",
            lambda k, alpha, b: eigenvalue_oracle(k, alpha, np.ones_like(b)),
        ),
        Mistake(
            "root-missing",
            "u was made without the root, so that gate and decay came in squared",
            lambda k, alpha, b: np.linalg.eigvalsh(np.diag(alpha) - np.outer(k * b * alpha, k * b * alpha)),
        ),
        Mistake(
            "identity-for-the-decay",
            "u uᵀ was subtracted from the identity; it is subtracted from the diagonal matrix of the decays",
            lambda k, alpha, b: np.linalg.eigvalsh(
                np.eye(len(k)) - np.outer(k * np.sqrt(b * alpha), k * np.sqrt(b * alpha))
            ),
        ),
        Mistake(
            "added",
            "u uᵀ was added; erasing subtracts it",
            lambda k, alpha, b: np.linalg.eigvalsh(
                np.diag(alpha) + np.outer(k * np.sqrt(b * alpha), k * np.sqrt(b * alpha))
            ),
        ),
        Mistake(
            "singular-values",
            "these are singular values of the transition, which say how much one step may stretch; asked are its "
            "eigenvalues",
            lambda k, alpha, b: np.linalg.svd(transition(k, alpha, b), compute_uv=False)[::-1],
            also=(lambda k, alpha, b: np.linalg.svd(transition(k, alpha, b), compute_uv=False),),
        ),
        Mistake(
            "decay-left-out",
            "these are eigenvalues of the erase alone; the transition has the decay beside it",
            lambda k, alpha, b: eigenvalue_oracle(k, np.ones_like(alpha), b),
        ),
        Mistake(
            "unsorted",
            "these are the eigenvalues in the order in which np.linalg.eigvals found them; asked is ascending order",
            lambda k, alpha, b: np.linalg.eigvals(transition(k, alpha, b)),
        ),
        Mistake(
            "descending",
            "the eigenvalues are right and come from the largest down; asked is ascending order",
            lambda k, alpha, b: eigenvalue_oracle(k, alpha, b)[::-1],
        ),
    ),
    hints=(
        "None of your numbers may be below 0 or above the largest decay, and their product is the product of the "
        "decays times one minus the sum of `b * k**2`.",
        "The proof names a symmetric matrix with the same eigenvalues. It is a diagonal matrix minus an outer product.",
        "Both factors of the outer product are the same vector: the key, entry by entry times a root.",
        "Under the root stand the erase gate and the decay. `np.linalg.eigvalsh` returns ascending real numbers.",
    ),
)


# --- 11.9 the gate with the largest norm --------------------------------------------------------

UNEVEN = np.sqrt([0.226, 0.55, 0.224])


def _gate_cases(rng):
    return [
        Case((np.array([3**-0.5, -((2 / 3) ** 0.5)]),), "by hand: the first channel holds a third of the square"),
        Case((ADA,), "Ada's key"),
        Case((np.ones(1),), "K = 1: with one channel nothing can grow"),
        Case((np.array([0.0, 1.0, 0.0]),), "the key owns a channel: nothing can grow"),
        Case((np.full(4, -0.5),), "four equal channels"),
        Case((np.full(6, 6**-0.5),), "six equal channels"),
        Case((draw_key(rng, 2),), "K = 2"),
        Case((draw_key(rng, 3),), ""),
        Case((UNEVEN,), "no subset of channels holds exactly a third"),
        Case((draw_key(rng, 5),), ""),
        Case((draw_key(rng, 8),), "K = 8: 256 corners"),
    ]


def _best_corner(k, score):
    corners = np.array(list(product((0.0, 1.0), repeat=len(k))))
    return corners[np.argmax([score(b) for b in corners])]


def gate_oracle(k):
    return _best_corner(k, lambda b: np.linalg.norm(transition(k, 1.0, b), ord=2))


def _norm_of_gate(b, k):
    return np.linalg.norm(transition(k, 1.0, _as_gate(b, k.shape)), ord=2)


def _one_channel(k, index):
    return (np.arange(len(k)) == index).astype(float)


GATE = Exercise(
    id="11.9",
    name="worst_gate",
    title="the gate that stretches most",
    points=3,
    minutes=12,
    difficulty="core",
    returns=("b, judged by its norm,",),  # "b, judged by its norm, has wrong values"
    view=_norm_of_gate,
    cases=_gate_cases,
    oracle=gate_oracle,
    mistakes=(
        Mistake(
            "open-everywhere",
            "b = 1 everywhere is DeltaNet with beta = 1, a projection: it stretches nothing",
            lambda k: np.ones(len(k)),
        ),
        Mistake(
            "shut-everywhere",
            "b = 0 everywhere is the identity: it stretches nothing",
            lambda k: np.zeros(len(k)),
        ),
        Mistake(
            "half-open",
            "an even gate is DeltaNet with a smaller beta, whose norm is 1; the norm is largest at a corner, where "
            "each entry is 0 or 1",
            lambda k: np.full(len(k), 0.5),
        ),
        Mistake(
            "largest-channel",
            "only the channel with the largest entry of the key is open; compare the norms of all corners",
            lambda k: _one_channel(k, np.argmax(np.abs(k))),
        ),
        Mistake(
            "smallest-channel",
            "only the channel with the smallest entry of the key is open; compare the norms of all corners",
            lambda k: _one_channel(k, np.argmin(np.abs(k))),
        ),
        Mistake(
            "lowest-channel",
            "only the channel with the lowest entry of the key is open, and a negative entry may be the largest of "
            "all; signs do not matter here, so compare the norms of all corners",
            lambda k: _one_channel(k, np.argmin(k)),
        ),
        Mistake(
            "one-channel-at-a-time",
            "this is the best gate with one open channel; several may be open, so compare the norms of all corners",
            lambda k: max([np.zeros(len(k)), *np.eye(len(k))], key=lambda b: _norm_of_gate(b, k)),
        ),
        Mistake(
            "complement",
            "open and shut have changed places: where your gate is 0 the worst gate is 1",
            lambda k: 1 - gate_oracle(k),
        ),
        Mistake(
            "nearest-to-a-third",
            "this corner's share of the key's square is the nearest to a third; on the two sides of a third the norm "
            "falls off differently, so compare the norms themselves",
            lambda k: _best_corner(k, lambda b: -abs(np.sum(b * k**2) - 1 / 3)),
        ),
        Mistake(
            "two-thirds-open",
            "the channels that are shut hold about a third of the key's square; it is the open ones that should, and "
            "the norms of all corners say which",
            lambda k: 1 - _best_corner(k, lambda b: -abs(np.sum(b * k**2) - 1 / 3)),
        ),
    ),
    hints=(
        "Compute the norm that your gate gives and compare it with 2 / √3. For the first case it can be reached.",
        "The norm is convex in the gate, so a largest one is at a corner: every entry 0 or 1. How many corners are "
        "there for K channels?",
        "`itertools.product((0.0, 1.0), repeat=len(k))` gives all corners. Build the matrix for each, or use the "
        "closed form of its norm.",
        "Keep the corner with the largest norm: `max` with a `key` function, or `np.argmax` over a list of norms.",
    ),
)


# --- 11.10 a sequence that grows ----------------------------------------------------------------


BEST = 6**-0.5  # the small entry of the pair that grows fastest
ENOUGH = 1.1


def _pair_cases(rng):
    return [Case((K,)) for K in (2, 3, 4, 6, 9)]


def _pair(K, s, *, flip=1.0, gates=((1.0, 0.0), (0.0, 1.0))):
    """Keys (−s, c), (c, −s) in the first two channels, and their gates; flip changes one sign."""
    c = np.sqrt(1 - s**2)
    keys, b = np.zeros((2, K)), np.zeros((2, K))
    keys[:, :2] = (-s * flip, c), (c, -s)
    b[:, :2] = gates
    return keys, b


def pair_oracle(K):
    return _pair(K, BEST)


def growth(keys, b):
    """Growth of a state for one token, when the two alternate without a decay."""
    once = transition(keys[1], 1.0, b[1]) @ transition(keys[0], 1.0, b[0])
    return np.sqrt(np.abs(np.linalg.eigvals(once)).max())


def _judged_pair(returned, K):
    """ENOUGH for a pair that grows enough; otherwise the reason why it does not, or how much it grows."""
    keys, b = _two_values(returned, K)
    keys = _real(keys, "keys").astype(float)
    if keys.shape != (2, K):
        raise Malformed(f"keys has the wrong shape: got {keys.shape}, expected {(2, K)}")
    for row, length in enumerate(np.linalg.norm(keys, axis=1)):
        if not abs(length - 1) <= 1e-6:
            raise Malformed(f"every key must have length 1 (to 1e-6): key {row} has length {length:.9g}")
    b = _as_gate(b, (2, K))
    if growth(keys, b) < ENOUGH - 1e-9:
        reason = _reason(keys, b)
        told = f"a token multiplies the state by {growth(keys, b):.6g}" if reason is None else reason
        raise Malformed(f"the pair does not grow by 10 % a token: {told}")
    return ENOUGH


def _two_values(returned, K):
    """What ``keys, b = growing_pair(K)`` would get, also from one array that holds both."""
    if hasattr(returned, "shape") and tuple(returned.shape) != (2, 2, K):
        raise Malformed(f"expected two values: keys and b, got one array of shape {tuple(returned.shape)}")
    try:
        keys, b = returned
    except (TypeError, ValueError) as error:
        many = f" of length {len(returned)}" if hasattr(returned, "__len__") else ""
        raise Malformed(f"expected two values: keys and b, got a {type(returned).__name__}{many}") from error
    return keys, b


def _reason(keys, b):
    """Why a pair does not grow enough: a fact that forbids it, or the one change after which it would; or None."""
    read = b * keys
    shared = (np.abs(keys) > 1e-9).all(axis=0)
    if (np.abs(read) < 1e-9).all(axis=1).any():
        return "a token consults nothing"
    if not shared.any():
        return "the two keys have no channel in common"
    if np.isclose(abs(keys[0] @ keys[1]), 1):
        return "both tokens have the same key, up to its sign"
    if np.allclose(read, keys):
        return "both gates are open in every channel that its key uses"
    if np.allclose(b[0][shared], b[1][shared]):  # one change of units makes both tokens symmetric
        return "the two gates agree in every channel that both keys use"
    if growth(keys, 1 - b) >= ENOUGH:
        return "each token consults the channel in which its key is large"
    if growth(keys, b >= 0.5) >= ENOUGH:
        return "a gate is open only in part"
    flips = 1 - 2 * np.eye(keys.shape[1])
    if max(growth(keys * [flip, np.ones_like(flip)], b) for flip in flips) >= ENOUGH:
        return "the signs of the two keys are at odds"
    share = np.sum(read * keys, axis=1)
    if growth(_leaning(keys, b), b) >= ENOUGH and (share < BEST**2).all():
        return "the keys lean too little into the channel that is consulted"
    if growth(_leaning(keys, b), b) >= ENOUGH and (share > BEST**2).all():
        return "the keys lean too much into the channel that is consulted"
    return None


def _leaning(keys, b):
    """The same keys, leaning into what is consulted as the best pair does."""
    looked = np.where(b >= 0.5, keys, 0.0)
    parts = (looked, BEST), (keys - looked, np.sqrt(1 - BEST**2))
    return sum(size * part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300) for part, size in parts)


PAIR = Exercise(
    id="11.10",
    name="growing_pair",
    title="two tokens that grow a state",
    points=3,
    minutes=15,
    difficulty="hard",
    returns=("growth",),
    view=_judged_pair,
    cases=_pair_cases,
    oracle=pair_oracle,
    mistakes=(
        Mistake(
            "keys-lean-too-much",
            "the small entry is too large. At 1 / √3 one step stretches most, but what one step stretches the next "
            "need not stretch again; a smaller entry makes the pair grow faster",
            lambda K: _pair(K, 3**-0.5),
        ),
        Mistake(
            "keys-lean-too-little",
            "the small entry is too small: too little is read through the channel that is consulted; "
            "a larger entry makes the pair grow faster",
            lambda K: _pair(K, 0.1),
        ),
        Mistake(
            "signs-at-odds",
            "what the first token adds to the other channel comes back with the other sign; with the sign of one "
            "entry changed, the pair grows",
            lambda K: _pair(K, BEST, flip=-1.0),
        ),
        Mistake(
            "the-same-gate-twice",
            "with one gate for both, a change of units makes both transitions symmetric at once, with norms of at most "
            "1, and nothing grows; let the second token consult another channel",
            lambda K: _pair(K, BEST, gates=((1.0, 0.0), (1.0, 0.0))),
        ),
        Mistake(
            "the-same-key-twice",
            "with one key for both, the product is the identity minus an outer product along this key, and its "
            "eigenvalues lie in [0, 1]; let the second key lean into the other channel",
            lambda K: (_pair(K, BEST)[0][[0, 0]], _pair(K, BEST)[1]),
        ),
        Mistake(
            "gates-exchanged",
            "a token that consults where its key is large erases most of what it reads; let each consult the channel "
            "in which its key is small",
            lambda K: _pair(K, BEST, gates=((0.0, 1.0), (1.0, 0.0))),
        ),
        Mistake(
            "gates-open",
            "with open gates these are two projections, whose product cannot grow; leave a channel out",
            lambda K: _pair(K, BEST, gates=((1.0, 1.0), (1.0, 1.0))),
        ),
        Mistake(
            "gates-half-open",
            "the gates consult the right channels, but not wholly; open them there, and shut the others",
            lambda K: _pair(K, BEST, gates=((0.5, 0.0), (0.0, 0.5))),
        ),
        Mistake(
            "no-common-channel",
            "what one token does to its channels the other never sees; let both keys use the same two channels, "
            "each large in one and small in the other",
            lambda K: (np.eye(2, K), np.eye(2, K)),
        ),
        Mistake(
            "nothing-consulted",
            "where b ⊙ k is zero, nothing is read and the transition is the identity; let each token consult a "
            "channel in which its key has a small entry",
            lambda K: _pair(K, BEST, gates=((0.0, 0.0), (0.0, 0.0))),
        ),
    ),
    hints=(
        "Form the product of the two transitions, newest on the left, and take the largest modulus of its eigenvalues. "
        "Its square root is the growth a token.",
        "Two channels are enough; any others may have zeros in both keys. Let one token consult channel 0 only and the "
        "other channel 1 only.",
        "Each key should be large in the channel that is not consulted and small in the one that is. Scan the small "
        "entry from 0 to 1.",
        "If nothing grows, look at signs: where the entries of one key have opposite signs, those of the other must "
        "have opposite signs too. A small entry near 0.4 will do.",
    ),
)

EXERCISES = (EIGENVALUES, GATE, PAIR)
