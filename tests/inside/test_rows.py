"""The order of the examples gives the same batches for any cut, and from any step on."""

from itertools import chain

import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.data.augment import BY_NAME
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.feeds import ExampleRows
from cluster_trainer.data.run_length import run_length_of
from cluster_trainer.engine import running
from cluster_trainer.engine.data.sources.rows import RowSource
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.engine.steps_per_call import SHORT_SECONDS, TARGET_SECONDS
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig

SEED = 7
# examples, global batch, replicas
CUTS = [(1437, 128, 2), (360, 96, 3), (10, 16, 4), (7, 24, 3), (1, 2, 2), (128, 128, 4), (22, 7, 2)]
COUNT, SIDE = 22, 9
CHOICES = [name for name, augmentation in BY_NAME.items() if augmentation]


def flat(lists):
    return list(chain.from_iterable(lists))


def numbered(count):
    """Return examples whose labels are their row numbers."""
    return Examples(np.zeros([count, 2], np.float32), np.arange(count))


def source(data, batch, replicas=Replicas(), seed=SEED, augmentation=None):  # noqa: B008  it is frozen
    rows = ExampleRows(data, batch, SEED, augmentation)
    return RowSource(rows.rows(seed), replicas, rows.take)


def shares(source, steps, first=0):
    """Return that many batches, each as (inputs, labels) of the local replicas' own examples."""
    batches = source.shares(0, first).take(steps)
    if isinstance(batches.element_spec[0], tf.TensorSpec):  # one replica gets whole batches
        return [[(inputs.numpy(), labels.numpy())] for inputs, labels in batches]
    return [
        [
            (inputs.numpy(), labels.numpy())
            for (inputs, labels), weight in batch
            if float(weight) > 0
        ]
        for batch in batches
    ]


def labels(source, steps, first=0):
    """Return the labels of each batch."""
    return [flat(own.tolist() for _, own in batch) for batch in shares(source, steps, first)]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1437])
def test_a_pass_is_a_permutation(count):
    (whole,) = labels(source(numbered(count), count), 1)
    assert sorted(whole) == list(range(count))


def test_each_pass_and_each_seed_has_an_order_of_its_own():
    orders = flat(labels(source(numbered(1000), 1000, seed=seed), 2) for seed in (1, 2))
    for index, order in enumerate(orders):
        assert (np.array(order) != np.arange(1000)).mean() > 0.9
        assert all(np.mean(np.array(order) != other) > 0.9 for other in orders[:index])


@pytest.mark.parametrize(("count", "batch", "replicas"), CUTS)
def test_workers_together_see_the_batches_of_one(count, batch, replicas):
    whole = source(numbered(count), batch)
    steps = 3 * whole.num_batches
    workers = [
        labels(source(numbered(count), batch, Replicas(replicas, index, 1)), steps)
        for index in range(replicas)
    ]
    together = [flat(parts) for parts in zip(*workers, strict=True)]
    assert together == labels(whole, steps)


def test_replicas_of_one_worker_take_neighbouring_parts():
    data = numbered(100)
    both = labels(source(data, 16, Replicas(4, 2, 2)), 6)
    whole = labels(source(data, 16), 6)
    assert both == [batch[8 * len(batch) // 16 :] for batch in whole]


@pytest.mark.parametrize(("count", "batch", "replicas"), CUTS)
@pytest.mark.parametrize("seed", [SEED, None], ids=["training", "evaluation"])
def test_a_pass_holds_every_example_once(count, batch, replicas, seed):
    cut = source(numbered(count), batch, Replicas(replicas, 0, replicas), seed)
    assert sorted(flat(labels(cut, cut.num_batches))) == list(range(count))


@pytest.mark.parametrize("first", [1, 5, 12, 40])
def test_a_run_goes_on_at_any_step(first):
    cut = source(numbered(100), 16, Replicas(2, 1, 1))
    assert labels(cut, 9, first) == labels(cut, first + 9)[first:]


def test_a_share_weighs_what_it_holds():
    cut = source(numbered(20), 8, Replicas(2, 0, 2))
    weights = [[float(weight) for _, weight in batch] for batch in cut.shares(0, 0).take(3)]
    assert weights == [[0.5, 0.5]] * 3
    (batch,) = source(numbered(1), 8, Replicas(2, 0, 2)).shares(0, 0).take(1)
    assert sorted(float(weight) for _, weight in batch) == [0, 1]


def inputs_of(array):
    """Return the inputs of the first batch of an evaluation, which keeps the order."""
    examples = Examples(array, np.zeros(len(array), int))
    (((inputs, _),),) = shares(source(examples, len(array), seed=None), 1)
    return inputs


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_stay_as_they_are(dtype):
    largest = np.iinfo(dtype).max  # float32 would change numbers above 2**24
    ids = np.array([[0, 1], [largest, largest - 1]], dtype)
    inputs = inputs_of(ids)
    assert inputs.dtype == dtype
    np.testing.assert_array_equal(inputs, ids)


def test_pictures_in_bytes_become_0_to_1():
    inputs = inputs_of(np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1))
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(inputs.ravel(), [0, 0.2, 1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_other_numbers_become_float32_and_keep_their_scale(dtype):
    inputs = inputs_of(np.array([[0.5], [255]], dtype))
    assert inputs.dtype == np.float32
    assert inputs.ravel().tolist() == [0.5, 255]


def test_keras_alone_reads_whole_batches():
    rows = ExampleRows(numbered(10), 4)
    assert rows.num_batches == 3
    assert [rows[index][1].tolist() for index in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def examples(count=COUNT, shape=(SIDE, SIDE, 3)):
    pictures = np.random.default_rng(0).random((count, *shape)).astype(np.float32)
    return Examples(pictures, np.arange(count))


def seen(cut, steps, first=0):
    """Return the joined inputs and the joined labels of that many batches."""
    parts = flat(shares(cut, steps, first))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def changed(data, batch, name, replicas=Replicas()):  # noqa: B008  it is frozen
    return source(data, batch, replicas, augmentation=BY_NAME[name])


@pytest.mark.parametrize("name", CHOICES)
def test_two_replicas_see_the_pictures_that_one_sees_bit_for_bit(name):
    # 22 pictures in batches of 8: the third batch of each pass is short.
    whole, _ = seen(changed(examples(), 8, name), 7)
    both, _ = seen(changed(examples(), 8, name, Replicas(2, 0, 2)), 7)
    np.testing.assert_array_equal(both, whole)


@pytest.mark.parametrize("name", CHOICES)
def test_a_run_that_goes_on_sees_the_pictures_that_it_would_have_seen(name):
    whole, _ = seen(changed(examples(), 8, name), 9)
    rest, _ = seen(changed(examples(), 8, name), 5, first=4)
    np.testing.assert_array_equal(rest, whole[COUNT + 8 :])  # four steps are a pass and a batch


@pytest.mark.parametrize("name", CHOICES)
def test_a_picture_looks_different_in_later_passes(name):
    passes = 12
    inputs, rows = seen(changed(examples(), COUNT, name), passes)
    looks = [{picture.tobytes() for picture in inputs[rows == row]} for row in range(COUNT)]
    at_least = 2 if name == "flip" else passes
    assert min(len(look) for look in looks) == at_least


def test_flip_mirrors_half_of_the_pictures_and_changes_nothing_else():
    data = examples(count=200)
    inputs, rows = seen(changed(data, 200, "flip"), 1)
    pairs = [(one, data.inputs[row]) for one, row in zip(inputs, rows, strict=True)]
    same = [np.array_equal(one, other) for one, other in pairs]
    mirrored = [np.array_equal(one, other[:, ::-1]) for one, other in pairs]
    assert np.array_equal(same, np.logical_not(mirrored))
    assert 70 < sum(mirrored) < 130


@pytest.mark.parametrize(("name", "mirrors"), [("crop", False), ("flip_crop", True)])
def test_crop_takes_windows_of_three_quarters_to_all_of_each_side(name, mirrors):
    ramp = np.linspace(0, 1, SIDE, dtype=np.float32)
    rows, columns = np.meshgrid(ramp, ramp, indexing="ij")
    picture = np.stack([rows, columns], -1)  # each pixel tells its place
    data = Examples(np.repeat(picture[None], 200, 0), np.arange(200))
    inputs, _ = seen(changed(data, 200, name), 1)
    heights = inputs[:, -1, 0, 0] - inputs[:, 0, 0, 0]
    widths = inputs[:, 0, -1, 1] - inputs[:, 0, 0, 1]
    assert (widths < 0).any() == mirrors
    assert inputs.min() >= 0
    assert inputs.max() <= 1 + 1e-6
    for sizes in (heights, abs(widths)):
        assert 0.75 - 1e-6 < sizes.min() < 0.78
        assert 0.97 < sizes.max() < 1 + 1e-6
    tops = inputs[:, 0, 0, 0]
    assert tops.min() < 0.02
    assert tops.max() > 0.15


def test_what_are_no_pictures_cannot_be_augmented(tmp_path):
    config = TrainerConfig.read({}, ["--augment", "flip", "--run-dir", str(tmp_path)])
    numbers = examples(shape=(5,))
    with pytest.raises(ConfigurationError) as caught:
        run_length_of(config, DataSet("numbers", numbers, numbers, COUNT), 1)
    assert 'TRAINER_AUGMENT (--augment): received "flip"' in str(caught.value)
    assert "Each of numbers has the shape [5]" in str(caught.value)
    with pytest.raises(ConfigurationError, match="none, since the data come as they are"):
        run_length_of(config, DataSet("batches", tf.data.Dataset.range(3), None), 1)


@pytest.mark.parametrize("count", [20, 96])
def test_where_a_worker_may_be_missing_shares_have_no_fixed_size(count):
    whole = source(numbered(count), 12, Replicas(3, 1, most=3)).shares(0, 0)
    fewer = source(numbered(count), 12, Replicas(2, 1, most=3)).shares(0, 0)
    assert whole.element_spec == fewer.element_spec
    assert source(numbered(96), 12, Replicas(3, 1)).shares(0, 0).element_spec != whole.element_spec
    assert source(numbered(22), 20, Replicas(2, 1, most=3)).may_lack_examples
    assert not source(numbered(22), 20, Replicas(2, 1)).may_lack_examples


@pytest.mark.parametrize(
    ("replicas", "seconds"),
    [
        (Replicas(2, 1, most=3), SHORT_SECONDS),
        (Replicas(3, 1, most=3), TARGET_SECONDS),
        (Replicas(3, 1), TARGET_SECONDS),
    ],
)
def test_where_a_worker_is_missing_calls_end_sooner_to_take_it_in(monkeypatch, replicas, seconds):
    monkeypatch.setattr(Replicas, "of", lambda _: replicas)
    inputs = np.zeros([12, 2], np.float32)
    strategy = tf.distribute.get_strategy()
    with running.announced(running.Running()):
        iterator = EpochIterator(inputs, inputs, batch_size=6, distribute_strategy=strategy).begun()
    calls = iterator._steps_per_call  # noqa: SLF001
    for _ in range(5):
        steps = calls.next(None)
        calls.after_call(steps, 0.01 * steps)
    assert calls.next(None) == 100 * seconds
