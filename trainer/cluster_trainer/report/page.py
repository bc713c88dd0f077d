"""Makes one HTML page about runs, which loads nothing from a network."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from cluster_trainer.report import drawings
from cluster_trainer.report.drawings import Drawing
from cluster_trainer.report.fits import MAX_FITS, first_and_last
from cluster_trainer.report.given_to_fits import Rows, begun, begun_of_all, cell, told_of
from cluster_trainer.report.reading import NOT_RECORDED, Json
from cluster_trainer.report.repeat_command import again, differs_from_default
from cluster_trainer.report.run import RecordedRun, Worker
from cluster_trainer.report.timeline import (
    DONE,
    ENDS,
    SILENT,
    WorkerTime,
    line_of,
    network_marks,
)
from cluster_trainer.results.metrics_file import COUNTS

HERE = Path(__file__).parent
FACTS = ("status", "reason", "dataset", "workers", "replicas", "strategy", "steps", "epochs")
OF_SCRIPTS = ("workers", "replicas", "strategy")
"""The facts about runs without a result.json, such as those of a script's `fit`."""


def render(runs: Sequence[RecordedRun]) -> str:
    """Return the page; text from a run is escaped."""
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = distinct([run.name for run in runs])
    page = environment.get_template("page.html").render(
        title=", ".join(names),
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704  our own
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        names=names,
        runs=[_part_of(run, name) for run, name in zip(runs, names, strict=True)],
        facts=_facts(runs),
        differences=differences(runs),
        curves=_curves(runs, names),
        not_shown=_not_shown(runs),
        missing=NOT_RECORDED,
    )
    return str(page)


def distinct(names: Sequence[str]) -> list[str]:
    """Return distinct names, because two folders may have the same name."""
    return [
        f"{name} ({index + 1})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def differences(runs: Sequence[RecordedRun]) -> Rows:
    """Return the rows that differ: arguments of fits, settings, numbers of workers, versions."""
    if len(runs) == 1:
        return []
    tables = [
        {
            **{name: cell(value) for name, value in run.settings.items() if name != "run_dir"},
            "workers": str(len(run.workers)),
            **{f"{name} (version)": cell(value) for name, value in run.versions.items()},
        }
        for run in runs
    ]
    rows = [
        (name, [table.get(name, NOT_RECORDED) for table in tables])
        for name in dict.fromkeys(name for table in tables for name in table)
    ]
    all_rows = [*begun_of_all(runs), *rows]
    return [(name, values) for name, values in all_rows if len(set(values)) > 1]


def _curves(runs: Sequence[RecordedRun], names: Sequence[str]) -> list[tuple[str, list[Drawing]]]:
    """Return the curves of all runs in groups: a run's own, and each fit's, with the fit's name."""
    fits = _fits_of(runs)
    if not fits:
        return [("", list(drawings.curves_of(runs, names)))]
    groups = [("its own", list(drawings.curves_of(runs, names)))] if _have_own(runs) else []
    if len(fits) > 1:
        groups.append(("what each fit came to", list(drawings.ends_of(runs, names))))
    for fit in first_and_last(fits):
        of_fit = [run.of_fit(fit) for run in runs]
        groups.append((fit, list(drawings.curves_of(of_fit, names))))
    return groups


def _have_own(runs: Sequence[RecordedRun]) -> bool:
    """Tell whether a run has metrics that belong to no fit of a script."""
    return any(run.chief.metrics for run in runs)


def _fits_of(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the names of all recorded fits, in the order of the run with the most fits."""
    by_count = sorted(runs, key=lambda run: len(run.fits), reverse=True)
    return list(dict.fromkeys(name for run in by_count for name in run.fits))


def _not_shown(runs: Sequence[RecordedRun]) -> str:
    """Return the sentence about fits without their own part; empty: all have one."""
    count = len(_fits_of(runs))
    if count <= MAX_FITS:
        return ""
    half = MAX_FITS // 2
    return f"Of {count:,} fits the first {half} and the last {half} are shown by themselves."


def _facts(runs: Sequence[RecordedRun]) -> Rows:
    """Return the results: a row for each fact, a column for each run."""
    rows = [("began", [_date(run.began) for run in runs])]
    for name in FACTS if any(run.chief.result for run in runs) else OF_SCRIPTS:
        values = [_fact(run, name) for run in runs]
        if name != "reason" or {*values} - {cell(None), NOT_RECORDED}:
            rows.append((name, values))
    rows += _fits(runs)
    if _have_own(runs) or not (fits := _fits_of(runs)):
        rows += _last([run.chief for run in runs], "")
    else:
        which = f"{fits[-1]}: " if len(fits) > 1 else ""
        rows += _last([run.chief.of_fit(fits[-1]) for run in runs], which)
    seconds = [run.chief.result.get("seconds") for run in runs]
    rows.append(("seconds of the last start", [_number(one) for one in seconds]))
    return rows


def _fact(run: RecordedRun, name: str) -> str:
    """Return a fact from result.json, or from a script's fits."""
    if run.chief.result.get(name, NOT_RECORDED) is None:
        return cell(None)
    told = run.fact(name)
    if told is None and name == "workers":
        told = len(run.workers)
    return NOT_RECORDED if told is None else cell(told)


def _last(chiefs: Sequence[Worker], of: str) -> Rows:
    """Return a row for each metric of the last epoch."""
    last = [one.metrics[-1] if one.metrics else {} for one in chiefs]
    return [
        (f"{of}last {name.replace('_', ' ')}", [_metric(line, name) for line in last])
        for name in dict.fromkeys(name for line in last for name in line if name not in COUNTS)
    ]


def _fits(runs: Sequence[RecordedRun]) -> Rows:
    """Return a row for the script, and one for the newest checkpoint of each fit."""
    if not any(run.script or run.chief.fits for run in runs):
        return []
    rows = [("script", [run.script or NOT_RECORDED for run in runs])]
    steps = [{fit.name: fit.step for fit in run.chief.fits} for run in runs]
    for name in first_and_last(list(dict.fromkeys(name for found in steps for name in found))):
        newest = [found.get(name) for found in steps]
        values = [NOT_RECORDED if one is None else f"of step {one:,}" for one in newest]
        rows.append((f"{name}: newest checkpoint", values))
    return rows


def _part_of(run: RecordedRun, name: str) -> Json:
    """Return the part of the page about one run."""
    lines = [line_of(worker.events, _signs_of_life(worker)) for worker in run.workers]
    marks = [
        (mark.time - (run.began or 0), worker.name, mark)
        for worker, line in zip(run.workers, lines, strict=True)
        for mark in (*line.marks, *network_marks(worker.events))
    ]
    found = run.chief.predicted
    return {
        "name": name,
        "status": _status(run, lines),
        "speed": drawings.speed_of(run),
        "timeline": drawings.timeline_of(run, lines),
        "events": sorted(marks, key=lambda one: one[0]),
        "seconds": drawings.seconds_of(run, lines),
        "fits": _parts_of_fits(run),
        "unread": run.unread,
        "matrix": drawings.predictions_of(run),
        "pictures": found.pictures if found else (),
        "classes": found.names if found else (),
        "again": again(run),
        "settings": [
            (key, cell(value), differs_from_default(key, value))
            for key, value in run.settings.items()
        ],
        "versions": [(key, cell(value)) for key, value in run.versions.items()],
        "begun": ([fit.name for fit in told_of(run)], begun(told_of(run))),
    }


def _parts_of_fits(run: RecordedRun) -> list[Json]:
    """Return the speed of each fit of a script, and how its time was spent."""
    fits = first_and_last(run.fits) if len(run.fits) > 1 else []
    nothing = [WorkerTime((), ())] * len(run.workers)
    of_each = [(name, run.of_fit(name)) for name in fits]
    return [
        {
            "name": name,
            "speed": drawings.speed_of(fit),
            "seconds": drawings.seconds_of(fit, nothing),
        }
        for name, fit in of_each
    ]


def _status(run: RecordedRun, lines: Sequence[WorkerTime]) -> str:
    """Return the status of the run, from result.json or from its events."""
    if status := run.chief.result.get("status"):
        return str(status)
    if all(worker.has_ended for worker in run.workers):
        return "the script has ended"
    last = [line.marks[-1].kind for line in lines if line.marks]
    if {*last} <= {*ENDS} and len(last) == len(lines):
        return next((one for one in last if one != DONE), DONE)
    is_open = any(mark.kind == SILENT for line in lines for mark in line.marks)
    return "no end yet" if is_open or run.chief.metrics or run.chief.fits else NOT_RECORDED


def _signs_of_life(worker: Worker) -> list[float]:
    times = [one.time for points in (worker.curves or {}).values() for one in points]
    return times + [event["time"] for event in worker.events]


def _date(seconds: float | None) -> str:
    if seconds is None:
        return NOT_RECORDED
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _metric(line: Json, name: str) -> str:
    """Return a metric as text; None stands for a number that is not finite."""
    if name not in line:
        return NOT_RECORDED
    return "not finite" if line[name] is None else _number(line[name])


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return NOT_RECORDED if value is None else cell(value)
