"""`tensorboard`: shows all runs in a browser, even while they run, from a separate container."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from typing import NoReturn

from local_cluster import docker_engine
from local_cluster.commands import container
from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from local_cluster.settings.given_variables import GivenVariables, runs_folder

HOST = "127.0.0.1"
DEFAULT_PORT = "6006"
IN_CONTAINER = 6006
MAX_PORT = 65535
A_PORT = f"a number from 1 to {MAX_PORT}"
OPTIONS = (*container.WITHOUT_ENTRYPOINT, "--tmpfs", "/tmp:size=256m,mode=1777")  # noqa: S108
PROGRAM = (*container.FIRST, "python", "-m", "cluster_trainer.tensorboard_server", "/runs")


def tensorboard(environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with `docker run`, which Ctrl-C ends and which sets the exit code.

    Raises:
        EndError: a setting is wrong, or there is no image.
    """
    given = GivenVariables(environ)
    port = given.matching("TENSORBOARD_PORT", "[1-9][0-9]{0,4}", DEFAULT_PORT, A_PORT)
    runs = runs_folder(environ)
    one = container.read(environ, given, runs)
    if not runs.is_dir():
        message = f'RUNS_DIR: received "{runs}"; accepted: an existing folder.'
        raise EndError(EXIT_CONFIGURATION, message)
    _refuse_taken(port)
    say(f"TensorBoard of {runs}: http://localhost:{port} (Ctrl-C ends it)")
    name = f"cluster-trainer-tensorboard-{port}"
    docker_engine.ask("rm", name)  # one that an engine crash has left; never a running one
    published = f"{HOST}:{port}:{IN_CONTAINER}"
    options = ("--name", name, "--publish", published, "--volume", f"{runs}:/runs:ro")
    one.become([*OPTIONS, *options], PROGRAM)


def _refuse_taken(port: str) -> None:
    """Make sure that it is possible to listen on a port.

    Raises:
        EndError: it is not a port, or another program listens on it.
    """
    accepted = A_PORT
    if int(port) <= MAX_PORT:
        with closing(socket.socket()) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((HOST, int(port)))
            except PermissionError:  # the engine may have the right to
                return
            except OSError:
                accepted = "a port that no other program listens on, as in `PORT=6007`"
            else:
                return
    raise EndError(EXIT_CONFIGURATION, f'PORT: received "{port}"; accepted: {accepted}.')
