"""Reads the records of a worker's training processes: their first steps, and their examples."""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESUMED = re.compile(r"resuming from step (\d+) held by")
END_BYTES = 20_000
FROM_THE_BEGINNING = "starting at step 0"


@dataclass(frozen=True)
class Batch:
    """One step's examples on one worker, in order, and its beginning (in seconds since 1970)."""

    time: float
    ids: tuple[int, ...]


@dataclass
class Process:
    """A training process in its worker's records. A survivor of a loss counts as a new process.

    Attributes:
        start_time: its beginning, in seconds since 1970.
        first_step: the step of its first batch; None: it ended before it knew.
        batches: the batches on which it trained; the last one may be incomplete.
        end_time: the time when the saboteur ended it; None: the saboteur did not.
    """

    start_time: float
    first_step: int | None = None
    batches: list[Batch] = field(default_factory=list)
    end_time: float | None = None

    @property
    def next_step(self) -> int:
        """The step of the next batch."""
        return (self.first_step or 0) + len(self.batches)

    def __str__(self) -> str:
        """Return it in one line, for the output of a failed test."""
        steps = f"{len(self.batches)} batches from step {self.first_step}"
        end = ", ended by the saboteur" if self.end_time else ""
        return f"process of {self.start_time:.3f}: {steps}{end}"


def read_processes(records: Path) -> list[Process]:
    """Return the processes in a worker's records.jsonl; none before the first has begun."""
    processes: list[Process] = []
    for line in records.read_text().splitlines(keepends=True) if records.exists() else ():
        if not line.endswith("\n"):  # it is being written
            break
        record = json.loads(line)
        if record["event"] == "start":
            processes.append(Process(record["time"]))
        else:
            if _begins_again(processes[-1], record):
                processes.append(Process(record["time"]))
            _note(processes[-1], record)
    return processes


def newest_batch(records: Path) -> float:
    """Return the time of the last batch near the end of a records.jsonl; 0 if there is none."""
    if not records.exists():
        return 0.0
    with records.open("rb") as file:
        file.seek(max(0, records.stat().st_size - END_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[1:]
    batches = [line for line in lines if '"event": "batch"' in line and line.endswith("}")]
    return float(json.loads(batches[-1])["time"]) if batches else 0.0


def _begins_again(process: Process, record: dict) -> bool:
    """Tell whether a process that already trains, or has rehearsed, resumes from a checkpoint."""
    is_beginning = RESUMED.search(record.get("text", ""))
    return bool((process.first_step is not None or process.batches) and is_beginning)


def _note(process: Process, record: dict) -> None:
    if record["event"] == "batch":
        process.batches.append(Batch(record["time"], tuple(record["ids"])))
    elif record["event"] == "end":
        process.end_time = record["time"]
    elif resumed := RESUMED.search(record["text"]):
        process.first_step = int(resumed[1])
    elif FROM_THE_BEGINNING in record["text"]:
        process.first_step = 0


def lost_steps(processes: Sequence[Process]) -> list[int]:
    """Return the number of steps that each process except the first had to repeat."""
    resumed = [process for process in processes if process.first_step is not None]
    pairs = itertools.pairwise(resumed)
    return [max(0, earlier.next_step - later.first_step) for earlier, later in pairs]


def problems(
    processes: Sequence[Process], reference: Sequence[tuple[int, ...]], most_lost: int
) -> list[str]:
    """Return the differences between a worker's steps and those of an undisturbed run.

    Args:
        processes: the worker's processes, in order.
        reference: the batches of the same worker in an undisturbed run.
        most_lost: the number of steps that may be repeated after each disturbance.
    """
    found = []
    reached = 0
    for number, process in enumerate(processes):
        first = process.first_step
        if first is None:
            if process.batches:
                found.append(f"process {number} trained and did not say from which step")
            continue
        if first > reached:
            found.append(f"process {number} left out steps {reached} to {first - 1}")
        if first < reached - most_lost:
            found.append(f"process {number} lost {reached - first} steps, more than {most_lost}")
        done = [batch.ids for batch in process.batches]
        if done != list(reference[first : first + len(done)]):
            found.append(f"process {number} trained on other batches than those from step {first}")
        reached = process.next_step
    if reached != len(reference):
        found.append(f"the last process ended after {reached} of {len(reference)} steps")
    return found
