"""The passport page, built from records that a test makes up, and from the committed ones."""

import json
import re
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from lineage_lib import passport
from lineage_lib.book import passport as page
from lineage_lib.paths import ROOT

SHAPES = [{"B": 2, "T": 8192, "H": 16, "K": 128, "V": 128}, {"B": 1, "T": 8192, "H": 96, "K": 128, "V": 128}]
DEVICE = "Fabled GPU 9"


def record(kernel="chunk_simple_gla", which="forward", shape=None, **changes):
    source = passport.sources(kernel)
    timed = {
        "median_ms": 0.151,
        "spread_ms": [0.149, 0.1577],
        "eager_ms": 0.173,
        "eager_spread_ms": [0.17, 0.2],
        "floor_ms": 0.0634,
        "floor": {"bytes": 1, "flops": 1, "copy_tb_s": 4.25, "product_tflop_s": 741.6},
        "peak_mb": 64.25,
        "peer": {
            "name": "fla.ops.simple_gla.chunk_simple_gla", "version": "0.6.0", "median_ms": 0.2718,
            "spread_ms": [0.26, 0.28], "eager_ms": 0.4142, "eager_spread_ms": [0.4, 0.5], "peak_mb": 1234.5,
        },
    }  # fmt: skip
    return {
        "kernel": kernel, "source": source, "source_sha256": passport.digest(source), "device": DEVICE,
        "versions": {"torch": "2.11.0", "triton": "3.6.0"}, "date": "2031-02-03", "shape": shape or SHAPES[0],
        "dtype": "bfloat16", "pass": which, **timed, "errors": None, **changes,
    }  # fmt: skip


def verified(kernel="chunk_simple_gla", dtype="bfloat16", **changes):
    found = record(kernel, "verify", dtype=dtype)
    for name in ("median_ms", "spread_ms", "eager_ms", "eager_spread_ms", "floor_ms", "floor", "peak_mb", "peer"):
        del found[name]
    errors = {"o": 2.4e-3, "state": 1.1e-3, "dq": 3.3e-3, "dg": 4.4e-3}
    allowed = {"o": 6e-3, "state": 6e-3, "dq": 1.2e-2, "dg": 1.8e-2}
    return found | {
        "shape": None, "cases": 77, "verified_as": kernel, "errors": errors, "allowed": allowed, "failures": 0,
        "failed": [], **changes,
    }  # fmt: skip


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds the page alone from the records given; what its article holds, and the folder of the pages."""

    def build(*records):
        folder = tmp_path / "records"
        monkeypatch.setattr(passport, "FOLDER", folder)
        monkeypatch.setattr(passport.read_all, "__defaults__", (folder,))
        passport.write(folder / "fabled-gpu-9.json", list(records))
        source = tmp_path / "source"
        source.mkdir()
        (source / "index.md").write_text((ROOT / "book" / "passport.md").read_text(encoding="utf-8"), encoding="utf-8")
        (source / "notation.md").write_text("---\norphan: true\n---\n\n# Notation\n", encoding="utf-8")
        settings = {
            "extensions": ["myst_parser", "lineage_lib.book.passport"],
            "myst_enable_extensions": ["colon_fence", "dollarmath"],
        }
        out = tmp_path / "out"
        folders = (source, None, out, tmp_path / "trees")
        with docutils_namespace():
            Sphinx(*folders, "html", settings, status=None, warning=sys.stderr, warningiserror=True).build()
        html = (out / "index.html").read_text(encoding="utf-8")
        return BeautifulSoup(html, "html.parser"), out

    return build


def words(element) -> str:
    return " ".join(element.get_text(" ").split()).replace("\N{NON-BREAKING HYPHEN}", "-").replace(" ,", ",")


def section(soup, kernel="chunk_simple_gla"):
    return soup.find("section", id=f"kernel-{kernel}")


def cells(table) -> list[list[str]]:
    return [[words(cell) for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def test_without_records_the_page_says_so_and_what_will_be_measured(built):
    soup, _ = built()
    assert soup.find_all("img") == []
    assert "No kernel has been measured yet." in words(soup)
    heads, *rows = cells(soup.find("table"))
    assert heads == ["Kernel, shape", "Pass", "Must move, MB", "Must compute, GFLOP", "Peer"]
    assert list(dict.fromkeys(row[0].split()[0] for row in rows)) == page.kernels()
    assert rows[0] == ["chunk_simple_gla B2 T8192 H16 K128 V128", "forward", "269", "17.2", "fla"]
    assert rows[1][:2] == ["chunk_simple_gla B2 T8192 H16 K128 V128", "forward+backward"]
    for kernel in page.kernels():
        said = words(section(soup, kernel))
        assert "Not measured yet." in said
        assert all(name in said for name in passport.sources(kernel))
        assert page.workloads()[kernel].peer.name in said
        assert "Source changed since" not in said
    retention = section(soup, "chunk_retention")
    assert r"\(1 - 2^{-5-h}\)" in words(retention)
    assert retention.find("a", string="Sun et al. 2023")["href"].startswith("https://")
    state = r"\(\mathbf S_t = e^{g_t}\, \mathbf S_{t-1} + \mathbf k_t \mathbf v_t^\top\)"
    assert state + r", \(\mathbf o_t = \text{scale}\; \mathbf S_t^\top \mathbf q_t\)" in words(section(soup))
    assert r"= \operatorname{diag}(e^{\mathbf g_t})\, \mathbf S_{t-1}" in words(section(soup, "chunk_gla"))
    assert "B2\N{NO-BREAK SPACE}T8192" in section(soup).get_text()


def test_every_kernel_is_on_the_page():
    assert sorted(page.kernels()) == sorted(passport.kernel_names())


def test_a_measured_kernel(built):
    records = [
        verified(dtype="bfloat16"),
        verified(
            dtype="float32",
            errors={"o": 2.5e-6, "state": 1e-7, "dq": 3e-6},
            allowed={"o": 1e-5, "state": 1e-5, "dq": 2e-5},
        ),
        record(),
        record(shape=SHAPES[1], median_ms=0.5, floor_ms=0.4, date="2031-02-04"),
        record(which="forward+backward", median_ms=0.61),
    ]
    soup, out = built(*records)
    part = section(soup)
    said = words(part)
    assert "Measured between 2031-02-03 and 2031-02-04 on one Fabled GPU 9, with torch 2.11.0, triton 3.6.0." in said
    assert "The source is the one that was measured." in said
    errors, times = (cells(table) for table in part.find_all("table"))
    assert errors == [
        ["Result", "float32, 77 cases", "bfloat16, 77 cases"],
        ["output", "2.5e-06 of 1.0e-05", "2.4e-03 of 6.0e-03"],
        ["final state", "1.0e-07 of 1.0e-05", "1.1e-03 of 6.0e-03"],
        ["gradient of q", "3.0e-06 of 2.0e-05", "3.3e-03 of 1.2e-02"],
        ["gradient of g", "–", "4.4e-03 of 1.8e-02"],
    ]
    assert times[1] == [
        "B2 T8192 H16 K128 V128", "forward", "0.151", "0.149–0.158", "0.0634", "2.38", "0.272", "1.80", "0.173",
        "0.414", "64", "1,234",
    ]  # fmt: skip
    assert [row[:3] for row in times[2:]] == [
        ["B2 T8192 H16 K128 V128", "forward+backward", "0.610"],
        ["B1 T8192 H96 K128 V128", "forward", "0.500"],
    ]
    assert "4.25 TB/s copied, 742 TFLOP/s multiplied. Peer: fla.ops.simple_gla.chunk_simple_gla 0.6.0." in said
    image = part.find("img")
    drawn = (out / image["src"]).read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert "a panel for forward and one for forward and backward" in image["alt"]
    shown = words(part.find("figcaption"))
    assert "chunk_simple_gla takes 1.25 to 9.62 times its floor." in shown
    assert "ahead of the peer in 1 of 3 cases; the peer takes 0.45 to 1.80 times as long." in shown
    row = cells(soup.find("table"))[1]
    assert row[-5:] == ["0.151", "0.0634", "0.272", "2031-02-03", "fla"]
    planned = sum(len(w.shapes) * len(w.passes) for name, w in page.workloads().items() if name in page.kernels())
    counted = f"So far 3 of {planned} times are recorded, and the errors of 1 of the {len(page.kernels())} kernels"
    assert f"{counted}, on: {DEVICE}." in words(soup)


def test_times_that_others_publish_stand_beside_ours(built):
    published = json.loads(page.PUBLISHED.read_text(encoding="utf-8"))
    shape, device = published[0]["times"][0]["shape"], published[0]["device"]
    soup, _ = built(
        record("chunk_gated_delta_rule", shape=shape, device=device, median_ms=0.4321), record(device=device)
    )
    part = section(soup, "chunk_gated_delta_rule")
    heads, first, second = cells(part.find_all("table")[-1])
    assert heads == ["Shape", "Pass", "FlashQLA", "FlashInfer", "flash-linear-attention", "Ours"]
    assert first == ["B1 T8192 H64 HQ16 K128 V128", "forward", "0.397", "0.392", "0.814", "0.432"]
    assert second[-1] == "–"
    said = words(part)
    assert all(entry["conditions"] in said for entry in published)
    assert part.find("a", string="table")["href"] == published[0]["source"]
    assert "Not timed here" not in words(section(soup))
    for entry in published:
        workload = page.workloads()[entry["kernel"]]
        assert all(time["shape"] in workload.shapes and time["pass"] in workload.passes for time in entry["times"])


def test_a_changed_source_is_said(built):
    new, old = record(), record(shape=SHAPES[1], source_sha256="0" * 64)
    soup, _ = built(new, old, record("chunk_gla", source_sha256="0" * 64))
    assert "Source changed since. 1 of 2 results are of an older one." in words(section(soup))
    assert "Source changed since. What follows is of the source as it was then." in words(section(soup, "chunk_gla"))
    assert "Not measured yet." in words(section(soup, "chunk_mlstm"))
    measured = {row[0].split()[0]: row[-2] for row in cells(soup.find("table")) if row[1] == "forward"}
    assert measured["chunk_simple_gla"] == "2031-02-03"
    assert measured["chunk_mlstm"] == "not yet"
    assert measured["chunk_gla"] == "2031-02-03; source changed since"


def test_a_peer_that_is_missing_or_refuses(built):
    refused = "RuntimeError: Triton >= 3.4.0 and < 3.7.1 on Hopper `wrong`"
    eager = {**record()["peer"], "median_ms": None, "spread_ms": None, "graph_refused": "RuntimeError: capturing"}
    soup, out = built(
        record(shape=SHAPES[1], peer=eager),
        *(record(which="forward+backward", shape=s, peer=None, peer_refused=refused) for s in SHAPES),
        record("chunk_gla", peer=None, peer_refused="ModuleNotFoundError: No module named 'fla'"),
    )
    part = section(soup)
    said = words(part)
    assert (
        "No time of the peer’s: RuntimeError: Triton >= 3.4.0 and < 3.7.1 on Hopper 'wrong' (B2 T8192 H16 K128 V128 "
        "forward+backward; B1 T8192 H96 K128 V128 forward+backward)." in said
    )
    assert "cannot be captured in a graph: RuntimeError: capturing (B1 T8192 H96 K128 V128 forward)." in said
    rows = cells(part.find("table"))
    assert [row[6:8] + [row[9], row[11]] for row in rows[1:]] == [
        ["–", "–", "–", "–"],
        ["–", "–", "0.414", "1,234"],
        ["–", "–", "–", "–"],
    ]
    assert "no time of a peer’s" in words(part.find("figcaption"))
    gla = section(soup, "chunk_gla")
    assert "Peer:" not in words(gla)
    assert (out / gla.find("img")["src"]).exists()


def test_what_was_not_timed_eagerly_has_no_columns(built):
    soup, _ = built(record(eager_ms=None, peer=record()["peer"] | {"eager_ms": None}))
    heads = cells(section(soup).find("table"))[0]
    assert "Ours" in heads
    assert not [head for head in heads if "eager" in head]
    assert "and the errors of none of the" in words(soup)
    assert "it is ahead of the peer; the peer takes" in words(section(soup))


def test_an_error_over_the_bar_stands_out(built):
    soup, _ = built(
        verified(errors={"o": "inf", "dq": 2e-2}, allowed={"o": 6e-3, "dq": 1.2e-2}, failures=3, failed=["a case"]),
        verified("chunk_retention", verified_as="chunk_simple_gla"),
        record("chunk_mlstm"),
    )
    part = section(soup)
    assert cells(part.find("table"))[1:] == [
        ["output", "not finite, over 6.0e-03"],
        ["gradient of q", "2.0e-02, over 1.2e-02"],
    ]
    assert part.find("table").find("strong").get_text() == "not finite"
    assert "3 failures in bfloat16, such as a case" in words(part)
    assert "Times: not measured on this device." in words(part)
    assert "Verified as chunk_simple_gla, which it calls." in words(section(soup, "chunk_retention"))
    assert "No errors recorded on this device yet." in words(section(soup, "chunk_mlstm"))


def test_two_devices_two_tables(built):
    soup, _ = built(record(), record(device="Another GPU", median_ms=0.7))
    part = section(soup)
    assert [cells(table)[1][2] for table in part.find_all("table")] == ["0.700", "0.151"]
    assert len(part.find_all("img")) == 2


def test_the_same_records_draw_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        page.draw([record(), record(which="forward+backward")], tmp_path / name / "figure.svg")
    assert (tmp_path / "one/figure.svg").read_bytes() == (tmp_path / "two/figure.svg").read_bytes()


def test_the_figure_has_what_the_records_have():
    fig = page.times([record(), record(shape=SHAPES[1], peer=None), record(which="forward+backward")])
    forward, backward = fig.axes
    assert (forward.get_title(), backward.get_title()) == ("forward", "forward and backward")
    drawn = sorted(float(x) for line in forward.lines for x in line.get_xdata() if line.get_marker() in "oD")
    assert drawn == [0.151, 0.151, 0.173, 0.173, 0.2718, 0.4142]
    low, high = forward.get_xlim()
    assert low < 0.0634
    assert high > 0.4142
    assert [text.get_text().replace("\n", " ") for text in forward.get_yticklabels()] == [
        passport.label(s) for s in SHAPES
    ]


# --- Records and sources ---


def test_the_later_of_two_files_counts(tmp_path):
    passport.write(tmp_path / "a.json", [record(date="2031-02-05", median_ms=1.0), record(which="forward+backward")])
    passport.write(tmp_path / "b.json", [record(date="2031-02-04", median_ms=2.0)])
    assert [r["median_ms"] for r in passport.read_all(tmp_path)] == [1.0, 0.151]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list of records, got dict"),
        ('[{"kernel": "chunk_gla"}]', "record 0 has no shape"),
        (json.dumps([record(which="sideways")]), "record 0: pass: expected one of .* got 'sideways'"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, words):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        passport.read_all(tmp_path)


def test_a_killed_write_leaves_the_file(tmp_path):
    path = tmp_path / "a.json"
    passport.write(path, [record()])
    before = path.read_text()
    with pytest.raises(ValueError, match="Out of range float"):
        passport.write(path, [record(median_ms=float("nan"))])
    assert path.read_text() == before


@pytest.fixture
def package(tmp_path):
    """A package of kernels with one function that uses another file, and one that does not."""
    (tmp_path / "kernels").mkdir()
    files = {
        "__init__": 'from kernels.a import first, second\n\nN = 1\n__all__ = ["N", "first", "second"]\n',
        "a": "from kernels import tiles as table\nfrom kernels.b import helper, unused\n\n\ndef first():\n"
        '    """One.\n\n    More."""\n    return inner()\n\n\ndef inner():\n    return helper(table.x)\n\n\n'
        "def second():\n    return 2\n",
        "b": "from kernels.c import deep\n\n\ndef helper(x):\n    return x\n\n\ndef unused():\n    return deep()\n",
        "c": "def deep():\n    return 1\n",
        "tiles": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / f"kernels/{name}.py").write_text(text)
    return tmp_path


def test_the_sources_are_what_a_function_uses(package):
    assert passport.kernel_names(package) == ["first", "second"]
    assert passport.summary("first", package) == "One."
    assert passport.summary("second", package) == ""
    assert passport.sources("second", package) == ["kernels/a.py"]
    assert passport.sources("first", package) == ["kernels/a.py", "kernels/b.py", "kernels/tiles.py"]
    (package / "kernels/tiles.json").write_text("[]")
    assert passport.sources("first", package)[-2:] == ["kernels/tiles.json", "kernels/tiles.py"]
    with pytest.raises(ValueError, match="kernel: expected one of first, second, got 'third'"):
        passport.sources("third", package)


def test_the_hash_is_of_names_and_bytes(package):
    files = passport.sources("first", package)
    measured = {"kernel": "first", "source": files, "source_sha256": passport.digest(files, package)}
    assert not passport.changed(measured, package)
    (package / "kernels/c.py").write_text("def deep():\n    return 2\n")  # not used by it
    assert not passport.changed(measured, package)
    (package / "kernels/tiles.json").write_text("[]")  # a table where there was none
    assert passport.changed(measured, package)
    (package / "kernels/tiles.json").unlink()
    b = package / "kernels/b.py"
    b.write_text(b.read_text() + "# more\n")
    assert passport.changed(measured, package)


def test_the_walk_is_a_source_of_what_calls_it():
    assert "kernels/walk.py" in passport.sources("chunk_simple_gla")
    assert "kernels/walk.py" in passport.sources("mamba_chunk_scan_combined")
    assert "kernels/walk.py" not in passport.sources("selective_state_update")
    for kernel in passport.kernel_names():
        assert all((ROOT / name).exists() for name in passport.sources(kernel))
        assert passport.summary(kernel).endswith("."), kernel
        shown = "".join(page.facts(kernel).split("$")[::2])
        assert not any(x in shown for x in ("_t", "_{", "ᵀ", "S\u0304", "β")), kernel


# --- The book's own page ---


def test_the_book_has_the_committed_records(book):
    soup = BeautifulSoup((book.html / "book/passport.html").read_text(encoding="utf-8"), "html.parser")
    records = passport.read_all()
    for kernel in page.kernels():
        part, mine = section(soup, kernel), [r for r in records if r["kernel"] == kernel]
        timed = {r["device"] for r in mine if r["pass"] != "verify"}
        assert len(part.find_all("img")) == len(timed)
        assert ("Not measured yet." in words(part)) == (not mine)
        assert ("Source changed since" in words(part)) == any(passport.changed(r) for r in mine)
    assert all(Path(book.html / "book" / image["src"]).exists() for image in soup.select("section.kernel img"))


def test_committed_records_are_of_public_kernels():
    for path in passport.FOLDER.glob("*.json"):
        for found in passport.read(path):
            assert found["kernel"] in passport.kernel_names()
            assert re.fullmatch(r"[0-9a-f]{64}", found["source_sha256"])
