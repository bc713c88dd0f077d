"""What a script may give `fit` as its loss: each trains on any number of replicas as on one."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_loop import pictures, relative_difference

from cluster_trainer import fit
from cluster_trainer.losses import cross_entropy, read_loss
from conftest import strategy_of

RUN = {"epochs": 1, "global_batch_size": 16}
DATA = tuple((part.inputs, part.labels) for part in (pictures(60), pictures(30)))
CLASSES = 10


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path))
    return tmp_path


def trained(replicas, folder, activation=None, **given):
    """Return the weights and the loss of one epoch of SGD."""
    keras.utils.set_random_seed(1)
    with strategy_of(replicas).scope():
        layers = [keras.Input((28, 28, 1)), keras.layers.Flatten()]
        last = keras.layers.Dense(CLASSES, activation=activation)
        model = keras.Sequential([*layers, last], name="own")
        optimizer = keras.optimizers.SGD(0.05)
    (epoch,) = fit(model, DATA, optimizer=optimizer, run_dir=folder, **given, **RUN)
    return model.get_weights(), epoch.loss


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one device and the trainer's own loss come to."""
    return trained(1, tmp_path_factory.mktemp("expected"))


def in_logits(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def of_ones_own(labels, outputs):
    return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)


@keras.saving.register_keras_serializable("test_losses")
class OwnLoss(keras.losses.Loss):
    def call(self, labels, outputs):
        return of_ones_own(labels, outputs)


ACCEPTED = {
    "object": in_logits,
    "mean": lambda: in_logits(reduction="mean"),
    "mean-with-weights": lambda: in_logits(reduction="mean_with_sample_weight"),
    "no-reduction": lambda: in_logits(reduction=None),
    "none-by-name": lambda: in_logits(reduction="none"),
    "own-class": OwnLoss,
    "function": lambda: of_ones_own,
    "column": lambda: lambda labels, outputs: of_ones_own(labels, outputs)[:, tf.newaxis],
    "nothing": lambda: None,
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED)
def test_each_form_gives_one_loss_an_example_on_every_replica(make):
    labels = np.array([1, 2, 3])
    outputs = np.random.default_rng(0).normal(size=(3, CLASSES)).astype(np.float32)
    loss = read_loss(make(), CLASSES)
    strategy = strategy_of(2)
    found = strategy.run(lambda: loss(tf.constant(labels), tf.constant(outputs)))
    for losses in strategy.experimental_local_results(found):
        np.testing.assert_allclose(losses, cross_entropy(labels, outputs), rtol=1e-5)


@pytest.mark.parametrize("replicas", [2, 4])
def test_with_a_loss_object_replicas_train_as_one_device_does(expected, run_dir, replicas):
    weights, loss = trained(replicas, run_dir, loss=in_logits())
    assert loss == pytest.approx(expected[1], rel=1e-4)
    assert relative_difference(expected[0], weights) < 1e-4


def test_a_model_that_ends_in_a_softmax_is_for_a_loss_of_probabilities(expected, run_dir):
    name = "sparse_categorical_crossentropy"
    weights, loss = trained(2, run_dir, activation="softmax", loss=name)
    assert loss == pytest.approx(expected[1], rel=1e-3)
    assert relative_difference(expected[0], weights) < 1e-3


def scalar(labels, outputs):
    return tf.reduce_mean(of_ones_own(labels, outputs))


REFUSED = {
    "scalar": (scalar, None, "one loss for each example"),
    "sum": (in_logits(reduction="sum"), None, "sum_over_batch_size"),
    "ignored-class": (in_logits(ignore_class=3), None, "ignore_class"),
    "probabilities-of-logits": ("sparse_categorical_crossentropy", None, "from_logits=True"),
    "logits-of-probabilities": (in_logits(), "softmax", "softmax"),
    "trainers-own-of-probabilities": (None, "softmax", "softmax"),
    "one-hot": (keras.losses.CategoricalCrossentropy(from_logits=True), None, "whole numbers"),
    "of-numbers": ("mse", None, "whole numbers"),
    "whole-batch": (keras.losses.Dice(), None, "one loss for each example"),
    "pairs": (keras.losses.Circle(), None, "depends on the others"),
    "unknown": ("crossentropi", None, "crossentropi"),
    "other-arguments": (lambda outputs: outputs, None, "positional argument"),
}


@pytest.mark.parametrize(("loss", "activation", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_right_is_refused(run_dir, capfd, loss, activation, said):
    with pytest.raises(SystemExit) as ended:
        trained(2, run_dir, activation, loss=loss)
    assert ended.value.code == 78
    problem = capfd.readouterr().err
    assert said in problem
    assert "accepted: " in problem
    assert json.loads((run_dir / "worker-0/result.json").read_text())["status"] == "failed"


def test_labels_and_outputs_reach_a_function_as_they_are(run_dir):
    seen = set()

    def looking(labels, outputs):
        seen.add((labels.dtype, outputs.dtype, outputs.shape[1]))
        return of_ones_own(labels, outputs)

    trained(1, run_dir, loss=looking)
    assert seen == {(tf.int64, tf.float32, CLASSES)}


def test_a_loss_object_is_left_as_it_was():
    loss = in_logits()
    read_loss(loss, CLASSES)
    assert loss.reduction == "sum_over_batch_size"
