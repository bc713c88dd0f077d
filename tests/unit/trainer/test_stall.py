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
        try:
            deadline.set_in(1000)
            os._exit(0)
        finally:
            os._exit(255)  # no error makes the child go on with the tests
    assert os.waitpid(child, 0)[1] == 0
    assert 900 < seconds_left(deadline) < 1000


@pytest.mark.parametrize("place", ["no-such-folder/deadline", "."])
def test_without_a_file_that_can_be_written_these_processes_still_share_it(tmp_path, place):
    deadline = Deadline.kept_in(tmp_path / place)
    deadline.set_in(1000)
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
        assert deadline.moment - clock == pytest.approx(LEAST_SECONDS + 30.0)


@pytest.fixture
def timed(deadline, monkeypatch):
    """Return a function that makes a call of so many seconds, and returns the call's limit."""
    limit, clock = StallLimit(deadline, "auto"), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def call(seconds, *, is_first=False, traces=False):
        with limit.call(step, is_first=is_first):
            if traces:
                limit.traces()
            might = deadline.moment - clock[0]
            clock[0] += seconds
        return might

    return call


def test_the_first_call_of_a_pass_is_measured_by_those_of_its_kind(timed):
    """In each pass, a pipeline takes 70 s for its first batch."""
    assert timed(70.0, is_first=True) == math.inf
    assert timed(0.1) == pytest.approx(LEAST_SECONDS)
    assert timed(80.0, is_first=True) == pytest.approx(LEAST_SECONDS + 700.0)
    assert timed(0.1) == pytest.approx(LEAST_SECONDS + 1.0)
    assert timed(0.1, is_first=True) == pytest.approx(LEAST_SECONDS + 800.0)


def test_so_is_one_that_traces_again(timed):
    timed(300.0, is_first=True)
    timed(0.1)
    assert timed(200.0, traces=True) == pytest.approx(LEAST_SECONDS + 3000.0)
    assert timed(0.1) == pytest.approx(LEAST_SECONDS + 1.0)  # this limit has not grown


def test_a_limit_of_ones_own_holds_for_the_first_call_of_each_pass(deadline):
    limit = StallLimit(deadline, 5)
    for _ in range(2):
        with limit.call(step, is_first=True):
            within = seconds_left(deadline)
    assert 4 < within < 5


def test_0_is_no_limit(deadline):
    limit = StallLimit(deadline, 0)
    for _ in range(2):
        with limit.call(step):
            assert deadline.moment == math.inf
