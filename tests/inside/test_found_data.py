"""A worker's description of its data, which it compares with the other workers'."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import pipelines, random_access
from cluster_trainer.engine.data.same_data import drawing_nothing
from cluster_trainer.engine.data.sources.choice import batch_size_of, source_of
from cluster_trainer.private import keras_names

ROWS = np.arange(120, dtype=np.float32).reshape(60, 2)
LABELS = np.arange(60, dtype=np.float32)
keras_names.GET_DATA_ADAPTER.wrap(random_access.accepting)


def found(make, seed):
    """Return the description by a worker whose generators begin with this seed."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  as Keras draws
    strategy = tf.distribute.get_strategy()
    adapter = keras_names.GET_DATA_ADAPTER.own(make())
    return source_of(adapter, Replicas.of(strategy), strategy, 0).found()


@pytest.fixture
def folder(tmp_path):
    for name in range(40):
        kind = tmp_path / str(name % 2)
        kind.mkdir(exist_ok=True)
        keras.utils.save_img(kind / f"{name}.png", np.zeros((4, 4, 3)))
        (kind / f"{name}.txt").write_text(str(name))
    return tmp_path


def of_directory(kind, folder, **more):
    return getattr(keras.utils, f"{kind}_dataset_from_directory")(folder, verbose=False, **more)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_a_folder_that_each_worker_shuffles_is_another_on_each(folder, kind):
    size = {"image_size": (4, 4)} if kind == "image" else {}
    unseeded = [found(lambda: of_directory(kind, folder, **size), seed) for seed in (1, 2)]
    assert {name for name in unseeded[0] if unseeded[0][name] != unseeded[1][name]} == {
        pipelines.SHUFFLES,
        pipelines.ROWS,
    }
    seeded = [found(lambda: of_directory(kind, folder, seed=5, **size), seed) for seed in (1, 2)]
    assert seeded[0] == seeded[1]


def test_the_same_files_in_another_folder_are_the_same(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for file in folder.glob("*/*"):
        copy = elsewhere / file.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
    one, other = (
        found(lambda: of_directory("image", where, seed=5, image_size=(4, 4)), 1)  # noqa: B023
        for where in (folder, elsewhere)
    )
    assert one == other


class Batches(keras.utils.PyDataset):
    """Rows in an order that is drawn in the constructor."""

    def __init__(self, draw):
        super().__init__()
        self.order = np.arange(60)
        draw(self.order)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        rows = self.order[10 * index : 10 * index + 10]
        return ROWS[rows], LABELS[rows]


class Source:
    """Single examples in an order that is drawn in the constructor."""

    def __init__(self, draw):
        self.order = np.arange(60)
        draw(self.order)

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return ROWS[self.order[index]], LABELS[self.order[index]]


def drawn(order):
    np.random.shuffle(order)  # noqa: NPY002  as users do


def series(**more):
    return keras.utils.timeseries_dataset_from_array(
        ROWS, LABELS, sequence_length=3, shuffle=True, **more
    )


def split(**more):
    return keras.utils.split_dataset(
        tf.data.Dataset.from_tensor_slices((ROWS, LABELS)), 0.5, shuffle=True, **more
    )[0]


def sliced(draw):
    order = np.arange(60)
    draw(order)
    return tf.data.Dataset.from_tensor_slices((ROWS[order], LABELS[order])).batch(8)


def given(draw):
    yield from [Batches(draw)[0]] * 2


MADE = {
    "timeseries": (series, lambda: series(seed=1)),
    "split": (split, lambda: split(seed=1)),
    "slices": (lambda: sliced(drawn), lambda: sliced(len)),
    "PyDataset": (lambda: Batches(drawn), lambda: Batches(len)),
    "examples": (lambda: Source(drawn), lambda: Source(len)),
    "generator": (lambda: given(drawn), lambda: given(len)),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_each_worker_draws_for_itself_is_found(kind):
    unseeded, seeded = MADE[kind]
    assert found(unseeded, 1) != found(unseeded, 2)
    assert found(seeded, 1) == found(seeded, 2) != {}


def test_to_look_draws_no_number():
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    with drawing_nothing():
        np.random.normal()  # noqa: NPY002
        random.random()
    drawn = np.random.normal(), random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    assert drawn == (np.random.normal(), random.random())  # noqa: NPY002


def test_to_look_uses_up_no_order():
    def shuffled():
        return tf.data.Dataset.range(20).shuffle(20, seed=1).batch(4)

    expected, seen = shuffled(), shuffled()
    found(lambda: seen, 1)
    for one, other in zip(expected, seen, strict=True):
        np.testing.assert_array_equal(one, other)


def unordered(dataset):
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def double(number):
    return number * 2


RANGE = tf.data.Dataset.range(8)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (RANGE.map(double, num_parallel_calls=2), []),
        (RANGE.map(double, num_parallel_calls=2, deterministic=False), [pipelines.NO_ORDER]),
        (unordered(RANGE.map(double, num_parallel_calls=2)).batch(2), [pipelines.NO_ORDER]),
        (RANGE.shuffle(8, seed=1), []),
        (RANGE.shuffle(8).batch(2).prefetch(1), [pipelines.NO_SEED]),
    ],
)
def test_an_order_of_each_workers_own_is_told(dataset, expected):
    assert pipelines.warnings(dataset) == expected


def test_the_size_of_batches_is_that_of_what_has_rows():
    numbers = tf.data.Dataset.from_tensors(np.float32(1)).repeat()
    batches = tf.data.Dataset.zip((numbers, tf.data.Dataset.from_tensors(ROWS[:8])))
    assert batch_size_of(keras_names.GET_DATA_ADAPTER.own(batches)) == 8
    assert batch_size_of(keras_names.GET_DATA_ADAPTER.own(numbers)) is None


@pytest.mark.usefixtures("keeps_nothing")
@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_arrays_without_rows_are_told(call):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    targets = [] if call == "predict" else [LABELS[:0]]
    with pytest.raises(ValueError, match="no examples"):
        getattr(model, call)(ROWS[:0], *targets, verbose=0)
