"""Strangers that connect neither stop nor delay the release, and learn nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport.listener import MOST_STRANGERS, Strangers, sender_of
from entrypoint.rendezvous.transport.timing import Timing

PATIENT = Timing(
    first_line_seconds=0.1,
    redial_seconds=0.05,
    greeting_seconds=9.0,  # silent strangers don't go by themselves
)
GREETING = b"cluster-trainer-gate 1 " + b"a" * 32 + b"\n"
HTTP = b"GET / HTTP/1.1\r\nHost: worker-0\r\n\r\n"
BYTES = random.Random(1).randbytes

Connect = Callable[[Address], socket.socket]
FLOOD = """
import resource, socket, sys, time
source, host, port, count, a_second = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
begin, opened = time.monotonic(), []
while len(opened) < count:
    due = min(count, int((time.monotonic() - begin) * a_second))
    for _ in range(len(opened), due):
        one = socket.socket()
        one.setblocking(False)
        one.bind((source, 0))
        one.connect_ex((host, port))
        opened.append(one)
    if due >= count // 2 > 0:
        print("half", flush=True)
    time.sleep(0.005)
time.sleep(10)
"""


@pytest.fixture
def flood() -> Iterator[Callable[[str, Address], None]]:
    """Return a function that opens 500 silent connections a second, for two seconds.

    It returns after the first second. By then, there are more connections than places. A slow
    machine keeps up with this rate.
    """
    floods: list[subprocess.Popen[str]] = []

    def begin(source: str, target: Address) -> None:
        arguments = [source, target.host, str(target.port), "1000", "500"]
        floods.append(
            subprocess.Popen(
                [sys.executable, "-I", "-c", FLOOD, *arguments], stdout=subprocess.PIPE, text=True
            )
        )
        assert floods[-1].stdout.readline() == "half\n"

    yield begin
    for one in floods:
        one.kill()
        one.wait()
        one.stdout.close()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that connects to a worker, and stays connected until the test ends."""
    opened: list[socket.socket] = []

    def to(address: Address) -> socket.socket:
        opened.append(socket.create_connection((address.host, address.port), 5))
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
    """Send these words, or as many as the other side takes."""
    with contextlib.suppress(OSError):
        connection.sendall(words)


def is_dropped(connection: socket.socket) -> bool:
    """Tell whether the other side has ended the connection, possibly after its greeting."""
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
        speak(connect(three.member(rank).address), words)
    last = three.start(2)
    assert [worker.end() for worker in (*early, last)] == [None] * 3
    assert last.seconds < 2


def test_a_slow_stranger_is_not_waited_for(cluster, connect):
    two = cluster(2)
    chief = two.start(0)
    chief.wait_for("waiting for 1 of 2")
    slow = connect(two.member(0).address)
    threading.Thread(target=slowly, args=(slow,), daemon=True).start()
    member = two.start(1)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 2


def test_a_stranger_is_dropped_and_gets_a_greeting_at_most(cluster, connect):
    two = cluster(2)
    chief = two.start(0)
    chief.wait_for("waiting for 1 of 2")
    stranger = connect(two.member(0).address)
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
    crowd = [connect(two.member(0).address) for _ in range(600)]
    begin = time.monotonic()
    while sum(not is_dropped(one) for one in crowd) > MOST_STRANGERS + 2:
        assert time.monotonic() - begin < 5
    member = two.start(1, timing=PATIENT)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 5


def test_a_line_without_end_is_cut(cluster, connect):
    two = cluster(2)
    chief = two.start(0, timing=replace(PATIENT, message_seconds=60.0))
    chief.wait_for("waiting for 1 of 2")
    endless = connect(two.member(0).address)
    begin = time.monotonic()
    with pytest.raises(ConnectionError):
        endless.sendall(GREETING + b"x" * 100_000_000)
    assert time.monotonic() - begin < 30  # less than it may take to send a message
    two.start(1)
    assert chief.end() is None


def in_peace(cluster) -> float:
    """Return the seconds that a worker takes now, without strangers; at most 2.

    With more, a worker that is held out until the strangers lose their places would pass, too.
    """
    two = cluster(2)
    workers = [two.start(rank, timing=PATIENT) for rank in range(2)]
    assert [worker.end() for worker in workers] == [None, None]
    return min(2.0, max(worker.seconds for worker in workers))


def test_a_flood_from_one_address_does_not_hold_out_a_worker_at_another(cluster, flood):
    undisturbed = in_peace(cluster)
    two = cluster(2)
    chief = two.start(0, timing=PATIENT)
    chief.wait_for("waiting for 1 of 2")
    flood("127.0.0.66", two.member(0).address)
    member = two.start(1, timing=PATIENT)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 2.5 + undisturbed


def test_a_flood_from_a_workers_own_address_delays_it_a_little(cluster, flood):
    undisturbed = in_peace(cluster)
    two = cluster(2)
    chief = two.start(0, timing=PATIENT)
    chief.wait_for("waiting for 1 of 2")
    flood("127.0.0.1", two.member(0).address)
    member = two.start(1, timing=PATIENT)
    assert [chief.end(), member.end()] == [None, None]
    assert member.seconds < 5 + undisturbed


class Comer(NamedTuple):
    """A client that takes a place."""

    ip: str
    name: str = ""


def test_the_oldest_of_the_address_with_most_places_goes():
    strangers = Strangers(0)
    worker, *flood = Comer("10.0.0.2"), *(Comer("10.0.0.66", str(i)) for i in range(999))
    assert strangers.add(worker) is None
    gone = [strangers.add(one) for one in flood]
    assert [one for one in gone if one] == flood[: len(flood) + 1 - MOST_STRANGERS]
    late = Comer("10.0.0.3")
    assert strangers.add(late).ip == "10.0.0.66"
    assert {worker, late} < set(strangers)
    assert len(list(strangers)) == MOST_STRANGERS


def test_all_workers_may_come_at_once_wherever_they_come_from():
    for ip in ("10.0.0.2", "10.0.{0}.{1}"):
        strangers = Strangers(1000)
        comers = [Comer(ip.format(i // 250, i % 250), str(i)) for i in range(1000)]
        assert [one for one in comers if strangers.add(one)] == []


def test_whose_place_is_free_again_is_forgotten():
    strangers = Strangers(0)
    for number in range(9999):
        comer = Comer("10.0.0.2", str(number))
        assert strangers.add(comer) is None
        strangers.discard(comer)
        strangers.discard(comer)
    assert list(strangers) == []


def test_an_ipv6_network_is_one_sender():
    assert sender_of("2001:db8::1") == sender_of("2001:db8::ffff:0:0:9")
    assert sender_of("fe80::1%eth0") == sender_of("fe80::2%eth0")
    assert sender_of("2001:db8::1") != sender_of("2001:db8:0:1::1")
    assert sender_of("10.0.0.1") != sender_of("10.0.0.2")
    assert sender_of("?") == "?"
