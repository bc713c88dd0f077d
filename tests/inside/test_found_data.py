"""A worker's description of its data, which it compares with the other workers'."""

import importlib
import random
import sys
from functools import partial

import keras
import like_torch
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import captured, pipelines, random_access
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


LETTERS = "abcdefgh"
RANGE = tf.data.Dataset.range(8)


def numbered(draw, table_of):
    """Return labels that a function numbers by an order of the letters."""
    order = list(LETTERS)
    draw(order)
    return tf.data.Dataset.from_tensor_slices(list(LETTERS)).map(table_of(order)).batch(4)


def looked_up_by_keras(order):
    return keras.layers.StringLookup(vocabulary=order, num_oov_indices=0)


def looked_up(order):
    numbers = tf.lookup.KeyValueTensorInitializer(order, tf.range(8, dtype=tf.int64))
    return tf.lookup.StaticHashTable(numbers, -1).lookup


def looked_up_in_a_branch(order):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(order, tf.range(8.0)), -1.0
    )
    return lambda letter: tf.cond(letter == "a", lambda: 0.0, lambda: table.lookup(letter))


def looked_up_backwards(order):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(8, dtype=tf.int64), order), ""
    )
    return lambda letter: table.lookup(tf.constant(1, tf.int64)) + letter


def found_in_a_list(order):
    return lambda letter: tf.argmax(tf.constant(order) == letter)


def found_in_a_long_list(order):
    names = tf.constant([*order, *map(str, range(200))])
    return lambda letter: tf.argmax(names == letter)


TABLES = [
    *(looked_up_by_keras, looked_up, looked_up_in_a_branch, looked_up_backwards),
    *(found_in_a_list, found_in_a_long_list),
]


@pytest.mark.parametrize("table_of", TABLES)
def test_labels_that_each_worker_numbers_otherwise_are_found(table_of):
    unlike = [found(lambda: numbered(random.shuffle, table_of), seed) for seed in (1, 2)]
    assert {one for one in unlike[0] if unlike[0][one] != unlike[1][one]} == {captured.TEXTS}
    alike = [found(lambda: numbered(len, table_of), seed) for seed in (1, 2)]
    assert alike[0] == alike[1]


def test_a_table_of_the_same_files_in_another_folder_is_the_same():
    tables = [[f"/data/{folder}/{letter}" for letter in LETTERS] for folder in (1, 2)]
    one, other = (found(lambda: numbered(len, lambda _: looked_up(on)), 1) for on in tables)  # noqa: B023
    assert one == other


def test_a_single_text_and_a_table_that_a_function_fills_may_differ():
    def counting(_):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        table.insert(str(np.random.random()), 1)  # noqa: NPY002

        def count(letter):
            table.insert(letter, table.lookup(letter) + 1)
            return tf.strings.join([letter, str(np.random.random())])  # noqa: NPY002

        return count

    one, other = (found(lambda: numbered(len, counting), seed) for seed in (1, 2))
    assert one == other


def test_many_numbers_of_a_function_are_told_by_a_digest():
    orders = [[*range(200)], [*reversed(range(200))]]
    made = [kind(order) for kind in (np.array, tf.constant) for order in orders]
    told = [pipelines.of_numbers(RANGE.map(partial(tf.gather, one))) for one in made]
    assert len({str(one) for one in told}) == 4


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.RandomFlip,
        partial(keras.layers.RandomRotation, 0.2),
        partial(keras.layers.RandomContrast, 0.2),
        partial(keras.layers.RandomCrop, 2, 2),
        partial(keras.layers.RandomErasing, 1.0),
        partial(keras.layers.RandAugment, value_range=(0, 1)),
        partial(keras.layers.GaussianNoise, 0.2),
    ],
    ids=["flip", "rotation", "contrast", "crop", "erasing", "augment", "noise"],
)
def test_a_random_layers_seed_is_no_number_of_a_pipeline(layer):
    """Without a seed, Keras draws another one at each start."""
    pictures = tf.data.Dataset.from_tensor_slices(np.ones((4, 8, 8, 3), np.float32)).batch(2)

    def augmented(seed):
        made = layer(seed=seed)
        return pictures.map(lambda one: made(one, training=True))

    assert pipelines.of_numbers(augmented(1)) == pipelines.of_numbers(augmented(2))


@pytest.fixture
def loader_of(tmp_path, monkeypatch):
    """Return a function that makes a torch DataLoader of the rows."""
    monkeypatch.syspath_prepend(like_torch.put(tmp_path))
    torch = importlib.import_module("torch.utils.data")
    yield partial(torch.DataLoader, ROWS, 8)
    for name in [one for one in sys.modules if one.partition(".")[0] == "torch"]:
        del sys.modules[name]


def source_for(loader):
    strategy = tf.distribute.get_strategy()
    adapter = keras_names.GET_DATA_ADAPTER.own(loader)
    return source_of(adapter, Replicas.of(strategy), strategy, 0)


def test_a_loader_of_torch_that_each_worker_shuffles_is_found(loader_of):
    one, same, other = (
        source_for(loader_of(shuffle=True, seed=seed)).found() for seed in (1, 1, 2)
    )
    assert len(one) == 4
    assert one == same
    assert one != other
    assert (
        source_for(loader_of(shuffle=False, seed=1)).found()
        == source_for(loader_of(shuffle=False, seed=2)).found()
    )


def test_to_look_at_a_loader_of_torch_uses_up_one_order_as_in_keras(loader_of):
    seen, expected = loader_of(shuffle=True, seed=1), loader_of(shuffle=True, seed=1)
    keras_names.GET_DATA_ADAPTER.own(expected).get_tf_dataset()
    source_for(seen).found()
    for one, other in zip(expected, seen, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_loader_of_torch_has_the_order_of_a_pass_after_a_restart(loader_of, shuffle):
    undisturbed, restarted = (
        source_for(loader_of(shuffle=shuffle, seed=1)),
        source_for(loader_of(shuffle=shuffle, seed=1)),
    )
    for number in range(3):
        undisturbed.begin_pass(number)
        expected = [batch[0].numpy() for batch in undisturbed.shares(number, 0)]
    restarted.catch_up(2)
    restarted.begin_pass(2)
    for one, other in zip(expected[3:], restarted.shares(2, 3), strict=True):
        np.testing.assert_array_equal(one, other[0])


def test_a_data_set_of_grain_is_read_to_compare_it():
    """Grain is not in the image, so that only a part of Keras's adapter is here."""
    adapter = keras_names.GrainDatasetAdapter.__new__(keras_names.GrainDatasetAdapter)
    adapter._dataset = [(ROWS[:8],), (ROWS[8:],)]  # noqa: SLF001
    assert [*map(len, keras_names.first_batches(adapter))] == [1]


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
