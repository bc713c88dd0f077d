"""Averages variables over the workers by sending their rounded changes within a round.

With TRAINER_WIRE=bfloat16, rounded weights would lose small updates. So a worker sends the
differences between its variables and the last average, which all workers have. The mean of the
rounded differences is added to that average. This applies to trained weights and to the slots of
their optimizers. All other variables are sent unrounded: a rounded counter, for example, would stop
counting.

A rounded difference is exact to 1/256 of itself. So a value that falls below 1/256 of its size
within a round could become 0 or negative. An example is a mean of squared gradients after the
gradients have vanished: its root would be NaN. Therefore a variable that is nowhere negative on any
worker keeps at least LEAST of its value at the last average.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import begin_sums, count
from cluster_trainer.engine.replicas import statistics, step_context

WIRE = "bfloat16"
CHANGES = "training (changes of a round)"
LEAST = 1 / 128
_names = itertools.count()


class Anchor:
    """A variable's value at the last average, in a resource that belongs to this process.

    Args:
        copy: this replica's copy of the variable.
    """

    def __init__(self, copy: tf.Variable) -> None:
        self._copy = copy
        with tf.init_scope(), tf.device("/CPU:0"):
            name = f"cluster_trainer_anchor_{next(_names)}"
            self._kept = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=copy.shape, shared_name=name
            )

    def take(self) -> None:
        """Keep the variable's present value."""
        self.keep(self._copy.read_value())

    def keep(self, value: tf.Tensor) -> None:
        """Keep a value."""
        tf.raw_ops.AssignVariableOp(resource=self._kept, value=value)

    def change(self) -> tf.Tensor:
        """Return the difference between the variable and the kept value."""
        kept = tf.raw_ops.ReadVariableOp(resource=self._kept, dtype=tf.float32)
        return self._copy - tf.ensure_shape(kept, self._copy.shape)

    def is_positive(self) -> tf.Tensor:
        """Return 1 if no number of the variable is below 0, else 0, float32 []."""
        return tf.cast(tf.reduce_min(self._copy) >= 0, tf.float32)

    def add(self, change: tf.Tensor, *, is_positive: tf.Tensor) -> tf.Tensor:
        """Return the sum of the kept value and a change, and keep the sum from now on.

        Args:
            change: the mean of all workers' changes.
            is_positive: whether no worker's numbers are below 0, bool [].
        """
        kept = tf.raw_ops.ReadVariableOp(resource=self._kept, dtype=tf.float32)
        kept = tf.ensure_shape(kept, self._copy.shape)
        changed = kept + change
        changed = tf.where(is_positive, tf.maximum(changed, LEAST * kept), changed)
        self.keep(changed)
        return changed


class Changes:
    """The anchors of the variables that steps assign."""

    def __init__(self) -> None:
        self._anchors: dict[int, Anchor] = {}

    def note(self, variables: Sequence[Any], part: step_context.Share) -> None:
        """Make anchors for the variables whose changes are rounded, while a step is traced."""
        slots = [one for each in part.optimizers.values() for one in each.variables]
        known = part.trained | {id(step_context.own(one)) for one in slots}
        for copy in map(step_context.own, variables):
            is_rounded = id(copy) in known and copy.shape.rank and copy.dtype == tf.float32
            if is_rounded and id(copy) not in self._anchors:
                self._anchors[id(copy)] = Anchor(copy)

    def begin(self) -> None:
        """Note the values with which a round begins; call it between two calls of TensorFlow."""
        for anchor in self._anchors.values():
            anchor.take()

    def means_of(self, copies: Sequence[tf.Variable], what: str) -> list[tf.Tensor]:
        """Return the means of variables over all workers; each worker must have one replica."""
        anchors = {
            place: self._anchors[id(copy)]
            for place, copy in enumerate(copies)
            if id(copy) in self._anchors
        }
        changes = [anchor.change() for anchor in anchors.values()]
        total = tf.cast(count(), tf.float32)
        sums = begin_sums(changes, CHANGES, wire=WIRE)() if changes else []
        signs = [anchor.is_positive() for anchor in anchors.values()]
        positive = tf.equal(begin_sums([tf.stack(signs)], CHANGES)()[0], total) if signs else []
        found = {
            place: anchor.add(change / total, is_positive=positive[number])
            for number, ((place, anchor), change) in enumerate(
                zip(anchors.items(), sums, strict=True)
            )
        }
        others = [place for place in range(len(copies)) if place not in anchors]
        if others:
            means = statistics.means_of([tf.identity(copies[place]) for place in others], what)
            found.update(zip(others, means, strict=True))
        return [found[place] for place in range(len(copies))]
