"""The undisturbed run, which every disturbed run must equal, bit for bit."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.chaos.machine import Machine
from harness.chaos.records import problems

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """An undisturbed run.

    Attributes:
        weights_sha256: the digest of the final weights.
        batches: each worker's batches: the examples' numbers for each step.
        epochs: the epochs in metrics.jsonl.
    """

    weights_sha256: str
    batches: Sequence[Sequence[Ids]]
    epochs: Sequence[int]

    def differences(self, machines: Sequence[Machine], most_lost: int) -> list[str]:
        """Return the differences between a finished run and this one; see `records.problems`."""
        found = []
        for machine, batches in zip(machines, self.batches, strict=True):
            steps = problems(machine.processes(), batches, most_lost)
            found += [f"worker {machine.index}: {text}" for text in (*steps, *self._ends(machine))]
        return found

    def _ends(self, machine: Machine) -> Iterator[str]:
        """Yield the problems in the files that a worker has left."""
        result = result_of(machine)
        if result["status"] != "done":
            yield f"its status is {result['status']}: {result['reason']}"
        if result["weights_sha256"] != self.weights_sha256:
            yield f"its weights are {result['weights_sha256']}, not {self.weights_sha256}"
        if not (machine.run_dir / "DONE").exists():
            yield "it has no DONE"
        if epochs_of(machine) != self.epochs:
            yield f"its metrics.jsonl has the epochs {epochs_of(machine)}, not {self.epochs}"
        if unfinished := [file.name for file in machine.run_dir.rglob(".unfinished*")]:
            yield f"it left {unfinished}"


def reference_of(machines: Sequence[Machine]) -> Reference:
    """Return the reference from a finished, undisturbed run."""
    (digest,) = {result_of(machine)["weights_sha256"] for machine in machines}
    batches = [_batches_of(machine) for machine in machines]
    return Reference(digest, batches, epochs_of(machines[0]))


def _batches_of(machine: Machine) -> Sequence[Ids]:
    (process,) = machine.processes()
    assert process.first_step == 0
    return [batch.ids for batch in process.batches]


def result_of(machine: Machine) -> dict:
    """Return the worker's result.json."""
    return json.loads((machine.run_dir / "result.json").read_text())


def epochs_of(machine: Machine) -> list[int]:
    """Return the numbers of the epochs in the worker's metrics.jsonl."""
    lines = (machine.run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]
