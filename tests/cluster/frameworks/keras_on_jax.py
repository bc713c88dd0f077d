"""A Keras program for JAX that knows nothing of workers. CASE selects the model, data and options.

The worker KILLS ends itself by SIGKILL in the third epoch of its first start. The worker ENDS does
so after the fit.
"""

# ruff: noqa: ARG002  Keras gives its hooks these arguments

import hashlib
import importlib
import os
import signal
import threading
from pathlib import Path

if os.environ.get("CASE") == "tensorflow first":
    importlib.import_module("tensorflow")
import jax
import keras
import numpy as np

CASE = os.environ.get("CASE", "arrays")
EPOCHS = 5


class Data(keras.utils.PyDataset):
    """Batches that shuffle themselves at the end of each epoch, from their own random state."""

    def __init__(self, x, y, seed):
        super().__init__()
        self.x, self.y, self.draws = x, y, np.random.default_rng(seed)
        self.rows = np.arange(len(x))

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = self.rows[index * 24 : index * 24 + 24]
        return self.x[rows] + self.draws.normal(scale=0.01), self.y[rows]

    def on_epoch_end(self):
        self.draws.shuffle(self.rows)


class OwnStep(keras.Model):
    """A custom training step, with JAX's stateless calls."""

    def train_step(self, state, data):
        return super().train_step(state, (data[0] * 2.0, *data[1:]))


class Killing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        is_first = os.environ.get("RESTART_COUNT", "0") == "0"
        chosen = os.environ.get("KILLS") == os.environ.get("WORKER_INDEX")
        if is_first and chosen and self.epoch == 2 and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


class Inner(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        made().fit(x[:24], y[:24], verbose=0)


class Meddling(keras.callbacks.Callback):
    """Changes the weights on one worker only."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and os.environ["WORKER_INDEX"] == "1":
            self.model.layers[1].bias.assign_add(np.ones(16))


class Alone(keras.callbacks.Callback):
    """Ends the training on one worker only, in the middle of an epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and os.environ["WORKER_INDEX"] == "1":
            self.model.stop_training = True


class AloneAtEpoch(keras.callbacks.Callback):
    """Ends the training on one worker only, at the beginning of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and os.environ["WORKER_INDEX"] == "1":
            self.model.stop_training = True


class Rate(keras.callbacks.Callback):
    """Sets another learning rate on one worker only."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and os.environ["WORKER_INDEX"] == "1":
            self.model.optimizer.learning_rate.assign(0.5)


class OneTrains(keras.callbacks.Callback):
    """Makes a call that is refused, on one worker only, while the other worker is in a step."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and os.environ["WORKER_INDEX"] == "1":
            self.model.train_on_batch(x[:24], y[:24])


class Stopping(keras.callbacks.Callback):
    """Asks one worker to stop, once, in the middle of the second epoch."""

    def on_train_batch_end(self, batch, logs=None):
        mark = Path("/runs/stopped")
        if os.environ["WORKER_INDEX"] == "1" and batch == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)


class Broken(keras.layers.Layer):
    """Calls a Python function that fails."""

    def call(self, inputs):
        shape = jax.ShapeDtypeStruct((), np.float32)
        return inputs + jax.pure_callback(self.fail, shape, 0.0)

    @staticmethod
    def fail(_):
        raise ValueError("the connection to my database was reset")


def scaled(labels, scores):
    """Return a loss that reads a number. The number differs between workers or between starts."""
    read = "WORKER_INDEX" if CASE == "other number" else "RESTART_COUNT"
    losses = keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
    return losses * (1 + int(os.environ.get(read, "0")))


def made():
    inputs = keras.Input((8,))
    layers = keras.layers
    outputs = layers.Dense(16, activation="relu")(inputs)
    outputs = layers.Dropout(0.3)(layers.BatchNormalization()(outputs))
    outputs = layers.Dense(2)(outputs)
    outputs = Broken()(outputs) if CASE == "own error" else outputs
    kind = OwnStep if CASE == "own step" else keras.Model
    model = kind(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(0.01, use_ema=CASE in {"ema", "ema early"}),
        scaled
        if CASE in {"other number", "later number"}
        else keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=2 if CASE == "steps_per_execution" else 1,
        run_eagerly=CASE == "run_eagerly",
    )
    return model


def generated(seed):
    draws = np.random.default_rng(seed)
    while True:
        rows = draws.integers(0, len(x), 24)
        yield x[rows], y[rows]


if CASE in {"mixed_bfloat16", "mixed_float16", "bfloat16"}:
    keras.config.set_dtype_policy(CASE)
if CASE != "no seed":
    keras.utils.set_random_seed(7)
numbers = np.random.default_rng(int(os.environ["WORKER_INDEX"]) if CASE == "other data" else 1)
x = numbers.normal(size=(100, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
model = made()
callbacks = [Killing()]
arguments = {"x": x, "y": y, "batch_size": 24, "validation_split": 0.2}
if CASE == "weights":
    arguments |= {"class_weight": {0: 1.0, 1: 3.0}}
if CASE in {"sample weights", "bfloat16"}:
    arguments |= {"sample_weight": np.linspace(0.5, 2.0, 100)}
if CASE == "dataset":
    arguments = {"x": Data(x, y, 3), "validation_data": (x, y)}
if CASE in {"generator", "unlike draws"}:
    seed = 3 if CASE == "generator" else None
    arguments = {"x": generated(seed), "steps_per_epoch": 4, "validation_data": (x, y)}
if CASE == "short":
    number = 8 - int(os.environ["WORKER_INDEX"])
    arguments = {"x": ((x[i : i + 12], y[i : i + 12]) for i in range(number))}
if CASE == "validation":
    arguments = {"x": x, "y": y, "batch_size": 24, "validation_data": generated(3)}
    arguments |= {"validation_steps": 2}
if CASE == "shuffle":
    arguments |= {"shuffle": "batch"}
if CASE == "files":
    file = "best.weights.h5"
    options = {"save_weights_only": True, "save_best_only": True, "monitor": "loss"}
    callbacks.insert(0, keras.callbacks.ModelCheckpoint(file, **options))
if CASE == "own steering" and os.environ["WORKER_INDEX"] == "1":
    callbacks.insert(0, keras.callbacks.EarlyStopping("loss", patience=9))
if CASE in {"early", "ema early"}:
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=9, restore_best_weights=True)
    stopping.patience = 1 if "KILLS" not in os.environ else 2
    callbacks.insert(0, stopping)
if CASE == "inner fit":
    callbacks.append(Inner())
if CASE == "one trains":
    callbacks.append(OneTrains())
if CASE == "rate":
    callbacks.append(Rate())
if CASE == "distribution":
    keras.distribution.set_distribution(keras.distribution.DataParallel())
if CASE == "own loop":
    optimizer, variables = keras.optimizers.SGD(0.1), model.trainable_variables
    optimizer.build(variables)
    optimizer.apply([np.zeros(one.shape) for one in variables], variables)
if CASE == "meddling":
    callbacks.append(Meddling())
if CASE == "alone":
    callbacks.append(Alone())
if CASE == "alone at an epoch":
    callbacks = [AloneAtEpoch()]
if CASE in {"alone by a lambda", "alone from the first step"}:
    name = "on_train_batch_end" if "lambda" in CASE else "on_train_begin"
    own = {name: lambda *_, **__: setattr(model, "stop_training", True)}
    own = own if os.environ["WORKER_INDEX"] == "1" else {}
    callbacks = [keras.callbacks.LambdaCallback(**own)]
if CASE == "stop":
    callbacks.append(Stopping())
if CASE == "tensorflow":
    importlib.import_module("tensorflow")
if CASE == "train_on_batch":
    model.train_on_batch(x[:24], y[:24])
if CASE == "thread":
    thread = threading.Thread(target=lambda: model.fit(**arguments))
    thread.start()
    thread.join()
history = model.fit(**arguments, epochs=EPOCHS, verbose=0, callbacks=callbacks).history
for name, values in history.items():
    print("history", name, *[f"{float(value):.6f}" for value in values])
is_first = os.environ.get("RESTART_COUNT", "0") == "0"
if is_first and os.environ.get("ENDS") == os.environ["WORKER_INDEX"]:
    os.kill(os.getpid(), signal.SIGKILL)
if CASE in {"early", "ema early"}:
    print("stopped", stopping.stopped_epoch, stopping.best_epoch)
if CASE == "files":
    model.load_weights("best.weights.h5")
loss, accuracy = model.evaluate(x, y, verbose=0)
rows = len(model.predict(x, verbose=0))
print(f"evaluated {loss:.6f} {accuracy:.6f}; {rows} rows predicted")
weights = [np.asarray(one) for one in model.get_weights()]
print("sums", *[f"{np.abs(one).sum():.6f}" for one in weights])
print("digest", hashlib.sha256(b"".join(one.tobytes() for one in weights)).hexdigest())
