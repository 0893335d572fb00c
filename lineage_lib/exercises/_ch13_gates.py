"""Chapter 13, first part: states that settle, and what gates in [0, 1] can do (13.1 to 13.3)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 13.1 when a state stops changing -----------------------------------------------------------

LONGEST = 6000  # no case of the check takes as many steps, whatever the slip


def _stop_cases(rng):
    def drawn(precision, low, high):
        b = float(rng.uniform(0.3, 3.0)) * float(rng.choice([-1, 1]))
        return float(rng.uniform(low, high)), b, precision

    return [
        Case((0.5, 1.0, "float32"), "a half in float32"),
        Case((0.5, 1.0, "float16"), "a half in float16"),
        Case((0.0, 1.0, "float32"), "a = 0: settled after one step"),
        Case((0.7, 0.0, "float16"), "b = 0: settled from the start"),
        Case((0.9, 1.0, "float32"), ""),
        Case((0.9, 1.0, "float16"), ""),
        Case((0.99, 1.0, "float16"), "a long memory in float16"),
        Case((0.99, 1.0, "float32"), "a long memory in float32"),
        *(Case(drawn("float16", 0.6, 0.97), "float16") for _ in range(6)),
        *(Case(drawn("float32", 0.6, 0.97), "float32") for _ in range(4)),
        Case((0.47, 0.95, "float16"), "it passes b / (1 - a), rounded, and goes on"),
        Case((0.8, 0.37, "float64"), "float64"),
    ]


def stop_oracle(a, b, precision):
    return _stop(a, b, precision)


def _stop(a, b, precision, *, step=None, start=0.0, coefficient=None, same=lambda new, h: new == h, give=None):
    """Steps until the state repeats; ``step(r, a, h, b)`` with the rounding r, ``give(n, h)`` what is returned."""
    r = np.dtype(precision).type
    coefficient = coefficient or r
    a, b, h = coefficient(a), coefficient(b), r(start)
    n = 0
    while n < LONGEST:
        new = r(r(a * h) + b) if step is None else step(r, a, h, b)
        if same(new, h):
            break
        h, n = new, n + 1
    return n if give is None else give(n, h)


def _until_limit(a, b, precision):
    r = np.dtype(precision).type
    limit = r(r(b) / (r(1) - r(a)))
    return _stop(a, b, precision, same=lambda new, h: new == h or h == limit)


STOP = Exercise(
    id="13.1",
    name="steps_until_stop",
    title="when a state stops changing",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("steps",),
    cases=_stop_cases,
    oracle=stop_oracle,
    mistakes=(
        Mistake(
            "repeat-counted",
            "the step that finds the state unchanged was counted; the answer is the number of steps before it",
            lambda a, b, precision: stop_oracle(a, b, precision) + 1,
        ),
        Mistake(
            "float64",
            "the loop ran in float64; every number, and the result of every operation, is of the given precision",
            lambda a, b, precision: stop_oracle(a, b, "float64"),
        ),
        Mistake(
            "rounded-once",
            "product and sum were rounded once, together; first the product is rounded, then the sum",
            lambda a, b, precision: _stop(
                a,
                b,
                precision,
                step=lambda r, a, h, b: r(np.float64(a) * np.float64(h) + np.float64(b)),
            ),
        ),
        Mistake(
            "coefficients-in-float64",
            "a and b stayed in float64; they are rounded to the precision before the first step",
            lambda a, b, precision: _stop(a, b, precision, coefficient=np.float64),
        ),
        Mistake(
            "within-a-tolerance",
            "the loop ended when the state was nearly unchanged; it ends when it is equal, digit by digit",
            lambda a, b, precision: _stop(a, b, precision, same=lambda new, h: bool(np.isclose(new, h))),
            also=(lambda a, b, precision: _stop(a, b, precision, same=lambda new, h: bool(abs(new - h) < 1e-6)),),
        ),
        Mistake(
            "stopped-at-the-limit",
            "the loop ended at b / (1 - a); a rounded state may pass that and go on, or never reach it",
            lambda a, b, precision: _until_limit(a, b, precision),
        ),
        Mistake(
            "first-state-is-b",
            "the loop began at h = b; the state before the first token is 0",
            lambda a, b, precision: _stop(a, b, precision, start=b),
        ),
        Mistake(
            "the-state-returned",
            "the value at which the state stops was returned; the number of steps is asked for",
            lambda a, b, precision: _stop(a, b, precision, give=lambda n, h: float(h)),
        ),
        Mistake(
            "added-before-the-decay",
            "b was added first and faded with the state; the old state fades, then b is added",
            lambda a, b, precision: _stop(a, b, precision, step=lambda r, a, h, b: r(a * r(h + b))),
        ),
    ),
    hints=(
        "With a = 0 the answer is 1: one step brings the state to b, and the next one leaves it there.",
        "Keep two numbers, the state and the one that follows it, and count how often they differ.",
        "`number(x)` rounds x. It is needed for both coefficients, for the product and for the sum.",
        "A NumPy number times a NumPy number of the same type is rounded to that type by itself, so convert `a`, `b` "
        "and the 0 first. Then loop while the next state is not equal to the current one.",
    ),
)

# --- 13.2 states at which every decoder fails ---------------------------------------------------


def _ambiguous_cases(rng):
    def rising(n):
        return np.sort(rng.integers(0, n, (n, 2)), axis=0), int(rng.integers(0, n))

    def counter(m, start=0):
        s = np.arange(m)
        return np.stack([s, (s + 1) % m], axis=1), start

    saturating = np.minimum(np.arange(6)[:, None] + np.array([0, 1]), 5)
    apart = np.array([[0, 1], [1, 0], [3, 2], [3, 3]])
    once = np.array([[1, 2], [1, 2], [2, 1], [4, 4], [4, 4]])
    lengths = np.array([[1, 1], [0, 0]])
    return [
        Case(counter(2), "two states that ones exchange"),
        Case((np.array([[0, 0]]), 0), "one state"),
        Case((saturating, 0), "a counter that stops at 5"),
        Case((saturating, 2), "the same from state 2"),
        Case(counter(4), "ones counted modulo 4"),
        Case(counter(9), "ones counted modulo 9"),
        Case(counter(9, 4), "modulo 9, from state 4"),
        Case((apart, 0), "two states that the start does not reach"),
        Case((once, 0), "zeros lead on, ones exchange; two states out of reach"),
        Case((lengths, 1), "length modulo 2, which is not parity"),
        *(Case(rising(n), "a rising table") for n in (5, 8, 12, 20)),
        *(Case((rng.integers(0, n, (n, 2)), int(rng.integers(0, n))), "a random table") for n in (4, 7, 7, 15, 15)),
    ]


def ambiguous_oracle(table, start):
    even, odd = _reached(table, [(start, 0)])
    return even & odd


def _reached(table, begin, *, odd_symbol=(1,), symbols=(0, 1), longest=None):
    """States that strings with an even, an odd number of ones reach, (2, states)."""
    found, frontier, length = set(begin), set(begin), 0
    while frontier and (longest is None or length < longest):
        new = {(int(table[s, x]), p ^ (x in odd_symbol)) for s, p in frontier for x in symbols}
        frontier, length = new - found, length + 1
        found |= new
    reached = np.zeros((2, len(table)), dtype=bool)
    for s, p in found:
        reached[int(p), s] = True
    return reached


AMBIGUOUS = Exercise(
    id="13.2",
    name="ambiguous_states",
    title="states of both parities",
    points=3,
    minutes=12,
    difficulty="core",
    returns=("both[s]",),
    cases=_ambiguous_cases,
    oracle=ambiguous_oracle,
    mistakes=(
        Mistake(
            "ones-only",
            "only strings of ones were tried; zeros may lead to other states",
            lambda table, start: np.logical_and(*_reached(table, [(start, 0)], symbols=(1,))),
        ),
        Mistake(
            "reached-at-all",
            "every state that is reached was marked; it has to be reached with both parities",
            lambda table, start: np.logical_or(*_reached(table, [(start, 0)])),
        ),
        Mistake(
            "every-state-a-start",
            "strings were started in every state; the memory starts in one",
            lambda table, start: np.logical_and(*_reached(table, [(s, 0) for s in range(len(table))])),
        ),
        Mistake(
            "length-counted",
            "the parity of the string's length was taken; it is that of its ones",
            lambda table, start: np.logical_and(*_reached(table, [(start, 0)], odd_symbol=(0, 1))),
        ),
        Mistake(
            "zeros-counted",
            "zeros were counted in place of ones: column 1 of the table belongs to a one",
            lambda table, start: np.logical_and(*_reached(table, [(start, 0)], odd_symbol=(0,))),
        ),
        Mistake(
            "strings-too-short",
            "the search ended at strings as long as there are states; a state and a parity make twice as many pairs",
            lambda table, start: np.logical_and(*_reached(table, [(start, 0)], longest=len(table) - 1)),
            also=(lambda table, start: np.logical_and(*_reached(table, [(start, 0)], longest=len(table))),),
        ),
        Mistake(
            "the-safe-states",
            "True and False have changed places: the states marked are those that are not reached with both parities",
            lambda table, start: ~ambiguous_oracle(table, start),
        ),
        Mistake(
            "one-state-marked",
            "a single state was marked and the search ended; all of them are asked for",
            lambda table, start: _first_alone(ambiguous_oracle(table, start)),
        ),
    ),
    hints=(
        "A memory with two states that exchange at every one has no such state; a counter that stops at its top has "
        "one, the top.",
        "Follow pairs: a state together with the parity of the ones so far. The empty string is even.",
        "From a pair, a zero leads to a pair of the same parity and a one to a pair of the other. There are finitely "
        "many pairs: go on until no new one turns up.",
        "Keep a set of pairs, beginning with `(start, 0)`, and a list of those still to follow. At the end a state is "
        "marked if both of its pairs are in the set.",
    ),
)


def _first_alone(marks):
    alone = np.zeros_like(marks)
    alone[np.flatnonzero(marks)[:1]] = True
    return alone


# --- 13.3 a flip-flop ---------------------------------------------------------------------------


def _flip_cases(rng):
    def drawn(T, top):
        return rng.integers(-1, top, T)

    return [
        Case((np.array([1, -1, 0, -1, -1]),), "by hand: write 1, wait, write 0, wait, wait"),
        Case((np.array([3]),), "T = 1: write 3"),
        Case((np.array([-1]),), "T = 1: wait"),
        Case((np.array([0]),), "T = 1: write 0"),
        Case((np.array([2, 0, -1, 5, 5]),), "a 0 over a 2"),
        Case((drawn(12, 2),), "bits"),
        Case((drawn(40, 7),), "values up to 6"),
        Case((np.array([4, *([-1] * 30), 1]),), "a long wait"),
    ]


def flip_oracle(tokens):
    return _flip(tokens)


def _flip(tokens, *, keep=lambda x: x < 0, a=(0.0, 1.0), b=None):
    """The gates; ``a`` holds the decay where something is written and where not, ``b(x)`` the write."""
    waits = keep(tokens)
    write = np.where(waits, 0.0, tokens) if b is None else b(tokens)
    return np.where(waits, a[1], a[0]), np.asarray(write, dtype=float)


FLIP = Exercise(
    id="13.3",
    name="flip_flop_gates",
    title="a flip-flop by gates",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("a[t]", "b[t]"),
    cases=_flip_cases,
    oracle=flip_oracle,
    mistakes=(
        Mistake(
            "waiting-clears",
            "a token that writes nothing clears the state: its decay is 1, not 0",
            lambda tokens: _flip(tokens, a=(0.0, 0.0)),
        ),
        Mistake(
            "writing-adds",
            "the new value is added to the old one: where something is written, the old state goes, and a is 0",
            lambda tokens: _flip(tokens, a=(1.0, 1.0)),
        ),
        Mistake(
            "waiting-writes",
            "a token of -1 wrote its -1; it writes nothing, so b is 0",
            lambda tokens: _flip(tokens, b=lambda x: x),
        ),
        Mistake(
            "zero-is-not-written",
            "the value 0 was taken for waiting; it is a value, and the old one must go",
            lambda tokens: _flip(tokens, keep=lambda x: x <= 0),
        ),
        Mistake(
            "gates-exchanged",
            "the two results were returned in each other's place; the decay a comes first",
            lambda tokens: flip_oracle(tokens)[::-1],
        ),
        Mistake(
            "decay-complemented",
            "a is 1 where something is written and 0 where not; it is the share of the old state that stays",
            lambda tokens: _flip(tokens, a=(1.0, 0.0)),
        ),
        Mistake(
            "truth-values-written",
            "b is 1 wherever something is written; it is the value itself",
            lambda tokens: _flip(tokens, b=lambda x: x >= 0),
        ),
        Mistake(
            "states-returned",
            "b holds the states, repeated while nothing is written; it is what the token adds, 0 while it waits",
            lambda tokens: _flip(tokens, b=_held),
        ),
    ),
    hints=(
        "Run your gates: the state after each token must be the last value written, and 0 before the first one.",
        "A token that writes must make the old state vanish. A token that waits must leave it as it is, and add "
        "nothing.",
        "Both gates depend on one question, whether the token is negative.",
        "`np.where` with that question gives both: 1 and 0 for the decay, 0 and the token for the write.",
    ),
)


def _held(tokens):
    held, value = [], 0.0
    for x in tokens:
        value = value if x < 0 else float(x)
        held.append(value)
    return held


EXERCISES = (STOP, AMBIGUOUS, FLIP)
