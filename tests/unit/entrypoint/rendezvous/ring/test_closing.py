"""The chief closes a ring when its commit has come back, and numbers it above all before."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace

import pytest

from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.ring import wanted
from entrypoint.rendezvous.ring.wanted import GENERATIONS_BEGAN
from entrypoint.rendezvous.transport.messages import CARD, COMMIT, JOIN, PING, ROUND
from entrypoint.rendezvous.transport.signing import RING, Signer, greeting

NONCE = "0" * 32
LONG_SECONDS = 20.0


class Line:
    """One connection with the chief, greeted, byte by byte as this test wants it."""

    def __init__(self, connection: socket.socket, *, is_dialer: bool) -> None:
        connection.settimeout(LONG_SECONDS)
        self.connection, self._lines = connection, connection.makefile("rb")
        connection.sendall(greeting(NONCE, RING))
        other = self._lines.readline().split()[-1].decode()
        dialer, listener = (NONCE, other) if is_dialer else (other, NONCE)
        self._signer = Signer(
            None, dialer=dialer, listener=listener, is_dialer=is_dialer, purpose=RING
        )

    def send(self, kind: str, **fields: object) -> None:
        payload = json.dumps({"kind": kind, **fields}).encode()
        self.connection.sendall(self._signer.sign(payload))

    def take(self, kind: str) -> dict[str, object]:
        """Return the next message of a kind; pings before it are answered."""
        while (message := json.loads(self._lines.readline().split(b" ", 2)[2]))["kind"] != kind:
            assert message["kind"] == PING
            self.send(PING, number=0, missing="")
        return message

    def rest(self) -> bytes:
        """Return what comes until the connection ends."""
        return self._lines.read()

    def close(self) -> None:
        self._lines.close()
        self.connection.close()


class Second:
    """Worker 1 of 2, as a test plays it: it is dialled by the chief, and dials it."""

    def __init__(self, cluster) -> None:
        own, chief = (cluster.member(rank).address for rank in (1, 0))
        card = Card.of(cluster.facts, cluster.member(1).task, "boot", is_chief=False)
        fields = {**card.message(CARD).fields, "meeting": "m"}
        with socket.create_server((own.host, own.port)) as server:
            server.settimeout(LONG_SECONDS)
            self.from_chief = Line(server.accept()[0], is_dialer=False)
        self.from_chief.take(JOIN)
        self.from_chief.send(CARD, **fields)
        self.to_chief = Line(
            socket.create_connection((chief.host, chief.port), LONG_SECONDS), is_dialer=True
        )
        self.to_chief.send(JOIN, **fields)
        self.to_chief.take(CARD)

    def pass_on(self) -> dict[str, object]:
        """Pass the round on, and return the commit that follows it."""
        number = self.from_chief.take(ROUND)["number"]
        self.from_chief.send(ROUND, number=number, missing="")
        self.to_chief.send(ROUND, number=number, newest=0, missing="")
        self.to_chief.take(ROUND)
        return self.from_chief.take(COMMIT)

    def close(self) -> None:
        self.from_chief.close()
        self.to_chief.close()


@pytest.fixture
def second():
    made = []

    def play(cluster) -> Second:
        made.append(Second(cluster))
        return made[-1]

    yield play
    for one in made:
        one.close()


def test_the_chief_hands_over_when_its_commit_has_come_back(cluster, worker, rings, second):
    two = cluster(2)
    asked = worker(two, 0, token=None).ask()
    other = second(two)
    commit = other.pass_on()
    assert not asked.done()
    other.to_chief.send(COMMIT, number=commit["number"], generation=commit["generation"])
    (found,) = rings([asked])
    assert found.generation == commit["generation"]
    found.right.sendall(b"to the right")
    assert other.from_chief.connection.recv(100) == b"to the right"


def test_a_commit_that_does_not_come_back_in_time_makes_no_ring(cluster, worker, rings, second):
    two = cluster(2)
    asked = worker(two, 0, token=None).ask()
    frozen = second(two)
    before = frozen.pass_on()["generation"]
    assert frozen.from_chief.rest() == b""  # the chief has given that ring up
    assert not asked.done()
    frozen.close()
    found = rings([asked, worker(two, 1, token=None).ask()])
    assert {ring.generation for ring in found} == {before + 1}


@pytest.mark.parametrize("wrong", [{"number": 5}, {"generation": 10**8}])
def test_another_commit_than_the_chiefs_own_makes_no_ring(cluster, worker, second, wrong):
    two = cluster(2)
    asked = worker(two, 0, token=None).ask()
    other = second(two)
    commit = other.pass_on()
    given = {name: commit[name] for name in ("number", "generation")}
    other.to_chief.send(COMMIT, **given | wrong)
    assert other.to_chief.rest() == b""
    assert not asked.done()


@pytest.fixture(params=[(5000.9, 5000), (-(10**9), 1)], ids=["later", "before that"])
def by_the_clock(request, monkeypatch: pytest.MonkeyPatch) -> int:
    """The generation that the clock names, so long after 2026 began."""
    seconds, generation = request.param
    moments = SimpleNamespace(time=lambda: GENERATIONS_BEGAN + seconds)
    monkeypatch.setattr(wanted, "time", moments)
    return generation


def test_a_ring_is_numbered_by_the_clock_where_nobody_remembers_one(
    cluster, worker, rings, by_the_clock
):
    two = cluster(2)
    found = rings([worker(two, rank).ask() for rank in range(2)])
    assert [ring.generation for ring in found] == [by_the_clock] * 2
