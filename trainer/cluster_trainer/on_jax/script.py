"""The state that all fits of a process share: settings, the worker's folder, the other workers."""

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cluster_trainer.fits.identity import end_mark
from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.identity.owner import Owner, claimed, script_name, this_process
from cluster_trainer.fits.identity.saved_fits import Fits
from cluster_trainer.fits.script.earlier_runs import begin_anew
from cluster_trainer.fits.script.variables import read_variables
from cluster_trainer.on_jax import refusals
from cluster_trainer.on_jax.comparison import compare_code
from cluster_trainer.on_jax.workers.cluster import present
from cluster_trainer.process.exit_code import leave_process, status_of
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.journal import Journal
from cluster_trainer.settings.job import Job


@dataclass
class Script:
    """The state that all fits of a process share.

    Attributes:
        job: the settings, and this worker's task.
        environ: the environment, with the entrypoint's variables.
        workers: the workers that train together.
        stop: tells whether this process was asked to stop.
        journal: this worker's events.jsonl.
        fits: the fits of this process, and those that are saved in the worker's folder.
        before: the folder's earlier owner; None: none is known.
        number: the number of fits that have begun in this process.
        has_failed: whether a fit has failed.
        pid: the id of the process that began the script.
        lock: a lock, held while a fit runs.
        locks: the locks of the folders into which the process saves fits.
    """

    job: Job
    environ: Mapping[str, str]
    workers: Any  # JaxWorkers, which has the methods of Workers that are called
    stop: StopRequest
    journal: Journal
    fits: Fits
    before: Owner | None
    number: int = 0
    has_failed: bool = False
    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    locks: dict[Path, IO[str]] = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        """Whether its fits have checkpoints."""
        return bool(self.job.config.checkpoint_steps)

    def note(self, code: int, reason: str | None) -> None:
        """Note how the process ends."""
        if self.keeps:
            self.journal.note(status_of(code), reason or "")


def begun(environ: Mapping[str, str]) -> Script:
    """Begin a script's first fit: read the settings, take the worker's folder; return the state."""
    job = read_variables(environ, refusals.unheeded())
    refusals.refuse_settings(job)
    workers = present()
    workers.has_fitted = True
    locks: dict[Path, IO[str]] = {}
    job, before = claimed(job, this_process(environ, script_name()), locks)
    script = Script(
        job,
        environ,
        workers,
        StopRequest(leave_process),
        Journal(job.folder),
        Fits(job.folder, keeps=bool(job.config.checkpoint_steps)),
        before,
        locks=locks,
    )
    compare_code(workers)
    begin_anew(job, script.workers, Leftovers(job), script.before, environ)
    atexit.register(_note_end, script)
    return script


def _note_end(script: Script) -> None:
    if script.pid != os.getpid() or not script.keeps:
        return
    if script.has_failed or getattr(sys, "last_value", None) is not None:
        script.journal.note("failed", "the script did not end well")
    else:
        script.journal.note("done", "the script has ended")
        end_mark.mark(script.job.folder, script.workers, script.environ)
