"""Runs the process that trains, with its log, stop requests, watch and last records."""

import logging
import os
import platform
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import NoReturn

from cluster_trainer.files import make_folder
from cluster_trainer.problems import (
    ExitCode,
    Problem,
    render,
)
from cluster_trainer.process.exit_code import end_by, leave_process, status_of
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.process.watch import ASKS, AWAITED, UP, Ended, Limits, Watch
from cluster_trainer.results.on_screen.progress import LiveFile
from cluster_trainer.results.on_screen.report import Reporter, start_log
from cluster_trainer.results.on_screen.screen import OWN
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.names.spellings import shown_name

log = logging.getLogger("trainer")

PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "tensorflow-datasets": ("tensorflow-datasets",),
    "numpy": ("numpy",),
}


# (job, stop request, deadline, reporter): trains, or raises the error that ended the training.
Training = Callable[[Job, StopRequest, Deadline, Reporter], None]


def run(job: Job, load: Callable[[], Training]) -> int:
    """Train in a child process, watch it, and return the exit code.

    The child ends by `os._exit`: TensorFlow's destructors can hang once a peer is lost.

    Args:
        job: the settings, and this worker's task.
        load: imports the training function, and returns it.
    """
    try:
        reporter = open_reporter(job)
    except OSError as error:
        accepted = f"a directory that user {os.getuid()}:{os.getgid()} can write"
        problem = Problem(shown_name("run_dir"), str(job.config.run_dir), accepted, f"{error}.")
        print(render([problem]), file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    # Before any child or thread exists: they inherit the mask, so no signal is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    reading, writing = os.pipe()
    deadline = Deadline.kept_in(job.deadline_file)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        reporter.on_asking = lambda: os.write(writing, ASKS)
        reporter.on_up = lambda: os.write(writing, UP)
        train(job, reporter, deadline, load)
    ended = watch(job, child, reading, deadline)
    if ended.reason is not None:
        reporter.read_back()
        end(job, reporter, ended.code, ended.reason)
    return ended.code


def watch(job: Job, child: int, up: int, deadline: Deadline) -> Ended:
    """Watch the training process until it has ended."""
    config, num_workers = job.config, job.task.num_workers
    message = f"waiting for the cluster of {num_workers} workers"
    limits = Limits(
        start_up_seconds=(config.startup_timeout_seconds or inf) if num_workers > 1 else None,
        stop_seconds=config.stop_seconds + 1,
        deadline=deadline,
    )
    return Watch(child, up, limits, say_waiting=lambda: log.info(message)).wait()


def train(
    job: Job, reporter: Reporter, deadline: Deadline, load: Callable[[], Training]
) -> NoReturn:
    """Train in this process, and end it."""
    stop = StopRequest(lambda code, reason: end(job, reporter, code, reason))
    stop.listen(job.config.stop_seconds)
    try:
        # The import takes seconds. It happens here, where stops are already handled.
        load()(job, stop, deadline, reporter)
    except Exception as error:  # noqa: BLE001  the last place that can say what happened
        note = partial(write_result, job, reporter)
        end_by(error, job.task.num_workers, note, is_script=False)
    end(job, reporter, ExitCode.DONE, None)


def open_reporter(job: Job) -> Reporter:
    """Create this worker's own folder, and begin its log and its journal."""
    make_folder(job.folder)
    screen = start_log(job.task.name, job.folder, job.view)
    reporter = Reporter(job.folder, job.config.epochs, screen, LiveFile(job.live_file))
    reporter.clear()
    reporter.journal.take_over(job.events_file)
    reporter.journal.note("starting", "TensorFlow, and its cluster")
    return reporter


def end(job: Job, reporter: Reporter, code: int, reason: str | None) -> NoReturn:
    """Write result.json, log how the run ended, and end the process."""
    write_result(job, reporter, code, reason)
    if code:
        leave_process(code, reason)
    log.info("done: results in %s", reporter.folder, extra=OWN)
    leave_process(code, None)


def write_result(job: Job, reporter: Reporter, code: int, reason: str | None) -> None:
    """Write result.json; if that fails, log an error, and continue to the end."""
    try:
        reporter.finish(status_of(code), reason, context_of(job))
    except OSError as error:
        log.error("result.json could not be written: %s", error)  # noqa: TRY400  one line is enough


def context_of(job: Job) -> dict[str, object]:
    """Return the other members of result.json: the worker, the versions, the settings."""
    return {
        "task": {"type": job.task.type, "index": job.task.index},
        "workers": job.task.num_workers,
        "versions": {**versions(), **job.image},
        "settings": job.config.as_json(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results."""
    found = {"python": platform.python_version()}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            with suppress(PackageNotFoundError):
                found[name] = version(distribution)
    return found
