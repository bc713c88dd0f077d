"""Measures the waiting time of steps within TensorFlow's graph, in calls of many steps.

A step waits for its batch, and for the other replicas' gradients. Its graph reads the clock twice:
when only the wait is left, and when the awaited data have arrived. On a GPU an operation counts as
done as soon as it is queued, so the clock would be wrong.
"""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas

INPUT, SUMS = "input", "sums"
CLOCK = "cluster_trainer_clock"  # in the names of operations that read the clock
T = TypeVar("T")
_names = itertools.count()


class Waits:
    """The seconds that the steps of this process have waited, by reason.

    - `input`: for a batch, from the end of the previous step.
    - `sums`: for the sums of gradients, from the moment when this replica's own are complete.

    `sums` includes the wait for slower workers, and the summation itself, which takes equally long
    on all workers. So a worker's wait for the others is its `sums` minus the smallest `sums` of all
    workers.

    The waits are measured only if this process has exactly one replica, and no GPU.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._is_possible = replicas.local == 1 and not tf.config.list_logical_devices("GPU")
        self._totals: dict[str, Any] = {}

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far, by reason; reasons that were not measured are omitted."""
        return {
            name: float(tf.raw_ops.ReadVariableOp(resource=total, dtype=tf.float64))
            for name, total in self._totals.items()
        }

    def measured(self, name: str, ready: Any, take: Callable[[], T]) -> T:
        """Return the result of `take`, and add the waiting time to the seconds of `name`.

        The time runs from the moment when all tensors in `ready` are computed until all tensors of
        the result are. Operations of `take` with effects, such as the ring's, do not begin earlier.
        """
        if not self._is_possible or tf.executing_eagerly():
            return take()
        total = self._total(name)
        with tf.control_dependencies(_tensors(ready)):
            begin = tf.timestamp(CLOCK)
        taken = take()  # after the clock was read: operations with effects keep their order
        with tf.control_dependencies([begin, *_tensors(taken)]):
            seconds = tf.timestamp(CLOCK) - begin
        noted = tf.raw_ops.AssignAddVariableOp(resource=total, value=seconds)
        return _after(noted, taken)

    def _total(self, name: str) -> Any:
        """Return the resource of a counter; a tf.Variable would belong to the strategy."""
        if name not in self._totals:
            with tf.init_scope(), tf.device("/CPU:0"):
                own = f"cluster_trainer_waits_{next(_names)}"
                total = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=own)
                zero = tf.constant(0.0, tf.float64)
                tf.raw_ops.AssignVariableOp(resource=total, value=zero)
            self._totals[name] = total
        return self._totals[name]


def _after(noted: tf.Operation, taken: T) -> T:
    """Return the tensors so that they can be used only after the time was noted.

    Otherwise a process with one thread might compute with them first, and count that as waiting.
    """
    flat = tf.nest.flatten(taken, expand_composites=True)
    with tf.control_dependencies([noted]):
        flat = [tf.identity(one) if isinstance(one, tf.Tensor) else one for one in flat]
    held: T = tf.nest.pack_sequence_as(taken, flat, expand_composites=True)
    return held


def _tensors(structure: Any) -> list[tf.Tensor]:
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [one for one in flat if isinstance(one, tf.Tensor)]
