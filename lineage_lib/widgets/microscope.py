"""The state microscope: a stream of writes under two rules, and what each still answers."""

from functools import cache

import numpy as np
import traitlets

from lineage_lib import tasks
from lineage_lib.rules import RULES
from lineage_lib.widgets.drawing import BLUE, GREEN, drawing, line, number, text
from lineage_lib.widgets.gates import GATES, run
from lineage_lib.widgets.piece import FIXTURES, Piece, gate, script

PEOPLE = ("Ada", "Bo", "Cy", "Dee", "Eve", "Fay")
T, K, V = 120, 8, 4
STREAMS = {
    "rewriting": ("Every name is rewritten", tasks.rewriting),
    "distractors": ("Half of the tokens distract", tasks.distracted),
    "rare": ("Dee, Eve and Fay are written once", tasks.rare),
}


class Microscope(Piece):
    """Two rules on the same stream: recall error of each name over time, and the two states.

    stream         "rewriting", "distractors" or "rare" (:mod:`lineage_lib.tasks`)
    left, right    rules: "linear-attention", "mamba-2", "deltanet", "gated-deltanet", "kda", "gated-deltanet-2"
    position       the token after which states are shown, from 1
    skip           whether the gates shut at distractors, so that these change nothing
    decay          α of every step, a factor in [0.5, 1]; slow_decay: that of the second half of the key
                   channels, for rules with a decay for each
    beta           strength of DeltaNet, Gated DeltaNet and KDA, in [0, 2]
    erase, write   gates of Gated DeltaNet-2, the same number for each channel, in [0, 1]

    Every setting can be read and set from Python.

    >>> Microscope(stream="rewriting").errors("deltanet")[-1].round(3).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """

    name = "microscope"
    source = "microscope"
    _esm = script(source)

    stream = traitlets.Enum(tuple(STREAMS), "rewriting").tag(sync=True, setting=True)
    left = traitlets.Enum(tuple(GATES), "deltanet").tag(sync=True, setting=True)
    right = traitlets.Enum(tuple(GATES), "gated-deltanet").tag(sync=True, setting=True)
    position = traitlets.Int(T, min=1, max=T).tag(sync=True, setting=True)
    skip = traitlets.Bool(False).tag(sync=True, setting=True)
    decay = gate(0.5, 1, default=0.95)
    slow_decay = gate(0.5, 1, default=1.0)
    beta = gate(0, 2, default=1.0)
    erase = gate(0, 1, default=1.0)
    write = gate(0, 1, default=1.0)

    def states(self, rule: str) -> np.ndarray:
        """(T, K, V): the state after each token under a rule, from the library's recurrence."""
        return states(rule, self.settings())

    def errors(self, rule: str) -> np.ndarray:
        """(T, names): the recall error of each name after each token; NaN before its first write."""
        return tasks.recall_errors(self.states(rule), streams()[self.stream])

    @staticmethod
    @cache
    def library_data() -> dict:
        rng = np.random.default_rng(12)
        rules, fixtures = list(GATES), []
        for i in range(FIXTURES):
            settings = {
                "stream": list(STREAMS)[i % len(STREAMS)],
                "left": rules[i % len(rules)],
                "right": rules[(i + 3 + i // 6) % len(rules)],
                "position": int(rng.integers(T // 2, T + 1)),
                "skip": bool(rng.integers(2)),
                "decay": round(rng.uniform(0.5, 1), 2),
                "slow_decay": round(rng.uniform(0.5, 1), 2),
                "beta": round(rng.uniform(0, 2), 2),
                "erase": round(rng.random(), 2),
                "write": round(rng.random(), 2),
            }
            fixtures.append({"settings": settings, "values": _values(settings)})
        shown = {
            name: {
                "title": STREAMS[name][0],
                **{part: getattr(stream, part).tolist() for part in ("keys", "values", "names", "book")},
            }
            for name, stream in streams().items()
        }
        return {"people": PEOPLE, "streams": shown, "fixtures": fixtures}

    def still(self) -> str:
        height, parts = 120, []
        for rule, colour, dash, y in ((self.left, BLUE, "", 46), (self.right, GREEN, "6 4", 66)):
            mean = np.nanmean(self.errors(rule), axis=1)
            parts.append(line(mean, x=20, y=70 + height, width=420, height=height, top=2, colour=colour, dash=dash))
            parts.append(line(np.zeros(2), x=460, y=y - 4, width=30, height=1, top=1, colour=colour, dash=dash))
            parts.append(text(500, y, f"{RULES[rule].title}: {number(mean[-1])}"))
        parts.append(text(20, 70 + height + 18, f"{T} tokens; 0 below, 2 above", size=12))
        return drawing("".join(parts), 760, 220, f"{STREAMS[self.stream][0]}: mean recall error under two rules")


@cache
def streams() -> dict[str, tasks.Stream]:
    """The streams, rounded: what the page and the library compute with must be the same numbers."""
    drawn = {}
    for seed, (name, (_, task)) in enumerate(STREAMS.items()):
        stream = task(np.random.default_rng(seed), T=T, names=len(PEOPLE), K=K, V=V)
        drawn[name] = stream._replace(
            keys=stream.keys.round(6), values=stream.values.round(3), book=stream.book.round(6)
        )
    return drawn


def states(rule: str, settings: dict) -> np.ndarray:
    """(T, K, V): the state after each token under a rule."""
    stream = streams()[settings["stream"]]
    half = [settings["decay"]] * (K // 2) + [settings["slow_decay"]] * (K - K // 2)
    gates = {
        "decay": settings["decay"],
        "channel_decay": half,
        "beta": settings["beta"],
        "erase": [settings["erase"]] * K,
        "write": [settings["write"]] * V,
    }
    tokens = [None if settings["skip"] and name < 0 else gates for name in stream.names]
    return run(rule, stream.keys, stream.values, tokens)


def _values(settings: dict) -> list[float]:
    """What the page computes too: for each side the state, each name's error (-1 for none), their mean."""
    values, t = [], settings["position"] - 1
    for side in ("left", "right"):
        S = states(settings[side], settings)
        errors = tasks.recall_errors(S[: t + 1], streams()[settings["stream"]])[t]
        values += [*S[t].ravel().tolist(), *np.nan_to_num(errors, nan=-1.0).tolist(), float(np.nanmean(errors))]
    return values
