"""Trains small models on the tasks of tokens, several seeds and learning rates at once.

AdamW, a warm-up and then half a cosine, gradients clipped, all of it for each model by itself. What a model sees
depends on its seed and the step only, so that a training that was interrupted goes on from its last checkpoint as
if nothing had been; on a CPU bit for bit.
"""

import datetime
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from lineage_lib.machine import processor, versions
from lineage_lib.stacked import Shape, drawn, logits, weights
from lineage_lib.tasks import TASKS, Questions

Tensor = torch.Tensor

EAGER = 3  # steps before the one that a GPU records and replays: what is compiled or allocated once is so in these
AHEAD = 16  # batches drawn before they are needed
CURVE = 25  # losses that a record keeps
TRAINING, CHECK, TEST = range(3)  # no batch of one is one of another: part of its seed


@dataclass(frozen=True, kw_only=True)
class Test:
    """Fresh sequences of the task with some arguments changed.

    ``cuts`` (a, b, c) asks for the accuracies at places [a, b) and [b, c), from 0, in place of one over all.
    """

    arguments: dict = field(default_factory=dict)
    cuts: tuple[int, ...] = ()
    batch: int = 256

    __test__ = False  # not one of pytest's


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained, on what, how.

    task, arguments  a name of :data:`lineage_lib.tasks.TASKS` and its arguments
    shape            the models' layers and sizes
    seeds            one model each, of weights and data, and that for each of ``learning_rates``
    batch            sequences a step and model
    steps            at most; training ends earlier once a model of each seed answers ``solved`` of the questions of
                     a fresh batch rightly, looked at every ``check_every`` steps; None: never
    warm_up          share of the steps in which the learning rate rises from 0; then it falls to 0 as a cosine
    tests            what is measured in the end
    """

    task: str
    arguments: dict = field(default_factory=dict)
    shape: Shape
    seeds: tuple[int, ...] = (0,)
    learning_rates: tuple[float, ...] = (3e-3,)
    batch: int = 32
    steps: int = 300
    warm_up: float = 0.1
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    solved: float | None = None
    check_every: int = 50
    tests: tuple[Test, ...] = (Test(),)

    def __post_init__(self):
        if self.task not in TASKS:
            raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {self.task!r}")
        for name in ("seeds", "learning_rates", "tests"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"{name}: expected at least one, got none")
        for name in ("batch", "steps", "check_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")

    @property
    def models(self) -> list[tuple[int, float]]:
        """(seed, learning rate) of each model."""
        return [(seed, rate) for rate in self.learning_rates for seed in self.seeds]

    def draw(self, seed: int, kind: int, number: int, batch: int, changed: dict | None = None) -> Questions:
        """The questions of one seed's ``number``-th batch."""
        rng = np.random.default_rng([seed, kind, number])
        return TASKS[self.task](rng, batch, **{**self.arguments, **(changed or {})})

    def schedule(self, step: int) -> float:
        """The learning rate of step 0, 1, …, in shares of its highest."""
        rising = max(1, round(self.warm_up * self.steps))
        falling = (step - rising) / max(1, self.steps - rising)
        return (step + 1) / rising if step < rising else 0.5 * (1 + math.cos(math.pi * falling))


class Trainer:
    """The models of a setting while they train: weights (M, P), AdamW's moments, losses and checks so far."""

    def __init__(self, setting: Setting, device: torch.device | str = "cpu"):
        self.setting, self.device, shape = setting, torch.device(device), setting.shape
        example = setting.draw(0, TRAINING, 0, 1)
        self.parts = weights(shape, example.vocabulary, example.classes)
        self.rows = torch.stack([drawn(self.parts, seed) for seed, _ in setting.models]).to(self.device)
        self.mean, self.square = torch.zeros_like(self.rows), torch.zeros_like(self.rows)
        decays = [torch.full((math.prod(w.shape),), float(w.decays)) for w in self.parts.values()]
        self.decay = setting.weight_decay * torch.cat(decays).to(self.device)
        self.highest = torch.tensor([[rate] for _, rate in setting.models], device=self.device)  # (M, 1)
        self.rate, self.correction = self.highest.clone(), torch.ones(2, device=self.device)
        self.step, self.seconds, self.losses, self.checks = 0, 0.0, [], []

    # --- One step ---

    def gradient_step(self, tokens: Tensor, answers: Tensor) -> Tensor:
        """tokens, answers (M, B, T) -> the losses (M,) before the step; the weights change in place."""
        setting, (b1, b2) = self.setting, self.setting.betas
        rows = self.rows.detach().requires_grad_()
        losses = self.loss(rows, tokens, answers)
        (gradient,) = torch.autograd.grad(losses.sum(), rows)
        with torch.no_grad():
            norm = gradient.norm(dim=1, keepdim=True)
            # A gradient that is not finite is left out: the models beside it, and its own weights, stay what they are.
            gradient = torch.where(norm.isfinite(), gradient * (setting.clip / norm.clamp_min(setting.clip)), 0.0)
            self.mean.lerp_(gradient, 1 - b1)
            self.square.lerp_(gradient.square(), 1 - b2)
            direction = self.mean / self.correction[0] / ((self.square / self.correction[1]).sqrt() + 1e-8)
            self.rows.sub_(self.rate * (direction + self.decay * self.rows))
        return losses.detach()

    def loss(self, rows: Tensor, tokens: Tensor, answers: Tensor) -> Tensor:
        """(M,), the mean cross-entropy of each model's answers, in nats."""
        scores = logits(self.setting.shape, self.parts, rows, tokens)
        each = F.cross_entropy(scores.flatten(0, 2), answers.flatten(), ignore_index=-1, reduction="none")
        return each.view(len(rows), -1).sum(1) / (answers >= 0).flatten(1).sum(1)

    def _prepare(self, step: int) -> None:
        """What a step needs of its number, where a recorded one reads it."""
        torch.mul(self.highest, self.setting.schedule(step), out=self.rate)
        for i, beta in enumerate(self.setting.betas):
            self.correction[i].fill_(1 - beta ** (step + 1))

    # --- Training ---

    def run(self, checkpoint: Path | None = None, save_every: float = 60.0, progress: bool = True) -> None:
        """Trains to the end, from ``checkpoint`` if there is one, which is renewed every ``save_every`` seconds."""
        if checkpoint is not None and checkpoint.exists():
            self.restore(checkpoint)
        saved, began = time.monotonic(), time.monotonic() - self.seconds
        bar = _Bar(self.step, self.setting.steps, progress)
        recorded: list[Tensor] = []  # losses that are still on the device
        play = None
        for tokens, answers in self._batches():
            self._prepare(self.step)
            play = play or self._player(tokens, answers)
            recorded.append(play(tokens, answers).clone())
            self.step += 1
            last = self.step == self.setting.steps
            if last or self.step % self.setting.check_every == 0:
                self.losses += torch.stack(recorded).tolist()
                recorded.clear()
                bar.show(self.step, float(np.mean(self.losses[-1])))
                if self._check() or last:
                    break
                if checkpoint is not None and time.monotonic() - saved >= save_every:
                    self.seconds, saved = time.monotonic() - began, time.monotonic()
                    self.save(checkpoint)
        bar.close()
        self.seconds = time.monotonic() - began

    def _check(self) -> bool:
        """Looks how much of a fresh batch each model answers; whether a model of each seed has solved it."""
        if self.setting.solved is None:
            return False
        right = self.answered(Test(batch=self.setting.batch), CHECK, len(self.checks))[0]["accuracy"]
        self.checks.append([self.step, right])
        best = np.reshape(right, (len(self.setting.learning_rates), -1)).max(0)
        return bool((best >= self.setting.solved).all())

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """tokens, answers (M, B, T) of the steps from the present one on, drawn ahead on other threads."""
        steps = range(self.step, self.setting.steps)
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            waiting = [pool.submit(self._batch, TRAINING, step, self.setting.batch) for step in steps[:AHEAD]]
            try:
                for step in steps:
                    ready = waiting.pop(0)
                    if step + AHEAD < self.setting.steps:
                        waiting.append(pool.submit(self._batch, TRAINING, step + AHEAD, self.setting.batch))
                    yield tuple(x.to(self.device) for x in ready.result())
            finally:
                for future in waiting:
                    future.cancel()

    def _batch(self, kind: int, number: int, batch: int, changed: dict | None = None) -> tuple[Tensor, Tensor]:
        """(M, B, T) each; models that differ in their learning rate only see the same."""
        drawn = [self.setting.draw(seed, kind, number, batch, changed) for seed in self.setting.seeds]
        return tuple(
            torch.from_numpy(np.stack([getattr(q, name) for q in drawn])).repeat(len(self.setting.learning_rates), 1, 1)
            for name in ("tokens", "answers")
        )

    def _player(self, tokens: Tensor, answers: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """A function of a batch that makes a step. A GPU records one and replays it: a step is hundreds of launches."""
        if self.device.type != "cuda":
            return self.gradient_step
        state = [self.rows, self.mean, self.square]
        before = [x.clone() for x in state]
        given, expected = tokens.clone(), answers.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(EAGER):
                self.gradient_step(given, expected)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                losses = self.gradient_step(given, expected)
        torch.cuda.current_stream().wait_stream(stream)
        for x, first in zip(state, before):  # the steps so far were a rehearsal
            x.copy_(first)

        def play(tokens: Tensor, answers: Tensor) -> Tensor:
            given.copy_(tokens)
            expected.copy_(answers)
            graph.replay()
            return losses

        return play

    # --- Tests, checkpoints, record ---

    @torch.no_grad()
    def answered(self, test: Test, kind: int, number: int) -> list[dict]:
        """For each stretch of places: the models' shares of questions and of sequences that are answered rightly."""
        tokens, answers = self._batch(kind, number, test.batch, test.arguments)
        T, room = tokens.shape[-1], 2**20 if self.device.type == "cuda" else 2**15
        most = max(1, room // tokens[:, 0].numel())  # sequences at once
        right = [
            logits(self.setting.shape, self.parts, self.rows, some.to(self.device)).argmax(-1).cpu()
            for some in tokens.split(most, 1)
        ]
        right, asked = torch.cat(right, 1) == answers, answers >= 0
        cuts, results = test.cuts or (0, T), []
        for first, end in pairwise(cuts):
            here, there = right[..., first:end], asked[..., first:end]
            shares = {
                "accuracy": (here & there).sum((1, 2)) / there.sum((1, 2)),
                "whole": (here | ~there).all(2).double().mean(1),
            }
            rounded = {name: [round(x, 4) for x in share.tolist()] for name, share in shares.items()}
            results.append({"arguments": test.arguments, "places": [first, end], **rounded})
        return results

    def save(self, path: Path) -> None:
        """Writes a checkpoint beside ``path`` and then renames it: an interrupt leaves the old one or the new one."""
        unfinished = path.with_suffix(".part")
        kept = {name: getattr(self, name) for name in ("step", "seconds", "losses", "checks")}
        tensors = {name: getattr(self, name).cpu() for name in ("rows", "mean", "square")}
        torch.save({"setting": json.dumps(asdict(self.setting)), **kept, **tensors}, unfinished)
        os.replace(unfinished, path)

    def restore(self, path: Path) -> None:
        """Goes back to a checkpoint. A ``ValueError`` if it is of another setting."""
        kept = torch.load(path, weights_only=True)
        if kept["setting"] != json.dumps(asdict(self.setting)):
            raise ValueError(f"{path}: is a checkpoint of another setting; remove it, or name another file")
        for name in ("step", "seconds", "losses", "checks"):
            setattr(self, name, kept[name])
        for name in ("rows", "mean", "square"):
            getattr(self, name).copy_(kept[name])

    def record(self) -> dict:
        """The setting, where and how long it was trained, losses, checks and tests, ready for JSON."""
        steps = sorted({*range(0, self.step, -(-self.step // CURVE)), self.step - 1})
        tests = [x for number, test in enumerate(self.setting.tests) for x in self.answered(test, TEST, number)]
        on_gpu = self.device.type == "cuda"
        return {
            "setting": asdict(self.setting),
            "state_size": self.setting.shape.state_size,
            "weights": self.rows.shape[1],
            "device": torch.cuda.get_device_name(self.device) if on_gpu else processor(),
            "versions": {name: v for name, v in versions().items() if name in ("python", "numpy", "torch", "triton")},
            "date": datetime.date.today().isoformat(),
            "models": [{"seed": seed, "learning_rate": rate} for seed, rate in self.setting.models],
            "steps": self.step,
            "seconds": round(self.seconds, 1),
            "losses": [[step, [_number(x) for x in self.losses[step]]] for step in steps],
            "checks": self.checks,
            "tests": tests,
        }


def train(
    setting: Setting,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    save_every: float = 60.0,
    progress: bool = True,
) -> dict:
    """Trains the models of ``setting`` and returns their record (see :meth:`Trainer.record`).

    With ``checkpoint`` a training that was interrupted goes on where it was last saved; the file is removed in
    the end.

    >>> shape = Shape(mixers=("deltanet",), width=16, K=8, V=8)
    >>> train(Setting(task="parity", shape=shape, steps=2), progress=False)["steps"]
    2
    """
    trainer = Trainer(setting, device)
    trainer.run(checkpoint, save_every, progress)
    record = trainer.record()
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return record


def _number(loss: float) -> float | None:
    """Four digits of it; JSON has no number that is not finite."""
    return float(f"{loss:.4g}") if math.isfinite(loss) else None


class _Bar:
    """One line on standard error that is written over: how far, how long yet, the loss."""

    def __init__(self, first: int, steps: int, wanted: bool):
        self.first, self.steps, self.began = first, steps, time.monotonic()
        self.wanted = wanted and sys.stderr.isatty()

    def show(self, step: int, loss: float) -> None:
        if self.wanted:
            left = (time.monotonic() - self.began) / (step - self.first) * (self.steps - step)
            done = "█" * round(20 * step / self.steps)
            print(f"\r{done:░<20} {step}/{self.steps}, {left:.0f} s left, loss {loss:.4f}  ", end="", file=sys.stderr)

    def close(self) -> None:
        if self.wanted:
            print(file=sys.stderr, flush=True)
