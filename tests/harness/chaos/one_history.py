"""Checks that a run with lost workers (MIN_WORKERS) has one history, of one group of workers."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from cluster_trainer.checkpoints.checkpoint import Checkpoint
from harness.chaos.machine import Machine
from harness.chaos.records import Process
from harness.chaos.reference import result_of

TOLERANCE = 1e-4
"""The relative tolerance of weights. Sums over fewer workers are rounded differently."""
TOGETHER_SECONDS = 15.0
"""The time within which all workers of a ring begin its first step, even if one is frozen."""


def faults(
    machines: Sequence[Machine], batches: Sequence[Sequence[int]], weights: Sequence[np.ndarray]
) -> list[str]:
    """Return the differences between a finished run and an undisturbed one.

    Args:
        machines: the machines of the run, with their records.
        batches: the examples of each step of an undisturbed run, of all workers together.
        weights: the weights at the end of the undisturbed run.
    """
    attempts = _trained(machines[0])
    others = [_trained(machine) for machine in machines[1:]]
    found = [*wrong_batches(attempts, others, batches), *trained_apart(attempts, others)]
    digests = {result_of(machine)["weights_sha256"] for machine in machines}
    if len(digests) > 1:
        found.append(f"the workers ended with other weights: {digests}")
    furthest = max(
        float(np.abs(mine - expected).max() / max(np.abs(expected).max(), 1e-9))
        for mine, expected in zip(weights_of(machines[0]), weights, strict=True)
    )
    print(f"weights are up to {furthest:.2e} of the largest of each variable apart")
    if furthest > TOLERANCE:
        found.append(f"the weights are {furthest:.2e} apart, more than {TOLERANCE}")
    return found


def weights_of(machine: Machine) -> list[np.ndarray]:
    """Return the variables of a worker's newest checkpoint that hold floating-point numbers."""
    saved = Checkpoint.from_bytes(machine.checkpoints()[-1].read_bytes())
    kept = zip(saved.names, saved.arrays, strict=True)
    return [array for name, array in kept if array.dtype == np.float32 and "state of a" not in name]


def _trained(machine: Machine) -> list[Process]:
    """Return a worker's training in each ring; rehearsals, which have no step, are omitted."""
    return [one for one in machine.processes() if one.first_step is not None and one.batches]


def _match(part: Process, attempts: Sequence[Process]) -> int | None:
    """Return the position of worker 0's attempt in the same ring; None if there is none."""
    begin = part.batches[0].time
    known = [
        (abs(begin - attempt.batches[0].time), number)
        for number, attempt in enumerate(attempts)
        if attempt.first_step == part.first_step
    ]
    distance, number = min(known, default=(math.inf, -1))
    return number if distance < TOGETHER_SECONDS else None


def wrong_batches(
    attempts: Sequence[Process],
    others: Sequence[Sequence[Process]],
    batches: Sequence[Sequence[int]],
) -> Iterator[str]:
    """Yield the steps whose last attempt did not train on exactly their batch.

    Earlier attempts do not count.
    """
    trained: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    for number, attempt in enumerate(attempts):
        for step, batch in enumerate(attempt.batches, attempt.first_step or 0):
            last[step] = number
            trained[number, step] = [*batch.ids]
    for part in (one for parts in others for one in parts):
        number = _match(part, attempts)
        for step, batch in enumerate(part.batches, part.first_step or 0):
            if number is not None and (number, step) in trained:
                trained[number, step] += batch.ids
    for step, expected in enumerate(batches):
        if step not in last:
            yield f"step {step} was left out"
        elif sorted(found := trained[last[step], step]) != sorted(expected):
            yield f"step {step} was trained on {len(found)} examples, not on its {len(expected)}"


def trained_apart(
    attempts: Sequence[Process], others: Sequence[Sequence[Process]]
) -> Iterator[str]:
    """Yield the workers that completed steps that worker 0 did not begin."""
    for index, parts in enumerate(others, 1):
        for part in parts:
            number = _match(part, attempts)
            ended = len(part.batches) - 1  # the last one may be incomplete
            begun = 0 if number is None else len(attempts[number].batches)
            if ended > begun:
                yield (
                    f"worker {index} has trained {ended} steps from step {part.first_step} on, "
                    f"and worker 0 {begun} of them"
                )
