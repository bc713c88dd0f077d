"""Leaves metrics with the sums over all workers after a call of Keras's, as on one device.

During a call, a metric's variables have this worker's share. A script may ask the metric itself
after `fit` or `evaluate`. If later steps go on from there, all workers but the first begin with 0.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.replicas import of_model


def note(model: keras.Model, variables: Sequence[Any], totals: Sequence[Any]) -> None:
    """Note the sums of metrics' variables after the last steps."""
    of_model.of(model).totals = [*zip(variables, totals, strict=True)]


def leave(model: keras.Model) -> None:
    """Give metrics the noted sums, at the end of a call."""
    data = of_model.of(model)
    if ring_of(model.distribute_strategy) is None or not data.totals:
        return
    for variable, total in data.totals:
        variable.assign(total)
    data.left, data.totals = [variable for variable, _ in data.totals], []


def take_back(model: keras.Model) -> None:
    """Let the first worker alone go on from the sums; call it before any step."""
    data = of_model.of(model)
    ring = ring_of(model.distribute_strategy)
    if ring is not None and ring.rank:
        for variable in data.left:
            variable.assign(tf.zeros(variable.shape, variable.dtype))
    data.left = []
