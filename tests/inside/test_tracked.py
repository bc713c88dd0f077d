"""Checkpoints keep state that Keras does not list: variables, modules and tables."""

import logging
import random
import shutil
import sys
from collections import deque
from functools import partial
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by

from cluster_trainer.callbacks.state import tracked
from cluster_trainer.callbacks.state.tracked import Tracked
from cluster_trainer.callbacks.state.unkept import Unkept
from cluster_trainer.fits.kept import checkpoint_callback
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first, strategy_of

ROWS = np.ones((8, 2), np.float32)
WANTED = ROWS[:, :1]
FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


class Helper:
    """Is no class of Keras or TensorFlow."""

    def __init__(self):
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=FIRST)


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.parts = {"half": [tf.Variable(0.0, trainable=False, aggregation=FIRST)]}
        self.text = tf.Variable("begun", trainable=False)


class Counted(keras.layers.Layer):
    """Counts its calls in a variable that it makes when it is built."""

    def build(self, _):
        self.calls = tf.Variable(0, trainable=False, aggregation=FIRST)

    def call(self, inputs, *, training=False):
        if training:
            self.calls.assign_add(1)
        return inputs


class Model(keras.Model):
    """Counts in all of these, and in a variable that its first step makes."""

    def __init__(self, *, lazily=True):
        super().__init__()
        self.dense, self.counted, self.helper, self.module = (
            keras.layers.Dense(1),
            Counted(),
            Helper(),
            Module(),
        )
        self.words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        self.draws = tf.random.Generator.from_seed(3)
        self.buffers = None if lazily else self._made()

    @staticmethod
    def _made():
        return [tf.Variable(tf.zeros([2]), trainable=False, aggregation=FIRST)]

    def call(self, inputs, *, training=False):
        return self.dense(self.counted(inputs, training=training))

    def train_step(self, data):
        if self.buffers is None:
            self.buffers = self._made()
        self.helper.steps.assign_add(1)
        self.module.parts["half"][0].assign_add(0.5)
        self.buffers[0].assign_add(tf.constant([1.0, 2.0]))
        return super().train_step(data)

    def counts(self):
        word = self.words.lookup(tf.constant(["a word"])).numpy().tolist()
        return [
            *(
                np.asarray(one.read_value()).tolist()
                for one in (
                    self.helper.steps,
                    self.module.parts["half"][0],
                    self.module.text,
                    self.counted.calls,
                    self.buffers[0],
                )
            ),
            word,
            self.draws.state.numpy().tolist(),
        ]


class Own(keras.callbacks.Callback):
    """Has a variable, a model and a number that nobody keeps; may die at the start of an epoch."""

    several_batches_a_call = True

    def __init__(self, dies_after=None, *, makes_late=False):
        super().__init__()
        self.dies_after, self.makes_late = dies_after, makes_late
        self.epochs = tf.Variable(0)
        self.other = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        self.seen = [0]

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  Keras gives them by name
        self.seen[0] += 1
        self.epochs.assign_add(1)
        self.other.layers[0].kernel.assign([[epoch], [1.0]])
        if self.makes_late:
            self.late = tf.Variable(1.0)
        if hasattr(self.model, "words"):
            self.model.words.insert(tf.constant(["a word"]), tf.constant([epoch], tf.int64))
            self.model.module.text.assign(f"epoch {epoch}")
            self.model.draws.normal([2])

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == self.dies_after:
            raise RuntimeError("killed")


@pytest.fixture
def fitted(tmp_path, began):
    """Return a function that trains a model as a new process does, and returns it."""
    checkpoint_callback._warn_of_state.cache_clear()  # noqa: SLF001  which warns once

    def fit(make, *callbacks, epochs=4, scope=None):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        with (scope or tf.distribute.get_strategy()).scope():
            model = make()
            model.compile("sgd", "mse")
        job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=2), Task())
        folder = tmp_path / "checkpoints"
        given_to = (job, StopRequest(print), Deadline(), folder)
        kept = KeptFit(FitOptions(*given_to, described={}, found=began.note), model)
        given = {"batch_size": 4, "epochs": epochs, "verbose": 0}
        with fits_run_by(kept.run):
            model.fit(ROWS, WANTED, callbacks=list(callbacks), **given)
        return model

    fit.folder = tmp_path / "checkpoints"
    return fit


def test_all_of_it_goes_on(fitted, began):
    with pytest.raises(RuntimeError, match="killed"):
        fitted(Model, Own(dies_after=2))
    own = Own()
    model = fitted(Model, own)
    assert began == [0, 4]
    counts = [8, 4.0, b"epoch 3", 8, [8.0, 16.0], [3]]
    assert model.counts()[:-1] == counts
    undisturbed = tf.random.Generator.from_seed(3)
    for _ in range(4):
        undisturbed.normal([2])
    assert model.counts()[-1] == undisturbed.state.numpy().tolist()
    assert int(own.epochs) == 4
    assert own.other.get_weights()[0].tolist() == [[3.0], [1.0]]


def test_all_of_it_goes_on_with_several_replicas(fitted, began):
    strategy = strategy_of(2)

    def make():
        return Model(lazily=False)

    with pytest.raises(RuntimeError, match="killed"):
        fitted(make, Own(dies_after=2), scope=strategy)
    model = fitted(make, Own(), scope=strategy)
    assert began == [0, 4]
    assert model.counts()[:-1] == [8, 4.0, b"epoch 3", 8, [8.0, 16.0], [3]]


def plain():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def follow(steps, other):
    """Return a callback's function that uses a variable and a model of its closure."""

    def on_epoch_end(epoch, logs=None):  # noqa: ARG001  Keras gives them by name
        steps.assign_add(1)
        other.set_weights([one + 1 for one in other.get_weights()])

    return on_epoch_end


@pytest.mark.parametrize("kind", quick_first(1, ["a hook", "a method"]))
def test_variables_that_a_callbacks_functions_use_go_on(fitted, kind):
    def run(dies_after=None):
        steps, other = tf.Variable(0), plain()
        other.set_weights([np.zeros_like(one) for one in other.get_weights()])
        function = follow(steps, other)
        if kind == "a hook":
            own = keras.callbacks.LambdaCallback(on_epoch_end=function)
        else:
            own = type("Follows", (keras.callbacks.Callback,), {"on_epoch_end": method(function)})()
        fitted(plain, own, Own(dies_after=dies_after))
        return int(steps), other.get_weights()[0].ravel().tolist()

    with pytest.raises(RuntimeError, match="killed"):
        run(dies_after=2)
    assert run() == (4, [4.0, 4.0])


def method(function):
    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG001
        function(epoch, logs)

    return on_epoch_end


class Counts:
    """A program's object with a compiled method."""

    def __init__(self):
        self.epochs = tf.Variable(0)

    @tf.function
    def on_epoch_end(self, epoch, logs):  # noqa: ARG002
        self.epochs.assign_add(1)


def test_a_variable_of_an_object_whose_compiled_method_a_callback_calls_goes_on(fitted):
    def run(dies_after=None):
        counts = Counts()
        own = keras.callbacks.LambdaCallback(on_epoch_end=counts.on_epoch_end)
        fitted(plain, own, Own(dies_after=dies_after))
        return int(counts.epochs)

    with pytest.raises(RuntimeError, match="killed"):
        run(dies_after=2)
    assert run() == 4


@pytest.mark.parametrize("eagerly", quick_first(1, [False, True]))
def test_a_variable_that_a_loss_function_assigns_goes_on(fitted, eagerly):
    """No attribute leads to it: it is a global or in a closure."""

    def run(dies_after=None):
        steps = tf.Variable(0.0, trainable=False, aggregation=FIRST)
        unchanged = tf.Variable(2.0, trainable=False)

        def loss(wanted, found):
            before = tf.identity(steps)
            steps.assign_add(1.0)
            return unchanged * tf.reduce_mean((wanted - found) ** 2, -1) / (1.0 + before)

        def make():
            model = plain()
            compile_it = model.compile
            model.compile = lambda *_: compile_it("sgd", loss, run_eagerly=eagerly)
            return model

        model = fitted(make, Own(dies_after=dies_after))
        return float(steps), model.get_weights()[0].tolist()

    with pytest.raises(RuntimeError, match="killed"):
        run(dies_after=2)
    steps, weights = run()
    assert steps == 8.0
    shutil.rmtree(fitted.folder)
    assert run() == (steps, weights)


def test_of_a_steps_variables_those_that_it_assigns_are_kept_once(fitted):
    model = fitted(Model)
    assigned = [*model.train_function.assigned.values()]
    known = [*model.variables, *model.optimizer.variables]
    known += [one for metric in model.metrics for one in metric.variables]
    assert {*Tracked(model, [], known, assigned).take([])} == {
        *Tracked(model, [], known).take([]),
    }
    assert assigned


class Switched(keras.Sequential):
    """Has an attribute that a callback switches, and others that Keras or its own step assign."""

    alpha = 1.0

    def build(self, shape=None):
        super().build(shape)
        self.shape_of_input = shape

    def train_step(self, data):
        self.traced = True
        return super().train_step(data)


def switched():
    return Switched([keras.Input((2,)), keras.layers.Dense(1)])


class Switches(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == 1:
            self.model.alpha = 0.0


def test_an_attribute_of_the_model_that_a_callback_has_switched_is_named(
    fitted, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    checkpoint_callback._warn_of_attributes.cache_clear()  # noqa: SLF001
    with pytest.raises(RuntimeError, match="killed"):
        fitted(switched, Switches(), Own(dies_after=2))
    assert "has the first values" not in caplog.text
    fitted(switched, Switches(), Own())
    assert "the model has the first values of alpha again" in caplog.text


@pytest.mark.parametrize("make", quick_first(1, [plain, Model, switched]))
def test_an_ordinary_fit_changes_no_attribute_that_would_be_named(
    fitted, caplog, monkeypatch, make
):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    checkpoint_callback._warn_of_attributes.cache_clear()  # noqa: SLF001
    with pytest.raises(RuntimeError, match="killed"):
        fitted(make, Own(dies_after=2))
    fitted(make, Own())
    assert "has the first values" not in caplog.text


class Noisy(keras.Sequential):
    """Adds a draw of `tf.random` to its loss."""

    def compute_loss(self, *given, **named):
        return super().compute_loss(*given, **named) + tf.random.normal(()) * self.weights[0][0, 0]


@pytest.mark.parametrize("eagerly", quick_first(1, [False, True]))
def test_draws_that_begin_anew_are_named(fitted, caplog, monkeypatch, eagerly):
    """The state of eager draws is known: they go on."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    checkpoint_callback._warn_of_draws.cache_clear()  # noqa: SLF001

    def make():
        model = Noisy([keras.Input((2,)), keras.layers.Dense(1)])
        compile_it = model.compile
        model.compile = lambda *given: compile_it(*given, run_eagerly=eagerly)
        return model

    with pytest.raises(RuntimeError, match="killed"):
        fitted(make, Own(dies_after=2))
    weights = fitted(make, Own()).get_weights()[0].tolist()
    assert ("draw from `tf.random` (RandomStandardNormal)" in caplog.text) is not eagerly
    shutil.rmtree(fitted.folder)
    assert (fitted(make, Own()).get_weights()[0].tolist() == weights) is eagerly


def test_a_callback_that_offers_no_state_is_named(fitted, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    with pytest.raises(RuntimeError, match="killed"):
        fitted(plain, Own(dies_after=2))
    assert "resumes without" not in caplog.text
    fitted(plain, Own())
    assert "the callback Own 1 resumes without its earlier state" in caplog.text
    assert "no checkpoint has its seen." in caplog.text


def test_a_callback_that_is_not_called_again_is_named(fitted, caplog, monkeypatch):
    """A script may show the values that the callback has collected."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    fitted(plain, Own())
    assert "its fit had ended" not in caplog.text
    fitted(plain, Own())
    assert "the callback Own 1 is not called again, because its fit had ended" in caplog.text
    assert "no checkpoint has its seen." in caplog.text


def test_a_callbacks_variable_that_comes_too_late_is_warned_of(fitted, caplog, monkeypatch):
    """A callback may copy the model in some epoch, for example; the fit goes on all the same."""
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    with pytest.raises(RuntimeError, match="killed"):
        fitted(plain, Own(dies_after=2, makes_late=True))
    fitted(plain, Own(makes_late=True))
    assert "Own 1.late" in caplog.text


def test_what_is_kept_otherwise_is_kept_once(fitted):
    model = fitted(plain)
    known = [*model.variables, *model.optimizer.variables]
    known += [one for metric in model.metrics for one in metric.variables]
    assert Tracked(model, [], known).take([]) == {}


class Workers:
    """Three workers; the numbers of each are one larger than those of the worker before."""

    count, rank = 3, 0

    def __init__(self, model):
        self._model, self._content = model, None

    def gather(self, number, what):
        del what
        is_of_paths = number == tracked._number([b"model.counter"])  # noqa: SLF001
        return [number, number, number if is_of_paths else number + 1]

    def broadcast(self, content, holder, what):
        del what
        self._content = content or self._content
        (row,) = tracked._unpacked(self._content)  # noqa: SLF001
        return tracked._packed([{"value": row["value"] + holder}])  # noqa: SLF001


def test_what_differs_between_workers_is_kept_of_each(monkeypatch, caplog):
    """Another number of workers than before gets the mean, and a warning says so."""
    model = plain()
    model.counter = tf.Variable([1.0, 2.0])
    monkeypatch.setattr(tracked, "workers_of", lambda _: Workers(model))
    arrays = []
    kept = Tracked(model, [], model.variables)
    saved = kept.take(arrays)
    assert [array.tolist() for array in arrays] == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    kept.put_back(saved, arrays)
    assert model.counter.numpy().tolist() == [2.0, 3.0]
    assert "model.counter differs between the 3 replicas" in caplog.text


def test_an_attribute_that_is_a_collection_changes_with_what_it_holds():
    callback = Own()
    unkept = Unkept([callback])
    assert unkept.changed({}) == {}
    callback.seen[0] = 5
    assert unkept.changed({"Own 1": ["another"]}) == {"Own 1": ["another", "seen"]}


class Best:
    def __init__(self):
        self.value = 9.0


class Items(list):
    pass


class Losses(dict):
    pass


class Recent(deque):
    def __init__(self):
        super().__init__()
        self.value = 9.0


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self):
        self.value = 9.0


class Pair(NamedTuple):
    one: Best
    other: list


def draw(generator):
    generator.random()


def improve(best):
    best.value = 1.0


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (np.random.default_rng(1), draw),
        (np.random.RandomState(1), lambda one: one.rand()),
        (random.Random(1), draw),
        (Best(), improve),
        ([{"a": Best()}], lambda one: improve(one[0]["a"])),
        (Items(), lambda one: one.append(1.0)),
        (Losses(), lambda one: one.update(a=1.0)),
        (Recent(), lambda one: one.append(1.0)),
        (Recent(), improve),
        (Slotted(), improve),
        (Pair(Best(), []), lambda one: one.other.append(1.0)),
    ],
    ids=[
        *("a generator", "an old generator", "Python's", "an object", "an object within"),
        *("a list", "a dict", "a deque", "a deque's attribute", "slots", "a named tuple"),
    ],
)
def test_a_generator_that_draws_and_an_object_of_the_scripts_own_change(held, change):
    callback = Own()
    callback.held = held
    unkept = Unkept([callback])
    assert unkept.changed({}) == {}
    change(held)
    assert unkept.changed({}) == {"Own 1": ["held"]}


collected = []


class Collects(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        del logs
        collected.append(epoch)


class Recorder:
    def __init__(self):
        self.losses = []

    def note(self, epoch, logs=None):
        del logs
        self.losses.append(epoch)


def noted(losses, epoch, logs=None):
    del logs
    losses.append(epoch)


def of_a_closure():
    losses = []
    return keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, _: losses.append(epoch))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Collects, "collected"),
        (of_a_closure, "losses"),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_end=Recorder().note), "Recorder"),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_end=partial(noted, [])), "0"),
    ],
    ids=["a global", "a closure", "an object", "an argument"],
)
def test_what_a_callbacks_functions_use_changes(make, name):
    callback = make()
    unkept = Unkept([callback])
    assert unkept.changed({}) == {}
    callback.on_epoch_end(0, {})
    assert unkept.changed({}) == {f"{type(callback).__name__} 1": [name]}


@pytest.mark.parametrize("kind", ["texts", "dict", "pairs", "rows", "texts and an object"])
def test_what_a_callback_has_collected_is_not_looked_at_one_by_one(kind):
    many = 300_000
    collected = {
        "texts": [f"text {number}" for number in range(many)],
        "dict": {f"text {number}": number for number in range(many)},
        "pairs": [("text", number) for number in range(many)],
        "rows": [[*range(1_000)]] * many,
        "texts and an object": [object(), *(f"text {number}" for number in range(many))],
    }[kind]
    callback, calls = Own(), []
    callback.seen, callback.nested = collected, [[], (tf.Variable(1.0),)]
    sys.setprofile(lambda *_: calls.append(None))
    try:
        unkept = Unkept([callback])
        found = dict(tracked._walk({"Own 1": callback}, []))  # noqa: SLF001
    finally:
        sys.setprofile(None)
    assert len(calls) < 3 * many
    assert any(name.startswith("Own 1.nested") for name in found)
    collected.update(more=1) if kind == "dict" else collected.append("more")
    assert "seen" in unkept.changed({})["Own 1"]


def test_of_very_many_objects_the_first_are_looked_into_and_that_is_said(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    monkeypatch.setattr(tracked, "MOST_OBJECTS", 1_000)
    tracked._warn_of_more.cache_clear()  # noqa: SLF001
    callback = Own()
    callback.held, callback.nested = tf.Variable(1.0), [Best() for _ in range(2_000)]
    callback.nested[-1].value = tf.Variable(2.0)
    found = dict(tracked._walk({"Own 1": callback}, []))  # noqa: SLF001
    assert "Own 1.held" in found
    assert "Own 1.nested.1999.value" not in found
    assert "Own 1 holds more than 1000 objects" in caplog.text
