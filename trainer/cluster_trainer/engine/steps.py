"""Runs many steps of a model in one call of TensorFlow, on all replicas.

step_loop.py computes them; this module traces them, and decides which batches are computed twice.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine import running
from cluster_trainer.engine.building import building, copied_weights
from cluster_trainer.engine.building.unbuilt import held_as_before
from cluster_trainer.engine.data.batch_shares import count_in
from cluster_trainer.engine.data.same_data import (
    differing_batches,
    leaving_generators,
    refuse_lengths,
    warn,
)
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.engine.execution import Execution
from cluster_trainer.engine.first_batch import nan
from cluster_trainer.engine.first_batch.batch import iterator_of
from cluster_trainer.engine.first_batch.check import FirstBatch
from cluster_trainer.engine.first_batch.due import TRAINING
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.functions import function_of, runs_eagerly, seeded_draws_in
from cluster_trainer.engine.logs import Logs, PackedLogs
from cluster_trainer.engine.replicas import (
    copies,
    rounds,
    statistics,
)
from cluster_trainer.engine.replicas.metrics import left_totals
from cluster_trainer.engine.replicas.optimizers import schedules
from cluster_trainer.engine.replicas.state import own_state
from cluster_trainer.engine.step_loop import Reading, StepLoop
from cluster_trainer.engine.waits import Waits
from cluster_trainer.private import keras_names, tensorflow_names

SHOWN = 5
MANY, ONE = "many steps", "one step"
"""The functions that run a call's steps, or a step on a batch that was taken already."""


class Steps:
    """Keras's `train_function` and `test_function`.

    Args:
        model: the compiled model.
        step: its `train_step` or `test_step`, from a replica's batch to its logs.
        name: the steps' name, `training` or `evaluation`.
        first_batch: the treatment of a first batch, unless the call determines it.

    Attributes:
        strategy: the model's strategy when this object was created.
        logs: the logs after the last call.
        waits: the time that the steps have waited.
        trains: the number of variables that the first trace trains; None: there is no trace yet.
    """

    def __init__(
        self,
        model: keras.Model,
        step: Callable[[Any], Any],
        name: str,
        first_batch: FirstBatchMode,
    ) -> None:
        self._model, self.strategy = model, model.distribute_strategy
        self._replicas, self._name = Replicas.of(self.strategy), name
        self.waits = Waits(self._replicas)
        is_one = self._replicas.total == 1
        if not is_one:  # a `tf.function` would be traced for one replica, and used by all
            step = tensorflow_names.converted_from(step)
        step = keras_names.with_optionals(model, step)  # a dataset may hold None
        self._packed = PackedLogs(model, step, name)
        self._first_batch = None
        if not is_one:
            self._first_batch = FirstBatch(model, step, self._packed, name, first_batch)
        if model.jit_compile and is_one:
            step = function_of(step, jit_compile=True)
        self._loop = StepLoop(model, step, name, self._packed, self._new_rounds())
        self._has_variables = self._is_prepared = False
        # The generation of the ring in which a user's own loop last compared its batches.
        self._compared_in: int | None = None
        self._looked_in: int | None = None
        self._nan_explained: Any = None  # the call, or the model in a user's own loop
        self._trained: tuple[running.Running, set[int]] | None = None
        self.trains: int | None = None
        self.logs: Logs = {}
        self._make_functions()

    def _steps_of_round(self) -> int:
        is_one = self._replicas.total == 1
        return rounds.steps_of_round(self.strategy) if self._name == TRAINING and not is_one else 1

    def _new_rounds(self) -> rounds.Rounds:
        return rounds.Rounds(self._model, self._steps_of_round(), self.waits)

    def _renew_rounds(self) -> None:
        """Discard the traces if the length of rounds has changed: `auto` has chosen it."""
        if self._steps_of_round() != self._loop.rounds.steps:
            self._loop.rounds = self._new_rounds()
            self._has_variables = False
            self.forget_traces()

    @property
    def assigned(self) -> dict[int, Any]:
        """The variables that the traced steps assign, by `id`."""
        return self._loop.assigned

    @property
    def counts_untracked(self) -> bool:
        """Whether the steps change whole numbers in variables that the model does not track."""
        return any(map(own_state.is_whole_number, self._loop.foreseen))

    def forget_traces(self) -> None:
        """Discard the traces, because something that they contain has changed."""
        self._make_functions()
        self._packed.forget_traces()

    def _make_functions(self) -> None:
        is_eager = self._model.run_eagerly
        self._many: Any = None if is_eager else function_of(self._loop.many_steps)
        self._one: Any = self._loop.one_step if is_eager else function_of(self._loop.one_step)

    def __call__(self, batches: Execution | Iterator[Any]) -> Logs:
        """Run the steps of a call; return the logs of the last step.

        Raises:
            StopIteration: there was no batch.
        """
        if not isinstance(batches, Execution):
            return self._one_by_one(batches)
        began = time.monotonic()
        limit = running.current().watched.limit
        with limit(self, is_first=batches.is_first), self._changes_noted():
            done, last = self._run(batches)
        batches.done, batches.seconds = done, time.monotonic() - began
        if not done:
            raise StopIteration
        self.logs = self._packed.unpacked(last)
        if self._is_nan_to_explain(self.logs):
            self._explain_nan(batches)
        return self.logs

    @contextmanager
    def _changes_noted(self) -> Iterator[None]:
        """Note afterwards that training steps in the context have changed replicas' statistics."""
        try:
            yield
        finally:
            if self._name == TRAINING and self._replicas.total > 1:
                statistics.note_changes(self._model)

    def create_variables(self, iterator: EpochIterator) -> bool:
        """Trace the steps on an iterator's batches, so that all variables exist before they run.

        This is done once for all batches. Steps that run eagerly are not traced: the model
        is built instead.

        Returns:
            whether the steps were traced now, for the first time.

        Raises:
            ConfigurationError: an eager step would build layers on several replicas.
        """
        self._renew_rounds()
        if self._has_variables:
            return False
        self._has_variables, is_first = True, self.trains is None
        self._prepare(iterator.spec)
        if runs_eagerly(self._model):
            model = self._model
            is_built = building.has_call(model) and building.build(
                model, iterator.spec, may_trace=True
            )
            if not is_built and self._replicas.total > 1:  # otherwise the step builds it
                building.refuse_unbuilt(model)
            return False
        reading = self._loop.reading(iterator.source)
        arguments = iterator.to_trace(), tf.constant(1), reading, self._loop.rounds.place()
        self._trace(MANY, *arguments)
        self._note_trained()
        if iterator.position == (0, 0):
            self._trained = running.current(), {id(one) for one in self._model.trainable_variables}
        return is_first

    def seeded_draws(self, iterator: EpochIterator) -> list[str]:
        """Return the operations of traced steps that draw seeded numbers with a hidden state.

        These are the functions of `tf.random` without `stateless_`. Steps that run eagerly have no
        trace.
        """
        if runs_eagerly(self._model):
            return []
        reading = self._loop.reading(iterator.source)
        arguments = iterator.to_trace(), tf.constant(1), reading, self._loop.rounds.place()
        return seeded_draws_in(self._many.get_concrete_function(*arguments).graph)

    def _trace(self, name: str, *arguments: Any) -> Any:
        """Trace the function MANY or ONE; again if it should have known of variables."""
        with schedules.counting_told(self._model):
            traced = self._function(name).get_concrete_function(*arguments)
        if not self._loop.unforeseen:
            return traced
        self._loop.foresee()
        self.forget_traces()
        return self._function(name).get_concrete_function(*arguments)

    def _function(self, name: str) -> Any:
        return self._many if name == MANY else self._one

    def _note_trained(self) -> None:
        """Note how many variables the first trace trains, even if `trainable` changes later."""
        if self.trains is None:
            self.trains = len(self._model.trainable_variables)

    def _prepare(self, spec: Callable[[], Any]) -> None:
        """Build the parts that a `fit` needs in its first step, so that it is traced once."""
        if not self._is_prepared and self._name == TRAINING and running.current().name == "fit":
            self._is_prepared = True
            building.build_for_first_step(self._model, spec)

    def _look_again(self) -> None:
        """Trace a fit's steps again if a callback has frozen layers since they were first traced.

        Keras traces steps only after `on_epoch_begin`, and reads `trainable` at that moment.

        Raises:
            ValueError: a callback has made more variables trainable, which the optimizer does not
                know; or layers were frozen and there are checkpoints, because a process that
                resumes would train the frozen layers.
        """
        (call, traced), self._trained = self._trained or (None, set()), None
        variables = self._model.trainable_variables
        if call is not running.current() or traced == {id(one) for one in variables}:
            return
        more = [one.path for one in variables if id(one) not in traced]
        checkpoint_callback = running.current().watched.checkpoint_callback
        if more or (checkpoint_callback and checkpoint_callback.keeps):
            changed = (
                f"{', '.join(more[:SHOWN])} became trainable" if more else "layers were frozen"
            )
            raise ValueError(
                f"{changed} after the first step was traced. Set `trainable` before `compile`, or "
                "in a callback's `on_train_begin`, which is called again when a fit resumes."
            )
        self.forget_traces()

    def _one_by_one(self, batches: Iterator[Any]) -> Logs:
        """Run the steps of a call on batches from `train_on_batch`, or from a user's own loop.

        Raises:
            ConfigurationError: weights are to be averaged in rounds, which only a `fit` can end.
            StopIteration: there was no batch.
        """
        is_open = self._name == TRAINING and process_ring.are_rounds_open()
        if self._loop.rounds.are_wanted or (is_open and self._replicas.total > 1):
            rounds.refuse_own_loop()
        left_totals.take_back(self._model)
        last: Any = None
        examples = 0
        for given in itertools.islice(batches, self._model.steps_per_execution):
            batch = keras.tree.map_structure(as_tensor, given)
            examples = count_in(batch)
            self._compare_data(batch, examples)
            shares = self._loop.shares_of(batch)
            self._look_at(shares)
            if self._replicas.total > 1 and not runs_eagerly(self._model):
                self._trace(ONE, shares)
            with self._changes_noted():
                last = self._one(shares)
        if last is None:
            raise StopIteration
        logs = self._packed.unpacked(last, examples)
        if self._is_nan_to_explain(logs):
            self._look_for_nan(iter([shares]), ONE, (shares,), 0)
        return {name: tf.convert_to_tensor(value) for name, value in logs.items()}

    def _look_at(self, shares: Any) -> None:
        """Compute the first batch of each new ring both ways, if that is due on all workers."""
        if self._first_batch and self._looked_in != (generation := self._generation()):
            self._looked_in = generation
            self._first_batch.due.look_at(lambda: shares[0][0])
            if self._first_batch.due.is_due():
                self._compare_first(shares, ONE, (shares,), 0)

    def _generation(self) -> int:
        """Return the number of the present ring; 0 without one."""
        ring = ring_of(self.strategy)
        return ring.generation if ring else 0

    def _compare_data(self, batch: Any, examples: int) -> None:
        """Compare the workers' first batches in a user's own loop; warn if they differ.

        Raises:
            ConfigurationError: the batches have different numbers of examples.
        """
        workers = workers_of(self.strategy)
        if running.is_announced() or workers.count == 1:
            return
        if self._compared_in == (generation := self._generation()):
            return
        self._compared_in = generation
        what = self._replicas.told(self._name, "the first batch")
        refuse_lengths(workers, workers.gather(examples, what), "examples", "batch")
        if others := differing_batches(workers, batch, what):
            warn("train_on_batch" if self._name == TRAINING else "test_on_batch", others)

    def _run(self, call: Execution) -> tuple[int, Any]:
        if call.begins_epoch:  # a fit without checkpoints, as in a callback, has no earlier moment
            self._renew_rounds()
            copies.renew(self._model)
        left_totals.take_back(self._model)
        source = call.source
        reading = self._loop.reading(source)
        self._prepare(call.spec)
        if self._name == TRAINING:
            copied_weights.renew(self._model)
        if runs_eagerly(self._model):
            return self._run_eagerly(call, reading)
        self._look_again()
        if self._is_to_compare(call, reading):
            return self._run_after_comparing(call, reading)
        return self._run_and_compare_last(call, reading)

    def _run_and_compare_last(
        self, call: Execution, reading: Reading, before: int = 0
    ) -> tuple[int, Any]:
        """Run a call's steps like `_run_many`; the epoch's last may be compared, and runs alone."""
        if not self._is_last_to_compare(call, before):
            return self._run_many(call, reading, before)
        done, last = 0, ()
        if call.steps > 1:
            done, last = self._run_many(_part(call, call.steps - 1), reading, before)
        if done < call.steps - 1:
            return done, last
        more, last_of_more = self._run_after_comparing(_part(call, 1), reading)
        return done + more, last_of_more if more else last

    def _run_many(self, call: Execution, reading: Reading, before: int = 0) -> tuple[int, Any]:
        """Run a call's steps, after the first `before` steps of its first round."""
        place = self._loop.rounds.place(before)
        if self._replicas.total > 1:
            self._trace(MANY, call.batches, tf.constant(1), reading, place)
        if self._loop.rounds.rounds_changes and not before:
            self._loop.rounds.begin()
        if self._replicas.total > 1 and call.source.varies and self._loop.gathers:
            self._note_trained()
            return self._run_one_by_one(call, reading)
        done, last = self._many(call.batches, tf.constant(call.steps, tf.int32), reading, place)
        self._note_trained()
        return int(done), last

    def _is_to_compare(self, call: Execution, reading: Reading) -> bool:
        """Tell whether to compute a call's first batch both ways; all workers call this.

        They exchange this at the beginning of each epoch, because a newcomer does not know the
        others' comparisons, and a callback may have changed the step.
        """
        first = self._first_batch
        if not (call.begins_epoch and first):
            return False
        first.due.look_at(call.spec)
        if not first.due.is_wanted():
            return False
        traced: Any = None
        if not runs_eagerly(self._model):
            arguments = call.batches, tf.constant(1), reading, self._loop.rounds.place()
            traced = self._trace(MANY, *arguments)
        return first.due.is_due(call.source, (self._loop.traces, traced))

    def _is_last_to_compare(self, call: Execution, before: int = 0) -> bool:
        """Tell whether to compute a call's last batch both ways; all workers call this.

        Args:
            call: the call.
            before: how many steps of the call were done.
        """
        first, is_other = self._first_batch, before > 0 or call.steps > 1 or not call.begins_epoch
        if not (first and call.ends_epoch and is_other) or self._loop.rounds.are_wanted:
            return False
        return first.due.is_last_due(call.source)

    def _is_nan_to_explain(self, logs: Logs) -> bool:
        """Tell whether to explain a loss of NaN, once a call; all workers get the same answer."""
        first = self._first_batch
        if not (first and self._name == TRAINING and nan.is_in(logs) and first.due.is_wanted()):
            return False
        call = running.current() if running.is_announced() else self._model
        is_new, self._nan_explained = call is not self._nan_explained, call
        return is_new

    def _explain_nan(self, call: Execution) -> None:
        """Find out whether a call's loss is NaN because of a share; all workers call this.

        Raises:
            ConfigurationError: it is NaN on a share, and finite on the whole batch.
        """
        why = nan.reason_not_to_read(call.source) or (
            "each worker trains by itself (TRAINER_SYNC_EVERY)"
            if self._loop.rounds.are_wanted
            else ""
        )
        if not why:
            reading = self._loop.reading(call.source)
            arguments = call.batches, tf.constant(1), reading, self._loop.rounds.place()
            again = nan.shares_of(running.current().again(), self.strategy)
            whys = self._look_for_nan(again, MANY, arguments, int(reading.is_known))
            why = nan.reason_of_doubt(call.source, whys, call.done)
        if why:
            nan.say_unknown(why)

    def _look_for_nan(
        self, batches: Iterator[Any], function: str, arguments: tuple[Any, ...], iterators: int
    ) -> list[str]:
        """Look for a batch whose loss is NaN on a share only.

        Returns:
            for each batch the reason why it could not be compared; "" if it was.
        """
        assert self._first_batch  # noqa: S101  otherwise nothing is to be explained
        whys = []
        for shares in batches:
            traced, may_repeat = self._trace_to_compare(shares, function, arguments)
            whys.append(
                self._first_batch.look_for_nan(shares, traced, iterators, may_repeat=may_repeat)
            )
        return whys

    def _compare_first(
        self, shares: Any, function: str, arguments: tuple[Any, ...], iterators: int
    ) -> None:
        """Compute a batch both ways before the step runs on it.

        Args:
            shares: the local replicas' shares of the batch.
            function: MANY or ONE, the function that runs the step.
            arguments: the arguments with which it is traced.
            iterators: how often it takes a batch from the steps' own iterator.
        """
        assert self._first_batch  # noqa: S101  otherwise no batch is due
        running.current().watched.traces()  # it takes longer than the steps before
        traced, may_repeat = self._trace_to_compare(shares, function, arguments)
        self._first_batch.compare(shares, traced, iterators, may_repeat=may_repeat)

    def _trace_to_compare(
        self, shares: Any, function: str, arguments: tuple[Any, ...]
    ) -> tuple[Any, bool]:
        """Return a trace of the step, None if it has none, and whether the step may be repeated."""
        if not runs_eagerly(self._model):
            return self._trace(function, *arguments), True
        may_repeat = self._may_be_repeated()
        return self._traced_to_compare(shares) if may_repeat else None, may_repeat

    def _may_be_repeated(self) -> bool:
        """Tell whether an eager step may be called again: Keras calls its own for traces as well.

        A script's own `train_step` or `test_step` expects exactly one call for each batch.
        """
        is_training = self._name == TRAINING
        is_keras_own = building.trains_as_keras if is_training else building.evaluates_as_keras
        return is_keras_own(self._model)

    def _traced_to_compare(self, shares: Any) -> Any:
        """Return a trace of steps that run eagerly, to see their changes; None if impossible."""
        # No symbolic tensor of the trace may stay in layers: eager steps cannot compute with it.
        with (
            suppress(Exception),
            held_as_before(self._model),
            schedules.unchanged(self._model),
            leaving_generators(),
        ):
            return function_of(self._loop.one_step).get_concrete_function(shares)
        return None  # for example, a loss or a metric converts tensors to numbers

    def _run_after_comparing(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        """Run a call's steps; the first runs alone, after its batch was computed both ways."""
        place = self._loop.rounds.place(ends=call.steps == 1)
        arguments = call.batches, tf.constant(1), reading, place
        self._trace(MANY, *arguments)  # creates all variables
        self._loop.rounds.begin()
        try:
            batch = call.take()
        except StopIteration:
            return 0, ()
        self._compare_first(batch, MANY, arguments, int(reading.is_known))
        batches = iterator_of(batch, call.batches.element_spec)
        done, last = self._many(batches, tf.constant(1), reading, place)
        self._note_trained()
        if call.steps == 1:
            return int(done), last
        rest = _part(call, call.steps - 1, ends_epoch=call.ends_epoch)
        more, last_of_more = self._run_and_compare_last(rest, reading, int(done))
        return int(done) + more, last_of_more if more else last

    def _run_one_by_one(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        """Run each step in a separate call of TensorFlow.

        Within a call, tensors that TensorFlow's collectives gather must have the same size in each
        step. The sizes of sparse gradients may differ: an embedding's gradient has a row for each
        token of the batch.
        """
        last: Any = ()
        for done in range(call.steps):
            one, last_of_one = self._many(call.batches, tf.constant(1), reading, None)
            if not int(one):
                return done, last
            last = last_of_one
        return call.steps, last

    def _run_eagerly(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        last: Any = ()
        done = 0
        for batch in _taken(call):
            is_first, is_last = not done, done == call.steps - 1
            if (is_first and self._is_to_compare(call, reading)) or (
                is_last and self._is_last_to_compare(call)
            ):
                self._compare_first(batch, ONE, (), 0)
            last = self._one(self._loop.weighted(batch, reading))
            done += 1
            self._loop.rounds.after_eager_step(done)
        self._loop.rounds.after_eager_call(done)
        return done, last


def _part(call: Execution, steps: int, *, ends_epoch: bool = False) -> Execution:
    """Return a part of a call, which does not begin an epoch."""
    return replace(call, steps=steps, is_first=False, begins_epoch=False, ends_epoch=ends_epoch)


def _taken(call: Execution) -> Iterator[Any]:
    """Yield the batches of a call, until they end."""
    with suppress(StopIteration, tf.errors.OutOfRangeError):
        for _ in range(call.steps):
            yield call.take()


def waits_of(model: keras.Model) -> dict[str, float]:
    """Return how many seconds a model's training steps have waited, by reason."""
    waits = getattr(model.train_function, "waits", None)
    return waits.seconds() if waits else {}


def as_tensor(value: Any) -> Any:
    """Return a part of a user's batch as a tensor; None stays None."""
    return None if value is None else keras_names.convert_to_tensor(value)
