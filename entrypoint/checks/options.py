"""Checks of single options: files, METRICS_PORT, MIN_WORKERS and PREEMPTION_URL."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem, raise_any
from entrypoint.settings.files import is_file
from entrypoint.settings.options import VARIABLES, Options

METRICS_PORT, MIN_WORKERS = "METRICS_PORT", "MIN_WORKERS"
TENSORFLOW = "tensorflow"


def check_files(options: Options, directory: Path) -> None:
    """Raise ConfigurationError if something else is where PROGRESS_FILE or FAILURE_FILE should be.

    A pipe as PROGRESS_FILE would block the command, and a folder changes with each file in it.
    FAILURE_FILE may be a pipe or a device, such as /dev/stderr.
    """
    wrong = {}
    progress, failure = options.progress_file, options.failure_file
    if progress and os.path.exists(path := directory / progress) and not is_file(path):  # noqa: PTH110 -- never raises
        wrong["PROGRESS_FILE"] = progress
    if failure and os.path.isdir(directory / failure):  # noqa: PTH112 -- never raises
        wrong["FAILURE_FILE"] = failure
    advice = "What is there is not a file."
    raise_any(Problem(name, path, VARIABLES[name].accepted, advice) for name, path in wrong.items())


def check_metrics_port(
    port: int | None, workers_ports: Iterable[int], *, must_be_free: bool = True
) -> None:
    """Raise ConfigurationError if the port is a worker's, or (`must_be_free`) is in use."""
    if port is None:
        return
    if port in workers_ports:
        problem = Problem(METRICS_PORT, str(port), "a port that no worker uses")
    elif must_be_free and (reason := _reason(port)):
        problem = Problem(METRICS_PORT, str(port), "a port that is free here", f"{reason}.")
    else:
        return
    raise ConfigurationError([problem])


def _reason(port: int) -> str:
    """Return why a port cannot be opened; "" if it can."""
    from entrypoint.cluster.own_machine import listen  # noqa: PLC0415 -- slow, and most need none

    try:
        listen("", port).close()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def check_min_workers(options: Options, workers: int, collectives: str = "") -> None:
    """Raise ConfigurationError unless MIN_WORKERS is valid for this number of workers.

    `collectives` is TRAINER_COLLECTIVES; "" if it is not set.
    """
    least, at_gate_seconds = options.min_workers, options.rendezvous_timeout_seconds
    if least is None:
        return
    problems = []
    fewest = workers // 2 + 1
    if not fewest <= least <= workers:
        problems.append(_out_of_range(least, fewest, workers))
    if least < workers and not at_gate_seconds:
        accepted = f"1 or more, if {MIN_WORKERS} is set: the remaining workers meet at the gate"
        problems.append(Problem("RENDEZVOUS_TIMEOUT", "0", accepted))
    elif least < workers and options.regroup_seconds > at_gate_seconds / 2:
        accepted = f"at most half of RENDEZVOUS_TIMEOUT ({at_gate_seconds}), which ends all waiting"
        problems.append(Problem("REGROUP_SECONDS", f"{options.regroup_seconds:.15g}", accepted))
    if least < workers and collectives.strip().lower() == TENSORFLOW:
        accepted = f"auto or ring, if {MIN_WORKERS} is less than {workers}, the number of workers"
        advice = "When a worker is lost, TensorFlow's cluster must restart with all workers."
        problems.append(Problem("TRAINER_COLLECTIVES", collectives, accepted, advice))
    if problems:
        raise ConfigurationError(problems)


def _out_of_range(least: int, fewest: int, workers: int) -> Problem:
    if workers == 1:
        return Problem(MIN_WORKERS, str(least), "1, if there is one worker")
    span = f"from {fewest} to {workers}" if fewest < workers else str(workers)
    accepted = f"{span}: more than half of the {workers} workers, and at most all"
    half = "Half of the workers cannot tell whether the other half is lost or still trains."
    return Problem(MIN_WORKERS, str(least), accepted, half if least < fewest else "")


def check_preemption(options: Options) -> None:
    """Raise ConfigurationError if PREEMPTION_URL is set without PREEMPTION_NOTICE."""
    if options.preemption_url and not options.preemption_notice:
        accepted = "an address together with PREEMPTION_NOTICE, which is not set"
        raise ConfigurationError([Problem("PREEMPTION_URL", options.preemption_url, accepted)])


def regroup_warning(least: int | None, *, is_given: bool) -> str | None:
    """Return a warning if REGROUP_SECONDS is set, but has no effect."""
    if least is not None or not is_given:
        return None
    return f"REGROUP_SECONDS has no effect without {MIN_WORKERS}: the workers wait for all others"
