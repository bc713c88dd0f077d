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
    """The settings of the training. Two runs with the same settings end with the same weights.

    Attributes:
        epochs: the number of epochs.
        steps_per_epoch: the number of steps in an epoch.
        checkpoint_steps: the number of steps between two checkpoints.
        optimizer: the optimizer's name.
        learning_rate: the learning rate.
        pack_bytes: the minimum size of a bucket of gradients, in bytes for each worker; None: the
            trainer's own, with which this model has one bucket.
    """

    epochs: int
    steps_per_epoch: int
    checkpoint_steps: int
    optimizer: str = "adam"
    learning_rate: float = 0.001
    pack_bytes: int | None = None

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    @property
    def longest_seconds(self) -> float:
        """The time that a run may take from its last disturbance to its end, in seconds."""
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
    """Machines that train together, and their disturbances.

    Attributes:
        machines: one machine for each worker, in order.
        settings: the settings of the training.
        disturbances: the disturbances so far.
    """

    machines: Sequence[Machine]
    settings: Settings
    disturbances: list[Disturbance] = field(default_factory=list)

    def boot(self, step_seconds: float) -> None:
        """Start all machines; each step is delayed by `step_seconds`."""
        self.set_pace(step_seconds)
        for machine in self.machines:
            machine.boot()

    # Disturbances.

    def kill(self, *victims: int) -> None:
        """Kill machines at the same moment."""
        self.disturb(*victims)
        self._at_once(victims, Machine.kill)

    def disturb(self, *victims: int, at: float | None = None) -> None:
        """Record a disturbance of these workers, now or at another time."""
        self.disturbances.append(Disturbance(victims, at or time.time()))

    def come_back(self, *indices: int) -> None:
        """Start machines again, with their old disks."""
        self.are_back()
        self._at_once(indices, Machine.come_back)

    def replace(self, *indices: int) -> None:
        """Replace dead machines by new ones with empty disks."""
        self.are_back()
        self._at_once(indices, Machine.replace)

    def are_back(self) -> None:
        """Record that the last disturbance ends now."""
        self.disturbances[-1].back_time = time.time()

    def stop(self, *indices: int) -> list[int]:
        """Stop machines at the same moment, as `docker stop` does; return their exit codes."""
        self.disturb(*indices)
        self._at_once(indices, lambda machine: machine.container.stop())
        return [self.machines[index].wait_for_death() for index in indices]

    def _at_once(self, indices: Sequence[int], action: Callable[[Machine], object]) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(action, [self.machines[index] for index in indices]))

    def set_pace(self, step_seconds: float) -> None:
        """Delay each step by `step_seconds` from now on."""
        for machine in self.machines:
            machine.set_pace(step_seconds)

    # Waits.

    def wait_for_step(self, step: int, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until every worker has begun this step of the run."""
        reached = lambda: all(_reached(machine) > step for machine in self.machines)  # noqa: E731
        wait_until(reached, timeout_seconds, f"step {step} begins", self.logs)

    def wait_for_line(self, index: int, text: str, timeout_seconds: float = START_SECONDS) -> float:
        """Wait until a worker has printed the text; return the time of the first such line.

        The time is in seconds since 1970.
        """
        machine = self.machines[index]
        lines = lambda: [line for line in machine.log_lines() if text in line.text]  # noqa: E731
        wait_until(lines, timeout_seconds, f"worker {index} prints {text!r}", self.logs)
        return lines()[0].time

    def wait_for_sabotage(self, index: int) -> None:
        """Wait until the saboteur has ended its machine, and record this as a disturbance."""
        machine = self.machines[index]
        ended = lambda: any(process.end_time for process in machine.processes())  # noqa: E731
        wait_until(ended, TRAINING_SECONDS, f"worker {index} ends its machine", self.logs)
        machine.wait_for_death()
        self.disturb(index, at=machine.processes()[-1].end_time)

    def wait_until_noticed(self) -> None:
        """Wait until every undisturbed worker has interrupted its training because of the loss."""
        last = self.disturbances[-1]
        others = [machine for machine in self.machines if machine.index not in last.victims]

        def noticed(machine: Machine) -> bool:
            lines = machine.log_lines()
            return any(line.time > last.time and STARTED_AGAIN.search(line.text) for line in lines)

        what = f"all but {list(last.victims)} notice it"
        wait_until(lambda: all(map(noticed, others)), NOTICE_SECONDS, what, self.logs)

    def wait_until_resumed(self) -> None:
        """Wait until all workers have agreed on the step to resume from after the disturbance."""
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
        """Wait until no container runs; return the exit codes."""

        def ended() -> bool:
            for machine in self.machines:
                machine.container.reload()
            return all(machine.container.status == "exited" for machine in self.machines)

        wait_until(ended, self.settings.longest_seconds, "all containers have ended", self.logs)
        return [machine.wait_for_death() for machine in self.machines]

    # Results.

    def recoveries(self) -> list[Recovery]:
        """Measure the recovery from each disturbance."""
        times = [disturbance.time for disturbance in self.disturbances]
        ends = [*times, float("inf")][1:]
        return [
            recovery_from(disturbance, self.machines, until)
            for disturbance, until in zip(self.disturbances, ends, strict=True)
        ]

    def lost_steps(self) -> list[int]:
        """Return the number of steps that each worker had to repeat, over all its restarts."""
        return [sum(lost_steps(machine.processes())) for machine in self.machines]

    def logs(self) -> str:
        """Return the machines' output and records so far."""
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
        folder: the folder on the host with the machines' disks.
        settings: the settings of the training.
        options: additional options of the Docker SDK for single workers, by index.
        volumes: the volumes that are the disks of single workers, by index.
    """
    options, volumes = options or {}, volumes or {}
    with make_peers(bench, WORKERS) as peers:
        machines = []
        for index in range(WORKERS):
            own = settings.environment | options.get(index, {})
            place = folder / f"machine-{index}"
            machines.append(Machine(peers, index, place, own, volumes.get(index)))
        yield ChaosRun(machines, settings)
