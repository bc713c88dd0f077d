"""Replaces this process with `docker run` of a container that is not a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def read(environ: Mapping[str, str], given: GivenVariables) -> OneContainer:
    """Read the image and the user from the variables.

    Raises:
        EndError: a setting is wrong, or there is no such image.
    """
    user = given.user()
    given.raise_problems()
    mounts.refuse(environ)
    image = environ.get("IMAGE") or DEFAULT_IMAGE
    docker_engine.refuse_missing(image)
    return OneContainer(image, user)
