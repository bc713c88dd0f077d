"""Sums and gathers tensors over all devices of all workers of a ring.

First the values of a worker's devices are combined, then those of the workers, on the CPU. Then
each device gets a copy. Call the functions in a replica context, on all replicas.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from cluster_trainer.collectives import over_ring
from cluster_trainer.collectives.merge_refusals import outside_branches
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.private import tensorflow_names

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
HOST = "CPU:0"


def summed(
    ring: RenewableRing, values: Sequence[Gradient], what: str, *, wire: str | None = None
) -> list[Gradient]:
    """Return the sums over all replicas of all workers; see `over_ring.begin_sums`."""

    def of_all(strategy: tf.distribute.Strategy, *each: Any) -> Any:
        local = [strategy.experimental_local_results(one) for one in each]
        sums = [_sum(parts) for parts in local]
        totals = over_ring.begin_sums(ring, sums, what, wire=wire)()
        return _copies(totals, strategy)

    return _merged(of_all, values, what)


def gathered(ring: RenewableRing, value: tf.Tensor, what: str) -> tf.Tensor:
    """Return the values of all replicas of all workers, in order; see `over_ring.gathered`."""

    def of_all(strategy: tf.distribute.Strategy, each: Any) -> Any:
        with tf.device(HOST):
            mine = tf.concat(strategy.experimental_local_results(each), 0)
        return _copies([over_ring.gathered(ring, mine, what)], strategy)

    return _merged(of_all, [value], what)[0]


def gathered_if_all(
    ring: RenewableRing, value: tf.Tensor, may: tf.Tensor, what: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gather if `may` is true on all replicas of all workers; see `over_ring.gathered_if_all`."""

    def of_all(strategy: tf.distribute.Strategy, each: Any, may_each: Any) -> Any:
        with tf.device(HOST):
            mine = tf.concat(strategy.experimental_local_results(each), 0)
            may_all = tf.reduce_all(strategy.experimental_local_results(may_each))
        return _copies(over_ring.gathered_if_all(ring, mine, may_all, what), strategy)

    found, is_of_all = _merged(of_all, [value, may], what)
    return found, is_of_all


def _merged(of_all: Callable[..., Any], values: Sequence[Any], what: str) -> list[Any]:
    # The arguments of a function have no device yet; their identities do.
    own = [tf.nest.map_structure(tf.identity, one, expand_composites=True) for one in values]
    context = tf.distribute.get_replica_context()
    with outside_branches(what):
        return list(context.merge_call(of_all, args=tuple(own)))


def _sum(parts: Sequence[Gradient]) -> Gradient:
    """Return the sum of the devices' values; sparse gradients are concatenated, in device order."""
    first = parts[0]
    if isinstance(first, tf.IndexedSlices):
        with tf.device(HOST):
            values = tf.concat([one.values for one in parts], 0)
            indices = tf.concat([one.indices for one in parts], 0)
        return tf.IndexedSlices(values, indices, first.dense_shape)
    with tf.device(first.device if first.dtype.is_floating else HOST):
        return tf.add_n([*parts])


def _copies(totals: Sequence[Gradient], strategy: tf.distribute.Strategy) -> Any:
    """Return a copy of the totals for each replica, on its device."""
    each = []
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            each.append(
                [tf.nest.map_structure(tf.identity, one, expand_composites=True) for one in totals]
            )
    return tensorflow_names.for_each_replica(each)
