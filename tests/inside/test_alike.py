"""How often the workers of a ring compare their models."""

from contextlib import contextmanager
from weakref import WeakSet

import keras
import numpy as np
import pytest

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.rehearsal import Rehearsal
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.engine import running
from cluster_trainer.engine.running import Running
from cluster_trainer.engine.same_values import alike

ROWS = np.ones((40, 4), np.float32)
VARIABLES = "predict (a model's variables)"


@pytest.fixture
def asked(monkeypatch):
    """This worker's gathers; the other worker has no optimizer for a callback's model."""
    found = []
    gather = Rehearsal.all_gather

    def all_gather(self, value, *, what=""):
        found.append(what)
        rows = gather(self, value, what=what)
        has_all = what != VARIABLES or found.count(VARIABLES) % 2 == 0  # without the optimizer's
        half = len(rows[0]) // 2  # the digests of the variables, and of the script's files
        return rows if has_all else [rows[0], bytes(half) + rows[0][half:]]

    monkeypatch.setattr(Rehearsal, "all_gather", all_gather)
    return found


@contextmanager
def in_fit():
    """Run the body as a callback of another model's fit, over a ring of two."""
    ring = RenewableRing(lambda: pytest.fail("nobody is met"), 2, comes_late=True)
    process_ring.use(ring)
    fitted = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    try:
        with (
            ring.rehearsed(),
            running.announced(Running("fit", is_fit=True, alike=WeakSet([fitted]))),
        ):
            yield
    finally:
        process_ring.use(None)


def test_a_model_whose_optimizer_some_have_not_built_is_asked_for_once_a_call(asked):
    with in_fit():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        for calls in (1, 2):
            model.predict(ROWS, batch_size=4, verbose=0)
            assert asked.count(VARIABLES) == 2 * calls  # with the optimizer's, and without
    assert "predict (outputs)" not in asked  # each predicts few rows by itself


def test_where_some_have_not_built_an_optimizer_the_models_own_variables_are_alike(asked):
    with in_fit():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        with running.announced(Running("predict")):
            alike.make(model, may_differ=True)
    assert asked == [VARIABLES, VARIABLES, "predict (a model's values)"]
