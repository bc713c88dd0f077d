"""The socket on which a command asks for its neighbours, and the process at its other end."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from entrypoint.supervision.child.helper_process import HelperProcess

Serve = Callable[[socket.socket, str], None]
"""Answers what the command asks until it has ended: given the socket, with an ask waiting in it,
and the meeting at the gate, as a text."""


class AskSocket:
    """What one run of a command has; the command inherits its end, and may ask or not."""

    def __init__(self, serve: Serve, meeting: str, note_asked: Callable[[], None]) -> None:
        own, self._commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def work() -> tuple[int, str]:
            self._commands.close()  # so that the command's end is the end of this socket
            try:
                if own.recv(1, socket.MSG_PEEK):
                    note_asked()
                    serve(own, meeting)
            except ConnectionResetError:  # by a command that ends with packets that it has not read
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
        """Let the command that this child process becomes have its end; return its number."""
        os.set_inheritable(self._commands.fileno(), True)  # noqa: FBT003 -- os's own signature
        return self._commands.fileno()

    def give_up(self) -> None:
        """Close the command's end here, where nobody asks; the command has its own."""
        self._commands.close()

    def end(self) -> None:
        """End the process."""
        self._helper.end()


def _has_ended(asks: socket.socket) -> bool:
    """Whether nobody has the other end of a socket any more."""
    poll = select.poll()
    poll.register(asks, 0)  # what is asked for beside a hang-up, which is told anyway
    return any(event & select.POLLHUP for _, event in poll.poll(0))
