"""Examples: what every source of data ends in, and what the order draws from."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from trainer.data import arrays
from trainer.data.encoded import Encoded


@dataclass(frozen=True)
class Examples:
    """One split.

    Attributes:
        inputs: [n, …]. An array, in memory or a mapped file: uint8 for pictures (scaled to 0..1
            when a batch is made), else numbers. Or pictures that are decoded when a batch is made.
        labels: [n], whole numbers from 0.

    Raises:
        ValueError: inputs and labels do not belong together, or are empty.
    """

    inputs: np.ndarray | Encoded
    labels: np.ndarray

    def __post_init__(self) -> None:
        """Check what a model could only answer with a puzzle."""
        shapes = f"inputs {list(self.inputs.shape)}, labels {list(self.labels.shape)}"
        belong = self.labels.ndim == 1 and self.inputs.shape[:1] == self.labels.shape
        if not belong or not len(self.labels):
            message = f"expected inputs [n, …] and labels [n] with n of 1 or more, got {shapes}"
            raise ValueError(message)
        if self.labels.dtype.kind not in "iu" or self.labels.min() < 0:
            message = f"expected whole numbers from 0 as labels, got {self.labels.dtype}"
            raise ValueError(message)
        if self.inputs.dtype.kind not in "iuf":
            message = f"expected numbers as inputs, got {self.inputs.dtype}"
            raise ValueError(message)

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    @property
    def largest_label(self) -> int:
        """The largest label there is."""
        return int(self.labels.max())

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch."""
        return self.inputs.shape[1:]

    @property
    def decodes(self) -> bool:
        """Whether making a batch is work: its pictures are decoded then."""
        return isinstance(self.inputs, Encoded)

    def taker(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function for graphs, from rows, int64 [m], to their inputs, [m, …]."""
        if isinstance(self.inputs, Encoded):
            return self.inputs.take
        inputs = arrays.as_tensor(self.inputs)
        return lambda rows: tf.gather(inputs, rows)


@dataclass(frozen=True)
class DataSet:
    """A named data set for classification: what to train on and what to evaluate on."""

    name: str
    train: Examples
    test: Examples
    num_classes: int
