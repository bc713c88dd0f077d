"""The values of metrics on each replica, put back on as many replicas or on another number."""

import gc
import weakref

import keras
import numpy as np
import pytest

from cluster_trainer.engine.replicas.metrics.saved_rows import MetricRows


class Scaled(keras.metrics.Metric):
    """Has a sum, its own mean and a constant, as a user's metric may."""

    def __init__(self):
        super().__init__(name="scaled")
        self.total = self.add_variable((2,), "zeros")
        self.mean = self.add_variable((), "zeros", aggregation="mean")
        self.scale = self.add_variable((), "zeros", aggregation="only_first_replica")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Count nothing."""

    def result(self):
        return keras.ops.sum(self.total) * self.scale


@pytest.fixture
def rows(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Scaled()])
    inputs = np.ones((8, 2), np.float32)
    model.evaluate(inputs, inputs[:, :1], batch_size=8, verbose=0)
    found = MetricRows(model)
    assert found.take().shape == (strategy.num_replicas_in_sync, 2 + 4)  # the loss has two
    return found


def of(replicas):
    """Return the rows of that many replicas: loss, total, mean, scale."""
    return np.array([[1, 2, 3, 4, 0.5, 0.25]] * replicas)


def test_as_many_replicas_have_what_they_had(strategy, rows):
    given = of(strategy.num_replicas_in_sync)
    rows.put_back(given)
    assert rows.take().tolist() == given.tolist()


@pytest.mark.long
def test_other_numbers_of_replicas_have_the_sum_once_and_the_rest_each(strategy, rows):
    rows.put_back(of(3))
    first, *others = rows.take().tolist()
    assert first == [3, 6, 9, 12, 0.5, 0.25]
    assert others == [[0, 0, 0, 0, 0.5, 0.25]] * (strategy.num_replicas_in_sync - 1)


def test_metrics_that_the_first_step_builds_are_not_mixed_up(caplog):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
    MetricRows(model).put_back(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert MetricRows(model).take().tolist() == [[0.0, 0.0]]  # of the loss
    assert "only the batches after the restart" in caplog.text


def test_a_model_whose_metrics_were_taken_can_be_freed():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    inputs = np.ones((8, 2), np.float32)
    model.evaluate(inputs, inputs[:, :1], batch_size=8, verbose=0)
    MetricRows(model).take()
    alive = weakref.ref(model)
    del model
    keras.utils.clear_session()
    gc.collect()
    assert alive() is None
