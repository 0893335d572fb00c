"""Reads the source of an answer, without running it.

An answer computes something from its arguments. One that reaches for the checker, for the stored
answers, for files or for the frames of its caller is refused, with a sentence naming the line.

This is a reading of the source, and Python can hide anything from a reader. Not caught: a name put
together at run time (``getattr(x, "__glo" + "bals__")``), work done inside a C extension or another
installed package, a thread that acts later, and any process of the same user on this machine. A
grading run stops honest mistakes and lazy tricks; a class that grades strangers' code needs a
container around it.
"""

import ast
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field

from IPython.core.inputtransformer2 import TransformerManager

LONGEST_ANSWER = 200_000
_FILES = "an answer computes from its arguments; it may not read or write files"
_FRAMES = "an answer may not look into the frames or globals of its caller"
_CHECKER = "the checks, the stored answers and the grader are not part of an answer"
_PROCESS = "an answer may not reach outside its function"
_STRING = "an answer may not run code from a string"

# Refused where the imported name is used; an import that is never used is left alone.
_MODULES = {
    **dict.fromkeys(("os", "posix", "pty", "subprocess", "socket", "signal", "ctypes", "multiprocessing"), _PROCESS),
    **dict.fromkeys(("builtins", "importlib", "runpy", "pkgutil", "atexit", "IPython", "ipykernel"), _PROCESS),
    **dict.fromkeys(("resource", "sys.modules", "sys.path", "sys.meta_path", "urllib", "http"), _PROCESS),
    **dict.fromkeys(("pathlib", "shutil", "io", "codecs", "tempfile", "glob", "pickle", "mmap", "linecache"), _FILES),
    **dict.fromkeys(("inspect", "traceback", "faulthandler"), _FRAMES),
    **dict.fromkeys(("code", "codeop"), _STRING),
    "timeit": f"{_STRING}; the magic %timeit is fine",
    **dict.fromkeys(("unittest.mock", "pytest", "nbval"), _CHECKER),
}
_HARMLESS = ("IPython.display", "pytest.approx")
_MEASURES = ("tracemalloc.stop", "tracemalloc.reset_peak", "tracemalloc.clear_traces")
# Modules that libraries import for themselves, as in np.lib.format.os.
_INSIDE_LIBRARIES = ("os", "sys", "builtins", "subprocess", "importlib", "inspect", "ctypes")
_OPEN_ROOMS = ("check", "hint", "CheckFailed", "Malformed", "Verdict")  # of lineage_lib.checks
_CLOSED_ROOMS = ("exercises", "checks", "outcomes", "launching")
_CLOSED_ROOMS += ("grading", "authoring", "paths", "cli", "status", "book")
_BUILTINS = {
    **dict.fromkeys(("eval", "exec", "__import__", "breakpoint"), _STRING),
    **dict.fromkeys(("globals", "__builtins__"), _FRAMES),
    "open": _FILES,
    "get_ipython": _PROCESS,
}
_ATTRIBUTES = {
    **dict.fromkeys(("_getframe", "_current_frames", "f_back", "f_locals", "f_globals", "tb_frame"), _FRAMES),
    **dict.fromkeys(("gi_frame", "__globals__", "__closure__", "__subclasses__", "__builtins__", "__dict__"), _FRAMES),
    **dict.fromkeys(("get_objects", "get_referrers", "get_referents", "settrace", "setprofile"), _FRAMES),
}
_FILE_FUNCTIONS = ("load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt")
_FILE_FUNCTIONS += ("fromfile", "memmap", "open_memmap")
_KEPT = ("check", "hint", "print")  # names that an answer may not give a new meaning
_MAGICS = ("time", "timeit", "prun", "matplotlib", "precision", "autoreload", "load_ext", "config", "pinfo", "pinfo2")
_WRAPPER = re.compile(r"(\s*)%%(time|capture)\b")  # cell magics whose body runs as if they were not there


@dataclass
class Scan:
    """What the source says. ``error`` and ``refused`` are sentences; ``library`` is what it uses, and in which line."""

    binds: set[str] = field(default_factory=set)
    empty: bool = False
    error: str = ""
    refused: str = ""
    library: dict[str, int] = field(default_factory=dict)


def scan(source: str, chapter_imports: dict[str, str]) -> Scan:
    """Read one answer. ``chapter_imports`` are the names that the chapter's own cells import."""
    if len(source) > LONGEST_ANSWER:
        return Scan(error=f"the answer is {len(source):,} characters long; at most {LONGEST_ANSWER:,} are read")
    try:
        tree = parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}: {(error.text or '').strip()}" if error.lineno else "the cell"
        return Scan(error=f"{type(error).__name__}: {error.msg} ({where})")
    except (ValueError, RecursionError, MemoryError) as error:  # NUL, lone surrogates, thousands of brackets
        return Scan(error=f"the answer cannot be read as Python ({type(error).__name__})")
    if not tree.body:
        return Scan(empty=True)
    reader = _Reader(tree, source, chapter_imports)
    try:
        reader.visit(tree)
    except RecursionError:
        return Scan(error="the answer cannot be read as Python (it is nested too deeply)")
    refused = min(reader.refused, default=None)
    return Scan(
        binds=bound_names(tree),
        refused=f"line {refused[0]}: {refused[1]}" if refused else "",
        library=reader.used(),
    )


def parse(source: str) -> ast.Module:
    """The syntax tree of a cell, its magics turned into calls as IPython does; lines keep their numbers."""
    blank = re.match(r"([^\S\n]*\n)*", source)[0].count("\n")  # lines that IPython drops
    python = "\n" * blank + TransformerManager().transform_cell(_WRAPPER.sub(r"\1#", source, count=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(python, "<answer>", "exec", flags=flags, dont_inherit=True)


def bound_names(tree: ast.AST) -> set[str]:
    """The names that running the code at the top level would bind, inside ``if``, ``for`` or ``try`` too."""
    names, todo = set(), [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue  # what is bound inside stays inside
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        todo.extend(ast.iter_child_nodes(node))
    return names


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: ``{"np": "numpy", "sqrt": "math.sqrt"}``."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    return names


class _Reader(ast.NodeVisitor):
    """Collects what is refused, as (line, sentence), and which parts of the library are used."""

    def __init__(self, tree: ast.Module, source: str, chapter_imports: dict[str, str]):
        self.lines = source.splitlines()
        self.depth = 0  # of functions
        self.refused: list[tuple[int, str]] = []
        self.library: dict[str, int] = {}
        imports = imported_names(tree)
        # A learner's own name hides an imported function; np stays np.
        own = {n.arg if isinstance(n, ast.arg) else n.id for n in ast.walk(tree) if _is_local(n)}
        own |= bound_names(tree) - set(imports)
        shown = {n: m for n, m in chapter_imports.items() if n not in own or n in ("np", "plt", "torch")}
        self.imports = {**shown, **imports}
        self._follow_aliases(tree)
        for name in _KEPT:
            if name in bound_names(tree) and imports.get(name) != f"lineage_lib.checks.{name}":
                line = next((n.lineno for n in ast.walk(tree) if _binds(n, name)), 1)
                self.refuse(line, f"`{name}` may not get a new meaning")

    def _follow_aliases(self, tree: ast.Module) -> None:
        """``m = np`` makes m stand for what np does, where nothing else is stored in m."""
        stored = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for node in ast.walk(tree):
            pairs = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.NamedExpr):
                pairs = [(node.target, node.value)]
            elif isinstance(node, ast.arguments):
                places = [*node.posonlyargs, *node.args]
                pairs = [*zip(places[len(places) - len(node.defaults) :], node.defaults)]
                pairs += zip(node.kwonlyargs, node.kw_defaults)
            for target, value in pairs:
                name = getattr(target, "id", getattr(target, "arg", None))
                path = self._path(value)
                if name and path and stored[name] <= 1:
                    self.imports.setdefault(name, path)

    def refuse(self, line: int, why: str) -> None:
        self.refused.append((line, why))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._rooms(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._rooms(node.lineno, f"{node.module or ''}.{alias.name}")

    def visit_Global(self, node: ast.Global) -> None:
        for name in set(node.names) & set(_KEPT):
            self.refuse(node.lineno, f"`{name}` may not get a new meaning")

    def visit_FunctionDef(self, node) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id in _BUILTINS:
            self.refuse(node.lineno, f"`{node.id}`: {_BUILTINS[node.id]}")
        self._use(node.lineno, self._path(node))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if not isinstance(node.ctx, ast.Load) and not path.startswith("torch.backends.") and self._is_foreign(node):
            what = path or ast.unparse(node)
            self.refuse(node.lineno, f"`{what}` belongs to a library; an answer may not change it")
        self._use(node.lineno, path or f".{node.attr}")
        if not path:
            self.generic_visit(node)

    def _use(self, line: int, path: str) -> None:
        """Look at one name, as "numpy.linalg.norm", or at one attribute of something unknown, as ".tofile"."""
        root, *parts = path.split(".")
        self._rooms(line, path)
        if root == "lineage_lib" and parts and parts[0] not in _CLOSED_ROOMS:
            self.library.setdefault(path, line)
        if not path.startswith(_HARMLESS):
            for closed, why in _MODULES.items():
                if path == closed or path.startswith(f"{closed}."):
                    self.refuse(line, f"`{path}`: {why}")
        if path in _MEASURES and self.depth:
            self.refuse(line, f"`{path}`: a check measures the memory of a call; an answer may not end that")
        for part in parts:
            if part in _ATTRIBUTES:
                self.refuse(line, f"`{part}`: {_ATTRIBUTES[part]}")
            if root and part in _INSIDE_LIBRARIES:
                self.refuse(line, f"`{path}`: {_PROCESS}")
            if part == "tofile" or (root in ("numpy", "torch") and part in _FILE_FUNCTIONS):
                self.refuse(line, f"`{path.lstrip('.')}`: {_FILES}")

    def _is_foreign(self, node: ast.AST) -> bool:
        """Storing into this attribute may change what is not the cell's own: neither a name of it, nor a new object."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return bool(self._path(node)) or not isinstance(node, ast.Name | ast.Call)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):  # not a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str):
            return
        if node.value in _ATTRIBUTES:
            self.refuse(node.lineno, f"`{node.value}`: {_ATTRIBUTES[node.value]}")
        if "LINEAGE_" in node.value or node.value.startswith("lineage_lib."):
            self.refuse(node.lineno, f"`{node.value}`: {_CHECKER}")

    def visit_Call(self, node: ast.Call) -> None:
        magic = _magic(node)
        if magic is not None:
            self._visit_magic(node.lineno, *magic)
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("setattr", "delattr", "vars") and node.args and self._path(node.args[0]):
            self.refuse(node.lineno, f"`{self._path(node.args[0])}` belongs to a library; an answer may not change it")
        self.generic_visit(node)

    def _visit_magic(self, line: int, name: str, code: list[str]) -> None:
        if name not in _MAGICS:
            typed = "".join(self.lines[line - 1 : line]).strip()
            self.refuse(line, f"`{typed[:60]}`: {_PROCESS}")
        for text in code:
            inner = scan(text, self.imports)  # the code that %time and %%time run
            if inner.refused:
                self.refuse(line, inner.refused.partition(": ")[2])

    def _rooms(self, line: int, path: str) -> None:
        """Refuse the rooms of the library that hold answers or grade them, whether imported or used."""
        root, room, name = [*path.split(".", 2), "", ""][:3]
        closed = root == "lineage_lib" and room in _CLOSED_ROOMS and not (room == "checks" and name in _OPEN_ROOMS)
        if closed or root == "tests":
            self.refuse(line, f"`{path}`: {_CHECKER}")

    def used(self) -> dict[str, int]:
        """The parts of the library, without the modules that they were reached through."""
        return {p: n for p, n in self.library.items() if not any(other.startswith(f"{p}.") for other in self.library)}

    def _path(self, node: ast.AST) -> str:
        """``np.linalg.norm`` as "numpy.linalg.norm"; "" for what does not start at an imported name."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        root = self.imports.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join([root, *reversed(parts)]) if root else ""


def _is_local(node: ast.AST) -> bool:
    return isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) == name for alias in node.names)
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _magic(node: ast.Call) -> tuple[str, list[str]] | None:
    """The name and the code of ``get_ipython().run_line_magic("time", "f(x)")`` and its kin; None for other calls."""
    func = node.func
    if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
        return None
    if not (isinstance(func.value.func, ast.Name) and func.value.func.id == "get_ipython"):
        return None
    values = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if func.attr in ("run_line_magic", "run_cell_magic") and len(values) == len(node.args) >= 2:
        return values[0], values[1:]
    return func.attr, []  # system, getoutput and whatever else
