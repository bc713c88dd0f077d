"""If a ring loses a worker, the others keep their processes, and all end as if undisturbed."""

import pytest
from meeting_place import MeetingPlace, steps_resumed

TRAINER = ("-m", "trainer")
SETTINGS = {
    "TRAINER_DATASET": "digits",
    "TRAINER_EPOCHS": "12",
    "TRAINER_GLOBAL_BATCH_SIZE": "48",
    "TRAINER_STEPS_PER_CALL": "2",
    "TRAINER_CHECKPOINT_STEPS": "20",
    "TRAINER_TENSORBOARD": "none",
}
# Trains slowly enough to be killed on the way, and prints a digest of the weights at its end. Its
# callbacks make a survivor differ from a new process.
SCRIPT = """
import hashlib, json, os, sys, time
import keras, numpy as np

IS_FIRST = os.environ["RESTART_COUNT"] == "0"
RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

class Slowly(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_begin(self, epoch, logs=None):
        if "dies-at-once" in sys.argv and IS_FIRST and RANK == 1:
            os._exit(1)

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.1)
        keras.random.normal((2,))
        if epoch % 4 == 0:
            self.model.test_on_batch(inputs[:8], targets[:8])
            for one in (other, trained):
                one.predict(inputs[:32], verbose=0)
            trained.evaluate(inputs[:32], inputs[:32, :2], verbose=0)

class Other(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.norm = keras.layers.Dense(2), keras.layers.BatchNormalization()

    def call(self, inputs):
        return self.norm(self.dense(inputs))

def batches():
    yield inputs[:32], targets[:32]
    if IS_FIRST and RANK == 1:
        os._exit(1)
    while True:
        yield inputs[:32], targets[:32]

keras.utils.set_random_seed(5)
noise = np.random.default_rng(0)
inputs = noise.random((320, 8), np.float32)
targets = inputs.sum(1, keepdims=True)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.1),
                          keras.layers.Dense(1)])
model.compile("adam", "mse")
other, trained = Other(), Other()
trained.compile("adam", "mse")
stopping = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=-1.0)
slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97)
if "generator" in sys.argv:
    given = {"x": batches(), "steps_per_epoch": 10}
else:
    given = {"x": inputs, "y": targets, "batch_size": 32}
history = model.fit(**given, validation_data=(inputs[:50], targets[:50]), initial_epoch=20,
                    epochs=60, verbose=0, callbacks=[Slowly(), stopping, slower])
compiled = Other()
compiled.compile("adam", "mse")
built = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
found = [one.predict(inputs[:40], verbose=0) for one in (other, compiled, built)]
found.append(keras.ops.convert_to_numpy(keras.random.normal((2,))))
content = b"".join(each.tobytes() for each in model.get_weights() + found)
print("ENDED", hashlib.sha256(content).hexdigest(), history.epoch, flush=True)
"""
# The model has no `call`, so a worker that has trained it has variables that a new process lacks.
OWN_STEP = """
import os, sys
import keras, numpy as np, tensorflow as tf

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])

    def train_step(self, data):
        if "at-first-trace" in sys.argv:
            die_once()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.inner(data[0]) - data[1]) ** 2)
        weights = self.inner.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}

def die(epoch, logs):
    if "at-first-step" in sys.argv:
        die_once()

def die_once():
    if os.environ["RESTART_COUNT"] == "0" and '"index": 1' in os.environ["TF_CONFIG"]:
        os._exit(1)

if "at-first-line" in sys.argv:
    die_once()
model = Own()
model.compile("adam")
inputs = np.ones((64, 8), np.float32)
epochs = []
model.fit(inputs, inputs[:, :1], epochs=3, verbose=0, callbacks=[keras.callbacks.LambdaCallback(
    on_epoch_begin=die, on_epoch_end=lambda epoch, logs: epochs.append(epoch))])
if "at-its-end" in sys.argv and '"index": 1' in os.environ["TF_CONFIG"]:
    raise ValueError("it cannot be saved")
if "out-of-memory" in sys.argv and '"index": 1' in os.environ["TF_CONFIG"]:
    os.kill(os.getpid(), 9)
print("ENDED", epochs, [weights.tolist() for weights in model.get_weights()], flush=True)
"""
# The values that metrics had before a fit are no part of its first epoch.
EVALUATED = """
import os, sys
import keras, numpy as np

class Dies(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_train_batch_end(self, batch, logs=None):
        if os.environ["RESTART_COUNT"] == "0" and '"index": 1' in os.environ["TF_CONFIG"]:
            os._exit(1)

keras.utils.set_random_seed(5)
inputs = np.random.default_rng(0).random((320, 8), np.float32)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.evaluate(inputs, 10 * inputs[:, :1], verbose=0)
callbacks = [Dies()] if "dies" in sys.argv else []
history = model.fit(inputs, inputs[:, :1], epochs=2, verbose=0, callbacks=callbacks)
print("ENDED", history.history, flush=True)
"""
EX_TEMPFAIL = 75
# tests/cluster/test_restart_policies.py and test_chaos.py test losses without this mark.
pytestmark = pytest.mark.long


def killed(place, rank, step):
    """Kill a worker once it has done some steps, and start another in its place."""
    victim = place.workers[rank]
    place.when(lambda: (victim.status.get("step") or 0) > step, f"step {step}")
    victim.kill()
    victim.start()


def replaced(worker, code):
    """Wait until a worker ends by itself with an exit code, and start another in its place."""
    assert worker.process.wait(60) == code, worker.log.read_text()
    worker.kill()
    worker.start()


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
        assert place.workers[lost].result["resumed_from_step"] > 0
        for result in [worker.result for worker in place.workers]:
            assert result["weights_sha256"] == undisturbed["weights_sha256"]
            assert result["steps"] == undisturbed["steps"]


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("script") / "script.py"
    file.write_text(SCRIPT)
    return str(file)


def ended(place):
    """Return the lines that each worker's last process printed at its end."""
    return [
        [line for line in worker.log.read_text().splitlines() if line.startswith("ENDED")]
        for worker in place.workers
    ]


def resumed_by_each(place):
    """Return the step that each worker's last process has resumed from, after one loss."""
    steps = [steps_resumed(worker.log.read_text()) for worker in place.workers]
    assert [len(of_one) for of_one in steps] == [1] * len(steps), place.logs
    return [step for (step,) in steps]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, script):
    folder = tmp_path_factory.mktemp("undisturbed")
    with MeetingPlace(folder, 2, script, TRAINER_CHECKPOINT_STEPS="7") as place:
        assert place.wait() == [0, 0], place.logs
        found = ended(place)
    assert found[0] == found[1]
    return found


@pytest.mark.parametrize("lost", [0, 1])
def test_the_first_fit_of_a_script_goes_on(tmp_path, script, undisturbed, lost):
    with MeetingPlace(tmp_path, 2, script, TRAINER_CHECKPOINT_STEPS="7") as place:
        killed(place, lost, 100)
        assert place.wait() == [0, 0], place.logs
        assert [one.starts for one in place.workers] == [1 + (rank == lost) for rank in range(2)]
        assert min(resumed_by_each(place)) > 0
        assert ended(place) == undisturbed


def test_a_worker_lost_before_the_first_step(tmp_path, script, undisturbed):
    kept = {"TRAINER_CHECKPOINT_STEPS": "7"}
    with MeetingPlace(tmp_path, 2, script, "dies-at-once", **kept) as place:
        replaced(place.workers[1], 1)
        assert place.wait() == [0, 0], place.logs
        assert [one.starts for one in place.workers] == [1, 2]
        assert ended(place) == undisturbed


def test_data_that_were_read_before_a_loss_need_a_new_process(tmp_path, script):
    """Keras reads two batches of a generator before the fit begins."""
    with MeetingPlace(tmp_path, 2, script, "generator") as place:
        assert place.workers[0].process.wait(60) == EX_TEMPFAIL, place.logs
        assert "rank 1 was lost" in place.logs


def test_a_model_that_is_built_by_its_first_step(tmp_path):
    """A worker fails before its first step; each run begins anew, since the last one has ended."""
    (tmp_path / "script.py").write_text(OWN_STEP)
    for moment in ("at-first-step", "at-first-line", "at-first-trace"):
        with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py"), moment) as place:
            replaced(place.workers[1], 1)
            assert place.wait() == [0, 0], place.logs
            assert [one.starts for one in place.workers] == [1, 2]
            first, second = ended(place)
            assert first == second
            assert first[0].startswith("ENDED [0, 1, 2] "), first


def test_what_goes_on_from_step_0_counts_nothing_from_before(tmp_path):
    (tmp_path / "script.py").write_text(EVALUATED)
    with MeetingPlace(tmp_path / "undisturbed", 2, str(tmp_path / "script.py")) as place:
        assert place.wait() == [0, 0], place.logs
        undisturbed = ended(place)
    with MeetingPlace(tmp_path / "disturbed", 2, str(tmp_path / "script.py"), "dies") as place:
        for worker, code in zip(place.workers, (EX_TEMPFAIL, 1), strict=True):
            replaced(worker, code)
        assert place.wait() == [0, 0], place.logs
        assert "resuming from step 0 held by" in place.logs
        assert ended(place) == undisturbed


def test_a_script_that_fails_at_its_end_has_not_ended_for_the_others(tmp_path):
    (tmp_path / "script.py").write_text(OWN_STEP)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py"), "at-its-end") as place:
        assert place.wait() == [EX_TEMPFAIL, 1], place.logs
        assert "its script has failed" in place.logs
        assert not (tmp_path / "run/worker-0/ENDED").exists()


def test_a_script_that_is_killed_at_its_end_has_not_ended_for_the_others(tmp_path):
    (tmp_path / "script.py").write_text(OWN_STEP)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py"), "out-of-memory") as place:
        assert place.wait() == [EX_TEMPFAIL, -9], place.logs
        assert "a peer was lost (PeerLost: rank 1" in place.logs
        assert not (tmp_path / "run/worker-0/ENDED").exists()


# The trainer's loop, called from a script.
OF_API = """
import os, sys
import keras, numpy as np
from cluster_trainer import fit

rows = np.arange(64, dtype=np.int64) % 3
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3)])
fit(model, ((rows[:, None].astype(np.float32), rows), None), epochs=1, global_batch_size=16)
if '"index": 1' in os.environ["TF_CONFIG"]:
    raise ValueError("after the fit")
"""


def test_a_script_that_fails_after_the_trainers_fit_has_not_ended_for_the_others(tmp_path):
    (tmp_path / "script.py").write_text(OF_API)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py")) as place:
        assert place.wait() == [EX_TEMPFAIL, 1], place.logs
        assert "its script has failed" in place.logs


# A survivor remembers the epochs that it has seen; the second fit is the trainer's loop.
OF_API_APART = """
import time
import keras, numpy as np
from cluster_trainer import fit

seen = []

class Looks(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.2)
        seen.append(epoch)

keras.utils.set_random_seed(5)
rows = np.random.default_rng(0).random((320, 8), np.float32)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows, rows[:, :1], epochs=20, verbose=0, callbacks=[Looks()])
if len(seen) >= 20:
    model.predict(rows, verbose=0)
fit(model, ((rows, rows[:, :1]), None), epochs=1, global_batch_size=32)
"""


def test_what_a_survivor_remembers_for_the_trainers_fit_is_worth_another_try(tmp_path):
    (tmp_path / "script.py").write_text(OF_API_APART)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py")) as place:
        killed(place, 1, 50)
        assert place.wait() == [EX_TEMPFAIL, EX_TEMPFAIL], place.logs
        assert "did not begin together" in place.workers[1].log.read_text()


# One worker makes a call that the other does not make: at once, or after twelve epochs. A new
# process has seen fewer epochs.
APART = """
import os, sys, time
import keras, numpy as np

RANK = int('"index": 1' in os.environ["TF_CONFIG"])
seen = []

class Looks(keras.callbacks.Callback):
    several_batches_a_call = True

    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.2)
        seen.append(epoch)
        if "remembers" in sys.argv and len(seen) == 12:
            self.model.predict(rows, verbose=0)

keras.utils.set_random_seed(5)
rows = np.random.default_rng(0).random((320, 8), np.float32)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
if "at-once" in sys.argv and RANK:
    model.predict(rows, verbose=0)
model.fit(rows, rows[:, :1], epochs=20, verbose=0, callbacks=[Looks()])
"""
EX_CONFIG = 78


def test_workers_at_different_calls_end_for_good(tmp_path):
    (tmp_path / "script.py").write_text(APART)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py"), "at-once") as place:
        assert place.wait() == [EX_CONFIG, EX_CONFIG], place.logs
        for worker in place.workers:
            log = worker.log.read_text()
            assert "OtherCall: out of step" in log
            assert "Traceback" in log


def test_where_one_has_survived_another_try_is_worth_it(tmp_path):
    (tmp_path / "script.py").write_text(APART)
    with MeetingPlace(tmp_path, 2, str(tmp_path / "script.py"), "remembers") as place:
        killed(place, 1, 50)
        assert place.wait() == [EX_TEMPFAIL, EX_TEMPFAIL], place.logs
        assert "did not begin together" in place.logs
