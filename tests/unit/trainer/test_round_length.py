"""The number of steps in a round with TRAINER_SYNC_EVERY=auto."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_trainer.process.round_length import MOST, SHARE, Measured, chosen

SECONDS = st.floats(1e-5, 10.0)
RATIOS = st.floats(1.0, 6.0)


def measured(step, in_sum, ratio=1.0, steps=10):
    """Return the measurement of steps that each compute for `step` s and sum for `in_sum` s."""
    return Measured(steps, steps * (step + in_sum), steps * in_sum, ratio)


@given(SECONDS, SECONDS, RATIOS)
def test_it_is_a_power_of_two_up_to_the_bound(step, in_sum, ratio):
    found = chosen(measured(step, in_sum, ratio))
    assert found.steps in {1, 2, 4, 8, 16, 32, 64}
    assert found.steps == min(found.wanted, MOST)


@given(SECONDS, SECONDS, SECONDS, RATIOS)
def test_it_never_falls_as_sums_take_longer(step, one, more, ratio):
    less, greater = (chosen(measured(step, one + add, ratio)) for add in (0.0, more))
    assert less.steps <= greater.steps


@given(SECONDS, SECONDS, RATIOS, RATIOS)
def test_it_never_falls_as_an_average_grows(step, in_sum, one, other):
    less, greater = (chosen(measured(step, in_sum, ratio)) for ratio in sorted((one, other)))
    assert less.steps <= greater.steps


@given(SECONDS, SECONDS, RATIOS)
def test_it_is_the_smallest_at_which_sums_take_little(step, in_sum, ratio):
    one = measured(step, in_sum, ratio)
    found = chosen(one)
    if found.steps == found.wanted:
        assert one.share(found.steps) < SHARE
    if found.steps > 1:
        assert one.share(found.steps // 2) >= SHARE


@pytest.mark.parametrize(
    ("step", "in_sum", "ratio", "steps"),
    [
        (0.1, 0.0, 3.0, 1),
        (0.1, 0.01, 3.0, 1),  # 9 %
        (0.1, 0.012, 3.0, 4),  # 11 %; averages send three times as much
        (0.01, 0.01, 1.0, 16),
        (0.01, 0.01, 3.0, 32),
    ],
)
def test_examples(step, in_sum, ratio, steps):
    assert chosen(measured(step, in_sum, ratio)).steps == steps


def test_it_says_from_what_it_was_chosen_and_how_to_repeat_it():
    words = str(chosen(measured(0.01, 0.04, 1.0, steps=60)))
    assert words.startswith(
        "TRAINER_SYNC_EVERY=auto: 64, because sums of gradients took 80% of 3.0 s"
    )
    assert "(40 ms beside a step of 10 ms)" in words
    assert "in long epochs (each epoch ends with one)" in words
    assert words.endswith("TRAINER_SYNC_EVERY=64 repeats this run")


def test_it_says_that_the_network_would_need_more_than_the_bound():
    words = str(chosen(measured(0.01, 1.0, 3.0)))
    assert "The network would need 4096, but accuracy was compared up to 64 only" in words


def test_it_says_that_training_stays_exact():
    assert str(chosen(measured(0.1, 0.001))).endswith("training is exact")


def test_sums_that_take_all_of_the_time_come_to_an_end():
    assert chosen(Measured(10, 3.0, 4.0, 1.0)).steps == MOST
