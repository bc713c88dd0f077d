"""Slurm: the job step that srun started.

Ports are those of TensorFlow's SlurmClusterResolver: 8888 plus the task's place on its node. Names
are expanded like `scontrol show hostnames`. TensorFlow's resolver has not always done so
(https://github.com/tensorflow/tensorflow/issues/49956).
Source: "OUTPUT ENVIRONMENT VARIABLES" of https://slurm.schedmd.com/srun.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import WORKER, ClusterSpec, Resolution, Task, spec_problems
from entrypoint.errors import ConfigurationError, Problem, all_of, raise_any
from entrypoint.settings.environ import Environ, whole_number
from entrypoint.settings.forms import LARGEST_PORT, parse_whole_number
from entrypoint.sources.formats.host_list import read_addresses
from entrypoint.sources.formats.slurm_lists import MOST, SlurmListError, expand_nodes, expand_tasks

OF_A_STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
NEEDS = ("SLURM_PROCID", *OF_A_STEP)
ALSO = ("SLURM_NODEID", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID")

T = TypeVar("T")

FIRST_PORT = 8888


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of the step's tasks; None for a batch script without srun."""
    if not any(environ.given(name) for name in OF_A_STEP) and not _is_task_of_srun(environ):
        return None
    advice = "Pass it to the container, or set CLUSTER_SOURCE=none to train alone."
    raise_any(
        Problem(name, None, "the value that srun sets for each task", advice)
        for name in NEEDS
        if not environ.given(name)
    )
    own_port = None if environ.given("WORKER_PORT") else FIRST_PORT
    port = own_port or default_port
    hosts, tasks, count, _ = all_of(
        lambda: _hosts(environ, port),
        lambda: _expand(environ, "SLURM_STEP_TASKS_PER_NODE", expand_tasks, "such as 3(x2),2,1"),
        lambda: whole_number(environ, "SLURM_STEP_NUM_TASKS", 1, MOST),
        lambda: whole_number(environ, "SLURM_PROCID", 0, None),
    )
    raise_any(_misfits(environ, len(hosts), tasks, count, port))
    why = f", because SLURM_STEP_NUM_TASKS is {count}"
    rank = whole_number(environ, "SLURM_PROCID", 0, count - 1, why)
    places = [(node, place) for node, number in enumerate(tasks) for place in range(number)]
    spec = ClusterSpec.of_workers(Address(hosts[node], port + place) for node, place in places)
    raise_any(spec_problems("SLURM_STEP_NODELIST", spec))
    raise_any(_other_distribution(environ, *places[rank]))
    task, job = Task(WORKER, rank), _job(environ)
    return Resolution("SLURM_STEP_NODELIST", spec, task, own_port=own_port, job=job)


def _is_task_of_srun(environ: Environ) -> bool:
    """Whether this is a task of srun, by its number. A batch script has the number 0, too.

    Slurm's own steps, such as a batch script, are named, or numbered from 0xfffffff0 (slurm.h).
    These numbers are longer than those that are parsed.
    """
    rank, step = (
        parse_whole_number(environ.get(name) or "") for name in ("SLURM_PROCID", "SLURM_STEP_ID")
    )
    return rank is not None and (rank > 0 or step is not None)


def _job(environ: Environ) -> str:
    """Return the job and its step as Slurm writes them, "4711.0"; "" if the job is unknown.

    A job that is queued again keeps its number.
    """
    parts = [environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    return f"Slurm job {'.'.join(filter(None, parts))}" if parts[0] else ""


def _hosts(environ: Environ, port: int) -> list[str]:
    names = _expand(environ, "SLURM_STEP_NODELIST", expand_nodes, "nodes such as n[01-03,07],m5")
    return [address.host for address in read_addresses("SLURM_STEP_NODELIST", names, port)]


def _expand(
    environ: Environ, name: str, expand: Callable[[str], list[T]], accepted: str
) -> list[T]:
    text = environ.get(name) or ""
    try:
        return expand(text)
    except SlurmListError as error:
        problem = Problem(environ.label(name), text, accepted, str(error))
        raise ConfigurationError([problem]) from None


def _misfits(
    environ: Environ, nodes: int, tasks: Sequence[int], count: int, port: int
) -> Iterable[Problem]:
    if len(tasks) != nodes:
        name = "SLURM_STEP_TASKS_PER_NODE"
        accepted = f"tasks for {nodes} nodes, because SLURM_STEP_NODELIST names {nodes}"
        yield Problem(environ.label(name), environ.get(name), accepted)
    elif sum(tasks) != count:
        name = "SLURM_STEP_NUM_TASKS"
        accepted = f"{sum(tasks)}, the sum of SLURM_STEP_TASKS_PER_NODE"
        yield Problem(environ.label(name), environ.get(name), accepted)
    if port + max(tasks) - 1 > LARGEST_PORT:
        accepted = f"a port with {max(tasks) - 1} more above it, for a node's other tasks"
        yield Problem(environ.label("WORKER_PORT"), str(port), accepted)


def _other_distribution(environ: Environ, node: int, place: int) -> Iterable[Problem]:
    """Yield a problem if Slurm's task order is not that of block distribution.

    Block distribution numbers the tasks node by node. It is srun's default for several tasks per
    node.
    """
    for name, expected in (("SLURM_NODEID", node), ("SLURM_LOCALID", place)):
        text = environ.get(name)
        if text is not None and parse_whole_number(text) != expected:
            accepted = f"{expected}, as with block distribution"
            advice = "Start the step with srun --distribution=block."
            yield Problem(environ.label(name), text, accepted, advice)
