"""Defines sources of batches: they turn data that Keras's `fit` takes into the replicas' shares.

A *pass* goes through all batches once. Arrays and PyDatasets are shuffled in an order that is a
function of seed and pass alone. So any number of workers uses the same batches, and a run can begin
at any batch. A `tf.data.Dataset` and a generator determine their batches themselves: each worker
reads all batches and takes its shares. If a pipeline's `map` comes before `batch`, the worker may
apply it to its own rows only; see ../sharding/plan.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.engine.data.again import Again, after
from cluster_trainer.engine.data.batch_shares import cut
from cluster_trainer.engine.data.pieces import TOGETHER, Component
from cluster_trainer.processors import available_cpus


class Source(ABC):
    """Batches of one `fit`, `evaluate` or `predict`.

    Attributes:
        num_batches: the number of batches in a pass; None: it is unknown, or they never end.
        num_examples: the number of examples in a pass; None: only batches are counted.
        is_infinite: whether the batches never end.
        is_endless: whether one iterator goes through one pass after the other.
        goes_on: whether an epoch with more steps than a pass continues with the next pass.
        is_ours: whether the order is a function of seed and pass.
        begins_again: whether the same data can be read again, from any batch on, in this process or
            a new one.
        is_distributed: whether TensorFlow divides the batches among the replicas.
        begins_anywhere: whether `shares` begins at the requested batch; otherwise at the first.
        reads_from_the_first: whether a later batch takes as long as all batches up to it.
        may_lack_examples: whether a batch may have fewer examples than there are replicas.
        varies: whether the shapes of batches may differ.
        changes: whether the data may differ from pass to pass.
        reads_own_rows: whether a user's code that makes examples is asked for this worker's only.
        asks_users: whether `found` or `found_anew` calls a user's own code, which may draw random
            numbers.
        calls_users: whether threads that read `shares` may call a user's own code.
        doubtful: the names in `found` whose values may differ between workers on purpose.
        components: the parts of a batch that were batched together; see pieces.py.
        own_rows: the pipeline for the rows of this worker's shares; None: it reads whole batches.
    """

    is_endless = is_distributed = False
    begins_anywhere = True
    reads_from_the_first = False
    is_infinite = is_ours = goes_on = False
    may_lack_examples = varies = True
    begins_again = changes = asks_users = reads_own_rows = False
    calls_users = True
    doubtful: Collection[str] = ()
    components: Sequence[Component] = TOGETHER
    num_examples: int | None = None
    own_rows: Any = None

    def __init__(self, num_batches: int | None, replicas: Replicas) -> None:
        self.num_batches, self.replicas = num_batches, replicas

    @property
    def described(self) -> dict[str, str]:
        """A description of the data, without reading a pass: name -> value."""
        return {}

    def found(self) -> dict[str, str]:
        """Return further facts that must be the same on all workers: name -> value.

        This uses up none of the batches of `shares`.
        """
        return {}

    def found_anew(self) -> dict[str, str]:
        """Return the facts of `found` from another reading of the data.

        A user's code may draw for it, so this is only for data that differ between workers already.
        """
        return self.found()

    @property
    def advice(self) -> str:
        """The reason why this worker prepares more than its shares, and advice; "": it does not."""
        return ""

    @property
    def examples_at(self) -> Callable[[int], int] | None:
        """A function from the number of steps to the number of examples; None: it is unknown.

        Both numbers count all passes.
        """
        return None

    @property
    def has_weights(self) -> bool:
        """Whether `shares` yields each local replica's share with its weight, and not batches."""
        return self.replicas.total > 1 and not self.is_distributed

    @property
    def is_known(self) -> bool:
        """Whether the number of batches left is known before a call, or unlimited."""
        return self.num_batches is not None or self.is_endless or self.is_infinite

    @abstractmethod
    def shares(self, pass_number: int, first: int) -> Any:
        """Return a dataset of batches: from batch `first` of a pass to the pass's end.

        If `is_endless`, later passes follow. With one replica, the elements are the model's
        batches. With several, each element is a tuple with the local replicas' shares and weights,
        like the result of `cut`.
        """

    def again(self, pass_number: int, first: int, steps: int) -> Again | None:
        """Read the batches of a call again, as one device would get them; None: that is impossible.

        Reading cannot continue afterwards.
        """
        alone = copy(self)
        alone.replicas = Replicas()
        to_skip = first if self.reads_from_the_first else 0
        batches = alone.shares(pass_number, first - to_skip)
        alone.begin_pass(pass_number)
        spec = tf.nest.map_structure(none_or_spec, batches.element_spec)
        return Again(after(batches.take(to_skip + steps), to_skip), spec, self.components)

    # methods that most sources need not override:
    def look(self) -> None:  # noqa: B027
        """Read the batches that Keras itself reads before a call, to inspect them."""

    def look_ahead(self) -> None:  # noqa: B027
        """Read the first batch of the pass for which `shares` was called, if the data change.

        `found` describes it, and it is not read again when the pass begins.
        """

    def begin_epoch(self) -> None:  # noqa: B027
        """Note that an epoch begins. It may be a part of a pass, or several passes."""

    def end_epoch(self) -> None:  # noqa: B027
        """Note that an epoch has ended."""

    def begin_pass(self, number: int) -> None:  # noqa: B027
        """Note that reading the result of `shares` for pass `number` is about to begin."""

    def end_pass(self) -> None:  # noqa: B027
        """Note that reading the result of `shares` has ended."""

    def catch_up(self, passes: int) -> None:  # noqa: B027
        """Note that an earlier start of the program has begun `passes` passes.

        This is called before other data are read, because these may share the same pipeline.
        """

    def note_ended(self) -> None:  # noqa: B027
        """Note that an earlier start has finished a fit on these data, which others may share."""


class WholeBatchSource(Source):
    """Whole batches: each worker reads them, and takes its shares."""

    @abstractmethod
    def _batches(self, pass_number: int, first: int) -> tf.data.Dataset:
        """Return whole batches: from batch `first` of a pass to the pass's end."""

    def shares(self, pass_number: int, first: int) -> Any:
        """Return the batches' shares; see Source.shares."""
        batches = self._batches(pass_number, first)
        if self.replicas.total == 1:
            return batches
        is_tuple = isinstance(batches.element_spec, tuple)  # `map` passes its parts as arguments

        def cut_up(*batch: Any) -> Any:
            return cut(batch if is_tuple else batch[0], self.replicas, self.components)

        shared = batches.map(as_written(cut_up), num_parallel_calls=threads(), deterministic=True)
        return shared.prefetch(2)


def none_or_spec(spec: Any) -> Any:
    """Return None for the stand-in for None in a tf.data.Dataset, as Keras does."""
    return spec if hasattr(spec, "shape") else None


def as_written(ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that AutoGraph does not convert, because that would only take time."""
    written: Callable[..., Any] = tf.autograph.experimental.do_not_convert(ours)
    return written


def threads() -> int:
    """Return the number of threads that make batches."""
    return tf.config.threading.get_inter_op_parallelism_threads() or available_cpus()
