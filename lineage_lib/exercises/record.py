"""What an exercise is: its cases, its oracle, its known mistakes, its hints and its points."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# The hand-written id of an exercise's cell, ex-3-2-answer: the join key of grading and updating.
CELL_ID = re.compile(r"ex-([0-9]{1,3})-([0-9]{1,3})-(answer|check)")
DIFFICULTIES = ("warm-up", "core", "hard")


@dataclass(frozen=True)
class Case:
    """One call of the learner's function.

    args       positional arguments, in the order of the signature
    note       what is special about these inputs ("a[2] = 0: a reset"), shown when the case fails
    max_bytes  peak of new memory that the call may use; None: not measured
    """

    args: tuple
    note: str = ""
    max_bytes: int | None = None


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong answer, recognised by what it returns.

    name       stable kebab-case id, reported to teachers ("decay-after-write")
    sentence   what the learner reads: what the answer did, and what follows from the equation
    function   the wrong answer, with the exercise's signature
    sign       "output": recognised by its values; "error": by the exception it raises, and nothing
               else; "memory": right values, too much memory
    also       the same mistake written so that it returns something else, say 0 in place of a NaN
    """

    name: str
    sentence: str
    function: Callable
    sign: str = "output"
    also: tuple[Callable, ...] = ()

    @property
    def functions(self) -> tuple[Callable, ...]:
        """All ways in which the mistake is known."""
        return (self.function, *self.also)


@dataclass(frozen=True)
class Exercise:
    """The record of one exercise.

    id         "3.2": chapter, number within the chapter; stable for ever
    name       the learner's function
    title      the ask in a few words; the stub's NotImplementedError carries it
    returns    one label a returned value, with the names of its axes: ("Y[t, p]", "S[n, p]")
    cases      rng -> cases, smallest first; their number does not depend on the rng
    oracle     a right answer, with the signature whose argument names the messages use
    mistakes   4 to 10 plausible wrong answers, the most natural ones
    hints      four rungs, from what is violated to the one missing line
    view       (output, *args) -> what is compared, where many outputs are right; None: the output itself
    rtol       allowed |difference| relative to the largest expected entry (at least 1)
    launch     (*args) -> the launch of a Triton kernel on them (lineage_lib.launching); its outputs are what
               is compared. None: the learner's function is no kernel, it is called
    """

    id: str
    name: str
    title: str
    points: int
    minutes: int
    difficulty: str
    returns: tuple[str, ...]
    cases: Callable[[np.random.Generator], Sequence[Case]]
    oracle: Callable
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, str, str, str]
    view: Callable[..., Any] | None = None
    rtol: float = 1e-9
    launch: Callable[..., Any] | None = None

    @property
    def chapter(self) -> str:
        """Two-digit chapter number: "03"."""
        return f"{int(self.id.split('.')[0]):02d}"

    @property
    def stub_line(self) -> str:
        """The line that stands in an untouched answer cell."""
        return f'raise NotImplementedError("Exercise {self.id}: {self.title}")'

    def ok_line(self, ran: str) -> str:
        """What a passed check prints; ``ran`` says what ran, "14 cases"."""
        return f"ok {self.id} {self.name}: {ran}"

    def seeded_cases(self, seed: int) -> list[Case]:
        """The cases of one run. The notebook's seed is 0; a grading run draws a fresh one."""
        return list(self.cases(np.random.default_rng([seed, *map(ord, self.id)])))
