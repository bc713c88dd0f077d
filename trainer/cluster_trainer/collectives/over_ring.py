"""Sums and gathered tensors within a step whose replicas are the workers of a ring.

Each is one operation of TensorFlow that calls the ring in this process. All workers have to call
them in the same order (`_called`).
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.group import AnyRing
from cluster_trainer.collectives.renewable import RenewableRing

SUMMED = (tf.float32, tf.float64, tf.float16, tf.int32, tf.int64)
# The ring adds few types; what carries another one holds each of its values.
CARRIERS = {
    tf.bfloat16: tf.float32,
    **dict.fromkeys((tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16), tf.int32),
}
TURN = "cluster_trainer_turn_of_ring"
_numbers = itertools.count()


def summed(
    ring: AnyRing,
    values: Sequence[tf.Tensor | tf.IndexedSlices],
    what: str = "",
    *,
    wire: str | None = None,
) -> list[Any]:
    """Return each value's sum over all workers, packed into one message for each type of numbers.

    Of sparse gradients, all workers' rows, in the order of the workers.

    Args:
        ring: of the workers.
        values: of any shapes and types.
        what: they are, see Ring; the same on all workers.
        wire: what float32 travels as, see `Ring.all_reduce`; sparse rows travel as they are.
    """
    results: dict[int, Any] = {}
    dense: dict[tf.DType, list[int]] = {}
    for place, value in enumerate(values):
        if isinstance(value, tf.IndexedSlices):
            rows, indices = (gathered(ring, part, what) for part in (value.values, value.indices))
            results[place] = tf.IndexedSlices(rows, indices, value.dense_shape)
        else:
            dense.setdefault(_carrier(value.dtype), []).append(place)
    for dtype, places in dense.items():
        travels_as = wire if dtype == tf.float32 else None
        parts = [values[place] for place in places]
        totals = _packed_sum(ring, parts, dtype, what, wire=travels_as)
        results.update(zip(places, totals, strict=True))
    return [results[place] for place in range(len(values))]


def gathered(ring: AnyRing, value: tf.Tensor, what: str = "") -> tf.Tensor:
    """Return the values of all workers, one after the other along their first dimension.

    Args:
        ring: of the workers.
        value: [n, …] of any type, strings too, with an n of each worker's own.
        what: it is for; see Ring.
    """

    def gather(mine: np.ndarray) -> np.ndarray:
        parts = [_from_bytes(part, mine) for part in ring.all_gather(as_bytes(mine), what=what)]
        _refuse_unlike([part.shape for part in parts], what)
        return np.concatenate(parts)

    return tf.ensure_shape(_called(gather, value, value.dtype), [None, *value.shape[1:]])


def _refuse_unlike(shapes: Sequence[tuple[int, ...]], what: str) -> None:
    """Refuse tensors that cannot be put together, on all workers.

    Raises:
        ValueError: they differ in more than their first dimension.
    """
    if len({shape[1:] for shape in shapes}) > 1:
        raise ValueError(
            f"{what or 'a tensor'}: the workers' shares have other sizes than each other, "
            f"{[*map(list, shapes)]}, in the order of the workers. Only the first dimension, that "
            "of the examples, may differ: pad the others to one size, as TextVectorization does "
            "with an output_sequence_length."
        )


def as_bytes(array: np.ndarray) -> bytes:
    """Return an array's shape and content; of strings, which NumPy has as objects, each length."""
    shape = np.array(array.shape, np.int64).tobytes()
    if array.dtype != object:
        return shape + array.tobytes()
    strings = array.ravel().tolist()
    lengths = np.array([len(one) for one in strings], np.int64)
    return b"".join([shape, lengths.tobytes(), *strings])


def _from_bytes(content: bytes, like: np.ndarray) -> np.ndarray:
    """Return what `as_bytes` was given, an array of the type and rank of another one."""
    shape = np.frombuffer(content, np.int64, like.ndim)
    if like.dtype != object:
        return np.ndarray(tuple(shape), like.dtype, content, shape.nbytes)
    lengths = np.ndarray((int(shape.prod()),), np.int64, content, shape.nbytes)
    ends = shape.nbytes + lengths.nbytes + lengths.cumsum()
    strings = np.empty(len(lengths), object)
    strings[:] = [content[end - length : end] for length, end in zip(lengths, ends, strict=True)]
    return strings.reshape(shape)


def rank_of(ring: AnyRing) -> tf.Tensor:
    """Return this process's rank when the step runs, int32 []."""
    return _place(ring)[0]


def size_of(ring: AnyRing) -> tf.Tensor:
    """Return how many ranks there are when the step runs, int32 []."""
    return _place(ring)[1]


def _packed_sum(
    ring: AnyRing, values: list[tf.Tensor], dtype: tf.DType, what: str, *, wire: str | None
) -> list[tf.Tensor]:
    flat = [tf.reshape(tf.cast(value, dtype), [-1]) for value in values]
    packed = tf.concat(flat, 0) if len(flat) > 1 else flat[0]
    total = _called(partial(ring.all_reduce, wire=wire, what=what), packed, dtype)
    total.set_shape(packed.shape)
    parts = tf.split(total, [tf.size(one) for one in flat]) if len(flat) > 1 else [total]
    return [
        tf.cast(tf.ensure_shape(tf.reshape(part, tf.shape(value)), value.shape), value.dtype)
        for part, value in zip(parts, values, strict=True)
    ]


def _called(call: Callable[[Any], Any], given: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Call a function of NumPy's arrays.

    Each call takes a turn, a variable that TensorFlow reads before and writes after it. So it
    orders a step's calls as they were traced, in functions, conditions and loops within it, too.
    """

    def take_turn(value: Any, _: Any) -> Any:
        return call(value)

    turn = _turn()
    with _not_by_xla(), tf.device("CPU:0"):
        number = tf.raw_ops.ReadVariableOp(resource=turn, dtype=tf.int64)
        result = tf.numpy_function(take_turn, [given, number], dtype)
        with tf.control_dependencies([result]):
            tf.raw_ops.AssignVariableOp(resource=turn, value=number + 1)
    return result


def _place(ring: AnyRing) -> tf.Tensor:
    """Return the rank and how many there are, int32 [2]; a step outlives a ring that is renewed."""
    if not isinstance(ring, RenewableRing):
        return tf.constant([ring.rank, ring.size])
    with tf.device("CPU:0"):
        place = tf.raw_ops.ReadVariableOp(resource=_variable_of(ring), dtype=tf.int32)
    place.set_shape([2])
    return place


@cache
def _variable_of(ring: RenewableRing) -> tf.Tensor:
    """Return a variable as `_turn` that holds the place, and will when the ring is renewed."""
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
    """Return a variable of this process alone: tf.Variable would be a strategy's."""
    with tf.init_scope(), tf.device("CPU:0"):
        turn = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=TURN)
        tf.raw_ops.AssignVariableOp(resource=turn, value=tf.constant(0, tf.int64))
    return turn


def _carrier(dtype: tf.DType) -> tf.DType:
    return dtype if dtype in SUMMED else CARRIERS[dtype]
