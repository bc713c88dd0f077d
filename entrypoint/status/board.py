"""The writing side of the status: the entrypoint notes each change of this worker's state.

Each start has a folder of small files, each complete or absent: `state.json` (the entrypoint's
state), `line` (the last printed line), `command.json` (STATUS_FILE, the command's own report),
`deadline` (DEADLINE_FILE, the time by which the command's present call must end), `network.json`
(the measured links). The file `events.jsonl` (EVENTS_FILE) has a line for each noted event, for the
command. If a file cannot be written, the status is not shown, and nothing else happens.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.status.places import (
    StatusKeeper,
    folders,
    hold,
    is_abandoned,
    make_folder,
    remove_folder,
)
from entrypoint.status.reading import (
    COMMAND_FILE,
    DEADLINE_FILE,
    LINE_FILE,
    NETWORK_FILE,
    STATE_FILE,
    read_entrypoints,
    read_owner,
)

if TYPE_CHECKING:
    from entrypoint.network.link import Link

WAITING = "waiting"
"""Waits for other workers at the gate; the detail names those that are missing."""
STARTING = "starting"
"""Packages, settings, or the trainer before its first step."""
RUNNING = "running"
"""A command that has not reported its state."""
RESTARTING = "restarting"
"""The command has ended, and starts again after a pause."""
STOPPING = "stopping"
"""The command was asked to end, and its grace period runs."""
DONE, STOPPED, FAILED = "done", "stopped", "failed"
LONGEST_LINE = 1000
EVENTS_FILE = "events.jsonl"


class Board:
    """Notes the state of one start of the entrypoint; without a folder, it does nothing.

    Attributes:
        folder: the folder of this start; None if none can be written.
        lock: a file descriptor in it, locked as long as this process lives.
    """

    def __init__(self, worker: str = "", folder: Path | None = None) -> None:
        self._worker, self.folder = worker, folder
        self.lock: int | None = None
        self._owner = StatusKeeper.of_this_process() if folder else None
        self._state, self._since, self._until = "", 0.0, 0.0
        self.restarts = self.waits = 0
        self.waited_seconds = 0.0

    @classmethod
    def put_up(cls, worker: str, within: Sequence[Path]) -> Board:
        """Create a board in the first writable place; remove the folders of dead processes."""
        for folder in folders(within):
            owner = read_owner(folder)
            if owner and _is_dead(owner, folder):
                remove_folder(folder)
        board = cls(worker, make_folder(within))
        if board.folder:
            board.lock = hold(board.folder)
        return board

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that give the command its status files and the file of events."""
        if not self.folder:
            return {}
        files = {
            "STATUS_FILE": COMMAND_FILE,
            "EVENTS_FILE": EVENTS_FILE,
            "DEADLINE_FILE": DEADLINE_FILE,
        }
        return {name: str(self.folder / file) for name, file in files.items()}

    def note(
        self,
        state: str,
        detail: str = "",
        *,
        within_seconds: float | None = None,
        anew: bool = False,
    ) -> None:
        """Note a new state, or a new detail of the current state, which keeps its time limit.

        `within_seconds` is how long the state may last; None: unknown. `anew` restarts that time
        without a new event, though the state is the same.
        """
        if state != self._state:
            self._state, self._since, anew = state, time.monotonic(), False
            self._until = self._since + within_seconds if within_seconds else 0.0
        elif anew and within_seconds:
            self._until = time.monotonic() + within_seconds
        if self.folder is None or self._owner is None:
            return
        self._catch_up(self.folder)
        members = {
            "machine": self._owner.machine,
            "pid": self._owner.pid,
            "started": self._owner.started,
            "worker": self._worker,
            "state": state,
            "detail": detail,
            "since": self._since,
            "until": self._until or None,
            "restarts": self.restarts,
            "waits": self.waits,
            "waited_seconds": self.waited_seconds,
        }
        _write(self.folder / STATE_FILE, json.dumps(members).encode())
        if not anew:
            self._add_event(self.folder, state, detail)

    def note_start(self, state: str, restarts: int) -> None:
        """Note that the command starts; remove its earlier reports. `restarts` counts restarts."""
        self.restarts, self._state = restarts, ""
        if self.folder:
            for file in (COMMAND_FILE, DEADLINE_FILE):
                with suppress(OSError):
                    (self.folder / file).unlink()
        self.note(state)

    def note_wait(self, seconds: float) -> None:
        """Note that a wait at the gate is over; the next state records it."""
        self.waits += 1
        self.waited_seconds += seconds

    @contextmanager
    def waiting(
        self, detail: str, *, within_seconds: float | None
    ) -> Iterator[Callable[..., None]]:
        """Show a wait for the others while the command runs, then the earlier state again.

        The yielded function notes new details of the wait, like `note`. This may run in a child
        process. If another process notes meanwhile that the command is stopping, that state stays.
        """
        before, started = (self._state, self._since, self._until), time.monotonic()
        self._note_beside(WAITING, detail, within_seconds=within_seconds)
        try:
            yield functools.partial(self._note_beside, WAITING, within_seconds=within_seconds)
        finally:
            self.note_wait(time.monotonic() - started)
            self._state, self._since, self._until = before
            self._note_beside(self._state, "")

    def _note_beside(
        self,
        state: str,
        detail: str,
        *,
        within_seconds: float | None = None,
        anew: bool = False,
    ) -> None:
        """Note a state, unless the supervising process has noted that the command is stopping."""
        if self.folder and read_entrypoints(self.folder).state != STOPPING:
            self.note(state, detail, within_seconds=within_seconds, anew=anew)

    def _catch_up(self, folder: Path) -> None:
        """Add the waits that another process of this start has noted."""
        there = read_entrypoints(folder)
        if there.waits > self.waits:
            self.waits, self.waited_seconds = there.waits, there.waited_seconds

    def note_network(self, links: Sequence[Link]) -> None:
        """Note the measured links of the ring."""
        if self.folder:
            members = json.dumps([link.members for link in links])
            _write(self.folder / NETWORK_FILE, members.encode())

    def note_end(self, code: int, *, was_stopped: bool) -> None:
        """Note how the worker ended."""
        if code == 0:
            self.note(DONE)
        else:
            self.note(STOPPED if was_stopped else FAILED, f"exit code {code}")

    def _add_event(self, folder: Path, state: str, detail: str) -> None:
        """Add an event, with the wall-clock time."""
        event = {"time": time.time(), "by": "entrypoint", "state": state, "detail": detail}
        line = json.dumps(event | {"restarts": self.restarts}) + "\n"
        with suppress(OSError), (folder / EVENTS_FILE).open("a") as file:
            file.write(line)

    def line(self, text: str) -> None:
        """Note the last printed line, from any thread or child process."""
        if self.folder:
            _write(self.folder / LINE_FILE, text[:LONGEST_LINE].encode(errors="replace"))


def _is_dead(owner: StatusKeeper, folder: Path) -> bool:
    if owner.is_here:
        return not owner.is_alive
    return owner.is_of_this_boot and is_abandoned(folder)


def _write(file: Path, content: bytes) -> None:
    """Write a file completely or not at all; a full disk has no other effect."""
    unfinished = file.with_name(f".{file.name}-{os.urandom(4).hex()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()
