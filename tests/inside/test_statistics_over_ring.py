"""A model's statistics on the workers of a ring when it evaluates or predicts."""

import json

import pytest
from meeting_place import MeetingPlace

BEGIN = """
import json, os
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
noise = np.random.default_rng(0)
ROWS = noise.random((16, 3), np.float32) * [1, 2, 3]
GOALS = ROWS.sum(1, keepdims=True)

def made(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.Input((3,)), keras.layers.Dense(4, trainable=False),
        keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(1),
    ])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model

def values(model):
    return [one.numpy().ravel().tolist() for one in model.weights]

def moving_mean(model):
    return model.layers[1].moving_mean.numpy().tolist()

TOLD = {}
"""
EVALUATES, PREDICTS = "evaluate(ROWS, GOALS, verbose=0)", "predict(ROWS, verbose=0)"
END = "\nprint('TOLD', json.dumps(TOLD), flush=True)\n"


def told(tmp_path, program):
    """Run a script on two workers; return the values that each tells."""
    script = tmp_path / "script.py"
    script.write_text(BEGIN + program + END)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [0, 0], place.logs
        return [told_in(worker.log.read_text()) for worker in place.workers]


def told_in(log):
    (line,) = [line for line in log.splitlines() if line.startswith("TOLD")]
    return json.loads(line.removeprefix("TOLD "))


@pytest.mark.parametrize("look", [EVALUATES, pytest.param(PREDICTS, marks=pytest.mark.long)])
def test_what_the_chief_alone_has_loaded_is_what_all_have(tmp_path, look):
    program = """
trained, model = made(7), made(100 + RANK)
for one in trained.weights:
    one.assign_add(np.full(one.shape, 0.5, np.float32))
TOLD["wanted"] = values(trained)
if RANK == 0:
    model.set_weights(trained.get_weights())
model.LOOK
TOLD["found"] = values(model)
""".replace("LOOK", look)
    for one in told(tmp_path, program):
        assert one["found"] == one["wanted"]


LOOKS = {
    "evaluate": "model.evaluate(ROWS, GOALS, verbose=0)",
    "test_on_batch": "model.test_on_batch(ROWS, GOALS)",
    "predict_on_batch": "model.predict_on_batch(ROWS)",
}


def test_after_steps_they_are_the_mean_of_all_shares_whatever_looks_at_them(tmp_path):
    looks = "".join(
        f"""
model = made(7)
hidden = model.layers[0](ROWS).numpy()
TOLD["mean"] = ((hidden[:8].mean(0) + hidden[8:].mean(0)) / 4).tolist()  # half of it is new
model.train_on_batch(ROWS, GOALS)
{look}
TOLD["{name}"] = moving_mean(model)
"""
        for name, look in LOOKS.items()
    )
    for one in told(tmp_path, looks):
        for name in LOOKS:
            assert one[name] == pytest.approx(one["mean"], rel=1e-5), name
