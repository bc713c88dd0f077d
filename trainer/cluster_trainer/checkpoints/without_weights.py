"""Removes weights from checkpoints of finished fits if a later fit's checkpoint has them."""

import shutil
import zipfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cluster_trainer.checkpoints.checkpoint import (
    KEPT_STATE,
    Sink,
    Stage,
    about,
    add_about,
    add_array,
    member,
    number_of,
)
from cluster_trainer.checkpoints.store import Store

GONE = "gone"
SMALL_BYTES = 8192
"""Variables up to this size stay, such as counters, learning rates and states of generators."""
COPIED_BYTES = 2**20


def gone_from(progress: Mapping[str, Any]) -> frozenset[int]:
    """Return the positions of the variables whose values a checkpoint omits."""
    return frozenset(progress.get(GONE, ()))


def lighten(store: Store, kept: Collection[int] = ()) -> None:
    """Replace a store's newest checkpoint by a copy without its large variables.

    It is copied piece by piece, so that no array is in memory as a whole. A checkpoint that was
    lightened before stays as it is.

    Args:
        store: the checkpoints of a finished fit.
        kept: the positions of large variables that stay.

    Raises:
        OSError, ValueError: the checkpoint could not be read or written.
    """
    file = store.newest_file()
    if file is None:
        return
    try:
        said = about(file)
        gone = _large(file, said["names"]) - {*kept}
        if gone and GONE not in said["progress"]:
            lighter = said | {"progress": said["progress"] | {GONE: sorted(gone)}}
            number = number_of(said["step"], Stage(said["stage"]))
            store.stream(number, partial(_copy_without, file, lighter, gone))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file.name}: {error}") from error


def _large(file: Path, names: list[str]) -> set[int]:
    with zipfile.ZipFile(file) as members:
        sizes = [members.getinfo(member(index)).file_size for index in range(len(names))]
    return {
        index
        for index, (name, size) in enumerate(zip(names, sizes, strict=True))
        if size > SMALL_BYTES and not name.startswith(KEPT_STATE)
    }


def _copy_without(file: Path, said: dict[str, Any], gone: set[int], sink: Sink) -> None:
    with (
        zipfile.ZipFile(file) as whole,
        zipfile.ZipFile(sink, "w") as light,  # type: ignore[call-overload]  # as in checkpoint.py
    ):
        add_about(light, said)
        for index in range(len(said["names"])):
            name = member(index)
            if index in gone:
                add_array(light, name, np.zeros(0))
                continue
            with whole.open(name) as one, light.open(name, "w", force_zip64=True) as other:
                shutil.copyfileobj(one, other, COPIED_BYTES)
