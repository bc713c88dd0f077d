"""Machines with only SSH and Docker, each in a container."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.compose import FOLDER, ROOT
from harness.inner_daemons import Machine, build, build_machine, started_machines
from harness.waiting import wait_until
from harness.workbench import Workbench

IMAGE = "cluster-trainer-machine:bookworm"
DOCKERFILE = Path(__file__).parents[1] / "machines"
USER = "ana"
OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "IMAGE")
"""The variables that `make chaos` passes on to pytest, and that would change another make."""
CONFIGURATION = """
UserKnownHostsFile {folder}/known_hosts
IdentityFile {folder}/key
IdentitiesOnly yes
User {user}
"""


@dataclass(frozen=True)
class Operator:
    """The user who runs `make up`: a home with keys, an `ssh` that uses only them, and results.

    Attributes:
        folder: the folder with all of these files.
        machines: the machines by name, as in an SSH configuration.
    """

    folder: Path
    machines: Sequence[Machine]

    @property
    def environ(self) -> dict[str, str]:
        """The variables of the user's shell."""
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "RUNS_DIR": str(self.folder / "runs"),
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of `cluster.py`."""
        return [sys.executable, str(FOLDER / "cluster.py"), *arguments]

    def run(
        self, *arguments: str, seconds: float = 120, **environ: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `stdout` has all of its output."""
        given = self.environ | {name: str(value) for name, value in environ.items()}
        return _ended(self.command(*arguments), given, seconds)

    def make(
        self, *arguments: str, seconds: float = 300, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run make in the repository, as in a shell; `stdout` has all of its output."""
        kept = {
            name: text
            for name, text in self.environ.items()
            if name not in OF_MAKE and not name.startswith("TRAINER_")
        }
        return _ended(["make", *arguments], kept | environ, seconds)

    def processes(self) -> list[str]:
        """Return the command lines of all processes that its commands have left running."""
        own = f"XDG_STATE_HOME={self.environ['XDG_STATE_HOME']}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                if own in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def start(self, *arguments: str, **environ: object) -> "Started":
        """Start a command."""
        file = self.folder / f"{arguments[0]}-{len([*self.folder.glob('*.log')])}.log"
        with file.open("wb") as output:
            process = subprocess.Popen(
                ["env", "--default-signal=INT", *self.command(*arguments)],
                env=self.environ | {name: str(value) for name, value in environ.items()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Started(process, file)


def _ended(
    command: Sequence[str], environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository to its end; both of its streams are in `stdout`."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


@dataclass(frozen=True)
class Started:
    """A running command."""

    process: subprocess.Popen[bytes]
    file: Path

    def output(self) -> str:
        """Return its output."""
        return self.file.read_text(errors="replace")

    def wait_for_text(self, text: str, seconds: float) -> float:
        """Wait until it has printed a text; return the duration of the wait, in seconds.

        Raises:
            WaitError: it was not printed in time.
            AssertionError: the command ended without it.
        """
        shown = lambda: text in self.output() or self.process.poll() is not None  # noqa: E731
        took = wait_until(shown, seconds, f"it prints {text!r}", self.output)
        assert text in self.output(), self.output()
        return took

    def end(self, seconds: float) -> int:
        """Wait until it has ended, and return its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(self.output()) from None


def make_keys(folder: Path) -> None:
    """Make the keys of the hosts and the operator, and the files by which they trust each other."""
    folder.mkdir(parents=True)
    for name in ("host", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    (folder / "known_hosts").write_text(f"* {(folder / 'host.pub').read_text()}")


def make_ssh(folder: Path, keys: Path, addresses: Mapping[str, str]) -> None:
    """Make an `ssh` with its own configuration, which names the machines."""
    known = CONFIGURATION.format(folder=keys, user=USER)
    named = "".join(f"Host {name}\n  HostName {at}\n" for name, at in addresses.items())
    (folder / "config").write_text(f"{named}Host *\n{known}")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = folder / "bin/ssh"
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    program.chmod(0o755)


@contextmanager
def ssh_machines(bench: Workbench, names: Sequence[str], folder: Path) -> Iterator[Operator]:
    """Start machines, and an operator who reaches them by name; remove the machines at the end."""
    image = build(DOCKERFILE, build_machine(), IMAGE)
    make_keys(folder / "keys")
    with started_machines(bench, names, image, f"{folder}/keys:/keys:ro") as started:
        addresses = {machine.name: machine.address for machine in started}
        make_ssh(folder, folder / "keys", addresses)
        yield Operator(folder, started)
