"""The pieces' gates, handed to the library's recurrences."""

import numpy as np
import torch

from lineage_lib.rules import RULES

# The settings that a rule obeys, in the order of its arguments; shared.js has the same table.
GATES = {
    "linear-attention": (),
    "mamba-2": ("decay",),
    "deltanet": ("beta",),
    "gated-deltanet": ("decay", "beta"),
    "kda": ("channel_decay", "beta"),
    "gated-deltanet-2": ("channel_decay", "erase", "write"),
}


def run(rule: str, k: np.ndarray, v: np.ndarray, gates: list[dict | None]) -> np.ndarray:
    """States (T, K, V) of a rule's reference form after each token, from an empty state.

    k (T, K), v (T, V). ``gates[t]`` has what the rule obeys at token t: decay and beta are numbers,
    channel_decay and erase (K,), write (V,). Decays are factors of a step, not logarithms. None shuts
    every gate, so that the token changes nothing; linear attention has none to shut.
    """
    states, S = [], None
    for key, value, now in zip(k, v, gates):
        tensors = map(torch.as_tensor, _token(rule, key, value, now))
        _, S = RULES[rule].recurrent(*tensors, initial_state=S, output_final_state=True)
        states.append(S[0, 0].numpy())
    return np.array(states)


def _token(rule: str, key: np.ndarray, value: np.ndarray, gates: dict | None) -> list[np.ndarray]:
    """One token of one head, as the rule's functions take it; the query does not matter here."""
    head = np.s_[None, None, None]
    if rule == "mamba-2":  # its gate is the step size, which sets the decay and scales the write
        decay, step = (1.0, 0.0) if gates is None else (gates["decay"], 1.0)
        return [value[head], np.full((1, 1, 1), step), _log(decay)[None], key[head], key[head], np.zeros(1)]
    if gates is None:
        shut = {"channel_decay": np.ones_like(key), "erase": np.zeros_like(key), "write": np.zeros_like(value)}
        gates = {"decay": 1.0, "beta": 0.0, **shut}
    given = ((name, np.asarray(gates[name], dtype=np.float64)) for name in GATES[rule])
    return [key[head], key[head], value[head], *((_log(x) if "decay" in name else x)[head] for name, x in given)]


def _log(decay) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(decay))
