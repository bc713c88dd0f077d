"""From a data set's name to its examples: TensorFlow Datasets, or a user's own function."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import references
from trainer.data import tfds_source
from trainer.data.examples import DataSet, Examples
from trainer.data.names import VARIABLE
from trainer.problems import ConfigurationError, Problem

ACCEPTED = "a function () -> (train, test), each arrays (inputs, labels) or a tf.data.Dataset"


def load(name: str, data_dir: Path, image_size: int | None) -> DataSet:
    """Load a data set, whole and decoded, into this process's memory.

    Args:
        name: a TFDS name, or `module:function`.
        data_dir: where TFDS looks for prepared sets, and prepares what is missing.
        image_size: side in pixels to which pictures are resized; None leaves them as they are.

    Raises:
        ConfigurationError: there is no such set, or it cannot be used for classification.
    """
    if references.is_reference(name):
        return _from_function(name)
    return tfds_source.load(name, data_dir, image_size)


def _from_function(reference: str) -> DataSet:
    function = references.resolve(VARIABLE, reference)
    try:
        train, test = (_examples(part) for part in function())
    except (TypeError, ValueError) as error:
        raise ConfigurationError([Problem(VARIABLE, reference, ACCEPTED, f"{error}.")]) from error
    num_classes = 1 + max(train.largest_label, test.largest_label)
    return DataSet(reference, train, test, num_classes)


def _examples(part: Any) -> Examples:
    if isinstance(part, tf.data.Dataset):
        inputs, labels = zip(*part.as_numpy_iterator(), strict=True)
        return Examples(np.stack(inputs), np.asarray(labels))
    inputs, labels = part
    return Examples(np.asarray(inputs), np.asarray(labels))
