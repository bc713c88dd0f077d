"""A cluster of machines that train while a test disturbs them."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.chaos.machine import Machine
from harness.chaos.records import lost_steps
from harness.chaos.recovery import Disturbance, Recovery, recovery_from
from harness.peers import make_peers
from harness.waiting import wait_until
from harness.workbench import Workbench

WORKERS = 3
START_SECONDS = 120
TRAINING_SECONDS = 120
NOTICE_SECONDS = 60
BEGINS = re.compile(r"resuming from step|starting at step 0")
STARTED_AGAIN = re.compile(r"restart \d+ of \d+ in|was lost: waiting until")


@dataclass(frozen=True)
class Settings:
    """What is trained. Two runs with the same settings end with the same weights.

    Attributes:
        epochs: how many.
        steps_per_epoch: the steps of each.
        checkpoint_steps: a checkpoint is saved every so many steps.
        optimizer: by which.
        learning_rate: of that.
        pack_bytes: of gradients, for each worker, in a pack at least; None: as the trainer has it,
            for which this model is one pack.
    """

    epochs: int
    steps_per_epoch: int
    checkpoint_steps: int
    optimizer: str = "adam"
    learning_rate: float = 0.001
    pack_bytes: int | None = None

    @property
    def steps(self) -> int:
        """The steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    @property
    def longest_seconds(self) -> float:
        """How long a run may take from its last disturbance to its end."""
        return 120 + 0.1 * self.steps

    @property
    def environment(self) -> dict[str, str]:
        """The trainer's variables."""
        return {
            "TRAINER_MODEL": "saboteur:build",
            "TRAINER_DATASET": "saboteur:load",
            "TRAINER_THREADS": "1",
            "TRAINER_EPOCHS": f"{self.epochs}",
            "TRAINER_STEPS_PER_EPOCH": f"{self.steps_per_epoch}",
            "TRAINER_CHECKPOINT_STEPS": f"{self.checkpoint_steps}",
            "TRAINER_OPTIMIZER": self.optimizer,
            "TRAINER_LEARNING_RATE": f"{self.learning_rate}",
            "SABOTEUR_PACK_BYTES": f"{self.pack_bytes or ''}",
        }


@dataclass(frozen=True)
class ChaosRun:
    """Machines that train together, and what was done to them.

    Attributes:
        machines: one for each worker, in their order.
        settings: what they train.
        disturbances: what was done so far.
    """

    machines: Sequence[Machine]
    settings: Settings
    disturbances: list[Disturbance] = field(default_factory=list)

    def boot(self, step_seconds: float) -> None:
        """Start all machines; each step takes so much longer than it would."""
        self.set_pace(step_seconds)
        for machine in self.machines:
            machine.boot()

    # What a test does to them.

    def kill(self, *victims: int) -> None:
        """Kill machines at the same moment."""
        self.disturb(*victims)
        self._at_once(victims, Machine.kill)

    def disturb(self, *victims: int, at: float | None = None) -> None:
        """Note that something is done now, or was at another time, to these workers."""
        self.disturbances.append(Disturbance(victims, at or time.time()))

    def come_back(self, *indices: int) -> None:
        """Start machines again, with the disks that they had."""
        self.are_back()
        self._at_once(indices, Machine.come_back)

    def replace(self, *indices: int) -> None:
        """Put new machines in the place of dead ones, with empty disks."""
        self.are_back()
        self._at_once(indices, Machine.replace)

    def are_back(self) -> None:
        """Note that the last disturbance ends now."""
        self.disturbances[-1].back_time = time.time()

    def stop(self, *indices: int) -> list[int]:
        """Do what `docker stop` does, to all at the same moment; return their exit codes."""
        self.disturb(*indices)
        self._at_once(indices, lambda machine: machine.container.stop())
        return [self.machines[index].wait_for_death() for index in indices]

    def _at_once(self, indices: Sequence[int], action: Callable[[Machine], object]) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(action, [self.machines[index] for index in indices]))

    def set_pace(self, step_seconds: float) -> None:
        """Make each step take so much longer than it would, from now on."""
        for machine in self.machines:
            machine.set_pace(step_seconds)

    # What a test waits for.

    def wait_for_step(self, step: int, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until every worker has begun this step of the run."""
        reached = lambda: all(_reached(machine) > step for machine in self.machines)  # noqa: E731
        wait_until(reached, timeout_seconds, f"step {step} begins", self.logs)

    def wait_for_line(self, index: int, text: str, timeout_seconds: float = START_SECONDS) -> float:
        """Wait until a worker has printed the text; return when it did, in seconds since 1970."""
        machine = self.machines[index]
        lines = lambda: [line for line in machine.log_lines() if text in line.text]  # noqa: E731
        wait_until(lines, timeout_seconds, f"worker {index} prints {text!r}", self.logs)
        return lines()[0].time

    def wait_for_sabotage(self, index: int) -> None:
        """Wait until the saboteur has ended its machine, and count that as a disturbance."""
        machine = self.machines[index]
        ended = lambda: any(process.end_time for process in machine.processes())  # noqa: E731
        wait_until(ended, TRAINING_SECONDS, f"worker {index} ends its machine", self.logs)
        machine.wait_for_death()
        self.disturb(index, at=machine.processes()[-1].end_time)

    def wait_until_noticed(self) -> None:
        """Wait until every worker that was left alone has ended its training for the loss."""
        last = self.disturbances[-1]
        others = [machine for machine in self.machines if machine.index not in last.victims]

        def noticed(machine: Machine) -> bool:
            lines = machine.log_lines()
            return any(line.time > last.time and STARTED_AGAIN.search(line.text) for line in lines)

        what = f"all but {list(last.victims)} notice it"
        wait_until(lambda: all(map(noticed, others)), NOTICE_SECONDS, what, self.logs)

    def wait_until_resumed(self) -> None:
        """Wait until all workers have agreed where to go on after the last disturbance."""
        since = self.disturbances[-1].time

        def resumed(machine: Machine) -> bool:
            lines = machine.log_lines()
            return any(line.time > since and BEGINS.search(line.text) for line in lines)

        all_did = lambda: all(map(resumed, self.machines))  # noqa: E731
        wait_until(all_did, START_SECONDS, "all resume", self.logs)

    def wait_until_all_train(self) -> None:
        """Wait until every worker has begun a step after this moment."""
        since = time.time()
        all_do = lambda: all(machine.trained_at() > since for machine in self.machines)  # noqa: E731
        wait_until(all_do, START_SECONDS, "all train", self.logs)

    def wait_for_end(self) -> list[int]:
        """Wait until no container runs any more; return their exit codes."""

        def ended() -> bool:
            for machine in self.machines:
                machine.container.reload()
            return all(machine.container.status == "exited" for machine in self.machines)

        wait_until(ended, self.settings.longest_seconds, "all containers have ended", self.logs)
        return [machine.wait_for_death() for machine in self.machines]

    # What there is to say of it afterwards.

    def recoveries(self) -> list[Recovery]:
        """Measure how long the cluster took after each disturbance."""
        times = [disturbance.time for disturbance in self.disturbances]
        ends = [*times, float("inf")][1:]
        return [
            recovery_from(disturbance, self.machines, until)
            for disturbance, until in zip(self.disturbances, ends, strict=True)
        ]

    def lost_steps(self) -> list[int]:
        """Return for each worker how many steps it had to do again, over all its restarts."""
        return [sum(lost_steps(machine.processes())) for machine in self.machines]

    def logs(self) -> str:
        """Return what the machines have printed and done so far."""
        parts = []
        for machine in self.machines:
            parts.append(f"--- worker {machine.index}\n{machine.log()}")
            parts += [str(process) for process in machine.processes()]
        return "\n".join(parts)


def _reached(machine: Machine) -> int:
    return max((process.next_step for process in machine.processes()), default=0)


@contextmanager
def assembled(
    bench: Workbench,
    folder: Path,
    settings: Settings,
    options: Mapping[int, Mapping[str, object]] | None = None,
    volumes: Mapping[int, str] | None = None,
) -> Iterator[ChaosRun]:
    """Assemble the machines of a run, which `boot` starts, and remove them at the end.

    Args:
        bench: the engine and the image.
        folder: where their disks lie on the host.
        settings: what they train.
        options: the Docker SDK's options that a worker has of its own, by its index.
        volumes: the volume that is a worker's disk, by its index.
    """
    options, volumes = options or {}, volumes or {}
    with make_peers(bench, WORKERS) as peers:
        machines = []
        for index in range(WORKERS):
            own = settings.environment | options.get(index, {})
            place = folder / f"machine-{index}"
            machines.append(Machine(peers, index, place, own, volumes.get(index)))
        yield ChaosRun(machines, settings)
