"""One call of several steps, which Keras passes from its epochs to a train function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine.data.sources.source import Source
from cluster_trainer.private import tensorflow_names

NOTHING = object()


@dataclass
class Execution:
    """Some steps on the next batches.

    Attributes:
        batches: TensorFlow's iterator.
        steps: the number of steps to run.
        source: the source of the batches.
        workers: the workers that read them.
        spec: returns the specification of a replica's batch; see EpochIterator.spec.
        is_first: whether the steps begin an epoch or reach a new pass, whose first batch may take
            long.
        begins_epoch: whether they are an epoch's first steps in this process.
        ends_epoch: whether they are certainly an epoch's last steps.
        done: the number of steps that have run; fewer than `steps` if the batches have ended.
        seconds: the duration of the steps, in seconds.
    """

    batches: Any
    steps: int
    source: Source
    workers: Workers
    spec: Callable[[], Any]
    is_first: bool = False
    begins_epoch: bool = False
    ends_epoch: bool = False
    done: int = 0
    seconds: float = 0.0

    def __next__(self) -> Any:
        """Return the next batch of this call for `predict`; see Source.shares."""
        if self.done == self.steps:
            raise StopIteration
        batch = Shared(self.take(), self.source)
        self.done += 1
        return batch

    def take(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: this worker, or another one, has no batch left.
        """
        batch = next(self.batches, NOTHING)
        are_there = [int(batch is not NOTHING)]
        if not self.source.is_known:
            are_there = self.workers.gather(are_there[0], "the next batch")
        if not all(are_there):
            raise StopIteration
        return batch


class Shared(tuple[Any, ...]):  # noqa: SLOT001  a subclass of tuple cannot have slots
    """A divided batch, as a tuple of parts with a value for each local replica, as in Keras.

    Attributes:
        shares: the element of Source.shares from which the batch was made.
        source: the source of the shares.
    """

    def __new__(cls, shares: Any, source: Source) -> Self:
        """Return the parts of a batch, unchanged or in TensorFlow's PerReplica."""
        batch = shares
        if source.has_weights:
            batch = tensorflow_names.for_each_replica([part for part, *_ in shares])
        shared = super().__new__(cls, batch if isinstance(batch, tuple) else (batch,))
        shared.shares, shared.source = shares, source
        return shared

    shares: Any
    source: Source
