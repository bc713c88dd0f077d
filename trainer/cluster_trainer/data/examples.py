"""Examples, which data sources return, and data sets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.data.pictures.encoded import Encoded
from cluster_trainer.engine.data import arrays

PICTURES_RANK = 4  # [n, height, width, channels]


@dataclass(frozen=True)
class Examples:
    """The examples of one split.

    Attributes:
        inputs: [n, …]: an array, in memory or in a mapped file, of uint8 pictures or numbers; or
            pictures that are decoded when a batch is made.
        labels: [n, …]: classes, integers from 0; or any numbers that a loss takes.

    Raises:
        ValueError: the numbers of inputs and labels differ, they are empty, or not numbers.
    """

    inputs: np.ndarray | Encoded
    labels: np.ndarray

    def __post_init__(self) -> None:
        """Refuse data that would otherwise cause obscure errors in a model."""
        shapes = f"inputs {list(self.inputs.shape)}, labels {list(self.labels.shape)}"
        belong = self.labels.ndim >= 1 and self.inputs.shape[:1] == self.labels.shape[:1]
        if not belong or not len(self.labels):
            raise ValueError(
                f"expected inputs [n, …] and labels [n, …] with n of 1 or more, got {shapes}"
            )
        if self.labels.dtype.kind not in "biuf":
            raise ValueError(f"expected numbers as labels, got {self.labels.dtype}")
        if self.inputs.dtype.kind not in "iuf":
            raise ValueError(f"expected numbers as inputs, got {self.inputs.dtype}")

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    @property
    def num_classes(self) -> int | None:
        """One more than the largest label; None: the labels are not integers from 0, [n]."""
        is_one_each = self.labels.ndim == 1 and self.labels.dtype.kind in "iu"
        return 1 + int(self.labels.max()) if is_one_each and self.labels.min() >= 0 else None

    @property
    def typed_labels(self) -> np.ndarray:
        """The labels for a loss: float32 if they are floats, else int64."""
        return self.labels.astype(np.float32 if self.labels.dtype.kind == "f" else np.int64)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch."""
        return self.inputs.shape[1:]

    @property
    def are_pictures(self) -> bool:
        """Whether the inputs are uint8 [n, height, width, channels], with values of 0 to 255."""
        return self.inputs.dtype == np.uint8 and len(self.inputs.shape) == PICTURES_RANK

    @property
    def reach_a_model(self) -> str:
        """A text about the conversion of inputs for a model, such as `as they are`."""
        if self.are_pictures:
            return "scaled from 0..255 to 0..1"
        stays = self.inputs.dtype.kind in "iu" or self.inputs.dtype == np.float32
        return "as they are" if stays else "as float32"

    @property
    def described(self) -> str:
        """The type and shape of an input: `uint8[28,28,1]`."""
        return f"{self.inputs.dtype}[{','.join(map(str, self.input_shape))}]"

    @property
    def decodes(self) -> bool:
        """Whether pictures are decoded when a batch is made."""
        return isinstance(self.inputs, Encoded)

    def taker(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function for graphs from rows, int64 [m], to their inputs for a model, [m, …].

        Pictures become float32 from 0 to 1, and other floats float32. Integers stay unchanged,
        because float32 cannot hold every id.
        """
        if isinstance(self.inputs, Encoded):
            take = self.inputs.take
        else:
            take = partial(tf.gather, arrays.as_tensor(self.inputs))
        if self.are_pictures:
            return lambda rows: tf.cast(take(rows), tf.float32) / 255.0
        if self.inputs.dtype.kind in "iu":
            return take
        return lambda rows: tf.cast(take(rows), tf.float32)


@dataclass(frozen=True)
class DataSet:
    """A named data set: training and test data.

    Attributes:
        name: its name in the results.
        train: Examples, or other data that Keras's `fit` takes.
        test: Examples, or other data that `fit` takes as validation data; None: there are none.
        num_classes: the number of classes; None: the labels are not classes.
        class_names: the name of each class; None: they have no names.
    """

    name: str
    train: Any
    test: Any
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def has_examples(self) -> bool:
        """Whether both parts are Examples; otherwise neither is."""
        return isinstance(self.train, Examples)


def classes_of(*parts: Examples) -> int | None:
    """Return the number of classes in all parts; None: the labels of a part are not classes."""
    counts = [part.num_classes for part in parts]
    return None if None in counts else max(count or 0 for count in counts)
