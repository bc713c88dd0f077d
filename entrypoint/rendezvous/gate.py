"""The gate: `pass_gate` returns when all who go on together are here and agree."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

from entrypoint.cluster.spec import ClusterSpec, Task
from entrypoint.errors import escaped
from entrypoint.log import shared_level
from entrypoint.rendezvous.attempt import Attempt, Given, Say
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.meeting import Fewer, Meeting
from entrypoint.rendezvous.outcome import released_line
from entrypoint.rendezvous.port import address_warning, listening_host, open_port
from entrypoint.rendezvous.roles.chief import ChiefRole
from entrypoint.rendezvous.roles.member import MemberRole
from entrypoint.rendezvous.transport.timing import Timing

Leader = Callable[[Attempt, socket.socket], ChiefRole]
SPARE_FILES = 1024
"""Descriptors beside two for each worker, its session and one that has just come."""


def pass_gate(  # noqa: PLR0913 -- who, what, for how long, as whom, and where to say so
    spec: ClusterSpec,
    task: Task,
    facts: Facts,
    *,
    timeout_seconds: float,
    token: str | None,
    say: Say,
    timing: Timing | None = None,
    generation: int = 0,
    ring_size: int = 0,
    fewer: Fewer | None = None,
) -> Meeting:
    """Return when workers were released together; the own port is free again then.

    All of them have the same meeting, and no others have it. Where others train already, this
    worker is released alone, without one.

    `say` takes "INFO" or "WARNING" and a line; `generation` is the newest ring's in which this
    worker was, and `ring_size` how many it had; `fewer` says when not all workers are waited for.
    Raises PeersMissingError at the end of the bound, ContradictionError at once, PortTakenError,
    PortClosedError. Leaves nothing behind when it is killed.
    """
    given = Given(
        spec=spec,
        task=task,
        facts=facts,
        timeout_seconds=timeout_seconds,
        token=token or None,
        say=lambda level, line: say(level, escaped(line)),
        timing=timing or Timing(),
        generation=generation,
        ring_size=ring_size,
        fewer=fewer,
    )
    if warning := address_warning(given.me):
        given.say("WARNING", warning)
    return asyncio.run(released(given))


async def released(given: Given) -> Meeting:
    """Return, and raise, as `pass_gate` does; cancelled, it leaves nothing behind."""
    outcome = await meet(given)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def meet(given: Given, leader: Leader = ChiefRole) -> Exception | Meeting:
    """Return the meeting, or why the gate ends; raise what `open_port` raises.

    `leader` is the chief's part.
    """
    _allow_files(2 * len(given.spec.members) + SPARE_FILES)
    host = listening_host(given.spec, given.me)
    seconds = min(given.timing.port_seconds, given.timeout_seconds)
    with await open_port(host, given.me, seconds, given.say) as listener:
        if len(given.spec.members) == 1:
            return Meeting()
        attempt = Attempt(given)
        role = (leader if attempt.is_chief else MemberRole)(attempt, listener)
        try:
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(loop) for loop in role.loops()]
                error = await role.decide()
                for loop in loops:
                    loop.cancel()
        finally:
            await role.listener.close_all()
    if error is not None:
        return error
    level = shared_level(is_chief=attempt.is_chief)
    given.say(level, released_line(attempt.meeting, given.spec, attempt.seconds))
    return attempt.meeting


def _allow_files(count: int) -> None:
    """Raise this process's soft limit of open files where it is lower, as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
