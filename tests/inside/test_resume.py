"""A run that was interrupted anywhere ends as one that was not."""

import logging
from dataclasses import asdict, dataclass
from itertools import count

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_loop import pictures

from cluster_trainer.build import build_optimizer
from cluster_trainer.checkpoints.state import State
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import CHUNK_BYTES, Workers
from cluster_trainer.config import TrainerConfig
from cluster_trainer.data.examples import DataSet
from cluster_trainer.job import Job
from cluster_trainer.loop import Loop
from cluster_trainer.pace import Pace
from cluster_trainer.problems import ConfigurationError, StopRequestedError
from cluster_trainer.report import Reporter
from cluster_trainer.run import Run
from cluster_trainer.stall import Deadline, StallLimit
from cluster_trainer.stop import StopRequest
from cluster_trainer.task import Task
from cluster_trainer.train import make_plan
from cluster_trainer.weights import digest
from conftest import strategy_of

GLOBAL_BATCH = 16
SETTINGS = {"epochs": 3, "global_batch_size": GLOBAL_BATCH, "steps_per_call": 2}
EXAMPLES = DataSet("noise", pictures(100), pictures(30), 10)  # 7 steps an epoch, the last one short


def dense(*more):
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(16)]
    return keras.Sequential([*layers, *more, keras.layers.Dense(10)])


MODELS = {
    "plain": dense,
    "dropout": lambda: dense(keras.layers.Dropout(0.5)),
    "batch-norm": lambda: dense(keras.layers.BatchNormalization()),
}


@dataclass(frozen=True)
class Ended:
    """How a run ended: the weights' digest, each epoch's numbers, and where it began."""

    digest: str
    epochs: list
    began: int


class StopsAt(StopRequest):
    """Somebody asks to stop while the n-th call runs."""

    def __init__(self, call):
        super().__init__(print)
        self._calls, self._stop_at = count(1), call

    @property
    def signal_number(self):
        return 15 if next(self._calls) >= self._stop_at else 0

    @signal_number.setter
    def signal_number(self, _):
        pass


@pytest.fixture
def run(tmp_path):
    """Run to the end, or until the stop; what is kept lies in one folder for all of them."""

    def go(strategy, build, stop=None, *, is_restart=False, **settings):
        keras.backend.clear_session()  # so that names are those of a new process
        environ = {f"TRAINER_{n.upper()}": str(v) for n, v in (SETTINGS | settings).items()}
        config = TrainerConfig.read({"TRAINER_RUN_DIR": str(tmp_path)} | environ, [])
        job = Job(config, Task(), tmp_path / "progress", is_restart=is_restart)
        job.folder.mkdir(exist_ok=True)
        plan = make_plan(config, EXAMPLES, strategy.num_replicas_in_sync)
        with strategy.scope():
            keras.utils.set_random_seed(config.seed)
            model = build()
            loop = Loop(strategy, model, build_optimizer(config, plan.steps, GLOBAL_BATCH))
        made = Run(job, plan, EXAMPLES, loop)
        stall = StallLimit(Deadline(), "auto")
        pace = Pace(loop, config.steps_per_call, stop or StopRequest(print), stall)
        completed = made.complete(pace, Reporter(job.folder, config.epochs))
        timeless = [
            {k: v for k, v in asdict(epoch).items() if k not in ("seconds", "examples_per_second")}
            for epoch in completed.epochs
        ]
        return Ended(digest(completed.weights), timeless, completed.first_step)

    return go


@pytest.fixture
def undisturbed(run, tmp_path_factory):
    """Run without a stop, in another folder."""

    def go(*arguments, **settings):
        other = tmp_path_factory.mktemp("undisturbed")
        return run(*arguments, run_dir=other, **settings)

    return go


@pytest.mark.parametrize(
    ("model", "call"), [("plain", 1), ("plain", 4), ("plain", 9), ("dropout", 6)]
)
def test_a_run_that_was_stopped_ends_bit_for_bit_the_same(run, undisturbed, model, call):
    strategy = strategy_of(1)
    expected = undisturbed(strategy, MODELS[model])
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS[model], StopsAt(call))
    resumed = run(strategy, MODELS[model])
    assert resumed.began > 0
    assert resumed.digest == expected.digest
    assert resumed.epochs == expected.epochs


@tf.custom_gradient
def within_range(inputs):
    """Let gradients through like a type whose largest number is 100."""

    def gradient(upstream):
        fits = tf.reduce_max(tf.abs(upstream)) < 100
        return tf.where(fits, upstream, float("inf"))

    return tf.identity(inputs), gradient


class NarrowGradients(keras.layers.Layer):
    def call(self, inputs):
        return within_range(inputs)


def test_a_run_goes_on_with_its_loss_scale(run, undisturbed):
    """With the scale of a run's beginning it would skip steps again."""
    strategy = strategy_of(1)

    def build():
        return dense(NarrowGradients())

    expected = undisturbed(strategy, build, precision="float16")
    with pytest.raises(StopRequestedError):
        run(strategy, build, StopsAt(6), precision="float16")
    assert run(strategy, build, precision="float16").digest == expected.digest


@pytest.mark.parametrize("model", MODELS)
def test_replicas_go_on_together(run, undisturbed, model):
    strategy = strategy_of(4)
    expected = undisturbed(strategy, MODELS[model])
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS[model], StopsAt(4))
    resumed = run(strategy, MODELS[model])
    assert resumed.began == 7  # the fourth call ends the epoch of seven steps
    assert resumed.digest == expected.digest


@pytest.mark.parametrize(("first", "then"), [(4, 2), (2, 4), (4, 1)])
def test_another_number_of_replicas_goes_on_with_the_same_global_batch(run, first, then):
    with pytest.raises(StopRequestedError):
        run(strategy_of(first), MODELS["plain"], StopsAt(5))
    resumed = run(strategy_of(then), MODELS["plain"])
    assert resumed.began > 0
    assert [epoch["epoch"] for epoch in resumed.epochs] == [1, 2, 3]


def test_a_run_killed_between_two_checkpoints_goes_on_from_the_older(run, tmp_path):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(6), checkpoint_steps=2)
    newest = max((tmp_path / "worker-0/checkpoints").iterdir())
    newest.write_bytes(b"")
    resumed = run(strategy, MODELS["plain"], checkpoint_steps=2)
    assert 0 < resumed.began < int(newest.name.partition("-")[0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": 0.1}, 'TRAINER_LEARNING_RATE: received "0.1"; accepted: 0.001, as in'),
        ({"global_batch_size": 8}, 'TRAINER_GLOBAL_BATCH_SIZE: received "8"; accepted: 16'),
        ({"steps_per_epoch": 3}, 'TRAINER_STEPS_PER_EPOCH: received "3"; accepted: 7'),
        ({"epochs": 9}, "TRAINER_EPOCHS"),
    ],
)
def test_another_run_is_refused_by_what_differs(run, settings, said):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2))
    with pytest.raises(ConfigurationError) as refused:
        run(strategy, MODELS["plain"], **settings)
    assert said in str(refused.value)
    assert "held by worker-0" in str(refused.value)


def test_another_model_is_refused_by_what_differs(run):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2))
    with pytest.raises(ConfigurationError) as refused:
        run(strategy, MODELS["batch-norm"])
    assert "batch_normalization/gamma float32[16]" in str(refused.value)


def test_never_begins_anew_and_removes_what_was_there(run, tmp_path):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(9))
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(1), resume="never")
    (left,) = (tmp_path / "worker-0/checkpoints").iterdir()
    assert left.name.startswith("00000002-")


def test_a_restart_goes_on_whatever_was_wished_at_the_start(run):
    strategy = strategy_of(1)
    with pytest.raises(StopRequestedError):
        run(strategy, MODELS["plain"], StopsAt(2), resume="never")
    assert run(strategy, MODELS["plain"], resume="never", is_restart=True).began > 0


def test_must_refuses_to_begin(run):
    with pytest.raises(ConfigurationError, match="no worker holds a whole checkpoint"):
        run(strategy_of(1), MODELS["plain"], resume="must")


def test_0_steps_keep_no_checkpoint(run, tmp_path):
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=0)
    assert not (tmp_path / "worker-0/checkpoints").exists()
    assert not (tmp_path / "progress").exists()


def test_every_checkpoint_is_progress(run, tmp_path):
    run(strategy_of(1), MODELS["plain"], checkpoint_steps=5)
    # 5, 7 (an epoch), 10, 14, 15, 20, 21
    assert len((tmp_path / "progress").read_text().splitlines()) == 7


def test_the_log_says_where_a_run_goes_on(run, caplog):
    logging.getLogger("trainer").propagate = True
    logging.getLogger("trainer").setLevel(logging.INFO)
    with pytest.raises(StopRequestedError):
        run(strategy_of(1), MODELS["plain"], StopsAt(2))
    run(strategy_of(1), MODELS["plain"])
    assert "no checkpoint on any worker: starting at step 0" in caplog.text
    assert "saved the checkpoint of step 4" in caplog.text
    assert "resuming from step 4 held by worker-0" in caplog.text


@pytest.mark.parametrize("size", [0, 1, 7, 8, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
def test_a_file_arrives_as_it_was_sent(size):
    # Each replica stands for a worker. The others give other bytes, of which none may arrive.
    content = np.random.default_rng(size).bytes(size)
    assert Workers(strategy_of(4), Replicas(total=4)).broadcast(content, holder=2) == content


def test_all_workers_numbers_are_gathered():
    assert Workers(strategy_of(4), Replicas(total=4, local=2)).gather(2**40) == [2**40, 2**40]


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
