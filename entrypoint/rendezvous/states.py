"""The states of a meeting, and which one comes next.

Nothing here waits, sends or reads a clock: the roles say what they see, and act on the answer. Who
says what in which state: docs/explanation/decisions/0019-one-meeting.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Expected(Enum):
    """What a worker that asks knows of another one, from the rings before."""

    COMES = "It was in the last ring, or there was none: fewer wait for it, for a while."
    STARTS = "It was met before its command's start: its command will ask."
    AWAITED = "It waits to be taken in: the last ring has ended for its sake."
    MISSING = "The last ring was without it: nobody waits for it."
    LEFT_OUT = "It has ended rings before: nobody waits for it, and the others go on without it."

    @property
    def is_absent(self) -> bool:
        """Whether nobody waits for it."""
        return self in (Expected.MISSING, Expected.LEFT_OUT)


class ChiefState(Enum):
    """The states of worker 0 at a meeting."""

    GATHERS = "Too few are here: who checks in is compared, and dialled back."
    SENDS_AWAY = "Something is wrong with newcomers alone: they are told, and the others go on."
    CONTRADICTED = "Workers do not agree: all are told, and the meeting ends."
    REPLACED = "Another process was worker 0 in a later ring: this one ends, alone."
    CONFIRMS = "Enough are here: each is asked whether it is alive, and nothing is against it."
    RELEASES = "All have confirmed, and commands are to start: the ports close, and all go."
    LINKS = "All have confirmed, and commands ask: each connects with its neighbours, and all go."
    GAVE_UP = "The time is over, or there was no ring too often."


@dataclass(frozen=True, kw_only=True)
class SeenByChief:
    """What worker 0 sees of a meeting."""

    is_replaced: bool = False
    """Whether one has come that was in a later ring, with another worker 0."""
    contradicts: bool = False
    """Whether workers do not agree."""
    is_about_newcomers: bool = False
    """Whether that is about newcomers alone, or said by them."""
    are_enough: bool = False
    """Whether those who are here may go on."""
    are_confirmed: bool = False
    """Whether these have confirmed it."""
    asks: bool = False
    """Whether worker 0's command runs, and asks for its neighbours."""
    is_late: bool = False
    """Whether the time is over."""
    is_vain: bool = False
    """Whether those who are here were no ring too often, or for too long."""


def chief_state(seen: SeenByChief) -> ChiefState:
    """Return the state of worker 0."""
    order = (
        (seen.is_replaced, ChiefState.REPLACED),
        (seen.contradicts and seen.is_about_newcomers, ChiefState.SENDS_AWAY),
        (seen.contradicts, ChiefState.CONTRADICTED),
        (seen.is_vain, ChiefState.GAVE_UP),
        (seen.are_confirmed and seen.asks, ChiefState.LINKS),
        (seen.are_confirmed, ChiefState.RELEASES),
        (seen.are_enough, ChiefState.CONFIRMS),
        (seen.is_late, ChiefState.GAVE_UP),
    )
    return next((state for holds, state in order if holds), ChiefState.GATHERS)


class MemberState(Enum):
    """The states of each other worker at a meeting."""

    DIALS = "It has no connection with worker 0, and dials it."
    CHECKED_IN = "Worker 0 knows it; it answers, and says what worker 0 says."
    PROMISED = "It has confirmed: for a few seconds worker 0 alone decides."
    LINKED = "It connects with its neighbours, or has, and waits for the others."
    CONTRADICTED = "Workers do not agree: worker 0 is told, and the meeting ends."
    SENDS_AWAY = "A newcomer does not agree, or says so: it is told, and has no say."
    WENT = "It goes on: together with the others, or ahead of them."
    GAVE_UP = "The time is over, or worker 0 has started anew too often."


@dataclass(frozen=True, kw_only=True)
class SeenByMember:
    """What another worker sees of a meeting."""

    is_connected: bool = False
    has_promised: bool = False
    is_linking: bool = False
    contradicts: bool = False
    is_about_newcomers: bool = False
    has_gone: bool = False
    is_late: bool = False
    is_vain: bool = False
    """Whether worker 0's command has started anew too often, and never asked."""


def member_state(seen: SeenByMember) -> MemberState:
    """Return the state of another worker than worker 0."""
    order = (
        (seen.has_gone, MemberState.WENT),
        (seen.contradicts and seen.is_about_newcomers, MemberState.SENDS_AWAY),
        (seen.is_linking, MemberState.LINKED),
        (seen.has_promised, MemberState.PROMISED),
        (seen.contradicts, MemberState.CONTRADICTED),
        (seen.is_late or seen.is_vain, MemberState.GAVE_UP),
        (seen.is_connected, MemberState.CHECKED_IN),
    )
    return next((state for holds, state in order if holds), MemberState.DIALS)
