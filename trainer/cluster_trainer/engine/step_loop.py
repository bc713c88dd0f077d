"""Computes steps on all replicas, in the graph of one call of TensorFlow or eagerly."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, count, ring_of, summed
from cluster_trainer.engine import running
from cluster_trainer.engine.building import building
from cluster_trainer.engine.data.batch_shares import cut, handed_out, rows_known
from cluster_trainer.engine.data.sources.source import Source
from cluster_trainer.engine.logs import PackedLogs
from cluster_trainer.engine.replicas import of_model, rounds, step_context
from cluster_trainer.engine.replicas.state import own_state
from cluster_trainer.engine.replicas.state.untracked import assigned
from cluster_trainer.engine.waits import INPUT
from cluster_trainer.private import tensorflow_names


class Reading(NamedTuple):
    """How the batches of a call are read; each different value needs its own trace of the steps.

    Attributes:
        is_known: whether there certainly is a batch for each step of the call.
        is_distributed: whether TensorFlow divides the batches among the replicas.
        guards: whether a replica may be without examples of its own.
    """

    is_known: bool
    is_distributed: bool
    guards: bool


class StepLoop:
    """Computes steps on all replicas.

    Args:
        model: the compiled model.
        step: from a replica's batch to its logs.
        name: the steps' name, `training` or `evaluation`.
        packed: the logs of a call as vectors.
        own_rounds: the rounds after which workers average their weights.

    Attributes:
        rounds: the rounds; assigned again when their length has changed.
        traces: how often the steps were traced.
        assigned: the variables that the traced steps assign, by `id`.
        gathers: whether a traced step gathers tensors by TensorFlow's collectives.
        foreseen: the variables that the steps are known to change; see own_state.py.
        unforeseen: the variables of which a trace has shown this too late.
    """

    def __init__(
        self,
        model: keras.Model,
        step: Callable[[Any], Any],
        name: str,
        packed: PackedLogs,
        own_rounds: rounds.Rounds,
    ) -> None:
        self._model, self._step, self._name = model, step, name
        self._strategy = model.distribute_strategy
        self._replicas = Replicas.of(self._strategy)
        self._packed, self._waits, self.rounds = packed, own_rounds.waits, own_rounds
        is_wanted = model.jit_compile and not of_model.of(model).has_automatic_jit
        self._compiles_between_sums = is_wanted and self._replicas.total > 1
        self._guards = self._scalars_differ = self._are_even = self.gathers = False
        self.traces = 0
        self.assigned: dict[int, Any] = {}
        self.foreseen: list[Any] = []
        self.unforeseen: list[Any] = []

    def foresee(self) -> None:
        """Let the next trace know of the variables that the last one has found too late."""
        found = {id(one): one for one in (*self.foreseen, *self.unforeseen)}  # once each
        self.foreseen, self.unforeseen = [*found.values()], []

    def reading(self, source: Source) -> Reading:
        """Return how a source's batches are read, and trace the next steps for that."""
        self._guards = source.may_lack_examples and not source.is_distributed
        self._scalars_differ = source.is_distributed
        return Reading(source.is_known, source.is_distributed, self._guards)

    def shares_of(self, batch: Any) -> Any:
        """Return the local replicas' shares of a batch that every worker has."""
        if self._replicas.total == 1:
            return batch
        self._guards, self._scalars_differ = True, False
        return cut(batch, Replicas.of(self._strategy))  # their present number

    def many_steps(
        self, batches: Any, steps: tf.Tensor, reading: Reading, place: rounds.Place | None
    ) -> tuple[tf.Tensor, Any]:
        """Run steps on the next batches, or fewer if the batches end.

        Args:
            batches: an iterator over the batches.
            steps: the number of steps, int32 [].
            reading: how the batches are read.
            place: where in a round the call begins; None: there are no rounds.

        Returns:
            the number of steps done, int32 [], and each local replica's vector of logs of the last
            step, float64 [n]; see logs.py.
        """
        # The next two lines are plain Python, which runs only while the steps are traced.
        running.current().watched.traces()
        self.traces += 1
        nothing = tuple(tf.zeros([0], tf.float64) for _ in range(self._replicas.local))
        vectors = tuple(tf.TensorShape([None]) for _ in nothing)
        if reading.is_known:

            def do(done: tf.Tensor, _: Any) -> Any:
                batch = self._next(batches, done, reading)
                logs = self.one_step(self.weighted(batch, reading))
                self.rounds.after_step(place, done + 1)
                return done + 1, logs

            done, last = tf.while_loop(
                lambda done, _: done < steps,
                do,
                (tf.constant(0), nothing),
                shape_invariants=(tf.TensorShape([]), vectors),
            )
        else:
            done, last = self._until_the_end(batches, steps, reading, place, (nothing, vectors))
        self.rounds.after_call(place, done)
        self.assigned |= assigned()
        return done, last

    def _next(self, batches: Any, done: tf.Tensor, reading: Reading) -> Any:
        """Return the next batch; measure the wait for it from the end of the previous step."""
        if reading.is_distributed:
            return batches.get_next()
        return self._waits.measured(INPUT, done, batches.get_next)

    def _until_the_end(
        self,
        batches: Any,
        steps: tf.Tensor,
        reading: Reading,
        place: rounds.Place | None,
        logs: tuple[Any, Any],
    ) -> tuple[tf.Tensor, Any]:
        """Run steps like `_many_steps`, if it is unknown whether there are enough batches.

        `logs` has the local replicas' vectors before the first step, and their shapes.
        """
        nothing, vectors = logs

        def do(done: tf.Tensor, _: Any, batch: Any, __: Any) -> Any:
            last = self.one_step(self.weighted(batch.get_value(), reading))
            self.rounds.after_step(place, done + 1)
            following = tf.cond(done + 1 < steps, batches.get_next_as_optional, lambda: batch)
            more = self._all_have(following.has_value())
            return done + 1, more, following, last

        first = batches.get_next_as_optional()
        state = (tf.constant(0), self._all_have(first.has_value()), first, nothing)
        scalar = tf.TensorShape([])
        done, _, _, last = tf.while_loop(
            lambda done, more, *_: tf.logical_and(done < steps, more),
            do,
            state,
            shape_invariants=(scalar, scalar, tensorflow_names.type_spec(first), vectors),
        )
        return done, last

    def _all_have(self, one_has: tf.Tensor) -> tf.Tensor:
        """Tell whether all workers have a next batch, bool []: their data may differ in length."""
        if self._replicas.workers == 1:
            return one_has
        what = f"{self._name} (the next batch)"

        def all_have() -> tf.Tensor:
            return summed([tf.cast(tf.identity(one_has), tf.int32)], what)[0] == count()

        return self._strategy.experimental_local_results(self._strategy.run(all_have))[0]

    def weighted(self, batch: Any, reading: Reading) -> Any:
        """Return a batch's shares as `cut` does, also if TensorFlow has distributed the batch."""
        if not reading.is_distributed:
            return batch
        local = self._replicas.local
        parts = handed_out(batch, self._strategy, local)
        counts = [count for _, count in parts]
        given = tensorflow_names.for_each_replica(counts)
        what = f"{self._name} (size of a batch)"
        totals = self._strategy.run(
            lambda count: summed([tf.identity(count)], what)[0], args=(given,)
        )
        total = self._strategy.experimental_local_results(totals)[0]
        return tuple((part, count / total) for part, count in parts)

    def one_step(self, batch: Any) -> tuple[tf.Tensor, ...]:
        """Run a step; return each local replica's vector of logs, float64 [n]; see logs.py."""
        if self._replicas.total == 1:
            vectors = self._strategy.run(self._alone, args=(batch,))
        else:
            self._are_even = self._are_certainly_even(batch)
            given = tensorflow_names.for_each_replica(batch)
            vectors = self._strategy.run(self._shared, args=given)
        return tuple(self._strategy.experimental_local_results(vectors))

    def _are_certainly_even(self, shares: Any) -> bool:
        """Tell whether all replicas' shares certainly have the same number of examples.

        A worker does not know the sizes of other workers' shares.
        """
        rows = [rows_known(part) for part, *_ in shares]
        is_known = None not in rows[0] and all(one == rows[0] for one in rows)
        return is_known and self._replicas.workers == 1 and not self._guards

    def _alone(self, batch: Any) -> tf.Tensor:
        return self._packed.of_one(self._step(batch))

    def _shared(
        self, batch: Any, weight: tf.Tensor, is_whole: tf.Tensor | None = None
    ) -> tf.Tensor:
        known, is_own_step = rows_known(batch), self.rounds.are_wanted
        with (
            step_context.computing(
                weight, is_whole, self._waits, known, is_own_step=is_own_step
            ) as part,
            self._compiled_between_sums(),
        ):
            part.scalars_differ, part.are_even = self._scalars_differ, self._are_even
            is_keras_own = building.steps_as_keras(self._model)
            with own_state.seen_to(
                *(self._model, batch, part, self.foreseen),
                guards=self._guards,
                is_keras_own=is_keras_own,
            ) as given:
                logs = self._step(given)
            self.unforeseen += part.unforeseen
            self.rounds.note(part, given)
            self.gathers |= part.gathers and ring_of(self._strategy) is None
            return self._packed.of_share(logs, weight, given)

    def _compiled_between_sums(self) -> AbstractContextManager[Any]:
        """Request XLA, which compiles parts of a step, but not sums over replicas."""
        return tf.xla.experimental.jit_scope() if self._compiles_between_sums else nullcontext()
