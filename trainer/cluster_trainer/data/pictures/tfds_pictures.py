"""The pictures of a TFDS set: how large they become, and where they are kept."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from cluster_trainer.data.examples import Examples
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.data.pictures import cache as caches
from cluster_trainer.data.pictures import kept as pictures
from cluster_trainer.data.pictures.encoded import Decoder
from cluster_trainer.data.pictures.kept import Keeping, Pictures
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names.data_sets import CACHE_VARIABLE

log = logging.getLogger("trainer")

# The tutorials' side, for sets whose pictures differ in size.
DEFAULT_IMAGE_SIZE = 224


def has_pictures(info: Any) -> bool:
    """Tell whether a set's inputs are pictures of bytes."""
    feature = info.features[info.supervised_keys[0]]
    return isinstance(feature, tfds.features.Image) and feature.np_dtype == np.uint8


def load(
    builder: Any, splits: list[str], image_size: int | None, keeping: Keeping
) -> list[Examples]:
    """Load a prepared set's splits, one after the other.

    Raises:
        ConfigurationError: they fit into no cache, or not into the one that is wanted.
    """
    found = _find(builder, splits, image_size, keeping.data_dir)
    room = _room(found, builder.info.dataset_size, keeping.data_dir)
    cache = caches.choose(builder.info.full_name, keeping.cache, room)
    log.info("cache %s (%s wanted): %s", cache, keeping.cache, room)
    try:
        return [pictures.keep(split, cache, keeping.say) for split in found]
    except OSError as error:
        accepted, advice = "a cache that the data set fits into", f"{cache}: {error}; {room}."
        problem = Problem(CACHE_VARIABLE, keeping.cache, accepted, advice)
        raise ConfigurationError([problem]) from error


def _find(
    builder: Any, splits: list[str], image_size: int | None, data_dir: Path
) -> list[Pictures]:
    info = builder.info
    key, _ = info.supervised_keys
    feature = info.features[key]
    if image_size is None and None in feature.shape:
        image_size = DEFAULT_IMAGE_SIZE
        log.info("the pictures differ in size: all become %d x %d", image_size, image_size)
    return [
        Pictures(
            builder.as_dataset(
                split=split,
                as_supervised=True,
                decoders={key: tfds.decode.SkipDecoding()},
                # Each is read once: TFDS need not keep it in memory.
                read_config=tfds.ReadConfig(try_autocache=False),
            ),
            Decoder(feature, image_size),
            pictures.folder_of(data_dir, builder.data_path, info.full_name, split, image_size),
        )
        for split in splits
    ]


def _room(splits: list[Pictures], encoded_bytes: int, data_dir: Path) -> caches.Room:
    folder = data_dir / pictures.FOLDER
    can_write = os.access(folder if folder.exists() else data_dir, os.W_OK | os.X_OK)
    return caches.Room(
        decoded=sum(split.decoded_bytes for split in splits),
        encoded=encoded_bytes,
        memory=available_bytes(),
        disk=shutil.disk_usage(data_dir).free if can_write else None,
        directory=str(data_dir),
        is_on_disk=all(split.folder.exists() for split in splits),
    )
