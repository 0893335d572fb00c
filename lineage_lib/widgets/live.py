"""A figure whose arguments are controls: live in JupyterLab, its first frame everywhere else."""

import html
import inspect
from collections.abc import Callable

import ipywidgets
import matplotlib.pyplot as plt
from IPython.core.pylabtools import print_figure


class Experiment:
    """What :func:`live` returns; shown by a notebook when it is a cell's last expression.

    controls  argument's name -> its ipywidgets control; reading and setting ``value`` works from Python
    """

    def __init__(self, draw: Callable, controls: dict):
        self.draw = draw
        defaults = {name: parameter.default for name, parameter in inspect.signature(draw).parameters.items()}
        unknown = sorted(set(controls) - set(defaults))
        if unknown:
            raise ValueError(f"{unknown[0]}: {draw.__name__} has no such argument; it has {', '.join(defaults)}")
        self.controls = {name: _control(name, given, defaults[name]) for name, given in controls.items()}
        self._first = self._drawn()
        self._picture = ipywidgets.HTML(self._image(self._first))
        self._box = ipywidgets.VBox([*self.controls.values(), self._picture])
        for control in self.controls.values():
            control.observe(self._update, names="value")

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={control.value!r}" for name, control in self.controls.items())
        return f"{self.draw.__name__}({settings})"

    def _update(self, change) -> None:
        self._picture.value = self._image(self._drawn())

    def _drawn(self) -> str:
        """The figure at the controls' settings, a PNG in base64."""
        self.draw(**{name: control.value for name, control in self.controls.items()})
        figure = plt.gcf()
        png = print_figure(figure, fmt="png", base64=True)
        plt.close(figure)
        return png

    def _image(self, png: str) -> str:
        words = html.escape(inspect.getdoc(self.draw).partition("\n")[0])
        return f'<img src="data:image/png;base64,{png}" alt="{words}" style="max-width: 100%">'

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """The controls where there is a kernel to answer them, the first frame where there is none."""
        return {**self._box._repr_mimebundle_(), "image/png": self._first, "text/plain": repr(self)}


def live(draw: Callable, **controls) -> Experiment:
    """A figure function with a control for each of its arguments named here.

    draw      draws one matplotlib figure; each argument has a default, with which the first frame is drawn.
              The first line of its docstring is the picture's text for those who cannot see it
    controls  what ``ipywidgets.interact`` understands: (lowest, highest, step), a list of choices, True or False

    >>> from lineage_lib.figures import ch08
    >>> live(ch08.one_write, beta=(0.0, 2.0, 0.1)).controls["beta"].value  # doctest: +SKIP
    1.0
    """
    return Experiment(draw, controls)


def _control(name: str, given, default) -> ipywidgets.Widget:
    if default is inspect.Parameter.empty:
        raise ValueError(f"{name}: the figure's argument needs a default, with which the first frame is drawn")
    control = ipywidgets.interactive.widget_from_abbrev(given, default)
    if control is None:
        raise ValueError(f"{name}: expected (lowest, highest, step), a list of choices or a bool, got {given!r}")
    control.description = name.replace("_", " ")
    return control
