"""Locks a project and a run, so that only one start uses each at a time.

Two starts at the same time would replace each other's containers, and move each other's logs. The
engine cannot prevent this: a start creates its containers seconds after it has looked for others.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import User
from local_cluster.settings.run_record import own_by, state_folder

FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

IS_RUNNING = (
    "COMPOSE_PROJECT_NAME: a cluster of the project {project} is already running. `make ps` shows "
    "it, `make stop` ends it. To run another cluster beside it, set another name."
)


@contextmanager
def of_project(
    project: str, user: User, environ: Mapping[str, str], taken: str = IS_RUNNING
) -> Iterator[None]:
    """Hold the lock of a project.

    Args:
        project: its name.
        user: to whom the lock's file belongs.
        environ: all variables.
        taken: the message if another command holds it; {project} stands for the name.

    Raises:
        EndError: another command holds it, or it cannot be opened.
    """
    said = taken.format(project=project)
    with _held(state_folder(environ) / "locks", f"project-{project}", user, said):
        yield


@contextmanager
def of_run(runs: Path, name: str, user: User, environ: Mapping[str, str]) -> Iterator[None]:
    """Hold the lock of a run. Another project may try to train the same run.

    Raises:
        EndError: another start holds it, or it cannot be opened.
    """
    taken = (
        f'RUN_NAME: received "{name}"; accepted: a run that no other cluster is training. '
        f"Another cluster is training {runs / name}. Wait until it ends, or set another name."
    )
    place = f"run-{os.path.realpath(runs)}/{name}"
    with _held(state_folder(environ) / "locks", place, user, taken):
        yield


@contextmanager
def _held(folder: Path, what: str, user: User, taken: str) -> Iterator[None]:
    """Hold a lock. The system releases it when the process ends, for whatever reason.

    Its file is never removed. Otherwise two starts could lock two different files.
    """
    name = hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:32]
    file = folder / f"{name}.lock"
    with ExitStack() as stack:
        try:
            made = [one for one in (file, *file.parents) if not one.exists()]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = os.open(file, FLAGS, 0o600)
            stack.callback(os.close, number)
            own_by(user, made)
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EndError(EXIT_CONFIGURATION, taken) from None
        except OSError as error:
            accepted = "a folder of yours that you can write and no container can"
            raise EndError(
                EXIT_CONFIGURATION,
                f"XDG_STATE_HOME: no lock can be held in {folder} ({error}); accepted: {accepted}.",
            ) from error
        yield
