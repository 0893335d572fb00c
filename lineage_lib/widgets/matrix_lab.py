"""The matrix lab: Ada → 31, Bo → 12, Ada → 47 through one rule, step by step."""

import math
from functools import cache

import numpy as np
import traitlets

from lineage_lib.rules import RULES
from lineage_lib.widgets.drawing import drawing, heat, number
from lineage_lib.widgets.gates import GATES, run
from lineage_lib.widgets.piece import FIXTURES, Piece, gate, script

WRITES = ("Ada", 31, (3.0, 1.0)), ("Bo", 12, (1.0, 2.0)), ("Ada", 47, (4.0, 7.0))
LAB_RULES = ("mamba-2", "gated-deltanet", "kda", "gated-deltanet-2")
STEPS = ("decay", "read", "erase", "write", "query")
ADA = (0.8, 0.6)  # so that both key channels matter
_T = len(WRITES)


class MatrixLab(Piece):
    """Three writes through a rule with two key channels and two value channels; its gates can be dragged.

    rule           "mamba-2", "gated-deltanet", "kda" or "gated-deltanet-2"
    position       0 (the empty state) to 15: five steps a token, decay, read, erase, write, query
    angle          degrees between Ada's key (0.8, 0.6) and Bo's
    decay, beta    one number for each token, in [0, 1] and [0, 2]
    channel_decay, erase   (3, 2), for each token and key channel, in [0, 1]
    write          (3, 2), for each token and value channel, in [0, 1]

    Decays are factors of a step, not logarithms. Every setting can be read and set from Python.

    >>> MatrixLab(rule="gated-deltanet", angle=90.0, decay=[1.0, 1.0, 1.0]).answers()["Bo"][-1].tolist()
    [1.0, 2.0]
    """

    name = "matrix-lab"
    source = "matrix_lab"
    _esm = script(source)

    rule = traitlets.Enum(LAB_RULES, "gated-deltanet-2").tag(sync=True, setting=True)
    position = traitlets.Int(3 * len(STEPS), min=0, max=3 * len(STEPS)).tag(sync=True, setting=True)
    angle = gate(0, 180, default=60.0)
    decay = gate(0, 1, _T, default=[0.9] * _T)
    channel_decay = gate(0, 1, _T, 2, default=[[0.98, 0.82]] * _T)
    beta = gate(0, 2, _T, default=[1.0] * _T)
    erase = gate(0, 1, _T, 2, default=[[1.0, 0.5]] * _T)
    write = gate(0, 1, _T, 2, default=[[1.0, 1.0]] * _T)

    def book(self) -> dict[str, np.ndarray]:
        """Name -> key (2,), of norm 1."""
        return keys(self.angle)

    def states(self) -> np.ndarray:
        """(3, 2, 2): the state after each token, from the library's recurrence."""
        return states(self.settings())

    def answers(self) -> dict[str, np.ndarray]:
        """Name -> (3, 2): the two digits read under that name's key after each token."""
        return {name: self.states().transpose(0, 2, 1) @ key for name, key in self.book().items()}

    @staticmethod
    @cache
    def library_data() -> dict:
        rng = np.random.default_rng(11)
        fixtures = []
        for i in range(FIXTURES):
            settings = {
                "rule": LAB_RULES[i % len(LAB_RULES)],
                "position": 0,
                "angle": float(rng.integers(0, 181)),
                "decay": rng.random(_T).round(2).tolist(),
                "channel_decay": rng.random((_T, 2)).round(2).tolist(),
                "beta": (2 * rng.random(_T)).round(2).tolist(),
                "erase": rng.random((_T, 2)).round(2).tolist(),
                "write": rng.random((_T, 2)).round(2).tolist(),
            }
            fixtures.append({"settings": settings, "values": _values(settings)})
        return {
            "rules": LAB_RULES,
            "writes": [{"name": name, "room": room, "digits": digits} for name, room, digits in WRITES],
            "defaults": {name: getattr(MatrixLab, name).default() for name in sorted(set().union(*GATES.values()))},
            "fixtures": fixtures,
        }

    def still(self) -> str:
        answers, parts = self.answers(), []
        for t, ((name, room, _), S) in enumerate(zip(WRITES, self.states())):
            told = "; ".join(f"{who} ({', '.join(number(x) for x in answers[who][t])})" for who in answers)
            parts.append(heat(S, x=20 + 210 * t, y=46, title=f"after {name} → {room}", below=told))
        return drawing("".join(parts), 640, 170, f"{RULES[self.rule].title}: the state after each of three writes")


def keys(angle: float) -> dict[str, np.ndarray]:
    """Name -> key (2,), of norm 1; ``angle`` degrees from Ada's key to Bo's."""
    (x, y), turn = ADA, math.radians(angle)
    bo = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
    return {"Ada": np.array(ADA), "Bo": np.array(bo)}


def states(settings: dict) -> np.ndarray:
    """(3, 2, 2): the state after each token."""
    book = keys(settings["angle"])
    k = np.array([book[name] for name, _, _ in WRITES])
    v = np.array([digits for _, _, digits in WRITES])
    return run(
        settings["rule"], k, v, [{name: settings[name][t] for name in GATES[settings["rule"]]} for t in range(_T)]
    )


def _values(settings: dict) -> list[float]:
    """What the page computes too: for each token the state, Ada's answer, Bo's answer."""
    ada, bo = keys(settings["angle"]).values()
    return [x for S in states(settings) for x in (*S.ravel().tolist(), *(S.T @ ada).tolist(), *(S.T @ bo).tolist())]
