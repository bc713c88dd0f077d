"""The sources of batches: all data that Keras's `fit` takes, as each replica's shares of a batch.

A *pass* goes through all batches once. Arrays and PyDatasets are shuffled in an order that is a
function of seed and pass alone. So any number of workers uses the same batches, and a run can begin
at any batch. A `tf.data.Dataset` and a generator determine their batches themselves: each worker
reads all of them and takes its shares. If a `map` comes before a pipeline's `batch`, it prepares
its own rows only; see ../sharding/plan.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.batch_shares import cut
from cluster_trainer.engine.data.pieces import TOGETHER, Component
from cluster_trainer.processors import available_cpus


class Source(ABC):
    """Batches of one `fit`, `evaluate` or `predict`.

    Attributes:
        num_batches: of one pass; None if it is not known in advance, or they never end.
        num_examples: of one pass; None where only batches are counted.
        is_infinite: whether they never end.
        is_endless: whether one pass follows the other in one iterator.
        goes_on: whether an epoch with more steps than a pass continues with the next pass.
        is_ours: whether the order is a function of seed and pass.
        begins_again: whether the same data can be gone through again, from any batch, in one
            process as in a new one.
        is_distributed: whether TensorFlow shares the batches out.
        begins_anywhere: whether `shares` begins where it is told to, and not with the first batch.
        may_lack_examples: whether a batch may have fewer examples than there are replicas.
        varies: whether one batch may have another shape than the next.
        changes: whether a pass may have other data than the one before.
        asks_users: whether `found` calls a user's own code, which may draw.
        calls_users: whether `shares` is read by threads that may call a user's own code.
        doubtful: the parts of `found` that may differ between workers by intention.
        components: which parts of a batch were batched together; see pieces.py.
        own_rows: the pipeline for the rows of this worker's shares; None: it reads whole batches.
    """

    is_endless = is_distributed = False
    begins_anywhere = True
    is_infinite = is_ours = goes_on = False
    may_lack_examples = varies = True
    begins_again = changes = asks_users = False
    calls_users = True
    doubtful: Collection[str] = ()
    components: Sequence[Component] = TOGETHER
    num_examples: int | None = None
    own_rows: Any = None

    def __init__(self, num_batches: int | None, replicas: Replicas) -> None:
        self.num_batches, self.replicas = num_batches, replicas

    @property
    def described(self) -> dict[str, str]:
        """A description of the data that is known without reading them: name -> value."""
        return {}

    def found(self) -> dict[str, str]:
        """Return further facts that must be the same on all workers, read again: name -> value.

        It uses up nothing that `shares` gives.
        """
        return {}

    @property
    def advice(self) -> str:
        """Why this worker prepares more than its shares, and what to change; "": it does not."""
        return ""

    @property
    def examples_at(self) -> Callable[[int], int] | None:
        """Return how many examples so many steps, over all passes, used; None: unknown."""
        return None

    @property
    def has_weights(self) -> bool:
        """Whether `shares` gives each local replica's share, with its weight."""
        return self.replicas.total > 1 and not self.is_distributed

    @property
    def is_known(self) -> bool:
        """Whether a call can be told its number of batches."""
        return self.num_batches is not None or self.is_endless or self.is_infinite

    @abstractmethod
    def shares(self, pass_number: int, first: int) -> Any:
        """Return a dataset of batches: from batch `first` of a pass to the pass's end.

        With one replica they are what the model gets; with several, a tuple with each local
        replica's share and weight, like the result of `cut`.
        """

    def whole_batch(self) -> Any:
        """Return a batch as one device would get it, to explain why a step has failed.

        Batches read from a generator are lost, so nothing can continue afterwards.
        """
        alone = copy(self)
        alone.replicas = Replicas()
        batches = alone.shares(0, 0)
        alone.begin_pass(0)
        return next(iter(batches))

    # methods that most sources need not override:
    def begin_epoch(self) -> None:  # noqa: B027
        """Note that an epoch begins, which may be a part of a pass, or several."""

    def end_epoch(self) -> None:  # noqa: B027
        """Note that an epoch has ended."""

    def begin_pass(self, number: int) -> None:  # noqa: B027
        """Note that the result of `shares` for a pass is about to be read."""

    def end_pass(self) -> None:  # noqa: B027
        """Note that it has been read."""

    def catch_up(self, passes: int) -> None:  # noqa: B027
        """Note that an earlier start had so many passes, before other data are read.

        Other data may share the same pipeline.
        """

    def note_ended(self) -> None:  # noqa: B027
        """Note that an earlier start has finished a fit on these data, which others may share."""


class WholeBatchSource(Source):
    """Batches that each worker reads as a whole, to take its shares."""

    @abstractmethod
    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:
        """Return whole batches: from batch `first` of a pass to the pass's end."""

    def shares(self, pass_number: int, first: int) -> Any:
        """Return the batches' shares; see Source.shares."""
        batches = self._batches(pass_number, first)
        if self.replicas.total == 1:
            return batches
        is_tuple = isinstance(batches.element_spec, tuple)  # which `map` takes apart

        def cut_up(*batch: Any) -> Any:
            return cut(batch if is_tuple else batch[0], self.replicas, self.components)

        shared = batches.map(as_written(cut_up), num_parallel_calls=threads(), deterministic=True)
        return shared.prefetch(2)


def as_written(ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours that AutoGraph does not rewrite: that would only take time."""
    written: Callable[..., Any] = tf.autograph.experimental.do_not_convert(ours)
    return written


def threads() -> int:
    """Return how many threads make batches."""
    return tf.config.threading.get_inter_op_parallelism_threads() or available_cpus()
