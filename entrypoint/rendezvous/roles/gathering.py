"""The state of all workers for worker 0: may continue, starting, or missing."""

from __future__ import annotations

from entrypoint.cluster.spec import Member, Task
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.outcome import waiting_line
from entrypoint.rendezvous.roles.check_ins import CheckIns
from entrypoint.rendezvous.roles.quorum import (
    are_enough,
    choose_members,
    held_up,
    patience,
    who_may_go,
)
from entrypoint.rendezvous.roles.session import Session
from entrypoint.rendezvous.states import Expected
from entrypoint.rendezvous.transport.messages import AHEAD, Message
from entrypoint.rendezvous.transport.reasons import NOT_ASKED, REFUSED


class Gathering:
    """Worker 0's knowledge of the present workers, beyond the list of check-ins."""

    def __init__(self, attempt: Attempt, check_ins: CheckIns) -> None:
        self._attempt, self._check_ins, self._terms = attempt, check_ins, attempt.terms
        self._starts: dict[Task, int] = {}
        """The number of times that each worker was sent ahead because its command starts."""
        self._sent: set[Session] = set()
        """The sessions that were sent ahead."""

    @property
    def here(self) -> list[Session]:
        """The present workers that may continue; if this worker asks, only those that also ask."""
        return who_may_go(self._terms, self._check_ins.here)

    @property
    def is_complete(self) -> bool:
        """Whether all others may continue."""
        return len(self.here) == len(self._check_ins.others)

    @property
    def losses(self) -> int:
        """How often in a row a worker was sent ahead and then lost before a ring formed."""
        return max(0, max(self._starts.values(), default=0) - 1)

    def choose(self) -> list[Session] | None:
        """Return the workers that may continue now; None: it is too early."""
        seconds = self._attempt.seconds
        return choose_members(self._terms, self._check_ins.here, seconds, self._starts)

    def patience(self) -> float:
        """Return the seconds to wait for news until the group that may continue changes."""
        left = self._attempt.limit.left_seconds
        until = patience(self._terms, self.here, self._starts) - self._attempt.seconds
        return min(left, until) if until > 0 else left

    async def send_ahead(self) -> None:
        """If this command asks, send workers ahead whose commands are starting: they will ask."""
        here = self._check_ins.here
        starting = [one for one in here if not one.card.asks and one not in self._sent]
        for session in starting if self._terms.asks else ():
            self._sent.add(session)
            task = session.member.task
            self._starts[task] = self._starts.get(task, 0) + 1
            self._attempt.limit.renew(is_starting=True)
            train = are_enough(self._terms, self.here, here)
            await session.send(Message(AHEAD, {"train": train}))

    def note_limit(self) -> None:
        """Switch to the limit for starting commands if all awaited workers are starting."""
        here = {session.member.task for session in self.here}
        missing = [one for one in self._check_ins.others if one.task not in here]
        waited_for = [one for one in missing if not self._is_absent(one)] or missing
        is_starting = self._terms.asks and all(map(self._is_starting, waited_for))
        self._attempt.limit.note(is_starting=is_starting)

    def _is_absent(self, member: Member) -> bool:
        """Whether nobody waits for this worker, and it has not returned."""
        expected = self._terms.suspects.expected(self._terms.places[member.task])
        return expected.is_absent and member.task not in self._starts

    def _is_starting(self, member: Member) -> bool:
        """Whether a worker has been here, and its command is still starting."""
        expected = self._terms.suspects.expected(self._terms.places[member.task])
        return member.task in self._starts or expected is Expected.STARTS

    def line(self, trouble: str) -> str:
        """Return the line with the missing workers, otherwise with `trouble` (no ring)."""
        count, missing = len(self._attempt.spec.members), dict(self._check_ins.missing())
        starting = [one.member for one in self._check_ins.here if not one.card.asks]
        missing |= dict.fromkeys(starting if self._terms.asks else (), NOT_ASKED)
        if not missing and trouble:
            return f"waiting for a ring of {count} workers: {trouble}"
        reasons = [(member, self._why(member, why)) for member, why in missing.items()]
        line = waiting_line(reasons, count, self._attempt.seconds)
        why = held_up(self._terms, self.here)
        return f"{line}; {why}" if why else line

    def _why(self, member: Member, why: str) -> str:
        """Return why a worker is missing. The port of a starting worker is closed."""
        is_closed = REFUSED in why or not self._check_ins.was_probed(member)
        return NOT_ASKED if self._is_starting(member) and is_closed else why
