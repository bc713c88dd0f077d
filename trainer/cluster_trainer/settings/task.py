"""Reads this process's task in the cluster from TF_CONFIG."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cluster_trainer.problems import ConfigurationError, Problem

MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""The errors that reading a document in another format may raise."""
PREFIX = b"TF_CONFIG="
TRAINING_TYPES = ("chief", "master", "worker")


@dataclass(frozen=True)
class Task:
    """The place of this process among those that train together.

    Attributes:
        type: its type in TF_CONFIG, such as "worker" or "chief"; "master" becomes "chief".
        index: its number among the tasks of its type, from 0.
        num_workers: the number of processes that train together if none is missing.
        has_chief_task: whether one of them has the type "chief"; otherwise worker 0 is the chief.
    """

    type: str = "worker"
    index: int = 0
    num_workers: int = 1
    has_chief_task: bool = False

    @property
    def name(self) -> str:
        """The name of this process in messages, and of its folder, such as `worker-1`."""
        return f"{self.type}-{self.index}"

    @property
    def rank(self) -> int:
        """This process's place among those that train together: the chief's is 0."""
        if self.type == "chief":
            return 0
        return self.index + (1 if self.has_chief_task else 0)

    def name_of(self, rank: int) -> str:
        """Return the name of the process at a place; see `rank`."""
        if self.has_chief_task:
            return "chief-0" if rank == 0 else f"worker-{rank - 1}"
        return f"worker-{rank}"

    @property
    def is_chief(self) -> bool:
        """Whether this is the chief, which writes unique files: the chief task, else worker 0."""
        return self.type == "chief" or (not self.has_chief_task and self.index == 0)

    @property
    def trains(self) -> bool:
        """Whether this process trains; an evaluator, for example, does not."""
        return self.type in TRAINING_TYPES


def this_worker() -> Task:
    """Return this process's task, from the TF_CONFIG with which it was started.

    Raises:
        ConfigurationError: TF_CONFIG is not in the format that TensorFlow documents.
    """
    return from_environment(as_started(os.environ))


def names_of(ranks: Iterable[int]) -> list[str]:
    """Return the names of the processes that train together at these places; see `Task.rank`."""
    task = this_worker()
    return [task.name_of(rank) for rank in ranks]


def as_started(environ: Mapping[str, str], text: str | None = None) -> Mapping[str, str]:
    """Return the environment with the TF_CONFIG of this process's start.

    A script may replace or remove TF_CONFIG, as TensorFlow's tutorials do. That affects only
    TensorFlow, and does not change this worker's identity.

    Args:
        environ: the present environment.
        text: the TF_CONFIG of the start; None: it is read from /proc.
    """
    text = _of_start() if text is None else text
    return {**environ, "TF_CONFIG": text} if text and names_task(text) else environ


def names_task(text: str) -> bool:
    """Tell whether a TF_CONFIG can be read; an empty one means a single worker."""
    try:
        from_environment({"TF_CONFIG": text})
    except ConfigurationError:
        return False
    return True


def was_replaced(text: str) -> bool:
    """Tell whether a TF_CONFIG differs from the one with which this process was started."""
    return text != _of_start()


@cache
def _of_start() -> str:
    """Return the TF_CONFIG with which this process was started, from /proc/self/environ."""
    try:
        kept = Path("/proc/self/environ").read_bytes()
    except OSError:
        return ""
    found = (one for one in kept.split(b"\0") if one.startswith(PREFIX))
    return next(found, PREFIX)[len(PREFIX) :].decode(errors="surrogateescape")


def from_environment(environ: Mapping[str, str]) -> Task:
    """Read the task from TF_CONFIG; without it, this is the only worker.

    Raises:
        ConfigurationError: TF_CONFIG is not in the format that TensorFlow documents. The entrypoint
            checks the details; this check is for users that run `python -m trainer` themselves.
    """
    text = environ.get("TF_CONFIG")
    if not text:
        return Task()
    try:
        return _from_tf_config(json.loads(text))
    except MALFORMED as error:
        received = f"({len(text)} characters, not shown)"  # a secret may be in it
        accepted = '{"cluster": {"worker": ["host:port", …]}, "task": {"type": …, "index": …}}'
        raise ConfigurationError([Problem("TF_CONFIG", received, accepted)]) from error


def _from_tf_config(document: dict[str, Any]) -> Task:
    cluster = document.get("cluster", {})
    kind, index = str(document["task"]["type"]), int(document["task"]["index"])
    if not re.fullmatch(r"[\w-]+", kind, re.ASCII) or index < 0:  # they name a folder
        raise ValueError(kind, index)
    trained = {kind: len(cluster[kind]) for kind in TRAINING_TYPES if kind in cluster}
    return Task(
        type=kind.replace("master", "chief"),
        index=index,
        num_workers=max(1, sum(trained.values())),
        has_chief_task="chief" in trained or "master" in trained,
    )


def comes_late(environ: Mapping[str, str]) -> bool:
    """Tell whether the others already train, and will admit this worker, as the entrypoint says."""
    return environ.get("CLUSTER_COMES_LATE") == "1"


def may_be_fewer(environ: Mapping[str, str], num_workers: int) -> bool:
    """Tell whether the others continue if some of `num_workers` workers are lost (MIN_WORKERS).

    The entrypoint, which decides this, has checked the variable.
    """
    text = environ.get("MIN_WORKERS", "").strip()
    return text.isdecimal() and int(text) < num_workers
