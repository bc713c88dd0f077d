"""result.json records the parts that a script has really trained with."""

import json
import sys

import keras
import numpy as np
import pytest
from noise import pictures

from cluster_trainer import fit
from cluster_trainer.fits import process_state
from conftest import strategy_of

RUN = {"epochs": 1, "global_batch_size": 16}
EXAMPLES = pictures(32)
DATA = ((EXAMPLES.inputs, EXAMPLES.labels),) * 2


def built(dtype=None):
    layers = keras.layers
    inner = layers.Dense(4, dtype=dtype)
    parts = [keras.Input((28, 28, 1)), layers.Flatten(), inner, layers.Dense(10)]
    return keras.Sequential(parts, name="own")


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def result(run_dir):
    return lambda: json.loads((run_dir / "worker-0/result.json").read_text())


OF_THE_OPTIMIZER = ["optimizer", "learning_rate", "learning_rate_schedule", "warmup_steps"]


def test_an_optimizer_and_a_loss_of_ones_own(result):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="own_loss")
    fit(built(), DATA, optimizer=keras.optimizers.SGD(0.25, momentum=0.5), loss=loss, **RUN)
    optimizer = result()["optimizer"]
    assert optimizer["class_name"] == "SGD"
    assert optimizer["config"]["learning_rate"] == 0.25
    again = keras.optimizers.deserialize(optimizer)
    assert again.momentum == 0.5
    assert result()["loss"] == "own_loss"
    assert {result()["settings"][name] for name in OF_THE_OPTIMIZER} == {"the script's own"}


def test_the_settings_where_the_script_gives_none(result):
    fit(built(), DATA, learning_rate=0.01, **RUN)
    assert result()["optimizer"]["class_name"] == "Adam"
    assert result()["optimizer"]["config"]["learning_rate"]["class_name"] == "CosineDecay"
    assert result()["loss"] == "sparse_categorical_crossentropy"
    assert result()["settings"]["learning_rate"] == 0.01
    assert result()["settings"]["optimizer"] == "adam"


def test_the_strategy_and_the_precision_of_the_model(result):
    with strategy_of(2).scope():
        model = built(dtype="mixed_float16")
        optimizer = keras.optimizers.SGD(0.25)
    fit(model, DATA, optimizer=optimizer, **RUN)
    assert result()["strategy"] == "MirroredStrategy"
    assert result()["replicas"] == 2
    assert result()["settings"]["precision"] == "float16"
    # In float16 an optimizer gets the loss scale that `compile` would give it.
    assert result()["optimizer"]["class_name"] == "LossScaleOptimizer"


def test_a_run_with_an_optimizer_of_ones_own_may_get_more_epochs(result):
    """No setting decides the learning rate, so no setting depends on the number of epochs."""
    for epochs in (1, 2):
        keras.utils.clear_session()  # each as if in a new process
        process_state.present().folders.clear()
        optimizer = keras.optimizers.SGD(0.25)
        history = fit(built(), DATA, optimizer=optimizer, **(RUN | {"epochs": epochs}))
        assert len(history) == epochs
    assert result()["resumed_from_step"] == 2


def test_the_script_is_named_without_its_arguments(result, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["my/train.py", "--token=secret", "5"])
    fit(built(), DATA, **RUN)
    assert result()["script"] == {"path": "my/train.py", "arguments": 2}


class OwnOptimizer(keras.optimizers.SGD):
    reason = NotImplementedError

    def get_config(self):
        raise self.reason


@pytest.mark.parametrize("reason", [NotImplementedError, KeyError])
def test_an_optimizer_that_cannot_describe_itself_is_named(result, monkeypatch, reason):
    monkeypatch.setattr(OwnOptimizer, "reason", reason)
    fit(built(), DATA, optimizer=OwnOptimizer(0.1), **RUN)
    assert result()["optimizer"] == {"class_name": "OwnOptimizer"}
    assert np.isfinite(result()["metrics"]["loss"])
