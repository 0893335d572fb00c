"""Trains a small model to recall, by the recurrence, by the kernels, and by kernels whose gradient has a mistake.

    python -m benchmarks.recall_training [--steps 600] [--small] [--out book/data/recall_training.json]

Multi-query associative recall: a sequence first pairs keys with values, then asks for the keys again, and each answer
is the value that this sequence gave to the key. Two layers of the gated delta rule, each with a short convolution;
the loss is taken at the questions only. The three trainings start from the same weights, see the same batches and
differ in one function. float32; on a GPU a step is captured once and replayed, because token by token it is thousands
of launches. ``--small`` is a size for Triton's interpreter, which shows that it runs and nothing more.
"""

import argparse
import copy
import datetime
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

import kernels  # before Triton: without a GPU it is to interpret
from lineage_lib.machine import processor

import triton  # isort: skip

Tensor = torch.Tensor
Rule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

EAGER = 3  # steps before the one that is captured: what is compiled or allocated once is so in these
TESTS = 16  # batches that no training sees
BETWEEN = 10  # steps from one recorded loss to the next


class Setting(NamedTuple):
    """A sequence is ``pairs`` keys with their values and ``queries`` keys; names of ``keys`` and ``values``."""

    pairs: int = 32
    queries: int = 64
    keys: int = 64
    values: int = 64
    width: int = 64
    H: int = 2
    K: int = 32
    V: int = 32
    batch: int = 32
    steps: int = 600
    learning_rate: float = 3e-3
    seed: int = 0

    @property
    def T(self) -> int:
        return 2 * self.pairs + self.queries


SMALL = Setting(pairs=10, queries=16, keys=12, values=8, width=16, H=1, K=16, V=16, batch=2, steps=3)


# --- The three forms of S̄ = exp(g_t) S_{t-1}, S_t = S̄ + β_t k_t (v_t − S̄ᵀ k_t)ᵀ, o_t = S_tᵀ q_t ---


def recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Token by token. q, k (B, T, H, K), v (B, T, H, V), g, beta (B, T, H) -> (B, T, H, V)."""
    S = v.new_zeros(q.shape[0] * q.shape[2], q.shape[-1], v.shape[-1])  # (B H, K, V)
    # Batches and heads are one axis, which makes no copy for a product; q, k, v are rows, a write's key a column.
    q_, k_, v_, w_ = (x.transpose(0, 1).flatten(1, 2)[:, :, None] for x in (q, k, v, beta[..., None] * k))
    alpha = g.exp().transpose(0, 1).flatten(1)[..., None, None]
    o = []
    # Unbound at once: the gradient of a tensor's part would be a tensor of all tokens for each of them.
    for q_t, k_t, v_t, w_t, alpha_t in zip(*(x.unbind() for x in (q_, k_, v_, w_.mT, alpha))):
        S = alpha_t * S
        S = S + w_t @ (v_t - k_t @ S)
        o.append(q_t @ S)  # (B H, 1, V)
    return torch.stack(o).view(v.transpose(0, 1).shape).transpose(0, 1)


def by_kernels(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    return kernels.chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0]


MISTAKE = (
    "Walking back through time, a token's gradients of k, v, g and beta are stored one place late, at the token after "
    "it: an index off by one, of which the outputs show nothing."
)


def late(x: Tensor) -> Tensor:
    """x (B, T, …) itself, whose gradient arrives one token late."""
    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(lambda dx: torch.cat([torch.zeros_like(dx[:, :1]), dx[:, :-1]], 1))
    return x


def mistaken(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, rule: Rule = by_kernels) -> Tensor:
    """The outputs of ``rule``, and the gradients of :data:`MISTAKE`."""
    return rule(q, late(k), late(v), late(g), late(beta))


FORMS: dict[str, Rule] = {"reference": recurrence, "kernels": by_kernels, "wrong gradient": mistaken}


# --- The task and the model ---


def drawn(setting: Setting, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens (count, batch, T) and the answers (count, batch, queries). Values are the tokens after the keys."""
    r, shape = torch.Generator().manual_seed(seed), (count, setting.batch)
    keys = torch.rand(*shape, setting.keys, generator=r).argsort(-1)[..., : setting.pairs]  # each key once
    values = setting.keys + torch.randint(setting.values, (*shape, setting.pairs), generator=r)
    asked = torch.randint(setting.pairs, (*shape, setting.queries), generator=r)
    pairs = torch.stack([keys, values], -1).flatten(-2)
    return torch.cat([pairs, keys.gather(-1, asked)], -1), values.gather(-1, asked)


class Layer(nn.Module):
    """x + W_o norm(o), where o is what the gated delta rule reads; q, k, v see their token and the one before it."""

    def __init__(self, setting: Setting):
        super().__init__()
        D, H, self.sizes = setting.width, setting.H, (setting.K, setting.K, setting.V)
        self.norm, self.norm_o = nn.RMSNorm(D), nn.RMSNorm(setting.V)
        self.qkv = nn.Linear(D, H * sum(self.sizes), bias=False)
        self.taps = nn.Parameter(torch.empty(2, H * sum(self.sizes)).uniform_(-math.sqrt(0.5), math.sqrt(0.5)))
        self.beta, self.g = nn.Linear(D, H), nn.Linear(D, H)
        nn.init.constant_(self.beta.bias, 0.0)
        nn.init.constant_(self.g.bias, 4.0)  # 0.98 of the state is left by a token
        self.out = nn.Linear(H * setting.V, D, bias=False)

    def forward(self, x: Tensor, rule: Rule) -> Tensor:
        y = self.norm(x)  # (B, T, D)
        now = self.qkv(y)
        before = F.pad(now[:, :-1], (0, 0, 1, 0))
        mixed = F.silu(self.taps[0] * before + self.taps[1] * now).unflatten(-1, (-1, sum(self.sizes)))
        q, k, v = mixed.split(self.sizes, -1)  # (B, T, H, ·)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        o = rule(q, k, v, F.logsigmoid(self.g(y)), self.beta(y).sigmoid())
        return x + self.out(self.norm_o(o).flatten(2))


class Model(nn.Module):
    def __init__(self, setting: Setting):
        super().__init__()
        names = setting.keys + setting.values
        self.register_buffer("names", torch.arange(names))
        self.embedding = nn.Parameter(torch.randn(names, setting.width))
        self.layers = nn.ModuleList(Layer(setting) for _ in range(2))
        self.norm, self.readout = nn.RMSNorm(setting.width), nn.Linear(setting.width, names, bias=False)

    def forward(self, tokens: Tensor, rule: Rule) -> Tensor:
        """tokens (B, T) -> logits (B, T, names)."""
        x = (tokens[..., None] == self.names).float() @ self.embedding  # a product, as then is its gradient
        for layer in self.layers:
            x = layer(x, rule)
        return self.readout(self.norm(x))


# --- Training ---


def trained(model: Model, rule: Rule, setting: Setting, tokens: Tensor, answers: Tensor) -> Tensor:
    """Trains ``model`` on each batch of tokens (steps, B, T) in turn; the losses (steps,) before each step."""
    on_gpu = tokens.is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.learning_rate, betas=(0.9, 0.95), capturable=on_gpu)
    losses = torch.empty(len(tokens), device=tokens.device)
    given, expected = tokens[0].clone(), answers[0].clone()  # where a captured step finds its batch

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        logits = model(given, rule)[:, -setting.queries :]
        loss = F.cross_entropy(logits.flatten(0, 1), expected.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    def steps(first: int, last: int, play: Callable[[], Tensor]) -> None:
        for n in range(first, last):
            given.copy_(tokens[n])
            expected.copy_(answers[n])
            losses[n] = play()

    if not on_gpu:
        steps(0, len(tokens), step)
        return losses
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        steps(0, min(EAGER, len(tokens)), step)
        if len(tokens) > EAGER:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                loss = step()
            steps(EAGER, len(tokens), lambda: (graph.replay(), loss)[1])
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return losses


@torch.no_grad()
def accuracy(model: Model, rule: Rule, setting: Setting, tokens: Tensor, answers: Tensor) -> float:
    """The share of questions answered rightly, over batches of tokens (count, B, T)."""
    right = [
        (model(given, rule)[:, -setting.queries :].argmax(-1) == expected).float().mean()
        for given, expected in zip(tokens, answers)
    ]
    return torch.stack(right).mean().item()


def compare(setting: Setting, device: torch.device, forms: dict[str, Rule] = FORMS) -> tuple[dict, dict]:
    """Curves [[step, loss], …] and accuracies of every form, from the same weights and on the same batches."""
    torch.manual_seed(setting.seed)
    start = Model(setting)
    seen = [x.to(device) for x in drawn(setting, setting.steps, setting.seed + 1)]
    unseen = [x.to(device) for x in drawn(setting, min(TESTS, setting.steps), setting.seed + 2)]
    curves, accuracies = {}, {}
    for name, rule in forms.items():
        model = copy.deepcopy(start).to(device)
        losses = trained(model, rule, setting, *seen).tolist()
        recorded = sorted({*range(0, setting.steps, BETWEEN), setting.steps - 1})
        curves[name] = [[n, float(f"{losses[n]:.6g}")] for n in recorded]
        accuracies[name] = float(f"{accuracy(model, rule, setting, *unseen):.4g}")
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, accuracy {accuracies[name]}", flush=True)
    return curves, accuracies


def main(arguments: list[str] | None = None) -> None:
    what = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall_training", description=what)
    parser.add_argument("--out", type=Path, default=Path("book/data/recall_training.json"))
    parser.add_argument("--steps", type=int, help=f"{Setting().steps} unless given, {SMALL.steps} with --small")
    parser.add_argument("--small", action="store_true", help="tiny sizes, also without a GPU")
    given = parser.parse_args(arguments)
    if given.steps is not None and given.steps < 1:
        parser.error(f"--steps: expected at least 1, got {given.steps}")
    if kernels.INTERPRETED and not given.small:
        parser.error("no GPU, or TRITON_INTERPRET is set: interpreted kernels train only with --small")
    setting = SMALL if given.small else Setting()
    setting = setting if given.steps is None else setting._replace(steps=given.steps)
    device = torch.device("cpu" if kernels.INTERPRETED else "cuda")
    curves, accuracies = compare(setting, device)
    record = {
        "device": processor() if kernels.INTERPRETED else torch.cuda.get_device_name(device),
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "date": datetime.date.today().isoformat(),
        "setting": {**setting._asdict(), "T": setting.T, "layers": 2, "dtype": "float32", "optimizer": "AdamW"},
        "curves": curves,
        "accuracy": accuracies,
        "mistake": MISTAKE,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
