"""Processors that this container may use, and the threads that TensorFlow makes for them.

TensorFlow and Python know which processors a process may use, but not a limit of their time
(`docker run --cpus`). A script's process runs this before it imports TensorFlow, so this module
must be fast.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
THREADS = "TF_NUM_INTRAOP_THREADS"
"""TensorFlow's variable for the threads within an operation, if `tf.config.threading` is not used.
TensorFlow chooses the threads between operations: a Python function within a pipeline may hold one
while another that it calls waits for its own, and their number costs nothing."""


def threads_of_script(environ: Mapping[str, str], cgroup: Path = CGROUP) -> dict[str, str]:
    """Return the variable that sets a script's number of threads, if it needs one.

    The number is TRAINER_THREADS, if that is a number. Otherwise it is the container's limit,
    unless OpenMP has a number. A variable that is already set takes precedence.

    Args:
        environ: the script's environment.
        cgroup: the folder in which the container sees its cgroup.
    """
    wanted = environ.get("TRAINER_THREADS", "").strip()
    if wanted.isdecimal():
        count = int(wanted)
    else:
        count = available_cpus(cgroup)
        if environ.get("OMP_NUM_THREADS") or count == _allowed_cpus():
            return {}
    return {} if environ.get(THREADS) else {THREADS: str(count)}


def available_cpus(cgroup: Path = CGROUP) -> int:
    """Count the processors that this process may use, within the container's limit."""
    limit, allowed = limit_of_processors(cgroup), _allowed_cpus()
    return allowed if limit is None else max(1, min(allowed, round(limit)))


def _allowed_cpus() -> int:
    return len(os.sched_getaffinity(0))


def limit_of_processors(cgroup: Path = CGROUP) -> float | None:
    """Return how many processors' time the container may use; None without a limit."""
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    for folder in ("cpu", "cpu,cpuacct"):
        with suppress(OSError, ValueError):
            quota_us = int((cgroup / folder / "cpu.cfs_quota_us").read_text())
            period_us = int((cgroup / folder / "cpu.cfs_period_us").read_text())
            return None if quota_us <= 0 else quota_us / period_us
    return None
