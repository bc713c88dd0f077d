"""Takes and restores the metrics' variables on each replica, for checkpoints."""

import logging
from typing import Any
from weakref import ref

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import count, count_of, gathered, number, ring_of
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import of_model, statistics, step_context

WHAT = "a checkpoint (metrics)"
log = logging.getLogger("trainer")


class MetricRows:
    """The variables of all of a model's metrics, as one row of numbers for each replica."""

    def __init__(self, model: keras.Model) -> None:
        # The functions below outlive this object, and must not hold the model that they belong to.
        self._model, self._strategy = ref(model), model.distribute_strategy
        self._total = count_of(self._strategy)
        self._variables = statistics.of_metrics(model)

    def take(self) -> np.ndarray:
        """Return the rows of all replicas, float64 [replicas, n]; all workers call it."""
        if self._total == 1:  # eagerly: after a fork, functions cannot run
            return np.asarray(self._row())
        take = of_model.of(self._model()).function(
            "metrics", self._variables, lambda: function_of(lambda: self._strategy.run(self._row))
        )
        return np.asarray(self._strategy.experimental_local_results(take())[0])

    def put_back(self, rows: np.ndarray) -> None:
        """Give each replica its row.

        If the number of replicas has changed, the first replica gets the sum of all values that are
        summed over replicas, and the others get 0. All other values of a metric, such as a mean or
        a constant, are the saved first replica's on all replicas.

        A step that runs eagerly may still have to build some metrics. If that is so on any worker,
        nothing is put back on all of them, and a warning says so. All workers call this.
        """
        fits = rows.shape[1] == len(self._are_summed())
        if not all(workers_of(self._strategy).gather(int(fits), WHAT)):
            log.warning(
                "the metrics of this epoch cover only the batches after the restart, because the "
                "first step builds some of them (run_eagerly)"
            )
            return
        if len(rows) != self._total:
            first = np.where(self._are_summed(), rows.sum(0), rows[0])
            others = np.where(self._are_summed(), 0.0, rows[0])
            rows = np.stack([first, *[others] * (self._total - 1)])

        def assign() -> Any:
            return self._strategy.run(self._assign, args=(tf.constant(rows),))

        # Not traced over a ring, because all workers would wait for the slowest tracing.
        is_alone = self._total == 1 or ring_of(self._strategy) is not None
        (assign if is_alone else function_of(assign))()

    def _are_summed(self) -> np.ndarray:
        """Tell for each number of a row whether metrics are computed from its sum."""
        sizes = np.array([np.prod(one.shape) for one in self._variables], int)
        # All variables of Keras's own metrics are summed.
        are_summed = [one.aggregation == "sum" for one in self._variables]
        return np.repeat(np.array(are_summed, bool), sizes)

    def _own(self, variable: Any) -> Any:
        return variable.value if self._total == 1 else step_context.own(variable)

    def _row(self) -> tf.Tensor:
        values = [tf.cast(self._own(one), tf.float64) for one in self._variables]
        if not values:
            return tf.zeros([count(), 0], tf.float64)
        row = tf.concat([tf.reshape(value, [-1]) for value in values], 0)[tf.newaxis]
        return row if self._total == 1 else gathered(row, WHAT)

    def _assign(self, rows: Any) -> None:
        row, begin = rows[number()], 0
        for variable in self._variables:
            size = int(np.prod(variable.shape))
            value = tf.reshape(row[begin : begin + size], variable.shape)
            self._own(variable).assign(tf.cast(value, variable.dtype))
            begin += size
