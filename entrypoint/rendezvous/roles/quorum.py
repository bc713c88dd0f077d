"""Decides which workers continue: all, or enough of those that trained last."""

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
    """Return the workers that may continue now with the chief; None: it is too early.

    These are all workers, unless fewer may continue. If the chief's command asks, only workers that
    also ask may continue. Workers that were sent ahead (`ahead`) are still starting, and fewer
    workers do not wait for them. `seconds` have passed since the meeting began.
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
    """Return the workers that may continue: if this command asks, only those that also ask."""
    return [one for one in here if one.card.asks] if terms.asks else list(here)


def patience(terms: Terms, here: Sequence[Session], ahead: Collection[Task] = NOBODY) -> float:
    """Return the seconds for which fewer workers wait for the others.

    They do not wait for workers that were already missing, except to let them rejoin. They do wait
    for workers that were met before the commands' start, because these will ask.
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
    """Whether the chief and this group may continue without the others.

    They must be at least MIN_WORKERS, and must include more than half of the newest ring that any
    present worker was in. Processes count, not places, because a restarted process remembers
    nothing. So a ring never splits into two, even if workers were replaced or cut off.
    """
    if not terms.fewer or len(group) + 1 < terms.fewer.least:
        return False
    there, size = _of_last_ring(terms, group, here)
    return 2 * there > size


def held_up(terms: Terms, here: Sequence[Session]) -> str:
    """Return why the present workers wait although they are at least MIN_WORKERS; "" otherwise."""
    there, size = _of_last_ring(terms, here, here)
    if not terms.fewer or len(here) + 1 < terms.fewer.least or not there or 2 * there > size:
        return ""
    count = len(terms.spec.members)
    return (
        f"{len(here) + 1} of {count} workers are here, but only {there} of the {size} that "
        "trained last: more than half of those must be here, or all workers"
    )


def _of_last_ring(
    terms: Terms, group: Sequence[Session], here: Sequence[Session]
) -> tuple[int, int]:
    """Return how many of the chief and a group were in the newest ring, and the ring's size.

    The count is 0 if no present worker was in a ring.
    """
    rings = [(session.card.generation, session.card.ring_size) for session in here]
    newest, size = max([(terms.generation, terms.ring_size), *rings])
    generations = [terms.generation, *(session.card.generation for session in group)]
    there = generations.count(newest) if newest else 0
    return there, size or len(terms.spec.members)
