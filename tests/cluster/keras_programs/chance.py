"""Programs with random layers or BatchNorm: repeatable, but not equal to those on one device."""

import keras
import models
import numpy as np
from arrays import BATCH, numbers
from keras import layers
from outcome import describe


class Normalised(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = layers.Dense(8), layers.Dense(1)
        self.normalise = layers.BatchNormalization(momentum=0.8)
        self.drop = layers.Dropout(0.2)

    def call(self, inputs, *, training=False):
        hidden = self.normalise(self.first(inputs), training=training)
        return self.last(self.drop(hidden, training=training))


def random_and_normalised(strategy):
    inputs, targets = numbers(96)
    with strategy.scope():
        model = Normalised()
        model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse", metrics=["mae"])
    means = []  # as a callback that saves the model would see them
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: means.append(model.normalise.moving_mean.numpy())
    )
    history = model.fit(inputs, targets, epochs=2, callbacks=[keep], **BATCH)
    return describe(model, history, inputs, targets) | {"means": means}


def noisy_vae(strategy):
    return models.trained_vae(strategy, is_random=True)


class Dropping(keras.Model):
    """Reports the mask that it drew for the first example of its shard."""

    def __init__(self):
        super().__init__()
        self.drop = layers.Dropout(0.5, seed=5)

    def call(self, inputs):
        return self.drop(inputs, training=True)

    def train_step(self, data):
        return {"mask": self(data)[0]}


def masks(strategy):
    """Drop half of an array of ones, in training and in predictions."""
    ones = np.ones((16, 64), np.float32)
    with strategy.scope():
        model = Dropping()
        model.compile()
    history = model.fit(ones, epochs=2, **BATCH)
    predictions = model.predict(ones, verbose=0)
    return {"history": history.history, "predictions": predictions}


PROGRAMS = [random_and_normalised, noisy_vae, masks]
