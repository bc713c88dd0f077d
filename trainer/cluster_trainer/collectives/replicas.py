"""The replicas of all workers, and the exchanges between them: sums and gathered tensors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from cluster_trainer.collectives import local_devices, over_ring, process_ring
from cluster_trainer.collectives.merge_refusals import outside_branches
from cluster_trainer.collectives.over_ring import CARRIERS
from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.private import tensorflow_names

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Note: TypeAlias = Callable[[str], None]
_alone: Note | None = None


@contextmanager
def alone(note: Note = lambda _: None) -> Iterator[None]:
    """Let each replica compute alone within the context: sums and gathers return its own values.

    Args:
        note: gets a description of each sum or gather that is left out, in the replica's thread.
    """
    global _alone  # noqa: PLW0603  a strategy's replicas are threads of this process
    _alone = note
    try:
        yield
    finally:
        _alone = None


def count_of(strategy: tf.distribute.Strategy) -> int:
    """Return the number of a strategy's replicas over all workers, even within an engine's step.

    In a ring, this is the number of all workers' replicas. A traced step must call `count` instead,
    because it may outlive the ring.
    """
    ring = ring_of(strategy)
    return (ring.size if ring else 1) * _count_of(strategy)


def count_of_all(strategy: tf.distribute.Strategy) -> int:
    """Return the number of replicas if no worker is missing, which determines the batch size.

    So the global batch and its order stay the same, whichever workers train.
    """
    ring = ring_of(strategy)
    return (ring.size_of_all if ring else 1) * _count_of(strategy)


def ring_of(strategy: tf.distribute.Strategy) -> RenewableRing | None:
    """Return the ring over which a strategy's replicas are summed; None: TensorFlow sums.

    A ring is used with one replica, or with one on each device of a script without a strategy.
    """
    is_plain = _count_of(strategy) == 1 or local_devices.is_of_all(strategy)
    return process_ring.current() if is_plain else None


def _count_of(strategy: tf.distribute.Strategy) -> int:
    return tensorflow_names.replicas_in_sync(strategy)


@dataclass(frozen=True)
class Replicas:
    """The replicas of all workers, and those that this process computes.

    Attributes:
        total: the number of all replicas.
        first: the number of this process's first replica, in the order of all.
        local: the number of this process's replicas.
        most: the number of all replicas if no worker is missing; None: no worker may be missing.
            Unless it is None, shares have no fixed size.
        workers: the number of processes.
    """

    total: int = 1
    first: int = 0
    local: int = 1
    most: int | None = None

    @classmethod
    def of(cls, strategy: tf.distribute.Strategy) -> "Replicas":
        """Return the replicas of a strategy, over all workers of the ring if there is one."""
        if ring := ring_of(strategy):
            local = _count_of(strategy)
            most = ring.most and ring.most * local
            return cls(ring.size * local, ring.rank * local, local, most)
        return cls.of_strategy(strategy)

    @classmethod
    def of_strategy(cls, strategy: tf.distribute.Strategy) -> "Replicas":
        """Return the strategy's own replicas, without those of other workers of a ring."""
        total = _count_of(strategy)
        if total == 1:
            return cls()
        local = len(strategy.extended.worker_devices)
        worker = tensorflow_names.worker_number(strategy)
        return cls(total, worker * local, local)

    @property
    def workers(self) -> int:
        """The number of processes."""
        return self.total // self.local

    def told(self, call: str, why: str) -> str:
        """Return a name for an exchange, which a ring compares between workers.

        If a worker has several devices, the name includes their number, which all workers must have
        in common.
        """
        return f"{call} (with {self.local} devices)" if self.local > 1 else f"{call} ({why})"

    @property
    def are_some_missing(self) -> bool:
        """Whether a worker is missing; it may come back at any time, and wait."""
        return self.most is not None and self.total < self.most

    def share_of(self, examples: int) -> int | None:
        """Return the number of examples on each replica; None: it differs or may change."""
        is_fixed = self.most is None and examples % self.total == 0
        return examples // self.total if is_fixed else None

    def may_exceed(self, examples: int) -> bool:
        """Tell whether there may be more replicas than `examples`."""
        return examples < (self.most or self.total)

    def bounds(self, examples: Any) -> list[tuple[Any, Any]]:
        """Return where each local replica's share of `examples` examples begins and ends."""
        local = range(self.first, self.first + self.local)
        return [
            (examples * index // self.total, examples * (index + 1) // self.total)
            for index in local
        ]


def summed(values: Sequence[Gradient], what: str = "") -> list[Gradient]:
    """Return each value's sum over all replicas; call it in a replica context.

    Args:
        values: tensors of any types, as many on all replicas, with the same shapes. Sparse
            gradients may differ in their number of rows.
        what: a name for them, the same on all workers; a ring compares it.

    Raises:
        ConfigurationError: TensorFlow can't add up here; see `merge_refusals.outside_branches`.
    """
    return begin_sums(values, what)()


def begin_sums(
    values: Sequence[Gradient], what: str = "", *, wire: str | None = None
) -> Callable[[], list[Gradient]]:
    """Begin the work of `summed`, as far as possible in parallel to the step.

    Args:
        values: see `summed`.
        what: see `summed`.
        wire: the type in which float32 is sent over a ring; None: float32.

    Returns:
        a function that waits for the rest, and returns the sums. Call it once, in the same trace.
    """
    if _alone:
        _alone(f"{what}: {'; '.join(map(_form, values))}")
        return lambda: list(values)
    strategy = tf.distribute.get_strategy()
    if ring := ring_of(strategy):
        if _count_of(strategy) > 1:
            return partial(_over_devices().summed, ring, values, what, wire=wire)
        return over_ring.begin_sums(ring, values, what, wire=wire)
    return partial(_summed_by_strategy, values, what)


def _form(value: Gradient) -> str:
    """Return the type and the shape of a value, without a sparse gradient's number of rows."""
    if isinstance(value, tf.IndexedSlices):
        return f"rows of {value.dtype.name} {value.values.shape[1:]}"
    return f"{value.dtype.name} {value.shape}"


def _over_devices() -> Any:
    from cluster_trainer.collectives import over_devices  # noqa: PLC0415  few scripts need it

    return over_devices


def _summed_by_strategy(values: Sequence[Gradient], what: str) -> list[Gradient]:
    """Return the sums of values over the replicas of TensorFlow's own strategy."""
    sums: dict[int, Gradient] = {}
    context = tf.distribute.get_replica_context()
    for dtype in dict.fromkeys(value.dtype for value in values):  # TensorFlow packs equal types
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        with outside_branches(what):
            over_all = context.all_reduce("SUM", [values[place] for place in places])
        sums.update(zip(places, over_all, strict=True))
    return [sums[place] for place in range(len(values))]


def gathered(value: tf.Tensor, what: str = "") -> tf.Tensor:
    """Return the values of all replicas, concatenated along the first dimension, in replica order.

    Call it in a replica context. Each value is [n, …]; n may differ between replicas.
    """
    if _alone:
        _alone(f"{what}: rows of {value.dtype.name}")
        return value
    strategy = tf.distribute.get_strategy()
    if ring := ring_of(strategy):
        over = _over_devices() if _count_of(strategy) > 1 else over_ring
        return over.gathered(ring, value, what)
    carrier = CARRIERS.get(value.dtype, value.dtype)
    # TensorFlow gathers on the device of a value, and a function's argument has none yet.
    own = tf.identity(tf.cast(value, carrier))
    with outside_branches(what):
        over_all = tf.distribute.get_replica_context().all_gather(own, axis=0)
    return tf.cast(over_all, value.dtype)


def gathered_if_all(
    values: Sequence[tf.Tensor], may: tf.Tensor, what: str = ""
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the result of `gathered` for each value if `may` is true on all replicas.

    Call it in a replica context. Over a ring, this needs no more exchanges than `gathered`.

    Args:
        values: see `gathered`; there is at least one.
        may: whether this replica's values may be concatenated with the others', bool [].
        what: see `gathered`.

    Returns:
        the values, and whether they were gathered, bool []. If not, the values have no meaning.
    """
    if _alone:
        return [gathered(one, what) for one in values], may
    strategy = tf.distribute.get_strategy()
    if ring := ring_of(strategy):
        over = _over_devices() if _count_of(strategy) > 1 else over_ring
        found = [over.gathered_if_all(ring, one, may, what) for one in values]
        return [one for one, _ in found], found[0][1]
    (agreeing,) = summed([tf.cast(may, tf.int32)], what)
    return [gathered(one, what) for one in values], agreeing == count()


def number() -> tf.Tensor:
    """Return this replica's number among all, from 0, int32 []; call it in a replica context."""
    if _alone:
        return tf.constant(0)
    strategy = tf.distribute.get_strategy()
    ring, local = ring_of(strategy), _count_of(strategy)
    if ring and local == 1:
        return over_ring.rank_of(ring)
    here = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
    return over_ring.rank_of(ring) * local + here if ring else here


def count() -> tf.Tensor:
    """Return the number of replicas when the step runs, int32 []; see `number`."""
    strategy = tf.distribute.get_strategy()
    if _alone:
        return tf.constant(1)
    if ring := ring_of(strategy):
        local = _count_of(strategy)
        return over_ring.size_of(ring) * local if local > 1 else over_ring.size_of(ring)
    return tf.constant(_count_of(strategy))
