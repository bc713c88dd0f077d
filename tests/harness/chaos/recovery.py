"""Measures how long a cluster took to recover, from the workers' logs and records."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.chaos.machine import Machine

NOTICED = re.compile(
    r"a peer was lost|another worker was asked to stop"
    r"|restart \d+ of \d+ in|was lost: waiting until"
)
AGREED = re.compile(r"workers are here and agree")


@dataclass
class Disturbance:
    """A disturbance of the cluster; times are in seconds since 1970.

    Attributes:
        victims: the indices of the disturbed workers.
        time: the time of the disturbance.
        back_time: the time from which all victims could be back; None: none went away.
    """

    victims: Sequence[int]
    time: float
    back_time: float | None = None


@dataclass(frozen=True)
class Recovery:
    """The duration of each part of a recovery, in seconds; None: there was no such part.

    Attributes:
        detection: from the disturbance until the first other worker logged it.
        restart: from the moment when all machines were back and the loss was noticed, until all
            workers had met at the gate.
        first_step: from the same moment until all workers trained again.
    """

    detection: float | None
    restart: float | None
    first_step: float | None


def recovery_from(disturbance: Disturbance, machines: Sequence[Machine], until: float) -> Recovery:
    """Measure the recovery from a disturbance, before the moment `until`."""
    began = disturbance.time
    others = [machine for machine in machines if machine.index not in disturbance.victims]
    noticed = _first(time for other in others for time in _times_of(NOTICED, other, began, until))
    complete = max(moment for moment in (began, disturbance.back_time, noticed) if moment)
    agreed = [_first(_times_of(AGREED, machine, complete, until)) for machine in machines]
    trained = [_first(_new_batch_times(machine, complete, until)) for machine in machines]
    return Recovery(
        detection=_seconds(began, [noticed]),
        restart=_seconds(complete, agreed),
        first_step=_seconds(complete, trained),
    )


def _times_of(
    pattern: re.Pattern[str], machine: Machine, after: float, until: float
) -> Iterator[float]:
    lines = (line for line in machine.log_lines() if pattern.search(line.text))
    return (line.time for line in lines if after < line.time < until)


def _new_batch_times(machine: Machine, after: float, until: float) -> Iterator[float]:
    """Return the times of batches of the processes that began between `after` and `until`."""
    new = (process for process in machine.processes() if after < process.start_time < until)
    return (batch.time for process in new for batch in process.batches if batch.time < until)


def _first(moments: Iterable[float]) -> float | None:
    return min(moments, default=None)


def _seconds(since: float, moments: Sequence[float | None]) -> float | None:
    """Return the seconds from `since` to the last moment, or None if a moment is missing."""
    came = [moment for moment in moments if moment is not None]
    return max(came) - since if len(came) == len(moments) else None


def worst(recoveries: Sequence[Recovery]) -> Recovery:
    """Return the longest duration of each part."""

    def longest(times: Iterable[float | None]) -> float | None:
        return max((time for time in times if time is not None), default=None)

    return Recovery(
        detection=longest(recovery.detection for recovery in recoveries),
        restart=longest(recovery.restart for recovery in recoveries),
        first_step=longest(recovery.first_step for recovery in recoveries),
    )
