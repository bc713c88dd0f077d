"""The rounds: every variant once in each, one after the other."""

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from docker import DockerClient

from benchmarks.clusters.containers import Cluster, started, wait
from benchmarks.clusters.variants import Variant

EPOCHS = 5
"""Of which the first does not count: it traces, and fills caches."""
COMMON = {
    "TRAINER_CHECKPOINT_STEPS": "0",
    "TRAINER_TENSORBOARD": "none",
    "MAX_RESTARTS": "0",
    "BENCH_EPOCHS": str(EPOCHS),
    "TRAINER_EPOCHS": str(EPOCHS),
}
Rates = dict[str, list[float]]
"""Examples a second of all workers together, by variant; one number a round."""


def measure(
    client: DockerClient,
    image: str,
    variants: Mapping[str, Variant],
    rounds: int,
    say: Callable[[str], None],
) -> Rates:
    """Return what each variant trains in each round.

    The variants take turns, so that a machine that changes its speed changes it for all of them.
    The first worker's processor is another one in each round, since not all are equally fast.
    """
    found: Rates = {name: [] for name in variants}
    for turn in range(rounds):
        for name, variant in variants.items():
            found[name].append(rate(client, image, variant, turn))
            say(f"round {turn + 1}, {name}: {found[name][-1]:,.0f} examples/s")
    return found


def rate(client: DockerClient, image: str, variant: Variant, first_cpu: int = 0) -> float:
    """Run a variant to its end; return the examples a second that all its workers train.

    Raises:
        LostWorkerError: it has not ended well.
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
        )
        with started(client, cluster) as workers:
            wait(workers)
        of = range(variant.workers) if not variant.together else [0]
        return sum(statistics.median(epochs_of(Path(folder, str(index)))) for index in of)


def epochs_of(runs: Path) -> Sequence[float]:
    """Return the examples a second of the epochs that count, from a worker's folder."""
    metrics = runs / "worker-0/metrics.jsonl"
    if metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        rates = [line["examples_per_second"] for line in lines]
    else:
        rates = json.loads((runs / "rates.json").read_text())
    return rates[1:]
