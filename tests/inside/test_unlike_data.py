"""Workers whose data have other lengths, or models other variables, are refused with code 78."""

import json

import pytest
from meeting_place import MeetingPlace

LONG = pytest.mark.long

# Its argument: a method, calls of it with the same rows, rows of the last call, and how many more
# rows and layers worker 1 has.
SCRIPT = """
import json, os, sys
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
name, before, count, more, layers = json.loads(sys.argv[1])
keras.utils.set_random_seed(1)
dense = [keras.layers.Dense(1) for _ in range(1 + layers * RANK)]
model = keras.Sequential([keras.Input((2,)), *dense])
model.compile("sgd", "mse")

def called(count):
    rows = np.ones((count, 2), np.float32)
    verbose = {} if name.endswith("_on_batch") else {"verbose": 0}
    getattr(model, name)(rows, rows[:, :1], **verbose)

for count in [*[count] * before, count + more * RANK]:
    called(count)
    print("CALLED", flush=True)
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


@pytest.mark.parametrize(
    ("case", "received"),
    [
        pytest.param(["fit", 0, 33, 32, 0], ["2 batches", "3 batches"], id="fit-first"),
        pytest.param(["fit", 1, 33, 32, 0], ["2 batches", "3 batches"], id="fit", marks=LONG),
        pytest.param(["evaluate", 1, 33, 1, 0], ["33 examples", "34 examples"], id="evaluate"),
        pytest.param(["train_on_batch", 0, 6, 1, 0], ["6 examples", "7 examples"], id="batch-0"),
        pytest.param(
            ["train_on_batch", 1, 6, 2, 0], ["6 examples", "8 examples"], id="batch-1", marks=LONG
        ),
        pytest.param(
            ["test_on_batch", 1, 6, 1, 0], ["6 examples", "7 examples"], id="test", marks=LONG
        ),
        pytest.param(["evaluate", 0, 33, 0, 1], ["4 variables", "6 variables"], id="model"),
    ],
)
def test_all_workers_end_with_78_and_say_what_each_has(tmp_path, case, received):
    """It's not tried again, since a restart would change nothing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = (str(script), json.dumps(case))
    with MeetingPlace(tmp_path / "run", 2, *arguments, TRAINER_CHECKPOINT_STEPS="0") as place:
        assert place.wait() == [78, 78], place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    for log, mine in zip(logs, received, strict=True):
        assert log.count("CALLED") == case[1], place.logs
        assert f'received "{mine}"' in log, place.logs
