"""Defines data whose rows are read within TensorFlow's graphs: a replica reads only its own."""

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
        examples: the number of examples.
        batch_size: the size of the global batch.
        seed: the seed of the order; the order changes with each pass. None: the examples' own
            order.
        bytes_of_example: the approximate memory of one example, in bytes.
        take_work: whether taking an example costs more than a copy, such as decoding a picture.
    """

    examples: int
    batch_size: int
    seed: int | None
    bytes_of_example: float
    take_work: bool = False


def examples_at(step: int, examples: int, batch_size: int) -> int:
    """Return how many examples `step` steps use; the last batch of a pass may be short."""
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
        """Return the examples at `rows`, int64 [n], as a model gets them.

        `pass_number`, int64 [], is the number of finished passes through all examples.
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
        """Return a whole batch of NumPy arrays; Keras calls this if it runs without the engine."""
        begin = index * self.batch_size
        rows = np.arange(begin, min(begin + self.batch_size, self.examples), dtype=np.int64)
        batch = self.take(tf.constant(rows), tf.constant(0, tf.int64))
        return tf.nest.map_structure(np.asarray, batch)
