"""Finds the checkpoints of a run, without reading more than their names and settings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from local_cluster.settings.given_variables import services
from local_cluster.shared_folder import SharedFolder

FIT = re.compile(r"fit-(?P<number>[0-9]+)")
NAME = re.compile(r"(?P<step>[0-9]+).*\.npz")
GLOBAL_BATCH = re.compile(rb'"TRAINER_GLOBAL_BATCH_SIZE": "(?P<size>[0-9]{1,18})"')
CHECKPOINTS = "checkpoints"
PIECE = 1 << 20
OVERLAP = 100
"""Longer than the searched text, which may extend over two pieces."""


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint's file.

    Attributes:
        folder: the file's folder.
        name: the file's name.
        fit: the number of the script's fit, from 1; 0: the trainer's own.
    """

    folder: SharedFolder
    name: str
    fit: int

    @property
    def step(self) -> int:
        """The step after which it was saved."""
        match = NAME.fullmatch(self.name)
        return int(match["step"]) if match else 0

    @property
    def place(self) -> str:
        """Its place in words; a script's fits are named by their number."""
        return f"the newest checkpoint of fit {self.fit}" if self.fit else f"step {self.step}"


def newest(run: SharedFolder, workers: int) -> CheckpointFile | None:
    """Return the newest checkpoint of any worker of a run; a script's later fits are newer."""
    found = [
        checkpoint
        for service in services(workers)
        for home in _homes(run.below(service))
        for checkpoint in _checkpoints_of(home)
    ]
    return max(found, key=lambda one: (one.fit, one.step), default=None)


def _homes(worker: SharedFolder) -> list[SharedFolder]:
    """Return the folders that may have checkpoints: the worker's own, and those of its fits."""
    return [worker, *(worker.below(name) for name in worker.names() if fit_of(name))]


def _checkpoints_of(home: SharedFolder) -> list[CheckpointFile]:
    folder, fit = home.below(CHECKPOINTS), fit_of(home.path.name)
    names = [name for name in folder.names() if NAME.fullmatch(name) and folder.has_file(name)]
    return [CheckpointFile(folder, name, fit) for name in names]


def fit_of(name: str) -> int:
    """Return the number of the fit in a folder's name, from 1; 0: it is not a fit's folder."""
    match = FIT.fullmatch(name)
    return int(match["number"]) if match else 0


def global_batch(checkpoint: CheckpointFile) -> str | None:
    """Return the run's global batch size, which a checkpoint holds as uncompressed JSON."""
    try:
        with checkpoint.folder.open(checkpoint.name) as file:
            seen = b""
            while piece := file.read(PIECE):
                seen = seen[-OVERLAP:] + piece
                if match := GLOBAL_BATCH.search(seen):
                    return match["size"].decode()
    except OSError:
        pass
    return None
