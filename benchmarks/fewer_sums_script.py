"""Runs as each worker of `fewer_sums.py`: trains `digits` or a language model.

The chief prints {"OPTIMIZER SEED": result on the test set} as JSON, on its last line: the accuracy
of `digits` in points, the loss of the language model in nats.
"""

import json
import random
import sys

import keras
import numpy as np
import tensorflow as tf

DIGITS = "/opt/cluster-trainer/data/digits/1.0.0"
STEPS = 448
"""The steps of the only epoch: 7 rounds of 64. At the end of an epoch, weights are always
averaged.
"""
WINDOW, WIDTH, HEADS, SENTENCES = 16, 32, 2, 2000
Arrays = tuple[np.ndarray, np.ndarray]


def digits(split: str) -> Arrays:
    """Return the pictures of a split, and their labels."""
    import tensorflow_datasets as tfds  # noqa: PLC0415  it takes a second

    builder = tfds.builder_from_directory(DIGITS)
    found = next(iter(tfds.as_numpy([builder.as_dataset(split=split, batch_size=-1)])))
    return found["image"] / np.float32(255), found["label"]


def network() -> keras.Model:
    """Return a small network for `digits`."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 5, strides=3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def text(split: str) -> Arrays:
    """Return windows of a generated text (examples/language-model), and the next words."""
    from stories import sentence  # noqa: PLC0415  mounted beside this file

    draws = random.Random(7)  # noqa: S311
    words = " ".join(sentence(draws) for _ in range(SENTENCES)).split()
    known = {word: number for number, word in enumerate(sorted({*words}))}
    ids = np.array([known[word] for word in words], np.int32)
    ids = ids[: len(ids) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
    cut = len(ids) * 4 // 5
    ids = ids[:cut] if split == "train" else ids[cut:]
    return ids[:, :-1], ids[:, 1:]


def language_model() -> keras.Model:
    """Return a decoder of one block: logits of the next word at each position."""
    layers, count = keras.layers, int(text("train")[0].max()) + 1
    entry = keras.Input((WINDOW,), dtype="int32")
    places = layers.Embedding(WINDOW, WIDTH)(keras.ops.arange(WINDOW))
    inputs = layers.Embedding(count, WIDTH)(entry) + places
    normed = layers.LayerNormalization()(inputs)
    attend = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
    inputs += attend(normed, normed, use_causal_mask=True)
    hidden = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(inputs))
    inputs += layers.Dense(WIDTH)(hidden)
    return keras.Model(entry, layers.Dense(count)(layers.LayerNormalization()(inputs)))


TASKS = {"digits": (digits, network), "language": (text, language_model)}
OPTIMIZERS = {
    "Adam": {"digits": 0.001, "language": 0.003},
    "momentum": {"digits": 0.05, "language": 0.3},
}


def optimizer_of(name: str, rate: float) -> keras.optimizers.Optimizer:
    """Return a new optimizer."""
    if name == "Adam":
        return keras.optimizers.Adam(rate)
    return keras.optimizers.SGD(rate, momentum=0.9)


def trained(task: str, optimizer: str, seed: int, train: Arrays, test: Arrays) -> float:
    """Train from a seed; return the result on the test set."""
    keras.utils.set_random_seed(seed)
    model = TASKS[task][1]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = OPTIMIZERS[optimizer][task]
    model.compile(optimizer_of(optimizer, rate), loss, metrics=["accuracy"])
    batches = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[0]), seed).repeat()
    model.fit(batches.batch(64), steps_per_epoch=STEPS, epochs=1, verbose=0)
    found_loss, accuracy = model.evaluate(*test, batch_size=360, verbose=0)
    return 100 * accuracy if task == "digits" else found_loss


def main(task: str, seeds: list[int]) -> None:
    """Train with each optimizer and seed, and print the results."""
    load = TASKS[task][0]
    train, test = load("train"), load("test")
    found = {
        f"{optimizer} {seed}": trained(task, optimizer, seed, train, test)
        for optimizer in OPTIMIZERS
        for seed in seeds
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [*map(int, sys.argv[2:])])
