"""Turns a data set into arguments of Keras's `fit`; examples are read by row."""

import math
from typing import Any

import tensorflow as tf

from cluster_trainer.data import augment
from cluster_trainer.data.augment import Augmentation
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.run_length import RunLength, as_arrays
from cluster_trainer.engine.data import arrays
from cluster_trainer.engine.data.row_dataset import RowDataset
from cluster_trainer.settings.config import TrainerConfig

FLOAT_BYTES = 4


class ExampleRows(RowDataset):
    """Batches of a split's examples: inputs from `Examples.taker`, and labels.

    Args:
        examples: the split.
        batch_size: the size of the global batch.
        seed: the seed of the augmentation.
        augmentation: changes pictures at random at each use; None: they stay as they are.
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


def fit_arguments(data: DataSet, config: TrainerConfig, plan: RunLength) -> dict[str, Any]:
    """Return the arguments of `fit` for the data and the batches."""
    arguments: dict[str, Any] = {"steps_per_epoch": config.steps_per_epoch}
    if isinstance(data.train, Examples):
        assert plan.global_batch_size  # noqa: S101  examples have one
        batch, augmentation = plan.global_batch_size, augment.BY_NAME[config.augment]
        arguments["x"] = ExampleRows(data.train, batch, config.seed, augmentation)
        if data.test is not None:
            arguments["validation_data"] = ExampleRows(data.test, batch)
        return arguments
    if (parts := as_arrays(data.train)) is not None:
        names = ("x", "y", "sample_weight")
        arguments |= dict(zip(names, parts, strict=False))
    else:
        arguments["x"] = data.train
    return arguments | {"batch_size": plan.global_batch_size, "validation_data": data.test}
