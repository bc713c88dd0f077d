"""The checkpoints of a run, as far as one can tell from outside of them."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from local_cluster.settings.given import services

FIT = re.compile(r"fit-(?P<number>[0-9]+)")
NAME = re.compile(r"(?P<step>[0-9]+).*\.npz")
GLOBAL_BATCH = re.compile(rb'"TRAINER_GLOBAL_BATCH_SIZE": "(?P<size>[0-9]+)"')


def newest(folder: Path, workers: int) -> Path | None:
    """Return the newest checkpoint that any of a run's workers has, a script's last fit's first."""
    found = [
        file
        for service in services(workers)
        for place in ("checkpoints", "fit-*/checkpoints")
        for file in (folder / service).glob(f"{place}/*.npz")
        if NAME.fullmatch(file.name)
    ]
    return max(found, key=lambda file: (fit_of(_home_of(file)), step_of(file)), default=None)


def fit_of(folder: Path) -> int:
    """Return which of a script's fits a folder is of, counted from 1; 0: the trainer's own."""
    match = FIT.fullmatch(folder.name)
    return int(match["number"]) if match else 0


def place_of(file: Path) -> str:
    """Return what a checkpoint was made after, for people; that of a fit is numbered otherwise."""
    fit = fit_of(_home_of(file))
    return f"the newest checkpoint of fit {fit}" if fit else f"step {step_of(file)}"


def _home_of(file: Path) -> Path:
    """Return the folder of the fit, or of the trainer's worker, that a checkpoint is of."""
    return file.parent.parent


def step_of(file: Path) -> int:
    """Return the step that a checkpoint was made after."""
    match = NAME.fullmatch(file.name)
    return int(match["step"]) if match else 0


def global_batch(file: Path) -> str | None:
    """Return the run's examples a step; a checkpoint says so as JSON that is not compressed."""
    with file.open("rb") as opened:
        try:
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return None
        with content:
            match = GLOBAL_BATCH.search(content)
            return match["size"].decode() if match else None
