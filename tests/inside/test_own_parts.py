"""A script's own parts in `fit` are used as they are, refused, or reported as unused."""

import json
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from noise import pictures, relative_difference

from cluster_trainer import fit
from cluster_trainer.data import registry
from cluster_trainer.problems import ConfigurationError
from conftest import quick_first, strategy_of

RUN = {"epochs": 1, "global_batch_size": 16}
EXAMPLES = pictures(60)
DATA = ((EXAMPLES.inputs, EXAMPLES.labels),) * 2
CLASSES = 10


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def result(run_dir):
    return lambda: json.loads((run_dir / "worker-0/result.json").read_text())


def built(kind=keras.Sequential, activation=None):
    layers = keras.layers
    last = layers.Dense(CLASSES, activation=activation)
    parts = [keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(4), last]
    return kind(parts, name="own")


def refused(capfd, *arguments, **keywords):
    """Return the error output of a `fit` that ends with 78."""
    with pytest.raises(SystemExit) as ended:
        fit(*arguments, **keywords)
    assert ended.value.code == 78
    return capfd.readouterr().err


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_train_step_of_ones_own_is_called(replicas):
    class Counting(keras.Sequential):
        steps = 0

        def train_step(self, data):
            Counting.steps += 1
            return super().train_step(data)

    with strategy_of(replicas).scope():
        model = built(Counting)
    fit(model, DATA, **RUN)
    assert Counting.steps


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_compiled_model_is_trained_as_it_was_compiled(result, replicas):
    with strategy_of(replicas).scope():
        model = built()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="own_loss")
        model.compile("rmsprop", loss, metrics=[keras.metrics.SparseTopKCategoricalAccuracy(3)])
    (epoch,) = fit(model, DATA, **RUN)
    assert result()["optimizer"]["class_name"] == "RMSprop"
    assert result()["loss"] == "own_loss"
    name = "test_sparse_top_k_categorical_accuracy"
    assert getattr(epoch, name) == result()["metrics"][name]
    assert result()["settings"]["metrics"] == "the script's own"


@pytest.mark.long
def test_xla_compiles_a_model_that_is_not_compiled_where_fit_is_asked_to(result):
    model = built()
    fit(model, DATA, jit=True, **RUN)
    assert model.jit_compile
    assert result()["settings"]["jit"] is True


def test_a_compiled_model_has_its_own_way_with_xla(capfd, monkeypatch):
    model = built()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert "jit: received" in refused(capfd, model, DATA, jit=True, **RUN)
    monkeypatch.setenv("TRAINER_JIT", "true")
    fit(model, DATA, **RUN)
    assert not model.jit_compile
    assert "not used: TRAINER_JIT" in capfd.readouterr().out


def test_a_compiled_model_is_compiled_again_if_fit_is_given_other_parts(result, capfd):
    model = built()
    model.compile("rmsprop", "mse")
    fit(model, DATA, optimizer="sgd", **RUN)
    assert "compiled again" in capfd.readouterr().out
    assert result()["optimizer"]["class_name"] == "SGD"


def trained(replicas, folder, activation=None, **given):
    """Return the weights and the loss of one epoch of SGD."""
    keras.utils.set_random_seed(1)
    with strategy_of(replicas).scope():
        model = built(activation=activation)
        optimizer = keras.optimizers.SGD(0.05)
    (epoch,) = fit(model, DATA, optimizer=optimizer, run_dir=folder, **given, **RUN)
    return model.get_weights(), epoch.loss


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The weights and the loss of one device with the trainer's own loss."""
    return trained(1, tmp_path_factory.mktemp("expected"))


def in_logits(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def of_ones_own(labels, outputs):
    return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)


@keras.saving.register_keras_serializable("test_own_parts")
class OwnLoss(keras.losses.Loss):
    def call(self, labels, outputs):
        return of_ones_own(labels, outputs)


LOSSES = {
    "object": in_logits,
    "mean-with-weights": lambda: in_logits(reduction="mean_with_sample_weight"),
    "own-class": OwnLoss,
    "function": lambda: of_ones_own,
}


@pytest.mark.parametrize(
    "name",
    quick_first(
        1,
        [
            *("mean-with-weights", "function"),
            *("object", "own-class"),
        ],
    ),
)
def test_any_form_of_a_loss_trains_as_on_one_device(expected, run_dir, name):
    weights, loss = trained(2, run_dir, loss=LOSSES[name]())
    assert loss == pytest.approx(expected[1], rel=1e-4)
    assert relative_difference(expected[0], weights) < 1e-4


@pytest.mark.long
def test_a_model_that_ends_in_a_softmax_is_for_a_loss_of_probabilities(expected, run_dir):
    name = "sparse_categorical_crossentropy"
    weights, loss = trained(2, run_dir, activation="softmax", loss=name)
    assert loss == pytest.approx(expected[1], rel=1e-3)
    assert relative_difference(expected[0], weights) < 1e-3


REFUSED = {
    "probabilities-of-logits": ("sparse_categorical_crossentropy", None, "from_logits=True"),
    "logits-of-probabilities": (in_logits(), "softmax", "softmax"),
    "trainers-own-of-probabilities": (None, "softmax", "softmax"),
    "unknown": ("crossentropi", None, "crossentropi"),
}


@pytest.mark.parametrize(("loss", "activation", "said"), REFUSED.values(), ids=REFUSED)
def test_a_loss_that_cannot_be_right_is_refused(capfd, result, loss, activation, said):
    problem = refused(capfd, built(activation=activation), DATA, loss=loss, **RUN)
    assert said in problem
    assert "accepted: " in problem
    assert result()["status"] == "failed"


def regression():
    with strategy_of(2).scope():
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


NUMBERS = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
TARGETS = NUMBERS[:, :2] * 2
FEEDS = {
    "arrays": lambda: (NUMBERS, TARGETS),
    "weights": lambda: (NUMBERS, TARGETS, np.ones(50)),
    "dataset": lambda: tf.data.Dataset.from_tensor_slices((NUMBERS, TARGETS)).batch(16),
}


@pytest.mark.parametrize("name", quick_first(1, ["arrays", "weights", "dataset"]))
def test_what_is_no_classification_is_learnt_too(result, name):
    make = FEEDS[name]
    run = {
        "epochs": 3,
        "learning_rate": 0.1,
        "learning_rate_schedule": "constant",
    }
    with strategy_of(2).scope():
        metrics = [keras.metrics.MeanAbsoluteError(name="mae")]
    history = fit(regression(), (make(), make()), loss="mse", metrics=metrics, **run)
    assert history[-1].test_loss < history[0].test_loss
    assert history[-1].test_mae == result()["metrics"]["test_mae"]
    assert [epoch.epoch for epoch in history] == [1, 2, 3]


def test_there_may_be_nothing_to_evaluate_on(result):
    (epoch,) = fit(regression(), ((NUMBERS, TARGETS), None), loss="mse", epochs=1)
    assert not hasattr(epoch, "test_loss")
    assert "test_loss" not in result()["metrics"]


def test_labels_that_are_no_classes_need_a_loss(capfd):
    assert "labels are not classes" in refused(capfd, regression(), ((NUMBERS, TARGETS), None))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threads": 2}, 'threads: received "2"; accepted: an argument of start_strategy'),
        ({"strategy": "mirrored"}, "start_strategy"),
        ({"logical_cpus": 2}, "start_strategy"),
        ({"stop_seconds": 20}, "STOP_GRACE_SECONDS"),
        ({"learning_rate": 0.1, "optimizer": "sgd"}, "learning_rate: received"),
        ({"jit": "maybe"}, "TRAINER_JIT (--jit)"),
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
