"""The result of a meeting: the workers that continue, or an error; and its log lines."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.cluster.spec import ClusterSpec, Member
from entrypoint.errors import EXIT_PEER_LOST, ConfigurationError, escaped, listed, shortened

WENT_AHEAD = "ahead"


@dataclass(frozen=True)
class Meeting:
    """The workers that continue together."""

    identity: str = ""
    """Worker 0's ID for the meeting. WENT_AHEAD if this worker goes ahead and the others wait for
    it; "" if there was no meeting, or if the others train meanwhile."""
    positions: tuple[int, ...] = ()
    """The places of these workers in the list of all workers, ascending; () for all of them."""

    @property
    def text(self) -> str:
        """Return the meeting as a text, for the process whose command is about to start."""
        return " ".join([self.identity, *map(str, self.positions)])

    @classmethod
    def read(cls, text: str) -> Meeting:
        """Read the meeting from such a text."""
        identity, *positions = text.split(" ")
        return cls(identity, tuple(map(int, positions)))


@dataclass(frozen=True)
class Ring:
    """This worker's part of a ring."""

    rank: int
    size: int
    generation: int
    positions: tuple[int, ...]
    """The members' places in the list of all workers, ascending."""
    left: socket.socket
    right: socket.socket
    probes: tuple[socket.socket, socket.socket] | None = None
    """More connections with the left and the right neighbour, to measure the network. None if it is
    not measured now, or if they could not be made."""

    def close(self) -> None:
        """Close this process's copies of `left` and `right`, but not the probes."""
        self.left.close()
        self.right.close()


@dataclass(frozen=True)
class Fewer:
    """The rules by which workers of a ring continue without the others."""

    least: int
    """The smallest number of workers, worker 0 included: more than half of all."""
    after_seconds: float
    """The seconds for which they first wait for the others."""


MOST_NAMED = 10
"""The number of missing workers that a line names."""

LONGEST_REASON = 3500
"""The number of characters for the missing workers and reasons, so that the whole line fits into a
message's text (4096)."""

NOT_HEARD_FROM = "not heard from yet"


def waiting_line(missing: Sequence[tuple[Member, str]], count: int, seconds: float) -> str:
    """Return a line such as "waiting for 1 of 4 workers for 12 s: worker-2 at c:2222: …"."""
    named = with_reasons(missing)
    return f"waiting for {len(missing)} of {count} workers for {seconds:.0f} s: {named}"


def with_reasons(missing: Sequence[tuple[Member, str]]) -> str:
    """Return the missing members with the reasons. Members with the same reason are grouped."""
    reasons: dict[str, list[str]] = {}
    for member, reason in missing[:MOST_NAMED]:
        reasons.setdefault(reason, []).append(f"{member.task} at {member.address}")
    named = "; ".join(f"{', '.join(members)}: {reason}" for reason, members in reasons.items())
    more = len(missing) - MOST_NAMED
    return _bounded(named) + (f"; and {more} more" if more > 0 else "")


def no_ring(troubles: Mapping[str, str]) -> str:
    """Return why there is no ring; `troubles` maps a worker's name to its problem."""
    named = "; ".join(f"{name} {troubles[name]}" for name in [*troubles][:MOST_NAMED])
    more = len(troubles) - MOST_NAMED
    return _bounded(named) + (f"; and {more} more" if more > 0 else "")


def chief_line(chief: Member, reason: str, seconds: float) -> str:
    """Return the line of a member that has not reached the chief."""
    shown = _bounded(reason or NOT_HEARD_FROM)
    return f"waiting for {chief.task} at {chief.address} (the chief) for {seconds:.0f} s: {shown}"


def _bounded(text: str) -> str:
    """Return a text that is safe and short enough for one line."""
    return shortened(escaped(text), LONGEST_REASON)


def ahead_line(meeting: Meeting, spec: ClusterSpec) -> str:
    """Return the line of a worker that goes ahead of the others."""
    if meeting.identity:
        return (
            f"{spec.chief.task} and others wait: the command starts, and meets them when it asks "
            "for its neighbours"
        )
    return (
        f"{spec.chief.task} and others train already: the command starts, and joins them when it "
        "asks for its neighbours"
    )


def released_line(meeting: Meeting, spec: ClusterSpec, seconds: float) -> str:
    """Return the line that every worker logs at the end."""
    members = spec.members
    if not meeting.positions:
        return f"{len(members)} workers are here and agree ({seconds:.1f} s)"
    missing = [str(one.task) for place, one in enumerate(members) if place not in meeting.positions]
    count = len(meeting.positions)
    return (
        f"{count} of {len(members)} workers are here and agree ({seconds:.1f} s): they continue "
        f"without {listed(missing)} (MIN_WORKERS)"
    )


class PeersMissingError(Exception):
    """Workers are missing at the time limit; the message names them and the reasons."""

    exit_code = EXIT_PEER_LOST


class NobodyCameError(PeersMissingError):
    """No other worker was ever connected."""


class ContradictionError(ConfigurationError):
    """The workers do not agree; every connected worker raises the same problems."""


class PortTakenError(Exception):
    """Another program still listens on this worker's port; a retry may help."""

    exit_code = EXIT_PEER_LOST


class PortClosedError(ConfigurationError):
    """The system does not allow this worker's port."""
