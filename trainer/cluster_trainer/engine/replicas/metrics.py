"""Means of numbers that stand for a whole batch, as a `train_step` of one's own reports its losses.

On one device each batch counts once. Each replica has a number for its share, which counts as much
as the share is of the batch.
"""

from typing import Any

from keras import metrics, ops

from cluster_trainer.engine.replicas import step_context

_update_mean = metrics.Mean.update_state


def update_mean(self: Any, values: Any, sample_weight: Any = None) -> None:
    """Update a mean; a number within a step counts as much as the share is of the batch."""
    part = step_context.current()
    if part is not None and sample_weight is None and not len(ops.shape(values)):
        sample_weight = part.weight
    _update_mean(self, values, sample_weight)
