"""Measures in rounds: every variant once in each round, one after the other."""

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from benchmarks.clusters.containers import Cluster, host, started, wait
from benchmarks.clusters.parts import Parts, parts_of
from benchmarks.clusters.variants import Variant

EPOCHS = 5
"""The first epoch does not count: it traces, and fills caches."""
COMMON = {
    "TRAINER_CHECKPOINT_STEPS": "0",
    "TRAINER_TENSORBOARD": "none",
    "MAX_RESTARTS": "0",
    "BENCH_EPOCHS": str(EPOCHS),
    "TRAINER_EPOCHS": str(EPOCHS),
}
Rates = dict[str, list[float]]
"""Examples/s of all workers together, by variant; one number for each round."""


@dataclass(frozen=True)
class Measured:
    """The results of all rounds.

    Attributes:
        rates: see `Rates`.
        parts: the parts of a step's time, by variant; only the trainer reports them.
    """

    rates: Rates
    parts: dict[str, list[Parts]]


def measure(
    client: DockerClient,
    image: str,
    variants: Mapping[str, Variant],
    rounds: int,
    say: Callable[[str], None],
) -> Measured:
    """Measure each variant in each round.

    The variants take turns, so a change of the machine's speed affects all of them. The first
    worker's processor changes with each round, because processors differ in speed.
    """
    rates: Rates = {name: [] for name in variants}
    parts: dict[str, list[Parts]] = {}
    for turn in range(rounds):
        for name, variant in variants.items():
            rate, of_step = run(client, image, variant, turn)
            rates[name].append(rate)
            if of_step:
                parts.setdefault(name, []).append(of_step)
            say(f"round {turn + 1}, {name}: {rate:,.0f} examples/s")
    return Measured(rates, parts)


def run(
    client: DockerClient, image: str, variant: Variant, first_cpu: int = 0
) -> tuple[float, Parts | None]:
    """Run a variant to its end.

    Returns:
        The examples/s of all its workers, and the parts of a step's time.

    Raises:
        LostWorkerError: a worker failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        steps = str(variant.steps)
        settings = {"TRAINER_STEPS_PER_EPOCH": steps, "BENCH_STEPS": steps}
        cluster = Cluster(
            variant.image or image,
            variant.workers,
            Path(folder),
            {**COMMON, **settings, **variant.settings},
            variant.command,
            variant.together,
            variant.bits_a_second,
            first_cpu,
            variant.late_seconds,
        )
        with started(client, cluster) as workers:
            wait(workers)
        places = [Path(folder, str(index)) for index in range(variant.workers)]
        telling = places[:1] if variant.together else places
        rate = sum(statistics.median(epochs_of(place)) for place in telling)
        own = [place / host(index if variant.together else 0) for index, place in enumerate(places)]
        return rate, parts_of(own, variant.steps)


def epochs_of(runs: Path) -> Sequence[float]:
    """Return the examples/s of the epochs that count, from a worker's folder."""
    metrics = runs / "worker-0/metrics.jsonl"
    if metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        rates = [line["examples_per_second"] for line in lines]
    else:
        rates = json.loads((runs / "rates.json").read_text())
    return rates[1:]
