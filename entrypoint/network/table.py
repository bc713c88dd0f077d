"""The output of the command `network`: for people, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from entrypoint.network.link import KILO, Link, long_links, rate, round_trip, rounded, slow_links
from entrypoint.network.speed_up import SpeedUp, Training, speed_ups

GAP = "  "
ASKS = "For an estimate of the speed of a training: network --parameters 25e6 --step-ms 250"


def as_text(links: Sequence[Link], training: Training | None) -> str:
    """Return the table of all links, a sentence about slow ones, and the estimate."""
    slow, far = slow_links(links), long_links(links)
    marks = dict.fromkeys(far, "long") | dict.fromkeys(slow, "slow")
    rows = [
        (
            *(link.sender, link.receiver, round_trip(link.round_trip_seconds)),
            *(rate(link.bits_per_second), marks.get(link, "")),
        )
        for link in links
    ]
    lines = [*_aligned([("from", "to", "round trip", "rate", ""), *rows]), "", *_about(slow, far)]
    return "\n".join([*lines, "", *(_estimate(links, training) if training else [ASKS])])


def as_json(links: Sequence[Link], training: Training | None) -> str:
    """Return the same as one JSON object in a line."""
    estimates = speed_ups(links, training) if training else []
    return json.dumps(
        {
            "workers": len(links),
            "links": [link.members for link in links],
            "slow": [link.name for link in slow_links(links)],
            "long": [link.name for link in long_links(links)],
            "estimates": [
                {
                    "way": one.way,
                    "sums_ms": rounded(one.sums_seconds * KILO, 3),
                    "speed_up": None if one.times is None else rounded(one.times, 3),
                }
                for one in estimates
            ],
        }
    )


def _about(slow: Sequence[Link], far: Sequence[Link]) -> list[str]:
    """Return sentences about the links that slow all workers down."""
    lines = [
        f"The link {link.name} is slow, and all workers wait for it in each sum of gradients."
        for link in slow
    ]
    lines += [f"The round trip {link.name} is long." for link in far]
    return lines or ["All links are about equally fast."]


def _estimate(links: Sequence[Link], training: Training) -> list[str]:
    about = f"{training.parameters:,.0f} parameters on {len(links)} workers"
    if training.step_seconds is not None:
        about += f", {duration(training.step_seconds)} a step on one"
    rows = [
        (one.way, duration(one.sums_seconds), _speed(one), one.means)
        for one in speed_ups(links, training)
    ]
    return [f"{about} (estimated):", *_aligned([("", "sums, each step", "speed", ""), *rows])]


def _speed(one: SpeedUp) -> str:
    return "-" if one.times is None else f"{rounded(one.times):g} times one worker's"


def duration(seconds: float) -> str:
    """Return a duration with its unit and two digits."""
    return round_trip(seconds) if seconds < 1 else f"{rounded(seconds):g} s"


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of equal width."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
