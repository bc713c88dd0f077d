"""Chooses the number of steps in a round, with TRAINER_SYNC_EVERY=auto, from measured steps.

The measured steps sum gradients over the workers. The rule chooses the smallest power of two at
which sums would take less than a tenth of the time, but at most MOST. Up to that number, the
accuracy was compared with exact training (benchmarks/README.md).
"""

from dataclasses import dataclass

MOST = 64
SHARE = 0.1
"""The fraction of the time that sums may take."""
LARGEST = 2**20
"""The largest power of two that messages name as wanted."""
NAME = "TRAINER_SYNC_EVERY"
MILLI = 1e-3


@dataclass(frozen=True)
class Measured:
    """Measured exact steps of a fit.

    Attributes:
        steps: the number of steps.
        seconds: their duration on the slowest worker.
        sums: the time for which the worker that waited least waited for sums.
        ratio: the traffic of an average, divided by that of a sum of gradients.
    """

    steps: int
    seconds: float
    sums: float
    ratio: float

    @property
    def sum_seconds(self) -> float:
        """The duration of the sum of one step's gradients."""
        return min(self.sums, self.seconds) / self.steps

    @property
    def step_seconds(self) -> float:
        """The duration of a step without its sum."""
        return self.seconds / self.steps - self.sum_seconds

    def share(self, every: int) -> float:
        """Return the fraction of the time that sums take; in rounds of several steps, averages."""
        exchange = self.sum_seconds * (self.ratio if every > 1 else 1.0)
        return exchange / max(exchange + every * self.step_seconds, 1e-9)


@dataclass(frozen=True)
class RoundLength:
    """The choice.

    Attributes:
        steps: the steps of a round; 1: gradients are summed in each step.
        wanted: the choice without the limit of MOST.
        measured: the steps from which it was chosen.
    """

    steps: int
    wanted: int
    measured: Measured

    def __str__(self) -> str:
        found = self.measured
        words = (
            f"{NAME}=auto: {self.steps}, because sums of gradients took {found.share(1):.0%} of "
            f"{found.seconds:.1f} s ({found.sum_seconds / MILLI:.2g} ms beside a step of "
            f"{found.step_seconds / MILLI:.2g} ms)"
        )
        if self.steps == 1:
            return f"{words}; training is exact"
        share = f"averages every {self.steps} steps take about {found.share(self.steps):.0%}"
        share += " in long epochs (each epoch ends with one)"
        if self.wanted > self.steps:
            more = "" if self.wanted < LARGEST else " or more"
            share += (
                f". The network would need {self.wanted}{more}, but accuracy was compared up to "
                f"{MOST} only"
            )
        return f"{words}; {share}. {NAME}={self.steps} repeats this run"


def chosen(measured: Measured) -> RoundLength:
    """Return the smallest power of two at which sums take less than SHARE of the time."""
    wanted = 1
    while measured.share(wanted) >= SHARE and wanted < LARGEST:
        wanted *= 2
    return RoundLength(min(wanted, MOST), wanted, measured)
