"""A script's own functions, traced in one step and called in another."""

import keras
import pytest
import tensorflow as tf

from cluster_trainer.engine.replicas import step_context
from cluster_trainer.problems import ConfigurationError
from conftest import strategy_of

STRATEGY = strategy_of(2)


def in_step(function, weight, **kind):
    """Call a function on both replicas of a newly traced step."""

    def on_replica():
        with step_context.computing(tf.constant(weight), **kind):
            return function()

    step = tf.function(lambda: STRATEGY.run(on_replica), autograph=False)
    return STRATEGY.experimental_local_results(step())


def test_a_function_has_the_weight_of_the_step_that_calls_it():
    @tf.function
    def inner():
        share = step_context.current()
        return tf.cond(share.has_examples, lambda: share.weight, lambda: -1.0)

    assert in_step(inner, 0.25)[0] == 0.25
    assert in_step(tf.function(lambda: inner() + 1), 0.75)[0] == 1.75
    assert in_step(inner, 0.0)[0] == -1


def made():
    """Return weights with the value 1, their optimizer, and a function that subtracts 0.5."""
    with STRATEGY.scope():
        weights = keras.Variable([1.0])
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build([weights])

    @tf.function
    def update():
        optimizer.apply([tf.ones([1])], [weights])
        return 0

    return weights, optimizer, update


def test_a_function_that_was_traced_without_sums_is_not_called_where_workers_sum():
    """TensorFlow traces again in another kind of step, unless the script holds one trace."""
    _, _, update = made()
    traces = []
    in_step(lambda: traces.append(update.get_concrete_function()), 0.5, is_own_step=True)
    with pytest.raises(ConfigurationError, match="TRAINER_SYNC_EVERY"):
        in_step(traces[0], 0.5)


def test_a_function_of_a_step_that_is_only_traced_applies_gradients_later():
    weights, optimizer, update = made()

    def only_traced():
        step_context.current().applies = False
        optimizer.apply([tf.ones([1])], [weights])
        return update()

    in_step(only_traced, 0.5, is_own_step=True)  # outside of tests, it is only traced
    assert weights.numpy() == [0.5]
    in_step(update, 0.5, is_own_step=True)
    assert weights.numpy() == [0.0]
