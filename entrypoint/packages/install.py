"""Installs the packages: one worker installs, and those that share its volume wait."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from entrypoint.errors import EXIT_CONFIGURATION, EXIT_PEER_LOST, Problem, listed, render
from entrypoint.log import Log
from entrypoint.packages.on_disk import sync_file_system, sync_folder
from entrypoint.packages.pip_failure import verdict_on
from entrypoint.packages.requirements import Requirements
from entrypoint.packages.run_pip import OUTPUT, REPORT, TEMPORARY, run_pip
from entrypoint.proc import this_boot

LOCK = ".lock"
UNFINISHED = ".unfinished-"
ABANDONED_SECONDS = 3600
"""Another machine's installation counts as abandoned after this time without a change."""
FULL = (errno.ENOSPC, errno.EDQUOT)
EXHAUSTED = (errno.EAGAIN, errno.ENOMEM)
"""A limit on processes or memory. The next start may stay below it."""
BOOT_CHARACTERS = 13
ROOM_BYTES = 65_536
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
BY_ANOTHER = "another worker has installed them"


def install(
    requirements: Requirements, environment: Mapping[str, str], log: Log
) -> tuple[int, str]:
    """Install the packages, unless another worker does so first; return a `Work`'s code and reason.

    Call this in a child process: a signal ends the process and pip at any moment.
    """
    base = requirements.folder.parent
    try:
        base.mkdir(parents=True, exist_ok=True)
        with (base / LOCK).open("w") as lock:
            start = time.monotonic()
            is_alone = _lock(lock, requirements, log)
            if requirements.is_installed():
                log.info(f"{BY_ANOTHER} (waited {time.monotonic() - start:.1f} s)")
                return 0, ""
            if is_alone:
                _remove_unfinished(base)
            return _install(requirements, environment, log)
    except OSError as error:
        if error.errno in EXHAUSTED:
            return EXIT_PEER_LOST, f"pip cannot be started: {error.strerror}"
        return _refuse(_unusable(base, error), log)


def _lock(lock: IO[str], requirements: Requirements, log: Log) -> bool:
    """Wait until no other worker installs into the volume; return False without file locks.

    The kernel releases the lock of a process that has ended. Some network file systems have no
    locks. Then two workers may install the same packages, each into its own folder, and the first
    complete folder is used.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info(f"another worker is installing the packages of {requirements.file}: waiting")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        log.warning(
            f"the file system of {requirements.folder.parent} cannot lock files "
            f"({error.strerror}): workers that share it may all install the same packages"
        )
        return False
    return True


def _remove_unfinished(base: Path) -> None:
    """Remove the folders of killed installations. Only the owner of the lock may call this.

    On some shared file systems the lock holds on this machine only. So another machine's
    installation counts as running while its files change.
    """
    for unfinished in base.glob(f"{UNFINISHED}*"):
        is_ours = unfinished.name.startswith(unfinished_here())
        if is_ours or time.time() - _last_change(unfinished) > ABANDONED_SECONDS:
            shutil.rmtree(unfinished, ignore_errors=True)


def unfinished_here() -> str:
    """Return the prefix of unfinished folders of this machine, since its last boot."""
    return f"{UNFINISHED}{this_boot()[:BOOT_CHARACTERS]}-"


def _last_change(folder: Path) -> float:
    """Return the time of the last change in a folder; the current time if it is being removed."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


def _install(
    requirements: Requirements, environment: Mapping[str, str], log: Log
) -> tuple[int, str]:
    """Install into an unfinished folder, and rename it when it is complete."""
    unfinished = requirements.folder.with_name(unfinished_here() + os.urandom(4).hex())
    unfinished.mkdir()
    log.info(f"installing the packages of {requirements.file} into {requirements.folder}")
    start = time.monotonic()
    try:
        failure = run_pip(requirements.file, unfinished, environment, log)
        if failure is not None:
            # On a full file system pip cannot report the reason. This write raises OSError instead.
            (unfinished / OUTPUT).write_bytes(bytes(ROOM_BYTES))
            verdict = verdict_on(failure, requirements.file)
            return _refuse(verdict, log) if isinstance(verdict, Problem) else verdict
        shutil.rmtree(unfinished / TEMPORARY)
        (unfinished / "lib").mkdir(exist_ok=True)
        summary = _summary(unfinished / REPORT)
        is_first = _publish(unfinished, requirements)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    log.info(f"{summary if is_first else BY_ANOTHER} ({time.monotonic() - start:.1f} s)")
    return 0, ""


def _publish(unfinished: Path, requirements: Requirements) -> bool:
    """Rename the folder to its final name; return False if another worker was faster.

    All content is synced first. So a folder with this name is complete, even after a power loss.
    """
    sync_file_system(unfinished)
    try:
        unfinished.rename(requirements.folder)
    except OSError:
        if requirements.is_installed():
            return False
        raise
    sync_folder(requirements.folder.parent)
    return True


def _summary(report: Path) -> str:
    items = json.loads(report.read_text(encoding="utf-8"))["install"]
    if not items:
        return "nothing had to be installed: the image has these packages"
    names = [f"{item['metadata']['name']} {item['metadata']['version']}" for item in items]
    return f"installed {listed(names)} from {listed(_origins(items))}"


def _origins(items: Sequence[Mapping[str, Mapping[str, str]]]) -> list[str]:
    """Return the hosts and folders that packages came from, without duplicates."""
    urls = [urlsplit(item["download_info"]["url"]) for item in items]
    return sorted({url.hostname or str(Path(url.path).parent) for url in urls})


def _unusable(base: Path, error: OSError) -> Problem:
    if error.errno in FULL:
        accepted = "a file system with room for the packages"
    elif error.errno in FORBIDDEN:
        accepted = f"a folder that user id {os.geteuid()} can write to"
    else:
        accepted = "a folder in which packages can be installed"
    return Problem(
        str(error.filename or base),
        error.strerror,
        accepted,
        "The packages of REQUIREMENTS_FILE are kept there. Mount a volume, or a folder that this "
        "user owns, at /data. REQUIREMENTS_FILE=none starts without them.",
    )


def _refuse(problem: Problem, log: Log) -> tuple[int, str]:
    message = render([problem])
    log.message(message)
    return EXIT_CONFIGURATION, message
