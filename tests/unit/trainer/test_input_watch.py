"""The warning that steps wait for data that every worker prepares as a whole."""

import logging

import pytest

from cluster_trainer.fits import input_watch
from cluster_trainer.fits.input_watch import InputWatch

ADVICE = "a `map` comes before `shuffle`"


@pytest.fixture(autouse=True)
def told(monkeypatch, caplog):
    monkeypatch.setattr(input_watch, "_told", set())
    caplog.set_level(logging.INFO, "trainer")
    return caplog


def train(seconds, waited, *, advice=ADVICE, is_chief=True):
    """Train in calls of one second, each of which waits so long for data."""
    so_far = [0.0]
    watch = InputWatch(lambda: so_far[0], lambda: advice, is_chief=is_chief)
    for _ in range(seconds):
        watch.note(1.0)
        so_far[0] += waited


@pytest.mark.parametrize(("seconds", "waited"), [(40, 0.5), (100, 0.34), (100, 1.0)])
def test_a_third_of_half_a_minute_is_said_once(seconds, waited, told):
    for _ in range(2):
        train(seconds, waited)
    (line,) = told.records
    assert line.levelno == logging.WARNING
    assert ADVICE in line.getMessage()


@pytest.mark.parametrize(
    ("seconds", "waited", "more"),
    [
        (29, 1.0, {}),
        (100, 0.3, {}),
        (100, 1.0, {"advice": ""}),
        (100, 1.0, {"is_chief": False}),
    ],
    ids=["too short", "little", "nothing to change", "another worker"],
)
def test_nothing_is_said(seconds, waited, more, told):
    train(seconds, waited, **more)
    assert told.records == []


def test_the_first_call_does_not_count(told):
    so_far = [0.0]
    watch = InputWatch(lambda: so_far[0], lambda: ADVICE, is_chief=True)
    so_far[0] = 60.0
    watch.note(90.0)
    for _ in range(40):
        watch.note(1.0)
    assert told.records == []


def test_what_is_not_measured_is_said_without_a_warning(told):
    watch = InputWatch(lambda: None, lambda: ADVICE, is_chief=True)
    for _ in range(2):
        watch.note(1.0)
    assert [line.levelno for line in told.records] == [logging.INFO]
