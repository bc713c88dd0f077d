"""Runs as each worker of `fewer_sums.py`: trains `digits` with each optimizer and seed.

The chief prints {"OPTIMIZER SEED": accuracy on the test set} as JSON, on its last line.
"""

import json
import sys

import keras
import numpy as np
import tensorflow_datasets as tfds

DIGITS = "/opt/cluster-trainer/data/digits/1.0.0"
EPOCHS, BATCH = 20, 64
OPTIMIZERS = {
    "Adam": lambda: keras.optimizers.Adam(0.001),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
}


def load(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures of a split, and their labels."""
    builder = tfds.builder_from_directory(DIGITS)
    found = next(iter(tfds.as_numpy([builder.as_dataset(split=split, batch_size=-1)])))
    return found["image"] / np.float32(255), found["label"]


def made(optimizer: str, seed: int) -> keras.Model:
    """Return a small network for the digits, compiled."""
    keras.utils.set_random_seed(seed)
    layers = [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 5, strides=3, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(OPTIMIZERS[optimizer](), loss, metrics=["accuracy"])
    return model


def main(seeds: list[int]) -> None:
    """Train one after the other, and print what each has come to."""
    train, test, found = load("train"), load("test"), {}
    for optimizer in OPTIMIZERS:
        for seed in seeds:
            model = made(optimizer, seed)
            model.fit(*train, epochs=EPOCHS, batch_size=BATCH, verbose=0)
            _, found[f"{optimizer} {seed}"] = model.evaluate(*test, batch_size=360, verbose=0)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main([*map(int, sys.argv[1:])])
