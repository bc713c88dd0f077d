"""Predicts the sum of two digits, and whether the first one is larger, from two pictures.

Writes best.keras and history.csv into the run folder.
"""

import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from keras import layers

from cluster_trainer import this_worker

EMBEDDED = "/opt/cluster-trainer/data"  # in the image
RESULTS = Path(os.environ.get("TRAINER_RUN_DIR", "/runs"))
EPOCHS, BATCH = 10, 64  # the batch of all workers together


def load(split, pairs):
    """Return pairs of a split's digits as a dataset of (inputs, targets), each named."""
    digits = tfds.load("digits:1.0.0", data_dir=EMBEDDED, split=split, batch_size=-1)
    pictures, labels = digits["image"].numpy(), digits["label"].numpy()
    first, second = np.random.default_rng(len(labels)).integers(0, len(labels), (2, pairs))
    inputs = {"first": pictures[first], "second": pictures[second]}
    targets = {
        "sum": (labels[first] + labels[second]).astype(np.float32),
        "larger": (labels[first] > labels[second]).astype(np.float32),
    }
    return tf.data.Dataset.from_tensor_slices((inputs, targets))


def build():
    """Return a model that applies the same layers to both pictures."""
    look = keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 5, strides=2, activation="gelu"),
            layers.Conv2D(32, 3, strides=2, activation="gelu"),
            layers.Flatten(),
            layers.Dense(64, activation="gelu"),
        ],
        name="look",
    )
    inputs = {name: keras.Input((28, 28, 1), name=name) for name in ("first", "second")}
    both = layers.Concatenate()([look(one) for one in inputs.values()])
    hidden = layers.Dense(64, activation="gelu")(both)
    outputs = {
        "sum": layers.Dense(1, name="sum")(hidden),
        "larger": layers.Dense(1, activation="sigmoid", name="larger")(hidden),
    }
    return keras.Model(inputs, outputs)


keras.utils.set_random_seed(1)  # the same on all workers, so that all shuffle alike
is_chief = this_worker().is_chief
training = load("train", 3000).shuffle(3000).batch(BATCH).prefetch(tf.data.AUTOTUNE)
validation = load("test", 500).batch(BATCH)

model = build()
model.compile(
    optimizer=keras.optimizers.Adam(0.002),
    loss={"sum": "mse", "larger": "binary_crossentropy"},
    loss_weights={"sum": 0.1, "larger": 1.0},
    metrics={"sum": ["mae"], "larger": ["accuracy", keras.metrics.AUC(name="auc")]},
)

model.fit(
    training,
    epochs=EPOCHS,
    validation_data=validation,
    callbacks=[
        keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(RESULTS / "best.keras", save_best_only=True),
        keras.callbacks.CSVLogger(RESULTS / "history.csv"),
    ],
    verbose=2 if is_chief else 0,
)
found = model.evaluate(validation, return_dict=True, verbose=0)  # of the best epoch
if is_chief:
    print(", ".join(f"{name} {value:.4f}" for name, value in found.items()))
