"""A script for one machine: batches by hand, for a model with several buckets of gradients.

Of two workers, the first gets 3, 2 and 3 examples of the batches, and the other gets 2 each time.
So TensorFlow traces the step for any batch size on the first worker only.
"""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(7)
random = np.random.default_rng(8)


class Own(keras.Sequential):
    """A model whose step passes only gradients to the optimizer, which knows the variables."""

    def train_step(self, data):
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


def trained(kind):
    """Train on some batches; return their losses, and the final sums of the absolute weights."""
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
