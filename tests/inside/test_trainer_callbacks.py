"""The notes of the trainer's own callbacks about an epoch, over stops and restarts too."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_trainer.callbacks import progress_display
from cluster_trainer.callbacks.progress_display import ProgressDisplay
from cluster_trainer.callbacks.progress_report import ProgressReport
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics
from cluster_trainer.callbacks.state import states
from cluster_trainer.checkpoints.checkpoint import Place

LOGS = {"accuracy": 0.5, "loss": 1.5, "val_accuracy": np.float32(0.25), "val_loss": 2.0}


@pytest.fixture
def told():
    return []


@pytest.fixture
def metrics_at(told):
    """Return a function that makes the callback of a run at a step, with 16 examples a step."""

    def at(step, **options):
        given = {"examples_at": lambda step: 16 * step, "test_examples": 30} | options
        place = Place(step=step)
        return EpochMetrics(place=lambda: place, report=lambda *what: told.append(what), **given)

    return at


def test_an_epoch_is_a_line_with_every_metric_the_losses_first(metrics_at, told):
    metrics = metrics_at(7)
    metrics.on_test_begin()
    metrics.on_epoch_end(0, LOGS)
    ((line,), is_new) = told[-1]
    assert is_new
    assert [*line] == [
        *["epoch", "step", "loss", "accuracy", "test_loss", "test_accuracy"],
        *["test_examples", "examples_per_second", "seconds"],
    ]
    assert (line["epoch"], line["step"], line["test_accuracy"]) == (1, 7, 0.25)
    assert line["examples_per_second"] > 0
    json.dumps(line, allow_nan=False)


def test_what_nobody_can_count_is_left_out(metrics_at, told):
    metrics_at(7, examples_at=None, test_examples=None).on_epoch_end(0, {"loss": 1.0})
    assert {*told[-1][0][0]} == {"epoch", "step", "loss", "seconds"}


def test_numbers_that_are_not_finite_and_lists_of_numbers_are_json(metrics_at, told):
    logs = {"auc": np.nan, "loss": np.inf, "f1": np.array([0.5, np.nan])}
    metrics_at(7).on_epoch_end(0, logs)
    (line,) = told[-1][0]
    assert (line["auc"], line["loss"], line["f1"]) == (None, None, [0.5, None])
    json.dumps(line, allow_nan=False)


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({"test_acc": 1.0, "val_acc": 2.0}, {"_test_acc": 1.0, "test_acc": 2.0}),
        ({"test_acc": 1.0, "_test_acc": 2.0}, {"_test_acc_": 1.0, "_test_acc": 2.0}),
        ({"epoch": 1.0, "epoch_": 2.0}, {"epoch__": 1.0, "epoch_": 2.0}),
        (
            {"test_examples": 1.0, "val_examples": 2.0, "val_examples_": 3.0},
            {"_test_examples": 1.0, "test_examples__": 2.0, "test_examples_": 3.0},
        ),
        ({"epoch": 1.0, "epoch_": "a text", 1: 0.5}, {"epoch_": 1.0}),
    ],
)
def test_each_metric_has_a_name_of_its_own(metrics_at, told, logs, expected):
    metrics_at(7).on_epoch_end(0, logs)
    (line,) = told[-1][0]
    ours = {"epoch": 1, "step": 7, "test_examples": 30}
    others = {"examples_per_second", "seconds"}
    assert {name: one for name, one in line.items() if name not in others} == ours | expected


def test_a_run_that_goes_on_has_the_lines_and_the_seconds_so_far(metrics_at, told):
    before = metrics_at(7)
    before.on_train_begin()
    before.on_epoch_end(0, LOGS)
    before._seconds = 100.0  # noqa: SLF001  of the epoch in progress
    arrays = []
    kept = json.loads(json.dumps(states.taken([before], arrays)))
    after = metrics_at(14)
    after.on_train_begin()
    states.put_back([after], states.from_json(kept, arrays))
    assert told[-1] == (before.lines, False)
    after.on_epoch_end(1, LOGS)
    lines, is_new = told[-1]
    assert is_new
    assert [line["epoch"] for line in lines] == [1, 2]
    assert 100 <= lines[1]["seconds"] < 200


class Listener:
    def __call__(self, progress):
        self.told = progress


def test_the_heartbeat_tells_where_the_run_is(monkeypatch):
    monkeypatch.setattr(progress_display, "BETWEEN_SECONDS", 0.0)
    listener, place = Listener(), Place(step=20, epoch=2, done=6)
    beat = ProgressDisplay(listener, lambda: place, examples_at=lambda step: 10 * step)
    beat.set_model(SimpleNamespace(optimizer=SimpleNamespace(learning_rate=0.5)))
    beat.set_params({"epochs": 5, "steps": 8})
    beat.on_epoch_begin(2)
    assert str(listener.told) == "epoch 3/5  training: 6 of 8 steps  rate 0.5000"
    beat.on_train_batch_end(6, {"loss": np.float32(0.25), "table": np.zeros(3)})
    assert (listener.told.step, listener.told.done) == (21, 7)
    assert (listener.told.numbers, listener.told.seconds_left) == ({"loss": 0.25}, None)
    beat.on_train_batch_end(7)
    assert listener.told.examples_per_second > 0
    assert listener.told.seconds_left > 0
    assert "examples/s" in str(listener.told)
    beat.on_test_batch_end(1)
    assert str(listener.told).startswith("epoch 3/5  evaluating: 2 steps  ")


def test_where_nobody_counts_examples_the_steps_tell_how_fast_it_is(monkeypatch):
    monkeypatch.setattr(progress_display, "BETWEEN_SECONDS", 0.0)
    listener = Listener()
    beat = ProgressDisplay(listener, Place)
    beat.set_params({"epochs": 5, "steps": 8})
    beat.on_epoch_begin(0)
    beat.on_train_batch_end(0)
    beat.on_train_batch_end(5)
    assert (beat.speed, listener.told.examples_per_second) == (None, None)
    assert listener.told.steps_per_second > 0
    assert "steps/s" in str(listener.told)
    assert "examples" not in str(listener.told)


def test_the_heartbeat_names_the_workers_that_are_slow():
    listener = Listener()
    beat = ProgressDisplay(listener, Place, slow=lambda: ("worker-1",))
    beat.set_params({"epochs": 5, "steps": 8})
    beat.on_epoch_begin(0)
    assert listener.told.slow == ("worker-1",)


def test_the_heartbeat_does_not_tell_of_each_of_many_short_calls():
    listener, place = Listener(), Place()
    beat = ProgressDisplay(listener, lambda: place)
    beat.set_params({"epochs": 5, "steps": 1000})
    beat.on_epoch_begin(0)
    beat.on_train_batch_end(4)
    assert listener.told.done == 0


class Teller:
    def __init__(self):
        self.told = []

    def tell(self, state, detail="", **given):
        self.told.append((state, detail, given))


def test_the_place_is_told_with_a_limit_only_between_the_steps_of_an_epoch():
    teller = Teller()
    told = ProgressReport(teller, lambda: Place(step=14, done=4), has_limit=True)
    told.set_params({"epochs": 3, "steps": 10})
    told.on_epoch_begin(1)
    told.on_train_batch_end(6)
    told.on_test_begin()
    told.on_epoch_end(1)
    told.on_train_end()
    details = [(state, detail) for state, detail, _ in teller.told]
    assert details == [
        ("training", "epoch 2/3"),
        ("training", "epoch 2/3: 7 of 10 steps"),
        ("training", "epoch 2/3: evaluating"),
        ("training", "epoch 2/3 is done"),
        ("running", "the fit is done"),
    ]
    limits = [given.get("within_seconds") for *_, given in teller.told]
    assert limits == [None, 600, None, None, None]
    assert teller.told[1][2]["step"] == 17


def test_a_run_without_a_limit_of_its_steps_has_none_here():
    teller = Teller()
    told = ProgressReport(teller, Place, has_limit=False)
    told.set_params({"epochs": 3, "steps": None})
    told.on_train_batch_end(0)
    assert teller.told[0][2]["within_seconds"] is None
