import math
import os
import time

import pytest

from cluster_trainer.process.stall import LEAST_SECONDS, Deadline, StallLimit


@pytest.fixture
def deadline():
    return Deadline()


def seconds_left(deadline):
    return deadline.moment - time.monotonic()


def step():
    """Stand in for a compiled function."""


def test_there_is_no_deadline_to_begin_with(deadline):
    assert deadline.moment == math.inf


def test_another_process_sees_the_deadline(deadline):
    child = os.fork()
    if child == 0:
        deadline.set_in(1000)
        os._exit(0)
    os.waitpid(child, 0)
    assert 900 < seconds_left(deadline) < 1000


def test_the_first_call_of_a_function_may_take_for_ever(deadline):
    limit = StallLimit(deadline, 5)
    with limit.call(step):
        assert deadline.moment == math.inf


def test_a_later_call_has_its_limit_until_it_is_over(deadline):
    limit = StallLimit(deadline, 5)
    for _ in range(2):
        with limit.call(step):
            within = seconds_left(deadline)
    assert 4 < within < 5
    assert deadline.moment == math.inf


def test_auto_grows_with_the_longest_call(deadline, monkeypatch):
    limit = StallLimit(deadline, "auto")
    clock = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    for seconds in (500.0, 3.0, 1.0):  # the first one compiles
        with limit.call(step):
            clock += seconds
    with limit.call(step):
        assert deadline.moment - clock == LEAST_SECONDS + 30.0


def test_0_is_no_limit(deadline):
    limit = StallLimit(deadline, 0)
    for _ in range(2):
        with limit.call(step):
            assert deadline.moment == math.inf
