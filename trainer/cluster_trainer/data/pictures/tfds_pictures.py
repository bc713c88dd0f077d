"""Loads the pictures of a TFDS set, and chooses their size and their cache."""

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from cluster_trainer.data.examples import Examples
from cluster_trainer.data.memory import available_bytes
from cluster_trainer.data.pictures import kept as pictures
from cluster_trainer.data.pictures.encoded import Decoder
from cluster_trainer.data.pictures.kept import Keeping, Pictures
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names.data_sets import CACHE_VARIABLE, VARIABLE

log = logging.getLogger("trainer")

# The tutorials' size, for sets whose pictures differ in size.
DEFAULT_IMAGE_SIZE = 224
# The memory for `auto`; the rest is for the model, its batches, and other workers on the machine.
SHARE_OF_MEMORY = 0.25


@dataclass(frozen=True)
class Room:
    """The space that a data set needs, and the free space, in bytes.

    Attributes:
        decoded: the size of all decoded pictures.
        encoded: the size of the JPEG or PNG files.
        memory: the memory that this process may still use.
        disk: the free space in the data directory; None: it cannot be written.
        directory: the data directory, for messages.
        is_on_disk: whether the decoded set is already on the disk.
    """

    decoded: int
    encoded: int
    memory: int
    disk: int | None
    directory: str
    is_on_disk: bool = False

    @property
    def fitting(self) -> list[str]:
        """The caches that are large enough for the set."""
        fits = {
            "memory": self.decoded <= self.memory,
            "disk": self.is_on_disk or (self.disk is not None and self.decoded <= self.disk),
            "none": self.encoded <= self.memory,
        }
        return [cache for cache, does in fits.items() if does]

    def __str__(self) -> str:
        disk = "cannot be written" if self.disk is None else f"has {_mb(self.disk)} free"
        return (
            f"decoded it takes {_mb(self.decoded)}, as it is stored {_mb(self.encoded)}; "
            f"{_mb(self.memory)} of memory are free here, and {self.directory} {disk}"
        )


def choose_cache(name: str, wanted: str, room: Room) -> str:
    """Return the requested cache; for `auto`, choose `memory`, `disk` or `none`.

    Raises:
        ConfigurationError: the set does not fit into the requested cache, or into any.
    """
    fitting = room.fitting
    if wanted == "auto" and fitting:
        roomy = room.decoded <= SHARE_OF_MEMORY * room.memory
        order = ["memory", "disk", "none"] if roomy else ["disk", "none", "memory"]
        return next(cache for cache in order if cache in fitting)
    if wanted in fitting:
        return wanted
    advice = f"Of {name}: {room}."
    if fitting:
        accepted = f"a cache that the data set fits into: {' or '.join(fitting)}"
        raise ConfigurationError([Problem(CACHE_VARIABLE, wanted, accepted, advice)])
    accepted = "a set that fits into this worker's memory or onto its disk"
    advice += " A smaller TRAINER_IMAGE_SIZE may help."
    raise ConfigurationError([Problem(VARIABLE, name, accepted, advice)])


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def has_pictures(info: Any) -> bool:
    """Tell whether a set's inputs are uint8 pictures."""
    feature = info.features[info.supervised_keys[0]]
    return isinstance(feature, tfds.features.Image) and feature.np_dtype == np.uint8


def load(
    builder: Any, splits: list[str], image_size: int | None, keeping: Keeping
) -> list[Examples]:
    """Load a prepared set's splits.

    Raises:
        ConfigurationError: they do not fit into the requested cache, or into any.
    """
    found = _find(builder, splits, image_size, keeping.data_dir)
    room = _room(found, builder.info.dataset_size, keeping.data_dir)
    cache = choose_cache(builder.info.full_name, keeping.cache, room)
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
                # Each is read once, so TFDS need not keep it in memory.
                read_config=tfds.ReadConfig(try_autocache=False),
            ),
            Decoder(feature, image_size),
            pictures.folder_of(data_dir, builder.data_path, info.full_name, split, image_size),
        )
        for split in splits
    ]


def _room(splits: list[Pictures], encoded_bytes: int, data_dir: Path) -> Room:
    folder = data_dir / pictures.FOLDER
    can_write = os.access(folder if folder.exists() else data_dir, os.W_OK | os.X_OK)
    return Room(
        decoded=sum(split.decoded_bytes for split in splits),
        encoded=encoded_bytes,
        memory=available_bytes(),
        disk=shutil.disk_usage(data_dir).free if can_write else None,
        directory=str(data_dir),
        is_on_disk=all(split.folder.exists() for split in splits),
    )
