"""Chapter 12, first part: finite states and the strings they leave behind (12.1 and 12.2)."""

import itertools

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# A machine is a table of integers (states, symbols): from state s, symbol x leads to table[s, x]. It starts in 0.


def register(places, c):
    """The last ``places`` symbols, as a number in base c."""
    return (c * np.arange(c**places)[:, None] + np.arange(c)) % c**places


def rounded_decay(levels, c):
    """Half of the state plus the symbol times a quarter of the levels, rounded down and kept in range."""
    h = np.arange(levels)[:, None]
    return np.minimum((h + levels * np.arange(c) // 2) // 2, levels - 1)


def random_table(rng, states, c):
    return rng.integers(0, states, (states, c))


# --- 12.1 two strings, one state -----------------------------------------------------------------


def _twin_cases(rng):
    early = np.array([[1, 2], [3, 0], [1, 3], [2, 1]])
    forgetful = np.array([[0, 1], [0, 1]])
    return [
        Case((register(2, 2), 3), "by hand: it keeps the last two of three bits"),
        Case((forgetful, 2), "it keeps the last bit only"),
        Case((early, 4), "four states"),
        Case((np.zeros((1, 3), dtype=int), 1), "a single state: any two strings are twins"),
        Case((rounded_decay(8, 2), 4), "a decay of one half, rounded down to 8 levels"),
        Case((random_table(rng, 6, 3), 3), "6 states, 3 symbols"),
        Case((random_table(rng, 7, 2), 5), ""),
        Case((random_table(rng, 12, 4), 3), "12 states, 4 symbols"),
        Case((rng.permuted(np.tile(np.arange(11)[:, None], (1, 3)), axis=0), 4), "every symbol permutes the states"),
        Case((register(6, 2), 8), "it keeps the last six of eight bits: 64 strings without twins"),
        Case((random_table(rng, 200, 3), 9), "200 states and 19,683 strings"),
    ]


def twins_oracle(table, L):
    return _twins(table, L)


def _twins(
    table,
    L,
    *,
    strings=lambda c, L: itertools.product(range(c), repeat=L),
    read=lambda z: z,
    step=lambda table, state, x: table[state, x],
    start=0,
    pair=lambda first, second: (first, second),
):
    known = {}
    for z in strings(table.shape[1], L):
        state = start
        for x in read(z):
            state = step(table, state, x)
        if state in known:
            return np.array(pair(known[state], z))
        known[state] = z
    raise RuntimeError("no two strings leave one state")


def _twins_with(**slip):
    return lambda table, L: _twins(table, L, **slip)


def _not_reset(table, L):
    known, state = {}, 0
    for z in itertools.product(range(table.shape[1]), repeat=L):
        for x in z:
            state = table[state, x]
        if state in known:
            return np.array([known[state], z])
        known[state] = z


def _of_the_start(table, L):
    """The first string, and the first later one that leaves the same state."""
    first = None
    for z in itertools.product(range(table.shape[1]), repeat=L):
        state = 0
        for x in z:
            state = table[state, x]
        if first is None:
            first = z, state
        elif state == first[1]:
            return np.array([first[0], z])
    return np.array([first[0], first[0]])


TWINS = Exercise(
    id="12.1",
    name="first_twins",
    title="two strings, one state",
    points=2,
    minutes=10,
    difficulty="core",
    returns=("twins[which, position]",),
    cases=_twin_cases,
    oracle=twins_oracle,
    mistakes=(
        Mistake(
            "later-string-first",
            "the two strings are the right ones in the wrong order; the earlier one comes first",
            _twins_with(pair=lambda first, second: (second, first)),
        ),
        Mistake(
            "same-string-twice",
            "both rows are the second string; keep with each state the string that left it",
            _twins_with(pair=lambda first, second: (second, second)),
        ),
        Mistake(
            "first-symbol-fastest",
            "strings were tried with the first symbol changing fastest; in counting order the last one does",
            _twins_with(strings=lambda c, L: (z[::-1] for z in itertools.product(range(c), repeat=L))),
        ),
        Mistake(
            "read-backwards",
            "the machine was given each string from its end; it reads from left to right",
            _twins_with(read=lambda z: z[::-1]),
        ),
        Mistake(
            "state-not-reset",
            "a string began in the state that the string before had left; each begins in state 0",
            _not_reset,
        ),
        Mistake(
            "started-in-the-last-state",
            "the machine was started in the last state of the table; it starts in state 0",
            _twins_with(start=-1),
        ),
        Mistake(
            "twin-of-the-first-string",
            "only the first string's state was looked for; any two strings may be the first twins",
            _of_the_start,
        ),
        Mistake(
            "table-transposed",
            "the table was read as table[symbol, state]; its rows are states",
            _twins_with(step=lambda table, state, x: table[x, state]),
            sign="error",
        ),
    ),
    hints=(
        "There are more strings than states, so the search must end, and at the latest after one string more than "
        "there are states.",
        "Go through the strings in counting order and remember, for each state that was left, which string left it.",
        "A dictionary from states to strings does that; itertools.product makes the strings, in the right order.",
        "For each string: start in 0, follow the table symbol by symbol; if the state is in the dictionary, return the "
        "string kept there and this one; if not, keep it.",
    ),
)


# --- 12.2 how many strings can be copied ---------------------------------------------------------


def _copied_cases(rng):
    merging = np.array([[1, 2], [3, 3], [3, 4], [5, 5], [5, 5], [5, 0]])
    to_and_fro = np.array([[1, 2], [0, 0], [0, 0]])
    return [
        Case((register(2, 2), 3), "by hand: it keeps the last two of three bits"),
        Case((register(2, 2), 1), "one bit: two strings, two states"),
        Case((merging, 0), "the empty string: one string, and it is copied"),
        Case((merging, 2), "four strings; two leave the same state"),
        Case((merging, 3), ""),
        Case((np.array([[1, 1], [2, 2], [0, 0]]), 4), "it counts, and looks at no symbol"),
        Case((rounded_decay(16, 2), 6), "a decay of one half, rounded down to 16 levels"),
        Case((rounded_decay(16, 3), 3), "the same with three symbols"),
        *(Case((to_and_fro, L), "one state and two, by turns") for L in (5, 60, 61)),
        Case((random_table(rng, 9, 2), 2), ""),
        Case((random_table(rng, 30, 3), 4), "30 states, 81 strings"),
        Case((random_table(rng, 300, 2), 7), "300 states, 128 strings"),
        Case((random_table(rng, 500, 2), 40), "2^40 strings: they cannot all be tried"),
        Case((register(8, 2), 60), "2^60 strings, 256 states"),
    ]


def copied_oracle(table, L):
    return len(_left(table, L))


def _left(table, L):
    left = np.array([0])
    for _ in range(L):
        left = np.unique(table[left])
    return left


def _alone(table, L):
    """Strings whose state no other string leaves."""
    count = [0] * len(table)
    count[0] = 1
    for _ in range(L):
        new = [0] * len(table)
        for state, n in enumerate(count):
            for x in range(table.shape[1]):
                new[table[state, x]] += n
        count = new
    return sum(n == 1 for n in count)


def _up_to(table, L):
    return len(set().union(*(set(_left(table, l).tolist()) for l in range(L + 1))))


COPIED = Exercise(
    id="12.2",
    name="strings_copied",
    title="how many strings come back",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("copied",),
    cases=_copied_cases,
    oracle=copied_oracle,
    mistakes=(
        Mistake(
            "every-state",
            "this is the ceiling of the theorem, the number of states or of strings; the machine may not reach all of "
            "its states with strings of this length",
            lambda table, L: min(len(table), table.shape[1] ** L),
        ),
        Mistake(
            "all-lengths",
            "states that shorter strings leave were counted too; the strings have exactly L symbols",
            _up_to,
        ),
        Mistake(
            "strings-alone",
            "only strings that share their state with no other were counted; of strings that share a state the decoder "
            "still copies one",
            _alone,
        ),
        Mistake("one-symbol-too-few", "this is the count for L − 1 symbols", lambda t, L: len(_left(t, max(L - 1, 0)))),
        Mistake("one-symbol-too-many", "this is the count for L + 1 symbols", lambda t, L: len(_left(t, L + 1))),
        Mistake(
            "share-of-strings",
            "this is the share of all strings; the ask is their number",
            lambda table, L: copied_oracle(table, L) / table.shape[1] ** L,
        ),
        Mistake(
            "all-strings",
            "every string was counted; strings that leave the same state cannot all be copied",
            lambda table, L: table.shape[1] ** L,
        ),
        Mistake(
            "states-of-one-symbol",
            "only the first symbol was fed, again and again; each step may take any symbol",
            lambda table, L: len(np.unique(_left(table[:, :1], L))),
        ),
    ),
    hints=(
        "A decoder that sees only the state gives one answer for each state. How many different states can the strings "
        "leave?",
        "Do not try the strings: there may be far too many. Keep the set of states in which the machine can be after "
        "0, 1, 2, … symbols.",
        "The next set holds every entry of the table's rows that belong to the present set.",
        "Begin with state 0 alone; repeat L times: take the rows of the states in the set, and their different entries "
        "(np.unique). Return how many are in it.",
    ),
)

EXERCISES = (TWINS, COPIED)
