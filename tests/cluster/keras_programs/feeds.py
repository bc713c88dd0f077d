"""Programs whose data are datasets, generators, or sequences of several lengths."""

import keras
import numpy as np
import tensorflow as tf
from arrays import BATCH, compiled, numbers
from keras import layers
from outcome import describe

TOKENS = 3000  # 64-bit integers: a mean of tokens is no token


def sentences():
    """Generate batches of tokens, each with the tokens that follow."""
    draws = np.random.default_rng(7)
    while True:
        starts = draws.integers(0, TOKENS, (16, 1))
        tokens = (starts + np.arange(7)) % TOKENS
        yield tokens[:, :-1], tokens[:, 1:]


def learn_tokens(strategy, stream, other):
    """Learn the next token, with gradients whose norm exceeds the clip norm."""
    with strategy.scope():
        model = keras.Sequential(
            [layers.Embedding(TOKENS, 4), layers.Dense(8, "tanh"), layers.Dense(TOKENS)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.AdamW(0.03, global_clipnorm=0.01, epsilon=0.01)
        model.compile(optimizer, loss, metrics=["accuracy"])
    history = model.fit(stream, steps_per_epoch=6, epochs=2, verbose=0)
    return {
        "history": history.history,
        "evaluation": model.evaluate(other, steps=3, verbose=0, return_dict=True),
        "weights": model.get_weights(),
    }


def language_model(strategy):
    """Pass `fit` a tf.data.Dataset that reads a generator."""
    tokens = tf.TensorSpec((16, 6), tf.int64)
    stream = tf.data.Dataset.from_generator(sentences, output_signature=(tokens, tokens))
    return learn_tokens(strategy, stream, stream)


def generator(strategy):
    """Pass `fit` the generator itself."""
    return learn_tokens(strategy, sentences(), sentences())


class Batches(keras.utils.PyDataset):
    """Seven batches: six of ten examples, and the last of five."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inputs, self.targets = numbers(65)

    def __len__(self):
        return 7

    def __getitem__(self, index):
        rows = slice(index * 10, index * 10 + 10)
        return self.inputs[rows], self.targets[rows]


def py_dataset(strategy):
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(Batches(), epochs=2, shuffle=False, verbose=0)
    evaluation = model.evaluate(Batches(), verbose=0)
    return describe(model, history) | {"evaluation": evaluation}


def shuffled_py_dataset(strategy):
    """Read with two threads, in another order in each epoch."""
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(Batches(workers=2), epochs=2, shuffle=True, verbose=0)
    return describe(model, history)


def strings(strategy):
    """Turn sentences into tokens in the pipeline. The last batch has one sentence."""
    draws = np.random.default_rng(8)
    words = np.array(["a", "worker", "sums", "what", "others", "send"])
    chosen = draws.integers(0, 6, (33, 5))
    texts = [" ".join(words[row][: 1 + row[0]]) for row in chosen]
    vectorize = layers.TextVectorization(output_sequence_length=5)
    vectorize.adapt(texts)
    pipeline = tf.data.Dataset.from_tensor_slices((texts, (chosen[:, :1] > 2).astype(np.float32)))
    pipeline = pipeline.batch(16).map(lambda text, label: (vectorize(text), label))
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Embedding(vectorize.vocabulary_size(), 4, mask_zero=True),
                layers.GlobalAveragePooling1D(),
                layers.Dense(1, "sigmoid"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(pipeline, epochs=2, verbose=0)
    outcome = describe(model, history)
    return outcome | {"predictions": model.predict(pipeline, verbose=0)}


def masked_sequences(strategy):
    """Train on weighted sequences of several lengths. The last batch has one sequence."""
    draws = np.random.default_rng(9)
    tokens = draws.integers(1, 50, (49, 7))
    tokens[np.arange(7) >= draws.integers(1, 8, (49, 1))] = 0
    weights = np.linspace(0.5, 1.5, tokens.size, dtype=np.float32).reshape(tokens.shape)
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Embedding(50, 4, mask_zero=True),
                layers.LSTM(4, return_sequences=True),
                layers.Dense(50),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    given = {"sample_weight": weights, "epochs": 2}
    history = model.fit(tokens, np.roll(tokens, -1, 1), **given, **BATCH)
    return describe(model, history)


def endless(strategy):
    """Take five batches per epoch from an endless dataset."""
    stream = tf.data.Dataset.from_tensor_slices(numbers(61)).shuffle(61, seed=4).repeat().batch(16)
    model = compiled(strategy, "mse", ["mae"])
    return describe(model, model.fit(stream, steps_per_epoch=5, epochs=2, verbose=0))


def unknown_length(strategy):
    """Read a dataset of unknown length, whose last batch is smaller."""
    stream = tf.data.Dataset.from_tensor_slices(numbers(85))
    stream = stream.filter(lambda inputs, _: inputs[0] > -0.5).batch(16)
    model = compiled(strategy, "mse", ["mae"])
    history = model.fit(stream, validation_data=stream, epochs=2, verbose=0)
    return describe(model, history)


def shared_by_tensorflow(strategy):
    """Let TensorFlow distribute the batches. It takes each worker's batches as different data."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    stream = tf.data.Dataset.from_tensor_slices(numbers(64)).batch(16).with_options(options)
    model = compiled(strategy, "mse", ["mae"])
    outcome = describe(model, model.fit(stream, epochs=2, verbose=0))
    return outcome | {"predictions": model.predict(stream, verbose=0)}


PROGRAMS = [
    language_model,
    generator,
    py_dataset,
    shuffled_py_dataset,
    strings,
    masked_sequences,
    endless,
    unknown_length,
    shared_by_tensorflow,
]
