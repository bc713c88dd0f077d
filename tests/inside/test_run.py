"""A run of the trainer that was interrupted anywhere ends like an undisturbed one."""

import json
import logging
from dataclasses import dataclass
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from noise import pictures, relative_difference
from stops import StopsAt

from cluster_trainer.builtin.complete import complete
from cluster_trainer.checkpoints import saver
from cluster_trainer.checkpoints.state import State
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import CHUNK_BYTES, WorkersOfStrategy
from cluster_trainer.data.examples import DataSet
from cluster_trainer.data.run_length import run_length_of
from cluster_trainer.engine import install
from cluster_trainer.models.build import build_model, synchronise_batch_norm
from cluster_trainer.problems import (
    ConfigurationError,
    StopRequestedError,
    TrainingDivergedError,
)
from cluster_trainer.process.stall import LEAST_SECONDS, Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.results.weights import digest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from cluster_trainer.train import compile_for
from conftest import quick_first, strategy_of

GLOBAL_BATCH = 16
SETTINGS = {"epochs": 3, "global_batch_size": GLOBAL_BATCH, "steps_per_call": 2}
EXAMPLES = DataSet("noise", pictures(100), pictures(30), 10)  # 7 steps an epoch, the last one short
TIMES = ("seconds", "examples_per_second")


def dense(*more):
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(16)]
    return keras.Sequential([*layers, *more, keras.layers.Dense(10)])


def synchronised():
    # No bias before BatchNorm: its gradient would be rounding errors only.
    convolution = keras.layers.Conv2D(4, 3, strides=4, use_bias=False)
    inner = keras.Sequential([keras.Input((28, 28, 1)), convolution])
    inner.add(keras.layers.BatchNormalization())
    last = keras.layers.Dense(10, kernel_regularizer=keras.regularizers.L2(0.1))
    model = keras.Sequential([inner, keras.layers.Flatten(), last])
    synchronise_batch_norm("own", model)
    return model


MODELS = {
    "plain": dense,
    "dropout": lambda: dense(keras.layers.Dropout(0.5)),
    "batch-norm": lambda: dense(keras.layers.BatchNormalization()),
    "both": lambda: dense(keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)),
    "synchronised and regularised": synchronised,
}


@dataclass(frozen=True)
class Ended:
    """The end of a run.

    Attributes:
        weights: the model's weights.
        epochs: each epoch's numbers, without the times.
        began: the step that the run began with.
    """

    weights: list
    epochs: list
    began: int

    @property
    def digest(self):
        return digest(self.weights)


class Noting(Reporter):
    began = 0

    def begin(self, step):
        super().begin(step)
        self.began = step


def run_in(  # noqa: PLR0913  what a run is made of
    folder,
    strategy,
    build,
    stop=None,
    *,
    is_restart=False,
    data=EXAMPLES,
    deadline=None,
    **settings,
):
    """Run to the end, or until the stop, with all files in the folder."""
    keras.backend.clear_session()  # so that names are those of a new process
    environ = {f"TRAINER_{n.upper()}": str(v) for n, v in (SETTINGS | settings).items()}
    config = TrainerConfig.read({"TRAINER_RUN_DIR": str(folder)} | environ, [])
    job = Job(
        config,
        Task(),
        folder / "progress",
        is_restart=is_restart,
        status_file=folder / "status",
    )
    job.folder.mkdir(exist_ok=True)
    plan = run_length_of(config, data, strategy.num_replicas_in_sync)
    with strategy.scope():
        keras.utils.set_random_seed(config.seed)
        model = build()
        own = compile_for(model, job, data, plan)
    reporter = Noting(job.folder, config.epochs)
    stop = stop or StopRequest(print)
    completed = complete(own, stop, deadline or Deadline(), reporter)
    timeless = [
        {name: value for name, value in line.items() if name not in TIMES}
        for line in completed.epochs
    ]
    return Ended(completed.weights, timeless, reporter.began)


@pytest.fixture
def run(tmp_path):
    """Run with one folder for all runs of a test."""
    return partial(run_in, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Run without a stop, in a new folder, once for all tests that ask for the same run."""
    ended = {}

    def go(strategy, build, **settings):
        key = (strategy, build, frozenset(settings.items()))
        if key not in ended:
            ended[key] = run_in(tmp_path_factory.mktemp("run"), strategy, build, **settings)
        return ended[key]

    return go


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a stopped run; tests may share it, as runs that are refused change nothing."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(StopRequestedError):
        run_in(folder, strategy_of(1), MODELS["plain"], StopsAt(2))
    return folder


@pytest.mark.parametrize(
    ("model", "replicas"),
    [
        ("synchronised and regularised", 2),
        *(pytest.param("plain", replicas, marks=pytest.mark.long) for replicas in (2, 4)),
    ],
)
def test_replicas_train_to_the_weights_of_one_device(undisturbed, model, replicas):
    settings = {"optimizer": "momentum", "learning_rate": 0.01}
    alone, together = (
        undisturbed(strategy_of(n), MODELS[model], **settings) for n in (1, replicas)
    )
    assert relative_difference(alone.weights, together.weights) < 1e-4
    for one, other in zip(alone.epochs, together.epochs, strict=True):
        assert other == pytest.approx(one, rel=1e-4)


def test_an_epoch_has_the_numbers_of_its_examples(undisturbed):
    (epoch,) = undisturbed(strategy_of(2), MODELS["plain"], epochs=1, learning_rate=1e-9).epochs
    keras.utils.set_random_seed(42)
    model = dense()
    for part, prefix in ((EXAMPLES.train, ""), (EXAMPLES.test, "test_")):
        logits = model(part.inputs.astype(np.float32) / 255).numpy()
        losses = keras.losses.sparse_categorical_crossentropy(part.labels, logits, from_logits=True)
        assert epoch[f"{prefix}loss"] == pytest.approx(float(np.mean(losses)), rel=1e-4)
        accuracy = (logits.argmax(-1) == part.labels).mean()
        assert epoch[f"{prefix}accuracy"] == pytest.approx(accuracy)
    assert epoch["test_examples"] == 30


@pytest.mark.parametrize(
    "steps", [20, *(pytest.param(one, marks=pytest.mark.long) for one in (5, 10))]
)
def test_an_epoch_may_be_a_part_of_a_pass_or_several(run, undisturbed, steps):
    strategy, settings = strategy_of(1), {"steps_per_epoch": steps, "steps_per_call": 3}
    expected = undisturbed(strategy, MODELS["plain"], **settings)
    assert [line["step"] for line in expected.epochs] == [steps, 2 * steps, 3 * steps]
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2), **settings)
    resumed = run(strategy, MODELS["plain"], **settings)
    assert resumed.began > 0
    assert resumed.digest == expected.digest


@pytest.mark.parametrize(
    ("model", "meeting"),
    [
        ("dropout", 6),
        *(pytest.param("plain", meeting, marks=pytest.mark.long) for meeting in (1, 4, 8)),
    ],
)
def test_a_run_that_was_stopped_ends_bit_for_bit_the_same(run, undisturbed, model, meeting):
    strategy = strategy_of(1)
    expected = undisturbed(strategy, MODELS[model], steps_per_call="auto")
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS[model], StopsAt(meeting), steps_per_call="auto")
    resumed = run(strategy, MODELS[model], steps_per_call="auto")
    assert resumed.began > 0
    assert resumed.digest == expected.digest
    for one, other in zip(expected.epochs, resumed.epochs, strict=True):
        assert other == pytest.approx(one, rel=1e-6)


@tf.custom_gradient
def within_range(inputs):
    """Pass gradients on like a type whose largest number is 100."""

    def gradient(upstream):
        fits = tf.reduce_max(tf.abs(upstream)) < 100
        return tf.where(fits, upstream, float("inf"))

    return tf.identity(inputs), gradient


class NarrowGradients(keras.layers.Layer):
    def call(self, inputs):
        return within_range(inputs)


def test_a_run_goes_on_with_its_loss_scale(run, undisturbed):
    """With its first loss scale, the run would skip steps again."""
    strategy = strategy_of(1)

    def build():
        return dense(NarrowGradients())

    expected = undisturbed(strategy, build, precision="float16")
    with pytest.raises(StopRequestedError):
        run(strategy, build, StopsAt(2), precision="float16")
    resumed = run(strategy, build, precision="float16")
    assert resumed.began > 0
    assert resumed.digest == expected.digest


@pytest.mark.long
def test_replicas_go_on_together(run, undisturbed):
    """The bits are the same if BatchNorm is averaged in any case, as after an epoch's steps."""
    strategy, model, settings = strategy_of(2), MODELS["both"], {"steps_per_call": 7}
    expected = undisturbed(strategy, model, **settings)
    with pytest.raises(StopRequestedError):
        run(strategy, model, StopsAt(1), **settings)
    resumed = run(strategy, model, **settings)
    assert resumed.began > 0
    assert resumed.digest == expected.digest


@pytest.mark.parametrize(("first", "then"), [pytest.param(2, 4, marks=pytest.mark.long), (2, 1)])
def test_another_number_of_replicas_goes_on_with_the_same_global_batch(run, first, then):
    with pytest.raises(StopRequestedError):
        run(strategy_of(first), MODELS["plain"], StopsAt(2))
    resumed = run(strategy_of(then), MODELS["plain"])
    assert resumed.began > 0
    assert [epoch["epoch"] for epoch in resumed.epochs] == [1, 2, 3]


def step_of(file):
    return int(file.name.partition(".")[0])


def test_a_run_killed_between_two_checkpoints_goes_on_from_the_older_and_says_so(
    run, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "trainer")
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2), checkpoint_steps=2)
    *_, newest = sorted((tmp_path / "worker-0/checkpoints").iterdir())
    newest.write_bytes(b"")
    resumed = run(strategy, MODELS["plain"], checkpoint_steps=2)
    assert 0 < resumed.began <= step_of(newest)
    assert "no checkpoint on any worker: starting at step 0" in caplog.text
    assert f"saved the checkpoint of step {step_of(newest)}" in caplog.text
    assert f"resuming from step {resumed.began} held by worker-0" in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    quick_first(
        2,
        [
            (
                {"learning_rate": 0.1},
                'TRAINER_LEARNING_RATE: received "0.1"; accepted: 0.001, as in',
            ),
            ({"global_batch_size": 8}, 'TRAINER_GLOBAL_BATCH_SIZE: received "8"; accepted: 16'),
            ({"steps_per_epoch": 3}, 'TRAINER_STEPS_PER_EPOCH: received "3"; accepted: 7'),
            ({"epochs": 9}, "TRAINER_EPOCHS"),
            ({"metrics": "mse"}, 'TRAINER_METRICS: received "mse"'),
        ],
    ),
)
def test_another_run_is_refused_by_what_differs(stopped, settings, said):
    with pytest.raises(ConfigurationError) as refused:
        run_in(stopped, strategy_of(1), MODELS["plain"], **settings)
    assert said in str(refused.value)
    assert "held by worker-0" in str(refused.value)


def test_another_model_is_refused_by_what_differs(stopped):
    with pytest.raises(ConfigurationError) as refused:
        run_in(stopped, strategy_of(1), MODELS["batch-norm"])
    assert "batch_normalization/gamma float32[16]" in str(refused.value)


def test_a_run_may_get_more_epochs(run, undisturbed):
    strategy, constant = strategy_of(1), {"learning_rate_schedule": "constant"}
    expected = undisturbed(strategy, MODELS["plain"], epochs=3, **constant)
    run(strategy, MODELS["plain"], epochs=2, **constant)
    more = run(strategy, MODELS["plain"], epochs=3, **constant)
    assert more.began == 14
    assert [line["epoch"] for line in more.epochs] == [1, 2, 3]
    assert more.digest == expected.digest


def compiled():
    model = dense()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss)
    return model


@pytest.mark.long  # test_record.py covers a script's own optimizer
def test_a_run_of_a_compiled_model_may_get_more_epochs_whatever_the_schedule(run, undisturbed):
    strategy = strategy_of(1)
    expected = undisturbed(strategy, compiled, epochs=3)
    run(strategy, compiled, epochs=2)
    more = run(strategy, compiled, epochs=3)
    assert more.began == 14
    assert more.digest == expected.digest


@pytest.mark.long
def test_another_compiled_optimizer_is_refused(run):
    def other():
        model = compiled()
        model.optimizer.learning_rate = 0.5
        return model

    with pytest.raises(StopRequestedError):
        run(strategy_of(1), compiled, StopsAt(2))
    with pytest.raises(ConfigurationError, match="the optimizer"):
        run(strategy_of(1), other)


@pytest.mark.parametrize("steps", [pytest.param(3, marks=pytest.mark.long), 10])
def test_arrays_that_are_no_pairs_go_on_with_the_next_pass(run, steps):
    part = EXAMPLES.train
    given = (part.inputs.astype(np.float32), part.labels, np.ones(100))
    data = DataSet("weighted", given, given, 10)
    ended = run(strategy_of(2), dense, data=data, steps_per_epoch=steps)
    assert [line["step"] for line in ended.epochs] == [steps, 2 * steps, 3 * steps]


def test_a_model_that_makes_keras_functions_itself_is_refused(run):
    class Own(keras.Sequential):
        def make_train_function(self, force=False):  # noqa: FBT002  Keras's signature
            return super().make_train_function(force)

    with pytest.raises(ConfigurationError, match="make_train_function"):
        run(strategy_of(1), lambda: Own(dense().layers))


def test_without_the_engine_there_is_no_run(run, monkeypatch):
    monkeypatch.setattr(install, "is_installed", lambda: False)
    with pytest.raises(ConfigurationError, match='CLUSTER_TRAINER_ENGINE: received "off"'):
        run(strategy_of(1), MODELS["plain"])


def test_never_begins_anew_and_removes_what_was_there(run, tmp_path):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2))
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(1), resume="never")
    (left,) = (tmp_path / "worker-0/checkpoints").iterdir()
    assert step_of(left) == 2


def test_a_restart_goes_on_whatever_was_wished_at_the_start(run):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2), resume="never")
    assert run(strategy, MODELS["plain"], resume="never", is_restart=True).began > 0


def test_must_refuses_to_begin(run):
    with pytest.raises(ConfigurationError, match="no worker has a complete checkpoint"):
        run(strategy_of(1), MODELS["plain"], resume="must")


def test_0_steps_keep_no_checkpoint(run, tmp_path):
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=0)
    assert not (tmp_path / "worker-0/checkpoints").exists()
    assert not (tmp_path / "progress").exists()


def test_every_checkpoint_is_progress(run, tmp_path, monkeypatch):
    monkeypatch.setattr(saver, "FOLLOWED_SECONDS", 600.0)
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=5)
    # Steps 5, 10, 15 and 20, the evaluations of the first two epochs, and the end.
    assert len((tmp_path / "progress").read_text().splitlines()) == 4 + 2 + 1


def test_there_is_a_checkpoint_before_an_evaluation_that_lasts(run, tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_trainer.checkpoints.saver._Held.drop", lambda _: None)
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=5)
    assert len((tmp_path / "progress").read_text().splitlines()) == 4 + 2 * 3 + 1


@pytest.mark.long
def test_of_checkpoints_at_an_epochs_end_one_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(saver, "FOLLOWED_SECONDS", 600.0)
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=7)
    assert len((tmp_path / "progress").read_text().splitlines()) == 2 + 1


class StopsWhileEvaluating(StopRequest):
    """Asks to stop during the first evaluation."""

    def __init__(self, status):
        super().__init__(print)
        self._status = status

    @property
    def signal_number(self):
        return 15 if "evaluating" in self._status.read_text() else 0

    @signal_number.setter
    def signal_number(self, _):
        pass


def test_a_stop_within_an_evaluation_keeps_what_was_trained(
    run, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(saver, "FOLLOWED_SECONDS", 600.0)
    given, settings = (strategy_of(1), MODELS["dropout"]), {"steps_per_call": "auto"}
    expected = undisturbed(*given, **settings)
    with pytest.raises(StopRequestedError):
        run(*given, StopsWhileEvaluating(tmp_path / "status"), **settings)
    resumed = run(*given, **settings)
    assert resumed.began == 7
    assert resumed.digest == expected.digest


class NotedDeadline(Deadline):
    """Notes the limit of each call, in seconds."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def set_in(self, seconds):
        self.seconds.append(seconds)
        super().set_in(seconds)


def test_each_call_that_does_not_compile_has_the_runs_stall_limit(run):
    deadline = NotedDeadline()
    run(strategy_of(1), MODELS["plain"], deadline=deadline, stall_timeout_seconds=7)
    without_compiling = [seconds for seconds in deadline.seconds if seconds < LEAST_SECONDS]
    assert {*without_compiling} == {7}
    assert len(without_compiling) > SETTINGS["epochs"]


def test_status_is_told_how_far_a_fit_has_come(run, tmp_path):
    run(strategy_of(1), MODELS["plain"], epochs=2)
    told = json.loads((tmp_path / "status").read_text())
    assert (told["state"], told["detail"]) == ("running", "the fit is done")
    assert (told["step"], told["epoch"], told["epochs"]) == (14, 2, 2)
    assert told["until"] is None


def test_a_loss_that_is_no_number_ends_the_run_before_a_checkpoint(run, tmp_path):
    with pytest.raises(TrainingDivergedError, match=r"the loss is (nan|inf) after step \d+"):
        run(strategy_of(2), MODELS["plain"], learning_rate=1000, optimizer="sgd")
    assert not (tmp_path / "worker-0/checkpoints").exists()


def test_a_model_without_batch_norm_cannot_be_synchronised(tmp_path):
    config = TrainerConfig(run_dir=tmp_path, sync_batch_norm=True)
    with pytest.raises(ConfigurationError, match=r"SYNC_BATCH_NORM.* false for mnist_cnn"):
        build_model(config, EXAMPLES)


@pytest.mark.parametrize("size", [0, 1, 7, 8, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
def test_a_file_arrives_as_it_was_sent(size):
    # Each replica stands for a worker. The others give other bytes, of which none may arrive.
    content = np.random.default_rng(size).bytes(size)
    assert (
        WorkersOfStrategy(strategy_of(4), Replicas(total=4)).broadcast(content, holder=2) == content
    )


def test_all_workers_numbers_are_gathered():
    assert WorkersOfStrategy(strategy_of(4), Replicas(total=4, local=2)).gather(2**40) == [
        2**40,
        2**40,
    ]


def test_bfloat16_is_put_back():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, dtype="bfloat16")])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    state = State([*model.variables, *optimizer.variables])
    before = state.take()
    kernel = model.weights[0]
    kernel.assign(kernel.value + 1)
    state.put_back([array.view("V2") if array.dtype.itemsize == 2 else array for array in before])
    assert digest(state.take()) == digest(before)
