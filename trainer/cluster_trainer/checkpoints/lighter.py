"""Checkpoints of fits that had ended, without the weights, which a later fit's have."""

import zipfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cluster_trainer.checkpoints.checkpoint import Checkpoint, Stage, about, member, variable_names
from cluster_trainer.checkpoints.store import Store

GONE = "gone"
SMALL_BYTES = 8192
"""Variables up to this size stay, such as counters, learning rates and the states of generators."""


def gone_from(progress: Mapping[str, Any]) -> frozenset[int]:
    """Return which variables' values a checkpoint does not have, by their places."""
    return frozenset(progress.get(GONE, ()))


def lighten(store: Store, kept: Container[int] = ()) -> None:
    """Write a store's newest checkpoint again, without its large variables.

    Args:
        store: of a fit that has ended.
        kept: the places of those that stay.

    Raises:
        OSError, ValueError: it could not be read or written.
    """
    file = store.newest_file()
    if file is None:
        return
    try:
        light = _lightened(file, kept)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file.name}: {error}") from error
    if light:
        store.stream(light.number, light.write)


def _lightened(file: Path, kept: Container[int]) -> Checkpoint | None:
    """Return a checkpoint without its large variables; None where there is nothing to leave out."""
    said = about(file)
    names = said["names"]
    with zipfile.ZipFile(file) as members:
        sizes = [members.getinfo(f"{member(index)}.npy").file_size for index in range(len(names))]
    full = Checkpoint(said["step"], Stage(said["stage"]), {}, {}, names, [])
    variables = set(variable_names(full))
    gone = [
        index
        for index, (name, size) in enumerate(zip(names, sizes, strict=True))
        if name in variables and size > SMALL_BYTES and index not in kept
    ]
    if not gone or GONE in said["progress"]:
        return None
    left = {*gone}
    with np.load(file, allow_pickle=False) as members:
        arrays = [
            np.zeros(0) if index in left else members[member(index)] for index in range(len(names))
        ]
    progress = said["progress"] | {GONE: gone}
    return Checkpoint(full.step, full.stage, said["settings"], progress, names, arrays)
