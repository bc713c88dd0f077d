"""The drawings of a report, each with its title, or with the reason why there is none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from markupsafe import Markup

from cluster_trainer.report import plots
from cluster_trainer.report.curves import Point
from cluster_trainer.report.reading import NOT_RECORDED, Json, is_number
from cluster_trainer.report.run import RecordedRun, Worker
from cluster_trainer.report.timeline import (
    STARTING,
    WAITING,
    WorkerTime,
    epoch_seconds,
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
MAX_CURVES = 24
MAX_POINTS = 400
GAP_SECONDS, GAP_TIMES = 5.0, 5.0


@dataclass(frozen=True)
class Drawing:
    """A drawing, or why there is none.

    Attributes:
        title: what it shows.
        svg: the drawing; None: it could not be made.
        missing: what is said instead.
        note: what has to be known besides.
    """

    title: str
    svg: Markup | None = None
    missing: str = ""
    note: str = ""


def curves_of(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Drawing]:
    """Yield a drawing for each metric, with the curves of all runs, and one of the rate."""
    of_all = [run.chief.metrics for run in runs]
    if not any(of_all):
        why = _why(runs, "no epoch has ended, or metrics.jsonl is not there")
        yield Drawing("metrics", missing=why)
    yield from _metrics(of_all, names, "epoch")
    rates = [points_of(run.chief, RATE) for run in runs]
    series = [
        (name, [one.step for one in points], [one.value for one in points], False)
        for name, points in zip(names, rates, strict=True)
        if points
    ]
    why = _why(runs, "TRAINER_TENSORBOARD was none, or it has no rate")
    yield _drawn("learning rate", series, "step", why)


def ends_of(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Drawing]:
    """Yield a drawing for each metric of what the fits of a script came to, one after the other."""
    of_all = [
        [{**fit.metrics[-1], FIT: fit.number} for fit in run.chief.fits if fit.metrics]
        for run in runs
    ]
    yield from _metrics(of_all, names, FIT)


def _metrics(
    of_all: Sequence[Sequence[Json]], names: Sequence[str], along: str
) -> Iterator[Drawing]:
    """Yield a drawing for each metric in the lines of all runs, over what counts these."""
    found = dict.fromkeys(name for lines in of_all for line in lines for name in line)
    metrics = list(dict.fromkeys(n.removeprefix(TEST) for n in found if n not in (*COUNTS, FIT)))
    for metric in metrics[:MAX_CURVES]:
        series: list[plots.Series] = []
        for name, lines in zip(names, of_all, strict=True):
            for key, what in ((metric, "train"), (TEST + metric, "test")):
                points = [(one[along], one[key]) for one in lines if _is_point(one, key)]
                if points:
                    label = what if len(names) == 1 else f"{name}, {what}"
                    places, values = zip(*_thinned(points), strict=True)
                    series.append((label, places, values, what == "test"))
        if series:
            yield Drawing(metric.replace("_", " "), Markup(plots.lines(series, along)))  # noqa: S704  escaped by matplotlib
    left = metrics[MAX_CURVES:]
    if left:
        yield Drawing("more metrics", missing=f"not shown: {', '.join(left)}")


def _why(runs: Sequence[RecordedRun], usual: str) -> str:
    """Return why there is nothing to draw: the usual reason, unless they are old scripts' fits."""
    are_old = all(run.chief.fits and not run.fits and not run.chief.result for run in runs)
    return "of a script's own `fit` checkpoints alone are here" if are_old else usual


def speed_of(run: RecordedRun) -> Drawing:
    """Return each worker's examples per second, over the time since the first point of any.

    Of data that come in batches of which nobody knows the size, it is the steps.
    """
    title, points = "examples per second", _points_of_workers(run, SPEED)
    if not any(found for _, found in points):
        slow = _points_of_workers(run, SECONDS)
        points = [(name, [_inverse(one) for one in found if one.value > 0]) for name, found in slow]
        title = "steps per second" if any(found for _, found in points) else title
    times = [one.time for _, found in points for one in found]
    began = min(times, default=0.0)
    size, unit = plots.unit_of(max(times, default=0.0) - began)
    series = [_over_time(name, found, began, size) for name, found in points if found]
    without = [name for name, found in points if not found]
    why = _why([run], "it needs event files, which TRAINER_TENSORBOARD=none leaves out")
    drawing = _drawn(title, series, unit, why, from_zero=True)
    if series and without:
        return Drawing(drawing.title, drawing.svg, note=f"{NOT_RECORDED}: {', '.join(without)}")
    return drawing


def _points_of_workers(run: RecordedRun, tag: str) -> list[tuple[str, Sequence[Point]]]:
    return [(worker.name, points_of(worker, tag)) for worker in run.workers]


def _inverse(point: Point) -> Point:
    return point._replace(value=1 / point.value)


def _over_time(name: str, points: Sequence[Point], began: float, size: float) -> plots.Series:
    """Return a curve over time, broken where nothing was written for long."""
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
    """Return what each worker was at, and what happened to it."""
    named = [
        (worker.name, line, [one.time for one in points_of(worker, HELD_UP)])
        for worker, line in zip(run.workers, lines, strict=True)
        if line.spans
    ]
    title = "timeline"
    if not named:
        return Drawing(title, missing=_why([run], "this run has no events.jsonl"))
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
    """Return where each worker's time went: a drawing, and the same as a table."""
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
        why = _why([run], "no epoch has ended, or this run has no events.jsonl")
        return Drawing(title, missing=why), []
    parts_of_all = list(dict.fromkeys(part for _, found in parts for part in found))
    rows = [
        (name, [f"{found.get(part, 0.0):,.1f} s" for part in parts_of_all]) for name, found in parts
    ]
    svg = Markup(plots.bars(parts))  # noqa: S704
    missing = [name for name, found in parts if STEPS in found]
    note = "The rest: callbacks, and agreeing with the other workers after each call."
    if missing:
        note += f" Input and waiting within steps: {NOT_RECORDED} ({', '.join(missing)})."
    return Drawing(title, svg, note=note), [("", parts_of_all), *rows]


def _parts(
    measured: Mapping[str, float], states: Mapping[str, float], of_others: float | None
) -> dict[str, float]:
    """Return a worker's seconds by what the drawing calls them; steps are split where they can be.

    Args:
        measured: of all epochs together.
        states: of what comes before the epochs.
        of_others: for how long its steps waited for slower workers; None: not measured.
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
    """Return the confusion matrix."""
    title, found = "confusion matrix", run.chief.predicted
    if found is None:
        why = "no classifier, no epoch to the end, or a run from before it was recorded"
        is_script = run.chief.fits and not run.chief.result
        return Drawing(title, missing="a script's own `fit` leaves none" if is_script else why)
    right = sum(found.matrix[index][index] for index in range(len(found.names)))
    total = sum(map(sum, found.matrix))
    note = f"{right:,} of {total:,} examples right, out of {found.total:,} to test"
    return Drawing(title, Markup(plots.matrix(found.matrix, found.names)), note=note)  # noqa: S704


def _drawn(
    title: str, series: Sequence[plots.Series], along: str, why: str, *, from_zero: bool = False
) -> Drawing:
    if not series:
        return Drawing(title, missing=why)
    thin = []
    for name, places, values, is_dashed in series:
        points = _thinned(list(zip(places, values, strict=True)))
        thin.append((name, [at for at, _ in points], [value for _, value in points], is_dashed))
    return Drawing(title, Markup(plots.lines(thin, along, from_zero=from_zero)))  # noqa: S704


def _thinned(points: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
    """Return as many points as a small drawing can show, the last among them."""
    every = -(-len(points) // MAX_POINTS)
    return [*points[:-1:every], points[-1]]


def points_of(worker: Worker, tag: str) -> Sequence[Point]:
    """Return the points of a worker's curve; none where it has no such curve."""
    return (worker.curves or {}).get(tag, ())


def _is_point(line: Json, name: str) -> bool:
    """Tell whether a line of metrics.jsonl has a number of that name."""
    return is_number(line.get(name))
