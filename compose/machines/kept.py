"""Keeps the machines of a project's cluster in a file where no container can write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given import GivenVariables, project
from local_cluster.settings.remembered import own_by, state_folder
from local_cluster.shared_folder import SharedFolder
from machines.host import Host, parse
from machines.machine import Machine, of


@dataclass(frozen=True)
class Kept:
    """A cluster on machines, from its start until it is removed.

    Attributes:
        project: its name.
        hosts: its machines, in the order of the workers.
        run: the run's name.
        runs: the folder of all runs here.
        folders: each machine's folder for runs and code.
    """

    project: str
    hosts: tuple[Host, ...]
    run: str
    runs: str
    folders: tuple[str, ...]

    @property
    def machines(self) -> list[Machine]:
        """Its machines, with their workers' numbers."""
        return of(self.hosts)

    @property
    def places(self) -> list[tuple[Machine, str]]:
        """Each machine with the run's folder there."""
        runs = [f"{folder}/runs/{self.run}" for folder in self.folders]
        return list(zip(self.machines, runs))

    @property
    def folder(self) -> SharedFolder:
        """The run's folder here."""
        return SharedFolder(Path(self.runs), self.run)


def file_of(environ: Mapping[str, str]) -> Path:
    """Return the file of the project's cluster."""
    return state_folder(environ) / "machines" / f"{project(environ)}.json"


def read(environ: Mapping[str, str]) -> Kept | None:
    """Return the project's cluster on machines; None: there is none.

    Raises:
        EndError: the file cannot be read.
    """
    file = file_of(environ)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        hosts, folders = tuple(parse(found["hosts"])), tuple(found["folders"])
        return Kept(project(environ), hosts, found["run"], found["runs"], folders)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{file}: it cannot be read ({error}); remove it, if no cluster runs."
        raise EndError(EXIT_CONFIGURATION, message) from error


def is_current(environ: Mapping[str, str]) -> Callable[[], bool]:
    """Return what tells whether the project's cluster is still the one of now."""
    now = read(environ)
    return lambda: read(environ) == now


def write(kept: Kept, environ: Mapping[str, str]) -> None:
    """Keep it."""
    file = file_of(environ)
    made = [one for one in (file, *file.parents) if not one.exists()]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = {
        "hosts": [host.text for host in kept.hosts],
        "run": kept.run,
        "runs": kept.runs,
        "folders": [*kept.folders],
    }
    new = file.with_name(f".new-{file.name}")
    new.write_text(json.dumps(content, indent=2), encoding="utf-8")
    new.replace(file)
    own_by(GivenVariables(environ).user(), made)


def forget(environ: Mapping[str, str]) -> None:
    """Forget it: its containers are removed."""
    file_of(environ).unlink(missing_ok=True)


def refuse_other(environ: Mapping[str, str]) -> None:
    """Make sure that the project has no cluster on machines, before a local one is started.

    Raises:
        EndError: it has.
    """
    if known := read(environ):
        names = ", ".join(host.target for host in known.hosts)
        told = f"a cluster of the project {project(environ)} is on {names}, run {known.run}"
        how = "`make down` removes it; another COMPOSE_PROJECT_NAME= starts one beside it"
        raise EndError(EXIT_CONFIGURATION, f"{told}: {how}.")


def refuse_none(environ: Mapping[str, str]) -> int:
    """Refuse a command that is about a cluster on machines where there is none.

    Raises:
        EndError: always.
    """
    told = f"the project {project(environ)} has no cluster on other machines"
    raise EndError(EXIT_CONFIGURATION, f'{told}; `make up HOSTS="ana@10.0.0.1 …"` starts one.')
