"""Synchronized BatchNorm on three devices trains as on one, even with uneven shares."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from conftest import quick_first, strategy_of

NOISE = np.random.default_rng(0)
INPUTS = NOISE.random((20, 6), np.float32) * np.arange(1, 7, dtype=np.float32)
TARGETS = np.sin(INPUTS.sum(1, keepdims=True))
SEQUENCES = NOISE.random((20, 5, 6), np.float32)
SEQUENCES[::2, 3:] = 0
pytestmark = pytest.mark.usefixtures("keeps_nothing")
long = pytest.mark.long


class OwnStep(keras.Model):
    """Trains as in Keras's guide: without `scale_loss`."""

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def normalizing(kind):
    given = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh")(given)
    hidden = layers.BatchNormalization(synchronized=True, momentum=0.8)(hidden)
    return kind(given, layers.Dense(1)(hidden))


def of_masked_steps(kind):
    given = keras.Input((5, 6))
    hidden = layers.Masking()(given)
    hidden = layers.BatchNormalization(synchronized=True, momentum=0.8)(hidden)
    hidden = layers.GlobalAveragePooling1D()(hidden)
    return kind(given, layers.Dense(1)(hidden))


def weights_after(replicas, make, inputs, batch_size):
    keras.utils.set_random_seed(5)
    with strategy_of(replicas).scope():
        model = make()
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(inputs, TARGETS, batch_size=batch_size, epochs=3, verbose=0, shuffle=False)
    return model.get_weights()


# Shares of 1, 1 and 2; a last batch of 2.
@pytest.mark.parametrize(
    ("batch_size", "make", "inputs", "kind"),
    quick_first(
        1,
        [
            (4, normalizing, INPUTS, keras.Model),
            (18, of_masked_steps, SEQUENCES, OwnStep),
            pytest.param(18, normalizing, INPUTS, OwnStep, marks=long),
            pytest.param(18, of_masked_steps, SEQUENCES, keras.Model, marks=long),
            pytest.param(4, of_masked_steps, SEQUENCES, OwnStep, marks=long),
            pytest.param(4, normalizing, INPUTS, OwnStep, marks=long),
            pytest.param(18, normalizing, INPUTS, keras.Model, marks=long),
            pytest.param(4, of_masked_steps, SEQUENCES, keras.Model, marks=long),
        ],
    ),
)
def test_uneven_shares_train_as_on_one_device(batch_size, make, inputs, kind):
    alone, together = (
        weights_after(replicas, lambda: make(kind), inputs, batch_size) for replicas in (1, 3)
    )
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


class Mixed(keras.Model):
    """Scales the loss of its second optimizer only."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.second = keras.optimizers.SGD(0.1)

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
            scaled = self.second.scale_loss(loss)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.second.apply(tape.gradient(scaled, variables), variables)
        return {"loss": loss}


def test_a_step_that_scales_one_of_two_losses_is_refused():
    with pytest.raises(ValueError, match="scale_loss"):
        weights_after(3, lambda: normalizing(Mixed), INPUTS, 18)
