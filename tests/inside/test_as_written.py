"""AutoGraph rewrites the users' functions only: to rewrite ours would take time."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from cluster_trainer.engine.replicas.metrics.saved_rows import MetricRows
from conftest import quick_first

X = np.arange(40, dtype=np.float32).reshape(20, 2)
pytestmark = pytest.mark.usefixtures("keeps_nothing")


@pytest.fixture
def rewritten(monkeypatch):
    """The modules of the functions that AutoGraph has rewritten."""
    found, real = [], api._convert_actual  # noqa: SLF001

    def convert(entity, context):
        found.append(inspect.getmodule(entity).__name__.partition(".")[0])
        return real(entity, context)

    monkeypatch.setattr(api, "_convert_actual", convert)
    return found


def of_arrays():
    return {"x": X, "y": X[:, :1], "batch_size": 8, "class_weight": {0: 1.0, 1: 2.0}}


def of_a_users_function():
    """Return data that a Python `if` shifts in some batches."""

    def shift(x, y):
        if tf.cast(y[0, 0], tf.int32) % 16 == 0:
            return x + 1, y
        return x, y

    return {"x": tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(8).map(shift)}


@pytest.mark.parametrize("data", quick_first(1, [of_arrays, of_a_users_function]))
def test_a_fit_rewrites_what_is_a_users(strategy, rewritten, data):
    with strategy.scope():
        layers = [keras.layers.Dense(2), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse", metrics=["mae"])
    model.fit(**data(), validation_data=(X, X[:, :1]), verbose=0)
    rows = MetricRows(model)
    rows.put_back(rows.take())
    assert "cluster_trainer" not in rewritten
    assert rewritten.count(__name__) == (data is of_a_users_function)
