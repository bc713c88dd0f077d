"""A JSON document with "cluster" and "task": the common part of TF_CONFIG and CLUSTER_SPEC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import (
    CHIEF,
    EVALUATOR,
    ClusterSpec,
    Resolution,
    Task,
    spec_problems,
)
from entrypoint.errors import ConfigurationError, Problem
from entrypoint.sources.formats.host_list import read_entries, read_index
from entrypoint.strict_json import StrictJSONError, not_shown, parse_object

NO_PARAMETER_SERVERS = (
    "Parameter servers ({}) are not supported: here all workers train in step and hold the same "
    "weights."
)
Jobs = dict[str, dict[int, Address]]


@dataclass(frozen=True, kw_only=True)
class DocumentForm:
    """The notation of one contract."""

    variable: str
    accepted: str
    """The accepted form of the document, for messages; `in_cluster` and `as_task`: of its parts."""
    in_cluster: str
    as_task: str
    worker: str
    """The contract's word for a worker, for examples."""
    task_types: Mapping[str, str]
    """The contract's words -> chief, worker or evaluator."""
    refused: Mapping[str, str]
    """Known words that are not accepted -> a sentence with the reason."""


def read_document(name: str, text: str, form: DocumentForm, default_port: int) -> Resolution:
    """Return the cluster and the task in a document; other keys are kept in the Resolution.

    `name` is the variable's name in messages; `default_port` is for addresses without one. Raises
    ConfigurationError with all problems.
    """
    reader = _Reader(name, form, default_port)
    resolution = reader.read(text)
    if reader.problems or resolution is None:
        raise ConfigurationError(reader.problems)
    return resolution


class _Reader:
    """Reads one document and collects its problems."""

    def __init__(self, name: str, form: DocumentForm, default_port: int) -> None:
        self.name = name
        self.form = form
        self.default_port = default_port
        self.words: dict[str, str] = {}  # chief, worker, evaluator -> the document's word for it
        self.problems: list[Problem] = []

    def read(self, text: str) -> Resolution | None:
        """Return the document's content; None if there are problems."""
        try:
            document = parse_object(text)
        except StrictJSONError as error:
            shown = not_shown(text)
            self.problems.append(Problem(self.name, shown, self.form.accepted, str(error)))
            return None
        jobs = self._jobs(document.get("cluster"))
        task_object = document.get("task")
        task = self._task(task_object, jobs)
        if self.problems or task is None or not isinstance(task_object, dict):
            return None
        extra = {key: value for key, value in document.items() if key not in ("cluster", "task")}
        others = {key: value for key, value in task_object.items() if key not in ("type", "index")}
        return Resolution(self.form.variable, ClusterSpec.of(jobs), task, extra, others)

    def _problem(self, place: str, received: object, accepted: str, advice: str = "") -> None:
        """Add a problem at a place in the document; None means that there was no value."""
        shown = received if isinstance(received, str | None) else _shown(received)
        self.problems.append(Problem(f"{self.name} {place}", shown, accepted, advice))

    def _jobs(self, cluster: object) -> Jobs:
        """Return task type -> index -> address; ClusterSpec omits evaluators."""
        if not isinstance(cluster, dict) or not cluster:
            example = f'{{"{self.form.worker}":["10.1.10.58:2222"]}}'
            self._problem("cluster", cluster, f"an object such as {example}")
            return {}
        before, jobs = len(self.problems), Jobs()
        for word, entries in cluster.items():
            task_type = self.form.task_types.get(word, word)
            if entries in ([], {}):
                continue
            if task_type in jobs:
                advice = f"There are {self.words[task_type]} and {word}."
                self._problem(f"cluster.{word}", word, f"one {task_type}", advice)
            self.words.setdefault(task_type, word)
            jobs.setdefault(task_type, self._job(word, entries))
        if len(self.problems) == before:
            self._check(ClusterSpec.of(jobs))
        return jobs

    def _check(self, spec: ClusterSpec) -> None:
        if not spec.members:
            self._problem("cluster", "no address", "at least one chief or worker")
        self.problems += spec_problems(f"{self.name} cluster", spec)

    def _job(self, word: str, entries: object) -> dict[int, Address]:
        place = f"cluster.{word}"
        if word not in self.form.task_types:
            self._problem(place, word, self.form.in_cluster, self.form.refused.get(word, ""))
            return {}
        if not isinstance(entries, dict | list):
            self._problem(place, entries, 'a list of host:port, or an object such as {"0":"h:1"}')
            return {}
        if self.form.task_types[word] == CHIEF and len(entries) > 1:
            self._problem(place, f"{len(entries)} chiefs", "one chief")
        return read_entries(place, entries, self.default_port, self._problem)

    def _task(self, task: object, jobs: Jobs) -> Task | None:
        if not isinstance(task, dict):
            example = f'{{"type":"{self.form.worker}","index":0}}'
            self._problem("task", task, f"an object such as {example}")
            return None
        task_type, index = self._type(task.get("type"), jobs), read_index(task.get("index"))
        if index is None:
            self._problem("task.index", task.get("index"), "a whole number from 0")
        elif task_type and jobs.get(task_type) and index not in jobs[task_type]:
            accepted = _indices(self.words[task_type], jobs[task_type])
            self._problem("task.index", str(index), accepted)
        return None if task_type is None or index is None else Task(task_type, index)

    def _type(self, word: object, jobs: Jobs) -> str | None:
        known = word if isinstance(word, str) else ""
        task_type = self.form.task_types.get(known)
        if task_type is None:
            self._problem("task.type", word, self.form.as_task, self.form.refused.get(known, ""))
        elif task_type != EVALUATOR and jobs and task_type not in jobs:
            accepted = f"a type in the cluster: {', '.join(self.words.values())}"
            self._problem("task.type", word, accepted)
        return task_type


def _indices(word: str, addresses: Mapping[int, Address]) -> str:
    indices = sorted(addresses)
    dense = len(indices) == indices[-1] + 1
    accepted = f"0 to {indices[-1]}" if dense else f"one of {', '.join(map(str, indices))}"
    return f"{accepted}, because the cluster names {len(indices)} of type {word}"


def _shown(value: object) -> str:
    return json.dumps(value)
