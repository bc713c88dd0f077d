"""Finds a batch on which a step works as a whole, but fails on a worker's share, by running it.

For example, a batch has a table for all examples, and by chance as many examples as the table has
rows. Then the table is cut, too, and an index leads to a row that the share lacks.

Nothing of these runs is kept. They are eager, like the comparison of the first batch, and without
the other workers.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import replicas
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.again import MOST_SECONDS
from cluster_trainer.engine.data.batch_shares import count_in, cut, rows_known
from cluster_trainer.engine.data.pieces import Component, has_rows
from cluster_trainer.engine.failed_step.tracing import first_line, place_of, step_of, traced
from cluster_trainer.engine.first_batch.check import eagerly, refusing_sums
from cluster_trainer.engine.first_batch.snapshot import Snapshot, calls_python, uses_something_up
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import tensorflow_names
from cluster_trainer.problems import Problem
from cluster_trainer.user_frames import place_of_call


@dataclass(frozen=True)
class FailedShare:
    """A batch on which a step works, and a share of it on which it fails.

    Attributes:
        step: the step's name.
        whole: the whole batch.
        share: the share.
        error: the step's error on the share.
        replicas: the number of replicas that have shares.
    """

    step: str
    whole: Any
    share: Any
    error: Exception
    replicas: int

    def problem(self) -> Problem:
        """Return the problem for the user."""
        of_share, rows = count_in(self.share), count_in(self.whole)
        return Problem(
            f"a share of a batch in {self.step}",
            place_of(self.error) or place_of_call(),
            f"a step that can compute any rows of a batch: with {self.replicas} replicas a share, "
            f"such as {of_share} rows of a batch of {rows}",
            f"The step works on the whole batch, as on one device, and fails on the share. "
            f"{self._advice()} The error is: {first_line(self.error)}",
        )

    def _advice(self) -> str:
        parts = sum(has_rows(leaf) for leaf in tf.nest.flatten(self.whole))
        if parts == 1:
            return "Compute each row without the others, or train on one device."
        return (
            "All parts of this batch have a row for each example, as far as their sizes show, so "
            "each part was cut. If a part belongs to all examples, such as a table or a graph, "
            "keep it in the model, or give it one more axis in front (`table[tf.newaxis]`): then "
            "every replica computes the whole batch. Otherwise train on one device."
        )


def found(
    model: Any, step: str, components: Sequence[Component], batches: Iterable[Any]
) -> FailedShare | None:
    """Return the first batch that fails on a local replica's share only; None if there is none."""
    several, until = Replicas.of(model.distribute_strategy), time.monotonic() + MOST_SECONDS
    steps: _Steps | None = None
    for whole in batches:
        shares = cut(whole, several, components)
        is_whole = any(bool(flag) for _, _, *flags in shares for flag in flags)
        steps = steps or _Steps.of(model, step, whole)
        if steps is None or time.monotonic() > until:
            return None
        error = None if is_whole else steps.error_on([one[:2] for one in shares])
        if error:
            if steps.error_on([(whole, tf.ones([]))] * several.local):
                return None
            return FailedShare(step, whole, shares[0][0], error, several.total)
    return None


@dataclass(frozen=True)
class _Steps:
    """Runs a step on the local replicas, and restores everything that it changes."""

    model: Any
    compute: Any
    before: Snapshot

    @classmethod
    def of(cls, model: Any, step: str, whole: Any) -> "_Steps | None":
        """Return the runs of a model's step; None: the step cannot run again without effects."""
        trace = traced(model, step, whole)
        if calls_python(trace) or uses_something_up(trace, 0):
            return None
        return cls(model, step_of(model, step), Snapshot(model, trace))

    def error_on(self, given: Sequence[tuple[Any, tf.Tensor]]) -> Exception | None:
        """Return the step's error on the local replicas' parts; None: it succeeds."""

        def on_replica(part: Any, weight: tf.Tensor) -> None:
            with step_context.computing(weight, rows=rows_known(part)) as share:
                share.applies = False
                self.compute(part)

        each = tensorflow_names.for_each_replica([*given])
        try:
            with replicas.alone(), refusing_sums(), eagerly():
                self.model.distribute_strategy.run(on_replica, args=each)
        except Exception as error:  # noqa: BLE001  a script's own step may raise anything
            return error
        finally:
            self.before.restore()
        return None
