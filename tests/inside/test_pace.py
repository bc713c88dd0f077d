import keras
import pytest
import tensorflow as tf

from trainer.loop import Loop
from trainer.pace import Pace, next_steps
from trainer.problems import StopRequestedError
from trainer.stop import StopRequest


@pytest.mark.parametrize(
    ("steps", "seconds", "following"),
    [(1, 0.001, 4), (4, 0.04, 16), (64, 1.28, 50), (10, 20.0, 1), (1, 0.0, 4), (1, 300.0, 1)],
)
def test_calls_grow_to_about_a_second(steps, seconds, following):
    assert next_steps(steps, seconds) == following


@pytest.fixture
def loop():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    return Loop(tf.distribute.get_strategy(), model, keras.optimizers.SGD())


def run(pace, steps):
    calls, done = [], []

    def function(_batches, count):
        calls.append(int(count))
        return count

    pace.run(function, None, steps, done.append)
    return calls, done


def test_runs_exactly_the_steps_it_is_given(loop):
    calls, done = run(Pace(loop, "auto", StopRequest(print)), 100)
    assert sum(calls) == done[-1] == 100
    assert calls[0] == 1


def test_a_fixed_number_of_steps_a_call_is_kept(loop):
    calls, _ = run(Pace(loop, 30, StopRequest(print)), 100)
    assert calls == [30, 30, 30, 10]


def test_a_stop_request_ends_the_run_after_the_present_call(loop):
    stop = StopRequest(print)
    pace = Pace(loop, 10, stop)
    stop.signal_number = 15
    calls = []
    with pytest.raises(StopRequestedError) as error:
        pace.run(lambda _, count: calls.append(count) or count, None, 100, lambda _: None)
    assert len(calls) == 1
    assert error.value.signal_number == 15
