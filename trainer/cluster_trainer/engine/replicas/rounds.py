"""Runs rounds: each worker of a ring takes steps by itself, and then the workers average.

With TRAINER_SYNC_EVERY above 1, an optimizer gets the gradients of the worker's own share. After a
round, and at the end of each call into TensorFlow, all floating-point variables that the steps have
assigned are averaged over the workers: weights, optimizer slots, statistics, and variables that the
script's own step assigns. Metrics are not averaged, because they are summed as usual. So between
two calls all workers hold the same values, and code that reads or saves a model then need not know
about rounds. Calls have whole rounds, except the last one of an epoch (epoch_iterator.py), so the
rounds do not depend on the length of calls.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import Replicas, count, count_of_all, ring_of, summed
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.changes import WIRE, Changes
from cluster_trainer.engine.replicas.state import own_state
from cluster_trainer.engine.replicas.state.untracked import untracked
from cluster_trainer.engine.replicas.state.writes import Writes
from cluster_trainer.engine.waits import SUMS, Waits
from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem

WHAT = "training (the end of a round)"
NAME = "TRAINER_SYNC_EVERY"
SOME_APPLY = Problem(
    NAME,
    "above 1 or auto, with a step that applies gradients under a condition on the batch",
    "1, or gradients that are applied in each step",
    "Each worker would decide by its share, and count other steps than the others. Multiply the "
    "gradients by 0 or 1 instead.",
)
OWN_LOOP = Problem(
    NAME,
    "above 1 or auto, with `train_on_batch`",
    "1, or a call of `fit`",
    "Only a `fit` knows when a round ends. Its weights would be each worker's own.",
)


SEVERAL_DEVICES = Problem(
    NAME,
    "above 1 or auto, with several devices on a worker",
    "1, or one device (TRAINER_DEVICES=CPU:0)",
    "The devices of a worker sum gradients in each step.",
)


def steps_of_round(strategy: tf.distribute.Strategy) -> int:
    """Return the number of a round's steps; 1: gradients are summed in each step.

    Raises:
        ConfigurationError: a worker has several replicas.
    """
    if ring_of(strategy) is None or count_of_all(strategy) == 1:
        return 1
    is_wanted = process_ring.steps_of_round() > 1 or process_ring.are_rounds_open()
    if is_wanted and Replicas.of(strategy).local > 1:
        raise ConfigurationError([SEVERAL_DEVICES])
    return process_ring.steps_of_round()


def refuse_own_loop() -> None:
    """Refuse to train on single batches, because the end of their round is unknown.

    Raises:
        ConfigurationError: always.
    """
    raise ConfigurationError([OWN_LOOP])


class Place(NamedTuple):
    """The place in a round at which a call into TensorFlow begins, and how the call ends.

    Attributes:
        since: int32 [], the steps of the round that are done.
        ends: bool [], whether the last round ends with the call, whole or not.
    """

    since: tf.Tensor
    ends: tf.Tensor


class Rounds:
    """The rounds of a model's training steps.

    Args:
        model: the compiled model.
        steps: the steps of a round; 1: there are no rounds, and all methods are no-ops.
        waits: counts the time for which the workers wait for each other.
    """

    def __init__(self, model: keras.Model, steps: int, waits: Waits) -> None:
        self._model, self._steps, self._waits = model, steps, waits
        self._assigned: Sequence[Any] = ()
        self._counters: Sequence[Any] = ()
        # An eager step may assign a variable in some steps of a round only.
        self._untracked: dict[int, Any] = {}
        is_rounded = steps > 1 and process_ring.gradients_wire() == WIRE and not runs_eagerly(model)
        self._changes = Changes() if is_rounded else None

    @property
    def waits(self) -> Waits:
        """The time that the steps have waited."""
        return self._waits

    @property
    def steps(self) -> int:
        """The number of steps of a round."""
        return self._steps

    @property
    def are_wanted(self) -> bool:
        """Whether there are rounds."""
        return self._steps > 1

    def place(self, since: int = 0, *, ends: bool = True) -> Place | None:
        """Return the state for a call into TensorFlow; None if there are no rounds."""
        return Place(tf.constant(since), tf.constant(ends)) if self.are_wanted else None

    @property
    def rounds_changes(self) -> bool:
        """Whether averages are sent as rounded changes; see changes.py."""
        return self._changes is not None

    def begin(self) -> None:
        """Begin a round before a call into TensorFlow; its steps must have been traced."""
        if self._changes:
            self._changes.begin()

    def note(self, part: step_context.Share, batch: Any) -> None:
        """Record the assignments of a step that was just traced, or has run eagerly.

        Args:
            part: information about the worker's share.
            batch: the share that the step was given.

        Raises:
            ConfigurationError: a worker cannot take the step by itself.
        """
        if not self.are_wanted:
            return
        self._untracked |= {id(one): one for one in untracked(self._model, part)}
        state = self._state(part)
        assigned = [*state.values()]
        if not tf.executing_eagerly():  # eager assignments are unknown
            writes = Writes(batch, assigned, part)
            assigned = writes.written
            if writes.decided_by_share():
                part.problems.append(SOME_APPLY)
        if part.problems:
            raise ConfigurationError([*dict.fromkeys(part.problems)])
        self._assigned = [one for one in assigned if _is_floating(one)]
        if self._changes:
            self._changes.note(self._assigned, part)
        self._counters = [keras_names.step_counter(one) for one in part.optimizers.values()]
        self._counters += statistics.whole_numbers(self._model)
        self._counters += filter(own_state.is_whole_number, self._untracked.values())

    def after_step(self, place: Place | None, done: tf.Tensor) -> None:
        """End a round after its last step; `done` (int32 []) counts the steps of the call."""
        if place is not None:
            tf.cond((place.since + done) % self._steps == 0, self._average, _nothing)

    def after_call(self, place: Place | None, done: tf.Tensor) -> None:
        """End the round in which the call has ended."""
        if place is not None:
            is_within = (place.since + done) % self._steps != 0
            tf.cond(place.ends & is_within, self._average, _nothing)

    def after_eager_step(self, done: int) -> None:
        """End a round after its last step, like `after_step`, if steps run eagerly."""
        if self.are_wanted and done % self._steps == 0:
            self._average_eagerly()

    def after_eager_call(self, done: int) -> None:
        """End the round in which the call has ended, like `after_call`, if steps run eagerly."""
        if self.are_wanted and done % self._steps:
            self._average_eagerly()

    def _state(self, part: step_context.Share) -> dict[int, Any]:
        """Return the variables, by `id`, that a step may assign, without metrics."""
        optimizers = part.optimizers.values()
        own = [*self._model.variables, *statistics.of_replica(self._model)]
        for one in optimizers:
            own += one.variables
            # Also weights of a network that is no part of the model.
            own += keras_names.trained_by(getattr(one, "inner_optimizer", one))
        own += self._untracked.values()
        metrics = {id(one) for one in statistics.of_metrics(self._model)}
        return {id(one): one for one in own if id(one) not in metrics}

    def _average(self) -> tf.Tensor:
        copies = [step_context.own(one) for one in self._assigned]
        values = [tf.identity(one) for one in copies]

        def mean() -> list[tf.Tensor]:
            if self._changes:
                return self._changes.means_of(copies, WHAT)
            return statistics.means_of(values, WHAT)

        means = self._waits.measured(SUMS, values, mean)
        for copy, mean in zip(copies, means, strict=True):
            copy.assign(mean)
        return _nothing()

    def _average_eagerly(self) -> None:
        """Average, and refuse problems that a trace would have shown earlier.

        Raises:
            ConfigurationError: the workers' step counters or other whole numbers differ.
        """
        self._average()
        counts = [tf.cast(step_context.own(one), tf.int64) for one in self._counters]
        totals = summed(counts, "training (whole numbers)")
        several = tf.cast(count(), tf.int64)
        for mine, total in zip(counts, totals, strict=True):
            if not bool(tf.reduce_all(total == mine * several)):
                raise ConfigurationError([SOME_APPLY, own_state.DIFFERENT_COUNTS])


def _nothing() -> tf.Tensor:
    return tf.constant(0)


def _is_floating(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)
