"""The optimizer that the settings name."""

import keras
import pytest

from cluster_trainer import build
from cluster_trainer.build import build_optimizer
from cluster_trainer.config import TrainerConfig

STEPS = 100


@pytest.fixture
def rate_at(tmp_path):
    """The learning rate of a step in a run of 100 steps with a global batch of 128."""

    def at(step, **settings):
        config = TrainerConfig(run_dir=tmp_path, optimizer="sgd", learning_rate=0.1, **settings)
        optimizer = build_optimizer(config, STEPS, 128)
        optimizer.iterations.assign(step)
        return float(optimizer.learning_rate)

    return at


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({"learning_rate_schedule": "constant"}, {0: 0.1, 99: 0.1}),
        ({}, {0: 0.1, 50: 0.05, 100: 0}),
        ({"lr_scaling": "sqrt", "warmup_steps": 0}, {0: 0.2, 50: 0.1, 100: 0}),
        ({"lr_scaling": "linear"}, {0: 0.1, 5: 0.25, 10: 0.4, 55: 0.2, 100: 0}),
        (
            {"lr_scaling": "linear", "learning_rate_schedule": "constant"},
            {0: 0.1, 5: 0.25, 10: 0.4, 99: 0.4},
        ),
        ({"warmup_steps": 20}, {0: 0, 10: 0.05, 20: 0.1, 60: 0.05, 100: 0}),
    ],
)
def test_the_rate_rises_and_then_goes_its_way(rate_at, settings, at):
    assert {step: rate_at(step, **settings) for step in at} == pytest.approx(at, abs=1e-7)


def test_what_a_function_does_after_the_last_layer_is_not_taken_for_that_layers():
    inputs = keras.Input((4,))
    logits = keras.layers.Dense(3)(inputs)
    models = [keras.Model(inputs, logits), keras.Model(inputs, keras.ops.softmax(logits))]
    activations = [build._last_activation(model) for model in models]  # noqa: SLF001
    assert activations == [keras.activations.linear, None]
