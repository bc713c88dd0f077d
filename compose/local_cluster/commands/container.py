"""A container that is no worker, and that a command of this program becomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from local_cluster import engine
from local_cluster.settings import mounts
from local_cluster.settings.given import DEFAULT_IMAGE, GivenVariables, User

# It can do nothing but what its command asks for.
HARDENED = (
    *("--rm", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges:true"),
)
WITHOUT_ENTRYPOINT = ("--entrypoint", "/usr/bin/tini")
"""The image's first process in the place of its entrypoint, which would look for a cluster."""
FIRST = ("-g", "--")
"""What that process is given before the command."""


@dataclass(frozen=True)
class OneContainer:
    """A container of an image, for a user."""

    image: str
    user: User

    def become(self, options: Sequence[str], command: Sequence[str]) -> NoReturn:
        """Become `docker run`: Ctrl-C and the exit code are the container's."""
        user = f"{self.user.uid}:{self.user.gid}"
        run = ["docker", "run", *HARDENED, "--user", user, *options, self.image, *command]
        sys.stdout.flush()
        os.execvp(run[0], run)


def read(environ: Mapping[str, str], given: GivenVariables) -> OneContainer:
    """Read which image runs, and for whom.

    Raises:
        EndError: there is a mistake in what was given, or no such image.
    """
    user = given.user()
    given.raise_problems()
    mounts.refuse(environ)
    image = environ.get("IMAGE") or DEFAULT_IMAGE
    engine.refuse_missing(image)
    return OneContainer(image, user)
