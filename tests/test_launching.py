"""How a learner's Triton kernel is launched: what the guarded buffers notice, and in which words."""

# Before Triton, which reads when it is imported whether it is to interpret.
import kernels

# isort: split
import ast
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from lineage_lib import launching
from lineage_lib.checks import judge
from lineage_lib.exercises import Case, Exercise, Mistake
from lineage_lib.grading.scan import scan
from lineage_lib.launching import InOut, Input, Launch, Output, Trespass, Variant

interpreted = pytest.mark.skipif(not kernels.INTERPRETED, reason="a GPU runs the programs in its own order")


@triton.jit
def scaled(x, y, T, x_t, K: tl.constexpr, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    """y = 2 x, row by row: one program a row; SLIP spoils it."""
    t, c = tl.program_id(0), tl.arange(0, BLOCK)
    mask = c < K
    if SLIP == "no-load-mask":
        b_x = tl.load(x + t * x_t + c)
    elif SLIP == "stride-and-before":
        b_x = tl.load(x + t * K + c, mask=mask, other=0.0)
        tl.load(x - 1)
    elif SLIP == "stride-assumed":
        b_x = tl.load(x + t * K + c, mask=mask, other=0.0)
    else:
        b_x = tl.load(x + t * x_t + c, mask=mask, other=0.0)
    if SLIP == "sum-unmasked":
        b_x = b_x + tl.sum(tl.load(x + t * x_t + c), 0)
    if SLIP == "before":
        tl.store(y - 2 + c, b_x, mask=c < 2)
    elif SLIP == "input":
        tl.store(x + t * x_t + c, b_x * 3.0, mask=mask)
    elif SLIP == "gap":
        tl.store(x + t * x_t + K + c, b_x, mask=c < 1)
    elif SLIP == "first-row":
        t = t * 0
    elif SLIP == "neighbour":
        b_x += tl.load(y + (t - 1) * K + c, mask=mask & (t > 0), other=0.0)
    if SLIP == "half":
        mask = mask & (c != 1)
    elif SLIP == "no-mask":
        mask = c >= 0
    if SLIP == "float16":
        b_x = b_x.to(tl.float16).to(tl.float32)
    if SLIP == "raises":
        b_x = tl.dot(b_x, b_x)
    elif SLIP == "picks":
        b_x = b_x[K - 1]
    elif SLIP == "own-output":
        b_x += tl.load(y + t * K + c, mask=mask, other=0.0)
    elif SLIP == "infinite":
        b_x *= tl.exp(b_x * 0.0 + 1000.0) * 0.0
    elif SLIP == "far":
        b_x = tl.load(x + t * 100000000 + c, mask=mask, other=0.0)
    elif SLIP == "no-other":
        b_x = b_x + 0.0 * tl.sum(tl.load(x + t * x_t + c, mask=mask), 0)
    elif SLIP == "open-lanes":
        b_x = tl.load(x + t * x_t + c, mask=mask)
    elif SLIP == "bfloat16":
        b_x = b_x.to(tl.bfloat16)
        b_x = (b_x + b_x).to(tl.float32) * 0.5
    elif SLIP == "grown":
        b_x += 10000000000.0
    elif SLIP == "block-pointer":
        b_x = tl.load(tl.make_block_ptr(x + t * x_t, (BLOCK,), (1,), (0,), (BLOCK,), (0,)))
    tl.store(y + t * K + c, 2.0 * b_x, mask=mask)


@triton.jit
def times(x, y, factor, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    tl.store(y + c, tl.load(x + c) * factor)


@triton.jit
def doubled(y, T, BLOCK: tl.constexpr):
    """y += y in place, without a mask: behind the end NaN is added to NaN."""
    t = tl.arange(0, BLOCK)
    tl.store(y + t, tl.load(y + t) + 0.0)


X = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)


def launch_of(x, BLOCK=4, gap=2):
    x = Input(x, gap)
    T, K = x.array.shape
    return Launch((T,), {"x": x, "y": Output((T, K)), "T": T, "x_t": x.stride, "K": K, "BLOCK": BLOCK})


def message(slip, x=X):
    with pytest.raises(Trespass) as trespass:
        launching.run(launch_of(x), Variant(scaled, SLIP=slip))
    return str(trespass.value)


def test_what_a_right_kernel_leaves_is_returned_as_float64():
    ran = launching.run(launch_of(X), Variant(scaled, SLIP=""))
    assert ran.values.dtype == np.float64
    assert np.array_equal(ran.values, 2 * X)
    assert (ran.strays, ran.early) == ("" if kernels.INTERPRETED else None, ())


def test_a_kernel_takes_numbers_that_are_not_whole():
    x = np.array([2.0, 3.0], np.float32)
    launch = Launch((1,), {"x": Input(x), "y": Output((2,)), "factor": 0.5, "BLOCK": 2})
    assert launching.run(launch, times).values.tolist() == [1.0, 1.5]


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        ("no-mask", "your kernel wrote outside y: 1 number behind its end (mask the store: "),
        ("before", "your kernel wrote outside y: 2 numbers before its start (mask the store: "),
        ("input", "your kernel wrote into its input x: 6 numbers changed"),
        ("gap", "your kernel wrote outside x: 1 number behind its end and 1 number between its rows"),
        ("half", "y[0, 1] was never written; 2 of 6 entries"),
        ("first-row", "y[1, 0] was never written; 3 of 6 entries"),
    ],
)
def test_every_trespass_has_its_own_words(slip, words):
    assert message(slip).startswith(words)


@interpreted
def test_a_result_that_depends_on_the_order_of_programs_is_refused():
    text = message("neighbour")
    assert "depends on the order in which the programs run" in text
    assert "y[1, 0] is 12 with the programs in order and nan in reverse" in text


def test_what_is_read_outside_is_nan():
    """Between the rows and behind the end."""
    assert np.array_equal(launching.run(launch_of(X), Variant(scaled, SLIP="no-load-mask")).values, 2 * X)
    assert np.isnan(launching.run(launch_of(X), Variant(scaled, SLIP="sum-unmasked")).values).all()
    y = launching.run(launch_of(X), Variant(scaled, SLIP="stride-assumed")).values
    assert np.array_equal(np.isnan(y), [[False] * 3, [True, True, False]])


def test_nan_written_over_nan_is_noticed():
    """The canary is a signaling NaN: any arithmetic makes it a quiet one."""
    whole = {"y": InOut(X[0]), "T": 3, "BLOCK": 4}
    with pytest.raises(Trespass, match="wrote outside y: 1 number behind its end"):
        launching.run(Launch((1,), whole), doubled)
    y = launching.run(Launch((1,), {"y": InOut(X.reshape(-1)[:4]), "T": 4, "BLOCK": 4}), doubled).values
    assert np.array_equal(y, X.reshape(-1)[:4])


def launch_nothing():
    with launching._reversed_programs((2, 3)):
        pass


@interpreted
def test_a_triton_whose_order_cannot_be_reversed_is_noticed():
    from triton.runtime.interpreter import interpreter_builder

    with (
        pytest.raises(RuntimeError, match="was to run 6 programs and asked for 0"),
        launching._reversed_programs((2, 3)),
    ):
        pass
    assert "set_grid_idx" not in vars(interpreter_builder)


# --- in a check ---------------------------------------------------------------------------------


def oracle(x):
    return 2.0 * x.astype(np.float64)


def exercise(**changes):
    record = {
        "id": "5.1",
        "name": "scaled",
        "title": "double every row",
        "points": 1,
        "minutes": 1,
        "difficulty": "warm-up",
        "returns": ("y[t, c]",),
        "cases": lambda rng: [Case((X,), "by hand"), Case((rng.standard_normal((3, 2)).astype(np.float32),))],
        "oracle": oracle,
        "launch": launch_of,
        "rtol": 1e-4,
        "mistakes": (
            Mistake("no-mask", "the whole block was stored", Variant(scaled, SLIP="no-mask")),
            Mistake("half", "column 1 was left out", Variant(scaled, SLIP="half")),
        ),
        "hints": ("a", "b", "c", "d"),
    }
    return Exercise(**{**record, **changes})


@triton.jit
def stub(x, y, T, x_t, K: tl.constexpr, BLOCK: tl.constexpr):
    """Exercise 5.1 in a docstring is no stub."""
    raise NotImplementedError("Exercise 5.1: double every row")


@triton.jit
def solved_above_the_stub(x, y, T, x_t, K: tl.constexpr, BLOCK: tl.constexpr):
    t, c = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + t * K + c, 2.0 * tl.load(x + t * x_t + c, mask=c < K, other=0.0), mask=c < K)
    raise NotImplementedError("Exercise 5.1: double every row")


@triton.jit
def _squared(b_x):
    return tl.dot(b_x, b_x)


@triton.jit
def lacks_a_parameter(x, y, T, K: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x))


@triton.jit
def with_a_helper(x, y, T, x_t, K: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), _squared(tl.load(x + tl.arange(0, BLOCK))))


def test_a_right_kernel_passes_and_each_mistake_is_named():
    assert judge(exercise(), Variant(scaled, SLIP="")).message == "ok 5.1 scaled: 2 cases"
    for mistake in exercise().mistakes:
        verdict = judge(exercise(), mistake.function)
        assert verdict.mistake == mistake.name
        assert mistake.sentence in verdict.message


@pytest.mark.parametrize("kernel", [stub, solved_above_the_stub])
def test_a_stub_is_found_in_the_source_before_anything_is_launched(kernel):
    verdict = judge(exercise(), kernel)
    assert verdict.cause == "not attempted"
    assert "The stub's raise line is still there" in verdict.message


def test_only_a_kernel_and_the_oracle_are_run():
    assert judge(exercise(), oracle).passed
    verdict = judge(exercise(), lambda x: 2.0 * x)
    assert verdict.cause == "wrong"
    assert "check needs a Triton kernel, got a function: put @triton.jit above its def" in verdict.message
    assert "check needs the function itself, got a ndarray" in judge(exercise(), X).message


def test_a_nan_comes_with_a_note_about_masks():
    verdict = judge(exercise(), Variant(scaled, SLIP="stride-assumed"))
    assert "y contains NaN where a number is expected" in verdict.message
    if kernels.INTERPRETED:
        assert "note     your kernel read outside x: 2 numbers between its rows, where NaN lies: " in verdict.message
    else:
        assert "note     NaN lies around every tensor and between the rows" in verdict.message


@interpreted
def test_a_nan_that_no_load_brought_has_another_note():
    told = "your kernel read y where it had written nothing yet: an output starts as NaN"
    assert told in judge(exercise(), Variant(scaled, SLIP="own-output")).message
    told = "no load left its tensor: is it infinity times 0"
    assert told in judge(exercise(), Variant(scaled, SLIP="infinite")).message


@interpreted
def test_a_masked_load_without_other_leaves_nan_and_not_zeros():
    """Where its mask is off; a kernel that does not use these lanes is right."""
    told = "a masked load without other= leaves anything in the lanes that its mask switches off, here NaN: say other"
    assert told in judge(exercise(), Variant(scaled, SLIP="no-other")).message
    assert launching.run(launch_of(X), Variant(scaled, SLIP="no-other")).blank
    assert judge(exercise(), Variant(scaled, SLIP="open-lanes")).passed
    assert np.array_equal(
        launching.run(launch_of(X[:, :2], BLOCK=2), Variant(scaled, SLIP="no-other")).values, 2 * X[:, :2]
    )


@interpreted
@pytest.mark.parametrize("slip", ["no-load-mask", "block-pointer"])
def test_a_read_outside_is_refused_though_its_number_is_thrown_away(slip):
    """Lanes that a mask switches off are no reads: the right kernel has them too."""
    assert launching.run(launch_of(X), Variant(scaled, SLIP="")).strays == ""
    ran = launching.run(launch_of(X), Variant(scaled, SLIP=slip))
    assert ran.strays == "your kernel read outside x: 1 number behind its end and 1 number between its rows"
    verdict = judge(exercise(), Variant(scaled, SLIP=slip))
    assert verdict.message.splitlines()[0].endswith(f"the values are right, but {ran.strays}")
    assert "a GPU may stop a kernel for the access alone" in verdict.message


@interpreted
def test_an_address_far_outside_is_refused_before_it_is_read():
    assert message("far").startswith("your kernel was about to read more than 32768 entries away from every tensor")


@interpreted
def test_a_triton_whose_loads_cannot_be_watched_is_noticed(monkeypatch):
    from triton.runtime.interpreter import InterpreterBuilder, interpreter_builder

    monkeypatch.setattr(InterpreterBuilder, "create_load", lambda *arguments: None)
    with pytest.raises(RuntimeError, match="does not let its loads be watched"):
        launching.run(launch_of(X), Variant(scaled, SLIP=""))
    assert "create_masked_load" not in vars(interpreter_builder)


@interpreted
def test_a_known_mistake_that_reads_outside_is_named_for_the_same_reads_only():
    elsewhere = Mistake("other", "something else", Variant(scaled, SLIP="stride-assumed"))
    record = exercise(mistakes=(elsewhere,))
    assert judge(record, Variant(scaled, SLIP="stride-assumed")).mistake == "other"
    assert judge(record, Variant(scaled, SLIP="stride-and-before")).mistake is None


def test_a_small_difference_comes_with_a_note_about_precision():
    thirds = Case((X / np.float32(3),))
    text = judge(exercise(cases=lambda rng: [thirds]), Variant(scaled, SLIP="float16")).message
    assert "so small a difference comes from rounding" in text
    assert "rounding" not in judge(exercise(), Variant(scaled, SLIP="neighbour")).message


@interpreted
def test_a_huge_difference_is_laid_on_bfloat16_only_where_a_kernel_has_it():
    text = judge(exercise(), Variant(scaled, SLIP="bfloat16")).message
    assert "note     so large a difference: Triton's interpreter computes wrongly with bfloat16 tiles" in text
    text = judge(exercise(), Variant(scaled, SLIP="grown")).message
    assert "note     so large a difference: numbers on the way have grown far beyond the result" in text
    assert "bfloat16" not in text


def test_no_guess_stands_beside_a_named_mistake():
    grown = Mistake("grown", "a number was added", Variant(scaled, SLIP="grown"))
    text = judge(exercise(mistakes=(grown,)), Variant(scaled, SLIP="grown")).message
    assert "likely   a number was added" in text
    assert "so large a difference" not in text


@interpreted
def test_an_error_shows_the_own_line_that_raised_it():
    text = judge(exercise(), Variant(scaled, SLIP="raises")).message
    assert "InterpreterError" not in text
    assert "in scaled: b_x = tl.dot(b_x, b_x)" in text
    assert "a tile has no entries to pick" in judge(exercise(), Variant(scaled, SLIP="picks")).message
    assert "in _squared: return tl.dot(b_x, b_x)" in judge(exercise(), with_a_helper).message


@interpreted
def test_a_kernel_with_another_signature_is_told_so():
    text = judge(exercise(), lacks_a_parameter).message
    assert "keep the signature as it is" in text
    assert "where" not in text


# --- as on a GPU --------------------------------------------------------------------------------


class Compiled:
    """Stands for a compiled kernel: runs a NumPy function on the buffers, or raises."""

    def __init__(self, effect):
        self.fn, self.effect, self.launched = effect, effect, 0

    def run(self, *arguments, grid, warmup):
        self.launched += 1
        self.effect(*arguments)

    def __call__(self, *arguments):
        raise AssertionError("a kernel is launched, not called")

    def __getitem__(self, grid):
        return lambda *arguments: self.run(*arguments, grid=grid, warmup=False)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(launching, "GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def doubles(x, y, *sizes):
    y.copy_(2 * x)


def test_a_compiled_kernel_runs_twice_on_buffers_of_its_own(as_on_a_gpu):
    kernel = Compiled(doubles)
    assert judge(exercise(), kernel).passed
    assert kernel.launched == 2 * 2


def test_two_runs_that_differ_are_refused(as_on_a_gpu):
    runs = iter(range(4))
    with pytest.raises(Trespass, match=r"y\[0, 0\] is 0 in one run and 1 in the next"):
        launching.run(launch_of(X), Compiled(lambda x, y, *sizes: y.fill_(next(runs))))


def raises(error):
    def effect(*arguments):
        raise error

    return Compiled(effect)


def test_a_compile_error_is_the_learners_with_its_line(as_on_a_gpu):
    source = "def kernel(x):\n    y = tl.load(x)\n    z = y @ nothing\n"
    error = CompilationError(source, ast.parse(source).body[0].body[1], "nothing is not defined")
    verdict = judge(exercise(), raises(error))
    assert verdict.cause == "error"
    assert verdict.message.splitlines()[0] == "5.1 scaled: your kernel does not compile"
    assert "  error    nothing is not defined" in verdict.message
    assert "  where    line 3 of the kernel: z = y @ nothing" in verdict.message


@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux")
def test_the_compilers_own_error_is_read(tmp_path):
    """A real one, from a process in which Triton does not interpret; the fault is in a helper."""
    (tmp_path / "broken.py").write_text(
        textwrap.dedent("""
            import os, torch
            os.environ.pop("TRITON_INTERPRET", None)
            torch.cuda.is_available = lambda: True
            import triton, triton.language as tl
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource
            from lineage_lib import launching

            @triton.jit
            def helper(b):
                return b + tl.arange(0, 24)

            @triton.jit
            def broken(x):
                tl.store(x, helper(tl.load(x)))

            try:
                with launching._explained_errors():
                    triton.compile(ASTSource(fn=broken, signature={"x": "*fp32"}), target=GPUTarget("cuda", 90, 32))
            except launching.NotCompiled as error:
                print(error, "|", error.where)
        """)
    )
    done = subprocess.run([sys.executable, tmp_path / "broken.py"], capture_output=True, text=True, cwd=".")
    assert "power of 2" in done.stdout, done.stderr
    assert done.stdout.endswith("| line 2 of the kernel: return b + tl.arange(0, 24)\n")


def test_a_lost_device_ends_the_check_and_says_what_to_do(as_on_a_gpu):
    kernel = raises(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"))
    beside = Compiled(doubles)
    verdict = judge(exercise(mistakes=(Mistake("other", "something else", beside),)), kernel)
    assert verdict.cause == "error"
    assert "the GPU stopped your kernel" in verdict.message
    assert "Restart the notebook's kernel" in verdict.message
    assert verdict.mistake is None
    assert (kernel.launched, beside.launched) == (1, 0)


# --- beside it ----------------------------------------------------------------------------------


def test_an_answer_may_not_reach_the_launcher():
    for room in ("launching", "outcomes"):
        assert "not part of an answer" in scan(f"from lineage_lib import {room}\n{room}.BORDER = 0", {}).refused


@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux")
def test_the_chapters_kernels_compile_for_hopper():
    done = subprocess.run([sys.executable, "-m", "tests.compile_chapter"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
