"""A worker of a ring is lost: the others keep their processes, and all end as they would have."""

import pytest
from meeting_place import MeetingPlace

TRAINER = ("-m", "trainer")
SETTINGS = {
    "TRAINER_DATASET": "digits",
    "TRAINER_EPOCHS": "12",
    "TRAINER_GLOBAL_BATCH_SIZE": "48",
    "TRAINER_STEPS_PER_CALL": "2",
    "TRAINER_CHECKPOINT_STEPS": "20",
    "TRAINER_TENSORBOARD": "none",
}
# Slowly enough to be killed on the way; the weights are printed at the end.
SCRIPT = """
import hashlib, sys, time
import keras, numpy as np

class Slowly(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.1)

def batches():
    while True:
        yield inputs[:32], targets[:32]

keras.utils.set_random_seed(5)
noise = np.random.default_rng(0)
inputs = noise.random((320, 8), np.float32)
targets = inputs.sum(1, keepdims=True)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.1),
                          keras.layers.Dense(1)])
model.compile("adam", "mse")
stopping = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=-1.0)
if "generator" in sys.argv:
    given = {"x": batches(), "steps_per_epoch": 10}
else:
    given = {"x": inputs, "y": targets, "batch_size": 32}
history = model.fit(**given, epochs=60, verbose=0, callbacks=[Slowly(), stopping])
content = b"".join(weights.tobytes() for weights in model.get_weights())
epochs = len(history.history["loss"])
print("ENDED", hashlib.sha256(content).hexdigest(), epochs, flush=True)
"""
EX_TEMPFAIL = 75
# tests/cluster/test_restart_policies.py and test_chaos.py have losses that are not.
pytestmark = pytest.mark.long


def killed(place, rank, step):
    """Kill a worker once it has done some steps, and start another in its place."""
    victim = place.workers[rank]
    place.when(lambda: (victim.status.get("step") or 0) > step, f"step {step}")
    victim.kill()
    victim.start()


@pytest.mark.parametrize(("size", "lost"), [(2, 0), (3, 0), (3, 2)])
def test_the_others_keep_their_processes(tmp_path, size, lost):
    with MeetingPlace(tmp_path / "undisturbed", size, *TRAINER, **SETTINGS) as place:
        assert place.wait() == [0] * size, place.logs
        undisturbed = place.workers[0].result
    with MeetingPlace(tmp_path / "disturbed", size, *TRAINER, **SETTINGS) as place:
        killed(place, lost, 70)
        assert place.wait() == [0] * size, place.logs
        assert [one.starts for one in place.workers] == [1 + (r == lost) for r in range(size)]
        assert place.rings == 2
        for result in [worker.result for worker in place.workers]:
            assert result["weights_sha256"] == undisturbed["weights_sha256"]
            assert result["steps"] == undisturbed["steps"]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


def ended(place):
    """Return what each worker's last process has printed at its end."""
    return [
        [line for line in worker.log.read_text().splitlines() if line.startswith("ENDED")]
        for worker in place.workers
    ]


@pytest.mark.parametrize("lost", [0, 1])
def test_the_first_fit_of_a_script_goes_on(tmp_path, script, lost):
    kept = {"TRAINER_CHECKPOINT_STEPS": "7"}
    with MeetingPlace(tmp_path / "undisturbed", 2, script, **kept) as place:
        assert place.wait() == [0, 0], place.logs
        undisturbed = ended(place)
    with MeetingPlace(tmp_path / "disturbed", 2, script, **kept) as place:
        killed(place, lost, 100)
        assert place.wait() == [0, 0], place.logs
        assert [one.starts for one in place.workers] == [1 + (rank == lost) for rank in range(2)]
        assert ended(place) == undisturbed
        assert undisturbed[0] == undisturbed[1]


def test_data_that_cannot_be_gone_through_twice_need_a_new_process(tmp_path, script):
    with MeetingPlace(tmp_path / "disturbed", 2, script, "generator") as place:
        killed(place, 1, 100)
        assert place.workers[0].process.wait(60) == EX_TEMPFAIL, place.logs
        assert "rank 1 was lost" in place.logs
