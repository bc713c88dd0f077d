"""All intervals and time limits of the gate."""

from __future__ import annotations

from dataclasses import dataclass, replace

OFTEN_SECONDS = 0.25
"""The pause between attempts to reach a worker for which the whole ring waits."""
PORT_SECONDS_AFTER_A_RESTART = 30.0
PASSING_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Limits and intervals in seconds. Tests shorten them."""

    port_seconds: float = 2.0
    """The time for a port in use to become free."""
    first_line_seconds: float = 2.0
    """Before the first line that names missing workers."""
    line_seconds: float = 5.0
    """Between such lines."""
    look_up_seconds: float = 3.0
    """For the look-up of one name. A name server that does not answer would take much longer."""
    ask_again_seconds: float = 1.0
    """Before the look-up of the one name that a worker waits for is repeated, in parallel."""
    connect_seconds: float = 3.0
    """For one connection. The second SYN is sent after 1 s, so a lost one does no harm."""
    greeting_seconds: float = 3.0
    """For a listener's greeting."""
    message_seconds: float = 5.0
    """For sending or receiving one message, and for a stranger to identify itself."""
    redial_seconds: float = 0.75
    """Between a member's attempts to reach the chief, varied by up to a third."""
    probe_seconds: float = 2.0
    """Between the chief's probes of a member that is missing or could not be dialled back."""
    ping_seconds: float = 3.0
    """Between the chief's pings of a member that checked in."""
    silent_seconds: float = 10.0
    """A worker that is silent for this long counts as missing."""
    alive_seconds: float = 3.0
    """For the answer of a worker that is asked whether it is alive."""
    passing_seconds: float = 1.0
    """For a wrong worker to disappear from a worker's address."""
    collect_seconds: float = 2.5
    """Between the first contradiction and the end, so that all workers get all contradictions."""
    link_seconds: float = 10.0
    """For connecting neighbours, once all workers are here."""
    measure_seconds: float = 1.0
    """Between a ring's start and the measurement of its network. The commands agree first, and then
    compile their first step, while the network is idle."""
    release_seconds: float = 2.0
    """For the acknowledgement of a release; after it, nobody waits any longer."""

    @classmethod
    def after_restarts(cls, count: int) -> Timing:
        """Return the timing of a gate after `count` restarts of the command.

        A killed command may occupy the port for some time, until the kernel has freed its GPUs or
        network files. A name server may still return an old address, which another worker has now.
        So a wrong worker is tolerated longer, because the list is known to be right.
        """
        if not count:
            return cls()
        return cls(port_seconds=PORT_SECONDS_AFTER_A_RESTART, passing_seconds=PASSING_SECONDS)

    @classmethod
    def of_commands(cls) -> Timing:
        """Return the timing of a meeting of running commands.

        All commands ask at the same moment, and the chief is seldom the first.
        """
        return replace(cls.after_restarts(1), redial_seconds=OFTEN_SECONDS)
