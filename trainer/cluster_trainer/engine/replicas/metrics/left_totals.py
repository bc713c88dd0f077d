"""Leaves metrics with the sums over all workers at the end of an epoch or an evaluation.

During the steps, a metric's variables have this worker's share. A callback or a script may ask the
metric itself afterwards, as on one device. If later steps go on from there, without a reset, all
workers but the first begin with 0.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine.replicas import of_model, statistics


def note(model: keras.Model, variables: Sequence[Any], totals: Sequence[Any]) -> None:
    """Note the sums of metrics' variables after the last steps."""
    of_model.of(model).totals = [*zip(variables, totals, strict=True)]


def leave(model: keras.Model) -> None:
    """Give metrics the noted sums."""
    data = of_model.of(model)
    if ring_of(model.distribute_strategy) is None or not data.totals:
        return
    for variable, total in data.totals:
        variable.assign(total)
    data.left, data.totals = [variable for variable, _ in data.totals], []


def are_left(metric: keras.Metric) -> bool:
    """Tell whether a metric has the sums over all workers at present."""
    left = {id(one) for data in of_model.of_all() for one in data.left}
    return any(id(one) in left for one in metric.variables)


def note_left(model: keras.Model) -> None:
    """Note that each worker's metrics have got the same values, as from a checkpoint."""
    of_model.of(model).left = statistics.summed_of(statistics.of_metrics(model))


def note_own(model: keras.Model) -> None:
    """Note that each worker's metrics have got the values of its own shares."""
    of_model.of(model).left = []


def take_back(model: keras.Model) -> None:
    """Let the first worker alone go on from the sums; call it before any step."""
    data = of_model.of(model)
    ring = ring_of(model.distribute_strategy)
    if ring is not None and ring.rank:
        for variable in data.left:
            variable.assign(tf.zeros(variable.shape, variable.dtype))
    data.left = []
