"""Data that are read by their rows within TensorFlow's graphs: each replica reads its own alone."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class EpochOrder:
    """What there is to be read, and in which order.

    Attributes:
        examples: how many there are.
        batch_size: of the global batch.
        seed: of the order, which is another in each pass; None: their own order.
        bytes_of_example: what one takes in memory, about.
        take_work: whether taking them is more than copying.
    """

    examples: int
    batch_size: int
    seed: int | None
    bytes_of_example: float
    take_work: bool = False


def examples_at(step: int, examples: int, batch_size: int) -> int:
    """Return how many examples so many steps see, where the last batch of a pass may be short."""
    passes, in_pass = divmod(step, math.ceil(examples / batch_size))
    return passes * examples + in_pass * batch_size


class RowDataset(keras.utils.PyDataset, ABC):
    """A PyDataset whose examples can be taken one by one, by their rows."""

    bytes_of_example = 1.0
    take_work = False

    def __init__(self, examples: int, batch_size: int) -> None:
        super().__init__()
        self.examples, self.batch_size = examples, batch_size

    @abstractmethod
    def take(self, rows: tf.Tensor, pass_number: tf.Tensor) -> Any:
        """Return the examples of some rows, int64 [n], as a model gets them.

        `pass_number`, int64 [], tells how often all of them were seen before.
        """

    def rows(self, seed: int | None) -> EpochOrder:
        """Return what there is to be read, in the order of a seed."""
        return EpochOrder(
            self.examples, self.batch_size, seed, self.bytes_of_example, self.take_work
        )

    @property
    def num_batches(self) -> int:
        """How many global batches hold all examples; the last may be short."""
        return math.ceil(self.examples / self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """Return a whole batch, where Keras asks for one, as without the engine."""
        begin = index * self.batch_size
        rows = np.arange(begin, min(begin + self.batch_size, self.examples), dtype=np.int64)
        batch = self.take(tf.constant(rows), tf.constant(0, tf.int64))
        return tf.nest.map_structure(np.asarray, batch)
