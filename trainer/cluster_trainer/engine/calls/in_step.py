"""Lists the strategies that the engine supports, and averages a model's statistics in them."""

from typing import Any

import tensorflow as tf

from cluster_trainer.engine.replicas import statistics
from cluster_trainer.private import tensorflow_names

IN_STEP = (
    tensorflow_names.DefaultStrategy,  # TensorFlow's name for no strategy
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)


def keeps_in_step(strategy: tf.distribute.Strategy) -> bool:
    """Tell whether the engine supports a strategy."""
    return isinstance(strategy, IN_STEP)


def average(model: Any) -> None:
    """Average a model's statistics over all replicas, if the engine keeps them in step."""
    if keeps_in_step(model.distribute_strategy):
        statistics.average(model, model.distribute_strategy)
