"""TensorFlow Datasets: any of its sets by `tfds.load`, and the project's own `digits`."""

import fcntl
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from trainer.data import digits, names
from trainer.data.examples import DataSet, Examples
from trainer.data.memory import available_bytes
from trainer.data.names import VARIABLE
from trainer.problems import ConfigurationError, Problem

DECODE_BATCH = 256
HELD_OUT_PERCENT = 10

# Importing `digits` registers its builder, so that tfds.load finds it by name.
assert digits.Digits.name == "digits"  # noqa: S101


def load(name: str, data_dir: Path, image_size: int | None) -> DataSet:
    """Load a TFDS set, prepared if need be, decoded into memory in the set's own order.

    The test split is `test`, else `validation`, else the last tenth of `train`.

    Raises:
        ConfigurationError: the set has no (input, label) pairs, or pictures of many sizes.
    """
    with _one_at_a_time(data_dir):
        splits, info = _load_splits(name, directory_of(name, data_dir))
    if info.supervised_keys is None:
        raise _unusable(name, "a set with (input, label) pairs", "TFDS names none for this one.")
    _refuse_mixed_sizes(name, splits[0].element_spec[0], image_size)
    _refuse_too_large(name, splits, image_size)
    train, test = (_decode(split, image_size) for split in splits)
    classes = info.features[info.supervised_keys[1]]
    num_classes = getattr(classes, "num_classes", 1 + max(train.largest_label, test.largest_label))
    return DataSet(info.full_name, train, test, num_classes)


def directory_of(name: str, data_dir: Path) -> Path:
    """Return where the set lies: the user's directory, else the image's own if it has it."""
    builder = names.builder_name(name)
    here, baked = (names.is_prepared(builder, place) for place in (data_dir, names.BAKED_DATA_DIR))
    return names.BAKED_DATA_DIR if baked and not here else data_dir


def _load_splits(name: str, directory: Path) -> tuple[list[tf.data.Dataset], Any]:
    try:
        builder = tfds.builder(name, data_dir=str(directory))
        builder.download_and_prepare()
        loaded = tfds.load(
            name,
            data_dir=str(directory),
            download=False,
            split=splits_of(list(builder.info.splits)),
            as_supervised=builder.info.supervised_keys is not None,
            with_info=True,
        )
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError, OSError) as error:
        accepted = f"a set that is in {directory} or can be prepared there"
        raise _unusable(name, accepted, f"TensorFlow Datasets says: {error}") from error
    return loaded  # type: ignore[no-any-return]


def splits_of(available: list[str]) -> list[str]:
    """Choose what to train on and what to evaluate on.

    Raises:
        ValueError: there is no split called train.
    """
    if "train" not in available:
        message = f"the set has no split called train, only {', '.join(available)}"
        raise ValueError(message)
    for held_out in ("test", "validation"):
        if held_out in available:
            return ["train", held_out]
    return [f"train[:{100 - HELD_OUT_PERCENT}%]", f"train[{100 - HELD_OUT_PERCENT}%:]"]


def _refuse_mixed_sizes(name: str, spec: tf.TensorSpec, image_size: int | None) -> None:
    if image_size is None and not spec.shape.is_fully_defined():
        accepted = "a set whose inputs all have one shape, or a TRAINER_IMAGE_SIZE"
        raise _unusable(name, accepted, f"This one's inputs are {spec.shape}.")


def _refuse_too_large(name: str, splits: list[tf.data.Dataset], image_size: int | None) -> None:
    needed = sum(_decoded_bytes(split, image_size) for split in splits)
    available = available_bytes()
    if needed > available:
        accepted = f"a set that fits into this worker's memory, {available / 1e9:.1f} GB free"
        advice = f"Decoded it takes {needed / 1e9:.1f} GB. A smaller TRAINER_IMAGE_SIZE may help."
        raise _unusable(name, accepted, advice)


def _decoded_bytes(split: tf.data.Dataset, image_size: int | None) -> int:
    spec = split.element_spec[0]
    shape = spec.shape if image_size is None else [image_size, image_size, spec.shape[-1]]
    return int(int(split.cardinality()) * math.prod(shape) * spec.dtype.size)


def _decode(split: tf.data.Dataset, image_size: int | None) -> Examples:
    if image_size is not None:
        split = split.map(lambda image, label: (_resize(image, image_size), label))
    batches = list(split.batch(DECODE_BATCH).as_numpy_iterator())
    inputs, labels = zip(*batches, strict=True)
    return Examples(np.concatenate(inputs), np.concatenate(labels))


def _resize(image: tf.Tensor, side: int) -> tf.Tensor:
    return tf.cast(tf.round(tf.image.resize(image, [side, side])), tf.uint8)


def _unusable(name: str, accepted: str, advice: str) -> ConfigurationError:
    return ConfigurationError([Problem(VARIABLE, name, accepted, advice)])


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Let one process prepare while the others that share the directory wait.

    TFDS has no lock: two processes that prepare one set race, and one fails at its last rename.
    The kernel releases this lock when its holder dies. A directory that cannot be written can
    only be read, so that nothing needs a lock.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".preparing.lock").open("w")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
