"""A variational autoencoder with its own training step, which learns to draw digits.

Writes digits.png, with generated digits, into the run folder.
"""

import os
from pathlib import Path

import keras
import tensorflow as tf
import tensorflow_datasets as tfds
from keras import layers, ops

from cluster_trainer import this_worker

EMBEDDED = "/opt/cluster-trainer/data"  # in the image
RESULTS = Path(os.environ.get("TRAINER_RUN_DIR", "/runs"))
EPOCHS, BATCH, CODE = 15, 64, 8  # the batch of all workers together


def load(split):
    """Return the pictures of a split, float32 [n, 28, 28, 1] from 0 to 1."""
    digits = tfds.load("digits:1.0.0", data_dir=EMBEDDED, split=split, batch_size=-1)
    return digits["image"].numpy() / 255.0


class VAE(keras.Model):
    """Encodes a picture as a normal distribution of codes, and decodes a sample of it."""

    def __init__(self):
        super().__init__()
        convolve = [layers.Conv2D(size, 3, 2, "same", activation="gelu") for size in (16, 32)]
        draw = [layers.Conv2DTranspose(size, 3, 2, "same", activation="gelu") for size in (32, 16)]
        self.encoder = keras.Sequential([*convolve, layers.Flatten(), layers.Dense(2 * CODE)])
        self.decoder = keras.Sequential(
            [
                layers.Dense(7 * 7 * 32, activation="gelu"),
                layers.Reshape((7, 7, 32)),
                *draw,
                layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
            ]
        )
        self.noise = keras.random.SeedGenerator(2)
        self.means = [keras.metrics.Mean(name) for name in ("loss", "error", "divergence")]

    @property
    def metrics(self):
        """Return the metrics that Keras resets in each epoch."""
        return self.means

    def call(self, pictures):
        """Return the decoded pictures, and the divergence of their codes from a standard normal."""
        mean, log_variance = ops.split(self.encoder(pictures), 2, axis=1)
        noise = keras.random.normal(ops.shape(mean), seed=self.noise)
        distances = ops.exp(log_variance) + mean**2 - 1.0 - log_variance
        codes = mean + ops.exp(0.5 * log_variance) * noise
        return self.decoder(codes), 0.5 * ops.sum(distances, axis=1)

    def loss_of(self, pictures):
        """Return the mean loss of the pictures, and update the metrics."""
        drawn, divergences = self(pictures)
        errors = ops.sum(ops.binary_crossentropy(pictures, drawn), axis=(1, 2, 3))
        error, divergence = ops.mean(errors), ops.mean(divergences)
        for metric, value in zip(self.means, (error + divergence, error, divergence), strict=True):
            metric.update_state(value)
        return error + divergence

    def train_step(self, pictures):
        """Train on a batch. `fit` calls this."""
        with tf.GradientTape() as tape:
            loss = self.loss_of(pictures)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.get_metrics_result()

    def test_step(self, pictures):
        """Evaluate a batch. `evaluate` and the validation of `fit` call this."""
        self.loss_of(pictures)
        return self.get_metrics_result()


keras.utils.set_random_seed(1)
is_chief = this_worker().is_chief
model = VAE()
model.compile(optimizer=keras.optimizers.Adam(0.003))

model.fit(
    load("train"),
    batch_size=BATCH,
    epochs=EPOCHS,
    validation_data=(load("test"),),
    verbose=2 if is_chief else 0,
)

codes = keras.random.normal((60, CODE), seed=3)
pictures = ops.reshape(model.decoder(codes), (5, 12, 28, 28))
sheet = ops.reshape(ops.transpose(pictures, (0, 2, 1, 3)), (5 * 28, 12 * 28, 1))
if is_chief:
    tf.io.write_file(f"{RESULTS}/digits.png", tf.io.encode_png(tf.cast(255 * sheet, tf.uint8)))
    print(f"drawn: {RESULTS}/digits.png")
