"""Streams of writes for a memory to keep: NumPy, one head.

A stream names things and renames them: each token writes a value under a key. What a memory should
answer is the newest value of each name. Keys of names are orthonormal, so that what goes wrong is
the fault of the rule and not of the keys.
"""

from typing import NamedTuple

import numpy as np


class Stream(NamedTuple):
    """Tokens that write.

    keys    (T, K), of norm 1
    values  (T, V)
    names   (T,), which name the token writes; -1 for a distractor, whose key nobody asks for
    book    (names, K), the key of each name
    """

    keys: np.ndarray
    values: np.ndarray
    names: np.ndarray
    book: np.ndarray


def rewriting(rng: np.random.Generator, T: int = 200, names: int = 8, K: int = 16, V: int = 16) -> Stream:
    """Each token writes a new value under a name drawn at random.

    >>> rewriting(np.random.default_rng(0), T=5, names=3, K=4, V=2).keys.shape
    (5, 4)
    """
    book = _book(rng, names, K)
    drawn = rng.integers(0, names, T)
    return Stream(book[drawn], rng.standard_normal((T, V)), drawn, book)


def distracted(
    rng: np.random.Generator, T: int = 200, names: int = 8, K: int = 16, V: int = 16, share: float = 0.5
) -> Stream:
    """As :func:`rewriting`, but each token is a distractor with probability ``share``.

    A distractor writes a value under a random unit key, which overlaps those of the names.
    """
    stream = rewriting(rng, T, names, K, V)
    strays = rng.standard_normal((T, K))
    strays /= np.linalg.norm(strays, axis=1, keepdims=True)
    distracts = rng.random(T) < share
    return stream._replace(
        keys=np.where(distracts[:, None], strays, stream.keys), names=np.where(distracts, -1, stream.names)
    )


def rare(rng: np.random.Generator, T: int = 200, names: int = 8, K: int = 16, V: int = 16) -> Stream:
    """The first half of the names is written all the time; the others once each, at the start.

    The keys of the first half lie in the first half of the key channels, those of the others in the second.
    """
    if names % 2 or K % 2:
        raise ValueError(f"names, K: expected even numbers, got {names} and {K}")
    often, blocks = names // 2, np.zeros((names, K))
    blocks[:often, : K // 2] = _book(rng, often, K // 2)
    blocks[often:, K // 2 :] = _book(rng, often, K // 2)
    drawn = rng.integers(0, often, T)
    drawn[:often] = np.arange(often, names)[:T]
    return Stream(blocks[drawn], rng.standard_normal((T, V)), drawn, blocks)


def recall_errors(states: np.ndarray, stream: Stream) -> np.ndarray:
    """How far each name's answer is from its newest value, after each token.

    states (T, K, V) -> (T, names): ‖S_tᵀ k − v‖ / ‖v‖; NaN before a name's first write.
    """
    errors = np.full((len(states), len(stream.book)), np.nan)
    newest = np.full((len(stream.book), states.shape[2]), np.nan)
    for t, S in enumerate(states):
        if stream.names[t] >= 0:
            newest[stream.names[t]] = stream.values[t]
        errors[t] = np.linalg.norm(stream.book @ S - newest, axis=1) / np.linalg.norm(newest, axis=1)
    return errors


def _book(rng: np.random.Generator, names: int, K: int) -> np.ndarray:
    """(names, K), orthonormal rows."""
    if not 1 <= names <= K:
        raise ValueError(f"names: expected 1 to K = {K} orthonormal keys, got {names}")
    return np.linalg.qr(rng.standard_normal((K, K)))[0][:names]
