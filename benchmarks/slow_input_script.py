"""Runs as each worker of `slow_input.py`: trains on pictures that take 5 ms each to prepare.

The chief prints the examples/s of each epoch from the second on, as JSON on its last line.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

SECONDS, EXAMPLES, BATCH, EPOCHS = 0.005, 640, 64, 4
PICTURES = np.random.default_rng(0).random((EXAMPLES, 28, 28, 1), np.float32)


class Clock(keras.callbacks.Callback):
    """Records the examples/s of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def on_epoch_begin(self, *_: object) -> None:
        """Record the beginning of an epoch."""
        self.began = time.perf_counter()

    def on_epoch_end(self, *_: object) -> None:
        """Record the speed of the epoch."""
        self.rates.append(EXAMPLES / (time.perf_counter() - self.began))


def read(row: np.int64) -> np.ndarray:
    """Return a picture after 5 ms, as if it was read from a disk."""
    time.sleep(SECONDS)
    return PICTURES[row]


def prepare(row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a row's picture and label."""
    picture = tf.numpy_function(read, [row], tf.float32, stateful=False)
    return tf.ensure_shape(picture, [28, 28, 1]), row % 10


def main(rows: str) -> None:
    """Train, and print the speed."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            *(keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu")),
            *(layers.MaxPooling2D(), layers.Flatten(), layers.Dense(64, activation="relu")),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    data = tf.data.Dataset.range(EXAMPLES).shuffle(EXAMPLES, seed=1).map(prepare)
    if rows == "all":
        data = data.filter(lambda *_: True)
    clock = Clock()
    model.fit(data.batch(BATCH), epochs=EPOCHS, verbose=0, callbacks=[clock])
    print(json.dumps(clock.rates[1:]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
