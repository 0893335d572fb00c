"""What this machine can run: the line chapter 00 prints, and the versions a grading report carries."""

import platform
from importlib import metadata
from pathlib import Path

PACKAGES = ("numpy", "torch", "triton", "jupyterlab", "nbval")


def versions() -> dict[str, str]:
    """Installed versions of Python and of the packages that results depend on; absent ones left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name, as Linux gives it, else what Python knows of it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu_name() -> str | None:
    """The name of the first GPU that PyTorch sees, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def describe() -> str:
    """Two lines for a reader: the versions, and where kernels run."""
    gpu = gpu_name()
    where = f"compiled, on the GPU: {gpu}" if gpu else "in Triton's interpreter, on the CPU (no GPU found)"
    return ", ".join(f"{k} {v}" for k, v in versions().items()) + f"\nkernels run {where}"
