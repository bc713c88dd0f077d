"""Reads the records of a script's fits: checkpoints, metrics of epochs, curves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster_trainer.checkpoints.store import NAME
from cluster_trainer.report import forms
from cluster_trainer.report.curves import TENSORBOARD, Curves, read_curves
from cluster_trainer.report.reading import FileReader, Json
from cluster_trainer.results.about_file import FILE as ABOUT
from cluster_trainer.results.metrics_file import FILE as METRICS

FIT = re.compile(r"fit-([0-9]{1,9})")
CHECKPOINTS = "checkpoints"
MAX_FITS = 12
"""If a script has more fits, only the first and the last ones get their own part."""


@dataclass(frozen=True)
class RecordedFit:
    """One fit of a script, on one worker.

    Attributes:
        name: the name of its folder, such as `fit-1`.
        step: the step of its newest checkpoint; None: it has none.
        metrics: the lines of its metrics.jsonl.
        curves: the numbers of its event files; None: it has none.
        about: the content of its about.json.
    """

    name: str
    step: int | None
    metrics: Sequence[Json] = ()
    curves: Curves | None = None
    about: Json = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the fit, from 1."""
        return int(self.name.rpartition("-")[2])

    @property
    def is_recorded(self) -> bool:
        """Whether it has records besides checkpoints."""
        return bool(self.metrics or self.curves or self.about)


def first_and_last(fits: Sequence[str]) -> list[str]:
    """Return the names of the fits that get their own part: all, or the first and the last ones."""
    half = MAX_FITS // 2
    return [*fits] if len(fits) <= MAX_FITS else [*fits[:half], *fits[-half:]]


def fits_in(folder: Path, reading: FileReader) -> list[RecordedFit]:
    """Return the fits with a folder in a worker's folder, by number."""
    try:
        found = [one for one in folder.iterdir() if FIT.fullmatch(one.name)]
    except OSError as error:
        reading.note(folder, error.strerror)
        return []
    fits = [_fit_in(one, reading) for one in found]
    return sorted(fits, key=lambda fit: fit.number)


def _fit_in(folder: Path, reading: FileReader) -> RecordedFit:
    return RecordedFit(
        name=folder.name,
        step=_newest_step(folder / CHECKPOINTS),
        metrics=reading.lines(folder / METRICS, forms.METRICS),
        curves=read_curves(folder / TENSORBOARD, reading),
        about=reading.document(folder / ABOUT, forms.ABOUT) or {},
    )


def _newest_step(checkpoints: Path) -> int | None:
    try:
        found = [NAME.fullmatch(one.name) for one in checkpoints.iterdir()]
    except OSError:
        return None
    return max((int(match["step"]) for match in found if match), default=None)
