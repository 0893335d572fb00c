"""A small book for the tests of grading: two toy chapters with many exercises that run in no time.

The library is copied, without the chapters of the real book, and the toy chapters are built in it as
``lineage build`` builds real ones. What uses the copy runs in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

from lineage_lib.paths import ROOT

RECORDS = '''
"""Toy exercises: multiply by the exercise's number."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake


def _exercise(chapter, k):
    def oracle(x):
        return k * x

    return Exercise(
        id=f"{chapter}.{k}", name=f"times_{k}", title=f"multiply by {k}", points=k, minutes=1, difficulty="core",
        returns=("y[i]",), oracle=oracle, hints=("one", "two", "three", "four"),
        cases=lambda rng: [Case((rng.standard_normal(n),), f"{n} numbers") for n in (2, 5)],
        mistakes=(Mistake("added", f"this is x + {k}; the ask is a product", lambda x: x + k),),
    )


'''
HEADER = """---
jupytext: {formats: "md:myst", text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""
TEXT = """
:::{{exercise}} Times {k}
:label: ex-{chapter}-{k}

Write `times_{k}(x)`.
:::

```{{code-cell}} ipython3
:id: ex-{chapter}-{k}-answer
def times_{k}(x):
    ### BEGIN SOLUTION
    return {k} * x
    ### END SOLUTION
```

```{{code-cell}} ipython3
:id: ex-{chapter}-{k}-check
check("{chapter}.{k}", times_{k})
```

```{{code-cell}} ipython3
print({k} * np.ones(2))
```
"""
FIRST = """
# {chapter} · Toy

```{{code-cell}} ipython3
import numpy as np

from lineage_lib.checks import check, hint
```
"""
COUNTS = {"90": 9, "91": 2}


class ToyBook:
    """``root`` holds ``lineage_lib``, ``chapters`` and ``solutions``."""

    def __init__(self, root: Path):
        self.root = root
        skipped = shutil.ignore_patterns("__pycache__", "ch[0-9][0-9].py")
        shutil.copytree(ROOT / "lineage_lib", root / "lineage_lib", ignore=skipped)
        (root / "solutions").mkdir()
        for chapter, count in COUNTS.items():
            records = f"{RECORDS}EXERCISES = tuple(_exercise({chapter}, k) for k in range(1, {count + 1}))\n"
            (root / f"lineage_lib/exercises/ch{chapter}.py").write_text(records)
            texts = [TEXT.format(chapter=chapter, k=k) for k in range(1, count + 1)]
            source = "".join([HEADER, FIRST.format(chapter=chapter), *texts])
            (root / f"solutions/{chapter}_toy.md").write_text(source)
        self.python("from lineage_lib import authoring as A\nfor s in A.sources(): A.build(s)")

    def python(self, code: str, *arguments) -> str:
        """What the code prints, run in a process that imports the copied library."""
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.root.parent, env=environment, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def grade(self, *paths: Path, **options) -> dict[str, dict]:
        """The reports by source."""
        code = f"""
import json, sys
from pathlib import Path
from lineage_lib.grading import grade
print(json.dumps(grade([Path(p) for p in sys.argv[1:]], **{options!r})))
"""
        return {report["source"]: report for report in json.loads(self.python(code, *paths))}

    def chapter(self, name: str = "90_toy") -> nbformat.NotebookNode:
        """A fresh copy of a chapter as a learner gets it."""
        return nbformat.read(self.root / f"chapters/{name}.ipynb", as_version=4)
