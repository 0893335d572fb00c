"""The trainer: an interrupt costs no bit, models train as alone, AdamW is PyTorch's, records say what was done."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from lineage_lib import training
from lineage_lib.stacked import Shape
from lineage_lib.tasks import TASKS
from lineage_lib.training import CHECK, TEST, TRAINING, Setting, Test, Trainer, train

SHAPE = Shape(mixers=("gated-deltanet", "attention"), width=8, K=4, V=4, mlp=1, conv=2, negative=True)
SETTING = Setting(
    task="parity", arguments=dict(T=9), shape=SHAPE, seeds=(0, 5), learning_rates=(1e-2, 1e-3), batch=4, steps=12,
    check_every=3, solved=1.1, weight_decay=0.01, tests=(Test(arguments=dict(T=20), cuts=(0, 9, 20), batch=8), Test()),
)  # fmt: skip


def trained(setting: Setting, **how) -> Trainer:
    trainer = Trainer(setting)
    trainer.run(progress=False, **how)
    return trainer


@pytest.fixture(scope="module")
def whole():
    return trained(SETTING)


@pytest.fixture
def interrupt(monkeypatch):
    """Makes the task's ``nth`` batch an interrupt."""

    def at(nth: int) -> None:
        task, calls = TASKS["parity"], []

        def interrupted(*given, **named):
            calls.append(None)
            if len(calls) == nth:
                raise KeyboardInterrupt
            return task(*given, **named)

        monkeypatch.setitem(TASKS, "parity", interrupted)

    return at


@pytest.mark.parametrize("nth", [18, 24, 31])
def test_an_interrupted_training_goes_on_as_if_nothing_had_been(whole, interrupt, monkeypatch, tmp_path, nth):
    checkpoint = tmp_path / "some.checkpoint"
    monkeypatch.setattr(training, "AHEAD", 2)
    with monkeypatch.context():
        interrupt(nth)
        with pytest.raises(KeyboardInterrupt):
            trained(SETTING, checkpoint=checkpoint, save_every=0)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["some.checkpoint"]
    assert 0 < torch.load(checkpoint)["step"] < 12
    resumed = trained(SETTING, checkpoint=checkpoint)
    assert resumed.losses == whole.losses
    assert resumed.checks == whole.checks
    assert torch.equal(resumed.rows, whole.rows)


def test_an_interrupt_while_writing_leaves_the_last_checkpoint(whole, monkeypatch, tmp_path):
    checkpoint = tmp_path / "some.checkpoint"
    trained(replace(SETTING), checkpoint=checkpoint, save_every=0)
    before = checkpoint.read_bytes()

    def half(_, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        whole.save(checkpoint)
    assert checkpoint.read_bytes() == before


def test_a_checkpoint_of_another_setting_is_refused(tmp_path):
    checkpoint = tmp_path / "some.checkpoint"
    Trainer(SETTING).save(checkpoint)
    with pytest.raises(ValueError, match="is a checkpoint of another setting"):
        train(replace(SETTING, batch=5), checkpoint=checkpoint, progress=False)


def test_a_checkpoint_is_removed_in_the_end(tmp_path):
    train(SETTING, checkpoint=tmp_path / "x", save_every=0, progress=False)
    assert not list(tmp_path.iterdir())


def test_models_train_side_by_side_as_alone(whole):
    assert [len(x) for x in whole.losses] == 12 * [4]
    for m, (seed, rate) in enumerate(SETTING.models):
        alone = trained(replace(SETTING, seeds=(seed,), learning_rates=(rate,)))
        np.testing.assert_allclose([x[m] for x in whole.losses], [x[0] for x in alone.losses], rtol=1e-3)
    assert len({x for x in whole.losses[-1]}) == 4


def test_a_step_is_pytorchs_adamw():
    setting = replace(SETTING, seeds=(0,), learning_rates=(1e-2,), weight_decay=0.0, clip=0.1)
    ours, batches = Trainer(setting), [[x for x in Trainer(setting)._batch(TRAINING, n, 4)] for n in range(4)]
    rows = ours.rows.clone().requires_grad_()
    adamw = torch.optim.AdamW([rows], lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    for n, (tokens, answers) in enumerate(batches):
        ours._prepare(n)
        got = ours.gradient_step(tokens, answers)
        loss = ours.loss(rows, tokens, answers).sum()
        rows.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_([rows], 0.1)
        adamw.param_groups[0]["lr"] = 1e-2 * setting.schedule(n)
        adamw.step()
        torch.testing.assert_close(got, loss.detach()[None], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.rows, rows.detach(), rtol=1e-3, atol=1e-4)


def test_a_gradient_that_is_not_finite_is_left_out(monkeypatch):
    trainer, start = (Trainer(replace(SETTING, weight_decay=0.0)) for _ in range(2))
    loss = trainer.loss
    monkeypatch.setattr(trainer, "loss", lambda *given: loss(*given) * torch.tensor([1.0, torch.inf, 1.0, torch.nan]))
    trainer._prepare(3)
    trainer.losses.append(trainer.gradient_step(*trainer._batch(TRAINING, 0, 4)).tolist())
    assert (trainer.rows - start.rows).abs().amax(1).gt(1e-4).tolist() == [True, False, True, False]
    trainer.step = 1
    assert [x is None for x in trainer.record()["losses"][0][1]] == [False, True, False, True]


def test_weight_decay_shrinks_matrices_only():
    trainer, start = Trainer(replace(SETTING, weight_decay=0.5)), Trainer(SETTING)
    trainer._prepare(3)
    trainer.square += 1e12  # no other movement
    trainer.gradient_step(*trainer._batch(TRAINING, 0, 4))
    shrunk = 1 - trainer.rate * trainer.decay
    torch.testing.assert_close(trainer.rows, start.rows * shrunk, rtol=1e-4, atol=1e-5)
    assert set(trainer.decay.tolist()) == {0.0, 0.5}


def test_the_learning_rate_rises_and_falls():
    setting = replace(SETTING, steps=100, warm_up=0.1)
    shares = [setting.schedule(step) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[9] == shares[10] == 1.0
    assert np.argmax(shares) == 9
    assert shares[55] == pytest.approx(0.5)
    assert 0 < shares[99] < 1e-3


def test_training_ends_once_each_seed_is_solved(monkeypatch):
    rights = iter([[0.9, 0.2, 0.3, 0.8], [0.2, 0.3, 0.1, 0.95], [0.2, 0.3, 0.9, 0.95], [1.0] * 4])
    monkeypatch.setattr(Trainer, "answered", lambda self, test, kind, n: [{"accuracy": next(rights)}])
    trainer = trained(replace(SETTING, solved=0.9))
    assert trainer.step == 9  # models 2 and 3 are seeds 0 and 5 at the second rate
    assert [step for step, _ in trainer.checks] == [3, 6, 9]


def test_a_record_says_what_was_done(whole):
    record = json.loads(json.dumps(whole.record()))
    assert record["setting"] == json.loads(json.dumps(asdict(SETTING)))
    assert record["models"][2] == {"seed": 0, "learning_rate": 1e-3}
    assert (record["steps"], record["state_size"], record["weights"]) == (12, 16, whole.rows.shape[1])
    assert set(record["versions"]) >= {"python", "numpy", "torch"}
    assert record["seconds"] > 0
    assert record["losses"][0][0] == 0
    assert record["losses"][-1][0] == 11
    assert [test["places"] for test in record["tests"]] == [[0, 9], [9, 20], [0, 9]]
    assert all(len(test["accuracy"]) == len(test["whole"]) == 4 for test in record["tests"])
    assert {"device", "date", "checks"} <= set(record)


def test_accuracies_are_those_of_a_slow_loop(whole):
    tokens, answers = whole._batch(TEST, 0, 8, dict(T=20))
    said = training.logits(SHAPE, whole.parts, whole.rows, tokens).argmax(-1)
    late = whole.answered(SETTING.tests[0], TEST, 0)[1]
    for m in range(4):
        right = [[int(said[m, b, t] == answers[m, b, t]) for t in range(9, 20)] for b in range(8)]
        assert late["accuracy"][m] == pytest.approx(np.mean(right), abs=1e-4)
        assert late["whole"][m] == pytest.approx(np.mean([all(row) for row in right]), abs=1e-4)


def test_no_batch_is_seen_twice():
    drawn = [SETTING.draw(seed, kind, n, 4).tokens.tobytes()
             for seed in (0, 5) for kind in (TRAINING, CHECK, TEST) for n in range(10)]  # fmt: skip
    assert len({*drawn}) == len(drawn)
    first, second = Trainer(SETTING)._batch(TRAINING, 0, 4)[0].chunk(2)
    assert torch.equal(first, second), "models that differ in their learning rate only see the same"


def test_a_line_of_progress(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    Trainer(SETTING).run()
    assert "████████████████████ 12/12, 0 s left, loss" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(task="sorting"), "task: expected one of multi_query_recall, .*, got 'sorting'"),
        (dict(seeds=()), "seeds: expected at least one"),
        (dict(steps=0), "steps: expected at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(SETTING, **changed)
