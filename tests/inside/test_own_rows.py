"""A worker prepares only its own rows of a pipeline, and gets the same shares as from all rows."""

import random
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data import pipelines
from cluster_trainer.engine.data.sharding.row_wise import is_row_wise
from cluster_trainer.engine.data.sources.dataset import DatasetSource
from cluster_trainer.engine.data.sources.source import WholeBatchSource
from cluster_trainer.private import keras_names, tensorflow_names
from conftest import quick_first

CASES = 25
MORE_CASES = 300
ROWS = 23
Dataset = tf.data.Dataset


def source_of(dataset, replicas, **given):
    return DatasetSource(keras_names.TFDatasetAdapter(dataset, **given), replicas)


def flat(shares):
    """Return the elements of shares, with their types and shapes."""
    return [
        [(str(part.dtype), part.shape, np.asarray(part).tolist()) for part in tf.nest.flatten(one)]
        for one in shares.as_numpy_iterator()
    ]


def of_own_rows(dataset, replicas, first=0, passes=1):
    """Return the shares of some passes, their specification, and whether rows were left out."""
    source = source_of(dataset, replicas)
    shares = source.shares(0, first)
    is_split = source.own_rows is not None
    return [flat(shares) for _ in range(passes)], shares.element_spec, is_split


def of_all_rows(dataset, replicas, first=0, passes=1):
    shares = WholeBatchSource.shares(source_of(dataset, replicas), 0, first)
    return [flat(shares) for _ in range(passes)], shares.element_spec


# Random pipelines. The same seed makes the same choices for the other reading.


def sources(draw):
    rows = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 2, 2)
    return draw.choice(
        [
            lambda: Dataset.range(ROWS),
            lambda: Dataset.from_tensor_slices((rows, np.arange(ROWS))),
            lambda: Dataset.from_tensor_slices({"b": rows, "a": np.arange(ROWS)}),
            lambda: Dataset.from_generator(
                lambda: iter(range(ROWS)), output_signature=tf.TensorSpec([], tf.int64)
            ),
            lambda: Dataset.range(4).interleave(
                lambda row: Dataset.range(6 * row, 6 * row + 6), cycle_length=2
            ),
        ]
    )()


def twice(*parts):
    return tf.nest.map_structure(lambda part: part + part, parts)


def in_a_dictionary(*parts):
    return {f"part {number}": part for number, part in enumerate(tf.nest.flatten(parts))}


def with_more(*parts):
    leaves = tf.nest.flatten(parts)
    return leaves[0], (tf.stack([leaves[0]] * 3), *leaves[1:])


def step_of_rows(draw):
    parallel = draw.choice([None, 2, tf.data.AUTOTUNE])
    function = draw.choice([twice, in_a_dictionary, with_more])
    count, seed = draw.randrange(1, ROWS), draw.randrange(99)
    return draw.choice(
        [
            *[lambda data: data.map(function, num_parallel_calls=parallel)] * 5,
            lambda data: data.take(count),
            lambda data: data.skip(count // 3),
            lambda data: data.repeat(2),
            lambda data: data.prefetch(count),
            lambda data: data.shuffle(count, seed=seed),
            lambda data: data.filter(lambda *_: True),
        ]
    )


def step_of_batches(draw, *, may_stop):
    count = draw.randrange(1, 6)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    return draw.choice(
        [
            lambda data: data.prefetch(tf.data.AUTOTUNE),
            lambda data: data.take(count) if may_stop else data,
            lambda data: data.skip(1),
            lambda data: data.repeat(2),
            lambda data: data.with_options(options),
            lambda data: data.map(twice),
            lambda data: data.map(lambda *parts: tf.reverse(tf.nest.flatten(parts)[0], [0])),
        ]
    )


def pipeline(seed):
    """Make a random pipeline; the same seed makes the same pipeline."""
    draw = random.Random(seed)
    keras.utils.set_random_seed(1)
    data = sources(draw)
    for _ in range(draw.randrange(1, 5)):
        data = step_of_rows(draw)(data)
    data = data.map(twice).batch(
        draw.randrange(1, 10),
        drop_remainder=draw.choice([False, True]),
        num_parallel_calls=draw.choice([None, 2]),
    )
    # If an iterator stops early, the number of orders that it uses up depends on its read-ahead.
    may_stop = not pipelines.keeps_or_repeats_orders(data)
    for _ in range(draw.randrange(3)):
        data = step_of_batches(draw, may_stop=may_stop)(data)
    return data


def replicas_of(seed):
    draw = random.Random(seed)
    workers, local = draw.randrange(2, 7), draw.choice([1, 1, 2])
    most = draw.choice([None, 8 * local])
    return Replicas(workers * local, draw.randrange(workers) * local, local, most)


def assert_same_shares(seed):
    first, replicas = random.Random(seed).randrange(3), replicas_of(seed)
    expected, spec = of_all_rows(pipeline(seed), replicas, first, passes=2)
    found, own_spec, is_split = of_own_rows(pipeline(seed), replicas, first, passes=2)
    assert own_spec == spec, seed
    assert found == expected, seed
    return is_split


def test_the_shares_of_random_pipelines_are_those_of_all_rows():
    are_split = [assert_same_shares(seed) for seed in range(CASES)]
    assert sum(are_split) > CASES // 2


@pytest.mark.long
def test_the_shares_of_many_random_pipelines_are_those_of_all_rows():
    for seed in range(CASES, CASES + MORE_CASES):
        assert_same_shares(seed)


# Single pipelines.

ONE, OTHER = Replicas(2, 0), Replicas(2, 1)


class Prepares:
    """A `map` that notes the rows that it is run for."""

    def __init__(self):
        self.rows = []

    def _note(self, row):
        self.rows.append(int(row))
        return np.float32(row)

    def __call__(self, row):
        number = tf.numpy_function(self._note, [row], tf.float32, stateful=False)
        return row, tf.ensure_shape(number, [])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_map_is_run_for_the_rows_of_the_workers_share_only(workers):
    prepare = Prepares()
    data = Dataset.range(20).map(prepare, num_parallel_calls=2).batch(8)
    flat(source_of(data, Replicas(2, 0, 2 // workers)).shares(0, 0))
    of_worker = [*range(4), *range(8, 12), *range(16, 18)]
    assert sorted(prepare.rows) == (of_worker if workers == 2 else [*range(20)])


def test_two_devices_of_a_worker_get_its_rows():
    prepare = Prepares()
    data = Dataset.range(16).map(prepare).batch(8)
    shares = source_of(data, Replicas(4, 2, 2)).shares(0, 0)
    (((first, _), *_), ((second, _), *_)), *_ = shares.as_numpy_iterator()
    assert (first.tolist(), second.tolist()) == ([4, 5], [6, 7])
    assert sorted(prepare.rows) == [4, 5, 6, 7, 12, 13, 14, 15]


def test_it_uses_up_the_orders_that_the_script_uses_up_elsewhere():
    def orders(read):
        keras.utils.set_random_seed(1)
        data = Dataset.range(ROWS).shuffle(ROWS, seed=2).map(twice).repeat(2).map(twice).batch(5)
        shares, found = read(data), []
        for _ in range(3):
            found += [flat(shares), int(next(iter(data))[0][0])]
        return found

    own = orders(lambda data: source_of(data, ONE).shares(0, 0))
    assert own == orders(lambda data: WholeBatchSource.shares(source_of(data, ONE), 0, 0))


def test_rows_that_a_map_with_state_has_made_are_divided_after_it():
    def made():
        keras.utils.set_random_seed(1)
        drawn = Dataset.range(ROWS).map(lambda row: (row, tf.random.uniform([])))
        return drawn.map(lambda row, number: (row, number + 1)).batch(4)

    found, _, is_split = of_own_rows(made(), OTHER, passes=2)
    assert is_split
    assert found == of_all_rows(made(), OTHER, passes=2)[0]


@pytest.mark.long
def test_pictures_of_a_folder_are_divided_before_they_are_decoded(tmp_path):
    for number in range(11):
        kind = tmp_path / "ab"[number % 2]
        kind.mkdir(exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (4, 4, 3))
        keras.utils.save_img(kind / f"{number}.png", pixels)

    def made(scale=None):
        data = keras.utils.image_dataset_from_directory(
            tmp_path, image_size=(4, 4), batch_size=4, seed=3, verbose=False
        )
        return data.map(lambda picture, label: (scale(picture), label)) if scale else data

    for scale in (
        None,
        keras.layers.Rescaling(1 / 255),
        keras.applications.resnet50.preprocess_input,
    ):
        found, _, is_split = of_own_rows(made(scale), OTHER, passes=2)
        assert is_split
        assert found == of_all_rows(made(scale), OTHER, passes=2)[0]


def test_functions_that_read_tables_and_variables_are_divided():
    words = np.array(["one two", "two", "three one two", "one"] * 3)
    vectorize = keras.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(words)
    offset = tf.Variable(5, dtype=tf.int64)

    def made():
        return Dataset.from_tensor_slices(words).map(lambda row: vectorize(row) + offset).batch(5)

    found, _, is_split = of_own_rows(made(), OTHER)
    assert is_split
    assert found == of_all_rows(made(), OTHER)[0]


def test_class_weights_are_those_of_the_rows():
    rows = Dataset.from_tensor_slices((np.ones([9, 2]), np.arange(9) % 3)).map(lambda *row: row)
    source = source_of(rows.batch(4), OTHER, class_weight={0: 1.0, 1: 2.0, 2: 5.0})
    assert source.own_rows is not None
    assert flat(source.shares(0, 0)) == flat(WholeBatchSource.shares(source, 0, 0))


def test_a_short_batch_that_has_more_rows_for_a_worker_than_a_full_one_is_read_as_a_whole():
    replicas = Replicas(5, 2)
    found, _, is_split = of_own_rows(Dataset.range(15).map(twice).batch(8), replicas)
    assert found == of_all_rows(Dataset.range(15).map(twice).batch(8), replicas)[0]
    assert [len(one[0][2]) for one in found[0]] == [1, 2]
    assert not is_split


def test_shuffled_rows_that_are_repeated_need_shares_of_one_size():
    data = Dataset.range(ROWS).shuffle(9, seed=1).repeat().map(twice)
    of_batches = [source_of(data.batch(size), ONE).own_rows is not None for size in (6, 7)]
    assert of_batches == [True, False]


def counted():
    """Return a function for `map` that counts its calls, and so keeps a state."""
    count = tf.Variable(0, dtype=tf.int64)
    return lambda row: row + count.assign_add(1)


def noted(row):
    return tf.ensure_shape(tf.py_function(lambda one: one, [row], tf.int64), [])


def shapeless(row):
    return tf.numpy_function(lambda one: one, [row], tf.int64, stateful=False)


def ragged(row):
    return tf.RaggedTensor.from_row_lengths([row, row], [1, 1])


def with_options(data, **options):
    given = tf.data.Options()
    for name, value in options.items():
        setattr(given, name, value)
    return data.with_options(given)


GENERATOR = tf.random.Generator.from_seed(1)
ROW = Dataset.range(ROWS)
MAPPED = ROW.map(twice)
# Pipelines that each worker reads as a whole, and some words of the advice about each.
WHOLE = {
    "shuffled after it": (lambda: MAPPED.shuffle(9, seed=1).batch(4), "after `shuffle`"),
    "filtered after it": (lambda: MAPPED.filter(lambda row: row > 2).batch(4), "after `filter`"),
    "without errors": (lambda: MAPPED.ignore_errors().batch(4), "after `ignore_errors`"),
    "joined after it": (lambda: Dataset.zip(MAPPED, ROW).batch(4), "after `zip`"),
    "within an interleave": (
        lambda: ROW.interleave(lambda row: ROW.take(row).map(twice)).batch(4),
        "after `interleave`",
    ),
    "cached after it": (lambda: MAPPED.cache().batch(4), ""),
    "padded": (lambda: MAPPED.padded_batch(4), "padded"),
    "shuffled batches": (lambda: MAPPED.batch(4).shuffle(3, seed=1), "`shuffle` comes after"),
    "cached batches": (lambda: MAPPED.batch(4).cache(), ""),
    "batches without errors": (lambda: MAPPED.batch(4).ignore_errors(), "`ignore_errors` comes"),
    "over the batch": (lambda: MAPPED.batch(4).map(lambda rows: rows[::-1]), "before `batch`"),
    "drawn": (lambda: ROW.map(lambda _: tf.random.uniform([])).batch(4), "RandomUniform"),
    "drawn from a generator": (
        lambda: ROW.map(lambda _: GENERATOR.normal([])).batch(4),
        "RngReadAndSkip",
    ),
    "counted": (lambda: ROW.map(counted()).batch(4), "AssignAddVariableOp"),
    "in Python": (lambda: ROW.map(noted).batch(4), "EagerPyFunc"),
    "of unknown shape": (lambda: ROW.map(shapeless).batch(4), "set_shape"),
    "ragged": (lambda: ROW.map(ragged).batch(4), ""),
    "made by a generator": (
        lambda: Dataset.from_generator(
            lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int64)
        ).batch(4),
        "generator",
    ),
    "in any order": (lambda: with_options(MAPPED.batch(4), deterministic=False), ""),
    "a map in any order": (
        lambda: ROW.map(twice, num_parallel_calls=2, deterministic=False).batch(4),
        "",
    ),
    "without a map": (lambda: ROW.shuffle(9, seed=1).batch(4), ""),
    "without a batch": (lambda: Dataset.from_tensor_slices(np.ones([3, 4])).map(twice), "`batch`"),
}


@pytest.mark.parametrize("name", quick_first(8, WHOLE))
def test_it_is_read_as_a_whole(name):
    make, word = WHOLE[name]
    source = source_of(make(), ONE)
    assert source.own_rows is None
    assert word in source.advice
    assert bool(word) == bool(source.advice)


class Noting:
    def note(self, row):
        return noted(row)

    def __call__(self, row):
        return noted(row)


# Functions of a `map`, and the text of the line where each begins.
FUNCTIONS = {
    "a function": (noted, "def noted(row)"),
    "a lambda": (lambda row: noted(row) + 1, '"a lambda": (lambda row'),
    "a partial function": (partial(noted), "def noted(row)"),
    "a method": (Noting().note, "def note(self, row)"),
    "an object": (Noting(), "def __call__(self, row)"),
    "a tf.function": (tf.function(noted), "def noted(row)"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_advice_names_the_place_of_the_function(name):
    function, line = FUNCTIONS[name]
    advice = source_of(ROW.map(function).batch(4), ONE).advice
    assert f"{Path(__file__).name}:" in advice
    assert line in advice
    assert "<lambda>" not in advice


def test_nothing_is_said_of_a_pipeline_whose_maps_are_all_divided():
    assert source_of(ROW.shuffle(9, seed=1).map(twice).take(9).batch(4), ONE).advice == ""


# Functions of batches of pictures and numbers.
OF_ROWS = {
    "scaled": lambda x, y: (x / 255 - 1, tf.cast(y, tf.float32)),
    "one hot": lambda x, y: (x, tf.one_hot(y, 5)),
    "looked up": lambda x, y: (x, tf.gather(tf.constant([3.0, 1.0, 2.0, 0.0, 9.0]), y)),
    "resized": lambda x, y: (tf.image.resize(x, (3, 3)), y),
    "with another axis": lambda x, y: (x[..., tf.newaxis], tf.expand_dims(y, -1)),
    "cut out": lambda x, y: (x[:, 1:3, :2], y),
    "channels turned round": lambda x, y: (x[..., ::-1], y),
    "flattened": lambda x, y: (tf.reshape(x, [-1, 48]), y),
    "joined": lambda x, y: (tf.concat([x, x * 2], -1), tf.stack([y, y], 1)),
    "normalized": lambda x, y: (x - tf.constant([1.0, 2.0, 3.0]), y),
    "largest": lambda x, y: (tf.reduce_max(x, [1, 2]), y),
}
OF_BATCHES = {
    "minus the mean": lambda x, y: (x - tf.reduce_mean(x, 0), y),
    "minus the largest": lambda x, y: (x - tf.reduce_max(x), y),
    "turned round": lambda x, y: (tf.reverse(x, [0]), y),
    "some rows": lambda x, y: (x[1:], y[1:]),
    "every second row": lambda x, y: (x[::2], y[::2]),
    "one row": lambda x, y: (x[:1] + x, y),
    "one row for all": lambda x, y: (x + tf.cast(y, tf.float32)[0], y),
    "the number of rows": lambda x, y: (x, y + tf.cast(tf.shape(x)[0], y.dtype)),
    "rows on another axis": lambda x, y: (tf.transpose(x, [1, 0, 2, 3]), y),
    "joined rows": lambda x, y: (tf.concat([x, x], 0), y),
    "rows on top": lambda x, y: (tf.expand_dims(x, 0), y),
    "in pairs": lambda x, y: (tf.reshape(x, [-1, 2, 48]), y),
    "of all rows": lambda x, y: (tf.reshape(x, [4, -1]), y),
    "looked up in the batch": lambda x, y: (tf.gather(x, y), y),
    "broadcast over rows": lambda x, y: (x + tf.cast(y, tf.float32), y),
    "checked": lambda x, y: (tf.ensure_shape(x, [4, 4, 4, 3]), y),
    "asserted": lambda x, y: (tf.debugging.assert_equal(tf.shape(x)[0], 4), (x, y))[1],
    "exp": lambda x, y: (tf.exp(x), y),
    "drawn": lambda x, y: (x + tf.random.uniform([3]), y),
}


def batches(function):
    pixels = np.random.default_rng(0).random([12, 4, 4, 3], np.float32)
    rows = Dataset.from_tensor_slices((pixels, np.arange(12) % 4))
    return rows.map(lambda *row: row).batch(4).map(function)


@pytest.mark.parametrize("name", quick_first(4, OF_ROWS))
def test_a_map_of_batches_that_makes_rows_from_rows_is_run_for_some(name):
    data = batches(OF_ROWS[name])
    assert is_row_wise(tensorflow_names.traced_map(data))
    found, _, is_split = of_own_rows(data, OTHER)
    assert is_split
    assert found == of_all_rows(data, OTHER)[0]


@pytest.mark.parametrize("name", quick_first(3, OF_BATCHES))
def test_a_map_over_rows_is_run_for_all(name):
    assert not is_row_wise(tensorflow_names.traced_map(batches(OF_BATCHES[name])))


def test_a_map_of_batches_of_one_size_is_run_for_all():
    data = MAPPED.batch(4, drop_remainder=True).map(lambda rows: rows * 2)
    assert not is_row_wise(tensorflow_names.traced_map(data))
