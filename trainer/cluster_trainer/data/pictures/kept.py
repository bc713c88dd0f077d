"""Caches the pictures of one split. There are three caches, which give the same batches."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy as np
import tensorflow as tf

from cluster_trainer.data.examples import Examples
from cluster_trainer.data.pictures.encoded import Decoder, Encoded
from cluster_trainer.data.preparing.lock import alone
from cluster_trainer.engine.data import arrays
from cluster_trainer.files import sync_folder, sync_tree

log = logging.getLogger("trainer")

Say = Callable[[str], None]
DECODE_BATCH = 64
FOLDER = ".decoded"
HALF_MADE = ".half"
INPUTS, LABELS = "inputs.npy", "labels.npy"


@dataclass(frozen=True)
class Keeping:
    """The way in which examples are cached.

    Attributes:
        data_dir: the folder with the sets that TFDS prepares, and with the decoded pictures.
        cache: `memory`, `disk`, `none` or `auto`.
        say: gets the progress of long work.
    """

    data_dir: Path
    cache: str
    say: Say


@dataclass(frozen=True)
class Pictures:
    """One split of a set of pictures.

    Attributes:
        files: each picture's file and label, (string [], int64 []), in the set's own order.
        decoder: decodes the pictures.
        folder: the folder for the decoded split, which all processes on this disk share.
    """

    files: tf.data.Dataset
    decoder: Decoder
    folder: Path

    def __len__(self) -> int:
        """Return the number of pictures."""
        return int(self.files.cardinality())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all decoded pictures, uint8 [n, height, width, channels]."""
        return (len(self), *self.decoder.shape)

    @property
    def decoded_bytes(self) -> int:
        """The size of the decoded pictures, in bytes."""
        return prod(self.shape)

    def decoded(self, say: Say) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Decode all pictures in parallel; yield (inputs, labels) of DECODE_BATCH each."""
        threads = tf.config.threading.get_inter_op_parallelism_threads() or tf.data.AUTOTUNE
        decoded = self.files.map(
            lambda file, label: (self.decoder.decode(file), label),
            num_parallel_calls=threads,
            deterministic=True,
        )
        done = 0
        for inputs, labels in decoded.batch(DECODE_BATCH).prefetch(2).as_numpy_iterator():
            yield inputs, labels
            done += len(labels)
            say(f"decoding pictures: {done:,} of {len(self):,}")


def folder_of(data_dir: Path, prepared: Path, full_name: str, split: str, side: int | None) -> Path:
    """Return the folder of a decoded split; its name changes if the set's content changes."""
    info = (prepared / "dataset_info.json").read_bytes()
    parts = json.dumps([split, side, tf.__version__])
    digest = sha256(info + parts.encode()).hexdigest()[:12]
    name = f"{full_name.replace('/', '-')}-{split.partition('[')[0]}-{side or 'own'}-{digest}"
    return data_dir / FOLDER / name


def keep(pictures: Pictures, cache: str, say: Say) -> Examples:
    """Return the split's examples in a cache: `memory`, `disk` or `none`.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    if cache == "disk":
        return _on_disk(pictures, say)
    if cache == "none":
        files, labels = pictures.files.batch(len(pictures)).get_single_element()
        return Examples(Encoded(files, pictures.decoder), labels.numpy())
    return _in_memory(pictures, say)


def _in_memory(pictures: Pictures, say: Say) -> Examples:
    inputs, labels = arrays.empty(pictures.shape, np.uint8), np.empty(len(pictures), np.int64)
    start = 0
    for some, their_labels in pictures.decoded(say):
        end = start + len(some)
        inputs[start:end], labels[start:end] = some, their_labels
        start = end
    return Examples(inputs, labels)


def _on_disk(pictures: Pictures, say: Say) -> Examples:
    """Return examples in mapped files, which one of the processes that share the folder writes."""
    folder = pictures.folder

    def say_waiting() -> None:
        waiting = f"waiting for another container that decodes pictures in {folder.parent}"
        log.info(waiting, extra={"is_own": True})
        say(waiting)

    if not folder.exists():
        folder.parent.mkdir(mode=0o777, exist_ok=True)
        with alone(folder.parent / ".lock", say_waiting):
            if not folder.exists():
                _write(pictures, say)
    # Copy-on-write, because DLPack does not take read-only arrays. Nothing writes to it.
    return Examples(np.load(folder / INPUTS, mmap_mode="c"), np.load(folder / LABELS))


def _write(pictures: Pictures, say: Say) -> None:
    """Decode into a temporary folder, which is renamed when it is complete."""
    folder = pictures.folder
    for left in folder.parent.glob(f"*{HALF_MADE}"):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)  # it may belong to another user
    half = folder.with_name(folder.name + HALF_MADE)
    half.mkdir()
    try:
        labels = _write_inputs(pictures, half / INPUTS, say)
        np.save(half / LABELS, labels)
        sync_tree(half)
    except OSError:
        shutil.rmtree(half, ignore_errors=True)
        raise
    half.rename(folder)
    sync_folder(folder.parent)


def _write_inputs(pictures: Pictures, path: Path, say: Say) -> np.ndarray:
    """Write the decoded pictures, and return their labels.

    The file is not mapped, because a mapping on a full disk ends the process with SIGBUS.
    """
    labels = []
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": pictures.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for some, their_labels in pictures.decoded(say):
            file.write(some.data)
            labels.append(their_labels)
    return np.concatenate(labels)
