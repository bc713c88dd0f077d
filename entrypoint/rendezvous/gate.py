"""The gate: `pass_gate` returns when all workers are here and agree."""

from __future__ import annotations

import asyncio
import resource

from entrypoint.cluster.spec import ClusterSpec, Task
from entrypoint.errors import escaped
from entrypoint.rendezvous.attempt import Attempt, Given, Say
from entrypoint.rendezvous.chief import ChiefRole
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.member import MemberRole
from entrypoint.rendezvous.outcome import released_line
from entrypoint.rendezvous.port import address_warning, listening_host, open_port
from entrypoint.rendezvous.transport.timing import Timing

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
) -> str:
    """Return when all workers were released together; the own port is free again then.

    What is returned is the same for all of them, and for no others: the meeting's identity.

    `say` takes "INFO" or "WARNING" and a line; `generation` is the newest ring's in which this
    worker was. Raises PeersMissingError at the end of the bound, ContradictionError at once,
    PortTakenError, PortClosedError. Leaves nothing behind when it is killed.
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
    )
    if warning := address_warning(given.me):
        given.say("WARNING", warning)
    return asyncio.run(released(given))


async def released(given: Given) -> str:
    """Return, and raise, as `pass_gate` does; cancelled, it leaves nothing behind."""
    _allow_files(2 * len(given.spec.members) + SPARE_FILES)
    outcome = await meet(given)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def meet(given: Given) -> Exception | str:
    """Return the meeting's identity, or why the gate ends; raise what `open_port` raises."""
    host = listening_host(given.spec, given.me)
    seconds = min(given.timing.port_seconds, given.timeout_seconds)
    with await open_port(host, given.me, seconds, given.say) as listener:
        if len(given.spec.members) == 1:
            return ""
        attempt = Attempt(given)
        role = (ChiefRole if attempt.is_chief else MemberRole)(attempt, listener)
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
    given.say("INFO", released_line(len(given.spec.members), attempt.seconds))
    return attempt.meeting


def _allow_files(count: int) -> None:
    """Raise this process's soft limit of open files where it is lower, as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
