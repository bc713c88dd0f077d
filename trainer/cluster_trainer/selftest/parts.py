"""The parts that run a program: what each must find, and what to do if it fails."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_trainer.selftest.running import ALONE, RESULT, Bench, Outcome
from cluster_trainer.selftest.table import Row, State

Facts = Mapping[str, Any]
PROGRAMS = Path(__file__).parent / "programs"
TOLERANCE = 1e-3
"""The largest accepted difference of weights, as a part of the largest weight. Rounding causes
about 1e-6 on CPUs."""
SEVERAL = 2
ON_CPUS = ("--width", "64", "--batch", "128", "--examples", "4096")
ON_GPUS = ("--width", "2048", "--batch", "2048", "--examples", "32768")
MEETING, GPUS, NCCL, ONE, ALL = (
    "machines meet",
    "GPUs",
    "NCCL between GPUs",
    "one device",
    "all devices",
)
NCCL_MACHINES, RING, TENSORFLOW = (
    "NCCL between machines",
    "machines over a ring",
    "machines over TensorFlow",
)
KILL = "kill and resume"
NO_MACHINES = "WORKER_HOSTS names no other machine"
NETWORK = "Open the workers' ports to each other (docs/how-to/firewall.md), and use --network host."
REPORT = "Please open an issue with this table and the log."


class WrongError(Exception):
    """A program has ended well, and what it found is wrong; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A program that is run, and what it must find.

    Attributes:
        name: of its row.
        command: what is run under the entrypoint.
        found: returns what was found, in words; raises WrongError.
        advice: what to do if it fails.
        settings: its variables.
        why_not: why it cannot be tried here; "": it can.
        needs: parts without which it is not tried.
    """

    name: str
    command: Sequence[str]
    found: Callable[[Facts], str]
    advice: str = REPORT
    settings: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Place:
    """What there is to try.

    Attributes:
        gpus: the number of this machine's GPUs.
        workers: the number of machines.
        folder: for the weights of the reference, and for the programs.
        meeting_seconds: how long machines may wait for each other before a part.
    """

    gpus: int
    workers: int
    folder: Path
    meeting_seconds: float

    def script(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Return the command of a program, which is copied: as a script of the user's own."""
        path = self.folder / name
        path.write_bytes((PROGRAMS / name).read_bytes())
        return sys.executable, str(path), *arguments

    @property
    def with_peers(self) -> Mapping[str, str]:
        """The variables of parts that all machines run."""
        return {"RENDEZVOUS_TIMEOUT": f"{self.meeting_seconds:.0f}"}


def run_part(bench: Bench, part: Part, before: Sequence[Row]) -> Row:
    """Run a part, unless it cannot be tried; return its row."""
    held = {row.name for row in before if row.state == State.HELD}
    lacking = [name for name in part.needs if name not in held]
    why_not = part.why_not or (f"it needs the part `{lacking[0]}`" if lacking else "")
    if why_not:
        return Row(name=part.name, state=State.NOT_TRIED, found=why_not)
    return judged(part, bench.run(part.name, part.command, part.settings), bench.limit_seconds)


def judged(part: Part, outcome: Outcome, limit_seconds: float) -> Row:
    """Return the row of a part that was run."""
    try:
        found, state = _found(part, outcome, limit_seconds), State.HELD
    except WrongError as error:
        found, state = str(error), State.FAILED
    return Row(
        name=part.name,
        state=state,
        found=found,
        advice=part.advice,
        seconds=round(outcome.seconds, 1),
        facts=outcome.facts,
        log=outcome.log if state == State.FAILED else "",
    )


def _found(part: Part, outcome: Outcome, limit_seconds: float) -> str:
    if outcome.code is None:
        raise WrongError(f"it did not end within {limit_seconds:g} s")
    if outcome.code:
        raise WrongError(outcome.reason or f"exit code {outcome.code}")
    try:
        return part.found(outcome.facts)
    except KeyError as error:
        raise WrongError(f"its result lacks {error}") from error


def parts_of(place: Place) -> list[Part]:
    """Return the parts that train or sum, in the order in which all machines run them."""
    return [_nccl(place), *_on_this_machine(place), *_on_all_machines(place)]


def _nccl(place: Place) -> Part:
    return Part(
        name=NCCL,
        command=place.script("sums.py", "mirrored", RESULT),
        found=lambda facts: _summed(facts, place.gpus),
        advice=(
            "The log has NCCL's reason. Try --shm-size 1g, then NCCL_P2P_DISABLE=1: if that "
            "helps, the GPUs cannot reach each other's memory (IOMMU, virtual machines)."
        ),
        settings=ALONE,
        why_not="" if place.gpus >= SEVERAL else "it takes two GPUs",
    )


def _on_this_machine(place: Place) -> list[Part]:
    one = {"TRAINER_DEVICES": "GPU:0"} if place.gpus else {}
    several = {} if place.gpus else {"TRAINER_LOGICAL_CPUS": str(SEVERAL)}
    devices = place.gpus or SEVERAL
    found = _all_equal(devices)
    return [
        Part(
            name=ONE,
            command=_training(place, ONE),
            found=_all_equal(1),
            settings={**ALONE, **one},
        ),
        Part(
            name=ALL,
            command=_training(place, ALL),
            found=found if place.gpus else lambda facts: f"CPU cut in {devices}; {found(facts)}",
            settings={**ALONE, **several},
            why_not="it takes two GPUs" if place.gpus == 1 else "",
            needs=[ONE],
        ),
        Part(
            name=KILL,
            command=_training(place, KILL, "--kill"),
            found=_resumed(place),
            settings={
                **(place.with_peers if place.workers > 1 else {**ALONE, **one}),
                "MAX_RESTARTS": "2",
            },
            needs=[ONE, *([MEETING] if place.workers > 1 else [])],
        ),
    ]


def _on_all_machines(place: Place) -> list[Part]:
    why_not = "" if place.workers > 1 else NO_MACHINES
    replicas = place.workers * (place.gpus or 1)
    return [
        Part(
            name=NCCL_MACHINES,
            command=place.script("sums.py", "multiworker", RESULT),
            found=lambda facts: _summed(facts, replicas),
            advice=(
                f"{NETWORK} NCCL_SOCKET_IFNAME names the interface between the machines "
                "(docs/how-to/gpus.md). The log has NCCL's reason."
            ),
            settings=place.with_peers,
            why_not=why_not or ("" if place.gpus else "this machine has no GPU"),
            needs=[MEETING],
        ),
        Part(
            name=RING,
            command=_training(place, RING),
            found=_all_equal(replicas),
            advice=NETWORK,
            settings=place.with_peers,
            why_not=why_not,
            needs=[MEETING, ONE],
        ),
        Part(
            name=TENSORFLOW,
            command=_training(place, TENSORFLOW, "--strategy", "multiworker"),
            found=_all_equal(replicas),
            advice=f"{NETWORK} The ring does not need these ports: train without a strategy.",
            settings=place.with_peers,
            why_not=why_not,
            needs=[MEETING, ONE],
        ),
    ]


def _training(place: Place, name: str, *arguments: str) -> tuple[str, ...]:
    weights = [str(place.folder / f"{one}.npy") for one in (name, ONE)]
    return place.script(
        "train.py",
        *(ON_GPUS if place.gpus else ON_CPUS),
        *("--result", RESULT),
        *("--weights", weights[0]),
        *(("--reference", weights[1]) if name != ONE else ()),
        *arguments,
    )


def _summed(facts: Facts, replicas: int) -> str:
    if facts["sum"] != replicas:
        raise WrongError(f"the sum of {replicas} ones is {facts['sum']:g}")
    rate = facts["megabytes"] / 1e3 / facts["seconds"]
    return f"{facts['megabytes']:.0f} MB over {replicas} GPUs at {rate:.2g} GB/s"


def _all_equal(replicas: int) -> Callable[[Facts], str]:
    """Return a function that checks where a model has trained, and its weights."""

    def found(facts: Facts) -> str:
        if facts["replicas"] != replicas:
            raise WrongError(f"it trained on {facts['replicas']} devices in place of {replicas}")
        if len({*facts["digests"]}) > 1:
            raise WrongError("the weights differ between the machines")
        if not facts["difference"] <= TOLERANCE:
            raise WrongError(f"the weights differ from one device's by {facts['difference']:.1e}")
        return f"{facts['examples_per_second']:,.0f} examples/s; {_equality(facts)}"

    return found


def _equality(facts: Facts) -> str:
    if facts["replicas"] == 1:
        return "the reference for the other parts"
    return f"weights as on one device (up to {facts['difference']:.0e})"


def _resumed(place: Place) -> Callable[[Facts], str]:
    """Return a function that checks that the last worker was killed, and that all went on."""
    replicas = place.workers * (place.gpus or 1) if place.workers > 1 else 1

    def found(facts: Facts) -> str:
        _all_equal(replicas)(facts)
        if facts["restarts"][-1] < 1:
            raise WrongError("the process that was killed was not restarted")
        if facts["first_epochs"][-1] < 1:
            raise WrongError("it began again with the first epoch, not from a checkpoint")
        who = "the last machine's process" if place.workers > 1 else "the process"
        return (
            f"{who} resumed in epoch {facts['first_epochs'][-1] + 1}; weights as without the kill"
        )

    return found
