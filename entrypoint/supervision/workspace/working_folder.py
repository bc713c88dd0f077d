"""The folder of the run in which a script works if it cannot write its own.

Most scripts read and write in the folder where they run. The user's folder is mounted read-only: a
compromised worker must not change the user's code, and workers of one machine must not write the
same files at the same time. So such a script runs in its worker's folder, which mirrors the user's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from entrypoint.log import Log
from entrypoint.settings.files import is_file
from entrypoint.supervision.workspace.mirror import MOST_FILES, Mirror

WORKSPACE = Path("/workspace")
RUNS = "/runs"
NAME, ASIDE = "workspace", "workspace-earlier"
CHIEF = "worker-0"
MOST_NAMED = 5


def working_folder(command: Sequence[str], environment: Mapping[str, str], log: Log) -> Path | None:
    """Create and fill the folder in which a command runs; return None for the current folder.

    Args:
        command: its words. It gets another folder only if it names a file in the workspace.
        environment: its variables, with TRAINER_RUN_DIR.
        log: the log of the worker.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed; the command itself reports that
        return None
    is_read_only = here.is_relative_to(WORKSPACE) and not os.access(here, os.W_OK)
    if not is_read_only or not _is_of(here, command):
        return None
    mirror = _mirror(here, environment, log.worker)
    folder = mirror.folder / here.relative_to(WORKSPACE)
    try:
        mirror.renew()
    except (OSError, ValueError, RecursionError) as error:
        log.warning(f"{here} is read-only, and {folder} cannot be used instead: {_reason(error)}")
        return None
    finally:
        _say_moved(mirror, log)
    if log.worker == CHIEF:
        _say(mirror, folder, log)
    return folder


def _is_of(here: Path, command: Sequence[str]) -> bool:
    """Tell whether a command names a file in the workspace, such as `python train.py`."""
    program = [word for word in command[:1] if "/" in word]
    words = [*program, *(word for word in command[1:] if not word.startswith("-"))]
    paths = (Path(os.path.abspath(here / word)) for word in words)  # noqa: PTH100 -- a link stays
    return any(path.is_relative_to(WORKSPACE) and is_file(path) for path in paths)


def _mirror(here: Path, environment: Mapping[str, str], worker: str) -> Mirror:
    runs = Path(os.path.abspath(environment.get("TRAINER_RUN_DIR") or RUNS))  # noqa: PTH100 -- a link stays
    now = time.strftime("%Y%m%d-%H%M%S")
    names = (now if number == 1 else f"{now}-{number}" for number in count(1))
    places = (runs / worker / ASIDE / name for name in names)
    aside = next(one for one in places if not os.path.lexists(one))
    return Mirror(WORKSPACE, runs / worker / NAME, aside, here)


def _reason(error: Exception) -> str:
    """Return the reason of a failure, with the path of the file that could not be created."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.filename2 or error.filename}: {error.strerror}"


def _say_moved(mirror: Mirror, log: Log) -> None:
    for own, now in islice(mirror.moved.items(), MOST_NAMED):
        log.warning(
            f"the command sees your {own}; the file that an earlier start wrote is now {now}"
        )
    if len(mirror.moved) > MOST_NAMED:
        log.warning(f"there are {len(mirror.moved) - MOST_NAMED} more of these in {mirror.aside}")


def _say(mirror: Mirror, folder: Path, log: Log) -> None:
    """Log where the command runs, and how that folder differs from the user's."""
    log.info(f"{WORKSPACE} is read-only: the command runs in {folder}, with links to your files")
    walk = "`os.walk` and `Path.rglob` from above do not enter it"
    for own in mirror.too_large:
        log.warning(
            f"{mirror.folder / own.relative_to(WORKSPACE)} is a single link to {own}, because only "
            f"{MOST_FILES} files get their own links: {walk}, and it cannot be written"
        )
    if mirror.whole:
        names = ", ".join(str(own.relative_to(WORKSPACE)) for own in mirror.whole)
        log.info(f"linked as a whole: {names} ({walk})")
