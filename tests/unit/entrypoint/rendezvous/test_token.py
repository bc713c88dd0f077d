"""With CLUSTER_TOKEN only messages that are signed with it count."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

OTHER = "answered with another CLUSTER_TOKEN, or none"


def test_workers_with_the_same_token_meet(cluster):
    workers = cluster(3).start_all(token="täken \udcff")
    assert [worker.end() for worker in workers] == [None] * 3


@pytest.mark.parametrize(
    ("tokens", "odd"),
    [(("a", "b", "a"), 1), (("a", None, "a"), 1), ((None, "b", None), 1), (("a", "b", "b"), 0)],
)
def test_another_token_or_none_is_said_on_both_sides(cluster, tokens, odd):
    three = cluster(3)
    workers = [
        three.start(rank, token=token, timeout_seconds=0.6) for rank, token in enumerate(tokens)
    ]
    workers[0].wait_for("worker-1", OTHER)
    workers[1].wait_for("worker-0", OTHER)
    if odd == 1:
        workers[2].wait_for("worker-1", OTHER)


def test_an_unsigned_contradiction_does_not_count(cluster):
    two = cluster(2)
    other = two.start(1, facts=replace(two.facts, image="0.2.0"), timeout_seconds=0.6)
    chief = two.start(0, token="a", timeout_seconds=0.6)
    chief.wait_for("worker-1", OTHER)
    assert [worker.end().exit_code for worker in (chief, other)] == [75, 75]
    workers = two.start_all(token="a")
    assert [worker.end() for worker in workers] == [None, None]


@dataclass
class Recorder:
    """Sits between a member and the chief and keeps what the member says."""

    target: int
    recorded: bytes = b""
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("", 0)))

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.listener.accept()
                with accepted, contextlib.suppress(ConnectionRefusedError):
                    self._join(accepted)

    def _join(self, accepted: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target)) as dialled:
            self.recorded = b""
            back = threading.Thread(target=self._pass, args=(dialled, accepted))
            back.start()
            self._pass(accepted, dialled, record=True)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, *, record: bool = False) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(4096):
                self.recorded += chunk if record else b""
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def recorder() -> Iterator[type[Recorder]]:
    made: list[Recorder] = []

    def make(target: int) -> Recorder:
        made.append(Recorder(target))
        threading.Thread(target=made[-1].run, daemon=True).start()
        return made[-1]

    yield make
    for one in made:
        one.listener.shutdown(socket.SHUT_RDWR)
        one.listener.close()


def test_a_session_that_was_recorded_is_worth_nothing(cluster, recorder):
    two = cluster(2)
    port = two.member(0).address.port
    record = recorder(port)
    behind = two.moved(worker_0=f"127.0.0.1:{record.port}")
    for worker in [two.start(0, token="a"), two.start(1, token="a", spec=behind)]:
        assert worker.end() is None
    assert b"check-in" in record.recorded

    chief = two.start(0, token="a", timeout_seconds=1.0)
    chief.wait_for("waiting for 1 of 2")
    with socket.create_connection(("127.0.0.1", port)) as replay:
        replay.sendall(record.recorded)
        replay.settimeout(5)
        said = b"".join(iter(lambda: replay.recv(4096), b""))
    assert b'"token"' in said
    assert b"image" not in said
    assert "worker-1 at" in str(chief.end())
    assert not any("checked in" in line for line in chief.lines)
