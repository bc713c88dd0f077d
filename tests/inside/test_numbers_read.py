"""A fit resumes only with the same numbers in the script's losses, callbacks and layers."""

import time
from functools import partial, wraps

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.checkpoints.resume import LAYERS_NUMBERS
from cluster_trainer.engine.replicas.metrics.noted_results import with_wrapped_class
from cluster_trainer.fits.identity.numbers_read import of_callbacks, of_one, of_parts
from cluster_trainer.fits.identity.training_description import training_described

ALPHA = 2.0


def logged(function):
    @wraps(function)
    def and_log(*arguments):
        return function(*arguments)

    return and_log


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

    def call(self, y, mine):
        return self.gamma * (y - mine)


class OfAGlobal(keras.losses.Loss):
    def call(self, y, mine):
        return self.scaled(y - mine)

    def scaled(self, value):
        return ALPHA * value


class Trainer:
    """A program's object, whose loss reads one of its numbers through a method."""

    def __init__(self):
        self.alpha, self.rank, self.epochs, self.built = 4.0, 1, 7, True

    def loss(self, y, mine):
        return self.weighted(y - mine)

    def weighted(self, one):
        return self.alpha * one

    def other(self):
        return self.rank


class Timed(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.began, self.number, self.asked, self.share = time.time(), time.time_ns(), 0, 0.5

    def result(self):
        self.asked += 1
        return self.share * (self.began + self.number), self.built, self.dtype


class Decorated(keras.losses.Loss):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    @logged
    @tf.function
    def call(self, y, mine):
        return self.gamma * (y - mine)


class Compiled:
    """A program's object whose loss `tf.function` compiles."""

    def __init__(self):
        self.alpha, self.rank = 13.0, 1

    @tf.function
    def loss(self, y, mine):
        return self.weighted(y - mine)

    @tf.function
    def weighted(self, one):
        return self.alpha * one


COMPILED = Compiled()  # TensorFlow holds it weakly
rate = 3.0


def with_attributes(y, mine):
    """Read the global ALPHA in a comprehension, and no global `rate`."""
    return [ALPHA * one.rate for one in (y, mine)]


def counting():
    calls = 0

    def loss(y, mine):
        nonlocal calls
        calls += 1
        return y - mine

    return loss


@pytest.mark.parametrize(
    ("thing", "number"),
    [
        (closing(3.0), 3.0),
        (of_a_global, ALPHA),
        (partial(with_delta, delta=5.0), 5.0),
        (Own(7.0), 7.0),
        (Own(9.0).call, 9.0),
        (OfAGlobal(), ALPHA),
        (Decorated(11.0), 11.0),
        (tf.function(closing(3.0)), 3.0),
        (logged(of_a_global), ALPHA),
        (tf.function(Own(9.0).call), 9.0),
        (Decorated(11.0).call, 11.0),
        (closing([1.0, 2.0]), [1.0, 2.0]),
        (closing(np.array([1, 2])), [1, 2]),
        (closing(tf.constant([1.0])), [1.0]),
    ],
    ids=[
        *("closure", "global", "partial", "object", "method", "global of an object"),
        *("decorated", "tf.function", "decorator", "tf.function of a method", "decorated method"),
        *("list", "array", "tensor"),
    ],
)
def test_a_number_is_found_wherever_a_loss_has_it(thing, number):
    assert number in of_one(thing).values()


@pytest.mark.parametrize(
    "thing", [None, "mse", keras.losses.mean_squared_error, keras.losses.Huber(delta=2.0)]
)
def test_keras_own_losses_have_their_numbers_in_the_configuration(thing):
    assert of_one(thing) == {}


@pytest.mark.parametrize(
    ("thing", "numbers"),
    [
        (Trainer().loss, {"alpha": 4.0}),
        (COMPILED.loss, {"alpha": 13.0}),
        (partial(COMPILED.loss), {"alpha": 13.0}),
        (tf.function(COMPILED.loss), {"alpha": 13.0}),
        (Compiled().loss, {}),
        (Timed(), {"share": 0.5}),
        (with_attributes, {"ALPHA": ALPHA}),
        (counting(), {}),
        (closing(time.time()), {}),
        (closing(keras.Variable(1.0)), {}),
    ],
    ids=[
        *(
            "method",
            "compiled method",
            "partial of it",
            "compiled twice",
            "of an object that is gone",
        ),
        *("metric", "attributes", "counter", "time", "variable"),
    ],
)
def test_nothing_counts_that_is_not_read_or_differs_at_each_start(thing, numbers):
    assert of_one(thing) == numbers


def test_a_metrics_numbers_count_also_after_the_engine_has_wrapped_its_class():
    with_wrapped_class(lambda *_: None)(Timed())
    assert hasattr(Timed.result, "__wrapped__")
    assert of_one(Timed()) == {"share": 0.5}


class Lazy:
    """Returns itself for any attribute, as proxies do."""

    def __getattr__(self, name):
        return self


def test_an_object_with_any_attribute_is_no_decorated_function():
    assert of_one(Lazy()) == {}


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
    for name, other in [("patience", 4), ("mode", "max"), ("min_delta", np.float64(0.1))]:
        was = getattr(stop, name)
        setattr(stop, name, other)
        assert of_callbacks(callbacks) != before, name
        setattr(stop, name, was)


def test_the_sign_that_keras_gives_min_delta_is_no_other_number():
    told = [of_callbacks([stopping(sign)]) for sign in (1, -1)]
    assert told[0] == told[1]
    assert of_callbacks([stopping(1, baseline=-0.5)]) != of_callbacks([stopping(1, baseline=0.5)])


def stopping(sign, baseline=None):
    stop = keras.callbacks.EarlyStopping("loss", baseline=baseline)
    stop.min_delta = sign * np.int64(2)
    return stop


class Scaled(keras.layers.Layer):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, inputs):
        return self.factor * inputs


def square(factor):
    return lambda one: factor * one**2


def model_of(*layers):
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    "layer",
    [
        lambda number: keras.layers.Dense(1, activation=closing(number)),
        lambda number: keras.layers.Dense(1, kernel_regularizer=square(number)),
        Scaled,
        lambda number: keras.Sequential([Scaled(number)]),
    ],
    ids=["activation", "regularizer", "own", "within"],
)
def test_numbers_that_layers_read_are_those_of_a_resumed_fit(layer):
    first, other = (training_described(model_of(layer(number)), {}) for number in (2.0, 3.0))
    assert first[LAYERS_NUMBERS] != other[LAYERS_NUMBERS]
    assert first == training_described(model_of(layer(2.0)), {})


def test_a_lambda_may_move_within_its_file():
    texts = ["found = lambda one: 2 * one", "\n\nfound = lambda one: 2 * one"]
    found = []
    for text in texts:
        names = {}
        exec(compile(text, "train.py", "exec"), names)
        layer = keras.layers.Dense(1, activation=names["found"])
        found.append(training_described(model_of(layer), {}))
    assert found[0] == found[1]
