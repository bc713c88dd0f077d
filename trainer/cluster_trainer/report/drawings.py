"""Makes the drawings of a report, each with a title, or the reason why there is no drawing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from cluster_trainer.report import plots
from cluster_trainer.report.curves import Point
from cluster_trainer.report.forms import MAX_NUMBER, is_number, is_too_large
from cluster_trainer.report.reading import NOT_RECORDED, Json
from cluster_trainer.report.run import RecordedRun, Worker
from cluster_trainer.report.timeline import (
    STARTING,
    WAITING,
    WorkerTime,
    epoch_seconds,
    network_limit,
    waits_for_others,
)
from cluster_trainer.results.metrics_file import COUNTS

TEST = "test_"
SPEED, SECONDS, RATE = "speed/examples_per_second", "speed/seconds_per_step", "learning_rate"
FIT = "fit"
HELD_UP = "checkpoints/seconds_held_up"
STEPS, COMPUTING = "steps", "steps: computing"
PARTS = {
    "waiting at the gate": WAITING,
    "starting": STARTING,
    "first call (compiles)": "first_call",
    "steps: input": "input",
    "steps: slower workers": "others",
    "steps: sums of gradients": "sums",
    STEPS: "calls",
    "evaluating": "evaluating",
    "checkpoints": "checkpoints",
}
WHOLE, REST = "all", "the rest"
GAP_SECONDS, GAP_TIMES = 5.0, 5.0


@dataclass(frozen=True)
class Drawing:
    """A drawing, or the reason why there is none.

    Attributes:
        title: its subject.
        svg: the drawing; None: there is none.
        missing: the reason why there is no drawing.
        note: a remark below the drawing.
    """

    title: str
    svg: Markup | None = None
    missing: str = ""
    note: str = ""


def curves_of(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Drawing]:
    """Yield a drawing for each metric, and one of the learning rate, with all runs' curves."""
    of_all = [run.chief.metrics for run in runs]
    if not any(of_all):
        yield Drawing("metrics", missing="no epoch has ended, or metrics.jsonl is not there")
    yield from _metrics(of_all, names, "epoch")
    rates = [points_of(run.chief, RATE) for run in runs]
    series = [
        (name, [one.step for one in points], [one.value for one in points], False)
        for name, points in zip(names, rates, strict=True)
        if points
    ]
    why = "TRAINER_TENSORBOARD was none, or it has no rate"
    yield _drawn("learning rate", series, "step", why)


def ends_of(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Drawing]:
    """Yield a drawing for each metric, with its last value in each of a script's fits."""
    of_all = [
        [{**fit.metrics[-1], FIT: fit.number} for fit in run.chief.fits if fit.metrics]
        for run in runs
    ]
    yield from _metrics(of_all, names, FIT)


def _metrics(
    of_all: Sequence[Sequence[Json]], names: Sequence[str], along: str
) -> Iterator[Drawing]:
    """Yield a drawing for each metric in the lines of all runs."""
    found = dict.fromkeys(name for lines in of_all for line in lines for name in line)
    for metric in dict.fromkeys(n.removeprefix(TEST) for n in found if n not in (*COUNTS, FIT)):
        series: list[plots.Series] = []
        too_large = 0
        for name, lines in zip(names, of_all, strict=True):
            for key, what in ((metric, "train"), (TEST + metric, "test")):
                points = [(one[along], one[key]) for one in lines if is_number(one.get(key))]
                too_large += sum(is_too_large(one.get(key)) for one in lines)
                if points:
                    label = what if len(names) == 1 else f"{name}, {what}"
                    places, values = zip(*points, strict=True)
                    series.append((label, places, values, what == "test"))
        title = metric.replace("_", " ")
        note = f"not drawn: {too_large:,} of more than {MAX_NUMBER:g}" if too_large else ""
        if series:
            yield replace(_drawn(title, series, along), note=note)
        elif note:
            yield Drawing(title, note=note)


def speed_of(run: RecordedRun) -> Drawing:
    """Return a drawing of each worker's examples per second over time.

    If the size of the batches is unknown, it shows steps per second.
    """
    title, points = "examples per second", _points_of_workers(run, SPEED)
    if not any(found for _, found in points):
        slow = _points_of_workers(run, SECONDS)
        points = [
            (name, [one._replace(value=1 / one.value) for one in found if one.value > 0])
            for name, found in slow
        ]
        title = "steps per second" if any(found for _, found in points) else title
    times = [one.time for _, found in points for one in found]
    began = min(times, default=0.0)
    size, unit = plots.unit_of(max(times, default=0.0) - began)
    series = [_over_time(name, found, began, size) for name, found in points if found]
    without = [name for name, found in points if not found]
    why = "it needs event files, which TRAINER_TENSORBOARD=none leaves out"
    drawing = _drawn(title, series, unit, why, from_zero=True)
    if series and without:
        return Drawing(drawing.title, drawing.svg, note=f"{NOT_RECORDED}: {', '.join(without)}")
    return drawing


def _points_of_workers(run: RecordedRun, tag: str) -> list[tuple[str, Sequence[Point]]]:
    return [(worker.name, points_of(worker, tag)) for worker in run.workers]


def _over_time(name: str, points: Sequence[Point], began: float, size: float) -> plots.Series:
    """Return a curve over time, with gaps where nothing was written for a long time."""
    steps = [later.time - one.time for one, later in pairwise(points)]
    longest = max(GAP_SECONDS, GAP_TIMES * median(steps)) if steps else GAP_SECONDS
    places: list[float] = []
    values: list[float | None] = []
    for one, step in zip(points, [*steps, 0.0], strict=True):
        places.append((one.time - began) / size)
        values.append(one.value)
        if step > longest:
            places.append(places[-1])
            values.append(None)
    return name, places, values, False


def timeline_of(run: RecordedRun, lines: Sequence[WorkerTime]) -> Drawing:
    """Return a drawing of each worker's timeline."""
    named = [
        (worker.name, line, [one.time for one in points_of(worker, HELD_UP)])
        for worker, line in zip(run.workers, lines, strict=True)
        if line.spans
    ]
    title = "timeline"
    if not named:
        return Drawing(title, missing="this run has no events.jsonl")
    notes = []
    without = sorted({worker.name for worker in run.workers} - {name for name, _, _ in named})
    if without:
        notes.append(f"{NOT_RECORDED}: {', '.join(without)}")
    if not any(checkpoints for _, _, checkpoints in named):
        notes.append(f"moments of checkpoints: {NOT_RECORDED}, or there were none")
    svg = Markup(plots.timeline(named))  # noqa: S704
    return Drawing(title, svg, note="; ".join(notes))


def seconds_of(
    run: RecordedRun, lines: Sequence[WorkerTime]
) -> tuple[Drawing, list[tuple[str, list[str]]]]:
    """Return a drawing and a table of how each worker's time was spent."""
    title = "where the time went"
    others = waits_for_others([worker.events for worker in run.workers])
    parts: list[tuple[str, dict[str, float]]] = []
    for worker, line, of_others in zip(run.workers, lines, others, strict=True):
        measured = epoch_seconds(worker.events)
        if WHOLE in measured:
            before = (WAITING, STARTING) if line.spans else ()
            states = {state: line.seconds(state) for state in before}
            parts.append((worker.name, _parts(measured, states, of_others)))
    if not parts:
        return Drawing(title, missing="no epoch has ended, or this run has no events.jsonl"), []
    parts_of_all = list(dict.fromkeys(part for _, found in parts for part in found))
    rows = [
        (name, [f"{found.get(part, 0.0):,.1f} s" for part in parts_of_all]) for name, found in parts
    ]
    svg = Markup(plots.bars(parts))  # noqa: S704
    missing = [name for name, found in parts if STEPS in found]
    note = "The rest: callbacks, and agreeing with the other workers after each call."
    if missing:
        note += f" Input and waiting within steps: {NOT_RECORDED} ({', '.join(missing)})."
    if limit := network_limit(run.chief.events):
        note += f" {limit[:1].upper()}{limit[1:]}."
    return Drawing(title, svg, note=note), [("", parts_of_all), *rows]


def _parts(
    measured: Mapping[str, float], states: Mapping[str, float], of_others: float | None
) -> dict[str, float]:
    """Return a worker's seconds by the names in the drawing; steps are divided if measured.

    Args:
        measured: the seconds of all epochs together, by the journal's names.
        states: the seconds of the states before the epochs, by state.
        of_others: how long its steps waited for slower workers, in seconds; None: not measured.
    """
    known = sum(
        measured.get(key, 0.0) for key in ("first_call", "calls", "evaluating", "checkpoints")
    )
    values = {**measured, **states}
    if of_others is not None:
        values |= {"others": of_others, "sums": measured["sums"] - of_others}
    split = sum(values.get(key, 0.0) for key in ("input", "others", "sums"))
    values["calls"] = max(0.0, values.get("calls", 0.0) - split)
    shown = {name: values[key] for name, key in PARTS.items() if key in values}
    if "input" in values:
        shown = {COMPUTING if name == STEPS else name: value for name, value in shown.items()}
    return {**shown, REST: max(0.0, measured[WHOLE] - known)}


def predictions_of(run: RecordedRun) -> Drawing:
    """Return a drawing of the confusion matrix."""
    title, found = "confusion matrix", run.chief.predicted
    if found is None:
        is_script = run.chief.fits and not run.chief.result
        why = "a script's own `fit` leaves none" if is_script else "no classifier, or no end yet"
        return Drawing(title, missing=why)
    right = sum(row[index] for index, row in enumerate(found.matrix))
    total = sum(map(sum, found.matrix))
    note = f"{right:,} of {total:,} examples right, out of {found.total:,} to test"
    return Drawing(title, Markup(plots.matrix(found.matrix, found.names)), note=note)  # noqa: S704


def _drawn(
    title: str,
    series: Sequence[plots.Series],
    along: str,
    why: str = "",
    *,
    from_zero: bool = False,
) -> Drawing:
    """Return a drawing of curves, or the reason `why` there are none."""
    if not series:
        return Drawing(title, missing=why)
    return Drawing(title, Markup(plots.lines(series, along, from_zero=from_zero)))  # noqa: S704  escaped by matplotlib


def points_of(worker: Worker, tag: str) -> Sequence[Point]:
    """Return the points of a worker's curve; none if it has no such curve."""
    return (worker.curves or {}).get(tag, ())
