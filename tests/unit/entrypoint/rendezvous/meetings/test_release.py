"""A worker or message that is lost during the release delays no other beyond the limit."""

from __future__ import annotations

import asyncio

from entrypoint.rendezvous.roles.member import MemberRole
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.transport.messages import GO, RELEASE
from entrypoint.rendezvous.transport.timing import Timing

PATIENT = Timing(alive_seconds=5.0)
"""A member that has promised waits this long for the chief's decision."""


def test_a_member_that_does_not_acknowledge_holds_nobody(cluster, monkeypatch):
    release = MemberRole._release  # noqa: SLF001 -- it hangs within this method

    async def stuck(self, connection, message):
        if self._attempt.me.task.index == 1:
            await asyncio.sleep(2.5)
        await release(self, connection, message)

    monkeypatch.setattr(MemberRole, "_release", stuck)
    three = cluster(3)
    released = [three.start(rank, expects_all_closed=False) for rank in (0, 2)]
    three.start(1, timing=PATIENT)
    assert [worker.end() for worker in released] == [None, None]
    assert max(worker.seconds for worker in released) < 2


def test_a_member_that_is_told_to_go_no_more_goes_by_itself(cluster, monkeypatch):
    send = Session.send

    async def lose(self, message):
        if message.kind == GO:
            await asyncio.sleep(2)
        else:
            await send(self, message)

    monkeypatch.setattr(Session, "send", lose)
    workers = cluster(3).start_all()
    assert [worker.end() for worker in workers] == [None] * 3
    assert max(worker.seconds for worker in workers[1:]) < 1.8


def test_a_chief_that_is_lost_before_the_release_releases_nobody(cluster, monkeypatch):
    ask = Session.ask

    async def lost(self, kind, seconds):
        if kind == RELEASE:
            await asyncio.sleep(1.8)
        return await ask(self, kind, seconds)

    monkeypatch.setattr(Session, "ask", lost)
    three = cluster(3)
    workers = three.start_all(timeout_seconds=1.0)
    for worker in workers[1:]:
        assert worker.end().exit_code == 75
