"""What contradicts what: a worker that was met, compared with this one."""

from __future__ import annotations

from collections.abc import Iterable

from entrypoint.cluster.cluster import Member
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.contradictions import Difference
from entrypoint.rendezvous.converse import expect
from entrypoint.rendezvous.facts import Card
from entrypoint.rendezvous.transport.connection import Connection
from entrypoint.rendezvous.transport.messages import HOSTS, Message

NOT_SET = "not set"


async def judge(
    attempt: Attempt, connection: Connection, card: Card, expected: Member | None = None
) -> bool:
    """Note all that contradicts; return whether nothing does.

    `expected` is the member at whose address the other was met; None where it came by itself. One
    side of a connection judges and tells the other: the chief, else the one that dialled. Raises
    PeerError.
    """
    where = str(expected.address) if expected else _claimed(attempt, connection, card)
    found = []
    if card.hosts != attempt.card.hosts:
        found.append(await _hosts(attempt, connection))
    elif expected and card.task != expected.task:
        found.append(_wrong_index(attempt, card, expected))
    found += _versions(attempt, card)
    found += _settings(attempt, card)
    for difference in found:
        attempt.contradictions.add(card, where, difference)
    attempt.judged.add(card.boot)
    attempt.changed()
    return not found


def _claimed(attempt: Attempt, connection: Connection, card: Card) -> str:
    """Return the address that a worker has in the list that both have, else where it is."""
    member = attempt.member(card.task)
    return str(member.address) if member and card.hosts == attempt.card.hosts else connection.ip


def _me(attempt: Attempt) -> str:
    """Return this worker as messages name it to others."""
    return f"{attempt.me.task} at {attempt.me.address}"


async def _hosts(attempt: Attempt, connection: Connection) -> Difference:
    """Return where the two lists differ first; raise PeerError."""
    mine, start = attempt.given.facts.hosts, 0
    while True:
        await connection.send(Message(HOSTS, {"start": start}))
        answer = await expect(attempt, connection, HOSTS)
        page, count = answer.texts("hosts"), answer.number("count")
        if count != len(mine):
            return _host_difference(attempt, f"{count} entries", f"{len(mine)} entries")
        for position, theirs in enumerate(page, start):
            own = mine[position] if position < count else ""
            if theirs != own:
                return _host_difference(attempt, f"entry {position + 1}: {theirs}", own)
        start += len(page)
        if not page:
            return _host_difference(attempt, "another list", "one list")


def _host_difference(attempt: Attempt, theirs: str, own: str) -> Difference:
    """Return one difference of two lists."""
    advice = "All workers need the same list in the same order."
    return Difference("host list", theirs, f"{own}, as {_me(attempt)} has", advice)


def _wrong_index(attempt: Attempt, card: Card, expected: Member) -> Difference:
    """Return what is wrong with a worker at another's address; it may be this very process."""
    return Difference(
        attempt.index_name,
        attempt.index(card.task),
        f"{attempt.index(expected.task)}, because it answers at {expected.task}'s address "
        f"{expected.address}",
        f"If the index is right, the list or the name {expected.address.host} is wrong.",
    )


def same_index(attempt: Attempt, card: Card, other: str) -> Difference:
    """Return what is wrong with a worker whose index another has, too, at that address."""
    return Difference(
        attempt.index_name,
        attempt.index(card.task),
        "an index that no other worker has",
        f"Another {card.task} runs at {other}.",
    )


def _versions(attempt: Attempt, card: Card) -> Iterable[Difference]:
    """Yield a difference for each value that both know and do not share."""
    mine = attempt.card
    for what, theirs, own, advice in (
        ("image version", card.image, mine.image, "Use the same image everywhere."),
        ("TensorFlow version", card.tensorflow, mine.tensorflow, "Use the same image everywhere."),
        ("GPUS_PER_WORKER", card.gpus_per_worker, mine.gpus_per_worker, ""),
    ):
        if theirs and own and theirs != own:
            yield Difference(what, theirs, f"{own}, as {_me(attempt)} has", advice)


def _settings(attempt: Attempt, card: Card) -> Iterable[Difference]:
    """Yield a difference for each setting of the trainer that the two do not share."""
    mine = attempt.card
    if card.settings_digest == mine.settings_digest:
        return
    if not card.settings or not mine.settings:
        theirs, own = (_command(settings) for settings in (card.settings, mine.settings))
        yield Difference("command", theirs, f"{own}, as {_me(attempt)} runs", "")
        return
    names = sorted({*card.settings, *mine.settings})
    pairs = [(n, card.settings.get(n, NOT_SET), mine.settings.get(n, NOT_SET)) for n in names]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    hidden = ("the trainer's settings", "other values", "the same values")
    for name, theirs, own in differing or [hidden]:
        yield Difference(name, theirs, f"{own}, as {_me(attempt)} has", "")


def _command(settings: object) -> str:
    """Return what kind of command has such settings."""
    return "the trainer" if settings else "a command that is not the trainer"
