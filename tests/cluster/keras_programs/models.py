"""Programs with layers, models and training steps of many kinds."""

import keras
import numpy as np
import tensorflow as tf
from arrays import BATCH, numbers
from keras import layers, ops
from outcome import describe

TOKENS = 3000  # of 64 bits: a mean of them would be none of them


def pictures(examples):
    """Return pictures [n, 8, 8, 1] of bytes, and where they are bright."""
    given = np.random.default_rng(6).integers(0, 256, (examples, 8, 8, 1), np.uint8)
    return given, (given > 127).astype(np.uint8)


def language_model(strategy):
    """Learn the next token of sentences that a generator makes."""

    def sentences():
        draws = np.random.default_rng(7)
        while True:
            starts = draws.integers(0, TOKENS, (16, 1))
            tokens = (starts + np.arange(7)) % TOKENS
            yield tokens[:, :-1], tokens[:, 1:]

    tokens = tf.TensorSpec((16, 6), tf.int64)
    stream = tf.data.Dataset.from_generator(sentences, output_signature=(tokens, tokens))
    with strategy.scope():
        model = keras.Sequential(
            [layers.Embedding(TOKENS, 4), layers.Dense(8, "tanh"), layers.Dense(TOKENS)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Above every norm here: each replica clips its part before the parts are summed.
        optimizer = keras.optimizers.AdamW(0.003, global_clipnorm=100.0)
        model.compile(optimizer, loss, metrics=["accuracy"])
    history = model.fit(stream, steps_per_epoch=6, epochs=1, verbose=0)
    return {
        "history": history.history,
        "evaluation": model.evaluate(stream, steps=3, verbose=0, return_dict=True),
        "weights": model.get_weights(),
    }


class Autoencoder(keras.Model):
    """A variational autoencoder, but for its noise, with a step and metrics of its own."""

    def __init__(self):
        super().__init__()
        self.encoder = layers.Dense(4)
        self.decoder = layers.Dense(4)
        self.total = keras.metrics.Mean(name="total")
        self.divergence = keras.metrics.Mean(name="divergence")

    @property
    def metrics(self):
        return [self.total, self.divergence]

    def call(self, inputs):
        return self.decoder(self.encoder(inputs)[:, :2])

    def losses_of(self, inputs):
        mean, log_variance = ops.split(self.encoder(inputs), 2, axis=1)
        divergence = ops.mean(ops.exp(log_variance) + mean**2 - 1.0 - log_variance, axis=1)
        error = ops.mean((self.decoder(mean) - inputs) ** 2, axis=1)
        return error + 0.1 * divergence, divergence

    def train_step(self, data):
        with tf.GradientTape() as tape:
            losses, divergence = self.losses_of(data)
            share = tf.distribute.get_strategy().num_replicas_in_sync
            loss = ops.mean(losses) / share  # the optimizer sums over replicas
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return self.report(losses, divergence) | {"last_loss": loss}

    def test_step(self, data):
        return self.report(*self.losses_of(data))

    def report(self, losses, divergence):
        self.total.update_state(losses)
        self.divergence.update_state(divergence)
        return {metric.name: metric.result() for metric in self.metrics}


def own_train_step(strategy):
    inputs, _ = numbers(96)
    with strategy.scope():
        model = Autoencoder()
        model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(inputs, epochs=2, **BATCH)
    # Each step's own number, and of the last step: a mean over the replicas of each one's share.
    last_losses = history.history.pop("last_loss")
    last_losses = [loss * strategy.num_replicas_in_sync for loss in last_losses]
    return describe(model, history) | {"last losses": last_losses}


def segmentation(strategy):
    given, bright = pictures(64)
    with strategy.scope():
        entry = keras.Input((8, 8, 1))
        hidden = layers.Conv2D(4, 3, padding="same", activation="tanh")(
            layers.Rescaling(1 / 255)(entry)
        )
        small = layers.Conv2D(4, 3, strides=2, padding="same", activation="tanh")(hidden)
        large = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(small)
        ends = layers.Conv2D(2, 1)(layers.Concatenate()([hidden, large]))
        model = keras.Model(entry, ends)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.2), loss, metrics=["accuracy"])
    history = model.fit(given, bright, epochs=2, **BATCH)
    return describe(model, history, given, bright)


def frozen_backbone(strategy):
    """Train the head alone, then all, more slowly."""
    inputs, targets = numbers(96)
    with strategy.scope():
        backbone = keras.Sequential([keras.Input((4,)), layers.Dense(8, "tanh")], name="backbone")
        backbone.trainable = False
        model = keras.Sequential([backbone, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(inputs, targets, epochs=1, **BATCH)
    with strategy.scope():
        backbone.trainable = True
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    history = model.fit(inputs, targets, epochs=1, **BATCH)
    return describe(model, history)


def random_and_normalised(strategy):
    inputs, targets = numbers(96)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(8),
                layers.BatchNormalization(momentum=0.8),
                layers.Dropout(0.2),
                layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse", metrics=["mae"])
    history = model.fit(inputs, targets, epochs=2, **BATCH)
    return describe(model, history, inputs, targets)


PROGRAMS = [
    language_model,
    own_train_step,
    segmentation,
    frozen_backbone,
    random_and_normalised,
]
