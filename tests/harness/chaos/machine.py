"""A worker's machine: a container that can be killed, lose its disk, and come back."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from docker.models.containers import Container
from docker.models.networks import Network

from harness.chaos.records import Process, newest_batch, read_processes
from harness.peers import Peers
from harness.waiting import pause

WORKSPACE = Path(__file__).parents[2] / "cluster/workspace"
END_SECONDS = 60


@dataclass(frozen=True)
class LogLine:
    """A line of a container's log, with its time by the engine's clock, in seconds since 1970."""

    time: float
    text: str


@dataclass
class Machine:
    """One worker's machine.

    Attributes:
        peers: the machine's network.
        index: the worker's index.
        folder: a folder on the host. Its `runs` is the machine's disk. Its `chaos` does not belong
            to the machine: the test and the saboteur share it.
        settings: the environment (in capitals) and the Docker SDK's options; see Peers.start.
        disk_volume: a volume to use as the machine's disk instead of `runs`.
    """

    peers: Peers
    index: int
    folder: Path
    settings: Mapping[str, object]
    disk_volume: str | None = None
    _container: Container | None = None
    _earlier_lines: list[LogLine] = field(default_factory=list)

    @property
    def container(self) -> Container:
        """The machine's container."""
        assert self._container, f"worker {self.index} was never started"
        return self._container

    @property
    def disk(self) -> Path:
        """The folder that the worker mounts at /runs."""
        return self.folder / "runs"

    @property
    def run_dir(self) -> Path:
        """The worker's own folder on its disk."""
        return self.disk / f"worker-{self.index}"

    @property
    def chaos(self) -> Path:
        """The folder that the worker mounts at /chaos."""
        return self.folder / "chaos"

    def boot(self) -> None:
        """Start a new machine."""
        self.disk.mkdir(parents=True, exist_ok=True)
        mounts = [
            f"{WORKSPACE}:/workspace:ro",
            f"{self.chaos}:/chaos",
            f"{self.disk_volume or self.disk}:/runs",
        ]
        self._container = self.peers.start(self.index, volumes=mounts, **self.settings)

    def kill(self) -> None:
        """Kill it, as a loss of power does."""
        self.container.kill()
        self.wait_for_death()

    def come_back(self) -> None:
        """Start it again, with its old disk."""
        self.container.start()

    def pause(self) -> None:
        """Freeze all of its processes, as `docker pause` does."""
        pause(self.container)

    def unpause(self) -> None:
        """Let its processes continue."""
        self.container.unpause()

    def unplug(self) -> None:
        """Disconnect it from the network."""
        self._network().disconnect(self.container)

    def plug_in(self) -> None:
        """Connect it to the network again, possibly with another address."""
        self._network().connect(self.container)

    def replace(self) -> None:
        """Replace it by a new machine, with an empty disk and the same name."""
        self._earlier_lines = self.log_lines()
        self.peers.started.remove(self.container)
        self.container.remove(force=True, v=True)
        shutil.rmtree(self.disk)
        self.boot()

    def _network(self) -> Network:
        return self.peers.bench.client.networks.get(self.peers.network)

    def wait_for_death(self, timeout_seconds: float = END_SECONDS) -> int:
        """Wait until none of its processes runs; return its exit code."""
        return self.container.wait(timeout=timeout_seconds)["StatusCode"]

    def trigger(self, name: str) -> None:
        """Make the saboteur act at its next opportunity."""
        (self.chaos / name).touch()

    def set_pace(self, step_seconds: float) -> None:
        """Delay each step by `step_seconds` from now on."""
        self.chaos.mkdir(parents=True, exist_ok=True)
        new = self.chaos / ".step-seconds"
        new.write_text(f"{step_seconds}")
        new.replace(self.chaos / "step-seconds")

    def processes(self) -> list[Process]:
        """Return the records of its training processes so far."""
        return read_processes(self.chaos / "records.jsonl")

    def trained_at(self) -> float:
        """Return the time when it began its newest step, in seconds since 1970; 0: no step yet."""
        return newest_batch(self.chaos / "records.jsonl")

    def checkpoints(self) -> list[Path]:
        """Return the files of its checkpoints, the oldest first."""
        return sorted(self.run_dir.glob("checkpoints/0*.npz"))

    def log_lines(self) -> list[LogLine]:
        """Return its output so far, including the output of the machines that it replaced."""
        text = self.container.logs(timestamps=True).decode(errors="replace")
        return self._earlier_lines + [_line(line) for line in text.splitlines()]

    def log(self) -> str:
        """Return its output so far, without the times."""
        return "\n".join(line.text for line in self.log_lines())


def _line(text: str) -> LogLine:
    moment, _, rest = text.partition(" ")
    return LogLine(datetime.fromisoformat(moment).timestamp(), rest)
