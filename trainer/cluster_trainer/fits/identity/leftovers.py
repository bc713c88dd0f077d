"""Tells whether the files of an earlier run in a worker's folder still have to be moved aside.

They are moved once in the life of an entrypoint, because a restart after a crash is not a new run.
If the crash came before they were moved, the restart moves them.
"""

import logging

from cluster_trainer.files import write_whole
from cluster_trainer.settings.job import Job

FILE = "BEGUN"
log = logging.getLogger("trainer")


class Leftovers:
    """The beginning of a run on this worker.

    Args:
        job: the task that this process was started for.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._is_over = job, False
        # This file's name belongs to one entrypoint, and stays the same as long as that lives. The
        # user may have chosen the progress file's, for all of them.
        self._name = str(job.events_file or job.progress_file or "")

    @property
    def is_over(self) -> bool:
        """Whether `end` was called, in this process or an earlier one of the same entrypoint."""
        if self._is_over or not (self._name and self._job.is_restart):
            return self._is_over or self._job.is_restart
        try:
            return (self._job.folder / FILE).read_text() == self._name
        except (OSError, ValueError):
            return False

    def end(self) -> None:
        """Note that nothing of an earlier run is left, or that all of it is needed."""
        self._is_over = True
        try:
            write_whole(self._job.folder / FILE, self._name.encode(), durable=False)
        except OSError as error:
            log.warning("the run has begun, but %s could not be written: %s", FILE, error)
