"""Keeps the weight of this worker's share of the present batch, in one variable for all loops."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import tensorflow as tf

from cluster_trainer.collectives.replicas import count_of
from cluster_trainer.engine.data.sharding.rebuilt import OwnRows


class Part(NamedTuple):
    """The number of this worker's examples, and of all examples, in a batch or in several."""

    mine: int
    of_all: int


class Passed:
    """The batches that a pass has yielded so far.

    Args:
        weight: the weight of all loops.

    Attributes:
        present: this worker's part of the present batch; None: no batch was yielded.
        total: the sum over all batches so far.
        number: the number of batches.
    """

    def __init__(self, weight: "WeightOfShare") -> None:
        self._weight = weight
        self.present: Part | None = None
        self.total, self.number = Part(0, 0), 0
        self._seen: dict[int, int] = {}

    def set(self, part: Part) -> None:
        """Begin the next batch, whose weight counts from now on.

        Raises:
            ValueError: another loop takes turns with this one, and its share has another size.
        """
        others = [one for one in self._weight.under_way if one is not self]
        for other in others:
            takes_turns = self._seen.get(id(other), other.number) < other.number
            if takes_turns and not self._leads(other) and not _are_equal(part, other.present):
                raise ValueError(
                    "Two loops over `share` take turns, and this worker's shares of their batches "
                    "differ in size: it is not known which of the two weighs a gradient. Join the "
                    "datasets first: `share(tf.data.Dataset.zip(first, second))`."
                )
        self._seen = {id(one): one.number for one in others}
        self.present, self.number = part, self.number + 1
        self.total = Part(self.total.mine + part.mine, self.total.of_all + part.of_all)
        self._weight.set(part)

    def _leads(self, other: "Passed") -> bool:
        """Tell whether the other pass is still at its batch of the previous turn, as with `zip`."""
        order = self._weight.under_way
        return order.index(self) < order.index(other) and self.number == other.number


def _are_equal(first: Part, second: Part | None) -> bool:
    return second is None or first.mine * second.of_all == second.mine * first.of_all


@dataclass
class WeightOfShare:
    """The weight for optimizers, losses and means, and the state shared by all loops of a process.

    Attributes:
        variable: float32 [], the sum over all workers is 1. Within a loop's body it is the weight
            in the present batch; after a pass it is the weight in all examples of the pass.
        under_way: the passes that have begun and not ended.
        trained: the number of each optimizer, and its variables, which began with worker 0's
            values.
        compared: the datasets that all workers have compared, and the pipelines for this worker's
            own rows; None: it reads all rows of the dataset.
    """

    variable: tf.Variable
    under_way: list[Passed] = field(default_factory=list)
    trained: WeakKeyDictionary[Any, tuple[int, list[Any]]] = field(
        default_factory=WeakKeyDictionary
    )
    compared: WeakKeyDictionary[Any, OwnRows | None] = field(default_factory=WeakKeyDictionary)
    _numbers: Iterator[int] = field(default_factory=count)

    def note(self, optimizer: Any, variables: Sequence[Any]) -> list[Any]:
        """Record the variables that an optimizer is given; return those that are new to it.

        One optimizer may train several parts of a model in turns.
        """
        number, known = self.trained.get(optimizer) or (next(self._numbers), [])
        ids = {id(one) for one in known}
        new = [one for one in variables if id(one) not in ids]
        self.trained[optimizer] = number, [*known, *new]
        return new

    def set(self, part: Part) -> None:
        """Set this worker's weight to that of its examples."""
        with tf.init_scope():  # a loop may be left while a function is traced
            self.variable.assign(part.mine / part.of_all)

    @contextmanager
    def passing(self) -> Iterator[Passed]:
        """Run the block as a pass through batches; it may be left early."""
        passed = Passed(self)
        self.under_way.append(passed)
        try:
            yield passed
        finally:
            self.under_way.remove(passed)
            outer = self.under_way[-1].present if self.under_way else None
            if outer or passed.total.of_all:
                self.set(outer or passed.total)


@cache
def weight_of_share() -> WeightOfShare:
    """Return this process's weight; before the first loop, all workers have the same weight."""
    with tf.init_scope():
        equal = 1 / count_of(tf.distribute.get_strategy())
        return WeightOfShare(tf.Variable(equal, trainable=False, dtype=tf.float32))
