"""A fit that begins again reuses its copies of the arrays, with the values that it was given."""

import gc
import weakref
from contextlib import suppress

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine import running
from cluster_trainer.engine.data import arrays
from cluster_trainer.engine.data.given_arrays import GivenArrays
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.fits import fit
from cluster_trainer.problems import RehearsedError

SHAPE = (12, 2)


def apart():
    """Return an array that TensorFlow must copy, because it is not aligned as TensorFlow's are."""
    memory = arrays.empty((25,), np.float32)
    memory[:] = 1
    return memory[1:].reshape(SHAPE)


def aligned():
    """Return an array that TensorFlow could read without a copy, as some are by chance."""
    memory = arrays.empty(SHAPE, np.float32)
    memory[:] = 1
    return memory


def mapped(folder):
    """Return an array in a mapped file, which TensorFlow reads without a copy."""
    np.save(folder / "rows.npy", apart())
    return np.load(folder / "rows.npy", mmap_mode="c")


def read_by(call, array):
    """Return the first value of an array that a call's iterator would read, and the tensor."""
    strategy = tf.distribute.get_strategy()
    with running.announced(call):
        iterator = EpochIterator(array, batch_size=6, distribute_strategy=strategy).begun()
    tensor = iterator.source._inputs  # noqa: SLF001
    return float(tensor[0, 0]), tensor


@pytest.mark.parametrize("make", [apart, aligned])
def test_a_change_in_place_does_not_reach_a_fit_wherever_the_array_is(make):
    """Keras trains on a copy. Whether an array is aligned depends on its address."""
    given, array = GivenArrays(), make()
    _, tensor = read_by(running.Running(arrays=given), array)
    array[:] = 2
    assert float(tensor[0, 0]) == 1


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_a_copy_is_made_once_and_before_anybody_can_change_the_array(kind):
    array = apart().astype(kind)[::2]
    given = GivenArrays({"x": [array]})
    _, first = read_by(running.Running(arrays=given), array)
    array[:] = 2
    value, again = read_by(running.Running(arrays=given), array)
    assert again is first
    assert value == 1


def test_a_mapped_file_is_not_copied_and_shows_each_change(tmp_path):
    array = mapped(tmp_path)
    given = GivenArrays(array)
    read_by(running.Running(arrays=given), array)
    array[:] = 2
    assert read_by(running.Running(arrays=given), array)[0] == 2


def test_validations_and_callbacks_see_an_array_as_it_is_by_then():
    array = apart()
    call = running.Running(arrays=GivenArrays(array))
    read_by(call, array)
    array[:] = 2
    assert read_by(call, array)[0] == 2


def test_another_array_is_none_of_these():
    given, other = GivenArrays(apart()), apart()
    read_by(running.Running(arrays=given), other)
    other[:] = 2
    assert read_by(running.Running(arrays=given), other)[0] == 2


class Rehearses:
    """Stands in for ElasticRecovery: rehearses a fit, so that it runs twice."""

    goes_on = comes_late = True
    has_trained = is_again = False

    def __init__(self, *_):
        pass

    def meet(self):
        """Meet nobody."""

    def come_late(self, rehearse):
        with suppress(RehearsedError):
            rehearse()


@pytest.mark.usefixtures("keeps_nothing")
def test_a_scripts_fit_takes_its_arrays_once_and_lets_them_go(monkeypatch):
    taken, real = [], arrays.copied

    def copied(array):
        tensor = real(array)
        taken.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(arrays, "copied", copied)
    monkeypatch.setattr(fit, "ElasticRecovery", Rehearses)
    x, y, weights = np.ones((24, 2)), np.ones((24, 1)), np.ones(24)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, sample_weight=weights, batch_size=8, verbose=0)
    assert len(taken) == 3
    gc.collect()
    assert [one for one in taken if one() is not None] == []
