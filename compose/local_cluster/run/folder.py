"""Makes a run's folder on the host. If the engine made it, root would own it."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from local_cluster.settings.given_variables import LATEST, User
from local_cluster.shared_folder import SharedFolder

IN_CONTAINERS = "/runs"
LOG = "container.log"
EARLIER = "earlier"
"""In a run's folder: a folder for the files of each earlier start, named by its time."""
MOST_LETTERS = 60


def make_new(above: SharedFolder, name: str) -> str:
    """Make a folder with this name, or the next free name; return the name.

    Raises:
        OSError: it could not be made.
    """
    for number in itertools.count(1):
        free = name if number == 1 else f"{name}-{number}"
        with suppress(FileExistsError):
            above.below(free).make_new()
            return free
    raise AssertionError  # `count` does not end


def make(runs: Path, name: str, services: Iterable[str], *, is_new: bool) -> str:
    """Make a run's folder, with one for each worker, and return its name.

    Args:
        runs: the folder of all runs.
        name: the run's name.
        services: the workers.
        is_new: whether the folder must be new; if it exists, the run gets another name.

    Raises:
        OSError: it could not be made.
    """
    runs.mkdir(parents=True, exist_ok=True)
    if is_new:
        name = make_new(SharedFolder(runs), name)
    folder = SharedFolder(runs, name)
    folder.make()
    for service in services:
        worker = folder.below(service)
        worker.make()
        worker.open_to_append(LOG).close()
    return name


def point_to(runs: Path, name: str, project: str) -> None:
    """Point the link `latest` to the run, and write its name to the project's file for the workers.

    Both replace earlier ones, which may belong to another user.

    Raises:
        OSError: the folder of all runs cannot be written; the run's folder is removed if it is
            empty.
    """
    folder = SharedFolder(runs)
    try:
        folder.link(LATEST, name)
        folder.replace(run_of(project), f"{IN_CONTAINERS}/{name}\n".encode())
    except OSError:
        folder.below(name).remove_empty()
        raise


def run_of(project: str) -> str:
    """Return the name of the file that tells a project's workers their run (compose.yaml)."""
    return f".run-of-{project}"


def move_aside(folder: SharedFolder, places: Sequence[str], name: str) -> SharedFolder | None:
    """Move the files of an earlier start into a separate folder; return the folder.

    Args:
        folder: the run's folder.
        places: the files, as paths below it; missing files are skipped.
        name: the new folder's name, unless it exists.

    Raises:
        OSError: a file could not be moved.
    """
    parts = [place.rpartition("/") for place in places]
    found = [(above, file) for above, _, file in parts if folder.below(above).has_file(file)]
    if not found:
        return None
    earlier = folder.below(EARLIER)
    earlier.make()
    target = earlier.below(make_new(earlier, name))
    for above, file in found:
        folder.below(above).move(file, target.below(above))
    return target


def name_of_start(seconds: float, what: str) -> str:
    """Return a name for the folder of an earlier start.

    Args:
        seconds: the time of that start, since 1970; a worker may have written it.
        what: the script or the model that it started.
    """
    when = datetime.fromtimestamp(min(max(seconds, 0), time.time()))  # noqa: DTZ006 -- local time, for people
    return f"{when:%Y%m%d-%H%M%S}-{re.sub('[^A-Za-z0-9._-]', '_', what)[:MOST_LETTERS]}"


def hand_over(runs: Path, name: str, project: str, user: User) -> None:
    """Give a run that root has made to the user to whom the results belong.

    Raises:
        OSError: this process is not allowed to.
    """
    for one in (LATEST, run_of(project), name):
        SharedFolder(runs).hand_over(one, int(user.uid), int(user.gid))
