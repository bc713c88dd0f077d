import errno
import json
import queue
import time
from types import SimpleNamespace

import pytest

from cluster_trainer.results import metrics_file
from cluster_trainer.results.on_screen import report
from cluster_trainer.results.on_screen.report import Reporter, describe

METRICS = {
    "epoch": 3,
    "step": 36,
    "loss": 0.25,
    "accuracy": 0.9,
    "test_loss": 0.3,
    "test_accuracy": 0.875,
    "test_examples": 360,
    "examples_per_second": 5921.4,
    "seconds": 1.26,
}


@pytest.fixture
def reporter(tmp_path):
    made = Reporter(tmp_path, epochs=12)
    yield made
    made._ended.set()  # noqa: SLF001  its heartbeat must not log into other tests


def result(folder):
    return json.loads((folder / "result.json").read_text())


def test_an_epoch_is_one_line_of_metrics(reporter, tmp_path):
    reporter.epochs([METRICS], is_new=True)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == METRICS


def test_an_epoch_is_one_line_for_people():
    assert describe(METRICS, 12) == (
        "epoch  3/12  step 36  loss 0.2500  accuracy 0.9000"
        "  test loss 0.3000  test accuracy 0.8750  5,921 examples/s  1.3 s"
    )


def test_it_has_whatever_metrics_there_are():
    line = {"epoch": 1, "step": 9, "mae": 0.00012, "auc": None, "learning_rate": 0.5, "seconds": 2}
    expected = "epoch 1/1  step 9  mae 1.2e-04  auc not finite  learning rate 0.5000  2.0 s"
    assert describe(line, 1) == expected


@pytest.fixture
def lines(monkeypatch):
    """The log's messages, as a queue that can be waited on."""
    messages = queue.Queue()
    monkeypatch.setattr(report.log, "info", lambda form, *given, **_: messages.put(form % given))
    return messages


def test_a_silent_run_says_what_it_is_at(reporter, lines, monkeypatch):
    monkeypatch.setattr(report, "PROGRESS_SECONDS", 0.05)
    reporter.doing("epoch 1/12  training: 5 of 100 steps")
    reporter.start_heartbeat()
    for _ in range(2):
        assert lines.get(timeout=20) == "epoch 1/12  training: 5 of 100 steps"


class SpeaksInTime:
    """Stands for a run's end, after three waits; a second before each is over, the run speaks."""

    def __init__(self, reporter, clock):
        self.reporter, self.clock, self.waits = reporter, clock, 0

    def wait(self, seconds):
        self.clock[0] += seconds - 1
        self.reporter.epochs([METRICS], is_new=True)
        self.clock[0] += 1
        self.waits += 1
        return self.waits == 3

    def set(self):
        pass


def test_a_run_that_speaks_needs_no_heartbeat(reporter, lines, monkeypatch):
    clock = [time.monotonic()]
    monkeypatch.setattr(report, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(reporter, "_ended", SpeaksInTime(reporter, clock))
    reporter.doing("epoch 1/12  training")
    reporter._beat()  # noqa: SLF001
    said = [lines.get_nowait() for _ in range(lines.qsize())]
    assert said == [describe(METRICS, 12)] * 3


def test_the_result_says_how_far_the_run_came(reporter, tmp_path):
    reporter.dataset("digits/1.0.0")
    used = {"optimizer": {"class_name": "SGD"}, "loss": "own", "strategy": "Mine", "replicas": 2}
    reporter.used(used)
    reporter.step(40)
    reporter.epochs([METRICS], is_new=True)
    reporter.weights("abc")
    reporter.finish("failed", "a peer was lost", {"task": {"type": "worker", "index": 1}})
    written = result(tmp_path)
    assert written.pop("seconds") >= 0
    assert written == {
        "status": "failed",
        "reason": "a peer was lost",
        "dataset": "digits/1.0.0",
        **used,
        "resumed_from_step": None,
        "steps": 40,
        "epochs": 3,
        "metrics": json.loads((tmp_path / "metrics.jsonl").read_text()),
        "weights_sha256": "abc",
        "task": {"type": "worker", "index": 1},
    }


def test_the_result_survives_a_loss_of_power(reporter, disk):
    reporter.finish("done", None, {})
    written = disk.index("sync .unfinished.result.json")
    assert written < disk.index("rename .unfinished.result.json result.json")


def test_only_the_first_end_counts(reporter, tmp_path):
    reporter.finish("stopped", "SIGTERM", {})
    reporter.finish("done", None, {})
    assert result(tmp_path)["status"] == "stopped"


def test_an_earlier_runs_results_do_not_pass_for_this_ones(reporter, tmp_path):
    reporter.epochs([METRICS], is_new=True)
    reporter.finish("done", None, {})
    again = Reporter(tmp_path, epochs=1)
    again.clear()
    again.begin(0)
    assert not (tmp_path / "result.json").exists()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_a_run_that_goes_on_has_each_epoch_once(reporter, tmp_path):
    second, third = METRICS | {"epoch": 2}, METRICS
    reporter.epochs([second], is_new=True)
    reporter.epochs([second, third], is_new=True)
    again = Reporter(tmp_path, epochs=12)
    again.begin(30)
    again.epochs([second], is_new=False)
    again.epochs([second, third], is_new=True)
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "metrics.jsonl").open()]
    assert epochs == [2, 3]
    again.finish("done", None, {})
    assert result(tmp_path)["resumed_from_step"] == 30


@pytest.fixture
def full_disk(monkeypatch):
    """Let every write of a file fail."""

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics_file, "write_whole", fail)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_costs_a_warning(reporter, caplog, monkeypatch):
    monkeypatch.setattr(report.log, "propagate", True)
    reporter.epochs([METRICS], is_new=True)
    assert "metrics.jsonl could not be written" in caplog.text
    assert "No space left on device" in caplog.text


def test_another_process_may_finish_the_result(reporter, tmp_path):
    watcher = Reporter(tmp_path, epochs=12)
    reporter.epochs([METRICS], is_new=True)
    watcher.read_back()
    watcher.finish("failed", "killed", {})
    assert result(tmp_path)["steps"] == 36
    assert result(tmp_path)["metrics"]["test_accuracy"] == 0.875
