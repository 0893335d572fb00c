"""Runs in the kernel of a graded notebook, around each exercise: what an answer may not change is put back.

An answer cell may use a name of the chapter for something else (``a = 3``); that costs no other
exercise. It may not change the library, by whatever name it reaches it: that is put back, and raised.

The file is copied beside the notebook, so that the kernel does not import the whole grader.
"""

import sys
from types import FunctionType

from IPython import get_ipython

_names, _parts = {}, []


def keep(namespace: dict, names: list[str]) -> None:
    """Remember the chapter's names and the library's parts, before an answer."""
    # exit() in a kernel takes effect a moment later, in a cell that is not to blame: it has no effect here.
    get_ipython().ask_exit = lambda: None
    _names.clear()
    _names.update({n: namespace[n] for n in names if n in namespace})
    _parts[:] = _library()


def put_back(namespace: dict) -> None:
    """Set all of it back, after the check; PermissionError when the answer had changed the library."""
    namespace.update(_names)
    now = {(id(owner), name): value for owner, name, value in _library()}
    changed = [part for part in _parts if now.get((id(part[0]), part[1])) is not part[2]]
    for owner, name, value in changed:
        setattr(owner, name, value)
    if changed:
        owner, name, _ = changed[0]
        raise PermissionError(f"{owner.__name__}.{name} belongs to a library; an answer may not change it")


def _library() -> list[tuple]:
    """(owner, attribute, value) of the library's modules, classes and functions, and of NumPy's names."""
    parts = []
    for module_name, module in list(sys.modules.items()):
        ours = module_name.split(".")[0] == "lineage_lib"
        if not ours and module_name not in ("numpy", "numpy.linalg"):
            continue
        for name, value in list(vars(module).items()):
            parts.append((module, name, value))
            if ours and getattr(value, "__module__", None) == module_name:
                if isinstance(value, FunctionType):
                    parts += [(value, n, getattr(value, n)) for n in ("__code__", "__defaults__")]
                elif isinstance(value, type):
                    parts += [(value, n, v) for n, v in vars(value).items()]
    return parts
