"""Others who reach the port while a ring is formed: with a token they get nothing."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from dataclasses import replace

import pytest

from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.messages import JOIN
from entrypoint.rendezvous.transport.signing import GATE, REFUSAL, RING, Signer, greeting

NONCE = "0" * 32
LONG_SECONDS = 20.0
TOKEN = "a secret that they share"
GREETING = greeting(NONCE, RING)
MORE = b"and more, which nobody reads\n" * 10


class Impostor:
    """Speaks as worker-0 to its right neighbour, byte by byte as this test wants it."""

    def __init__(self, cluster, token: str | None = None, signed_for=RING) -> None:
        address = cluster.member(1).address
        self.connection = connected(address)
        self._lines = self.connection.makefile("rb")
        first = self._lines.readline()
        other = first.split()[-1].decode()
        self.connection.sendall(GREETING)
        self._signer = Signer(
            token, dialer=NONCE, listener=other, is_dialer=True, purpose=signed_for
        )
        self._cluster = cluster

    def send(self, kind: str, behind: bytes = b"", **fields: object) -> None:
        payload = json.dumps({"kind": kind, **fields}).encode()
        self.connection.sendall(self._signer.sign(payload) + behind)

    def join(self, **fields: object) -> dict[str, object]:
        """Say that this is worker-0; return the answer."""
        task = self._cluster.member(0).task
        card = Card.of(self._cluster.facts, task, "boot", is_chief=True).message(JOIN)
        self.send(JOIN, **{**card.fields, "meeting": "m", **fields})
        return self.answer()

    def answer(self) -> dict[str, object]:
        """Return what is said next; {} once the connection has ended."""
        with contextlib.suppress(ConnectionError):
            line = self._lines.readline()
            return json.loads(line.split(b" ", 2)[2]) if b" " in line else {}
        return {}

    def rest(self) -> bytes:
        """Return all that is still said, until the connection ends."""
        with contextlib.suppress(ConnectionError):
            return self._lines.read()
        return b""

    def close(self) -> None:
        self._lines.close()
        self.connection.close()


def connected(address) -> socket.socket:
    """Connect to a worker, as soon as it listens."""
    until = time.monotonic() + LONG_SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((address.host, address.port), LONG_SECONDS)
        assert time.monotonic() < until
        time.sleep(0.01)


def is_reset(connection: socket.socket) -> bool:
    """Whether the other side takes nothing more: what it said may be lost on its way, then."""
    gone = select.poll()
    gone.register(connection, 0)
    return bool(gone.poll(100))


@pytest.fixture
def impostor():
    made = []

    def make(cluster, **options) -> Impostor:
        made.append(Impostor(cluster, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(2_000_000),
        b"x" * 2_000_000,
        GREETING,
        GREETING + b"x" * 2_000_000,
        GREETING + b"- 0 " + b"[" * 50_000 + b"\n",
        GREETING + b'- 0 {"kind":"join"}\n',
        GREETING + b'- 0 {"kind":"commit","number":1,"generation":999999999}\n',
        greeting(NONCE, GATE) + b'- 0 {"kind":"check-in"}\n',
    ],
    ids=lambda words: repr(words[:30]),
)
def test_a_ring_is_formed_whatever_strangers_say(cluster, worker, rings, words):
    three = cluster(3)
    asked = {rank: worker(three, rank).ask() for rank in (0, 1)}
    strangers = [connected(three.member(rank).address) for rank in (0, 1) for _ in range(20)]
    for stranger in strangers:
        stranger.settimeout(0)
        with contextlib.suppress(OSError):
            stranger.send(words)
    asked[2] = worker(three, 2).ask()
    found = rings([asked[rank] for rank in range(3)])
    assert len({ring.generation for ring in found}) == 1
    for stranger in strangers:
        stranger.close()


def test_a_stranger_hears_a_greeting_and_nothing_else(cluster, worker, impostor):
    two = cluster(2)
    worker(two, 1).ask()
    one = impostor(two)
    one.send(JOIN)
    assert one.rest() == REFUSAL


def test_a_session_that_was_recorded_is_worth_nothing(cluster, worker, forward, rings):
    two = cluster(2)
    behind = worker(two, 1)
    there = two.member(1).address
    record = forward(there.port, host=there.host)
    other = replace(two, spec=two.moved(worker_1=f"127.0.0.1:{record.port}"))
    rings([worker(other, 0, facts={"hosts": two.facts.hosts}).ask(), behind.ask()])
    assert b"join" in record.recorded
    behind.ask()
    with connected(there) as replay:
        replay.sendall(record.recorded)
        said = b"".join(iter(lambda: replay.recv(4096), b""))
    assert said.endswith(REFUSAL)
    assert said.count(b"\n") == 2


@pytest.mark.parametrize(("purpose", "kind"), [(GATE, None), (RING, "card")], ids=["gate", "ring"])
def test_what_is_signed_for_the_gate_is_worth_nothing_here(
    cluster, worker, impostor, purpose, kind
):
    two = cluster(2)
    worker(two, 1).ask()
    assert impostor(two, token=TOKEN, signed_for=purpose).join().get("kind") == kind


def test_one_of_another_rank_or_meeting_is_refused(cluster, worker, impostor):
    three = cluster(3)
    one = worker(three, 1, token=None)
    one.ask()
    answers = [
        impostor(three).join(index=2)["reason"],
        impostor(three).join(meeting="of yesterday")["reason"],
    ]
    assert answers[0] == "is worker-2, where worker-0 should be"
    assert "is not from the same meeting at the gate" in answers[1]


def test_a_wrong_token_is_told_to_one_that_says_more_at_once(cluster, worker):
    two = cluster(2)
    worker(two, 1).ask()
    with connected(two.member(1).address) as stranger:
        stranger.recv(100)
        stranger.sendall(GREETING + b'- 0 {"kind":"join"}\n' + MORE)
        assert b"".join(iter(lambda: stranger.recv(100), b"")) == REFUSAL
        assert not is_reset(stranger)


def test_another_card_is_told_to_one_that_says_more_at_once(cluster, worker, impostor):
    two = cluster(2)
    worker(two, 1, token=None).ask()
    one = impostor(two)
    assert one.join(meeting="of yesterday", behind=MORE)["kind"] == "refuse"
    assert one.connection.recv(1) == b""
    assert not is_reset(one.connection)


def test_one_that_is_refused_and_stays_is_dropped_in_time(cluster, worker, impostor):
    two = cluster(2)
    worker(two, 1, token=None).ask()
    one = impostor(two)
    one.join(meeting="of yesterday")
    until = time.monotonic() + LONG_SECONDS
    while not is_reset(one.connection):
        assert time.monotonic() < until
        with contextlib.suppress(ConnectionError):
            one.connection.send(b"x")


def test_an_older_generation_is_refused(cluster, worker, impostor, rings):
    two = cluster(2)
    workers = [worker(two, rank, token=None) for rank in range(2)]
    before = rings([one.ask() for one in workers])[0].generation
    asked = workers[1].ask()
    for generation in (before - 1, before):
        one = impostor(two)
        assert one.join()["kind"] == "card"
        one.send("round", number=1, newest=0, missing="")
        assert one.answer()["kind"] == "round"
        one.send("commit", number=1, generation=generation)
        assert one.rest() == b""
    assert not asked.done()
    assert rings([workers[0].ask(), asked])[1].generation > before


def test_a_commit_without_its_round_is_refused(cluster, worker, impostor, rings):
    two = cluster(2)
    workers = [worker(two, rank, token=None) for rank in range(2)]
    asked = workers[1].ask()
    one = impostor(two)
    one.join()
    one.send("round", number=1, newest=0, missing="")
    one.answer()
    one.send("commit", number=2, generation=10**9)
    assert one.rest() == b""
    assert rings([workers[0].ask(), asked])


def test_a_neighbour_that_connects_again_takes_its_place_from_a_silent_one(
    cluster, worker, impostor, rings
):
    two = cluster(2)
    workers = [worker(two, rank, token=None) for rank in range(2)]
    asked = workers[1].ask()
    frozen = impostor(two)
    frozen.join()
    assert rings([workers[0].ask(), asked])
    assert frozen.rest() == b""


def test_a_commit_that_cannot_be_passed_on_ends_the_connection_it_came_by(
    cluster, worker, impostor, rings
):
    three = cluster(3)
    workers = [worker(three, rank, token=None) for rank in range(3)]
    asked = workers[1].ask()  # its right neighbour has not asked yet
    one = impostor(three)
    one.join()
    one.send("round", number=7, newest=0, missing="")
    one.answer()
    one.send("commit", number=7, generation=10**8)
    found = rings([workers[0].ask(), asked, workers[2].ask()])
    assert one.rest() == b""
    assert {ring.generation for ring in found} == {10**8 + 1}


def test_a_neighbour_that_goes_silent_is_missing_again(cluster, worker, impostor):
    three = cluster(3)
    waiting = worker(three, 1, token=None, timeout_seconds=2)
    asked = waiting.ask()
    frozen = impostor(three)
    frozen.join()
    assert frozen.rest() == b""
    assert "worker-0 at" in str(asked.exception(LONG_SECONDS))
    assert "stopped answering" in str(asked.exception())
