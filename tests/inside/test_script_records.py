"""Each `fit` of a script leaves numbers, curves and a journal, unseen by the script."""

import inspect
import json
import os
import shutil
from pathlib import Path

import forks
import keras
import numpy as np
import pytest
from boards import read, steps
from keeping import fits_run_by

from cluster_trainer.callbacks.recording import records
from cluster_trainer.callbacks.recording.epoch_metrics import EpochMetrics
from cluster_trainer.checkpoints.checkpoint import Place
from cluster_trainer.engine import running
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.process_state import Process
from cluster_trainer.fits.script import one_fit
from cluster_trainer.fits.script.records import MOST_SHOWN, ScriptRecords
from cluster_trainer.fits.script.start import script_of as begun
from cluster_trainer.problems import RehearsedError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results import about_file, journal
from cluster_trainer.results.journal import Journal
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
WANTED = ROWS.sum(axis=1, keepdims=True)
BEGIN = """
import json, os, signal, sys
from pathlib import Path

import keras
import numpy as np

keras.utils.set_random_seed(3)
inputs = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
targets = inputs.sum(axis=1, keepdims=True)


def made(**more):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **more)
    return model


def leave(**more):
    Path(sys.argv[1]).write_text(json.dumps(more, default=lambda value: np.asarray(value).tolist()))
"""
SEVERAL = """
seen = []


class Looks(keras.callbacks.Callback):
    "Notes what a callback is told; writes into the logs what is no number."

    def __getattribute__(self, name):
        if name.startswith("on_") and not name.startswith("on_predict"):
            seen.append(name)
        return super().__getattribute__(name)

    def on_epoch_end(self, epoch, logs=None):
        seen.append(sorted(logs))
        logs |= {"word": "a text", "epoch": 7.5, "broken": float("nan"), "one": np.array([1, 2])}


class Inner(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        made().fit(inputs, targets, batch_size=8, verbose=0)


def endless():
    while True:
        yield inputs[:8], targets[:8]


model = made(metrics=[keras.metrics.MeanAbsoluteError("a/b, c")])
tests = (inputs[:16], targets[:16])
one = model.fit(inputs, targets, 8, 3, verbose=0, validation_data=tests, callbacks=[Looks()])
traces = model.train_function.experimental_get_tracing_count() if hasattr(
    model.train_function, "experimental_get_tracing_count") else None

entry = keras.Input((4,))
ends = {"p": keras.layers.Dense(1, name="p")(entry), "q": keras.layers.Dense(2, name="q")(entry)}
many = keras.Model(entry, ends)
many.compile("adam", {"p": "mse", "q": "mae"}, metrics={"p": ["mae", "mse"], "q": ["mse"]})
wanted = {"p": targets, "q": np.repeat(targets, 2, 1)}
two = many.fit(inputs, wanted, batch_size=8, epochs=2, verbose=2, validation_split=0.2)
three = made().fit(endless(), steps_per_epoch=5, epochs=2, verbose=0)
four = made().fit(inputs, targets, batch_size=16, epochs=2, verbose=0, callbacks=[Inner()])


class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            raise ValueError("a script's own")


try:
    made().fit(inputs, targets, batch_size=8, epochs=5, verbose=0, callbacks=[Fails()])
except ValueError:
    pass
six = made().fit(inputs, targets, batch_size=8, verbose=0)
leave(histories=[one.history, two.history, three.history, four.history], seen=seen, traces=traces)
"""
KILLED = """
class Dies(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 3 and os.environ.get("DIES"):
            os.kill(os.getpid(), signal.SIGKILL)


first = made().fit(inputs, targets, batch_size=8, epochs=2, verbose=0)
slower = keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1))
second = made().fit(inputs, targets, batch_size=8, epochs=6, verbose=0, callbacks=[slower, Dies()],
                    validation_split=0.2)
leave(histories=[first.history, second.history])
"""
OURS = ("epoch", "step", "examples_per_second", "seconds")


def run_script(folder, text, *, code=0, **settings):
    """Run a script to its end as the image does; return the values that it left and its output."""
    script, left = folder / "script.py", folder / "left.json"
    script.write_text(BEGIN + text)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TRAINER_")}
    environ |= {"TRAINER_RUN_DIR": str(folder / "run")} | settings
    printed = folder / "printed"
    ended = forks.start([script, left], environ, printed, folder=folder).wait()
    assert ended == code, printed.read_text()
    return json.loads(left.read_text()) if left.exists() else None, printed.read_text()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The worker's folder, the values and the output that a script with several fits left."""
    folder = tmp_path_factory.mktemp("several")
    left, output = run_script(folder, SEVERAL)
    return folder / "run/worker-0", left, output


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def about_of(folder):
    return json.loads((folder / "about.json").read_text(), parse_constant=pytest.fail)


def numbers_of(line):
    """Return a line's metrics, as History has them."""
    return {
        f"val_{name[5:]}" if name.startswith("test_") else name: value
        for name, value in line.items()
        if name not in OURS
    }


def assert_history(lines, history):
    names = {name for name in history if not isinstance(history[name][0], (str, list))}
    assert [one["epoch"] for one in lines] == [*range(1, len(history["loss"]) + 1)]
    for index, line in enumerate(lines):
        found = numbers_of(line)
        assert names <= found.keys()
        for name in names:
            assert found[name] == pytest.approx(history[name][index], rel=1e-6), name


def test_every_metric_of_every_epoch_is_a_line_as_in_history(recorded):
    folder, left, _ = recorded
    for index in (1, 2, 3):
        assert_history(lines_of(folder / f"fit-{index + 1}"), left["histories"][index])
    assert {"p_mae", "q_mse", "test_p_mse", "test_loss"} <= lines_of(folder / "fit-2")[0].keys()


def test_whatever_a_callback_writes_into_the_logs_is_left_out_or_beside(recorded):
    folder, left, _ = recorded
    lines, history = lines_of(folder / "fit-1"), left["histories"][0]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line, loss, other in zip(lines, history["loss"], history["a/b, c"], strict=True):
        assert (line["loss"], line["a/b, c"]) == (pytest.approx(loss), pytest.approx(other))
        assert (line["epoch_"], line["broken"], line["one"]) == (7.5, None, [1, 2])
        assert "word" not in line


def test_curves_are_those_of_the_trainer(recorded):
    folder, left, _ = recorded
    own, history = folder / "fit-1/tensorboard", left["histories"][0]
    train, test = read(own / "train"), read(own / "test")
    assert train["epoch/loss"] == [
        (5 * (n + 1), pytest.approx(v)) for n, v in enumerate(history["loss"])
    ]
    assert test["epoch/a/b, c"] == [
        (5 * (n + 1), pytest.approx(v)) for n, v in enumerate(history["val_a/b, c"])
    ]
    shown = read(own)
    assert {"learning_rate", "within_epoch/loss", "speed/seconds_per_step"} <= {*shown}
    assert {"speed/examples_per_second", "checkpoints/seconds_held_up"} <= {*shown}
    assert shown["learning_rate"][-1] == (15, pytest.approx(0.01))
    ((_, told),) = shown["starts/1"]
    assert "| script | `script.py` |" in told.item().decode()
    assert "TRAINER_EPOCHS" not in told.item().decode()  # which a script does not heed


def test_of_batches_that_nobody_can_count_there_are_steps_alone(recorded):
    folder, _, _ = recorded
    assert "examples_per_second" not in lines_of(folder / "fit-3")[0]
    speeds = {tag for tag in read(folder / "fit-3/tensorboard") if tag.startswith("speed/")}
    assert "speed/seconds_per_step" in speeds
    assert not {tag for tag in speeds if "examples" in tag}


def test_examples_are_counted_to_the_last_short_batch(recorded):
    folder, _, _ = recorded
    (first, second) = lines_of(folder / "fit-4")
    assert (first["step"], second["step"]) == (3, 6)
    own = read(folder / "fit-4/tensorboard")
    seconds = dict(own["speed/seconds_per_step"])
    before = 0
    for step, speed in own["speed/examples_per_second"]:
        examples, steps_done = seen_at(step) - seen_at(before), step - before
        assert speed * seconds[step] * steps_done == pytest.approx(examples, rel=1e-5)
        before = step
    assert before == 6


def seen_at(step):
    """Return the number of examples in that many steps, of 40 an epoch in batches of 16."""
    return 40 * (step // 3) + 16 * (step % 3)


def test_a_fit_within_a_fit_leaves_nothing(recorded):
    folder, _, _ = recorded
    assert {one.name for one in folder.glob("fit-*")} == {f"fit-{n}" for n in range(1, 7)}


def test_the_journal_says_what_the_worker_was_at_and_in_which_fit(recorded):
    events = journal.read(recorded[0] / "events.jsonl")
    of_first = [one for one in events if one.get("fit") == "fit-1"]
    states = [one["state"] for one in of_first if "state" in one]
    assert states == ["starting", *["training", "evaluating"] * 3, "running"]
    seconds = [one["seconds"] for one in of_first if "seconds" in one]
    assert len(seconds) == 3
    assert {"first_call", "evaluating", "checkpoints", "all"} <= seconds[0].keys()
    assert "input" in seconds[1]
    assert events[-1]["state"] == "done"  # the script has got over the fit that failed


def test_a_fit_that_failed_has_what_it_came_to(recorded):
    assert [line["epoch"] for line in lines_of(recorded[0] / "fit-5")] == [1]
    assert [line["epoch"] for line in lines_of(recorded[0] / "fit-6")] == [1]


def test_each_fit_says_with_what_it_was_begun(recorded):
    folder, _, _ = recorded
    first = about_of(folder / "fit-1")
    script = str(folder.parents[1] / "script.py")
    assert first["script"] == {"path": script, "arguments": 1}
    assert (first["workers"], first["replicas"]) == (1, 1)
    assert {"python", "keras", "tensorflow", "numpy"} <= {*first["versions"]}
    assert first["settings"]["run_dir"] == str(folder.parent)
    assert "epochs" not in first["settings"]  # which a script does not heed
    fit = first["fit"]
    assert (fit["weights"], fit["epochs"], fit["seed"]) == (5, 3, 3)
    assert fit["optimizer"]["class_name"] == "SGD"
    assert fit["optimizer"]["config"]["learning_rate"] == pytest.approx(0.01)
    assert (fit["loss"], fit["metrics"]) == ("mse", ["a/b, c"])
    assert fit["data"]["the batch size"] == "8"
    assert fit["data"]["the arrays"] == "float32[40, 4], float32[40, 1]"
    assert "checkpoint" not in json.dumps(fit)
    abouts = {one.parent.name for one in folder.rglob("about.json")}
    assert abouts == {f"fit-{number}" for number in range(1, 7)}  # the failed one, too


def test_losses_and_metrics_of_several_outputs_are_named(recorded):
    fit = about_of(recorded[0] / "fit-2")["fit"]
    assert fit["loss"] == {"p": "mse", "q": "mae"}
    assert fit["metrics"] == {"p": ["mae", "mse"], "q": ["mse"]}
    assert fit["validation_split"] == 0.2


def test_the_script_sees_what_it_sees_where_nothing_is_recorded(recorded, tmp_path):
    _, left, output = recorded
    other, unrecorded = run_script(tmp_path, SEVERAL, TRAINER_CHECKPOINT_STEPS="0")
    assert in_epochs(other["seen"]) == in_epochs(left["seen"])
    assert other["traces"] == left["traces"]
    for one, two in zip(other["histories"], left["histories"], strict=True):
        assert {*one} == {*two}
        assert one["loss"] == pytest.approx(two["loss"])
    said = [
        [line for line in text.splitlines() if line.startswith("Epoch")]
        for text in (output, unrecorded)
    ]
    assert said[0] == said[1] != []
    assert not (tmp_path / "run").exists()


def in_epochs(seen):
    """Return a callback's notes without those of batches, whose number depends on the time."""
    return [one for one in seen if isinstance(one, list) or "batch" not in one]


def test_the_recording_callback_may_be_called_once_for_several_batches():
    assert running.wants_each_batch([records.ClusterTrainerRecords(list)]) == []
    assert running.prepares([records.ClusterTrainerRecords(list)]) == []


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A script that was killed in its second fit, and started again."""
    folder = tmp_path_factory.mktemp("killed")
    worker = folder / "run/worker-0"
    run_script(folder, KILLED, code=-9, DIES="1")
    before = {one: one.stat().st_mtime_ns for one in sorted((worker / "fit-1").rglob("*"))}
    left, _ = run_script(folder, KILLED)
    return worker, left, before


def test_a_fit_that_goes_on_has_each_epoch_once(killed):
    worker, left, _ = killed
    lines = lines_of(worker / "fit-2")
    assert_history(lines, left["histories"][1])
    train = read(worker / "fit-2/tensorboard/train")["epoch/loss"]
    assert train == [(line["step"], pytest.approx(line["loss"])) for line in lines]
    own = read(worker / "fit-2/tensorboard")
    for tag in ("within_epoch/loss", "speed/seconds_per_step"):
        assert steps(own[tag]) == sorted({*steps(own[tag])})
    assert {tag for tag in own if tag.startswith("starts/")} == {"starts/1", "starts/2"}
    assert "held by worker-0" in own["starts/2"][0][1].item().decode()


def test_a_fit_that_had_ended_is_left_as_it_was(killed):
    worker, _, before = killed
    kept = {one: time for one, time in before.items() if "checkpoints" not in str(one)}
    kept.pop(worker / "fit-1", None)
    assert {one: one.stat().st_mtime_ns for one in kept} == kept
    assert kept
    events = journal.read(worker / "events.jsonl")
    assert len([one for one in events if one.get("fit") == "fit-1" and "seconds" in one]) == 2
    assert events[-1]["state"] == "done"


def test_a_fit_that_goes_on_says_what_it_was_asked_for_and_not_where_it_was(killed):
    worker, _, before = killed
    assert worker / "fit-1/about.json" in before  # which is left as it was
    fit = about_of(worker / "fit-2")["fit"]
    assert fit["optimizer"]["config"]["learning_rate"] == pytest.approx(0.01)
    assert fit["epochs"] == 6
    assert not [*worker.rglob(".unfinished*")]


def test_a_script_that_begins_anew_leaves_nothing_of_the_earlier_run(killed):
    worker, _, _ = killed
    run_script(worker.parents[1], "made().fit(inputs, targets, batch_size=8, verbose=0)\n")
    assert {one.name for one in worker.glob("fit-*")} == {"fit-1"}
    assert len(lines_of(worker / "fit-1")) == 1
    events = journal.read(worker / "events.jsonl")
    assert [one.get("state") for one in events].count("training") == 1


@pytest.fixture
def keep(tmp_path):
    """Return a function that makes a model and its kept fit, as a script in a new process."""

    def keep(*, number=0, is_recorded=True, task=None, make=None, kept=None, **settings):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        config = TrainerConfig(run_dir=tmp_path, checkpoint_steps=3, **settings)
        job = Job(config, task or Task())
        job.folder.mkdir(exist_ok=True)
        made = ScriptRecords(job, number, Journal(job.folder), model, "x.py", is_first=True)
        options = FitOptions(
            job,
            StopRequest(print),
            Deadline(),
            tmp_path / "checkpoints",
            described={},
            cuts=config.profile_cuts,
            records=(make or made.made) if is_recorded else None,
            **(kept or {}),
        )
        return model, KeptFit(options, model), job.folder

    return keep


def fit(model, kept, **given):
    with fits_run_by(kept.run):
        return model.fit(ROWS, WANTED, **{"batch_size": 8, "epochs": 3, "verbose": 0} | given)


class Dies(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        if epoch == 2:
            raise RuntimeError("killed")


def test_a_checkpoint_of_before_anything_was_recorded_goes_on(keep):
    model, kept, _ = keep(is_recorded=False)
    with pytest.raises(RuntimeError, match="killed"):
        fit(model, kept, callbacks=[Dies()], epochs=4)
    model, kept, folder = keep()
    history = fit(model, kept, epochs=4)
    lines = lines_of(folder / "fit-1")
    assert [one["epoch"] for one in lines] == [3, 4]
    assert [one["loss"] for one in lines] == [pytest.approx(v) for v in history.history["loss"][2:]]
    assert lines[0]["examples_per_second"] * lines[0]["seconds"] < 1.5 * len(ROWS)


def test_a_checkpoint_of_a_recorded_fit_goes_on_without_records(keep):
    model, kept, _ = keep()
    with pytest.raises(RuntimeError, match="killed"):
        fit(model, kept, callbacks=[Dies()], epochs=4)
    model, kept, _ = keep(is_recorded=False)
    assert len(fit(model, kept, epochs=4).history["loss"]) == 4


def test_a_start_that_trains_says_anew_with_what_and_one_of_a_fit_that_had_ended_does_not(keep):
    model, kept, folder = keep()
    with pytest.raises(RuntimeError, match="killed"):
        fit(model, kept, callbacks=[Dies()], epochs=4)
    file = folder / "fit-1/about.json"
    for is_kept in (False, True):
        file.write_text("{}")
        model, kept, _ = keep()
        fit(model, kept, epochs=4)
        assert (file.read_text() == "{}") == is_kept
    file.unlink()  # as if lost with the chief's disk
    model, kept, _ = keep()
    fit(model, kept, epochs=4)
    assert about_of(folder / "fit-1")["fit"]["weights"] == 5


def test_what_cannot_be_said_of_a_fit_costs_a_warning_and_nothing_else(keep, monkeypatch):
    warnings = []
    monkeypatch.setattr(records.log, "warning", lambda form, *given: warnings.append(form % given))

    def fails(*given, **more):
        raise OSError(f"no room for {given[0].name} {more}")

    monkeypatch.setattr(about_file, "write_whole", fails)
    model, kept, folder = keep()
    fit(model, kept)
    assert [one.split(",")[0] for one in warnings] == ["About failed"]
    assert len(lines_of(folder / "fit-1")) == 3
    assert not (folder / "fit-1/about.json").exists()


def script_of(job):
    return begun(Process(), job, {}, None)


def asked_of_script(script, number):
    """Return a script's fit of this number."""
    model = keras.Sequential()
    model.compile("sgd", "mse")
    given = inspect.signature(keras.Sequential.fit).bind(model)
    return one_fit.fit_of(script, number, given, None)


def what_is_asked(job, number):
    return asked_of_script(script_of(job), number).told


def test_a_model_that_cannot_be_asked_costs_a_warning(tmp_path, monkeypatch):
    def fails(model, arguments):
        raise KeyError(f"{model} {arguments}")

    warnings = []
    monkeypatch.setattr(one_fit, "asked_of", fails)
    monkeypatch.setattr(one_fit.log, "warning", lambda *given: warnings.append(given))
    assert what_is_asked(Job(TrainerConfig(run_dir=tmp_path), Task()), 0) == {}
    assert len(warnings) == 1


def test_only_what_is_written_down_is_asked_for(tmp_path):
    config = TrainerConfig(run_dir=tmp_path)
    assert what_is_asked(Job(config, Task()), MOST_SHOWN - 1)
    assert not what_is_asked(Job(config, Task()), MOST_SHOWN)
    assert not what_is_asked(Job(config, Task(index=1)), 0)


def test_a_rehearsal_writes_nothing(keep):
    model, kept, folder = keep(kept={"rehearses": True})
    with pytest.raises(RehearsedError):
        fit(model, kept)
    assert [*folder.iterdir()] == []


def test_workers_but_the_chief_leave_their_speed_and_journal_alone(keep):
    model, kept, folder = keep(task=Task(index=1))
    fit(model, kept)
    files = {str(one.parent.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    assert files == {".", "fit-1/tensorboard"}
    assert {tag.split("/")[0] for tag in read(folder / "fit-1/tensorboard")} <= {
        *("speed", "checkpoints"),
    }


def test_nothing_is_shown_where_none_is_wanted_nor_of_the_hundredth_fit(keep):
    for given in ({"tensorboard": "none"}, {"number": MOST_SHOWN}):
        model, kept, folder = keep(**given)
        name = f"fit-{given.get('number', 0) + 1}"
        shutil.rmtree(folder.parent / "checkpoints", ignore_errors=True)
        (folder / name).mkdir()
        (folder / name / "about.json").write_text("{}")  # of an earlier start
        fit(model, kept)
        assert len(lines_of(folder / name)) == 3
        assert not (folder / name / "tensorboard").exists()
        assert (folder / name / "about.json").exists() == ("number" not in given)


def test_histograms_show_the_weights(keep):
    model, kept, folder = keep(tensorboard="histograms")
    fit(model, kept)
    tags = {tag for tag in read(folder / "fit-1/tensorboard/train") if tag.startswith("weights/")}
    assert len(tags) == 2


def test_the_steps_that_are_named_are_profiled_in_the_first_fit_alone(keep):
    model, kept, folder = keep(profile_steps="4-6")
    fit(model, kept)
    assert [*(folder / "fit-1/tensorboard/plugins/profile").glob("*/*.xplane.pb")]
    shutil.rmtree(folder.parent / "checkpoints", ignore_errors=True)
    model, kept, folder = keep(profile_steps="4-6", number=1)
    fit(model, kept)
    assert not (folder / "fit-2/tensorboard/plugins").exists()


def test_what_records_may_fail_and_the_fit_goes_on(keep, monkeypatch):
    warnings = []
    monkeypatch.setattr(records.log, "warning", lambda form, *given: warnings.append(form % given))

    class Broken(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
            raise OSError("no room")

    def fails(kept):
        raise OSError(f"no room at {kept.step}")

    for make in (fails, lambda _: [Broken()]):
        model, kept, folder = keep(make=make)
        shutil.rmtree(folder.parent / "checkpoints", ignore_errors=True)
        assert len(fit(model, kept).history["loss"]) == 3
    assert len(warnings) == 2


def test_a_run_that_must_record_its_metrics_fails_with_them(keep, monkeypatch):
    def fails(*_):
        raise TypeError("a fault")

    monkeypatch.setattr(EpochMetrics, "on_epoch_end", fails)
    model, kept, _ = keep(kept={"must_record": True})
    with pytest.raises(TypeError, match="a fault"):
        fit(model, kept)


def test_a_folder_that_cannot_be_written_costs_warnings(keep, caplog):
    model, kept, folder = keep()
    (folder / "fit-1").touch()  # no folder can be made there
    (folder / "events.jsonl").mkdir()
    assert len(fit(model, kept).history["loss"]) == 3
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [one for one in warnings if str(folder / "fit-1") in one], warnings
    assert [one for one in warnings if str(folder / "events.jsonl") in one], warnings


def test_a_forked_process_records_nothing(tmp_path):
    job = Job(TrainerConfig(run_dir=tmp_path), Task())
    job.folder.mkdir()
    script = script_of(job)
    assert script.records
    assert asked_of_script(script, 0).options_of_rehearsal().records
    script.pid = os.getppid()
    assert not script.records
    script.note("running")
    assert [*job.folder.iterdir()] == []
    assert asked_of_script(script, 0).options_of_rehearsal().records is None


def test_files_are_closed_when_the_fit_has_ended(keep):
    before = {*Path("/proc/self/fd").iterdir()}
    model, kept, folder = keep()
    fit(model, kept)
    opened = {*Path("/proc/self/fd").iterdir()} - before
    names = [str(one.readlink()) for one in opened if one.is_symlink()]
    assert not [name for name in names if str(folder) in name]
    assert kept.place != Place()
