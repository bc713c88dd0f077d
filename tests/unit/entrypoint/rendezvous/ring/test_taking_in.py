"""Worker 0's port while a ring trains without some workers."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace

import pytest

from entrypoint.errors import Problem
from entrypoint.rendezvous import gate
from entrypoint.rendezvous.outcome import PortClosedError, PortTakenError
from entrypoint.rendezvous.ring import serve
from entrypoint.rendezvous.ring.left_out import LeftOut
from entrypoint.rendezvous.ring.taking_in import receive_latecomers
from harness.timing import QUICK

TOO_MANY = Problem(
    "port of worker-0", "2222", "another", "It cannot be opened: Too many open files."
)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PortTakenError("port 2222 is taken"), "port 2222 is taken"),
        (PortClosedError([TOO_MANY]), "port of worker-0 (2222): It cannot be opened: Too many"),
    ],
    ids=["taken", "closed"],
)
def test_a_port_that_cannot_be_opened_is_tried_again(cluster, monkeypatch, error, why):
    three, said, works = cluster(3), [], asyncio.Event()
    opened = gate.open_port
    limits = []

    async def fail_twice(host, me, seconds, say):
        limits.append(seconds)
        if len(limits) <= 2:
            raise error
        return await opened(host, me, seconds, say)

    def say(level, line):
        said.append(f"{level} {line}")
        if "again" in line:
            works.set()

    monkeypatch.setattr(gate, "open_port", fail_twice)
    given = replace(three.given(0, three.facts, QUICK), say=say)

    async def receive():
        receiving = asyncio.create_task(
            receive_latecomers(given, (0, 2), lambda _: None, LeftOut())
        )
        async with asyncio.timeout(60):
            await works.wait()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)

    asyncio.run(receive())
    first, last = said
    assert first.startswith(f"WARNING no other worker can be taken in at present: {why}")
    assert last == "INFO other workers can be taken in again"
    assert limits == [QUICK.port_seconds] * 3


def test_a_command_that_reads_no_news_holds_nobody_up(cluster):
    own, command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    task = cluster(1).member(0).task

    def tell() -> None:
        for _ in range(5000):
            serve._tell_of(own, [task])  # noqa: SLF001 -- else it takes days of coming and going

    telling = threading.Thread(target=tell, daemon=True)
    with own, command:
        telling.start()
        telling.join(20.0)
        assert not telling.is_alive()
