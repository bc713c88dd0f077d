"""The rate-limited network delivers every byte, and none too early."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from benchmarks.clusters import link
from harness.rings import over_tcp

SECONDS = 20
MBIT_80 = 80_000_000
MEGABYTE = bytes(range(256)) * 4_000


@contextmanager
def joined(switch):
    """Yield both ends of a connection through the link, the dialling end first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialled, dialler = over_tcp()
        port = server.getsockname()[1]
        through = threading.Thread(target=link.join, args=(switch, dialler, "127.0.0.1", port))
        through.start()
        answered = server.accept()[0]
        with dialled, answered:
            for end in (dialled, answered):
                end.settimeout(SECONDS)
            yield dialled, answered
        through.join(SECONDS)
        assert not through.is_alive()


def received(end, count):
    found = bytearray()
    while len(found) < count:
        part = end.recv(count - len(found))
        assert part
        found += part
    return bytes(found)


def test_every_byte_comes_and_takes_its_time():
    with joined(link.Switch(MBIT_80)) as (dialled, answered):
        began = time.monotonic()
        sender = threading.Thread(target=dialled.sendall, args=(MEGABYTE,))
        sender.start()
        assert received(answered, len(MEGABYTE)) == MEGABYTE
        assert time.monotonic() - began >= len(MEGABYTE) * 8 / MBIT_80 - 2 * link.BURST_SECONDS
        answered.sendall(b"thanks")
        assert received(dialled, 6) == b"thanks"
        sender.join(SECONDS)


@pytest.mark.parametrize("late_seconds", [0.1, 0.2])
def test_what_is_late_is_late_once_however_much_it_is(late_seconds):
    with joined(link.Switch(100 * MBIT_80, late_seconds)) as (dialled, answered):
        began = time.monotonic()
        sender = threading.Thread(target=dialled.sendall, args=(MEGABYTE,))
        sender.start()
        assert received(answered, len(MEGABYTE)) == MEGABYTE
        assert late_seconds <= time.monotonic() - began < 5 * late_seconds  # 16 pieces
        sender.join(SECONDS)
        dialled.shutdown(socket.SHUT_WR)
        assert answered.recv(1) == b""


def test_an_end_is_passed_on_in_both_directions():
    with joined(link.Switch(MBIT_80)) as (dialled, answered):
        dialled.shutdown(socket.SHUT_WR)
        assert answered.recv(1) == b""
        answered.sendall(b"more")
        assert received(dialled, 4) == b"more"
        answered.close()
        assert dialled.recv(1) == b""


def test_nobody_there_closes_the_connection():
    dialled, dialler = over_tcp()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with dialled:
        link.join(link.Switch(MBIT_80), dialler, "127.0.0.1", port)
        dialled.settimeout(SECONDS)
        assert dialled.recv(1) == b""


@pytest.mark.parametrize(
    ("second", "shares"),
    [
        (("a", "c"), True),  # the upload of a
        (("c", "b"), True),  # the download of b
        (("b", "a"), False),  # the opposite direction
        (("c", "d"), False),
    ],
)
def test_a_cable_is_shared_by_what_goes_one_way_through_it(second, shares):
    switch = link.Switch(8_000)  # 1,000 bytes a second
    assert switch.delay("a", "b", 1_000) == pytest.approx(1, abs=0.1)
    assert switch.delay(*second, 1_000) == pytest.approx(2 if shares else 1, abs=0.1)
