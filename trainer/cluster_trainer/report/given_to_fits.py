"""Makes tables of the arguments of scripts' fits: model, optimizer, loss, data."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster_trainer.report.fits import RecordedFit, first_and_last
from cluster_trainer.report.reading import NOT_RECORDED
from cluster_trainer.report.run import RecordedRun

MAX_LETTERS = 200
EMPTY = "-"
COUNTED = "name"
"""The name of each of Keras's objects is omitted, because Keras numbers it: adam, adam_1."""
Rows = list[tuple[str, list[str]]]


def begun(fits: Sequence[RecordedFit]) -> Rows:
    """Return a row for each argument of any of the fits, with a text per fit."""
    tables = [dict(_flat(fit.about.get("fit") or {})) for fit in fits]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [(name, [table.get(name, EMPTY) for table in tables]) for name in names]
    return [(name, values) for name, values in rows if {*values} != {EMPTY}]


def begun_of_all(runs: Sequence[RecordedRun]) -> Rows:
    """Return a row for each argument of any fit of the runs, with a text per run.

    If each run has one fit, the fit's name is omitted.
    """
    of_runs = [{fit.name: fit for fit in told_of(run)} for run in runs]
    names = dict.fromkeys(name for fits in of_runs for name in fits)
    rows = []
    for fit in names:
        which = f"{fit}: " if len(names) > 1 else ""
        for name, values in begun([fits.get(fit, RecordedFit(fit, None)) for fits in of_runs]):
            of_all = zip(values, of_runs, strict=True)
            rows.append((which + name, [one if fits else NOT_RECORDED for one, fits in of_all]))
    return rows


def told_of(run: RecordedRun) -> list[RecordedFit]:
    """Return the fits with an about.json that get their own part."""
    told = {fit.name: fit for fit in run.chief.fits if fit.about}
    return [told[name] for name in first_and_last([*told])]


def _flat(values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and texts; an object yields one for each of its members.

    A Keras object, such as an optimizer, yields its class and then its configuration.
    """
    for name, value in values.items():
        if not isinstance(value, dict):
            yield within + name, cell(value)
        elif "class_name" in value:
            yield within + name, cell(value["class_name"])
            config = value.get("config")
            inner = config if isinstance(config, dict) else {}
            kept = {key: one for key, one in inner.items() if key != COUNTED}
            yield from _flat(kept, f"{within}{name}: ")
        else:
            yield from _flat(value, f"{within}{name}: ")


def cell(value: Any) -> str:
    """Return the text of a value in a table; floats have the 7 digits of float32."""
    if value is None:
        return EMPTY
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…"
