"""The survivors train the same batches without a lost worker, and with it once it is back."""

import json
import re
import shutil

import numpy as np
import pytest
from meeting_place import MeetingPlace

# Trains slowly until the file HURRY exists. Three workers share the batches of 6 evenly. The last
# batch of the validation has only two examples, too few for three workers.
SCRIPT = """
import json, pathlib, sys, time
import keras, numpy as np, tensorflow as tf

HURRY = pathlib.Path(sys.argv[1])

class Slowly(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_train_batch_end(self, batch, logs=None):
        if not HURRY.exists():
            time.sleep(0.2)

class Batches(keras.utils.PyDataset):
    num_batches = 3

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return words[:34][rows], targets[:34][rows]

keras.utils.set_random_seed(5)
noise = np.random.default_rng(0)
words = noise.integers(0, 20, (90, 6))
targets = np.sin(words).sum(1, keepdims=True).astype("float32")
model = keras.Sequential([keras.layers.Embedding(20, 4), keras.layers.Flatten(),
                          keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
history = model.fit(words, targets, batch_size=6, epochs=30, verbose=0,
                    validation_data=Batches(), callbacks=[Slowly()]).history
train, test = model.train_function._many, model.test_function._many
traces = [one.experimental_get_tracing_count() for one in (train, test)]
some = tf.data.Dataset.from_tensor_slices((words, targets)).filter(lambda x, _: x[0] < 10).batch(7)
found = {
    "weights": [one.ravel().tolist() for one in model.get_weights()],
    "history": list(history.values()),
    "evaluated": [model.evaluate(words, targets, batch_size=16, verbose=0),
                  model.evaluate(some, verbose=0)],
    "predicted": model.predict(words, batch_size=16, verbose=0).tolist(),
}
if "more" in sys.argv:
    model.fit(words, targets, batch_size=6, epochs=1000, verbose=0, callbacks=[Slowly()])
print("ENDED", json.dumps([traces, found]), flush=True)
"""
STEPS_PER_EPOCH = 15
SETTINGS = {"MIN_WORKERS": "2", "TRAINER_CHECKPOINT_STEPS": "2"}
TRAINED = {
    "TRAINER_DATASET": "digits",
    "TRAINER_GLOBAL_BATCH_SIZE": "48",
    "TRAINER_STEPS_PER_CALL": "2",
}
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("script") / "script.py"
    file.write_text(SCRIPT)
    return str(file)


@pytest.fixture(scope="module")
def undisturbed(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = SETTINGS | {"TRAINER_CHECKPOINT_STEPS": "200"}
    with MeetingPlace(folder / "place", 3, script, str(folder), **settings) as place:
        assert place.wait() == [0, 0, 0], place.logs
        return ended(place.workers[0])


def ended(worker):
    """Return the traces and the results that a worker's last process printed at its end."""
    lines = [one for one in worker.log.read_text().splitlines() if one.startswith("ENDED")]
    assert len(lines) == 1, worker.log.read_text()
    return json.loads(lines[0].removeprefix("ENDED "))


def values(found):
    flat = []
    for value in found.values() if isinstance(found, dict) else found:
        flat += values(value) if isinstance(value, (list, dict)) else [value]
    return flat


def assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(
            values(found[name]), values(value), rtol=1e-4, atol=1e-5, err_msg=name
        )


def step_of(place):
    return place.workers[0].status.get("step") or 0


def goes_on(place, *members):
    """Wait until these workers have done some steps together."""
    place.when(lambda: place.members == [*members], f"a ring of {members}")
    before = step_of(place)
    place.when(lambda: step_of(place) > before + 7, f"more steps of {members}")


def lose(place, lost):
    """Lose a worker in the middle of an epoch, so that the checkpoint holds unfinished metrics."""
    place.when(lambda: 5 < step_of(place) % STEPS_PER_EPOCH < 10, "the middle of an epoch")
    place.workers[lost].kill()
    goes_on(place, *(one for one in place.members if one != lost))


def take_in(place, back):
    place.workers[back].start(is_late=True)
    goes_on(place, *sorted([*place.members, back]))


def test_the_same_batches_are_trained_whoever_is_there(tmp_path, script, undisturbed):
    hurry = tmp_path / "hurry"
    with MeetingPlace(tmp_path / "place", 3, script, str(hurry), **SETTINGS) as place:
        place.when(lambda: step_of(place) > 10, "step 10")
        lose(place, 2)
        take_in(place, 2)
        lose(place, 1)
        hurry.touch()
        assert [place.workers[one].process.wait(120) for one in (0, 2)] == [0, 0], place.logs
        log = place.workers[0].log.read_text()
        traces, found = ended(place.workers[0])
        traces_of_late, of_other = ended(place.workers[2])
        log_of_late = place.workers[2].log.read_text()
    assert place.rings == 4
    first, _, last = map(int, re.findall(r"resuming from step (\d+) held", log))
    assert first % STEPS_PER_EPOCH
    assert last % STEPS_PER_EPOCH
    assert "continuing with 2 of 3 workers (worker-2 is missing)" in log
    assert "worker-2 is back: it joins after step" in log
    assert "all 3 workers are here again" in log
    assert "worker-1 was lost" in log
    assert "continuing with 2 of 3 workers (worker-1 is missing)" in log
    assert found == of_other
    assert "nothing is compiled" not in log_of_late, log_of_late
    assert log_of_late.index("a first step is compiled") < log_of_late.index("resuming from step")
    assert traces == traces_of_late == undisturbed[0]
    assert_same(found, undisturbed[1])


def test_a_fit_that_cannot_begin_again_is_not_interrupted(tmp_path, script):
    hurry = tmp_path / "hurry"
    hurry.touch()
    with MeetingPlace(tmp_path / "place", 3, script, str(hurry), "more", **SETTINGS) as place:
        place.when(lambda: step_of(place) > 10, "step 10")
        place.workers[2].kill()
        place.when(lambda: place.members == [0, 1], "a ring of two")
        chief = place.workers[0]
        place.when((chief.folder / "run/worker-0/fit-2").exists, "the second fit")
        hurry.unlink()
        place.workers[2].start()
        place.when(lambda: "worker-2 is back and has to wait" in chief.log.read_text(), "a word")
        before = step_of(place)
        place.when(lambda: step_of(place) > before + 7, "more steps")
        assert chief.log.read_text().count("is back") == 1
        assert place.rings == 2


def test_a_script_that_has_ended_with_fewer_workers_begins_anew_with_all(tmp_path, script):
    hurry = tmp_path / "hurry"
    with MeetingPlace(tmp_path / "place", 3, script, str(hurry), **SETTINGS) as place:
        place.when(lambda: step_of(place) > 10, "step 10")
        place.workers[2].kill()
        goes_on(place, 0, 1)
        hurry.touch()
        assert [place.workers[one].process.wait(120) for one in (0, 1)] == [0, 0], place.logs
    with MeetingPlace(tmp_path / "place", 3, script, str(hurry), **SETTINGS) as place:
        assert place.wait() == [0, 0, 0], place.logs
        logs = [one.log.read_text() for one in place.workers]
    assert all("has ended with this TRAINER_RUN_DIR" in log for log in logs), logs
    assert not any("resuming from" in log for log in logs), logs


def test_the_trainer_takes_a_worker_in_that_has_lost_its_disk(tmp_path):
    settings = SETTINGS | TRAINED | {"TRAINER_EPOCHS": "1000"}
    with MeetingPlace(tmp_path / "place", 3, "-m", "trainer", **settings) as place:
        place.when(lambda: step_of(place) > 70, "step 70")
        late = place.workers[2]
        late.kill()
        shutil.rmtree(late.folder / "run/worker-2")
        goes_on(place, 0, 1)
        take_in(place, 2)
        log = late.log.read_text()
        assert "a first step is compiled: asking to join" in log, log
        place.when((late.folder / "run/worker-2/metrics.jsonl").exists, "an epoch")
        lines = [
            (place.workers[one].folder / f"run/worker-{one}/metrics.jsonl").read_text().splitlines()
            for one in (0, 2)
        ]
    assert lines[1]
    assert all(json.loads(one)["epoch"] == count for count, one in enumerate(lines[1], 1))


def test_the_trainer_goes_on_without_a_lost_worker(tmp_path):
    settings = SETTINGS | TRAINED | {"TRAINER_EPOCHS": "12"}
    with MeetingPlace(tmp_path / "place", 3, "-m", "trainer", **settings) as place:
        place.when(lambda: step_of(place) > 70, "step 70")
        place.workers[1].kill()
        assert [place.workers[one].process.wait(120) for one in (0, 2)] == [0, 0], place.logs
        results = [place.workers[one].result for one in (0, 2)]
    assert place.members == [0, 2]
    assert len({result["weights_sha256"] for result in results}) == 1
    assert results[0]["steps"] == 12 * 30
    assert results[0]["replicas"] == 3


# Like SCRIPT, but a restarted worker differs in the part that its argument names.
OTHER = """
import json, os, sys, time
import keras, numpy as np

how = sys.argv[1] if os.environ["RESTART_COUNT"] != "0" else "as it was"

class Slowly(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.2)

keras.utils.set_random_seed(5)
rows = np.random.default_rng(0).random((320, 4), np.float32)
rows = rows[:288] if how == "data" else rows
tests = rows[:16] if how == "tests" else rows[:20]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3 if how == "model" else 2),
                          keras.layers.Dense(1)])
model.compile("adam", "mse")
if how == "call":
    model.predict(rows, verbose=0)
validation = None if how == "no tests" else (tests, tests[:, :1])
model.fit(rows, rows[:, :1], batch_size=32, epochs=1000, verbose=0, validation_data=validation,
          callbacks=[Slowly()])
"""
EX_CONFIG = 78
SAID = {
    "data": 'the data: received "9 batches"',
    "model": "the variables: received",
    "call": "the script: received",
    "tests": 'the data: received "16 examples"',
    "no tests": "validation_data: received",
}


@pytest.mark.parametrize("how", SAID)
def test_a_newcomer_that_does_not_fit_ends_alone(tmp_path, how):
    file = tmp_path / "script.py"
    file.write_text(OTHER)
    with MeetingPlace(tmp_path / "place", 3, str(file), how, **SETTINGS) as place:
        place.when(lambda: step_of(place) > 5, "step 5")
        place.workers[2].kill()
        goes_on(place, 0, 1)
        place.workers[2].start(is_late=True)
        assert place.workers[2].process.wait(120) == EX_CONFIG, place.logs
        place.workers[2].kill()  # so that `when` accepts its end
        goes_on(place, 0, 1)
        assert SAID[how] in place.workers[2].log.read_text(), place.logs
        assert place.rings == 4
        assert [one.starts for one in place.workers] == [1, 1, 2]


# The callback trains its own model once in a process, when it first needs it.
LAZY = """
import keras, numpy as np, time

class Compares(keras.callbacks.Callback):
    several_batches_a_call = True
    other = None

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)

    def on_epoch_end(self, epoch, logs=None):
        if self.other is None:
            self.other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            self.other.compile("adam", "mse")
            self.other.fit(rows, rows[:, :1], verbose=0)
        self.other.predict(rows, verbose=0)

rows = np.random.default_rng(0).random((320, 4), np.float32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(rows, rows[:, :1], batch_size=32, epochs=1000, verbose=0, callbacks=[Compares()])
"""


def test_a_callback_that_has_made_something_since_makes_it_again_with_a_newcomer(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(LAZY)
    with MeetingPlace(tmp_path / "place", 3, str(file), **SETTINGS) as place:
        place.when(lambda: step_of(place) > 15, "the second epoch")
        place.workers[2].kill()
        goes_on(place, 0, 1)
        take_in(place, 2)
        before = step_of(place)
        place.when(lambda: step_of(place) > before + 25, "two more epochs")
        assert place.rings == 3, place.logs
        assert [one.starts for one in place.workers] == [1, 1, 2]


@pytest.mark.parametrize(
    ("name", "value"), [("TRAINER_SEED", "7"), ("TRAINER_CHECKPOINT_STEPS", "0")]
)
def test_a_worker_with_other_settings_ends_alone_before_the_trainers_fit(tmp_path, name, value):
    settings = SETTINGS | TRAINED | {"TRAINER_EPOCHS": "1000"}
    with MeetingPlace(tmp_path / "place", 3, "-m", "trainer", **settings) as place:
        place.when(lambda: step_of(place) > 70, "step 70")
        place.workers[2].kill()
        goes_on(place, 0, 1)
        place.workers[2].variables[name] = value
        place.workers[2].start(is_late=True)
        assert place.workers[2].process.wait(120) == EX_CONFIG, place.logs
        place.workers[2].kill()
        goes_on(place, 0, 1)
        assert "worker-2 does not fit, and exits" in place.workers[0].log.read_text()
        assert name in place.workers[2].log.read_text()


def test_another_runs_checkpoint_on_a_newcomers_disk_is_its_own_affair(tmp_path):
    """The other run's checkpoint has a later step than this run has reached."""
    other = TRAINED | {"TRAINER_SEED": "7", "TRAINER_EPOCHS": "150"}
    with MeetingPlace(tmp_path / "other", 1, "-m", "trainer", **other) as place:
        assert place.wait() == [0], place.logs
    settings = SETTINGS | TRAINED | {"TRAINER_EPOCHS": "100000"}
    with MeetingPlace(tmp_path / "place", 3, "-m", "trainer", **settings) as place:
        place.when(lambda: step_of(place) > 70, "step 70")
        place.workers[2].kill()
        goes_on(place, 0, 1)
        own = place.workers[2].folder / "run/worker-2/checkpoints"
        shutil.rmtree(own)
        shutil.copytree(tmp_path / "other/run/worker-0/checkpoints", own)
        place.workers[2].start(is_late=True)
        assert place.workers[2].process.wait(120) == EX_CONFIG, place.logs
        place.workers[2].kill()
        goes_on(place, 0, 1)
        assert "TRAINER_SEED" in place.workers[2].log.read_text(), place.logs
        assert step_of(place) < 150 * 30
