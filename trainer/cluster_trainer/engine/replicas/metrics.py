"""Means of numbers that stand for a whole batch, as a `train_step` of one's own reports its losses.

On one device each batch counts once. Each replica has a number for its share, which counts as much
as the share is of the batch.
"""

from typing import Any

from keras import metrics, ops

from cluster_trainer.engine.replicas import step_context

_update_mean = metrics.Mean.update_state


def count_shares() -> None:
    """Let `keras.metrics.Mean` know within a step how much of a batch it is told of."""
    metrics.Mean.update_state = _update


def _update(self: Any, values: Any, sample_weight: Any = None) -> None:
    part = step_context.current()
    if part is not None and sample_weight is None and not len(ops.shape(values)):
        sample_weight = part.weight
    _update_mean(self, values, sample_weight)
