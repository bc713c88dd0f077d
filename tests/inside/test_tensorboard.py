"""Event files hold every metric, with each step once, as TensorBoard's own reader shows."""

import json
import logging
import os
import time

import keras
import numpy as np
import pytest
from boards import read, steps
from noise import pictures
from stops import StopsAt

from cluster_trainer.builtin.complete import complete
from cluster_trainer.builtin.run import Run
from cluster_trainer.callbacks.recording import tensorboard
from cluster_trainer.checkpoints.checkpoint import Place, Stage
from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.run_length import run_length_of
from cluster_trainer.engine import running
from cluster_trainer.engine.steps import waits_of
from cluster_trainer.models.compiling import compile_as_set
from cluster_trainer.problems import StopRequestedError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results import event_file
from cluster_trainer.results.event_file import EventFile
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from cluster_trainer.tensorboard_server import folders_below
from conftest import strategy_of

EXAMPLES = DataSet("noise", pictures(100), pictures(30), 10)  # 7 steps an epoch
SETTINGS = {"epochs": 3, "global_batch_size": 16, "steps_per_call": 2, "checkpoint_steps": 4}
CALLS = [2, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21]  # calls end at checkpoints and epochs


@pytest.fixture(autouse=True)
def _each_call(monkeypatch):
    monkeypatch.setattr(tensorboard, "SECONDS_BETWEEN", 0.0)


@pytest.fixture
def run(tmp_path):
    """Return a function that runs to the end or to a stop, and returns the epochs' numbers."""

    def go(stop=None, replicas=1, **settings):
        keras.backend.clear_session()
        environ = {f"TRAINER_{n.upper()}": str(v) for n, v in (SETTINGS | settings).items()}
        config = TrainerConfig.read({"TRAINER_RUN_DIR": str(tmp_path)} | environ, [])
        job = Job(config, Task())
        job.folder.mkdir(parents=True, exist_ok=True)
        strategy = strategy_of(replicas)
        plan = run_length_of(config, EXAMPLES, replicas)
        with strategy.scope():
            keras.utils.set_random_seed(config.seed)
            layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
            model = keras.Sequential(layers)
            compile_as_set(model, config, EXAMPLES, plan)
        reporter = Reporter(job.folder, config.epochs)
        told = Run(job, plan, EXAMPLES, model), stop or StopRequest(print), Deadline(), reporter
        return complete(*told).epochs

    return go


@pytest.fixture
def board(tmp_path):
    return tmp_path / "worker-0/tensorboard"


def assert_epochs(board, epochs):
    """Assert that each metric of each epoch is one point, with the number of metrics.jsonl."""
    train, test = read(board / "train"), read(board / "test")
    assert {*train} == {*test} == {"epoch/loss", "epoch/accuracy"}
    for name in ("loss", "accuracy"):
        for points, prefix in ((train, ""), (test, "test_")):
            expected = [(line["step"], pytest.approx(line[prefix + name])) for line in epochs]
            assert points[f"epoch/{name}"] == expected


def remove_checkpoints_behind(board, newest):
    """Remove later checkpoints, as if the run had been killed before it wrote them."""
    places = []
    for file in (board.parent / "checkpoints").iterdir():
        step, stage = file.name.split("-")[0].split(".")
        places.append((int(step), int(stage)))
        if places[-1] > newest:
            file.unlink()
    assert newest in places


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 2])
def test_every_metric_is_a_curve_of_epochs_and_one_of_calls(run, board, replicas):
    epochs = run(replicas=replicas)
    assert_epochs(board, epochs)
    own = read(board)
    for name in ("loss", "accuracy"):
        assert steps(own[f"within_epoch/{name}"]) == CALLS
    at_epochs_end = dict(own["within_epoch/loss"])
    for line in epochs:
        assert at_epochs_end[line["step"]] == pytest.approx(line["loss"])
    for name in ("seconds_per_step", "examples_per_second", "examples_per_second_of_all"):
        assert steps(own[f"speed/{name}"]) == CALLS
        assert all(value > 0 for _, value in own[f"speed/{name}"])


class Rows(keras.utils.PyDataset):
    """Takes some seconds for each batch."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)


def test_a_fit_has_not_waited_for_what_an_earlier_one_of_its_model_has(tmp_path):
    """A fit goes on like this in the same process after a loss: its steps were compiled before."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def waited(name, seconds):
        """Return the seconds that the fit's steps have waited, and the seconds in its points."""
        before, begins = waits_of(model).get("input", 0.0), int(model.optimizer.iterations)
        place = lambda: Place(step=int(model.optimizer.iterations))  # noqa: E731
        board = tensorboard.TensorBoard(
            tmp_path / name, tensorboard.Shown(place, dict, None, lambda: "started")
        )
        with running.announced(running.Running("fit", is_fit=True)):  # as a callback's: not kept
            model.fit(Rows(seconds), epochs=2, verbose=0, callbacks=[board])
        points = read(tmp_path / name)["speed/seconds_of_input_per_step"]
        counted = np.diff([begins, *steps(points)]) * [value for _, value in points]
        return waits_of(model)["input"] - before, pytest.approx(sum(counted), rel=1e-3)

    for name, seconds in (("first", 0.3), ("again", 0.0)):
        found, shown = waited(name, seconds)
        assert found == shown
    assert_parts_make_a_step(read(tmp_path / "first"))


def assert_parts_make_a_step(found):
    """Assert that the seconds of a step are those of its input and of its computing."""
    parts = [found[f"speed/seconds_of_{name}_per_step"] for name in ("input", "computing")]
    for step, *of_step in zip(found["speed/seconds_per_step"], *parts, strict=True):
        assert sum(value for _, value in of_step) == pytest.approx(step[1], rel=1e-3)


def test_the_learning_rate_is_that_of_the_step(run, board):
    run(learning_rate=0.5)
    rate = keras.optimizers.schedules.CosineDecay(0.5, 21)
    points = read(board)["learning_rate"]
    assert points == [(step, pytest.approx(float(rate(step)), abs=1e-6)) for step in CALLS]
    assert_checkpoints_show_how_long_they_took(read(board))


def assert_checkpoints_show_how_long_they_took(own):
    for name in ("seconds_held_up", "seconds_to_write"):
        found = steps(own[f"checkpoints/{name}"])
        assert found
        assert found == sorted(set(found))
        assert {*found} <= {4, 7, 8, 10, 12, 14, 16, 20, 21}


@pytest.mark.parametrize(
    "meeting", [2, *(pytest.param(one, marks=pytest.mark.long) for one in (1, 3))]
)
def test_a_run_that_was_stopped_has_each_step_once(run, board, meeting):
    with pytest.raises(StopRequestedError):
        run(StopsAt(meeting))
    assert_epochs(board, run())
    for tag, points in read(board).items():
        if not tag.startswith("starts/"):
            assert steps(points) == sorted({*steps(points)}), tag
            assert {*steps(points)} <= {*CALLS}, tag


@pytest.mark.parametrize(
    "left",
    [
        (8, Stage.TRAINING),
        pytest.param((14, Stage.TRAINED), marks=pytest.mark.long),
        (14, Stage.EPOCH),
    ],
)
def test_what_is_done_again_after_a_kill_is_there_once_with_its_new_numbers(
    run, board, left, monkeypatch
):
    monkeypatch.setattr("cluster_trainer.checkpoints.saver._Held.drop", lambda _: None)
    monkeypatch.setattr("cluster_trainer.checkpoints.store.KEPT", 100)
    monkeypatch.setattr("cluster_trainer.checkpoints.store.Store.keep_newest", lambda _: None)
    run()
    remove_checkpoints_behind(board, left)
    epochs = run()
    assert_epochs(board, epochs)
    own = read(board)
    for name in ("within_epoch/loss", "speed/seconds_per_step", "learning_rate"):
        assert steps(own[name]) == sorted({*steps(own[name])})
        assert steps(own[name])[-1] == 21
    (_, first), (_, second) = (own[f"starts/{start}"][0] for start in (1, 2))
    assert "at step 0, without a checkpoint on any worker" in first.item().decode()
    assert f"from step {left[0]} held by worker-0" in second.item().decode()
    assert "| TRAINER_GLOBAL_BATCH_SIZE | `16` |" in second.item().decode()


def test_a_run_that_begins_anew_shows_nothing_of_the_earlier_one(run, board):
    run()
    epochs = run(resume="never")
    assert_epochs(board, epochs)
    assert steps(read(board)["within_epoch/loss"]) == CALLS
    assert [tag for tag in read(board) if tag.startswith("starts/")] == ["starts/1"]


def test_nothing_is_written_where_none_is_wanted(run, board):
    run(tensorboard="none")
    assert not board.exists()


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.long)])
def test_histograms_show_all_weights_after_each_epoch(run, board, replicas):
    run(tensorboard="histograms", replicas=replicas)
    train = read(board / "train")
    tags = {tag for tag in train if tag.startswith("weights/")}
    assert {tag.rpartition("/")[2] for tag in tags} == {"kernel", "bias"}
    for tag in tags:
        assert steps(train[tag]) == [7, 14, 21]


@pytest.fixture
def callback(tmp_path):
    """Return a function that makes a callback at step 40, and a function for calls of ten steps."""

    def make(**options):
        place = Place(step=40, epoch=2)
        given = {
            "place": lambda: place,
            "checkpoints": dict,
            "examples_at": lambda step: 16 * step,
            "start": lambda: "here",
            "num_workers": 2,
        }
        made = tensorboard.TensorBoard(tmp_path, tensorboard.Shown(**given | options))
        made.set_model(keras.Sequential())
        made.on_train_begin()

        def call(logs):
            nonlocal place
            made.on_train_batch_begin(place.step)
            made.on_train_batch_end(place.step + 9, logs)
            place = Place(step=place.step + 10, epoch=2)
            made.on_train_batch_begin(place.step)

        return made, call

    return make


def test_workers_but_the_chief_show_their_own_speed_alone(callback, tmp_path):
    made, call = callback(is_chief=False)
    call({"loss": 1.0})
    made.on_epoch_end(2, {"loss": 1.0, "val_loss": 2.0})
    assert {*read(tmp_path)} == {"speed/seconds_per_step", "speed/examples_per_second"}
    assert [file for file in tmp_path.iterdir() if file.is_dir()] == []


def test_a_worker_is_given_its_share_of_the_examples(callback, tmp_path):
    _, call = callback()
    call({"loss": 1.0})
    own = read(tmp_path)
    ((_, mine),) = own["speed/examples_per_second"]
    assert own["speed/examples_per_second_of_all"] == [(50, pytest.approx(2 * mine))]


def test_a_start_says_what_came_before_it(run, board):
    board.parent.mkdir()
    events = [
        {"time": 0.0, "state": "training"},
        {
            "time": 5.0,
            "state": "restarting",
            "detail": "in 1 s: it lost a peer",
            "by": "entrypoint",
        },
        {"time": 60.0, "state": "waiting", "detail": "for 1 of 2 workers", "by": "entrypoint"},
        {
            "time": 67.0,
            "state": "waiting",
            "detail": "waiting for 1 of 2 workers: worker-1: |refused",
        },
        {"time": 74.5, "state": "starting", "detail": "", "by": "entrypoint"},
    ]
    text = "".join(json.dumps(event) + "\n" for event in events)
    (board.parent / "events.jsonl").write_text(text)
    run()
    ((_, told),) = read(board)["starts/1"]
    rows = told.item().decode()
    assert "| 00:00:05 | restarting | `in 1 s: it lost a peer` |" in rows
    whom = "waiting for 1 of 2 workers: worker-1: \\|refused"
    waited = f"| 00:01:00 | waited 14.5 s at the gate | `{whom}` |"
    assert waited in rows


@pytest.mark.parametrize(
    ("tag", "otherwise"),
    [("slow", "no longer holds the others up"), ("network", "no longer the limit")],
)
def test_why_a_worker_or_the_network_is_slow_is_a_text_at_its_step(
    callback, tmp_path, tag, otherwise
):
    reasons = ["", "", "it is 60 %", "it is 70 %", "", ""]
    _, call = callback(is_chief=False, **{tag: lambda: reasons[0]})
    while len(reasons) > 1:
        del reasons[0]
        call({"loss": 1.0})
    assert [(step, text.item().decode()) for step, text in read(tmp_path)[tag]] == [
        (60, "it is 60 %"),
        (80, otherwise),
    ]


def test_metrics_of_several_numbers_are_a_curve_each(callback, tmp_path):
    _, call = callback()
    call({"f1": np.array([0.25, np.nan], np.float32), "large": np.zeros(1000)})
    own = read(tmp_path)
    assert own["within_epoch/f1_0"] == [(50, 0.25)]
    assert np.isnan(own["within_epoch/f1_1"][0][1])
    assert not any("large" in tag for tag in own)


def test_what_is_named_by_no_text_is_no_curve(callback, tmp_path):
    made, call = callback()
    call({"loss": 1.0, 1: 0.5})
    made.on_epoch_end(2, {"loss": 1.0, 1: 0.5})
    assert [*read(tmp_path / "train")] == ["epoch/loss"]
    assert {tag for tag in read(tmp_path) if tag.startswith("within_epoch")} == {
        "within_epoch/loss"
    }


def test_short_calls_are_written_together(callback, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "SECONDS_BETWEEN", 3600.0)
    _, call = callback()
    for _ in range(50):
        call({"loss": 1.0})
    assert steps(read(tmp_path)["within_epoch/loss"]) == [50]


def test_the_last_step_is_written_however_soon_it_comes(run, board, monkeypatch):
    monkeypatch.setattr(tensorboard, "SECONDS_BETWEEN", 3600.0)
    epochs = run()
    own = read(board)
    for name in ("within_epoch/loss", "learning_rate", "speed/seconds_per_step"):
        assert steps(own[name]) == [2, 21]
    assert own["within_epoch/loss"][-1][1] == pytest.approx(epochs[-1]["loss"])


def test_data_that_nobody_can_count_have_a_speed_in_steps(callback, tmp_path):
    _, call = callback(examples_at=None)
    call({"loss": 1.0})
    assert [tag for tag in read(tmp_path) if tag.startswith("speed/")] == ["speed/seconds_per_step"]


def test_a_disk_that_is_full_costs_a_warning_and_no_more(tmp_path, monkeypatch):
    warnings = []
    warn = lambda form, *given: warnings.append(form % given)  # noqa: E731
    monkeypatch.setattr(event_file.log, "warning", warn)
    file = EventFile(tmp_path, begins_at=1)
    file.scalars({"a": 1.0}, step=1)
    written = tmp_path / os.listdir(tmp_path)[0]  # noqa: PTH208
    half = written.stat().st_size + 10

    with monkeypatch.context() as full:
        full.setattr(event_file, "append_whole", _no_space)
        for step in (2, 3):
            file.scalars({"a": 1.0}, step)
    file.scalars({"a": 1.0}, step=4)
    (warning,) = warnings
    assert "could not be written" in warning
    assert "training continues" in warning
    assert written.stat().st_size > half
    assert steps(read(tmp_path)["a"]) == [1, 4]


def test_a_disk_that_is_full_at_the_start_shows_no_step_twice(tmp_path, monkeypatch):
    before = EventFile(tmp_path, begins_at=1)
    for step in (1, 2, 3):
        before.scalars({"a": 1.0}, step)
    monkeypatch.setattr(event_file.os, "getpid", lambda: 99_999_999)  # another start's file
    with monkeypatch.context() as full:
        full.setattr(event_file, "append_whole", _no_space)
        file = EventFile(tmp_path, begins_at=2)
    for step in (2, 3):
        file.scalars({"a": 5.0}, step)
    assert read(tmp_path)["a"] == [(1, 1.0), (2, 5.0), (3, 5.0)]


def _no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_record_that_is_written_in_part_is_taken_back(tmp_path):
    file = EventFile(tmp_path, begins_at=1)
    file.scalars({"a": 0.5}, step=0)
    (written,) = tmp_path.iterdir()
    before = written.read_bytes()
    import resource  # noqa: PLC0415

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
    try:
        file.scalars({"a": 1.0}, step=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert written.read_bytes() == before
    file.scalars({"a": 1.0}, step=2)
    assert steps(read(tmp_path)["a"]) == [0, 2]


def test_the_server_does_not_follow_links(tmp_path):
    """`runs/latest` would show a run twice."""
    (tmp_path / "first/worker-0").mkdir(parents=True)
    (tmp_path / "first/worker-0/file").touch()
    (tmp_path / "latest").symlink_to("first")
    found = {folder: files for folder, files in folders_below(str(tmp_path)) if files}
    assert found == {f"{tmp_path}/first/worker-0": [f"{tmp_path}/first/worker-0/file"]}


@pytest.mark.parametrize(
    "chosen", [*(pytest.param(one, marks=pytest.mark.long) for one in ("3-4", "6-9")), "20-100"]
)
def test_a_profile_is_made_of_the_steps_that_were_named(run, board, caplog, chosen):
    caplog.set_level(logging.INFO, "trainer")
    expected = run(steps_per_call="auto", run_dir=board.parents[1] / "other")
    epochs = run(steps_per_call="auto", profile_steps=chosen)
    first, last = chosen.split("-")
    assert f"profiling steps {first} to {last}" in caplog.text
    (profile,) = (board / "plugins/profile").glob("*/*.xplane.pb")
    assert profile.stat().st_size > 1000
    for one, other in zip(expected, epochs, strict=True):
        assert one["loss"] == pytest.approx(other["loss"])
    assert {int(first) - 1, min(int(last), 21)} <= {*steps(read(board)["learning_rate"])}
