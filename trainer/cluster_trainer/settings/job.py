"""The job of one process: its settings, its task, and the files to which it reports."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_trainer.pod import is_in_pod
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.clusters import refuse_strategy_for_one
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.task import Task, comes_late, from_environment, may_be_fewer
from cluster_trainer.settings.view import View, read_view
from cluster_trainer.temporary_folder import refuse_no_temporary_folder


@dataclass(frozen=True)
class Job:
    """The settings, this worker's task, and the files to which it reports.

    Attributes:
        config: the settings.
        task: this worker's place in the cluster.
        progress_file: the file to touch whenever the run has got further than ever before; None:
            there is none.
        status_file: the file for the state of this process; None: there is none.
        group_socket: the number of the file descriptor of the entrypoint's socket, which passes
            connections to other workers; None: there are no other workers.
        events_file: the entrypoint's notes about this start; None: there are none.
        deadline_file: the file that shows the deadline of the current call to `status`; None: there
            is none.
        image: the image's version and revision: name -> text; empty: unknown.
        is_restart: whether the entrypoint has started this command before.
        may_be_fewer: whether the others continue if some workers are lost.
        comes_late: whether the others already train.
        view: chooses the lines that the screen shows.
    """

    config: TrainerConfig
    task: Task
    progress_file: Path | None = None
    is_restart: bool = False
    may_be_fewer: bool = False
    comes_late: bool = False
    status_file: Path | None = None
    group_socket: str | None = None
    view: View = field(default_factory=View)
    events_file: Path | None = None
    deadline_file: Path | None = None
    image: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder for this worker's files."""
        return self.config.run_dir / self.task.name

    @property
    def live_file(self) -> Path | None:
        """The file that shows the run's progress to another program; None: there is none."""
        return self.folder / self.view.live_file if self.view.live_file else None


def engine_off(wanted: str) -> Problem:
    """Return the problem that the trainer cannot run with this value of CLUSTER_TRAINER_ENGINE."""
    accepted = "on, or not given: the trainer is built on the engine"
    return Problem("CLUSTER_TRAINER_ENGINE", wanted, accepted)


def read_job(
    environ: Mapping[str, str],
    arguments: Sequence[str],
    given: Mapping[str, Any] | None = None,
    others: Sequence[Problem] = (),
) -> Job:
    """Read the settings, the task, and where to report progress.

    Args:
        environ: the environment: TRAINER_ variables, TF_CONFIG, and the entrypoint's variables.
        arguments: flags, which take precedence over variables.
        given: settings that a script passes, by name; they take precedence over both.
        others: further problems that the caller has found.

    Raises:
        ConfigurationError: there are problems; it lists those of the settings and `others`.
    """
    try:
        job = _read(environ, arguments, given)
    except ConfigurationError as error:
        raise ConfigurationError([*error.problems, *others]) from error
    if others:
        raise ConfigurationError(others)
    return job


def _read(
    environ: Mapping[str, str], arguments: Sequence[str], given: Mapping[str, Any] | None
) -> Job:
    config = TrainerConfig.read(environ, arguments, given)
    task = from_environment(environ)
    refuse_strategy_for_one(config, task.num_workers)
    _refuse_unwritable(config.run_dir / task.name)
    refuse_no_temporary_folder(environ)
    names = ("PROGRESS_FILE", "STATUS_FILE", "EVENTS_FILE", "DEADLINE_FILE")
    progress, status, events, deadline = (
        Path(environ[name]) if environ.get(name) else None for name in names
    )
    of_image = {"cluster-trainer": "VERSION", "revision": "REVISION"}
    image = {what: environ.get(f"CLUSTER_TRAINER_{name}", "") for what, name in of_image.items()}
    return Job(
        config,
        task,
        progress_file=progress,
        is_restart=environ.get("RESTART_COUNT", "0") != "0",
        may_be_fewer=may_be_fewer(environ, task.num_workers),
        comes_late=comes_late(environ),
        status_file=status,
        events_file=events,
        deadline_file=deadline,
        image={what: text for what, text in image.items() if text},
        group_socket=environ.get("CLUSTER_GROUP_FD"),
        view=read_view(environ, is_chief=task.is_chief),
    )


def _refuse_unwritable(folder: Path) -> None:
    """Refuse a worker's own folder if it exists and cannot be written, such as another user's.

    Raises:
        ConfigurationError: the folder cannot be read and written.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_dir() and os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return
    who = f"user {os.getuid()}:{os.getgid()}"
    owner = "runAsUser in the pod's securityContext" if is_in_pod() else "--user"
    advice = f"{folder} is another user's, or no folder. Give its owner with {owner}, or move it."
    accepted = f"a directory whose {folder.name} {who} can read and write"
    raise ConfigurationError([Problem("TRAINER_RUN_DIR", f"{folder.parent}", accepted, advice)])
