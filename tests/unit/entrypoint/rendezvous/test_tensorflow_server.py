"""The verdict on a server, from its bytes: those of TensorFlow 2.21, and others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from entrypoint.cluster.spec import Task
from entrypoint.rendezvous.transport.reasons import PeerError
from entrypoint.rendezvous.watch import tensorflow_server

SETTINGS = bytes.fromhex("000012040000000000") + bytes(18)
HEADERS = bytes.fromhex("000001010400000001 88")
END = bytes.fromhex("000001010500000001 88")
REFUSAL = END
"""gRPC answers an unknown call with headers that end it."""
STATUS = HEADERS + bytes.fromhex("000007000000000001 0000000002 0a00") + END
CONNECTED, WAITING = "1803", "1801"
WORKER_0, WORKER_1 = Task("worker", 0), Task("worker", 1)


def answered(asks: Callable, *parts: bytes) -> object:
    """Return the verdict on a server that sends the first part at once, the others when asked."""

    async def ask() -> object:
        ours, theirs = socket.socketpair()
        theirs.settimeout(0)
        ours.settimeout(0)
        loop = asyncio.get_running_loop()

        async def serve() -> None:
            await loop.sock_sendall(theirs, parts[0])
            await loop.sock_recv(theirs, 65536)
            for part in parts[1:]:
                await loop.sock_sendall(theirs, part)
            theirs.close()

        serving = asyncio.create_task(serve())
        try:
            return await asks(ours)
        finally:
            serving.cancel()

    return asyncio.run(ask())


def test_tensorflow_knows_its_own_service() -> None:
    assert answered(tensorflow_server.is_tensorflow, SETTINGS, STATUS) is True


def test_another_grpc_server_does_not_know_it() -> None:
    assert answered(tensorflow_server.is_tensorflow, SETTINGS, REFUSAL) is False


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64])
def test_what_says_something_else_is_no_grpc_server(says: bytes) -> None:
    with pytest.raises(PeerError):
        answered(tensorflow_server.is_tensorflow, says)


def test_a_server_that_is_silent_is_waited_for_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensorflow_server, "ANSWER_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        answered(tensorflow_server.is_tensorflow, b"")


def joined(*parts: bytes) -> object:
    return answered(
        lambda connected: tensorflow_server.not_joined(connected, [WORKER_0, WORKER_1]), *parts
    )


def states(*hexadecimal: str) -> bytes:
    """Return an answer with these states, in two frames, like a long answer."""
    message = b"".join(b"\x0a" + bytes([len(one)]) + one for one in map(bytes.fromhex, hexadecimal))
    framed = b"\0" + len(message).to_bytes(4, "big") + message
    frames = (framed[:7], framed[7:])
    return b"".join(
        len(part).to_bytes(3, "big") + bytes.fromhex("000000000001") + part for part in frames
    )


@pytest.mark.parametrize(
    ("state", "absent"), [("1002", [WORKER_1]), ("1001", [WORKER_1]), ("1003", []), ("1004", [])]
)
def test_says_who_has_not_joined(state: str, absent: list[Task]) -> None:
    # As captured, with the random 64-bit number of each worker.
    first = "0a080a06776f726b6572" + "1003" + "31b31659dcc8e9a086"
    second = "0a0a0a06776f726b65721001" + state
    assert joined(SETTINGS, HEADERS + states(first, second) + END) == absent


def test_a_server_that_leads_no_cluster_waits_for_nobody() -> None:
    assert joined(SETTINGS, REFUSAL) == []


def test_what_is_no_message_of_tensorflows_is_an_error() -> None:
    with pytest.raises(PeerError):
        joined(SETTINGS, HEADERS + states("ff") + END)
