"""Sums and gathers tensors over a ring, within a step whose replicas are the workers.

Each exchange is one TensorFlow operation that calls the ring in this process. All workers must run
these operations in the same order (`_called`).
"""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.buckets import buckets_of, hold_up, needed_later
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.private import tensorflow_names

# The ring adds few types. Values of another type are converted to one that holds them exactly.
CARRIERS = {
    tf.bfloat16: tf.float32,
    **dict.fromkeys((tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16), tf.int32),
}
Wait: TypeAlias = Callable[[], list[Any]]
SUM = "over_ring"  # in the names of operations that give all workers the same value
TURN = "cluster_trainer_turn_of_ring"
_numbers = itertools.count()


def begin_sums(
    ring: RenewableRing,
    values: Sequence[tf.Tensor | tf.IndexedSlices],
    what: str = "",
    *,
    wire: str | None = None,
) -> Wait:
    """Begin to sum values over all workers, as far as possible in parallel to the step.

    The values of each number type are packed into one message. If they are many, they are divided
    into buckets, in reverse order: the last layers' gradients are ready first, and are summed while
    the others are computed. Sparse gradients are concatenated, in rank order.

    Args:
        ring: the workers' ring.
        values: tensors of any shapes and types.
        what: a name for them in messages, the same on all workers; see Ring.
        wire: the type in which float32 is sent; see `Ring.all_reduce`. Sparse rows are not
            converted.

    Returns:
        a function that waits for the rest, and returns the sums. Call it once, in the same trace.
    """
    dense: dict[tf.DType, list[int]] = {}
    for place, value in enumerate(values):
        if not isinstance(value, tf.IndexedSlices):
            dense.setdefault(CARRIERS.get(value.dtype, value.dtype), []).append(place)
    under_way = []
    for dtype, places in dense.items():
        how = {"wire": wire if dtype == tf.float32 else None, "what": what}
        under_way.append((places, _begin(ring, [values[place] for place in places], dtype, how)))

    def wait() -> list[Any]:
        results: dict[int, Any] = {}
        for places, totals in under_way:
            results.update(zip(places, totals(), strict=True))
        for place, value in enumerate(values):
            if isinstance(value, tf.IndexedSlices):
                parts = value.values, value.indices
                rows, indices = (gathered(ring, part, what) for part in parts)
                results[place] = tf.IndexedSlices(rows, indices, value.dense_shape)
        return [results[place] for place in range(len(values))]

    return wait


def gathered(ring: RenewableRing, value: tf.Tensor, what: str = "") -> tf.Tensor:
    """Return the values of all workers, concatenated along the first dimension in rank order.

    Args:
        ring: the workers' ring.
        value: [n, …] of any type, including strings; n may differ between workers.
        what: a name for the values in messages, the same on all workers; see Ring.

    Raises:
        ValueError: the other dimensions differ. All workers raise it when the step runs.
    """

    def gather(mine: np.ndarray) -> np.ndarray:
        parts = [_from_bytes(part, mine) for part in ring.all_gather(as_bytes(mine), what=what)]
        _refuse_unlike([part.shape for part in parts], what)
        return np.concatenate(parts)

    (found,) = _called(gather, [value], [value.dtype])
    return tf.ensure_shape(found, [None, *value.shape[1:]])


def gathered_if_all(
    ring: RenewableRing, value: tf.Tensor, may: tf.Tensor, what: str = ""
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the result of `gathered` if `may` is true on all workers, and whether it is.

    If it is not, each worker gets its own value. `may` is bool [], and is sent with the value.
    """

    def gather(mine: np.ndarray, may: np.bool_) -> tuple[np.ndarray, np.bool_]:
        answers = ring.all_gather(as_bytes(mine, bytes([bool(may)])), what=what)
        if not all(one[-1] for one in answers):
            return mine, np.bool_(False)  # noqa: FBT003
        parts = [_from_bytes(one, mine) for one in answers]
        _refuse_unlike([part.shape for part in parts], what)
        return np.concatenate(parts), np.bool_(True)  # noqa: FBT003

    found, is_of_all = _called(gather, [value, may], [value.dtype, tf.bool])
    return tf.ensure_shape(found, [None, *value.shape[1:]]), tf.ensure_shape(is_of_all, [])


def _refuse_unlike(shapes: Sequence[tuple[int, ...]], what: str) -> None:
    """Refuse tensors that cannot be concatenated, on all workers."""
    if len({shape[1:] for shape in shapes}) > 1:
        raise ValueError(
            f"{what or 'a tensor'}: the workers' shares differ in size, {[*map(list, shapes)]}, "
            "in rank order. Only the first dimension, that of the examples, may differ: pad the "
            "others to one size, as TextVectorization does with an output_sequence_length."
        )


def as_bytes(array: np.ndarray, more: bytes = b"") -> bytes:
    """Return an array as bytes: its shape, each string's length if it has strings, and content.

    `more` is appended.
    """
    shape = np.array(array.shape, np.int64).tobytes()
    if array.dtype != object:
        return b"".join([shape, array.tobytes(), more])
    strings = array.ravel().tolist()
    lengths = np.array([len(one) for one in strings], np.int64)
    return b"".join([shape, lengths.tobytes(), *strings, more])


def _from_bytes(content: bytes, like: np.ndarray) -> np.ndarray:
    """Return the array from the result of `as_bytes`, with the type and rank of `like`."""
    shape = np.frombuffer(content, np.int64, like.ndim)
    if like.dtype != object:
        return np.ndarray(tuple(shape), like.dtype, content, shape.nbytes)
    lengths = np.ndarray((int(shape.prod()),), np.int64, content, shape.nbytes)
    ends = shape.nbytes + lengths.nbytes + lengths.cumsum()
    strings = np.empty(len(lengths), object)
    strings[:] = [content[end - length : end] for length, end in zip(lengths, ends, strict=True)]
    return strings.reshape(shape)


def rank_of(ring: RenewableRing) -> tf.Tensor:
    """Return this process's rank when the step runs, int32 []."""
    return _place(ring)[0]


def size_of(ring: RenewableRing) -> tf.Tensor:
    """Return the number of ranks when the step runs, int32 []."""
    return _place(ring)[1]


def _begin(
    ring: RenewableRing, values: list[tf.Tensor], dtype: tf.DType, how: dict[str, Any]
) -> Wait:
    """Begin the sums of dense values; a single bucket is summed only when they are waited for."""
    buckets = buckets_of(values, dtype, ring.size_of_all)
    flat = [tf.reshape(tf.cast(value, dtype), [-1]) for value in values]
    parts = [[flat[place] for place in bucket] for bucket in buckets]
    packed = [tf.concat(bucket, 0) if len(bucket) > 1 else bucket[0] for bucket in parts]
    totals: Wait
    if len(buckets) == 1:
        totals = partial(_called, partial(ring.all_reduce, **how), packed, [dtype])
    else:
        totals = _begin_buckets(packed, partial(ring.begin_all_reduce, **how))

    def wait() -> list[tf.Tensor]:
        found: dict[int, tf.Tensor] = {}
        for bucket, own, given, total in zip(buckets, parts, packed, totals(), strict=True):
            total.set_shape(given.shape)
            split = tf.split(total, [tf.size(one) for one in own]) if len(own) > 1 else [total]
            found.update(zip(bucket, split, strict=True))
        return [_as_of(value, found[place]) for place, value in enumerate(values)]

    return wait


def _as_of(value: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Return a sum [n] in the shape and type of the summed values."""
    shaped = tf.ensure_shape(tf.reshape(total, tf.shape(value)), value.shape)
    return tf.cast(shaped, value.dtype)


def _begin_buckets(
    packed: list[tf.Tensor], begin_sum: Callable[[np.ndarray], Future[np.ndarray]]
) -> Wait:
    """Begin each bucket's sum when its numbers are computed.

    A thread of the ring sums them, so that the step's own threads, perhaps only one, continue.
    """
    later = [] if tf.executing_eagerly() else needed_later(packed)
    under_way: list[Future[np.ndarray]] = []

    def begin(numbers: np.ndarray, *, is_first: bool) -> np.int32:
        if is_first:
            under_way.clear()  # a failed step may have left some
        under_way.append(begin_sum(numbers))
        return np.int32(len(under_way))

    def end(*_: Any) -> list[np.ndarray]:
        try:
            return [one.result() for one in under_way]
        finally:
            under_way.clear()

    begun = [
        _called(partial(begin, is_first=place == 0), [bucket], [tf.int32])[0]
        for place, bucket in enumerate(packed)
    ]
    for operations, until in zip(later, begun, strict=False):
        hold_up(operations, until)
    return partial(_called, end, begun, [bucket.dtype for bucket in packed])


def _called(
    call: Callable[..., Any], given: list[tf.Tensor], dtypes: list[tf.DType]
) -> list[tf.Tensor]:
    """Call a Python function with NumPy arrays when the step runs.

    TensorFlow reads a variable, `_turn`, before each call, and writes it after the call. So a
    step's calls run in the order in which they were traced, even in functions, conditions and
    loops.
    """
    turn = _in_this_graph(_turn())
    with _not_by_xla(), tf.device("CPU:0"):
        number = tf.raw_ops.ReadVariableOp(resource=turn, dtype=tf.int64)
        taken = tf.numpy_function(lambda _, *own: call(*own), [number, *given], dtypes, name=SUM)
        results = tf.nest.flatten(taken)
        with tf.control_dependencies(results):
            tf.raw_ops.AssignVariableOp(resource=turn, value=number + 1)
    return list(results)


def _in_this_graph(resource: tf.Tensor) -> tf.Tensor:
    """Return a resource as a tensor of the current graph, captured through the graphs around it.

    TensorFlow cannot take the gradient of a branch (`tf.cond`) if the branch's graph captured a
    resource directly from Python. A function's graph has to, because several graphs may call it.
    """
    if tf.executing_eagerly():
        return resource
    graphs = [tf.compat.v1.get_default_graph()]
    while isinstance(graphs[-1], tensorflow_names.ControlFlowFuncGraph):
        graphs.append(graphs[-1].outer_graph)
    for graph in reversed(graphs):
        if hasattr(graph, "capture"):  # all but a graph of TensorFlow 1
            resource = graph.capture(resource)
    return resource


def _place(ring: RenewableRing) -> tf.Tensor:
    """Return [rank, number of ranks] when the step runs, int32 [2]; a step may outlive a ring."""
    with tf.device("CPU:0"):
        variable = _in_this_graph(_variable_of(ring))
        place = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.int32)
    place.set_shape([2])
    return place


@cache
def _variable_of(ring: RenewableRing) -> tf.Tensor:
    """Return a variable like `_turn` with [rank, size], updated whenever the ring is renewed."""
    name = f"cluster_trainer_place_in_ring_{next(_numbers)}"
    with tf.init_scope(), tf.device("CPU:0"):
        variable = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[2], shared_name=name)

    def note() -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            place = tf.constant([ring.rank, ring.size])
            tf.raw_ops.AssignVariableOp(resource=variable, value=place)

    note()
    ring.tell_of_renewals(note)
    return variable


def _not_by_xla() -> AbstractContextManager[Any]:
    is_eager = tf.executing_eagerly()
    return nullcontext() if is_eager else tf.xla.experimental.jit_scope(compile_ops=False)


@cache
def _turn() -> tf.Tensor:
    """Return the resource of a counter; a tf.Variable would belong to the strategy."""
    with tf.init_scope(), tf.device("CPU:0"):
        turn = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=TURN)
        tf.raw_ops.AssignVariableOp(resource=turn, value=tf.constant(0, tf.int64))
    return turn
