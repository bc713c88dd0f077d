"""Whoever else connects neither stops nor delays the release, and learns nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from entrypoint.rendezvous.transport.listener import MOST_STRANGERS
from entrypoint.rendezvous.transport.timing import Timing

PATIENT = Timing(
    first_line_seconds=0.1,
    redial_seconds=0.05,
    stranger_seconds=0.2,
    greeting_seconds=9.0,  # those who say nothing don't go by themselves
)
GREETING = b"cluster-trainer-gate 1 " + b"a" * 32 + b"\n"
HTTP = b"GET / HTTP/1.1\r\nHost: worker-0\r\n\r\n"
BYTES = random.Random(1).randbytes

Connect = Callable[[int], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that connects to a port, and keeps the connection until the test ends."""
    opened: list[socket.socket] = []

    def to(port: int) -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", port), 5))
        return opened[-1]

    yield to
    for one in opened:
        one.close()


def slowly(connection: socket.socket) -> None:
    """Send a greeting without end, a few bytes a second."""
    with contextlib.suppress(OSError):
        for byte in GREETING[:-1] * 10:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)


def speak(connection: socket.socket, words: bytes) -> None:
    """Send these, or as many as the other side takes."""
    with contextlib.suppress(OSError):
        connection.sendall(words)


def is_dropped(connection: socket.socket) -> bool:
    """Whether the other side has ended the connection, after its greeting perhaps."""
    connection.settimeout(0)
    try:
        return not connection.recv(4096) or not connection.recv(4096)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\n",
        HTTP,
        BYTES(1000),
        b"x" * 2_000_000,
        GREETING,
        GREETING[:-1],
        GREETING + b"x" * 2_000_000,
        GREETING + b"\n" * 10,
        GREETING + b"- 0 " + b"[" * 50_000 + b"\n",
        GREETING + b'- 0 {"kind":"check-in"}\n',
        GREETING + b'- 0 {"kind":"probe","task":1}\n',
        GREETING + b'- 0 {"kind":"contradiction","problems":[]}\n',
        GREETING + b'- 1 {"kind":"check-in"}\n',
        GREETING + b'f00 0 {"kind":"check-in"}\n',
        *(GREETING + BYTES(100) + b"\n" for _ in range(5)),
    ],
    ids=lambda words: ascii(words[:40]),
)
def test_a_stranger_changes_nothing(cluster, connect, words):
    three = cluster(3)
    early = three.start_all(0, 1)
    early[1].wait_for("waiting for 1 of 3")
    for rank in (0, 1):
        speak(connect(three.member(rank).address.port), words)
    last = three.start(2)
    assert [worker.end() for worker in (*early, last)] == [None] * 3
    assert last.seconds < 2


def test_a_slow_stranger_is_not_waited_for(cluster, connect):
    two = cluster(2)
    chief = two.start(0)
    chief.wait_for("waiting for 1 of 2")
    slow = connect(two.member(0).address.port)
    threading.Thread(target=slowly, args=(slow,), daemon=True).start()
    member = two.start(1)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 2


def test_a_stranger_is_dropped_and_gets_a_greeting_at_most(cluster, connect):
    two = cluster(2)
    chief = two.start(0)
    chief.wait_for("waiting for 1 of 2")
    stranger = connect(two.member(0).address.port)
    speak(stranger, HTTP)
    said = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert said.startswith(b"cluster-trainer-gate 1 ")
    assert said.count(b"\n") == 1
    two.start(1)
    assert chief.end() is None


def test_a_crowd_that_says_nothing_cannot_hold_the_workers_out(cluster, connect):
    two = cluster(2)
    chief = two.start(0, timing=PATIENT)
    chief.wait_for("waiting for 1 of 2")
    crowd = [connect(two.member(0).address.port) for _ in range(600)]
    begin = time.monotonic()
    while sum(not is_dropped(one) for one in crowd) > MOST_STRANGERS:
        assert time.monotonic() - begin < 5
    member = two.start(1, timing=PATIENT)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 5


def test_a_line_without_end_is_cut(cluster, connect):
    two = cluster(2)
    chief = two.start(0, timing=PATIENT)
    chief.wait_for("waiting for 1 of 2")
    endless = connect(two.member(0).address.port)
    begin = time.monotonic()
    with pytest.raises(ConnectionError):
        endless.sendall(GREETING + b"x" * 100_000_000)
    assert time.monotonic() - begin < 2  # less than it may take to send a message
    two.start(1)
    assert chief.end() is None
