"""The states of a meeting, and which state comes next.

Nothing here waits, sends or reads a clock. The roles report what they see, and act on the result.
docs/explanation/decisions/0019-one-meeting.md lists the messages of each state.
"""

from __future__ import annotations

from enum import Enum


class Expected(Enum):
    """The expectation about another worker, from earlier rings, when this worker's command asks."""

    COMES = "It was in the last ring, or there was none: the others wait for it for some time."
    STARTS = "It was met before its command started, and the command will ask."
    AWAITED = "It waits to join: the last ring ended to let it join."
    MISSING = "It was not in the last ring: no worker waits for it."
    LEFT_OUT = "It has broken rings before: the others continue without it, and do not wait for it."

    @property
    def is_absent(self) -> bool:
        """Whether nobody waits for it."""
        return self in (Expected.MISSING, Expected.LEFT_OUT)


class Disagreement(Enum):
    """The kinds of disagreement at a meeting."""

    NONE = "All workers agree."
    WITH_NEWCOMERS = "Only newcomers differ, or only they report it: the others continue."
    OF_WORKERS = "Workers differ, and may not continue without each other."
    WITH_SUCCESSOR = "A worker was in a later ring, in which another process was worker 0."


class ChiefState(Enum):
    """The states of worker 0 at a meeting."""

    GATHERS = "Too few are here: workers that check in are compared and dialled back."
    SENDS_AWAY = "Only newcomers have a problem: they are told, and the others continue."
    CONTRADICTED = "Workers do not agree: all are told, and the meeting ends."
    REPLACED = "Another process was worker 0 in a later ring: only this one exits."
    CONFIRMS = "Enough are here: each is asked whether it is alive and agrees."
    RELEASES = "All have confirmed, and commands are to start: the ports close, and all continue."
    LINKS = "All have confirmed, and commands ask: neighbours connect, and all continue."
    GAVE_UP = "The time is over, or too many attempts to form a ring have failed."


class Gathered(Enum):
    """The progress of worker 0 with the present workers."""

    TOO_FEW = "The present workers may not continue."
    ENOUGH = "They may continue, and have not confirmed yet."
    CONFIRMED = "They may continue, and have confirmed."


def chief_state(
    disagreement: Disagreement, gathered: Gathered, *, asks: bool, is_over: bool
) -> ChiefState:
    """Return the next state of worker 0. `asks`: its command asks for its neighbours.

    `is_over`: the time is over, or too many attempts to form a ring have failed.
    """
    if disagreement in _ENDS:
        return _ENDS[disagreement]
    if is_over:
        return ChiefState.GAVE_UP
    if gathered is Gathered.CONFIRMED:
        return ChiefState.LINKS if asks else ChiefState.RELEASES
    return ChiefState.CONFIRMS if gathered is Gathered.ENOUGH else ChiefState.GATHERS


_ENDS = {
    Disagreement.WITH_SUCCESSOR: ChiefState.REPLACED,
    Disagreement.WITH_NEWCOMERS: ChiefState.SENDS_AWAY,
    Disagreement.OF_WORKERS: ChiefState.CONTRADICTED,
}


class MemberState(Enum):
    """The states of each other worker at a meeting."""

    DIALS = "It has no connection with worker 0, and dials it."
    CHECKED_IN = "Worker 0 knows it; it answers, and logs worker 0's lines."
    PROMISED = "It has confirmed: for a few seconds worker 0 alone decides."
    LINKED = "It connects with its neighbours, then waits for the others."
    CONTRADICTED = "Workers do not agree: worker 0 is told, and the meeting ends."
    SENDS_AWAY = "Only a newcomer disagrees: it is told, and cannot veto."
    WENT = "It continues: together with the others, or ahead of them."
    GAVE_UP = "The time is over, or worker 0 has restarted too often."


def member_state(state: MemberState, disagreement: Disagreement, *, is_over: bool) -> MemberState:
    """Return the next state of another worker.

    `state`: the state of its conversation with worker 0. `is_over`: the time is over.
    """
    if state is MemberState.WENT:
        return state
    if disagreement is Disagreement.WITH_NEWCOMERS:
        return MemberState.SENDS_AWAY
    if state in (MemberState.LINKED, MemberState.PROMISED):
        return state
    if disagreement is Disagreement.OF_WORKERS:
        return MemberState.CONTRADICTED
    return MemberState.GAVE_UP if is_over else state
