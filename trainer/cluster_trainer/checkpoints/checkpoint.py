"""One checkpoint: the state of a run at one step, and its format on disk."""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

FORM = 2
ABOUT = "about"
RUN, UNKNOWN_RUN = "run", 0
KEPT_STATE = "state of a callback or metric, array "
COUNTED = re.compile(r"_\d+(?=[/_ ]|$)")
SCALED = "loss_scale_optimizer/"


class Sink(Protocol):
    """Takes a file's content in pieces."""

    def write(self, piece: Any, /) -> Any:
        """Take the next bytes."""

    def flush(self) -> None:
        """Flush the bytes."""


class Stage(IntEnum):
    """The moment after a step at which a checkpoint was made."""

    TRAINING = 0  # within an epoch
    TRAINED = 1  # an epoch's steps are done, and its validation is not
    EPOCH = 2  # an epoch is over
    ALL = 3  # the fit is over


def number_of(step: int, stage: Stage) -> int:
    """Return the number of a checkpoint; later checkpoints have larger numbers."""
    return step * len(Stage) + stage


@dataclass(frozen=True)
class Place:
    """The place of a fit.

    Attributes:
        step: the number of steps done, over all epochs.
        epoch: the current epoch, from 0.
        done: the number of steps done in that epoch.
        passes: the number of finished passes through the data.
        seen: the number of batches used in the current pass.
        stage: the moment after the step.
        stopped: whether a callback has ended the fit.
        first: the epoch with which the fit began.
    """

    step: int = 0
    epoch: int = 0
    done: int = 0
    passes: int = 0
    seen: int = 0
    stage: Stage = Stage.TRAINING
    stopped: bool = False
    first: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to resume as if it had never stopped.

    Attributes:
        step: the number of training steps done, over all epochs.
        stage: the moment after the step.
        settings: the facts that must be unchanged when the run resumes: name -> value.
        progress: the place in the run, and the states of callbacks, as JSON values.
        names: the names of the arrays.
        arrays: the values of the model's and the optimizer's variables, and of callbacks' states.
    """

    step: int
    stage: Stage
    settings: Mapping[str, str]
    progress: Mapping[str, Any]
    names: Sequence[str]
    arrays: Sequence[np.ndarray]

    @property
    def number(self) -> int:
        """The number of the checkpoint; see `number_of`."""
        return number_of(self.step, self.stage)

    @property
    def place(self) -> Place:
        """The place of the fit."""
        return Place(**self.progress["place"])

    @property
    def run(self) -> int:
        """The random number of the run, the same on all workers; see `run_of`."""
        return run_of(self.progress)

    def write(self, file: Sink) -> None:
        """Write the checkpoint as an .npz file: the member `about` is JSON, the others are arrays.

        NumPy writes a few megabytes at a time, so no second copy of the arrays is made.
        """
        said = {
            "form": FORM,
            "step": self.step,
            "stage": self.stage,
            "settings": dict(self.settings),
            "progress": dict(self.progress),
            "names": list(self.names),
        }
        with zipfile.ZipFile(file, "w") as members:  # type: ignore[call-overload]  # it need not be read
            add_about(members, said)
            for index, array in enumerate(self.arrays):
                add_array(members, member(index), array)

    def to_bytes(self) -> bytes:
        """Return the bytes that `write` writes."""
        file = io.BytesIO()
        self.write(file)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Checkpoint":
        """Read the bytes of `to_bytes`, which are not checked here; see Store."""
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            said = json.loads(members[ABOUT].tobytes())
            arrays = [members[member(index)] for index in range(len(said["names"]))]
        stage = Stage(said["stage"])
        return cls(said["step"], stage, said["settings"], said["progress"], said["names"], arrays)


def run_of(progress: Mapping[str, Any]) -> int:
    """Return the run's number from the progress in a checkpoint.

    It is UNKNOWN_RUN in checkpoints from before runs had numbers.
    """
    return int(progress.get(RUN, UNKNOWN_RUN))


def about(file: Path | BinaryIO) -> dict[str, Any]:
    """Return the description in a checkpoint's file (step, stage, settings), without the arrays.

    The file's checksum is not checked. If the file is not a checkpoint, NumPy raises an error.
    """
    with np.load(file, allow_pickle=False) as members:
        found: dict[str, Any] = json.loads(members[ABOUT].tobytes())
    return found


def variable_names(checkpoint: Checkpoint) -> list[str]:
    """Return the names of a checkpoint's variables.

    In a checkpoint of version 0.1, the last variable may be Keras's global generator.
    """
    return [name for name in checkpoint.names if not name.startswith(KEPT_STATE)]


def uncounted(names: Sequence[str]) -> list[str]:
    """Return variables' names without parts that depend on more than the model and its optimizer.

    Keras numbers the layers of a process that have the same name. So a worker that has created
    another model before has other numbers. Keras also names the parts of a LossScaleOptimizer
    differently if a step has built it.
    """
    return [COUNTED.sub("", name).removeprefix(SCALED) for name in names]


def add_about(members: zipfile.ZipFile, said: Mapping[str, Any]) -> None:
    """Add the description that `about` returns to a checkpoint's file."""
    add_array(members, f"{ABOUT}.npy", np.frombuffer(json.dumps(said).encode(), np.uint8))


def add_array(members: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Add an array to a checkpoint's file, under a member's name."""
    with members.open(name, "w", force_zip64=True) as opened:
        np.lib.format.write_array(opened, np.asanyarray(array), allow_pickle=False)


def member(index: int) -> str:
    """Return the name of an array's member in a checkpoint's file."""
    return f"variable_{index:05d}.npy"
