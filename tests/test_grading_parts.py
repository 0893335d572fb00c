"""The parts of grading that need no kernel: reading answers, rendering reports."""

import ast
import csv
import html
import io
import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lineage_lib.exercises import all_exercises
from lineage_lib.grading import to_csv, to_html, to_json, to_junit, to_text
from lineage_lib.grading.merge import chapters, passes
from lineage_lib.grading.scan import bound_names, scan
from lineage_lib.grading.submission import printable
from tests import right_answers

CHAPTER = {
    "np": "numpy",
    "plt": "matplotlib.pyplot",
    "torch": "torch",
    "check": "lineage_lib.checks.check",
    "hint": "lineage_lib.checks.hint",
    "segment_products": "lineage_lib.matrices.segment_products",
}

REFUSED = {
    "check = print": "`check`",
    "def check(*_):\n    pass": "`check`",
    "if True:\n    print = len": "`print`",
    "from numpy import sum as check": "`check`",
    "def f():\n    global check\n    check = 1": "`check`",
    "for check in [len]:\n    pass": "`check`",
    "from lineage_lib.exercises import find": "lineage_lib.exercises.find",
    "import lineage_lib.exercises.ch00 as c": "lineage_lib.exercises.ch00",
    "import lineage_lib\nlineage_lib.exercises.find": "lineage_lib.exercises",
    "from lineage_lib import grading": "lineage_lib.grading",
    "from lineage_lib.checks import judge": "lineage_lib.checks.judge",
    "from lineage_lib.checks import *": "lineage_lib.checks.*",
    "from tests.right_answers import ch00": "tests.right_answers",
    "import importlib\nimportlib.import_module('lineage_lib')": "importlib",
    "x = 'lineage_lib.exercises'": "lineage_lib.exercises",
    "__import__('os')": "__import__",
    "exec('x = 1')": "exec",
    "open('solutions/00_start_here.md').read()": "open",
    "o = open": "open",
    "from pathlib import Path\nPath('x').read_text()": "pathlib.Path",
    "np.load('x.npy')": "numpy.load",
    "from numpy import memmap\nmemmap('x')": "numpy.memmap",
    "np.ones(3).tofile('x')": "tofile",
    "import os\nos._exit(0)": "`os._exit`",
    "from os import environ\nenviron": "os.environ",
    "import subprocess as s\ns.run('ls')": "subprocess",
    "np.lib.format.os.environ": "numpy.lib.format.os",
    "x = 'LINEAGE_SEED'": "LINEAGE_SEED",
    "import sys\nsys._getframe(1)": "_getframe",
    "import sys\nsys.modules['numpy']": "sys.modules",
    "import inspect\ninspect.stack()": "inspect",
    "import gc\ngc.get_objects()": "get_objects",
    "check.__globals__": "__globals__",
    "getattr(check, '__globals__')": "__globals__",
    "().__class__.__base__.__subclasses__()": "__subclasses__",
    "np.allclose = lambda *_: True": "numpy.allclose",
    "np.linalg.norm = len": "numpy.linalg.norm",
    "del np.sum": "numpy.sum",
    "np.sum += 1": "numpy.sum",
    "setattr(np, 'sum', len)": "`numpy`",
    "def f(np):\n    pass\nnp.sum = len": "numpy.sum",
    "globals()['check'] = len": "globals",
    "vars(np)['sum'] = len": "`numpy`",
    "from unittest import mock\nmock.patch('numpy.sum')": "unittest.mock",
    "import unittest.mock\nunittest.mock.patch('numpy.sum')": "unittest.mock",
    "\n\n!cat solutions/00_start_here.md": "line 3: `!cat solutions/00_start_here.md`",
    "x = !ls": "x = !ls",
    "%run other.py": "%run",
    "%env LINEAGE_SEED": "%env",
    "%pip install numpy": "%pip",
    "%time exec('x = 1')": "exec",
    "%%bash\nls": "`%%bash`",
    "%%time\nopen('x')": "open",
    "get_ipython().user_ns": "get_ipython",
    # other names for the same things
    "import lineage_lib\nlib = lineage_lib\nlib.checks._compare = lambda *_: None": "lineage_lib.checks._compare",
    "from sys import modules\nmodules['numpy']": "sys.modules",
    "from lineage_lib.checks import Verdict\nV = Verdict\nV.__init__ = len": "lineage_lib.checks.Verdict.__init__",
    "from lineage_lib.checks import Verdict\nV = Verdict\nsetattr(V, 'passed', True)": "lineage_lib.checks.Verdict",
    "c = check\nc.__code__ = len": "lineage_lib.checks.check.__code__",
    "(n := np).abs = len": "belongs to a library",
    "[np][0].abs = len": "belongs to a library",
    "def f(m=np):\n    m.abs = len": "numpy.abs",
    "def f(*, m=np):\n    m.abs = len": "numpy.abs",
    "n = np\nm = n\nm.save('x', 1)": "numpy.save",
    "import posix\nposix._exit(1)": "posix",
    "import timeit\ntimeit.timeit('code')": "timeit",
    "import codecs\ncodecs.open('x')": "codecs.open",
    "import urllib.request\nurllib.request.urlopen('x')": "urllib.request",
    "import tracemalloc\ndef f(x):\n    tracemalloc.stop()": "tracemalloc.stop",
    "from numpy.lib.format import os\nos.environ": "numpy.lib.format.os",
}

ALLOWED = [
    "import numpy as np\nimport math\nimport os\nfrom pathlib import Path\ndef f(x):\n    return np.sum(x)",
    "def f(x):\n    # os.environ, open() and exec() in a comment\n    return 'check print inspect'",
    "def f(check, print=len):\n    check = 3\n    return check",
    "def f(open_, os):\n    return os + open_",
    "class A:\n    def __init__(self):\n        self.x = 1\n        self.print = self.check = 2\nA().x = 3",
    "def f(x):\n    x = x.copy()\n    x[0] = 1\n    x.flags.writeable = False\n    return x",
    "check('0.1', f)\nhint('0.1')\nprint('hello')",
    "np.set_printoptions(precision=3)\nnp.random.seed(0)\nplt.rcParams['font.size'] = 3",
    "torch.backends.cuda.matmul.allow_tf32 = False",
    "f.cache = {}\ndef f(x):\n    f.cache[1] = x",
    "def segment_products(a):\n    return a\nsegment_products.calls = 0",
    "%timeit f(1)\n%matplotlib inline\nnp.sum?",
    "%%time\ndef f(x):\n    return x",
    "import sys\nsys.setrecursionlimit(2000)\nprint(sys.version)",
    "import gc\ngc.collect()",
    "from scipy import signal\nsignal.lfilter\nimport scipy\nscipy.signal.lfilter",
    "model.eval()\nre.compile('x')\ntorch.compile(f)\nself.load()",
    "try:\n    f()\nexcept Exception:\n    pass",
    "async def f():\n    await g()\nawait f()",
    "def f(x):\n    def inner(y):\n        nonlocal x\n        x = y\n    return inner",
    "x = '\\d'",
    "import tracemalloc\ntracemalloc.start()\nf(1)\ntracemalloc.get_traced_memory()\ntracemalloc.stop()",
    "from IPython.display import display, HTML\ndisplay(HTML('x'))\nimport IPython\nIPython.display.display(1)",
    "import pytest\nassert f(1) == pytest.approx(1)\nfrom pytest import approx\napprox(1)",
    "def f(x):\n    'Checked with LINEAGE_SEED=3; see lineage_lib.exercises.'",
    "layers = [A()]\nlayers[0].w = 1\nstate = A()\nstate.h = 1\nnp.asarray(state.h).flags.writeable = False",
    "x = np.e\nx = np.ones(3)\nx.shape = (3, 1)",
]


@pytest.mark.parametrize("source", REFUSED)
def test_refused_with_the_line(source):
    found = scan(source, CHAPTER)
    assert REFUSED[source] in found.refused
    assert found.refused.startswith("line ")


@pytest.mark.parametrize("source", ALLOWED)
def test_allowed(source):
    found = scan(source, CHAPTER)
    assert (found.refused, found.error) == ("", "")


def test_every_right_answer_of_the_book_is_allowed():
    """Whole files of differently written answers, helpers and imports included."""
    files = sorted(Path(right_answers.__path__[0]).glob("ch*.py"))
    assert files
    for file in files:
        found = scan(file.read_text(encoding="utf-8"), CHAPTER)
        assert (found.refused, found.error) == ("", ""), file.name


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(:\n    pass", "line 1: def f(:"),
        ("if x:\ny = 1", "IndentationError"),
        ("x = 1\0", "null bytes"),
        ("x = '\ud800'", "cannot be read"),
        ("(" * 5000, "SyntaxError"),
        ("-" * 150_000 + "1", "cannot be read"),
        ("x" * 300_000, "300,000 characters"),
    ],
)
def test_sources_that_are_not_python(source, words):
    assert words in scan(source, CHAPTER).error


@pytest.mark.parametrize("source", ["", "  \n", "# only a comment"])
def test_empty(source):
    assert scan(source, CHAPTER).empty


def test_using_the_library_is_a_note():
    found = scan(
        "def f(a):\n    return segment_products(a)\nfrom lineage_lib import validate\nvalidate.finite", CHAPTER
    )
    assert found.refused == ""
    assert found.library == {"lineage_lib.matrices.segment_products": 2, "lineage_lib.validate.finite": 4}
    assert scan("from lineage_lib import validate", CHAPTER).library == {}
    aliases = "m = matrices\ndef f(a, n=matrices):\n    return m.ssm_matrix(a) + n.ssd_quadratic(a)"
    found = scan(aliases, {"matrices": "lineage_lib.matrices"})
    assert found.library == {"lineage_lib.matrices.ssm_matrix": 3, "lineage_lib.matrices.ssd_quadratic": 3}


def test_helpers_of_the_book_s_own_answer_are_no_note():
    """Chapter 02 asks for segment_products first, and its answers use the library's afterwards."""
    chapter = chapters()["02"]
    assert chapter.helpers(chapter.exercises[0]) == set()
    assert "lineage_lib.matrices.segment_products" in set().union(*map(chapter.helpers, chapter.exercises))


def test_bound_names():
    source = """
import a.b, c as d
from e import f as g
x, (y, *z) = 1, (2, 3)
def function(): inner = 1
class Class: attribute = 1
if x:
    for i in y: j = i
with open(x) as file: pass
[k for k in y]
(walrus := 1)
"""
    expected = {"a", "d", "g", "x", "y", "z", "function", "Class", "i", "j", "file", "walrus"}
    assert bound_names(ast.parse(source)) == expected


def test_passes_needs_the_one_line():
    exercise = all_exercises()["0.1"]
    line = {"output_type": "stream", "name": "stdout", "text": "ok 0.1 decay: 4 cases\n"}
    assert passes(exercise, [line])
    assert passes(exercise, [line], cases=4)
    assert not passes(exercise, [line], cases=5)
    assert passes(exercise, [{**line, "text": ["ok 0.1 decay:", " 4 cases\n"]}])
    assert passes(exercise, [{**line, "text": "ok 0.1 decay: 4 cases"}, {**line, "text": "\n"}])
    wrong = ["ok 0.1 decay: case 2\n", "ok 0.2 decay: 4 cases\n", "ok 0.1 decay: 4 cases\nmore\n", "", None, 3, [3]]
    assert not any(passes(exercise, [{**line, "text": text}]) for text in wrong)
    assert not any(passes(exercise, outputs) for outputs in ([], [line, line], [3], [{**line, "name": "stderr"}]))


# --- reports ------------------------------------------------------------------------------------

NOTE = "calls the library's matrices.ssm_matrix (line 2)"
NASTY = "=1+1 <script>alert(1)</script> & ]]> \" ' é 漢"


def report(source="ada/00.ipynb", problems=(), rows=True):
    passed = {"id": "0.1", "name": "decay", "passed": True, "points": 1, "of": 1, "cause": "ok", "mistake": None}
    failed = {**passed, "id": "0.2", "passed": False, "points": 0, "cause": "wrong", "mistake": "divided", "notes": []}
    return {
        "chapter": "00_start_here" if rows else None,
        "source": source,
        "exercises": [{**passed, "message": "ok", "notes": [NOTE]}, {**failed, "message": NASTY}] if rows else [],
        "points": 1 if rows else 0,
        "of": 2 if rows else 0,
        "problems": list(problems),
        "seed": 7,
        "versions": {"python": "3.11", "torch": None},
    }


REPORTS = [report(), report(NASTY, [NASTY]), report("=cmd.ipynb", ["The file is empty."], rows=False)]


def test_json():
    assert json.loads(to_json(REPORTS)) == REPORTS
    assert json.loads(to_json(REPORTS[:1])) == REPORTS[:1]
    assert json.loads(to_json(REPORTS[:1], single=True)) == REPORTS[0]


def test_csv_is_safe_in_a_spreadsheet():
    rows = list(csv.DictReader(io.StringIO(to_csv(REPORTS))))
    assert [row["source"] for row in rows] == [*["ada/00.ipynb"] * 2, *[f"'{NASTY}"] * 2, "'=cmd.ipynb"]
    assert rows[1]["message"] == f"'{NASTY}"
    assert rows[1]["mistake"] == "divided"
    assert [row["notes"] for row in rows] == [NOTE, "", NOTE, "", ""]
    assert (rows[4]["cause"], rows[4]["message"], rows[4]["points"]) == ("not graded", "The file is empty.", "0")


def test_junit():
    root = ElementTree.fromstring(to_junit(REPORTS))
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == [r["source"] for r in REPORTS]
    assert [(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites] == [
        *[("2", "1", "0")] * 2,
        ("1", "0", "1"),
    ]
    failure = suites[1].find("testcase/failure")
    assert (failure.get("type"), failure.text) == ("wrong", NASTY)
    assert suites[0].find("testcase/system-out").text == NOTE


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.addresses = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("count", [1, 3])
def test_html_is_one_escaped_page(count):
    page = to_html(REPORTS[:count])
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not tags.seen & {"script", "link", "img", "iframe"}
    assert all(address.startswith("#") for address in tags.addresses)
    assert "&lt;script&gt;" in page
    assert f"<td>{html.escape(NOTE)}</td>" in page
    assert (f"<td>0.1 {html.escape(NOTE)}</td>" in page) == (count > 1)
    assert "prefers-color-scheme: dark" in page


def test_text():
    single = to_text(REPORTS[1:2])
    assert "0.2 decay  0 of 1  wrong (divided)" in single
    assert NASTY in single
    assert f"  note: {NOTE}" in to_text(REPORTS[:1])
    several = to_text(REPORTS)
    assert f"wrong (divided): 0.2  0.1 {NOTE}" in several
    assert "=cmd.ipynb: The file is empty." in several


def test_what_learners_write_is_made_printable():
    assert printable("a\x1b[31m\x00b\udcff\ttab\nline é") == "a�[31m�b�\ttab\nline é"
    assert len(printable("x" * 10_000)) < 4100
