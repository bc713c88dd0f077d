"""The cluster and this process's place in it: ClusterSpec, Task, Resolution."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from entrypoint.cluster.addresses import Address
from entrypoint.errors import Problem

CHIEF, WORKER, EVALUATOR = "chief", "worker", "evaluator"


@dataclass(frozen=True, order=True)
class Task:
    """One place in the cluster; `str()` gives `worker-1`."""

    type: str
    """chief, worker or evaluator."""
    index: int
    """From 0, counted for each type; TF_CONFIG's "index"."""

    def __str__(self) -> str:
        return f"{self.type}-{self.index}"


ALONE = Task(WORKER, 0)
"""The task of a process without a cluster."""


@dataclass(frozen=True)
class Member:
    """A task that trains, and its address."""

    task: Task
    address: Address


@dataclass(frozen=True)
class ClusterSpec:
    """The tasks that train together. An evaluator is never part of the cluster."""

    members: tuple[Member, ...]
    """In rank order: the task of type chief, if there is one, then the workers by index."""

    @classmethod
    def of(cls, jobs: Mapping[str, Mapping[int, Address]]) -> ClusterSpec:
        """Return the spec of task type -> index -> address."""
        return cls(
            tuple(
                Member(Task(task_type, index), jobs[task_type][index])
                for task_type in (CHIEF, WORKER)
                for index in sorted(jobs.get(task_type, {}))
            ),
        )

    @classmethod
    def of_workers(cls, addresses: Iterable[Address]) -> ClusterSpec:
        """Return the spec of a plain list: worker i is entry i."""
        return cls.of({WORKER: dict(enumerate(addresses))})

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All addresses in rank order."""
        return tuple(member.address for member in self.members)

    @property
    def chief(self) -> Member:
        """The chief task, otherwise worker 0 (or the first worker of a sparse list without 0)."""
        return self.members[0]

    def rank(self, task: Task) -> int | None:
        """Return the task's rank; None if it is not in the cluster."""
        tasks = [member.task for member in self.members]
        return tasks.index(task) if task in tasks else None

    def to_json(self) -> dict[str, list[str] | dict[str, str]]:
        """Return TF_CONFIG's "cluster": a list for each type, or a dict if indices are missing."""
        jobs: dict[str, dict[int, str]] = {}
        for member in self.members:
            jobs.setdefault(member.task.type, {})[member.task.index] = str(member.address)
        return {task_type: _dense(entries) for task_type, entries in jobs.items()}


def _dense(entries: Mapping[int, str]) -> list[str] | dict[str, str]:
    """Return a list for the indices 0, 1, 2 …, otherwise a dict with JSON's text keys."""
    if list(entries) == list(range(len(entries))):
        return list(entries.values())
    return {str(index): address for index, address in entries.items()}


def spec_problems(name: str, spec: ClusterSpec) -> list[Problem]:
    """Return duplicate and loopback addresses as problems; `name` is the variable of the list."""
    return [*_duplicates(name, spec), *_loopback(name, spec)]


def _duplicates(name: str, spec: ClusterSpec) -> Iterable[Problem]:
    first: dict[Address, Task] = {}
    for member in spec.members:
        other = first.setdefault(member.address.spelled_one_way, member.task)
        if other != member.task:
            advice = f"{other} and {member.task} have the same address."
            yield Problem(name, str(member.address), "each address once", advice)


def _loopback(name: str, spec: ClusterSpec) -> Iterable[Problem]:
    """Yield a problem if only some of the addresses mean "this machine"."""
    local = [str(address) for address in spec.addresses if address.is_loopback]
    if 0 < len(local) < len(spec.addresses):
        accepted = "addresses at which every other worker reaches this one"
        advice = "On another machine a loopback address means that machine itself."
        yield Problem(name, ", ".join(local), accepted, advice)


@dataclass(frozen=True)
class Resolution:
    """The result of a source."""

    source: str
    """The variable or file that named the cluster, as `explain` shows it."""
    spec: ClusterSpec
    task: Task | None
    """None: the source does not tell which worker this process is."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Other keys of the given TF_CONFIG."""
    task_extra: Mapping[str, object] = field(default_factory=dict)
    """Other keys of the given "task"."""
    own_port: int | None = None
    """The source's own default port, if it was used in place of WORKER_PORT's."""
    job: str = ""
    """The scheduler's job, which is the same for all workers and after a restart, if other jobs may
    use the same machines: "Slurm job 4711.0". "": the source names none."""

    @property
    def rank(self) -> int | None:
        """The rank of this process; None if it is unknown, or for an evaluator."""
        return None if self.task is None else self.spec.rank(self.task)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the cluster's members, in rank order."""
        return tuple(address.host for address in self.spec.addresses)

    def tf_config(self) -> dict[str, object]:
        """Return the TF_CONFIG object; the task must be known."""
        if self.task is None:
            message = f"{self.source} does not say which task this is"
            raise ValueError(message)
        task = {"type": self.task.type, "index": self.task.index, **self.task_extra}
        return {"cluster": self.spec.to_json(), "task": task, **self.extra}

    def tf_config_text(self) -> str:
        """Return TF_CONFIG for the command: JSON in ASCII, on one line."""
        return json.dumps(self.tf_config())
