"""One checkpoint: a run at one step, and its format on disk."""

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
    """The moment within a step at which a checkpoint was made."""

    TRAINING = 0
    TRAINED = 1  # an epoch's steps are done; its validation is not
    EPOCH = 2
    ALL = 3


def number_of(step: int, stage: Stage) -> int:
    """Return the number of a checkpoint: the later, the larger."""
    return step * len(Stage) + stage


@dataclass(frozen=True)
class Place:
    """The place of a fit.

    Attributes:
        step: how many steps it has done, over all epochs.
        epoch: the current one, from 0.
        done: how many steps of that epoch are done.
        passes: how often it has gone through the data.
        seen: how many batches of the present pass it has had.
        stage: the moment within the step.
        stopped: whether a callback has ended the fit.
        first: the epoch that the fit began with.
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
        step: training steps done, over all epochs.
        stage: the moment within the step.
        settings: those that must be unchanged when the run resumes, name -> value.
        progress: the place in the run, and the states of callbacks, as JSON knows them.
        names: of the arrays.
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
        """The number by which it is found; see `number_of`."""
        return number_of(self.step, self.stage)

    @property
    def place(self) -> Place:
        """The place of the fit."""
        return Place(**self.progress["place"])

    @property
    def run(self) -> int:
        """A random number of the run, the same on all workers; see `run_of`."""
        return run_of(self.progress)

    def write(self, file: Sink) -> None:
        """Write it as an .npz file, which `numpy.load` reads: `about` is JSON, the rest arrays.

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
        """Read the bytes of `to_bytes`; the store knows whether they are complete."""
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            said = json.loads(members[ABOUT].tobytes())
            arrays = [members[member(index)] for index in range(len(said["names"]))]
        stage = Stage(said["stage"])
        return cls(said["step"], stage, said["settings"], said["progress"], said["names"], arrays)


def run_of(progress: Mapping[str, Any]) -> int:
    """Return the run's number from the progress in a checkpoint.

    UNKNOWN_RUN if it was written before runs had a number.
    """
    return int(progress.get(RUN, UNKNOWN_RUN))


def about(file: Path | BinaryIO) -> dict[str, Any]:
    """Return the description in a checkpoint's file (step, stage, settings) without its arrays.

    It does not check whether the file is complete. If it is no checkpoint, NumPy raises an error.
    """
    with np.load(file, allow_pickle=False) as members:
        found: dict[str, Any] = json.loads(members[ABOUT].tobytes())
    return found


def variable_names(checkpoint: Checkpoint) -> list[str]:
    """Return the names of its variables.

    In a checkpoint of version 0.1, the last one may be Keras's global generator.
    """
    return [name for name in checkpoint.names if not name.startswith(KEPT_STATE)]


def uncounted(names: Sequence[str]) -> list[str]:
    """Return variables' names without parts that depend on more than the model and its optimizer.

    Keras numbers layers of one name in a process, so a worker that has made another model before
    has other numbers. And Keras names the parts of a LossScaleOptimizer differently if a step has
    built it.
    """
    return [COUNTED.sub("", name).removeprefix(SCALED) for name in names]


def add_about(members: zipfile.ZipFile, said: Mapping[str, Any]) -> None:
    """Add the result of `about` to a checkpoint's file."""
    add_array(members, f"{ABOUT}.npy", np.frombuffer(json.dumps(said).encode(), np.uint8))


def add_array(members: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Add an array to a checkpoint's file, under a member's name."""
    with members.open(name, "w", force_zip64=True) as opened:
        np.lib.format.write_array(opened, np.asanyarray(array), allow_pickle=False)


def member(index: int) -> str:
    """Return the name of an array's member in a checkpoint's file."""
    return f"variable_{index:05d}.npy"
