"""The state of a model that each replica has for itself, and the warnings about it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from whole_batch import EPOCHS, WithoutOptimizer, X, Y, layers

from cluster_trainer.engine.replicas import statistics
from cluster_trainer.engine.replicas.state import own_state
from conftest import quick_first, strategy_of

pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture
def said(monkeypatch):
    """The warnings, each once."""
    for name in ("whole_numbers", "eager_numbers", "scaled"):
        getattr(own_state, f"_warn_of_{name}").cache_clear()
    found = []
    monkeypatch.setattr(own_state.log, "warning", lambda text, *of: found.append(text % of))
    return found


class Pointer(keras.layers.Layer):
    """Keeps the place in a queue where the next batch would begin."""

    def build(self, shape):
        del shape
        self.place = self.add_weight(
            name="place", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def call(self, inputs):
        self.place.assign((self.place + tf.shape(inputs)[0]) % 7)
        return inputs


class Flag(keras.layers.Layer):
    """Keeps whether it has seen a large number."""

    def build(self, shape):
        del shape
        self.seen = self.add_weight(
            name="flag", shape=(), dtype="bool", initializer="zeros", trainable=False
        )

    def call(self, inputs):
        self.seen.assign(self.seen | tf.reduce_any(inputs > 0.999))
        return inputs


class Idle(Pointer):
    """Has a whole number that no step changes."""

    def call(self, inputs):
        return inputs


class Frozen(keras.layers.Layer):
    """Keeps the mean of its last inputs in a weight that was made to be trained."""

    def __init__(self):
        super().__init__(trainable=False, name="frozen")

    def build(self, shape):
        self.seen = self.add_weight(name="seen", shape=shape[1:], initializer="zeros")

    def call(self, inputs):
        self.seen.assign(tf.reduce_mean(inputs, 0))
        return inputs


class ScalesAndAssigns(keras.Sequential):
    """Assigns weights from gradients of a loss that its optimizer scales."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(tf.reduce_mean((self(x, training=True) - y) ** 2))
        variables = self.trainable_variables
        for one, to in zip(tape.gradient(loss, variables), variables, strict=True):
            to.assign_sub(0.01 * one)
        return {"loss": loss}


class Function(keras.layers.Layer):
    """Reads frozen weights within a tf.function."""

    def __init__(self):
        super().__init__(trainable=False)
        self.dense = keras.layers.Dense(4)

    @tf.function
    def call(self, inputs):
        return tf.cond(tf.reduce_sum(inputs) > 0, lambda: self.dense(inputs), lambda: inputs)


class Recurrent(keras.layers.Layer):
    """Reads weights within a loop."""

    def __init__(self):
        super().__init__()
        self.lstm = keras.layers.LSTM(4)

    def call(self, inputs):
        return self.lstm(inputs[:, None] * tf.ones([1, 3, 1]))


def normalization():
    return keras.layers.BatchNormalization(momentum=0.5)


def made(extra=(), kind=keras.Sequential, **options):
    first, *others = layers()
    model = kind([first, *extra, *others])
    model.compile(keras.optimizers.SGD(0.01), "mse", **options)
    return model


@pytest.mark.parametrize(
    ("extra", "kind", "options", "expected"),
    quick_first(
        4,
        [
            ([Pointer], keras.Sequential, {}, "place holds integers"),
            ([Flag], keras.Sequential, {}, "flag holds integers or booleans"),
            ([Pointer], keras.Sequential, {"run_eagerly": True}, "place holds integers"),
            ([], WithoutOptimizer, {}, None),
            ([Frozen], keras.Sequential, {}, None),
            ([normalization], keras.Sequential, {}, None),
            ([Function, Recurrent], keras.Sequential, {}, None),
            ([Recurrent, normalization, Frozen], keras.Sequential, {}, None),  # means of 0 remain
            ([keras.layers.Normalization], keras.Sequential, {"run_eagerly": True}, None),
            ([Idle], keras.Sequential, {"run_eagerly": True}, None),
        ],
    ),
)
def test_what_each_replica_has_for_itself_is_said(said, extra, kind, options, expected):
    with strategy_of(2).scope():
        model = made([one() for one in extra], kind, **options)
        model.fit(X, Y, validation_data=(X, Y), **EPOCHS)
    assert len(said) == (expected is not None), "\n".join(said)
    assert not expected or expected in said[0]


class Flags:
    """A loss that notes large errors in a variable of its own."""

    def __init__(self):
        self.is_large = tf.Variable(initial_value=False, trainable=False, name="is_large")

    def __call__(self, y_true, y_pred):
        self.is_large.assign(self.is_large | tf.reduce_any(tf.abs(y_true - y_pred) > 1))
        return tf.reduce_mean((y_true - y_pred) ** 2, -1)


class Counts(Flags):
    """A loss that counts examples."""

    def __init__(self):
        self.count = tf.Variable(0, trainable=False, name="count")

    def __call__(self, y_true, y_pred):
        self.count.assign_add(tf.shape(y_true)[0])
        return tf.reduce_mean((y_true - y_pred) ** 2, -1)


@pytest.mark.parametrize(
    ("kind", "is_eager", "expected"),
    quick_first(
        2,
        [
            (Flags, False, ["is_large:0 holds integers or booleans that depend"]),
            (Counts, False, []),
            (Counts, True, ["count:0 holds integers or booleans that a step assigns eagerly"]),
        ],
    ),
)
def test_whole_numbers_of_no_layer_are_summed_or_said(said, kind, is_eager, expected):
    with strategy_of(2).scope():
        model = keras.Sequential(layers())
        model.compile("sgd", kind(), run_eagerly=is_eager)
        model.fit(X, Y, **EPOCHS)
    assert len(said) == len(expected), said
    assert all(line.startswith(text) for line, text in zip(said, expected, strict=True)), said


def test_weights_of_a_scaled_loss_are_said_to_be_each_replicas_own(said):
    with strategy_of(2).scope():
        model = made(kind=ScalesAndAssigns)
        model.fit(X, Y, **EPOCHS)
    for one in model.trainable_variables:
        assert sum("scale_loss" in line and one.path in line for line in said) == 1, said


class Sharpness(keras.Sequential):
    """Takes the gradients at weights that it moves and moves back: SAM."""

    def train_step(self, data):
        x, y = data
        variables = self.trainable_variables
        moves = [0.1 * one for one in self.gradients(x, y)]
        for one, move in zip(variables, moves, strict=True):
            one.assign_add(move)
        gradients = self.gradients(x, y)
        for one, move in zip(variables, moves, strict=True):
            one.assign_sub(move)
        self.optimizer.apply(gradients, variables)
        return {}

    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        return tape.gradient(loss, self.trainable_variables)


@pytest.mark.parametrize("kind", [WithoutOptimizer, Sharpness])
@pytest.mark.parametrize("is_eager", quick_first(1, [False, True]))
def test_weights_that_each_replica_assigns_are_averaged(kind, is_eager):
    with strategy_of(2).scope():
        model = made([Frozen()], kind, run_eagerly=is_eager)
        model.fit(X[:8], Y[:8], **EPOCHS)
        for one in model.variables:
            first, second = (copy.numpy() for copy in one.value.values)
            assert (first == second).all(), one.path


class Alike(keras.layers.Layer):
    """Assigns values that it computes from its share, and that are the same for every share."""

    VALUES = np.random.default_rng(0).normal(size=99).astype("float32")

    def build(self, shape):
        self.held = self.add_weight(shape=(99,), initializer="zeros", trainable=False)
        super().build(shape)

    def call(self, inputs):
        self.held.assign(self.VALUES * tf.reduce_max(tf.ones_like(inputs)))
        return inputs


def test_equal_numbers_are_not_changed_by_their_mean():
    with strategy_of(3).scope():
        layer = Alike()
        made([layer]).fit(X[:24], Y[:24], **{**EPOCHS, "epochs": 1})
    np.testing.assert_array_equal(layer.held.numpy(), Alike.VALUES)


def test_frozen_weights_are_nobodys_own():
    with strategy_of(2).scope():
        backbone = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(9), keras.layers.BatchNormalization()]
        )
        backbone.trainable = False
        model = made([backbone])
    names = [one.name for one in statistics.of_replica(model)]
    assert names == ["moving_mean", "moving_variance"]
    assert statistics.whole_numbers(model) == []
