"""A run's folder on the host: made here and not by the engine, which would make it for root."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from local_cluster.settings.given import LATEST, User

IN_CONTAINERS = "/runs"
LOG = "container.log"


def make(runs: Path, name: str, services: Iterable[str]) -> Path:
    """Make a run's folder with one for each worker, and return it.

    Raises:
        OSError: it could not be made.
    """
    folder = runs / name
    for service in services:
        (folder / service).mkdir(parents=True, exist_ok=True)
        (folder / service / LOG).touch()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def point_to(runs: Path, name: str, project: str) -> None:
    """Let `latest` lead a person to the run, and the project's file the workers.

    Both are put in place of earlier ones, which may belong to somebody else.

    Raises:
        OSError: the folder of all runs cannot be written.
    """
    latest, file = runs / f".{LATEST}-of-{project}", runs / f".new-run-of-{project}"
    latest.unlink(missing_ok=True)
    latest.symlink_to(name)
    latest.replace(runs / LATEST)
    file.write_text(f"{IN_CONTAINERS}/{name}\n")
    file.replace(run_of(runs, project))


def run_of(runs: Path, project: str) -> Path:
    """Return the file that tells a project's workers their run (compose.yaml)."""
    return runs / f".run-of-{project}"


def hand_over(runs: Path, folder: Path, project: str, user: User) -> None:
    """Give a run that root has made to whom the results belong."""
    uid, gid = int(user.uid), int(user.gid)
    paths = [runs / LATEST, run_of(runs, project), folder]
    paths += [Path(place) / name for place, dirs, files in os.walk(folder) for name in dirs + files]
    for path in paths:
        os.chown(path, uid, gid, follow_symlinks=False)
