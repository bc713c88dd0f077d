"""SkyPilot: the nodes' addresses, and other values of its tasks.

Sources: https://docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html and
https://docs.skypilot.co/en/latest/running-jobs/environment-variables.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from entrypoint.cluster.spec import WORKER, ClusterSpec, Resolution, Task
from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ, Value, whole_number
from entrypoint.settings.forms import parse_whole_number
from entrypoint.sources.formats.host_list import read_workers

TASK_ID = "SKYPILOT_TASK_ID"
"""The same on all nodes, and after each recovery. Several tasks may share the nodes."""
NEEDS = ("SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK")
ALSO = ("SKYPILOT_NUM_NODES", TASK_ID)


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of a SkyPilot task; the addresses have no ports."""
    if not any(environ.given(name) for name in NEEDS):
        return None
    lines = (environ.get("SKYPILOT_NODE_IPS") or "").split()
    spec, rank, _ = all_of(
        lambda: _spec(environ, lines, default_port),
        lambda: _rank(environ, len(lines)),
        lambda: _check_count(environ, len(lines)),
    )
    job = f"SkyPilot task {task}" if (task := environ.get(TASK_ID)) else ""
    return Resolution("SKYPILOT_NODE_IPS", spec, Task(WORKER, rank), job=job)


def _spec(environ: Environ, lines: list[str], default_port: int) -> ClusterSpec:
    name = environ.label("SKYPILOT_NODE_IPS")
    if not lines:
        accepted = "one address per line, in the order of the ranks"
        raise ConfigurationError([Problem(name, environ.get("SKYPILOT_NODE_IPS"), accepted)])
    return read_workers(name, map(_in_brackets, lines), default_port)


def _in_brackets(line: str) -> str:
    """Return an address in WORKER_HOSTS's notation: IPv6, which has no port here, in brackets."""
    return f"[{line}]" if line.count(":") > 1 and "[" not in line else line


def _rank(environ: Environ, count: int) -> int:
    if count == 0:
        return whole_number(environ, "SKYPILOT_NODE_RANK", 0, None)
    lines = "1 line" if count == 1 else f"{count} lines"
    why = f", because SKYPILOT_NODE_IPS has {lines}"
    return whole_number(environ, "SKYPILOT_NODE_RANK", 0, count - 1, why)


def _check_count(environ: Environ, count: int) -> None:
    """Refuse an incomplete list. Early versions of SkyPilot do not set its length."""
    text = environ.get("SKYPILOT_NUM_NODES")
    if count and text is not None and parse_whole_number(text) != count:
        accepted = f"{count}, the number of lines of SKYPILOT_NODE_IPS"
        raise ConfigurationError([Problem(environ.label("SKYPILOT_NUM_NODES"), text, accepted)])


def settings(environ: Environ) -> Mapping[str, Value]:
    """Return a folder that is the same after each recovery, and the GPUs of each node."""
    found: dict[str, Value] = {}
    # one path segment, whatever characters the job's name has
    task = re.sub("[^A-Za-z0-9._-]", "_", environ.get(TASK_ID) or "")
    if task.strip("."):
        found["TRAINER_RUN_DIR"] = Value(f"/runs/{task}", TASK_ID)
    gpus = parse_whole_number(environ.get("SKYPILOT_NUM_GPUS_PER_NODE") or "")
    if gpus is not None and gpus > 0:
        found["GPUS_PER_WORKER"] = Value(str(gpus), "SKYPILOT_NUM_GPUS_PER_NODE")
    return found
