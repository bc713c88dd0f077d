"""Uses of Keras that are not supported on JAX are refused, with all problems at once."""

import inspect

import keras
import numpy as np
import pytest

from cluster_trainer.on_jax import refusals
from cluster_trainer.on_jax.steps.agreement import refuse_other_programs
from cluster_trainer.on_jax.workers.cluster import JaxWorkers
from cluster_trainer.private import keras_jax_names
from cluster_trainer.problems import ConfigurationError


def given(**options):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return inspect.signature(type(model).fit).bind(model)


def test_accepts_what_keras_compiles_by_default():
    refusals.refuse_fit(given(), several=True)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"run_eagerly": True}, "compile"),
        ({"jit_compile": False}, "compile"),
        ({"steps_per_execution": 4}, "steps_per_execution"),
    ],
)
def test_refuses_a_model_that_is_compiled_so(options, name):
    with pytest.raises(ConfigurationError) as error:
        refusals.refuse_fit(given(**options), several=False)
    assert [one.name for one in error.value.problems] == [name]


def test_names_all_that_is_in_the_way():
    with pytest.raises(ConfigurationError) as error:
        refusals.refuse_fit(given(run_eagerly=True, steps_per_execution=4), several=True)
    assert [one.name for one in error.value.problems] == ["compile", "steps_per_execution"]


def test_refuses_to_shuffle_batches_only():
    x = np.zeros((4, 2))
    adapter = keras_jax_names.get_data_adapter(x=x, y=x, shuffle="batch")
    with pytest.raises(ConfigurationError):
        refusals.refuse_data(adapter, shuffle="batch")
    refusals.refuse_data(adapter, shuffle=True)


def test_refuses_data_of_another_kind():
    class OtherAdapter(keras_jax_names.DataAdapter):
        pass

    with pytest.raises(ConfigurationError):
        refusals.refuse_data(OtherAdapter(), shuffle=False)


def test_refuses_a_step_that_compiles_otherwise_than_at_an_earlier_start():
    alone = JaxWorkers(None, 1, 0)
    refuse_other_programs(alone, "a", None)
    refuse_other_programs(alone, "a", "a")
    with pytest.raises(ConfigurationError):
        refuse_other_programs(alone, "a", "b")
