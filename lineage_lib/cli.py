"""The ``lineage`` command. Errors are one sentence and exit status 2."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lineage_lib.paths import CHAPTERS, SOLUTIONS, WORK

FORMS = ("json", "csv", "html", "junit")


class UsageError(Exception):
    """What was asked for cannot be done; the message is the sentence to print."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without a letter shows "?"
    try:
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UsageError, OSError, RuntimeError, ValueError, LookupError) as error:
        print(f"lineage {arguments.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lineage", description="Read, solve and grade the book's chapters.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run, summary: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

    start = command("start", _start, "copy the chapters into work/ and open the book and JupyterLab", "lineage start")
    start.add_argument("--copy-only", action="store_true", help="only make the copies")
    start.add_argument("--browser", action="store_true", help="open the book in a web browser")

    command("update", _update, "bring new chapter texts into work/, your answers kept", "lineage update")
    command("status", _status, "show which exercises are solved, and the points", "lineage status")

    hint = command("hint", _hint, "show the next hint of an exercise, one rung at a time", "lineage hint 3.2")
    hint.add_argument("exercise", metavar="ID", help="the exercise, such as 3.2")
    hint.add_argument("--rung", type=int, metavar="N", help="show hint N (1 to 4) again")

    grade = command(
        "grade",
        _grade,
        "grade notebooks, or whole folders of them",
        "lineage grade submissions --csv --html --output marks",
    )
    grade.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a notebook, or a folder of notebooks")
    for form in FORMS:
        grade.add_argument(f"--{form}", action="store_true", help=f"report as {form.upper()}")
    grade.add_argument("--output", type=Path, metavar="STEM", help="write STEM.json, STEM.csv, … instead of printing")
    grade.add_argument("--timeout", type=int, default=60, metavar="S", help="seconds a cell may run (default 60)")
    grade.add_argument("--memory", type=int, default=4096, metavar="MB", help="memory of one notebook (default 4096)")
    grade.add_argument("--jobs", type=int, default=1, metavar="N", help="notebooks graded at a time (default 1)")
    grade.add_argument("--seed", type=int, metavar="N", help="draw the cases from this seed (default: a fresh one)")

    rules = command("rules", _rules, "show the table of update rules, or one rule in full", "lineage rules kda")
    rules.add_argument("name", nargs="?", metavar="NAME", help="a rule, such as gated-deltanet")
    rules.add_argument("--json", action="store_true", help="every field of every rule, or of one, as JSON")

    command("book", _book, "build the book as static pages", "lineage book")

    build = command("build", _build, "make the notebooks from solutions/*.md (for authors)", "lineage build 03")
    build.add_argument("chapters", nargs="*", metavar="NN", help="chapters to build (default: all)")
    build.add_argument("--execute", action="store_true", help="run every notebook, also when its code is unchanged")
    build.add_argument("--check", action="store_true", help="write nothing; exit status 1 when one is stale")
    return parser


def _start(arguments) -> int:
    from lineage_lib import serving

    made, kept = serving.copy_chapters(work=WORK)
    for path in made:
        print(f"copied  {path.relative_to(WORK.parent)}")
    for path in kept:
        print(f"kept    {path.relative_to(WORK.parent)} (yours)")
    if arguments.copy_only:
        return 0
    serving.require_tools()
    _book(arguments)
    serving.serve(work=WORK, browser=arguments.browser)
    return 0


def _update(arguments) -> int:
    from lineage_lib import updating

    done = updating.update(work=WORK)
    if not done:
        raise UsageError(f"there is no chapter in {WORK.name}/ yet; run `lineage start` first")
    for one in done:
        kept = f"; the former file is {one.backup.relative_to(WORK.parent)}" if one.backup else ""
        print(f"{one.path.relative_to(WORK.parent)}  {one.message}{kept}")
    return 0


def _status(arguments) -> int:
    from lineage_lib import status

    print(status.to_text(status.progress(WORK)))
    return 0


def _hint(arguments) -> int:
    from lineage_lib.hints import hint

    hint(arguments.exercise, arguments.rung)
    return 0


def _grade(arguments) -> int:
    from lineage_lib import grading

    forms = [form for form in FORMS if getattr(arguments, form)]
    if len(forms) > 1 and arguments.output is None:
        raise UsageError("several reports at once need --output STEM")
    for option in ("timeout", "memory", "jobs"):
        if getattr(arguments, option) < 1:
            raise UsageError(f"--{option}: expected a number of at least 1, got {getattr(arguments, option)}")
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"--seed: expected a number of at least 0, got {arguments.seed}")
    targets = {form: _target(arguments.output, form) for form in forms or FORMS} if arguments.output else {}
    reports = grading.grade(
        arguments.paths,
        seed=arguments.seed,
        cell_timeout=arguments.timeout,
        memory_mb=arguments.memory,
        jobs=arguments.jobs,
    )
    single = len(arguments.paths) == 1 and not arguments.paths[0].is_dir()
    texts = {
        "json": lambda: grading.to_json(reports, single=single),
        "csv": lambda: grading.to_csv(reports),
        "html": lambda: grading.to_html(reports),
        "junit": lambda: grading.to_junit(reports),
    }
    try:
        for form, target in targets.items():
            target.write_text(texts[form]() + "\n", encoding="utf-8")
    finally:  # also when a disk is full
        print(texts[forms[0]]() if forms and not targets else grading.to_text(reports))
    for target in targets.values():
        print(f"wrote   {target}")
    return 0


def _target(stem: Path, form: str) -> Path:
    """The file of one report; a :class:`UsageError`, before anything is graded, where it cannot be written."""
    if stem.name in ("", ".."):
        raise UsageError(f"--output: expected the beginning of a file name, such as marks, got {stem}")
    target = stem.with_name(f"{stem.name}.{'xml' if form == 'junit' else form}")
    if not os.access(target.parent, os.W_OK) or not target.parent.is_dir():
        raise UsageError(f"--output: {target.parent} is not a folder that can be written to")
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        raise UsageError(f"--output: {target} is there and cannot be written over")
    return target


def _rules(arguments) -> int:
    from lineage_lib.rules import RULES, show

    wanted = None if arguments.name is None else show.find(arguments.name)
    if arguments.json:
        record = [show.as_dict(rule) for rule in RULES.values()] if wanted is None else show.as_dict(wanted)
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        print(show.to_text() if wanted is None else show.record_text(wanted))
    return 0


def _book(arguments) -> int:
    from lineage_lib import book

    index = book.build_book()
    print(f"book    {index}")
    return 0


def _build(arguments) -> int:
    from lineage_lib import authoring

    known = authoring.sources()
    wanted = [s for s in known if not arguments.chapters or any(s.name.startswith(c) for c in arguments.chapters)]
    for chapter in arguments.chapters:
        if not any(s.name.startswith(chapter) for s in known):
            raise UsageError(f"no source solutions/{chapter}*.md; there are {', '.join(s.stem for s in known)}")
    changed = []
    for source in wanted:
        try:
            changed += authoring.build(source, execute=arguments.execute, check=arguments.check)
        except authoring.SourceError as error:
            raise UsageError(str(error)) from error
    for path in changed:
        print(f"{'stale' if arguments.check else 'wrote'}   {path.relative_to(SOLUTIONS.parent)}")
    unknown = sorted({p.name for p in CHAPTERS.glob("*.ipynb")} - {s.with_suffix(".ipynb").name for s in known})
    if unknown:
        raise UsageError(f"chapters/ has notebooks without a source: {', '.join(unknown)}")
    return 1 if changed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
