"""Reads a run from its folder. Facts that are not recorded are None or empty."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster_trainer.report import forms
from cluster_trainer.report.curves import TENSORBOARD, Curves, joined, read_curves
from cluster_trainer.report.fits import RecordedFit, fits_in
from cluster_trainer.report.forms import Predicted
from cluster_trainer.report.reading import FileReader, Json
from cluster_trainer.results import journal
from cluster_trainer.results.metrics_file import FILE as METRICS

RESULT, SETTINGS = "result.json", "cluster.json"
PREDICTIONS = "predictions.json"
ENDED = "ENDED"
WORKER = re.compile(r"(?:worker|chief)-?([0-9]{0,9})")
SCRIPT = "SCRIPT"


@dataclass(frozen=True)
class Worker:
    """One worker's folder.

    Attributes:
        name: the name of the folder, such as `worker-0`.
        result: the content of result.json.
        metrics: the lines of metrics.jsonl.
        events: the lines of events.jsonl, by time.
        curves: the numbers in its event files, and in those of its fits; None: it has none.
        predicted: the content of predictions.json; None: there is none.
        fits: the fits of a user's script.
        has_ended: whether that script has ended well.
    """

    name: str
    result: Json = field(default_factory=dict)
    metrics: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    curves: Curves | None = None
    predicted: Predicted | None = None
    fits: Sequence[RecordedFit] = ()
    has_ended: bool = False

    def of_fit(self, name: str) -> "Worker":
        """Return the part of one fit."""
        fit = next((one for one in self.fits if one.name == name), None)
        return Worker(
            name=self.name,
            metrics=[*fit.metrics] if fit else [],
            events=[event for event in self.events if event.get("fit") == name],
            curves=fit.curves if fit else None,
            fits=[fit] if fit else [],
        )


@dataclass(frozen=True)
class RecordedRun:
    """A run's folder.

    Attributes:
        name: the name of the folder.
        workers: the workers by number, the chief first.
        given: the variables with which a local cluster was started (cluster.json): name -> text.
        unread: a sentence about each part of the files that could not be read.
    """

    name: str
    workers: list[Worker]
    given: Mapping[str, str]
    unread: Sequence[str] = ()

    @property
    def chief(self) -> Worker:
        """The chief, which has recorded the values that are the same on all workers."""
        return self.workers[0]

    @property
    def settings(self) -> Json:
        """The chief's settings that have an effect: name -> value."""
        return self.of_chief("settings")

    @property
    def versions(self) -> Json:
        """The versions of the packages that it used: name -> version."""
        return self.of_chief("versions")

    @property
    def script(self) -> str:
        """The path of the user's script; empty: there is none, or it is unknown."""
        if given := self.given.get(SCRIPT):
            return given
        path = self.of_chief("script").get("path")
        return path if isinstance(path, str) else ""

    @property
    def fits(self) -> list[str]:
        """The names of the script's fits with records besides checkpoints, by number."""
        told = {event.get("fit") for worker in self.workers for event in worker.events}
        fits = [fit for worker in self.workers for fit in worker.fits]
        recorded = {one.name: one.number for one in fits if one.is_recorded or one.name in told}
        return sorted(recorded, key=lambda name: recorded[name])

    def of_fit(self, name: str) -> "RecordedRun":
        """Return the part of one fit."""
        return replace(self, workers=[worker.of_fit(name) for worker in self.workers])

    @property
    def began(self) -> float | None:
        """The time of the first event, in seconds since 1970; None: not recorded."""
        return min((one.events[0]["time"] for one in self.workers if one.events), default=None)

    def of_chief(self, part: str) -> Json:
        """Return an object in the chief's result.json; {}: there is none.

        A script's fits have about.json instead. There the last fit that has the object counts.
        """
        found = self.fact(part)
        return found if isinstance(found, dict) else {}

    def fact(self, name: str) -> Any:
        """Return a member of result.json or about.json, as `of_chief`; None: not recorded."""
        told = [self.chief.result, *(fit.about for fit in reversed(self.chief.fits))]
        return next((one[name] for one in told if one.get(name) is not None), None)


def read_run(folder: Path) -> RecordedRun:
    """Read a run.

    Raises:
        ValueError: the folder is not a run's.
        OSError: the folder cannot be read.
    """
    workers = worker_folders(folder)
    if not workers:
        raise ValueError("a folder of a run, with worker-0/ in it")
    reading = FileReader(folder)
    read = [_read_worker(one, reading) for one in workers]
    cluster = reading.document(folder / SETTINGS, forms.CLUSTER) or {"settings": {}}
    return RecordedRun(folder.resolve().name, read, cluster["settings"], reading.unread)


def worker_folders(folder: Path) -> list[Path]:
    """Return the workers' folders in a run's folder, the chief's first; [] if it is not a run's.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        found = [(one, WORKER.fullmatch(one.name)) for one in folder.iterdir() if one.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbered = [
        (not one.name.startswith("chief"), int(match[1] or 0), one) for one, match in found if match
    ]
    return [one for _, _, one in sorted(numbered)]


def _read_worker(folder: Path, reading: FileReader) -> Worker:
    events = reading.lines(folder / journal.FILE, forms.EVENT)
    fits = fits_in(folder, reading)
    own = read_curves(folder / TENSORBOARD, reading)
    return Worker(
        name=folder.name,
        result=reading.document(folder / RESULT, forms.RESULT) or {},
        metrics=reading.lines(folder / METRICS, forms.METRICS),
        events=sorted(events, key=lambda event: event["time"]),
        curves=joined([own, *(fit.curves for fit in fits)]),
        predicted=reading.document(folder / PREDICTIONS, forms.PREDICTED),
        fits=fits,
        has_ended=reading.has(folder / ENDED),
    )
