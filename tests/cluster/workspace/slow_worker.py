"""Trains on two workers. The second takes 40 ms longer for each step."""

import json
import os
import time

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer import fit, start_strategy

INDEX = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


class Slow(keras.layers.Layer):
    """Sleeps in each step on the second worker."""

    def build(self, _):
        self.kernel = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        def wait(values):
            time.sleep(0.04 * INDEX)
            return values

        waited = tf.numpy_function(wait, [inputs], inputs.dtype)
        return tf.ensure_shape(waited, inputs.shape) * self.kernel


with start_strategy().scope():
    model = keras.Sequential([keras.Input((8,)), Slow()])
zeros = np.zeros((320, 8), np.float32)
both = (zeros, zeros)
fit(model, (both, both), optimizer="sgd", loss="mse", epochs=3, global_batch_size=16)
