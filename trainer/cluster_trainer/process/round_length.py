"""How many steps a round has with TRAINER_SYNC_EVERY=auto: a rule over what was measured.

Measured are steps whose gradients are summed over the workers. The smallest power of two is chosen
at which sums would take less than a tenth of the time. It is never more than MOST, up to which the
accuracy was compared with exact training (benchmarks/README.md).
"""

from dataclasses import dataclass

MOST = 64
SHARE = 0.1
"""The part of the time that sums may take."""
LARGEST = 2**20
"""Powers of two up to here are said to be wanted."""
NAME = "TRAINER_SYNC_EVERY"
MILLI = 1e-3


@dataclass(frozen=True)
class Measured:
    """Some exact steps of a fit.

    Attributes:
        steps: how many.
        seconds: how long they took on the slowest worker.
        sums: for how many of these seconds the worker that waited least waited for sums.
        ratio: how much more a worker sends for an average than for a sum of gradients.
    """

    steps: int
    seconds: float
    sums: float
    ratio: float

    @property
    def sum_seconds(self) -> float:
        """How long the sum of one step's gradients takes."""
        return min(self.sums, self.seconds) / self.steps

    @property
    def step_seconds(self) -> float:
        """How long a step takes without its sum."""
        return self.seconds / self.steps - self.sum_seconds

    def share(self, every: int) -> float:
        """Return the part of the time that sums take; with rounds of more steps, averages."""
        exchange = self.sum_seconds * (self.ratio if every > 1 else 1.0)
        return exchange / max(exchange + every * self.step_seconds, 1e-9)


@dataclass(frozen=True)
class RoundLength:
    """The choice.

    Attributes:
        steps: of a round; 1: gradients are summed in each step.
        wanted: what would have been chosen without the limit of MOST.
        measured: from what.
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
