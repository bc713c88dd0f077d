"""The model that a run leaves on disk, loaded again in containers that know nothing of it."""

import pytest

from harness.ended import run_and_remove

TRAIN = {"TRAINER_EPOCHS": "1", "TRAINER_STEPS_PER_EPOCH": "5"}
PREDICT = """
import hashlib, json, sys
import keras, numpy as np, tensorflow as tf
images = np.random.default_rng(0).random((8, 28, 28, 1), dtype=np.float32)
if sys.argv[1] == "keras":
    predictions = keras.models.load_model("/runs/worker-0/model.keras")(images)
else:
    serve = tf.saved_model.load("/runs/worker-0/saved_model").signatures["serving_default"]
    predictions = next(iter(serve(tf.constant(images)).values()))
print(json.dumps(np.asarray(predictions).tolist()))
"""


@pytest.fixture(scope="module")
def run_folder(workbench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    ended = run_and_remove(workbench, environment=TRAIN, volumes=[f"{folder}:/runs"])
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture
def predict(run_python, run_folder):
    def run(form):
        program = f"import sys; sys.argv = ['', {form!r}]\n{PREDICT}"
        return run_python(program, volumes=[f"{run_folder}:/runs:ro"])

    return run


def test_keras_file_and_saved_model_give_equal_predictions(predict):
    from_keras, from_saved_model = predict("keras"), predict("saved_model")
    assert len(from_keras) == 8
    assert len(from_keras[0]) == 10
    for one, other in zip(from_keras, from_saved_model, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
