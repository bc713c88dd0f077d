"""Programs with layers, models and training steps of many kinds."""

import keras
import numpy as np
import tensorflow as tf
from arrays import BATCH, numbers
from keras import layers, ops
from outcome import describe


def pictures(examples):
    """Return pictures, uint8 [n, 8, 8, 1], and masks of their bright pixels."""
    given = np.random.default_rng(6).integers(0, 256, (examples, 8, 8, 1), np.uint8)
    return given, (given > 127).astype(np.uint8)


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


def distance(wanted, found):
    """Return one number for the batch, like many custom losses."""
    return ops.mean(ops.abs(wanted - found)) + ops.mean((wanted - found) ** 2)


def autoencoder(strategy):
    """Use a function as the loss and the metric. The last batch is smaller."""
    inputs, _ = numbers(61)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(2, "tanh"), layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.1), distance, metrics=[distance])
    return describe(model, model.fit(inputs, inputs, epochs=2, **BATCH), inputs, inputs)


class Sampling(layers.Layer):
    """Samples from normal distributions, or uses noise that depends only on the inputs."""

    def __init__(self, is_random, **options):
        super().__init__(**options)
        self.is_random = is_random
        self.seeds = keras.random.SeedGenerator(11)

    def call(self, inputs):
        mean, log_variance = inputs
        chance = ops.sin(31.0 * mean)
        if self.is_random:
            chance = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * chance


class VAE(keras.Model):
    """A variational autoencoder of two models, without a `call` of its own."""

    def __init__(self, is_random):
        super().__init__()
        entry = keras.Input((4,))
        hidden = layers.Dense(8, "tanh")(entry)
        ends = [layers.Dense(2)(hidden), layers.Dense(2)(hidden)]
        self.encoder = keras.Model(entry, [*ends, Sampling(is_random)(ends)])
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(4)])
        self.total = keras.metrics.Mean(name="total")
        self.divergence = keras.metrics.Mean(name="divergence")

    @property
    def metrics(self):
        return [self.total, self.divergence]

    def loss_of(self, inputs):
        mean, log_variance, drawn = self.encoder(inputs)
        error = ops.mean(ops.sum((self.decoder(drawn) - inputs) ** 2, axis=1))
        parts = -0.5 * (1 + log_variance - mean**2 - ops.exp(log_variance))
        divergence = ops.mean(ops.sum(parts, axis=1))
        self.divergence.update_state(divergence)
        self.total.update_state(error + divergence)
        return error + divergence

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {metric.name: metric.result() for metric in self.metrics} | {"last_loss": loss}

    def test_step(self, data):
        self.loss_of(data)
        return {metric.name: metric.result() for metric in self.metrics}


def vae(strategy):
    return trained_vae(strategy, is_random=False)


def trained_vae(strategy, *, is_random):
    """Train with a smaller last batch, and evaluate."""
    inputs, _ = numbers(61)
    with strategy.scope():
        model = VAE(is_random)
        model.compile(keras.optimizers.Adam(0.01))
    history = model.fit(inputs, epochs=2, **BATCH)
    evaluation = model.evaluate(inputs, batch_size=16, verbose=0)
    return describe(model, history) | {"evaluation": evaluation}


class GAN(keras.Model):
    """Two models, each with its own optimizer. The maker's input comes from the real examples."""

    def __init__(self):
        super().__init__()
        self.maker = keras.Sequential([keras.Input((2,)), layers.Dense(8, "relu"), layers.Dense(4)])
        self.judge = keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(1)])
        self.judged = keras.metrics.Mean(name="judged")
        self.made = keras.metrics.Mean(name="made")

    def compile(self, judge_optimizer, maker_optimizer, loss):
        super().compile()
        self.judge_optimizer, self.maker_optimizer = judge_optimizer, maker_optimizer
        self.loss_function = loss

    @property
    def metrics(self):
        return [self.judged, self.made]

    def train_step(self, real):
        count, chance = ops.shape(real)[0], ops.sin(31.0 * real[:, :2])
        both = ops.concatenate([self.maker(chance), real])
        truth = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))])
        with tf.GradientTape() as tape:
            judged = self.loss_function(truth, self.judge(both))
        weights = self.judge.trainable_weights
        self.judge_optimizer.apply_gradients(
            zip(tape.gradient(judged, weights), weights, strict=True)
        )
        with tf.GradientTape() as tape:
            made = self.loss_function(ops.zeros((count, 1)), self.judge(self.maker(chance)))
        weights = self.maker.trainable_weights
        self.maker_optimizer.apply_gradients(
            zip(tape.gradient(made, weights), weights, strict=True)
        )
        self.judged.update_state(judged)
        self.made.update_state(made)
        return {"judged": self.judged.result(), "made": self.made.result()}


def gan(strategy):
    inputs, _ = numbers(61)
    with strategy.scope():
        model = GAN()
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02), loss)
    stream = tf.data.Dataset.from_tensor_slices(inputs).batch(16)
    return describe(model, model.fit(stream, epochs=2, verbose=0))


class Guided(keras.Model):
    """The training step of Keras's own guide."""

    def __init__(self):
        super().__init__()
        self.hidden, self.last = layers.Dense(8, "tanh"), layers.Dense(1)

    def call(self, inputs):
        return self.last(self.hidden(inputs))

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            predictions = self(inputs, training=True)
            loss = self.compute_loss(y=targets, y_pred=predictions)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(targets, predictions)
        return {metric.name: metric.result() for metric in self.metrics}


def own_train_step(strategy):
    inputs, targets = numbers(61)
    with strategy.scope():
        model = Guided()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return describe(model, model.fit(inputs, targets, epochs=2, **BATCH), inputs, targets)


def frozen_backbone(strategy):
    """Train only the head, then all layers at a smaller rate."""
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


class Positions(layers.Layer):
    """Adds a vector for each position of a sequence, as transformers do."""

    def __init__(self):
        super().__init__()
        self.vectors = layers.Embedding(4, 3)

    def call(self, inputs):
        return inputs + self.vectors(ops.arange(4))


def positions(strategy):
    """Train an embedding that looks up the same rows for every example."""
    noise = np.random.default_rng(8)
    inputs, targets = noise.normal(size=(2, 61, 4, 3)).astype("float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4, 3)), Positions(), layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01, epsilon=0.01, global_clipnorm=0.1), "mse")
    return describe(model, model.fit(inputs, targets[:, :, :1], epochs=10, **BATCH))


PROGRAMS = [segmentation, autoencoder, vae, gan, own_train_step, frozen_backbone, positions]
