"""From settings to an exit code: the log, stop requests, and every way in which a run can end."""

import logging
import os
import platform
import signal
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import NoReturn

from trainer.config import TrainerConfig, shown_name
from trainer.problems import (
    ConfigurationError,
    ExitCode,
    PeerLostError,
    Problem,
    StopRequestedError,
    TrainingDivergedError,
    render,
)
from trainer.report import Reporter, start_log
from trainer.stop import SIGNAL_CODES, STOP_SIGNALS, StopRequest
from trainer.task import Task
from trainer.watch import AWAITED, Ended, Watch

log = logging.getLogger("trainer")

# How TensorFlow's collectives report that another worker is gone.
PEER_ERRORS = (
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "InternalError",
)
PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "tensorflow-datasets": ("tensorflow-datasets",),
    "numpy": ("numpy",),
}


def run(config: TrainerConfig, task: Task) -> int:
    """Train in a child process, watch it, and return the code that says how it went.

    The child ends by `os._exit`: TensorFlow's destructors can hang once a peer is lost.
    """
    try:
        reporter = open_reporter(config, task)
    except OSError as error:
        accepted = f"a directory that user {os.getuid()}:{os.getgid()} can write"
        problem = Problem(shown_name("run_dir"), str(config.run_dir), accepted, f"{error}.")
        print(render([problem]), file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    # Before any child or thread exists: they inherit it, and no signal is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        reporter.on_up = lambda: os.write(writing, b"1")
        train(config, task, reporter)
    ended = watch(config, task, child, reading)
    if ended.reason is not None:
        reporter.read_back()
        end(config, task, reporter, ended.code, ended.reason)
    return ended.code


def watch(config: TrainerConfig, task: Task, child: int, up: int) -> Ended:
    """Watch the training process until it has ended."""
    message = f"waiting for TensorFlow's cluster of {task.num_workers} workers"
    return Watch(
        child,
        up,
        start_up_seconds=(config.startup_timeout_seconds or inf) if task.num_workers > 1 else None,
        stop_seconds=config.stop_seconds + 1,
        say_waiting=lambda: log.info(message),
    ).wait()


def train(config: TrainerConfig, task: Task, reporter: Reporter) -> NoReturn:
    """Train in this process, and end it."""
    stop = StopRequest(lambda code, reason: end(config, task, reporter, code, reason))
    stop.listen(config.stop_seconds)
    code, reason = attempt(config, task, stop, reporter)
    end(config, task, reporter, code, reason)


def open_reporter(config: TrainerConfig, task: Task) -> Reporter:
    """Make this worker's own directory, with its log."""
    folder = config.run_dir / task.name
    folder.mkdir(parents=True, exist_ok=True)
    start_log(folder, task.name)
    return Reporter(folder, config.epochs)


def attempt(
    config: TrainerConfig, task: Task, stop: StopRequest, reporter: Reporter
) -> tuple[int, str | None]:
    """Train and return the exit code, with the reason where it is not 0."""
    try:
        # Here and not above: the import takes seconds, in which a stop is already heard.
        from trainer.train import train_and_evaluate  # noqa: PLC0415

        train_and_evaluate(config, task, stop, reporter)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION, "; ".join(map(str, error.problems))
    except StopRequestedError as error:
        return SIGNAL_CODES + error.signal_number, str(error)
    except PeerLostError as error:
        return ExitCode.PEER_LOST, str(error)
    except TrainingDivergedError as error:
        # The same settings would lead there again.
        return ExitCode.BAD_CONFIGURATION, str(error)
    except Exception as error:  # noqa: BLE001  the last place that can say what happened
        return failure(error, task)
    return ExitCode.DONE, None


def failure(error: Exception, task: Task) -> tuple[int, str]:
    """Tell a lost peer from a crash, and log what there is to know of either."""
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
    if task.num_workers > 1 and type(error).__name__ in PEER_ERRORS:
        return ExitCode.PEER_LOST, f"a peer was lost ({reason})"
    log.error("training failed", exc_info=error)
    return ExitCode.CRASHED, reason


def end(
    config: TrainerConfig, task: Task, reporter: Reporter, code: int, reason: str | None
) -> NoReturn:
    """Write result.json, say how the run ended, and end the process."""
    status = status_of(code)
    try:
        reporter.finish(status, reason, context_of(config, task))
    except OSError as error:
        log.error("result.json could not be written: %s", error)  # noqa: TRY400  one line is enough
    if code:
        log.error("%s: %s (exit code %d)", status, reason, code)
    else:
        log.info("done: results in %s", reporter.folder)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def status_of(code: int) -> str:
    """Return an exit code's word in result.json."""
    if code == ExitCode.DONE:
        return "done"
    return "stopped" if code - SIGNAL_CODES in STOP_SIGNALS else "failed"


def context_of(config: TrainerConfig, task: Task) -> dict[str, object]:
    """Return what else result.json holds: who ran, on what, with which settings."""
    return {
        "task": {"type": task.type, "index": task.index},
        "versions": versions(),
        "settings": config.model_dump(mode="json"),
    }


def versions() -> dict[str, str]:
    """Return the versions of what decides the numbers."""
    found = {"python": platform.python_version()}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            with suppress(PackageNotFoundError):
                found[name] = version(distribution)
    return found
