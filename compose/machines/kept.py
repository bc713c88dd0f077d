"""Which machines a project's cluster is on, kept where no container can write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given import GivenVariables, project
from local_cluster.settings.remembered import own_by, state_folder
from machines.host import Host, parse


@dataclass(frozen=True)
class Kept:
    """A cluster on machines, from its start until it is removed.

    Attributes:
        hosts: its machines, in the order of the workers.
        run: the run's name.
        folder: each machine's folder for runs and code.
    """

    hosts: tuple[Host, ...]
    run: str
    folders: tuple[str, ...]


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
        return Kept(tuple(parse(found["hosts"])), found["run"], tuple(found["folders"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{file}: it cannot be read ({error}); remove it, if no cluster runs."
        raise EndError(EXIT_CONFIGURATION, message) from error


def write(kept: Kept, environ: Mapping[str, str]) -> None:
    """Keep it."""
    file = file_of(environ)
    made = [one for one in (file, *file.parents) if not one.exists()]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = {
        "hosts": [host.text for host in kept.hosts],
        "run": kept.run,
        "folders": [*kept.folders],
    }
    new = file.with_name(f".new-{file.name}")
    new.write_text(json.dumps(content, indent=2), encoding="utf-8")
    new.replace(file)
    own_by(GivenVariables(environ).user(), made)


def forget(environ: Mapping[str, str]) -> None:
    """Forget it: its containers are removed."""
    file_of(environ).unlink(missing_ok=True)


def refuse_other(environ: Mapping[str, str], what: Sequence[str] = ()) -> None:
    """Make sure that the project has no cluster on machines.

    Raises:
        EndError: it has.
    """
    if kept := read(environ):
        names = ", ".join(host.target for host in kept.hosts)
        told = f"a cluster of the project {project(environ)} is on {names}, run {kept.run}"
        how = "`make attach` shows it, `make down` removes it"
        raise EndError(EXIT_CONFIGURATION, f"{told}: {how}.", *what)
