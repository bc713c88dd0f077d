"""The waiting time of steps, measured by TensorFlow itself within its calls of many steps.

A step waits for its batch, and for the other replicas' gradients. The clock is read at two places
of its graph: where nothing else is left to do, and where the awaited data are there. On a GPU the
graph counts an operation as done as soon as it is queued, so a clock there would be wrong.
"""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas

INPUT, SUMS = "input", "sums"
T = TypeVar("T")
_names = itertools.count()


class Waits:
    """The seconds that the steps of this process have waited, by reason.

    `input`: for a batch, from the end of the previous step. `sums`: from the moment when all of
    this replica's own gradients were there until those of all replicas were summed. That includes
    the wait for slower workers, and the sums themselves, which take equally long on all. So a
    worker has waited for the others as long as it has more `sums` than the worker with the least.

    It is measured only if this process has one replica, on a CPU.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._is_possible = replicas.local == 1 and not tf.config.list_logical_devices("GPU")
        self._totals: dict[str, Any] = {}

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far, without values that are not measured."""
        return {
            name: float(tf.raw_ops.ReadVariableOp(resource=total, dtype=tf.float64))
            for name, total in self._totals.items()
        }

    def measured(self, name: str, ready: Any, take: Callable[[], T]) -> T:
        """Return the result of `take`, and count the time until all of it is there.

        The time begins when all tensors in `ready` are there. No operation of `take` that has
        effects, like the ring's, begins before.
        """
        if not self._is_possible or tf.executing_eagerly():
            return take()
        total = self._total(name)
        with tf.control_dependencies(_tensors(ready)):
            begin = tf.timestamp()
        taken = take()  # after the clock was read: operations with effects keep their order
        with tf.control_dependencies([begin, *_tensors(taken)]):
            seconds = tf.timestamp() - begin
        noted = tf.raw_ops.AssignAddVariableOp(resource=total, value=seconds)
        return _after(noted, taken)

    def _total(self, name: str) -> Any:
        """Return a variable of this process alone: a tf.Variable would belong to the strategy."""
        if name not in self._totals:
            with tf.init_scope(), tf.device("/CPU:0"):
                own = f"cluster_trainer_waits_{next(_names)}"
                total = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=own)
                zero = tf.constant(0.0, tf.float64)
                tf.raw_ops.AssignVariableOp(resource=total, value=zero)
            self._totals[name] = total
        return self._totals[name]


def _after(noted: tf.Operation, taken: T) -> T:
    """Return the taken tensors, for use after the time is noted.

    Otherwise a process with one thread would compute with them first, and count that as waiting.
    """
    flat = tf.nest.flatten(taken, expand_composites=True)
    with tf.control_dependencies([noted]):
        flat = [tf.identity(one) if isinstance(one, tf.Tensor) else one for one in flat]
    held: T = tf.nest.pack_sequence_as(taken, flat, expand_composites=True)
    return held


def _tensors(structure: Any) -> list[tf.Tensor]:
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [one for one in flat if isinstance(one, tf.Tensor)]
