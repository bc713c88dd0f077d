from itertools import chain

import numpy as np
import pytest

from cluster_trainer.data.examples import Examples
from cluster_trainer.data.order import Slice, evaluation_batches, rows_of_pass, training_batches

SEED = 7
CUTS = [(1437, 64, 2), (360, 32, 3), (10, 4, 4), (7, 8, 3), (1, 1, 2), (128, 32, 4)]


def flat(lists):
    return list(chain.from_iterable(lists))


def numbered(count):
    """Examples whose label is their own row."""
    return Examples(np.zeros([count, 2], np.float32), np.arange(count))


def real_rows(batches, count):
    """The rows of `count` batches, without the filling."""
    rows = []
    iterator = iter(batches)
    for _ in range(count):
        _, labels, weights, _ = next(iterator)
        rows.append(labels.numpy()[weights.numpy() > 0].tolist())
    return rows


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1437, 5000])
def test_a_pass_is_a_permutation(count):
    assert sorted(rows_of_pass(count, SEED, 3)) == list(range(count))


def test_each_pass_and_each_seed_has_an_order_of_its_own():
    orders = [rows_of_pass(1000, seed, number) for seed in (1, 2) for number in (0, 1)]
    for index, order in enumerate(orders):
        assert (order != np.arange(1000)).mean() > 0.9
        assert all((order != other).mean() > 0.9 for other in orders[:index])


@pytest.mark.parametrize(("count", "per_replica", "replicas"), CUTS)
def test_workers_together_see_the_batches_of_one(count, per_replica, replicas):
    steps = 3 * Slice(per_replica, replicas).steps_per_pass(count)
    whole = training_batches(numbered(count), Slice(per_replica * replicas, 1), SEED)
    cuts = [Slice(per_replica, replicas, index) for index in range(replicas)]
    parts = [real_rows(training_batches(numbered(count), cut, SEED), steps) for cut in cuts]
    together = [flat(slices) for slices in zip(*parts, strict=True)]
    assert together == real_rows(whole, steps)


def test_replicas_of_one_worker_take_neighbouring_slices():
    steps, data = 6, numbered(100)
    both = real_rows(training_batches(data, Slice(8, 2, 0, 2), SEED), 2 * steps)
    whole = real_rows(training_batches(data, Slice(16, 1), SEED), steps)
    assert [both[i] + both[i + 1] for i in range(0, 2 * steps, 2)] == whole


@pytest.mark.parametrize(("count", "per_replica", "replicas"), CUTS)
def test_a_pass_holds_every_example_once(count, per_replica, replicas):
    cut = Slice(per_replica * replicas, 1)
    rows = real_rows(training_batches(numbered(count), cut, SEED), cut.steps_per_pass(count))
    assert sorted(flat(rows)) == list(range(count))


@pytest.mark.parametrize(("count", "per_replica", "replicas"), CUTS)
def test_evaluation_counts_every_example_once(count, per_replica, replicas):
    cuts = [Slice(per_replica, replicas, index) for index in range(replicas)]
    steps = cuts[0].steps_per_pass(count)
    parts = [real_rows(evaluation_batches(numbered(count), cut), steps) for cut in cuts]
    assert sorted(flat(flat(parts))) == list(range(count))


@pytest.mark.parametrize("first_step", [1, 5, 12, 40])
def test_a_stream_goes_on_at_any_step(first_step):
    data, cut = numbered(100), Slice(8, 2, 1)
    whole = real_rows(training_batches(data, cut, SEED), first_step + 9)
    rest = real_rows(training_batches(data, cut, SEED, first_step), 9)
    assert rest == whole[first_step:]


def test_every_replica_is_told_the_size_of_the_whole_batch():
    sizes = [
        [int(batch[3]) for batch in training_batches(numbered(20), Slice(4, 2, r), 1).take(3)]
        for r in (0, 1)
    ]
    assert sizes == [[8, 8, 4], [8, 8, 4]]


def inputs_of(array):
    """Return the inputs of the first batch of an evaluation, which keeps the order."""
    examples = Examples(array, np.zeros(len(array), int))
    inputs, *_ = next(iter(evaluation_batches(examples, Slice(len(array), 1))))
    return inputs.numpy()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_stay_as_they_are(dtype):
    largest = np.iinfo(dtype).max  # as a float32, another number from 2**24 on
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
