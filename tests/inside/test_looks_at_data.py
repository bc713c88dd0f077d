"""Reading data is traced as seldom as possible: it takes time at each start and after a loss."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.sources.py_dataset import PyDatasetSource
from cluster_trainer.engine.data.sources.rows import RowSource
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.private import keras_names

X = np.random.default_rng(0).random((32, 4), np.float32)
Y = (X.sum(1, keepdims=True) > 2).astype(np.float32)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture
def readings(monkeypatch):
    """The places from which arrays were read, or were traced to be read."""
    found, real = [], RowSource.shares

    def shares(self, *place):
        found.append(place)
        return real(self, *place)

    monkeypatch.setattr(RowSource, "shares", shares)
    return found


def test_how_data_are_read_is_traced_to_be_read_and_before_that_for_replicas(strategy, readings):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, "sigmoid")])
        model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X, Y), verbose=0)
    # One replica builds its model from the batches that it reads, and so does any validation.
    is_built_before = strategy.num_replicas_in_sync > 1
    assert len(readings) == 2 + is_built_before


def test_what_an_iterator_is_like_is_found_out_once(strategy, readings):
    given = {"x": X, "y": Y, "batch_size": 8, "steps_per_execution": 1}
    iterator = EpochIterator(**given, distribute_strategy=strategy).begun()
    assert iterator.spec()[0].shape[1:] == [4]
    assert iterator.to_trace() == iterator.to_trace()
    assert len(readings) == 1


class Two(keras.utils.PyDataset):
    num_batches = 2

    def __getitem__(self, index):
        return X[index::2], Y[index::2]


def test_a_reading_whose_end_fails_is_ended_once():
    ended = []

    def stop():
        ended.append(1)
        raise OSError("in a queue")

    source = PyDatasetSource(keras_names.PyDatasetAdapter(Two()), Replicas(), 0)
    source._reading = SimpleNamespace(enqueuer=SimpleNamespace(stop=stop))  # noqa: SLF001
    with pytest.raises(OSError, match="in a queue"):
        source.end_pass()
    source.end_pass()
    assert ended == [1]
