"""The folder of the run in which a script works that cannot write its own.

Most scripts read and write where they run. The user's folder is mounted read-only: a worker that
somebody else has taken over must not change the user's code, and workers of one machine must not
write the same files at the same time. So such a script runs in a folder of its worker's, with links
to all that is in its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.log import Log

WORKSPACE = Path("/workspace")
RUNS = "/runs"
NAME = "workspace"


def working_folder(command: Sequence[str], environment: Mapping[str, str], log: Log) -> Path | None:
    """Return the folder in which a command is to run, made and filled; None: where it would anyway.

    Args:
        command: what is run. Its own folder is left only where it names a file there.
        environment: of the command, with TRAINER_RUN_DIR.
        log: whose worker it is, and where to say so.
    """
    here = Path.cwd()
    if not here.is_relative_to(WORKSPACE) or os.access(here, os.W_OK) or not _is_of(here, command):
        return None
    runs = Path(os.path.abspath(environment.get("TRAINER_RUN_DIR") or RUNS))  # noqa: PTH100 -- a link stays
    folder = runs / log.worker / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _link_all(here, folder)
    except OSError as error:
        log.warning(f"{here} is read-only, and {folder} cannot be used instead: {error.strerror}")
        return None
    log.info(f"{here} is read-only: the command runs in {folder}, with links to what is there")
    return folder


def _is_of(here: Path, command: Sequence[str]) -> bool:
    """Tell whether a command names a file in a folder, such as `python train.py`."""
    paths = (here / word for word in command[1:] if not word.startswith("-") and len(word) < 1000)  # noqa: PLR2004
    return any(path.is_relative_to(here) and path.is_file() for path in paths)


def _link_all(here: Path, folder: Path) -> None:
    """Link what is in a folder into another one, and leave alone what that has of its own."""
    for old in folder.iterdir():
        if old.is_symlink() and old.readlink().parent == here and not old.exists():
            old.unlink()
    for path in here.iterdir():
        link = folder / path.name
        if not os.path.lexists(link):
            link.symlink_to(path)
