"""Beside a ring that trains without some workers: whoever comes is received, day and night."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.gate import meet
from entrypoint.rendezvous.outcome import PortClosedError, PortTakenError
from entrypoint.rendezvous.roles.latecomers import LatecomersRole, Note
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.network import Port


async def receive_latecomers(terms: Terms, present: Sequence[int], note: Note) -> None:
    """Receive who comes while those at these places train, as worker 0 does; until cancelled.

    A port that cannot be opened is tried again: what is wrong with it may pass.
    """
    absent = set(terms.everyone).difference(present)
    trouble = ""

    def lead(attempt: Attempt, port: Port) -> LatecomersRole:
        nonlocal trouble
        if trouble:
            terms.say("INFO", "other workers can be taken in again")
        trouble = ""
        return LatecomersRole(attempt, port, absent, note)

    while True:
        try:
            await meet(terms, lead)
        except (PortTakenError, PortClosedError) as error:
            if not trouble:
                trouble = _line(error)
                terms.say("WARNING", f"no other worker can be taken in at present: {trouble}")
        await asyncio.sleep(terms.timing.line_seconds)


def _line(error: PortTakenError | PortClosedError) -> str:
    if isinstance(error, PortTakenError):
        return str(error)
    return "; ".join(f"{one.name} ({one.received}): {one.advice}" for one in error.problems)
