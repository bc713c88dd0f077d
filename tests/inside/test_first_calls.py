"""Calls that begin a pass or trace a step are announced, because they have their own limits."""

from contextlib import contextmanager
from dataclasses import replace

import keras
import numpy as np
import tensorflow as tf
from keeping import fits_run_by

from cluster_trainer.engine.running import Order, Watched

ROWS = np.ones((8, 2), np.float32)


def test_the_first_call_of_each_epoch_and_each_trace_are_told():
    told = []

    @contextmanager
    def limit(function, *, is_first):
        told.append((function._name, is_first))  # noqa: SLF001
        yield

    def around(fit, given, call):
        watched = Watched(limit=limit, traces=lambda: told.append("traces"))
        return fit(given, replace(call, watched=watched, order=Order(steps_a_call=1)))

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, :1])).batch(4)
    with fits_run_by(around):
        model.fit(data, epochs=2, verbose=0, validation_data=(ROWS[:4], ROWS[:4, :1]))
    first, later = [("training", True), ("training", False)], [("evaluation", True)]
    traced = [first[0], "traces", first[1], later[0], "traces"]
    assert told == [*traced, *first, *later]


def test_a_line_of_progress_tells_how_many_batches_there_were(capsys):
    """The number is unknown before, and the last call of many steps ends early."""

    def rows():
        yield from ((ROWS[:4], ROWS[:4, :1]) for _ in range(20))

    specs = (tf.TensorSpec((4, 2)), tf.TensorSpec((4, 1)))
    data = tf.data.Dataset.from_generator(rows, output_signature=specs)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with fits_run_by(lambda fit, given, call: fit(given, call)):
        model.fit(data, epochs=2, verbose=2)
    model.evaluate(data, verbose=2)
    assert capsys.readouterr().out.count("20/20") == 3
