"""A connection over a socket: the bytes that are left when it ends or is handed over."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import struct
from collections.abc import Iterator

import pytest

from entrypoint.rendezvous.transport import reasons, sockets
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import JOIN, LINK, REFUSE, Message
from entrypoint.rendezvous.transport.reasons import ClosedError
from entrypoint.rendezvous.transport.signing import greeting
from entrypoint.rendezvous.transport.sockets import SocketWire
from entrypoint.rendezvous.transport.timing import Timing

NONCE = "0" * 32
LONG_SECONDS = 20.0
BEHIND = b"the trainer's own bytes\n, and more"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, the dialer's first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with one, other:
        yield one, other


async def handed_over(one: socket.socket, other: socket.socket) -> bytes:
    """Send a message and more bytes. Read the message, and return the bytes that are left."""
    dialer, listener = (Connection(SocketWire(end), None, Timing()) for end in (one, other))
    async with dialer, listener:
        await asyncio.gather(dialer.greet(is_dialer=True), listener.greet(is_dialer=False))
        await dialer.send(Message(LINK, {"number": 1}))
        one.send(BEHIND)
        assert await listener.receive(5) == Message(LINK, {"number": 1})
        socket_ = listener.hand_over()
    # Both connections are closed. The socket that was handed over is not.
    with socket_:
        socket_.settimeout(5)
        return b"".join(iter(lambda: socket_.recv(100), b""))


def test_what_comes_behind_a_message_is_still_there(pair) -> None:
    assert asyncio.run(handed_over(*pair)) == BEHIND


@pytest.mark.parametrize("allowed", [True, False])
def test_buffers_are_set_only_where_the_machine_allows_their_size(
    monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    size = 50_000 if allowed else 2**30
    monkeypatch.setattr(sockets, "BUFFER_BYTES", size)
    with socket.socket() as one:
        before = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        sockets.enlarge_buffers(one)
        after = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert (after != before) == allowed


async def asked(connection: socket.socket, other: socket.socket) -> Message:
    """Greet a peer that has sent a refusal and has gone. Return the answer to a message."""
    async with Connection(SocketWire(connection), None, Timing()) as dialer:
        await dialer.greet(is_dialer=True)
        # Reset the connection, as the kernel does where bytes are unread.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        gone = select.poll()
        gone.register(connection, 0)
        assert gone.poll(LONG_SECONDS * 1000)
        return await dialer.ask(Message(JOIN), LONG_SECONDS)


def test_what_was_said_is_read_though_nothing_can_be_sent_any_more(pair) -> None:
    one, other = pair
    other.sendall(greeting(NONCE) + b'- 0 {"kind":"refuse","reason":"is late"}\n')
    assert asyncio.run(asked(one, other)) == Message(REFUSE, {"reason": "is late"})


def test_one_that_has_gone_without_a_word_has_ended_the_connection(pair) -> None:
    one, other = pair
    other.sendall(greeting(NONCE))
    with pytest.raises(ClosedError):
        asyncio.run(asked(one, other))


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN])
def test_a_connection_that_has_ended_before_it_is_looked_at_was_closed_at_once(number) -> None:
    assert reasons.words(OSError(number, "")) == reasons.CLOSED_AT_ONCE
