"""Reasons why a worker cannot be reached, in words for the person who has to act."""

from __future__ import annotations

import errno
import os

from entrypoint.errors import escaped


class PeerError(Exception):
    """An exchange with another worker failed; the message is the reason."""


class ClosedError(PeerError):
    """The other side ended the connection."""


class BlindError(PeerError):
    """This process lacks a resource, so it can say nothing about the other worker."""


class WrongTokenError(PeerError):
    """A message has a wrong signature, none, or an unexpected one."""

    def __init__(self) -> None:
        super().__init__("uses another CLUSTER_TOKEN, or none")


class ReplacedError(PeerError):
    """A frozen or disconnected process has returned, but another one has replaced it."""

    def __init__(self, by: str) -> None:
        super().__init__(f"a process answers there that was replaced by one at {by}")
        self.by = by


REFUSED = (
    "refused: the machine answers, but nothing listens on the port; "
    "its container has not started yet, or listens on another port"
)
NOT_ASKED = "its command has not asked for its neighbours yet, or has ended"
NO_ANSWER = "no answer: a firewall drops it, the machine is off, or the address is wrong"
UNREACHABLE = "unreachable: the machine is off, the address is wrong, or a firewall rejects it"
NO_NETWORK = "unreachable: there is no route to its network from here"
NOT_ALLOWED = "not allowed: a firewall on the dialling machine forbids it"

NO_NAME = (
    "the name does not resolve: its container is not running, the name server does not know it "
    "yet, or it is misspelt"
)
NO_NAME_SERVER = "the name does not resolve now: the name server gives no answer"
NO_THREAD = "the name cannot be looked up: a limit of processes here allows no thread for it"

CLOSED = "ended the connection"
CLOSED_AT_ONCE = (
    "accepted the connection and closed it at once: probably Docker's port forwarding (-p) or a "
    "proxy, with no worker behind it yet"
)
NO_GREETING = (
    "accepted the connection, but says nothing: not a worker, or a worker that is paused or frozen"
)
SILENT = "stopped answering"
NO_MESSAGE = "sent something that is not a message of this gate"

_WORDS = {
    errno.ECONNREFUSED: REFUSED,
    errno.ECONNRESET: CLOSED_AT_ONCE,
    errno.EPIPE: CLOSED_AT_ONCE,  # Linux's error for a connection that ended early
    errno.ENOTCONN: CLOSED_AT_ONCE,
    errno.ETIMEDOUT: NO_ANSWER,
    errno.EHOSTUNREACH: UNREACHABLE,
    errno.EHOSTDOWN: UNREACHABLE,
    errno.ENETUNREACH: NO_NETWORK,
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
}


def words(error: OSError) -> str:
    """Return why a connection could not be made."""
    if isinstance(error, TimeoutError):  # asyncio's time limit, which has no errno
        return NO_ANSWER
    return _WORDS.get(error.errno or 0) or f"cannot be dialled: {os.strerror(error.errno or 0)}"


def not_a_worker(first: bytes) -> str:
    """Describe the program that sends these first bytes, which are no greeting."""
    # A gRPC server speaks first: a frame of length (3 bytes), type 4 (SETTINGS), flags, stream 0;
    # RFC 9113, sections 3.4, 4.1 and 6.5. TensorFlow 2.21's does, seen on a silent connection.
    if first[3:4] == b"\x04" and first[5:9] == bytes(4):
        return "answered by a gRPC server, probably TensorFlow of an earlier run that still runs"
    shown = escaped(first[:20].decode("ascii", "replace"))
    return f'answered by something that is not a worker (it says "{shown}")'


def other_version(theirs: str, own: int) -> str:
    """Return the reason for a greeting of another version."""
    return f"speaks version {escaped(theirs)} of the gate, not {own}: its image is another version"
