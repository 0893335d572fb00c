"""All peers, their differences from ours, and the file in which the book finds them."""

import json
import math
from pathlib import Path

import torch

from tests.peers import from_fla, from_mamba_ssm, from_transformers
from tests.peers.inputs import Inputs
from tests.peers.peer import Peer, difference, our_forms

PEERS: list[Peer] = sorted(
    from_fla.PEERS + from_transformers.PEERS + from_mamba_ssm.PEERS, key=lambda peer: (peer.rule, peer.package)
)
PATH = Path(__file__).parents[2] / "book" / "data" / "peers.json"
PARTS = ("output", "state", "gradient")


def differences(
    peer: Peer, dtype: torch.dtype, form: str = "recurrent", arguments: Inputs | None = None
) -> dict[str, float | None]:
    """Of output, state and gradient: how far ``peer`` in ``dtype`` is, in proportion, from ours in float64."""
    arguments = peer.draw() if arguments is None else arguments
    theirs = peer.run(arguments, dtype)
    ours = peer.run_ours(our_forms(peer.rule)[form], arguments, theirs)
    return {part: difference(getattr(theirs, part), getattr(ours, part)) for part in PARTS}


def row(peer: Peer) -> dict[str, object]:
    """One peer in the table.

    dtype is that in which the peer works as shipped; output, state and gradient are differences in
    float64, a cast to float32 being raised (those of a peer that takes nothing else are in
    float32). The rest is as shipped, the largest of the three: shipped; strong, with all log-decays -5;
    reset, with one of -inf; "nan" where the peer's result is not a number, None where nothing decays by token.
    """
    shipped = differences(peer, torch.float32)
    exact = shipped if peer.precision == "float32" else differences(peer, torch.float64)
    stressed = {
        name: differences(peer, torch.float32, arguments=arguments) if arguments else {}
        for name, arguments in {"strong": _strong(peer), "reset": _reset(peer)}.items()
    }
    return {
        "rule": peer.rule,
        "peer": peer.name,
        "package": peer.package,
        "version": peer.version,
        "dtype": "as given" if peer.precision == "given" else "float32",
        **{part: _rounded(x) for part, x in exact.items()},
        "shipped": _rounded(_worst(shipped)),
        **{name: _rounded(_worst(parts)) for name, parts in stressed.items()},
        "note": peer.note,
    }


def _strong(peer: Peer) -> Inputs | None:
    arguments, name = _with_log_decay(peer)
    return name and {**arguments, name: torch.full_like(arguments[name], -5.0)}


def _reset(peer: Peer) -> Inputs | None:
    arguments, name = _with_log_decay(peer)
    if name is None:
        return None
    g = arguments[name].clone()
    g[:, peer.T // 2] = -torch.inf
    return {**arguments, name: g}


def _with_log_decay(peer: Peer) -> tuple[Inputs, str | None]:
    """The arguments, and which of them holds a log-decay for each token: g, or RWKV's w."""
    arguments = peer.draw()
    name = "w" if peer.rule.startswith("rwkv") else "g"
    return arguments, (name if name in arguments and arguments[name].shape[1] == peer.T else None)


def _worst(parts: dict[str, float | None]) -> float | None:
    """The largest; not a number if any is not."""
    known = [x for x in parts.values() if x is not None]
    return next(filter(math.isnan, known), max(known, default=None))


def _rounded(x: float | None) -> float | str | None:
    return "nan" if x is not None and math.isnan(x) else x and float(f"{x:.1e}")


def key(row: dict[str, object]) -> tuple[object, ...]:
    """What says whether the file is current; the differences vary from machine to machine."""
    return row["rule"], row["peer"], row["version"], row["note"]


def write(rows: list[dict[str, object]]) -> None:
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read() -> list[dict[str, object]]:
    return json.loads(PATH.read_text(encoding="utf-8"))
