"""Why a worker is refused reaches it, whenever and however the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport import reasons
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import JOIN, REFUSE, Message
from entrypoint.rendezvous.transport.reasons import ClosedError
from entrypoint.rendezvous.transport.signing import REFUSAL, RING, greeting
from entrypoint.rendezvous.transport.timing import Timing

NONCE = "0" * 32
LONG_SECONDS = 20.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: who dials, and who listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with one, other:
        yield one, other


def reset(connection: socket.socket) -> None:
    """Close a connection as the kernel does it where something is unread."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def asked(connection: socket.socket, other: socket.socket) -> Message:
    """Greet one who has said why it refuses, and has gone; return the answer to a message."""
    async with Connection(connection, None, Timing(), RING) as dialer:
        await dialer.greet(is_dialer=True)
        reset(other)
        gone = select.poll()
        gone.register(connection, 0)
        assert gone.poll(LONG_SECONDS * 1000)
        return await dialer.ask(Message(JOIN), LONG_SECONDS)


def test_what_was_said_is_read_though_nothing_can_be_sent_any_more(pair) -> None:
    one, other = pair
    other.sendall(greeting(NONCE, RING) + b'- 0 {"kind":"refuse","reason":"is late"}\n')
    assert asyncio.run(asked(one, other)) == Message(REFUSE, {"reason": "is late"})


def test_one_that_has_gone_without_a_word_has_ended_the_connection(pair) -> None:
    one, other = pair
    other.sendall(greeting(NONCE, RING))
    with pytest.raises(ClosedError):
        asyncio.run(asked(one, other))


class Neighbour:
    """The right neighbour, as a test plays it: each who dials hears these words, and it closes."""

    def __init__(self, address: Address) -> None:
        self._server = socket.create_server((address.host, address.port))
        self.words = [greeting(NONCE, RING) + REFUSAL]
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                dialled, _ = self._server.accept()
                with dialled, contextlib.suppress(ConnectionError):
                    dialled.sendall(self.words[0])
                    while self.words[0] and b"join" not in dialled.recv(4096):
                        pass

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(LONG_SECONDS)
        self._server.close()


def test_one_that_has_given_up_leaves_the_reason_why(cluster, worker) -> None:
    two = cluster(2)
    neighbour = Neighbour(two.member(1).address)
    waiting = worker(two, 0)
    waiting.ask()
    waiting.wait_for("worker-1 at", "uses another CLUSTER_TOKEN, or none")
    neighbour.words = [b""]
    waiting.wait_for("closed it at once", "(before: uses another CLUSTER_TOKEN, or none)")
    neighbour.end()
    waiting.wait_for("nothing listens", "(before: uses another CLUSTER_TOKEN, or none)")


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN])
def test_a_connection_that_has_ended_before_it_is_looked_at_was_closed_at_once(number) -> None:
    assert reasons.words(OSError(number, "")) == reasons.CLOSED_AT_ONCE
