"""A step with a fixed batch size is refused in plain words if it gets a share of the batch."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from cluster_trainer.problems import ExitCode
from conftest import quick_first, strategy_of

BATCH = 16
INPUTS = np.random.default_rng(0).random((70, 4)).astype("float32")
TARGETS = INPUTS.sum(1)
KNOWN, UNKNOWN = slice(0, 64), slice(0, 70)  # whether all batches have one size
pytestmark = pytest.mark.usefixtures("keeps_nothing")


class Noisy(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4)
        self.dense.build((None, 4))

    def train_step(self, data):
        inputs, _ = data
        noise = tf.random.normal((BATCH, 4))  # MADE
        with tf.GradientTape() as tape:
            loss = ops.mean((self.dense(inputs + noise) - noise) ** 2)  # FAILS
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Reshaping(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(tf.reshape(inputs, (BATCH, -1)))


class Positions(layers.Layer):
    def build(self, shape):
        self.positions = self.add_weight(shape=(BATCH, shape[-1]))

    def call(self, inputs):
        return inputs + self.positions  # FAILS


class InFunction(layers.Layer):
    @tf.function
    def added(self, inputs):
        return inputs + tf.ones((BATCH, 4))

    def call(self, inputs):
        return self.added(inputs)


class Asserting(layers.Layer):
    def __init__(self, rows=BATCH):
        super().__init__()
        self.rows = rows

    def call(self, inputs):
        tf.debugging.assert_equal(tf.shape(inputs)[0], self.rows)  # FAILS
        return inputs


class AssertingInPython(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.dense.build((None, 4))

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        assert data[0].shape[0] == BATCH  # FAILS
        return super().train_step(data)


class AssertingShapes(layers.Layer):
    def call(self, inputs):
        tf.debugging.assert_shapes([(inputs, (BATCH, 4))])  # FAILS
        return inputs


def loss_of_a_batch(targets, outputs):
    weights = tf.range(BATCH, dtype=tf.float32)  # MADE
    return ops.mean(weights * (tf.reshape(targets, [-1]) - outputs[:, 0]) ** 2)  # FAILS


def sequential(*parts):
    return keras.Sequential([keras.Input((4,)), *parts, layers.Dense(1)])


def baked_in():
    inputs = keras.Input((4,), batch_size=BATCH)
    halves = ops.reshape(inputs, (inputs.shape[0], 2, 2))
    return keras.Model(inputs, layers.Dense(1)(halves[:, 0]))


def trained(make, rows, *, replicas=2, loss="mse", **options):
    with strategy_of(replicas).scope():
        model = make()
        model.compile("sgd", loss, **options)
    model.fit(INPUTS[rows], TARGETS[rows], batch_size=BATCH, verbose=0)


def place(kind, mark):
    """Return the file and the line of a mark in a class or a function of this file."""
    lines = Path(__file__).read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if f"{kind.__name__}(" in line)
    return next(
        f"{__file__}:{number + 1}: "
        for number, line in enumerate(lines)
        if number > begin and f"# {mark}" in line
    )


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(KNOWN, id="known sizes", marks=pytest.mark.long),
        pytest.param(UNKNOWN, id="unknown sizes"),
    ],
)
@pytest.mark.parametrize(
    ("make", "options", "marks"),
    quick_first(
        1,
        [
            (Noisy, {}, [(Noisy, "MADE"), (Noisy, "FAILS")]),
            (Reshaping, {}, []),
            (lambda: sequential(Positions()), {}, [(Positions, "FAILS")]),
            (lambda: sequential(InFunction()), {}, []),
            (
                sequential,
                {"loss": loss_of_a_batch},
                [(loss_of_a_batch, "MADE"), (loss_of_a_batch, "FAILS")],
            ),
            (baked_in, {}, []),
            (lambda: keras.Sequential([Asserting(), layers.Dense(1)]), {}, [(Asserting, "FAILS")]),
        ],
    ),
    ids=["train_step", "call", "build", "tf.function", "loss", "Input", "assert"],
)
def test_a_fixed_batch_size_ends_the_fit_with_its_place(make, options, marks, rows, capsys):
    with pytest.raises(SystemExit) as ended:
        trained(make, rows, **options)

    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    said = capsys.readouterr().err
    assert "8 rows of a batch of 16" in said
    assert "keras.ops.shape(x)[0]" in said
    for kind, mark in marks:
        assert place(kind, mark) in said


@pytest.mark.parametrize(
    ("make", "kind", "rows"),
    quick_first(
        1,
        [
            (AssertingInPython, AssertingInPython, KNOWN),
            (
                lambda: keras.Sequential([AssertingShapes(), layers.Dense(1)]),
                AssertingShapes,
                UNKNOWN,
            ),
        ],
    ),
    ids=["in Python", "of shapes"],
)
def test_assertions_of_other_kinds_end_the_fit_with_their_place(make, kind, rows, capsys):
    with pytest.raises(SystemExit) as ended:
        trained(make, rows)
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    assert place(kind, "FAILS") in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    quick_first(
        1,
        [
            lambda model: model.evaluate(
                INPUTS[KNOWN], TARGETS[KNOWN], batch_size=BATCH, verbose=0
            ),
            lambda model: model.predict(INPUTS[KNOWN], batch_size=BATCH, verbose=0),
            lambda model: model.train_on_batch(INPUTS[:BATCH], TARGETS[:BATCH]),
        ],
    ),
    ids=["evaluate", "predict", "train_on_batch"],
)
def test_a_fixed_batch_size_ends_other_calls_too(call, capsys):
    with strategy_of(2).scope():
        model = sequential(Positions())
        model.compile("sgd", "mse")

    with pytest.raises(SystemExit) as ended:
        call(model)
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    assert "8 rows of a batch of 16" in capsys.readouterr().err


def test_an_error_of_another_kind_stays_as_it_is():
    """One device has this error as well."""
    with pytest.raises(ValueError, match="axis -1"):
        trained(lambda: keras.Sequential([keras.Input((5,)), layers.Dense(1)]), KNOWN)


def test_an_assertion_that_fails_on_the_whole_batch_stays_as_it_is():
    with pytest.raises(tf.errors.InvalidArgumentError, match="did not hold"):
        trained(lambda: keras.Sequential([Asserting(3 * BATCH), layers.Dense(1)]), UNKNOWN)


class OfShape(keras.Sequential):
    """Takes the number of rows from the shape, which is known on one device."""

    def __init__(self, ones=lambda rows: tf.ones((rows, 1)), *, counts=False):
        super().__init__([keras.Input((4,)), layers.Dense(1)])
        self.ones = ones
        self.counter = tf.Variable(0, trainable=False) if counts else None

    def train_step(self, data):
        inputs, _ = data
        ones = self.ones(inputs.shape[0])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs) - ones) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        if self.counter is not None:
            self.counter.assign_add(1)
        return {"loss": loss}


@pytest.mark.parametrize(
    ("make", "replicas", "why"),
    quick_first(
        1,
        [
            (OfShape, 3, "16 rows cannot be divided equally among 3 replicas"),
            (lambda: OfShape(counts=True), 2, "such as a count of steps"),
            (
                lambda: OfShape(lambda rows: tf.constant([1.0] * (2 * rows // 2))[:, None]),
                *(3, "16 rows cannot be divided equally"),
            ),
        ],
    ),
    ids=["unequal shares", "with a counter", "with arithmetic"],
)
def test_a_shape_that_is_unknown_for_a_share_is_named(make, replicas, why, capsys):
    with pytest.raises(SystemExit) as ended:
        trained(make, KNOWN, replicas=replicas)
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    said = capsys.readouterr().err
    assert "On one device `x.shape[0]` is 16" in said
    assert why in said
    assert "Write `tf.shape(x)[0]`" in said
    assert f'received "{__file__}:' in said


def test_a_shape_that_is_unknown_on_one_device_too_keeps_its_error():
    with pytest.raises((ValueError, TypeError), match="None"):
        trained(OfShape, UNKNOWN, replicas=3)


class Raises(keras.callbacks.Callback):
    def on_epoch_end(self, *_):
        raise AssertionError


def test_a_model_keeps_its_training_when_a_callback_fails():
    with strategy_of(2).scope():
        model = keras.Sequential([layers.Dense(1)])
        model.compile("sgd", "mse")
    with pytest.raises(AssertionError):
        model.fit(INPUTS, TARGETS, verbose=0, callbacks=[Raises()])
    assert model.built
    assert model.optimizer.iterations == len(INPUTS) // 32 + 1


def test_one_device_trains_with_it():
    trained(Noisy, KNOWN, replicas=1)
