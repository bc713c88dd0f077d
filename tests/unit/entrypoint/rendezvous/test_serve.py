"""`serve` answers a command that asks for its neighbours, over real sockets."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from cluster_trainer.collectives import neighbours
from cluster_trainer.collectives.neighbours import Neighbours, NeighboursError, join
from entrypoint.rendezvous.command_rings import serve as module
from entrypoint.rendezvous.command_rings.group import Group
from entrypoint.rendezvous.command_rings.serve import serve
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.generations import Generations
from entrypoint.rendezvous.outcome import Meeting
from entrypoint.rendezvous.transport.messages import CHECK_IN, JOIN, encode
from entrypoint.rendezvous.transport.signing import REFUSAL, Signer, greeting
from harness.held import held
from harness.neighbours import check_circle
from harness.timing import QUICK
from harness.waiting import wait_until

LONG_SECONDS = 60.0
NONCE = "0" * 32
TOKEN = "a secret that they share"


class Worker:
    """A command's end of the socket, and a thread that serves the other end."""

    def __init__(self, cluster, rank: int, **options: object) -> None:
        self.lines: list[str] = []
        own, self.commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        terms = replace(
            cluster.terms(rank, cluster.facts, replace(QUICK, silent_seconds=5.0)),
            start_seconds=LONG_SECONDS,
            token=TOKEN,
            say=lambda level, line: self.lines.append(f"{level} {line}"),
        )
        terms = replace(terms, **options)

        def run() -> None:
            with own:
                serve(own, Group(terms, meeting=Meeting("m"), seen=Generations(), waiting=None))

        self.serving = threading.Thread(target=run, daemon=True)
        self.serving.start()
        self._pool = ThreadPoolExecutor(1)

    def ask(self) -> Future[Neighbours]:
        return self._pool.submit(join, {"CLUSTER_GROUP_FD": str(self.commands.fileno())})

    def wait_for(self, text: str) -> None:
        """Wait for a line that contains the text."""
        said = lambda: any(text in line for line in list(self.lines))  # noqa: E731
        wait_until(said, LONG_SECONDS, text, lambda: str(self.lines))

    def end(self) -> None:
        """End as a command does, and check that the serving thread ends, too."""
        with contextlib.suppress(OSError):
            self.commands.shutdown(socket.SHUT_RDWR)
        self.serving.join(LONG_SECONDS)
        assert not self.serving.is_alive(), self.lines
        self._pool.shutdown()
        self.commands.close()


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Return a function that serves one worker's command until the test ends."""
    made: list[Worker] = []

    def start(cluster, rank: int, **options: object) -> Worker:
        made.append(Worker(cluster, rank, **options))
        return made[-1]

    yield start
    for one in made:
        one.end()


def close(rings) -> None:
    for ring in rings:
        ring.left.close()
        ring.right.close()


def is_closed(address) -> bool:
    with socket.socket() as stranger:
        return stranger.connect_ex((address.host, address.port)) == errno.ECONNREFUSED


def test_neighbours_are_connected_and_nothing_listens_before_and_after(cluster, worker):
    three = cluster(3)
    workers = [worker(three, rank) for rank in range(3)]
    addresses = three.spec.addresses
    assert all(map(is_closed, addresses))
    rings = [one.result(LONG_SECONDS) for one in [one.ask() for one in workers]]
    assert all(map(is_closed, addresses))
    assert [(ring.rank, ring.size) for ring in rings] == [(rank, 3) for rank in range(3)]
    check_circle(rings)
    for ring in rings:
        assert ring.left.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not os.get_inheritable(ring.left.fileno())
    close(rings)


def test_the_network_is_measured_while_the_command_starts(cluster, worker):
    three, noted = cluster(3), [[], [], []]
    timing = replace(QUICK, silent_seconds=5.0, measure_seconds=0.05)
    workers = [
        worker(three, rank, timing=timing, note_network=noted[rank].extend) for rank in range(3)
    ]
    rings = [one.result(LONG_SECONDS) for one in [one.ask() for one in workers]]
    check_circle(rings)
    for one in workers:
        one.wait_for(" network: ")
    assert [line.split()[0] for one in workers for line in one.lines if " network: " in line] == [
        *("INFO", "DEBUG", "DEBUG")
    ]
    names = [f"worker-{rank} -> worker-{(rank + 1) % 3}" for rank in range(3)]
    assert [[link.name for link in links] for links in noted] == [names] * 3
    assert all(link.bits_per_second > 0 for link in noted[0])
    check_circle(rings)  # no byte of it got into the ring
    close(rings)


def test_a_long_wait_is_not_taken_for_a_dead_entrypoint(cluster, worker, monkeypatch):
    monkeypatch.setattr(module, "SIGN_SECONDS", 0.1)
    monkeypatch.setattr(neighbours, "SILENT_SECONDS", 1)
    two = cluster(2)
    first = worker(two, 0).ask()
    with pytest.raises(TimeoutError):
        first.exception(1.5)  # longer than the command waits for a sign
    close([one.result(LONG_SECONDS) for one in (first, worker(two, 1).ask())])


def test_a_command_that_ends_leaves_no_open_port(cluster, worker):
    two = cluster(2)
    one = worker(two, 0)
    asked = one.ask()
    one.wait_for("worker-1")
    one.end()
    assert isinstance(asked.exception(LONG_SECONDS), NeighboursError)
    assert is_closed(two.member(0).address)


def test_a_wait_in_vain_is_answered_with_75(cluster, worker):
    (error,) = [worker(cluster(2), 0, start_seconds=0.5).ask().exception(LONG_SECONDS)]
    assert isinstance(error, NeighboursError)
    assert error.code == 75
    assert "worker-1 at" in str(error)


def test_whoever_asks_anew_gets_the_newer_answer(cluster, worker):
    two = cluster(2)
    workers = [worker(two, rank) for rank in range(2)]
    workers[0].commands.send(b'{"ask": "ring", "number": "given up"}')
    workers[0].wait_for("worker-1")
    close([one.result(LONG_SECONDS) for one in [one.ask() for one in workers]])


@pytest.mark.parametrize("ask", [b"{}", b"ring", b"\xff", b"[]", b'{"ask": "ring", "number": 1}'])
def test_another_ask_is_refused(cluster, worker, ask):
    one = worker(cluster(2), 0)
    one.commands.send(ask)
    one.commands.settimeout(LONG_SECONDS)
    assert json.loads(one.commands.recv(4096))["code"] == 78


def test_a_command_that_reads_no_news_holds_nobody_up(cluster):
    own, command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    task = cluster(1).member(0).task

    def tell() -> None:
        for _ in range(5000):
            module._tell_of(own, [task])  # noqa: SLF001 -- so many real changes take days

    telling = threading.Thread(target=tell, daemon=True)
    with own, command:
        telling.start()
        telling.join(20.0)
        assert not telling.is_alive()


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_nothing_stays_behind_of_rings_that_were_handed_over(cluster, worker, count):
    two = cluster(2)
    workers = [worker(two, rank) for rank in range(2)]

    def hand_over() -> None:
        close([one.result(LONG_SECONDS) for one in [one.ask() for one in workers]])

    hand_over()
    before = held()
    for _ in range(count):
        hand_over()
    # The serving threads tidy up after they have answered.
    is_tidy = lambda: all(now <= then for now, then in zip(held(), before, strict=True))  # noqa: E731
    wait_until(is_tidy, LONG_SECONDS, "nothing more is held", lambda: f"{held()}, {before}")


@pytest.mark.parametrize("kind", [CHECK_IN, JOIN])
@pytest.mark.parametrize("token", [None, "another secret"])
def test_strangers_get_nothing_whatever_they_say_that_they_are(cluster, worker, token, kind):
    """The stranger claims to be a worker or the left neighbour. Only its token is wrong."""
    two = cluster(2)
    asked = worker(two, 0).ask()
    address = two.member(0).address
    wait_until(lambda: not is_closed(address), LONG_SECONDS, "a listener", lambda: "")
    card = Card.of(two.facts, two.member(1).task, "boot", is_chief=False, asks=True).message(kind)
    message = replace(card, fields={**card.fields, "meeting": "m", "generation": 1})
    with (
        socket.create_connection((address.host, address.port), LONG_SECONDS) as stranger,
        stranger.makefile("rb") as said,
    ):
        nonce = said.readline().split()[-1].decode()
        signer = Signer(token, dialer=NONCE, listener=nonce, is_dialer=True)
        stranger.sendall(greeting(NONCE) + signer.sign(encode(message)))
        assert said.read() == REFUSAL
    assert not asked.done()
