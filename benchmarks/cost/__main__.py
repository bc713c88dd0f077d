"""`python -m benchmarks.cost`: fits the model to sums here, checks it, and prints its table."""

import argparse
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.clusters import machine
from benchmarks.cost.measured import Key, fitted, measure, predicted
from benchmarks.cost.two_levels import two_levels_seconds
from entrypoint.network.cost import (
    NEAR_BYTES,
    Costs,
    Network,
    share_of_ideal,
    sum_seconds,
)

SIZES = (4_096, 65_536, 262_144, 1_390_000, 9_000_000)
FITTED, CHECKED = (2, 4), (3, 6, 8, 16)
PREDICTED = "fitted to 2 and 4 ranks, the model is within a third of the times of 3 to 16 ranks"
WORKERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


@dataclass(frozen=True)
class Model:
    """A model that is trained.

    Attributes:
        name: its name, with the batch size.
        size: the bytes of its gradients.
        step_seconds: the time in which one worker with one processor computes a step.
    """

    name: str
    size: float
    step_seconds: float


MODELS = (
    Model("mnist_cnn, 64 a worker", 1_390_000, 0.0044),
    Model("mobilenet_v2 at 64x64, 32 a worker", 9_000_000, 0.232),
)
"""Their steps are those of one worker: 14,500 and 138 examples/s."""
NETWORKS = {
    "100 Mbit/s": Network(100e6, 0.0001),
    "1 Gbit/s": Network(1e9, 0.0001),
    "10 Gbit/s": Network(10e9, 0.00005),
}


def main(ranks: tuple[int, ...] = (*FITTED, *CHECKED), spread: float = 0.0) -> None:
    """Measure, fit, check, and print the table."""
    print(f"predicted: {PREDICTED}\n")
    print(f"{os.cpu_count()} processors ({machine.processor()}), {machine.load()}\n", flush=True)
    processors = os.cpu_count() or 1
    found: dict[Key, float] = {}
    for count in ranks:
        found |= measure(count, SIZES)
    costs = fitted({key: one for key, one in found.items() if key[0] in FITTED}, processors)
    print(f"{described(costs)}\n")
    print_check(found, costs, processors)
    for name, network in NETWORKS.items():
        print(f"\n{name}, {network.latency * 1e3:.2f} ms from one worker to the next:\n")
        print_table(costs, network, spread)


def described(costs: Costs) -> str:
    """Return a sentence about the time of a worker's processor."""
    far = f"{costs.far_byte * 1e9:.2f} ns in a sum of more than {NEAR_BYTES / 1e6:.0f} MB"
    return (
        f"A worker's processor needs {costs.sum * 1e6:.0f} µs per sum, {costs.hop * 1e6:.0f} µs "
        f"per hop, {costs.near_byte * 1e9:.2f} ns per byte ({far}), and "
        f"{costs.rounded * 1e9:.2f} ns for each number that is rounded to bfloat16 and back."
    )


def print_check(found: Mapping[Key, float], costs: Costs, processors: int) -> None:
    """Print the measured sums beside the model's."""
    print("| ranks | bytes | as | measured | model | model / measured |  |")
    print("|" + " --- |" * 7)
    off = []
    for key, seconds in sorted(found.items()):
        ranks, size, bfloat16 = key
        expected = predicted(costs, key, processors)
        used = "fitted to it" if ranks in FITTED else ""
        off += [] if used else [abs(expected / seconds - 1)]
        cells = [str(ranks), f"{size:,}", "bfloat16" if bfloat16 else "float32"]
        cells += [f"{seconds * 1e3:.2f} ms", f"{expected * 1e3:.2f} ms"]
        print(f"| {' | '.join([*cells, f'{expected / seconds:.2f}', used])} |")
    if off:
        print("\nFor the ranks that it was not fitted to, the model is off by")
        print(f"{statistics.median(off):.0%} (median) and {max(off):.0%} (at most).")


def print_table(costs: Costs, network: Network, spread: float) -> None:
    """Print the time of a sum, and the fraction of the ideal speed, by the number of workers."""
    heads = [f"{model.name}: {what}" for model in MODELS for what in ("a sum", "of ideal")]
    more = [f"{model.name}, bfloat16 / two levels" for model in MODELS]
    print(f"| workers | {' | '.join([*heads, *more])} |")
    print("|" + " --- |" * (1 + len(heads) + len(more)))
    for workers in WORKERS:
        first, last = [], []
        for model in MODELS:
            plain = sum_seconds(costs, network, workers, model.size)
            half = sum_seconds(costs, network, workers, model.size, bfloat16=True)
            levels = two_levels_seconds(costs, network, workers, model.size)
            shares = [
                share_of_ideal(model.step_seconds, seconds, spread, workers)
                for seconds in (plain, half, levels)
            ]
            first += [f"{plain * 1e3:.1f} ms", f"{shares[0]:.2f}"]
            last.append(f"{shares[1]:.2f} / {shares[2]:.2f}")
        print(f"| {workers:,} | {' | '.join([*first, *last])} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost")
    parser.add_argument("--ranks", type=int, nargs="+", default=(*FITTED, *CHECKED))
    parser.add_argument("--spread", type=float, default=0.0, help="see share_of_ideal")
    given = parser.parse_args()
    main(tuple(sorted({*given.ranks, *FITTED})), given.spread)
