"""events.jsonl: the events of a run on one worker, with their times. Reports are made from it.

It has one object per line. `time` is in seconds since 1970, by the worker's clock. `state` is the
worker's state from then on: waiting (for the others, at the gate), starting, training, evaluating,
saving, restarting, stopping, and at the end done, stopped or failed. Lines `by` the entrypoint are
copied from its notes (EVENTS_FILE) when the trainer starts. A line with `seconds` instead of a
state shows how the time of an epoch was spent. A line with `network` tells why the network limits
training from then on; if the text is empty, it no longer does. In a script that calls Keras's own
`fit`, `fit` names the fit of a line, `fit-1` the first; a line without it is about the script.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_trainer.files import append_whole

FILE = "events.jsonl"
ENTRYPOINT = "entrypoint"
END_OF_TIME = 253_402_300_799
"""The last second of the year 9999, and of Python's dates, since 1970."""
log = logging.getLogger("trainer")


class Journal:
    """A worker's events.jsonl; lines of earlier starts stay.

    A full disk causes a warning and loses lines, but does not end the run.

    Args:
        folder: the worker's own folder.
        fit: the fit of a script that all lines are about; empty: they are about the run.
    """

    def __init__(self, folder: Path, fit: str = "") -> None:
        self._folder, self._file = folder, folder / FILE
        self._of = {"fit": fit} if fit else {}
        self._has_warned = False

    def note(self, state: str, detail: str = "", **more: Any) -> None:
        """Note the worker's state from now on."""
        self._add({"time": time.time(), "state": state, "detail": detail, **self._of, **more})

    def epoch(self, epoch: int, step: int, seconds: dict[str, float]) -> None:
        """Note how the seconds of an epoch were spent, name -> seconds."""
        rounded = {name: round(value, 4) for name, value in seconds.items()}
        place = {"time": time.time(), "epoch": epoch, "step": step}
        self._add({**place, "seconds": rounded, **self._of})

    def network(self, reason: str) -> None:
        """Note why the network limits training from now on; "" if it no longer does."""
        self._add({"time": time.time(), "network": reason, **self._of})

    def of_fit(self, name: str) -> "Journal":
        """Return a journal in the same file whose lines are about one fit of a script."""
        return Journal(self._folder, name)

    def take_over(self, events_file: Path | None) -> None:
        """Add the entrypoint's notes since the last time."""
        if events_file is None:
            return
        latest = max((one["time"] for one in read(self._file) if one.get("by")), default=0.0)
        for event in read(events_file):
            if event["time"] > latest:
                self._add(event)

    def _add(self, event: Mapping[str, Any]) -> None:
        """Add a line; if the last line is incomplete, begin a new one first."""
        line = json.dumps(event).encode() + b"\n"
        try:
            append_whole(self._file, line if self._ends_with_a_line() else b"\n" + line)
        except OSError as error:
            if not self._has_warned:
                log.warning("%s could not be written: %s; training continues", FILE, error)
            self._has_warned = True

    def _ends_with_a_line(self) -> bool:
        """Tell whether the file ends with a complete line, or is empty."""
        try:
            with self._file.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) == b"\n"
        except OSError:  # it is empty
            return True


def read(file: Path) -> list[dict[str, Any]]:
    """Return the events of a file in their order; nothing if there are none.

    Invalid lines, such as the last one of a full disk, are omitted.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [event for line in lines if (event := _event(line))]


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and is_time(event.get("time")) else None


def is_time(value: Any) -> bool:
    """Tell whether a value is a time in seconds since 1970 that Python's dates can express."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value <= END_OF_TIME
