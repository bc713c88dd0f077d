"""A script for one machine: tokens from a generator, a custom layer, a custom `train_step`."""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(5)
TOKENS = 3000


def sentences():
    random = np.random.default_rng(6)
    while True:
        tokens = random.integers(1, TOKENS, (14, 9))
        yield tokens[:, :-1], tokens[:, 1:] % 7


class Shift(layers.Layer):
    def call(self, inputs):
        return inputs + ops.roll(inputs, 1, axis=1)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [layers.Embedding(TOKENS, 8), Shift(), layers.LSTM(8, return_sequences=True)]
        self.out = layers.Dense(7)

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return self.out(inputs)

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


model = Model()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.AdamW(0.01, global_clipnorm=0.5), loss)
history = model.fit(sentences(), steps_per_epoch=10, epochs=3, verbose=0)
weights = [float(np.abs(one).sum()) for one in model.get_weights()]
print("RESULT", json.dumps({"of": "language", "numbers": history.history["loss"] + weights}))
