"""Computes a batch of steps on several replicas both ways, and compares the results.

due.py decides which batches: the first, an epoch's last, and the next one after a change.

All replicas compute their shares, as in every step. Then the chief computes the whole batch alone,
with the same random numbers. Optimizers get gradients but apply none, and all values that the step
has assigned are restored. Both ways run eagerly, so that nothing is traced for the comparison.

Each BatchNormalization uses the whole batch's statistics in both ways. A share's own statistics
differ on purpose, and need no warning.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives import process_ring, replicas
from cluster_trainer.collectives.replicas import Replicas, ring_of, summed
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine import compared_facts
from cluster_trainer.engine.data.batch_shares import rows_known
from cluster_trainer.engine.first_batch import random_draws
from cluster_trainer.engine.first_batch.batch import WHAT, Batch, NotComparableError, on_replicas
from cluster_trainer.engine.first_batch.differences import (
    ROUNDING,
    ROUNDING_OF_16_BITS,
    Both,
    Outcome,
    said_of_branches,
)
from cluster_trainer.engine.first_batch.due import TRAINING, Due
from cluster_trainer.engine.first_batch.memory import Peak, refuse_to_run_out
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.first_batch.snapshot import Snapshot, calls_python, uses_something_up
from cluster_trainer.engine.first_batch.trial import BRANCHES, FAILED, UNKNOWN, Uncompared, tried
from cluster_trainer.engine.first_batch.way import Way
from cluster_trainer.engine.logs import PackedLogs
from cluster_trainer.engine.replicas import statistics, step_context
from cluster_trainer.engine.replicas.optimizers import schedules
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.problems import ConfigurationError, Problem

VARIABLE = "TRAINER_FIRST_BATCH"
NAN = "nan"
log = logging.getLogger("trainer")
Values = dict[str, list[np.ndarray]]


class FirstBatch:
    """Computes a batch of a model's steps both ways.

    Args:
        model: the compiled model.
        step: a Python function from a replica's batch to its logs, not a `tf.function`.
        logs: packs and unpacks the steps' logs.
        name: the steps' name, `training` or `evaluation`.
        otherwise: the treatment of the batch if a call of Keras's does not determine it.

    Attributes:
        due: decides whether to compute the next batch both ways.
    """

    def __init__(
        self,
        model: keras.Model,
        step: Callable[[Any], Any],
        logs: PackedLogs,
        name: str,
        otherwise: FirstBatchMode,
    ) -> None:
        self._model, self._step, self._logs, self._name = model, step, logs, name
        self._strategy = model.distribute_strategy
        self.due = Due(model, name, otherwise)
        self._state: Snapshot | None = None

    def compare(
        self, shares: Sequence[Any], traced: Any, iterators: int, *, may_repeat: bool = True
    ) -> None:
        """Compare the two ways, and report differences; all workers call this.

        Args:
            shares: the local replicas' shares, each with its weight.
            traced: a trace of the step; None: it runs eagerly, and cannot be traced.
            iterators: how often the trace takes a batch from the steps' own iterator.
            may_repeat: whether the step may be called more than once for a batch.

        Raises:
            ConfigurationError: the loss is NaN on the replicas only; or the results differ, and
                TRAINER_FIRST_BATCH is refuse.
            RingError: a worker was lost.
        """
        self._say(self._found_by_all(shares, traced, iterators, may_repeat=may_repeat))

    def look_for_nan(
        self, shares: Sequence[Any], traced: Any, iterators: int, *, may_repeat: bool = True
    ) -> str:
        """Refuse a batch whose loss is NaN on the replicas only; all workers call this.

        Weights that are not finite are replaced meanwhile, because a step has spoilt them.

        Args:
            shares: see `compare`, like the other arguments.
            traced: the trace.
            iterators: the number of iterators.
            may_repeat: whether the step may be repeated.

        Returns:
            the reason why the batch could not be compared; "" if it was.

        Raises:
            ConfigurationError: it is such a batch.
            RingError: a worker was lost.
        """
        before = Snapshot(self._model, traced)
        before.make_finite()
        try:
            found = self._found_by_all(shares, traced, iterators, may_repeat=may_repeat)
        finally:
            before.restore()
        _refuse_nan(found, "a batch")
        return found.get(UNKNOWN) or found.get(FAILED) or ""

    def _found_by_all(
        self, shares: Sequence[Any], traced: Any, iterators: int, *, may_repeat: bool
    ) -> dict[str, str]:
        """Return what the comparison has found, by kind: the same on all workers."""
        workers = workers_of(self._strategy)
        try:
            self._must_be_comparable(traced, iterators, may_repeat=may_repeat)
            found = self._compared(shares, traced)
        except Exception as error:  # a script's own step may fail eagerly
            if (ring := ring_of(self._strategy)) is not None and ring.error is not None:
                raise
            log.debug("a batch could not be compared", exc_info=True)
            why = Uncompared.after(error)
            found = {why.kind: why.text}
        is_chief = workers.rank == 0
        told = workers.broadcast(json.dumps(found).encode() if is_chief else None, 0, WHAT)
        return dict(json.loads(told)) if workers.count > 1 else found

    def _say(self, found: dict[str, str]) -> None:
        _refuse_nan(found, self.due.title)
        if any(found.get(kind) for kind in ("differs", UNKNOWN, FAILED)):
            self.due.give_up()
        if text := found.get("differs"):
            self.due.note_told(json.loads(found["names"]))
            if self.due.mode.name == "refuse":
                accepted = f"the same on one device and on several ({VARIABLE} is refuse)"
                raise ConfigurationError([Problem(self.due.title, "it differs", accepted, text)])
            log.warning("%s: %s", self.due.title, text)
        elif text := found.get(UNKNOWN):
            self.due.say_unknown(text)
        elif text := found.get(FAILED):
            log.warning(
                "%s could not be compared with one device's: %s. The %s continues",
                *(self.due.title, text, self._name),
            )

    def _must_be_comparable(self, traced: Any, iterators: int, *, may_repeat: bool) -> None:
        """Refuse a step that cannot run twice, or cannot run eagerly.

        Raises:
            NotComparableError: the step cannot; the text gives the reason.
        """
        if not may_repeat:
            raise NotComparableError(
                "your own step runs eagerly, expects to be called once for each batch, and may "
                "change anything"
            )
        if any(map(_is_of_float8, keras_names.layers_within(self._model))):
            raise NotComparableError("layers of float8 cannot run eagerly")
        if traced is None:
            return
        if calls_python(traced):
            raise NotComparableError("the step calls a function of Python's each time")
        if uses_something_up(traced, iterators):
            raise NotComparableError("the step reads data from its own iterator or queue")

    def _compared(self, shares: Sequence[Any], traced: Any) -> dict[str, str]:
        """Compute both ways; return the messages by kind."""
        batch, noted = Batch.of(shares, self._strategy), self._logs.noted
        before = Snapshot(self._model, traced)
        with _as_one_device(self._model), schedules.unchanged(self._model):
            try:
                for metric in statistics.metrics_within(self._model):  # as in an epoch's first step
                    metric.reset_state()
                self._make_alike(before)
                self._state = Snapshot(self._model, traced)
                return self._both(batch, self._state)
            finally:
                if self._state:
                    self._state.restore()
                before.restore()
                self._logs.noted, self._state = noted, None

    def _make_alike(self, state: Snapshot) -> None:
        """Give all replicas the first one's own state, so that both ways begin with the same."""
        values = state.own_values()
        is_chief = workers_of(self._strategy).rank == 0
        rows = [_as_vector([one[0].astype(np.float64) for one in values.values()])]
        rows += [np.zeros_like(rows[0])] * (Replicas.of(self._strategy).local - 1)
        sums = self._summed([row if is_chief else np.zeros_like(row) for row in rows])
        for name, copies in values.items():
            like = copies[0]
            state.assign_own(name, sums[: like.size].reshape(like.shape).astype(like.dtype))
            sums = sums[like.size :]

    def _both(self, batch: Batch, state: Snapshot) -> dict[str, str]:
        before, peak, ways = state.own_values(), Peak.from_now(), batch.ways()
        if why := self._tried(batch):
            return self._said_of(why)
        grown = peak.grown()
        state.restore()
        last = self._computed(batch.parts, batch.weights, ways, self._logs.of_share)
        numbers = _numbers(_compared(self._logs.unpacked(tuple(last))))
        means, sizes = self._mean_state(state.own_values(), before, batch)
        shared = Outcome(numbers, means, ways[0], sizes)
        drawn, workers = _drawn(ways), workers_of(self._strategy)
        of_all = compared_facts.of_all(workers, drawn, WHAT) or [drawn]
        several = Replicas.of(self._strategy)
        state.restore()
        if workers.rank:
            return {}
        refuse_to_run_out(grown * several.total, self.due.mode.available_bytes)
        with replicas.alone(), refusing_sums():
            parts, weights = [batch.whole] * several.local, [1.0] * several.local
            ways = batch.whole_ways()
            found = self._computed(parts, weights, ways, lambda logs, *_: _compared(logs))
        _must_be_alike([*of_all, _drawn(ways)])
        after = {name: values[0] for name, values in state.own_values().items()}
        both = Both(
            Outcome(_numbers(found[0]), after, ways[0]),
            shared,
            {name: before[name][0] for name in shared.state},
            several.total,
            _things(several),
            _tolerance(self._model),
            trains=self._trains,
            told=self.due.told,
            parts=tuple(self.due.across_examples),
        )
        nan = both.loss_of_nan()
        return {
            "differs": both.said(),
            "names": json.dumps(both.names()),
            NAN: json.dumps([nan.name, f"{nan.whole:.4g}"]) if nan else "",
        }

    def _tried(self, batch: Batch) -> Uncompared | None:
        """Try the shares without sums; return the reason not to compare, None if there is none."""
        ways = batch.ways()

        def compute() -> None:
            with refusing_sums():
                self._computed(batch.parts, batch.weights, ways, lambda logs, *_: _compared(logs))

        return tried(compute, ways, workers_of(self._strategy))

    def _said_of(self, why: Uncompared) -> dict[str, str]:
        """Return the message about a batch that cannot be compared, by kind; see `_say`."""
        if why.kind != BRANCHES:
            return {why.kind: why.text}
        if BRANCHES in self.due.told:
            return {}
        several = Replicas.of(self._strategy)
        text = said_of_branches(several.total, _things(several), trains=self._trains)
        return {"differs": text, "names": json.dumps([BRANCHES])}

    @property
    def _trains(self) -> bool:
        return self._name == TRAINING

    def _computed(
        self,
        parts: Sequence[Any],
        weights: Sequence[float],
        ways: Sequence[Way],
        finish: Callable[[Any, tf.Tensor, Any], Any],
    ) -> list[Any]:
        """Run the step on each local replica's part; return the results of `finish`."""
        several = Replicas.of(self._strategy)
        first = Replicas.of_strategy(self._strategy).first if several.local > 1 else None

        def on_replica(part: Any, weight: tf.Tensor) -> Any:
            context = tf.distribute.get_replica_context()
            place = 0 if first is None else int(context.replica_id_in_sync_group) - first
            with step_context.computing(weight, rows=rows_known(part)) as share:
                share.first_batch = ways[place]
                try:
                    return finish(self._step(part), weight, part)
                finally:
                    if self._state:
                        self._state.note(share.assigned)

        given = [(part, tf.constant(one)) for part, one in zip(parts, weights, strict=True)]
        each = tensorflow_names.for_each_replica(given)
        with random_draws.alike(), eagerly():
            found = self._strategy.run(on_replica, args=each)
        local = self._strategy.experimental_local_results
        return [
            tf.nest.map_structure(lambda value, place=place: local(value)[place], found)
            for place in range(several.local)
        ]

    def _mean_state(
        self, after: Values, before: Values, batch: Batch
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the state that any replica has changed, and the norms of the replicas' changes.

        Both are means over the replicas, weighted by their shares, by the state's name.
        """
        flags = [not _are_same(now, before[name]) for name, now in after.items()]
        changed = self._summed([np.array(flags, np.float64)] * len(batch.parts))
        names = [name for name, flag in zip(after, changed, strict=True) if flag]
        vectors = []
        for place, weight in enumerate(batch.weights):
            values = [after[name][place].astype(np.float64) for name in names]
            pairs = zip(names, values, strict=True)
            norms = [np.linalg.norm((one - before[name][place]).ravel()) for name, one in pairs]
            vectors.append(weight * _as_vector([np.array(norms), *values]))
        sums = self._summed(vectors)
        sizes, sums = dict(zip(names, sums.tolist(), strict=False)), sums[len(names) :]
        means = {}
        for name in names:
            like = after[name][0]
            means[name], sums = sums[: like.size].reshape(like.shape), sums[like.size :]
        return means, sizes

    def _summed(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sum over all replicas; `rows` has a vector for each local replica."""
        if not rows[0].size:  # TensorFlow's collectives crash with empty vectors
            return rows[0]
        each = tensorflow_names.for_each_replica([tf.constant(row) for row in rows])
        found = on_replicas(self._strategy, lambda row: summed([tf.identity(row)], WHAT)[0], each)
        return np.asarray(found)


def _refuse_nan(found: dict[str, str], title: str) -> None:
    """Refuse a batch whose loss is NaN on the replicas only.

    Raises:
        ConfigurationError: there is such a loss in what was found, by kind.
    """
    if not found.get(NAN):
        return
    name, whole = json.loads(found[NAN])
    raise ConfigurationError(
        [
            Problem(
                f"{name!r} of {title}",
                "nan on a worker's or a device's share of it",
                f"a loss that is finite on every share: on one device it is {whole}",
                "On a share a mask or a filter may leave no element, and a mean over none is nan. "
                "Give the elements that do not count a `sample_weight` of 0, and a loss of Keras's "
                "`reduction='mean_with_sample_weight'`: this divides by the whole batch's sum. "
                "Or train on one device",
            )
        ]
    )


def _things(several: Replicas) -> str:
    """Return a word for replicas."""
    return "workers" if several.local == 1 else "devices"


def _drawn(ways: Sequence[Way]) -> dict[str, str]:
    """Return facts about the local replicas' draws: unequal ones, and the shapes of all draws."""
    differing = sorted({name for way in ways for name in way.differing})
    shapes = sorted({str(way.shapes) for way in ways})
    return {"differing": json.dumps(differing), "shapes": json.dumps(shapes)}


def _must_be_alike(drawn: Sequence[compared_facts.Facts]) -> None:
    """Refuse to compare unless all replicas have drawn the same numbers, in both ways.

    Raises:
        NotComparableError: some draws differ; it names them.
    """
    names = {name for one in drawn for name in json.loads(one["differing"])}
    if len({shapes for one in drawn for shapes in json.loads(one["shapes"])}) > 1:
        names.add("numbers whose shape does not grow with the batch")
    if names:
        raise NotComparableError(f"it draws at random ({', '.join(sorted(names))})")


def _is_of_float8(layer: Any) -> bool:
    return isinstance(layer.dtype_policy, keras.dtype_policies.QuantizedFloat8DTypePolicy)


def _compared(logs: Any) -> dict[str, tf.Tensor]:
    """Return the numbers in a step's logs, float64 []; an array is replaced by its mean."""
    found: dict[str, tf.Tensor] = {}
    for name, given in (logs or {}).items():
        if isinstance(given, dict):
            found |= _compared(given)
            continue
        value = tf.convert_to_tensor(given)
        if value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool:
            found[name] = tf.reduce_mean(tf.cast(value, tf.float64))
    return found


def _numbers(losses: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in losses.items()}


def _are_same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def _as_vector(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(one.reshape(-1) for one in arrays)])


def _tolerance(model: Any) -> float:
    """Return the relative difference that rounding may cause."""
    types = {layer.compute_dtype for layer in keras_names.layers_within(model)}
    is_16_bits = types & {"float16", "bfloat16"} or process_ring.gradients_wire() == "bfloat16"
    return ROUNDING_OF_16_BITS if is_16_bits else ROUNDING


@contextmanager
def _as_one_device(model: Any) -> Iterator[None]:
    """Let each BatchNormalization use the whole batch."""
    kind = keras.layers.BatchNormalization
    layers = [one for one in keras_names.layers_within(model) if isinstance(one, kind)]
    before = [one.synchronized for one in layers]
    try:
        for one in layers:
            one.synchronized = True
        yield
    finally:
        for one, value in zip(layers, before, strict=True):
            one.synchronized = value


@contextmanager
def refusing_sums() -> Iterator[None]:
    """Refuse a step that itself sums over a strategy's replicas.

    If each replica has the whole batch, such a sum would count it several times. In a cluster, it
    would wait forever for the workers that do not compute the whole batch.
    """

    def refuse(*_: Any) -> Any:
        raise NotComparableError("the step itself sums over replicas, or gathers from them")

    names = tensorflow_names
    with ExitStack() as refused:
        for one in (names.CROSS_DEVICE_OPS, names.CROSS_DEVICE_OPS_OF_MIRRORED):
            refused.enter_context(one.put_for_now(refuse))
        yield


@contextmanager
def eagerly() -> Iterator[None]:
    """Run TensorFlow's functions as Python functions, because a trace would keep replaced draws.

    TensorFlow warns that this does not affect pipelines, and that it is slow. Neither matters here,
    so the warnings are hidden.
    """
    was_eager, level = tf.config.functions_run_eagerly(), tf.get_logger().level
    tf.config.run_functions_eagerly(True)  # noqa: FBT003
    tf.get_logger().setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        tf.config.run_functions_eagerly(was_eager)
        tf.get_logger().setLevel(level)
