"""All intervals and bounds of the gate."""

from __future__ import annotations

from dataclasses import dataclass, replace

OFTEN_SECONDS = 0.25
"""Between attempts to reach one for whom those of a ring wait, and do nothing else."""
PORT_SECONDS_AFTER_A_RESTART = 30.0
PASSING_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds; tests shorten them."""

    port_seconds: float = 2.0
    """How long a port may stay taken."""
    first_line_seconds: float = 2.0
    """Until the first line that says who is missing."""
    line_seconds: float = 5.0
    """Between such lines."""
    look_up_seconds: float = 3.0
    """For one name; a name server that does not answer would hold it for much longer."""
    ask_again_seconds: float = 1.0
    """Until the one name that a worker waits for is asked for once more, beside the first time."""
    connect_seconds: float = 3.0
    """For one connection: the second SYN is sent after 1 s, so one that gets lost costs nothing."""
    greeting_seconds: float = 3.0
    """Until a listener has said that it is a worker."""
    message_seconds: float = 5.0
    """For one message to come or to go, and for a stranger to become a worker."""
    redial_seconds: float = 0.75
    """Between a member's attempts to reach the chief, give or take a third."""
    probe_seconds: float = 2.0
    """Between the chief's looks at a member that is missing or could not be dialled back."""
    ping_seconds: float = 3.0
    """Between the chief's pings of a member that checked in."""
    silent_seconds: float = 10.0
    """After so long without a word a worker counts as missing."""
    alive_seconds: float = 3.0
    """In which a worker has to answer when it is decided whether it is alive."""
    passing_seconds: float = 1.0
    """For another one at a worker's address to go from there."""
    collect_seconds: float = 2.5
    """Between the first contradiction and the end, so that all are told, and to everyone."""
    link_seconds: float = 10.0
    """For neighbours to be connected, once all are here."""
    release_seconds: float = 2.0
    """For the release to be acknowledged; after it nobody waits any longer."""

    @classmethod
    def after_restarts(cls, count: int) -> Timing:
        """Return the timing of a gate after so many restarts of the command.

        A killed command may hold the port for long after the first: until the kernel has taken its
        GPUs or its files on a network from it. And the list has proved right: a name server may
        give an old address for a while, which another worker has by now.
        """
        if not count:
            return cls()
        return cls(port_seconds=PORT_SECONDS_AFTER_A_RESTART, passing_seconds=PASSING_SECONDS)

    @classmethod
    def of_commands(cls) -> Timing:
        """Return the timing of a meeting of commands that run.

        They come at once, and the chief is seldom the first.
        """
        return replace(cls.after_restarts(1), redial_seconds=OFTEN_SECONDS)
