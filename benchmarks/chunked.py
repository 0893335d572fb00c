"""Times the chunked forms on a CPU: against the recurrent references, against transformers, and as T grows.

    python -m benchmarks.chunked [--out book/data/chunked_speed.json]

Everything is float32, forward, without gradients, B = 1, H = 4, K = V = 64, two threads; forms that
are compared are timed in turn in one process, so that a busy machine slows both. transformers is
compared where it is installed (requirements-peers.txt).
"""

import argparse
import ctypes
import datetime
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from lineage_lib.chunked import chunk_additive, chunk_delta
from lineage_lib.machine import processor
from lineage_lib.rules import RULES, draw

H, K, V = 4, 64, 64
LONG = 8192
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
# Rules whose state is a vector a channel: as many numbers of input as H heads of V have, 16 entries each.
VECTOR = {"s4": {"P": H * V, "N": 16}, "mamba-1": {"P": H * V, "N": 16}, "rg-lru": {"D": H * V}}


def stream(name: str, T: int) -> list[torch.Tensor]:
    sizes = {"B": 1, "T": T, "H": H, "K": K, "V": V, "G": H, **VECTOR.get(name, {})}
    tensors = draw(RULES[name], sizes, dtype=torch.float32)
    return [t.abs() + 0.1 for t in tensors[:2]] + tensors[2:] if RULES[name].options.get("normalize") else tensors


def in_turn(forms: dict[str, Callable], rounds: dict[str, int]) -> dict[str, list[float]]:
    """Seconds of every call, after one that warms up, the forms one after the other in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for name, form in forms.items():
        if rounds[name] > 2:
            form()
    for turn in range(max(rounds.values())):
        for name, form in forms.items():
            if turn < rounds[name]:
                start = time.perf_counter()
                form()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def rounded(x: float) -> float:
    return float(f"{x:.3g}")


def summary(seconds: list[float]) -> dict[str, float]:
    return {"median_ms": rounded(1e3 * statistics.median(seconds)), "least_ms": rounded(1e3 * min(seconds))}


def rule_times(name: str) -> dict:
    """The recurrent reference and the chunked form of one rule."""
    rule, tensors = RULES[name], stream(name, LONG)
    forms = {
        "recurrent": lambda: rule.recurrent(*tensors, **rule.options),
        "chunked": lambda: rule.chunked(*tensors, **rule.options),
    }
    seconds = in_turn(forms, {"recurrent": 2, "chunked": 7})
    ratio = min(seconds["recurrent"]) / min(seconds["chunked"])
    return {"rule": name, **{form: summary(s) for form, s in seconds.items()}, "ratio": rounded(ratio)}


def peer_times() -> list[dict]:
    """Our chunked form and transformers' pure-torch one, where it has the rule."""
    try:
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        warnings.filterwarnings("ignore")
        import transformers
        from transformers.models.kimi_linear import modeling_kimi_linear as kimi
        from transformers.models.mamba2 import modeling_mamba2 as mamba2
        from transformers.models.qwen3_next import modeling_qwen3_next as qwen
        from transformers.models.xlstm import modeling_xlstm as xlstm
    except ImportError:
        return []
    gdn, kda, ssd, mlstm = (stream(name, LONG) for name in ("gated-deltanet", "kda", "mamba-2", "mlstm"))
    x, dt, A, B, C, _ = ssd
    q, k, v, i, f = (t.transpose(1, 2).contiguous() for t in mlstm)
    theirs = {
        "gated-deltanet": ("torch_chunk_gated_delta_rule", lambda: raw(qwen.torch_chunk_gated_delta_rule)(*gdn)),
        "kda": ("chunk_kimi_delta_attention", lambda: raw(kimi.chunk_kimi_delta_attention)(*kda)),
        "mamba-2": ("mamba2_chunk_scan", lambda: raw(mamba2.mamba2_chunk_scan)(x, dt, A, B, C, 64, D=None)),
        "mlstm": (
            "mlstm_chunkwise_native_autograd",
            lambda: xlstm.mlstm_chunkwise_native_autograd(q, k, v, i, f, chunk_size=64),
        ),
    }
    # inspect.unwrap: with FLA installed, the decorated names would call its GPU kernels.
    raw, records = inspect.unwrap, []
    ours = {"gated-deltanet": gdn, "kda": kda, "mamba-2": ssd[:-1], "mlstm": mlstm}
    for name, (function, form) in theirs.items():
        seconds = in_turn(
            {"ours": lambda n=name: RULES[n].chunked(*ours[n]), "theirs": form},
            {"ours": 15, "theirs": 3 if name == "kda" else 15},
        )
        record = {"rule": name, "peer": f"transformers {transformers.__version__} {function}"}
        ratio = min(seconds["theirs"]) / min(seconds["ours"])
        records.append({**record, **{form: summary(s) for form, s in seconds.items()}, "ratio": rounded(ratio)})
    return records


def growth(family: str, T: int) -> dict:
    """Time and memory beyond the inputs of one call, measured by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.chunked", "--one", family, str(T)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def one(family: str, T: int) -> dict:
    name = {"additive": "mamba-2", "delta": "gated-deltanet"}[family]

    def call(tensors: list[torch.Tensor]) -> None:
        if family == "additive":
            x, dt, A, B, C, _ = tensors
            chunk_additive(C, B, dt[..., None] * x, dt * A)
        else:
            q, k, v, g, beta = tensors
            chunk_delta(q, k, beta[..., None] * v, beta[..., None] * k, g)

    call(stream(name, 64))  # what the libraries keep for themselves does not grow with T
    tensors = stream(name, T)
    before = resident_kb("VmRSS", reset_peak=True)
    call(tensors)
    memory = resident_kb("VmHWM") - before
    seconds = in_turn({"call": lambda: call(tensors)}, {"call": 5})["call"]
    return {"family": family, "T": T, **summary(seconds), "memory_mb": rounded(memory / 1024)}


def resident_kb(which: str, *, reset_peak: bool = False) -> int:
    """This process's resident memory now (VmRSS) or at its peak since the last reset (VmHWM); Linux only."""
    if reset_peak:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, and not be seen
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("book/data/chunked_speed.json"))
    parser.add_argument("--one", nargs=2, metavar=("FAMILY", "T"), help="one length, printed as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    if arguments.one:
        print(json.dumps(one(arguments.one[0], int(arguments.one[1]))))
        return
    record = {
        "what": f"float32, forward, B = 1, H = {H}, K = V = {V}, two threads; rules and peers at T = {LONG}",
        "machine": processor(),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "date": datetime.date.today().isoformat(),
        "rules": [rule_times(name) for name in RULES],
        "peers": peer_times(),
        "growth": [growth(family, T) for family in ("additive", "delta") for T in LENGTHS],
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    show(record)


def show(record: dict) -> None:
    for r in record["rules"]:
        times = f"recurrent {r['recurrent']['least_ms']} ms, chunked {r['chunked']['least_ms']} ms"
        print(f"{r['rule']:28} {times}: {r['ratio']} times")
    for r in record["peers"]:
        times = f"{r['peer']} {r['theirs']['least_ms']} ms, ours {r['ours']['least_ms']} ms"
        print(f"{r['rule']:28} {times}: {r['ratio']} times")
    for r in record["growth"]:
        print(f"{r['family']:10} T = {r['T']:6}  {r['median_ms']} ms  {r['memory_mb']} MB")


if __name__ == "__main__":
    main()
