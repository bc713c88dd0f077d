"""Whatever a peer sends, the lines that a worker prints about it fit into a pipe."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import Member, Task
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.outcome import chief_line, waiting_line
from entrypoint.rendezvous.transport.messages import CARD, LONGEST_TEXT, encode
from entrypoint.rendezvous.transport.signing import Signer, greeting, read_greeting

PIPE = 65_536
"""The capacity of a pipe in bytes (pipe(7)). A writer of more waits for a reader."""

DELETE = "\x7f"
"""One byte in JSON, four characters when it is escaped."""

NONCE = "0" * 32


class Impostor:
    """Listens at a worker's address, and sends a card and payloads on every connection."""

    def __init__(self, address: Address, payloads: list[bytes]) -> None:
        self._payloads = payloads
        self._listener = socket.create_server(("", address.port))
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                accepted, _ = self._listener.accept()
                self._accepted.append(accepted)
                self._converse(accepted)
        except OSError:
            return

    def _converse(self, accepted: socket.socket) -> None:
        accepted.sendall(greeting(NONCE))
        reader = accepted.makefile("rb")
        other = read_greeting(reader.readline().rstrip())
        signer = Signer(None, dialer=other, listener=NONCE, is_dialer=False)
        reader.readline()
        accepted.sendall(b"".join(signer.sign(payload) for payload in self._payloads))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._accepted):
            one.close()


@pytest.fixture
def impostor() -> Iterator[Callable[..., Impostor]]:
    """Return a function that puts an impostor at an address, until the test ends."""
    made: list[Impostor] = []

    def put(address: Address, *payloads: bytes) -> Impostor:
        made.append(Impostor(address, list(payloads)))
        return made[-1]

    yield put
    for one in made:
        one.close()


def raw(template: str, text: str) -> bytes:
    """Return JSON that contains a text unescaped. `encode` would escape it."""
    return template.replace("TEXT", text).encode()


PROBLEMS = f'{{"kind":"contradiction","problems":[{",".join(["[TEXT,TEXT,TEXT,TEXT]"] * 50)}]}}'
NO_MESSAGE = "sent something that is not a message of this gate"
PAYLOADS = {
    "kind": raw('{"kind":"TEXT"}', DELETE * 60_000),
    "status with controls": raw('{"kind":"status","line":"TEXT"}', DELETE * LONGEST_TEXT),
    "status": raw('{"kind":"status","line":"TEXT"}', "x" * LONGEST_TEXT),
    "problems with controls": raw(PROBLEMS, f'"{DELETE * 315}"'),
    "problems": raw(PROBLEMS, f'"{"x" * 315}"'),
}
HEARD_OF_CHIEF = {
    "kind": NO_MESSAGE,
    "status with controls": NO_MESSAGE,
    "status": "x" * 1000,
    "problems with controls": r"\x7f" * 50,
    "problems": "x" * 200,
}
UNEXPECTED = 'sent "status" when it should not have'
HEARD_OF_MEMBER = HEARD_OF_CHIEF | {"status with controls": UNEXPECTED, "status": UNEXPECTED}


def assert_bounded(worker, heard: str) -> None:
    """Assert that a worker has reacted to what it received, in lines that a pipe takes."""
    said = [str(worker.end()), *worker.lines]
    assert any(heard in one for one in said), said
    assert max(len(one.encode()) for one in said) < PIPE // 2


@pytest.mark.parametrize("name", PAYLOADS)
def test_what_a_chief_sends_is_bounded_after_escaping(cluster, impostor, name):
    two = cluster(2)
    card = Card.of(two.facts, two.member(0).task, "boot", is_chief=True)
    impostor(two.member(0).address, encode(card.message(CARD)), PAYLOADS[name])
    assert_bounded(two.start(1, timeout_seconds=1.5), HEARD_OF_CHIEF[name])


@pytest.mark.parametrize("name", PAYLOADS)
def test_what_a_member_answers_is_bounded_after_escaping(cluster, impostor, name):
    """The chief expects a card, and reads no later message of a member that it has dialled."""
    two = cluster(2)
    impostor(two.member(1).address, PAYLOADS[name])
    assert_bounded(two.start(0, timeout_seconds=1.5), HEARD_OF_MEMBER[name])


def test_a_line_of_long_names_and_reasons_is_one_that_members_take():
    members = [
        Member(Task("worker", i), Address(".".join(["n" * 60] * 4), 10_000 + i)) for i in range(999)
    ]
    missing = [(member, f"{member.task} {'because ' * 60}") for member in members]
    line = waiting_line(missing, 1000, 300.0)
    assert len(line) <= LONGEST_TEXT
    assert line.endswith("and 989 more")
    assert len(chief_line(members[0], DELETE * 9999, 300.0)) <= LONGEST_TEXT
