"""What comes behind the last message of a connection is left to whom the socket is handed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from entrypoint.rendezvous.ring import formation
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import COMMIT, Message
from entrypoint.rendezvous.transport.signing import RING
from entrypoint.rendezvous.transport.timing import Timing

BEHIND = b"the trainer's own bytes\n, and more"


async def handed_over(one: socket.socket, other: socket.socket) -> bytes:
    """Send a message and other bytes behind it; return what is left once the message was read."""
    dialer, listener = (Connection(end, None, Timing(), RING) for end in (one, other))
    async with dialer, listener:
        await asyncio.gather(dialer.greet(is_dialer=True), listener.greet(is_dialer=False))
        await dialer.send(Message(COMMIT, {"number": 1}))
        one.send(BEHIND)
        assert await listener.receive(5) == Message(COMMIT, {"number": 1})
        socket_ = listener.hand_over()
    # Both connections have been closed: the one that was handed over has not.
    with socket_:
        socket_.settimeout(5)
        left = b""
        while chunk := socket_.recv(100):
            left += chunk
        return left


def test_what_comes_behind_a_message_is_still_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    assert asyncio.run(handed_over(one, other)) == BEHIND


@pytest.mark.parametrize("allowed", [True, False])
def test_buffers_are_set_only_where_the_machine_allows_their_size(
    monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    size = 50_000 if allowed else 2**30
    monkeypatch.setattr(formation, "BUFFER_BYTES", size)
    with socket.socket() as one:
        before = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        formation.enlarge_buffers(one)
        after = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert (after != before) == allowed
