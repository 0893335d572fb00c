"""The gates: what every exercise of the book must do, present and future."""

import importlib
import linecache
import re
from pathlib import Path

import nbformat
import pytest

from lineage_lib import authoring
from lineage_lib.checks import judge
from lineage_lib.exercises import DIFFICULTIES, all_exercises, find
from lineage_lib.paths import CHAPTERS, SOLUTIONS

SEEDS = (0, 1, 2, 7, 20251130)
EXERCISES = list(all_exercises().values())


def seeds_of(exercise):
    """Two for a kernel, whose check takes a hundred times as long: Triton's interpreter runs it."""
    return SEEDS if exercise.launch is None else SEEDS[::4]


RUNS = [(e, seed) for e in EXERCISES for seed in seeds_of(e)]
MISTAKES = [(e, m, seed) for e in EXERCISES for m in e.mistakes for seed in seeds_of(e)]


def by_id(exercise):
    return exercise.id


def name_of(value):
    return getattr(value, "id", None) or getattr(value, "name", None) or str(value)


def right_answers(exercise):
    module = importlib.import_module(f"tests.right_answers.ch{exercise.chapter}")
    return module.RIGHT_ANSWERS.get(exercise.id, [])


def wrong_answers():
    """(exercise, function) for every wrong answer that only some inputs tell from a right one."""
    for path in sorted((Path(__file__).parent / "wrong_answers").glob("ch*.py")):
        table = importlib.import_module(f"tests.wrong_answers.{path.stem}").WRONG_ANSWERS
        yield from ((find(i), function) for i, functions in table.items() for function in functions)


def notebooks():
    """(solution, chapter) notebooks by file name."""
    pairs = {}
    for source in authoring.sources():
        name = source.with_suffix(".ipynb").name
        pairs[name] = tuple(nbformat.read(folder / name, as_version=4) for folder in (SOLUTIONS, CHAPTERS))
    return pairs


NOTEBOOKS = notebooks()
ANSWERS = {
    cell.metadata.lineage.exercise: (name, i)
    for name, (solution, _) in NOTEBOOKS.items()
    for i, cell in enumerate(solution.cells)
    if authoring.role_of(cell) == "answer"
}


def defined_by(exercise, which):
    """The learner's function as the solution (0) or the chapter (1) notebook defines it."""
    name, index = ANSWERS[exercise.id]
    cells = NOTEBOOKS[name][which].cells
    namespace: dict = {}
    for source in (next(c.source for c in cells if c.cell_type == "code"), cells[index].source):  # the imports first
        file = f"<exercise {exercise.id}, {len(linecache.cache)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # where Triton reads a kernel
        exec(compile(source, file, "exec"), namespace)
    return namespace[exercise.name]


def test_ids_are_unique_and_stable():
    """A renamed id would orphan every learner's answer: ids are only ever added, in this list too."""
    assert [*all_exercises()] == (Path(__file__).parent / "exercise_ids.txt").read_text().split()


def test_every_record_is_in_a_chapter_and_in_order():
    assert [*ANSWERS] == [*all_exercises()]
    for name in NOTEBOOKS:
        numbers = [int(i.split(".")[1]) for i in ANSWERS if ANSWERS[i][0] == name]
        assert numbers == list(range(1, len(numbers) + 1)), f"{name}: the book numbers exercises by appearance"


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_record_is_complete(exercise):
    assert exercise.points >= 1
    assert exercise.minutes >= 1
    assert exercise.difficulty in DIFFICULTIES
    assert 4 <= len(exercise.mistakes) <= 10
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", m.name) for m in exercise.mistakes)
    assert len({len(exercise.seeded_cases(seed)) for seed in SEEDS}) == 1, "the ok line must not depend on the seed"


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_untouched_stub_is_not_attempted(exercise):
    verdict = judge(exercise, defined_by(exercise, 1))
    assert verdict.cause == "not attempted"
    assert f"Exercise {exercise.id}" in verdict.message


@pytest.mark.parametrize(("exercise", "seed"), RUNS, ids=name_of)
def test_reference_passes(exercise, seed):
    for function in (exercise.oracle, defined_by(exercise, 0)):
        verdict = judge(exercise, function, seed=seed)
        assert verdict.passed, verdict.message


@pytest.mark.parametrize(("exercise", "mistake", "seed"), MISTAKES, ids=name_of)
def test_known_mistake_fails_and_is_named(exercise, mistake, seed):
    for function in mistake.functions:
        verdict = judge(exercise, function, seed=seed)
        assert not verdict.passed
        assert verdict.mistake == mistake.name, verdict.message
        assert mistake.sentence in verdict.message


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_right_answers_written_differently_pass(exercise):
    answers = right_answers(exercise)
    assert len(answers) >= 2
    for function in answers:
        for seed in seeds_of(exercise):
            verdict = judge(exercise, function, seed=seed)
            assert verdict.passed, f"{function.__name__}: {verdict.message}"


@pytest.mark.parametrize(
    ("exercise", "function"), [*wrong_answers()], ids=lambda x: getattr(x, "id", None) or x.__name__
)
def test_wrong_answers_fail(exercise, function):
    for seed in (*range(6), SEEDS[-1]) if exercise.launch is None else seeds_of(exercise):
        verdict = judge(exercise, function, seed=seed)
        assert verdict.cause in ("wrong", "error", "memory"), f"seed {seed}: {verdict.message}"


@pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)
def test_hints_do_not_leak_the_answer(exercise):
    name, index = ANSWERS[exercise.id]
    _, answer, _ = authoring.split_answer(NOTEBOOKS[name][0].cells[index].source)

    def squeezed(text):
        return re.sub(r"\s+", "", text)

    pieces = {squeezed(line) for line in answer} | {squeezed(re.split(r"=|return", line)[-1]) for line in answer}
    for hint in exercise.hints:
        leaked = [p for p in pieces if len(p) >= 5 and p in squeezed(hint)]
        assert not leaked, f"{hint!r} contains {leaked}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_chapter_and_solution_differ_only_inside_the_markers(name):
    solution, chapter = NOTEBOOKS[name]
    assert [c.id for c in solution.cells] == [c.id for c in chapter.cells]
    for answered, stubbed in zip(solution.cells, chapter.cells):
        assert answered.metadata == stubbed.metadata
        if authoring.role_of(answered) != "answer":
            assert answered.source == stubbed.source
            continue
        before, _, after = authoring.split_answer(answered.source)
        lines = stubbed.source.split("\n")
        assert lines[: len(before)] == before
        assert lines[len(lines) - len(after) :] == after
        assert len(lines) == len(before) + 1 + len(after)
        assert lines[len(before)].strip().startswith("raise NotImplementedError(")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_figures_have_alt_text_and_a_caption(name):
    for cell in NOTEBOOKS[name][0].cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            render = cell.metadata.get("mystnb", {})
            assert len(render.get("image", {}).get("alt", "")) > 20, f"{cell.id}: no alt text"
            assert len(render.get("figure", {}).get("caption", "")) > 20, f"{cell.id}: no caption"
