"""A fit that was interrupted, and goes on: in a new process, or in one that has trained before."""

import gc
import inspect
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.checkpoints.checkpoint import Checkpoint
from cluster_trainer.collectives import group
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import PeerLost
from cluster_trainer.engine import running
from cluster_trainer.engine.running import Running
from cluster_trainer.fits.kept_fit import KeptFit, Plan
from cluster_trainer.problems import PeerLostError, RehearsedError, StopRequestedError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
WANTED = ROWS.sum(axis=1, keepdims=True)


class Batches(keras.utils.PyDataset):
    """Counts the epochs that it was told of."""

    epochs = 0

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return ROWS[8 * index : 8 * index + 8], WANTED[8 * index : 8 * index + 8]

    def on_epoch_end(self):
        self.epochs += 1


class Dies(keras.callbacks.Callback):
    """Dies at the end of an epoch."""

    several_batches_a_call = True

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        if epoch == self.epoch:
            raise RuntimeError("killed")


@pytest.fixture
def keep(tmp_path):
    """Return a model, and its fit as it is kept by a process of its own."""

    def keep(stop=None, every=3, **given):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=every), Task())
        folder = tmp_path / "checkpoints"
        stop = stop or StopRequest(print)
        plan = Plan(job, stop, Deadline(), folder, described={}, **given)
        return model, KeptFit(plan, model)

    return keep


class Predicts(keras.callbacks.Callback):
    """Calls the model, at the end of an epoch, while somebody asks for a stop."""

    several_batches_a_call = True

    def __init__(self, stop, name):
        super().__init__()
        self.stop, self.name = stop, name

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.stop.signal_number = 15
        more = [WANTED] if self.name == "evaluate" else []
        getattr(self.model, self.name)(ROWS, *more, verbose=0)


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_a_stop_within_a_callbacks_own_call_ends_the_fit_where_it_is_kept(keep, name):
    stop = StopRequest(print)
    model, kept = keep(stop, every=200)
    calls = [Predicts(stop, name)]
    with running.fits_run_by(kept.run), pytest.raises(StopRequestedError):
        model.fit(ROWS, WANTED, batch_size=8, epochs=9, verbose=0, callbacks=calls)
    _, kept = keep()
    kept.find()
    assert kept.step > 5


def test_an_epoch_before_the_first_is_none_that_was_gone_through(keep):
    model, kept = keep()
    with running.fits_run_by(kept.run), pytest.raises(RuntimeError, match="killed"):
        model.fit(Batches(), initial_epoch=5, epochs=9, verbose=0, callbacks=[Dies(6)])
    model, kept = keep()
    batches = Batches()
    with running.fits_run_by(kept.run):
        model.fit(batches, initial_epoch=5, epochs=9, verbose=0)
    assert batches.epochs == 4
    assert kept.place.step == 20


def generated():
    """Yield batches for ever."""
    while True:
        yield ROWS[:8], WANTED[:8]


class SameBatches(keras.utils.PyDataset):
    """Nothing of it changes at the end of an epoch."""

    __len__, __getitem__ = Batches.__len__, Batches.__getitem__


class Examples:
    """Gives single examples."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        return ROWS[index], WANTED[index]


DATA = {
    "arrays": lambda: ROWS,
    "PyDataset": SameBatches,
    "examples": Examples,
    "PyDataset that changes": Batches,
    "generator": generated,
    "tf.data": lambda: tf.data.Dataset.from_tensor_slices((ROWS, WANTED)).batch(8),
}
BEGIN_AGAIN = ("arrays", "PyDataset", "examples")


@pytest.mark.parametrize("given", DATA)
def test_what_may_have_been_read_does_not_begin_again(keep, given):
    """A worker may be lost before Keras has made anything of the data, and after it has read."""

    def lost(*_):
        raise PeerLost("rank 1 was lost", 1)

    def begins_again(**arguments):
        model, kept = keep()
        given = inspect.signature(model.fit).bind(**arguments)
        with pytest.raises(PeerLost):
            kept.run(lost, given, Running())
        return kept.begins_again

    data = DATA[given]()
    assert begins_again(x=data) == (given in BEGIN_AGAIN)
    assert begins_again(x=ROWS, validation_data=data) == (given in BEGIN_AGAIN)


def test_a_model_that_was_trained_does_not_begin_at_step_0(keep):
    """No disk could keep a checkpoint, say."""
    _, kept = keep(has_trained=True)
    with pytest.raises(PeerLostError):
        kept.find()


def failed(keep, rows):
    """Let a fit fail in its middle; return what was kept."""
    model, kept = keep()
    try:
        with running.fits_run_by(kept.run):
            model.fit(rows, batch_size=8, epochs=9, verbose=0, callbacks=[Dies(3)])
    except RuntimeError:
        return kept
    raise AssertionError("it has not failed")


def test_a_fit_that_has_failed_holds_no_checkpoint_and_no_thread(keep):
    """One loss after the other is survived in the same process; collecting garbage takes long."""
    gc.disable()
    try:
        kept = [failed(keep, Examples()) for _ in range(3)]
        held = [one for one in gc.get_objects() if isinstance(one, Checkpoint) and one.arrays]
    finally:
        gc.enable()
    assert not held
    assert kept[-1].begins_again
    assert kept[-1].step > 0
    assert not [one for one in threading.enumerate() if one.name.startswith("saver")]


def test_a_source_has_one_reader_at_a_time(keep):
    """What has read it until now may still do so when another fit begins."""
    busy, together = threading.Lock(), []

    class Slow(Examples):
        def __getitem__(self, index):
            together.append(not busy.acquire(blocking=False))
            time.sleep(0.002)
            busy.release()
            return super().__getitem__(index)

    rows = Slow()
    for _ in range(3):
        failed(keep, rows)
    assert not any(together)


class Proxy:
    """Stands for a callback, and has none of its methods itself."""

    def __init__(self, callback):
        self.callback = callback

    def __getattr__(self, name):
        return getattr(self.callback, name)


class Bare:
    """Has none of a callback's methods."""


class Prepares(keras.callbacks.Callback):
    """A user's own."""

    def on_train_begin(self, logs=None):
        pass


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (keras.callbacks.History(), False),
        (Prepares(), True),
        (Proxy(keras.callbacks.History()), False),
        (Proxy(Prepares()), True),
        (Bare(), False),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_may_prepare_a_model_is_known_of_callbacks_of_any_kind(callback, expected):
    assert bool(running.prepares([callback])) == expected


def nobody():
    raise AssertionError("the others were met")


@pytest.fixture
def late():
    """A ring of three workers, of which this one comes late, and rehearses."""
    ring = RenewableRing(nobody, most=3, comes_late=True)
    group.use(ring)
    with ring.rehearsed():
        yield ring
    group.use(None)


def rehearsed(kept, model, *given, steps_a_call=None, **arguments):
    """Rehearse a fit; return what it ends with."""

    def around(fit, given, call):
        call.steps_a_call = steps_a_call
        return kept.run(fit, given, call)

    with running.fits_run_by(around), pytest.raises(RehearsedError) as ended:
        model.fit(*given, epochs=2, verbose=0, **arguments)
    return ended.value


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("executed", [1, 50])
def test_one_step_is_rehearsed_however_long_a_call_is(keep, executed):
    """With the next one a stop would wait, and so would those who are to take this worker in."""
    model, kept = keep(rehearses=True)
    model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=executed)
    rehearsed(kept, model, ROWS, WANTED, batch_size=1, steps_a_call=50)
    assert int(model.optimizer.iterations.numpy()) == 1
