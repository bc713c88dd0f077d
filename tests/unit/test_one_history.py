"""A run that continued with fewer workers is the history of one group."""

from harness.chaos.one_history import trained_apart, wrong_batches
from harness.chaos.records import Batch, Process

BATCHES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def process(begin, first_step, *ids):
    """Return the steps that a worker's process has trained, one a second."""
    batches = [Batch(begin + 1.0 + place, one) for place, one in enumerate(ids)]
    return Process(begin, first_step, batches)


CHIEF = [
    process(0, 0, (0,), (3,), (6,)),  # the last step is not ended: worker 2 dies in it
    process(10, 2, (6, 7), (9, 10)),
]
FIRST = [process(0.2, 0, (1,), (4,), (7,)), process(10.1, 2, (8,), (11,))]
SECOND = [process(0.1, 0, (2,), (5,), (8,))]


def faults(chief, *others):
    return [*wrong_batches(chief, others, BATCHES), *trained_apart(chief, others)]


def test_those_who_go_on_have_larger_shares_of_the_same_batches():
    assert faults(CHIEF, FIRST, SECOND) == []


def test_a_step_that_nobody_has_trained_is_left_out():
    chief = [process(0, 0, (0,), (3,)), process(10, 3, (9, 10))]
    first = [process(0, 0, (1,), (4,)), process(10, 3, (11,))]
    assert "step 2 was left out" in faults(chief, first, SECOND)


def test_the_attempt_that_counts_has_the_whole_batch():
    half = [FIRST[0], process(10.1, 2, (8,), ())]
    assert faults(CHIEF, half, SECOND) == ["step 3 was trained on 2 examples, not on its 3"]


def test_who_trains_on_in_an_earlier_ring_trains_apart():
    stale = [process(0.1, 0, (2,), (5,), (8,), (11,), (2,), (5,))]
    (found,) = faults(CHIEF, FIRST, stale)
    assert found == "worker 2 has trained 5 steps from step 0 on, and worker 0 3 of them"


def test_who_trains_in_no_ring_of_worker_0_trains_apart():
    other = [*SECOND, process(40.0, 2, (6, 7, 8), (9, 10, 11))]
    (found,) = faults(CHIEF, FIRST, other)
    assert "worker 2 has trained 1 steps from step 2 on, and worker 0 0" in found


def test_a_step_that_was_begun_and_not_ended_is_nothing():
    begun = [*SECOND, process(40.0, 2, (6, 7, 8))]
    assert faults(CHIEF, FIRST, begun) == []
