"""What any two workers say to each other, whichever of them dialled."""

from __future__ import annotations

import contextlib

from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import (
    CARD,
    CONTRADICTION,
    HOSTS,
    Message,
    read_contradiction,
)
from entrypoint.rendezvous.transport.reasons import ClosedError, PeerError

PAGE = 100
"""Entries of the host list in one message: at most 100 times 280 bytes."""


async def hello(attempt: Attempt, connection: Connection, kind: str) -> Card:
    """Say who this is, and return who the other is."""
    await connection.send(attempt.card.message(kind))
    return Card.read(await expect(attempt, connection, CARD))


async def expect(attempt: Attempt, connection: Connection, kind: str) -> Message:
    """Return the next message, which has to be of this kind."""
    while True:
        message = await connection.receive(attempt.timing.message_seconds)
        if message.kind == kind:
            return message
        await answer(attempt, connection, message)


async def follow(attempt: Attempt, connection: Connection) -> None:
    """Answer until the other side ends the connection, or says nothing for too long."""
    seconds = attempt.timing.message_seconds + attempt.timing.collect_seconds
    with contextlib.suppress(ClosedError):
        while True:
            await answer(attempt, connection, await connection.receive(seconds))


async def answer(attempt: Attempt, connection: Connection, message: Message) -> None:
    """Answer what any worker may ask of any other."""
    if message.kind == HOSTS:
        hosts, start = attempt.given.facts.hosts, message.number("start")
        page = {"count": len(hosts), "hosts": hosts[start : start + PAGE]}
        await connection.send(Message(HOSTS, page))
    elif message.kind == CONTRADICTION:
        attempt.contradictions.take(read_contradiction(message))
        attempt.changed()
    else:
        reason = f'sent "{message.kind}" when it should not'
        raise PeerError(reason)
