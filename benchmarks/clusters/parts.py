"""Divides the time of a step into parts, from all workers' events.jsonl of the trainer."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Parts:
    """Milliseconds of a step, as the trainer measures them (`engine/waits.py`).

    Attributes:
        step: the whole step.
        computing: the rest of the calls into TensorFlow.
        input: waiting for the batch.
        sums: sums of gradients, on the worker that has waited the least for others.
        waiting: the mean time that workers waited longer than that.
        between: the time outside of calls: callbacks, and the vote after each call.
    """

    step: float
    computing: float
    input: float
    sums: float
    waiting: float
    between: float


def parts_of(workers: Sequence[Path], steps: int) -> Parts | None:
    """Return the parts of a step: the median over all epochs but the first; None if not recorded.

    Args:
        workers: the workers' folders.
        steps: the steps of an epoch.
    """
    everyone = [_epochs(folder) for folder in workers]
    if not all(everyone):
        return None
    found = [_parts(epoch, steps) for epoch in zip(*everyone, strict=True)]
    return medians(found)


def medians(found: Sequence[Parts]) -> Parts:
    """Return each part's median."""
    return Parts(*map(statistics.median, zip(*map(astuple, found), strict=True)))


def lines(found: Mapping[str, Sequence[Parts]]) -> list[str]:
    """Return a table: the medians of the rounds, by variant."""
    names = [field.name for field in fields(Parts)]
    rows = [f"| name | {' | '.join(names)} |", f"|{' --- |' * (1 + len(names))}"]
    for name, rounds in found.items():
        cells = [f"{number:.2f} ms" for number in astuple(medians(rounds))]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def _epochs(worker: Path) -> list[dict[str, float]]:
    """Return the seconds of a worker's epochs, without the first."""
    file = worker / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [event["seconds"] for event in map(json.loads, lines) if "seconds" in event][1:]


def _parts(epoch: Sequence[Mapping[str, float]], steps: int) -> Parts:
    """Return the parts of one epoch's steps, from all workers' seconds of it."""

    def mean(name: str) -> float:
        return statistics.mean(one.get(name, 0.0) for one in epoch) * 1e3 / steps

    whole, calls = mean("all"), mean("calls")
    sums = min(one.get("sums", 0.0) for one in epoch) * 1e3 / steps
    return Parts(
        step=whole,
        computing=calls - mean("input") - mean("sums"),
        input=mean("input"),
        sums=sums,
        waiting=mean("sums") - sums,
        between=whole - calls,
    )
