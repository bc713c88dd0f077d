"""Records the machines of a project's cluster, in a file that no container can write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import GivenVariables, project
from local_cluster.settings.locks import of_project
from local_cluster.settings.run_record import own_by, state_folder
from local_cluster.shared_folder import SharedFolder
from machines.hosts_setting import Host, parse
from machines.machine import Machine, container_of, of
from machines.own_container import OwnContainer

BUSY = (
    "another command is starting, stopping or changing the cluster of the project {project}. Wait "
    "until it ends, or end it. Then repeat this command."
)


@dataclass(frozen=True)
class Kept:
    """The record of a cluster on machines. It exists until the cluster is removed.

    Attributes:
        project: the Compose project, which is the cluster's name.
        hosts: its machines, in the order of the workers.
        run: the run's name.
        runs: the folder of all runs on this machine.
        folders: each machine's folder for runs and code.
        is_started: whether all workers were started; False: the start was interrupted.
        removed: the numbers of the workers that `down` has removed, if it could not reach all.
        start: the random name of its start, a label of its workers; "": made by an older version.
    """

    project: str
    hosts: tuple[Host, ...]
    run: str
    runs: str
    folders: tuple[str, ...]
    is_started: bool = True
    removed: tuple[int, ...] = ()
    start: str = ""

    @property
    def machines(self) -> list[Machine]:
        """Its machines, with their workers' numbers."""
        return of(self.hosts)

    @property
    def containers(self) -> list[OwnContainer]:
        """Its workers' containers."""
        return [
            OwnContainer(one, container_of(one, self.project), self.start) for one in self.machines
        ]

    @property
    def left(self) -> list[OwnContainer]:
        """The containers that `down` has not removed."""
        return [one for one in self.containers if one.machine.index not in self.removed]

    @property
    def places(self) -> list[tuple[Machine, str]]:
        """Each machine with the run's folder there."""
        runs = [f"{folder}/runs/{self.run}" for folder in self.folders]
        return list(zip(self.machines, runs))

    @property
    def folder(self) -> SharedFolder:
        """The run's folder on this machine."""
        return SharedFolder(Path(self.runs), self.run)


def file_of(environ: Mapping[str, str]) -> Path:
    """Return the path of the project's record."""
    return state_folder(environ) / "machines" / f"{project(environ)}.json"


def read(environ: Mapping[str, str]) -> Kept | None:
    """Return the project's cluster on machines; None: there is none.

    Raises:
        EndError: the file cannot be read, or is damaged.
    """
    file, name = file_of(environ), project(environ)
    try:
        return _parsed(name, json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, EndError) as error:
        raise EndError(
            EXIT_CONFIGURATION,
            f"{file}: received a file that cannot be read ({error}); accepted: the record of a "
            f"cluster that `make up` wrote. Remove this file, and remove workers that still run on "
            f"each machine: `docker rm --force {name}-worker-0`, and so on. Then `make resume` "
            "resumes the run.",
        ) from error


def _parsed(name: str, found: Any) -> Kept:  # noqa: ANN401 -- of a file
    """Return the record in a file's content.

    Raises:
        ValueError: a value is wrong. LookupError, TypeError and EndError mean the same.
    """
    lines, folders, removed = found["hosts"], found["folders"], found.get("removed", [])
    start = found.get("start", "")
    texts = [*lines, *folders, found["run"], found["runs"], start]
    if not all(isinstance(one, str) for one in texts) or not found["run"]:
        raise ValueError("texts are missing")
    hosts = tuple(parse(lines))
    if len(folders) != len(hosts) or not set(removed) <= set(range(len(hosts))):
        raise ValueError(f"{len(hosts)} hosts, {len(folders)} folders")
    is_started = bool(found.get("is_started", True))
    place = found["run"], found["runs"], tuple(folders)
    return Kept(name, hosts, *place, is_started, tuple(sorted(removed)), start)


def is_current(environ: Mapping[str, str]) -> Callable[[], bool]:
    """Return a function that tells whether the project still has the same run and machines."""

    def what() -> tuple[object, ...] | None:
        found = read(environ)
        return (found.hosts, found.run, found.runs) if found else None

    now = what()
    return lambda: what() == now


@contextmanager
def held(known: Kept, environ: Mapping[str, str]) -> Iterator[None]:
    """Hold the project's lock, so that no other command changes the cluster.

    Raises:
        EndError: another command holds it, or has changed the cluster since it was read.
    """
    with of_project(known.project, GivenVariables(environ).user(), environ, BUSY):
        refuse_changed(known, environ)
        yield


def refuse_changed(known: Kept | None, environ: Mapping[str, str]) -> None:
    """Make sure that no other command changed the cluster before this one had the project's lock.

    Raises:
        EndError: another command has changed it.
    """
    if read(environ) != known:
        told = f"another command has just changed the cluster of the project {project(environ)}"
        again = "Check `make status`, then repeat this command"
        raise EndError(EXIT_CONFIGURATION, f"{told}. {again}.")


def write(kept: Kept, environ: Mapping[str, str]) -> None:
    """Write the record."""
    file = file_of(environ)
    made = [one for one in (file, *file.parents) if not one.exists()]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = {
        "hosts": [host.text for host in kept.hosts],
        "run": kept.run,
        "runs": kept.runs,
        "folders": [*kept.folders],
        "is_started": kept.is_started,
        "removed": [*kept.removed],
        "start": kept.start,
    }
    new = file.with_name(f".new-{file.name}")
    new.write_text(json.dumps(content, indent=2), encoding="utf-8")
    new.replace(file)
    own_by(GivenVariables(environ).user(), made)


def forget(environ: Mapping[str, str]) -> None:
    """Delete the record; the cluster's containers must have been removed."""
    file_of(environ).unlink(missing_ok=True)


def refuse_other(environ: Mapping[str, str]) -> None:
    """Make sure that the project has no cluster on machines, before a local one is started.

    Raises:
        EndError: it has one.
    """
    if known := read(environ):
        names = ", ".join(host.target for host in known.hosts)
        told = f"a cluster of the project {project(environ)} is on {names}, run {known.run}"
        how = "`make down` removes it; another COMPOSE_PROJECT_NAME= starts one beside it"
        raise EndError(EXIT_CONFIGURATION, f"{told}: {how}.")


def refuse_none(environ: Mapping[str, str]) -> int:
    """Refuse a command that needs a cluster on machines, because there is none.

    Raises:
        EndError: always.
    """
    told = f"the project {project(environ)} has no cluster on other machines"
    raise EndError(EXIT_CONFIGURATION, f'{told}; `make up HOSTS="ana@10.0.0.1 …"` starts one.')
