"""Workers with data of other lengths, or models with other variables, are refused with code 78."""

import json

import pytest
from meeting_place import MeetingPlace

from conftest import quick_first

LONG = pytest.mark.long

# Its argument: a method, the number of calls with equal rows before the last call, the rows of a
# call, the rows that worker 1 adds in the last call, and the layers that worker 1 adds.
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
    given = [rows] if name == "predict" else [rows, rows[:, :1]]
    found = getattr(model, name)(*given, **verbose)
    return len(found) if name == "predict" else ""

for count in [*[count] * before, count + more * RANK]:
    print("CALLED", called(count), flush=True)
"""


FIT = """
import json, os
import keras, numpy as np

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((33 + RANK, 2)), np.ones((33 + RANK, 1)), verbose=0)
"""


# Its argument: the layers and the units that worker 1 adds. The script's own step is compiled.
LOOP = """
import json, os, sys
import cluster_trainer, keras, numpy as np, tensorflow as tf

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
layers, units = json.loads(sys.argv[1])
keras.utils.set_random_seed(1)
first = keras.layers.Dense(2 + units * RANK)
others = [keras.layers.Dense(1) for _ in range(1 + layers * RANK)]
model = keras.Sequential([keras.Input((2,)), first, *others])
optimizer = keras.optimizers.SGD(0.1)

@tf.function
def step(rows):
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.reduce_mean(model(rows) ** 2))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables),
                                  model.trainable_variables))
    return loss

for rows in cluster_trainer.share([np.ones((6, 2), np.float32)] * 3):
    step(rows)
"""


NONE_MORE = "and no number 5"
ONE_MORE = "of which number 5 is sequential/dense_2/kernel (float32 [1, 1])"
FIRST = "of which number 1 is sequential/dense/kernel (float32 [2, {}])"


@pytest.mark.parametrize(
    ("workers", "case", "received"),
    quick_first(
        1,
        [
            (2, [1, 0], [f"4 variables, {NONE_MORE}", f"6 variables, {ONE_MORE}"]),
            (2, [0, 1], [f"4 variables, {FIRST.format(2)}", f"4 variables, {FIRST.format(3)}"]),
            pytest.param(
                3,
                [1, 0],
                [
                    f"4 variables, {NONE_MORE}",
                    f"6 variables, {ONE_MORE}",
                    f"8 variables, {ONE_MORE}",
                ],
                marks=LONG,
            ),
        ],
    ),
    ids=["layers", "units", "of-three"],
)
def test_a_loop_of_ones_own_is_refused_other_models(tmp_path, workers, case, received):
    """The step is compiled, and AutoGraph has converted it."""
    script = tmp_path / "script.py"
    script.write_text(LOOP)
    with MeetingPlace(tmp_path / "run", workers, str(script), json.dumps(case)) as place:
        assert place.wait() == [78] * workers, place.logs
        told = ", ".join(f"worker-{rank} has {mine}" for rank, mine in enumerate(received))
        for worker, mine in zip(place.workers, received, strict=True):
            log = worker.log.read_text()
            assert f'received "{mine}"; accepted' in log, place.logs
            assert f"{told}." in log, place.logs


@pytest.mark.long
def test_predict_gives_each_worker_its_own_rows(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = (str(script), json.dumps(["predict", 1, 33, 32, 0]))
    with MeetingPlace(tmp_path / "run", 2, *arguments, TRAINER_CHECKPOINT_STEPS="0") as place:
        assert place.wait() == [0, 0], place.logs
        for rank, worker in enumerate(place.workers):
            log = worker.log.read_text()
            printed = [line for line in log.splitlines() if line.startswith("CALLED")]
            assert printed == ["CALLED 33", f"CALLED {33 + 32 * rank}"], place.logs


def refused(tmp_path, program, said):
    script = tmp_path / "script.py"
    script.write_text(program)
    with MeetingPlace(tmp_path / "run", 2, str(script)) as place:
        assert place.wait() == [78, 78], place.logs
        assert said in place.logs


@pytest.mark.long
def test_a_fit_of_other_arrays_is_not_tried_again(tmp_path):
    """The arrays differ in length, but have equally many batches."""
    refused(tmp_path, FIT, "the arrays: received")


# Worker 1 numbers some of the letters otherwise.
LOOKED_UP = """
import json, os
import keras, numpy as np, tensorflow as tf

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
letters = "abcdefgh"
order = [*letters] if RANK == 0 else [*"abcdhgfe"]
table = keras.layers.StringLookup(vocabulary=order, num_oov_indices=0)
words, x = np.array(list(letters) * 2), np.tile(np.eye(8, dtype="float32"), (2, 1))
data = tf.data.Dataset.from_tensor_slices((x, words)).map(lambda x, word: (x, table(word)))
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, kernel_initializer="zeros")])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(80.0), loss, metrics=["accuracy"])
print("ENDED", model.fit(data.batch(16), epochs=5, verbose=0).history, flush=True)
"""


@pytest.mark.long
def test_a_fit_whose_labels_are_numbered_otherwise_is_refused(tmp_path):
    refused(tmp_path, LOOKED_UP, "lists of texts in functions of tf.data")


THIRD = "4 variables, of which number 3 is sgd/iteration (int64 [])"
KERNEL = "variables, of which number 3 is sequential/dense_1/kernel (float32 [1, 1])"


@pytest.mark.parametrize(
    ("case", "received"),
    quick_first(
        1,
        [
            pytest.param(
                ["evaluate", 1, 33, 1, 0],
                ["33 examples", "34 examples", "35 examples"],
                id="evaluate-of-three",
                marks=LONG,
            ),
            pytest.param(["fit", 0, 33, 32, 0], ["2 batches", "3 batches"], id="fit-first"),
            pytest.param(["fit", 1, 33, 32, 0], ["2 batches", "3 batches"], id="fit", marks=LONG),
            pytest.param(["evaluate", 1, 33, 1, 0], ["33 examples", "34 examples"], id="evaluate"),
            pytest.param(
                ["train_on_batch", 0, 6, 1, 0], ["6 examples", "7 examples"], id="batch-0"
            ),
            pytest.param(
                ["train_on_batch", 1, 6, 2, 0],
                ["6 examples", "8 examples"],
                id="batch-1",
                marks=LONG,
            ),
            pytest.param(
                ["test_on_batch", 1, 6, 1, 0], ["6 examples", "7 examples"], id="test", marks=LONG
            ),
            pytest.param(
                ["evaluate", 0, 33, 0, 1],
                [THIRD, f"6 {KERNEL}"],
                id="model",
            ),
            pytest.param(
                ["evaluate", 0, 33, 0, 1],
                [THIRD, f"6 {KERNEL}", f"8 {KERNEL}"],
                id="model-of-three",
                marks=LONG,
            ),
        ],
    ),
)
def test_all_workers_end_with_78_and_say_what_each_has(tmp_path, case, received):
    """They do not try again, since a restart would change nothing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = (str(script), json.dumps(case))
    count = len(received)
    with MeetingPlace(tmp_path / "run", count, *arguments, TRAINER_CHECKPOINT_STEPS="0") as place:
        assert place.wait() == [78] * count, place.logs
        logs = [worker.log.read_text() for worker in place.workers]
    for log, mine in zip(logs, received, strict=True):
        assert log.count("CALLED") == case[1], place.logs
        assert f'received "{mine}"; accepted' in log, place.logs
