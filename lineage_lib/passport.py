"""The kernels' passport: what was measured of each on real GPUs, and whether its source is still what was measured.

``kernels/passport/*.json``, a file a device, hold lists of records; ``python -m kernels.bench`` writes them. A record
of pass "forward", "forward+backward" or "decode" is a time at one shape; one of pass "verify" has the largest error
of each result over all cases of the harness. The kernels' own sources are read here, never imported: the book is
built where there is no Triton.
"""

import ast
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lineage_lib.paths import ROOT

FOLDER = ROOT / "kernels" / "passport"
PASSES = ("forward", "forward+backward", "decode", "verify")
KEY = ("kernel", "shape", "dtype", "pass", "device")  # a record replaces an older one that has all of these alike
NEEDED = (*KEY, "source", "source_sha256", "versions", "date", "errors")
TABLE = "kernels/tiles.json"  # part of the source of whatever reads kernels/tiles.py


# --- Records ---


def read_list(path: Path, of: str) -> list:
    """What a JSON file lists, [] if there is none; a ``ValueError`` for a file that is something else."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, list):
        raise ValueError(f"{path}: expected a list of {of}, got {type(found).__name__}")
    return found


def read(path: Path) -> list[dict]:
    """The records of one file, [] if there is none; a ``ValueError`` names the record that cannot be and why."""
    records = read_list(path, "records")
    for place, record in enumerate(records):
        missing = [name for name in NEEDED if name not in record]
        if missing:
            raise ValueError(f"{path}: record {place} has no {missing[0]}")
        if record["pass"] not in PASSES:
            raise ValueError(f"{path}: record {place}: pass: expected one of {PASSES}, got {record['pass']!r}")
    return records


def read_all(folder: Path = FOLDER) -> list[dict]:
    """The records of all files; of two that stand for the same, the later one."""
    records: list[dict] = []
    for path in sorted(folder.glob("*.json")):
        for record in read(path):
            older = next((r for r in records if key(r) == key(record)), None)
            if older is None or older["date"] <= record["date"]:
                records = replaced(records, record)
    return records


def key(record: dict) -> tuple:
    return tuple(json.dumps(record[name], sort_keys=True) for name in KEY)


def replaced(records: Iterable[dict], record: dict) -> list[dict]:
    """The records with this one in the place of the one that it replaces, or at the end."""
    records, same = list(records), key(record)
    for place, other in enumerate(records):
        if key(other) == same:
            records[place] = record
            return records
    return [*records, record]


def write(path: Path, records: list[dict]) -> None:
    """All or nothing: a run that is killed leaves the file as it was or as it becomes."""
    text = json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def label(shape: dict[str, int]) -> str:
    """
    >>> label({"B": 2, "T": 8192, "H": 16, "K": 128, "V": 128})
    'B2 T8192 H16 K128 V128'
    """
    return " ".join(f"{name}{size}" for name, size in shape.items())


# --- Sources ---


def kernel_names(root: Path = ROOT) -> list[str]:
    """The public functions of ``kernels``, in the order of its ``__all__``."""
    assigned = {
        node.targets[0].id: node.value
        for node in _tree(root / "kernels" / "__init__.py").body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return [name for name in ast.literal_eval(assigned["__all__"]) if not name.isupper()]


def summary(kernel: str, root: Path = ROOT) -> str:
    """The first line of the function's docstring."""
    module = _Module(root, "kernels")
    file, name = module.imported[kernel]
    return (ast.get_docstring(_Module(root, file).defined[name][0]) or "").partition("\n")[0]


def sources(kernel: str, root: Path = ROOT) -> list[str]:
    """The files under ``kernels/`` that hold the function and everything of the package that it uses."""
    module = _Module(root, "kernels")
    if kernel not in module.imported:
        raise ValueError(f"kernel: expected one of {', '.join(kernel_names(root))}, got {kernel!r}")
    seen: set[tuple[str, str]] = set()
    _follow(root, *module.imported[kernel], seen)
    files = {f"{name.replace('.', '/')}.py" for name, _ in seen}
    if "kernels/tiles.py" in files and (root / TABLE).exists():
        files.add(TABLE)
    return sorted(files)


def digest(files: Iterable[str], root: Path = ROOT) -> str:
    """SHA-256 of the files' bytes, one after the other: what ``cat … | sha256sum`` gives. :func:`changed` looks at the
    names too."""
    total = hashlib.sha256()
    for name in files:
        total.update((root / name).read_bytes())
    return total.hexdigest()


def changed(record: dict, root: Path = ROOT) -> bool:
    """Whether the kernel is made of other files than were measured, or any of them differs."""
    files = sources(record["kernel"], root)
    return files != record["source"] or digest(files, root) != record["source_sha256"]


class _Module:
    """One file of the package: what its names at the top are. imported: name -> (module, name there or "")."""

    def __init__(self, root: Path, name: str):
        path = root / f"{name.replace('.', '/')}"
        self.defined: dict[str, list[ast.AST]] = {}  # a name may be bound in several steps
        self.imported: dict[str, tuple[str, str]] = {}
        for node in _tree(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kernels":
                for alias in node.names:
                    inside = (root / "kernels" / f"{alias.name}.py").exists() and node.module == "kernels"
                    target = (f"kernels.{alias.name}", "") if inside else (node.module, alias.name)
                    self.imported[alias.asname or alias.name] = target
            for bound in _names_bound(node):
                self.defined.setdefault(bound, []).append(node)


def _names_bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _follow(root: Path, name: str, what: str, seen: set[tuple[str, str]]) -> None:
    """Add (module, name) and all that it uses; ``what`` = "": the whole module."""
    if (name, what) in seen:
        return
    seen.add((name, what))
    module = _Module(root, name)
    wanted = [what] if what else list(module.defined)
    parts = (part for w in wanted for node in module.defined[w] for part in ast.walk(node))
    used = {part.id for part in parts if isinstance(part, ast.Name)}
    for other in sorted(used):
        if other in module.imported:
            _follow(root, *module.imported[other], seen)
        elif other in module.defined:
            _follow(root, name, other, seen)


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, when: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _tree(path: Path) -> ast.Module:
    return _parsed(path, path.stat().st_mtime_ns)
