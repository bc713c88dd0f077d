"""A meeting: `pass_gate` before the command starts, `meet` whenever a command asks."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable

from entrypoint.log import shared_level
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.outcome import Meeting, Ring, ahead_line, released_line
from entrypoint.rendezvous.port import address_warning
from entrypoint.rendezvous.roles.chief import ChiefRole
from entrypoint.rendezvous.roles.member import MemberRole
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.network import Port

Leader = Callable[[Attempt, Port], ChiefRole]
SPARE_FILES = 1024
"""Descriptors in addition to two for each worker: its session and a new connection."""


def pass_gate(terms: Terms) -> Meeting:
    """Wait until all workers are released together. Then this worker's port is free again.

    All of them get the same meeting, whose ID is unique. If the others train already, this worker
    is released alone, without a meeting.

    Raises:
        PeersMissingError: workers are missing at the time limit.
        ContradictionError: workers do not agree. The time limit is not awaited.
        PortTakenError, PortClosedError: this worker's port cannot be opened.

    If the process is killed, it leaves nothing behind.
    """
    if warning := address_warning(terms.me):
        terms.say("WARNING", warning)
    return asyncio.run(released(terms))


async def released(terms: Terms) -> Meeting:
    """Return and raise like `pass_gate`. If it is cancelled, it leaves nothing behind."""
    attempt = await meet(terms)
    return attempt.meeting if attempt else Meeting()


async def linked(terms: Terms) -> Ring:
    """Return this worker's part of a ring; raise like `pass_gate`."""
    attempt = await meet(terms)
    if attempt is None or attempt.ring is None:
        raise AssertionError("a meeting of commands that ask ends with a ring")
    return attempt.ring


async def meet(terms: Terms, leader: Leader = ChiefRole) -> Attempt | None:
    """Hold a meeting and return its result; None for a single worker. Raises if the meeting fails.

    `leader` is the class of worker 0's role.
    """
    _allow_files(2 * len(terms.spec.members) + SPARE_FILES)
    limit = terms.timeout_seconds or terms.timing.port_seconds
    seconds = min(terms.timing.port_seconds, limit)
    port = await terms.network.open_port(terms.spec, terms.me, seconds, terms.say)
    if len(terms.spec.members) == 1:
        port.close()
        return None
    attempt = Attempt(terms)
    role = (leader if attempt.is_chief else MemberRole)(attempt, port)
    try:
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(loop) for loop in role.loops()]
            error = await role.decide()
            for loop in loops:
                loop.cancel()
    finally:
        await role.listener.close_all()
    if error is not None:
        raise error
    _say_end(attempt)
    return attempt


def _say_end(attempt: Attempt) -> None:
    terms, ring = attempt.terms, attempt.ring
    level = shared_level(is_chief=attempt.is_chief)
    if attempt.is_ahead:
        terms.say("INFO", ahead_line(attempt.meeting, terms.spec))
        return
    if ring is None or not terms.were_together:
        terms.say(level, released_line(attempt.meeting, terms.spec, attempt.seconds))
    if ring:
        terms.say(level, f"{ring.size} workers are a ring, generation {ring.generation}")


def _allow_files(count: int) -> None:
    """Raise the soft limit of open files to `count`, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
