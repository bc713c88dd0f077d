"""With CLUSTER_TOKEN only messages that are signed with it count."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

OTHER = "answered with another CLUSTER_TOKEN, or none"


def test_workers_with_the_same_token_meet(cluster):
    workers = cluster(3).start_all(token="täken \udcff")
    assert [worker.end() for worker in workers] == [None] * 3


@pytest.mark.parametrize("tokens", ["aba", "a-a", "-b-"])
def test_another_token_or_none_is_said_on_every_worker(cluster, tokens):
    three = cluster(3)
    workers = [
        three.start(rank, token=None if token == "-" else token, timeout_seconds=0.6)
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
    assert b'"token"' in said
    assert b"image" not in said
    assert "worker-1 at" in str(chief.end())
    assert not any("checked in" in line for line in chief.lines)
