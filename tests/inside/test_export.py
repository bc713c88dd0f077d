import errno

import keras
import numpy as np
import pytest
import tensorflow as tf

from cluster_trainer.models import networks
from cluster_trainer.results import export
from cluster_trainer.results.weights import digest, values_of

PICTURES = np.random.default_rng(0).random([8, 28, 28, 1], np.float32)


def test_both_forms_predict_what_the_model_predicts(tmp_path):
    model = networks.mnist_cnn((28, 28, 1), 10)
    export.save(model, tmp_path)
    expected = model(PICTURES).numpy()
    reloaded = keras.models.load_model(tmp_path / export.KERAS_FILE)
    served = tf.saved_model.load(tmp_path / export.SAVED_MODEL)
    np.testing.assert_array_equal(reloaded(PICTURES).numpy(), expected)
    np.testing.assert_allclose(served.serve(PICTURES).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert digest(values_of(reloaded)) == digest(values_of(model))


def test_a_missing_folder_is_made_and_one_that_cannot_be_renamed_is_copied(tmp_path, monkeypatch):
    """Cloud Storage FUSE refuses to rename large folders; shutil calls the same os.rename."""

    def rename(*_):
        raise OSError(errno.EMFILE, "directory has more entries than the limit")

    monkeypatch.setattr("os.rename", rename)
    export.save(networks.mnist_cnn((28, 28, 1), 10), tmp_path / "bucket" / "model")
    folder = tmp_path / "bucket" / "model"
    assert sorted(entry.name for entry in folder.iterdir()) == ["model.keras", "saved_model"]
    tf.saved_model.load(folder / export.SAVED_MODEL)


def test_an_earlier_export_is_replaced_and_nothing_else_is_left(tmp_path):
    for _ in range(2):
        export.save(networks.mnist_cnn((28, 28, 1), 10), tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.keras", "saved_model"]


def test_what_is_exported_survives_a_loss_of_power(tmp_path, disk):
    export.save(networks.mnist_cnn((28, 28, 1), 10), tmp_path)
    unfinished, moved = f".unfinished.{export.KERAS_FILE}", ".unfinished.saved_model"
    assert disk.index(f"sync {unfinished}") < disk.index(f"rename {unfinished} {export.KERAS_FILE}")
    named = disk.index(f"rename {moved} {export.SAVED_MODEL}")
    for name in ("saved_model.pb", "variables.index", "variables", moved):
        assert disk.index(f"sync {name}") < named
    assert f"sync {tmp_path.name}" in disk[named:]


def copied(model, folder, build=None, *, is_alone=True):
    """Save a model through a copy; return the names in its folder."""
    make = build or (lambda: keras.models.clone_model(model))
    export.save_copy(model, make, values_of(model), folder, is_alone=is_alone)
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def test_what_a_layer_has_learnt_of_the_data_is_saved(tmp_path):
    numbers = np.random.default_rng(0).normal(5, 3, (64, 4)).astype("float32")
    scaling = keras.layers.Normalization()
    scaling.adapt(numbers)
    model = keras.Sequential([keras.Input((4,)), scaling, keras.layers.Dense(2)])
    assert copied(model, tmp_path) == ["model.keras", "saved_model"]
    served = tf.saved_model.load(tmp_path / export.SAVED_MODEL)
    reloaded = keras.models.load_model(tmp_path / export.KERAS_FILE)
    for found in (served.serve(numbers), reloaded(numbers)):
        np.testing.assert_allclose(found, model(numbers), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_the_words_that_a_layer_has_learnt_are_saved(tmp_path):
    words = keras.layers.TextVectorization(output_sequence_length=3)
    words.adapt(["one two three", "three four"])
    entry = keras.Input((1,), dtype="string")
    embedded = keras.layers.Embedding(9, 4)(words(entry))
    model = keras.Model(entry, keras.layers.Flatten()(embedded))
    assert copied(model, tmp_path) == ["model.keras", "saved_model"]
    given = tf.constant([["four two"], ["new"]])
    served = tf.saved_model.load(tmp_path / export.SAVED_MODEL)
    np.testing.assert_allclose(served.serve(given), model(given), rtol=1e-5)


class Unknown(keras.Model):
    """Cannot be made from its config: it takes a layer."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)


def test_a_model_that_cannot_be_copied_is_written_itself(tmp_path, caplog):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])

    def broken():
        raise TypeError("no such luck")

    assert copied(model, tmp_path, broken) == ["model.keras"]
    assert "there is no saved_model" in caplog.text


def test_a_model_that_cannot_be_saved_at_all_costs_a_warning(tmp_path, caplog):
    model = Unknown(lambda inputs: inputs)
    model.get_config = None
    assert "model.keras" not in copied(model, tmp_path)
    assert "not saved, only its checkpoints" in caplog.text


def test_on_several_workers_a_model_without_a_copy_is_not_read_by_one(tmp_path, caplog):
    model = Unknown(keras.layers.Dense(2))
    model(np.ones([2, 4]))
    assert copied(model, tmp_path, is_alone=False) == []
    assert "not saved, only its checkpoints" in caplog.text
