"""A comparison of data leaves all generators as they were, and takes no other draws back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.engine.data import pipelines, same_data
from cluster_trainer.engine.first_batch import random_draws
from conftest import strategy_of


class Alone:
    """Workers that have all found the same."""

    count = rank = 1

    def gather(self, number, what):
        del what
        return [number]


class Draws:
    """A source that draws when it is read, or beside which another thread draws."""

    doubtful = ()
    calls_users = True

    def __init__(self, asks_users):
        self.asks_users = asks_users

    def end_pass(self):
        """Read nothing ahead."""

    def found(self):
        return {"drawn": str(np.random.random())}  # noqa: NPY002  users draw from it


@pytest.mark.parametrize("asks_users", [True, False])
def test_only_what_users_code_draws_is_taken_back(asks_users):
    np.random.seed(1)  # noqa: NPY002
    first, second = np.random.random(2)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    same_data.refuse_others(Alone(), Draws(asks_users), {}, "fit")
    assert np.random.random() == (first if asks_users else second)  # noqa: NPY002


def test_nothing_is_taken_back_while_threads_read_another_source():
    training, validation = Draws(asks_users=True), Draws(asks_users=True)
    same_data.note_reading(training)
    np.random.seed(1)  # noqa: NPY002
    _, second = np.random.random(2)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    same_data.refuse_others(Alone(), validation, {}, "evaluate")
    assert np.random.random() == second  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    tf.random.set_seed(1)
    with random_draws.alike():
        np.random.random()  # noqa: NPY002
        assert (tf.random.uniform([3]) != tf.random.uniform([3])).numpy().all()
    assert np.random.random() == second  # noqa: NPY002


HOOKS = {
    "fit": "on_train_batch_end",
    "evaluate": "on_test_batch_end",
    "predict": "on_predict_batch_end",
}


class Rows(keras.utils.PyDataset):
    """Two batches."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)


@pytest.mark.usefixtures("keeps_nothing")
def test_data_are_noted_as_long_as_they_are_read():
    """An epoch of one batch ends within a pass, whose rest is read ahead."""
    before, noted = {*same_data._read_now}, []  # noqa: SLF001
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    between = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: noted.append({*same_data._read_now} - before)  # noqa: SLF001
    )
    data = Rows(workers=2)
    model.fit(data, epochs=2, steps_per_epoch=1, verbose=0, callbacks=[between])
    assert list(map(len, noted)) == [1, 0]
    noted.clear()
    model.fit(data, epochs=2, verbose=0, callbacks=[between])
    assert list(map(len, noted)) == [0, 0]


class Examples:
    """A source of single examples, whose batches are endless in a fit."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.ones(2, np.float32), np.ones(1, np.float32)


@pytest.fixture
def read_now(monkeypatch):
    """The sources that are being read, kept alive as Keras's own objects may keep them."""
    sources = set()
    monkeypatch.setattr(same_data, "_read_now", sources)
    return sources


def in_two_shares():
    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


@pytest.mark.usefixtures("keeps_nothing")
@pytest.mark.parametrize("call", HOOKS)
@pytest.mark.parametrize("data", [Rows, Examples])
def test_no_source_is_noted_after_a_call(call, data, read_now):
    getattr(in_two_shares(), call)(data(), batch_size=None if data is Rows else 4, verbose=0)
    assert not read_now


@pytest.mark.usefixtures("keeps_nothing")
@pytest.mark.parametrize("call", HOOKS)
@pytest.mark.parametrize("data", [Rows, Examples])
def test_no_source_is_noted_after_a_call_that_fails(call, data, read_now):
    def fail(*_, **__):
        raise ArithmeticError

    failing = keras.callbacks.Callback()
    setattr(failing, HOOKS[call], fail)
    size = None if data is Rows else 4
    with pytest.raises(ArithmeticError):
        getattr(in_two_shares(), call)(data(), batch_size=size, verbose=0, callbacks=[failing])
    assert not read_now


def of_python(number):
    return tf.numpy_function(lambda one: one, [number], tf.int64)


NUMBERS = tf.data.Dataset.range(4)


@pytest.mark.parametrize(
    ("pipeline", "calls"),
    [
        (NUMBERS.map(lambda one: one + 1).shuffle(2, seed=1).batch(2).repeat(), False),
        (NUMBERS.interleave(NUMBERS.take).filter(lambda one: one > 0), False),
        (NUMBERS.map(of_python).batch(2), True),
        (NUMBERS.filter(lambda one: of_python(one) > 0), True),
        (NUMBERS.flat_map(lambda _: NUMBERS.map(of_python)), True),
        (tf.data.Dataset.zip((NUMBERS, NUMBERS.map(of_python))), True),
        (
            tf.data.Dataset.from_generator(range, args=[4], output_signature=NUMBERS.element_spec),
            True,
        ),
    ],
)
def test_only_a_pipeline_that_calls_python_may_draw_meanwhile(pipeline, calls):
    """For any other, the draws of a comparison of a validation's data are taken back."""
    assert pipelines.calls_python(pipeline) == calls
