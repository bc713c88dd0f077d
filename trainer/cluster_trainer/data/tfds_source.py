"""Loads data sets of TensorFlow Datasets, and the project's own `digits`."""

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from cluster_trainer.data.examples import DataSet, Examples, classes_of
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.data.pictures import tfds_pictures
from cluster_trainer.data.pictures.kept import Keeping
from cluster_trainer.data.preparing import digits  # which registers its builder  # noqa: F401
from cluster_trainer.data.preparing.prepare import is_sample, prepare
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names import data_sets as names
from cluster_trainer.settings.names.data_sets import VARIABLE

log = logging.getLogger("trainer")

BATCH = 256
HELD_OUT_PERCENT = 10


def load(name: str, image_size: int | None, keeping: Keeping) -> DataSet:
    """Load a TFDS set in its own order, and prepare it if necessary; see registry.load.

    The test split is `test`, else `validation`, else the last tenth of `train`.

    Raises:
        ConfigurationError: the set has no (input, label) pairs of numbers, cannot be prepared, or
            does not fit into memory or onto the disk.
    """
    directory = directory_of(name, keeping.data_dir)
    folder = prepare(name, directory, keeping.say)
    builder = tfds.builder(name, data_dir=str(directory))
    info = builder.info
    if info.supervised_keys is None:
        raise _unusable(name, "a set with (input, label) pairs", "TFDS names none for this one.")
    try:
        splits = splits_of(list(info.splits))
        if tfds_pictures.has_pictures(info):
            train, test = tfds_pictures.load(builder, splits, image_size, keeping)
        else:
            train, test = (_load_arrays(name, builder, split) for split in splits)
    except ValueError as error:
        raise _unusable(name, "a set whose examples are numbers", f"{error}.") from error
    classes = info.features[info.supervised_keys[1]]
    num_classes = getattr(classes, "num_classes", classes_of(train, test))
    names_of_classes = getattr(classes, "names", None)
    class_names = tuple(map(str, names_of_classes)) if names_of_classes else None
    return DataSet(_shown_name(info, folder), train, test, num_classes, class_names)


def directory_of(name: str, data_dir: Path) -> Path:
    """Return the folder for a set: the image's own if only that has the set, else the user's."""
    builder = names.builder_name(name)
    here, baked = (names.is_prepared(builder, place) for place in (data_dir, names.BAKED_DATA_DIR))
    return names.BAKED_DATA_DIR if baked and not here else data_dir


def splits_of(available: list[str]) -> list[str]:
    """Choose the training and the test split.

    Raises:
        ValueError: there is no split called train.
    """
    if "train" not in available:
        raise ValueError(f"the set has no split called train, only {', '.join(available)}")
    for held_out in ("test", "validation"):
        if held_out in available:
            return ["train", held_out]
    return [f"train[:{100 - HELD_OUT_PERCENT}%]", f"train[{100 - HELD_OUT_PERCENT}%:]"]


def _shown_name(info: Any, folder: Path) -> str:
    if not is_sample(folder):
        return str(info.full_name)
    log.warning(
        "%s is a SAMPLE that `make data-sample` has made, not the original: "
        "its results say nothing about the original's",
        info.full_name,
    )
    return f"{info.full_name} (sample)"


def _load_arrays(name: str, builder: Any, split: str) -> Examples:
    data = builder.as_dataset(split=split, as_supervised=True)
    spec = data.element_spec[0]
    if not spec.shape.is_fully_defined():
        accepted = "a set whose inputs all have one shape"
        raise _unusable(name, accepted, f"This one's inputs are {spec.shape}.")
    needed = int(data.cardinality()) * math.prod(spec.shape) * spec.dtype.size
    free = available_bytes()
    if needed > free:
        accepted = f"a set that fits into this worker's memory, {free / 1e9:.1f} GB free"
        raise _unusable(name, accepted, f"It takes {needed / 1e9:.1f} GB.")
    inputs, labels = zip(*data.batch(BATCH).as_numpy_iterator(), strict=True)
    return Examples(np.concatenate(inputs), np.concatenate(labels))


def _unusable(name: str, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(VARIABLE, name, accepted, advice)])
