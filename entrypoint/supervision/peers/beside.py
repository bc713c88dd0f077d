"""The helpers that deal with a cluster's peers, each in its own process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrypoint.errors import EXIT_PEER_LOST
from entrypoint.log import Log
from entrypoint.supervision.child.ended import Ended
from entrypoint.supervision.child.helper_process import HelperProcess
from entrypoint.supervision.restarts import ProgressFile

if TYPE_CHECKING:  # it imports socket, which a command without peers does not need
    from entrypoint.supervision.peers.ask_socket import AskSocket, Serve

Watch = Callable[[Callable[[], bool]], tuple[int, str]]
"""Gets a function that tells whether the command has made progress; returns like a `Work`."""
VARIABLE = "CLUSTER_GROUP_FD"
"""The variable with the file descriptor on which the command asks for its neighbours."""
COMES_LATE = "CLUSTER_COMES_LATE"
"""The variable that tells the command whether the others train already: 1 or 0."""


class SharedMark:
    """A flag that is shared with every process forked from the one that creates it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("mark")

    def set(self) -> None:
        """Set the flag."""
        os.pwrite(self._file, b"1", 0)

    def clear(self) -> None:
        """Clear the flag."""
        os.ftruncate(self._file, 0)

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return os.fstat(self._file).st_size > 0


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The functions with which this worker deals with its peers."""

    number: int
    """The number of other workers."""
    meet: Callable[[int], tuple[int, str]] | None
    """The gate: waits for the peers before the command starts; takes the number of restarts.
    Returns the meeting as text; "" if the others train already. None: there is no gate."""
    watch: Watch
    """Watches whether the peers start, while the command waits for them in TensorFlow. Code 75,
    with a reason, ends the command."""
    serve: Serve
    """Connects the command with its neighbours, when it asks."""
    asked: SharedMark
    """Set once the running command has asked for its neighbours."""


class Beside:
    """The helpers beside one run of the command; none without peers."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._watcher: HelperProcess | None = None
        self._asks: AskSocket | None = None
        self._variables: dict[str, str] = {}

    @classmethod
    def start(cls, peers: Peers | None, meeting: str, progress: str, log: Log) -> Beside:
        """Start the helpers; the command does not depend on them.

        `progress` is the file that the command touches when it makes progress.
        """
        beside = cls(log)
        if peers:
            peers.asked.clear()
            beside._watch(peers, progress)
            beside._serve(peers, meeting)
        return beside

    def _watch(self, peers: Peers, progress: str) -> None:
        file = ProgressFile(progress)
        try:
            self._watcher = HelperProcess(lambda: peers.watch(file.has_moved))
        except OSError as error:
            self._log.warning(f"the peers cannot be watched: {error.strerror}")

    def _serve(self, peers: Peers, meeting: str) -> None:
        """Start the helper that connects neighbours; tell the command if that fails."""
        from entrypoint.supervision.peers.ask_socket import AskSocket  # noqa: PLC0415 -- as above

        self._variables = {COMES_LATE: str(int(peers.meet is not None and not meeting))}
        try:
            self._asks = AskSocket(peers.serve, meeting, peers.asked.set)
        except OSError as error:
            self._log.warning(f"neighbours cannot be connected: {error.strerror}")
            self._variables[VARIABLE] = f"none: {error.strerror}"

    def inherit(self) -> dict[str, str]:
        """In the child process: let the command inherit its socket; return its variables."""
        if self._asks is None:
            return self._variables
        return {**self._variables, VARIABLE: str(self._asks.inherit())}

    def give_up(self) -> None:
        """Close this process's copy of the command's end."""
        if self._asks:
            self._asks.give_up()

    def verdict(self) -> Ended | None:
        """Return the end if the command waits in vain; None if it does not, or if unknown."""
        news = self._watcher.news() if self._watcher else None
        if news is None or news.code == 0:
            return None
        if news.code == EXIT_PEER_LOST:
            return news
        self._log.warning(f"the peers are no longer watched: {news.reason}")
        return None

    def end(self) -> None:
        """End all helpers."""
        self.give_up()
        for helper in (self._watcher, self._asks):
            if helper:
                helper.end()
