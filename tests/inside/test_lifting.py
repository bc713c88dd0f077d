"""A step that creates variables is traced once, and they are what they would have been."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.lifting import lifting

X = np.random.default_rng(0).random((32, 4), np.float32)
Y = (X.sum(1, keepdims=True) > 2).astype(np.float32)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


class Lazy(keras.Model):
    """Has layers that are made for the first batch, and a train_step of its own."""

    def __init__(self) -> None:
        super().__init__()
        start = keras.initializers.GlorotUniform(seed=3)
        self._dense = keras.layers.Dense(1, "sigmoid", kernel_initializer=start)

    def call(self, inputs):
        return self._dense(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            found = self(x, training=True)
            loss = self.compute_loss(x, y, found)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self.compute_metrics(x, y, found) | {"loss": loss}


def dense():
    start = keras.initializers.GlorotUniform(seed=3)
    return keras.Sequential([keras.layers.Dense(1, "sigmoid", kernel_initializer=start)])


@pytest.mark.parametrize("make", [dense, Lazy])
@pytest.mark.parametrize("keywords", [{}, {"use_ema": True, "gradient_accumulation_steps": 2}])
def test_a_fit_traces_its_steps_once(make, keywords):
    model = make()
    optimizer = keras.optimizers.Adam(0.01, **keywords)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy", "auc"])
    model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert model.train_function._many.experimental_get_tracing_count() == 1  # noqa: SLF001
    assert int(optimizer.iterations) == 8 // keywords.get("gradient_accumulation_steps", 1)


def test_xla_is_given_the_same_variables():
    ended = []
    for by_xla in (False, True):
        model = dense()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", jit_compile=by_xla)
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        ended.append(model.get_weights())
    np.testing.assert_allclose(*(one[0] for one in ended), rtol=1e-5)


def test_a_value_that_is_computed_in_the_trace_stays_there():
    made = []

    def first(value):
        if not made:
            made.append(tf.Variable(lambda: value * 2))
        return made[0].assign_add(value)

    function = tf.function(lifting(first), autograph=False)
    assert float(function(tf.constant(3.0))) == 9.0
    assert float(function(tf.constant(1.0))) == 10.0


def test_a_strategy_creates_its_own():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    made = []

    def first():
        if not made:
            made.append(tf.Variable(lambda: 3.0))
        return made[0].read_value()

    with strategy.scope():
        strategy.run(tf.function(lifting(first), autograph=False))
        plain = tf.Variable(3.0)
    assert type(made[0]) is type(plain)


def test_an_initial_value_may_be_a_tensor_of_the_trace():
    made = []

    def first(value):
        doubled = value * 2
        if not made:
            made.append(tf.Variable(lambda: doubled))
        return made[0].read_value()

    assert float(tf.function(lifting(first), autograph=False)(tf.constant(3.0))) == 6.0


def test_a_variable_that_a_later_trace_creates_is_refused_as_by_tensorflow():
    def each(value):
        return tf.Variable(lambda: 1.0) + tf.reduce_sum(value)

    function = tf.function(lifting(each), autograph=False)
    function(tf.zeros([]))
    with pytest.raises(ValueError, match="variables on a non-first call"):
        function(tf.zeros([2]))
