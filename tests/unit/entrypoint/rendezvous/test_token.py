"""With CLUSTER_TOKEN only messages that are signed with it count."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.rendezvous.transport.reasons import WrongTokenError
from entrypoint.rendezvous.transport.signing import (
    GREETING,
    REFUSAL,
    Signer,
    greeting,
    read_greeting,
)

OTHER = "another CLUSTER_TOKEN, or none"
NONCE = "0" * 32


def ask(address: Address, line: bytes) -> tuple[bytes, bytes]:
    """Greet a listener and send it a line. Return its greeting, and the rest of its answer."""
    with socket.create_connection((address.host, address.port), 5) as stranger:
        stranger.sendall(greeting(NONCE) + line)
        said = b"".join(iter(lambda: stranger.recv(4096), b""))
    first, newline, rest = said.partition(b"\n")
    return first + newline, rest


def test_workers_with_the_same_token_meet(cluster):
    workers = cluster(3).start_all(token="täken \udcff")
    assert [worker.end() for worker in workers] == [None] * 3


@pytest.mark.parametrize("tokens", ["aba", "a-a", "-b-"])
def test_another_token_or_none_is_said_on_every_worker(cluster, tokens):
    three = cluster(3)
    workers = [
        three.start(rank, token=None if token == "-" else token, timeout_seconds=1.0)
        for rank, token in enumerate(tokens)
    ]
    workers[1].wait_for("worker-0", OTHER)
    for worker in (workers[0], workers[2]):
        worker.wait_for("worker-1", OTHER)


def test_an_unsigned_contradiction_does_not_count(cluster):
    two = cluster(2)
    other = two.start(1, facts=replace(two.facts, image="0.2.0"), timeout_seconds=0.6)
    chief = two.start(0, token="a", timeout_seconds=0.6)
    chief.wait_for("worker-1", OTHER)
    assert [worker.end().exit_code for worker in (chief, other)] == [75, 75]
    workers = two.start_all(token="a")
    assert [worker.end() for worker in workers] == [None, None]


def test_a_session_that_was_recorded_is_worth_nothing(cluster, forward):
    two = cluster(2)
    port = two.member(0).address.port
    record = forward(port)
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
    assert said.startswith(GREETING)
    assert said.endswith(REFUSAL)
    assert said.count(b"\n") == 2
    assert "worker-1 at" in str(chief.end())
    assert not any("checked in" in line for line in chief.lines)


def test_a_stranger_hears_nothing_that_a_guessed_token_could_be_tried_on(cluster):
    two = cluster(2)
    chief = two.start(0, token="right", timeout_seconds=1.0)
    chief.wait_for("waiting for 1 of 2")
    for line in (b'f00 0 {"kind":"check-in"}\n', b"- 0 {}\n", b"please\n"):
        first, answer = ask(two.member(0).address, line)
        nonces = {"dialer": NONCE, "listener": read_greeting(first.rstrip())}
        with pytest.raises(WrongTokenError):
            Signer("right", **nonces, is_dialer=True).verify(answer.rstrip(b"\n"))
        assert answer == REFUSAL


def test_whoever_refuses_in_a_workers_place_causes_a_hint_and_no_end(cluster):
    two = cluster(2)
    with socket.create_server(("", two.member(1).address.port)) as elsewhere:
        chief = two.start(0, token="right")
        accepted, _ = elsewhere.accept()
        with accepted:
            accepted.sendall(greeting(NONCE) + REFUSAL)
            chief.wait_for("worker-1", OTHER)
    two.start(1, token="right")
    assert chief.end() is None


@pytest.mark.parametrize(("length", "code"), [(15, 78), (16, 0)])
def test_a_token_has_at_least_16_characters(run: Callable, length: int, code: int):
    ended = run("true", CLUSTER_TOKEN="k" * length)
    assert ended.code == code, ended.stderr
    for told in ("CLUSTER_TOKEN", "at least 16", "openssl rand -hex 16"):
        assert (told in ended.stderr) == bool(code)
    assert "k" * length not in ended.stderr
