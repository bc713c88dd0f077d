import keras
import pytest
import tensorflow as tf

from cluster_trainer.loop import Loop
from cluster_trainer.pace import Pace, next_steps
from cluster_trainer.problems import StopRequestedError
from cluster_trainer.stall import Deadline, StallLimit
from cluster_trainer.stop import StopRequest


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


def pace_of(loop, steps_per_call, stop=None):
    stall = StallLimit(Deadline(), "auto")
    return Pace(loop, steps_per_call, stop or StopRequest(print), stall)


def run(pace, steps):
    calls, done = [], []

    def function(_batches, count):
        calls.append(int(count))
        return count

    pace.run(function, None, steps, done.append)
    return calls, done


def test_runs_exactly_the_steps_it_is_given(loop):
    calls, done = run(pace_of(loop, "auto"), 100)
    assert sum(calls) == done[-1] == 100
    assert calls[0] == 1


def test_training_and_evaluation_have_a_pace_each(loop):
    """Steps of the one may take far longer than those of the other: a stop could not wait."""
    pace = pace_of(loop, "auto")
    training, testing = [], []

    def train(_batches, count):
        training.append(int(count))
        return count

    def evaluate(_batches, count):
        testing.append(int(count))
        return count

    pace.run(train, None, 500, print)
    pace.run(evaluate, None, 4, print)
    pace.run(train, None, 300, print)
    assert testing[0] == 1
    assert training[-1] == 300  # as long as before


def test_a_fixed_number_of_steps_a_call_is_kept(loop):
    calls, _ = run(pace_of(loop, 30), 100)
    assert calls == [30, 30, 30, 10]


def test_a_stop_request_ends_the_run_after_the_present_call(loop):
    stop = StopRequest(print)
    pace = pace_of(loop, 10, stop)
    stop.signal_number = 15
    calls, done = run(pace, 100)
    assert calls == [10]
    assert done == [10]  # whoever keeps a checkpoint now knows of which step
    with pytest.raises(StopRequestedError) as error:
        pace.raise_if_stopped()
    assert error.value.signal_number == 15


def test_nobody_stops_without_a_request(loop):
    pace = pace_of(loop, 10)
    run(pace, 100)
    pace.raise_if_stopped()


def test_the_workers_meet_at_the_end_whatever_was_asked(loop):
    stop = StopRequest(print)
    pace = pace_of(loop, 10, stop)
    stop.signal_number = 15
    pace.meet()
