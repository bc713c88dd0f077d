"""Reports the state of this process to the entrypoint, which answers `status` (STATUS_FILE)."""

import json
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cluster_trainer.files import write_whole

BETWEEN_SECONDS = 1.0


class StatusFile:
    """A small file that is complete or absent; if it cannot be written, nothing happens.

    Args:
        path: the file; None: it is not written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = 0.0
        self._told: dict[str, Any] = {"state": None, "since": 0.0}

    def tell(
        self,
        state: str,
        detail: str = "",
        *,
        within_seconds: float | None = None,
        at_once: bool = True,
        **place: Any,
    ) -> None:
        """Report the state of the process.

        Args:
            state: starting, training, saving or running.
            detail: details, in a few words.
            within_seconds: the time within which the next report is due; None: there is no limit.
            at_once: whether to write now. Otherwise it is written at most once a second, unless the
                state has changed.
            place: `step`, `epoch` (from 1), `epochs`, `examples_per_second`, `checkpoint_step`,
                `checkpoint_at` (by the monotonic clock), `slow` (why this worker holds the others
                up, or an empty text), `network` (why the network is the limit, or an empty text),
                `sync_every` (after how many steps weights are averaged); what is not given stays
                as it was.
        """
        now = time.monotonic()
        is_new = state != self._told["state"]
        if self._path is None or not (at_once or is_new or now >= self._written + BETWEEN_SECONDS):
            return
        since = now if is_new else self._told["since"]
        until = None if within_seconds is None else now + within_seconds
        told = {"state": state, "detail": detail, "since": since, "until": until}
        self._told, self._written = {**self._told, **told, **place}, now
        with suppress(OSError):
            write_whole(self._path, json.dumps(self._told, default=str).encode(), durable=False)


@cache
def status_file(path: Path | None) -> StatusFile:
    """Return the one object of this process for a path."""
    return StatusFile(path)
