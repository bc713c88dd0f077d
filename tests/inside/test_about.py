"""The record of a script's fit, whatever its model was compiled with."""

import json

import keras
import pytest

from cluster_trainer.fits.script.about import about, asked_of
from cluster_trainer.results.about_file import AboutFile
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.job import Job
from cluster_trainer.settings.task import Task


@pytest.fixture
def asked(tmp_path):
    """Return a function that compiles a model and reads its record back from the file."""

    def asked(*compiled, arguments=(), **more):
        entry = keras.Input((4,))
        ends = [keras.layers.Dense(1, name=name)(entry) for name in "pq"]
        model = keras.Model(entry, ends)
        model.compile(*compiled, **more)
        file = AboutFile(tmp_path / "fit-1")
        file.write(asked_of(model, dict(arguments)))
        return json.loads((tmp_path / "fit-1/about.json").read_text(), parse_constant=pytest.fail)

    return asked


class Unnamed(keras.losses.MeanSquaredError):
    @property
    def name(self):
        raise KeyError("no name")

    @name.setter
    def name(self, name):
        pass


class Silent(keras.optimizers.SGD):
    def get_config(self):
        raise KeyError("what is kept elsewhere")


class Unsaved(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (step + 1)


def test_lists_functions_and_objects_are_named(asked):
    def own(wanted, said):
        return keras.ops.mean(wanted - said, axis=-1)

    losses = [own, lambda wanted, said: keras.ops.mean(wanted * said, axis=-1)]
    found = asked("adam", losses, metrics=[["mae"], [own, keras.metrics.MeanSquaredError("m")]])
    assert found["loss"] == ["own", "<lambda>"]
    assert found["metrics"] == [["mae"], ["own", "m"]]
    assert found["weighted_metrics"] is None


def test_a_loss_without_a_name_is_that_of_its_type(asked):
    assert asked("sgd", [Unnamed(), "mse"])["loss"] == ["Unnamed", "mse"]


@pytest.mark.parametrize("given", [Silent(0.1), keras.optimizers.SGD(Unsaved())])
def test_an_optimizer_that_says_nothing_of_itself_is_that_of_its_type(asked, given):
    assert asked(given, "mse")["optimizer"] == {"class_name": type(given).__name__}


def test_an_optimizer_within_another_and_its_schedule_are_told(asked):
    rate = keras.optimizers.schedules.CosineDecay(0.5, decay_steps=100)
    found = asked(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(rate)), "mse")
    inner = found["optimizer"]["config"]["inner_optimizer"]
    assert inner["class_name"] == "Adam"
    assert inner["config"]["learning_rate"]["class_name"] == "CosineDecay"
    assert inner["config"]["learning_rate"]["config"]["decay_steps"] == 100


def test_what_fit_is_given_is_told_but_for_the_data(asked):
    found = asked("sgd", "mse", loss_weights=[1.0, 0.5], arguments={"x": object(), "epochs": 7})
    assert (found["loss_weights"], found["epochs"]) == ([1.0, 0.5], 7)
    assert "x" not in found
    assert asked("sgd", "mse", arguments={"validation_steps": 3})["epochs"] == 1


def test_a_model_that_is_not_built_has_no_number_of_weights(tmp_path):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    job = Job(TrainerConfig(run_dir=tmp_path), Task(num_workers=3), image={"revision": "abc"})
    found = about(job, model, asked_of(model, {}), {"the batch size": "8", "of a pass": "None"})
    assert found["fit"]["weights"] is None
    assert found["fit"]["data"] == {"the batch size": "8"}
    assert found["workers"] == 3
    assert found["versions"]["revision"] == "abc"
