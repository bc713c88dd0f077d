"""A disk that is small enough for a test to fill: a tmpfs that outlives the machine's container."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.models.containers import Container

from harness.workbench import Workbench

FILLER = "/runs/filler"


@dataclass(frozen=True)
class SmallDisk:
    """A volume, and a container that keeps it mounted: an unmounted tmpfs loses its content.

    Attributes:
        volume: the volume's name.
        holder: the container that keeps it mounted.
    """

    volume: str
    holder: Container

    def fill(self) -> None:
        """Fill the disk until no block is free."""
        done = self.holder.exec_run(["dd", "if=/dev/zero", f"of={FILLER}", "bs=4k"])
        assert b"No space left on device" in done.output, done.output

    def empty(self) -> None:
        """Free the space again."""
        self._run("rm", FILLER)

    def checkpoints(self) -> list[str]:
        """Return the names of all checkpoints on it, the oldest first."""
        return sorted(self._run("find", "/runs", "-name", "0*.npz", "-printf", "%f\n").split())

    def copy(self) -> None:
        """Copy its content to the folder on the host."""
        self._run("cp", "-r", "/runs/.", "/host")

    def _run(self, *command: str) -> str:
        done = self.holder.exec_run(list(command))
        assert done.exit_code == 0, done.output
        return done.output.decode()


@contextmanager
def small_disk(bench: Workbench, size: str, host_folder: Path) -> Iterator[SmallDisk]:
    """Make a disk of this size ("8m"), and remove it at the end."""
    host_folder.mkdir(parents=True, exist_ok=True)
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},mode=1777"}
    volume = bench.client.volumes.create(bench.new_name("disk"), driver_opts=options)
    mounts = [f"{volume.name}:/runs", f"{host_folder}:/host"]
    holder = bench.start("infinity", entrypoint="sleep", volumes=mounts)
    try:
        yield SmallDisk(volume.name, holder)
    finally:
        holder.remove(force=True)
        volume.remove()
