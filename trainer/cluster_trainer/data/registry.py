"""From a data set's name to its examples: TensorFlow Datasets, or a user's own function."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer import references
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.names import VARIABLE
from cluster_trainer.data.pictures import Keeping
from cluster_trainer.problems import ConfigurationError, Problem

log = logging.getLogger("trainer")
IMAGE_SIZE = "TRAINER_IMAGE_SIZE (--image-size)"
ACCEPTED = "a function () -> (train, test), each arrays (inputs, labels) or a tf.data.Dataset"


def load(
    name: str,
    data_dir: Path,
    image_size: int | None,
    cache: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> DataSet:
    """Load a data set.

    Args:
        name: a TFDS name, or `module:function`.
        data_dir: where TFDS looks for prepared sets, and prepares what is missing.
        image_size: side in pixels to which pictures are resized; None leaves them as they are,
            or makes them 224 where they differ in size.
        cache: how TFDS's pictures are kept: decoded in `memory` or on `disk`, or decoded whenever
            they are needed (`none`), or `auto`. The batches are the same. All else, and what a
            function returns, stays in memory.
        say: is told what goes on where it takes long.

    Raises:
        ConfigurationError: there is no such set, or it cannot be used for classification.
    """
    if references.is_reference(name):
        refuse_image_size(image_size, name)
        return _from_function(name)
    # Slow to import, and a user's own data need none of it.
    from cluster_trainer.data import tfds_source  # noqa: PLC0415

    return tfds_source.load(name, image_size, Keeping(data_dir, cache, say))


def refuse_image_size(image_size: int | None, name: str) -> None:
    """Refuse to resize what a user's own code gives.

    Raises:
        ConfigurationError: a size is given.
    """
    if image_size is not None:
        accepted = f"not given, since {name} is not a set of TensorFlow Datasets"
        problem = Problem(IMAGE_SIZE, str(image_size), accepted, "Return pictures of that size.")
        raise ConfigurationError([problem])


def _from_function(reference: str) -> DataSet:
    function = references.resolve(VARIABLE, reference)
    return from_parts(VARIABLE, reference, function)


def from_parts(variable: str, name: str, load: Callable[[], Any]) -> DataSet:
    """Make a data set of what a user's code gives: (train, test).

    Args:
        variable: what a message calls it.
        name: its own name.
        load: returns (train, test), each (inputs, labels) or a tf.data.Dataset of such pairs.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        train, test = (_examples(part) for part in load())
        _refuse_differing(train, test)
    except (TypeError, ValueError) as error:
        raise ConfigurationError([Problem(variable, name, ACCEPTED, f"{error}.")]) from error
    log.info("a model gets the inputs, %s, %s", train.described, train.reach_a_model)
    return DataSet(name, train, test, 1 + max(train.largest_label, test.largest_label))


def _examples(part: Any) -> Examples:
    if isinstance(part, tf.data.Dataset):
        inputs, labels = zip(*map(_pair, part.as_numpy_iterator()), strict=True)
        return Examples(np.stack(inputs), np.asarray(labels))
    inputs, labels = _pair(part)
    return Examples(np.asarray(inputs), np.asarray(labels))


def _pair(parts: Any) -> tuple[Any, Any]:
    """Return inputs and labels, if that is all there is.

    Raises:
        ValueError: there is more or less.
    """
    if len(parts) != len(("inputs", "labels")):
        message = f"expected (inputs, labels), got {len(parts)} parts; weights are not used"
        raise ValueError(message)
    inputs, labels = parts
    return inputs, labels


def _refuse_differing(train: Examples, test: Examples) -> None:
    """Refuse two parts that would reach a model in different ways.

    Raises:
        ValueError: with the types and shapes of both.
    """
    floats = {part.inputs.dtype.kind for part in (train, test)} == {"f"}
    same_type = floats or train.inputs.dtype == test.inputs.dtype
    if not same_type or train.input_shape != test.input_shape:
        message = f"the inputs to train on are {train.described}, those to test {test.described}"
        raise ValueError(message)
