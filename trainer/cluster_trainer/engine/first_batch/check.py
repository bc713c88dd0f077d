"""The first batch of a fit on several replicas is computed both ways, and compared.

All replicas compute their shares, as in every step, and the chief the whole batch by itself, with
the same random numbers. Optimizers are given gradients and apply none. Nothing stays of either: all
that the step has assigned gets its value back. Both run eagerly, so that nothing is traced for it.

Synchronized BatchNorm sees the whole batch both ways, and so does any other for this once: that a
share has statistics of its own is no difference to warn of.
"""

import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives import group, replicas
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import Replicas, gathered, ring_of, summed
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine.data.cut import rows_known
from cluster_trainer.engine.first_batch import draws, mode
from cluster_trainer.engine.first_batch.comparison import (
    ROUNDING,
    ROUNDING_OF_16_BITS,
    Both,
    Outcome,
)
from cluster_trainer.engine.first_batch.memory import Peak
from cluster_trainer.engine.first_batch.own_parts import has_own_parts, own_metrics
from cluster_trainer.engine.first_batch.snapshot import Snapshot, calls_python, uses_something_up
from cluster_trainer.engine.first_batch.way import Cut, Way
from cluster_trainer.engine.functions import function_of
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem

WHAT = "training (the first batch)"
MARK = "_cluster_trainer_has_checked"
VARIABLE = "TRAINER_FIRST_BATCH"
MIB = 2**20
log = logging.getLogger("trainer")
Values = dict[str, list[np.ndarray]]


class NotComparableError(Exception):
    """The two ways cannot be compared; the text says why."""


class FirstBatch:
    """The first batch of a model's training steps.

    Args:
        model: compiled.
        step: from a replica's batch to its logs, not a function of TensorFlow's.
        packed: from a replica's logs, its weight and its share to a vector.
        logs: from the local replicas' vectors to the logs of all.
    """

    def __init__(
        self,
        model: keras.Model,
        step: Callable[[Any], Any],
        packed: Callable[[Any, tf.Tensor, Any], tf.Tensor],
        logs: Callable[[tuple[tf.Tensor, ...]], dict[str, Any]],
    ) -> None:
        self._model, self._step, self._packed, self._logs = model, step, packed, logs
        self._strategy = model.distribute_strategy

    def is_due(self) -> bool:
        """Tell whether it is to be compared; all workers call it, and get the same answer."""
        ring = ring_of(self._strategy)
        if mode.is_off() or (isinstance(ring, RenewableRing) and ring.is_rehearsed):
            return False
        if Replicas.of(self._strategy).total == 1 or not has_own_parts(self._model):
            return False
        # A worker that goes on in another ring has compared it, and one that is new has not.
        compiled = keras_names.compile_config(self._model)
        is_new = not getattr(compiled, MARK, False)
        if compiled is not None:
            setattr(compiled, MARK, True)
        return all(workers_of(self._strategy).gather(int(is_new), WHAT))

    def compare(self, shares: Sequence[Any], traced: Any = None, iterators: int = 0) -> None:
        """Compare the two ways; say what differs.

        Args:
            shares: each local replica's, with its weight.
            traced: the step, or None where it runs eagerly.
            iterators: how often the step takes a batch.

        Raises:
            ConfigurationError: they differ, and that is to be refused.
            RingError: a worker was lost.
        """
        workers = workers_of(self._strategy)
        try:
            found = self._compared(shares, traced, iterators)
        except NotComparableError as error:
            found = {"unknown": str(error)}
        except Exception as error:  # a step of the script's own, which need not run eagerly
            if (ring := ring_of(self._strategy)) is not None and ring.error is not None:
                raise
            log.debug("the first batch could not be compared", exc_info=True)
            found = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        is_chief = workers.rank == 0
        told = workers.broadcast(json.dumps(found).encode() if is_chief else None, 0, WHAT)
        self._say(json.loads(told) if workers.count > 1 else found)

    def say_left_out(self, why: str) -> None:
        """Say that the two ways are not compared, and why."""
        self._say({"unknown": why})

    def _say(self, found: dict[str, str]) -> None:
        if text := found.get("differs"):
            if mode.refuses():
                accepted = f"the same on one device and on several ({VARIABLE} is refuse)"
                raise ConfigurationError([Problem("the first batch", "it differs", accepted, text)])
            log.warning("the first batch: %s", text)
        elif text := found.get("unknown"):
            log.info("the first batch cannot be compared with one device's: %s", text)
        elif text := found.get("failed"):
            log.warning(
                "the first batch could not be compared with one device's: %s. Training goes on",
                text,
            )

    def _compared(self, shares: Sequence[Any], traced: Any, iterators: int) -> dict[str, str]:
        """Compute both ways; return what is to be said, by its kind."""
        if traced is None:
            raise NotComparableError("the step runs eagerly, and may change anything")
        if any(map(_is_of_float8, keras_names.layers_within(self._model))):
            raise NotComparableError("layers of float8 cannot run eagerly")
        if calls_python(traced):
            raise NotComparableError("the step calls a function of Python's each time")
        if uses_something_up(traced, iterators):
            raise NotComparableError("the step takes data from an iterator or a queue of its own")
        batch = Batch.of(shares, self._strategy)
        state = Snapshot(self._model, traced)
        try:
            with _as_one_device(self._model):
                return self._both(batch, state)
        finally:
            state.restore()

    def _both(self, batch: "Batch", state: Snapshot) -> dict[str, str]:
        before, peak = state.own_values(), Peak.from_now()
        ways = batch.ways()
        last = self._computed(batch.parts, batch.weights, ways, self._packed)
        names = own_metrics(self._model)
        losses = _numbers(_compared(self._logs(tuple(last)), names))
        shared = Outcome(losses, self._mean_state(state.own_values(), before, batch), ways[0])
        grown, several = peak.grown(), Replicas.of(self._strategy)
        state.restore()
        if workers_of(self._strategy).rank:
            return {}
        _refuse_to_run_out(grown * several.total)
        with replicas.alone(), _refusing_sums():
            parts = [batch.whole] * several.local
            ways, weights = batch.whole_ways(), [1.0] * several.local
            found = self._computed(parts, weights, ways, lambda logs, *_: _compared(logs, names))
        after = state.own_values()
        whole = Outcome(
            _numbers(found[0]),
            {name: after[name][0] for name in shared.state},
            ways[0],
        )
        both = Both(
            whole,
            shared,
            {name: before[name][0] for name in shared.state},
            several.total,
            "workers" if several.local == 1 else "devices",
            _tolerance(self._model),
        )
        if drawn := both.drawn_apart():
            raise NotComparableError(f"it draws at random ({', '.join(sorted(drawn))})")
        return {"differs": both.said()}

    def _computed(
        self,
        parts: Sequence[Any],
        weights: Sequence[float],
        ways: Sequence[Way],
        finish: Callable[[Any, tf.Tensor, Any], Any],
    ) -> list[Any]:
        """Do the step on each local replica's part; return what is made of each one's logs."""
        several = Replicas.of(self._strategy)
        first = several.first if several.local > 1 else None

        def on_replica(part: Any, weight: tf.Tensor) -> Any:
            context = tf.distribute.get_replica_context()
            place = 0 if first is None else int(context.replica_id_in_sync_group) - first
            with step_context.computing(weight, rows=rows_known(part)) as share:
                share.first_batch = ways[place]
                return finish(self._step(part), weight, part)

        given = [(part, tf.constant(one)) for part, one in zip(parts, weights, strict=True)]
        each = tensorflow_names.for_each_replica(given)
        with draws.alike(), _eagerly():
            found = self._strategy.run(on_replica, args=each)
        local = self._strategy.experimental_local_results
        return [
            tf.nest.map_structure(lambda value, place=place: local(value)[place], found)
            for place in range(several.local)
        ]

    def _mean_state(self, after: Values, before: Values, batch: "Batch") -> dict[str, np.ndarray]:
        """Return the state that any replica has changed: the mean, weighted with the shares."""
        flags = [not _are_same(now, before[name]) for name, now in after.items()]
        changed = self._summed([np.array(flags, np.float64)] * len(batch.parts))
        names = [name for name, flag in zip(after, changed, strict=True) if flag]
        vectors = [
            _as_vector([weight * after[name][place].astype(np.float64) for name in names])
            for place, weight in enumerate(batch.weights)
        ]
        sums, means = self._summed(vectors), {}
        for name in names:
            like = after[name][0]
            means[name], sums = sums[: like.size].reshape(like.shape), sums[like.size :]
        return means

    def _summed(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sum over all replicas of a vector that each local one has."""
        if not rows[0].size:  # TensorFlow's collectives crash at sums of nothing
            return rows[0]
        each = tensorflow_names.for_each_replica([tf.constant(row) for row in rows])

        def on_replica(vector: tf.Tensor) -> tf.Tensor:
            return summed([tf.identity(vector)], WHAT)[0]

        return np.asarray(_on_replicas(self._strategy, on_replica, each))


@dataclass(frozen=True)
class Batch:
    """The first batch.

    Attributes:
        parts: the local replicas' shares.
        weights: how much of the batch each is.
        cuts: what each has of the parts of the batch.
        whole: all of it.
    """

    parts: Sequence[Any]
    weights: Sequence[float]
    cuts: Sequence[Sequence[Cut]]
    whole: Any

    @classmethod
    def of(cls, shares: Sequence[Any], strategy: tf.distribute.Strategy) -> Self:
        """Return it, put together of what all replicas have; all workers call it.

        Raises:
            NotComparableError: on all workers: a replica has no examples, or rows of no fixed size.
        """
        if any(bool(is_whole) for _, _, *flags in shares for is_whole in flags):  # on all workers
            raise NotComparableError("every replica computes the whole batch")
        parts, weights = [one[0] for one in shares], [float(one[1]) for one in shares]
        rows = [_rows(part) for part in parts]
        workers = workers_of(strategy)
        if not all(workers.gather(int(all(map(all, rows)) and all(weights)), WHAT)):
            raise NotComparableError("it has too few examples, or sparse or ragged ones")
        cuts = _cuts(rows, workers)
        return cls(parts, weights, cuts, _gathered(parts, strategy))

    def ways(self) -> list[Way]:
        """Return what each local replica computes of it."""
        return [Way(cuts) for cuts in self.cuts]

    def whole_ways(self) -> list[Way]:
        """Return the same where each computes all of it."""
        return [Way([*dict.fromkeys(map(_all_of, cuts))]) for cuts in self.cuts]


def _is_of_float8(layer: Any) -> bool:
    return isinstance(layer.dtype_policy, keras.dtype_policies.QuantizedFloat8DTypePolicy)


def _all_of(cut: Cut) -> Cut:
    return Cut(0, cut.of_batch, cut.of_batch)


def _rows(part: Any) -> list[int]:
    """Return how many rows each dense part of a share has; a 0 where one is not dense."""
    leaves = [leaf for leaf in tf.nest.flatten(part) if leaf is not None]
    if not all(isinstance(leaf, tf.Tensor) for leaf in leaves):
        return [0]
    return [int(leaf.shape[0]) for leaf in leaves if leaf.shape.rank]


def _cuts(rows: Sequence[Sequence[int]], workers: Workers) -> list[list[Cut]]:
    """Return what each local replica has of the batch; all workers call it.

    Args:
        rows: how many each local replica has, of each part of the batch.
        workers: who have the other rows.
    """
    found: list[dict[Cut, None]] = [{} for _ in rows]
    for of_part in zip(*rows, strict=True):
        counts = workers.gather(sum(of_part), WHAT)
        start = sum(counts[: workers.rank])
        for cuts, mine in zip(found, of_part, strict=True):
            cuts[Cut(start, mine, sum(counts))] = None
            start += mine
    return [[*cuts] for cuts in found]


def _gathered(parts: Sequence[Any], strategy: tf.distribute.Strategy) -> Any:
    """Return the rows of all replicas, in order; what has no rows is the same on all."""

    def gather(value: Any) -> Any:
        return gathered(value, WHAT) if value is not None and value.shape.rank else value

    def of_all(part: Any) -> Any:
        return tf.nest.map_structure(gather, part)

    each = tensorflow_names.for_each_replica(parts)
    return _on_replicas(strategy, of_all, each)


def _on_replicas(
    strategy: tf.distribute.Strategy, function: Callable[[Any], Any], given: Any
) -> Any:
    """Return what a function of each replica's own comes to on the first one of this process.

    Workers of TensorFlow's cluster gather within a trace only.
    """

    def run(each: Any) -> Any:
        return strategy.run(function, args=(each,))

    is_cluster = ring_of(strategy) is None and Replicas.of(strategy).workers > 1
    found = (function_of(run) if is_cluster else run)(given)
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], found)


def _compared(logs: Any, metrics: Collection[str]) -> dict[str, tf.Tensor]:
    """Return the losses among a step's logs, and the script's own metrics, each one number."""
    found: dict[str, tf.Tensor] = {}
    for name, value in (logs or {}).items():
        if isinstance(value, dict):
            found |= _compared(value, metrics)
        elif "loss" in name or any(name == one or name.endswith(f"_{one}") for one in metrics):
            found[name] = tf.reduce_mean(tf.cast(value, tf.float64))
    return found


def _numbers(losses: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in losses.items()}


def _are_same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def _as_vector(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(one.reshape(-1) for one in arrays)])


def _refuse_to_run_out(wanted: int) -> None:
    """Refuse to compute the whole batch where that may take all memory.

    Raises:
        MemoryError: it may.
    """
    available = mode.available_bytes()
    if available is not None and wanted > available:
        raise MemoryError(
            f"the whole batch may take {wanted // MIB} MiB on this worker, and {available // MIB} "
            "MiB are left"
        )


def _tolerance(model: Any) -> float:
    """Return how far apart rounding may be, relatively."""
    types = {layer.compute_dtype for layer in keras_names.layers_within(model)}
    is_16_bits = types & {"float16", "bfloat16"} or group.gradients_wire() == "bfloat16"
    return ROUNDING_OF_16_BITS if is_16_bits else ROUNDING


@contextmanager
def _as_one_device(model: Any) -> Iterator[None]:
    """Let each BatchNormalization see the whole batch."""
    layers = [
        one
        for one in keras_names.layers_within(model)
        if isinstance(one, keras.layers.BatchNormalization)
    ]
    before = [one.synchronized for one in layers]
    try:
        for one in layers:
            one.synchronized = True
        yield
    finally:
        for one, value in zip(layers, before, strict=True):
            one.synchronized = value


@contextmanager
def _refusing_sums() -> Iterator[None]:
    """Refuse what a step of the script's own sums over TensorFlow's cluster.

    The other workers do not compute the whole batch, and would be waited for without end.
    """

    def refuse(*_: Any) -> Any:
        raise NotComparableError("the step itself sums over workers, or gathers from them")

    with tensorflow_names.CROSS_DEVICE_OPS.put_for_now(refuse):
        yield


@contextmanager
def _eagerly() -> Iterator[None]:
    """Have functions of TensorFlow's called as Python's: a trace of them would hold what is done.

    TensorFlow warns of that for pipelines, which are made elsewhere, and of the time that it takes.
    """
    was_eager, level = tf.config.functions_run_eagerly(), tf.get_logger().level
    tf.config.run_functions_eagerly(True)  # noqa: FBT003
    tf.get_logger().setLevel(logging.ERROR)  # it warns of steps that are slow so
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        tf.config.run_functions_eagerly(was_eager)
        tf.get_logger().setLevel(level)
