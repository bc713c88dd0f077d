"""The numbers that a script's losses and callbacks decide by are those of a resumed fit."""

from functools import partial

import keras
import pytest

from cluster_trainer.fits.identity.numbers_read import of_callbacks, of_one, of_parts

ALPHA = 2.0


def closing(over):
    return lambda y, mine: over * (y - mine)


def of_a_global(y, mine):
    return ALPHA * (y - mine)


def with_delta(y, mine, delta=1.0):
    return y - mine + delta


class Own(keras.losses.Loss):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma


@pytest.mark.parametrize(
    ("thing", "number"),
    [
        (closing(3.0), 3.0),
        (of_a_global, ALPHA),
        (partial(with_delta, delta=5.0), 5.0),
        (Own(7.0), 7.0),
        (Own(9.0).call, 9.0),
    ],
    ids=["a closure", "a global", "a partial", "an object", "a method"],
)
def test_a_number_is_found_wherever_a_loss_has_it(thing, number):
    assert number in of_one(thing).values()


@pytest.mark.parametrize(
    "thing", [None, "mse", keras.losses.mean_squared_error, keras.losses.Huber(delta=2.0)]
)
def test_of_keras_own_the_configuration_says_it(thing):
    assert of_one(thing) == {}


def test_each_part_of_what_is_compiled_counts():
    given = [{"a": closing(1.0), "b": ["mse", closing(2.0)]}, None]
    assert of_parts(given) == [{"over": 1.0}, {"over": 2.0}]


def test_callbacks_that_steer_a_fit_tell_their_arguments_and_not_their_state():
    stop = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=0.5, mode="min")
    callbacks = [stop, keras.callbacks.LearningRateScheduler(closing(0.9))]
    callbacks.append(keras.callbacks.TerminateOnNaN())
    before = of_callbacks(callbacks)
    assert [name for name, _ in before] == ["EarlyStopping", "LearningRateScheduler"]
    stop.set_model(keras.Sequential([keras.Input([1]), keras.layers.Dense(1)]))
    stop.on_train_begin()
    stop.on_epoch_end(0, {"loss": 1.0})
    assert of_callbacks(callbacks) == before
    stop.patience = 4
    assert of_callbacks(callbacks) != before
