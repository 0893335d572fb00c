"""The passport page, made from kernels/passport/*.json, the kernels' sources and the list of what is timed.

``{passport-measured}``  how many kernels have been measured, and on what
``{passport-overview}``  every kernel in a line: its least work, how it did, when it was measured, beside what
``{passport-kernels}``   a section for each kernel: source, errors, times as a table and as a figure
"""

import functools
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch
from docutils import nodes

from lineage_lib import passport
from lineage_lib.book.display import plain
from lineage_lib.book.family import FromTable
from lineage_lib.figures.passport import PASSES, times
from lineage_lib.paths import ROOT

NONE = "–"
PUBLISHED = ROOT / "book" / "data" / "published_times.json"


@functools.cache
def workloads() -> dict:
    """Of ``kernels.workloads``, which is read without its package: that would want Triton, and ask for a GPU."""
    spec = importlib.util.spec_from_file_location("_workloads_of_kernels", ROOT / "kernels" / "workloads.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for the types of their fields
    spec.loader.exec_module(module)
    return {workload.name: workload for workload in module.WORKLOADS}


def kernels() -> list[str]:
    """Those that the package exports, in the order in which they are timed."""
    exported = set(passport.kernel_names())
    return [name for name in workloads() if name in exported]


def shape_label(shape: dict[str, int]) -> str:
    """As the records' own label, of one line."""
    return passport.label(shape).replace(" ", "\N{NO-BREAK SPACE}")


def measured() -> str:
    """How many kernels there are results of, and from which devices."""
    records = [record for kernel in kernels() for record in records_of(kernel)]
    if not records:
        return "**No kernel has been measured yet.** The table below says what each of them must move and compute."
    devices = ", ".join(sorted({record["device"] for record in records}))
    timed = sum(len(workloads()[kernel].shapes) * len(workloads()[kernel].passes) for kernel in kernels())
    known = {(r["kernel"], passport.label(r["shape"]), r["pass"]) for r in records if r["pass"] != "verify"}
    verified = len({r["kernel"] for r in records if r["pass"] == "verify"})
    return (
        f"So far {len(known)} of {timed} times are recorded, and the errors of {verified or 'none'} of the "
        f"{len(kernels())} kernels, on: {devices}."
    )


def records_of(kernel: str) -> list[dict]:
    return [record for record in passport.read_all() if record["kernel"] == kernel]


# --- Overview ---


def overview() -> str:
    """All kernels as a Markdown table; without any result, what they must do."""
    heads = ("Kernel, shape", "Pass", "Must move, MB", "Must compute, GFLOP")
    results = ("Ours", "Floor", "Peer’s", "Measured") if any(map(records_of, kernels())) else ()
    align = ["---"] * 2 + ["---:"] * (2 + len(results[:3])) + ["---"] * len(results[3:]) + ["---"]
    rows = [row for kernel in kernels() for row in _overview_rows(kernel, bool(results))]
    return _table((*heads, *results, "Peer"), align, rows, "overview")


def _overview_rows(kernel: str, results: bool) -> list[tuple[str, ...]]:
    """A row for each pass at the shape that is timed first; with what was found if ``results``."""
    workload, records, rows = workloads()[kernel], records_of(kernel), []
    shape = workload.shapes[0]
    for which in workload.passes:
        meant = [r for r in records if (r["pass"], r["shape"]) == (which, shape)]
        last = max(meant, key=lambda r: r["date"], default=None)
        moved = workload.bytes_moved(workload.inputs(shape, "meta", torch.bfloat16), which)
        link = f"{{ref}}`{kernel} <kernel-{kernel}>`<br>{shape_label(shape)}"
        work = (f"{moved / 1e6:,.0f}", f"{workload.flops(shape, which) / 1e9:,.1f}")
        found = (NONE, NONE, NONE, "not yet")
        if last:
            since = "; source changed since" if passport.changed(last) else ""
            peers = _ms(_peer(last, "median_ms"))
            found = (_ms(last["median_ms"]), _ms(last["floor_ms"]), peers, f"{_unbroken(last['date'])}{since}")
        peer = f"`{workload.peer.name.partition('.')[0]}`"
        rows.append((link, which, *work, *(found if results else ()), peer))
    return rows


# --- A kernel ---


def facts(kernel: str) -> str:
    """What it is, from its own docstring, and where."""
    words = re.sub(r":\w+:`([^`]*)`", r"`\1`", passport.summary(kernel)).replace("``", "`")
    words = re.sub(r", differentiable\.$", ". It is differentiable.", words)
    files = ", ".join(f"`{name}`" for name in passport.sources(kernel))
    return f"{_linked(_formulas(words))}\n\nSource: {files}."


CITED = {"Sun et al. 2023": "https://arxiv.org/abs/2307.08621"}  # in docstrings
TEX = {
    r"diag\(exp\(g_t\)\)": r"\\operatorname{diag}(e^{\\mathbf g_t})\\,",  # a vector, one for each channel
    r"exp\(g_t\)": r"e^{g_t}\\,",
    "S\u0304": r"\\bar{\\mathbf S}",
    r"\b([Skvqobw])_": r"\\mathbf \1_",
    r"β_t ": r"\\beta_t\\, ",
    "⊙": r"\\odot",
    r"\bscale ": r"\\text{scale}\\; ",
    "ᵀ": r"^\\top",
    "−": "-",
    r"\^\(([^)]*)\)": r"^{\1}",
}


def _formulas(words: str) -> str:
    """Markdown for a line of a docstring: an equation "S_t = …" or "S̄ = …" up to its comma or stop, and a power, as
    formulas."""
    parts = re.split(r"(\b[A-Za-z](?:_t|\u0304) = [^,.]+|\d+ − 2\^\([^)]*\))", words)
    return "".join(f"${_tex(part)}$" if n % 2 else plain(part) for n, part in enumerate(parts))


def _tex(formula: str) -> str:
    for pattern, tex in TEX.items():
        formula = re.sub(pattern, tex, formula)
    return formula


def _linked(words: str) -> str:
    for name, address in CITED.items():
        words = words.replace(name, f"[{name}]({address})")
    return words


def planned(kernel: str) -> str:
    """What will be measured of it."""
    workload = workloads()[kernel]
    shapes = "; ".join(map(shape_label, workload.shapes))
    return f"*Not measured yet.* To be timed beside `{workload.peer.name}` at {shapes}."


def state(records: list[dict]) -> str:
    """When and where the records of one device were made, and whether the source is still theirs."""
    dates = sorted({r["date"] for r in records})
    versions = [" ".join(pair) for pair in sorted({v for r in records for v in r["versions"].items()})]
    when = dates[0] if len(dates) == 1 else f"between {dates[0]} and {dates[-1]}"
    said = f"Measured {when} on one {records[0]['device']}, with {', '.join(versions)}. "
    older = [r for r in records if passport.changed(r)]
    if not older:
        return said + "The source is the one that was measured."
    part = "" if len(older) == len(records) else f" {len(older)} of {len(records)} results are of an older one."
    return f"{said}**Source changed since.**{part} What follows is of the source as it was then."


def errors(records: list[dict]) -> str:
    """Largest errors of each result beside what is allowed, a column for each dtype."""
    verified = sorted((r for r in records if r["pass"] == "verify"), key=lambda r: _DTYPES.index(r["dtype"]))
    if not verified:
        return "No errors recorded on this device yet."
    results = list(dict.fromkeys(what for r in verified for what in r["errors"]))
    heads = ("Result", *(f"{r['dtype']}, {r['cases']} cases" for r in verified))
    rows = [(_result(what), *(_error(r, what) for r in verified)) for what in results]
    shared = {r["verified_as"] for r in verified} - {verified[0]["kernel"]}
    note = f"\n\nVerified as `{shared.pop()}`, which it calls." if shared else ""
    for r in verified:
        if r["failures"]:
            note += f"\n\n**{r['failures']} failures in {r['dtype']}**, such as {_verbatim(r['failed'][0])}."
    return _table(heads, ["---"] + ["---:"] * len(verified), rows) + note


_DTYPES = ("float32", "float16", "bfloat16")


def _result(what: str) -> str:
    named = {"o": "output", "state": "final state"}
    return named.get(what) or (f"gradient of `{what[1:]}`" if what.startswith("d") else what.replace("_", " "))


def _error(record: dict, what: str) -> str:
    if what not in record["errors"]:
        return NONE
    error, allowed = float(record["errors"][what]), record["allowed"][what]
    size = "not finite" if error == float("inf") else _power(error)
    return f"{size} of {_power(allowed)}" if error <= allowed else f"**{size}**, over {_power(allowed)}"


def _place(record: dict, shapes: tuple[dict, ...]) -> tuple:
    """Decoding by the size of the batch, the rest as it is listed; what is no longer listed last."""
    shape, which = record["shape"], [*PASSES].index(record["pass"])
    if record["pass"] == "decode":
        return (shape["B"], which)
    return (shapes.index(shape) if shape in shapes else len(shapes), which)


def times_table(records: list[dict]) -> str:
    columns = {
        "Shape": lambda r: shape_label(r["shape"]),
        "Pass": lambda r: r["pass"],
        "Ours": lambda r: _ms(r["median_ms"]),
        "10–90 %": lambda r: "–".join(map(_ms, r["spread_ms"])),
        "Floor": lambda r: _ms(r["floor_ms"]),
        "Ours\N{NO-BREAK SPACE}/ floor": lambda r: _ratio(r["median_ms"], r["floor_ms"]),
        "Peer’s": lambda r: _ms(_peer(r, "median_ms")),
        "Peer’s\N{NO-BREAK SPACE}/ ours": lambda r: _ratio(_peer(r, "median_ms"), r["median_ms"]),
        "Ours, eager": lambda r: _ms(r["eager_ms"]),
        "Peer’s, eager": lambda r: _ms(_peer(r, "eager_ms")),
        "Peak": lambda r: _mb(r["peak_mb"]),
        "Peer’s peak": lambda r: _mb(_peer(r, "peak_mb")),
    }
    cells = {head: [show(r) for r in records] for head, show in columns.items()}
    cells = {head: shown for head, shown in cells.items() if "eager" not in head or set(shown) != {NONE}}
    align = ["---"] * 2 + ["---:"] * (len(cells) - 2)
    return _table(tuple(cells), align, list(zip(*cells.values()))) + _rates(records) + _refusals(records)


def _rates(records: list[dict]) -> str:
    """What the floors are made of, and the peers' versions."""

    def span(name, digits):
        values = sorted({f"{r['floor'][name]:.{digits}f}" for r in records}, key=float)
        return values[0] if len(values) == 1 else f"{values[0]}–{values[-1]}"

    peers = sorted({f"`{r['peer']['name']}` {r['peer']['version']}" for r in records if r["peer"]})
    said = f"\n\nMilliseconds and MiB, {records[0]['dtype']}. "
    said += (
        f"Rates, each in its time's own run: {span('copy_tb_s', 2)} TB/s copied, {span('product_tflop_s', 0)} TFLOP/s "
        "multiplied."
    )
    return said + (f" Peer: {', '.join(peers)}." if peers else "")


def _refusals(records: list[dict]) -> str:
    """Why there is no time of the peer's, or none under a graph; each reason once."""
    found: dict[str, list[str]] = {}
    for r in records:
        name = f"{shape_label(r['shape'])} {r['pass']}"
        if r["peer"] is None:
            found.setdefault(f"No time of the peer’s: {_verbatim(r['peer_refused'])}", []).append(name)
        elif r["peer"]["median_ms"] is None:
            words = f"The peer’s calls cannot be captured in a graph: {_verbatim(r['peer']['graph_refused'])}"
            found.setdefault(words, []).append(name)
    return "".join(f"\n\n{why} ({'; '.join(names)})." for why, names in found.items())


def _verbatim(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"


def published(kernel: str, records: list[dict]) -> str:
    """What others say of their own functions at shapes of ours, on this device, beside ours; nothing if none does."""
    said = ""
    for found in json.loads(PUBLISHED.read_text(encoding="utf-8")):
        if found["kernel"] != kernel or found["device"] != records[0]["device"]:
            continue
        libraries = list(dict.fromkeys(name for time in found["times"] for name in time["ms"]))
        rows = [
            (
                shape_label(time["shape"]),
                time["pass"],
                *(_ms(time["ms"].get(name)) for name in libraries),
                next((_ms(r["median_ms"]) for r in records if all(r[x] == time[x] for x in ("shape", "pass"))), NONE),
            )
            for time in found["times"]
        ]
        heads, align = ("Shape", "Pass", *libraries, "Ours"), ["---"] * 2 + ["---:"] * (len(libraries) + 1)
        said += (
            f"\n\nNot timed here but published by {found['author']}, in milliseconds, for an {found['device']} of its "
            f"authors’ ([table]({found['source']}); {found['conditions']}), with ours from above beside them:\n\n"
            + _table(heads, align, rows)
        )
    return said


# --- The figure ---


def caption(records: list[dict]) -> str:
    """The conclusion, counted from the records."""
    timed = [(r["median_ms"], _peer(r, "median_ms"), r["floor_ms"]) for r in records]
    ratios = sorted(theirs / ours for ours, theirs, _ in timed if theirs)
    floors = sorted(ours / floor for ours, _, floor in timed)
    said = f"{records[0]['kernel']} takes {_times(floors)} its floor"
    if not ratios:
        return f"{said}; no time of a peer’s."
    ahead = sum(ratio > 1 for ratio in ratios)
    where = f" in {ahead} of {len(ratios)} cases" if len(ratios) > 1 else "" if ahead else " in no case"
    return f"{said}. In a graph it is ahead of the peer{where}; the peer takes {_times(ratios)} as long."


def _times(ratios: list[float]) -> str:
    low, high = (f"{x:.2f}" for x in (ratios[0], ratios[-1]))
    return f"{low} times" if low == high else f"{low} to {high} times"


def alt(records: list[dict]) -> str:
    panels = [PASSES[which] for which in PASSES if any(r["pass"] == which for r in records)]
    return (
        f"Milliseconds on a logarithmic axis, a panel for {' and one for '.join(panels)}, a row for each shape: the "
        "floor as a line, ours as circles, the peer’s as diamonds. The table above has the numbers."
    )


def draw(records: list[dict], path: Path) -> None:
    """The figure as SVG; the same bytes from the same records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure = times(records)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


# --- Numbers ---


def _table(heads: tuple[str, ...], align: list[str], rows: list[tuple[str, ...]], kind: str = "") -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, align, *rows)]
    return "\n".join([":::{table}", f":class: notation passport {kind}", "", *lines, ":::"])


def _peer(record: dict, name: str) -> float | None:
    return record["peer"] and record["peer"][name]


def _ms(x: float | None) -> str:
    return NONE if x is None else f"{x:#.3g}".rstrip(".")


def _mb(x: float | None) -> str:
    return NONE if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.2g}"


def _ratio(x: float | None, y: float | None) -> str:
    return f"{x / y:.2f}" if x and y else NONE


def _power(x: float) -> str:
    return _unbroken(f"{x:.1e}")


def _unbroken(text: str) -> str:
    return text.replace("-", "\N{NON-BREAKING HYPHEN}")


# --- Sphinx ---


class PassportMeasured(FromTable):
    def run(self) -> list[nodes.Node]:
        box = nodes.container()
        self.parsed(measured(), box)
        return box.children


class PassportOverview(FromTable):
    def run(self) -> list[nodes.Node]:
        box = nodes.container()
        self.parsed(overview(), box)
        return box.children


class PassportKernels(FromTable):
    def run(self) -> list[nodes.Node]:
        return [self._section(kernel) for kernel in kernels()]

    def _section(self, kernel: str) -> nodes.section:
        name = f"kernel-{kernel}"
        part = nodes.section(ids=[name], names=[name], classes=["kernel"])
        part += nodes.title(kernel, "", nodes.literal(kernel, kernel))
        self.state.document.note_explicit_target(part)
        self.parsed(facts(kernel), part)
        records = records_of(kernel)
        if not records:
            self.parsed(planned(kernel), part)
        for device in sorted({r["device"] for r in records}):
            self._device(kernel, [r for r in records if r["device"] == device], part)
        return part

    def _device(self, kernel: str, records: list[dict], part: nodes.section) -> None:
        self.parsed(f"{state(records)}\n\n{errors(records)}", part)
        shapes = workloads()[kernel].shapes
        timed = sorted((r for r in records if r["pass"] != "verify"), key=lambda r: _place(r, shapes))
        if not timed:
            self.parsed("Times: not measured on this device.", part)
            return
        self.parsed(times_table(timed), part)
        file = f"{kernel}-{re.sub('[^a-z0-9]+', '-', records[0]['device'].lower())}.svg"
        path = Path(self.env.app.doctreedir) / "passport" / file
        draw(timed, path)
        image = "/" + os.path.relpath(path, self.env.srcdir).replace(os.sep, "/")
        self.parsed(f"```{{figure}} {image}\n:alt: {alt(timed)}\n\n{plain(caption(timed))}\n```", part)
        self.parsed(published(kernel, timed), part)


def _add_style(app, pagename, templatename, context, doctree) -> None:
    if doctree is not None and any("kernel" in node["classes"] for node in doctree.findall(nodes.section)):
        app.add_css_file("passport.css", priority=900)


def setup(app) -> None:
    app.connect("html-page-context", _add_style)
    app.add_directive("passport-measured", PassportMeasured)
    app.add_directive("passport-overview", PassportOverview)
    app.add_directive("passport-kernels", PassportKernels)
