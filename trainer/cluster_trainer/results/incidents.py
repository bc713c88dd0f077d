"""Finds the events of a run since it last trained: waits at the gate, restarts, ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRAINED = ("training", "evaluating", "saving")
WAITING = "waiting"
TOLD = ("restarting", "failed", "stopped")
MISSING = "waiting for "
"""The beginning of the gate's lines that name missing workers and reasons."""
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Happening:
    """An event.

    Attributes:
        time: the time when it began, in seconds since 1970.
        what: a short description.
        detail: details; for a wait, the missing workers that the gate has named last.
    """

    time: float
    what: str
    detail: str


def happenings(events: Sequence[Event]) -> list[Happening]:
    """Return the events since the last training, from the lines of events.jsonl."""
    found: list[Happening] = []
    began, missing = None, ""
    for event in _since_training(events):
        time, state, detail = event["time"], event.get("state"), str(event.get("detail") or "")
        if state == WAITING:
            began = time if began is None else began
            missing = detail if detail.startswith(MISSING) else missing
        elif began is not None:
            found.append(
                Happening(began, f"waited {max(0.0, time - began):.1f} s at the gate", missing)
            )
            began, missing = None, ""
        if state in TOLD:
            found.append(Happening(time, str(state), detail))
    return found


def _since_training(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if event.get("state") in TRAINED:
            found.clear()
        else:
            found.append(event)
    return found
