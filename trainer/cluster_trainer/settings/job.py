"""What one process was started to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.task import Task, from_environment


@dataclass(frozen=True)
class Job:
    """The settings, this worker's place among the workers, and where it tells of its progress.

    Attributes:
        config: the settings.
        task: which worker this is.
        progress_file: touched whenever the run has got further than ever before; None: nobody
            looks.
        status_file: holds what this process is at; None: nobody looks.
        is_restart: whether the entrypoint has started this command before and starts it again.
    """

    config: TrainerConfig
    task: Task
    progress_file: Path | None = None
    is_restart: bool = False
    status_file: Path | None = None

    @property
    def folder(self) -> Path:
        """Where this worker writes all that it writes."""
        return self.config.run_dir / self.task.name


def read_job(
    environ: Mapping[str, str], arguments: Sequence[str], given: Mapping[str, Any] | None = None
) -> Job:
    """Read the settings, the task, and where to tell of progress.

    Args:
        environ: TRAINER_ variables, TF_CONFIG, and what the entrypoint sets.
        arguments: flags, which win over variables.
        given: settings that a script gives itself, by name; they win over both.

    Raises:
        ConfigurationError: with the problems of both.
    """
    config = TrainerConfig.read(environ, arguments, given)
    task = from_environment(environ)
    config.check_against(task.num_workers)
    progress_file, status_file = environ.get("PROGRESS_FILE"), environ.get("STATUS_FILE")
    return Job(
        config,
        task,
        progress_file=Path(progress_file) if progress_file else None,
        is_restart=environ.get("RESTART_COUNT", "0") != "0",
        status_file=Path(status_file) if status_file else None,
    )
