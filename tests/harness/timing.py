"""Short intervals and time limits for workers that a test starts on one machine."""

from entrypoint.rendezvous.transport.timing import Timing

QUICK = Timing(
    port_seconds=0.3,
    first_line_seconds=0.1,
    line_seconds=0.2,
    look_up_seconds=0.5,
    connect_seconds=0.5,
    greeting_seconds=0.5,
    message_seconds=1.5,
    redial_seconds=0.05,
    probe_seconds=0.1,
    ping_seconds=0.2,
    silent_seconds=1.0,
    alive_seconds=0.5,
    collect_seconds=0.4,
    release_seconds=0.5,
    passing_seconds=0.1,
)
