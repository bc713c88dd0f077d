"""A worker's container on its machine: the one that a particular start has created.

Another operator, or the same one from another computer, may use the same machine and the same
project. Their container then has the same name. So the start's label decides, and commands get the
container's ID.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass

from local_cluster.docker_engine import START
from machines.machine import Machine

FIND = (
    'found=$(docker inspect --format "{{{{.Id}}}} {{{{index .Config.Labels \\"{label}\\"}}}}" '
    "--type container {name}) || exit; "
    '[ -z {start} ] || [ "${{found#* }}" = {start} ] || '
    '{{ echo "No such container: another start has made {name}" >&2; exit 1; }}; '
    'echo "${{found%% *}}"'
)
"""Prints the container's ID. Fails if there is none, or only another start's."""


@dataclass(frozen=True)
class OwnContainer:
    """A worker's container.

    Attributes:
        machine: its machine.
        name: its name.
        start: the start that has created it; "": an older version did, and the name decides.
    """

    machine: Machine
    name: str
    start: str = ""

    @property
    def id_script(self) -> str:
        """A shell script that prints its ID, or fails with Docker's words for a missing one."""
        name, start = shlex.quote(self.name), shlex.quote(self.start)
        return FIND.format(label=START, name=name, start=start)

    def script(self, command: str) -> str:
        """Return a shell script that runs a command, in which `"$id"` is the container's ID."""
        return f"id=$({self.id_script}) || exit; {command}"

    def ask(self, command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run such a script on the machine, and return its exit code and its output."""
        return self.machine.ask(self.script(command), seconds)
