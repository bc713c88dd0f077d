"""The lines of a worker's log that its screen shows, and those that its train.log keeps."""

import io
import json
import sys
from dataclasses import replace

import pytest

from cluster_trainer.results.on_screen import report
from cluster_trainer.results.on_screen.progress import LiveFile, Progress, clock
from cluster_trainer.results.on_screen.report import Onlooker, start_log
from cluster_trainer.results.on_screen.screen import OWN
from cluster_trainer.settings.view import View, read_view
from local_cluster.run.live import line, parsed

PROGRESS = Progress(
    what="training",
    epoch=2,
    epochs=30,
    done=5,
    total=10,
    numbers={"loss": 0.25, "top_5": 0.5},
    learning_rate=0.0001,
    examples_per_second=1234.5,
    seconds_left=77.4,
)


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Return a function that logs three lines, and returns those on screen and in train.log."""

    def say(view, *, has_folder=True):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        start_log("worker-1", tmp_path if has_folder else None, view)
        report.log.info("all say so")
        report.log.info("mine", extra=OWN)
        report.log.warning("beware")
        start_log("worker-0")
        file = tmp_path / report.LOG_FILE
        kept = file.read_text() if has_folder else ""
        return [[line[9:] for line in text.splitlines()] for text in (out.getvalue(), kept)]

    return say


ALL = ["INFO worker-1 all say so", "INFO worker-1 mine", "WARNING worker-1 beware"]
OTHERS = ["DEBUG worker-1 all say so", *ALL[1:]]


def test_the_chief_says_all(said):
    assert said(View(is_chief=True)) == [ALL, ALL]


def test_another_worker_says_what_concerns_it_and_keeps_all(said):
    assert said(View(is_chief=False)) == [OTHERS[1:], OTHERS]


def test_with_verbose_each_worker_says_all(said):
    assert said(View(is_chief=False, verbose=True)) == [OTHERS, OTHERS]


def test_nothing_is_left_out_that_is_nowhere_else(said):
    assert said(View(is_chief=False), has_folder=False) == [OTHERS, []]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, View()),
        ({"VERBOSE": "1"}, View(verbose=True)),
        ({"VERBOSE": "0"}, View()),
        ({"VERBOSE": ""}, View()),
        ({"TERM": "xterm"}, View(may_draw=True)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, View()),
        ({"TERM": "dumb"}, View()),
    ],
)
def test_the_view_is_read_from_the_environment(environ, expected):
    assert read_view(environ, is_chief=True) == expected


def test_progress_is_a_line():
    assert str(PROGRESS) == (
        "epoch 2/30  training: 5 of 10 steps  1:17 left  loss 0.2500  top 5 0.5000"
        "  1,234 examples/s  rate 1.0e-04"
    )


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(0.123456, "0.123"), (12.345, "12.3"), (999.6, "1,000"), (1234.5, "1,234")],
)
def test_where_examples_are_not_counted_steps_are(speed, expected):
    facts = replace(PROGRESS, examples_per_second=None, steps_per_second=speed).facts
    assert f"{expected} steps/s" in facts
    assert not [fact for fact in facts if "examples" in fact]


def test_workers_that_the_others_go_on_without_come_first(tmp_path):
    fewer = replace(PROGRESS, missing=("worker-2",), slow=("worker-1",))
    assert fewer.facts == ["without worker-2", "slow: worker-1", *PROGRESS.facts]
    LiveFile(tmp_path / "live.json").write(fewer)
    assert parsed((tmp_path / "live.json").read_bytes())["missing"] == ["worker-2"]


def test_workers_that_are_slow_come_before_what_a_narrow_terminal_cuts_off(tmp_path):
    slow = replace(PROGRESS, slow=("worker-1", "worker-3"))
    assert slow.facts == ["slow: worker-1, worker-3", *PROGRESS.facts]
    assert "10 steps  slow: worker-1, worker-3  1:17 left" in str(slow)
    LiveFile(tmp_path / "live.json").write(slow)
    drawn = line(parsed((tmp_path / "live.json").read_bytes()))
    assert drawn.startswith("epoch 2/30  ━━━━━───── 5/10  slow: worker-1, worker-3  1:17 left")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (61.6, "1:02"), (3600, "1:00:00"), (36_065, "10:01:05")]
)
def test_a_time_is_read_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


def test_progress_is_told_in_a_file_until_the_run_is_at_something_else(tmp_path):
    path = tmp_path / "live.json"
    live = LiveFile(path)
    live.write(PROGRESS)
    told = json.loads(path.read_text())
    assert (told["epoch"], told["done"], told["facts"][0]) == (2, 5, "1:17 left")
    live.remove()
    assert not path.exists()


def test_a_scripts_fit_in_a_pipe_says_now_and_then_where_it_is(monkeypatch):
    lines = []
    monkeypatch.setattr(report.log, "info", lambda form, *given: lines.append(form % given))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    chief = Onlooker(LiveFile(None), View(is_chief=True))
    chief.progress(PROGRESS)
    assert lines == []
    monkeypatch.setattr(report, "PROGRESS_SECONDS", 0.0)
    chief.progress(PROGRESS)
    Onlooker(LiveFile(None), View(is_chief=False)).progress(PROGRESS)
    assert lines == [str(PROGRESS)]
