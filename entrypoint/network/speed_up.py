"""Estimates how much faster several workers train than one, from the measured links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from entrypoint.network.cost import NUMBER_BYTES, TYPICAL, Network, share_of_ideal, sum_seconds
from entrypoint.network.link import Link

EVERY = 16
OF_ADAM = 3
"""Weights and two optimizer slots, which are averaged every few steps."""
LEAST_BITS = 1.0
EXACT, BFLOAT16, FEWER = "exact", "TRAINER_WIRE=bfloat16", f"TRAINER_SYNC_EVERY={EVERY}"
MEANS = {
    EXACT: "the steps of one worker",
    BFLOAT16: "gradients are rounded on the way",
    FEWER: f"not exact: each worker takes {EVERY} steps by itself",
}


@dataclass(frozen=True)
class Training:
    """The training to estimate."""

    parameters: float
    """The number of the model's trainable parameters."""
    step_seconds: float | None = None
    """The duration of a step on one worker; None: unknown."""


@dataclass(frozen=True)
class SpeedUp:
    """The speed of all workers together, for one way to train."""

    way: str
    means: str
    """The effect of this way on the training."""
    sums_seconds: float
    """The duration of a step's sums."""
    times: float | None
    """The speed relative to one worker; None: the duration of a step is unknown."""


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
    """Return the network for a sum over these links: the lowest rate, and the mean latency.

    In each hop all workers wait for the slowest link. Numbers that are passed on use all links.
    """
    return Network(
        max(LEAST_BITS, min(link.bits_per_second for link in links)),
        sum(link.round_trip_seconds for link in links) / len(links) / 2,
    )


def _times(sums_seconds: float, training: Training, workers: int) -> float | None:
    if training.step_seconds is None:
        return None
    return workers * share_of_ideal(training.step_seconds, sums_seconds, 0.0, workers)
