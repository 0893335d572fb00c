"""Chapter 12, second part: what the theorem allows, in numbers (12.3 to 12.5)."""

import math

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 12.3 the ceiling ----------------------------------------------------------------------------


def _ceiling_cases(rng):
    drawn = [(int(rng.integers(5, 90)), int(rng.integers(60, 200)), int(rng.integers(3, 40))) for _ in range(3)]
    return [
        Case((2, 3, 2), "by hand: four states, eight strings"),
        Case((1000, 1100, 2), "1,000 bits of state, 1,100 bits of string"),
        Case((8, 8, 2), "as many states as strings: nothing is excluded"),
        Case((64, 10, 4), "more states than strings: a probability is at most 1"),
        Case((0, 5, 10), "no state at all: five digits guessed"),
        Case((10, 7, 3), "three symbols"),
        Case((100, 30, 26), ""),
        Case((40, 0, 5), "the empty string"),
        Case((16384, 20000, 50000), "a state of 2 KiB, 20,000 tokens"),
        *(Case(case) for case in drawn),
    ]


def ceiling_oracle(bits, L, c):
    return min(0.0, bits - L * math.log2(c))


CEILING = Exercise(
    id="12.3",
    name="log2_ceiling",
    title="the ceiling of the copying theorem",
    points=1,
    minutes=5,
    difficulty="warm-up",
    returns=("log2",),
    cases=_ceiling_cases,
    oracle=ceiling_oracle,
    mistakes=(
        Mistake(
            "above-one",
            "a probability is at most 1, so its logarithm is at most 0",
            lambda bits, L, c: bits - L * math.log2(c),
        ),
        Mistake(
            "not-a-logarithm",
            "this is the probability; the ask is its logarithm to base 2",
            lambda bits, L, c: 2.0 ** ceiling_oracle(bits, L, c),
        ),
        Mistake(
            "natural-logarithm",
            "the logarithm of c was taken to base e, while bits count to base 2",
            lambda bits, L, c: min(0.0, bits - L * math.log(c)),
        ),
        Mistake(
            "answer-in-base-e",
            "this is the natural logarithm of the ceiling; the ask is base 2",
            lambda bits, L, c: math.log(2) * ceiling_oracle(bits, L, c),
        ),
        Mistake(
            "a-bit-for-a-symbol",
            "each symbol was counted as one bit; one of c symbols takes log2(c)",
            lambda bits, L, c: min(0.0, float(bits - L)),
        ),
        Mistake(
            "bits-for-states",
            "the number of states was taken to be the number of bits; b bits make 2^b states",
            lambda bits, L, c: min(0.0, (math.log2(bits) if bits else -math.inf) - L * math.log2(c)),
        ),
        Mistake(
            "length-and-symbols-swapped",
            "L and c are swapped; there are c^L strings",
            lambda bits, L, c: min(0.0, bits - (c * math.log2(L) if L else -math.inf)),
        ),
        Mistake(
            "sign",
            "the sign is wrong: a longer string makes the probability smaller",
            lambda bits, L, c: max(0.0, L * math.log2(c) - bits),
        ),
    ),
    hints=(
        "As many states as strings excludes nothing: the answer is 0. One bit less halves the ceiling: the answer is "
        "−1.",
        "There are two to the power of bits states, and c to the power of L strings; the ceiling is their quotient.",
        "The logarithm of a quotient is a difference, that of a power is a product. Computing the powers themselves "
        "overflows.",
        "From the bits subtract L times the binary logarithm of c (math.log2); return 0 if that is positive.",
    ),
)


# --- 12.4 the longest string ---------------------------------------------------------------------


def _longest_cases(rng):
    drawn = [(int(rng.integers(50, 400)), int(rng.integers(3, 60))) for _ in range(3)]
    whole = [(int(n * p), int(2**p)) for n, p in ((rng.integers(20, 60), rng.integers(5, 12)) for _ in range(2))]
    return [
        Case((2, 2), "by hand: four states copy two bits"),
        Case((10, 3), "3^6 = 729 and 3^7 = 2,187; there are 1,024 states"),
        Case((1000, 2), "1,000 bits"),
        Case((3, 8), "exactly one symbol: 8 states, 8 strings"),
        Case((35, 32), "exactly seven symbols of 5 bits"),
        Case((377, 2**29), "exactly thirteen symbols of 29 bits"),
        Case((63, 2**21), "exactly three symbols of 21 bits"),
        Case((49, 2**49 + 1), "one state too few for a symbol"),
        Case((0, 7), "a single state copies the empty string alone"),
        Case((5, 100), "fewer states than symbols"),
        Case((64, 10), "64 bits, digits: 10^19 < 2^64 < 10^20"),
        Case((15610, 50000), "15,610 bits: the values of 1,000 pairs"),
        *(Case(case) for case in drawn),
        *(Case(case, "a power of two: equality") for case in whole),
    ]


def longest_oracle(bits, c):
    L = 0
    while c ** (L + 1) <= 2**bits:
        L += 1
    return L


def _strictly(bits, c):
    L = 0
    while c ** (L + 1) < 2**bits:
        L += 1
    return L


LONGEST = Exercise(
    id="12.4",
    name="longest_copy",
    title="the longest string always copied",
    points=1,
    minutes=6,
    difficulty="core",
    returns=("L",),
    cases=_longest_cases,
    oracle=longest_oracle,
    mistakes=(
        Mistake(
            "logarithms-in-floats",
            "the quotient of two natural logarithms is not exact: where strings and states are equally many it may "
            "fall just below the whole number",
            lambda bits, c: math.floor(bits * math.log(2) / math.log(c)),
            also=(
                lambda bits, c: math.floor(bits / (math.log(c) / math.log(2))),
                lambda bits, c: math.floor(bits / math.log2(c)),
                lambda bits, c: int(math.log(2**bits, c)),
            ),
        ),
        Mistake(
            "fewer-states-than-strings-demanded",
            "equality was excluded; with exactly as many states as strings every string can have its own",
            _strictly,
        ),
        Mistake(
            "rounded-up",
            "this length is already too long: there are more strings than states",
            lambda bits, c: longest_oracle(bits, c) + (c ** longest_oracle(bits, c) < 2**bits),
        ),
        Mistake(
            "one-more",
            "this is the first length that is too long",
            lambda bits, c: longest_oracle(bits, c) + 1,
        ),
        Mistake(
            "half-success",
            "this is the length at which half of the strings may be copied, one bit further; the ask is every string",
            lambda bits, c: longest_oracle(bits + 1, c),
        ),
        Mistake(
            "whole-bits-for-a-symbol",
            "a symbol does not take a whole number of bits: five digits of base 3 fit into 8 bits",
            lambda bits, c: bits // (c - 1).bit_length(),
        ),
        Mistake(
            "divided-by-symbols",
            "the bits were divided by c; a symbol takes log2(c) bits",
            lambda bits, c: bits // c,
        ),
        Mistake(
            "bits-for-states",
            "the number of states was taken to be the number of bits; b bits make 2^b states",
            lambda bits, c: longest_oracle(bits.bit_length() - 1 if bits else 0, c),
        ),
        Mistake(
            "bits-for-symbols",
            "this is the number of bits; a symbol of an alphabet of c takes log2(c) of them",
            lambda bits, c: bits,
        ),
    ),
    hints=(
        "Two states per bit: how many states are there, and how many strings of length 1, 2, 3?",
        "Every string needs a state of its own, so the number of strings must not exceed the number of states; they "
        "may be equal.",
        "Python's integers are exact at any size; compare powers and not logarithms, which round.",
        "Begin with length 0, and lengthen as long as the power of c for one symbol more does not exceed the power of "
        "two.",
    ),
)


# --- 12.5 nearly copied --------------------------------------------------------------------------


def _near_cases(rng):
    drawn = [(int(rng.integers(5, 40)), int(rng.integers(60, 150)), int(rng.integers(2, 12))) for _ in range(3)]
    return [
        Case((1, 3, 1), "by hand: two states, each with 4 of the 8 strings near it"),
        Case((2, 5, 1), "four states, each with 6 of 32 strings near it"),
        Case((0, 4, 0), "no state, no mistake allowed"),
        Case((1000, 1100, 0), "no wrong bit allowed: exercise 12.3"),
        Case((1000, 1100, 10), "ten wrong bits of 1,100"),
        Case((1000, 1100, 30), "thirty: nothing is excluded any more"),
        Case((0, 6, 6), "all bits may be wrong"),
        Case((0, 3, 2), "most bits may be wrong, and yet one string in eight is missed"),
        Case((3, 12, 2), ""),
        Case((20, 1500, 600), "numbers of four hundred digits: use whole numbers"),
        *(Case(case) for case in drawn),
    ]


def near_oracle(bits, L, wrong):
    return _near(bits, L, wrong)


def _near(bits, L, wrong, *, ball=lambda L, w: sum(math.comb(L, i) for i in range(w + 1)), cap=True):
    size = ball(L, wrong)
    log2 = bits + (math.log2(size) if size else -math.inf) - L
    return min(0.0, log2) if cap else log2


def _near_with(**slip):
    return lambda bits, L, wrong: _near(bits, L, wrong, **slip)


NEAR = Exercise(
    id="12.5",
    name="log2_near_ceiling",
    title="the ceiling with a few wrong bits",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("log2",),
    cases=_near_cases,
    oracle=near_oracle,
    mistakes=(
        Mistake(
            "exactly-so-many",
            "only strings with exactly the allowed number of wrong bits were counted; fewer are allowed too",
            _near_with(ball=math.comb),
        ),
        Mistake(
            "limit-left-out",
            "the sum stops one short: strings with exactly the allowed number of wrong bits count too",
            _near_with(ball=lambda L, w: sum(math.comb(L, i) for i in range(w))),
        ),
        Mistake(
            "right-string-left-out",
            "the sum begins at one wrong bit; the string without any counts too",
            _near_with(ball=lambda L, w: sum(math.comb(L, i) for i in range(1, w + 1))),
        ),
        Mistake(
            "above-one",
            "a probability is at most 1, so its logarithm is at most 0",
            _near_with(cap=False),
        ),
        Mistake(
            "first-bits-only",
            "2^wrong counts the ways to change the first few bits, as if each frees one bit of the state; the wrong "
            "bits may stand anywhere",
            _near_with(ball=lambda L, w: 2**w),
        ),
        Mistake(
            "positions-in-order",
            "the wrong positions were counted in every order; a set of positions counts once",
            _near_with(ball=lambda L, w: sum(math.perm(L, i) for i in range(w + 1))),
        ),
        Mistake(
            "not-a-logarithm",
            "this is the probability; the ask is its logarithm to base 2",
            lambda bits, L, wrong: 2.0 ** near_oracle(bits, L, wrong),
        ),
        Mistake(
            "none-allowed",
            "this is the ceiling for exact copies",
            lambda bits, L, wrong: min(0.0, float(bits - L)),
        ),
    ),
    hints=(
        "With no wrong bit allowed this is exercise 12.3 for two symbols; with all allowed the ceiling is 1.",
        "The decoder has one answer for each state. How many strings are near enough to one answer?",
        "A string with i wrong bits is given by the set of wrong positions: math.comb counts these sets.",
        "Sum the counts from none to the allowed number, in whole numbers; take the binary logarithm; add the bits and "
        "subtract the length; at most 0.",
    ),
)

EXERCISES = (CEILING, LONGEST, NEAR)
