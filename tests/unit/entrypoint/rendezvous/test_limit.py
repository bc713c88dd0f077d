"""The time limits of a worker at a meeting."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

from entrypoint.rendezvous.terms import Limit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def limit(come: float, start: float) -> tuple[Limit, Clock]:
    clock = Clock()
    return Limit(SimpleNamespace(timeout_seconds=come, start_seconds=start), clock), clock


def test_a_worker_that_flaps_extends_neither_limit():
    one, clock = limit(come=100.0, start=300.0)
    for _ in range(9):
        one.note(is_starting=True)
        clock.now += 10.0
        one.note(is_starting=False)
        clock.now += 10.0
    assert one.left_seconds == 10.0
    one.note(is_starting=True)
    assert one.left_seconds == 210.0


def test_only_the_limit_that_is_renewed_begins_again():
    one, clock = limit(come=100.0, start=300.0)
    clock.now = 40.0
    one.renew(is_starting=True)
    assert one.left_seconds == 60.0
    one.renew(is_starting=False)
    assert one.left_seconds == 100.0


def test_no_limit_is_infinite():
    one, clock = limit(come=0.0, start=300.0)
    clock.now = 1e9
    assert one.left_seconds == inf
    assert one.length_seconds == 0.0
