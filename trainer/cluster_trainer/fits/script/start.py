"""Begins a script's fits in this process: reads settings, starts the log, takes the folder."""

import os
import signal
from collections.abc import Mapping

from cluster_trainer.fits.identity.leftovers import Leftovers
from cluster_trainer.fits.identity.owner import Owner, claimed, script_name, this_process
from cluster_trainer.fits.identity.saved_fits import Fits
from cluster_trainer.fits.process_state import Process
from cluster_trainer.fits.script.script import Script
from cluster_trainer.fits.script.settings import unheeded
from cluster_trainer.fits.script.variables import read_variables
from cluster_trainer.process.exit_code import leave_process
from cluster_trainer.process.last_call import LastCall
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.journal import Journal
from cluster_trainer.results.on_screen.progress import LiveFile
from cluster_trainer.results.on_screen.report import Onlooker
from cluster_trainer.settings.job import Job


def begin(process: Process, environ: Mapping[str, str]) -> Script:
    """Begin a script's first fit in this process: read the settings, take the folder.

    Args:
        process: this process.
        environ: the environment: TRAINER_ variables, TF_CONFIG, and the entrypoint's variables.

    Raises:
        ConfigurationError: a setting is not acceptable, or the folder belongs to another start.
    """
    with process.beginning:
        return process.script or _begun(process, environ)


def _begun(process: Process, environ: Mapping[str, str]) -> Script:
    job = read_variables(environ, unheeded())
    job, before = claimed(job, this_process(environ, script_name()), process.locks)
    script = process.script = script_of(process, job, environ, before)
    script.look_away()  # a start that was killed may have left its progress file
    os.register_at_fork(after_in_child=_forget_signals)
    return script


def script_of(
    process: Process, job: Job, environ: Mapping[str, str], before: Owner | None
) -> Script:
    """Return a script that begins in this process; see Script."""
    return Script(
        job,
        StopRequest(leave_process),
        Deadline.kept_in(job.deadline_file),
        Journal(job.folder),
        process.ended,
        process.network,
        environ=environ,
        before=before,
        numbers=process.numbers,
        fits=Fits(job.folder, keeps=bool(job.config.checkpoint_steps)),
        beginning=Leftovers(job),
        last=LastCall().begin(),
        onlooker=Onlooker(LiveFile(job.live_file), job.view),
    )


def _forget_signals() -> None:
    """Restore the default signal handlers in a process that a script forks."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
