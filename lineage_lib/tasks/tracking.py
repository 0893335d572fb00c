"""Tokens that move a state: parity, counting, arithmetic, words in a group, flip-flop.

The answer after a token is a function of a state that the tokens so far have moved. For ``shortest`` None it is
asked after every token; else once in each sequence, after a number of tokens drawn uniformly from ``shortest``
to T, as a recogniser of strings of these lengths is trained.
"""

from functools import cache
from itertools import permutations

import numpy as np

from lineage_lib.tasks.common import Questions, asked, probability, whole


def parity(rng: np.random.Generator, batch: int, *, T: int = 40, shortest: int | None = None) -> Questions:
    """Is the number of ones so far odd? Bits drawn uniformly.

    Source: Grazzi et al. (2024), who train on lengths from 3 to 40 (``shortest=3, T=40``) and test from 40
    to 256; the task of Delétang et al. (2023). Here by default each prefix of a string is asked as well.

    >>> parity(np.random.default_rng(0), 1, T=6)[:2]
    (array([[1, 1, 1, 0, 0, 0]]), array([[1, 0, 1, 1, 1, 1]]))
    """
    return modular_counting(rng, batch, T=T, modulus=2, shortest=shortest)


def modular_counting(
    rng: np.random.Generator, batch: int, *, T: int = 40, modulus: int = 3, shortest: int | None = None
) -> Questions:
    """The sum of the tokens so far modulo ``modulus``; tokens drawn uniformly from 0 to modulus − 1.

    The word problem of the cyclic group. Source: Grazzi et al. (2024), Theorem 2.

    >>> modular_counting(np.random.default_rng(0), 1, T=6)[:2]
    (array([[2, 1, 1, 0, 0, 0]]), array([[2, 0, 1, 1, 1, 1]]))
    """
    batch, T, modulus = whole("batch", batch, 1), whole("T", T, 1), whole("modulus", modulus, 2)
    tokens = rng.integers(0, modulus, (batch, T))
    return Questions(tokens, asked(rng, tokens.cumsum(1) % modulus, shortest), modulus, modulus)


def modular_arithmetic(
    rng: np.random.Generator, batch: int, *, T: int = 39, modulus: int = 5, shortest: int | None = None
) -> Questions:
    """The value modulo ``modulus`` of d ∘ d ∘ d …, digits d from 0 to modulus − 1 and ∘ one of +, −, ×.

    Without brackets; a product binds more tightly. Digits and operators are drawn uniformly. Tokens: the digits,
    then +, −, ×. T is odd; the value is asked after digits only, and of ``shortest`` and T every odd number is
    as likely.
    Source: Delétang et al. (2023), modulus 5, as in Grazzi et al. (2024), Table 3.

    >>> modular_arithmetic(np.random.default_rng(0), 1, T=5)[:2]  # 4 + 3 + 2
    (array([[4, 5, 3, 5, 2]]), array([[ 4, -1,  2, -1,  4]]))
    """
    batch, T, modulus = whole("batch", batch, 1), whole("T", T, 1), whole("modulus", modulus, 2)
    for name, value in {"T": T, "shortest": shortest}.items():
        if value is not None and value % 2 == 0:
            raise ValueError(f"{name}: expected an odd number of tokens, digits and operators in turn, got {value}")
    digits = rng.integers(0, modulus, (batch, T // 2 + 1))
    operators = rng.integers(0, 3, (batch, T // 2))
    finished, term = np.zeros(batch, np.int64), digits[:, 0]
    values = [term % modulus]
    for operator, digit in zip(operators.T, digits.T[1:]):
        times = operator == 2
        finished = np.where(times, finished, (finished + term) % modulus)
        term = np.where(times, term * digit, np.where(operator == 1, -digit, digit)) % modulus
        values.append((finished + term) % modulus)
    tokens, answers = np.empty((batch, T), np.int64), np.full((batch, T), -1)
    tokens[:, ::2], tokens[:, 1::2] = digits, modulus + operators
    half = None if shortest is None else whole("shortest", shortest, 1, T, " = T") // 2 + 1
    answers[:, ::2] = asked(rng, np.stack(values, 1), half)
    return Questions(tokens, answers, modulus + 3, modulus)


def word_problem(
    rng: np.random.Generator, batch: int, *, T: int = 32, group: str = "S3", shortest: int | None = None
) -> Questions:
    """The product of the group's elements so far, each token one of them, drawn uniformly.

    ``group``: S3, S4, S5 (all permutations), A4, A5 (the even ones), or Z2, Z3, … (cyclic). Token and answer are
    an element's place in :func:`group_elements`; the newest factor stands on the left, x_t … x_2 x_1, as a
    token's matrix multiplies the state.
    Source: Merrill et al. (2024), whose public generator asks after every token, as this does by default; also
    Grazzi et al. (2024) and Siems et al. (2025).

    >>> word_problem(np.random.default_rng(0), 1, T=4, group="Z6")[:2]
    (array([[5, 3, 3, 1]]), array([[5, 2, 5, 0]]))
    """
    batch, T = whole("batch", batch, 1), whole("T", T, 1)
    table = group_table(group)
    tokens = rng.integers(0, len(table), (batch, T))
    product, products = tokens[:, 0], [tokens[:, 0]]
    for newest in tokens.T[1:]:
        product = table[newest, product]
        products.append(product)
    return Questions(tokens, asked(rng, np.stack(products, 1), shortest), len(table), len(table))


@cache
def group_elements(group: str) -> np.ndarray:
    """(elements, points): each row a permutation, where each point goes; row 0 is the identity.

    >>> group_elements("S3")[3]  # 0 -> 1, 1 -> 2, 2 -> 0
    array([1, 2, 0])
    """
    kind, points = group[:1], group[1:]
    if kind not in ("S", "A", "Z") or not points.isdecimal() or not 2 <= int(points) <= (64 if kind == "Z" else 6):
        raise ValueError(f"group: expected S2 to S6, A2 to A6 or Z2 to Z64, got {group!r}")
    n = int(points)
    rows = permutations(range(n)) if kind != "Z" else ((np.arange(n) + shift) % n for shift in range(n))
    elements = np.array(list(rows))
    if kind == "A":
        inversions = sum(elements[:, i] > elements[:, j] for i in range(n) for j in range(i + 1, n))
        elements = elements[inversions % 2 == 0]
    elements.flags.writeable = False  # the caller gets what every later one gets
    return elements


@cache
def group_table(group: str) -> np.ndarray:
    """(elements, elements): the place of x y, first y and then x, in :func:`group_elements`.

    >>> group_table("Z3")
    array([[0, 1, 2],
           [1, 2, 0],
           [2, 0, 1]])
    """
    elements = group_elements(group)
    place = {tuple(x): i for i, x in enumerate(elements.tolist())}
    products = elements[:, elements]  # (x, y, points): x[y[·]]
    table = np.array([[place[tuple(xy)] for xy in row] for row in products.tolist()])
    table.flags.writeable = False
    return table


def flip_flop(
    rng: np.random.Generator, batch: int, *, T: int = 512, write: float = 0.1, read: float = 0.1
) -> Questions:
    """The flip-flop language: write a bit, ignore a bit, read the bit that was written last.

    Tokens: the bits 0 and 1, then write 2, ignore 3, read 4. An instruction stands at every even place and a bit
    behind it; the first one writes and the last reads, the others write, read or, with what is left of the
    probability, ignore. Bits are drawn uniformly, but a read's bit is the answer, asked at the instruction. T is even.
    Source: Liu et al. (2023), FFL(T, p_ignore), with T = 512 and p_ignore = 0.8 in training; 0.98 and 0.1 in its
    sparse and dense tests, ``write`` and ``read`` sharing the rest equally.

    >>> flip_flop(np.random.default_rng(0), 1, T=4)[:2]  # write 0, read 0
    (array([[2, 0, 4, 0]]), array([[-1, -1,  0, -1]]))
    """
    batch, T = whole("batch", batch, 1), whole("T", T, 4)
    if T % 2:
        raise ValueError(f"T: expected an even number of tokens, instructions and bits in turn, got {T}")
    ignore = probability("1 − write − read", 1 - (probability("write", write) + probability("read", read)))
    instructions = rng.choice(np.array([2, 3, 4]), (batch, T // 2), p=[write, ignore, read])
    instructions[:, 0], instructions[:, -1] = 2, 4
    bits = rng.integers(0, 2, (batch, T // 2))
    newest = np.maximum.accumulate(np.where(instructions == 2, np.arange(T // 2), 0), axis=1)
    reads, stored = instructions == 4, np.take_along_axis(bits, newest, 1)
    tokens, answers = np.empty((batch, T), np.int64), np.full((batch, T), -1)
    tokens[:, ::2], tokens[:, 1::2] = instructions, np.where(reads, stored, bits)
    answers[:, ::2] = np.where(reads, stored, -1)
    return Questions(tokens, answers, 5, 2)
