import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.batches import distribute
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.order import Slice, evaluation_batches, training_batches
from cluster_trainer.loop import Loop
from cluster_trainer.models import mnist_cnn
from conftest import strategy_of

GLOBAL_BATCH = 16


def pictures(count):
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 10, count)
    images = noise.integers(0, 100, [count, 28, 28, 1]) + 15 * labels[:, None, None, None]
    return Examples(images.astype(np.uint8), labels)


def build(strategy, make_model, rate=0.05):
    with strategy.scope():
        keras.utils.set_random_seed(1)
        return Loop(strategy, make_model(), keras.optimizers.SGD(rate, momentum=0.9))


def cnn():
    return mnist_cnn.build((28, 28, 1), 10)


def batch_norm_model():
    """Return a model whose statistics are of two types, as users' own may be.

    Trainable variables of two types can't be: TensorFlow does not sum their gradients.
    """
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.BatchNormalization()]
    other = keras.layers.BatchNormalization(center=False, scale=False, dtype="float64")
    return keras.Sequential([*layers, other, keras.layers.Dense(10)])


def cut_for(strategy, global_batch=GLOBAL_BATCH):
    replicas = strategy.num_replicas_in_sync
    return Slice(global_batch // replicas, replicas)


def train(loop, examples, steps, global_batch=GLOBAL_BATCH):
    cut = cut_for(loop.strategy, global_batch)
    batches = distribute(loop.strategy, cut, lambda part: training_batches(examples, part, 3))
    loop.train(batches, tf.constant(steps))
    return loop.model.get_weights()


def relative_difference(one, other):
    return max(np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_train_to_the_weights_of_one_device(replicas):
    examples = pictures(100)
    alone, together = (train(build(strategy_of(n), cnn), examples, 30) for n in (1, replicas))
    assert relative_difference(alone, together) < 1e-4


def test_filling_of_a_short_batch_does_not_train(strategy):
    examples = pictures(10)
    model = cnn()
    model.set_weights(build(strategy, cnn).model.get_weights())
    model.compile(
        keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    inputs = examples.inputs.astype(np.float32) / 255
    model.train_on_batch(inputs, examples.labels)
    with strategy.scope():
        loop = build(strategy, cnn)
    assert relative_difference(model.get_weights(), train(loop, examples, 1)) < 1e-5


def test_totals_are_those_of_the_examples_and_start_anew(strategy):
    examples = pictures(37)
    loop = build(strategy, cnn)
    cut = cut_for(strategy)
    batches = distribute(strategy, cut, lambda part: evaluation_batches(examples, part))
    for _ in range(2):
        loop.evaluate(batches, tf.constant(cut.steps_per_pass(37)))
        totals = loop.totals()
        logits = loop.model(examples.inputs.astype(np.float32) / 255).numpy()
        losses = keras.losses.sparse_categorical_crossentropy(
            examples.labels, logits, from_logits=True
        )
        assert totals.examples == 37
        assert totals.correct == int((logits.argmax(-1) == examples.labels).sum())
        assert totals.mean_loss == pytest.approx(float(np.mean(losses)), rel=1e-5)


def test_training_statistics_count_each_example(strategy):
    examples = pictures(37)
    loop = build(strategy, cnn)
    train(loop, examples, cut_for(strategy).steps_per_pass(37))
    assert loop.totals().examples == 37


@pytest.mark.parametrize("layer", [1, 2])
def test_batch_norm_statistics_end_equal_on_all_replicas(layer):
    strategy = strategy_of(2)
    loop = build(strategy, batch_norm_model)
    train(loop, pictures(64), 5)

    def statistics():
        moving = loop.model.layers[layer].moving_mean.value
        return [value.numpy() for value in strategy.experimental_local_results(moving)]

    before = statistics()
    loop.average_statistics()
    after = statistics()
    assert np.abs(before[0] - before[1]).max() > 0
    np.testing.assert_array_equal(after[0], after[1])
    np.testing.assert_allclose(after[0], np.mean(before, axis=0), rtol=1e-5)


def test_workers_agree_on_the_largest_value(strategy):
    loop = build(strategy, cnn)
    assert loop.largest(tf.constant([0.5, 15.0])).numpy().tolist() == [0.5, 15.0]


def test_regularisation_counts_once_however_many_replicas():
    def regularised():
        layers = [keras.Input((28, 28, 1)), keras.layers.Flatten()]
        penalty = keras.regularizers.L2(0.1)
        return keras.Sequential([*layers, keras.layers.Dense(10, kernel_regularizer=penalty)])

    examples = pictures(64)
    alone, both = (train(build(strategy_of(n), regularised), examples, 10) for n in (1, 2))
    assert relative_difference(alone, both) < 1e-4


def test_a_data_set_names_its_parts():
    examples = pictures(4)
    assert DataSet("x", examples, examples, 10).train.input_shape == (28, 28, 1)
