"""What the fits of a user's own script have left: checkpoints, numbers of epochs, curves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster_trainer.checkpoints.checkpoint import about
from cluster_trainer.checkpoints.store import NAME
from cluster_trainer.report import checked
from cluster_trainer.report.curves import TENSORBOARD, Curves, read_curves
from cluster_trainer.report.reading import FileReader, Json, shown
from cluster_trainer.results.about_file import FILE as ABOUT
from cluster_trainer.results.metrics_file import FILE as METRICS

FIT = re.compile(r"fit-([0-9]{1,9})")
CHECKPOINTS = "checkpoints"
SCRIPT = "the script"
MAX_FITS = 12
"""Of a script with more, the first ones and the last are shown by themselves."""


@dataclass(frozen=True)
class RecordedFit:
    """One fit of a script, on one worker.

    Attributes:
        name: `fit-1`.
        step: of its newest checkpoint; None: it has none.
        script: the file's name, without its folder; empty: not known.
        metrics: the lines of its metrics.jsonl.
        curves: of its event files; None: it has none.
        about: of its about.json.
    """

    name: str
    step: int | None
    script: str = ""
    metrics: Sequence[Json] = ()
    curves: Curves | None = None
    about: Json = field(default_factory=dict)

    @property
    def number(self) -> int:
        """From 1."""
        return int(self.name.rpartition("-")[2])

    @property
    def is_recorded(self) -> bool:
        """Whether it has left more than checkpoints."""
        return bool(self.metrics or self.curves or self.about)


def first_and_last(fits: Sequence[str]) -> list[str]:
    """Return the names of the fits to be shown by themselves, out of those of all."""
    half = MAX_FITS // 2
    return [*fits] if len(fits) <= MAX_FITS else [*fits[:half], *fits[-half:]]


def fits_in(folder: Path, reading: FileReader) -> list[RecordedFit]:
    """Return the fits that have left something in a worker's folder, in their order."""
    try:
        found = [(FIT.fullmatch(one.name), one) for one in folder.iterdir()]
    except OSError as error:
        reading.note(folder, error.strerror)
        return []
    numbered = sorted((int(match[1]), one) for match, one in found if match)
    return [_fit_in(one, reading) for _, one in numbered]


def _fit_in(folder: Path, reading: FileReader) -> RecordedFit:
    step, script = _newest(folder, reading)
    metrics = reading.lines(folder / METRICS, checked.metrics)
    curves = read_curves(folder / TENSORBOARD, reading)
    told = reading.document(folder / ABOUT, checked.ABOUT) or {}
    return RecordedFit(folder.name, step, script, metrics, curves, told)


def _newest(folder: Path, reading: FileReader) -> tuple[int | None, str]:
    """Return the step of a fit's newest checkpoint, and the script that it is of."""
    try:
        found = [(NAME.fullmatch(one.name), one) for one in (folder / CHECKPOINTS).iterdir()]
    except OSError:
        found = []
    numbered = [(int(match["step"]), int(match["stage"]), one) for match, one in found if match]
    if not numbered:
        return None, ""
    step, _, newest = max(numbered)
    try:
        script = about(newest)["settings"].get(SCRIPT, "")
    except Exception as error:  # noqa: BLE001  whatever NumPy meets in a file that is broken
        reading.note(newest, f"no checkpoint that can be read: {shown(str(error))}")
        script = ""
    return step, script if isinstance(script, str) else ""
