"""The optimizer, the loss and the metrics that the settings name."""

import sys
import types

import keras
import numpy as np
import pytest
from noise import pictures

from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.data.run_length import RunLength
from cluster_trainer.models import build
from cluster_trainer.models.compiling import build_optimizer, compile_as_set, loss_of, metrics_of
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.names.compiling import OPTIMIZERS

PLAN = RunLength(epochs=10, steps_per_epoch=10, global_batch_size=128)
CLASSES = DataSet("classes", pictures(4), pictures(4), 10)
NUMBERS = Examples(np.zeros([4, 3], np.float32), np.zeros([4, 2], np.float32))
TARGETS = DataSet("targets", NUMBERS, NUMBERS)


@pytest.fixture
def own(monkeypatch):
    module = types.ModuleType("own_parts")
    monkeypatch.setitem(sys.modules, "own_parts", module)
    return module


@pytest.fixture
def config(tmp_path):
    def of(**settings):
        known = {name: value for name, value in settings.items() if ":" not in str(value)}
        given = TrainerConfig(run_dir=tmp_path, **known)
        return given.model_copy(update=settings)  # a module that exists only here is not known

    return of


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
def test_the_rate_rises_and_then_goes_its_way(config, settings, at):
    rates = {}
    optimizer = build_optimizer(config(optimizer="sgd", learning_rate=0.1, **settings), PLAN)
    for step in at:
        optimizer.iterations.assign(step)
        rates[step] = float(optimizer.learning_rate)
    assert rates == pytest.approx(at, abs=1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_name_is_an_optimizer_of_keras(config, name):
    settings = config(optimizer=name, learning_rate=0.5, learning_rate_schedule="constant")
    optimizer = build_optimizer(settings, PLAN)
    assert type(optimizer).__name__.lower() == name.replace("momentum", "sgd")
    assert float(optimizer.learning_rate) == 0.5
    assert getattr(optimizer, "momentum", 0) == (0.9 if name == "momentum" else 0)


def test_float16_gets_a_loss_scale(config):
    optimizer = build_optimizer(config(precision="float16"), PLAN)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def test_an_optimizer_of_ones_own_is_told_the_learning_rate(config, own):
    own.make = lambda rate: keras.optimizers.SGD(rate, nesterov=True)
    optimizer = build_optimizer(config(optimizer="own_parts:make", learning_rate=0.25), PLAN)
    assert optimizer.nesterov
    assert float(optimizer.learning_rate) == 0.25


def test_what_makes_no_optimizer_is_refused(config, own):
    own.make = lambda _rate: "sgd"
    with pytest.raises(ConfigurationError, match=r"TRAINER_OPTIMIZER.*own_parts:make.*returned"):
        build_optimizer(config(optimizer="own_parts:make"), PLAN)


@pytest.mark.parametrize("settings", [{}, {"lr_scaling": "linear", "warmup_steps": 3}])
def test_a_schedule_needs_to_know_how_long_the_run_is(config, settings):
    with pytest.raises(ConfigurationError, match="TRAINER_STEPS_PER_EPOCH"):
        build_optimizer(config(**settings), RunLength(epochs=3))


def test_a_constant_rate_needs_no_length_of_the_run(config):
    settings = {"learning_rate_schedule": "constant", "learning_rate": 0.5, "warmup_steps": 4}
    optimizer = build_optimizer(config(optimizer="sgd", **settings), RunLength(epochs=3))
    rates = []
    for step in (0, 2, 4, 1000):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    assert rates == pytest.approx([0, 0.25, 0.5, 0.5])


def test_classes_have_a_loss_and_a_metric(config):
    loss = loss_of(config(), CLASSES)
    assert isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    assert loss.from_logits
    assert metrics_of(config(), CLASSES) == ["accuracy"]


def test_other_labels_need_a_loss(config):
    with pytest.raises(ConfigurationError, match=r"TRAINER_LOSS.*labels are not classes"):
        loss_of(config(), TARGETS)
    assert loss_of(config(loss="mse"), TARGETS) == "mse"
    assert metrics_of(config(), TARGETS) == []


def test_losses_and_metrics_of_ones_own(config, own):
    own.Loss, own.metric = keras.losses.Huber, keras.metrics.MeanAbsoluteError(name="own")
    assert isinstance(loss_of(config(loss="own_parts:Loss"), TARGETS), keras.losses.Huber)
    metrics = metrics_of(config(metrics="own_parts:metric,accuracy"), TARGETS)
    assert metrics == [own.metric, "accuracy"]


@pytest.mark.parametrize(
    ("find", "settings"),
    [(loss_of, {"loss": "mze"}), (metrics_of, {"metrics": "accuracy,aucc"})],
)
def test_unknown_names_are_refused(config, find, settings):
    with pytest.raises(ConfigurationError, match=r"mze|aucc"):
        find(config(**settings), CLASSES)


def dense(units, activation=None):
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten()]
    return keras.Sequential([*layers, keras.layers.Dense(units, activation=activation)])


@pytest.mark.parametrize(
    ("model", "said"), [(dense(5), "10 logits"), (dense(10, "softmax"), "leave it out")]
)
def test_a_model_that_is_no_classifier_is_refused(config, model, said):
    with pytest.raises(ConfigurationError, match=said):
        compile_as_set(model, config(), CLASSES, PLAN)


def test_a_model_whose_outputs_are_not_what_its_loss_takes_is_refused(config):
    with pytest.raises(ConfigurationError, match=r"from_logits=True"):
        compile_as_set(dense(10), config(loss="sparse_categorical_crossentropy"), CLASSES, PLAN)


def test_with_a_loss_a_model_may_be_anything(config):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    compile_as_set(model, config(loss="mse", metrics="mae"), TARGETS, PLAN)
    model.train_on_batch(NUMBERS.inputs, NUMBERS.labels)
    assert set(model.get_metrics_result()) == {"loss", "mae"}


@pytest.mark.parametrize("jit", [False, True])
def test_xla_compiles_what_the_settings_say(config, jit):
    model = dense(10)
    compile_as_set(model, config(jit=jit), CLASSES, PLAN)
    assert model.jit_compile is jit


def test_a_compiled_model_stays_as_it_is_and_takes_no_settings(config):
    model = dense(10)
    model.compile("rmsprop", "mse", jit_compile=True)
    compile_as_set(model, config(), CLASSES, PLAN)
    assert isinstance(model.optimizer, keras.optimizers.RMSprop)
    assert model.jit_compile
    settings = config(learning_rate=0.1, loss="mae", jit=False)
    with pytest.raises(ConfigurationError) as refused:
        compile_as_set(model, settings, CLASSES, PLAN)
    for name in ("TRAINER_LEARNING_RATE", "TRAINER_LOSS", "TRAINER_JIT"):
        assert f"{name}" in str(refused.value)
    assert "compiles its model" in str(refused.value)


def test_what_a_function_does_after_the_last_layer_is_not_taken_for_that_layers():
    inputs = keras.Input((4,))
    logits = keras.layers.Dense(3)(inputs)
    models = [keras.Model(inputs, logits), keras.Model(inputs, keras.ops.softmax(logits))]
    activations = [build._last_activation(model) for model in models]  # noqa: SLF001
    assert activations == [keras.activations.linear, None]
