"""Many steps of a model in one call of TensorFlow, on all replicas."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, count, gathered, ring_of, summed
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine import running
from cluster_trainer.engine.building import building
from cluster_trainer.engine.building.unbuilt import held_as_before
from cluster_trainer.engine.data.comparing import (
    differing_batches,
    leaving_generators,
    warn,
)
from cluster_trainer.engine.data.cut import count_in, cut, handed_out, rows_known, without_rows
from cluster_trainer.engine.data.sources.source import Source
from cluster_trainer.engine.epoch_iterator import EpochIterator, Execution
from cluster_trainer.engine.first_batch.again import iterator_of
from cluster_trainer.engine.first_batch.check import FirstBatch
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import own_state, statistics, step_context
from cluster_trainer.engine.waits import INPUT, Waits
from cluster_trainer.private import keras_names, tensorflow_names

Logs = dict[str, Any]
TRAINING = "training"
SHOWN = 5
ALMOST_ALL = 0.999
ROUNDING = 1e-6


class StepLogs(dict[str, Any]):
    """What a step returned, and what the metrics of all replicas say after it.

    Attributes:
        of_metrics: every metric's result, until it is taken for an epoch's logs; None with one
            replica, where anybody may ask the metrics.
    """

    of_metrics: Logs | None = None

    def taken(self) -> Logs | None:
        """Return `of_metrics` once; the epoch after may be one without any step."""
        results, self.of_metrics = self.of_metrics, None
        return results


class Reading(NamedTuple):
    """How the batches of a call are read; each other value is another trace of the steps.

    Attributes:
        is_known: whether there are as many batches as steps.
        is_distributed: whether TensorFlow has shared them out.
        guards: whether a replica may be without examples of its own.
    """

    is_known: bool
    is_distributed: bool
    guards: bool


class Layout(NamedTuple):
    """What is in a replica's vector of logs; each other value is another trace of their sums.

    Attributes:
        counts: how many numbers of examples come first.
        summed: how many of the rest are summed over replicas, the weight with them.
        width: how many an example has of what is left, which has a row for each.
    """

    counts: int
    summed: int
    width: int


class Steps:
    """What Keras calls `train_function` and `test_function`.

    Args:
        model: compiled.
        step: its `train_step` or `test_step`, from a replica's batch to its logs.
        name: what it is a step of.

    Attributes:
        logs: as they were after the last call.
        waits: for how long the steps have waited.
    """

    def __init__(self, model: keras.Model, step: Callable[[Any], Any], name: str) -> None:
        self._model, self._strategy = model, model.distribute_strategy
        self._replicas, self._name = Replicas.of(self._strategy), name
        self.waits = Waits(self._replicas)
        if self._replicas.total > 1:  # the function of one replica is not that of another
            step = getattr(step, "python_function", step)
        self._step = keras_names.with_optionals(model, step)  # None in a tf.data.Dataset
        is_one = self._replicas.total == 1 or name != TRAINING
        self._first_batch = None if is_one else self._first_batch_of(model)
        self._compiles_between_sums = model.jit_compile and self._replicas.total > 1
        self._own_logs: list[tuple[str, tf.TensorShape, tf.DType]] = []
        self._row_logs: list[tuple[str, tf.TensorShape, tf.DType]] = []
        self._packed_size = 0
        self._guards = self._gathers = self._has_variables = self._is_prepared = False
        self._has_compared = False
        self._trained: tuple[running.Running, set[int]] | None = None
        self.trains: int | None = None
        self.logs: Logs = {}
        if model.jit_compile and self._replicas.total == 1:
            self._step = function_of(self._step, jit_compile=True)
        self._make_functions()

    def forget_traces(self) -> None:
        """Trace the steps anew when they are done next: something has changed that traces hold."""
        self._make_functions()

    def _make_functions(self) -> None:
        """Make what is called, of which nothing is traced yet."""
        self._many: Any = None
        self._one: Any = None
        self._results: Any = None
        if self._model.run_eagerly:
            self._one, self._results = self._one_step, self._reduced
        else:
            self._many = function_of(self._many_steps)
            self._one = function_of(self._one_step)
            self._results = function_of(self._reduced)

    def __call__(self, batches: Execution | Iterator[Any]) -> Logs:
        """Do the steps of a call; return the logs as they are afterwards.

        Raises:
            StopIteration: there was no batch.
        """
        if not isinstance(batches, Execution):
            return self._one_by_one(batches)
        began = time.monotonic()
        limit = running.current().watched.limit
        with limit(self, is_first=batches.is_first), self._changes_noted():
            done, last = self._run(batches)
        batches.over(done, began)
        if not done:
            raise StopIteration
        self.logs = self._logs(last)
        return self.logs

    @contextmanager
    def _changes_noted(self) -> Iterator[None]:
        """Note that each replica's statistics are its own, as steps that train make them."""
        try:
            yield
        finally:
            if self._name == TRAINING and self._replicas.total > 1:
                statistics.note_changes(self._model)

    def create_variables(self, iterator: EpochIterator) -> bool:
        """Trace the steps on an iterator's batches, so that all variables exist before the first.

        Once is enough, whatever the batches are like the next time.

        Args:
            iterator: whose source the batches will come from.

        Returns:
            Whether they were traced now, for the first time.
        """
        if self._has_variables:
            return False
        self._has_variables, is_first = True, self.trains is None
        self._prepare(iterator.spec)
        if self._model.run_eagerly:
            model = self._model
            is_built = building.has_call(model) and building.build(
                model, iterator.spec, may_trace=True
            )
            if not is_built and self._replicas.total > 1:  # else its step builds what it uses
                building.refuse_unbuilt(model)
            return False
        reading = self._reading(iterator.source)
        self._many.get_concrete_function(iterator.to_trace(), tf.constant(1), reading)
        self._note_trained()
        if iterator.position == (0, 0):
            self._trained = running.current(), {id(one) for one in self._model.trainable_variables}
        return is_first

    def _note_trained(self) -> None:
        """Note of a trace how many variables it trains, whatever becomes trainable later."""
        if self.trains is None:
            self.trains = len(self._model.trainable_variables)

    def _prepare(self, spec: Callable[[], Any]) -> None:
        """Build what a `fit` builds in its first step, so that TensorFlow traces that once.

        Args:
            spec: returns what a replica gets.
        """
        if not self._is_prepared and self._name == TRAINING and running.current().name == "fit":
            self._is_prepared = True
            building.build_for_first_step(self._model, spec)

    def _look_again(self) -> None:
        """Trace the steps of a fit's first epoch anew if a callback has frozen layers meanwhile.

        Keras traces them after `on_epoch_begin`, and looks at `trainable` then and not again.

        Raises:
            ValueError: it has made more of them trainable, of which the optimizer knows nothing; or
                checkpoints are kept: a process that goes on from one would train what is frozen.
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
                "in a callback's `on_train_begin`, which is called again when a fit goes on."
            )
        self._make_functions()

    def _reading(self, source: Source) -> Reading:
        self._guards = source.may_lack_examples and not source.is_distributed
        return Reading(source.is_known, source.is_distributed, self._guards)

    def _one_by_one(self, batches: Iterator[Any]) -> Logs:
        """Do as many steps as a call has, on batches that a user or `train_on_batch` gives."""
        last: Any = None
        examples = 0
        for given in itertools.islice(batches, self._model.steps_per_execution):
            batch = keras.tree.map_structure(as_tensor, given)
            examples = count_in(batch)
            self._compare_data(batch, examples)
            shares = self._shares_of(batch)
            if self._is_first_to_compare():
                self._compare_first(shares, self._one, (shares,), 0)
            self._first_batch = None  # and at no later one
            with self._changes_noted():
                last = self._one(shares)
        if last is None:
            raise StopIteration
        logs = self._logs(last, examples)
        return {name: tf.convert_to_tensor(value) for name, value in logs.items()}

    def _compare_data(self, batch: Any, examples: int) -> None:
        """Let all workers compare the first batch that a loop of a user's own trains on.

        Raises:
            ValueError: they have different numbers of examples.
        """
        workers = workers_of(self._strategy)
        if self._has_compared or running.is_announced() or workers.count == 1:
            return
        self._has_compared, what = True, f"{self._name} (the first batch)"
        _refuse_different(np.array(workers.gather(examples, what)))
        if others := differing_batches(workers, batch, what):
            warn("train_on_batch" if self._name == TRAINING else "test_on_batch", others)

    def _run(self, call: Execution) -> tuple[int, Any]:
        source = call.source
        reading = self._reading(source)
        self._prepare(call.spec)
        if self._model.run_eagerly:
            return self._run_eagerly(call, reading)
        self._look_again()
        if call.begins and self._is_first_to_compare(source):
            return self._run_after_comparing(call, reading)
        return self._run_many(call, reading)

    def _run_many(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        if self._replicas.total > 1 and call.source.varies:
            self._many.get_concrete_function(call.batches, tf.constant(1), reading)
            if self._gathers:
                return self._run_one_by_one(call, reading)
        done, last = self._many(call.batches, tf.constant(call.steps, tf.int32), reading)
        self._note_trained()
        return int(done), last

    def _is_first_to_compare(self, source: Source | None = None) -> bool:
        """Tell whether the next batch is to be computed both ways; all workers ask.

        At the beginning of each fit, as a worker that is new does not know that the others have.

        Args:
            source: where it comes from; None: every worker has the whole batch.
        """
        if self._first_batch is None or not self._first_batch.is_due():
            return False
        if source is not None and source.is_distributed:
            self._first_batch.say_left_out("TensorFlow shares the data out")
            return False
        if source is not None and source.calls_users and self._model.run_eagerly:
            # Both may draw from NumPy, whose generator nobody can put back meanwhile.
            self._first_batch.say_left_out("the step runs eagerly, beside threads that read data")
            return False
        return True

    def _first_batch_of(self, model: keras.Model) -> FirstBatch:
        return FirstBatch(model, self._step, self._times_weight, self._logs)

    def _compare_first(
        self, shares: Any, function: Any, arguments: tuple[Any, ...], iterators: int
    ) -> None:
        """Compute a batch both ways before it is trained on; see FirstBatch.

        Args:
            shares: the local replicas'.
            function: that does the step, which is traced now if it was not.
            arguments: of it.
            iterators: how often it takes a batch.
        """
        if self._model.run_eagerly:
            traced = self._traced_to_compare(shares)
        else:
            traced = function.get_concrete_function(*arguments)
        of_trace = self._own_logs, self._row_logs, self._packed_size
        assert self._first_batch  # noqa: S101  `_is_first_to_compare` was asked
        self._first_batch.compare(shares, traced, iterators)
        self._own_logs, self._row_logs, self._packed_size = of_trace

    def _traced_to_compare(self, shares: Any) -> Any:
        """Return a trace of steps that run eagerly, which tells what they change; None: nobody can.

        Where the step is Keras's own: what that calls is called for traces as well. A `train_step`
        of the script's own expects to be called once for each batch.
        """
        if not building.trains_as_keras(self._model):
            return None
        # Of what is traced nothing may stay in layers: the steps could not compute with it.
        with suppress(Exception), held_as_before(self._model), leaving_generators():
            return function_of(self._one_step).get_concrete_function(shares)
        return None  # a loss, say, that looks at numbers

    def _run_after_comparing(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        """Do a call's steps, the first by itself, once that batch was computed both ways."""
        arguments = call.batches, tf.constant(1), reading
        self._many.get_concrete_function(*arguments)  # which makes all variables
        try:
            batch = call.take()
        except StopIteration:
            return 0, ()
        self._compare_first(batch, self._many, arguments, int(reading.is_known))
        batches = iterator_of(batch, call.batches.element_spec)
        done, last = self._many(batches, tf.constant(1), reading)
        self._note_trained()
        if call.steps == 1:
            return int(done), last
        rest = Execution(call.batches, call.steps - 1, call.source, call.workers, call.spec)
        more, last_of_more = self._run_many(rest, reading)
        return int(done) + more, last_of_more if more else last

    def _run_one_by_one(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        """Run each step in a call of TensorFlow of its own.

        Within one, what a collective of TensorFlow's gathers has to have the same size in each
        step; the gradients of an embedding have a row for each token of a batch.
        """
        last: Any = ()
        for done in range(call.steps):
            one, last_of_one = self._many(call.batches, tf.constant(1), reading)
            if not int(one):
                return done, last
            last = last_of_one
        return call.steps, last

    def _run_eagerly(self, call: Execution, reading: Reading) -> tuple[int, Any]:
        last: Any = ()
        for done in range(call.steps):
            try:
                batch = call.take()
            except (StopIteration, tf.errors.OutOfRangeError):
                return done, last
            if call.begins and not done and self._is_first_to_compare(call.source):
                self._compare_first(batch, None, (), 0)
            last = self._one(self._weighted(batch, reading))
        return call.steps, last

    def _shares_of(self, batch: Any) -> Any:
        """Return what all replicas get of a batch that every worker has."""
        if self._replicas.total == 1:
            return batch
        self._guards = True
        return cut(batch, Replicas.of(self._strategy))  # as many as there are now

    def _many_steps(
        self, batches: Any, steps: tf.Tensor, reading: Reading
    ) -> tuple[tf.Tensor, Any]:
        """Do `steps` (int32 []) steps on the next batches, or fewer where they end before.

        Returns:
            How many were done, and each local replica's own logs of the last.
        """
        # What is written in Python runs only when it is traced.
        running.current().watched.traces()
        nothing = tuple(tf.zeros([0], tf.float64) for _ in range(self._replicas.local))
        vectors = tuple(tf.TensorShape([None]) for _ in nothing)
        if reading.is_known:

            def do(done: tf.Tensor, _: Any) -> Any:
                batch = self._next(batches, done, reading)
                return done + 1, self._one_step(self._weighted(batch, reading))

            done, last = tf.while_loop(
                lambda done, _: done < steps,
                do,
                (tf.constant(0), nothing),
                shape_invariants=(tf.TensorShape([]), vectors),
            )
            return done, last
        return self._until_the_end(batches, steps, reading, nothing, vectors)

    def _next(self, batches: Any, done: tf.Tensor, reading: Reading) -> Any:
        """Return the next batch; a step begins when the one before is done in all its parts."""
        if reading.is_distributed:
            return batches.get_next()
        return self.waits.measured(INPUT, done, batches.get_next)

    def _until_the_end(
        self, batches: Any, steps: tf.Tensor, reading: Reading, nothing: Any, vectors: Any
    ) -> tuple[tf.Tensor, Any]:
        """Do what `_many_steps` does where nobody knows how many batches there are."""

        def do(done: tf.Tensor, _: Any, batch: Any, __: Any) -> Any:
            last = self._one_step(self._weighted(batch.get_value(), reading))
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
        """Tell whether all workers have a batch: what they read need not have one length."""
        if self._replicas.workers == 1:
            return one_has
        what = f"{self._name} (the next batch)"

        def all_have() -> tf.Tensor:
            return summed([tf.cast(tf.identity(one_has), tf.int32)], what)[0] == count()

        return self._strategy.experimental_local_results(self._strategy.run(all_have))[0]

    def _weighted(self, batch: Any, reading: Reading) -> Any:
        """Return the shares of a batch that TensorFlow has shared out as `cut` returns them."""
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

    def _one_step(self, batch: Any) -> tuple[tf.Tensor, ...]:
        """Do a step; return each local replica's own logs, float64 [n]."""
        if self._replicas.total == 1:
            vectors = self._strategy.run(self._alone, args=(batch,))
        else:
            given = tensorflow_names.for_each_replica(batch)
            vectors = self._strategy.run(self._shared, args=given)
        return tuple(self._strategy.experimental_local_results(vectors))

    def _alone(self, batch: Any) -> tf.Tensor:
        return self._packed(self._step(batch))

    def _shared(
        self, batch: Any, weight: tf.Tensor, is_whole: tf.Tensor | None = None
    ) -> tf.Tensor:
        with (
            step_context.computing(weight, is_whole, self.waits, rows_known(batch)) as part,
            self._compiled_between_sums(),
        ):
            with own_state.seen_to(self._model, batch, part, guards=self._guards) as given:
                logs = self._step(given)
            self._gathers |= part.gathers and ring_of(self._strategy) is None
            return self._times_weight(logs, weight, given)

    def _times_weight(self, logs: Any, weight: tf.Tensor, batch: Any) -> tf.Tensor:
        """Return a step's logs in one vector; the weight is before them, and rows are behind."""
        # What a replica computes of a borrowed example may be NaN.
        exact = tf.cast(weight, tf.float64)
        logs, of_rows = self._divided(logs, batch)
        weighted = tf.math.multiply_no_nan(self._packed(logs), exact)
        return tf.concat([exact[tf.newaxis], weighted, self._packed_rows(of_rows)], 0)

    def _divided(self, logs: Any, batch: Any) -> tuple[Logs, Logs]:
        """Return a step's logs, and apart from them those that have a row for each example."""
        flat = {name: tf.convert_to_tensor(one) for name, one in _flat_logs(logs or {}).items()}
        known = rows_known(batch)
        names = [
            name
            for name, value in flat.items()
            if value.shape.rank and value.shape[1:].is_fully_defined() and value.shape[0] in known
        ]
        if names and None not in known:  # by chance, as of 8 classes and 8 rows
            varying = self._varying_with_rows(batch)
            names = [name for name in names if name in varying]
        of_rows = {name: flat.pop(name) for name in names}
        return flat, of_rows

    def _varying_with_rows(self, batch: Any) -> set[str]:
        """Return the logs whose first dimension is unknown where that of the batch is."""
        found: set[str] = set()

        def trace(*leaves: Any) -> None:
            with step_context.computing(tf.ones([])) as part:
                part.applies = False
                logs = self._step(tf.nest.pack_sequence_as(batch, leaves))
            for name, value in _flat_logs(logs or {}).items():
                shape = tf.convert_to_tensor(value).shape
                if shape.rank and shape[0] is None:
                    found.add(name)

        specs = [without_rows(one) for one in tf.nest.flatten(batch)]
        with suppress(Exception), tf.init_scope():
            tf.function(trace, autograph=False).get_concrete_function(*specs)
        return found

    def _packed_rows(self, logs: Logs) -> tf.Tensor:
        """Return logs that have a row for each example in one vector, row by row, float64 [n]."""
        self._row_logs = [(name, value.shape[1:], value.dtype) for name, value in logs.items()]
        parts = [
            tf.reshape(tf.cast(value, tf.float64), [-1, value.shape[1:].num_elements()])
            for value in logs.values()
        ]
        return tf.reshape(tf.concat(parts, 1), [-1]) if parts else tf.zeros([0], tf.float64)

    def _compiled_between_sums(self) -> AbstractContextManager[Any]:
        """Ask for XLA, which compiles what it can of a step and leaves sums over replicas out."""
        return tf.xla.experimental.jit_scope() if self._compiles_between_sums else nullcontext()

    def _packed(self, logs: Any) -> tf.Tensor:
        """Return a step's logs in one vector, float64 [n], which holds every int32 and float32.

        Their names and shapes are noted when the step is traced. With several replicas a name that
        a metric has, too, is followed by 1 where the value is that metric's result, 0 otherwise.
        """
        values = {
            name: tf.convert_to_tensor(value) for name, value in _flat_logs(logs or {}).items()
        }
        self._own_logs = [(name, value.shape, value.dtype) for name, value in values.items()]
        unknown = [name for name, shape, _ in self._own_logs if shape.num_elements() is None]
        if len(unknown) > (self._replicas.total == 1):
            message = (
                f"A step returned {', '.join(unknown)} of unknown shape. Return a mean, a row for "
                "each example, or what a metric has come to."
            )
            raise ValueError(message)
        flat = [_as_vector(value) for value in values.values()]
        if self._replicas.total > 1:
            results = _flat_logs(self._model.get_metrics_result())
            flat += [
                _is_equal(value, results[name]) for name, value in values.items() if name in results
            ]
            sizes = sum(shape.num_elements() for _, shape, _ in self._own_logs)
            self._packed_size = 1 + sizes + len(flat) - len(values)  # with the weight before it
        return tf.concat(flat, 0) if flat else tf.zeros([0], tf.float64)

    def _logs(self, last: tuple[tf.Tensor, ...], examples: int | None = None) -> StepLogs:
        """Return what the replicas' logs come to.

        Args:
            last: each local replica's own.
            examples: of the batch that this worker was given, of which it took its share; None
                where the engine has read it.
        """
        given = None
        if examples is not None and self._replicas.total > 1:
            given = Replicas.of(self._strategy)
            last = _with_examples(last, given, examples)
        counts = given.total if given else 0
        width = sum(shape.num_elements() for _, shape, _ in self._row_logs)
        layout = Layout(counts, self._packed_size, width)
        results, own = ({}, last[0]) if self._replicas.total == 1 else self._results(last, layout)
        results, own = _flat_logs(results), np.asarray(own)
        if given:
            examples_of_all, own = np.split(own, [counts])
            _refuse_different(examples_of_all[:: given.local])
        of_rows = np.zeros([0])
        if self._replicas.total > 1:
            own, of_rows = np.split(own, [self._packed_size])
            own = own[1:] / own[0]  # the weights add up to 1 but for rounding
        logs, begin = StepLogs(), 0
        for name, shape, dtype in self._own_logs:
            size = shape.num_elements()
            if size is None:  # one alone may be unknown: it has what the others leave
                size = len(own) - sum(one.num_elements() or 0 for _, one, _ in self._own_logs)
            form = [-1 if side is None else side for side in shape]
            logs[name] = _as_of(dtype, own[begin : begin + size].reshape(form))
            begin += size
        if self._replicas.total > 1:
            # The mean of the replicas' results need not be the result of all.
            names = [name for name in logs if name in results]
            are_results = dict(zip(names, own[begin:] > ALMOST_ALL, strict=True))
            logs.update({name: results[name] for name in names if are_results[name]})
            logs.of_metrics = results
            logs.update(self._unpacked_rows(of_rows))
        return logs

    def _unpacked_rows(self, flat: np.ndarray) -> Logs:
        """Return the logs that have a row for each example, of all replicas."""
        sizes = [shape.num_elements() for _, shape, _ in self._row_logs]
        rows = flat.reshape([-1, sum(sizes)]) if sizes else flat
        parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1) if sizes else []
        return {
            name: part.reshape([-1, *shape]).astype(dtype.as_numpy_dtype)
            for (name, shape, dtype), part in zip(self._row_logs, parts, strict=True)
        }

    def _reduced(self, last: tuple[tf.Tensor, ...], layout: Layout) -> tuple[Logs, tf.Tensor]:
        """Return the metrics of all replicas together, and the means of their own logs."""
        given = tensorflow_names.for_each_replica(last)
        on_replica = partial(self._results_on_replica, layout=layout)
        results = self._strategy.run(on_replica, args=(given,))
        first = tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], results
        )
        return first[0], first[1]

    def _results_on_replica(self, own: tf.Tensor, layout: Layout) -> tuple[Logs, tf.Tensor]:
        summable = [one for one in statistics.of_metrics(self._model) if one.aggregation == "sum"]
        copies = [step_context.own(one) for one in summable]
        # Whole numbers stay exact, and on the device that the others are on.
        values = [tf.cast(one, tf.float64 if one.dtype.is_integer else one.dtype) for one in copies]
        own, of_rows = self._without_rows(own, layout)
        given = [*map(tf.identity, values), tf.identity(own)]
        *totals, own_total = summed(given, f"{self._name} (metrics)")
        own_total = tf.concat([own_total, of_rows], 0)
        mapping = [
            (variable, tf.cast(total, copy.dtype))
            for variable, total, copy in zip(summable, totals, copies, strict=True)
        ]
        with keras.StatelessScope(state_mapping=mapping):
            return self._model.get_metrics_result(), own_total

    def _without_rows(self, own: tf.Tensor, layout: Layout) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a replica's own logs but those of single examples, and these of all replicas."""
        if not layout.width:
            return own, tf.zeros([0], tf.float64)
        begin = layout.counts + layout.summed
        rows = tf.reshape(own[begin:], [-1, layout.width])
        mine = rows[: tf.where(own[layout.counts] > 0, tf.shape(rows)[0], 0)]
        return own[:begin], tf.reshape(gathered(mine, f"{self._name} (logs)"), [-1])


def waits_of(model: keras.Model) -> dict[str, float]:
    """Return for how many seconds a model's training steps have waited, by what for."""
    waits = getattr(model.train_function, "waits", None)
    return waits.seconds() if waits else {}


def as_tensor(value: Any) -> Any:
    """Return what a user gives for a batch as a tensor; None stays None."""
    return None if value is None else keras_names.convert_to_tensor(value)


def _with_examples(
    last: tuple[tf.Tensor, ...], replicas: Replicas, examples: int
) -> tuple[tf.Tensor, ...]:
    """Put a place for each replica's number of examples before logs; a replica fills its own."""
    places = [tf.one_hot(replicas.first + index, replicas.total) for index in range(len(last))]
    return tuple(
        tf.concat([tf.cast(place, tf.float64) * examples, logs], 0)
        for logs, place in zip(last, places, strict=True)
    )


def _refuse_different(counts: np.ndarray) -> None:
    """Refuse batches of which the workers' shares do not add up to one.

    Raises:
        ValueError: on all workers.
    """
    if len({*counts}) > 1:
        raise ValueError(
            f"The workers' batches have different numbers of examples: {[*map(int, counts)]}, in "
            "the order of the workers. Each worker needs the whole batch, of which it takes its "
            "share."
        )


def _flat_logs(logs: Any) -> Logs:
    """Return logs without the dicts within them, as Keras shows them."""
    flat: Logs = {}
    for name, value in logs.items():
        flat.update(_flat_logs(value) if isinstance(value, dict) else {name: value})
    return flat


def _as_of(dtype: tf.DType, value: np.ndarray) -> np.ndarray:
    """Return a mean over replicas in the type of what it is a mean of, if it can be told there."""
    kind = np.dtype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return value.astype(kind)
    whole = np.rint(value)
    return whole.astype(kind) if np.allclose(value, whole, rtol=0, atol=ROUNDING) else value


def _as_vector(value: Any) -> tf.Tensor:
    return tf.reshape(tf.cast(value, tf.float64), [-1])


def _is_equal(value: Any, other: Any) -> tf.Tensor:
    """Tell, as float64 [1], whether two values are the same but for rounding, or both are NaN."""
    if value.shape != tf.convert_to_tensor(other).shape:
        return tf.zeros([1], tf.float64)
    one, two = _as_vector(value), _as_vector(other)
    is_close = tf.abs(one - two) <= ROUNDING * tf.abs(two)
    same = is_close | (tf.math.is_nan(one) & tf.math.is_nan(two))
    return tf.cast(tf.reduce_all(same), tf.float64)[tf.newaxis]
