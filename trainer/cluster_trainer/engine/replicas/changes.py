"""Averages of variables whose changes within a round are rounded on the way.

With TRAINER_WIRE=bfloat16 a worker does not send its weights, of which rounding would lose small
updates, but their differences to the last average, which all workers have. The mean of the rounded
differences is added to that. This is done for trained weights and the slots of their optimizers.
All else stays float32: counters, for example, would no longer count.

A difference is exact to 1/256 of itself. So what falls to less than that of its value within a
round could come out as 0, or below: the squares of gradients that end, whose root then is no
number. What is at least 0 on all workers therefore keeps LEAST of its value at the last average.
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
    """A variable's value at the last average, in a resource of this process alone.

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
        """Return the difference of the variable to the value that is kept."""
        kept = tf.raw_ops.ReadVariableOp(resource=self._kept, dtype=tf.float32)
        return self._copy - tf.ensure_shape(kept, self._copy.shape)

    def is_positive(self) -> tf.Tensor:
        """Return 1 if no number of the variable is below 0, else 0."""
        return tf.cast(tf.reduce_min(self._copy) >= 0, tf.float32)

    def add(self, change: tf.Tensor, *, is_positive: tf.Tensor) -> tf.Tensor:
        """Return the kept value and a change of it, and keep that from now on.

        Args:
            change: a mean over all workers.
            is_positive: whether no worker's numbers are below 0.
        """
        kept = tf.raw_ops.ReadVariableOp(resource=self._kept, dtype=tf.float32)
        kept = tf.ensure_shape(kept, self._copy.shape)
        changed = kept + change
        changed = tf.where(is_positive, tf.maximum(changed, LEAST * kept), changed)
        self.keep(changed)
        return changed


class Changes:
    """The anchors of what steps assign."""

    def __init__(self) -> None:
        self._anchors: dict[int, Anchor] = {}

    def note(self, variables: Sequence[Any], part: step_context.Share) -> None:
        """Make anchors for those of the variables whose changes are rounded, in a step's trace."""
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
        """Return the means of variables over all workers, each of which has one replica."""
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
