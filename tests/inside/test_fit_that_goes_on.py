"""An interrupted fit goes on, in a new process or in one that has trained before."""

import gc
import inspect
import json
import random
import re
import shutil
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by

from cluster_trainer import train
from cluster_trainer.callbacks import progress_display
from cluster_trainer.callbacks.chief import for_worker
from cluster_trainer.checkpoints.checkpoint import RUN, UNKNOWN_RUN, Checkpoint, Stage
from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.rehearsal import Rehearsal
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.ring.errors import OtherCall, PeerLost, PeerUnfit
from cluster_trainer.engine import running
from cluster_trainer.engine.replicas import of_model
from cluster_trainer.engine.running import Running
from cluster_trainer.fits.kept import checkpoint_callback
from cluster_trainer.fits.kept.coordinator import Coordinator
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.problems import (
    NotRehearsedError,
    PeerLostError,
    RehearsedError,
    StopRequestedError,
    WorkerIsBackError,
)
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first

IS_BUSY = Saver.is_busy  # before a fixture has changed that
ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
WANTED = ROWS.sum(axis=1, keepdims=True)


class Batches(keras.utils.PyDataset):
    """Counts the calls of `on_epoch_end`."""

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
def keep(tmp_path, began):
    """Return a function that makes a model and its kept fit, as a new process does."""

    def keep(stop=None, every=3, job=None, **given):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        config = TrainerConfig(run_dir=tmp_path, checkpoint_steps=every)
        job = Job(config, **({"task": Task()} | (job or {})))
        folder = tmp_path / "checkpoints"
        stop = stop or StopRequest(print)
        options = FitOptions(job, stop, Deadline(), folder, described={}, found=began.note, **given)
        return model, KeptFit(options, model)

    return keep


class Listens:
    """Notes the speeds that a fit tells."""

    def __init__(self):
        self.told = []

    def __call__(self, progress):
        self.told.append((progress.examples_per_second, progress.steps_per_second))


@pytest.mark.parametrize("counts", [True, False])
def test_a_scripts_fit_tells_how_fast_it_is(keep, monkeypatch, counts):
    """The speed is in examples if their number is known, as with arrays, else in steps."""
    monkeypatch.setattr(progress_display, "BETWEEN_SECONDS", 0.0)
    listens = Listens()
    model, kept = keep(tell=listens)
    data = {"x": ROWS, "y": WANTED, "batch_size": 8} if counts else {"x": SameBatches()}
    with fits_run_by(kept.run):
        model.fit(**data, epochs=3, verbose=0)
    examples, steps = listens.told[-1]
    assert steps > 0
    assert examples == pytest.approx(8 * steps) if counts else examples is None


class Predicts(keras.callbacks.Callback):
    """Calls the model at the end of an epoch, after a request to stop."""

    several_batches_a_call = True

    def __init__(self, stop, name):
        super().__init__()
        self.stop, self.name = stop, name

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.stop.signal_number = 15
        more = [WANTED] if self.name == "evaluate" else []
        getattr(self.model, self.name)(ROWS, *more, verbose=0)


@pytest.mark.parametrize("name", quick_first(1, ["predict", "evaluate"]))
def test_a_stop_within_a_callbacks_own_call_ends_the_fit_where_it_is_kept(keep, name):
    stop = StopRequest(print)
    model, kept = keep(stop, every=200)
    calls = [Predicts(stop, name)]
    with fits_run_by(kept.run), pytest.raises(StopRequestedError):
        model.fit(ROWS, WANTED, batch_size=8, epochs=9, verbose=0, callbacks=calls)
    _, kept = keep()
    kept.find()
    assert kept.step > 5


def test_an_epoch_before_the_first_is_none_that_was_gone_through(keep, began):
    model, kept = keep()
    with fits_run_by(kept.run), pytest.raises(RuntimeError, match="killed"):
        model.fit(Batches(), initial_epoch=5, epochs=9, verbose=0, callbacks=[Dies(6)])
    model, kept = keep()
    batches = Batches()
    with fits_run_by(kept.run):
        model.fit(batches, initial_epoch=5, epochs=9, verbose=0)
    assert began == [0, 9]
    assert batches.epochs == 4
    assert kept.place.step == 20


def generated():
    """Yield different batches for ever."""
    draws = np.random.default_rng(1)
    while True:
        rows = draws.integers(0, len(ROWS), 8)
        yield ROWS[rows], WANTED[rows]


class SameBatches(keras.utils.PyDataset):
    """Does not change at the end of an epoch."""

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


def lost(*_):
    raise PeerLost("rank 1 was lost", 1)


@pytest.mark.parametrize("given", quick_first(3, DATA))
def test_what_may_have_been_read_does_not_begin_again(keep, given):
    """A worker may be lost before Keras has read any data, or after."""

    def begins_again(**arguments):
        model, kept = keep()
        given = inspect.signature(model.fit).bind(**arguments)
        with pytest.raises(PeerLost):
            kept.run(lost, given, Running())
        return kept.begins_again

    data = DATA[given]()
    assert begins_again(x=data) == (given in BEGIN_AGAIN)
    assert begins_again(x=ROWS, validation_data=data) == (given in BEGIN_AGAIN)


class DiesAfter(keras.callbacks.Callback):
    """Dies after a batch."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002  Keras gives them by name
        if int(self.model.optimizer.iterations) == self.steps:
            raise RuntimeError("killed")


@pytest.mark.parametrize(
    ("name", "options"),
    quick_first(1, [("examples", {"batch_size": 8}), ("generator", {"steps_per_epoch": 5})]),
)
def test_whatever_its_data_a_fit_that_was_killed_ends_to_the_same_bits(
    keep, tmp_path, caplog, name, options
):
    """tests/cluster/test_kept_fit.py covers arrays, a PyDataset and a tf.data.Dataset."""

    def fit(*callbacks):
        model, kept = keep()
        with fits_run_by(kept.run):
            model.fit(DATA[name](), callbacks=callbacks, epochs=4, verbose=0, **options)
        return model.get_weights()

    expected = fit()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(RuntimeError, match="killed"):
        fit(DiesAfter(random.Random(name).randrange(4, 20)))
    _, kept = keep()
    kept.find()
    with caplog.at_level("INFO", "trainer"):
        found = fit()
    assert kept.step > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    said = re.findall(r"the data continue with batch (\d+) of pass 1:", caplog.text)
    assert said == ([str(kept.step + 1)] if name == "generator" else [])


def test_a_model_that_was_trained_does_not_begin_at_step_0(keep):
    """This happens if no disk could keep a checkpoint."""
    _, kept = keep(has_trained=True)
    with pytest.raises(PeerLostError):
        kept.find()


class Prepares(keras.callbacks.Callback):
    """Could do anything to the model."""

    several_batches_a_call = True

    def on_train_begin(self, logs=None):
        """Do nothing, as it happens."""


@pytest.mark.parametrize(
    "own", quick_first(1, [[], [Prepares()], [keras.callbacks.EarlyStopping("loss")]])
)
def test_a_fit_has_trained_nothing_until_its_first_step_is_traced(keep, monkeypatch, own):
    """If a worker is lost by then, it can begin at step 0, unless a callback has had the model."""
    model, kept = keep()
    monkeypatch.setattr(Coordinator, "check", lost)
    with fits_run_by(kept.run), pytest.raises(PeerLost):
        model.fit(ROWS, WANTED, batch_size=8, verbose=0, callbacks=own)
    assert kept.has_trained == any(isinstance(one, Prepares) for one in own)


@pytest.mark.parametrize("hook", quick_first(1, running.BEGINNING_HOOKS))
def test_a_callback_that_loses_a_worker_as_it_begins_may_have_trained(keep, hook):
    """It may have run its own fit, to warm the model up."""
    model, kept = keep()
    own = keras.callbacks.Callback()
    setattr(own, hook, lost)
    with fits_run_by(kept.run), pytest.raises(PeerLost):
        model.fit(ROWS, WANTED, batch_size=8, verbose=0, callbacks=[own])
    assert kept.has_trained


@pytest.mark.long
def test_no_callback_has_trained_before_it_is_given_the_model(keep):
    model, kept = keep()
    given = inspect.signature(model.fit).bind(x=ROWS, callbacks=[Prepares()])
    with pytest.raises(PeerLost):
        kept.run(lost, given, Running())
    assert not kept.has_trained


@pytest.mark.long
def test_a_fit_that_has_done_its_first_step_has_trained(keep):
    assert failed(keep, Examples()).has_trained


def failed(keep, rows):
    """Run a fit that fails in its middle; return its KeptFit."""
    model, kept = keep()
    try:
        with fits_run_by(kept.run):
            model.fit(rows, batch_size=8, epochs=9, verbose=0, callbacks=[Dies(3)])
    except RuntimeError:
        return kept
    raise AssertionError("it has not failed")


def test_a_fit_that_has_failed_holds_no_checkpoint_and_no_thread(keep):
    """One process may survive many losses, and garbage collection comes too late to free memory."""
    gc.disable()
    try:
        kept = [failed(keep, Examples()) for _ in range(2)]
        held = [one for one in gc.get_objects() if isinstance(one, Checkpoint) and one.arrays]
    finally:
        gc.enable()
    assert not held
    assert kept[-1].begins_again
    assert kept[-1].step > 0
    assert not [one for one in threading.enumerate() if one.name.startswith("saver")]


def test_a_run_has_one_number_however_often_it_begins(keep, tmp_path):
    def number():
        return Checkpoint.from_bytes(Store(tmp_path / "checkpoints").newest().content).run

    failed(keep, Examples())
    first = number()
    model, kept = keep()
    with fits_run_by(kept.run):
        model.fit(Examples(), batch_size=8, epochs=9, verbose=0)
    assert number() == first != UNKNOWN_RUN
    shutil.rmtree(tmp_path / "checkpoints")
    failed(keep, Examples())  # with the same seeds
    assert number() != first


@pytest.mark.long
def test_a_run_of_an_earlier_version_goes_on_and_gets_a_number(keep, began, tmp_path):
    failed(keep, Examples())
    store = Store(tmp_path / "checkpoints")
    saved = Checkpoint.from_bytes(store.newest().content)
    progress = {name: value for name, value in saved.progress.items() if name != RUN}
    store.write(saved.number, replace(saved, progress=progress).to_bytes())
    model, kept = keep()
    with fits_run_by(kept.run):
        model.fit(Examples(), batch_size=8, epochs=9, verbose=0)
    assert began[-1] > 0
    assert kept.place.step == 45
    assert Checkpoint.from_bytes(store.newest().content).run != UNKNOWN_RUN


def of_arrays():
    return ROWS, WANTED


def of_dataset():
    return (SameBatches(),)


class Shortens(keras.callbacks.Callback):
    """Ends each epoch after two batches, but never the fit; may die at the end of an epoch."""

    def __init__(self, dies_in=None):
        super().__init__()
        self.dies_in = dies_in

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.model.stop_training = batch == 1

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        self.model.stop_training = False
        if epoch == self.dies_in:
            raise RuntimeError("killed")


PASSES, STEPS = (None, (2, 0)), (3, (0, 4))


@pytest.mark.parametrize(
    ("of", "steps_per_epoch", "place"),
    [
        pytest.param(of_arrays, *STEPS, id="arrays-steps"),
        pytest.param(of_dataset, *PASSES, id="dataset-passes"),
        pytest.param(of_arrays, *PASSES, id="arrays-passes", marks=pytest.mark.long),
        pytest.param(of_dataset, *STEPS, id="dataset-steps", marks=pytest.mark.long),
    ],
)
def test_a_fit_of_shortened_epochs_goes_on_with_the_batch_that_comes_next(
    keep, of, steps_per_epoch, place
):
    def fit(model, dies_in=None):
        data = of() if len(of()) == 1 else (*of(), 8)
        given = {"epochs": 4, "steps_per_epoch": steps_per_epoch, "shuffle": False, "verbose": 0}
        model.fit(*data, callbacks=[Shortens(dies_in)], **given)
        return model.get_weights()

    expected = fit(keep()[0])
    model, kept = keep()
    with fits_run_by(kept.run), pytest.raises(RuntimeError, match="killed"):
        fit(model, dies_in=2)
    model, kept = keep()
    kept.find()
    assert (kept.place.step, kept.place.passes, kept.place.seen) == (4, *place)
    with fits_run_by(kept.run):
        np.testing.assert_allclose(fit(model)[0], expected[0], rtol=1e-5)


def test_a_source_has_one_reader_at_a_time(keep):
    """Threads of a failed fit may still read when the next fit begins."""
    busy, together = threading.Lock(), []

    class Slow(Examples):
        def __getitem__(self, index):
            together.append(not busy.acquire(blocking=False))
            time.sleep(0.002)
            busy.release()
            return super().__getitem__(index)

    rows = Slow()
    for _ in range(2):
        failed(keep, rows)
    assert not any(together)


class Proxy:
    """Forwards to a callback, and has none of its methods itself."""

    def __init__(self, callback):
        self.callback = callback

    def __getattr__(self, name):
        return getattr(self.callback, name)


class Bare:
    """Has none of a callback's methods."""


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (keras.callbacks.History(), False),
        (Prepares(), True),
        (Proxy(keras.callbacks.History()), False),
        (Proxy(Prepares()), True),
        (Bare(), False),
        (
            for_worker([keras.callbacks.ModelCheckpoint("x.keras")], is_chief=False, keeps=True)[0],
            False,
        ),
        (keras.callbacks.LambdaCallback(on_epoch_end=print), False),
        (keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: None), True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_may_prepare_a_model_is_known_of_callbacks_of_any_kind(callback, expected):
    assert bool(running.prepares([callback])) == expected


def nobody():
    raise AssertionError("the others were met")


@pytest.fixture
def late():
    """A ring of three workers; this worker comes late, and rehearses."""
    ring = RenewableRing(nobody, most=3, comes_late=True)
    process_ring.use(ring)
    with ring.rehearsed():
        yield ring
    process_ring.use(None)


def in_calls_of(steps, kept):
    """Return a function that runs a fit in calls of that many steps; None: of a second each."""

    def around(fit, given, call):
        order = replace(call.order, steps_a_call=steps)
        return kept.run(fit, given, replace(call, order=order))

    return around


def rehearsed(kept, model, *given, steps_a_call=None, **arguments):
    """Rehearse a fit; return the error that it ends with."""

    with (
        fits_run_by(in_calls_of(steps_a_call, kept)),
        pytest.raises(RehearsedError) as ended,
    ):
        model.fit(*given, epochs=2, verbose=0, **arguments)
    return ended.value


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("executed", [pytest.param(1, marks=pytest.mark.long), 50])
def test_one_step_is_rehearsed_however_long_a_call_is(keep, executed):
    """A second step would delay a stop, and the workers that wait to take this worker in."""
    model, kept = keep(rehearses=True)
    model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=executed)
    rehearsed(kept, model, ROWS, WANTED, batch_size=1, steps_a_call=50)
    assert int(model.optimizer.iterations.numpy()) == 1


def traces_of(model):
    """Return how often the training step was traced."""
    steps = model.train_function
    return steps._many.experimental_get_tracing_count() if steps else 0  # noqa: SLF001


def left_threads():
    """Return the threads of a fit that are still alive after up to 5 s."""
    found = [one for one in threading.enumerate() if one.name.startswith(("saver", "labour"))]
    for one in found:
        one.join(5)
    return [one for one in found if one.is_alive()]


def test_a_rehearsal_compiles_a_step_and_leaves_nothing_else(late, keep, tmp_path):
    model, kept = keep(every=1, rehearses=True)
    ended = rehearsed(kept, model, ROWS, WANTED, batch_size=8, validation_data=(ROWS, WANTED))
    assert not isinstance(ended, NotRehearsedError)
    assert not late.is_met
    assert traces_of(model) == 1
    assert [*tmp_path.iterdir()] == []
    assert left_threads() == []


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("every", quick_first(1, [1, 0]))
def test_what_a_checkpoint_takes_from_all_workers_is_compiled_too(keep, every):
    _, kept = keep(every=every, rehearses=True)
    layers = [keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse", metrics=["mae"])
    rehearsed(KeptFit(kept._options, model), model, ROWS, WANTED, batch_size=8)  # noqa: SLF001
    functions = of_model.of(model).functions
    assert functions["average"][1].experimental_get_tracing_count() == 1
    assert ("metrics" in functions) == bool(every)


class SetsModel(keras.callbacks.Callback):
    def set_model(self, model):
        super().set_model(model)


class Begins(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        del logs


OWN_CALLBACKS = {
    "SetsModel": SetsModel,
    "Begins": Begins,
    "LambdaCallback": lambda: keras.callbacks.LambdaCallback(on_epoch_begin=print),
}


@pytest.mark.parametrize("name", quick_first(1, OWN_CALLBACKS))
def test_with_a_callback_that_may_prepare_the_model_nothing_is_compiled(late, keep, tmp_path, name):
    model, kept = keep(rehearses=True)
    callbacks = [OWN_CALLBACKS[name](), Dies(3)]
    ended = rehearsed(kept, model, ROWS, WANTED, batch_size=8, callbacks=callbacks)
    assert str(ended) == f"{name} may prepare the model"
    assert nothing_was_done(model, tmp_path)
    assert not late.is_met


def nothing_was_done(model, folder):
    return not (traces_of(model) or left_threads() or [*folder.iterdir()])


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    ("of", "name"),
    quick_first(
        1,
        [
            *[("training", "tf.data"), ("training", "generator"), ("validation", "generator")],
            *(
                *(("validation", "tf.data"), ("validation", "PyDataset that changes")),
                ("training", "PyDataset that changes"),
            ),
        ],
    ),
)
def test_with_data_that_are_gone_through_once_nothing_is_compiled(keep, tmp_path, name, of):
    model, kept = keep(rehearses=True)
    data, rows = DATA[name](), (ROWS, WANTED)
    given, tests = ((data,), rows) if of == "training" else (rows, data)
    limits = {"steps_per_epoch": 5, "validation_steps": 5}
    ended = rehearsed(kept, model, *given, validation_data=tests, **limits)
    assert isinstance(ended, NotRehearsedError)
    assert "once" in str(ended)
    assert nothing_was_done(model, tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("late")
def test_a_fit_without_a_step_is_no_rehearsal(keep, tmp_path):
    model, kept = keep(rehearses=True)
    ended = rehearsed(kept, model, ROWS, WANTED, initial_epoch=2)
    assert str(ended) == "this fit has no step to do"
    assert [*tmp_path.iterdir()] == []


class Alike(Rehearsal):
    """A ring whose other workers do and say the same as this worker."""

    operations, is_closed, error = 0, False, None

    def close(self):
        pass

    def doubt(self, seconds):
        pass


class Looks:
    """Reports that rank 1 is a newcomer."""

    began_together = False

    def look(self, _):
        return frozenset({1})

    def trust(self, ring):
        pass


@pytest.fixture
def alike():
    """A ring of this worker and a newcomer, of three workers."""
    ring = RenewableRing(lambda: Alike(2), most=3, looks=Looks())
    process_ring.use(ring)
    yield ring
    process_ring.use(None)


def test_a_newcomer_is_trusted_once_it_has_been_through_an_epoch(alike, keep):
    """The epoch includes its validation."""
    new = []

    def note(*_):
        new.append(len(alike.newcomers))

    model, kept = keep()
    noting = keras.callbacks.LambdaCallback(on_epoch_begin=note, on_epoch_end=note)
    given = {"batch_size": 8, "epochs": 2, "verbose": 0, "validation_data": (ROWS, WANTED)}
    with fits_run_by(kept.run):
        model.fit(ROWS, WANTED, callbacks=[noting], **given)
    assert new == [1, 1, 1, 0]


@pytest.mark.long
@pytest.mark.usefixtures("alike")
def test_a_newcomer_at_another_call_is_lost_around_the_trainers_fit_too(tmp_path, monkeypatch):
    def other_call(*_):
        raise OtherCall("rank 1 is at predict", 1)

    monkeypatch.setattr(train, "start_strategy", other_call)
    job = Job(TrainerConfig(run_dir=tmp_path), Task())
    reporter = SimpleNamespace(asks_for_ring=None)
    with pytest.raises(PeerUnfit, match="at predict"):
        train.train_and_evaluate(job, StopRequest(print), Deadline(), reporter)


@pytest.mark.usefixtures("alike")
def test_a_worker_that_is_back_while_a_fit_validates_ends_it_there(keep, began):
    """The trained steps are kept, and the epoch goes on with its validation."""
    own, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    news = json.dumps({"waiting": ["worker-2"]}).encode()
    arrives = keras.callbacks.LambdaCallback(on_test_begin=lambda _: own.send(news))
    given = {"batch_size": 8, "epochs": 2, "verbose": 0, "validation_data": (ROWS, WANTED)}
    with own, commands:
        of_three = {"task": Task("worker", 0, 3), "group_socket": str(commands.fileno())}
        model, kept = keep(every=200, may_take_in=True, job=of_three)
        with fits_run_by(kept.run), pytest.raises(WorkerIsBackError, match="worker-2"):
            model.fit(ROWS, WANTED, callbacks=[arrives], **given)
    assert kept.place.stage == Stage.TRAINED
    assert kept.step == 5
    model, kept = keep()
    with fits_run_by(kept.run):
        history = model.fit(ROWS, WANTED, **given)
    assert began == [0, 5]
    assert kept.step == 10
    assert history.epoch == [0, 1]
    assert len(history.history["val_loss"]) == 2


@pytest.mark.parametrize(
    "size", quick_first(1, [8, 7]), ids=["whole batches", "a last one that is short"]
)
def test_training_is_over_before_validation_if_nobody_knew_how_many_batches_there_are(keep, size):
    """The data end with a call of one step: the next call finds no batch."""
    stages = []
    looks = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: None,
        on_test_begin=lambda _: stages.append((kept.step, kept.place.stage)),
    )
    model, kept = keep()
    rows = tf.data.Dataset.from_tensor_slices((ROWS[:32], WANTED[:32])).batch(size)
    rows = rows.filter(lambda *_: True)
    with fits_run_by(kept.run):
        given = {"validation_data": (ROWS, WANTED), "callbacks": [looks], "verbose": 0}
        model.fit(rows, epochs=2, **given)
    of_an_epoch = -(-32 // size)
    assert stages == [(of_an_epoch, Stage.TRAINED), (2 * of_an_epoch, Stage.TRAINED)]


@pytest.mark.parametrize("own", quick_first(1, [[], [Prepares()]]))
def test_a_model_that_gets_a_checkpoints_values_is_not_given_the_chiefs_before(
    alike, keep, began, monkeypatch, own
):
    """The exception is a model that a user's callback may look at before."""
    process_ring.use(None)
    failed(keep, Examples())
    process_ring.use(alike)
    asked, real = [], Alike.all_gather

    def all_gather(self, value, *, what=""):
        asked.append(what)
        return real(self, value, what=what)

    monkeypatch.setattr(Alike, "all_gather", all_gather)
    model, kept = keep()
    with fits_run_by(kept.run):
        model.fit(Examples(), batch_size=8, epochs=9, verbose=0, callbacks=own)
    assert began[-1] > 0
    assert kept.place.step == 45
    assert ("fit (a model's values)" in asked) == bool(own)


def steps_saved(monkeypatch, kept, model, seconds, **given):
    """Return the steps of a fit's checkpoints, by a clock that moves on at each epoch's end."""
    steps, clock, stream = [], [0.0], Store.stream

    def write(store, number, write):
        steps.append(number // len(Stage))
        stream(store, number, write)
        kept._saver.newest_seconds = 0.0  # noqa: SLF001

    class Takes(keras.callbacks.Callback):
        several_batches_a_call = True

        def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
            clock[0] += seconds

    monkeypatch.setattr(Store, "stream", write)
    monkeypatch.setattr(checkpoint_callback.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoint_callback.CheckpointCallback, "_cost", lambda _: 1.0)
    with fits_run_by(kept.run):
        model.fit(ROWS, WANTED, batch_size=8, verbose=0, callbacks=[Takes()], **given)
    return steps


@pytest.mark.parametrize(
    ("seconds", "expected"), [(20.0, [5, 10, 15, 20, 25, 30]), (4.0, [15, 30]), (0.1, [30])]
)
def test_an_epochs_end_is_saved_no_more_often_than_a_tenth_of_its_cost(
    keep, monkeypatch, seconds, expected
):
    """The end of the fit is always saved."""
    monkeypatch.setattr(checkpoint_callback, "SHARE", 0.1)
    model, kept = keep(every=1000)
    assert steps_saved(monkeypatch, kept, model, seconds, epochs=6) == expected


def test_no_checkpoint_waits_for_the_one_before(keep, monkeypatch):
    """The checkpoint of a step or an epoch is skipped while another is written."""
    written, may_go_on, stream = [], threading.Event(), Store.stream

    def write(store, number, write):
        written.append(number // len(Stage))
        assert may_go_on.wait(60)
        stream(store, number, write)

    class Ends(keras.callbacks.Callback):
        def on_train_end(self, logs=None):  # noqa: ARG002
            may_go_on.set()

    monkeypatch.setattr(Store, "stream", write)
    monkeypatch.setattr(Saver, "is_busy", IS_BUSY)
    model, kept = keep(every=3)
    with fits_run_by(kept.run):
        model.fit(ROWS, WANTED, batch_size=8, epochs=4, verbose=0, callbacks=[Ends()])
    assert written == [3, 20]
    assert Store(kept._options.folder).newest().number == 20 * len(Stage) + Stage.ALL  # noqa: SLF001
