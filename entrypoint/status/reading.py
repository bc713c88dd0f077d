"""The reading side of the status: interprets a worker's files, and judges its health."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.errors import escaped
from entrypoint.network.link import Link, read_link
from entrypoint.proc import living_process
from entrypoint.status.places import StatusKeeper, folders

STATE_FILE, LINE_FILE, COMMAND_FILE = "state.json", "line", "command.json"
NETWORK_FILE = "network.json"
DEADLINE_FILE = "deadline"
DEADLINE = struct.Struct("dq")
"""A time of the monotonic clock in seconds, and the PID whose call must end by then."""
OF_A_COMMAND = ("starting", "running")
"""The entrypoint's states in which the command's own report is shown."""
WORDS_OF_COMMANDS = (*OF_A_COMMAND, "training", "saving")
ENDED = ("done", "stopped", "failed")
LATE_SECONDS = 30.0
"""The worker is unhealthy if a state lasts this much longer than allowed. The code that enforces
the limit needs a moment itself."""
LARGEST_NUMBER = 1e12
"""The largest number that a command may report; larger ones are ignored."""
LARGEST = 65_536
"""The number of bytes that are read of a file. A command may write anything."""
LARGEST_NETWORK = 2**20
"""Bytes: a thousand links are about 100 kB."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The status of a worker; times are in seconds."""

    worker: str
    state: str
    detail: str
    seconds: float
    """How long it has been in this state."""
    late_seconds: float
    """How much longer than allowed; below 0 if it is healthy or there is no limit."""
    restarts: int
    step: int | None
    epoch: int | None
    epochs: int | None
    examples_per_second: float | None
    """The speed of all workers together."""
    checkpoint_step: int | None
    checkpoint_seconds: float | None
    """How long ago this worker wrote its newest checkpoint."""
    slow: str
    """Why this worker is a straggler; "" if it is not."""
    network: str
    """Why the network limits the training; "" if it does not."""
    sync_every: int | None
    """The steps between two averages of weights; 1: gradients are summed; None: unknown."""
    links: tuple[Link, ...]
    """The measured links of the ring; () if they were not measured."""
    gate_waits: int
    gate_wait_seconds: float
    """How often, and how many seconds in total, this worker has waited for the others."""
    last_line: str
    is_alive: bool
    """Whether its entrypoint still runs."""
    frozen: str
    """The process that SIGSTOP has stopped: the entrypoint or the command; "" if there is none."""

    @property
    def trouble(self) -> str:
        """Return why the worker is unhealthy; "" if it is healthy."""
        if self.state == "failed":
            return f"it failed: {self.detail}"
        if self.state == "stopped":
            return f"it was stopped: {self.detail}"
        if not self.is_alive and self.state != "done":
            return "its entrypoint was killed"
        if self.frozen and self.state != "done":
            return f"{self.frozen} is stopped by SIGSTOP; SIGCONT lets it continue"
        if self.late_seconds > LATE_SECONDS:
            what = "without a step" if self.state == "training" else self.state
            return f"{what} for {self.late_seconds:.0f} s longer than it may take"
        return ""


def read_all(within: Sequence[Path]) -> list[Status]:
    """Return this container's living workers; if there are none, the one that ended last."""
    found = [(folder, owner) for folder in folders(within) if (owner := read_owner(folder))]
    here = [(folder, owner) for folder, owner in found if owner.is_here]
    alive = [(folder, owner) for folder, owner in here if owner.is_alive]
    chosen = alive or sorted(here, key=lambda one: _changed(one[0] / STATE_FILE))[-1:]
    now = time.monotonic()
    return [_status(folder, owner, now, is_alive=bool(alive)) for folder, owner in chosen]


def read_owner(folder: Path) -> StatusKeeper | None:
    """Return the process that keeps a folder; None if it is unknown."""
    state = _members(folder / STATE_FILE)
    machine, pid, started = state.get("machine"), state.get("pid"), state.get("started")
    if isinstance(machine, str) and isinstance(pid, int) and isinstance(started, int):
        return StatusKeeper(machine, pid, started)
    return None


@dataclass(frozen=True)
class Entrypoints:
    """The last notes of the entrypoint itself, as in `Status`."""

    state: str
    waits: int
    waited_seconds: float


def read_entrypoints(folder: Path) -> Entrypoints:
    """Return the notes; "" and 0 if there are none."""
    state = _members(folder / STATE_FILE)
    waits = _count(state, "waits") or 0
    return Entrypoints(_text(state, "state"), waits, _number(state, "waited_seconds"))


def _status(folder: Path, owner: StatusKeeper, now: float, *, is_alive: bool) -> Status:
    state, command = _members(folder / STATE_FILE), _members(folder / COMMAND_FILE)
    word, told = _text(state, "state"), state
    if word in OF_A_COMMAND and command:
        said = _text(command, "state")
        word, told = (said if said in WORDS_OF_COMMANDS else "training"), command
    until = _number(told, "until") or math.inf
    moment, pid = _deadline(folder)
    if told is command:
        until = min(until, moment)
    since = _number(told, "since") or _number(state, "since") or now
    saved = _number(command, "checkpoint_at")
    return Status(
        worker=_text(state, "worker"),
        state=word,
        detail=_text(told, "detail"),
        seconds=max(0.0, now - since),
        late_seconds=now - until if until < math.inf and word not in ENDED else 0.0,
        restarts=_count(state, "restarts") or 0,
        step=_count(command, "step"),
        epoch=_count(command, "epoch"),
        epochs=_count(command, "epochs"),
        examples_per_second=_number(command, "examples_per_second") or None,
        checkpoint_step=_count(command, "checkpoint_step"),
        checkpoint_seconds=max(0.0, now - saved) if saved else None,
        slow=_text(command, "slow") if word == "training" else "",
        network=_text(command, "network") if word == "training" else "",
        sync_every=_count(command, "sync_every"),
        links=_links(folder / NETWORK_FILE),
        gate_waits=_count(state, "waits") or 0,
        gate_wait_seconds=_number(state, "waited_seconds"),
        last_line=escaped(_read(folder / LINE_FILE).decode(errors="replace")),
        is_alive=is_alive,
        frozen=_frozen({"its entrypoint": owner.pid, "its command": pid}),
    )


def _frozen(pids: Mapping[str, int]) -> str:
    """Return the name of the first process that is stopped; "" if none is."""
    found = {name: living_process(pid) for name, pid in pids.items()}
    return next((name for name, one in found.items() if one and one.is_stopped), "")


def _deadline(folder: Path) -> tuple[float, int]:
    """Return the time by which the command's present call must end, and the process that calls.

    The time is infinity without a call, and the process is 0 if it is unknown.
    """
    content = _read(folder / DEADLINE_FILE)
    if len(content) != DEADLINE.size:
        return math.inf, 0
    moment, pid = DEADLINE.unpack(content)
    return (moment, pid) if moment >= 0 and living_process(pid) else (math.inf, 0)


def _links(file: Path) -> tuple[Link, ...]:
    """Return the links in a file; () if there are none."""
    try:
        return tuple(map(read_link, json.loads(_read(file, LARGEST_NETWORK))))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _members(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; {} if there is none."""
    try:
        members = json.loads(_read(file))
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _read(file: Path, largest: int = LARGEST) -> bytes:
    """Return a file's bytes, b"" if it does not exist; a pipe in its place does not block."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(opened, largest)
    except OSError:
        return b""
    finally:
        os.close(opened)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return escaped(value) if isinstance(value, str) else ""


def _number(members: Mapping[str, Any], name: str) -> float:
    """Return a member that is a number from 0 to LARGEST_NUMBER, otherwise 0."""
    value = members.get(name)
    if not isinstance(value, (int, float)) or not 0 <= value <= LARGEST_NUMBER:  # NaN is neither
        return 0.0
    return float(value)


def _count(members: Mapping[str, Any], name: str) -> int | None:
    value = members.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
