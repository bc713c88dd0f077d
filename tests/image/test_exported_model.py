"""The model that a run leaves on disk, loaded again in a container that knows nothing of it."""

import pytest

from harness.ended import run_and_remove

TRAIN = {"TRAINER_EPOCHS": "1", "TRAINER_STEPS_PER_EPOCH": "5"}
PREDICT = """
import json
import numpy as np, tensorflow as tf
images = np.random.default_rng(0).random((8, 28, 28, 1), dtype=np.float32)
serve = tf.saved_model.load("/runs/worker-0/saved_model").signatures["serving_default"]
served = next(iter(serve(tf.constant(images)).values()))
import keras
predicted = keras.models.load_model("/runs/worker-0/model.keras")(images)
print(json.dumps([np.asarray(one).tolist() for one in (served, predicted)]))
"""


@pytest.fixture(scope="module")
def run_folder(workbench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    ended = run_and_remove(workbench, environment=TRAIN, volumes=[f"{folder}:/runs"])
    assert ended.code == 0, ended.err
    return folder


def test_keras_file_and_saved_model_give_equal_predictions(run_python, run_folder):
    from_saved_model, from_keras = run_python(PREDICT, volumes=[f"{run_folder}:/runs:ro"])
    assert len(from_keras) == 8
    assert len(from_keras[0]) == 10
    for one, other in zip(from_keras, from_saved_model, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
