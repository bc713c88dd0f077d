# ruff: noqa: PTH103, PTH104, PTH118, PTH120, PTH123, PTH208
# As everywhere in the entrypoint: os.path, not pathlib.
"""Installing the packages: one worker does, those that share its volume wait for it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import IO
from urllib.parse import urlsplit

from entrypoint.errors import EXIT_CONFIGURATION, Problem, listed, render
from entrypoint.log import Log
from entrypoint.packages.pip_failure import verdict_on
from entrypoint.packages.requirements import Requirements
from entrypoint.packages.run_pip import REPORT, TEMPORARY, run_pip

LOCK = ".lock"
UNFINISHED = ".unfinished-"


def install(
    requirements: Requirements, environment: Mapping[str, str], log: Log
) -> tuple[int, str]:
    """Install the packages, unless another worker does so first; return a `Look`'s code and reason.

    To be run in a child process: a signal ends it, and pip with it, whatever they are at.
    """
    base = os.path.dirname(requirements.folder)
    try:
        os.makedirs(base, exist_ok=True)
        with open(os.path.join(base, LOCK), "w") as lock:
            seconds = _take(lock, requirements, log)
            if requirements.is_installed():
                log.info(f"another worker has installed them (waited {seconds:.1f} s)")
                return 0, ""
            _remove_unfinished(base)
            return _install(requirements, environment, log)
    except OSError as error:
        return _refuse(_not_writable(base, error), log)


def _take(lock: IO[str], requirements: Requirements, log: Log) -> float:
    """Wait until no other worker installs anything there; return for how many seconds.

    The kernel releases the lock of a process that is gone.
    """
    begin = time.monotonic()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info(f"another worker installs the packages of {requirements.file}: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return time.monotonic() - begin


def _remove_unfinished(base: str) -> None:
    """Remove what killed installations have left; whoever has the lock is the only one at it."""
    for name in os.listdir(base):
        if name.startswith(UNFINISHED):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def _install(
    requirements: Requirements, environment: Mapping[str, str], log: Log
) -> tuple[int, str]:
    """Install into a folder that does not count, and give it its name when it is whole."""
    unfinished = f"{os.path.dirname(requirements.folder)}/{UNFINISHED}{os.urandom(4).hex()}"
    os.mkdir(unfinished)  # noqa: PTH102
    log.info(f"installing the packages of {requirements.file} into {requirements.folder}")
    begin = time.monotonic()
    said = run_pip(requirements.file, unfinished, environment, log)
    if said is not None:
        shutil.rmtree(unfinished, ignore_errors=True)
        verdict = verdict_on(said, requirements.file)
        return _refuse(verdict, log) if isinstance(verdict, Problem) else verdict
    shutil.rmtree(os.path.join(unfinished, TEMPORARY))
    os.makedirs(os.path.join(unfinished, "lib"), exist_ok=True)
    summary = _summary(os.path.join(unfinished, REPORT))
    os.rename(unfinished, requirements.folder)
    log.info(f"{summary} ({time.monotonic() - begin:.1f} s)")
    return 0, ""


def _summary(report: str) -> str:
    """Return what was installed and where it came from, of pip's own report."""
    with open(report, encoding="utf-8") as file:
        items = json.load(file)["install"]
    if not items:
        return "nothing had to be installed: the image has these packages"
    names = [f"{item['metadata']['name']} {item['metadata']['version']}" for item in items]
    return f"installed {listed(names)} from {listed(_origins(items))}"


def _origins(items: Sequence[Mapping[str, Mapping[str, str]]]) -> list[str]:
    """Return the hosts and folders that packages came from, each once."""
    urls = [urlsplit(item["download_info"]["url"]) for item in items]
    return sorted({url.hostname or os.path.dirname(url.path) for url in urls})


def _not_writable(base: str, error: OSError) -> Problem:
    """Return the problem of a volume in which nothing can be installed."""
    return Problem(
        base,
        error.strerror,
        f"a folder that user id {os.geteuid()} can write to",
        "The packages of REQUIREMENTS_FILE are kept there: mount a volume, or a folder of this "
        "user's, at /data. REQUIREMENTS_FILE=none starts without them.",
    )


def _refuse(problem: Problem, log: Log) -> tuple[int, str]:
    """Say what is wrong."""
    message = render([problem])
    log.message(message)
    return EXIT_CONFIGURATION, message
