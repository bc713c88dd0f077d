"""The parts that run a program: the result that each must have, and advice if it fails."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster_trainer.selftest.part import Facts, Part, WrongError
from cluster_trainer.selftest.running import RESULT

PROGRAMS = Path(__file__).parent / "programs"
TOLERANCE = 1e-3
"""The largest accepted difference of weights, relative to the largest weight. Rounding causes
about 1e-6 on CPUs."""
SEVERAL = 2
MEETING_SECONDS = 60
"""The time of a meeting in addition to RENDEZVOUS_TIMEOUT."""
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
NO_MACHINES = "no other machine is named (WORKER_HOSTS)"
NETWORK = "Open the workers' ports to each other (docs/how-to/firewall.md), and use --network host."


@dataclass(frozen=True)
class Place:
    """The machines and devices to test.

    Attributes:
        gpus: the number of this machine's GPUs.
        workers: the number of machines.
        folder: the folder for the programs and the weights of the reference.
    """

    gpus: int
    workers: int
    folder: Path

    def script(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Copy a program, so that it runs like a user's own script; return its command."""
        path = self.folder / name
        path.write_bytes((PROGRAMS / name).read_bytes())
        return sys.executable, str(path), *arguments


def meeting(workers: int, timeout_seconds: float) -> Part:
    """Return the part in which the machines meet. Some may start later than this one."""
    return Part(
        name=MEETING,
        command=["true"],
        found=lambda _: f"{workers} machines",
        advice=NETWORK,
        settings={"RENDEZVOUS_TIMEOUT": f"{timeout_seconds:.0f}"},
        meets=True,
        limit_seconds=timeout_seconds + MEETING_SECONDS,
        shows=True,
        why_not="" if workers > 1 else NO_MACHINES,
    )


def devices(place: Place, limit_seconds: float) -> Part:
    """Return the part that looks for GPUs and computes on each."""
    return Part(
        name=GPUS,
        command=place.script("devices.py", RESULT),
        found=lambda facts: f"{len(facts['gpus'])}",
        advice="Install NVIDIA's driver and container toolkit again (docs/how-to/gpus.md).",
        limit_seconds=limit_seconds,
    )


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
            settings=one,
        ),
        Part(
            name=ALL,
            command=_training(place, ALL),
            found=found if place.gpus else lambda facts: f"CPU cut in {devices}; {found(facts)}",
            settings=several,
            why_not="it takes two GPUs" if place.gpus == 1 else "",
            needs=[ONE],
        ),
        Part(
            name=KILL,
            command=_training(place, KILL, "--kill"),
            found=_resumed(place),
            settings={"MAX_RESTARTS": "2", **({} if place.workers > 1 else one)},
            meets=place.workers > 1,
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
            meets=True,
            why_not=why_not or ("" if place.gpus else "this machine has no GPU"),
            needs=[MEETING],
        ),
        Part(
            name=RING,
            command=_training(place, RING),
            found=_all_equal(replicas),
            advice=NETWORK,
            meets=True,
            why_not=why_not,
            needs=[MEETING, ONE],
        ),
        Part(
            name=TENSORFLOW,
            command=_training(place, TENSORFLOW, "--strategy", "multiworker"),
            found=_all_equal(replicas),
            advice=f"{NETWORK} The ring does not need these ports: train without a strategy.",
            meets=True,
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
    """Return a function that checks on how many devices a model trained, and its weights."""

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
    """Return a function that checks that the last worker was killed and all resumed."""
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
