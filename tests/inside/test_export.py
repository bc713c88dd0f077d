import errno

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.models import mnist_cnn
from cluster_trainer.results import export
from cluster_trainer.results.weights import digest, values_of

PICTURES = np.random.default_rng(0).random([8, 28, 28, 1], np.float32)


def test_both_forms_predict_what_the_model_predicts(tmp_path):
    model = mnist_cnn.build((28, 28, 1), 10)
    export.save(model, tmp_path)
    expected = model(PICTURES).numpy()
    reloaded = keras.models.load_model(tmp_path / export.KERAS_FILE)
    served = tf.saved_model.load(tmp_path / export.SAVED_MODEL)
    np.testing.assert_array_equal(reloaded(PICTURES).numpy(), expected)
    np.testing.assert_allclose(served.serve(PICTURES).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert digest(values_of(reloaded)) == digest(values_of(model))


def test_a_missing_folder_is_made_and_one_that_cannot_be_renamed_is_copied(tmp_path, monkeypatch):
    """As on a bucket that Cloud Storage FUSE mounts; shutil asks the same os.rename."""

    def rename(*_):
        raise OSError(errno.EMFILE, "directory has more entries than the limit")

    monkeypatch.setattr("os.rename", rename)
    export.save(mnist_cnn.build((28, 28, 1), 10), tmp_path / "bucket" / "model")
    folder = tmp_path / "bucket" / "model"
    assert sorted(entry.name for entry in folder.iterdir()) == ["model.keras", "saved_model"]
    tf.saved_model.load(folder / export.SAVED_MODEL)


def test_an_earlier_export_is_replaced_and_nothing_else_is_left(tmp_path):
    for _ in range(2):
        export.save(mnist_cnn.build((28, 28, 1), 10), tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.keras", "saved_model"]


def test_what_is_exported_survives_a_loss_of_power(tmp_path, disk):
    export.save(mnist_cnn.build((28, 28, 1), 10), tmp_path)
    unfinished, moved = f".unfinished.{export.KERAS_FILE}", ".unfinished.saved_model"
    assert disk.index(f"sync {unfinished}") < disk.index(f"rename {unfinished} {export.KERAS_FILE}")
    named = disk.index(f"rename {moved} {export.SAVED_MODEL}")
    for name in ("saved_model.pb", "variables.index", "variables", moved):
        assert disk.index(f"sync {name}") < named
    assert f"sync {tmp_path.name}" in disk[named:]
