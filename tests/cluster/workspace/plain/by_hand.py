"""A script for one machine: batches by hand, for a model of several buckets of gradients.

One of two workers has 3, 2 and 3 examples of them, the other 2 each time, so that TensorFlow traces
the step for any number on the one and not on the other.
"""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(7)
random = np.random.default_rng(8)


class Own(keras.Sequential):
    """Its step gives gradients without variables: the optimizer has them."""

    def train_step(self, data):
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


def trained(kind):
    """Return the losses of some batches, and the sums of what they leave of the weights."""
    parts = [layers.Conv1D(8, 3, padding="same"), layers.Dense(600, "tanh"), layers.Dense(3000)]
    model = kind([keras.Input((None, 8)), *parts, layers.LSTM(4), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.optimizer.build(model.trainable_variables)
    losses = []
    for examples in 5, 4, 5:
        inputs = random.normal(size=(examples, 7, 8)).astype("float32")
        losses.append(float(model.train_on_batch(inputs, inputs.mean((1, 2))[:, None])))
    return losses + [float(np.abs(one).sum()) for one in model.get_weights()]


numbers = trained(keras.Sequential) + trained(Own)
print("RESULT", json.dumps({"of": "by_hand", "numbers": numbers}))
