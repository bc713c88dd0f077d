"""Loads a data set by its name, from TensorFlow Datasets or a user's own function."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cluster_trainer.data.examples import DataSet, Examples, classes_of
from cluster_trainer.data.pictures.kept import Keeping
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names import references
from cluster_trainer.settings.names.data_sets import VARIABLE

log = logging.getLogger("trainer")
IMAGE_SIZE = "TRAINER_IMAGE_SIZE (--image-size)"
ACCEPTED = (
    "a function () -> (train, test), each arrays (inputs, labels), or what Keras's fit takes: "
    "a tf.data.Dataset of batches, a PyDataset, a generator, (x, y, sample_weight)"
)


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
        data_dir: the folder in which TFDS looks for prepared sets, and prepares missing ones.
        image_size: the height and width to which pictures are resized, in pixels; None: they are
            not resized, or become 224 if they differ in size.
        cache: the cache for TFDS's pictures: decoded in `memory` or on `disk`, decoded at each use
            (`none`), or `auto`. The batches are the same. All other data stay in memory.
        say: gets the progress of long work.

    Raises:
        ConfigurationError: there is no such set, or it cannot be used.
    """
    if references.is_reference(name):
        refuse_image_size(image_size, name)
        return from_parts(VARIABLE, name, references.resolve(VARIABLE, name))
    # slow to import, and not needed for a user's own data
    from cluster_trainer.data import tfds_source  # noqa: PLC0415

    return tfds_source.load(name, image_size, Keeping(data_dir, cache, say))


def refuse_image_size(image_size: int | None, name: str) -> None:
    """Refuse to resize the pictures of a user's own code.

    Raises:
        ConfigurationError: `image_size` is given.
    """
    if image_size is not None:
        accepted = f"not given, since {name} is not a set of TensorFlow Datasets"
        problem = Problem(IMAGE_SIZE, str(image_size), accepted, "Return pictures of that size.")
        raise ConfigurationError([problem])


def from_parts(variable: str, name: str, load: Callable[[], Any]) -> DataSet:
    """Make a data set from the result of a user's code: (train, test).

    Args:
        variable: the name of the setting in messages.
        name: the name of the data set.
        load: returns (train, test); see `DataSet`. Arrays (inputs, labels) become Examples, and so
            does a tf.data.Dataset of single examples (input, label). test may be None.

    Raises:
        ConfigurationError: the result is not a data set.
    """
    try:
        parts = _two(load())
        train, test = map(_examples, parts)
        if train is None or (test is None and parts[1] is not None):
            log.info("a model gets the data as %s gives them", name)
            return DataSet(name, *map(_batches, parts))
        _refuse_differing(train, test)
    except (TypeError, ValueError) as error:
        raise ConfigurationError([Problem(variable, name, ACCEPTED, f"{error}.")]) from error
    log.info("a model gets the inputs, %s, %s", train.described, train.reach_a_model)
    return DataSet(name, train, test, classes_of(*[part for part in (train, test) if part]))


def _two(parts: Any) -> tuple[Any, Any]:
    """Return the training and the test part."""
    if not isinstance(parts, (tuple, list)) or len(parts) != len(("train", "test")):
        what = f"{len(parts)} parts" if isinstance(parts, (tuple, list)) else type(parts).__name__
        raise ValueError(f"expected (train, test), got {what}; test may be None")
    return parts[0], parts[1]


def _examples(part: Any) -> Examples | None:
    """Return arrays (inputs, labels), or single examples, as Examples; None for anything else."""
    if isinstance(part, tf.data.Dataset) and _gives_single_examples(part):
        inputs, labels = zip(*part.as_numpy_iterator(), strict=True)
        return Examples(np.stack(inputs), np.asarray(labels))
    is_pair = isinstance(part, (tuple, list)) and len(part) == len(("inputs", "labels"))
    if not is_pair or not all(map(_is_array, part)):
        return None
    return Examples(*map(np.asarray, part))


def _is_array(one: Any) -> bool:
    """Tell whether the inputs are one array; a list of arrays is several inputs."""
    if isinstance(one, list):
        return not any(hasattr(part, "shape") for part in one)
    return isinstance(one, (np.ndarray, tf.Tensor))


def _batches(part: Any) -> Any:
    """Return data that Keras's fit takes, unchanged."""
    if isinstance(part, tf.data.Dataset) and _gives_single_examples(part):
        raise ValueError("one part gives single examples, the other does not")
    return part


def _gives_single_examples(dataset: tf.data.Dataset) -> bool:
    """Tell whether a dataset gives single (input, label) pairs, not batches."""
    spec = dataset.element_spec
    is_pair = isinstance(spec, tuple) and len(spec) == len(("input", "label"))
    return is_pair and isinstance(spec[1], tf.TensorSpec) and spec[1].shape.rank == 0


def _refuse_differing(train: Examples, test: Examples | None) -> None:
    """Refuse training and test inputs of different types or shapes.

    Raises:
        ValueError: they differ.
    """
    if test is None:
        return
    floats = {part.inputs.dtype.kind for part in (train, test)} == {"f"}
    same_type = floats or train.inputs.dtype == test.inputs.dtype
    if not same_type or train.input_shape != test.input_shape:
        raise ValueError(
            f"the inputs to train on are {train.described}, those to test {test.described}"
        )
