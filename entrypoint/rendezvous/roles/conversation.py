"""The exchange and the comparison between any two workers, whichever dialled."""

from __future__ import annotations

import contextlib

from entrypoint.cluster.spec import Member
from entrypoint.rendezvous import comparison
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import Difference
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
"""The number of list entries in one message: at most 100 times 280 bytes."""


async def hello(attempt: Attempt, connection: Connection, kind: str) -> Card:
    """Introduce this worker, and return the other worker's card. Raises PeerError."""
    await connection.send(attempt.card.message(kind))
    card = Card.read(await expect(attempt, connection, CARD))
    attempt.refuse_other_job(card)
    return card


async def expect(attempt: Attempt, connection: Connection, kind: str) -> Message:
    """Return the next message of this kind; answer questions that precede it. Raises PeerError."""
    while True:
        message = await connection.receive(attempt.timing.message_seconds)
        if message.kind == kind:
            return message
        await answer(attempt, connection, message)


async def follow(attempt: Attempt, connection: Connection) -> None:
    """Answer until the other side ends the connection, or is silent for too long."""
    seconds = attempt.timing.message_seconds + attempt.timing.collect_seconds
    with contextlib.suppress(ClosedError):
        while True:
            await answer(attempt, connection, await connection.receive(seconds))


async def answer(attempt: Attempt, connection: Connection, message: Message) -> None:
    """Answer a question that any worker may ask any other."""
    if message.kind == HOSTS:
        hosts, start = attempt.terms.facts.hosts, message.number("start")
        page = {"count": len(hosts), "hosts": hosts[start : start + PAGE]}
        await connection.send(Message(HOSTS, page))
    elif message.kind == CONTRADICTION:
        attempt.take(connection, read_contradiction(message))
    else:
        reason = f'sent "{message.kind}" when it should not have'
        raise PeerError(reason)


async def compare(
    attempt: Attempt, connection: Connection, card: Card, expected: Member | None = None
) -> bool:
    """Note all contradictions; return whether there are none.

    `expected` is the member at whose address the other worker answered; None if it dialled. Only
    one side of a connection compares, and tells the other: the chief, otherwise the dialer.

    Raises PeerError, also if a wrong worker answers at a member's address, but not for long yet.
    """
    where = str(expected.address) if expected else _claimed(attempt, connection, card)
    found = []
    if card.hosts != attempt.card.hosts:
        found.append(await _compare_hosts(attempt, connection))
    elif expected:
        attempt.refuse_passing(card, expected)
        if card.task != expected.task:
            found.append(comparison.wrong_index(attempt.spec, card.task, expected))
    found += comparison.other_versions(card, attempt.card, attempt.me)
    found += comparison.other_settings(card, attempt.card, attempt.me)
    for difference in found:
        attempt.contradictions.add(card, where, difference)
    attempt.compared.add(card.boot)
    attempt.changed()
    return not found


def _claimed(attempt: Attempt, connection: Connection, card: Card) -> str:
    """Return a worker's address in the list if both lists are equal, otherwise its IP address."""
    member = attempt.member(card.task)
    return str(member.address) if member and card.hosts == attempt.card.hosts else connection.ip


async def _compare_hosts(attempt: Attempt, connection: Connection) -> Difference:
    """Return the first difference between the two lists. Raises PeerError."""
    mine, start = attempt.terms.facts.hosts, 0
    while True:
        await connection.send(Message(HOSTS, {"start": start}))
        answer = await expect(attempt, connection, HOSTS)
        page, count = answer.texts("hosts"), answer.number("count")
        if count != len(mine):
            sizes = f"{count} entries", f"{len(mine)} entries"
            return comparison.other_hosts(*sizes, attempt.me)
        for position, theirs in enumerate(page, start):
            own = mine[position] if position < count else ""
            if theirs != own:
                entry = f"entry {position + 1}: {theirs}"
                return comparison.other_hosts(entry, own, attempt.me)
        start += len(page)
        if not page:
            return comparison.other_hosts("a list that differs", "the same list", attempt.me)
