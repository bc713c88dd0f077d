"""A small GPT that learns to write from text files, word by word.

python train.py              learns from a generated text (stories.py)
python train.py A.txt B.txt  learns from your files, which it reads as streams. The last one is
                             for validation
"""

import sys
import tempfile
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers, ops
from stories import write_stories

from cluster_trainer import this_worker

MAX_WORDS, WINDOW, WIDTH, HEADS, BLOCKS = 5000, 32, 64, 4, 2
BATCH, EPOCHS, STEPS = 32, 3, 40  # the batch of all workers together


def read(files):
    """Return a dataset of the words of files, int64 [WINDOW], each with the word that follows."""
    windows = tf.data.TextLineDataset(files).map(vectorize).rebatch(WINDOW + 1, drop_remainder=True)
    return windows.map(lambda window: (window[:-1], window[1:]))


class Embedding(layers.Layer):
    """Embeds each word and its position."""

    def __init__(self, num_words):
        super().__init__()
        self.words = layers.Embedding(num_words, WIDTH)
        self.places = self.add_weight((WINDOW, WIDTH), "uniform")

    def call(self, ids):
        """Return vectors [n, length, WIDTH] of ids [n, length]."""
        return self.words(ids) + self.places[: ops.shape(ids)[1]]


class Block(layers.Layer):
    """Causal self-attention, then two dense layers."""

    def __init__(self):
        super().__init__()
        self.norms = layers.LayerNormalization(), layers.LayerNormalization()
        self.attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        self.dense = layers.Dense(4 * WIDTH, "gelu"), layers.Dense(WIDTH)

    def call(self, inputs):
        """Return vectors [n, length, WIDTH] of the same shape as the input."""
        given = self.norms[0](inputs)
        attended = inputs + self.attention(given, given, use_causal_mask=True)
        return attended + self.dense[1](self.dense[0](self.norms[1](attended)))


def build(num_words):
    """Return a decoder-only transformer: logits [n, length, num_words] of ids [n, length]."""
    blocks = [Block() for _ in range(BLOCKS)]
    ends = [layers.LayerNormalization(), layers.Dense(num_words)]
    entry = keras.Input((None,), dtype="int64")
    return keras.Sequential([entry, Embedding(num_words), *blocks, *ends])


class Perplexity(keras.metrics.SparseCategoricalCrossentropy):
    """The exponential of the mean loss."""

    def result(self):
        """Return the perplexity over all words of this epoch, on all workers."""
        return ops.exp(super().result())


def write(model, words, count):
    """Return words that continue a prompt, drawn from the model's distribution."""
    seed, names = keras.random.SeedGenerator(3), vectorize.get_vocabulary()
    ids = [int(one) for one in vectorize(words)]
    for _ in range(count):
        logits = model(tf.constant([ids[-WINDOW:]], tf.int64))[:, -1]
        ids.append(int(keras.random.categorical(logits, 1, seed=seed)[0, 0]))
    return " ".join(names[one] for one in ids)


keras.utils.set_random_seed(1)  # the same on all workers, so that all shuffle alike
is_chief = this_worker().is_chief
files = sys.argv[1:] or write_stories(Path(tempfile.mkdtemp()))
if len(files) == 1:
    sys.exit("python train.py: one file was given; two or more are needed, the last for validation")
vectorize = layers.TextVectorization(MAX_WORDS, standardize=None)
vectorize.adapt(tf.data.TextLineDataset(files[:-1]).batch(1000))
training = read(files[:-1]).repeat().shuffle(1000).batch(BATCH).prefetch(tf.data.AUTOTUNE)
validation = read(files[-1:]).batch(BATCH)

steps = EPOCHS * STEPS
rate = keras.optimizers.schedules.CosineDecay(
    0.0, steps, warmup_target=0.005, warmup_steps=steps // 10
)
model = build(vectorize.vocabulary_size())
model.compile(
    optimizer=keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[Perplexity("perplexity", from_logits=True)],
)

model.fit(
    training,
    steps_per_epoch=STEPS,
    epochs=EPOCHS,
    validation_data=validation,
    verbose=2 if is_chief else 0,
)
text = write(model, "In the evening,", 40)
if is_chief:
    print(text)
