"""The log lines of a waiting member: its own until it reaches worker 0, then worker 0's."""

from __future__ import annotations

from entrypoint.cluster.spec import Member
from entrypoint.errors import Problem
from entrypoint.rendezvous.attempt import Attempt
from entrypoint.rendezvous.comparison import in_a_line
from entrypoint.rendezvous.outcome import chief_line
from entrypoint.rendezvous.transport.reasons import NOT_ASKED, REFUSED, PeerError

SELDOM_SECONDS = 600.0
"""The longest pause between two equal lines."""


class ChiefLines:
    """Worker 0's lines, and warnings about worker 0. None is repeated often."""

    def __init__(self, attempt: Attempt, chief: Member) -> None:
        self._attempt, self._chief = attempt, chief
        self._line, self._warning = "", ""
        self._pause, self._say_again = 0.0, 0.0

    def hear(self, line: str) -> None:
        """Log the chief's line; repeat it at growing intervals, because a wait may last days."""
        now = self._attempt.now
        if line != self._line:
            self._line, self._pause = line, self._attempt.timing.line_seconds
        elif now < self._say_again:
            return
        self._attempt.terms.say("INFO", line)
        self._say_again, self._pause = now + self._pause, min(2 * self._pause, SELDOM_SECONDS)

    def refuse_newcomer(self, problems: tuple[Problem, ...]) -> None:
        """Log that a new chief exits alone because of these problems. Raises PeerError."""
        found = "; ".join(map(in_a_line, problems))
        self._warn(f"{self._chief.task} was in no ring with this worker, and exits alone: {found}")
        raise PeerError(f"the process that answered there differs, and exits: {found}")

    def pass_over(self, problems: tuple[Problem, ...]) -> None:
        """Log problems that another worker found, but that do not end the meeting."""
        found = "; ".join(map(in_a_line, problems))
        self._warn(f"another worker does not agree, but cannot veto {self._chief.task}: {found}")

    def _warn(self, warning: str) -> None:
        if warning != self._warning:
            self._warning = warning
            self._attempt.terms.say("WARNING", warning)

    def status(self, *, is_connected: bool) -> str:
        """Return which workers are missing, as far as this member knows."""
        if is_connected and self._line:
            return self._line
        silent = "checked in, but the chief has not yet said who is missing"
        reason = silent if is_connected else self._attempt.trouble
        if reason in ("", REFUSED) and self._attempt.limit.is_starting:
            reason = NOT_ASKED
        if self._line:  # the chief gives up at the same moment, or was lost itself
            reason = f"{reason} (its last report: {self._line})"
        return chief_line(self._chief, reason, self._attempt.seconds)
