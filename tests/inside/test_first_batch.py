"""The first batch is computed whole and in shares; only a difference causes a warning."""

import logging
import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keeping import fits_run_by
from keras import layers, ops
from meeting_place import MeetingPlace
from tensorflow.python.eager import context

from cluster_trainer.engine import steps
from cluster_trainer.engine.first_batch.check import FirstBatch
from cluster_trainer.engine.first_batch.differences import A_STATE, Both, Outcome
from cluster_trainer.engine.first_batch.due import Due
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.first_batch.program_parts import across_examples
from cluster_trainer.engine.first_batch.program_parts.own_parts import has_own_parts
from cluster_trainer.engine.first_batch.switches import positions
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.running import Watched
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task
from conftest import quick_first, strategy_of

pytestmark = pytest.mark.usefixtures("keeps_nothing")
NUMBERS = np.random.default_rng(3)
X = NUMBERS.normal(size=(48, 6)).astype(np.float32)
LABELS = NUMBERS.integers(0, 3, 48)
BATCH = 16
IN_ORDER = {"batch_size": BATCH, "shuffle": False}
CHECK = FirstBatchMode()
crossentropy = keras.losses.sparse_categorical_crossentropy


class OwnStep(keras.Model):
    """Has its own `train_step`; its loss is the mean over the examples."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.total = keras.metrics.Mean(name="loss")

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.total.update_state(loss)
        return {"loss": self.total.result()}

    def loss_of(self, x, y):
        return tf.reduce_mean(crossentropy(y, self(x, training=True)))


def network(kind=keras.Model, *, odd=True):
    """Return a model; if odd, its dropout and its BatchNorm differ on each replica."""
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="relu")(inputs)
    if odd:
        hidden = layers.Dropout(0.3)(layers.BatchNormalization()(hidden))
    return kind(inputs, layers.Dense(3, activation="softmax")(hidden))


def with_own_step():
    return network(OwnStep), keras.optimizers.AdamW(0.01), None


class Sampling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, mean):
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        seeded = tf.random.normal(tf.shape(mean), 0.0, 1.0, tf.float32, 7, "seeded")
        return mean + noise + seeded + tf.random.uniform(tf.shape(mean))


def with_noise():
    inputs = keras.Input((6,))
    hidden = Sampling()(layers.Dense(4)(inputs))
    return OwnStep(inputs, layers.Dense(3, activation="softmax")(hidden)), "adam", None


class Adversarial(keras.Model):
    """A GAN with two optimizers and a gradient penalty."""

    def __init__(self):
        super().__init__()
        self.make = keras.Sequential([keras.Input((4,)), layers.Dense(6)])
        self.judge = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)])
        self.optimizers = [keras.optimizers.Adam(0.001) for _ in range(2)]
        self.of_make, self.of_judge = self.optimizers

    def train_step(self, data):
        noise = tf.random.normal((tf.shape(data[0])[0], 4))
        with tf.GradientTape() as tape:
            made = self.make(noise)
            with tf.GradientTape() as inner:
                inner.watch(made)
                judged = self.judge(made)
            slope = inner.gradient(judged, [made])[0]
            loss = tf.reduce_mean(judged) - tf.reduce_mean(self.judge(data[0]))
            loss += tf.reduce_mean((tf.norm(slope, axis=1) - 1) ** 2)
        variables = self.judge.trainable_variables
        self.of_judge.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        with tf.GradientTape() as tape:
            lost = -tf.reduce_mean(self.judge(self.make(noise)))
        variables = self.make.trainable_variables
        self.of_make.apply_gradients(zip(tape.gradient(lost, variables), variables, strict=True))
        return {"judge_loss": loss, "make_loss": lost}


def adversarial():
    return Adversarial(), "sgd", None


class Smoothed(keras.losses.Loss):
    def call(self, y_true, y_pred):
        wanted = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), 3) * 0.9 + 0.1 / 3
        return keras.losses.categorical_crossentropy(wanted, y_pred)


def with_own_loss():
    return network(), keras.optimizers.Adam(global_clipnorm=0.01), Smoothed()


class MeanState(OwnStep):
    def build_state(self):
        self.centre = self.add_weight(shape=(3,), initializer="zeros", trainable=False)
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def train_step(self, data):
        logs = super().train_step(data)
        self.seen.assign_add(1.0)
        self.centre.assign(0.9 * self.centre + 0.1 * self.of_batch(self(data[0])))
        return logs

    def of_batch(self, outputs):
        return ops.mean(outputs, 0)


class SumState(MeanState):
    def of_batch(self, outputs):
        return ops.sum(outputs, 0)


def with_state(kind=MeanState):
    model = network(kind)
    model.build_state()
    return model, "adam", None


class OfEach(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * ops.sum(ops.square(x), -1))
        return x


def with_a_loss_of_each():
    inputs = keras.Input((6,))
    hidden = OfEach()(layers.Dense(4)(inputs))
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(hidden)), "sgd", crossentropy


class Vector(OwnStep):
    def loss_of(self, x, y):
        return crossentropy(y, self(x, training=True))


def with_a_vector():
    return network(Vector), "adam", None


def in_half_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return network(), "adam", lambda y, p: crossentropy(y, tf.cast(p, tf.float32))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def is_like_another(make):
    return pytest.param(make, marks=pytest.mark.long)


ORDINARY = [
    *[adversarial, with_state],
    *map(is_like_another, [with_noise, with_own_loss, with_own_step, with_a_vector]),
    *map(is_like_another, [in_half_precision, with_a_loss_of_each]),
]


def bad(loss):
    kind = type(loss.__name__, (OwnStep,), {"loss_of": loss})

    def make():
        return network(kind), "adam", None

    make.__name__, make.kind = loss.__name__, kind
    return make


@bad
def divided_by_the_global_batch(self, x, y):
    return tf.reduce_sum(crossentropy(y, self(x, training=True))) / BATCH


def masked_mean_of(model, x, y):
    mask = tf.cast(y != 0, tf.float32)
    losses = crossentropy(y, model(x, training=True))
    return tf.reduce_sum(mask * losses) / tf.reduce_sum(mask)


@bad
def masked_mean(self, x, y):
    return masked_mean_of(self, x, y)


@bad
def contrastive(self, x, y):  # noqa: ARG001
    one, other = (tf.math.l2_normalize(self(part, training=True), 1) for part in (x, x + 0.1))
    alike = tf.matmul(one, other, transpose_b=True) / 0.1
    rows = tf.range(tf.shape(x)[0])
    return tf.reduce_mean(crossentropy(rows, alike, from_logits=True))


@bad
def contraction(self, x, y):
    outputs = self(x, training=True)
    return tf.reduce_mean(crossentropy(y, outputs)) + tf.tensordot(outputs, outputs, 2)


def sum_of_state():
    return with_state(SumState)


def kerass_circle():
    return network(odd=False), "sgd", "circle"


def centred(rows):
    return rows - ops.mean(rows, axis=0, keepdims=True)


def after(*between, loss="sparse_categorical_crossentropy"):
    """Return a function that makes a model of Keras's layers, with these in the middle."""

    def made():
        model = keras.Sequential([keras.Input((6,)), *(one() for one in between)])
        model.add(layers.Dense(3, "softmax"))
        return model, "sgd", loss

    return made


def squared_mean(rows):
    return ops.sum(ops.mean(rows, 0) ** 2)


ALONG_THE_BATCH = {
    "an activation": after(lambda: layers.Dense(4, activation=centred)),
    "an activation within": after(
        lambda: layers.Reshape((2, 3)),
        lambda: layers.TimeDistributed(layers.Dense(4, activation=centred)),
        layers.Flatten,
    ),
    "a regularizer": after(lambda: layers.Dense(4, activity_regularizer=squared_mean)),
    "TensorFlow's": after(lambda: layers.Dense(4, activation=tf.math.cumsum)),
    "an axis": after(lambda: layers.Softmax(axis=0)),
    "an axis from the end": after(lambda: layers.UnitNormalization(axis=-2)),
}
"""Keras's layers that compare or add up the examples of a batch."""


@pytest.mark.parametrize("name", ALONG_THE_BATCH)
def test_keras_own_layers_count_if_they_may_compare_examples(name):
    model, optimizer, loss = ALONG_THE_BATCH[name]()
    model.compile(optimizer, loss)
    assert has_own_parts(model) or across_examples.found_in(model)


def test_a_loss_along_the_batch_counts():
    model, *_ = after()()
    losses = [keras.losses.CategoricalCrossentropy(axis=axis) for axis in (0, -1)]
    found = []
    for loss in losses:
        model.compile("sgd", loss)
        found.append(bool(across_examples.found_in(model)))
    assert found == [True, False]


OTHERS = [
    *[contrastive, sum_of_state, ALONG_THE_BATCH["an axis"]],
    *map(is_like_another, [kerass_circle, ALONG_THE_BATCH["an activation"]]),
    *map(is_like_another, [divided_by_the_global_batch, masked_mean, contraction]),
]


def fitted(make, strategy, mode=CHECK, **options):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer, loss = make()
        model.compile(optimizer, loss, **options)
    return model, trained(model, mode, epochs=2)


def trained(model, mode=CHECK, **options):
    """Train with the engine alone, in a mode of the first batch; return the history."""

    def around(run, given, call):
        return run(given, replace(call, watched=Watched(first_batch=mode)))

    arrays = {"x": X, "y": LABELS, **IN_ORDER}
    with fits_run_by(around):
        return model.fit(**(arrays if "x" not in options else {}), verbose=0, **options).history


@pytest.fixture(autouse=True)
def all_is_said(caplog):
    caplog.set_level(logging.INFO, "trainer")


def lines(caplog, level=logging.WARNING):
    found = [one for one in caplog.records if one.levelno >= level]
    return [text for one in found if "first batch" in (text := one.getMessage())]


@pytest.mark.parametrize("make", ORDINARY)
def test_nothing_is_said_of_losses_that_are_means_of_their_examples(make, caplog):
    fitted(make, strategy_of(2))
    assert lines(caplog, logging.INFO) == []


@pytest.mark.parametrize("make", OTHERS)
def test_what_one_device_would_train_otherwise_is_warned_of(make, caplog):
    fitted(make, strategy_of(2))
    (line,) = lines(caplog)
    assert "on 2 devices" in line
    assert "TRAINER_FIRST_BATCH" in line


@pytest.mark.long
def test_a_script_without_a_seed_is_warned_too(caplog, monkeypatch):
    monkeypatch.delattr(context.context(), "_rng", raising=False)
    with strategy_of(2).scope():
        model, optimizer, loss = masked_mean()
        model.compile(optimizer, loss)
    trained(model)
    (line,) = lines(caplog)
    assert "on 2 devices" in line


def test_the_warning_has_both_numbers(caplog):
    fitted(divided_by_the_global_batch, strategy_of(2))
    (line,) = lines(caplog)
    words = line.split("loss is ")[1].replace(";", " ").replace(",", " ").split()
    whole, shared = float(words[0]), float(words[4])
    assert shared == pytest.approx(whole / 2, rel=1e-3)
    assert "a sum over the batch" in line


class Remembering(layers.Layer):
    """Counts its calls in Python and draws from NumPy, as layers that run eagerly may."""

    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []

    def call(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        own = np.random.uniform()  # noqa: NPY002  the script's own
        return x * (own + self.calls + len(self.seen))


def with_memory():
    inputs = keras.Input((6,))
    outputs = layers.Dense(3, activation="softmax")(Remembering()(inputs))
    return keras.Model(inputs, outputs), "sgd", "sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("make", "eagerly"), quick_first(1, [(with_state, False), (with_memory, True)])
)
def test_nothing_stays_of_it(make, eagerly):
    strategy = strategy_of(2)
    with_it = fitted(make, strategy, run_eagerly=eagerly)
    without = fitted(make, strategy, FirstBatchMode("off"), run_eagerly=eagerly)
    for one, other in zip(with_it[0].variables, without[0].variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert with_it[1] == without[1]


def given_by_threads():
    """Yield batches, in one of tf.data's threads, which may draw numbers."""
    for start in range(0, len(X), BATCH):
        yield X[start : start + BATCH], LABELS[start : start + BATCH]


@pytest.mark.parametrize("module", [pytest.param(np.random, marks=pytest.mark.long), random])
def test_what_the_step_draws_beside_threads_that_read_data_is_not_used_up(module, caplog):
    def loss_of(self, x, y):
        return OwnStep.loss_of(self, x, y) * (1 + module.uniform(0.0, 1.0))

    def drawn_after(mode):
        with strategy_of(2).scope():
            model, optimizer, loss = bad(loss_of)()
            model.compile(optimizer, loss)
        module.seed(5)
        types = (tf.TensorSpec([BATCH, 6]), tf.TensorSpec([BATCH], tf.int64))
        data = tf.data.Dataset.from_generator(given_by_threads, output_signature=types)
        trained(model, mode, x=data)
        assert "could not" not in caplog.text
        return module.uniform(0.0, 1.0)

    assert drawn_after(CHECK) == drawn_after(FirstBatchMode("off"))


@pytest.mark.parametrize("module", quick_first(1, [np.random, random]))
def test_what_replicas_draw_from_generators_of_their_own_is_no_difference(module, caplog):
    def loss_of(self, x, y):
        return OwnStep.loss_of(self, x, y) * (1 + module.uniform(0.0, 1.0))

    fitted(bad(loss_of), strategy_of(2))  # the replicas draw one after the other
    assert lines(caplog, logging.INFO) == []


def test_it_may_be_refused():
    with pytest.raises(ConfigurationError, match="the first batch"):
        fitted(masked_mean, strategy_of(2), FirstBatchMode("refuse"))


def with_a_loss_over_a_mask():
    def over_a_mask(y, p):
        mask = ops.cast(ops.reshape(y, (-1,)) != 0, "float32")
        return ops.sum(mask * crossentropy(y, p)) / ops.sum(mask)

    return network(), "adam", over_a_mask


def evaluated(make, times=1, **options):
    keras.utils.set_random_seed(1)
    with strategy_of(2).scope():
        model, optimizer, loss = make()
        model.compile(optimizer, loss, **options)
    for _ in range(times):
        model.evaluate(X, LABELS, batch_size=BATCH, verbose=0)
    return model


@pytest.mark.parametrize("eagerly", quick_first(1, [False, True]))
def test_evaluations_are_compared_once(eagerly, caplog):
    evaluated(with_a_loss_over_a_mask, times=2, run_eagerly=eagerly)
    (line,) = lines(caplog)
    assert "of evaluation" in line
    assert "loss is" in line
    assert "gradients" not in line


def test_nothing_is_said_of_an_evaluation_by_means_of_examples(caplog):
    evaluated(with_own_loss, metrics=["accuracy"])
    assert lines(caplog, logging.INFO) == []


@pytest.mark.long
def test_evaluations_of_single_batches_are_compared(caplog):
    with strategy_of(2).scope():
        model, optimizer, loss = with_a_loss_over_a_mask()
        model.compile(optimizer, loss)
    for _ in range(2):
        model.test_on_batch(X[:BATCH], LABELS[:BATCH])
    assert len(lines(caplog)) == 1


class MaskedTests(OwnStep):
    """Trains by a mean over all examples, and evaluates by a mean over a mask."""

    def test_step(self, data):
        self.total.update_state(masked_mean_of(self, *data))
        return {"loss": self.total.result()}


def with_masked_tests():
    return network(MaskedTests), "adam", None


VALIDATION = {"validation_data": (X, LABELS), "validation_batch_size": BATCH}


@pytest.mark.parametrize("make", quick_first(1, [with_masked_tests, with_a_loss_over_a_mask]))
def test_a_fits_validation_is_compared_unless_its_training_differs(make, caplog):
    with strategy_of(2).scope():
        model, optimizer, loss = make()
        model.compile(optimizer, loss)
    trained(model, epochs=2, **VALIDATION)
    (line,) = lines(caplog)
    assert ("of evaluation" in line) == (make is with_masked_tests)


class MaskedTestsBesideSums(MaskedTests):
    def train_step(self, data):
        return {**super().train_step(data), "rows": tf.reduce_sum(data[0])}


@pytest.mark.long
def test_a_validation_is_compared_if_other_numbers_of_the_training_differ(caplog):
    with strategy_of(2).scope():
        model = network(MaskedTestsBesideSums)
        model.compile("adam")
    trained(model, **VALIDATION)
    told = [("rows is" in line, "loss is" in line) for line in lines(caplog)]
    assert told == [(True, False), (False, True)]


def test_weights_and_statistics_are_no_switches_of_a_validation(monkeypatch):
    class Flips(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            del epoch, logs
            for one in self.model.weights:
                one.assign(-one)

    compared = []
    monkeypatch.setattr(FirstBatch, "compare", lambda *_, **__: compared.append(1))
    with strategy_of(2).scope():
        model, optimizer, loss = with_own_loss()
        model.compile(optimizer, loss)
    trained(model, epochs=3, callbacks=[Flips()], **VALIDATION)
    assert len(compared) == 4  # two batches of the training, and two of the validation


@pytest.mark.long
def test_a_validation_that_differs_may_be_refused():
    with strategy_of(2).scope():
        model, optimizer, loss = with_masked_tests()
        model.compile(optimizer, loss)
    with pytest.raises(ConfigurationError, match="of evaluation"):
        trained(model, FirstBatchMode("refuse"), **VALIDATION)


class MeanOfMeans(keras.metrics.Metric):
    """Counts each batch once, whatever its size, as Keras's guide to metrics does."""

    def __init__(self):
        super().__init__(name="mean_of_means")
        self.total = self.add_weight(name="total", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        del sample_weight
        self.total.assign_add(tf.reduce_mean(crossentropy(y_true, y_pred)))
        self.batches.assign_add(1.0)

    def result(self):
        return self.total / self.batches


class InAList(MeanOfMeans):
    """Keeps numbers in a list of Python's, as `run_eagerly` allows: whether batches are large."""

    def __init__(self):
        super().__init__()
        self.numbers = []

    def update_state(self, y_true, y_pred, sample_weight=None):
        del y_pred, sample_weight
        self.numbers.append(float(len(y_true) > 2))

    def result(self):
        return keras.ops.convert_to_tensor(np.float32(min(self.numbers, default=0.0)))

    def reset_state(self):
        self.numbers = []


class Pairs(OwnStep):
    """Compares neighbours, which shares with an even number of examples keep together."""

    def loss_of(self, x, y):
        del y
        outputs = self(x)
        first, second = outputs[0::2], outputs[1::2]
        count = tf.minimum(tf.shape(first)[0], tf.shape(second)[0])
        return tf.reduce_mean((first[:count] - second[:count]) ** 2)


def with_mean_of_means(kind=MeanOfMeans, **options):
    model = network(odd=False)
    model.compile("adam", crossentropy, metrics=[kind()], **options)
    return model, 2 * BATCH + 5  # three examples for a replica, and two


def with_pairs():
    model = network(Pairs, odd=False)
    model.compile("adam")
    return model, 2 * BATCH + 6  # three examples for each replica


UNEVEN = {
    "metric": with_mean_of_means,
    "eager metric": partial(with_mean_of_means, run_eagerly=True),
    "metric in a list": partial(with_mean_of_means, InAList, run_eagerly=True),
    "pairs": with_pairs,
}


@pytest.mark.parametrize("make", quick_first(2, UNEVEN.values()), ids=UNEVEN)
def test_a_last_batch_is_compared_and_nothing_stays_of_it(make, caplog):
    found = []
    for mode in (CHECK, FirstBatchMode("off")):
        keras.utils.set_random_seed(1)
        with strategy_of(2).scope():
            model, examples = make()
        history = trained(model, mode, x=X[:examples], y=LABELS[:examples], epochs=2, **IN_ORDER)
        found.append((history, [one.tolist() for one in model.get_weights()]))
    (line,) = lines(caplog)
    assert line.startswith("an epoch's last batch: ")
    assert found[0] == found[1]


class Switched(OwnStep):
    """Its loss is a mean over examples until a callback switches it."""

    phase = 0

    def build_switch(self):
        self.switch = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def loss_of(self, x, y):
        loss = OwnStep.loss_of(self, x, y) + self.switch * masked_mean_of(self, x, y)
        return loss + masked_mean_of(self, x, y) if self.phase else loss


def by_a_variable(model):
    model.switch.assign(0.5)


def by_a_new_function(model):
    model.phase = 1
    model.make_train_function(force=True)


def by_a_rate(model):
    model.optimizer.learning_rate.assign(0.002)


@pytest.mark.parametrize("change", quick_first(1, [by_a_variable, by_a_new_function, by_a_rate]))
def test_what_a_callback_switches_is_compared_then(change, caplog):
    class Switches(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            del logs
            if epoch == 1:
                assert lines(caplog) == []
                change(self.model)

    with strategy_of(2).scope():
        model = network(Switched, odd=False)
        model.build_switch()
        model.compile(keras.optimizers.SGD(0.001))
    trained(model, epochs=3, callbacks=[Switches()])
    assert len(lines(caplog)) == (0 if change is by_a_rate else 1)


def test_steps_of_kerass_own_that_run_eagerly_are_compared(caplog):
    fitted(with_a_loss_over_a_mask, strategy_of(2), run_eagerly=True)
    assert len(lines(caplog)) == 1


class Scaled(keras.losses.Loss):
    """Divides by the usual error, in a variable of no model, and reads it by NumPy."""

    def __init__(self):
        super().__init__()
        self.usual = tf.Variable(1.0, trainable=False)

    def call(self, y_true, y_pred):
        errors = crossentropy(y_true, y_pred)
        self.usual.assign(0.5 * self.usual + 0.5 * errors.numpy().mean())
        return errors / self.usual.numpy()


def median_by_numpy(y_true, y_pred):
    return ops.convert_to_tensor(np.median(crossentropy(y_true, y_pred).numpy()))


def test_a_metric_by_numpy_that_depends_on_the_batch_is_told(caplog):
    with strategy_of(2).scope():
        model = network(odd=False)
        loss = "sparse_categorical_crossentropy"
        model.compile("adam", loss, metrics=[median_by_numpy], run_eagerly=True)
    trained(model)
    (line,) = lines(caplog)
    assert "median_by_numpy" in line


@pytest.mark.long
def test_a_variable_that_an_eager_loss_by_numpy_assigns_is_put_back():
    def usual_after(mode):
        loss = Scaled()
        fitted(lambda: (network(odd=False), "sgd", loss), strategy_of(2), mode, run_eagerly=True)
        return loss.usual.numpy()

    assert usual_after(CHECK) == usual_after(FirstBatchMode("off"))


def test_a_train_step_that_runs_eagerly_is_called_once_for_each_batch_and_that_is_said(caplog):
    calls = []

    class Counts(OwnStep):
        def train_step(self, data):
            calls.append(1)
            return super().train_step(data)

    fitted(lambda: (network(Counts), "adam", None), strategy_of(2), run_eagerly=True)
    assert len(calls) == 2 * 2 * len(X) / BATCH
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def calling_python(*, stateful):
    """Return a maker of a model whose loss calls NumPy, declared as stateful or not."""

    def loss_of(self, x, y):
        mask = tf.numpy_function(lambda y: y != 0, [y], tf.bool, stateful=stateful)
        mask = tf.cast(tf.reshape(mask, [-1]), tf.float32)
        losses = crossentropy(y, self(x, training=True))
        return tf.reduce_sum(mask * losses) / tf.reduce_sum(mask)

    return bad(loss_of)


@pytest.mark.parametrize("stateful", quick_first(1, [True, False]))
def test_functions_of_pythons_are_called_twice_if_they_say_that_they_change_nothing(
    stateful, caplog
):
    fitted(calling_python(stateful=stateful), strategy_of(2))
    assert len(lines(caplog)) == (0 if stateful else 1)
    assert len(lines(caplog, logging.INFO)) == 1


class OfTwoSizes(OwnStep):
    """Takes two batches in a step, of which the second is half as large."""

    divides_by = None

    def train_step(self, data):
        (x, y), others = data
        with tf.GradientTape() as tape:
            outputs = self(others + keras.random.normal(ops.shape(others), seed=self.seeds))
            losses = crossentropy(y, self(x, training=True))
            mean = tf.reduce_sum(losses) / (self.divides_by or tf.cast(tf.size(y), tf.float32))
            loss = mean + tf.reduce_mean(outputs**2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.mark.parametrize("divides_by", quick_first(1, [None, BATCH]))
def test_parts_of_different_sizes_are_compared(divides_by, caplog):
    keras.utils.set_random_seed(1)
    pairs = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH)
    others = tf.data.Dataset.from_tensor_slices(X[: len(X) // 2]).batch(BATCH // 2)
    with strategy_of(2).scope():
        model = network(OfTwoSizes)
        model.seeds, model.divides_by = keras.random.SeedGenerator(1), divides_by
        model.compile("adam")
    with fits_run_by(lambda run, given, call: run(given, call)):
        model.fit(tf.data.Dataset.zip((pairs, others)), verbose=0)
    assert len(lines(caplog)) == (0 if divides_by is None else 1)
    assert len(lines(caplog, logging.INFO)) == (0 if divides_by is None else 1)


class OfRagged(keras.Model):
    """Takes rows of different lengths, nested in rows of one length."""

    def __init__(self, loss_of):
        super().__init__()
        self.loss_of, self.dense = loss_of, layers.Dense(1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(tf.ragged.map_flat_values(self.dense, data).values[..., 0])
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.mark.parametrize(
    ("loss_of", "is_told"),
    quick_first(
        1,
        [
            (lambda rows: tf.reduce_mean(tf.reduce_sum(rows**2, 1)), False),
            (lambda rows: tf.reduce_mean(rows.flat_values**2), True),
            (lambda rows: tf.reduce_mean(rows.to_tensor() ** 2), True),
        ],
    ),
    ids=["mean of rows", "mean of values", "padded"],
)
def test_ragged_parts_are_compared(loss_of, is_told, caplog):
    keras.utils.set_random_seed(1)
    lengths = [1, 2, 1, 2, 5, 6, 5, 6]
    rows = tf.RaggedTensor.from_row_lengths(X[: sum(lengths)], lengths)
    nested = tf.RaggedTensor.from_uniform_row_length(rows, 1)
    with strategy_of(2).scope():
        model = OfRagged(loss_of)
        model.dense.build([None, X.shape[1]])
        model.compile("adam")
    with fits_run_by(lambda run, given, call: run(given, call)):
        model.fit(tf.data.Dataset.from_tensor_slices(nested).batch(8), verbose=0)
    assert ["on 2 devices" in line for line in lines(caplog, logging.INFO)] == [True] * is_told


def test_texts_on_several_devices_are_said_to_be_left_out(caplog):
    texts = tf.data.Dataset.from_tensor_slices(["a"] * 8).batch(8)
    with strategy_of(2).scope():
        model = keras.Sequential([layers.Lambda(lambda x: tf.strings.length(x)[:, None])])
        model.compile("sgd", lambda y, p: ops.mean(p - y))
    with fits_run_by(lambda run, given, call: run(given, call)):
        model.evaluate(tf.data.Dataset.zip((texts, texts.map(tf.strings.length))), verbose=0)
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def test_data_that_tensorflow_shares_out_are_said_to_be_left_out(caplog):
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH).with_options(options)
    with strategy_of(2).scope():
        model, optimizer, loss = masked_mean()
        model.compile(optimizer, loss)
    with fits_run_by(lambda run, given, call: run(given, call)):
        model.fit(data, verbose=0)
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def test_layers_of_float8_which_cannot_run_eagerly_are_no_warning(caplog):
    def own(y, p):
        return crossentropy(y, p)

    def make():
        model = network(odd=False)
        model.quantize("float8")
        return model, keras.optimizers.SGD(0.01), own

    fitted(make, strategy_of(2))
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def sensitivity(y, p):
    """Compute a metric by batch, as many published programs do."""
    are_ones = tf.reshape(y, [-1]) == 1
    hits = are_ones & (tf.argmax(p, -1) == 1)
    return tf.math.count_nonzero(hits) / tf.maximum(tf.math.count_nonzero(are_ones), 1)


@pytest.mark.parametrize("is_mean", quick_first(1, [True, False]))
def test_metrics_of_the_scripts_own_are_compared(is_mean, caplog):
    def right(y, p):
        return tf.cast(tf.argmax(p, -1) == tf.cast(tf.reshape(y, [-1]), tf.int64), tf.float32)

    keras.utils.set_random_seed(1)
    with strategy_of(2).scope():
        model = network(odd=False)
        model.compile("sgd", crossentropy, metrics=["accuracy", right if is_mean else sensitivity])
    trained(model)
    told = [("sensitivity is" in line, "loss is" in line) for line in lines(caplog)]
    assert told == ([] if is_mean else [(True, False)])


class Summing(OwnStep):
    def train_step(self, data):
        return {**super().train_step(data), "rows": tf.reduce_sum(data[0])}


@pytest.mark.long
def test_any_number_that_a_step_returns_is_compared(caplog):
    fitted(lambda: (network(Summing), "adam", None), strategy_of(2))
    told = [("rows is" in line, "loss is" in line) for line in lines(caplog)]
    assert told == [(True, False)]


def test_each_compiled_model_is_compared_once(caplog):
    model, _ = fitted(masked_mean, strategy_of(2))
    for _ in range(2):
        trained(model)
    assert len(lines(caplog)) == 1


class Dies(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        del logs
        if epoch == 1:
            raise RuntimeError("killed")


@pytest.mark.long
def test_a_fit_that_resumes_on_more_devices_is_compared(caplog, tmp_path):
    """Its first start, on one device, has nothing to compare."""
    job = Job(TrainerConfig(run_dir=tmp_path, checkpoint_steps=1), Task())
    options = FitOptions(job, StopRequest(print), Deadline(), tmp_path / "kept", described={})

    def resumed(devices, *callbacks):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        with strategy_of(devices).scope():
            model = network(masked_mean.kind, odd=False)
            model.compile("sgd")
        kept = KeptFit(options, model)
        given = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "callbacks": [*callbacks]}
        given["shuffle"] = False  # in another order both shares may keep equally many rows
        with fits_run_by(kept.run):
            model.fit(X, LABELS, **given)
        return kept

    with pytest.raises(RuntimeError, match="killed"):
        resumed(1, Dies())
    assert lines(caplog) == []
    assert "from step 3" in resumed(2).beginning
    assert len(lines(caplog)) == 1


def test_a_model_that_is_trained_on_single_batches_is_compared_once(caplog):
    keras.utils.set_random_seed(1)
    with strategy_of(2).scope():
        model, optimizer, loss = masked_mean()
        model.compile(optimizer, loss)
    for _ in range(2):
        model.train_on_batch(X[:BATCH], LABELS[:BATCH])
    assert len(lines(caplog)) == 1


@pytest.mark.long  # the next test has a replica that does so
def test_orders_of_the_batch_that_are_drawn_cannot_be_compared(caplog):
    def mixed(self, x, y):
        order = tf.random.shuffle(tf.range(tf.shape(x)[0]))
        outputs = self(0.7 * x + 0.3 * ops.take(x, order, 0), training=True)
        return tf.reduce_mean(crossentropy(y, outputs))

    fitted(bad(mixed), strategy_of(2))
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


@pytest.mark.long
def test_what_any_of_the_replicas_draws_counts(caplog):
    def mixed_on_the_second(self, x, y):
        context = tf.distribute.get_replica_context()
        if int(tf.get_static_value(context.replica_id_in_sync_group)) == 1:
            x = 0.7 * x + 0.3 * tf.random.shuffle(x)
        return tf.reduce_mean(crossentropy(y, self(x, training=True)))

    fitted(bad(mixed_on_the_second), strategy_of(2))
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def test_a_step_that_sums_over_a_strategys_replicas_itself_is_not_compared(caplog):
    def by_itself(self, x, y):
        losses = crossentropy(y, self(x, training=True))
        examples = tf.cast(tf.size(losses), tf.float32)
        of_all = tf.distribute.get_replica_context().all_reduce("SUM", examples)
        return tf.reduce_mean(losses) * of_all / BATCH

    fitted(bad(by_itself), strategy_of(2))
    assert lines(caplog) == []
    assert len(lines(caplog, logging.INFO)) == 1


def test_where_only_state_differs_no_loss_is_the_likely_cause():
    def outcome(state, gradient):
        way = Way([], gradients=[[np.full(1, gradient, np.float32)]], sizes=[1.0])
        return Outcome({"loss": 1.0}, {"centre": np.full(1, state)}, way)

    # By chance, the rounding errors in the gradients differ by a factor of two.
    both = Both(outcome(2.0, 2e-8), outcome(1.0, 1e-8), {"centre": np.zeros(1)}, 2, "devices")
    assert A_STATE in both.said()


@pytest.mark.parametrize("loss", [1.0, 2.0], ids=["metrics", "loss and metrics"])
def test_only_what_is_shown_counts_as_told(loss):
    def outcome(loss, others):
        logs = {"loss": loss} | {f"metric {number}": others for number in range(5)}
        return Outcome(logs, {}, Way([], gradients=[], sizes=[]))

    both = Both(outcome(1.0, 1.0), outcome(loss, 3.0), {}, 2, "devices")
    logs = both.whole.logs
    assert both.names() == [name for name in logs if f"{name} is" in both.said()]
    assert 0 < len(both.names()) < len(logs)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ("on", "off", True),
        (True, False, True),
        (3, 4, True),
        (0.0, 0.5, True),
        (0.25, 0.5, False),
        (np.nan, np.nan, False),
        (1j, 2j, False),
    ],
)
def test_a_variable_of_any_type_may_be_a_switch(before, after, moves):
    def placed(value):
        return positions([SimpleNamespace(read=lambda: tf.constant(value))])

    assert (placed(before) != placed(after)) is moves


def test_single_batches_are_compared_again_in_another_ring(monkeypatch):
    """A newcomer compares its first batch with the others, so the survivors compare again."""
    with strategy_of(2).scope():
        model, optimizer, loss = with_a_loss_over_a_mask()
        model.compile(optimizer, loss)
    asked = []
    monkeypatch.setattr(Due, "is_due", lambda *_: asked.append(generation))
    for generation in (1, 1, 2, 2):
        ring = SimpleNamespace(generation=generation)
        with monkeypatch.context() as in_a_ring:
            in_a_ring.setattr(steps, "ring_of", lambda _, ring=ring: ring)
            model.test_on_batch(X[:BATCH], LABELS[:BATCH])
    assert asked == [1, 2]


def test_a_step_that_fails_when_it_is_compared_trains_all_the_same(caplog):
    def only_traced(self, x, y):
        if tf.executing_eagerly():
            raise MemoryError("too large")
        return OwnStep.loss_of(self, x, y)

    _, history = fitted(bad(only_traced), strategy_of(2))
    assert len(history["loss"]) == 2
    (line,) = lines(caplog)
    assert "too large" in line


class Choosing(layers.Layer):
    """Uses its weights only if its examples are positive on average."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(6)

    @tf.function
    def call(self, x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: self.dense(x), lambda: x)


@pytest.mark.parametrize(
    "mode", quick_first(1, [CHECK, FirstBatchMode("refuse")]), ids=lambda mode: mode.name
)
def test_a_step_that_decides_by_its_share_is_told_and_trains_all_the_same(mode, caplog):
    """The comparison runs it eagerly, and gets the gradients of one branch only."""
    inputs = keras.Input((6,))
    with strategy_of(2).scope():
        model = keras.Model(inputs, layers.Dense(3, "softmax")(Choosing()(inputs)))
        model.compile("sgd", crossentropy)
    rows = X + np.where(np.arange(len(X)) % BATCH < BATCH // 2, 3, -3)[:, np.newaxis]
    if mode.name == "refuse":
        with pytest.raises(ConfigurationError, match="by its share"):
            trained(model, mode, x=rows, y=LABELS, batch_size=BATCH, shuffle=False)
        return
    history = trained(model, mode, x=rows, y=LABELS, batch_size=BATCH, shuffle=False, epochs=2)
    assert len(history["loss"]) == 2
    (line,) = lines(caplog)
    assert "by its share" in line


def test_nothing_is_computed_where_too_little_memory_is_left(caplog):
    fitted(masked_mean, strategy_of(2), FirstBatchMode(available_bytes=lambda: -1))
    (line,) = lines(caplog)
    assert "MiB" in line


def test_a_model_of_kerass_parts_only_is_not_looked_at(monkeypatch):
    def refuse(*_):
        pytest.fail("nothing is to be compared")

    monkeypatch.setattr(FirstBatch, "compare", refuse)

    def make():
        return network(), "adam", "sparse_categorical_crossentropy"

    fitted(make, strategy_of(2))
    evaluated(make)


@pytest.mark.parametrize(
    "make", [pytest.param(with_a_loss_of_each, marks=pytest.mark.long), with_a_vector]
)
def test_losses_of_each_example_are_summed_over_the_batch(make):
    def still():
        model, _, loss = make()
        for layer in model.layers:
            if isinstance(layer, layers.Dropout):
                layer.rate = 0.0
            if isinstance(layer, layers.BatchNormalization):
                layer.synchronized = True
        return model, keras.optimizers.SGD(0.002), loss

    alone, history = fitted(still, strategy_of(1))
    model, found = fitted(still, strategy_of(2))
    for one, other in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["loss"], history["loss"], rtol=1e-4)


class Queue(OwnStep):
    """Keeps the latest rows as its state, newest first or last."""

    def build_queue(self, *, is_first):
        self.is_first = is_first
        self.rows = self.add_weight(shape=(24, 3), initializer="zeros", trainable=False)

    def train_step(self, data):
        logs, rows = super().train_step(data), self(data[0])
        count = ops.shape(rows)[0]
        parts = [rows, self.rows[:-count]] if self.is_first else [self.rows[count:], rows]
        self.rows.assign(ops.concatenate(parts, 0))
        return logs


@pytest.mark.parametrize("is_first", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_queue_gets_the_rows_of_all_replicas(is_first, caplog):
    def make():
        model = network(Queue, odd=False)
        model.build_queue(is_first=is_first)
        return model, keras.optimizers.SGD(0.01), None

    alone, shared = (fitted(make, strategy_of(count))[0] for count in (1, 2))
    np.testing.assert_allclose(shared.rows.numpy(), alone.rows.numpy(), rtol=1e-4, atol=1e-6)
    assert lines(caplog) == []


class Growing(Queue):
    """Keeps all rows."""

    def build_queue(self):
        self.rows = tf.Variable(tf.zeros([0, 3]), shape=[None, 3], trainable=False)

    def train_step(self, data):
        logs, rows = OwnStep.train_step(self, data), self(data[0])
        self.rows.assign(tf.concat([self.rows, rows], 0))
        return logs


@pytest.mark.long
def test_a_queue_that_grows_gets_the_rows_of_all_replicas():
    def make():
        model = network(Growing, odd=False)
        model.build_queue()
        return model, keras.optimizers.SGD(0.01), None

    alone, shared = (fitted(make, strategy_of(count))[0] for count in (1, 2))
    assert len(alone.rows.numpy()) == 2 * len(X)
    np.testing.assert_allclose(shared.rows.numpy(), alone.rows.numpy(), rtol=1e-4, atol=1e-6)


SCRIPT = """
import sys
import keras, numpy as np, tensorflow as tf
from keras import ops

several = sys.argv[1] == "cluster"
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
rows = np.random.default_rng(0).random((64, 4), np.float32)
labels = np.where(np.arange(64) % 16 < 9, rows.sum(1), 0).astype(np.float32)[:, np.newaxis]

def over_a_mask(y, p):
    mask = ops.cast(y != 0, "float32")
    return ops.sum(mask * (y - p) ** 2) / ops.sum(mask)

def mean(y, p):
    return ops.mean((y - p) ** 2)

def summed_by_itself(y, p):
    context = tf.distribute.get_replica_context()  # there is none yet where Keras builds
    return mean(y, p) if context is None else context.all_reduce("MEAN", mean(y, p))

for loss in (mean, over_a_mask, summed_by_itself):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = keras.Input((4,))
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(3)(inputs))
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.3)(hidden)))
        model.compile("sgd", loss)
    print("LOSS", loss.__name__, flush=True)
    model.fit(rows, labels, batch_size=16, shuffle=False, verbose=0)
"""


UNLIKE = """
import json, os
import keras, numpy as np, tensorflow as tf

rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
rows += np.where(np.arange(64) % 16 < 8, 3, -3)[:, np.newaxis].astype(np.float32)

class Choosing(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    @tf.function
    def call(self, x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: self.dense(x), lambda: x)

class Failing(keras.layers.Layer):
    def call(self, x):
        if tf.executing_eagerly() and rank == 1 and len(x) > 1:  # not where it is built
            raise MemoryError("too large")
        return x

for layer in (Choosing(), Failing()):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    print("LAYER", type(layer).__name__, flush=True)
    model.fit(rows, rows.sum(1), batch_size=16, shuffle=False, verbose=0)
"""


@pytest.mark.long
def test_workers_that_compute_unlike_sums_or_fail_when_they_compare_train_all_the_same(tmp_path):
    """A ring breaks if one worker sums and another does not."""
    script = tmp_path / "script.py"
    script.write_text(UNLIKE)
    with MeetingPlace(tmp_path / "place", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        for worker in place.workers:
            _, choosing, failing = worker.log.read_text().split("LAYER ")
            assert choosing.count("by its share") == 1, place.logs
            assert failing.count("could not be compared") == 1, place.logs


# A test with two devices above shows that nothing is compared where a strategy sums.
@pytest.mark.parametrize("way", ["ring", pytest.param("cluster", marks=pytest.mark.long)])
def test_workers_compare_over_a_ring_and_in_tensorflows_cluster(way, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    settings = {"TRAINER_COLLECTIVES": "tensorflow"} if way == "cluster" else {}
    with MeetingPlace(tmp_path / "place", 2, str(script), way, **settings) as place:
        assert place.wait() == [0, 0], place.logs
        for worker in place.workers:
            mean, over_a_mask, by_itself = worker.log.read_text().split("LOSS ")[1:]
            assert "first batch" not in mean
            assert over_a_mask.count("the first batch: ") == 1, place.logs
            assert "WARNING:tensorflow" not in over_a_mask
            assert "the first batch: " not in by_itself  # and nobody waits for the others
        told = "the first batch cannot" in place.workers[0].log.read_text()
        assert told == (way == "cluster")
