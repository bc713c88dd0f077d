"""`tensorboard`: shows all runs in a browser, also while they run, in a container of its own."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import NoReturn

from local_cluster import engine
from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from local_cluster.settings import mounts
from local_cluster.settings.given import DEFAULT_IMAGE, GivenVariables, runs_folder

HOST = "127.0.0.1"
DEFAULT_PORT = "6006"
IN_CONTAINER = 6006
MAX_PORT = 65535
A_PORT = f"a number from 1 to {MAX_PORT}"
# It can read the runs, and do nothing else. It is no worker: the image's entrypoint has no part.
OPTIONS = (
    *("--rm", "--read-only", "--tmpfs", "/tmp:size=256m,mode=1777", "--cap-drop", "ALL"),  # noqa: S108
    *("--security-opt", "no-new-privileges:true", "--entrypoint", engine.INIT),
)
PROGRAM = (*engine.INIT_OPTIONS, "python", "-m", "cluster_trainer.tensorboard_server", "/runs")


def tensorboard(environ: Mapping[str, str]) -> NoReturn:
    """Become `docker run`: Ctrl-C ends it, and the exit code is the container's.

    Raises:
        EndError: there is a mistake in what was given, or no image.
    """
    given = GivenVariables(environ)
    port = given.matching("TENSORBOARD_PORT", "[1-9][0-9]{0,4}", DEFAULT_PORT, A_PORT)
    user = given.user()
    given.raise_problems()
    mounts.refuse(environ)
    runs, image = runs_folder(environ), environ.get("IMAGE") or DEFAULT_IMAGE
    if not runs.is_dir():
        message = f'RUNS_DIR: received "{runs}"; accepted: a folder that is there.'
        raise EndError(EXIT_CONFIGURATION, message)
    _refuse_taken(port)
    engine.refuse_missing(image)
    say(f"TensorBoard of {runs}: http://localhost:{port} (Ctrl-C ends it)")
    name = f"cluster-trainer-tensorboard-{port}"
    engine.ask("rm", name)  # one that a crash of the engine has left behind; none that runs
    command = ["docker", "run", "--name", name, *OPTIONS]
    command += ["--user", f"{user.uid}:{user.gid}"]
    command += ["--publish", f"{HOST}:{port}:{IN_CONTAINER}", "--volume", f"{runs}:/runs:ro"]
    sys.stdout.flush()
    os.execvp(command[0], [*command, image, *PROGRAM])


def _refuse_taken(port: str) -> None:
    """Make sure that a port can be listened on.

    Raises:
        EndError: it is no port, or another program listens there.
    """
    accepted = A_PORT
    if int(port) <= MAX_PORT:
        with closing(socket.socket()) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((HOST, int(port)))
            except PermissionError:  # the engine may
                return
            except OSError:
                accepted = "a port that no other program listens on, as in `PORT=6007`"
            else:
                return
    raise EndError(EXIT_CONFIGURATION, f'PORT: received "{port}"; accepted: {accepted}.')
