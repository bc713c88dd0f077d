"""The resolved configuration as text for a person, and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.cluster.spec import ALONE, Resolution, Task
from entrypoint.errors import escaped, shortened
from entrypoint.packages.requirements import PACKAGES_DIR, Requirements
from entrypoint.settings.command_environment import HASH_SEED, THE_SAME_HASHES
from entrypoint.settings.environ import DEFAULT, Environ
from entrypoint.settings.environment_variable import TRAINER_PREFIX
from entrypoint.settings.options import VARIABLES
from entrypoint.settings.unrelated_variables import exceptions_for, proxy_in_use
from entrypoint.sources import SOURCES, variables_of
from entrypoint.sources.resolve import Answer
from entrypoint.start_messages.hiding import shown_command, shown_value

NOT_SET = "(not set)"


@dataclass(frozen=True)
class Explained:
    """A variable's value as shown (None if it has none), and its source."""

    value: str | None
    source: str


def explained_values(
    environ: Environ, answer: Answer, requirements: Requirements | None = None
) -> dict[str, Explained]:
    """Return the entrypoint's variables, and those set by a scheduler or for the trainer.

    Secrets are hidden.
    """
    scheduler = [name for source in SOURCES.values() for name in variables_of(source)]
    trainer = sorted(name for name in environ.values if name.startswith(TRAINER_PREFIX))
    others = [name for name in scheduler if name in environ.values] + trainer
    values = {name: _given(environ, name) for name in (*VARIABLES, *others)}
    values |= {name: _service_link(environ, name) for name in environ.service_links}
    values[HASH_SEED] = _hash_seed(environ)
    if answer.own_task:
        index = str(answer.own_task.task.index)
        values["WORKER_INDEX"] = Explained(index, f"derived: {answer.own_task.reason}")
    if requirements:
        values |= _packages(environ, requirements)
    resolution = answer.resolution
    if resolution and resolution.source != "TF_CONFIG":
        source = f"derived: {resolution.source}"
        values["TF_CONFIG"] = Explained(resolution.tf_config_text(), source)
        if resolution.own_port:
            values["WORKER_PORT"] = Explained(str(resolution.own_port), source)
    return values | (_without_proxy(environ, resolution) if resolution else {})


def _without_proxy(environ: Environ, resolution: Resolution) -> dict[str, Explained]:
    variables = environ.texts()
    source = (
        f"derived: the workers' hosts are added to it, because {proxy_in_use(variables)} is set"
    )
    exceptions = exceptions_for(variables, resolution.hosts)
    return {name: Explained(text, source) for name, text in exceptions.items()}


def _packages(environ: Environ, requirements: Requirements) -> dict[str, Explained]:
    """Return the folder of the packages, and the file unless the user has named it."""
    state = "installed" if requirements.is_installed() else "not installed yet; a start does it"
    folder = {PACKAGES_DIR: Explained(str(requirements.site_packages), f"derived: {state}")}
    if environ.given("REQUIREMENTS_FILE"):
        return folder
    file = Explained(str(requirements.file), "in the working directory")
    return {"REQUIREMENTS_FILE": file, **folder}


def _given(environ: Environ, name: str) -> Explained:
    given = environ.values.get(name)
    text = environ.get(name)
    shown = None if text is None else shown_value(name, text)
    return Explained(shown, given.source if given else DEFAULT)


def _hash_seed(environ: Environ) -> Explained:
    given = _given(environ, HASH_SEED)
    return given if given.value else Explained(THE_SAME_HASHES, DEFAULT)


def _service_link(environ: Environ, name: str) -> Explained:
    """Return the value that applies instead of a variable that Kubernetes set for a Service."""
    shown = _given(environ, name)
    ignored = f"ignored: {environ.service_links[name]}, of a Kubernetes Service"
    return Explained(shown.value, ignored if shown.value is None else f"{shown.source}; {ignored}")


def as_json(
    environ: Environ,
    answer: Answer,
    command: Sequence[str],
    requirements: Requirements | None = None,
) -> str:
    """Return the explanation as one JSON object, indented."""
    resolution = answer.resolution
    task = _task(resolution)
    document = {
        "tf_config": resolution.tf_config() if resolution else None,
        "task": {"type": task.type, "index": task.index},
        "cluster": resolution.spec.to_json() if resolution else {},
        "command": shown_command(command),
        "values": {
            name: {"value": explained.value, "source": explained.source}
            for name, explained in explained_values(environ, answer, requirements).items()
        },
    }
    return json.dumps(document, indent=2)


def _task(resolution: Resolution | None) -> Task:
    return (resolution.task if resolution else None) or ALONE


def as_text(
    environ: Environ,
    answer: Answer,
    command: Sequence[str],
    requirements: Requirements | None = None,
) -> str:
    """Return the explanation for a person: cluster, command, TF_CONFIG and values."""
    resolution = answer.resolution
    tf_config = answer.tf_config_text or NOT_SET
    values = explained_values(environ, answer, requirements)
    return "\n\n".join(
        [
            _section("Cluster", _cluster_rows(resolution)),
            _section("Command", [[shlex.join(shown_command(command))]]),
            _section("TF_CONFIG of the command", [[tf_config]]),
            _section("Values", _value_rows(values)),
        ],
    )


def _cluster_rows(resolution: Resolution | None) -> list[list[str]]:
    if resolution is None:
        return [[str(ALONE), "alone, no cluster"]]
    spec, task = resolution.spec, _task(resolution)
    rows = [
        [str(member.task), str(member.address), ", ".join(_marks(resolution, member.task))]
        for member in spec.members
    ]
    return rows if spec.rank(task) is not None else [*rows, [str(task), "", "this one"]]


def _marks(resolution: Resolution, task: Task) -> list[str]:
    chief = ["chief"] if task == resolution.spec.chief.task else []
    return [*chief, "this one"] if task == resolution.task else chief


def _value_rows(values: Mapping[str, Explained]) -> list[list[str]]:
    return [
        [name, NOT_SET, "" if explained.source == DEFAULT else f"({explained.source})"]
        if explained.value is None
        else [name, shortened(explained.value, 60), f"({explained.source})"]
        for name, explained in values.items()
    ]


def _section(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a title and the rows under it, all columns but the last aligned."""
    shown = [[escaped(cell) for cell in row] for row in rows]
    columns = max(len(row) for row in shown)
    widths = [
        max(len(row[column]) for row in shown if column < len(row)) for column in range(columns)
    ]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in shown
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])
