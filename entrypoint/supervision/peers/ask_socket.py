"""The socket on which a command asks for its neighbours, and the process at its other end."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from entrypoint.supervision.child.helper_process import HelperProcess

Serve = Callable[[socket.socket, str], None]
"""Answers the command until it has ended. Gets the socket, with a request waiting in it, and the
meeting at the gate as a text."""


class AskSocket:
    """The socket of one run of a command; the command inherits one end, and may use it or not."""

    def __init__(self, serve: Serve, meeting: str, note_asked: Callable[[], None]) -> None:
        own, self._commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def work() -> tuple[int, str]:
            self._commands.close()  # so that the socket ends with the command
            try:
                if own.recv(1, socket.MSG_PEEK):
                    note_asked()
                    serve(own, meeting)
            except ConnectionResetError:  # the command ended with packets that it has not read
                if not _has_ended(own):
                    raise
            return 0, ""

        try:
            self._helper = HelperProcess(work)
        except OSError:
            self._commands.close()
            raise
        finally:
            own.close()

    def inherit(self) -> int:
        """Let the command inherit its end; return the descriptor. Called in the child process."""
        os.set_inheritable(self._commands.fileno(), True)  # noqa: FBT003 -- os's own signature
        return self._commands.fileno()

    def give_up(self) -> None:
        """Close this process's copy of the command's end."""
        self._commands.close()

    def end(self) -> None:
        """End the process."""
        self._helper.end()


def _has_ended(asks: socket.socket) -> bool:
    """Whether no process holds the other end of a socket."""
    poll = select.poll()
    poll.register(asks, 0)  # a hang-up is reported in any case
    return any(event & select.POLLHUP for _, event in poll.poll(0))
