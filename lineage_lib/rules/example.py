"""One small stream for every rule: Ada is in room 31, Bo in 12, Ada moves to 47, three tokens pass, a question.

A room is written by its digits, (3, 1), so a value has two channels; a name is a key with three.
The names are orthogonal: what one rule confuses, another need not. Whatever else a rule takes gets
a plain value by its kind: decays near 0.9, strengths and gates of 1. The states are those of the
rule's reference form.
"""

import math
from dataclasses import dataclass

import torch

from lineage_lib.rules.record import Input, Rule

Tensor = torch.Tensor

TOKENS = ("Ada → 31", "Bo → 12", "Ada → 47", "wait", "wait", "wait", "Ada’s room?")
NAMES = {"Ada": (0.8, 0.6, 0.0), "Bo": (0.0, 0.0, 1.0)}
ROOMS = ("Ada", (3.0, 1.0)), ("Bo", (1.0, 2.0)), ("Ada", (4.0, 7.0))
DECAY, DECAYS = 0.9, (0.98, 0.82, 0.9)
ERASE = (1.0, 0.5, 1.0)
T, K, V = len(TOKENS), 3, 2

_NOTHING = T - len(ROOMS)
_VALUES = torch.tensor([*(digits for _, digits in ROOMS), *[(0.0,) * V] * _NOTHING], dtype=torch.float64)
_KEYS = torch.tensor([*(NAMES[name] for name, _ in ROOMS), *[(0.0,) * K] * _NOTHING], dtype=torch.float64)
_WRITES = torch.tensor([1.0] * len(ROOMS) + [0.0] * _NOTHING, dtype=torch.float64)


@dataclass(frozen=True)
class Run:
    """What the stream does to one rule.

    rows, columns  labels of the state's table
    states         (T, rows, columns), after each token
    answers        name -> (T, 2): the digits read when that name is asked for at each token; not a number
                   where the rule divides by nothing
    fed            input -> words, for every input of the rule
    """

    rule: Rule
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    states: Tensor
    answers: dict[str, Tensor]
    fed: dict[str, str]


def run(rule: Rule) -> Run:
    """The stream, fed to the rule's reference form.

    >>> from lineage_lib.rules import RULES
    >>> run(RULES["linear-attention"]).answers["Ada"][-1].tolist()  # 31 + 47: both rooms are there
    [7.0, 8.0]
    """
    options = {**rule.options, **({"scale": 1.0} if rule.has_scale else {})}
    answers = {name: rule.recurrent(*inputs(rule, name), **options)[0].reshape(T, V) for name in NAMES}
    tables = []
    for t in range(1, T + 1):
        _, state = rule.recurrent(*inputs(rule, tokens=t), output_final_state=True, **options)
        rows, columns, table = _table(rule, state)
        tables.append(table)
    fed = {spec.name: _fed(spec, "Ada")[2] for spec in rule.inputs}
    if rule.substeps > 1 and any("T*n" in spec.axes for spec in rule.inputs):
        fed["n"] = f"{rule.substeps} steps a token; the others than the first are given key, value and strength 0"
    return Run(rule, rows, columns, torch.stack(tables), answers, fed)


def room(digits: Tensor) -> Tensor:
    """The number that digits (…, 2) are read as: 10 tens + ones."""
    return 10 * digits[..., 0] + digits[..., 1]


def inputs(rule: Rule, asked: str = "Ada", tokens: int = T) -> list[Tensor]:
    """The rule's tensors for the stream's first tokens, each of which asks for ``asked``."""
    tensors = []
    for spec in rule.inputs:
        values, axes, _ = _fed(spec, asked)
        letters = spec.axes.split()
        if "T" in axes:
            values = values[:tokens]
            if "T*n" in letters:  # the token's first step; the others are idle
                values = torch.stack([values, *[torch.zeros_like(values)] * (rule.substeps - 1)], 1).flatten(0, 1)
        sizes = {"T": tokens, "T*n": tokens * rule.substeps, "K": K, "V": V}
        shape = [sizes.get(_ROLES.get(letter), 1) if letter != "T*n" else sizes[letter] for letter in letters]
        known = [n if _ROLES.get(letter) in axes.split() else 1 for letter, n in zip(letters, shape)]
        tensors.append(values.reshape(known).expand(shape))
    return tensors


_ROLES = {"T": "T", "T*n": "T", "K": "K", "N": "K", "V": "V", "P": "V", "D": "V"}
_SILENT = "0 where nothing is said"
_ADA, _BO = (", ".join(f"{x:g}" for x in NAMES[name]) for name in ("Ada", "Bo"))
_RATES = ", ".join(f"{x:g}" for x in DECAYS)

_NUMBERS = {
    "step": (1.0, "1 at every token"),
    "angle": (0.2, "0.2 at every token: the first two key channels turn by that angle"),
    "lam": (0.5, "0.5: half of each write comes one token later"),
    "w": (1.0, "1 everywhere"),
    "r": (1.0, "1: the decay in full"),
    "a": (1.0, "1 everywhere"),
    "i": (1.0, "1 everywhere"),
    "D": (0.0, "0: no skip"),
    "u": (1.0, "1: the current token counts in full"),
}
_BEFORE_ACTIVATION = {
    "i": (0.0, "0, so that its exponential is 1"),
    "f": (math.log(DECAY / (1 - DECAY)), f"such that its sigmoid is {DECAY}"),
    "Lambda": (math.log(math.expm1(-math.log(DECAY) / 8)), f"such that the decay is {DECAY}"),
}


def _fed(spec: Input, asked: str) -> tuple[Tensor, str, str]:
    """(values, their axes among T, K and V, words) for one input, from its kind and, within a kind, its name."""
    match spec.kind:
        case "vector" if spec.name in ("v", "x"):
            return _VALUES, "T V", f"the room’s digits: 31 is (3, 1); {_SILENT}"
        case "vector":
            return _tensor(NAMES[asked]), "K", "the name that is asked for, at every token"
        case "key":
            return _KEYS, "T K", f"the name: Ada is ({_ADA}), Bo is ({_BO}); {_SILENT}"
        case "strength":
            return _WRITES, "T", f"1; {_SILENT}"
        case "log-decay" | "rate" if {"K", "N"} & {*spec.axes.split()}:
            return _tensor(DECAYS).log(), "K", f"the logarithms of {_RATES}, one for each key channel"
        case "log-decay" | "rate":
            return _tensor(DECAY).log(), "", f"ln {DECAY} at every token"
        case "complex rate":
            angles = _tensor((0.0, 0.5, 1.0))
            words = f"the logarithms of {_RATES}, one for each state entry, which turn by the angles 0, 0.5, 1"
            return torch.complex(_tensor(DECAYS).log(), angles), "K", words
        case "complex" if spec.name == "B":
            return torch.ones(K, dtype=torch.complex128), "K", "1 everywhere: there is no key"
        case "complex":
            return torch.full((K,), 1 / K, dtype=torch.complex128), "K", "1/3 everywhere: there is no query"
        case "gate" if spec.name == "b":
            return _tensor(ERASE), "K", "(1, 0.5, 1): the second key channel is erased by half"
        case "preactivation":
            value, words = _BEFORE_ACTIVATION[spec.name]
        case kind:
            value, words = _NUMBERS[kind if kind in _NUMBERS else spec.name]
    return _tensor(value), "", words


def _tensor(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _table(rule: Rule, state) -> tuple[tuple[str, ...], tuple[str, ...], Tensor]:
    """(row labels, column labels, table) of the rule's own state for one sequence and head."""
    parts = dict(zip(rule.state_parts, (state,) if isinstance(state, Tensor) else state))
    columns = ("tens", "ones")
    if "h" in parts:
        h = parts["h"][0].T if parts["h"].ndim == 3 else parts["h"]  # (N, P), or a row
        numbers = range(1, len(h) + 1)
        if h.is_complex():
            return tuple(f"{part} {n}" for part in ("Re", "Im") for n in numbers), columns, torch.cat([h.real, h.imag])
        return tuple(f"entry {n}" for n in numbers), columns, h
    table = parts["S"][0, 0]
    for counted in ("z", "n"):
        if counted in parts:
            table = torch.cat([table, parts[counted][0, 0, :, None]], 1)
            columns = (*columns, counted)
    if "m" in parts:  # kept divided by exp m
        table = parts["m"].exp() * table
    return tuple(f"key channel {n + 1}" for n in range(K)), columns, table
