"""Batches whose parts have different numbers of rows train as on one device, or say why not."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from cluster_trainer.engine.data import pieces, pipelines
from conftest import quick_first, strategy_of

RANDOM = np.random.default_rng(0)
UNLABELLED = RANDOM.random((48, 4)).astype("float32")
LABELLED = RANDOM.random((24, 4)).astype("float32")
LABELS = LABELLED.sum(1)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture(autouse=True)
def log(monkeypatch, caplog):
    """The messages, in a log that pytest sees; the trainer's own log goes to its screen only."""
    monkeypatch.setattr(pieces, "_said", [])
    monkeypatch.setattr(pieces, "log", logging.getLogger("said"))
    return caplog


class SemiSupervised(keras.Model):
    """Adds a mean over unlabelled rows, with noise, to one over labelled rows, which it counts."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1, kernel_initializer="ones")
        self.noise = keras.Sequential([layers.Dropout(0.5, seed=3), layers.BatchNormalization()])
        self.draws = True
        self.seen, self.loss_of_all = keras.metrics.Sum(name="seen"), keras.metrics.Mean("loss")
        self.dense.build((None, 4))
        self.noise.build((None, 1))

    @property
    def metrics(self):
        return [self.seen, self.loss_of_all]

    def computed(self, data, *, training):
        if isinstance(data, dict) or isinstance(data[0], dict):
            data = data if isinstance(data, dict) else data[0]
            data = data["unlabelled"], (data["labelled"], data["labels"])
        unlabelled, (labelled, labels) = data
        outputs = self.dense(unlabelled)
        if self.draws:
            outputs = self.noise(outputs, training=training)
        loss = ops.mean((self.dense(labelled)[:, 0] - labels) ** 2) + 0.1 * ops.mean(outputs**2)
        self.seen.update_state(ops.ones_like(labels))
        self.loss_of_all.update_state(loss)
        return loss

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.computed(data, training=True)
        variables = self.dense.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return self.get_metrics_result()

    def test_step(self, data):
        self.computed(data, training=False)
        return self.get_metrics_result()


def zipped(unlabelled=16, labelled=8, *, rows=24, drop_remainder=False):
    of_each = [
        tf.data.Dataset.from_tensor_slices(UNLABELLED).batch(unlabelled, drop_remainder),
        tf.data.Dataset.from_tensor_slices((LABELLED[:rows], LABELS[:rows])).batch(
            labelled, drop_remainder
        ),
    ]
    return tf.data.Dataset.zip(tuple(of_each)).prefetch(2)


def given():
    for place in range(3):
        unlabelled = UNLABELLED[16 * place :][:16]
        yield unlabelled, (LABELLED[8 * place :][:8], LABELS[8 * place :][:8])


class InDicts(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, place):
        rows = slice(8 * place, 8 * place + 8)
        unlabelled = UNLABELLED[16 * place :][:16]
        return {"unlabelled": unlabelled, "labelled": LABELLED[rows], "labels": LABELS[rows]}


def trained(replicas, data, *, draws, **options):
    keras.utils.set_random_seed(1)
    with strategy_of(replicas).scope():
        model = SemiSupervised()
        model.draws = draws
        model.compile(keras.optimizers.Adam(0.05))
    history = model.fit(data(), verbose=0, **options).history
    return {**history, "weights": np.concatenate([np.ravel(one) for one in model.get_weights()])}


def assert_as_on_one_device(replicas, data, *, draws, **options):
    expected = trained(1, data, draws=draws, **options)
    for name, values in trained(replicas, data, draws=draws, **options).items():
        assert values == pytest.approx(expected[name], rel=1e-4), name


IN_PROPORTION = {
    "in proportion": zipped,
    "of known sizes": lambda: zipped(drop_remainder=True),
    "a short last batch": lambda: zipped(rows=23),  # 16 and 7 rows in it
    "4 pieces of 3 and 6": lambda: zipped(12, 6),
}
EACH_ONCE = [(2, "4 pieces of 3 and 6"), (3, "a short last batch")]


@pytest.mark.parametrize(
    ("replicas", "name"),
    [
        *EACH_ONCE,
        *(
            pytest.param(replicas, name, marks=pytest.mark.long)
            for replicas in (2, 3)
            for name in IN_PROPORTION
            if (replicas, name) not in EACH_ONCE
        ),
    ],
)
def test_rows_that_were_batched_apart_are_shared_out(replicas, name):
    data = IN_PROPORTION[name]
    assert_as_on_one_device(replicas, data, draws=False, epochs=2, validation_data=zipped(rows=23))


def mapped(**options):
    return zipped(**options).map(lambda one, two: (one * 2, two))


@pytest.mark.parametrize(
    "data",
    quick_first(
        1,
        [
            lambda: zipped(16, 7),
            mapped,
            given,
        ],
    ),
    ids=["no common factor", "a map", "a generator"],
)
def test_what_cannot_be_cut_is_computed_by_all(data, log):
    """This includes dropout, BatchNormalization and sums in metrics."""
    assert_as_on_one_device(3, data, draws=True)
    assert log.text.count("every replica computes the whole batch") == 1


def test_a_single_batch_that_cannot_be_cut_trains_as_on_one_device():
    batch = InDicts()[0]

    def after_a_step(replicas):
        keras.utils.set_random_seed(1)
        with strategy_of(replicas).scope():
            model = SemiSupervised()
            model.compile(keras.optimizers.Adam(0.05))
        return model.train_on_batch(batch, return_dict=True)

    assert after_a_step(2) == pytest.approx(after_a_step(1), rel=1e-4)


class OfGraphs(keras.Model):
    """Sums the nodes of each graph and their neighbours into one output."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        nodes, edges, graphs = inputs["nodes"], inputs["edges"], inputs["graphs"]
        around = tf.math.unsorted_segment_sum(
            tf.gather(nodes, edges[:, 0]), edges[:, 1], tf.shape(nodes)[0]
        )
        return self.dense(tf.math.segment_sum(nodes + around, graphs))


class Graphs(keras.utils.PyDataset):
    """Batches of four paths of several lengths, merged into one graph."""

    def __len__(self):
        return 3

    def __getitem__(self, place):
        lengths = [2 + (place + one) % 3 for one in range(4)]
        graphs = np.repeat(np.arange(4), lengths)
        edges = [(one, one + 1) for one in range(len(graphs) - 1) if graphs[one] == graphs[one + 1]]
        nodes = UNLABELLED[: len(graphs)]
        targets = np.array(lengths, "float32")[:, None]
        weights = np.arange(1, 5, dtype="float32")
        return {"nodes": nodes, "edges": np.array(edges), "graphs": graphs}, targets, weights


def test_graphs_that_are_merged_train_and_predict_as_on_one_device():
    def of_graphs(replicas):
        keras.utils.set_random_seed(1)
        with strategy_of(replicas).scope():
            model = OfGraphs()
            model.compile("adam", "mse", metrics=["mae"], weighted_metrics=["mse"])
        history = model.fit(Graphs(), epochs=2, verbose=0, validation_data=Graphs()).history
        return {**history, "predicted": model.predict(Graphs(), verbose=0).ravel()}

    expected = of_graphs(1)
    for name, values in of_graphs(2).items():
        assert values == pytest.approx(expected[name], rel=1e-4), name


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (zipped, [(1, 16), (2, 8)]),
        (lambda: zipped().repeat(2).shuffle(2).take(1), [(1, 16), (2, 8)]),
        (mapped, [(None, None)]),
        (
            lambda: tf.data.Dataset.zip((zipped(), tf.data.Dataset.range(9))),
            [(1, 16), (2, 8), (1, None)],
        ),
        (lambda: tf.data.Dataset.zip((mapped(), tf.data.Dataset.range(9))), [(None, None)]),
        (lambda: tf.data.Dataset.from_tensor_slices((LABELLED, LABELS)).batch(8), [(None, None)]),
    ],
    ids=[
        "zip",
        "behind it",
        "a map behind it",
        "a zip of it",
        "a map of it within a zip",
        "no zip",
    ],
)
def test_it_is_told_what_was_batched_apart(data, expected):
    found = pipelines.components(data())
    assert [(one.parts, one.batch_size) for one in found] == expected
