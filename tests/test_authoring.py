"""From source to notebooks: idempotent, one edit changes one cell, and breaks of the format are named."""

import nbformat
import pytest

from lineage_lib import authoring
from lineage_lib.authoring import SourceError

HEADER = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

"""
SOURCE = (
    HEADER
    + """\
# 0 · A chapter

Text.

```{code-cell} ipython3
import numpy as np
from lineage_lib.checks import check
```

:::{exercise} Fading
:label: ex-0-1

Write `decay(s, a)`.
:::

```{code-cell} ipython3
:id: ex-0-1-answer
def decay(s, a):
    \"\"\"The state after one step.\"\"\"
    ### BEGIN SOLUTION
    out = a * s
    return out
    ### END SOLUTION
```

```{code-cell} ipython3
:id: ex-0-1-check
check("0.1", decay)
```

```{code-cell} ipython3
print(np.arange(3))
```
"""
)


@pytest.fixture
def house(tmp_path):
    """A folder with one source and room for its notebooks: (source, chapters folder)."""
    (tmp_path / "solutions").mkdir()
    source = tmp_path / "solutions" / "00_a_chapter.md"
    source.write_text(SOURCE, encoding="utf-8")
    return source, tmp_path / "chapters"


def read(path):
    return nbformat.read(path, as_version=4)


def test_build_makes_both_notebooks(house):
    source, chapters = house
    assert [p.parent.name for p in authoring.build(source, chapters)] == ["solutions", "chapters"]
    solution, chapter = read(source.with_suffix(".ipynb")), read(chapters / "00_a_chapter.ipynb")
    assert [c.id for c in solution.cells if authoring.role_of(c)] == ["ex-0-1-answer", "ex-0-1-check"]
    assert solution.cells[4].outputs[0].text == "ok 0.1 decay: 4 cases\n"
    assert all(c.execution_count for c in solution.cells if c.cell_type == "code")
    assert all(not c.outputs and c.execution_count is None for c in chapter.cells if c.cell_type == "code")
    assert chapter.cells[3].source == (
        'def decay(s, a):\n    """The state after one step."""\n'
        '    raise NotImplementedError("Exercise 0.1: multiply the state by the decay")'
    )


def test_cells_carry_the_digest_of_what_the_chapter_gives(house):
    source, _ = house
    solution = authoring.read_source(source)
    chapter = authoring.chapter_notebook(solution)
    assert [c.metadata.lineage.digest for c in chapter.cells] == [authoring.digest(c.source) for c in chapter.cells]
    assert [c.metadata for c in chapter.cells] == [c.metadata for c in solution.cells]


def test_digest_is_of_words():
    assert authoring.digest("a b\r\n  c\n") == authoring.digest("a b\nc") != authoring.digest("a bc")


def test_text_gets_numbering_and_the_exercise_its_points(house):
    source, _ = house
    notebook = authoring.read_source(source)
    assert notebook.cells[0].source.startswith("---\nnumbering:\n  enumerator: 0.%s\n---\n\n# 0 · A chapter")
    assert notebook.cells[2].source.endswith("*1 point · about 2 minutes · warm-up*\n:::")


def test_jupyterlab_is_told_not_to_number_proofs(house):
    source, _ = house
    proof = "\n+++\n\n:::{prf:proof} of the first\n:class: dropdown\n\nObvious.\n:::\n"
    source.write_text(SOURCE + proof, encoding="utf-8")
    text = authoring.read_source(source).cells[-1].source
    assert text.startswith(":::{prf:proof} of the first\n:nonumber:\n:class: dropdown\n")


def test_build_is_idempotent_and_does_not_run_again(house, monkeypatch):
    source, chapters = house
    authoring.build(source, chapters)
    monkeypatch.setattr(authoring, "run", lambda *a: pytest.fail("nothing changed, yet the notebook was executed"))
    assert authoring.build(source, chapters) == []


def test_check_writes_nothing_and_names_what_is_stale(house, monkeypatch):
    source, chapters = house
    authoring.build(source, chapters)
    target = source.with_suffix(".ipynb")
    assert authoring.build(source, chapters, check=True) == []
    before = target.read_bytes()
    source.write_text(SOURCE.replace("Text.", "Other text."), encoding="utf-8")
    assert authoring.build(source, chapters, check=True) == [target, chapters / target.name]
    source.write_text(SOURCE.replace("np.arange(3)", "np.arange(4)"), encoding="utf-8")
    assert authoring.build(source, chapters, check=True) == [target]
    assert target.read_bytes() == before


def test_a_record_with_more_cases_is_executed_again(house):
    source, chapters = house
    authoring.build(source, chapters)
    target = source.with_suffix(".ipynb")
    target.write_text(target.read_text(encoding="utf-8").replace("decay: 4 cases", "decay: 3 cases"), encoding="utf-8")
    assert authoring.build(source, chapters) == [target]
    assert "decay: 4 cases" in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [("Text.", "Other text.", 0), ("np.arange(3)", "np.arange(4)", 5), ("out = a * s", "out = s * a", 3)],
    ids=["text", "code", "answer"],
)
def test_one_line_edit_changes_one_cell(house, old, new, changed):
    source, chapters = house
    authoring.build(source, chapters)
    before = read(source.with_suffix(".ipynb"))
    source.write_text(source.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    authoring.build(source, chapters)
    after = read(source.with_suffix(".ipynb"))
    assert [i for i, (a, b) in enumerate(zip(before.cells, after.cells)) if a != b] == [changed]


def test_a_measured_output_survives_another_cells_edit(house):
    source, chapters = house
    timed = "```{code-cell} ipython3\n:tags: [nbval-ignore-output]\nimport time; print(time.perf_counter_ns())\n```\n"
    source.write_text(SOURCE + "\n" + timed, encoding="utf-8")
    authoring.build(source, chapters)
    before = read(source.with_suffix(".ipynb")).cells[-1]
    source.write_text(SOURCE.replace("np.arange(3)", "np.arange(4)") + "\n" + timed, encoding="utf-8")
    authoring.build(source, chapters)
    assert read(source.with_suffix(".ipynb")).cells[-1] == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("    ### END SOLUTION\n", "", "needs one line '### BEGIN SOLUTION'"),
        (":id: ex-0-1-check", ":id: ex-0-1-answer", "the cell id ex-0-1-answer is used twice"),
        (":id: ex-0-1-check", ":id: ex-0-1-verify", "expected ex-C-K-answer or ex-C-K-check"),
        (":id: ex-0-1-check", f":id: ex-0-{'1' * 5000}-check", "expected ex-C-K-answer or ex-C-K-check"),
        (":id: ex-0-1-answer", ":id: ex-0-99-answer", 'there is no exercise "0.99"'),
        ('check("0.1", decay)', 'check("0.1", decay);', 'expected the one line check("0.1", decay)'),
        (":label: ex-0-1\n", ":label: ex-0-2x\n", "the cell before it must be the text of exercise 0.1"),
        (
            '```{code-cell} ipython3\n:id: ex-0-1-check\ncheck("0.1", decay)\n```\n',
            "",
            "the cell after it must be the check of exercise 0.1",
        ),
        ("# 0 · A chapter", "A chapter", "the first cell must be text that starts with the chapter's title"),
    ],
    ids=["marker", "twice", "role", "long", "unknown", "check", "label", "no-check", "title"],
)
def test_a_break_of_the_format_is_named(house, old, new, sentence):
    source, _ = house
    assert old in SOURCE
    source.write_text(SOURCE.replace(old, new), encoding="utf-8")
    with pytest.raises(SourceError) as error:
        authoring.read_source(source)
    assert sentence in str(error.value)
    assert "00_a_chapter.md" in str(error.value)


def test_the_committed_notebooks_are_what_the_sources_say(monkeypatch, tmp_path):
    monkeypatch.setattr(authoring, "run", lambda *a: pytest.fail("a solution's code differs from its notebook"))
    for source in authoring.sources():
        solution = authoring.read_source(source)
        stored = read(source.with_suffix(".ipynb"))
        assert [(c.id, c.source, c.metadata) for c in stored.cells] == [
            (c.id, c.source, c.metadata) for c in solution.cells
        ]
        assert read(authoring.CHAPTERS / f"{source.stem}.ipynb") == authoring.chapter_notebook(solution)
