"""Packs a step's logs into one vector per replica, and computes their values over all replicas.

With several replicas, a vector has these numbers, in this order:

1. the replica's share of the batch, as a fraction;
2. the step's own logs, multiplied by the share;
3. for each log with the name of a metric: 1 if it is that metric's result, else 0, multiplied by
   the share;
4. the logs that have a row for each example, row by row.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, gathered, summed
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine.data.batch_shares import rows_known, without_rows
from cluster_trainer.engine.data.same_data import refuse_lengths
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.metrics import left_totals, noted_results
from cluster_trainer.private import tensorflow_names

Logs = dict[str, Any]
ALMOST_ALL = 0.999
ROUNDING = 1e-6
log = logging.getLogger("trainer")


class StepLogs(dict[str, Any]):
    """A step's return value, and the metrics of all replicas after it.

    Attributes:
        of_metrics: every metric's result, until `taken` for an epoch's logs; None with one replica,
            whose metrics can be read directly.
    """

    of_metrics: Logs | None = None

    def taken(self) -> Logs | None:
        """Return `of_metrics` once, and then None: the next epoch may have no step."""
        results, self.of_metrics = self.of_metrics, None
        return results


class Entry(NamedTuple):
    """A log in a vector. For a log with a row for each example, `shape` is that of one row."""

    name: str
    shape: tf.TensorShape
    dtype: tf.DType


class Noted(NamedTuple):
    """The content of the vectors, noted while a step was traced.

    Attributes:
        own: the step's own logs.
        rows: the logs that have a row for each example.
        size: how many numbers come before `rows`.
        compared: the names of logs that have the name of one of the model's metrics, and may be its
            result.
        results: the logs that are known to be results of other metrics, by name.
    """

    own: tuple[Entry, ...] = ()
    rows: tuple[Entry, ...] = ()
    size: int = 0
    compared: tuple[str, ...] = ()
    results: Mapping[str, noted_results.Result] = MappingProxyType({})


class Layout(NamedTuple):
    """The layout of vectors that are summed; each different layout needs a trace of its own.

    Attributes:
        counts: how many numbers at the beginning are counts of examples.
        summed: how many of the following numbers are summed over replicas.
        width: how many of the remaining numbers belong to each example.
    """

    counts: int
    summed: int
    width: int


class Reduced(NamedTuple):
    """The numbers of all replicas together.

    Attributes:
        of_metrics: the results of the model's metrics.
        of_logs: the results in `Noted.results`, in the same order.
        totals: the sums of the metrics' variables.
        vectors: the sum of the replicas' vectors, float64 [n].
    """

    of_metrics: Logs
    of_logs: list[tf.Tensor]
    totals: list[tf.Tensor]
    vectors: tf.Tensor


class PackedLogs:
    """The logs of a model's steps, and the notes from tracing a step."""

    def __init__(self, model: keras.Model, step: Callable[[Any], Any], name: str) -> None:
        self._model, self._step, self._name = model, step, name
        self._strategy = model.distribute_strategy
        self._is_one = Replicas.of(self._strategy).total == 1
        self._can_trace_results = True
        self._summed: list[Any] = []
        self.noted = Noted()
        self.forget_traces()

    def forget_traces(self) -> None:
        """Discard the traces of the function that sums vectors."""
        is_eager = self._model.run_eagerly or not self._can_trace_results
        self._results: Any = self._reduced if is_eager else function_of(self._reduced)

    def of_one(self, logs: Any) -> tf.Tensor:
        """Return the vector of the only replica, float64 [n]: just the step's own logs."""
        flat = _flat_logs(logs)
        self.noted = Noted(_entries(flat))
        return _joined(map(_with_shape, flat.values()))

    def of_share(self, logs: Any, weight: tf.Tensor, batch: Any) -> tf.Tensor:
        """Return the vector of one of several replicas, float64 [n]."""
        flat, of_rows = self._divided(_flat_logs(logs), batch)
        rows = tuple(Entry(name, one.shape[1:], one.dtype) for name, one in of_rows.items())
        self.noted = Noted(_entries(flat), rows)
        self._refuse_unknown()
        results = self._results_of_step()
        self._note_results(flat, results)
        are_results = [_is_equal(flat[name], results[name]) for name in self.noted.compared]
        sizes = sum(entry.shape.num_elements() for entry in self.noted.own)
        self.noted = self.noted._replace(size=1 + sizes + len(are_results))
        # A replica's result for a borrowed example may be NaN.
        exact = tf.cast(weight, tf.float64)
        own = _joined([*map(_as_vector, flat.values()), *are_results])
        weighted = tf.math.multiply_no_nan(own, exact)
        by_row = [
            tf.reshape(tf.cast(one, tf.float64), [-1, one.shape[1:].num_elements()])
            for one in of_rows.values()
        ]
        packed_rows = [tf.reshape(tf.concat(by_row, 1), [-1])] if by_row else []
        return tf.concat([exact[tf.newaxis], weighted, *packed_rows], 0)

    def _results_of_step(self) -> Logs:
        """Return the results of the model's metrics in a replica's step.

        Return none if one cannot be traced, for example because it computes with NumPy. On one
        device, Keras asks for it only outside of the step.
        """
        if not self._can_trace_results:
            return {}
        try:
            return _flat_logs(self._model.get_metrics_result())
        except Exception:
            if tf.executing_eagerly():
                raise
            self._can_trace_results = False
            self.forget_traces()
            return {}

    def _note_results(self, flat: Logs, results: Logs) -> None:
        """Note which logs are results of metrics; warn of logs that are computed from some."""
        found = {name: noted_results.of(one) for name, one in flat.items()}
        others = {
            name: one
            for name, one in found.items()
            if one and (name not in results or one != noted_results.of(results[name]))
        }
        if others != self.noted.results:
            self.forget_traces()
        compared = tuple(name for name in flat if name in results and name not in others)
        self.noted = self.noted._replace(compared=compared, results=others)
        for name in flat.keys() - others.keys() - {*compared}:
            if metrics := noted_results.computed_from(flat[name]):
                _warn_of_derived(name, ", ".join(metrics))

    def _refuse_unknown(self) -> None:
        """Refuse logs of unknown shape, which replicas cannot add up.

        Raises:
            ValueError: logs have an unknown shape; it names them.
        """
        unknown = [one.name for one in self.noted.own if not _is_known(one.shape)]
        if unknown:
            raise ValueError(
                f"A step returned {', '.join(unknown)} of unknown shape. Return a mean, a row for "
                "each example, or a metric's result."
            )

    def _divided(self, flat: Logs, batch: Any) -> tuple[Logs, Logs]:
        """Divide a step's logs into logs without and logs with a row for each example."""
        known = rows_known(batch)
        names = [
            name
            for name, value in flat.items()
            if value.shape.rank and value.shape[1:].is_fully_defined() and value.shape[0] in known
        ]
        if names and None not in known:  # sizes may be equal by chance: 8 classes and 8 rows
            varying = self._varying_with_rows(batch)
            names = [name for name in names if name in varying]
        of_rows = {name: flat.pop(name) for name in names}
        return flat, of_rows

    def _varying_with_rows(self, batch: Any) -> set[str]:
        """Return the logs whose first dimension is unknown, like the batch's."""
        found: set[str] = set()

        def trace(*leaves: Any) -> None:
            with step_context.computing(tf.ones([])) as part:
                part.applies = False
                logs = _flat_logs(self._step(tf.nest.pack_sequence_as(batch, leaves)))
            shapes = {name: one.shape for name, one in logs.items()}
            found.update(name for name, one in shapes.items() if one.rank and one[0] is None)

        specs = [without_rows(one) for one in tf.nest.flatten(batch)]
        with suppress(Exception), tf.init_scope():
            tf.function(trace, autograph=False).get_concrete_function(*specs)
        return found

    def unpacked(self, last: tuple[tf.Tensor, ...], examples: int | None = None) -> StepLogs:
        """Return the logs over all replicas.

        Args:
            last: the local replicas' vectors, float64 [n].
            examples: the number of examples in the whole batch, if a user has given it to each
                worker; None: the engine has read the batch.

        Raises:
            ConfigurationError: the workers' batches have different numbers of examples; on all
                workers.
        """
        if self._is_one:
            return StepLogs(_own(self.noted.own, np.asarray(last[0])))
        replicas, counts = Replicas.of(self._strategy), 0
        if examples is not None:
            last, counts = _with_examples(last, replicas, examples), replicas.total
        width = sum(one.shape.num_elements() for one in self.noted.rows)
        layout = Layout(counts, self.noted.size, width)
        results, of_logs, totals, flat = self._results(last, layout)
        left_totals.note(self._model, self._summed, totals)
        places = [counts, counts + self.noted.size]
        examples_of_all, own, of_rows = np.split(np.asarray(flat), places)
        counts_of_workers = [*map(int, examples_of_all[:: replicas.local])]
        refuse_lengths(workers_of(self._strategy), counts_of_workers, "examples", "batch")
        own = own[1:] / own[0]  # the weights add up to 1 except for rounding
        logs = StepLogs(_own(self.noted.own, own))
        # The mean of the replicas' results may differ from the result over all replicas.
        logs.update(zip(self.noted.results, of_logs, strict=True))
        are_results = own[sum(one.shape.num_elements() for one in self.noted.own) :] > ALMOST_ALL
        for name, is_result in zip(self.noted.compared, are_results, strict=True):
            if is_result:
                logs[name] = results[name]
        logs.of_metrics = results
        logs.update(_rows(self.noted.rows, of_rows))
        return logs

    def _reduced(self, last: tuple[tf.Tensor, ...], layout: Layout) -> Reduced:
        """Return the metrics of all replicas together, and the sums of their vectors."""
        given = tensorflow_names.for_each_replica(last)
        results = self._strategy.run(partial(self._on_replica, layout=layout), args=(given,))
        first: Reduced = tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], results
        )
        return first

    def _on_replica(self, own: tf.Tensor, layout: Layout) -> Reduced:
        # Kept, because the metrics may get more variables before this is traced again.
        self._summed = self._summable()
        copies = [step_context.own(one) for one in self._summed]
        # As float64, integers stay exact, and can be summed on the same device as the others.
        values = [tf.cast(one, tf.float64 if one.dtype.is_integer else one.dtype) for one in copies]
        own, of_rows = self._without_rows(own, layout)
        given = [*map(tf.identity, values), tf.identity(own)]
        *totals, own_total = summed(given, f"{self._name} (metrics)")
        mapping = [
            (variable, tf.cast(total, copy.dtype))
            for variable, total, copy in zip(self._summed, totals, copies, strict=True)
        ]
        with keras.StatelessScope(state_mapping=mapping):
            # A metric may return one of its variables, whose total is known in this scope only.
            results = _flat_logs(self._model.get_metrics_result())
            others = noted_results.values(self.noted.results.values())
            of_logs = [*map(tf.convert_to_tensor, others)]
        totals = [total for _, total in mapping]
        return Reduced(results, of_logs, totals, tf.concat([own_total, of_rows], 0))

    def _summable(self) -> list[Any]:
        """Return the variables of metrics that are summed, also of those outside of the model."""
        metrics = [one.metric for one in self.noted.results.values()]
        others = [variable for metric in metrics for variable in metric.variables]
        found = (*statistics.of_metrics(self._model), *others)
        return statistics.summed_of({id(one): one for one in found}.values())

    def _without_rows(self, own: tf.Tensor, layout: Layout) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a replica's vector without its rows, and the rows of all replicas, float64 [n]."""
        if not layout.width:
            return own, tf.zeros([0], tf.float64)
        begin = layout.counts + layout.summed
        rows = tf.reshape(own[begin:], [-1, layout.width])
        mine = rows[: tf.where(own[layout.counts] > 0, tf.shape(rows)[0], 0)]
        return own[:begin], tf.reshape(gathered(mine, f"{self._name} (logs)"), [-1])


@cache
def _warn_of_derived(name: str, metrics: str) -> None:
    """Warn once of a log that a step computes from results of metrics."""
    log.warning(
        "The step computes its log %r from the result of %s. Each replica does so with the result "
        "of its own shares, and the log is the mean of these values. Return the result itself, or "
        "compute it in the `result` of a metric of your own.",
        *(name, metrics),
    )


def _with_examples(
    last: tuple[tf.Tensor, ...], replicas: Replicas, examples: int
) -> tuple[tf.Tensor, ...]:
    """Prepend to each vector a number of examples for each replica: its own, and 0 for others."""
    places = [tf.one_hot(replicas.first + index, replicas.total) for index in range(len(last))]
    return tuple(
        tf.concat([tf.cast(place, tf.float64) * examples, vector], 0)
        for vector, place in zip(last, places, strict=True)
    )


def _flat_logs(logs: Any) -> Logs:
    """Return logs as tensors, with nested dicts flattened as Keras shows them."""
    flat: Logs = {}
    for name, value in (logs or {}).items():
        is_dict = isinstance(value, dict)
        flat.update(_flat_logs(value) if is_dict else {name: tf.convert_to_tensor(value)})
    return flat


def _entries(flat: Logs) -> tuple[Entry, ...]:
    return tuple(Entry(name, value.shape, value.dtype) for name, value in flat.items())


def _own(entries: Sequence[Entry], numbers: np.ndarray) -> Logs:
    """Return a step's own logs; see `_with_shape` for those of unknown shape."""
    logs = {}
    for name, shape, dtype in entries:
        if _is_known(shape):
            form = shape.as_list()
        else:
            begin = 1 + int(numbers[0])
            form, numbers = numbers[1:begin].astype(int).tolist(), numbers[begin:]
        size = math.prod(form)
        logs[name], numbers = _as_of(dtype, numbers[:size].reshape(form)), numbers[size:]
    return logs


def _rows(entries: Sequence[Entry], numbers: np.ndarray) -> Logs:
    """Return the logs that have a row for each example, of all replicas."""
    if not entries:
        return {}
    sizes = [one.shape.num_elements() for one in entries]
    parts = np.split(numbers.reshape([-1, sum(sizes)]), np.cumsum(sizes)[:-1], axis=1)
    return {
        name: part.reshape([-1, *shape]).astype(dtype.as_numpy_dtype)
        for (name, shape, dtype), part in zip(entries, parts, strict=True)
    }


def _as_of(dtype: tf.DType, value: np.ndarray) -> np.ndarray:
    """Return a mean over replicas in the type of the values, unless an integer cannot hold it."""
    kind = np.dtype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return value.astype(kind)
    whole = np.rint(value)
    return whole.astype(kind) if np.allclose(value, whole, rtol=0, atol=ROUNDING) else value


def _joined(vectors: Iterable[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.zeros([0], tf.float64), *vectors], 0)


def _as_vector(value: tf.Tensor) -> tf.Tensor:
    """Return a value as float64 [n], which is exact for int32 and float32."""
    return tf.reshape(tf.cast(value, tf.float64), [-1])


def _with_shape(value: tf.Tensor) -> tf.Tensor:
    """Return a value as float64 [n]; its rank and shape come first if they are not known."""
    if _is_known(value.shape):
        return _as_vector(value)
    shape = tf.cast(tf.shape(value), tf.float64)
    return tf.concat([tf.cast(tf.size(shape), tf.float64)[tf.newaxis], shape, _as_vector(value)], 0)


def _is_known(shape: tf.TensorShape) -> bool:
    return bool(shape.is_fully_defined())


def _is_equal(value: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Tell, as float64 [1], whether two values are equal except for rounding, or both are NaN."""
    if value.shape != other.shape:
        return tf.zeros([1], tf.float64)
    one, two = _as_vector(value), _as_vector(other)
    is_close = tf.abs(one - two) <= ROUNDING * tf.abs(two)
    same = is_close | (tf.math.is_nan(one) & tf.math.is_nan(two))
    return tf.cast(tf.reduce_all(same), tf.float64)[tf.newaxis]
