"""TensorFlow's own contract: TF_CONFIG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from entrypoint.addresses import ACCEPTED, Address, AddressError, parse_address
from entrypoint.cluster import (
    CHIEF,
    EVALUATOR,
    WORKER,
    ClusterSpec,
    Resolution,
    Task,
    spec_problems,
)
from entrypoint.environ import Environ, parse_whole_number
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.strict_json import StrictJSONError, parse_object
from entrypoint.variables import TF_CONFIG

TASK_TYPES = {"chief": CHIEF, "master": CHIEF, "worker": WORKER, "evaluator": EVALUATOR}
"""TF_CONFIG's words -> ours; TensorFlow 1 called the chief "master"."""

NO_PARAMETER_SERVERS = (
    "Parameter servers (ps) are another way of training: here all workers train in step and hold "
    "the same weights."
)
Jobs = dict[str, dict[int, Address]]
_WRONG = Address("wrong", 0)
"""Stands for an entry that has a problem, so that its index is still known."""


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster and the task of TF_CONFIG, checked and completed."""
    text = environ.get("TF_CONFIG")
    if text is None:
        return None
    reader = _Reader(environ.label("TF_CONFIG"), default_port)
    resolution = reader.read(text)
    if reader.problems or resolution is None:
        raise ConfigurationError(reader.problems)
    return resolution


class _Reader:
    """Reads one document and collects its problems."""

    def __init__(self, name: str, default_port: int) -> None:
        """Keep what the messages and the addresses without a port need."""
        self.name = name
        self.default_port = default_port
        self.problems: list[Problem] = []

    def read(self, text: str) -> Resolution | None:
        """Return the document's content, None if there are problems."""
        try:
            document = parse_object(text)
        except StrictJSONError as error:
            self.problems.append(Problem(self.name, text, TF_CONFIG.accepted, str(error)))
            return None
        jobs = self._jobs(document.get("cluster"))
        task_object = document.get("task")
        task = self._task(task_object, jobs)
        if self.problems or task is None or not isinstance(task_object, dict):
            return None
        extra = {key: value for key, value in document.items() if key not in ("cluster", "task")}
        others = {key: value for key, value in task_object.items() if key not in ("type", "index")}
        return Resolution("TF_CONFIG", ClusterSpec.of(jobs), task, extra, others)

    def _problem(self, place: str, received: object, accepted: str, advice: str = "") -> None:
        """Add a problem at a place in the document; no value (None) is "nothing"."""
        shown = received if isinstance(received, str | None) else _shown(received)
        self.problems.append(Problem(f"{self.name} {place}", shown, accepted, advice))

    def _jobs(self, cluster: object) -> Jobs:
        """Return task type -> index -> address; ClusterSpec leaves an evaluator out."""
        if not isinstance(cluster, dict) or not cluster:
            self._problem("cluster", cluster, 'an object such as {"worker":["10.1.10.58:2222"]}')
            return {}
        before, jobs = len(self.problems), Jobs()
        for word, entries in cluster.items():
            task_type = TASK_TYPES.get(word, word)
            if entries in ([], {}):
                continue
            if task_type in jobs:
                self._problem(f"cluster.{word}", word, "one chief", "There are chief and master.")
            jobs.setdefault(str(task_type), self._job(word, entries))
        if len(self.problems) == before:
            self._check(ClusterSpec.of(jobs))
        return jobs

    def _check(self, spec: ClusterSpec) -> None:
        """Look at the cluster as a whole."""
        if not spec.members:
            self._problem("cluster", "no address", "at least one chief or worker")
        self.problems += spec_problems(f"{self.name} cluster", spec)

    def _job(self, word: str, entries: object) -> dict[int, Address]:
        """Return one type's addresses by index."""
        place = f"cluster.{word}"
        if word not in TASK_TYPES:
            advice = NO_PARAMETER_SERVERS if word == "ps" else ""
            self._problem(place, word, "the types chief (or master) and worker", advice)
            return {}
        if not isinstance(entries, dict | list):
            self._problem(place, entries, 'a list of host:port, or an object such as {"0":"h:1"}')
            return {}
        if TASK_TYPES[word] == CHIEF and len(entries) > 1:
            self._problem(place, f"{len(entries)} chiefs", "one chief")
        found: dict[int, Address] = {}
        for key, entry in _items(entries):
            self._add(f"{place}[{key}]", key, entry, found)
        return found

    def _add(self, place: str, key: object, entry: object, found: dict[int, Address]) -> None:
        """Add one entry to those found, or a problem."""
        index = _index(key)
        if index is None or index in found:
            self._problem(place, str(key), "each index once, a whole number from 0")
        elif not isinstance(entry, str):
            found[index] = _WRONG
            self._problem(place, entry, ACCEPTED)
        else:
            try:
                found[index] = parse_address(entry, self.default_port)
            except AddressError as error:
                found[index] = _WRONG
                self._problem(place, entry, ACCEPTED, str(error))

    def _task(self, task: object, jobs: Jobs) -> Task | None:
        """Return the task, None where it is not right."""
        if not isinstance(task, dict):
            self._problem("task", task, 'an object such as {"type":"worker","index":0}')
            return None
        task_type, index = self._type(task.get("type"), jobs), _index(task.get("index"))
        if index is None:
            self._problem("task.index", task.get("index"), "a whole number from 0")
        elif task_type and jobs.get(task_type) and index not in jobs[task_type]:
            self._problem("task.index", str(index), _indices(task_type, jobs[task_type]))
        return None if task_type is None or index is None else Task(task_type, index)

    def _type(self, word: object, jobs: Jobs) -> str | None:
        """Return the task's type in our words."""
        task_type = TASK_TYPES.get(word) if isinstance(word, str) else None
        if task_type is None:
            advice = NO_PARAMETER_SERVERS if word == "ps" else ""
            self._problem("task.type", word, "chief, master, worker or evaluator", advice)
        elif task_type != EVALUATOR and jobs and task_type not in jobs:
            self._problem("task.type", word, f"a type in the cluster: {', '.join(jobs)}")
        return task_type


def _items(entries: dict[str, object] | list[object]) -> Iterable[tuple[object, object]]:
    """Return index and address, both as they were given."""
    return list(entries.items()) if isinstance(entries, dict) else enumerate(entries)


def _index(value: object) -> int | None:
    """Return an index that is a number or its text, else None."""
    if not isinstance(value, int | str):
        return None
    index = parse_whole_number(str(value))
    return None if index is None or index < 0 else index


def _indices(task_type: str, addresses: Mapping[int, Address]) -> str:
    """Return which indices a type has, and why."""
    indices = sorted(addresses)
    dense = len(indices) == indices[-1] + 1
    accepted = f"0 to {indices[-1]}" if dense else f"one of {', '.join(map(str, indices))}"
    return f"{accepted}, because the cluster names {len(indices)} of type {task_type}"


def _shown(value: object) -> str:
    """Return a JSON value as text."""
    import json  # noqa: PLC0415 -- only for a message

    return json.dumps(value)
