"""Data whose rows are read within TensorFlow's graphs: each replica reads only its own."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class EpochOrder:
    """The examples to read, and their order.

    Attributes:
        examples: how many there are.
        batch_size: of the global batch.
        seed: of the order, which is another in each pass; None: their own order.
        bytes_of_example: about how much memory one needs.
        take_work: whether taking them is more than copying.
    """

    examples: int
    batch_size: int
    seed: int | None
    bytes_of_example: float
    take_work: bool = False


def examples_at(step: int, examples: int, batch_size: int) -> int:
    """Return how many examples so many steps use, if the last batch of a pass may be short."""
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

        `pass_number`, int64 [], tells how often all of them were used before.
        """

    def rows(self, seed: int | None) -> EpochOrder:
        """Return the examples to read, in the order of a seed."""
        return EpochOrder(
            self.examples, self.batch_size, seed, self.bytes_of_example, self.take_work
        )

    @property
    def num_batches(self) -> int:
        """The number of global batches that hold all examples; the last may be short."""
        return math.ceil(self.examples / self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """Return a whole batch, if Keras asks for one, as without the engine."""
        begin = index * self.batch_size
        rows = np.arange(begin, min(begin + self.batch_size, self.examples), dtype=np.int64)
        batch = self.take(tf.constant(rows), tf.constant(0, tf.int64))
        return tf.nest.map_structure(np.asarray, batch)
