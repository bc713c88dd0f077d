"""Commands that ask again and again: of the rings before nothing stays open, and no thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from harness.neighbours import check_circle

LONG_SECONDS = 60.0


def held() -> tuple[int, int]:
    """Return how many files this process has open, and how many threads it has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def wait_until_held(most: tuple[int, int]) -> None:
    """Wait until no more than that is held: who has answered a command tidies up after that."""
    until = time.monotonic() + LONG_SECONDS
    while any(now > before for now, before in zip(held(), most, strict=True)):
        assert time.monotonic() < until, f"{held()} are held, and not {most}"
        time.sleep(0.01)


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("gate", [0, LONG_SECONDS], ids=["one meeting", "a meeting for each"])
def test_nothing_stays_behind_of_rings_that_were_handed_over(cluster, worker, count, gate):
    two = cluster(2)
    workers = [worker(two, rank, gate=gate) for rank in range(2)]

    def hand_over() -> None:
        asked = [one.ask() for one in workers]
        found = [one.result(LONG_SECONDS) for one in asked]
        check_circle(found)
        for one in found:
            one.left.close()
            one.right.close()

    hand_over()
    first = held()
    for _ in range(count):
        hand_over()
    wait_until_held(first)
