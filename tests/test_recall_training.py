"""The trainings of the recall task run and start alike; what they end in is committed, never asserted."""

import json

import pytest
import torch

from benchmarks import recall_training
from benchmarks.recall_training import FORMS, MISTAKE, SMALL, by_kernels, drawn, mistaken, recurrence
from lineage_lib.reference import naive_recurrent_gated_delta_rule
from tests.tolerances import allowed, ratio

NAMES = ["reference", "kernels", "wrong gradient"]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("recall") / "recall_training.json"
    recall_training.main(["--small", "--steps", "2", "--out", str(out)])
    return json.loads(out.read_text(encoding="utf-8"))


def inputs(T: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k, v, g, beta of a layer: K ≠ V, two sequences and heads."""
    r = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, T, 2, D, generator=r, dtype=dtype) for D in (16, 16, 8))
    g, beta = (torch.randn(2, T, 2, generator=r, dtype=dtype) for _ in range(2))
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    return [x.requires_grad_() for x in (q, k, v, torch.nn.functional.logsigmoid(g + 3), beta.sigmoid())]


def with_gradients(rule, T: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """o and the gradients of q, k, v, g, beta."""
    tensors = inputs(T, dtype)
    o = rule(*tensors)
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return [o.detach(), *torch.autograd.grad(o, tensors, do)]


def test_the_record_has_what_a_page_shows(record):
    assert set(record) == {"device", "versions", "date", "setting", "curves", "accuracy", "mistake"}
    assert list(record["curves"]) == list(record["accuracy"]) == list(FORMS) == NAMES
    assert set(record["versions"]) == {"torch", "triton"}
    assert record["mistake"] == MISTAKE
    assert record["setting"]["steps"] == 2
    assert record["setting"]["T"] == SMALL.T > 32, "one chunk only"
    for curve in record["curves"].values():
        assert [step for step, _ in curve] == [0, 1]
        assert all(loss > 0 for _, loss in curve)
    assert all(0 <= x <= 1 for x in record["accuracy"].values())


def test_all_start_alike_and_the_right_ones_stay_together(record):
    reference, ours, wrong = (record["curves"][name] for name in NAMES)
    assert [loss for _, loss in ours] == pytest.approx([loss for _, loss in reference], rel=1e-4)
    assert wrong[0][1] == pytest.approx(ours[0][1], rel=1e-5)
    assert abs(wrong[1][1] - ours[1][1]) > 1e-3


def test_the_recurrence_is_the_reference():
    def expected(q, k, v, g, beta):
        return naive_recurrent_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0]

    pairs = zip(with_gradients(recurrence, 7, torch.float64), with_gradients(expected, 7, torch.float64))
    assert max(ratio(got, want) for got, want in pairs) < 1e-12


def test_only_the_mistaken_gradients_are_wrong():
    reference, right, wrong = (with_gradients(rule, 36) for rule in (recurrence, by_kernels, mistaken))
    roles = ["output"] + 3 * ["gradient"] + 2 * ["gate gradient"]
    for want, got, role in zip(reference, right, roles):
        assert ratio(got, want) < allowed(torch.float32, 36, role)
    assert torch.equal(wrong[0], right[0])
    assert torch.equal(wrong[1], right[1])
    for got, want in zip(wrong[2:], right[2:]):
        assert torch.equal(got[:, 1:], want[:, :-1])
        assert ratio(got, want) > 0.5


def test_the_mistake_is_the_same_without_kernels():
    ours, plain = (with_gradients(lambda *x, rule=rule: mistaken(*x, rule), 36) for rule in (by_kernels, recurrence))
    assert max(ratio(got, want) for got, want in zip(ours, plain)) < allowed(torch.float32, 36, "gate gradient")


def test_an_answer_is_the_value_of_the_key_that_was_asked():
    tokens, answers = (x[1, 0].tolist() for x in drawn(SMALL, 2, 5))
    told = dict(zip(tokens[: 2 * SMALL.pairs : 2], tokens[1 : 2 * SMALL.pairs : 2]))
    assert len(told) == SMALL.pairs
    assert [told[key] for key in tokens[2 * SMALL.pairs :]] == answers


def test_real_sizes_are_refused_without_a_gpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kernels.INTERPRETED", True)
    with pytest.raises(SystemExit):
        recall_training.main(["--out", str(tmp_path / "x.json")])
    assert "only with --small" in capsys.readouterr().err
