"""Estimates how much faster several workers train than one, from the measured links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from entrypoint.network.cost import NUMBER_BYTES, TYPICAL, Network, share_of_ideal, sum_seconds
from entrypoint.network.link import Link

EVERY = 16
OF_ADAM = 3
"""The weights and two slots of the optimizer, which are averaged every few steps."""
LEAST_BITS = 1.0
EXACT, BFLOAT16, FEWER = "exact", "TRAINER_WIRE=bfloat16", f"TRAINER_SYNC_EVERY={EVERY}"
MEANS = {
    EXACT: "the steps of one worker",
    BFLOAT16: "gradients are rounded on the way",
    FEWER: f"not exact: each worker takes {EVERY} steps by itself",
}


@dataclass(frozen=True)
class Training:
    """What is to be trained."""

    parameters: float
    """Trainable numbers of the model."""
    step_seconds: float | None = None
    """How long one worker alone computes a step; None: unknown."""


@dataclass(frozen=True)
class SpeedUp:
    """How fast all workers train together in one way."""

    way: str
    means: str
    """What the way means for the training."""
    sums_seconds: float
    """What the sums of a step take."""
    times: float | None
    """How many times as fast as one worker alone; None: a step's time is unknown."""


def speed_ups(links: Sequence[Link], training: Training) -> list[SpeedUp]:
    """Return the estimate for each way to train over these links."""
    network, workers = network_of(links), len(links)
    size = training.parameters * NUMBER_BYTES
    sums = {
        EXACT: sum_seconds(TYPICAL, network, workers, size),
        BFLOAT16: sum_seconds(TYPICAL, network, workers, size, bfloat16=True),
        FEWER: sum_seconds(TYPICAL, network, workers, OF_ADAM * size) / EVERY,
    }
    return [
        SpeedUp(way, MEANS[way], seconds, _times(seconds, training, workers))
        for way, seconds in sums.items()
    ]


def network_of(links: Sequence[Link]) -> Network:
    """Return what a sum has of these links: the lowest rate, and the mean latency.

    In each hop all workers wait for the slowest link. Numbers that are passed on take all links.
    """
    return Network(
        max(LEAST_BITS, min(link.bits_per_second for link in links)),
        sum(link.round_trip_seconds for link in links) / len(links) / 2,
    )


def _times(sums_seconds: float, training: Training, workers: int) -> float | None:
    if training.step_seconds is None:
        return None
    return workers * share_of_ideal(training.step_seconds, sums_seconds, 0.0, workers)
