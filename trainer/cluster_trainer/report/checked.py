"""What stands in a run's files, as far as it is what it should be."""

from math import isfinite
from typing import Any

from cluster_trainer.report.reading import (
    COUNT,
    OBJECT,
    SECONDS,
    TEXT,
    TIME,
    Json,
    MemberKind,
    is_number,
    members,
    refusal,
)

RESULT = {
    **dict.fromkeys(("status", "reason", "dataset", "strategy"), TEXT),
    **dict.fromkeys(("workers", "replicas", "steps", "epochs"), COUNT),
    "seconds": SECONDS,
    **dict.fromkeys(("settings", "versions", "script"), OBJECT),
}
"""Of result.json; of other members nothing is shown."""
ABOUT = {
    "strategy": TEXT,
    **dict.fromkeys(("workers", "replicas"), COUNT),
    **dict.fromkeys(("settings", "versions", "script", "fit"), OBJECT),
}
"""Of about.json, likewise."""
EVENT = {
    "time": TIME,
    **dict.fromkeys(("state", "detail", "by", "fit"), TEXT),
    **dict.fromkeys(("restarts", "epoch", "step"), COUNT),
    "seconds": OBJECT,
}
PLACE = {"epoch": COUNT, "step": COUNT, "seconds": SECONDS}
METRIC = "a number"
MAX_RANK = 4

Checked = tuple[Json | None, list[str]]
"""What is left of a line, None if nothing is, and what is wrong with it."""


def metrics(found: Json) -> Checked:
    """Check a line of metrics.jsonl: where, and the metrics; one that is not finite is None."""
    if not COUNT.is_one(found.get("epoch")):
        return None, [refusal("epoch", found.get("epoch"), COUNT.accepted)]
    clean, wrong = members(found, PLACE)
    for name, value in [*clean.items()]:
        if isinstance(value, float) and not isfinite(value):
            clean[name] = None
        elif value is not None and not is_number(value) and not _is_array(value, MAX_RANK):
            wrong.append(refusal(name, value, METRIC))
            del clean[name]
    return clean, wrong


def event(found: Json) -> Checked:
    """Check a line of events.jsonl; one without a time says nothing."""
    if not TIME.is_one(found.get("time")):
        return None, [refusal("time", found.get("time"), TIME.accepted)]
    clean, wrong = members(found, EVENT)
    if clean.get("seconds"):
        kinds: dict[str, MemberKind] = dict.fromkeys(clean["seconds"], SECONDS)
        seconds, more = members(clean["seconds"], kinds, "seconds of ")
        clean["seconds"] = {name: value for name, value in seconds.items() if value is not None}
        wrong += more
    return clean, wrong


def _is_array(value: Any, rank: int) -> bool:
    """Tell whether it is a list of numbers, or of lists of them."""
    if not isinstance(value, list) or not rank:
        return False
    return all(one is None or is_number(one) or _is_array(one, rank - 1) for one in value)
