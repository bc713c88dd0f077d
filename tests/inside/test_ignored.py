"""What a user's model or call brings along and the loop would ignore: refused, or said."""

import json
import sys
import types

import keras
import pytest
from test_loop import pictures

from cluster_trainer import fit
from cluster_trainer.build import build_model
from cluster_trainer.config import TrainerConfig
from cluster_trainer.data import registry
from cluster_trainer.data.examples import DataSet
from cluster_trainer.problems import ConfigurationError

RUN = {"epochs": 1, "global_batch_size": 16}
EXAMPLES = pictures(32)
DATA = ((EXAMPLES.inputs, EXAMPLES.labels),) * 2


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    return tmp_path


def own_class(**methods):
    """Return a class of models with methods of its own."""
    return type("OwnModel", (keras.Sequential,), methods)


def built(kind=keras.Sequential, dtype=None):
    layers = keras.layers
    inner = layers.Dense(4, dtype=dtype)
    return kind([keras.Input((28, 28, 1)), layers.Flatten(), inner, layers.Dense(10)], name="own")


def refused(capfd, *arguments, **keywords):
    """Return what is said where `fit` ends with 78."""
    with pytest.raises(SystemExit) as ended:
        fit(*arguments, **keywords)
    assert ended.value.code == 78
    return capfd.readouterr().err


METHODS = ["train_step", "test_step", "compute_loss", "compute_metrics", "fit", "evaluate"]


@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_training_of_its_own_is_refused_in_a_script(capfd, method):
    model = built(own_class(**{method: lambda *_: {}}))
    assert f"has a {method} of its own" in refused(capfd, model, DATA, **RUN)


@pytest.mark.xfail(
    strict=True, raises=SystemExit, reason="the loop is not Keras' fit and calls no train_step"
)
def test_a_train_step_of_ones_own_is_called():
    class Counting(keras.Sequential):
        steps = 0

        def train_step(self, data):
            Counting.steps += 1
            return super().train_step(data)

    fit(built(Counting), DATA, **RUN)
    assert Counting.steps


def test_and_as_a_setting(monkeypatch, tmp_path):
    own = types.ModuleType("own_model")
    own.build = lambda *_: built(own_class(train_step=lambda *_: {}))
    monkeypatch.setitem(sys.modules, "own_model", own)
    config = TrainerConfig(run_dir=tmp_path).model_copy(update={"model": "own_model:build"})
    with pytest.raises(ConfigurationError, match="OwnModel has a train_step of its own"):
        build_model(config, DataSet("noise", EXAMPLES, EXAMPLES, 10))


def test_a_class_with_layers_of_its_own_is_none(run_dir):
    fit(built(own_class(call=keras.Sequential.call)), DATA, **RUN)
    assert json.loads((run_dir / "worker-0/result.json").read_text())["status"] == "done"


def test_what_a_model_was_compiled_with_is_said_to_be_unused(capfd):
    model = built()
    model.compile("rmsprop", "mse", metrics=["accuracy"])
    fit(model, DATA, **RUN)
    (line,) = [line for line in capfd.readouterr().out.splitlines() if "compiled" in line]
    assert "WARNING" in line
    assert "RMSprop" in line
    assert "mse" in line


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the loop takes optimizer and loss from elsewhere"
)
def test_what_a_model_was_compiled_with_is_used(run_dir):
    model = built()
    model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(model, DATA, **RUN)
    result = json.loads((run_dir / "worker-0/result.json").read_text())
    assert result["optimizer"]["class_name"] == "RMSprop"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threads": 2}, 'threads: received "2"; accepted: an argument of start_strategy'),
        ({"strategy": "mirrored"}, "start_strategy"),
        ({"logical_cpus": 2}, "start_strategy"),
        ({"stop_seconds": 20}, "STOP_GRACE_SECONDS"),
        ({"learning_rate": 0.1, "optimizer": "sgd"}, "learning_rate: received"),
        ({"class_weight": {0: 2.0}}, "class_weight: received"),
        ({"image_size": 32}, "TRAINER_IMAGE_SIZE"),
        ({"precision": "bfloat16"}, "float32, which the model computes in"),
    ],
)
def test_an_argument_that_would_do_nothing_is_refused(capfd, settings, said):
    assert said in refused(capfd, built(), DATA, **RUN, **settings)


def test_all_that_is_wrong_with_a_call_comes_in_one_message(capfd):
    said = refused(capfd, built(), DATA, threads=2, epochs=0, callbacks=[])
    assert "3 problems" in said


def test_a_setting_that_an_optimizer_of_ones_own_overrides_is_said_to_be_unused(capfd, monkeypatch):
    monkeypatch.setenv("TRAINER_LEARNING_RATE", "0.1")
    fit(built(), DATA, optimizer="sgd", **RUN)
    warnings = [line for line in capfd.readouterr().out.splitlines() if "WARNING" in line]
    assert any("TRAINER_LEARNING_RATE" in line for line in warnings)


def test_pictures_of_ones_own_function_have_the_size_that_they_have(monkeypatch, tmp_path):
    own = types.ModuleType("own_data")
    own.load = lambda: DATA
    monkeypatch.setitem(sys.modules, "own_data", own)
    with pytest.raises(ConfigurationError, match=r"TRAINER_IMAGE_SIZE.*own_data:load"):
        registry.load("own_data:load", tmp_path, 64)
