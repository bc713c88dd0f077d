"""What a run has left in its folder, read back; what is not there is None, or empty."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_trainer.report.curves import Curves, read_curves
from cluster_trainer.results import journal

METRICS, RESULT, SETTINGS = "metrics.jsonl", "result.json", "cluster.env"
PREDICTIONS = "predictions.json"
TENSORBOARD = "tensorboard"
WORKER = re.compile(r"(?:worker|chief)-?(\d*)")
LINE = re.compile(r"([A-Z0-9_]+)=(.*)")
Json = dict[str, Any]


@dataclass(frozen=True)
class Worker:
    """One worker's folder.

    Attributes:
        name: `worker-0`.
        result: of result.json.
        metrics: the lines of metrics.jsonl.
        events: of events.jsonl, by time.
        curves: of its event files; None: it has none.
        predictions: of predictions.json.
    """

    name: str
    result: Json = field(default_factory=dict)
    metrics: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    curves: Curves | None = None
    predictions: Json | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has left anything that a report can show."""
        return bool(self.result or self.metrics or self.events or self.curves)


@dataclass(frozen=True)
class Run:
    """A run's folder.

    Attributes:
        name: the folder's.
        workers: in the order of their numbers, the chief first.
        given: what a local cluster was started with (cluster.env), name -> text.
    """

    name: str
    workers: list[Worker]
    given: Mapping[str, str]

    @property
    def chief(self) -> Worker:
        """The worker whose numbers are those of all."""
        return self.workers[0]

    @property
    def settings(self) -> Json:
        """All settings of the chief, name -> value."""
        return self._of_chief("settings")

    @property
    def versions(self) -> Json:
        """What it ran with, name -> version."""
        return self._of_chief("versions")

    @property
    def began(self) -> float | None:
        """When its first event was, in seconds since 1970; None: not recorded."""
        return min((one.events[0]["time"] for one in self.workers if one.events), default=None)

    def _of_chief(self, part: str) -> Json:
        found = self.chief.result.get(part)
        return found if isinstance(found, dict) else {}


def read_run(folder: Path) -> Run:
    """Read a run.

    Raises:
        ValueError: the folder holds none.
    """
    found = [(one, WORKER.fullmatch(one.name)) for one in _folders(folder)]
    numbered = [(match[0] != "chief", int(match[1] or 0), one) for one, match in found if match]
    workers = [_read_worker(one) for _, _, one in sorted(numbered)]
    if not any(one.is_known for one in workers):
        raise ValueError("a folder of a run, with worker-0/ in it")
    return Run(folder.resolve().name, workers, _given(folder / SETTINGS))


def _folders(folder: Path) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if one.is_dir()]
    except OSError:
        return []


def _read_worker(folder: Path) -> Worker:
    events = journal.read(folder / journal.FILE)
    predictions = _json(_text(folder / PREDICTIONS))
    return Worker(
        name=folder.name,
        result=_json(_text(folder / RESULT)) or {},
        metrics=[line for text in _text(folder / METRICS).splitlines() if (line := _json(text))],
        events=sorted(events, key=lambda event: event["time"]),
        curves=read_curves(folder / TENSORBOARD),
        predictions=predictions,
    )


def _given(file: Path) -> dict[str, str]:
    """Return what cluster.env says; a value that needs it is a JSON string there."""
    matches = (LINE.fullmatch(line) for line in _text(file).splitlines())
    return {match[1]: _unquoted(match[2]) for match in matches if match and match[2]}


def _unquoted(text: str) -> str:
    try:
        value = json.loads(text) if text.startswith('"') else text
    except ValueError:
        return text
    return str(value)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Json | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
