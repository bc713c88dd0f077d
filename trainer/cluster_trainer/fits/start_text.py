"""Writes TensorBoard's text about each start of a fit: time, reason, first step and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import keras

from cluster_trainer.collectives.replicas import count_of_all
from cluster_trainer.results import journal, record
from cluster_trainer.results.incidents import happenings
from cluster_trainer.settings.groups import OF_SCRIPTS
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.names.spellings import variable_of


def start_of(job: Job, model: keras.Model, beginning: str) -> str:
    """Return a Markdown text about a start of a run: time, reason, first step and settings."""
    settings = {variable_of(name): value for name, value in job.config.as_json().items()}
    return _told(job, beginning, _before(job), _facts(job, model) | settings)


def start_of_fit(
    job: Job, model: keras.Model, beginning: str, what: Mapping[str, Any], *, is_first: bool
) -> str:
    """Return a Markdown text about a start of a script's fit, with the settings that apply to it.

    Args:
        job: the settings, and this worker's task.
        model: the model to train.
        beginning: a text about the step at which the fit begins.
        what: facts about the fit and its data: name -> value.
        is_first: whether no fit of this process was recorded before.
    """
    given = job.config.as_json()
    settings = {variable_of(name): given[name] for name in OF_SCRIPTS if given[name] is not None}
    before = _before(job) if is_first else []
    again = replace(job, is_restart=job.is_restart and is_first)
    return _told(again, beginning, before, {**what, **_facts(job, model), **settings})


def _told(job: Job, beginning: str, before: Sequence[str], facts: Mapping[str, Any]) -> str:
    again = ", again, since the command had crashed or lost a peer" if job.is_restart else ""
    sentence = f"Started on {datetime.now(UTC):%Y-%m-%d at %H:%M:%S} UTC{again}; {beginning}."
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    return "\n".join([sentence, *before, "", "| what | value |", "| --- | --- |", *rows])


def _facts(job: Job, model: keras.Model) -> dict[str, Any]:
    strategy, optimizer = model.distribute_strategy, model.optimizer
    return {
        "workers": job.task.num_workers,
        "replicas": count_of_all(strategy),
        "strategy": record.strategy_of(strategy),
        "optimizer": None if optimizer is None else record.type_name(optimizer),
        "loss": record.name_of(getattr(model, "loss", None)),
    }


def _before(job: Job) -> list[str]:
    """Return a table of this worker's events since it last trained."""
    rows = [
        f"| {datetime.fromtimestamp(one.time, UTC):%H:%M:%S} | {one.what} | {_cell(one.detail)} |"
        for one in happenings(journal.read(job.folder / journal.FILE))
    ]
    return (
        ["", "| before it (UTC) | event | peers, or reason |", "| --- | --- | --- |", *rows]
        if rows
        else []
    )


def _cell(value: object) -> str:
    text = "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
    return f"`{text}`" if text else ""
