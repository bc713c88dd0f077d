"""Gets the two connections of a ring from the entrypoint.

The entrypoint owns this worker's port, knows the others' addresses and the shared secret, and logs
which workers are missing. This module only receives two connected sockets.

The entrypoint's side is entrypoint/rendezvous/command_rings/. The two sides exchange one packet
each way, on a socket that the command has inherited. The reasons are in
docs/explanation/decisions/0011-neighbours.md.
"""

import array
import contextlib
import json
import secrets
import select
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster_trainer.private.passed_on import PassedOn

VARIABLE = "CLUSTER_GROUP_FD"
LONGEST_ANSWER = 65_536
"""Bytes."""
MOST_DESCRIPTORS = 2
WAITING, FORMING = "waiting", "forming"
NEWS = {WAITING, FORMING}
SILENT_SECONDS = 60
"""Six times the longest silence of the entrypoint while a ring forms."""
EX_TEMPFAIL, EX_CONFIG = 75, 78


class NeighboursError(PassedOn):
    """There is no ring; the text names the missing neighbour, its address and the reason.

    Attributes:
        code: the appropriate exit code: 75 if another attempt may succeed, 78 if it cannot.
    """

    def __init__(self, text: str, code: int = EX_TEMPFAIL) -> None:
        super().__init__(text)
        self.code = code


class NotTheEntrypointsError(NeighboursError):
    """The file descriptor of the entrypoint's socket is missing, or is another file."""


@dataclass(frozen=True)
class Neighbours:
    """This worker's place in a ring, and its connections: TCP, blocking, owned by the caller.

    Attributes:
        rank: this worker's rank, from 0.
        size: the number of workers in the ring.
        members: each rank's place in the list of all workers, ascending.
        generation: the ring's number, the same for all its workers. It is greater than the number
            of any earlier ring of one of them.
        left: the connection that rank - 1 has opened to this worker.
        right: the connection that this worker has opened to rank + 1.
    """

    rank: int
    size: int
    generation: int
    members: tuple[int, ...]
    left: socket.socket
    right: socket.socket


def join(environ: Mapping[str, str]) -> Neighbours | None:
    """Request the connections to both neighbours, and wait until all workers have done so.

    The entrypoint waits up to STARTUP_TIMEOUT. After a ring has failed, another request forms a new
    one with a greater generation, once all workers have made it. Before that, the entrypoint waits
    at the gate for all workers and for replacements of lost ones, up to RENDEZVOUS_TIMEOUT. While
    it waits, it sends a sign of life every few seconds.

    Args:
        environ: the environment, with CLUSTER_GROUP_FD.

    Returns:
        the neighbours; None: the entrypoint knows of no other worker.

    Raises:
        NeighboursError: the ring cannot be formed.
    """
    text = environ.get(VARIABLE)
    if text is None:
        return None
    with _asks(text) as asks:
        number = secrets.token_hex(8)
        try:
            asks.send(json.dumps({"ask": "ring", "number": number}).encode())
            while True:
                _wait_for_packet(asks)
                answer, sockets = _receive(asks)
                if answer.get("number") in (number, None) and not NEWS & answer.keys():
                    break
                _close(sockets)  # the answer to an earlier request, or to none
        except OSError as error:
            raise NeighboursError(f"the entrypoint does not answer: {error}") from error
    return _read(answer, sockets)


def who_waits(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the names of the workers that wait to join; None: there is no news.

    While a ring trains without some workers, worker 0's entrypoint sends their names once whenever
    a worker comes back or leaves again.
    """
    text = environ.get(VARIABLE)
    names: tuple[str, ...] | None = None
    if text is None:
        return names
    # The next `join` reports any problem of the socket.
    with contextlib.suppress(NeighboursError, OSError), _asks(text) as asks:
        while True:
            packet, sockets = _receive(asks, socket.MSG_DONTWAIT)
            _close(sockets)
            if isinstance(waiting := packet.get(WAITING), list):
                names = tuple(map(str, waiting))
    return names


@contextlib.contextmanager
def _asks(text: str) -> Iterator[socket.socket]:
    """Yield the inherited socket; it stays open for later requests."""
    try:
        asks = socket.socket(fileno=int(text))
    except (ValueError, OSError) as error:
        raise _not_the_entrypoints(text, str(error)) from error
    try:
        if (asks.family, asks.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            raise _not_the_entrypoints(text, "another socket")
        asks.settimeout(None)  # a script's socket.setdefaulttimeout() is for its own sockets
        yield asks
    finally:
        asks.detach()


def _not_the_entrypoints(text: str, reason: str) -> NotTheEntrypointsError:
    return NotTheEntrypointsError(
        f"{VARIABLE} is {text!r}, which is not the entrypoint's socket ({reason}). The program "
        "that starts this one must leave that file descriptor open (pass_fds of Python's "
        "subprocess).",
        EX_CONFIG,
    )


def _wait_for_packet(asks: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(asks, select.POLLIN)
    # One poll per second, so that a pause of both processes, as in a container, counts as 1 s.
    for _ in range(SILENT_SECONDS):
        if waiting.poll(1000):
            return
    raise NeighboursError(
        f"the entrypoint's process that connects neighbours has said nothing for {SILENT_SECONDS} s"
    )


def _receive(asks: socket.socket, flags: int = 0) -> tuple[dict[str, Any], list[socket.socket]]:
    """Return the next packet and its sockets."""
    integers = array.array("i")  # socket.recv_fds() ignores flags
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * integers.itemsize)
    content, others, *_ = asks.recvmsg(LONGEST_ANSWER, room, socket.MSG_CMSG_CLOEXEC | flags)
    for level, kind, data in others:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            integers.frombytes(data[: len(data) - len(data) % integers.itemsize])
    sockets = [socket.socket(fileno=descriptor) for descriptor in integers]
    if not content:
        raise NeighboursError("the entrypoint's process that connects neighbours has ended")
    with contextlib.suppress(ValueError):
        if isinstance(answer := json.loads(content), dict):
            return answer, sockets
    _close(sockets)
    raise NeighboursError(f"the entrypoint answers {content[:100]!r}, which is no JSON object")


def _read(answer: dict[str, Any], sockets: list[socket.socket]) -> Neighbours:
    if "error" in answer:
        raise NeighboursError(str(answer["error"]), int(answer.get("code", EX_TEMPFAIL)))
    try:
        left, right = sockets
        rank, size, generation = (int(answer[name]) for name in ("rank", "size", "generation"))
        neighbours = Neighbours(rank, size, generation, _members(answer, size), left, right)
    except (KeyError, ValueError, TypeError) as error:
        _close(sockets)
        raise NeighboursError(f"the entrypoint's answer cannot be read: {answer}") from error
    for connection in sockets:
        connection.settimeout(None)
    return neighbours


def _members(answer: dict[str, Any], size: int) -> tuple[int, ...]:
    """Return each rank's place in the list of all workers; all are in the ring if none is given."""
    members = tuple(map(int, answer.get("members", range(size))))
    if len(members) != size or [*members] != sorted({*members}):
        raise ValueError(f"{members} are no members of a ring of {size}")
    return members


def _close(sockets: list[socket.socket]) -> None:
    for connection in sockets:
        connection.close()
