"""Replaces this process with `docker run` of a container that is not a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from local_cluster import docker_engine
from local_cluster.settings import mounts
from local_cluster.settings.given_variables import DEFAULT_IMAGE, GivenVariables, User

# The container has only the rights that its command needs.
HARDENED = (
    *("--rm", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges:true"),
)
WITHOUT_ENTRYPOINT = ("--entrypoint", "/usr/bin/tini")
"""The container's first process, instead of the entrypoint, which would look for a cluster."""
FIRST = ("-g", "--")
"""The arguments of tini that come before the command."""


@dataclass(frozen=True)
class OneContainer:
    """A container of an image, for a user."""

    image: str
    user: User

    def become(self, options: Sequence[str], command: Sequence[str]) -> NoReturn:
        """Replace this process with `docker run`, which receives Ctrl-C and sets the exit code."""
        user = f"{self.user.uid}:{self.user.gid}"
        run = ["docker", "run", *HARDENED, "--user", user, *options, self.image, *command]
        sys.stdout.flush()
        os.execvp(run[0], run)


def read(environ: Mapping[str, str], given: GivenVariables, *folders: Path) -> OneContainer:
    """Read the image and the user from the variables.

    Args:
        environ: the variables.
        given: the variables that were read before, with their problems.
        folders: the folders of this machine that the container mounts.

    Raises:
        EndError: a setting is wrong, there is no such image, or the engine is on another machine,
            without the folders.
    """
    user = given.user()
    given.raise_problems()
    mounts.refuse(environ)
    image = environ.get("IMAGE") or DEFAULT_IMAGE
    docker_engine.refuse_missing(image)
    docker_engine.refuse_other_users(user)
    for folder in folders:
        docker_engine.refuse_elsewhere(image, folder)
    return OneContainer(image, user)
