"""A script with several fits that knows nothing of checkpoints, and kills itself on request.

KILLS is a JSON list of [worker, fit, step, whether its disk is lost, too]. Entry N applies to start
N of the script, from 0: the worker is killed once the fit has done this many steps.
"""

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

TOKENS = 50
KILLS = json.loads(os.environ.get("KILLS", "[]"))
WORKER, START = os.environ["WORKER_INDEX"], Path(os.environ["TRAINER_RUN_DIR"], "starts")
END = Path(os.environ["TRAINER_RUN_DIR"], f"end-{WORKER}.json")


class Killer(keras.callbacks.Callback):
    """Kills this process from a thread, at any moment of a step."""

    def __init__(self, fit):
        super().__init__()
        self.fit = fit

    def on_train_begin(self, logs=None):  # noqa: ARG002  Keras gives them by name
        start = int(START.read_text()) if START.exists() else 0
        self.due = KILLS[start] if start < len(KILLS) else (None, None, None, None)
        if self.due[:2] == [int(WORKER), self.fit]:
            threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while int(self.model.optimizer.iterations.numpy()) < self.due[2]:
            time.sleep(0.001)  # leaves the GIL to the training
        START.write_text(str(KILLS.index(self.due) + 1))
        if self.due[3]:
            shutil.rmtree(START.parent / f"worker-{WORKER}", ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)


class Autoencoder(keras.Model):
    """A variational autoencoder with a custom training step and random noise."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(4)])
        self.noise = keras.random.SeedGenerator(11)
        self.total = keras.metrics.Mean(name="total")
        # Keras lists neither variable. The value of the second differs between workers.
        self.steps = tf.Variable(
            0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        self.memory = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )

    @property
    def metrics(self):
        return [self.total]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance = ops.split(self.encoder(data), 2, axis=1)
            noise = keras.random.normal(ops.shape(mean), seed=self.noise)
            code = mean + ops.exp(0.5 * log_variance) * noise
            divergence = ops.mean(ops.exp(log_variance) + mean**2 - 1.0 - log_variance)
            loss = ops.mean((self.decoder(code) - data) ** 2) + 0.1 * divergence
            loss *= 1.0 + 0.1 * self.memory + 0.001 * self.steps
        self.steps.assign_add(1.0)
        self.memory.assign(0.9 * self.memory + 0.1 * ops.mean(data))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        return {"total": self.total.result()}


def sentences():
    draws = np.random.default_rng(7)
    for _ in range(40):
        tokens = (draws.integers(0, TOKENS, (16, 1)) + np.arange(7)) % TOKENS
        yield tokens[:, :-1], tokens[:, 1:]


def batches():
    """Yield batches forever, for a `fit` that gets the generator itself."""
    draws = np.random.default_rng(9)
    while True:
        rows = draws.integers(0, len(inputs), 16)
        yield inputs[rows], targets[rows]


class Batches(keras.utils.PyDataset):
    """Eleven batches, the last of one example. Two threads read them."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return inputs[rows], targets[rows]


class Examples:
    """A map-style data set of single examples."""

    def __len__(self):
        return len(inputs)

    def __getitem__(self, index):
        return inputs[index], targets[index]


def classifier():
    entry = [keras.Input((4,)), layers.Dense(8, "tanh", name="backbone")]
    model = keras.Sequential([*entry, layers.BatchNormalization(), layers.Dropout(0.2)])
    model.add(layers.Dense(1))
    return model


def digest(*models):
    content = b"".join(array.tobytes() for model in models for array in model.get_weights())
    return hashlib.sha256(content).hexdigest()


keras.utils.set_random_seed(3)
inputs = np.random.default_rng(5).normal(size=(101, 4)).astype(np.float32)
targets = inputs.sum(axis=1, keepdims=True)
over_ring = os.environ.get("TRAINER_COLLECTIVES") == "ring"
strategy = (
    tf.distribute.get_strategy() if over_ring else tf.distribute.MultiWorkerMirroredStrategy()
)
plain = {"batch_size": 16, "verbose": 0}

with strategy.scope():
    tuned = classifier()
    tuned.get_layer("backbone").trainable = False
    tuned.compile("adam", "mse", metrics=["mae"])
stopping = keras.callbacks.EarlyStopping(patience=8, min_delta=1.0, restore_best_weights=True)
slowing = keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.05)
frozen = tuned.fit(
    inputs,
    targets,
    validation_split=0.2,
    epochs=30,
    callbacks=[Killer(0), stopping, slowing],
    **plain,
)

with strategy.scope():
    tuned.get_layer("backbone").trainable = True
    tuned.compile("adam", "mse", metrics=["mae"])
shuffled = tf.data.Dataset.from_tensor_slices((inputs, targets)).shuffle(101, seed=1).batch(16)
unfrozen = tuned.fit(shuffled, epochs=6, verbose=0, callbacks=[Killer(1)])

with strategy.scope():
    encoder = Autoencoder()
    encoder.compile("adam")
encoded = encoder.fit(inputs, epochs=8, callbacks=[Killer(2)], **plain)

tokens = tf.TensorSpec((16, 6), tf.int64)
stream = tf.data.Dataset.from_generator(sentences, output_signature=(tokens, tokens))
with strategy.scope():
    language = keras.Sequential([layers.Embedding(TOKENS, 8), layers.Dense(TOKENS)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    language.compile(keras.optimizers.AdamW(0.01, global_clipnorm=0.1), loss)
spoken = language.fit(stream, epochs=3, verbose=0, callbacks=[Killer(3)])

with strategy.scope():
    fed = keras.Sequential([keras.Input((4,)), layers.Dropout(0.2), layers.Dense(1)])
given = [
    {"x": Batches(workers=2), "epochs": 4},
    {"x": Examples(), "epochs": 6, "batch_size": 16},
    {"x": batches(), "epochs": 4, "steps_per_epoch": 10},
]
fits = [frozen, unfrozen, encoded, spoken]
for arguments in given:
    with strategy.scope():
        fed.compile("adam", "mse")
    fits.append(fed.fit(**arguments, verbose=0, callbacks=[Killer(len(fits))]))

histories = [one.history for one in fits]
END.write_text(json.dumps([digest(tuned, encoder, language, fed), histories], default=float))
