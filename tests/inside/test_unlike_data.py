"""Workers whose data have other numbers of examples are told so, and lose none in silence."""

import pytest
from meeting_place import MeetingPlace

SCRIPT = """
import json, os
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")

def called(name, count, **more):
    rows = np.ones((count, 2), np.float32)
    getattr(model, name)(rows, rows[:, :1], **more)

for name, count, more in [
    ("evaluate", 33, {"verbose": 0}),
    ("train_on_batch", 6, {}),
    ("test_on_batch", 6, {}),
]:
    called(name, 2 * count, **more)
    for by in (1, 2):
        try:
            called(name, count + by * RANK, **more)
        except ValueError as error:
            print("REFUSED", name, str(error).split(", in")[0], flush=True)
"""


FIT = """
import json, os
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((33 + RANK, 2)), np.ones((33 + RANK, 1)), verbose=0)
"""


@pytest.mark.long
def test_a_fit_of_other_arrays_is_not_tried_again(tmp_path):
    """As many batches of them."""
    script = tmp_path / "script.py"
    script.write_text(FIT)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [78, 78], place.logs
        assert "the arrays: received" in place.logs


@pytest.mark.long
def test_all_workers_refuse_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with MeetingPlace(tmp_path / "run", 2, str(script), TRAINER_CHECKPOINT_STEPS="0") as place:
        assert place.wait() == [0, 0], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    of_calls = [
        ("evaluate", "data", 33),
        ("train_on_batch", "batches", 6),
        ("test_on_batch", "batches", 6),
    ]
    expected = [
        f"REFUSED {name} The workers' {what} have different numbers of examples: "
        f"[{count}, {count + by}]"
        for name, what, count in of_calls
        for by in (1, 2)
    ]
    for log in logs:
        assert [line for line in log.splitlines() if line.startswith("REFUSED")] == expected
