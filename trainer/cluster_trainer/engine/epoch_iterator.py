"""Replaces Keras's TFEpochIterator, and yields calls of several steps instead of batches.

This happens in one call of a `fit`, in this order:

1. `EpochIterator._epoch` chooses the number of steps: `StepsPerCall.next`, or fewer if the epoch,
   the pass or `CheckpointCallback.steps_left` has fewer. A call has whole rounds
   (replicas/rounds.py), except at the end of an epoch. Keras gets the call as an `Execution`.
2. Keras calls `on_train_batch_begin` of all callbacks.
3. Keras calls `Steps.__call__`, which runs the steps in TensorFlow within `StallLimit.call`. Each
   step sums the gradients over all replicas; after the last, `PackedLogs` sums the metrics.
4. Keras calls `on_train_batch_end` of all callbacks. In its own, `CheckpointCallback` asks all
   workers whether one of their callbacks has stopped the fit. If so, `_taking_a_stop` counts the
   steps, and 5. to 7. are skipped.
5. `StepsPerCall.after_call` exchanges the time with the other workers, if that is due. In the same
   exchange `StepVote.agree` votes on whether the fit ends.
6. `CheckpointCallback.after_call` saves a checkpoint if the fit is to end, or if a checkpoint is
   due and no worker is still writing the previous one. Then `Coordinator.meet` ends the fit if all
   workers have agreed to that.
7. If the data had fewer batches than the call, `_end_early` is called and the epoch ends.

A fit's validation goes the same way, with `Steps` of `test_step` and the callbacks' test hooks.
`CheckpointCallback` has no part in it: nothing is asked in 4., and 6. is `Coordinator.meet` only.

fits/kept/checkpoint_callback.py describes the end of an epoch, after its last call.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import keras
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import WorkersOfRing, workers_of
from cluster_trainer.engine import running
from cluster_trainer.engine.data.same_data import (
    PREDICT,
    RowsOfItsOwnError,
    has_own_rows,
    note_read,
    note_reading,
    refuse_lengths,
    refuse_others,
    warn,
    warn_of_own_draws,
    warn_once,
)
from cluster_trainer.engine.data.sources.choice import batch_size_of, source_of
from cluster_trainer.engine.data.sources.dataset import DistributedSource
from cluster_trainer.engine.data.sources.source import Source, none_or_spec
from cluster_trainer.engine.execution import Execution
from cluster_trainer.engine.replicas import rounds
from cluster_trainer.engine.steps_per_call import SHORT_SECONDS, TARGET_SECONDS, StepsPerCall
from cluster_trainer.private import keras_names, tensorflow_names

TRAINS = "fit"
log = logging.getLogger("trainer")


class EpochIterator(keras_names.EpochIterator):
    """The calls of each epoch, for `fit`, `evaluate` and `predict`; see `begun`."""

    source: Source

    def __init__(
        self, *arguments: Any, distribute_strategy: tf.distribute.Strategy, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._strategy, self._call = distribute_strategy, running.current()
        self._spec: Any = None
        self._element_spec: Any = None
        self._pass = self._first = self._done = 0
        self._is_over = self._is_in_epoch = False
        self._is_between_passes, self._has_begun = True, False
        self._checkpoint_callback: Any = None
        self._has_warned = False

    def begun(self) -> Self:
        """Agree with the other workers on the data and the calls; all workers call this once.

        Returns:
            itself, ready to be iterated over.

        Raises:
            ConfigurationError: the workers' data differ, perhaps in their lengths.
            RowsOfItsOwnError: the workers have different rows to predict.
        """
        call, replicas = self._call, Replicas.of(self._strategy)
        self._workers = workers_of(self._strategy)
        self._round = rounds.steps_of_round(self._strategy) if call.name == TRAINS else 1
        self.source = self._agreed_source(replicas)
        self.source.look()
        call.again = partial(self.source.again, 0, 0, 1)
        self._num_batches = self.source.num_batches
        if self._may_be_done_alone(call):
            self._refuse_own_rows()
        self._refuse_other_lengths("batches", self._num_batches)
        self._steps_per_call = self._agreed_steps_per_call(replicas)
        self._may_go_on = self.source.goes_on or call.order.goes_on
        self._checkpoint_callback = call.adopt(self)
        # A newcomer may have drawn other seeds by now than the workers whose fit resumes.
        self._data_may_differ = call.is_of_callback or call.name == PREDICT
        self._warn = warn_once if call.is_of_callback else warn
        if not self._checkpoint_callback:  # the callback itself compares a fit's data
            self._refuse_other_lengths("examples", self.source.num_examples or None)
        if not (self.source.changes or self._may_be_done_alone(call)):
            self._refuse_others()
        if self._workers.count > 1 and not call.is_of_callback:
            warn_of_own_draws(call.name, self.source)
        return self

    def _agreed_source(self, replicas: Replicas) -> Source:
        """Return the source of the batches, in the order of the chief's seed.

        The workers' own seeds may differ: if a script draws a random number on one worker only,
        that worker has other seeds from then on.
        """
        call = self._call
        what = replicas.told(call.name, "order of batches")
        seed = self._workers.gather(call.order.seed, what)[0]
        given = call.arrays_to_train_on
        return source_of(self.data_adapter, replicas, self._strategy, seed, given)

    def _agreed_steps_per_call(self, replicas: Replicas) -> StepsPerCall:
        """Return what chooses the steps of each call.

        `steps_per_execution` above 1 and `Order.steps_a_call` fix the number of steps of a call.
        Otherwise a call has one step if any worker's callback needs each batch.
        """
        call, own = self._call, self.steps_per_execution
        fixed = own if own > 1 else call.order.steps_a_call
        what = f"{call.name} (batches of a call)"
        one_batch = max(self._workers.gather(int(call.one_batch_a_call), what))
        if self._round > 1 and (one_batch or (fixed or 0) % self._round):
            log.warning(
                "callbacks of batches are called once for %d steps, at which weights are averaged "
                "(TRAINER_SYNC_EVERY)",
                -(-(fixed or 1) // self._round) * self._round,
            )
        slowest = partial(self._workers.slowest, what=f"{call.name} (after a call)")
        target = SHORT_SECONDS if replicas.are_some_missing else TARGET_SECONDS
        return StepsPerCall(
            fixed or (1 if one_batch else None), call.watched.agree or slowest, target
        )

    def _refuse_own_rows(self) -> None:
        source = self.source
        facts = {"batches": str(self._num_batches), "examples": str(source.num_examples)}
        if has_own_rows(self._workers, source, facts | source.described):
            raise RowsOfItsOwnError(self.spec())

    def _refuse_other_lengths(self, things: str, count: int | None) -> None:
        """Refuse data of different lengths; all workers call this. See `refuse_lengths`."""
        what = f"{self._call.name} (number of {things})"
        counts = self._workers.gather(-1 if count is None else count, what)
        refuse_lengths(self._workers, [None if one < 0 else one for one in counts], things)

    def _may_be_done_alone(self, call: running.Running) -> bool:
        """Tell whether each worker may predict its own rows by itself; see predicting.py.

        Rows from a generator are excluded, because the batches that were already read are gone.
        """
        is_generator = isinstance(self.data_adapter, keras_names.GeneratorDataAdapter)
        is_of_ring = isinstance(self._workers, WorkersOfRing)
        return call.name == PREDICT and is_of_ring and not is_generator

    def _refuse_others(self) -> None:
        """Refuse data that differ between workers; all workers call this. See same_data.py."""
        if self._workers.count > 1:
            more = {} if self._checkpoint_callback else self.source.described
            may_differ = self._data_may_differ
            others = refuse_others(
                self._workers, self.source, more, self._call.name, may_differ=may_differ
            )
            if others and not self._has_warned:
                self._has_warned = True
                self._warn(self._call.name, others)

    @property
    def position(self) -> tuple[int, int]:
        """The number of finished passes, and the number of batches used in the current one."""
        return self._pass, self._steps_seen or self._first

    @property
    def is_kept(self) -> bool:
        """Whether these are the training batches of a fit with checkpoints."""
        return self._checkpoint_callback is not None

    def is_put_back(self) -> bool:
        """Tell whether the fit begins with a checkpoint's values; all workers call this."""
        return self._checkpoint_callback is not None and self._checkpoint_callback.puts_all_back()

    @property
    def described(self) -> dict[str, str]:
        """Facts about the batches that must be unchanged when a fit resumes: name -> value."""
        # Keras does not know the size of data that TensorFlow divides.
        size = None if self.source.is_distributed else batch_size_of(self.data_adapter)
        return {
            "the batch size": str(size),
            "batches of a pass": str(self.source.num_batches),
            "steps_per_epoch": str(self.steps_per_epoch),
        } | self.source.described

    def begin_at(self, epochs: int, passes: int, seen: int, done: int, *, is_over: bool) -> None:
        """Begin in the middle of the data, where an earlier start of the program has stopped.

        Args:
            epochs: the number of finished epochs.
            passes: the number of finished passes.
            seen: the number of batches of the next pass that were used.
            done: the number of steps of the next epoch that were done.
            is_over: whether all steps of that epoch were done, so that its validation comes first.
        """
        self._pass, self._first, self._is_over = passes, seen, is_over
        self._done = 0 if is_over else done
        for _ in range(epochs):  # a PyDataset may change its order at the end of each
            self.source.begin_epoch()
            self.source.end_epoch()
        if is_over:  # the validation, which comes first, may read the same pipeline
            self.source.catch_up(passes)

    def end(self) -> None:
        """Note that the fit is over; it may have trained nothing in this process."""
        note_read(self.source)
        if not self._has_begun and (self._pass or self._first):
            self.source.note_ended()

    def reset(self) -> None:
        """Begin the data again; an endless iterator between two passes simply continues."""
        self._num_batches = self.source.num_batches
        if not (self.source.is_endless and self._is_between_passes):
            self._current_iterator = None
            note_read(self.source)
            self._steps_seen = 0

    def abandon(self) -> None:
        """Stop reading, at any place in a pass."""
        self._current_iterator = None
        self.source.end_pass()
        note_read(self.source)

    def spec(self) -> Any:
        """Return the specification of a replica's batch, with None for parts that are None."""
        if self._spec is None:
            spec = self._spec_of_shares()
            total = self.source.replicas.total
            if total > 1:
                is_one = self.source.is_distributed
                spec = tf.nest.map_structure(_of_one_replica, spec) if is_one else spec[0][0]
            self._spec = keras.tree.map_structure(none_or_spec, spec)
        return self._spec

    def to_trace(self) -> Any:
        """Return the input for tracing: an iterator of distributed batches, or a specification."""
        if isinstance(self.source, DistributedSource):
            batches = self.source.shares(0, 0)
            if not isinstance(batches, tf.data.Dataset):
                return iter(batches)
        return tf.data.IteratorSpec(self._spec_of_shares())

    def _spec_of_shares(self) -> Any:
        """Return the specification of an element of `Source.shares`, which is traced once."""
        if self._element_spec is None:
            self._element_spec = self.source.shares(0, 0).element_spec
        return self._element_spec

    def __iter__(self) -> Iterator[tuple[int, int, Execution]]:
        """Return the calls of one epoch, each with its first and its last step."""
        return self._epoch()

    @contextmanager
    def _taking_a_stop(self, call: Execution, done: int) -> Iterator[None]:
        """Count the steps of a call after which a callback has stopped the fit.

        The call is usually the last. If the callback withdraws its stop at the end of the epoch,
        the next epoch begins a new pass, as in Keras. With `steps_per_epoch` it continues the
        current pass.
        """
        try:
            yield
        except GeneratorExit:
            if call.done:
                self._count(call.done)
                if not self.steps_per_epoch:
                    self._close()
                    self.abandon()
                if self._checkpoint_callback:
                    self._checkpoint_callback.after_last_call(call.done, done + call.done)
            raise

    def _epoch(self) -> Iterator[tuple[int, int, Execution]]:
        if self._is_over:
            self._is_over = False
            return
        wanted = self._of_whole_calls(self.steps_per_epoch or 0) or self._num_batches
        self._begin_epoch()
        if self._current_iterator is None or not (self.steps_per_epoch or self.source.is_endless):
            self._open()
        done, self._done = self._done, 0
        self._is_between_passes, is_first = False, True
        while wanted is None or done < wanted:
            if self._has_run_out():
                if self.steps_per_epoch:
                    self._interrupted_warning()
                break
            left = self._left(wanted, done)
            steps = self._steps_of_call(left)
            call = Execution(
                self._current_iterator,
                steps,
                self.source,
                self._workers,
                self.spec,
                is_first=is_first or self._ends_pass(steps),
                begins_epoch=is_first,
                ends_epoch=steps == left,
            )
            running.current().done = partial(_done_with, call, done)
            place = self._pass, self._steps_seen, steps
            running.current().again = partial(self.source.again, *place)
            with self._taking_a_stop(call, done):
                yield done, done + self._said(steps, left) - 1, call
            self._steps_per_call.after_call(call.done, call.seconds, is_first=call.is_first)
            is_first = False
            done += call.done
            self._count(call.done)
            if self._checkpoint_callback:
                self._checkpoint_callback.after_call(call.done, done)
            else:
                self._call.watched.meet()
            if call.done < call.steps:
                self._end_early(wanted)
                break
        if self._has_run_out() or not self.steps_per_epoch:
            self._close()
        self._end_training()

    def _steps_of_call(self, left: int | None) -> int:
        """Return how many steps the next call has: whole rounds, and at most `left`.

        Only at the end of a round do all workers hold the same values, which checkpoints need.
        """
        callback = self._checkpoint_callback
        until_checkpoint = callback.steps_left() if callback else None
        steps = self._steps_per_call.next(_smallest(left, until_checkpoint))
        whole = -(-steps // self._round) * self._round
        # A limit may be one of NumPy's integers, such as a dataset's cardinality.
        return int(whole if left is None else min(whole, left))

    def _count(self, steps: int) -> None:
        """Note that `steps` batches were used; they may belong to several passes."""
        self._steps_seen += steps
        if self._num_batches and self._goes_on:
            passes, self._steps_seen = divmod(self._steps_seen, self._num_batches)
            self._pass += passes

    def _ends_pass(self, steps: int) -> bool:
        """Tell whether the next `steps` batches reach into the next pass."""
        return bool(self._num_batches and self._steps_seen + steps > self._num_batches)

    @property
    def _goes_on(self) -> bool:
        """Whether an epoch continues with the next pass if one ends within it."""
        return bool(self.source.is_endless and self._may_go_on and self.steps_per_epoch)

    def _left(self, wanted: int | None, done: int) -> int | None:
        of_epoch = None if wanted is None else wanted - done
        of_pass = self._num_batches and self._num_batches - self._steps_seen
        return _smallest(of_epoch, None if self._goes_on else of_pass)

    def _said(self, steps: int, left: int | None) -> int:
        """Return the number of a call's steps that callbacks see.

        As in Keras, it is a multiple of `steps_per_execution` even if fewer batches are left,
        because Keras's callbacks rely on evenly spaced numbers. A call that ends early for a
        checkpoint reports its actual number of steps.
        """
        return self._of_whole_calls(steps) if steps == left else steps

    def _of_whole_calls(self, steps: int) -> int:
        """Round steps up to a multiple of `steps_per_execution`, as Keras does."""
        size = int(self.steps_per_execution)
        return -(-steps // size) * size

    def _has_run_out(self) -> bool:
        return self._num_batches is not None and self._steps_seen >= self._num_batches

    def _end_early(self, wanted: int | None) -> None:
        if self.steps_per_epoch:
            self._interrupted_warning()
            self._close()
        elif wanted is None:
            self._num_batches = self._steps_seen

    def _begin_epoch(self) -> None:
        self._end_epoch()  # a stop may have left the previous epoch unfinished
        self._is_in_epoch = True
        self.source.begin_epoch()

    def _end_training(self) -> None:
        """End the steps of an epoch; its validation follows."""
        self._end_epoch()
        if self._checkpoint_callback:
            self._checkpoint_callback.after_training()

    def _end_epoch(self) -> None:
        if self._is_in_epoch:
            self.source.end_epoch()
        self._is_in_epoch = False

    def _open(self) -> None:
        goes_on = not self._has_begun and (self._pass or self._first)
        if goes_on and not self.source.is_ours:
            log.info(
                "the data continue with batch %d of pass %d: the next one, if the data are the "
                "same each time",
                self._first + 1,
                self._pass + 1,
            )
        batches = self.source.shares(self._pass, self._first)
        if self.source.changes:
            self.source.look_ahead()
            self._refuse_others()
        if self._element_spec is None:  # asking the source later would end this reading
            self._element_spec = batches.element_spec
        self._has_begun = True
        self.source.begin_pass(self._pass)
        note_reading(self.source)
        self._current_iterator = iterator = iter(batches)
        if not self.source.begins_anywhere:
            for _ in range(self._first):
                next(iterator)
        self._steps_seen, self._first = self._first, 0

    def _close(self) -> None:
        """End a pass; endless data continue with the next."""
        self._steps_seen = 0
        self._pass += 1
        self._is_between_passes = True
        if not self.source.is_endless:
            self.abandon()

    def _interrupted_warning(self) -> None:
        warnings.warn(
            "The data ended before the epoch had all of its batches; the epoch ends here. "
            "`.repeat()` makes a tf.data.Dataset endless.",
            stacklevel=4,
        )

    @contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """End the epoch if the data end within the context; warn if more steps were requested."""
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError):
            if self.num_batches is not None:
                self._interrupted_warning()
            else:  # as in Keras: the next epochs have as many
                self._num_batches = self._steps_seen
            self._close()
            self._end_training()


def _done_with(call: Execution, before: int) -> int:
    """Return how many steps of an epoch are done; until a call has run, count all of its steps."""
    return before + (call.done or call.steps)


def _smallest(*limits: int | None) -> int | None:
    return min((one for one in limits if one is not None), default=None)


def _of_one_replica(spec: Any) -> Any:
    return (
        tensorflow_names.spec_of_first(spec)
        if isinstance(spec, tensorflow_names.PerReplicaSpec)
        else spec
    )
