"""Who goes on: all, or enough of those who trained last, without the others."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.rendezvous.attempt import Given
from entrypoint.rendezvous.roles.session import Session


def chosen(given: Given, here: Sequence[Session], seconds: float) -> list[Session] | None:
    """Return who may go on now with the chief, which has waited so long; None: it is too early.

    That is all, unless fewer may go on, who don't wait for one that only starts.
    """
    count = len(given.spec.members)
    is_complete = len(here) == count - 1
    if not is_complete and not (given.fewer and seconds >= patience(given, here)):
        return None
    groups = [list(here)]
    if given.asks:
        groups.insert(0, [session for session in here if session.card.asks])
    if given.left_out:
        groups.insert(0, [one for one in groups[0] if one.member.task not in given.left_out])
    if given.only_last_ring:
        of_it = [one for one in groups[0] if one.card.generation == given.generation]
        groups.insert(0, of_it)
    for group in groups:
        if len(group) == count - 1 or are_enough(given, group, here):
            return group
    return None


def patience(given: Given, here: Sequence[Session]) -> float:
    """Return for how many seconds fewer wait for the others; it ends before the gate does.

    Nobody is waited for who was missing already, unless to be taken in.
    """
    others = {member.task for member in given.spec.members} - {given.task}
    if others - given.missing <= {session.member.task for session in here}:
        return 0.0
    after_seconds = given.fewer.after_seconds if given.fewer else 0.0
    if not given.awaited:
        return after_seconds
    return max(after_seconds, min(given.timing.alive_seconds, given.timeout_seconds / 2))


def are_enough(given: Given, group: Sequence[Session], here: Sequence[Session]) -> bool:
    """Whether the chief and this group, which are fewer than all, may go on.

    They are as many as MIN_WORKERS, and more than half of the newest ring that anyone here was in
    are among them: the very processes, since those in their places remember nothing. So no ring is
    followed by two smaller ones, whoever was replaced or cut off.
    """
    if not given.fewer or len(group) + 1 < given.fewer.least:
        return False
    there, size = _of_last_ring(given, group, here)
    return 2 * there > size


def held_up(given: Given, here: Sequence[Session]) -> str:
    """Return why those who are here wait although they are as many as MIN_WORKERS; else ""."""
    there, size = _of_last_ring(given, here, here)
    if not given.fewer or len(here) + 1 < given.fewer.least or not there or 2 * there > size:
        return ""
    count = len(given.spec.members)
    return (
        f"{len(here) + 1} of {count} workers are here, but only {there} of the {size} that trained "
        "last, of which more than half have to be, or all workers"
    )


def _of_last_ring(
    given: Given, group: Sequence[Session], here: Sequence[Session]
) -> tuple[int, int]:
    """Return how many of a group, with the chief, were in the newest ring, and how many it had.

    None where nobody here was in any.
    """
    rings = [(session.card.generation, session.card.ring_size) for session in here]
    newest, size = max([(given.generation, given.ring_size), *rings])
    generations = [given.generation, *(session.card.generation for session in group)]
    there = generations.count(newest) if newest else 0
    return there, size or len(given.spec.members)
