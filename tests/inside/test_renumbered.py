"""Workers with disks of their own continue their run if they are listed in another order."""

import json

import pytest
from meeting_place import MeetingPlace

SCRIPT = """
import json, pathlib, sys, time
import keras, numpy as np

class Stops(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        while epoch == 3 and not pathlib.Path(sys.argv[1], "go-on").exists():
            time.sleep(0.02)

keras.utils.set_random_seed(3)
x = np.random.default_rng(0).random((32, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
losses = model.fit(x, x.sum(1), epochs=5, batch_size=8, verbose=0, callbacks=[Stops()]).history
found = [losses["loss"], *(one.ravel().tolist() for one in model.get_weights())]
print("ENDED", json.dumps(found), flush=True)
"""
TRAINER = {"TRAINER_DATASET": "digits", "TRAINER_SEED": "3", "TRAINER_GLOBAL_BATCH_SIZE": "48"}
ENDLESS = "100000"


@pytest.fixture
def workers_on(tmp_path):
    """Two workers, of which each has the disk that is named at its place."""

    def begin(disks, *command, **settings):
        settings = {"TRAINER_CHECKPOINT_STEPS": "2"} | settings
        place = MeetingPlace(tmp_path / f"place-{disks}", 2, *command, **settings)
        for worker, disk in zip(place.workers, disks, strict=True):
            worker.variables["TRAINER_RUN_DIR"] = str(tmp_path / disk)
        return place

    return begin


@pytest.fixture
def until_killed(tmp_path):
    """Kill both workers once each has a checkpoint of the third epoch on its disk."""

    def kill(place, files):
        found = [tmp_path / disk for disk in "ab"]
        place.when(lambda: all([*one.glob(files)] for one in found), "a checkpoint on each disk")
        for worker in place.workers:
            worker.kill()

    return kill


def weights_of(worker):
    (line,) = [one for one in worker.log.read_text().splitlines() if one.startswith("ENDED ")]
    return json.loads(line.removeprefix("ENDED "))


def test_a_script_continues(tmp_path, workers_on, until_killed):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [str(script), str(tmp_path)]
    with workers_on("ab", *command) as place:
        until_killed(place, "worker-*/fit-1/checkpoints/00000012.*")
    (tmp_path / "go-on").touch()
    with workers_on("ba", *command) as place:
        assert place.wait() == [0, 0], place.logs
        assert place.logs.count("fit 1: resuming from step 12") == 2, place.logs
        continued = [weights_of(one) for one in place.workers]
    with workers_on("cd", *command) as place:
        assert place.wait() == [0, 0], place.logs
        assert [weights_of(one) for one in place.workers] == continued
    fits = sorted(one.relative_to(tmp_path) for one in tmp_path.glob("[ab]/*/fit-1"))
    assert [str(one) for one in fits] == ["a/worker-1/fit-1", "b/worker-0/fit-1"]


def test_the_trainer_continues(tmp_path, workers_on, until_killed):
    command = ["-m", "trainer"]
    with workers_on("ab", *command, **TRAINER, TRAINER_EPOCHS=ENDLESS) as place:
        until_killed(place, "worker-*/checkpoints/[0-9]*.npz")
    with workers_on("ba", *command, **TRAINER, TRAINER_EPOCHS=ENDLESS) as place:
        place.when(lambda: "resuming from step" in place.logs, "it resumes")
        assert place.logs.count("the list of workers has changed") == 2
    assert not (tmp_path / "a" / "worker-0" / "checkpoints").exists()
