"""Examples as Keras's `fit` takes them: a PyDataset that the engine reads by rows."""

import math
from typing import Any

import tensorflow as tf

from cluster_trainer.data.augment import Augmentation
from cluster_trainer.data.examples import Examples
from cluster_trainer.engine.data import arrays
from cluster_trainer.engine.data.row_dataset import RowDataset

FLOAT_BYTES = 4


class ExampleRows(RowDataset):
    """Batches of a split's examples: inputs as `Examples.taker` gives them, and labels.

    Args:
        examples: all of them.
        batch_size: of the global batch.
        seed: of the augmentation.
        augmentation: what happens to pictures each time they are seen; None: nothing.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        seed: int = 0,
        augmentation: Augmentation | None = None,
    ) -> None:
        super().__init__(len(examples), batch_size)
        self.bytes_of_example = float(FLOAT_BYTES * math.prod(examples.input_shape))
        self.take_work = examples.decodes or augmentation is not None
        self._inputs, self._labels = examples.taker(), arrays.as_tensor(examples.typed_labels)
        self._seed, self._augmentation = seed, augmentation

    def take(self, rows: tf.Tensor, pass_number: tf.Tensor) -> Any:
        """Return (inputs [n, …], labels [n, …]) of some rows."""
        inputs = self._inputs(rows)
        if self._augmentation:
            sightings = pass_number * self.examples + rows
            inputs = self._augmentation.apply(inputs, self._seed, sightings)
        return inputs, tf.gather(self._labels, rows)
