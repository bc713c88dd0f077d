"""On one worker a model's steps are traced once, and users' own are left to Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

X = np.random.default_rng(0).random((32, 4), np.float32)
Y = (X.sum(1, keepdims=True) > 2).astype(np.float32)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


def dense(kind=keras.Sequential):
    start = keras.initializers.GlorotUniform(seed=3)
    return kind([keras.layers.Dense(1, "sigmoid", kernel_initializer=start)])


def traces(model):
    return model.train_function._many.experimental_get_tracing_count()  # noqa: SLF001


@pytest.mark.parametrize(
    ("keywords", "updates"), [({}, 8), ({"use_ema": True, "gradient_accumulation_steps": 2}, 4)]
)
def test_a_fit_traces_its_steps_once(keywords, updates):
    model = dense()
    optimizer = keras.optimizers.Adam(0.01, **keywords)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy", "auc"])
    model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X, Y), shuffle=False, verbose=0)
    assert traces(model) == 1
    assert int(optimizer.iterations) == updates


def test_a_loss_scale_is_that_of_each_step():
    """Keras takes the first one for good in the trace of a step that builds its optimizer."""
    model = keras.Sequential([keras.layers.Dense(1)])
    inner = keras.optimizers.SGD(0.0)
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**127)
    model.compile(scaled, "mse")
    model.fit(X * 100, Y, batch_size=8, epochs=10, verbose=0)
    assert 0 < int(inner.iterations) < 40
    assert float(scaled.dynamic_scale) < 2.0**127


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_a_train_step_of_ones_own_is_traced_as_keras_does():
    model = dense(OwnStep)
    model.compile("adam", "mse")
    history = model.fit(X, Y, batch_size=8, verbose=0).history
    assert [*history] == ["loss"]
    assert traces(model) == 2


def test_what_cannot_be_built_early_is_built_by_its_first_step():
    class Refuses(keras.Model):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("not yet")
            return self.dense(inputs)

    model = Refuses()
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_an_evaluation_builds_no_optimizer():
    """Its variables would take the memory of a model that nobody trains."""
    model = dense()
    model.compile("adam", "mse", metrics=["mae"])
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    assert not model.optimizer.built
