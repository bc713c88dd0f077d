"""Beside a ring that trains without some workers: whoever comes is received, day and night."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from entrypoint.rendezvous.attempt import Attempt, Given
from entrypoint.rendezvous.gate import meet
from entrypoint.rendezvous.outcome import PortClosedError, PortTakenError
from entrypoint.rendezvous.roles.latecomers import Admission, LatecomersRole, Note


async def receive_latecomers(
    given: Given, present: Sequence[int], note: Note, admission: Admission
) -> None:
    """Receive who comes while those at these places train, as worker 0 does; until cancelled.

    `admission` says who may be taken in. A port that cannot be opened is tried again: what is wrong
    with it may pass.
    """
    absent = set(range(len(given.spec.members))).difference(present)
    trouble = ""

    def lead(attempt: Attempt, listener: socket.socket) -> LatecomersRole:
        nonlocal trouble
        if trouble:
            given.say("INFO", "other workers can be taken in again")
        trouble = ""
        return LatecomersRole(attempt, listener, absent, note, admission)

    while True:
        try:
            await meet(given, lead)
        except (PortTakenError, PortClosedError) as error:
            if not trouble:
                trouble = _line(error)
                given.say("WARNING", f"no other worker can be taken in at present: {trouble}")
        await asyncio.sleep(given.timing.line_seconds)


def _line(error: PortTakenError | PortClosedError) -> str:
    """Return what is wrong with the port, in one line."""
    if isinstance(error, PortTakenError):
        return str(error)
    return "; ".join(f"{one.name} ({one.received}): {one.advice}" for one in error.problems)
