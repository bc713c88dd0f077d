"""What comes of a meeting: who goes on, or an error; and the lines that say who is missing."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.errors import EXIT_PEER_LOST, ConfigurationError, escaped, listed, shortened

WENT_AHEAD = "ahead"


@dataclass(frozen=True)
class Meeting:
    """Who goes on together."""

    identity: str = ""
    """Worker 0's number for it; WENT_AHEAD where this worker goes ahead and the others wait for it;
    "" where there was none, or where the others train meanwhile."""
    positions: tuple[int, ...] = ()
    """Who they are: places in the list of all workers, ascending; () for all of them."""

    @property
    def text(self) -> str:
        """The meeting as a process tells it to one whose command is about to start."""
        return " ".join([self.identity, *map(str, self.positions)])

    @classmethod
    def read(cls, text: str) -> Meeting:
        """Return what a process has told."""
        identity, *positions = text.split(" ")
        return cls(identity, tuple(map(int, positions)))


@dataclass(frozen=True)
class Ring:
    """This worker's part of a ring."""

    rank: int
    size: int
    generation: int
    positions: tuple[int, ...]
    """Whose ring it is: places in the list of all workers, ascending."""
    left: socket.socket
    right: socket.socket

    def close(self) -> None:
        """Close the own copies of both."""
        self.left.close()
        self.right.close()


@dataclass(frozen=True)
class Fewer:
    """When those who have been in a ring go on without the others."""

    least: int
    """How many they must be, worker 0 among them: more than half of all."""
    after_seconds: float
    """For how long they wait for the others first."""


MOST_NAMED = 10
"""Missing workers that a line names."""

LONGEST_REASON = 3500
"""Characters that say who is missing and why. A message's text (4096) holds the whole line."""

NOT_HEARD_FROM = "not heard from yet"


def waiting_line(missing: Sequence[tuple[Member, str]], count: int, seconds: float) -> str:
    """Return for example "waiting for 1 of 4 workers for 12 s: worker-2 at c:2222: refused …"."""
    named = with_reasons(missing)
    return f"waiting for {len(missing)} of {count} workers for {seconds:.0f} s: {named}"


def with_reasons(missing: Sequence[tuple[Member, str]]) -> str:
    """Return members and why each is missing; those with the same reason stand together."""
    reasons: dict[str, list[str]] = {}
    for member, reason in missing[:MOST_NAMED]:
        reasons.setdefault(reason, []).append(f"{member.task} at {member.address}")
    named = "; ".join(f"{', '.join(members)}: {reason}" for reason, members in reasons.items())
    more = len(missing) - MOST_NAMED
    return _bounded(named) + (f"; and {more} more" if more > 0 else "")


def no_ring(troubles: Mapping[str, str]) -> str:
    """Return who misses whom; `troubles` says it for each worker."""
    named = "; ".join(f"{name} misses {troubles[name]}" for name in [*troubles][:MOST_NAMED])
    more = len(troubles) - MOST_NAMED
    return _bounded(named) + (f"; and {more} more miss somebody" if more > 0 else "")


def chief_line(chief: Member, reason: str, seconds: float) -> str:
    """Return what a member says that has not reached the chief."""
    shown = _bounded(reason or NOT_HEARD_FROM)
    return f"waiting for {chief.task} at {chief.address} (the chief) for {seconds:.0f} s: {shown}"


def _bounded(text: str) -> str:
    """Return a text that is safe in a line, and not too long for it."""
    return shortened(escaped(text), LONGEST_REASON)


def ahead_line(meeting: Meeting, spec: ClusterSpec) -> str:
    """Return what a worker says that goes ahead of the others."""
    if meeting.identity:
        return (
            f"{spec.chief.task} and others wait: the command starts, and meets them when it asks "
            "for its neighbours"
        )
    return (
        f"{spec.chief.task} and others train already: the command starts, and is taken in "
        "as soon as it asks for its neighbours"
    )


def released_line(meeting: Meeting, spec: ClusterSpec, seconds: float) -> str:
    """Return what every worker says at the end."""
    members = spec.members
    if not meeting.positions:
        return f"{len(members)} workers are here and agree ({seconds:.1f} s)"
    missing = [str(one.task) for place, one in enumerate(members) if place not in meeting.positions]
    count = len(meeting.positions)
    return (
        f"{count} of {len(members)} workers are here and agree ({seconds:.1f} s): they go on "
        f"without {listed(missing)} (MIN_WORKERS)"
    )


class PeersMissingError(Exception):
    """Not all workers came in time; the message says who is missing and why."""

    exit_code = EXIT_PEER_LOST


class NobodyCameError(PeersMissingError):
    """No other worker came at all, not even for a while."""


class ContradictionError(ConfigurationError):
    """The workers do not agree; every worker that is connected raises the same problems."""


class PortTakenError(Exception):
    """Something else still listens on this worker's port; trying again later may help."""

    exit_code = EXIT_PEER_LOST


class PortClosedError(ConfigurationError):
    """This worker's port may not be opened."""
