"""What the rungs of the ladder share: streams of every rule, pieces of them, states before them."""

import torch

from lineage_lib.rules import Rule, draw

Tensor = torch.Tensor
SIZES = {"B": 2, "H": 2, "K": 4, "V": 3}


def stream(rule: Rule, T: int, *, seed: int = 0, dtype=torch.float64, **sizes) -> list[Tensor]:
    """Inputs of T tokens, K ≠ V, two heads, two rows, where the rule admits it grouped values."""
    tensors = draw(rule, {**SIZES, "T": T, **sizes}, seed=seed, dtype=dtype)
    if rule.options.get("normalize"):  # features are positive
        tensors[:2] = [t.abs() + 0.1 for t in tensors[:2]]
    return tensors


def piece(rule: Rule, tensors: list[Tensor], start: int, end: int) -> list[Tensor]:
    """Tokens start … end − 1 of every tensor that has a time axis."""

    def cut(axes: str, t: Tensor) -> Tensor:
        letters = axes.split()
        if "T*n" in letters:
            return t[:, start * rule.substeps : end * rule.substeps]
        return t[:, start:end] if "T" in letters else t

    return [cut(i.axes, t) for i, t in zip(rule.inputs, tensors)]


def with_resets(rule: Rule, tensors: list[Tensor], t: int) -> list[Tensor]:
    """The stream with all state forgotten at token t and, where channels have decays, some of it at t + 1."""
    tensors = [x.clone() for x in tensors]
    for i, x in zip(rule.inputs, tensors):
        if "T" in i.axes.split() and (i.kind in ("log-decay", "rate") or i.name == "f"):
            # A rate is multiplied by the step, and an infinite one has no gradient with respect to it.
            x[:, t] = -1e6 if i.kind == "rate" else -torch.inf
            if i.axes.endswith("K") and t + 1 < x.shape[1]:
                x[:, t + 1, ..., ::2] = -torch.inf
    return tensors


def has_resets(rule: Rule) -> bool:
    return any("T" in i.axes.split() and (i.kind in ("log-decay", "rate") or i.name == "f") for i in rule.inputs)


def state_before(rule: Rule, **sizes):
    """A state such as the rule itself leaves behind."""
    _, state = rule.recurrent(*stream(rule, 6, seed=7, **sizes), output_final_state=True, **rule.options)
    return state


def parts(state) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def same_structure(state, tensors: list[Tensor]):
    return tensors[0] if isinstance(state, Tensor) else tuple(tensors)


def decode(rule: Rule, tensors: list[Tensor], T: int, state=None):
    """The whole stream by the rule's one-token step."""
    outputs = []
    for t in range(T):
        o, state = rule.step(*piece(rule, tensors, t, t + 1), state=state, **rule.options)
        outputs.append(o)
    return torch.cat(outputs, 1), state
