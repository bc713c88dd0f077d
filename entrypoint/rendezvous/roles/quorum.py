"""Who goes on: all, or enough of those who trained last, without the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from entrypoint.cluster.spec import Task
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.states import Expected
from entrypoint.rendezvous.terms import Terms

NOBODY: frozenset[Task] = frozenset()


def choose_members(
    terms: Terms, here: Sequence[Session], seconds: float, ahead: Collection[Task] = NOBODY
) -> list[Session] | None:
    """Return who may go on now with the chief, which has waited so long; None: it is too early.

    That is all, unless fewer may go on. Where the chief asks, only those who ask go on with it;
    those who were sent ahead only start, and are not waited for by fewer.
    """
    count, going = len(terms.spec.members), who_may_go(terms, here)
    is_complete = len(going) == count - 1
    if not is_complete and not (terms.fewer and seconds >= patience(terms, going, ahead)):
        return None
    groups = [going]
    stay = [one for one in going if _expected(terms, one.member.task) is not Expected.LEFT_OUT]
    if stay != going:
        groups.insert(0, stay)
    if terms.suspects.only_last_ring:
        of_it = [one for one in groups[0] if one.card.generation == terms.generation]
        groups.insert(0, of_it)
    for group in groups:
        if len(group) == count - 1 or are_enough(terms, group, here):
            return group
    return None


def who_may_go(terms: Terms, here: Sequence[Session]) -> list[Session]:
    """Return who may go on with this worker: where it asks, those who ask, too."""
    return [one for one in here if one.card.asks] if terms.asks else list(here)


def patience(terms: Terms, here: Sequence[Session], ahead: Collection[Task] = NOBODY) -> float:
    """Return for how many seconds fewer wait for the others.

    Nobody is waited for who was missing already, unless to be taken in. Whoever was met before the
    commands' start will ask, and is waited for.
    """
    expected = {
        member.task: _expected(terms, member.task)
        for member in terms.spec.members
        if member.task != terms.task
    }
    there = {session.member.task for session in here}
    waited_for = [one for task, one in expected.items() if task not in there and task not in ahead]
    if all(one.is_absent for one in waited_for):
        return 0.0
    if Expected.STARTS in waited_for:
        return inf
    after_seconds = terms.fewer.after_seconds if terms.fewer else 0.0
    if Expected.AWAITED not in expected.values():
        return after_seconds
    return max(after_seconds, min(terms.timing.alive_seconds, terms.timeout_seconds / 2))


def _expected(terms: Terms, task: Task) -> Expected:
    return terms.suspects.expected(terms.places[task])


def are_enough(terms: Terms, group: Sequence[Session], here: Sequence[Session]) -> bool:
    """Whether the chief and this group, which are fewer than all, may go on.

    They are as many as MIN_WORKERS, and more than half of the newest ring that anyone here was in
    are among them: the very processes, since those in their places remember nothing. So no ring is
    followed by two smaller ones, whoever was replaced or cut off.
    """
    if not terms.fewer or len(group) + 1 < terms.fewer.least:
        return False
    there, size = _of_last_ring(terms, group, here)
    return 2 * there > size


def held_up(terms: Terms, here: Sequence[Session]) -> str:
    """Return why those who are here wait although they are as many as MIN_WORKERS; else ""."""
    there, size = _of_last_ring(terms, here, here)
    if not terms.fewer or len(here) + 1 < terms.fewer.least or not there or 2 * there > size:
        return ""
    count = len(terms.spec.members)
    return (
        f"{len(here) + 1} of {count} workers are here, but only {there} of the {size} that trained "
        "last, of which more than half have to be, or all workers"
    )


def _of_last_ring(
    terms: Terms, group: Sequence[Session], here: Sequence[Session]
) -> tuple[int, int]:
    """Return how many of a group, with the chief, were in the newest ring, and how many it had.

    None where nobody here was in any.
    """
    rings = [(session.card.generation, session.card.ring_size) for session in here]
    newest, size = max([(terms.generation, terms.ring_size), *rings])
    generations = [terms.generation, *(session.card.generation for session in group)]
    there = generations.count(newest) if newest else 0
    return there, size or len(terms.spec.members)
