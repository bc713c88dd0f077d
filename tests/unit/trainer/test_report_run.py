"""A report reads a run's folder, and names the files and lines that it cannot read."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_trainer.report.__main__ import main
from cluster_trainer.report.run import read_run
from cluster_trainer.settings.config import TrainerConfig


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a run with three workers, two of which have left files."""
    settings = TrainerConfig.read({"TRAINER_EPOCHS": "7", "TRAINER_METRICS": "a,b"}, []).as_json()
    chief, other = tmp_path / "first/worker-0", tmp_path / "first/worker-10"
    (tmp_path / "first/worker-2").mkdir(parents=True)
    for one in (chief, other):
        one.mkdir(parents=True)
    (chief / "result.json").write_text(json.dumps({"settings": settings, "workers": 2}))
    (chief / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"ep')
    (other / "events.jsonl").write_text('{"time": 5, "state": "b"}\n\n[]\n{"time": 1}\n{"ti')
    return tmp_path / "first"


def test_workers_come_in_the_order_of_their_numbers(folder):
    assert [one.name for one in read_run(folder).workers] == ["worker-0", "worker-2", "worker-10"]


def test_lines_that_were_cut_are_left_out_and_events_are_in_order(folder):
    run = read_run(folder)
    assert run.chief.metrics == [{"epoch": 1}, {"epoch": 2}]
    assert [event["time"] for event in run.workers[2].events] == [1, 5]
    assert run.began == 1


def test_a_whole_run_leaves_nothing_to_say(folder):
    (folder / "worker-0/metrics.jsonl").write_text('{"epoch": 1, "loss": null, "auc": [1, null]}\n')
    (folder / "worker-10/events.jsonl").write_text('{"time": 1, "seconds": {"all": 2.5}}\n')
    assert read_run(folder).unread == []


NOTHING = ("", "\0\0\0", "[]", "7", "null", "NaN", "{", '{"a": ', "[" * 100_000, "\ufffd\ufffd")


@pytest.mark.parametrize("text", NOTHING, ids=lambda text: repr(text[:5]))
@pytest.mark.parametrize(
    ("name", "of_worker", "empty"),
    [("result.json", "result", {}), ("predictions.json", "predicted", None)],
)
def test_a_file_that_is_no_object_is_said_and_all_else_is_read(
    folder, name, of_worker, empty, text
):
    (folder / "worker-10" / name).write_text(text)
    run = read_run(folder)
    assert [one for one in run.unread if one.startswith(f"worker-10/{name}: ")]
    assert getattr(run.workers[2], of_worker) == empty
    assert len(run.chief.metrics) == 2


NO_METRIC = "epoch: Value error, a metric is a number, an array or null"
NO_COUNT = "it: Value error, epoch: Input should be a whole number from 0"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        *((value, NO_METRIC) for value in ("1", True, {}, 10**400)),
        *((value, NO_COUNT) for value in (None, -1, 1.5, [], float("nan"))),
    ],
)
def test_an_epoch_whose_number_is_none_is_left_out_with_its_line(folder, value, why):
    lines = [{"epoch": 1, "loss": 3.0}, {"epoch": value, "loss": 2.0}]
    (folder / "worker-0/metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    run = read_run(folder)
    assert run.chief.metrics == lines[:1]
    (said,) = [one for one in run.unread if "metrics.jsonl" in one]
    assert said.startswith(f"worker-0/metrics.jsonl: line 2: {why}; ")


def test_a_metric_is_a_number_or_none_that_is_finite(folder):
    lines = ['"a": NaN, "b": -Infinity, "f": 2', '"a": "0.5"', '"a": true', '"a": 1e200, "f": 3']
    text = "".join(f'{{"epoch": 1, {line}}}\n' for line in lines)
    (folder / "worker-0/metrics.jsonl").write_text(text)
    run = read_run(folder)
    whole = [{"epoch": 1, "a": None, "b": None, "f": 2}, {"epoch": 1, "a": 1e200, "f": 3}]
    assert run.chief.metrics == whole
    assert len([one for one in run.unread if ": a: " in one]) == 2


@pytest.mark.parametrize(
    "value", ['"5"', "null", "true", "NaN", "Infinity", "-1", "1e30", f"1{0:0400}"]
)
def test_an_event_without_a_time_is_left_out(folder, value):
    text = '{"time": 2, "state": "training"}\n{"state": "done", "time": ' + value + "}\n"
    (folder / "worker-10/events.jsonl").write_text(text)
    run = read_run(folder)
    assert [event["time"] for event in run.workers[2].events] == [2]
    assert [one for one in run.unread if "events.jsonl: line 2: time: " in one]


@pytest.mark.parametrize("value", ['"2"', "NaN", "-1", "null"])
def test_an_event_whose_seconds_are_none_is_left_out(folder, value):
    seconds = f'{{"all": 3, "calls": {value}}}'
    (folder / "worker-10/events.jsonl").write_text(f'{{"time": 1, "seconds": {seconds}}}\n')
    run = read_run(folder)
    assert run.workers[2].events == []
    assert [one for one in run.unread if "seconds.calls: " in one]


def test_many_lines_of_the_kind_are_counted(folder):
    (folder / "worker-0/metrics.jsonl").write_text("x\n" * 500 + '{"epoch": 1}\n')
    said = [one for one in read_run(folder).unread if "metrics.jsonl" in one]
    assert len(said) == 4
    assert said[-1] == "worker-0/metrics.jsonl: and 497 more of the kind"


def test_what_is_no_file_and_what_may_not_be_read_is_said(folder):
    (folder / "worker-2/result.json").mkdir()
    os.mkfifo(folder / "worker-2/metrics.jsonl")
    said = read_run(folder).unread
    assert "worker-2/result.json: it is no file" in said
    assert "worker-2/metrics.jsonl: it is no file" in said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
NAMES = st.sampled_from(
    [
        "time",
        "state",
        "seconds",
        "epoch",
        "loss",
        "workers",
        "settings",
        "matrix",
        "pictures",
        "total",
    ]
)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4) | VALUES, max_size=4))
def test_whatever_the_files_hold_a_run_is_read(tmp_path_factory, lines):
    worker = tmp_path_factory.mktemp("run") / "worker-0"
    worker.mkdir()
    text = "\n".join(json.dumps(line) for line in lines)
    for name in ("result.json", "predictions.json", "metrics.jsonl", "events.jsonl"):
        (worker / name).write_text(text)
    for event in read_run(worker.parent).chief.events:
        assert 0 <= event["time"] < 1e12


def test_a_script_that_left_no_results_is_a_run(tmp_path):
    worker = tmp_path / "own/worker-0"
    (worker / "fit-1/checkpoints").mkdir(parents=True)
    (worker / "fit-1/checkpoints/00000012.2-0123456789abcdef.npz").write_text("no checkpoint")
    (worker / "fit-10").mkdir()
    (worker / "fit-2").mkdir()
    (tmp_path / "own/cluster.json").write_text('{"settings": {"SCRIPT": "/home/me/train.py"}}')
    run = read_run(tmp_path / "own")
    assert [(fit.name, fit.step) for fit in run.chief.fits] == [
        ("fit-1", 12),
        ("fit-2", None),
        ("fit-10", None),
    ]
    assert run.script == "/home/me/train.py"
    assert run.unread == []
    assert not run.chief.has_ended


@pytest.fixture
def script(tmp_path):
    """A script's run on two workers with three recorded fits, and fit-3 with checkpoints only."""
    for worker in ("worker-0", "worker-1"):
        for number in (1, 2, 3, 10):
            (tmp_path / f"own/{worker}/fit-{number}/checkpoints").mkdir(parents=True)
        events = [
            {"time": 1, "state": "starting"},
            *({"time": 2 + n, "state": "training", "fit": f"fit-{n}"} for n in (1, 2)),
            {"time": 9, "state": "training", "fit": "fit-10"},
            {"time": 10, "epoch": 1, "step": 5, "seconds": {"all": 1}, "fit": "fit-10"},
        ]
        text = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / "own" / worker / "events.jsonl").write_text(text)
    for number in (1, 10):
        line = json.dumps({"epoch": 1, "step": 5, "loss": number})
        (tmp_path / f"own/worker-0/fit-{number}/metrics.jsonl").write_text(line + "\n")
    return read_run(tmp_path / "own")


def test_the_fits_of_a_script_are_in_their_order_without_those_that_left_checkpoints_alone(script):
    assert script.fits == ["fit-1", "fit-2", "fit-10"]
    assert script.unread == []


def test_a_fit_has_its_own_numbers_and_events_of_each_worker(script):
    of_last = script.of_fit("fit-10")
    assert [one["loss"] for one in of_last.chief.metrics] == [10]
    assert [one["time"] for one in of_last.workers[1].events] == [9, 10]
    assert [one.name for one in of_last.workers] == ["worker-0", "worker-1"]
    assert script.of_fit("fit-2").chief.metrics == []
    assert script.of_fit("fit-99").chief.events == []


@pytest.mark.parametrize("value", [1, ["fit-1"], True])
def test_an_event_of_a_fit_that_is_no_text_is_of_none(folder, value):
    text = json.dumps({"time": 1, "state": "training", "fit": value})
    (folder / "worker-10/events.jsonl").write_text(text + "\n")
    run = read_run(folder)
    assert run.fits == []
    assert [one for one in run.unread if "line 1: fit: " in one]


def refused(folder, capsys):
    assert main([str(folder)]) == 78
    said = capsys.readouterr().err
    assert f'RUN: received "{folder}"; accepted: a folder of a run, with worker-0/ in it. ' in said
    return said


def test_a_folder_without_a_run_is_refused_and_the_runs_beside_it_are_named(folder, capsys):
    (folder.parent / "nothing").mkdir()
    for name in ("frist", "nothing"):
        said = refused(folder.parent / name, capsys)
        assert f"Give one of those in {folder.parent}: first." in said


def test_a_workers_folder_and_that_of_all_runs_are_refused_with_what_was_meant(folder, capsys):
    assert f"give the folder that it is in, {folder}." in refused(folder / "worker-0", capsys)
    assert f"Give one of those in {folder.parent}: first." in refused(folder.parent, capsys)


def test_where_there_is_no_run_the_advice_says_what_makes_one(tmp_path, capsys):
    (tmp_path / "file").touch()
    for name in ("nothing", "file", "x" * 300):
        code, said = main([str(tmp_path / name)]), capsys.readouterr().err
        assert code == 78
        assert "accepted: a folder" in said
