"""Makes a worker's timeline from its events: states, and marked moments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster_trainer.results.journal import ENTRYPOINT

DONE, STOPPED, FAILED, RESTARTING = "done", "stopped", "failed", "restarting"
ENDS = (DONE, STOPPED, FAILED)
STARTING, WAITING = "starting", "waiting"
KILLED, RESUMED, SILENT = "killed", "resumed", "silent"
NETWORK = "network"
PASSED = "are here and agree"
MAX_SPANS = 600
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """A state of a worker, with its beginning and end in seconds since 1970."""

    begin: float
    end: float
    state: str

    @property
    def seconds(self) -> float:
        """The duration of the state, in seconds."""
        return self.end - self.begin


@dataclass(frozen=True)
class Mark:
    """An event at one moment.

    Attributes:
        time: its time, in seconds since 1970.
        kind: done, stopped, failed, restarting, killed, resumed, silent or network.
        text: its details.
    """

    time: float
    kind: str
    text: str


@dataclass(frozen=True)
class WorkerTime:
    """One worker's states and marks, by time."""

    spans: Sequence[Span]
    marks: Sequence[Mark]

    def seconds(self, state: str) -> float:
        """Return how long the worker was in a state, in seconds."""
        return sum(span.seconds for span in self.spans if span.state == state)


def line_of(events: Iterable[Event], signs_of_life: Iterable[float] = ()) -> WorkerTime:
    """Return a worker's states and marks.

    A container that is killed records no end. So if another container starts, and no end was
    recorded before, the previous container counts as killed at its last sign of life.

    Args:
        events: the lines of events.jsonl, by time.
        signs_of_life: other moments at which the worker was alive, in seconds since 1970.
    """
    states = [event for event in events if isinstance(event.get("state"), str)]
    if not states:
        return WorkerTime((), ())
    alive = sorted([*signs_of_life, *(event["time"] for event in states)])
    spans, marks = [], []
    for event, following in zip(states, [*states[1:], None], strict=True):
        marks += _marks_of(event)
        if event["state"] in ENDS:
            continue
        end = alive[-1] if following is None else following["time"]
        if following is None:
            marks.append(Mark(end, SILENT, "nothing recorded since: it still runs, or was killed"))
        elif _was_killed(event, following):
            end = max(time for time in alive if time < following["time"])
            marks.append(
                Mark(end, KILLED, "its end is not recorded: killed, or its machine was lost")
            )
        spans.append(Span(event["time"], end, event["state"]))
    return WorkerTime(_merged(spans), marks)


def network_marks(events: Iterable[Event]) -> list[Mark]:
    """Return marks for the moments when the network became the limit of the speed, or ceased to be.

    A mark's text is the reason.
    """
    return [
        Mark(event["time"], NETWORK, event[NETWORK] or "no longer the limit")
        for event in events
        if isinstance(event.get(NETWORK), str)
    ]


def network_limit(events: Iterable[Event]) -> str:
    """Return the latest reason why the network was the limit; "": it never was."""
    reasons = [event.get(NETWORK) for event in events]
    return next((str(reason) for reason in reversed(reasons) if reason), "")


def epoch_seconds(events: Iterable[Event]) -> dict[str, float]:
    """Return how the time of all epochs was spent: name -> seconds."""
    totals: dict[str, float] = {}
    for event in events:
        for name, value in _seconds_in(event).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return totals


def waits_for_others(workers: Sequence[Iterable[Event]]) -> list[float | None]:
    """Return for how many seconds each worker's steps have waited for slower workers.

    A sum takes equally long on all workers, and the slowest worker does not wait. So a worker has
    waited by as much as its `sums` exceeds the smallest `sums` of the epoch. None: that was not
    measured.
    """
    sums = [_by_epoch(events, "sums") for events in workers]
    if not all(sums):
        return [None] * len(sums)
    least = {
        epoch: min(one[epoch] for one in sums if epoch in one)
        for epoch in {epoch for one in sums for epoch in one}
    }
    return [sum(value - least[epoch] for epoch, value in one.items()) for one in sums]


def _by_epoch(events: Iterable[Event], name: str) -> dict[Any, float]:
    """Return the seconds of each epoch; the seconds of a repeated epoch are added up."""
    found: dict[Any, float] = {}
    for event in events:
        if name in (seconds := _seconds_in(event)):
            epoch = event.get("fit"), event.get("epoch")
            found[epoch] = found.get(epoch, 0.0) + float(seconds[name])
    return found


def _seconds_in(event: Event) -> Mapping[str, Any]:
    seconds = event.get("seconds")
    return seconds if isinstance(seconds, dict) else {}


def _marks_of(event: Event) -> list[Mark]:
    time, state, detail = event["time"], event["state"], str(event.get("detail") or "")
    if state in ENDS or state == RESTARTING:
        return [Mark(time, state, detail or state)]
    if " from step " in f" {detail}" and "held by" in detail:
        return [Mark(time, RESUMED, "resumed " + detail[detail.index("from step ") :])]
    return []


def _was_killed(event: Event, following: Event) -> bool:
    """Tell whether a new container has begun, without a record of the previous container's end."""
    begins = following.get("by") == ENTRYPOINT and following["state"] == STARTING
    return begins and event.get("by") != ENTRYPOINT and not following.get("restarts")


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Join successive spans of one state; if there are many, join the shortest with others."""
    whole = spans[-1].end - spans[0].begin if spans else 0.0
    shortest = whole / MAX_SPANS if len(spans) > MAX_SPANS else 0.0
    merged: list[Span] = []
    for span in spans:
        last = merged[-1] if merged else None
        touches = last is not None and span.begin - last.end <= shortest
        if last and touches and (last.state == span.state or span.seconds < shortest):
            merged[-1] = replace(last, end=span.end)
        else:
            merged.append(span)
    return merged
