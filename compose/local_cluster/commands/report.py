"""`report`: writes one page about the newest run, or about those that NAME names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from local_cluster import engine
from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings import mounts
from local_cluster.settings.given import (
    DEFAULT_IMAGE,
    LATEST,
    ROOT,
    RUN_NAME,
    GivenVariables,
    runs_folder,
)
from local_cluster.shared_folder import SharedFolder

PACKAGES = ROOT / ".build/report"
# It is no worker: the image's entrypoint has no part. Nothing of a page comes from a network.
OPTIONS = (
    *("--rm", "--read-only", "--tmpfs", "/tmp:mode=1777", "--network", "none"),  # noqa: S108
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--entrypoint", engine.INIT),
    *("--env", "PYTHONPATH=/opt/report", "--volume", f"{PACKAGES}:/opt/report:ro"),
)
PROGRAM = (*engine.INIT_OPTIONS, "python", "-m", "trainer.report")


def report(environ: Mapping[str, str]) -> NoReturn:
    """Become `docker run`: the exit code is the container's.

    Raises:
        EndError: there is a mistake in what was given, no such run, no image, or no packages.
    """
    given = GivenVariables(environ)
    user = given.user()
    given.raise_problems()
    mounts.refuse(environ)
    runs, image = runs_folder(environ), environ.get("IMAGE") or DEFAULT_IMAGE
    names = _names(runs, environ.get("RUN_NAME", ""))
    if not PACKAGES.is_dir():
        accepted = f"packages in {PACKAGES}; `scripts/build.sh report` fetches them"
        raise EndError(EXIT_CONFIGURATION, f"report: accepted: {accepted}.")
    engine.refuse_missing(image)
    command = ["docker", "run", *OPTIONS, "--user", f"{user.uid}:{user.gid}"]
    # At the same place as here, so that the page is said to be where it is.
    command += ["--volume", f"{runs}:{runs}", image, *PROGRAM, *(f"{runs}/{one}" for one in names)]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _names(runs: Path, text: str) -> list[str]:
    """Return the names of the runs: of the newest, unless others are given.

    Raises:
        EndError: one is not there.
    """
    folder = SharedFolder(runs)
    names = [_newest(folder) if one == LATEST else one for one in text.split() or [LATEST]]
    for name in names:
        if not RUN_NAME.fullmatch(name) or not folder.has_folder(name):
            there = [one for one in folder.names() if folder.below(one).has_folder("worker-0")]
            those = f": {', '.join(there[-10:])}" if there else "; there is none"
            accepted = f"runs in {runs}{those}"
            raise EndError(EXIT_CONFIGURATION, f'NAME: received "{name}"; accepted: {accepted}.')
    return names


def _newest(runs: SharedFolder) -> str:
    """Return the name of the newest run.

    Raises:
        EndError: there is none.
    """
    try:
        name = runs.target_of(LATEST)
    except OSError:
        name = ""
    if RUN_NAME.fullmatch(name) and runs.has_folder(name):
        return name
    nothing = (
        f"there is no newest run in {runs.path}; `make up-local` starts one, NAME= names another."
    )
    raise EndError(EXIT_CONFIGURATION, nothing)
