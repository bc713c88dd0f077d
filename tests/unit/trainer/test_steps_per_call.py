"""The number of steps in one call, and how often the workers exchange their times."""

from cluster_trainer.engine.steps_per_call import SHORT_SECONDS, TARGET_SECONDS, StepsPerCall


def told(seconds):
    """Return a function that returns the slowest worker's time, and the list of its arguments."""
    heard = []

    def agree(mine):
        heard.append(mine)
        return max(mine, seconds)

    return agree, heard


def test_calls_grow_to_about_a_second_of_the_slowest_worker():
    agree, heard = told(0.0)
    pace, lengths = StepsPerCall(None, agree), []
    for _ in range(6):
        steps = pace.next(None)
        lengths.append(steps)
        pace.after_call(steps, 0.01 * steps)
    assert lengths == [1, 4, 16, 64, 100, 100]
    assert len(heard) == 6


def test_a_slow_worker_shortens_everybodys_calls():
    agree, _ = told(TARGET_SECONDS * 2)
    pace = StepsPerCall(None, agree)
    pace.after_call(1, 0.01)
    assert pace.next(None) == 1


def test_the_first_call_of_a_pass_does_not_shorten_those_that_follow():
    """It may have waited for the first batch of a shuffled pipeline."""
    pace = StepsPerCall(None, lambda seconds: seconds)
    for _ in range(6):
        pace.after_call(pace.next(None), 0.01 * pace.next(None))
    pace.after_call(pace.next(None), 70.0, is_first=True)
    assert pace.next(None) == 100


def test_no_call_is_longer_than_what_is_left():
    pace = StepsPerCall(7, lambda seconds: seconds)
    assert (pace.next(3), pace.next(None)) == (3, 7)


def test_calls_of_a_fixed_length_are_told_of_about_once_a_second():
    agree, heard = told(0.0)
    pace = StepsPerCall(1, agree)
    for _ in range(1000):
        pace.after_call(1, 0.01)
    assert 10 <= len(heard) <= 20
    assert pace.next(None) == 1


def test_calls_are_shorter_where_somebody_may_wait_for_their_end():
    agree, _ = told(0.0)
    pace = StepsPerCall(None, agree, SHORT_SECONDS)
    for _ in range(6):
        steps = pace.next(None)
        pace.after_call(steps, 0.01 * steps)
    assert steps == 20
    pace.after_call(10, 2 * SHORT_SECONDS)
    assert pace.next(None) == 5


def test_calls_of_a_fixed_length_are_told_of_as_often():
    agree, heard = told(0.0)
    pace = StepsPerCall(1, agree, SHORT_SECONDS)
    for _ in range(1000):
        pace.after_call(1, 0.01)
    assert 50 <= len(heard) <= 60


def test_calls_that_are_rounded_up_to_whole_rounds_grow_none_the_less():
    pace, lengths = StepsPerCall(None, lambda seconds: seconds), []
    for _ in range(4):
        steps = -(-pace.next(None) // 16) * 16
        lengths.append(steps)
        pace.after_call(steps, 0.01 * steps)
    assert lengths == [16, 64, 112, 112]
