"""What the tasks of tokens share: their result, and the refusal of bad sizes."""

from typing import NamedTuple

import numpy as np


class Questions(NamedTuple):
    """Sequences of tokens and what is asked of a model that reads them.

    tokens      (batch, T) int64, from 0 to ``vocabulary`` − 1
    answers     (batch, T) int64, from 0 to ``classes`` − 1: what the model should say once it has read this
                token and those before it; -1 where nothing is asked
    vocabulary  the number of tokens
    classes     the number of answers; where an answer is itself a token, the vocabulary again
    """

    tokens: np.ndarray
    answers: np.ndarray
    vocabulary: int
    classes: int


def whole(name: str, value, least: int, most: int | None = None, why: str = "") -> int:
    """``value`` as an int, or an error that names it unless it is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if value < least or (most is not None and value > most):
        to = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}: expected a whole number {to}{why}, got {value}")
    return int(value)


def probability(name: str, value) -> float:
    """``value`` itself, or a ``ValueError`` unless it lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: expected a probability from 0 to 1, got {value}")
    return float(value)


def asked(rng: np.random.Generator, answers: np.ndarray, shortest: int | None) -> np.ndarray:
    """``answers`` (batch, T), all of them for ``shortest`` None, else only one in each sequence.

    That one stands after a number of tokens drawn uniformly from ``shortest`` to T. A causal model has
    seen no more, so that the tokens behind it are as good as absent.
    """
    batch, T = answers.shape
    if shortest is None:
        return answers
    last = rng.integers(whole("shortest", shortest, 1, T, " = T"), T + 1, batch) - 1
    return np.where(np.arange(T) == last[:, None], answers, -1)
