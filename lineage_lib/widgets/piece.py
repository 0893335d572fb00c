"""What the interactive pieces share: an anywidget that also lives on a page without a kernel.

A piece's JavaScript computes everything in the browser. In JupyterLab it gets its settings from the
widget's traits; on a page of the book from the attribute ``data-settings`` of the stored output, and
``data`` from the script that the book's build writes (:mod:`lineage_lib.book.pieces`). Both times
``data["fixtures"]`` holds values that the library computed for some settings: the piece computes them
too, and shows an error where it differs by more than 1e-9.
"""

import html
import json
from pathlib import Path

import anywidget
import numpy as np
import traitlets

HERE = Path(__file__).parent
FIXTURES = 10  # random settings at which a piece is checked


def script(name: str) -> str:
    """The piece's module: what the pieces share, then its own file."""
    return "\n".join((HERE / f"{part}.js").read_text(encoding="utf-8") for part in ("shared", name))


class Piece(anywidget.AnyWidget):
    """A widget with a name, settings, data from the library, and a still picture.

    A subclass sets ``name``, ``source`` (its file's name) and ``_esm``, tags the traits that are its
    settings with ``setting=True``, and defines ``library_data()`` and ``still()``.
    """

    name: str
    source: str
    _css = (HERE / "pieces.css").read_text(encoding="utf-8")
    data = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(self, **settings):
        unknown = sorted(set(settings) - set(self.trait_names(setting=True)))
        if unknown:
            known = ", ".join(sorted(self.trait_names(setting=True)))
            raise TypeError(f"{unknown[0]}: {type(self).__name__} has no such setting; it has {known}")
        super().__init__(**settings)

    @traitlets.default("data")
    def _data(self) -> dict:
        return self.library_data()

    @staticmethod
    def library_data() -> dict:
        """What the JavaScript needs beside the settings; the same for every instance."""
        raise NotImplementedError

    def still(self) -> str:
        """An SVG of the piece at its settings, for where no script runs."""
        raise NotImplementedError

    def settings(self) -> dict:
        """Setting -> value."""
        return {name: getattr(self, name) for name in sorted(self.trait_names(setting=True))}

    def __repr__(self) -> str:
        changed = (f"{n}={value!r}" for n, value in self.settings().items() if value != self.trait_defaults(n))
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """The widget where there is a kernel; settings and still picture where there is none."""
        settings = html.escape(json.dumps(self.settings(), separators=(",", ":")), quote=True)
        page = f'<div class="lineage-piece" data-piece="{self.name}" data-settings="{settings}">{self.still()}</div>'
        return {**super()._repr_mimebundle_(**kwargs)[0], "text/html": page, "text/plain": repr(self)}


def gate(lowest: float, highest: float, *shape: int, default) -> traitlets.TraitType:
    """A setting: a number from lowest to highest, or nested lists of such numbers of the given shape."""
    trait = _Gates(lowest, highest, shape, default) if shape else traitlets.Float(default, min=lowest, max=highest)
    return trait.tag(sync=True, setting=True)


class _Gates(traitlets.List):
    """Nested lists of numbers; a wrong shape or range is refused with the trait's name."""

    def __init__(self, lowest: float, highest: float, shape: tuple[int, ...], default):
        super().__init__(default_value=default)
        self.lowest, self.highest, self.shape = lowest, highest, shape

    def validate(self, obj, value) -> list:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != self.shape or not ((array >= self.lowest) & (array <= self.highest)).all():
            raise traitlets.TraitError(
                f"{self.name}: expected numbers from {self.lowest:g} to {self.highest:g} of shape {self.shape}, "
                f"got {value!r}"
            )
        return array.tolist()
